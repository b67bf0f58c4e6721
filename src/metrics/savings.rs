//! What the cache saved at each host: requests that were not sent, and bytes that the host did not have to send again.
//!
//! Memory is bounded: if there are too many hosts, the half that saved the least is forgotten.

use std::collections::HashMap;

use fnv::FnvBuildHasher;
use parking_lot::Mutex;

use super::Metrics;
use crate::politeness::HostKey;

/// At most about 1 MB.
const MOST: usize = 10_000;

/// Requests and bytes that a host did not have to serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Requests that were answered without being sent.
    pub requests: u64,
    /// Bytes of bodies that were served from the cache, those of validated answers included.
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Savings(Mutex<HashMap<HostKey, Saved, FnvBuildHasher>>);

impl Metrics {
    /// Counts what the cache saved at a host.
    pub fn saved(&self, host: &HostKey, saved: Saved) {
        self.savings.count(host, saved);
        self.hosts.saved(host, saved);
    }

    /// Returns what the cache saved at a host since the start.
    pub fn saved_at(&self, host: &HostKey) -> Saved {
        self.savings.0.lock().get(host).copied().unwrap_or_default()
    }
}

impl Savings {
    fn count(&self, host: &HostKey, saved: Saved) {
        let mut hosts = self.0.lock();
        if let Some(sum) = hosts.get_mut(host) {
            sum.requests += saved.requests;
            sum.bytes += saved.bytes;
            return;
        }
        if hosts.len() >= MOST {
            let mut sums: Vec<u64> = hosts.values().map(|saved| saved.requests).collect();
            let (_, middle, _) = sums.select_nth_unstable(MOST / 2);
            let middle = *middle;
            hosts.retain(|_, saved| saved.requests > middle);
        }
        hosts.insert(host.clone(), saved);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_that_saved_most_are_remembered() {
        let savings = Savings::default();
        let host = |number: usize| HostKey::parse(&format!("h{number}.test")).unwrap();
        for number in 0..3 * MOST {
            savings.count(&host(number), Saved { requests: 1, bytes: 10 });
            savings.count(&host(7), Saved { requests: 1, bytes: 10 });
        }
        let hosts = savings.0.lock();
        assert!(hosts.len() <= MOST);
        assert_eq!(hosts[&host(7)], Saved { requests: 3 * MOST as u64 + 1, bytes: 30 * MOST as u64 + 10 });
    }
}
