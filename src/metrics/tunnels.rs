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
}

const PACING: [&str; 5] = ["paced", "http2", "websocket", "other", "off"];

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
        }
    }

    /// Counts a tunnel by how the requests inside it are paced.
    pub fn pacing(&self, mode: &str) {
        count(&self.pacing, mode);
    }
}
