//! Counters for tunnels, whose content passes unread.

use prometheus::{IntCounter, IntGauge, Registry};

use super::register::{count, counter, gauge, labelled};

/// Counters for tunnels.
#[derive(Debug)]
pub struct Tunnels {
    pub open: IntGauge,
    pacing: Vec<(&'static str, IntCounter)>,
    pub requests: IntCounter,
    pub closed_by_origin: IntCounter,
    closed_early: Vec<(&'static str, IntCounter)>,
}

const PACED: &str = "paced";
const PACING: [&str; 5] = [PACED, "http2", "websocket", "other", "off"];
const EARLY: [&str; 3] = ["clean", "reused", "cut"];

impl Tunnels {
    pub(super) fn new(registry: &Registry) -> Self {
        Tunnels {
            open: gauge(registry, "curtsy_tunnels", "Open CONNECT tunnels and upgraded connections."),
            pacing: labelled(
                registry,
                "curtsy_tunnel_pacing_total",
                "Tunnels by whether requests inside wait their turn, or why not.",
                "mode",
                &PACING,
            ),
            requests: counter(
                registry,
                "curtsy_tunnel_requests_total",
                "Requests inside tunnels, as far as they are told apart.",
            ),
            closed_by_origin: counter(
                registry,
                "curtsy_tunnels_closed_by_origin_total",
                "Tunnels that an origin closed while a request inside waited its turn.",
            ),
            closed_early: labelled(
                registry,
                "curtsy_tunnels_closed_early_total",
                "Tunnels that curtsy closed behind an answer because the next request would wait too long inside.",
                "result",
                &EARLY,
            ),
        }
    }

    /// Returns how many tunnels were not paced inside.
    pub(super) fn unpaced(&self) -> u64 {
        self.pacing.iter().filter(|(mode, _)| *mode != PACED).map(|(_, counter)| counter.get()).sum()
    }

    /// Counts a tunnel that curtsy closed behind an answer: cleanly, before a request that the client sent all the
    /// same, or in the middle of the answer.
    pub fn closed_early(&self, result: &str) {
        count(&self.closed_early, result);
    }

    /// Counts a tunnel by how the requests inside it are paced.
    pub fn pacing(&self, mode: &str) {
        count(&self.pacing, mode);
    }
}
