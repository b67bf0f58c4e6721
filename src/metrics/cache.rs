//! Counters for the cache.

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

use super::collapsed::CollapsedMetrics;
use super::register::{count, counter, counters, labelled, put};
use crate::politeness::reuse::storing::NotStored;

/// What the cache did for a request.
const RESULTS: [&str; 8] = ["hit", "stale", "validated", "changed", "miss", "shared", "bypass", "would_hit"];

#[derive(Debug)]
pub struct CacheMetrics {
    requests: Vec<(&'static str, IntCounter)>,
    not_stored: Vec<(&'static str, IntCounter)>,
    /// In memory and on disk.
    bytes: [IntGauge; 2],
    objects: [IntGauge; 2],
    evictions: [IntCounter; 2],
    disk_write_failures: IntCounter,
    disk_skipped: IntCounter,
    disk_reads: Vec<(&'static str, IntCounter)>,
    pub served_bytes: IntCounter,
    pub(super) collapsed: CollapsedMetrics,
}

/// What the disk tier has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskCensus {
    pub bytes: u64,
    pub objects: u64,
    pub evictions: u64,
    pub write_failures: u64,
    pub skipped: u64,
    /// Reads that found a response, were late, or found damage.
    pub reads: [u64; 3],
}

const TIERS: [&str; 2] = ["memory", "disk"];
const READS: [&str; 3] = ["found", "late", "damaged"];

impl CacheMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let reasons = NotStored::ALL.map(NotStored::word);
        let evictions =
            counters(registry, "curtsy_cache_evictions_total", "URLs that made room for others.", &["tier"]);
        CacheMetrics {
            collapsed: CollapsedMetrics::new(registry),
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
            evictions: TIERS.map(|tier| evictions.with_label_values(&[tier])),
            disk_write_failures: counter(
                registry,
                "curtsy_cache_disk_write_failures_total",
                "Writes to the cache folder that failed.",
            ),
            disk_skipped: counter(
                registry,
                "curtsy_cache_disk_skipped_total",
                "Answers that were not stored on disk because it was behind or failed.",
            ),
            disk_reads: labelled(
                registry,
                "curtsy_cache_disk_reads_total",
                "Reads of answers on disk, by result.",
                "result",
                &READS,
            ),
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

    /// Returns how many requests had which result.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.requests.iter().map(|(result, count)| (*result, count.get()))
    }

    /// Counts an answer that is not stored.
    pub fn not_stored(&self, reason: &str) {
        count(&self.not_stored, reason);
    }

    /// Records what memory holds.
    pub fn measure(&self, bytes: u64, objects: usize, evictions: u64) {
        let [memory, _] = &self.evictions;
        put(&self.bytes[0], bytes);
        put(&self.objects[0], objects);
        raise(memory, evictions);
    }

    /// Records what the disk holds, and what its threads have counted.
    pub fn measure_disk(&self, census: &DiskCensus) {
        let [_, disk] = &self.evictions;
        put(&self.bytes[1], census.bytes);
        put(&self.objects[1], census.objects);
        raise(disk, census.evictions);
        raise(&self.disk_write_failures, census.write_failures);
        raise(&self.disk_skipped, census.skipped);
        self.disk_reads.iter().zip(census.reads).for_each(|((_, counter), reads)| raise(counter, reads));
    }
}

/// Raises a counter to a value that another part counts.
fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}

fn by_tier(registry: &Registry, name: &str, help: &str) -> [IntGauge; 2] {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &["tier"]).expect("a valid name");
    registry.register(Box::new(gauges.clone())).expect("a new name");
    TIERS.map(|tier| gauges.with_label_values(&[tier]))
}
