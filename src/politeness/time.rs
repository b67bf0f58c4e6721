//! Time in the core: a plain number that is passed in, never read from a clock.
//!
//! Promises: no operation panics or wraps. A result outside the range is set to the end of the range, so that a
//! nonsensical delay can only make curtsy later. Durations are rounded up, so that a gap is never cut short by a
//! fraction. Must not read a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// Microseconds since the Unix epoch.
///
/// A plain number rather than an `Instant`, because these values outlive the process (state file), leave it (Redis) and
/// are written as literals in tests. Microseconds, because gaps are judged to the millisecond, so milliseconds would
/// spend the whole tolerance on rounding. Also, Redis' `TIME` returns microseconds and its scripts count in doubles,
/// which hold microseconds exactly until the year 2255 (nanoseconds are beyond that already).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Before everything.
    pub const START: Timestamp = Timestamp(0);
    /// After everything: the time is unknown.
    pub const NEVER: Timestamp = Timestamp(u64::MAX);

    pub const fn from_micros(micros: u64) -> Self {
        Timestamp(micros)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Timestamp(millis.saturating_mul(1_000))
    }

    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to here; zero if `earlier` is later.
    pub const fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;

    fn add(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(whole_micros(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;

    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(whole_micros(duration)))
    }
}

/// The duration in microseconds, rounded up.
pub(super) fn whole_micros(duration: Duration) -> u64 {
    let fraction = u64::from(duration.subsec_nanos().div_ceil(1_000));
    duration.as_secs().saturating_mul(1_000_000).saturating_add(fraction)
}

/// The duration in milliseconds, rounded up, and at most 49 days.
pub(super) fn whole_millis(duration: Duration) -> u32 {
    u32::try_from(whole_micros(duration).div_ceil(1_000)).unwrap_or(u32::MAX)
}

/// Whole milliseconds, as logs and the API show them.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_rounded_up_so_that_no_gap_is_cut_short() {
        assert_eq!(Timestamp::from_micros(5) + Duration::from_nanos(1), Timestamp::from_micros(6));
        assert_eq!(Timestamp::from_micros(5) + Duration::from_nanos(1_000), Timestamp::from_micros(6));
        assert_eq!(Timestamp::from_millis(2), Timestamp::from_micros(2_000));
        let last_nanosecond = Duration::new(0, 999_999_999);
        assert_eq!(Timestamp::START + last_nanosecond, Timestamp::from_millis(1_000));
    }

    #[test]
    fn nothing_wraps() {
        assert_eq!(Timestamp::from_micros(5) + Duration::MAX, Timestamp::NEVER);
        assert_eq!(Timestamp::NEVER + Duration::from_secs(1), Timestamp::NEVER);
        assert_eq!(Timestamp::from_micros(5) - Duration::from_secs(1), Timestamp::START);
        assert_eq!(Timestamp::from_micros(5).since(Timestamp::from_micros(9)), Duration::ZERO);
        assert_eq!(Timestamp::from_micros(9).since(Timestamp::from_micros(5)), Duration::from_micros(4));
    }
}
