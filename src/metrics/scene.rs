//! The present state: values that other modules know anyway, read for each scrape instead of being counted twice.

use std::collections::HashMap;

use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};

use super::hosts::Present;
use super::register::{gauge, put};
use crate::politeness::HostKey;
use crate::politeness::lane::Condition;

const BREAKERS: [&str; 2] = ["open", "half_open"];

#[derive(Clone, Debug, Default, PartialEq)]
pub struct GaugeSources {
    pub queued: usize,
    pub hosts: usize,
    /// In the order of [`Condition::ALL`].
    pub hosts_by_state: [usize; Condition::ALL.len()],
    /// Number of hosts whose breaker is open, and half open.
    pub breakers: [usize; BREAKERS.len()],
    pub robots_bytes: u64,
    /// Each host that has a seat, and the rest.
    pub busiest: HashMap<HostKey, Present>,
    pub rest: Present,
}

/// The gauges that show a [`GaugeSources`].
#[derive(Debug)]
pub(super) struct Gauges {
    queued: IntGauge,
    hosts: IntGauge,
    hosts_by_state: [IntGauge; Condition::ALL.len()],
    breakers: [IntGauge; BREAKERS.len()],
    robots_bytes: IntGauge,
}

impl Gauges {
    pub(super) fn new(registry: &Registry) -> Self {
        let by_state = by_state(registry, "curtsy_hosts_by_state", "Hosts that have a lane, by what they are doing.");
        let breakers = self::by_state(
            registry,
            "curtsy_breakers",
            "Hosts with an origin that is given up for a while, by the worst breaker.",
        );
        Gauges {
            queued: gauge(registry, "curtsy_queued_requests", "Requests that wait for their turn."),
            hosts: gauge(registry, "curtsy_hosts", "Hosts that have a lane."),
            hosts_by_state: Condition::ALL.map(|state| by_state.with_label_values(&[state.word()])),
            breakers: BREAKERS.map(|state| breakers.with_label_values(&[state])),
            robots_bytes: gauge(registry, "curtsy_robots_cache_bytes", "Memory held by what is known of robots.txt."),
        }
    }

    pub(super) fn show(&self, scene: &GaugeSources) {
        put(&self.queued, scene.queued);
        put(&self.hosts, scene.hosts);
        put(&self.robots_bytes, scene.robots_bytes);
        self.hosts_by_state.iter().zip(scene.hosts_by_state).for_each(|(gauge, count)| put(gauge, count));
        self.breakers.iter().zip(scene.breakers).for_each(|(gauge, count)| put(gauge, count));
    }
}

fn by_state(registry: &Registry, name: &str, help: &str) -> IntGaugeVec {
    let gauges = IntGaugeVec::new(Opts::new(name, help), &["state"]).expect("a valid name");
    registry.register(Box::new(gauges.clone())).expect("a new name");
    gauges
}
