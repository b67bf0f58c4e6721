//! Every metric: name, help and labels, one method per event.
//!
//! Handles are made once, so counting is one atomic add, and every series exists from the start at 0. No label value
//! is ever chosen by a client or an origin.

use std::time::Duration;

use prometheus::core::Metric;
use prometheus::{Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder};

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: [[IntCounter; OUTCOMES.len()]; KINDS.len()],
    rejections: Vec<(&'static str, IntCounter)>,
    responses: [IntCounter; 6],
    origin_errors: Vec<(&'static str, IntCounter)>,
    disconnects: [IntCounter; 2],
    origin_response: Histogram,
    queue_wait: Histogram,
    requests_waited: IntCounter,
    would_wait: Histogram,
    requests_would_wait: IntCounter,
    pub robots: Robots,
    pub lessons: Lessons,
    store: Store,
    pub spacing_violations: IntCounter,
    pub queued: IntGauge,
    pub hosts: IntGauge,
    pub client_connections: IntGauge,
    pub inflight: IntGauge,
    pub tunnels: Tunnels,
    /// Clients that did not like curtsy's certificate.
    pub untrusting: IntCounter,
    pub connections_refused: IntCounter,
    pub accept_errors: IntCounter,
    pub reload_successful: IntGauge,
}

/// What robots.txt had to do with requests.
#[derive(Debug)]
pub struct Robots {
    fetches: Vec<(&'static str, IntCounter)>,
    pub warned: IntCounter,
    pub crawl_delays_capped: IntCounter,
    pub bytes: IntGauge,
}

/// What hosts taught, and what was done about it.
#[derive(Debug)]
pub struct Lessons {
    throttled: Vec<(&'static str, IntCounter)>,
    holds: Vec<(&'static str, IntCounter)>,
    pub learned_changes: IntCounter,
    pub concurrency_reductions: IntCounter,
    pub breaker_openings: IntCounter,
    pub retries: IntCounter,
    pub jobs_stopped: IntCounter,
}

/// What passes unread.
#[derive(Debug)]
pub struct Tunnels {
    pub open: IntGauge,
    pacing: Vec<(&'static str, IntCounter)>,
    pub requests: IntCounter,
}

/// How the state file fares.
#[derive(Debug)]
struct Store {
    pending: IntGauge,
    failures: IntCounter,
    lost: IntCounter,
    age: IntGauge,
}

/// How a request came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Http,
    Tunnel,
    /// Inside a tunnel that is looked into.
    Inside,
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

/// When the client left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Connecting,
    Response,
}

const KINDS: [&str; 3] = ["http", "tunnel", "inside"];
const OUTCOMES: [&str; 5] = ["forwarded", "denied", "rejected", "abandoned", "failed"];
const STAGES: [&str; 2] = ["connecting", "response"];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
const REASONS: [&str; 17] = [
    "auth_required",
    "bad_request",
    "breaker_open",
    "client_denied",
    "destination_denied",
    "host_cooling",
    "job_stopped",
    "loop",
    "misdirected",
    "origin_timeout",
    "origin_unreachable",
    "queue_full",
    "quota_exceeded",
    "robots_denied",
    "robots_unreachable",
    "shutting_down",
    "wait_too_long",
];
const THROTTLES: [&str; 3] = ["429", "503", "other"];
const HOLDS: [&str; 3] = ["retry_after", "quota", "backoff"];
const TUNNEL_PACING: [&str; 5] = ["paced", "http2", "websocket", "other", "off"];
const ROBOTS_RESULTS: [&str; 5] = ["ok", "missing", "forbidden", "unreachable", "invalid"];
const ORIGIN_ERRORS: [&str; 5] = ["dns", "connect", "tls", "timeout", "protocol"];
/// Seconds; from a near cache to the slowest answer that is still waited for.
const RESPONSE_BUCKETS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// Seconds a request is held: from "at once" to the default `max_wait`.
pub const WAIT_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0];
/// Less is no waiting but the time it takes to look.
const A_MOMENT: Duration = Duration::from_millis(1);

impl Metrics {
    pub fn new() -> Self {
        let registry = Registry::new();
        let requests =
            counters(&registry, "curtsy_requests_total", "Requests by kind and outcome.", &["kind", "outcome"]);
        let rejections =
            counters(&registry, "curtsy_rejections_total", "Answers curtsy made itself, by reason.", &["reason"]);
        let responses = counters(&registry, "curtsy_responses_total", "Responses of origins, by class.", &["class"]);
        let errors = counters(&registry, "curtsy_origin_errors_total", "Failures on the way to an origin.", &["kind"]);
        let disconnects = counters(
            &registry,
            "curtsy_client_disconnects_total",
            "Clients that left before their answer.",
            &["stage"],
        );
        let build = gauge_with_version(&registry);
        build.set(1);
        Metrics {
            requests: KINDS.map(|kind| OUTCOMES.map(|outcome| requests.with_label_values(&[kind, outcome]))),
            rejections: REASONS.map(|reason| (reason, rejections.with_label_values(&[reason]))).to_vec(),
            responses: CLASSES.map(|class| responses.with_label_values(&[class])),
            origin_errors: ORIGIN_ERRORS.map(|kind| (kind, errors.with_label_values(&[kind]))).to_vec(),
            disconnects: STAGES.map(|stage| disconnects.with_label_values(&[stage])),
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
            spacing_violations: counter(
                &registry,
                "curtsy_spacing_violations_total",
                "Requests that started too early, as seen at the socket. Must stay 0.",
            ),
            queued: gauge(&registry, "curtsy_queued_requests", "Requests that wait for their turn."),
            hosts: gauge(&registry, "curtsy_hosts", "Hosts that have a lane."),
            client_connections: gauge(&registry, "curtsy_client_connections", "Open client connections."),
            inflight: gauge(&registry, "curtsy_inflight_requests", "Requests sent and not yet finished."),
            tunnels: Tunnels::new(&registry),
            untrusting: counter(
                &registry,
                "curtsy_clients_untrusting_total",
                "Handshakes that a client broke off, or left without a request, at the sight of our certificate.",
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

    /// What the store says of itself: changes that wait for the disk, writes that failed and changes given up so far,
    /// and how long ago the last write was.
    pub fn store(&self, pending: usize, failures: u64, lost: u64, age: Duration) {
        self.store.pending.set(i64::try_from(pending).unwrap_or(i64::MAX));
        self.store.failures.inc_by(failures.saturating_sub(self.store.failures.get()));
        self.store.lost.inc_by(lost.saturating_sub(self.store.lost.get()));
        self.store.age.set(i64::try_from(age.as_secs()).unwrap_or(i64::MAX));
    }

    pub fn origin_error(&self, kind: &str) {
        count(&self.origin_errors, kind);
    }

    pub fn disconnect(&self, stage: Stage) {
        self.disconnects[stage as usize].inc();
    }

    /// The text that Prometheus scrapes.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text).expect("writing to memory");
        String::from_utf8(text).expect("our own names and numbers")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new()
    }
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name");
    registry.register(Box::new(counters.clone())).expect("a new name");
    counters
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let counter = IntCounter::new(name, help).expect("a valid name");
    registry.register(Box::new(counter.clone())).expect("a new name");
    counter
}

impl Robots {
    fn new(registry: &Registry) -> Self {
        let fetches =
            counters(registry, "curtsy_robots_fetches_total", "Fetches of robots.txt, by result.", &["result"]);
        Robots {
            fetches: ROBOTS_RESULTS.map(|result| (result, fetches.with_label_values(&[result]))).to_vec(),
            warned: counter(
                registry,
                "curtsy_robots_warned_total",
                "Requests let through that robots.txt denies, or might.",
            ),
            crawl_delays_capped: counter(
                registry,
                "curtsy_crawl_delays_capped_total",
                "Requests for which robots.txt asks a longer delay than robots.max_crawl_delay.",
            ),
            bytes: gauge(registry, "curtsy_robots_cache_bytes", "Memory held by what is known of robots.txt."),
        }
    }

    pub fn fetch(&self, result: &str) {
        count(&self.fetches, result);
    }
}

impl Tunnels {
    fn new(registry: &Registry) -> Self {
        let pacing = counters(
            registry,
            "curtsy_tunnel_pacing_total",
            "Tunnels by whether requests inside wait their turn, or why not.",
            &["mode"],
        );
        Tunnels {
            open: gauge(registry, "curtsy_tunnels", "Open CONNECT tunnels and upgraded connections."),
            pacing: TUNNEL_PACING.map(|mode| (mode, pacing.with_label_values(&[mode]))).to_vec(),
            requests: counter(
                registry,
                "curtsy_tunnel_requests_total",
                "Requests inside tunnels, as far as they are told apart.",
            ),
        }
    }

    /// How the requests inside a tunnel are treated.
    pub fn pacing(&self, mode: &str) {
        count(&self.pacing, mode);
    }
}

impl Store {
    fn new(registry: &Registry) -> Self {
        let counter = |name, help| counter(registry, name, help);
        Store {
            pending: gauge(registry, "curtsy_store_pending_changes", "Changes that are not in the state file yet."),
            failures: counter("curtsy_store_write_failures_total", "Writes to the state file that failed."),
            lost: counter(
                "curtsy_store_lost_changes_total",
                "Changes that never reached the state file, for want of room while it could not be written.",
            ),
            age: gauge(registry, "curtsy_store_last_write_age_seconds", "Time since the state file was written."),
        }
    }
}

impl Lessons {
    fn new(registry: &Registry) -> Self {
        let throttled =
            counters(registry, "curtsy_throttled_total", "Answers of origins that say \"too fast\".", &["status"]);
        let holds = counters(registry, "curtsy_holds_total", "Times a host was held, by cause.", &["cause"]);
        let counter = |name, help| counter(registry, name, help);
        Lessons {
            throttled: THROTTLES.map(|status| (status, throttled.with_label_values(&[status]))).to_vec(),
            holds: HOLDS.map(|cause| (cause, holds.with_label_values(&[cause]))).to_vec(),
            learned_changes: counter("curtsy_learned_delay_changes_total", "Changes of a learned delay."),
            concurrency_reductions: counter(
                "curtsy_concurrency_reductions_total",
                "Times a host was given fewer requests at once than configured.",
            ),
            breaker_openings: counter("curtsy_breaker_openings_total", "Times a host was given up for a while."),
            retries: counter("curtsy_retries_total", "Requests sent again after a refusal."),
            jobs_stopped: counter("curtsy_jobs_stopped_total", "Named clients stopped because all they did failed."),
        }
    }

    /// An answer that says "too fast".
    pub fn throttle(&self, status: u16) {
        let label = match status {
            429 => "429",
            503 => "503",
            _ => "other",
        };
        count(&self.throttled, label);
    }

    pub fn hold(&self, cause: &str) {
        count(&self.holds, cause);
    }
}

fn count(counters: &[(&'static str, IntCounter)], label: &str) {
    if let Some((_, counter)) = counters.iter().find(|(name, _)| *name == label) {
        counter.inc();
    }
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauge = IntGauge::new(name, help).expect("a valid name");
    registry.register(Box::new(gauge.clone())).expect("a new name");
    gauge
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram =
        Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())).expect("valid buckets");
    registry.register(Box::new(histogram.clone())).expect("a new name");
    histogram
}

fn gauge_with_version(registry: &Registry) -> IntGauge {
    let options = Opts::new("curtsy_build_info", "What is running.").const_label("version", env!("CARGO_PKG_VERSION"));
    let gauge = IntGauge::with_opts(options).expect("a valid name");
    registry.register(Box::new(gauge.clone())).expect("a new name");
    gauge
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_exists_from_the_start() {
        let text = Metrics::new().render();
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
        assert!(metrics.render().contains("curtsy_rejections_total{reason=\"destination_denied\"} 1"));
    }
}
