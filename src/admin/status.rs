//! `GET /api/v1/status`: is curtsy healthy, and what is it doing?
//!
//! Counting hosts by state means looking at all of them, so that is done at most so often that it costs 1/200 of a
//! core, however many hosts there are. Fields are a public interface: add, never rename.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Admin;
use super::hosts::fresh;
use super::time::{self, millis, moment, seconds};
use crate::clock;
use crate::gate::Census;
use crate::ledger::Ledger;
use crate::metrics::Traffic;
use crate::politeness::lane::Condition;
use crate::politeness::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub name: String,
    pub version: String,
    /// ready, stopping or not listening.
    pub state: String,
    pub started: Option<String>,
    pub uptime_s: f64,
    pub mode: String,
    /// The addresses where clients connect.
    pub listen: Vec<String>,
    pub requests: RequestsJson,
    #[serde(default)]
    pub traffic: TrafficJson,
    pub waiting: usize,
    pub in_flight: i64,
    pub connections: usize,
    pub tunnels: i64,
    pub hosts: HostCounts,
    pub clients_stopped: usize,
    /// Of the requests of the last five minutes.
    pub wait_p50_ms: Option<u64>,
    pub wait_p90_ms: Option<u64>,
    /// Must stay 0.
    pub spacing_violations: u64,
    /// How long ago the most overdue lane should have moved.
    pub overdue_s: f64,
    pub memory: MemoryJson,
    pub state_store: StateStore,
    pub last_reload_successful: bool,
    /// The number of clients that follow the events.
    pub listeners: usize,
    /// In a fleet: how this node stands, such as `joined, 3 nodes`.
    #[serde(default)]
    pub fleet: Option<String>,
    /// What an operator should know before anything else.
    pub notices: Vec<Notice>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// bad or note.
    pub level: String,
    pub text: String,
}

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestsJson {
    pub total: u64,
    pub forwarded: u64,
    /// Refused by robots.txt, the address guard or the operator.
    pub denied: u64,
    pub rejected: u64,
    /// The client disconnected first.
    pub abandoned: u64,
    pub failed: u64,
    /// Answered from the cache, without a request to the origin.
    #[serde(default)]
    pub cached: u64,
    /// Requests that had to wait.
    pub waited: u64,
}

/// How polite the traffic was since the start: what curtsy could see of it decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficJson {
    /// Plain and intercepted requests that were sent: everything applies to them.
    pub full: u64,
    /// Requests inside tunnels: paced, but robots.txt rules for paths and 429 do not count.
    pub paced_only: u64,
    /// Tunnels whose requests were not paced: HTTP/2, WebSocket and other protocols.
    pub unpaced_tunnels: u64,
    /// Whether tunnels are intercepted (`tls.intercept`).
    pub intercepts: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCounts {
    pub known: usize,
    pub paused: usize,
    pub broken: usize,
    pub held: usize,
    #[serde(default)]
    pub unreachable: usize,
    pub waiting: usize,
    pub active: usize,
    pub idle: usize,
    /// Names of the paused hosts, at most a hundred.
    pub paused_hosts: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryJson {
    /// None if the system does not report it.
    pub resident_bytes: Option<u64>,
    pub robots_bytes: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StateStore {
    /// Whether changes are kept across restarts: not with `state_dir = "memory"`, nor while the disk cannot be written.
    pub kept: bool,
    pub pending: usize,
    pub failures: u64,
    pub lost: u64,
    pub last_write_age_s: Option<f64>,
    /// Why the last write failed.
    pub trouble: Option<String>,
}

/// `GET /api/v1/status`
pub(super) async fn show(State(admin): State<Arc<Admin>>) -> Response {
    fresh(Status::of(&admin))
}

impl Status {
    pub(super) fn of(admin: &Admin) -> Status {
        let (shared, now) = (admin.desk.shared(), time::now());
        let [p50, p90] = admin.own.histories.waits();
        let status = Status {
            name: shared.identity.name().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: admin.state().to_owned(),
            started: moment(admin.own.started),
            uptime_s: seconds(now.since(admin.own.started)),
            mode: shared.settings.load().config.politeness.mode.word().to_owned(),
            listen: admin.proxy.iter().map(ToString::to_string).collect(),
            requests: RequestsJson::of(admin),
            traffic: TrafficJson::of(admin),
            waiting: admin.gate.queued(),
            in_flight: admin.metrics.inflight.get(),
            connections: shared.connections(),
            tunnels: admin.metrics.tunnels.open.get(),
            hosts: HostCounts::new(&admin.own.census.get(admin), admin.gate.hosts()),
            clients_stopped: shared
                .stops
                .accounts(now, |account| account.stop.is_some())
                .iter()
                .filter(|&&so| so)
                .count(),
            wait_p50_ms: p50.map(millis),
            wait_p90_ms: p90.map(millis),
            spacing_violations: admin.metrics.spacing_violations.get(),
            overdue_s: seconds(admin.gate.overdue()),
            memory: MemoryJson { resident_bytes: resident(), robots_bytes: admin.robots.bytes() },
            state_store: StateStore::of(admin, now),
            last_reload_successful: admin.metrics.reload_successful.get() == 1,
            listeners: shared.events.listeners(),
            fleet: admin.fleet(),
            notices: Vec::new(),
        };
        Status { notices: fleet_notice(admin).into_iter().chain(notices(&status)).collect(), ..status }
    }
}

impl RequestsJson {
    fn of(admin: &Admin) -> RequestsJson {
        let [forwarded, denied, rejected, abandoned, failed, truncated, cached] = admin.metrics.outcomes();
        let failed = failed + truncated;
        let total = forwarded + denied + rejected + abandoned + failed + cached;
        RequestsJson { total, forwarded, denied, rejected, abandoned, failed, cached, waited: admin.metrics.waits() }
    }
}

impl TrafficJson {
    fn of(admin: &Admin) -> TrafficJson {
        let Traffic { full, paced_only, unpaced_tunnels } = admin.metrics.traffic();
        let intercepts = admin.desk.shared().settings.load().leaves.is_some();
        TrafficJson { full, paced_only, unpaced_tunnels, intercepts }
    }
}

impl HostCounts {
    fn new(census: &Census, known: usize) -> HostCounts {
        let count = |condition: Condition| census.counts[condition as usize];
        HostCounts {
            known,
            paused: count(Condition::Paused),
            broken: count(Condition::Broken),
            held: count(Condition::Held),
            unreachable: count(Condition::Unreachable),
            waiting: count(Condition::Waiting),
            active: count(Condition::Active),
            idle: count(Condition::Idle),
            paused_hosts: census.paused.iter().map(ToString::to_string).collect(),
        }
    }
}

impl StateStore {
    fn of(admin: &Admin, now: Timestamp) -> StateStore {
        let Some(health) = admin.gate.store_health() else { return StateStore::default() };
        let written = (health.written_at_us > 0).then(|| now.since(Timestamp::from_micros(health.written_at_us)));
        StateStore {
            kept: health.trouble.is_none(),
            pending: health.pending,
            failures: health.failures,
            lost: health.lost,
            last_write_age_s: written.map(seconds),
            trouble: health.trouble.map(|trouble| trouble.to_string()),
        }
    }
}

/// The values that change from one second to the next, and cost nothing to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pulse {
    requests: RequestsJson,
    waiting: usize,
    in_flight: i64,
    connections: usize,
    hosts: usize,
    violations: u64,
    reload_successful: bool,
}

impl Pulse {
    pub(super) fn of(admin: &Admin) -> Pulse {
        Pulse {
            requests: RequestsJson::of(admin),
            waiting: admin.gate.queued(),
            in_flight: admin.metrics.inflight.get(),
            connections: admin.desk.shared().connections(),
            hosts: admin.gate.hosts(),
            violations: admin.metrics.spacing_violations.get(),
            reload_successful: admin.metrics.reload_successful.get() == 1,
        }
    }

    pub(super) fn told(&self) -> Value {
        json!({
            "event": "status",
            "at": moment(time::now()),
            "host": null,
            "requests": self.requests,
            "waiting": self.waiting,
            "in_flight": self.in_flight,
            "connections": self.connections,
            "hosts": self.hosts,
            "spacing_violations": self.violations,
            "last_reload_successful": self.reload_successful,
        })
    }
}

/// The last count of hosts, and when it may be repeated.
#[derive(Debug, Default)]
pub(super) struct LastCensus {
    last: Mutex<Option<CountedJson>>,
    counting: AtomicBool,
}

#[derive(Clone, Debug)]
struct CountedJson {
    until: Instant,
    took: Duration,
    census: Arc<Census>,
}

impl LastCensus {
    pub(super) fn get(&self, admin: &Admin) -> Arc<Census> {
        match &*self.last.lock() {
            Some(counted) if clock::now() < counted.until => return counted.census.clone(),
            _ => {}
        }
        self.count(admin)
    }

    /// Returns a count without waiting: if counting takes long, the last one, while the next is made on another thread.
    pub(super) fn at_once(admin: &Arc<Admin>) -> Arc<Census> {
        let own = &admin.own.census;
        let long = own.last.lock().clone().filter(|counted| counted.took > AT_MOST);
        let Some(counted) = long else { return own.get(admin) };
        if clock::now() >= counted.until && !own.counting.swap(true, Relaxed) {
            let admin = admin.clone();
            tokio::task::spawn_blocking(move || {
                admin.own.census.count(&admin);
                admin.own.census.counting.store(false, Relaxed);
            });
        }
        counted.census
    }

    fn count(&self, admin: &Admin) -> Arc<Census> {
        let began = clock::now();
        let census = Arc::new(admin.gate.census());
        let took = clock::now() - began;
        let until = began + (took * SHARE).max(AT_LEAST);
        *self.last.lock() = Some(CountedJson { until, took, census: census.clone() });
        census
    }
}

/// Ratio of the time between counts to the time spent counting.
const SHARE: u32 = 200;
/// A count that took longer is not waited for: some ten thousand hosts.
const AT_MOST: Duration = Duration::from_millis(5);
/// Short, because an operator who changes a host wants to see the effect.
const AT_LEAST: Duration = Duration::from_millis(200);

/// Says that this node does without its fleet, and why.
fn fleet_notice(admin: &Admin) -> Option<Notice> {
    let Ledger::Fleet(ledger) = admin.gate.ledger() else { return None };
    let (state, _, trouble) = ledger.standing();
    let trouble = trouble.unwrap_or_else(|| "Redis does not answer".to_owned());
    let text = format!("This node of the fleet is alone: {trouble}. Each host gets only this node's share.");
    (state.word() == "alone").then(|| Notice { level: "bad".to_owned(), text })
}

fn notices(status: &Status) -> Vec<Notice> {
    let (bad, note) = ("bad", "note");
    let some =
        |count: usize, one: &str, many: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {many}") };
    let (paused, stopped) = (status.hosts.paused, status.clients_stopped);
    let found = [
        (status.state != "ready", bad, "curtsy accepts no requests at the moment.".to_owned()),
        (
            !status.last_reload_successful,
            bad,
            "The last reload failed; the previous configuration stays in use. The log says what is wrong.".to_owned(),
        ),
        (
            status.spacing_violations > 0,
            bad,
            "Requests have started too early. That is a mistake in curtsy; please report it.".to_owned(),
        ),
        (status.mode == "report", note, "Pacing is only reported, not enforced (politeness.mode).".to_owned()),
        (status.mode == "off", note, "Pacing is off (politeness.mode).".to_owned()),
        (status.traffic.unpaced_tunnels > 0, note, unpaced(&status.traffic)),
        (paused > 0, note, format!("{} paused by hand.", some(paused, "host is", "hosts are"))),
        (stopped > 0, note, format!("{} stopped: see curtsy clients.", some(stopped, "client is", "clients are"))),
    ];
    let told = |(_, level, text): (bool, &str, String)| Notice { level: level.to_owned(), text };
    found.into_iter().filter(|(is_so, ..)| *is_so).map(told).collect()
}

fn unpaced(traffic: &TrafficJson) -> String {
    let count = traffic.unpaced_tunnels;
    let tunnels = if count == 1 { "1 tunnel was".to_owned() } else { format!("{count} tunnels were") };
    let advice = if traffic.intercepts {
        "Clients that trust curtsy's CA are paced: curtsy ca."
    } else {
        "HTTPS interception paces them: curtsy setup."
    };
    format!(
        "{tunnels} not paced inside, because curtsy cannot tell requests apart in HTTP/2 and other protocols. {advice}"
    )
}

/// Read from Linux' `/proc`, in pages.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}

/// The page size on every platform curtsy is built for.
const PAGE: u64 = 4096;
