//! Places: how many visits may be in flight at a host, and when one will be free.
//!
//! The number in flight is always given, never counted here. The time is an estimate from how long visits kept their
//! places lately; before the first has ended nothing is known and nothing is predicted.

use std::time::Duration;

use super::time::Timestamp;

#[derive(Debug)]
pub(super) struct Places {
    limit: usize,
    /// Moving average of how long a place is kept, in microseconds: dividing a [`Duration`] takes ten times as long.
    kept_us: u64,
}

/// A new observation counts for an eighth, as in TCP's smoothed round-trip time (RFC 6298, section 2).
const WEIGHT: u64 = 8;

impl Places {
    pub(super) fn new(concurrency: u32) -> Self {
        Places { limit: concurrency.max(1) as usize, kept_us: 0 }
    }

    pub(super) fn change(&mut self, concurrency: u32) {
        self.limit = concurrency.max(1) as usize;
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// How long a place is usually kept; zero if nobody has left one yet.
    pub(super) fn kept(&self) -> Duration {
        Duration::from_micros(self.kept_us)
    }

    /// Somebody kept a place from then on until now.
    pub(super) fn observe(&mut self, since: Timestamp, now: Timestamp) {
        let kept_us = now.as_micros().saturating_sub(since.as_micros());
        self.kept_us = match self.kept_us {
            0 => kept_us,
            before => before - before / WEIGHT + kept_us / WEIGHT,
        };
    }

    /// When the visit behind `ahead` others finds a place.
    pub(super) fn predict(&self, in_flight: usize, ahead: usize, now: Timestamp) -> Timestamp {
        let must_end = (in_flight.saturating_add(ahead) + 1).saturating_sub(self.limit);
        if must_end == 0 {
            return now;
        }
        let rounds = u32::try_from(must_end.div_ceil(self.limit)).unwrap_or(u32::MAX);
        now + self.kept().saturating_mul(rounds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_free_place_is_free_now() {
        let mut places = Places::new(2);
        places.observe(at(1_000), at(4_000));
        assert_eq!(places.predict(0, 1, at(5)), at(5));
        assert_eq!(places.predict(1, 0, at(5)), at(5));
    }

    #[test]
    fn a_full_host_frees_its_places_round_by_round() {
        let mut places = Places::new(2);
        assert_eq!(places.predict(2, 10, at(5)), at(5), "nothing is known yet");
        places.observe(at(1_000), at(4_000));
        assert_eq!(places.predict(2, 0, at(0)), at(3_000));
        assert_eq!(places.predict(2, 1, at(0)), at(3_000));
        assert_eq!(places.predict(2, 2, at(0)), at(6_000));
    }

    #[test]
    fn the_average_follows_slowly() {
        let mut places = Places::new(1);
        places.observe(at(0), at(8_000));
        places.observe(at(0), at(16_000));
        assert_eq!(places.predict(1, 0, at(0)), at(9_000));
    }

    #[test]
    fn no_concurrency_is_read_as_one() {
        assert_eq!(Places::new(0).limit(), 1);
    }
}
