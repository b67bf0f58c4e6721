//! Counters for the cache.

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

use super::register::{count, counter, counters, labelled, put};
use crate::politeness::reuse::storing::NotStored;

/// What the cache did for a request.
const RESULTS: [&str; 8] = ["hit", "stale", "validated", "changed", "miss", "shared", "bypass", "would_hit"];

#[derive(Debug)]
pub struct CacheMetrics {
    requests: Vec<(&'static str, IntCounter)>,
    not_stored: Vec<(&'static str, IntCounter)>,
    bytes: IntGauge,
    objects: IntGauge,
    evictions: IntCounter,
    pub served_bytes: IntCounter,
}

impl CacheMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let reasons = NotStored::ALL.map(NotStored::word);
        let evictions =
            counters(registry, "curtsy_cache_evictions_total", "URLs that made room for others.", &["tier"]);
        CacheMetrics {
            requests: labelled(
                registry,
                "curtsy_cache_requests_total",
                "Requests by what the cache did for them.",
                "result",
                &RESULTS,
            ),
            not_stored: labelled(
                registry,
                "curtsy_cache_not_stored_total",
                "Answers that were not stored, by reason.",
                "reason",
                &reasons,
            ),
            bytes: by_tier(registry, "curtsy_cache_bytes", "Bytes that stored answers take."),
            objects: by_tier(registry, "curtsy_cache_objects", "URLs with a stored answer."),
            evictions: evictions.with_label_values(&["memory"]),
            served_bytes: counter(
                registry,
                "curtsy_cache_served_bytes_total",
                "Bytes of bodies that came from the cache.",
            ),
        }
    }

    /// Counts what the cache did for a request.
    pub fn request(&self, result: &str) {
        count(&self.requests, result);
    }

    /// Counts an answer that is not stored.
    pub fn not_stored(&self, reason: &str) {
        count(&self.not_stored, reason);
    }

    /// Records what memory holds.
    pub fn measure(&self, bytes: u64, objects: usize, evictions: u64) {
        put(&self.bytes, bytes);
        put(&self.objects, objects);
        self.evictions.inc_by(evictions.saturating_sub(self.evictions.get()));
    }
}

fn by_tier(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &["tier"]).expect("a valid name");
    registry.register(Box::new(gauges.clone())).expect("a new name");
    gauges.with_label_values(&["memory"])
}
