//! The results of a private proxy's requests by host, for the summary after the command ends.

use std::sync::Arc;
use std::time::Duration;

use crate::gate;
use crate::metrics::RequestKind;
use crate::metrics::tally::TallyRow;
use crate::politeness::HostKey;
use crate::politeness::time::Timestamp;
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

/// The requests that wait for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingHost {
    pub host: String,
    pub waiting: usize,
    /// How long the first of them has waited.
    pub waited: Duration,
    /// When the next one can start, as far as can be predicted.
    pub next: Option<Duration>,
    /// The time between request starts.
    pub delay: Duration,
    /// What they wait for, in one word, as in the API.
    pub why: String,
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

    /// Returns the host whose first request has waited longest, if any request waits.
    pub fn longest_wait(&self) -> Option<WaitingHost> {
        let first = self.0.gate.backlogs().into_iter().min_by_key(|backlog| backlog.since)?;
        let (view, now) = (self.0.gate.view(&first.host)?, gate::now());
        Some(WaitingHost {
            host: first.host.to_string(),
            waiting: first.waiting,
            waited: now.since(first.since),
            next: (view.next_start < Timestamp::NEVER).then(|| view.next_start.since(now)),
            delay: view.delays.effective(),
            why: view.why().to_owned(),
        })
    }
}
