//! Requests that last longer than their turns imply, and must be counted among those in flight.
//!
//! A start takes a place for as many delays as there are places, without a call: starts are a delay apart, so there
//! cannot be more of them. Only a request that lasts longer is told to Redis, and again every 20 s, because Redis
//! forgets it after 30 s. Most requests end before that, so noting one wakes no other thread.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;

use super::errand::Errand;
use super::{FleetLedger, Granted, words};
use crate::politeness::fleet::calls::Settlement;

/// How often a place is renewed, in microseconds. Redis keeps it for 30 s.
const RENEW: u64 = 20_000_000;
/// A request is counted this long before its implied place ends, or a quarter of that time before: as far ahead as a
/// start may be granted, two round trips, and what a busy machine is late.
const PLACE_LEAD: u64 = 40_000;

/// The requests of this node that are in flight.
#[derive(Debug, Default)]
pub(super) struct Stays {
    known: HashMap<u64, InFlight>,
    /// When a request must be told to Redis.
    dues: BTreeSet<(u64, u64)>,
    numbers: u64,
    /// When the keeper looks next without being woken.
    looks_at: u64,
}

#[derive(Debug)]
struct InFlight {
    host: String,
    /// The end of its window, which names it in Redis.
    end: u64,
    due: u64,
    /// Whether Redis counts it.
    is_counted: bool,
}

impl Stays {
    /// Notes a request that was sent. `due` is when Redis must count it, or must be told again if it does already.
    /// Returns the request's number, and whether the keeper must be woken to be in time.
    pub(super) fn watch(&mut self, host: &str, end: u64, due: u64, is_counted: bool) -> (u64, bool) {
        self.numbers += 1;
        self.dues.insert((due, self.numbers));
        self.known.insert(self.numbers, InFlight { host: host.to_owned(), end, due, is_counted });
        let is_soon = due < self.looks_at;
        self.looks_at = self.looks_at.min(due);
        (self.numbers, is_soon)
    }

    /// Removes a request that has ended. Returns whether Redis counts it.
    pub(super) fn leave(&mut self, number: u64) -> bool {
        let Some(InFlight { due, is_counted, .. }) = self.known.remove(&number) else { return false };
        self.dues.remove(&(due, number));
        is_counted
    }

    /// Returns the requests that Redis must be told of now, by host and end of the window.
    pub(super) fn take_due(&mut self, now: u64) -> Vec<(String, u64)> {
        let later = self.dues.split_off(&(now + 1, 0));
        let due = std::mem::replace(&mut self.dues, later);
        let mut told = Vec::new();
        for (_, number) in due {
            let Some(stay) = self.known.get_mut(&number) else { continue };
            (stay.due, stay.is_counted) = (now + RENEW, true);
            self.dues.insert((stay.due, number));
            told.push((stay.host.clone(), stay.end));
        }
        told
    }

    /// Returns when the keeper must look again: when a request is due, or at `latest`.
    pub(super) fn look_again(&mut self, latest: u64) -> u64 {
        self.looks_at = self.dues.first().map_or(latest, |(due, _)| latest.min(*due));
        self.looks_at
    }
}

impl FleetLedger {
    /// Reports a start that was sent at this local time. Returns the number to call [`FleetLedger::ended`] with, if the
    /// request must be counted when it lasts.
    pub fn started(&self, host: &str, at: u64, granted: &Granted) -> Option<u64> {
        let is_late = granted.turn.is_some() && at > granted.window.until;
        if is_late || granted.turn.is_none() {
            let shard = self.shard_of(&words::host_key(&self.name, host));
            let theirs = shard.node.lock().theirs(at, at);
            if is_late {
                self.note_late(host, at - granted.window.until, theirs, granted.keep_ms);
            } else {
                shard.started_alone(host, theirs, granted.keep_ms);
            }
        }
        self.watch_place(host, at, granted)
    }

    fn note_late(&self, host: &str, by: u64, sent: u64, keep_ms: u64) {
        self.counts.late.fetch_add(1, Relaxed);
        let late_ms = by as f64 / 1e3;
        tracing::warn!(event = "fleet.late", host, late_ms, "a request was sent after its window");
        self.settle(host, Settlement { sent, keep_ms, ..Settlement::default() });
    }

    /// Sees to it that the request is counted if it lasts.
    fn watch_place(&self, host: &str, at: u64, granted: &Granted) -> Option<u64> {
        let turn = granted.turn.filter(|_| granted.place_for > 0)?;
        let due = if granted.counted {
            at + RENEW
        } else {
            at + granted.place_for.saturating_sub(PLACE_LEAD.max(granted.place_for / 4))
        };
        let (number, is_soon) = self.stays.lock().watch(host, turn.end, due, granted.counted);
        if is_soon {
            self.send(Errand::Look);
        }
        Some(number)
    }

    /// Reports that a request has ended that [`FleetLedger::started`] gave this number.
    pub fn ended(&self, host: &str, granted: &Granted, number: u64) {
        let is_counted = self.stays.lock().leave(number);
        if let Some(turn) = granted.turn.filter(|_| is_counted) {
            self.settle(host, Settlement { place: turn.end, ..Settlement::default() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_lasts_is_told_and_settled() {
        let mut stays = Stays::default();
        let (short, _) = stays.watch("a.test", 1, 100, false);
        let (long, _) = stays.watch("a.test", 2, 50, false);
        assert_eq!((stays.look_again(500), stays.take_due(49)), (50, Vec::new()));
        assert_eq!(stays.take_due(50), [("a.test".to_owned(), 2)]);
        assert!(!stays.leave(short), "it ended in time");
        assert_eq!(stays.look_again(u64::MAX), 50 + RENEW);
        assert_eq!(stays.take_due(50 + RENEW), [("a.test".to_owned(), 2)]);
        assert!(stays.leave(long));
        assert_eq!(stays.look_again(500), 500);
        assert!(!stays.leave(long), "once");
    }

    #[test]
    fn the_keeper_is_woken_only_to_look_sooner() {
        let mut stays = Stays::default();
        assert_eq!(stays.look_again(1_000), 1_000);
        let (first, is_soon) = stays.watch("a.test", 1, 700, false);
        assert!(is_soon);
        assert!(!stays.watch("b.test", 1, 800, false).1, "it looks at 700");
        stays.leave(first);
        assert!(!stays.watch("c.test", 1, 750, false).1, "and was not told otherwise");
        assert!(stays.watch("d.test", 1, 600, false).1);
    }
}
