//! The results of a private proxy's requests by host, for the summary after the command ends.

use std::sync::Arc;
use std::time::Duration;

use crate::metrics::RequestKind;
use crate::metrics::tally::TallyRow;
use crate::politeness::HostKey;
use crate::proxy::Shared;

/// The counters of a private proxy. Stays valid after the proxy stops.
#[derive(Debug)]
pub struct TallyJson(Arc<Shared>);

/// The results for one host.
#[derive(Clone, Debug)]
pub struct CountedHost {
    pub host: String,
    pub row: TallyRow,
    /// The time between request starts, and the setting or signal that determines it; `None` if the host has no lane.
    pub delay: Option<(Duration, &'static str)>,
}

impl TallyJson {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        TallyJson(shared)
    }

    /// Returns all hosts, busiest first.
    pub fn hosts(&self) -> Vec<CountedHost> {
        let counted = |(host, row): (String, TallyRow)| {
            let view = HostKey::parse(&host).ok().and_then(|host| self.0.gate.view(&host));
            let delay = view.map(|view| (view.delays.effective(), view.delays.why()));
            CountedHost { host, row, delay }
        };
        self.0.metrics.tally.rows().into_iter().map(counted).collect()
    }

    /// Returns the number of tunnels whose content curtsy did not read.
    pub fn tunnels(&self) -> u64 {
        self.0.metrics.of_kind(RequestKind::Tunnel)
    }
}
