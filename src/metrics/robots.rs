//! Counters for robots.txt.

use prometheus::{IntCounter, Registry};

use super::register::{count, counter, labelled};

/// How robots.txt affected requests.
#[derive(Debug)]
pub struct RobotsMetrics {
    fetches: Vec<(&'static str, IntCounter)>,
    pub warned: IntCounter,
    pub crawl_delays_capped: IntCounter,
}

const RESULTS: [&str; 5] = ["ok", "missing", "forbidden", "unreachable", "invalid"];

impl RobotsMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        RobotsMetrics {
            fetches: labelled(
                registry,
                "curtsy_robots_fetches_total",
                "Fetches of robots.txt, by result.",
                "result",
                &RESULTS,
            ),
            warned: counter(
                registry,
                "curtsy_robots_warned_total",
                "Requests let through that robots.txt denies, or might.",
            ),
            crawl_delays_capped: counter(
                registry,
                "curtsy_crawl_delays_capped_total",
                "Requests for which robots.txt asks a longer delay than robots.max_crawl_delay.",
            ),
        }
    }

    pub fn fetch(&self, result: &str) {
        count(&self.fetches, result);
    }
}
