//! What is learned about a host and outlives its lane and the process.
//!
//! Holds, streaks and trials are not stored: they are short, and a host that still refuses will say so. The learned
//! delay fades, because hosts change: each quarter of the time to remember halves it.
//!
//! Promises: whatever a file says, the resulting pace is within bounds. If a delay is on trial, the delay that worked
//! before is remembered.

use std::time::Duration;

use super::auto::Auto;
use super::steps::{Floor, LONGEST_FLOOR_LIFE, Steps, millis, span};
use super::{Learner, Learning, Pace, PaceState};
use crate::politeness::time::Timestamp;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PaceMemory {
    pub learned: Duration,
    pub floor: Duration,
    /// The floor's lifetime when it was last confirmed.
    pub floor_life: Duration,
    pub floor_until: Timestamp,
    pub updated: Timestamp,
}

impl Pace {
    /// What is worth remembering, if anything.
    pub fn memory(&self, now: Timestamp) -> Option<PaceMemory> {
        let steps = match &self.state {
            PaceState::Steps(steps) => steps,
            PaceState::Auto(auto) => return auto.memory(now),
        };
        let (learned, floor) = (steps.safe(), steps.floor());
        (learned > Duration::ZERO).then(|| PaceMemory {
            learned,
            floor: span(floor.delay),
            floor_life: Duration::from_secs(floor.life_s.into()),
            floor_until: floor.until,
            updated: now,
        })
    }

    /// Restores the pace of a known host.
    pub fn remembering(memory: &PaceMemory, learning: &Learning, now: Timestamp) -> Self {
        let age = now.since(memory.updated);
        if age >= learning.remember {
            return Pace::new();
        }
        let life_s = u32::try_from(memory.floor_life.as_secs()).unwrap_or(u32::MAX).min(LONGEST_FLOOR_LIFE);
        let until = memory.floor_until.min(now + Duration::from_secs(life_s.into()));
        let floor = Floor { delay: millis(memory.floor.min(learning.max_delay)), life_s, until };
        let faded = millis(faded(memory.learned.min(learning.max_delay), age, learning.remember / 4));
        let learned = if now < until { faded.max(floor.delay) } else { faded };
        let state = match learning.learner {
            Learner::Auto => PaceState::Auto(Box::new(Auto::remembering(span(learned), &floor, now))),
            Learner::Steps | Learner::Off => PaceState::Steps(Steps::remembering(learned, floor)),
        };
        Pace { state, ..Pace::new() }
    }
}

/// Halved for each half-life, linear in between; whole milliseconds, rounded up.
fn faded(learned: Duration, age: Duration, half_life: Duration) -> Duration {
    let (age, half_life) = (age.as_micros(), half_life.as_micros().max(1));
    let halvings = u32::try_from(age / half_life).unwrap_or(u32::MAX);
    let left = learned.as_micros().checked_shr(halvings).unwrap_or(0);
    let lost = left / 2 * (age % half_life) / half_life;
    Duration::from_millis(u64::try_from((left - lost).div_ceil(1_000)).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::pace::{PaceLoad, PaceReport};
    use crate::politeness::signals::{PaceSignal, Signals};

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const DAY: Duration = Duration::from_secs(86_400);

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn known() -> PaceMemory {
        PaceMemory {
            learned: secs(8),
            floor: secs(7),
            floor_life: secs(1_200),
            floor_until: NOW + secs(60),
            updated: NOW,
        }
    }

    #[test]
    fn what_is_remembered_is_what_was_learned() {
        let pace = Pace::remembering(&known(), &Learning::steps(), NOW + secs(10));
        assert_eq!((pace.learned(), pace.floor(NOW + secs(10))), (secs(8), Some(secs(7))));
        assert_eq!((pace.error_streak(), pace.success_streak(), pace.held_until()), (0, 0, Timestamp::START));
        let again = pace.memory(NOW + secs(10)).unwrap();
        assert_eq!(again, PaceMemory { updated: NOW + secs(10), ..known() });
    }

    #[test]
    fn nothing_learned_is_nothing_to_remember() {
        assert_eq!(Pace::new().memory(NOW), None);
    }

    #[test]
    fn it_fades_and_is_forgotten() {
        let learning = Learning::steps();
        let after = |days: u32| Pace::remembering(&known(), &learning, NOW + DAY * days).learned();
        assert_eq!((after(0), after(15), after(30)), (secs(8), secs(2), Duration::ZERO));
        let mut last = secs(8);
        for days in 1..=30 {
            assert!(after(days) < last, "day {days}");
            last = after(days);
        }
        assert_eq!(faded(secs(8), secs(5), secs(10)), secs(6));
        assert_eq!(faded(secs(8), secs(15), secs(10)), secs(3));
    }

    #[test]
    fn a_floor_that_counts_is_kept_whole() {
        let long = PaceMemory { learned: secs(7), floor_life: DAY * 9, floor_until: NOW + DAY * 9, ..known() };
        let pace = Pace::remembering(&long, &Learning::steps(), NOW + DAY * 2);
        assert_eq!(pace.learned(), secs(7));
        assert_eq!(pace.floor(NOW + DAY * 3 - secs(1)), Some(secs(7)));
        assert_eq!(pace.floor(NOW + DAY * 3), None, "a day at most");
    }

    #[test]
    fn no_file_can_ask_for_the_impossible() {
        let wild = PaceMemory {
            learned: Duration::MAX,
            floor: Duration::MAX,
            floor_life: Duration::MAX,
            floor_until: Timestamp::NEVER,
            updated: Timestamp::NEVER,
        };
        let learning = Learning::steps();
        let pace = Pace::remembering(&wild, &learning, NOW);
        assert_eq!((pace.learned(), pace.floor(NOW + DAY)), (secs(60), None));
        let forgetful = Learning { remember: Duration::ZERO, ..learning };
        assert_eq!(Pace::remembering(&wild, &forgetful, NOW).learned(), Duration::ZERO);
        let short = Learning { remember: Duration::from_nanos(3), ..learning };
        assert_eq!(Pace::remembering(&known(), &short, NOW).learned(), secs(8));
    }

    /// Otherwise a restart would forget it, and begin as fast again.
    #[test]
    fn a_first_refusal_is_remembered_before_the_host_serves_again() {
        let learning = Learning { learner: Learner::Auto, ..Learning::default() };
        let (mut pace, load) = (Pace::new(), PaceLoad { in_flight: 0, places: 4 });
        pace.follow(&learning, NOW);
        let epoch = pace.sent(load, secs(1), &learning, NOW);
        assert_eq!(pace.memory(NOW), None);
        let signals = Signals { answer: PaceSignal::Throttled, ..Signals::SERVED };
        pace.heard(PaceReport { epoch, signals, load, took: secs(1) }, secs(1), &learning, NOW);
        let memory = pace.memory(NOW).expect("it was refused");
        assert!((secs(1)..secs(2)).contains(&memory.learned), "{memory:?}");
    }
}
