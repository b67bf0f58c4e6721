//! The pace: learns from a host's answers how fast the host may be visited.
//!
//! A request carries the [`Epoch`] in which it was sent, and its answer is reported with that epoch. So a burst of
//! refusals counts once, and only answers to requests that were sent at the present delay speed anything up.
//!
//! The result is a delay ([`Pace::delay`], the learned part of a host's delay), a time before which no visit may start
//! ([`Pace::held_until`]) and a limit for visits in flight ([`Pace::concurrency`]). It comes from three sources:
//! - `steps` learns a delay from refusals and successes;
//! - `allowance` follows a quota that the host announces, which replaces the learned delay while it is fresh and
//!   believed;
//! - holds: Retry-After, a used-up quota, and a window after each refusal that doubles while refusals continue. The
//!   longest hold counts.
//!
//! Promises: the delay is at most the larger of `max_delay` and `base`, except to wait for a quota to reset; a refusal
//! never shortens it, a success never lengthens what is learned; every hold ends within the longest wait that an origin
//! may ask for or the longest window. The same answers at the same times lead to the same pace. `base`, the larger of
//! what is configured and what robots.txt asks for, is an argument: when it changes, nothing here needs to change.

mod allowance;
mod auto;
mod memory;
mod record;
mod steps;

use std::time::Duration;

use self::allowance::Allowance;
use self::auto::{Auto, Moment};
use self::steps::{Steps, span};
use super::signals::{PaceSignal, Signals};
use super::time::Timestamp;

pub use self::auto::FIRST_DELAY;
pub use self::memory::PaceMemory;
pub use self::record::{LimitRecord, PaceRecord, QuotaRecord};

/// The settings of learning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Learning {
    pub learner: Learner,
    /// Added to the delay by a refusal.
    pub step_up: Duration,
    /// Subtracted from the delay by a probe.
    pub step_down: Duration,
    /// Number of successes in a row that start a probe, and that prove one.
    pub successes: u16,
    /// Upper bound of the learned delay. A larger `base` still counts.
    pub max_delay: Duration,
    /// Concurrency falls by one visit for each of these above `base`. Zero leaves concurrency alone.
    pub concurrency_step: Duration,
    /// The window after a refusal doubles up to this.
    pub longest_window: Duration,
    /// How long a failed probe is not repeated. Doubles each time the same probe fails.
    pub floor_life: Duration,
    /// A quota is assumed to reset this much later than announced.
    pub reset_slack: Duration,
    /// What was learned fades over this time and is forgotten at its end.
    pub remember: Duration,
    /// A restored hold ends within this time, whatever the clock has done meanwhile.
    pub longest_hold: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learner {
    Steps,
    /// Measures the limit of the host and stays just below it.
    Auto,
    /// No delay is learned. Explicit requests of the host (Retry-After, quotas) still count.
    Off,
}

impl Default for Learning {
    fn default() -> Self {
        Learning {
            learner: Learner::Auto,
            step_up: Duration::from_secs(1),
            step_down: Duration::from_secs(1),
            successes: 20,
            max_delay: Duration::from_secs(60),
            concurrency_step: Duration::from_secs(5),
            // Without doubling, a ban of 90 s that every request renews never ended; with doubling, it ended after 163
            // s.
            longest_window: Duration::from_secs(900),
            // Simulated: without a floor there were twice the refusals; with a permanent floor, no return to a faster
            // pace.
            floor_life: Duration::from_secs(600),
            reset_slack: Duration::from_millis(100),
            remember: Duration::from_secs(30 * 86_400),
            longest_hold: Duration::from_secs(3_600),
        }
    }
}

#[cfg(test)]
impl Learning {
    pub(super) fn steps() -> Self {
        Learning { learner: Learner::Steps, ..Learning::default() }
    }
}

/// What a request keeps from when it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Counts changes of pace.
    number: u32,
    /// Requests in flight, with this one.
    in_flight: u8,
    /// The request was sent when the pace allowed it, not later because none was there.
    waited: bool,
    /// The request was sent before, and refused or not answered.
    retry: bool,
}

impl Epoch {
    pub fn of_retry(self, retry: bool) -> Epoch {
        Epoch { retry, ..self }
    }
}

/// How busy a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceLoad {
    /// Other requests in flight.
    pub in_flight: u32,
    /// How many may be in flight at most.
    pub places: u32,
}

/// The answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceReport {
    /// What [`Pace::sent`] returned for the request.
    pub epoch: Epoch,
    pub signals: Signals,
    pub load: PaceLoad,
    /// From sending the request to its answer.
    pub took: Duration,
}

/// What an answer changed, for the log, the counters and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    pub what: What,
    /// The learned delay before the answer. `learned` is the one after it.
    pub before: Duration,
    pub learned: Duration,
    pub floor: Option<Duration>,
    /// The new hold, if the host is held now or for longer than before.
    pub hold: Option<Hold>,
    pub error_streak: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A refusal: one step slower, if possible.
    Slowed,
    /// Enough successes: one step faster, on trial.
    Probing,
    /// The trial failed: back to the delay that worked, which is now the floor.
    Restored,
    /// The trial passed, and there is no shorter delay to try for now.
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

/// What `auto` knows about a host's limit. Rates are written as delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitView {
    pub stage: LimitStage,
    /// The delay at the limit; `None` before the first refusal.
    pub limit: Option<Duration>,
    /// The delay in force, as far as it is learned.
    pub pace: Duration,
    /// How often the limit was tested and found unchanged.
    pub confirmed: u8,
    /// The delay at which the host refused last, and when.
    pub refused: Option<(Duration, Timestamp)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitStage {
    /// No refusal yet: faster and faster.
    Starting,
    /// The host refuses: one request at a time.
    Refused,
    /// A higher pace is on trial.
    Trying,
    Holding,
    /// Slower than the limit, because the answers have become slow.
    Slow,
}

/// What is known about one host.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    state: PaceState,
    allowance: Allowance,
    held_until: Timestamp,
    last_success: Timestamp,
}

/// What a policy has learned.
#[derive(Clone, Debug)]
enum PaceState {
    Steps(Steps),
    Auto(Box<Auto>),
}

impl Default for PaceState {
    fn default() -> Self {
        PaceState::Steps(Steps::default())
    }
}

impl Pace {
    pub fn new() -> Self {
        Pace::default()
    }

    /// Records that a request starts. Report its answer with the returned epoch.
    pub fn sent(&mut self, load: PaceLoad, base: Duration, learning: &Learning, now: Timestamp) -> Epoch {
        let moment = self.moment(load, base, learning, now);
        self.allowance.sent(now);
        match &mut self.state {
            PaceState::Steps(steps) => Epoch { number: steps.epoch(), ..Epoch::default() },
            PaceState::Auto(auto) => auto.sent(load.in_flight.saturating_add(1), &moment),
        }
    }

    /// Goes on by the policy of these settings. A delay that another policy has learned is where it begins.
    pub fn follow(&mut self, learning: &Learning, now: Timestamp) {
        let (learned, epoch) = (self.learned(), self.epoch().wrapping_add(1));
        self.state = match (learning.learner, &self.state) {
            (Learner::Steps, PaceState::Auto(_)) => {
                PaceState::Steps(Steps::starting_with(steps::millis(learned), epoch))
            }
            (Learner::Auto, PaceState::Steps(_)) => PaceState::Auto(Box::new(Auto::starting_with(learned, epoch, now))),
            _ => return,
        };
    }

    fn moment(&self, load: PaceLoad, base: Duration, learning: &Learning, now: Timestamp) -> Moment {
        let rate = |delay: Duration| 1.0 / delay.as_secs_f32().max(0.001);
        Moment {
            now: now.as_micros() as f64 / 1e6,
            fastest: rate(base),
            slowest: rate(learning.max_delay.max(base)),
            rate: rate(self.delay(base, learning, now).max(base)),
            places: load.places,
            longest_wait: learning.longest_window.max(learning.max_delay).max(base).as_secs_f32(),
        }
    }

    fn epoch(&self) -> u32 {
        match &self.state {
            PaceState::Steps(steps) => steps.epoch(),
            PaceState::Auto(auto) => auto.epoch(),
        }
    }

    /// Learns from an answer, or from a missing one.
    pub fn heard(&mut self, heard: PaceReport, base: Duration, learning: &Learning, now: Timestamp) -> Option<Change> {
        let signals = &heard.signals;
        let before = self.learned().min(learning.max_delay.max(base));
        let moment = self.moment(heard.load, base, learning, now);
        self.allowance.heard(signals, heard.load.in_flight, learning.reset_slack, now);
        if signals.answer == PaceSignal::Success {
            self.last_success = now;
        }
        let step = match (&mut self.state, learning.learner) {
            (_, Learner::Off) => None,
            (PaceState::Steps(steps), _) => steps.heard(heard.epoch.number, signals.answer, base, learning, now),
            (PaceState::Auto(auto), _) => auto.heard(&heard, &moment),
        };
        let hold = self.hold(signals, step.and_then(|step| step.window), learning, now);
        if step.is_none() && hold.is_none() {
            return None;
        }
        Some(Change {
            what: step.map_or(What::Held, |step| step.what),
            before,
            learned: self.learned().min(learning.max_delay.max(base)),
            floor: self.floor(now),
            hold,
            error_streak: self.error_streak(),
        })
    }

    /// Counts a success as [`heard`](Pace::heard) does, if that changes neither delay nor concurrency. Returns false
    /// otherwise; then nothing has happened.
    pub fn only_counts(&mut self, heard: &PaceReport, base: Duration, learning: &Learning, now: Timestamp) -> bool {
        let moment = self.moment(heard.load, base, learning, now);
        let PaceState::Auto(auto) = &mut self.state else { return false };
        let counts = learning.learner == Learner::Auto && !self.allowance.is_told() && auto.is_calm(&moment);
        if counts {
            self.last_success = now;
            let step = auto.heard(heard, &moment);
            debug_assert!(step.is_none(), "nothing was to change");
        }
        counts
    }

    /// The delay to keep in addition to `base`; zero if nothing asks for more. Call it again after each `sent` and
    /// `heard`.
    pub fn delay(&self, base: Duration, learning: &Learning, now: Timestamp) -> Duration {
        let longest = learning.max_delay.max(base);
        let learned = match (&self.state, learning.learner) {
            (_, Learner::Off) => Duration::ZERO,
            (PaceState::Steps(steps), _) => steps.learned().min(longest),
            (PaceState::Auto(auto), _) => {
                // Without a configured delay there is none before the first refusal. `f32` has seven digits.
                let delay = if base.is_zero() { auto.learned() } else { auto.delay() };
                Some(delay).filter(|delay| *delay > base + base / 100_000).unwrap_or_default().min(longest)
            }
        };
        let Some(told) = self.allowance.interval(longest, now) else { return learned };
        let told = if told > base { told } else { Duration::ZERO };
        if self.allowance.doubted(now) { told.max(learned) } else { told }
    }

    /// How many visits may be in flight: one less for every `concurrency_step` above `base`, but at least one.
    pub fn concurrency(&self, configured: u32, base: Duration, learning: &Learning, now: Timestamp) -> u32 {
        if let (PaceState::Auto(auto), Learner::Auto) = (&self.state, learning.learner) {
            return auto.places(configured).max(1);
        }
        let above = self.delay(base, learning, now).saturating_sub(base);
        let steps = above.as_micros().checked_div(learning.concurrency_step.as_micros()).unwrap_or(0);
        configured.saturating_sub(u32::try_from(steps).unwrap_or(u32::MAX)).max(1)
    }

    /// The delay learned from refusals; zero if none.
    pub fn learned(&self) -> Duration {
        match &self.state {
            PaceState::Steps(steps) => steps.learned(),
            PaceState::Auto(auto) => auto.learned(),
        }
    }

    /// The delay to stay above for a while: a shorter one was refused (`steps`), or this one (`auto`).
    pub fn floor(&self, now: Timestamp) -> Option<Duration> {
        match &self.state {
            PaceState::Steps(steps) => {
                let floor = steps.floor();
                (floor.delay > 0 && now < floor.until).then(|| span(floor.delay))
            }
            PaceState::Auto(auto) => auto.refused(now).map(|(delay, _)| delay),
        }
    }

    /// Whether the delay is on trial.
    pub fn probing(&self) -> bool {
        match &self.state {
            PaceState::Steps(steps) => steps.probing(),
            PaceState::Auto(auto) => auto.probing(),
        }
    }

    /// Whether a suspect answer means "too fast" at the moment.
    pub fn refuses_in_disguise(&self) -> bool {
        matches!(&self.state, PaceState::Auto(auto) if auto.refuses_in_disguise())
    }

    /// What is known about the host's limit, if it is measured.
    pub fn limit(&self) -> Option<LimitView> {
        match &self.state {
            PaceState::Steps(_) => None,
            PaceState::Auto(auto) => Some(auto.view()),
        }
    }

    pub fn held_until(&self) -> Timestamp {
        self.held_until
    }

    /// Refusals in a row; a burst counts once.
    pub fn error_streak(&self) -> u16 {
        match &self.state {
            PaceState::Steps(steps) => steps.errors(),
            PaceState::Auto(auto) => auto.errors(),
        }
    }

    /// Successes in a row at the present delay.
    pub fn success_streak(&self) -> u16 {
        match &self.state {
            PaceState::Steps(steps) => steps.successes(),
            PaceState::Auto(auto) => auto.successes(),
        }
    }

    /// Returns whether a quota that the host announced still decides, or is still doubted.
    pub fn follows_quota(&self, now: Timestamp) -> bool {
        self.allowance.is_in_force(now)
    }

    /// Forgets everything but the hold. Answers to requests in flight then change nothing.
    pub fn forget(&mut self) {
        let epoch = self.epoch().wrapping_add(1);
        let state = match self.state {
            PaceState::Steps(_) => PaceState::Steps(Steps::at_epoch(epoch)),
            PaceState::Auto(_) => PaceState::Auto(Box::new(Auto::at_epoch(epoch))),
        };
        *self = Pace { state, held_until: self.held_until, ..Pace::new() };
    }

    fn hold(
        &mut self,
        signals: &Signals,
        window: Option<Duration>,
        learning: &Learning,
        now: Timestamp,
    ) -> Option<Hold> {
        let asked = [
            (signals.retry_after.map(|time| now + time), Cause::RetryAfter),
            (self.allowance.resets_at(signals, learning.reset_slack, now), Cause::Quota),
            (window.map(|time| now + time), Cause::Backoff),
        ];
        let mut hold = None;
        for (until, cause) in asked {
            let until = until.unwrap_or(Timestamp::START);
            if until > self.held_until {
                self.held_until = until;
                hold = Some(Hold { until, cause });
            }
        }
        hold
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
