//! What is counted about waiting: how long requests were held, or would have been.

use std::time::Duration;

use prometheus::core::Metric;
use prometheus::{Histogram, IntCounter, Registry};

use super::A_MOMENT;
use super::register::{counter, histogram};

/// Seconds a request is held: from "at once" to the default `max_wait`.
pub const WAIT_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0];

#[derive(Debug)]
pub(super) struct Waits {
    held: Histogram,
    had_to: IntCounter,
    would_be_held: Histogram,
    would_have_to: IntCounter,
}

impl Waits {
    pub(super) fn new(registry: &Registry) -> Self {
        Waits {
            held: histogram(
                registry,
                "curtsy_queue_wait_seconds",
                "How long requests were held before their turn.",
                &WAIT_BUCKETS,
            ),
            had_to: counter(registry, "curtsy_requests_waited_total", "Requests that had to wait."),
            would_be_held: histogram(
                registry,
                "curtsy_would_wait_seconds",
                "In report mode: how long requests would have been held for a turn and a place.",
                &WAIT_BUCKETS,
            ),
            would_have_to: counter(
                registry,
                "curtsy_requests_would_wait_total",
                "In report mode: requests that would have had to wait.",
            ),
        }
    }

    pub(super) fn waited(&self, wait: Duration) {
        observe(&self.held, &self.had_to, wait);
    }

    pub(super) fn would_wait(&self, wait: Duration) {
        observe(&self.would_be_held, &self.would_have_to, wait);
    }

    /// Requests so far that had to wait.
    pub(super) fn count(&self) -> u64 {
        self.had_to.get()
    }

    /// Requests so far by how long they were held.
    pub(super) fn counts(&self) -> [u64; WAIT_BUCKETS.len() + 1] {
        let metric = self.held.metric();
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
}

fn observe(histogram: &Histogram, counter: &IntCounter, wait: Duration) {
    histogram.observe(wait.as_secs_f64());
    if wait >= A_MOMENT {
        counter.inc();
    }
}
