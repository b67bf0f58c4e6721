//! Counters for requests: their outcomes, and the responses to them.

use prometheus::{Histogram, IntCounter, Registry};

use super::codes::Codes;
use super::register::{counters, histogram, labelled};
use super::{KINDS, ORIGIN_ERRORS, OUTCOMES, REASONS, STAGES};

/// Seconds; from a near cache to the slowest response that curtsy still waits for.
const RESPONSE_BUCKETS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

#[derive(Debug)]
pub(super) struct RequestMetrics {
    pub(super) ended: [[IntCounter; OUTCOMES.len()]; KINDS.len()],
    pub(super) rejections: Vec<(&'static str, IntCounter)>,
    pub(super) responses: Codes,
    pub(super) origin_errors: Vec<(&'static str, IntCounter)>,
    pub(super) disconnects: [IntCounter; STAGES.len()],
    pub(super) origin_response: Histogram,
}

impl RequestMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let requests =
            counters(registry, "curtsy_requests_total", "Requests by kind and outcome.", &["kind", "outcome"]);
        let disconnects =
            counters(registry, "curtsy_client_disconnects_total", "Clients that left before their answer.", &["stage"]);
        RequestMetrics {
            ended: KINDS.map(|kind| OUTCOMES.map(|outcome| requests.with_label_values(&[kind, outcome]))),
            rejections: labelled(
                registry,
                "curtsy_rejections_total",
                "Answers curtsy made itself, by reason.",
                "reason",
                &REASONS,
            ),
            responses: Codes::new(registry),
            origin_errors: labelled(
                registry,
                "curtsy_origin_errors_total",
                "Failures on the way to an origin.",
                "kind",
                &ORIGIN_ERRORS,
            ),
            disconnects: STAGES.map(|stage| disconnects.with_label_values(&[stage])),
            origin_response: histogram(
                registry,
                "curtsy_origin_response_seconds",
                "From sending a request to its response head.",
                &RESPONSE_BUCKETS,
            ),
        }
    }
}
