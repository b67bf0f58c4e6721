//! Requests that last longer than their turns imply, and must be counted among those in flight.
//!
//! A start takes a place for as many delays as there are places, without a call: starts are a delay apart, so there
//! cannot be more of them. Only a request that lasts longer is told to Redis, and again every 20 s, because Redis
//! forgets it after 30 s.

use std::collections::{BTreeSet, HashMap};

/// How often a place is renewed, in microseconds. Redis keeps it for 30 s.
pub(super) const RENEW: u64 = 20_000_000;

/// The requests of this node that are in flight, by host and by the end of their window.
#[derive(Debug, Default)]
pub(super) struct Stays {
    known: HashMap<(String, u64), InFlight>,
    /// When a request must be told to Redis.
    dues: BTreeSet<(u64, String, u64)>,
}

#[derive(Debug)]
struct InFlight {
    due: u64,
    /// Whether Redis counts it.
    is_counted: bool,
}

impl Stays {
    /// Notes a request that was sent. `due` is when Redis must count it, or must be told again if it does already.
    pub(super) fn watch(&mut self, host: String, end: u64, due: u64, is_counted: bool) {
        self.dues.insert((due, host.clone(), end));
        self.known.insert((host, end), InFlight { due, is_counted });
    }

    /// Removes a request that has ended. Returns whether Redis counts it.
    pub(super) fn leave(&mut self, host: String, end: u64) -> bool {
        let key = (host, end);
        let Some(InFlight { due, is_counted }) = self.known.remove(&key) else { return false };
        self.dues.remove(&(due, key.0, end));
        is_counted
    }

    /// Returns the requests that Redis must be told of now.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<(String, u64)> {
        let later = self.dues.split_off(&(now + 1, String::new(), 0));
        let due = std::mem::replace(&mut self.dues, later);
        for (_, host, end) in &due {
            self.watch(host.clone(), *end, now + RENEW, true);
        }
        due.into_iter().map(|(_, host, end)| (host, end)).collect()
    }

    /// Returns when Redis must be told of a request next.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.dues.first().map(|(due, ..)| *due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_lasts_is_told_and_settled() {
        let mut stays = Stays::default();
        let host = || "a.test".to_owned();
        stays.watch(host(), 1, 100, false);
        stays.watch(host(), 2, 50, false);
        assert_eq!((stays.next_due(), stays.take_due(49)), (Some(50), Vec::new()));
        assert_eq!(stays.take_due(50), [(host(), 2)]);
        assert!(!stays.leave(host(), 1), "it ended in time");
        assert_eq!(stays.next_due(), Some(50 + RENEW));
        assert_eq!(stays.take_due(50 + RENEW), [(host(), 2)]);
        assert!(stays.leave(host(), 2));
        assert_eq!(stays.next_due(), None);
        assert!(!stays.leave(host(), 2), "once");
    }
}
