//! Creates metrics. Each is registered as it is created, so that its name is used once and it exists from the start.

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry};

pub(super) fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), labels).expect("a valid name");
    registry.register(Box::new(counters.clone())).expect("a new name");
    counters
}

pub(super) fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let counter = IntCounter::new(name, help).expect("a valid name");
    registry.register(Box::new(counter.clone())).expect("a new name");
    counter
}

pub(super) fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let gauge = IntGauge::new(name, help).expect("a valid name");
    registry.register(Box::new(gauge.clone())).expect("a new name");
    gauge
}

pub(super) fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let histogram =
        Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets.to_vec())).expect("valid buckets");
    registry.register(Box::new(histogram.clone())).expect("a new name");
    histogram
}

/// Creates a counter for each value that the one label can have.
pub(super) fn labelled(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
    values: &[&'static str],
) -> Vec<(&'static str, IntCounter)> {
    let counters = counters(registry, name, help, &[label]);
    values.iter().map(|value| (*value, counters.with_label_values(&[*value]))).collect()
}

/// Counts under a known label value and ignores any other: no peer can create a label value.
pub(super) fn count(counters: &[(&'static str, IntCounter)], label: &str) {
    if let Some((_, counter)) = counters.iter().find(|(name, _)| *name == label) {
        counter.inc();
    }
}

/// Sets a gauge to a count, however large.
pub(super) fn put(gauge: &IntGauge, count: impl TryInto<i64>) {
    gauge.set(count.try_into().unwrap_or(i64::MAX));
}
