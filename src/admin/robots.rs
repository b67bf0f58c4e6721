//! `GET /api/v1/robots?url=…&user_agent=…&fresh=1`: what robots.txt means for a URL.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use url::form_urlencoded;

use super::Admin;
use super::problem::ApiProblem;
use crate::robots::Question;

pub(super) async fn show(State(admin): State<Arc<Admin>>, uri: Uri) -> Response {
    match question(uri.query().unwrap_or_default()) {
        Ok(question) => ([(CACHE_CONTROL, "no-store")], Json(admin.desk.ask(&question).await)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

fn question(query: &str) -> Result<Question, ApiProblem> {
    let (mut url, mut user_agent, mut fresh) = (None, None, None);
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        let place: &mut Option<Cow<'_, str>> = match name.as_ref() {
            "url" => &mut url,
            "user_agent" => &mut user_agent,
            "fresh" => &mut fresh,
            _ => return Err(ApiProblem::bad_request("the known parameters are url, user_agent and fresh")),
        };
        if place.replace(value).is_some() {
            return Err(ApiProblem::bad_request(format!("{name} is given twice")));
        }
    }
    let url = url.ok_or_else(|| ApiProblem::bad_request("url is missing"))?;
    let anew = match fresh.as_deref() {
        None | Some("0") => false,
        Some("1") => true,
        Some(_) => return Err(ApiProblem::bad_request("fresh is 0 or 1")),
    };
    Question::parse(&url, user_agent.as_deref(), anew).map_err(|bad| ApiProblem::bad_request(bad.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_read_from_the_query() {
        let asked = question("url=http%3A%2F%2Fa.test%2Fx%3Fy&user_agent=Foo+Bot%2F1&fresh=1").unwrap();
        assert_eq!((asked.url().as_str(), asked.anew), ("http://a.test/x?y", true));
        assert_eq!(asked.user_agent.unwrap(), "Foo Bot/1");
        assert!(!question("url=a.test&fresh=0").unwrap().anew);
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for query in
            ["", "url=", "url=ftp://a.test/", "url=a.test&url=b.test", "url=a.test&x=1", "url=a.test&fresh=yes"]
        {
            assert!(question(query).is_err(), "{query}");
        }
    }
}
