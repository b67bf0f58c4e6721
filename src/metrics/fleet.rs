//! Counters of a fleet: calls to Redis, how they end, and how this node stands to the others. All 0 without a fleet.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use super::register::{count, counter, gauge, histogram, labelled, put};

/// Seconds that Redis takes to answer: from a server on the same machine to `fleet.timeout`.
const TRIP_BUCKETS: [f64; 11] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

/// What is asked of Redis.
const CALLS: [&str; 8] = ["claim", "settle", "stay", "tell", "steer", "beat", "robots", "other"];

/// The words of `LedgerError`, with `_` for `-`.
const ERRORS: [&str; 8] =
    ["away", "slow", "unready", "readonly", "out_of_memory", "wrong_password", "no_permission", "protocol"];

#[derive(Debug)]
pub struct FleetMetrics {
    alone: IntGauge,
    nodes: IntGauge,
    missing: IntGauge,
    calls: Vec<(&'static str, IntCounter)>,
    errors: Vec<(&'static str, IntCounter)>,
    round_trip: Histogram,
    /// Requests that were sent after their window had ended.
    pub late: IntCounter,
}

impl FleetMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        FleetMetrics {
            alone: gauge(
                registry,
                "curtsy_fleet_alone",
                "Redis servers of the fleet that this node does without, at a slower pace.",
            ),
            nodes: gauge(registry, "curtsy_fleet_nodes", "Nodes of the fleet, this one included; 0 without a fleet."),
            missing: gauge(registry, "curtsy_fleet_missing_nodes", "Nodes that have not been heard of for a moment."),
            calls: labelled(registry, "curtsy_fleet_calls_total", "Calls to Redis.", "call", &CALLS),
            errors: labelled(
                registry,
                "curtsy_fleet_errors_total",
                "Calls to Redis that failed, by kind of error.",
                "error",
                &ERRORS,
            ),
            round_trip: histogram(
                registry,
                "curtsy_fleet_round_trip_seconds",
                "How long Redis took to answer.",
                &TRIP_BUCKETS,
            ),
            late: counter(
                registry,
                "curtsy_fleet_late_total",
                "Requests sent after their window had ended, because the process was stopped at that moment.",
            ),
        }
    }

    /// Counts a call that was answered after this time.
    pub fn answered(&self, call: &str, took: Duration) {
        self.count(call);
        self.round_trip.observe(took.as_secs_f64());
    }

    /// Counts a call that failed. `error` is a word of `LedgerError`.
    pub fn failed(&self, call: &str, error: &str) {
        self.count(call);
        count(&self.errors, &error.replace('-', "_"));
    }

    fn count(&self, call: &str) {
        count(&self.calls, if CALLS.contains(&call) { call } else { "other" });
    }

    /// Shows at how many Redis servers this node is alone, and how many nodes there are and are missing.
    pub fn standing(&self, alone: usize, nodes: u32, missing: usize) {
        put(&self.alone, alone);
        put(&self.nodes, nodes);
        put(&self.missing, missing);
    }
}
