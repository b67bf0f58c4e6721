//! Counters for requests that waited for the answer to another one.

use prometheus::{IntCounter, Registry};

use super::Metrics;
use super::register::counters;

/// What became of a request that waited for the answer to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collapsed {
    /// It got that answer, and was not sent.
    Shared,
    /// The answer was not for it: it took its own turn.
    Released,
    /// The other request failed: another one was sent for those that waited.
    FailedOver,
}

#[derive(Debug)]
pub(super) struct CollapsedMetrics([IntCounter; RESULTS.len()]);

const RESULTS: [&str; 3] = ["shared", "released", "failed_over"];

impl CollapsedMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let help = "Requests that waited for the answer to another one, by what became of them.";
        let all = counters(registry, "curtsy_cache_collapsed_total", help, &["result"]);
        CollapsedMetrics(RESULTS.map(|result| all.with_label_values(&[result])))
    }
}

impl Metrics {
    /// Counts a request that waited for the answer to another one.
    pub fn collapsed(&self, result: Collapsed) {
        self.cache.collapsed.0[result as usize].inc();
    }
}
