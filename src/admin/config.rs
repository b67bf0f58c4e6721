//! `GET /api/v1/config`: the effective configuration. `PATCH /api/v1/config`: changes pacing values while curtsy runs.
//!
//! Values set here are lost with the next reload of the file, or the next start: the file stays the one place that
//! defines how curtsy is configured. `POST /api/v1/reload` reads it again.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;

use super::hosts::fresh;
use super::problem::ApiProblem;
use super::{Admin, body};
use crate::config::Problems;
use crate::gate::Apply;

/// Shows and changes the configuration of all parts. A trait, because `app` implements it, and `app` depends on this
/// module.
pub trait ConfigSteering: fmt::Debug + Send + Sync {
    /// Returns the effective configuration without its secrets.
    fn shown(&self) -> Value;

    /// Sets other values for keys of `[politeness]`: all of them, or none and returns what is wrong.
    fn repace(&self, wishes: &Map<String, Value>, apply: Apply) -> Result<Repaced, Problems>;

    /// Requests that the configuration file is read again; None if no task is there to do it.
    fn reload(&self) -> Option<oneshot::Receiver<Reloaded>>;
}

/// What a reload changed, or why it changed nothing.
pub type Reloaded = Result<Vec<String>, String>;

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaced {
    /// "politeness.delay 1s -> 500ms".
    pub changes: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigPatch {
    politeness: Map<String, Value>,
    #[serde(default)]
    apply: Whom,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Whom {
    #[default]
    All,
    New,
}

/// Keys that apply to all hosts together, so that new hosts cannot have values of their own.
const NOT_BY_HOST: [&str; 2] = ["key", "max_queue_total"];

/// A file and its secrets are read within milliseconds; a network disk may take longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// `POST /api/v1/reload`
pub(super) async fn reload(
    State(admin): State<Arc<Admin>>,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    body::read_or_default::<body::Nothing>(said)?;
    let unavailable = |detail: &str| ApiProblem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "Not reloaded",
        detail: detail.to_owned(),
    };
    let answer = admin.steering.reload().ok_or_else(|| unavailable("this curtsy has no file to read again"))?;
    match tokio::time::timeout(PATIENCE, answer).await {
        Ok(Ok(Ok(changed))) => Ok(fresh(json!({ "changed": changed }))),
        Ok(Ok(Err(detail))) => Err(ApiProblem { status: StatusCode::CONFLICT, title: "Not reloaded", detail }),
        Ok(Err(_)) | Err(_) => Err(unavailable("there was no answer in time; the log says what happened")),
    }
}

pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    ([(CACHE_CONTROL, "no-store")], Json(admin.steering.shown())).into_response()
}

pub(super) async fn change(State(admin): State<Arc<Admin>>, headers: HeaderMap, body: Bytes) -> Response {
    match try_change(admin.steering.as_ref(), &headers, &body) {
        Ok(answer) => ([(CACHE_CONTROL, "no-store")], Json(answer)).into_response(),
        Err(problem) => problem.into_response(),
    }
}

fn try_change(steering: &dyn ConfigSteering, headers: &HeaderMap, body: &[u8]) -> Result<Value, ApiProblem> {
    if !is_json(headers) {
        let detail = "send Content-Type: application/json".to_owned();
        return Err(ApiProblem { status: StatusCode::UNSUPPORTED_MEDIA_TYPE, title: "Not JSON", detail });
    }
    let patch: ConfigPatch =
        serde_json::from_slice(body).map_err(|error| ApiProblem::bad_request(error.to_string()))?;
    if let (Whom::New, Some(name)) =
        (patch.apply, NOT_BY_HOST.iter().find(|name| patch.politeness.contains_key(**name)))
    {
        let detail = format!("`{name}` is about all hosts together; change it without \"apply\": \"new\"");
        return Err(ApiProblem::bad_request(detail));
    }
    let (apply, word) = match patch.apply {
        Whom::All => (Apply::All, "all"),
        Whom::New => (Apply::New, "new"),
    };
    let Repaced { changes, warnings } = steering.repace(&patch.politeness, apply).map_err(|bad| told(&bad))?;
    Ok(json!({
        "changed": changes,
        "apply": word,
        "lasts": "until the configuration file is reloaded or curtsy is restarted",
        "warnings": warnings,
    }))
}

/// A page of another site can send a form without a CORS preflight, but not this type.
fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

fn told(problems: &Problems) -> ApiProblem {
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| match problem.advice.as_str() {
            "" => problem.message.clone(),
            advice => format!("{}: {advice}", problem.message),
        })
        .collect();
    ApiProblem::bad_request(lines.join("; "))
}
