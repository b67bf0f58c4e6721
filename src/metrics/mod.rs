//! Every metric: name, help and labels, one method per event.
//!
//! Handles are made once, so counting is one atomic add, and every series exists from the start at 0. No label value
//! is ever chosen by a client or an origin, except the names of the busiest hosts ([`hosts`]), of which there are only so
//! many. What others know anyway is asked for when somebody reads, not counted twice. docs/metrics.md says what each
//! means.

pub mod hosts;
mod lessons;
mod process;
mod register;
mod robots;
mod store;

use std::collections::HashMap;
use std::time::{Duration, UNIX_EPOCH};

use prometheus::core::Metric;
use prometheus::{Encoder, Histogram, IntCounter, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use self::hosts::{Hosts, Present};
use self::lessons::Lessons;
use self::process::Process;
use self::register::{count, counter, counters, gauge, histogram, labelled, put};
use self::robots::Robots;
use self::store::Store;
use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::lane::Condition;

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: [[IntCounter; OUTCOMES.len()]; KINDS.len()],
    rejections: Vec<(&'static str, IntCounter)>,
    responses: [IntCounter; 6],
    origin_errors: Vec<(&'static str, IntCounter)>,
    disconnects: [IntCounter; STAGES.len()],
    response_bytes: IntCounter,
    origin_response: Histogram,
    queue_wait: Histogram,
    requests_waited: IntCounter,
    would_wait: Histogram,
    requests_would_wait: IntCounter,
    pub robots: Robots,
    pub lessons: Lessons,
    store: Store,
    process: Process,
    pub spacing_violations: IntCounter,
    pub queued: IntGauge,
    /// The busiest of them.
    pub hosts: Hosts,
    known_hosts: IntGauge,
    hosts_by_state: [IntGauge; Condition::ALL.len()],
    breakers: [IntGauge; BREAKERS.len()],
    pub client_connections: IntGauge,
    pub inflight: IntGauge,
    pub tunnels: IntGauge,
    tunnel_pacing: Vec<(&'static str, IntCounter)>,
    pub tunnel_requests: IntCounter,
    /// Clients that did not like curtsy's certificate.
    pub untrusting: IntCounter,
    /// In Unix time; 0 while there is no CA.
    pub ca_expiry: IntGauge,
    pub connections_refused: IntCounter,
    pub accept_errors: IntCounter,
    pub reload_successful: IntGauge,
    reloaded: IntGauge,
}

/// How things stand, as far as it is not counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    pub queued: usize,
    pub hosts: usize,
    /// In the order of [`Condition::ALL`].
    pub hosts_by_state: [usize; Condition::ALL.len()],
    /// Of hosts that are given up: open, and half open.
    pub breakers: [usize; BREAKERS.len()],
    pub robots_bytes: u64,
    /// Each host that has a seat, and the rest.
    pub busiest: HashMap<HostKey, Present>,
    pub rest: Present,
}

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Http,
    Tunnel,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Forwarded,
    Denied,
    Rejected,
    Abandoned,
    Failed,
}

/// When the client left: in line, on the way to its answer, or in the middle of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Queued,
    Connecting,
    Response,
}

const KINDS: [&str; 2] = ["http", "tunnel"];
const OUTCOMES: [&str; 5] = ["forwarded", "denied", "rejected", "abandoned", "failed"];
const STAGES: [&str; 3] = ["queued", "connecting", "response"];
const BREAKERS: [&str; 2] = ["open", "half_open"];
const TUNNEL_PACING: [&str; 5] = ["paced", "http2", "websocket", "other", "off"];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
const REASONS: [&str; 16] = [
    "auth_required",
    "bad_request",
    "breaker_open",
    "client_denied",
    "destination_denied",
    "host_cooling",
    "job_stopped",
    "loop",
    "origin_timeout",
    "origin_unreachable",
    "queue_full",
    "quota_exceeded",
    "robots_denied",
    "robots_unreachable",
    "shutting_down",
    "wait_too_long",
];
const ORIGIN_ERRORS: [&str; 5] = ["dns", "connect", "tls", "timeout", "protocol"];
/// Seconds; from a near cache to the slowest answer that is still waited for.
const RESPONSE_BUCKETS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Seconds a request is held: from "at once" to the default `max_wait`.
pub const WAIT_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0];
/// What `metrics.hosts` is by default.
const USUAL_SEATS: usize = 100;
/// Less is no waiting but the time it takes to look.
const A_MOMENT: Duration = Duration::from_millis(1);

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let requests =
            counters(&registry, "curtsy_requests_total", "Requests by kind and outcome.", &["kind", "outcome"]);
        let responses = counters(&registry, "curtsy_responses_total", "Responses of origins, by class.", &["class"]);
        let disconnects = counters(
            &registry,
            "curtsy_client_disconnects_total",
            "Clients that left before their answer.",
            &["stage"],
        );
        let by_state = gauges(&registry, "curtsy_hosts_by_state", "Hosts that have a lane, by what they are doing.");
        let breakers = gauges(&registry, "curtsy_breakers", "Hosts that are given up for a while, by their breaker.");
        register_build(&registry);
        Metrics {
            requests: KINDS.map(|kind| OUTCOMES.map(|outcome| requests.with_label_values(&[kind, outcome]))),
            rejections: labelled(
                &registry,
                "curtsy_rejections_total",
                "Answers curtsy made itself, by reason.",
                "reason",
                &REASONS,
            ),
            responses: CLASSES.map(|class| responses.with_label_values(&[class])),
            origin_errors: labelled(
                &registry,
                "curtsy_origin_errors_total",
                "Failures on the way to an origin.",
                "kind",
                &ORIGIN_ERRORS,
            ),
            disconnects: STAGES.map(|stage| disconnects.with_label_values(&[stage])),
            response_bytes: counter(
                &registry,
                "curtsy_response_bytes_total",
                "Bytes of bodies and tunnels that clients were sent.",
            ),
            origin_response: histogram(
                &registry,
                "curtsy_origin_response_seconds",
                "From sending a request to its response head.",
                &RESPONSE_BUCKETS,
            ),
            queue_wait: histogram(
                &registry,
                "curtsy_queue_wait_seconds",
                "How long requests were held before their turn.",
                &WAIT_BUCKETS,
            ),
            requests_waited: counter(&registry, "curtsy_requests_waited_total", "Requests that had to wait."),
            would_wait: histogram(
                &registry,
                "curtsy_would_wait_seconds",
                "In report mode: how long requests would have been held for a turn and a place.",
                &WAIT_BUCKETS,
            ),
            requests_would_wait: counter(
                &registry,
                "curtsy_requests_would_wait_total",
                "In report mode: requests that would have had to wait.",
            ),
            robots: Robots::new(&registry),
            lessons: Lessons::new(&registry),
            store: Store::new(&registry),
            process: Process::new(&registry),
            spacing_violations: counter(
                &registry,
                "curtsy_spacing_violations_total",
                "Requests that started too early, as seen at the socket. Must stay 0.",
            ),
            queued: gauge(&registry, "curtsy_queued_requests", "Requests that wait for their turn."),
            hosts: Hosts::new(&registry, USUAL_SEATS),
            known_hosts: gauge(&registry, "curtsy_hosts", "Hosts that have a lane."),
            hosts_by_state: Condition::ALL.map(|state| by_state.with_label_values(&[state.word()])),
            breakers: BREAKERS.map(|state| breakers.with_label_values(&[state])),
            client_connections: gauge(&registry, "curtsy_client_connections", "Open client connections."),
            inflight: gauge(
                &registry,
                "curtsy_inflight_requests",
                "Requests taken and not yet finished, those that wait included.",
            ),
            tunnels: gauge(&registry, "curtsy_tunnels", "Open CONNECT tunnels and upgraded connections."),
            tunnel_pacing: labelled(
                &registry,
                "curtsy_tunnel_pacing_total",
                "Tunnels by whether requests inside wait their turn, or why not.",
                "mode",
                &TUNNEL_PACING,
            ),
            tunnel_requests: counter(
                &registry,
                "curtsy_tunnel_requests_total",
                "Requests inside tunnels, as far as they are told apart.",
            ),
            untrusting: counter(
                &registry,
                "curtsy_clients_untrusting_total",
                "Handshakes that a client broke off, or left without a request, at the sight of our certificate.",
            ),
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

    pub fn request(&self, kind: Kind, outcome: Outcome) {
        self.requests[kind as usize][outcome as usize].inc();
    }

    /// `code` is a Curtsy-Error code.
    pub fn rejection(&self, code: &str) {
        let matches = |reason: &str| {
            reason.len() == code.len()
                && reason.bytes().zip(code.bytes()).all(|(r, c)| r == c || (r, c) == (b'_', b'-'))
        };
        if let Some((_, counter)) = self.rejections.iter().find(|(reason, _)| matches(reason)) {
            counter.inc();
        }
    }

    pub fn response(&self, status: u16, took: Duration) {
        let class = match status {
            100..=599 => usize::from(status / 100) - 1,
            _ => CLASSES.len() - 1,
        };
        self.responses[class].inc();
        self.origin_response.observe(took.as_secs_f64());
    }

    /// How long a request was held before its turn.
    pub fn waited(&self, wait: Duration) {
        self.queue_wait.observe(wait.as_secs_f64());
        if wait >= A_MOMENT {
            self.requests_waited.inc();
        }
    }

    /// How long a request would have been held, in report mode.
    pub fn would_wait(&self, wait: Duration) {
        self.would_wait.observe(wait.as_secs_f64());
        if wait >= A_MOMENT {
            self.requests_would_wait.inc();
        }
    }

    /// A request is over, and so many bytes of its answer were sent.
    pub fn sent(&self, bytes: u64) {
        self.response_bytes.inc_by(bytes);
    }

    /// A configuration was taken, or could not be.
    pub fn reloaded(&self, successful: bool) {
        self.reload_successful.set(successful.into());
        if successful {
            put(&self.reloaded, clock::wall().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        }
    }

    /// How the requests inside a tunnel are treated.
    pub fn tunnel_pacing(&self, mode: &str) {
        count(&self.tunnel_pacing, mode);
    }

    /// Requests so far, by outcome: forwarded, denied, rejected, abandoned, failed.
    pub fn outcomes(&self) -> [u64; OUTCOMES.len()] {
        std::array::from_fn(|outcome| self.requests.iter().map(|kind| kind[outcome].get()).sum())
    }

    /// Requests so far that had to wait.
    pub fn waits(&self) -> u64 {
        self.requests_waited.get()
    }

    /// Requests so far by how long they were held: one number for each of [`WAIT_BUCKETS`], and for what is longer.
    pub fn wait_counts(&self) -> [u64; WAIT_BUCKETS.len() + 1] {
        let metric = self.queue_wait.metric();
        let histogram = metric.get_histogram();
        let buckets = histogram.get_bucket();
        // What Prometheus is told counts everything below, too.
        let below = |bucket: usize| buckets.get(bucket).map_or(0, |bucket| bucket.cumulative_count());
        std::array::from_fn(|bucket| match bucket {
            0 => below(0),
            last if last == WAIT_BUCKETS.len() => histogram.get_sample_count().saturating_sub(below(last - 1)),
            bucket => below(bucket).saturating_sub(below(bucket - 1)),
        })
    }

    pub fn origin_error(&self, kind: &str) {
        count(&self.origin_errors, kind);
    }

    /// What the store says of itself: changes that wait for the disk, writes that failed and changes given up so far,
    /// and how long ago the last write was.
    pub fn store(&self, pending: usize, failures: u64, lost: u64, age: Duration) {
        self.store.measure(pending, failures, lost, age);
    }

    /// Not of one who left while connecting, which is told as [`Outcome::Abandoned`].
    pub fn disconnect(&self, stage: Stage) {
        self.disconnects[stage as usize].inc();
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self, scene: &Scene) -> String {
        self.process.measure();
        self.show(scene);
        let mut families = self.registry.gather();
        families.extend(self.hosts.gather(&scene.busiest, scene.rest));
        families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = Vec::new();
        TextEncoder::new().encode(&families, &mut text).expect("writing to memory");
        String::from_utf8(text).expect("our own names and numbers, and names of hosts")
    }

    fn show(&self, scene: &Scene) {
        put(&self.queued, scene.queued);
        put(&self.known_hosts, scene.hosts);
        put(&self.robots.bytes, scene.robots_bytes);
        self.hosts_by_state.iter().zip(scene.hosts_by_state).for_each(|(gauge, count)| put(gauge, count));
        self.breakers.iter().zip(scene.breakers).for_each(|(gauge, count)| put(gauge, count));
        // Who left without an answer and not from the line was on the way.
        let [queued, connecting, _] = &self.disconnects;
        let [.., abandoned, _failed] = self.outcomes();
        connecting.inc_by(abandoned.saturating_sub(queued.get() + connecting.get()));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

fn gauges(registry: &Registry, name: &str, help: &str) -> IntGaugeVec {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &["state"]).expect("a valid name");
    registry.register(Box::new(gauges.clone())).expect("a new name");
    gauges
}

/// The revision is known where the build says it.
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
    fn every_series_exists_from_the_start() {
        let text = Metrics::new().render(&Scene::default());
        for line in [
            "curtsy_requests_total{kind=\"tunnel\",outcome=\"abandoned\"} 0",
            "curtsy_rejections_total{reason=\"destination_denied\"} 0",
            "curtsy_responses_total{class=\"5xx\"} 0",
        ] {
            assert!(text.contains(line), "{line} is missing");
        }
    }

    #[test]
    fn an_error_code_finds_its_label() {
        let metrics = Metrics::new();
        metrics.rejection("destination-denied");
        assert!(metrics.render(&Scene::default()).contains("curtsy_rejections_total{reason=\"destination_denied\"} 1"));
    }

    #[test]
    fn who_left_is_counted_at_one_stage() {
        let metrics = Metrics::new();
        metrics.disconnect(Stage::Queued);
        (0..3).for_each(|_| metrics.request(Kind::Http, Outcome::Abandoned));
        for _ in 0..2 {
            let text = metrics.render(&Scene::default());
            assert!(text.contains("curtsy_client_disconnects_total{stage=\"queued\"} 1\n"), "{text}");
            assert!(text.contains("curtsy_client_disconnects_total{stage=\"connecting\"} 2\n"), "{text}");
        }
    }
}
