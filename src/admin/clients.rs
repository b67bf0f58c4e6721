//! `/api/v1/clients`: every client and what it asked for, and the calls that stop or resume one.
//!
//! A row without `host` is a client; if it has sent requests lately, `usage` says what became of them. A row with
//! `host` says that the client fails or is stopped there. Only clients with a name fail or are stopped. Fields are a
//! public interface: add, never rename.

use std::cmp::Reverse;
use std::collections::BTreeMap;
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
use super::time::{self, millis, moment, seconds};
use super::{Admin, body};
use crate::gate;
use crate::metrics::clients::ClientRow;
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
    /// Whether `name` is a name, and not the address of a client without one. Only a named client can be stopped.
    #[serde(default = "yes")]
    pub named: bool,
    /// None if no requests of it are remembered, and for a row with a host.
    #[serde(default)]
    pub usage: Option<ClientUsage>,
    /// In responses to changes: why the change is not on disk yet. A restart before it is written forgets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

fn yes() -> bool {
    true
}

/// The requests of a client since curtsy started, or since the client was forgotten.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientUsage {
    /// The address of its last request.
    pub address: String,
    /// Requests that are over. A tunnel is one request.
    pub requests: u64,
    pub tunnels: u64,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that were held, those inside tunnels included.
    pub waited: u64,
    pub wait_ms: u64,
    pub longest_wait_ms: u64,
    /// Requests that curtsy refused: the sum of `refusals`.
    pub refused: u64,
    /// The same by Curtsy-Error code.
    pub refusals: BTreeMap<String, u64>,
    /// Requests that their origin did not answer, or not completely.
    pub failed: u64,
    /// Requests whose client disconnected first.
    pub gave_up: u64,
    /// Number of hosts: exact up to 64, beyond that an estimate.
    pub hosts: u64,
    pub busiest: Vec<BusyHost>,
    /// Bytes of responses.
    pub bytes: u64,
    pub last_seen: Option<String>,
    pub idle_s: f64,
    /// The programs that it uses, by their User-Agent.
    pub programs: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BusyHost {
    pub host: String,
    pub requests: u64,
}

/// Failures in a row from which a client is shown as failing: a link checker meets one or two at many hosts.
const NOTABLE_FAILURES: u32 = 5;

/// The hosts listed for each client.
const BUSIEST: usize = 3;

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
    fresh(Clients::of(&admin))
}

impl Clients {
    /// Returns all clients: those that are stopped first, then the busiest.
    pub(super) fn of(admin: &Admin) -> Clients {
        let now = time::now();
        let mut clients = admin.desk.stops().accounts(now, |account| ClientJson::new(&account, now));
        let (accounts, waiting) = (clients.len(), admin.gate.waiting_by_client());
        for (id, row) in admin.metrics.clients.rows() {
            let usage = ClientUsage::new(&row, waiting.get(&id).copied().unwrap_or_default(), now);
            add(&mut clients, accounts, &row, usage);
        }
        clients.sort_by_cached_key(|client| {
            let requests = client.usage.as_ref().map_or(0, |usage| usage.requests);
            let key = (client.name.clone(), client.address.clone(), client.host.clone());
            (client.stopped.is_none(), Reverse(requests), key)
        });
        Clients { clients }
    }

    /// Returns the clients that have sent requests, busiest first.
    pub fn users(&self) -> Vec<(&ClientJson, &ClientUsage)> {
        let used = self.clients.iter().filter_map(|client| Some((client, client.usage.as_ref()?)));
        let mut users: Vec<(&ClientJson, &ClientUsage)> = used.collect();
        users.sort_by_key(|(_, usage)| Reverse(usage.requests));
        users
    }

    /// Returns the rows of clients that are stopped or may soon be, each stop once: a name that was stopped by hand has
    /// a row without an address, so its rows at an address are left out.
    pub fn failing(&self) -> impl Iterator<Item = &ClientJson> {
        let repeats = |client: &ClientJson| client.usage.is_some() && client.address.is_some() && client.failures == 0;
        let fails = |client: &ClientJson| client.stopped.is_some() || client.failures >= NOTABLE_FAILURES;
        self.clients.iter().filter(move |client| fails(client) && !repeats(client))
    }
}

/// Adds what a client asked for to its row, which is among the first `accounts` if there is one, or a row for it.
fn add(clients: &mut Vec<ClientJson>, accounts: usize, row: &ClientRow, usage: ClientUsage) {
    let address = (!row.logs_in || row.name.is_none()).then(|| usage.address.clone());
    let name = row.name.as_deref().unwrap_or(&usage.address).to_owned();
    let is_it = |client: &&mut ClientJson| client.name == name && client.address == address && client.host.is_none();
    if let Some(client) = clients[..accounts].iter_mut().find(is_it) {
        client.usage = Some(usage);
        return;
    }
    // A stop by hand is for the name at every address.
    let by_hand = |client: &&ClientJson| client.name == name && client.address.is_none() && client.host.is_none();
    let stopped = clients[..accounts]
        .iter()
        .find(by_hand)
        .and_then(|client| client.stopped.clone())
        .filter(|_| row.name.is_some());
    let (named, usage) = (row.name.is_some(), Some(usage));
    clients.push(ClientJson {
        name,
        address,
        host: None,
        failures: 0,
        last_failure: None,
        stopped,
        named,
        usage,
        not_kept: None,
    });
}

impl ClientUsage {
    fn new(row: &ClientRow, waiting: usize, now: Timestamp) -> ClientUsage {
        let seen = gate::at(row.seen);
        let busiest = row.busiest(BUSIEST).into_iter();
        ClientUsage {
            address: row.address.to_canonical().to_string(),
            requests: row.requests,
            tunnels: row.tunnels,
            waiting,
            waited: row.waits.count,
            wait_ms: millis(row.waits.total),
            longest_wait_ms: millis(row.waits.longest),
            refused: row.refusals.iter().map(|(_, count)| count).sum(),
            refusals: row.refusals.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect(),
            failed: row.failed,
            gave_up: row.gave_up,
            hosts: row.hosts(),
            busiest: busiest.map(|(host, requests)| BusyHost { host: host.to_string(), requests }).collect(),
            bytes: row.bytes,
            last_seen: moment(seen),
            idle_s: seconds(now.since(seen)),
            programs: row.programs().into_iter().map(str::to_owned).collect(),
        }
    }
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
            named: true,
            usage: None,
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
