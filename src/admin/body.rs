//! Reads the bodies of API calls that change something, and checks their type.
//!
//! A page of another site can make a browser send many things, but not `application/json` without a CORS preflight,
//! which this listener does not answer.

use std::str::FromStr;

use axum::body::Bytes;
use axum::extract::Request;
use axum::extract::rejection::BytesRejection;
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::problem::ApiProblem;
use crate::config::BadValue;

/// Lets calls that change something through only if they declare a JSON body.
pub(super) async fn check_type(request: Request, next: Next) -> Response {
    let steers = matches!(*request.method(), Method::POST | Method::PATCH | Method::DELETE);
    if !steers || request.headers().get(CONTENT_TYPE).is_some_and(|value| is_json(value.as_bytes())) {
        return next.run(request).await;
    }
    let detail = "send Content-Type: application/json".to_owned();
    ApiProblem { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, title: "Not JSON", detail }.into_response()
}

fn is_json(value: &[u8]) -> bool {
    let kind = value.split(|byte| *byte == b';').next().unwrap_or_default();
    let kind = kind.trim_ascii();
    kind.eq_ignore_ascii_case(b"application/json") || kind.eq_ignore_ascii_case(b"application/x-ndjson")
}

pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, ApiProblem> {
    let body = body.map_err(|error| ApiProblem::bad_request(error.body_text()))?;
    // serde reads a list as the fields in their order, which no caller means.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(ApiProblem::bad_request("a JSON object is expected, not a list"));
    }
    serde_json::from_slice(&body).map_err(|error| ApiProblem::bad_request(error.to_string()))
}

/// Reads the body of a call that may be empty.
pub(super) fn read_or_default<T: DeserializeOwned + Default>(
    body: Result<Bytes, BytesRejection>,
) -> Result<T, ApiProblem> {
    match body {
        Ok(body) if body.is_empty() => Ok(T::default()),
        body => read(body),
    }
}

/// The body of a call without parameters.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Parses a value written as in the configuration file.
pub(super) fn value<T: FromStr<Err = BadValue>>(key: &str, text: &str) -> Result<T, ApiProblem> {
    text.parse().map_err(|bad: BadValue| ApiProblem::bad_request(format!("{key} {}: {}", bad.message, bad.advice)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_json() {
        assert!(is_json(b"application/json") && is_json(b"Application/JSON ; charset=utf-8"));
        assert!(is_json(b"application/x-ndjson"));
        assert!(!is_json(b"text/plain") && !is_json(b"application/json-seq") && !is_json(b""));
    }
}
