//! Counters for a fleet. All are 0 without one.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge, Registry};

use super::register::{count, counter, gauge, histogram, labelled, put};

/// Seconds that Redis takes to answer: from a server on the same machine to `fleet.timeout`.
const TRIP_BUCKETS: [f64; 11] = [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5];

/// The words of `LedgerError`, with `_` for `-`.
const ERRORS: [&str; 8] =
    ["away", "slow", "unready", "readonly", "out_of_memory", "wrong_password", "no_permission", "protocol"];

/// What a node does in its fleet.
#[derive(Debug)]
pub(super) struct FleetMetrics {
    joined: IntGauge,
    alone: IntGauge,
    nodes: IntGauge,
    missing: IntGauge,
    round_trip: Histogram,
    claims: IntCounter,
    refused: IntCounter,
    errors: Vec<(&'static str, IntCounter)>,
    alone_starts: IntCounter,
    late: IntCounter,
}

/// How a node stands and what it has done so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct FleetFigures {
    /// Servers of the ledger that the node has joined, and those that it cannot reach.
    pub joined: usize,
    pub alone: usize,
    pub nodes: u32,
    pub missing: usize,
    pub claims: u64,
    pub refused: u64,
    pub alone_starts: u64,
    pub late: u64,
}

impl FleetMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |name, help| gauge(registry, name, help);
        let counter = |name, help| counter(registry, name, help);
        FleetMetrics {
            joined: gauge("curtsy_fleet_joined", "Redis servers that this node has joined."),
            alone: gauge("curtsy_fleet_alone", "Redis servers without which this node goes on alone."),
            nodes: gauge("curtsy_fleet_nodes", "Nodes of the fleet."),
            missing: gauge("curtsy_fleet_missing_nodes", "Nodes that do not report, and whose share is left to them."),
            round_trip: histogram(
                registry,
                "curtsy_fleet_round_trip_seconds",
                "How long Redis took to answer.",
                &TRIP_BUCKETS,
            ),
            claims: counter("curtsy_fleet_claims_total", "Starts claimed from Redis."),
            refused: counter("curtsy_fleet_refused_claims_total", "Claims that were told to come later."),
            errors: labelled(
                registry,
                "curtsy_fleet_errors_total",
                "Calls to Redis that failed, by kind of error.",
                "error",
                &ERRORS,
            ),
            alone_starts: counter("curtsy_fleet_alone_starts_total", "Starts without Redis, in this node's own slots."),
            late: counter("curtsy_fleet_late_total", "Requests that were sent after their window."),
        }
    }

    pub(super) fn answered(&self, took: Duration) {
        self.round_trip.observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, error: &str) {
        count(&self.errors, &error.replace('-', "_"));
    }

    pub(super) fn measure(&self, figures: &FleetFigures) {
        put(&self.joined, figures.joined);
        put(&self.alone, figures.alone);
        put(&self.nodes, figures.nodes);
        put(&self.missing, figures.missing);
        let counts = [
            (&self.claims, figures.claims),
            (&self.refused, figures.refused),
            (&self.alone_starts, figures.alone_starts),
            (&self.late, figures.late),
        ];
        counts.into_iter().for_each(|(counter, now)| counter.inc_by(now.saturating_sub(counter.get())));
    }
}
