//! Bars: times before which no visit to a host may start, whatever the spacing, each with its cause.
//!
//! Promises: of overlapping holds the longest counts, and carries its own cause; a hold only ever grows; a pause,
//! which an operator sets, ends no hold. This module must not know what is saved up during a hold.

use super::pace::Cause;
use super::time::Timestamp;

/// Why a host is held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Held {
    /// Because of an answer.
    Pace(Cause),
    /// For another reason: its robots.txt was answered with 429, or the hold was remembered.
    #[default]
    Other,
}

/// What lets no visit of one host start. A time that has passed bars nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bars {
    /// The end of the longest hold.
    pub held_until: Timestamp,
    /// The cause of that hold.
    pub held_by: Held,
    /// The end of the longest hold that the host asked for. It outlives the lane.
    pub asked_until: Timestamp,
    /// Until when a failed connection attempt, or another host of the lane, has taken the turns.
    pub taken_until: Timestamp,
    /// Until when the ledger that other nodes share gives no turn.
    pub told_until: Timestamp,
    /// Until when an operator closed the host.
    pub closed_until: Timestamp,
}

impl Held {
    pub fn word(self) -> &'static str {
        match self {
            Held::Pace(Cause::RetryAfter) => "retry-after",
            Held::Pace(Cause::Quota) => "quota",
            Held::Pace(Cause::Backoff) => "backoff",
            Held::Other => "other",
        }
    }

    /// Whether the host asked for such a hold. curtsy decides on the others itself.
    fn is_asked_for(self) -> bool {
        matches!(self, Held::Pace(Cause::RetryAfter) | Held::Other)
    }
}

impl Bars {
    /// The bars of a host that is remembered as held.
    pub fn remembering(held_until: Timestamp) -> Self {
        Bars { held_until, asked_until: held_until, ..Bars::default() }
    }

    /// Adds a hold. Returns whether it is news that must outlive the lane.
    pub fn hold(&mut self, until: Timestamp, cause: Held, now: Timestamp) -> bool {
        if until <= now {
            return false;
        }
        if until > self.held_until {
            (self.held_until, self.held_by) = (until, cause);
        }
        let is_news = cause.is_asked_for() && until > self.asked_until;
        if is_news {
            self.asked_until = until;
        }
        is_news
    }

    /// Returns until when the host is held or closed.
    pub fn held_or_closed_until(&self) -> Timestamp {
        self.held_until.max(self.closed_until)
    }

    /// Returns until when no visit may start.
    pub fn until(&self) -> Timestamp {
        self.held_or_closed_until().max(self.taken_until).max(self.told_until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn the_longest_hold_counts_and_carries_its_cause() {
        let mut bars = Bars::default();
        bars.hold(at(20), Held::Pace(Cause::Backoff), at(0));
        bars.hold(at(10), Held::Other, at(0));
        assert_eq!((bars.held_until, bars.held_by), (at(20), Held::Pace(Cause::Backoff)));
        bars.hold(at(30), Held::Pace(Cause::RetryAfter), at(0));
        bars.hold(at(25), Held::Pace(Cause::Quota), at(30));
        assert_eq!((bars.held_until, bars.held_by), (at(30), Held::Pace(Cause::RetryAfter)));
    }

    #[test]
    fn only_a_hold_that_the_host_asked_for_is_worth_remembering() {
        let mut bars = Bars::default();
        assert!(!bars.hold(at(20), Held::Pace(Cause::Backoff), at(0)));
        assert!(!bars.hold(at(21), Held::Pace(Cause::Quota), at(0)));
        assert!(bars.hold(at(10), Held::Pace(Cause::RetryAfter), at(0)));
        assert!(!bars.hold(at(10), Held::Other, at(0)), "known already");
        assert_eq!((bars.held_until, bars.asked_until), (at(21), at(10)));
        assert!(bars.hold(at(22), Held::Other, at(0)));
        assert!(!bars.hold(at(40), Held::Other, at(40)), "over already");
        assert_eq!(Bars::remembering(at(9)).asked_until, at(9));
    }
}
