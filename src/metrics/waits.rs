//! Counters for waiting: how long requests were held, or would have been.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, MetricFamily};
use prometheus::{Histogram, HistogramOpts, IntCounter, Registry};

use super::A_MOMENT;
use super::register::{counter, histogram};

/// Seconds a request is held: from no wait to the default `max_wait`.
pub const WAIT_BUCKETS: [f64; 10] = [0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0];

#[derive(Debug)]
pub(super) struct Waits {
    held: WaitHistogram,
    had_to: IntCounter,
    would_be_held: Histogram,
    would_have_to: IntCounter,
}

impl Waits {
    pub(super) fn new(registry: &Registry) -> Self {
        Waits {
            held: WaitHistogram::new(registry),
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
        if wait.is_zero() {
            self.held.at_once.inc();
        } else {
            observe(&self.held.later, &self.had_to, wait);
        }
    }

    pub(super) fn would_wait(&self, wait: Duration) {
        observe(&self.would_be_held, &self.would_have_to, wait);
    }

    /// Returns the number of requests so far that had to wait.
    pub(super) fn count(&self) -> u64 {
        self.had_to.get()
    }

    /// Returns the number of requests so far by how long they were held.
    pub(super) fn counts(&self) -> [u64; WAIT_BUCKETS.len() + 1] {
        let families = self.held.collect();
        let histogram = families[0].get_metric()[0].get_histogram();
        let buckets = histogram.get_bucket();
        // A Prometheus bucket also counts everything below it.
        let below = |bucket: usize| buckets.get(bucket).map_or(0, |bucket| bucket.cumulative_count());
        std::array::from_fn(|bucket| match bucket {
            0 => below(0),
            last if last == WAIT_BUCKETS.len() => histogram.get_sample_count().saturating_sub(below(last - 1)),
            bucket => below(bucket).saturating_sub(below(bucket - 1)),
        })
    }
}

/// A histogram with a fast path for requests that do not wait, which are most: one increment instead of five.
#[derive(Clone, Debug)]
struct WaitHistogram {
    later: Histogram,
    at_once: IntCounter,
}

impl WaitHistogram {
    fn new(registry: &Registry) -> Self {
        let told = HistogramOpts::new("curtsy_queue_wait_seconds", "How long requests were held before their turn.");
        let later = Histogram::with_opts(told.buckets(WAIT_BUCKETS.to_vec())).expect("valid buckets");
        // Shown as part of the histogram, so this name is never visible.
        let at_once = IntCounter::new("at_once", "Requests that were not held.").expect("a valid name");
        let held = WaitHistogram { later, at_once };
        registry.register(Box::new(held.clone())).expect("a new name");
        held
    }
}

impl Collector for WaitHistogram {
    fn desc(&self) -> Vec<&Desc> {
        self.later.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (mut families, at_once) = (self.later.collect(), self.at_once.get());
        for metric in families.iter_mut().flat_map(MetricFamily::mut_metric) {
            metric.set_histogram(with_zeros(metric.get_histogram(), at_once));
        }
        families
    }
}

/// Returns the histogram with this many zeros added.
fn with_zeros(histogram: &proto::Histogram, zeros: u64) -> proto::Histogram {
    let mut more = histogram.clone();
    more.set_sample_count(histogram.get_sample_count() + zeros);
    let buckets = histogram.get_bucket().iter().map(|bucket| {
        let mut fuller = bucket.clone();
        // A bucket counts everything below its bound.
        fuller.set_cumulative_count(bucket.cumulative_count() + zeros);
        fuller
    });
    more.set_bucket(buckets.collect());
    more
}

fn observe(histogram: &Histogram, counter: &IntCounter, wait: Duration) {
    histogram.observe(wait.as_secs_f64());
    if wait >= A_MOMENT {
        counter.inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn requests_without_a_wait_are_in_every_bucket() {
        let registry = Registry::new();
        let waits = Waits::new(&registry);
        for millis in [0, 0, 0, 50, 2_000, 1_000_000] {
            waits.waited(Duration::from_millis(millis));
        }
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "_bucket{le=\"0.01\"} 3",
            "_bucket{le=\"0.1\"} 4",
            "_bucket{le=\"2.5\"} 5",
            "_bucket{le=\"+Inf\"} 6",
            "_sum 1002.05",
            "_count 6",
        ] {
            assert!(text.contains(&format!("curtsy_queue_wait_seconds{line}\n")), "{line} is not in\n{text}");
        }
        assert_eq!((waits.counts(), waits.count()), ([3, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1], 3));
    }
}
