//! `/api/v1/clients`: clients that fail or were stopped, and the calls that stop or resume one.
//!
//! Only clients with a name are listed, and only those with failures or a stop. Fields are a public interface: add,
//! never rename.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::hosts::fresh;
use super::problem::ApiProblem;
use super::time::{self, moment, seconds};
use super::{Admin, body};
use crate::politeness::jobs::{self, JobAccount, JobStop};
use crate::politeness::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clients {
    pub clients: Vec<ClientJson>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientJson {
    pub name: String,
    /// The client's address, if its name proves nothing and no operator stopped it. Then other clients of this name
    /// continue.
    #[serde(default)]
    pub address: Option<String>,
    /// The host at which the client fails or is stopped; none if everywhere.
    #[serde(default)]
    pub host: Option<String>,
    /// Failures in a row, up to now.
    pub failures: u32,
    pub last_failure: Option<String>,
    pub stopped: Option<Stopped>,
    /// In responses to changes: why the change is not on disk yet. A restart before it is written forgets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    pub reason: String,
    pub since: Option<String>,
    /// None if only an operator can resume it.
    pub until: Option<String>,
    pub left_s: Option<f64>,
}

/// `GET /api/v1/clients`
pub(super) async fn list(State(admin): State<Arc<Admin>>) -> Response {
    let now = time::now();
    let mut clients = admin.desk.stops().accounts(now, |account| ClientJson::new(&account, now));
    clients.sort_by_cached_key(|client| {
        (client.stopped.is_none(), client.name.clone(), client.address.clone(), client.host.clone())
    });
    fresh(Clients { clients })
}

/// Until when; without end if absent.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ClientWish {
    until: Option<String>,
}

/// `POST /api/v1/clients/{name}/stop`
pub(super) async fn stop(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let now = time::now();
    let wish: ClientWish = body::read_or_default(said)?;
    let until = wish.until.map_or(Ok(Timestamp::NEVER), |text| time::until(&text, now))?;
    let stop = admin.desk.stops().stop(&name, until, now).ok_or_else(|| ApiProblem {
        status: StatusCode::SERVICE_UNAVAILABLE,
        title: "No room",
        detail: "too many clients are stopped already; resume some of them first".to_owned(),
    })?;
    tracing::warn!(event = "job.stopped", client = name, "a client was stopped by hand");
    let left = (until < Timestamp::NEVER).then(|| seconds(until.since(now)));
    let events = &admin.desk.shared().events;
    events.tell("job.stopped", None, || json!({ "client": name, "held_s": left, "why": "by hand" }));
    let account = JobAccount { key: &name, failures: stop.failures, failed: None, stop: Some(stop) };
    Ok(fresh(ClientJson { not_kept: admin.not_kept(), ..ClientJson::new(&account, now) }))
}

/// `POST /api/v1/clients/{name}/resume`
pub(super) async fn resume(
    State(admin): State<Arc<Admin>>,
    Path(name): Path<String>,
    said: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiProblem> {
    let now = time::now();
    body::read_or_default::<body::Nothing>(said)?;
    if !admin.desk.stops().resume(&name, now) {
        let detail = "no client of this name is stopped".to_owned();
        return Err(ApiProblem { status: StatusCode::NOT_FOUND, title: "Not stopped", detail });
    }
    tracing::info!(event = "job.resumed", client = name, "a client was resumed by hand");
    admin.desk.shared().events.tell("job.resumed", None, || json!({ "client": name, "why": "by hand" }));
    let client = ClientJson::new(&JobAccount { key: &name, failures: 0, failed: None, stop: None }, now);
    Ok(fresh(ClientJson { not_kept: admin.not_kept(), ..client }))
}

impl ClientJson {
    fn new(account: &JobAccount<'_>, now: Timestamp) -> ClientJson {
        let (name, address, host) = jobs::parts(account.key);
        ClientJson {
            name: name.to_owned(),
            address: address.map(|address| address.to_string()),
            host: host.map(str::to_owned),
            failures: account.failures,
            last_failure: account.failed.and_then(moment),
            stopped: account.stop.map(|stop| Stopped::new(&stop, now)),
            not_kept: None,
        }
    }
}

impl Stopped {
    fn new(stop: &JobStop, now: Timestamp) -> Stopped {
        let ends = stop.until < Timestamp::NEVER;
        Stopped {
            reason: stop.to_string(),
            since: moment(stop.since),
            until: moment(stop.until),
            left_s: ends.then(|| seconds(stop.until.since(now))),
        }
    }
}
