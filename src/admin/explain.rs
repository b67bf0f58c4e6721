//! `GET /api/v1/explain` and `POST /api/v1/check`: may this URL be fetched, and when?
//!
//! The answer says how a request would be treated that came now, alone. No URL takes a place in a queue, so many URLs
//! of one host all get the same time. If robots.txt is not known in time, the answer never says that it allows
//! anything.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::Uri;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::form_urlencoded;

use super::hosts::{DelayJson, HostJson, fresh};
use super::problem::ApiProblem;
use super::time::{self, millis};
use super::{Admin, body};
use crate::clock;
use crate::politeness::lane::Objection;
use crate::politeness::time::Timestamp;
use crate::proxy::Prediction;
use crate::robots::{Question, Reason, ReportVerdict, RuleLine};

/// What is known about one URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub url: String,
    /// The host whose budget it uses.
    pub host: Option<String>,
    /// None if this is not known.
    pub allowed: Option<bool>,
    /// What robots.txt says, whatever curtsy does about it.
    pub verdict: ReportVerdict,
    /// None if robots.txt was not asked: it does not matter, or is not known in time.
    pub reason: Option<Reason>,
    /// The rule of robots.txt that decides.
    pub rule: Option<RuleLine>,
    pub group: Option<String>,
    pub delay_ms: Option<u64>,
    pub delay: Option<DelayJson>,
    /// What the request would wait for, if it had to: a hold, a pause, `concurrency`, or the largest part of the delay.
    pub why: Option<String>,
    /// How long it would wait if it came now; none if it would be refused or the time is unknown.
    pub wait_ms: Option<u64>,
    /// Why curtsy would refuse it now, as in `Curtsy-Error`. Some refusals end with time: then `wait_ms` says when.
    pub refusal: Option<String>,
    /// What is known about the host; none in answers about many URLs.
    pub known: Option<HostJson>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Checked {
    pub urls: Vec<Explanation>,
}

/// How long curtsy works on a question about one URL, and about many.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_FOR_MANY: Duration = Duration::from_secs(5);
const MOST_URLS: usize = 1_000;
/// Concurrent fetches of robots.txt for one call.
const AT_ONCE: usize = 16;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Urls {
    urls: Vec<String>,
    user_agent: Option<String>,
    method: Option<String>,
}

/// `GET /api/v1/explain?url=…&user_agent=…&method=…`
pub(super) async fn explain(State(admin): State<Arc<Admin>>, uri: Uri) -> Result<Response, ApiProblem> {
    let (question, method) = question(uri.query().unwrap_or_default())?;
    let foresight = admin.desk.foresee(&question, &method, PATIENCE).await;
    let now = time::now();
    let known = match &foresight.host {
        Some(host) => admin.desk.view(host).await.map(|view| HostJson::new(host, &view, now)),
        None => None,
    };
    Ok(fresh(Explanation { known, ..Explanation::new(&question, foresight, now) }))
}

/// `POST /api/v1/check`
pub(super) async fn check(
    State(admin): State<Arc<Admin>>,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let Urls { urls, user_agent, method } = body::read(said)?;
    if !(1..=MOST_URLS).contains(&urls.len()) {
        return Err(ApiProblem::bad_request(format!("urls has from 1 to {MOST_URLS} URLs")));
    }
    let method: Arc<str> = read_method(method.as_deref())?.into();
    let read = |(index, url): (usize, &String)| {
        let question = Question::parse(url, user_agent.as_deref(), false);
        question.map_err(|bad| ApiProblem::bad_request(format!("urls[{index}]: {bad}")))
    };
    let questions: Vec<Question> = urls.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(fresh(Checked { urls: check_all(&admin, questions, &method).await }))
}

async fn check_all(admin: &Arc<Admin>, questions: Vec<Question>, method: &Arc<str>) -> Vec<Explanation> {
    let (deadline, places) = (clock::now() + PATIENCE_FOR_MANY, Arc::new(Semaphore::new(AT_ONCE)));
    let mut tasks = JoinSet::new();
    for (index, question) in questions.into_iter().enumerate() {
        let (admin, places, method) = (admin.clone(), places.clone(), method.clone());
        tasks.spawn(async move {
            let _place = places.acquire().await;
            let left = deadline.saturating_duration_since(clock::now());
            let foresight = admin.desk.foresee(&question, &method, left).await;
            (index, Explanation::new(&question, foresight, time::now()))
        });
    }
    let mut explained = tasks.join_all().await;
    explained.sort_by_key(|(index, _)| *index);
    explained.into_iter().map(|(_, explanation)| explanation).collect()
}

impl Explanation {
    fn new(question: &Question, foresight: Prediction, now: Timestamp) -> Explanation {
        let Prediction { host, report, asks_robots, expected, refusal, allowed } = foresight;
        let verdict = match &report {
            Some(report) => report.verdict,
            None if asks_robots || allowed.is_none() => ReportVerdict::Unknown,
            None => ReportVerdict::Allowed,
        };
        let tellable =
            expected.filter(|expected| allowed == Some(true) && expected.objection != Some(Objection::Paused));
        Explanation {
            url: question.url(),
            host: host.map(|host| host.to_string()),
            allowed,
            verdict,
            reason: report.as_ref().map(|report| report.reason),
            rule: report.as_ref().and_then(|report| report.rule.clone()),
            group: report.and_then(|report| report.group),
            delay_ms: expected.map(|expected| millis(expected.delays.effective())),
            delay: expected.map(|expected| DelayJson::new(&expected.delays)),
            why: expected.map(|expected| expected.why.to_owned()),
            wait_ms: tellable.map(|expected| millis(expected.start.since(now))),
            refusal: refusal.map(str::to_owned),
            known: None,
        }
    }
}

fn question(query: &str) -> Result<(Question, String), ApiProblem> {
    let (mut url, mut user_agent, mut method) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place: &mut Option<Cow<'_, str>> = match name.as_ref() {
            "url" => &mut url,
            "user_agent" => &mut user_agent,
            "method" => &mut method,
            _ => return Err(ApiProblem::bad_request("the known parameters are url, user_agent and method")),
        };
        if place.replace(value).is_some() {
            return Err(ApiProblem::bad_request(format!("{name} is given twice")));
        }
    }
    let url = url.ok_or_else(|| ApiProblem::bad_request("url is missing"))?;
    let question = Question::parse(&url, user_agent.as_deref(), false);
    Ok((question.map_err(|bad| ApiProblem::bad_request(bad.to_string()))?, read_method(method.as_deref())?))
}

fn read_method(method: Option<&str>) -> Result<String, ApiProblem> {
    let method = method.unwrap_or("GET");
    if method.is_empty() || method.len() > 32 || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err(ApiProblem::bad_request("method is a word such as GET"));
    }
    Ok(method.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_the_query() {
        let (asked, method) = question("url=http%3A%2F%2Fa.test%2Fx%3Fy&user_agent=Foo+Bot%2F1&method=POST").unwrap();
        assert_eq!((asked.url().as_str(), method.as_str()), ("http://a.test/x?y", "POST"));
        assert_eq!(question("url=a.test").unwrap().1, "GET");
        for query in
            ["", "url=", "url=ftp://a.test/", "url=a.test&url=b.test", "url=a.test&x=1", "url=a.test&method=ge t"]
        {
            assert!(question(query).is_err(), "{query}");
        }
    }
}
