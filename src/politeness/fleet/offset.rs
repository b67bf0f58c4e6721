//! How far the ledger's clock is from this node's: an interval in which the difference must lie.
//!
//! Each answer says the ledger's time. It was read between asking and hearing, so every answer narrows the interval;
//! time widens it, because clocks drift. An answer that fits no difference in the interval shows that a clock was set.

/// The most by which two clocks drift apart: the kernel slews a clock by 500 millionths at most.
const DRIFT_PER_MILLION: u64 = 500;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    /// The ledger's time minus the local time is at least `low` and at most `high`, as of the local time `known_at`.
    low: i64,
    high: i64,
    known_at: Option<u64>,
}

impl Offset {
    /// Learns from an answer: asked and heard at these local times, it says that the ledger's time was `theirs`.
    /// Returns false if a clock was set; then only this answer counts.
    pub fn heard(&mut self, asked: u64, heard: u64, theirs: u64) -> bool {
        let (low, high) = (theirs as i64 - heard as i64, theirs as i64 - asked as i64);
        let (known_low, known_high) = self.bounds(heard);
        let fits = self.known_at.is_none() || (low <= known_high && known_low <= high);
        (self.low, self.high) =
            if fits && self.known_at.is_some() { (low.max(known_low), high.min(known_high)) } else { (low, high) };
        self.known_at = Some(heard);
        fits
    }

    /// Forgets what is known, because another server answers now.
    pub fn forget(&mut self) {
        self.known_at = None;
    }

    pub fn is_known(&self) -> bool {
        self.known_at.is_some()
    }

    /// Returns the local time at which this time of the ledger has surely come.
    pub fn surely_come(&self, theirs: u64, now: u64) -> u64 {
        shift(theirs, -self.bounds(now).0)
    }

    /// Returns the last local time at which this time of the ledger has surely not passed.
    pub fn surely_not_passed(&self, theirs: u64, now: u64) -> u64 {
        shift(theirs, -self.bounds(now).1)
    }

    /// Returns the ledger's time as well as it is known.
    pub fn theirs(&self, local: u64, now: u64) -> u64 {
        let (low, high) = self.bounds(now);
        shift(local, low + (high - low) / 2)
    }

    /// Returns how uncertain the difference is.
    pub fn width(&self, now: u64) -> u64 {
        let (low, high) = self.bounds(now);
        (high - low).unsigned_abs()
    }

    fn bounds(&self, now: u64) -> (i64, i64) {
        let age = now.saturating_sub(self.known_at.unwrap_or(now));
        let drift = (age * DRIFT_PER_MILLION / 1_000_000) as i64;
        (self.low - drift, self.high + drift)
    }
}

fn shift(time: u64, by: i64) -> u64 {
    time.saturating_add_signed(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_narrow_the_interval_and_time_widens_it() {
        let mut offset = Offset::default();
        assert!(offset.heard(1_000, 2_000, 51_500));
        assert_eq!(offset.width(2_000), 1_000);
        assert!(offset.heard(3_000, 3_100, 53_060));
        assert_eq!(offset.width(3_100), 100);
        assert_eq!((offset.surely_come(60_000, 3_100), offset.surely_not_passed(60_000, 3_100)), (10_040, 9_940));
        assert_eq!(offset.width(3_100 + 1_000_000), 100 + 2 * 500);
    }

    #[test]
    fn a_clock_that_was_set_is_noticed_by_the_next_answer() {
        let mut offset = Offset::default();
        assert!(offset.heard(1_000, 2_000, 51_500));
        assert!(!offset.heard(3_000, 4_000, 61_000), "ten milliseconds ahead");
        assert_eq!(offset.theirs(4_000, 4_000), 61_500);
        assert!(!offset.heard(5_000, 6_000, 52_000), "and back");
    }
}
