//! `GET /api/v1/explain` and `POST /api/v1/check`: may this URL be fetched, and when?
//!
//! The answer says how a request of one client would be treated that came now, alone, on the way that such a request
//! takes: plain, or through a tunnel that curtsy can or cannot look into. No URL takes a place in a queue, so many URLs
//! of one host all get the same time. If robots.txt is not known in time, the answer never says that it allows
//! anything.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::request::Parts;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use url::form_urlencoded;

use super::hosts::{self, DelayJson, HostJson, fresh};
use super::problem::ApiProblem;
use super::time::{self, millis};
use super::{Admin, body, listener};
use crate::clock;
use crate::politeness::Scheme;
use crate::politeness::lane::Objection;
use crate::politeness::time::Timestamp;
use crate::proxy::{Asker, CacheForecast, Inquiry, NotIntercepted, Prediction, Unenforced, Via};
use crate::robots::{Question, Reason, ReportVerdict, RuleLine};

/// What is known about one URL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub url: String,
    /// The host whose budget it uses.
    pub host: Option<String>,
    /// How the request would reach curtsy: plain, tunnel or intercepted.
    #[serde(default)]
    pub via: String,
    /// The client whose request this is about, as other views name it.
    #[serde(default)]
    pub client: String,
    /// Whether such a request would be served; none if this is not known.
    pub allowed: Option<bool>,
    /// Why it would be served although robots.txt forbids it, and how to change that.
    #[serde(default)]
    pub warning: Option<String>,
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
    /// What fails on the way to the origin or to its robots.txt, or why the request may not go there.
    #[serde(default)]
    pub trouble: Option<String>,
    /// What the cache would do; none if the request is hidden in a tunnel, or fails before.
    #[serde(default)]
    pub cache: Option<CachedJson>,
    /// What is known about the host; none in answers about many URLs.
    pub known: Option<HostJson>,
}

/// What the cache would do for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachedJson {
    /// `off`, `miss`, `fresh`, `stale` (given although stale) or `validate`.
    pub state: String,
    /// For how long the stored answer is still fresh; negative if it is stale.
    pub ttl_s: Option<i64>,
    pub age_s: Option<u32>,
    /// Why the last answer was not stored, as in `detail` of Cache-Status; none if one is stored, or it is not known.
    #[serde(default)]
    pub not_stored: Option<String>,
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
/// As long as the names that other views show.
const LONGEST_NAME: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Urls {
    urls: Vec<String>,
    user_agent: Option<String>,
    method: Option<String>,
    via: Option<String>,
    client: Option<String>,
}

/// The parts of a question that are the same for all its URLs.
#[derive(Debug, Default)]
struct Asked {
    user_agent: Option<String>,
    method: Option<String>,
    via: Option<String>,
    client: Option<String>,
}

/// `GET /api/v1/explain?url=…&user_agent=…&method=…&via=…&client=…`
pub(super) async fn explain(State(admin): State<Arc<Admin>>, parts: Parts) -> Result<Response, ApiProblem> {
    let (url, asked) = read_query(parts.uri.query().unwrap_or_default())?;
    let inquiry = asked.about(&url, listener::peer(&parts.extensions)).map_err(ApiProblem::bad_request)?;
    let foresight = admin.desk.foresee(&inquiry, PATIENCE).await;
    let known = match &foresight.host {
        Some(host) => hosts::in_full(&admin, host, inquiry.question.origin.host.as_str()).await,
        None => None,
    };
    Ok(fresh(Explanation { known, ..Explanation::new(&inquiry, foresight, time::now()) }))
}

/// `POST /api/v1/check`
pub(super) async fn check(
    State(admin): State<Arc<Admin>>,
    parts: Parts,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let Urls { urls, user_agent, method, via, client } = body::read(said)?;
    let asked = Asked { user_agent, method, via, client };
    if !(1..=MOST_URLS).contains(&urls.len()) {
        return Err(ApiProblem::bad_request(format!("urls has from 1 to {MOST_URLS} URLs")));
    }
    let peer = listener::peer(&parts.extensions);
    let read = |(index, url): (usize, &String)| {
        asked.about(url, peer).map_err(|bad| ApiProblem::bad_request(format!("urls[{index}]: {bad}")))
    };
    let inquiries: Vec<Inquiry> = urls.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(fresh(Checked { urls: check_all(&admin, inquiries).await }))
}

async fn check_all(admin: &Arc<Admin>, inquiries: Vec<Inquiry>) -> Vec<Explanation> {
    let (deadline, places) = (clock::now() + PATIENCE_FOR_MANY, Arc::new(Semaphore::new(AT_ONCE)));
    let mut tasks = JoinSet::new();
    for (index, inquiry) in inquiries.into_iter().enumerate() {
        let (admin, places) = (admin.clone(), places.clone());
        tasks.spawn(async move {
            let _place = places.acquire().await;
            let left = deadline.saturating_duration_since(clock::now());
            let foresight = admin.desk.foresee(&inquiry, left).await;
            (index, Explanation::new(&inquiry, foresight, time::now()))
        });
    }
    let mut explained = tasks.join_all().await;
    explained.sort_by_key(|(index, _)| *index);
    explained.into_iter().map(|(_, explanation)| explanation).collect()
}

impl Explanation {
    fn new(inquiry: &Inquiry, foresight: Prediction, now: Timestamp) -> Explanation {
        let warning = warning(&foresight);
        let Prediction { via, host, report, asks_robots, expected, refusal, trouble, allowed, cache, .. } = foresight;
        let is_answered = allowed == Some(true) && cache.is_some_and(|cache| cache.answers());
        let verdict = match &report {
            Some(report) => report.verdict,
            None if asks_robots || allowed.is_none() => ReportVerdict::Unknown,
            None => ReportVerdict::Allowed,
        };
        let tellable =
            expected.filter(|expected| allowed == Some(true) && expected.objection != Some(Objection::Paused));
        Explanation {
            url: inquiry.question.url(),
            host: host.map(|host| host.to_string()),
            via: via.word().to_owned(),
            client: inquiry.client.name.clone().unwrap_or_else(|| inquiry.client.address.to_string()),
            allowed,
            warning,
            verdict,
            reason: report.as_ref().map(|report| report.reason),
            rule: report.as_ref().and_then(|report| report.rule.clone()),
            group: report.and_then(|report| report.group),
            delay_ms: expected.map(|expected| millis(expected.delays.effective())),
            delay: expected.map(|expected| DelayJson::new(&expected.delays)),
            why: expected.map(|expected| expected.why.to_owned()),
            wait_ms: match is_answered {
                true => Some(0),
                false => tellable.map(|expected| millis(expected.start.since(now))),
            },
            refusal: refusal.map(str::to_owned),
            trouble,
            cache: cache.map(|CacheForecast { state, ttl, age, not_stored }| CachedJson {
                state: state.to_owned(),
                ttl_s: ttl,
                age_s: age,
                not_stored: not_stored.map(str::to_owned),
            }),
            known: None,
        }
    }
}

/// Says why a request would be served that robots.txt forbids.
fn warning(foresight: &Prediction) -> Option<String> {
    let because = match foresight.unenforced? {
        Unenforced::Tunnel(why) => format!("curtsy cannot see paths in a tunnel. {}", way_out(why)),
        Unenforced::Warns => "robots = \"warn\" only counts what it forbids".to_owned(),
        Unenforced::Exempt => "robots.exempt_user_agents lists this client".to_owned(),
        Unenforced::Method => "robots.apply_to does not list this method".to_owned(),
    };
    let rule = foresight.report.as_ref().and_then(|report| report.rule.as_ref());
    let says = rule.map_or_else(|| " forbids it".to_owned(), |rule| format!(" line {} says {}", rule.line, rule.rule));
    Some(format!("served, although robots.txt{says}: {because}"))
}

fn way_out(why: Option<NotIntercepted>) -> &'static str {
    match why {
        Some(NotIntercepted::Off) => {
            "HTTPS interception enforces it: run curtsy setup, or write in section [tls]: intercept = true"
        }
        Some(NotIntercepted::NotListed) => "HTTPS interception enforces it: add the host to tls.only",
        Some(NotIntercepted::Bypassed) => "HTTPS interception enforces it: remove the host from tls.bypass",
        Some(NotIntercepted::Untrusting) => {
            "This client has rejected curtsy's CA for this host; trust it (curtsy ca) to enforce the rule"
        }
        None => "Tunnels of this client to this host are intercepted, and there the rule is enforced",
    }
}

impl Asked {
    /// Returns the question about one URL, for a caller at this address; or what is wrong with it.
    fn about(&self, url: &str, peer: IpAddr) -> Result<Inquiry, String> {
        let question = Question::parse(url, self.user_agent.as_deref(), false).map_err(|bad| bad.to_string())?;
        let via = self.via.as_deref().map(|word| Via::parse(word).ok_or("via is plain, tunnel or intercepted"));
        let via = via.transpose()?;
        if question.origin.scheme == Scheme::Http && !matches!(via, None | Some(Via::Plain)) {
            return Err("an http:// URL is sent plain; only https:// URLs go through tunnels".to_owned());
        }
        let method = read_method(self.method.as_deref())?.into();
        Ok(Inquiry { question, method, via, client: read_client(self.client.as_deref(), peer)? })
    }
}

/// Reads a client: an address, a name, or NAME@ADDRESS. A name alone is one at the address of the caller.
fn read_client(text: Option<&str>, peer: IpAddr) -> Result<Asker, String> {
    let Some(text) = text else { return Ok(Asker { address: peer, name: None }) };
    if let Ok(address) = text.parse() {
        return Ok(Asker { address, name: None });
    }
    let at = text.rsplit_once('@').and_then(|(name, address)| Some((name, address.parse().ok()?)));
    let (name, address) = at.unwrap_or((text, peer));
    if name.is_empty() || name.len() > LONGEST_NAME || name.chars().any(char::is_control) {
        return Err(format!("client is a name of up to {LONGEST_NAME} bytes, an address, or NAME@ADDRESS"));
    }
    Ok(Asker { address, name: Some(name.to_owned()) })
}

fn read_query(query: &str) -> Result<(String, Asked), ApiProblem> {
    let (mut url, mut asked) = (None, Asked::default());
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place: &mut Option<String> = match name.as_ref() {
            "url" => &mut url,
            "user_agent" => &mut asked.user_agent,
            "method" => &mut asked.method,
            "via" => &mut asked.via,
            "client" => &mut asked.client,
            _ => {
                return Err(ApiProblem::bad_request(
                    "the known parameters are url, user_agent, method, via and client",
                ));
            }
        };
        if place.replace(value.into_owned()).is_some() {
            return Err(ApiProblem::bad_request(format!("{name} is given twice")));
        }
    }
    Ok((url.ok_or_else(|| ApiProblem::bad_request("url is missing"))?, asked))
}

fn read_method(method: Option<&str>) -> Result<String, String> {
    let method = method.unwrap_or("GET");
    if method.is_empty() || method.len() > 32 || !method.bytes().all(|byte| byte.is_ascii_uppercase()) {
        return Err("method is a word such as GET".to_owned());
    }
    Ok(method.to_owned())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn question(query: &str) -> Result<Inquiry, String> {
        let (url, asked) = read_query(query).map_err(|problem| problem.detail)?;
        asked.about(&url, HERE)
    }

    #[test]
    fn a_question_is_read_from_the_query() {
        let asked = question("url=http%3A%2F%2Fa.test%2Fx%3Fy&user_agent=Foo+Bot%2F1&method=POST&via=plain").unwrap();
        assert_eq!((asked.question.url().as_str(), &*asked.method), ("http://a.test/x?y", "POST"));
        assert_eq!((asked.via, asked.client.address), (Some(Via::Plain), HERE));
        let usual = question("url=a.test").unwrap();
        assert_eq!((&*usual.method, usual.via), ("GET", None));
        for query in [
            "",
            "url=",
            "url=ftp://a.test/",
            "url=a.test&url=b.test",
            "url=a.test&x=1",
            "url=a.test&method=ge t",
            "url=a.test&via=air",
            "url=http://a.test&via=tunnel",
            "url=a.test&client=",
            "url=a.test&client=a%0Ab",
        ] {
            assert!(question(query).is_err(), "{query}");
        }
    }

    #[test]
    fn a_client_is_a_name_an_address_or_both() {
        let there: IpAddr = "10.0.0.7".parse().unwrap();
        let read = |text| read_client(Some(text), HERE).map(|client| (client.name, client.address));
        assert_eq!(read("spider"), Ok((Some("spider".to_owned()), HERE)));
        assert_eq!(read("10.0.0.7"), Ok((None, there)));
        assert_eq!(read("spider@10.0.0.7"), Ok((Some("spider".to_owned()), there)));
        assert_eq!(read("me@work"), Ok((Some("me@work".to_owned()), HERE)));
        assert!(read("@10.0.0.7").is_err());
    }
}
