//! Every metric: name, help and labels, one method per event.
//!
//! Handles are made once, so counting is one atomic add, and every series exists from the start at 0. No label value is
//! ever chosen by a client or an origin, except the names of the busiest hosts ([`hosts`]), whose number is bounded.
//! Values that other modules know anyway are read when metrics are scraped, not counted twice. docs/metrics.md says
//! what each metric means.

mod cache;
pub mod clients;
mod codes;
mod collapsed;
mod fleet;
mod handshakes;
pub mod hosts;
mod lessons;
mod process;
mod register;
mod requests;
mod robots;
pub mod savings;
mod scene;
mod store;
pub mod tally;
mod transfers;
mod tunnels;
mod waits;

use std::time::{Duration, UNIX_EPOCH};

use prometheus::{Encoder, IntCounter, IntGauge, Opts, Registry, TextEncoder};

use self::cache::CacheMetrics;
pub use self::cache::DiskCensus;
use self::clients::ClientTable;
use self::fleet::FleetMetrics;
use self::handshakes::Handshakes;
use self::hosts::HostSeries;
use self::lessons::LearningMetrics;
use self::process::Process;
use self::register::{count, counter, gauge, labelled, put};
use self::requests::RequestMetrics;
use self::robots::RobotsMetrics;
use self::savings::Savings;
use self::scene::Gauges;
use self::store::StoreMetrics;
use self::tally::Tally;
use self::transfers::Transfers;
use self::tunnels::Tunnels;
use self::waits::Waits;
use crate::clock;
use crate::politeness::visit::ClientId;

pub use self::collapsed::Collapsed;
pub use self::fleet::FleetFigures;
pub use self::handshakes::Handshake;
pub use self::scene::GaugeSources;
pub use self::waits::WAIT_BUCKETS;

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: RequestMetrics,
    waits: Waits,
    pub robots: RobotsMetrics,
    pub cache: CacheMetrics,
    pub lessons: LearningMetrics,
    fleet: FleetMetrics,
    store: StoreMetrics,
    process: Process,
    pub spacing_violations: IntCounter,
    parts: Vec<(&'static str, IntCounter)>,
    /// The busiest hosts, each with its own series.
    pub hosts: HostSeries,
    /// Counters for every host, for a command that wants them.
    pub tally: Tally,
    savings: Savings,
    /// What each client has asked for.
    pub clients: ClientTable,
    board: Gauges,
    pub client_connections: IntGauge,
    pub inflight: IntGauge,
    pub tunnels: Tunnels,
    handshakes: Handshakes,
    pub transfers: Transfers,
    /// In Unix time; 0 while there is no CA.
    pub ca_expiry: IntGauge,
    pub connections_refused: IntCounter,
    pub accept_errors: IntCounter,
    pub reload_successful: IntGauge,
    reloaded: IntGauge,
}

/// How a request reached curtsy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Unencrypted, inside a tunnel or not.
    Http,
    /// Inside an intercepted tunnel.
    Https,
    /// CONNECT, passed through unread.
    Tunnel,
    /// `https://` in absolute form: the client leaves TLS to curtsy.
    Absolute,
}

/// What was sent since the start, by how much of its politeness curtsy could take care of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests that curtsy saw in full: paced, checked against robots.txt, and their answers heeded.
    pub full: u64,
    /// Requests inside tunnels, which were paced and nothing else.
    pub paced_only: u64,
    /// Tunnels whose requests were not even paced.
    pub unpaced_tunnels: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    Forwarded,
    Denied,
    Rejected,
    Abandoned,
    Failed,
    /// The origin closed the connection in the middle of its response.
    Truncated,
    /// Answered from the cache.
    Cached,
}

/// When the client disconnected: while queued, before its response began, or in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectStage {
    Queued,
    /// The stage between these two, `connecting`, is what is left of all that disconnected.
    Response = 2,
}

const KINDS: [&str; 4] = ["http", "https", "tunnel", "absolute"];
const OUTCOMES: [&str; 7] = ["forwarded", "denied", "rejected", "abandoned", "failed", "truncated", "cached"];
const PARTS: [&str; 2] = ["ride", "turn"];
const STAGES: [&str; 3] = ["queued", "connecting", "response"];
const REASONS: [&str; 20] = [
    "auth_required",
    "bad_request",
    "breaker_open",
    "client_denied",
    "destination_denied",
    "host_cooling",
    "http2_tunnel",
    "job_stopped",
    "loop",
    "misdirected",
    "not_cached",
    "origin_timeout",
    "origin_unreachable",
    "queue_full",
    "hosts_full",
    "quota_exceeded",
    "robots_denied",
    "robots_unreachable",
    "shutting_down",
    "wait_too_long",
];
const ORIGIN_ERRORS: [&str; 6] = ["dns", "connect", "tls", "timeout", "protocol", "truncated"];
/// A shorter wait counts as none: it is the time the check itself takes.
pub const A_MOMENT: Duration = Duration::from_millis(1);
const TOO_EARLY: &str = "Requests that started too early, as seen at the socket. Must stay 0.";
/// The default of `metrics.hosts`.
const USUAL_SEATS: usize = 100;

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        register_build(&registry);
        Metrics {
            requests: RequestMetrics::new(&registry),
            waits: Waits::new(&registry),
            robots: RobotsMetrics::new(&registry),
            cache: CacheMetrics::new(&registry),
            lessons: LearningMetrics::new(&registry),
            fleet: FleetMetrics::new(&registry),
            store: StoreMetrics::new(&registry),
            process: Process::new(&registry),
            spacing_violations: counter(&registry, "curtsy_spacing_violations_total", TOO_EARLY),
            parts: labelled(
                &registry,
                "curtsy_parts_total",
                "Parts of pages, by whether they rode on the turn of a page or took one.",
                "result",
                &PARTS,
            ),
            hosts: HostSeries::new(&registry, USUAL_SEATS),
            tally: Tally::default(),
            savings: Savings::default(),
            clients: ClientTable::default(),
            board: Gauges::new(&registry),
            client_connections: gauge(&registry, "curtsy_client_connections", "Open client connections."),
            inflight: gauge(
                &registry,
                "curtsy_inflight_requests",
                "Requests taken and not yet finished, those that wait included.",
            ),
            tunnels: Tunnels::new(&registry),
            handshakes: Handshakes::new(&registry),
            transfers: Transfers::new(&registry),
            ca_expiry: gauge(
                &registry,
                "curtsy_ca_expiry_timestamp_seconds",
                "When the local CA expires, in Unix time; 0 if there is none.",
            ),
            connections_refused: counter(
                &registry,
                "curtsy_client_connections_refused_total",
                "Client connections closed at once, because there were too many.",
            ),
            accept_errors: counter(&registry, "curtsy_accept_errors_total", "Errors of accepting a connection."),
            reload_successful: gauge(
                &registry,
                "curtsy_config_last_reload_successful",
                "1 if the last reload of the configuration was taken, else 0.",
            ),
            reloaded: gauge(
                &registry,
                "curtsy_config_last_reload_success_timestamp_seconds",
                "When a configuration was last taken, in Unix time.",
            ),
            registry,
        }
    }

    pub fn request(&self, kind: RequestKind, outcome: RequestOutcome) {
        self.requests.ended[kind as usize][outcome as usize].inc();
    }

    /// Counts a response of curtsy's own. `code` is a Curtsy-Error code.
    pub fn rejection(&self, code: &str) {
        let matches = |reason: &str| {
            reason.len() == code.len()
                && reason.bytes().zip(code.bytes()).all(|(r, c)| r == c || (r, c) == (b'_', b'-'))
        };
        if let Some((_, counter)) = self.requests.rejections.iter().find(|(reason, _)| matches(reason)) {
            counter.inc();
        }
    }

    pub fn response(&self, status: u16, took: Duration) {
        self.requests.responses.count(status);
        self.requests.origin_response.observe(took.as_secs_f64());
    }

    /// Counts a part of a page that was sent.
    pub fn part(&self, rides: bool) {
        count(&self.parts, if rides { "ride" } else { "turn" });
    }

    /// Records how long a request of this client was held before its turn.
    pub fn waited(&self, client: ClientId, wait: Duration) {
        self.waits.waited(wait);
        if wait >= A_MOMENT {
            self.clients.waited(client, wait);
        }
    }

    /// Records how long a request would have been held, in report mode.
    pub fn would_wait(&self, wait: Duration) {
        self.waits.would_wait(wait);
    }

    pub fn handshake(&self, handshake: Handshake) {
        self.handshakes.count(handshake);
    }

    /// Records whether a configuration was accepted.
    pub fn reloaded(&self, successful: bool) {
        self.reload_successful.set(successful.into());
        if successful {
            put(&self.reloaded, clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        }
    }

    /// Returns the number of requests so far, by outcome: forwarded, denied, rejected, abandoned, failed, truncated,
    /// cached.
    pub fn outcomes(&self) -> [u64; OUTCOMES.len()] {
        std::array::from_fn(|outcome| self.requests.ended.iter().map(|kind| kind[outcome].get()).sum())
    }

    /// Returns the number of requests so far of this kind.
    pub fn of_kind(&self, kind: RequestKind) -> u64 {
        self.requests.ended[kind as usize].iter().map(IntCounter::get).sum()
    }

    /// Returns how polite the traffic was so far.
    pub fn traffic(&self) -> Traffic {
        let sent = |kind: RequestKind| {
            let ended = &self.requests.ended[kind as usize];
            ended[RequestOutcome::Forwarded as usize].get() + ended[RequestOutcome::Truncated as usize].get()
        };
        Traffic {
            full: sent(RequestKind::Http) + sent(RequestKind::Https) + sent(RequestKind::Absolute),
            paced_only: self.tunnels.requests.get(),
            unpaced_tunnels: self.tunnels.unpaced(),
        }
    }

    /// Returns the number of requests so far that had to wait.
    pub fn waits(&self) -> u64 {
        self.waits.count()
    }

    /// Returns the number of requests so far by how long they were held: one for each of [`WAIT_BUCKETS`], and one for
    /// longer waits.
    pub fn wait_counts(&self) -> [u64; WAIT_BUCKETS.len() + 1] {
        self.waits.counts()
    }

    pub fn origin_error(&self, kind: &str) {
        count(&self.requests.origin_errors, kind);
    }

    /// Counts a call to Redis that was answered after this time.
    pub fn redis_answered(&self, took: Duration) {
        self.fleet.answered(took);
    }

    /// Counts a call to Redis that failed. `error` is a word of `LedgerError`.
    pub fn redis_failed(&self, error: &str) {
        self.fleet.failed(error);
    }

    /// Records how this node stands in its fleet.
    pub fn fleet(&self, figures: &FleetFigures) {
        self.fleet.measure(figures);
    }

    /// Records the state of the store: changes that are not written yet, failed writes and dropped changes so far, and
    /// how long ago the last write was.
    pub fn store(&self, pending: usize, failures: u64, lost: u64, age: Duration) {
        self.store.measure(pending, failures, lost, age);
    }

    /// Counts a client that disconnected. Not for [`DisconnectStage::Connecting`], which is derived from
    /// [`RequestOutcome::Abandoned`].
    pub fn disconnect(&self, stage: DisconnectStage) {
        self.requests.disconnects[stage as usize].inc();
    }

    /// Returns the text that Prometheus scrapes.
    pub fn render(&self, scene: &GaugeSources) -> String {
        self.process.measure();
        self.board.show(scene);
        self.transfers.show();
        self.count_those_on_the_way();
        let mut families = self.registry.gather();
        families.extend(self.hosts.gather(&scene.busiest, scene.rest));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text).expect("writing to memory");
        String::from_utf8(text).expect("our own names and numbers, and names of hosts")
    }

    /// Clients that disconnected without a response and were not queued were connecting.
    fn count_those_on_the_way(&self) {
        let [queued, connecting, _] = &self.requests.disconnects;
        let [.., abandoned, _failed, _truncated, _cached] = self.outcomes();
        connecting.inc_by(abandoned.saturating_sub(queued.get() + connecting.get()));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

/// `build.rs` determines the revision.
fn register_build(registry: &Registry) {
    let revision = option_env!("CURTSY_REVISION").unwrap_or("unknown");
    let options = Opts::new("curtsy_build_info", "What is running.")
        .const_label("version", env!("CARGO_PKG_VERSION"))
        .const_label("revision", revision);
    let build = IntGauge::with_opts(options).expect("a valid name");
    registry.register(Box::new(build.clone())).expect("a new name");
    build.set(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        let page = include_str!("../../docs/refusals.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let documented: Vec<String> = rows.map(|(code, _)| code.replace('-', "_")).skip(1).collect();
        assert_eq!(documented, REASONS);
    }

    #[test]
    fn every_series_exists_from_the_start() {
        let text = Metrics::new().render(&GaugeSources::default());
        for line in [
            "curtsy_requests_total{kind=\"tunnel\",outcome=\"abandoned\"} 0",
            "curtsy_rejections_total{reason=\"destination_denied\"} 0",
            "curtsy_responses_total{code=\"503\"} 0",
            "curtsy_tls_handshakes_total{result=\"client_untrusted\",side=\"client\"} 0",
        ] {
            assert!(text.contains(line), "{line} is missing");
        }
    }

    #[test]
    fn an_error_code_finds_its_label() {
        let metrics = Metrics::new();
        metrics.rejection("destination-denied");
        assert!(
            metrics
                .render(&GaugeSources::default())
                .contains("curtsy_rejections_total{reason=\"destination_denied\"} 1")
        );
    }

    #[test]
    fn a_disconnect_is_counted_at_one_stage() {
        let metrics = Metrics::new();
        metrics.disconnect(DisconnectStage::Queued);
        (0..3).for_each(|_| metrics.request(RequestKind::Http, RequestOutcome::Abandoned));
        for _ in 0..2 {
            let text = metrics.render(&GaugeSources::default());
            assert!(text.contains("curtsy_client_disconnects_total{stage=\"queued\"} 1\n"), "{text}");
            assert!(text.contains("curtsy_client_disconnects_total{stage=\"connecting\"} 2\n"), "{text}");
        }
    }
}
