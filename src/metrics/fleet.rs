//! Counters for a fleet. All are 0 without one.

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{counter, gauge, put};

/// What a node does in its fleet.
#[derive(Debug)]
pub(super) struct FleetMetrics {
    joined: IntGauge,
    alone: IntGauge,
    nodes: IntGauge,
    missing: IntGauge,
    lead: IntGauge,
    claims: IntCounter,
    refused: IntCounter,
    errors: IntCounter,
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
    pub lead_us: u64,
    pub claims: u64,
    pub refused: u64,
    pub errors: u64,
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
            lead: gauge("curtsy_fleet_lead_microseconds", "How long before its time a start is claimed."),
            claims: counter("curtsy_fleet_claims_total", "Starts claimed from Redis."),
            refused: counter("curtsy_fleet_refused_claims_total", "Claims that were told to come later."),
            errors: counter("curtsy_fleet_errors_total", "Claims that Redis did not answer."),
            alone_starts: counter("curtsy_fleet_alone_starts_total", "Starts without Redis, in this node's own slots."),
            late: counter("curtsy_fleet_late_total", "Requests that were sent after their window."),
        }
    }

    pub(super) fn measure(&self, figures: &FleetFigures) {
        put(&self.joined, figures.joined);
        put(&self.alone, figures.alone);
        put(&self.nodes, figures.nodes);
        put(&self.missing, figures.missing);
        put(&self.lead, figures.lead_us);
        let counts = [
            (&self.claims, figures.claims),
            (&self.refused, figures.refused),
            (&self.errors, figures.errors),
            (&self.alone_starts, figures.alone_starts),
            (&self.late, figures.late),
        ];
        counts.into_iter().for_each(|(counter, now)| counter.inc_by(now.saturating_sub(counter.get())));
    }
}
