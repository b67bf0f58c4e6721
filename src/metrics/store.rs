//! Counters for the state file.

use std::time::Duration;

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{counter, gauge, put};

/// The health of the state file.
#[derive(Debug)]
pub(super) struct StoreMetrics {
    pending: IntGauge,
    failures: IntCounter,
    lost: IntCounter,
    age: IntGauge,
}

impl StoreMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| counter(registry, name, help);
        StoreMetrics {
            pending: gauge(registry, "curtsy_store_pending_changes", "Changes that are not in the state file yet."),
            failures: counter("curtsy_store_write_failures_total", "Writes to the state file that failed."),
            lost: counter(
                "curtsy_store_lost_changes_total",
                "Changes that never reached the state file, for want of room while it could not be written.",
            ),
            age: gauge(registry, "curtsy_store_last_write_age_seconds", "Time since the state file was written."),
        }
    }

    pub(super) fn measure(&self, pending: usize, failures: u64, lost: u64, age: Duration) {
        put(&self.pending, pending);
        self.failures.inc_by(failures.saturating_sub(self.failures.get()));
        self.lost.inc_by(lost.saturating_sub(self.lost.get()));
        put(&self.age, age.as_secs());
    }
}
