//! What became of a private proxy's requests, host by host, for whoever asks when it is over.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Kind;
use crate::metrics::tally::Row;
use crate::politeness::HostKey;
use crate::proxy::Shared;

/// Outlives the proxy whose requests it counts.
#[derive(Debug)]
pub struct Tally(Arc<Shared>);

/// What is known of one host.
#[derive(Clone, Debug)]
pub struct Counted {
    pub host: String,
    pub row: Row,
    /// How far apart requests to it start, and by whose wish; unknown if it has no lane of its own.
    pub delay: Option<(Duration, &'static str)>,
}

impl Tally {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Tally(shared)
    }

    /// All hosts, the busiest first.
    pub fn hosts(&self) -> Vec<Counted> {
        let counted = |(host, row): (String, Row)| {
            let view = HostKey::parse(&host).ok().and_then(|host| self.0.gate.view(&host));
            let delay = view.map(|view| (view.delays.effective(), view.delays.why()));
            Counted { host, row, delay }
        };
        self.0.metrics.tally.rows().into_iter().map(counted).collect()
    }

    /// Tunnels, whose insides nobody has read.
    pub fn tunnels(&self) -> u64 {
        self.0.metrics.of_kind(Kind::Tunnel)
    }
}
