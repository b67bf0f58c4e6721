//! The pace: what a host's answers teach about how fast it likes to be visited.
//!
//! A request carries the [`Epoch`] it left under and its answer is told with it, so that a burst of refusals counts once
//! and only answers to requests that left at the present delay speed anything up.
//!
//! What comes out is a delay ([`Pace::delay`], the learned part of a host's delay), a time before which nobody may start
//! ([`Pace::held_until`]) and a limit for visits in flight ([`Pace::concurrency`]). Three things speak in it:
//! - `steps` learns a delay from refusals and successes;
//! - `allowance` follows a quota that the host tells of, which beats guessing while it is fresh and believed;
//! - holds: Retry-After, a used up quota, and a window after each refusal that doubles while refusals go on. The longest
//!   counts.
//!
//! Promises: the delay is at most the larger of `max_delay` and `base`, except to wait for a quota to come back; a
//! refusal never shortens it, a success never lengthens what is learned; every hold ends within the longest wait an
//! origin may ask for or the longest window. The same answers at the same times lead to the same pace.
//! `base`, what is configured and what robots.txt asks for, is an argument: when it changes, nothing here needs to.

mod allowance;
mod memory;
mod steps;

use std::time::Duration;

use self::allowance::Allowance;
use self::steps::{Steps, span};
use super::signals::{Answer, Signals};
use super::time::Timestamp;

pub use self::memory::Memory;

/// How to learn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    pub learner: Learner,
    /// Added to the delay by a refusal.
    pub step_up: Duration,
    /// Taken from it by a probe.
    pub step_down: Duration,
    /// So many in a row start a probe, and prove one.
    pub successes: u16,
    /// Learning ends here; a larger `base` still counts.
    pub max_delay: Duration,
    /// One visit in flight less for each of these above `base`; zero leaves concurrency alone.
    pub concurrency_step: Duration,
    /// Where the window after a refusal stops doubling.
    pub longest_window: Duration,
    /// How long a failed probe is not tried again; doubles each time the same one fails.
    pub floor_life: Duration,
    /// How much later than told a quota is taken to come back.
    pub reset_slack: Duration,
    /// What was learned fades over this time, and is forgotten at its end.
    pub remember: Duration,
    /// A hold that is remembered ends within this time, whatever the clock has done meanwhile.
    pub longest_hold: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learner {
    Steps,
    /// No delay is learned; what the host asks for in so many words still counts.
    Off,
}

impl Default for Learning {
    fn default() -> Self {
        Learning {
            learner: Learner::Steps,
            step_up: Duration::from_secs(1),
            step_down: Duration::from_secs(1),
            successes: 20,
            max_delay: Duration::from_secs(60),
            concurrency_step: Duration::from_secs(5),
            // Without doubling, a ban of 90 s that every request renews was never left; with it, after 163 s.
            longest_window: Duration::from_secs(900),
            // Simulated: without a floor twice the refusals; with one for ever no way back to a better pace.
            floor_life: Duration::from_secs(600),
            reset_slack: Duration::from_millis(100),
            remember: Duration::from_secs(30 * 86_400),
            longest_hold: Duration::from_secs(3_600),
        }
    }
}

/// The changes of pace a request had seen when it left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(u32);

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// What [`Pace::sent`] gave for it.
    pub epoch: Epoch,
    pub signals: Signals,
    /// Other requests that are on their way.
    pub in_flight: u32,
}

/// What an answer changed, for the log, the counters and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub what: What,
    /// What was learned before and is now.
    pub before: Duration,
    pub learned: Duration,
    pub floor: Option<Duration>,
    /// The host is held anew, or for longer.
    pub hold: Option<Hold>,
    pub error_streak: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A refusal: slower by a step, if that is possible.
    Slowed,
    /// Enough successes: a step faster, on trial.
    Probing,
    /// The trial failed: back to the delay that worked, which is the floor now.
    Restored,
    /// The trial passed, and there is nothing lower to try for now.
    Proven,
    /// Only the hold is new.
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    pub until: Timestamp,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    RetryAfter,
    /// A quota is used up.
    Quota,
    /// The window after a refusal.
    Backoff,
}

/// What is known about one host.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    steps: Steps,
    allowance: Allowance,
    held_until: Timestamp,
    held_by: Option<Cause>,
    last_success: Timestamp,
}

impl Pace {
    pub fn new() -> Self {
        Pace::default()
    }

    /// A request starts. Its answer is told with the epoch.
    pub fn sent(&mut self, now: Timestamp) -> Epoch {
        self.allowance.sent(now);
        Epoch(self.steps.epoch())
    }

    /// Learns from an answer, or from its absence.
    pub fn heard(&mut self, heard: Heard, base: Duration, learning: &Learning, now: Timestamp) -> Option<Change> {
        let signals = &heard.signals;
        let before = self.learned().min(learning.max_delay.max(base));
        self.allowance.heard(signals, heard.in_flight, learning.reset_slack, now);
        if signals.answer == Answer::Success {
            self.last_success = now;
        }
        let step = match learning.learner {
            Learner::Steps => self.steps.heard(heard.epoch.0, signals.answer, base, learning, now),
            Learner::Off => None,
        };
        let hold = self.hold(signals, step.and_then(|step| step.window), learning, now);
        if step.is_none() && hold.is_none() {
            return None;
        }
        Some(Change {
            what: step.map_or(What::Held, |step| step.what),
            before,
            learned: self.learned(),
            floor: self.floor(now),
            hold,
            error_streak: self.error_streak(),
        })
    }

    /// The delay to keep besides `base`; zero if nothing asks for more. Ask again after each `sent` and `heard`.
    pub fn delay(&self, base: Duration, learning: &Learning, now: Timestamp) -> Duration {
        let longest = learning.max_delay.max(base);
        let learned = match learning.learner {
            Learner::Steps => self.steps.learned().min(longest),
            Learner::Off => Duration::ZERO,
        };
        let Some(told) = self.allowance.interval(longest, now) else { return learned };
        let told = if told > base { told } else { Duration::ZERO };
        if self.allowance.doubted(now) { told.max(learned) } else { told }
    }

    /// How many visits may be in flight: one less for every `concurrency_step` above `base`, but one.
    pub fn concurrency(&self, configured: u32, base: Duration, learning: &Learning, now: Timestamp) -> u32 {
        let above = self.delay(base, learning, now).saturating_sub(base);
        let steps = above.as_micros().checked_div(learning.concurrency_step.as_micros()).unwrap_or(0);
        configured.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX)).max(1)
    }

    /// The delay that refusals have taught; zero if none.
    pub fn learned(&self) -> Duration {
        self.steps.learned()
    }

    /// The delay below which a probe failed not long ago.
    pub fn floor(&self, now: Timestamp) -> Option<Duration> {
        let floor = self.steps.floor();
        (floor.delay > 0 && now < floor.until).then(|| span(floor.delay))
    }

    /// The delay is on trial.
    pub fn probing(&self) -> bool {
        self.steps.probing()
    }

    /// The delay that the host's quota comes to, and whether it is believed.
    pub fn told(&self, base: Duration, learning: &Learning, now: Timestamp) -> Option<(Duration, bool)> {
        let interval = self.allowance.interval(learning.max_delay.max(base), now)?;
        Some((interval, !self.allowance.doubted(now)))
    }

    pub fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Why the host is held, or was last.
    pub fn held_by(&self) -> Option<Cause> {
        self.held_by
    }

    /// Refusals in a row, a burst of them counted once.
    pub fn error_streak(&self) -> u16 {
        self.steps.errors()
    }

    /// Successes in a row at the present delay.
    pub fn success_streak(&self) -> u16 {
        self.steps.successes()
    }

    pub fn last_success(&self) -> Option<Timestamp> {
        (self.last_success > Timestamp::START).then_some(self.last_success)
    }

    /// Forgets everything but the hold. Answers that are on their way change nothing any more.
    pub fn forget(&mut self) {
        let steps = Steps::at_epoch(self.steps.epoch().wrapping_add(1));
        *self = Pace { steps, held_until: self.held_until, held_by: self.held_by, ..Pace::new() };
    }

    /// Ends a hold early.
    pub fn lift(&mut self, now: Timestamp) {
        self.held_until = self.held_until.min(now);
    }

    fn hold(
        &mut self,
        signals: &Signals,
        window: Option<Duration>,
        learning: &Learning,
        now: Timestamp,
    ) -> Option<Hold> {
        let back = signals.used_up.map(|time| time.saturating_add(learning.reset_slack));
        let asked = [(signals.retry_after, Cause::RetryAfter), (back, Cause::Quota), (window, Cause::Backoff)];
        let mut hold = None;
        for (time, cause) in asked {
            let until = time.map_or(Timestamp::START, |time| now + time);
            if until > self.held_until {
                (self.held_until, self.held_by) = (until, Some(cause));
                hold = Some(Hold { until, cause });
            }
        }
        hold
    }
}

#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "the same dice as in the simulation of lanes, which keeps them to itself")]
#[path = "../sim/dice.rs"]
mod dice;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod servers;
#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
#[cfg(test)]
mod trials;
