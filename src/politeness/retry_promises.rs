//! Which visits were told to come back, and when.
//!
//! A refusal that time heals names a number of seconds. The number must be true, so a client that comes back then is
//! admitted ahead of newcomers. And a crowd must not be told the same second, so every answer is at least a second, and
//! at least one delay, from every other. No turn is reserved: a client that does not come back costs nothing.
//!
//! Bounded: beyond [`MOST`] the answers still differ, but are not remembered. This module must not know the queue.

use std::time::Duration;

use super::time::{Timestamp, whole_micros};
use super::visit::ClientId;

#[derive(Debug, Default)]
pub(super) struct RetryPromises {
    /// Sorted by the time they are due.
    told: Vec<RetryPromise>,
    /// How many visits were told a time since there was no more room to remember it.
    beyond: u32,
}

#[derive(Clone, Copy, Debug)]
struct RetryPromise {
    due: Timestamp,
    client: ClientId,
    url: u64,
}

/// As many as a full queue holds by default: 24 KB for a host that refuses that many.
const MOST: usize = 1000;
/// How late a client may come back. Retry loops of common clients round up and add some jitter.
const GRACE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

impl RetryPromises {
    /// Returns whether no visit is remembered.
    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Returns whether this visit comes back when it was told to, and forgets it: a time counts once.
    pub(super) fn take(&mut self, client: ClientId, url: u64, now: Timestamp) -> bool {
        if self.is_empty() {
            return false;
        }
        self.forget_the_late(now);
        let due = self.told.partition_point(|told| told.due <= now);
        match self.told[..due].iter().position(|told| told.client == client && told.url == url) {
            Some(index) => {
                self.told.remove(index);
                true
            }
            None => false,
        }
    }

    /// Returns whether this visit comes back when it was told to, without forgetting it.
    pub(super) fn is_due(&self, client: ClientId, url: u64, now: Timestamp) -> bool {
        let is_it = |told: &RetryPromise| told.client == client && told.url == url;
        self.told.iter().take_while(|told| told.due <= now).any(|told| is_it(told) && told.due + GRACE > now)
    }

    /// Returns after how many seconds a visit that could start at `start` should come back. A client that asks again
    /// too early is told the same time again.
    pub(super) fn tell(
        &mut self,
        client: ClientId,
        url: u64,
        start: Timestamp,
        delay: Duration,
        now: Timestamp,
    ) -> Duration {
        self.forget_the_late(now);
        if let Some(index) = self.told.iter().position(|told| told.client == client && told.url == url) {
            let due = self.told[index].due;
            if due >= start && due > now {
                return whole_seconds(due.since(now));
            }
            self.told.remove(index);
        }
        let gap = delay.max(SECOND);
        if self.told.len() >= MOST {
            return self.tell_beyond(start, gap, now);
        }
        self.beyond = 0;
        let due = self.free_second(start, gap, now);
        let index = self.told.partition_point(|told| told.due <= due);
        self.told.insert(index, RetryPromise { due, client, url });
        due.since(now)
    }

    /// Returns how many visits are due after `now` and not after `until`.
    pub(super) fn expected(&self, now: Timestamp, until: Timestamp) -> usize {
        let due_by = |time: Timestamp| self.told.partition_point(|told| told.due <= time);
        due_by(until).saturating_sub(due_by(now))
    }

    /// Returns until when a client may still come back.
    pub(super) fn owes_until(&self) -> Timestamp {
        self.told.last().map_or(Timestamp::START, |told| told.due + GRACE)
    }

    /// Returns the first time that is a whole number of seconds from `now`, not before `start`, and a gap from every
    /// other.
    fn free_second(&self, start: Timestamp, gap: Duration, now: Timestamp) -> Timestamp {
        let mut due = now + whole_seconds(start.since(now));
        let first = self.told.partition_point(|told| told.due + gap <= due);
        for told in &self.told[first..] {
            if told.due >= due + gap {
                break;
            }
            due = now + whole_seconds((told.due + gap).since(now));
        }
        due
    }

    fn tell_beyond(&mut self, start: Timestamp, gap: Duration, now: Timestamp) -> Duration {
        self.beyond = self.beyond.saturating_add(1);
        let last = self.told.last().map_or(start, |told| told.due.max(start));
        whole_seconds((last + gap.saturating_mul(self.beyond)).since(now))
    }

    fn forget_the_late(&mut self, now: Timestamp) {
        let late = self.told.partition_point(|told| told.due + GRACE <= now);
        self.told.drain(..late);
        if self.told.is_empty() {
            self.told.shrink_to_fit();
        }
    }
}

/// Rounds up to whole seconds, at least one: `Retry-After: 0` is no answer.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(whole_micros(duration).div_ceil(1_000_000).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn tell(returns: &mut RetryPromises, client: u64, start: u64, delay: u64, now: u64) -> u64 {
        returns.tell(ClientId(client), 7, at(start), Duration::from_millis(delay), at(now)).as_secs()
    }

    #[test]
    fn seconds_are_rounded_up_and_never_zero() {
        assert_eq!(tell(&mut RetryPromises::default(), 1, 1_001, 1_000, 0), 2);
        assert_eq!(tell(&mut RetryPromises::default(), 1, 2_000, 1_000, 0), 2);
        assert_eq!(tell(&mut RetryPromises::default(), 1, 0, 1_000, 0), 1);
    }

    #[test]
    fn no_two_clients_are_told_the_same_second() {
        let mut returns = RetryPromises::default();
        let told: Vec<u64> = (0..20).map(|client| tell(&mut returns, client, 3_000, 100, client)).collect();
        assert_eq!(told, (3..23).collect::<Vec<u64>>());
        let mut slow = RetryPromises::default();
        let told: Vec<u64> = (0..3).map(|client| tell(&mut slow, client, 3_000, 5_000, 0)).collect();
        assert_eq!(told, [3, 8, 13]);
    }

    #[test]
    fn a_gap_that_opens_is_used() {
        let mut returns = RetryPromises::default();
        for client in 0..3 {
            tell(&mut returns, client, 10_000, 1_000, 0);
        }
        assert!(returns.take(ClientId(1), 7, at(11_500)));
        assert_eq!(tell(&mut returns, 9, 2_000, 1_000, 0), 2, "before the others");
        assert_eq!(tell(&mut returns, 8, 10_000, 1_000, 0), 11, "in the second of the one that came back");
    }

    #[test]
    fn a_client_that_comes_when_told_is_known_once() {
        let mut returns = RetryPromises::default();
        assert_eq!(tell(&mut returns, 1, 4_000, 1_000, 0), 4);
        assert!(!returns.take(ClientId(1), 7, at(3_999)), "too early");
        assert!(!returns.take(ClientId(2), 7, at(4_000)), "another client");
        assert!(!returns.take(ClientId(1), 8, at(4_000)), "another page");
        assert!(returns.take(ClientId(1), 7, at(4_000)));
        assert!(!returns.take(ClientId(1), 7, at(4_000)));
    }

    #[test]
    fn a_client_that_asks_too_early_keeps_its_time() {
        let mut returns = RetryPromises::default();
        assert_eq!(tell(&mut returns, 1, 10_000, 1_000, 0), 10);
        assert_eq!(tell(&mut returns, 1, 5_000, 1_000, 400), 10);
        assert_eq!(tell(&mut returns, 1, 60_000, 1_000, 1_000), 59, "unless it is no longer true");
        assert_eq!(returns.told.len(), 1);
    }

    #[test]
    fn it_is_forgotten_after_a_while() {
        let mut returns = RetryPromises::default();
        tell(&mut returns, 1, 4_000, 1_000, 0);
        assert_eq!(returns.owes_until(), at(64_000));
        assert!(!returns.take(ClientId(1), 7, at(64_000)));
        assert_eq!(returns.told.capacity(), 0);
    }

    #[test]
    fn only_those_due_in_between_are_expected() {
        let mut returns = RetryPromises::default();
        for client in 0..5 {
            tell(&mut returns, client, 1_000, 1_000, 0);
        }
        assert_eq!(returns.expected(at(0), at(3_000)), 3);
        assert_eq!(returns.expected(at(3_000), at(9_000)), 2);
        assert_eq!(returns.expected(at(3_000), at(3_000)), 0);
    }

    #[test]
    fn a_crowd_is_not_remembered_without_end_but_still_spread() {
        let mut returns = RetryPromises::default();
        let told: Vec<u64> = (0..1_500).map(|client| tell(&mut returns, client, 1_000, 10, 0)).collect();
        assert_eq!(told, (1..=1_500).collect::<Vec<u64>>());
        assert_eq!(returns.told.len(), MOST);
    }
}
