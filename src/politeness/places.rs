//! Places: how many visits may be in flight at a host, and when a place will be free.
//!
//! The caller passes the visits in flight; they are never counted here. The time is an estimate from how long visits
//! kept their places lately, and from how long those in flight have kept theirs, so that it grows while none of them
//! ends.

use std::time::Duration;

use smallvec::SmallVec;

use super::time::Timestamp;

#[derive(Debug)]
pub(super) struct Places {
    limit: u32,
    /// How many nodes of a fleet share the places. 1 if this one may use all of them.
    nodes: u32,
    /// Moving average of how long a place is kept, in microseconds: dividing a [`Duration`] takes ten times as long.
    kept_us: u64,
}

/// A new observation counts for an eighth, as in TCP's smoothed round-trip time (RFC 6298, section 2).
const WEIGHT: u64 = 8;

impl Places {
    pub(super) fn new(concurrency: u32) -> Self {
        Places { limit: concurrency.max(1), nodes: 1, kept_us: 0 }
    }

    pub(super) fn change(&mut self, concurrency: u32) {
        self.limit = concurrency.max(1);
    }

    pub(super) fn share(&mut self, nodes: u32) {
        self.nodes = nodes.max(1);
    }

    pub(super) fn limit(&self) -> usize {
        self.part(self.limit as usize)
    }

    /// Returns this node's part of so many places.
    pub(super) fn part(&self, limit: usize) -> usize {
        if self.nodes == 1 { limit } else { (limit / self.nodes as usize).max(1) }
    }

    /// Returns how long a place is usually kept; zero if no visit has left one yet.
    pub(super) fn kept(&self) -> Duration {
        Duration::from_micros(self.kept_us)
    }

    /// Notes that a visit kept a place from `since` until now.
    pub(super) fn observe(&mut self, since: Timestamp, now: Timestamp) {
        let kept_us = now.as_micros().saturating_sub(since.as_micros());
        self.kept_us = match self.kept_us {
            0 => kept_us,
            before => before - before / WEIGHT + kept_us / WEIGHT,
        };
    }

    /// Returns how much longer a visit that has kept its place for `age` is expected to keep it: what is missing from
    /// the average; beyond that, as much again as it is overdue.
    pub(super) fn remaining(&self, age: Duration) -> Duration {
        self.kept().abs_diff(age)
    }

    /// Returns when the visit behind `ahead` others finds a place, if the visits in flight end after these times and
    /// every other visit keeps its place for as long as usual.
    pub(super) fn predict(&self, mut ends: SmallVec<[Duration; 8]>, ahead: usize, now: Timestamp) -> Timestamp {
        let limit = self.limit();
        let free = limit.saturating_sub(ends.len());
        let beyond = ends.len().saturating_sub(limit);
        let (round, place) = (ahead / limit, ahead % limit);
        let first = if place < free { Duration::ZERO } else { *ends.select_nth_unstable(beyond + place - free).1 };
        let rounds = u32::try_from(round).unwrap_or(u32::MAX);
        now + first + self.kept().saturating_mul(rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn in_flight(ages: &[u64], places: &Places) -> SmallVec<[Duration; 8]> {
        ages.iter().map(|&age| places.remaining(Duration::from_millis(age))).collect()
    }

    #[test]
    fn a_free_place_is_free_now() {
        let mut places = Places::new(2);
        places.observe(at(1_000), at(4_000));
        assert_eq!(places.predict(in_flight(&[], &places), 1, at(5)), at(5));
        assert_eq!(places.predict(in_flight(&[100], &places), 0, at(5)), at(5));
    }

    #[test]
    fn a_full_host_frees_its_places_round_by_round() {
        let mut places = Places::new(2);
        assert_eq!(places.predict(in_flight(&[0, 0], &places), 10, at(5)), at(5), "nothing is known yet");
        places.observe(at(1_000), at(4_000));
        let behind = |ahead| places.predict(in_flight(&[0, 1_000], &places), ahead, at(0));
        assert_eq!([behind(0), behind(1), behind(2), behind(3)], [2_000, 3_000, 5_000, 6_000].map(at));
        let fewer = Places { limit: 1, ..places };
        assert_eq!(fewer.predict(in_flight(&[0, 1_000], &fewer), 0, at(0)), at(3_000), "both must end");
    }

    #[test]
    fn what_is_overdue_is_expected_to_take_as_long_again() {
        let mut places = Places::new(1);
        assert_eq!(places.predict(in_flight(&[7_000], &places), 0, at(0)), at(7_000));
        places.observe(at(0), at(2_000));
        assert_eq!(places.predict(in_flight(&[7_000], &places), 0, at(0)), at(5_000));
    }

    #[test]
    fn the_average_follows_slowly() {
        let mut places = Places::new(1);
        places.observe(at(0), at(8_000));
        places.observe(at(0), at(16_000));
        assert_eq!(places.kept(), Duration::from_secs(9));
    }

    #[test]
    fn nodes_that_share_the_places_have_a_part_each_and_at_least_one() {
        let mut places = Places::new(5);
        for (nodes, limit) in [(2, 2), (5, 1), (8, 1), (1, 5), (0, 5)] {
            places.share(nodes);
            assert_eq!(places.limit(), limit, "{nodes} nodes");
        }
    }

    #[test]
    fn no_concurrency_is_read_as_one() {
        assert_eq!(Places::new(0).limit(), 1);
    }
}
