//! Learns a delay in steps: a refusal adds one, a row of successes tries one less.
//!
//! The shorter delay is on trial until as many successes in a row have proven it. A refusal before that restores the
//! delay that worked, and records it as the floor: nothing shorter is tried for a while.
//!
//! # Epochs
//! Each change of the delay begins an epoch. A refusal of a request that was sent before the last raise belongs to a
//! burst that counts already. A success counts only for the delay at which its request was sent. Epochs are
//! few (changes, not requests) and compared as differences, so that they may wrap.

use std::time::Duration;

use super::{Learning, PaceRecord, What};
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;

/// A floor is tested again once a day at the latest, in seconds.
pub(super) const LONGEST_FLOOR_LIFE: u32 = 86_400;

/// Times are milliseconds, or whole seconds if the name says so, to save memory: there is one of these for each host.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    /// Zero if nothing is learned.
    learned: u32,
    floor: Floor,
    /// The delay that worked, while a lower one is on trial; else zero.
    probed_from: u32,
    epoch: u32,
    /// The epoch that the last raise began.
    raised: u32,
    errors: u16,
    successes: u16,
    /// Successes that the other nodes of a fleet do not know of; -1 if the row was broken.
    untold: i16,
}

/// The delay below which a probe failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Floor {
    /// Zero if there is none.
    pub(super) delay: u32,
    pub(super) life_s: u32,
    pub(super) until: Timestamp,
}

/// The effect of an answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PaceStep {
    pub(super) what: What,
    /// For how long no visit may start.
    pub(super) window: Option<Duration>,
}

impl Steps {
    pub(super) fn remembering(learned: u32, floor: Floor) -> Self {
        Steps { learned, floor, ..Steps::default() }
    }

    /// A state that begins with a delay, and learns nothing from requests sent before this epoch.
    pub(super) fn starting_with(learned: u32, epoch: u32) -> Self {
        Steps { learned, ..Steps::at_epoch(epoch) }
    }

    /// A state that has learned nothing, and learns nothing from requests sent before this epoch.
    pub(super) fn at_epoch(epoch: u32) -> Self {
        Steps { epoch, raised: epoch, ..Steps::default() }
    }

    pub(super) fn heard(
        &mut self,
        epoch: u32,
        answer: PaceSignal,
        base: Duration,
        learning: &Learning,
        now: Timestamp,
    ) -> Option<PaceStep> {
        let base = millis(base);
        let longest = longest(base, learning);
        self.learned = self.learned.min(longest);
        self.probed_from = self.probed_from.min(longest);
        match answer {
            PaceSignal::Success => {
                self.succeeded(epoch, base, learning, now).map(|what| PaceStep { what, window: None })
            }
            PaceSignal::Throttled => self.throttled(epoch, base, learning, now),
            PaceSignal::Failed => {
                (self.successes, self.untold) = (0, -1);
                None
            }
            PaceSignal::Neutral | PaceSignal::Suspect => None,
        }
    }

    fn succeeded(&mut self, epoch: u32, base: u32, learning: &Learning, now: Timestamp) -> Option<What> {
        if epoch != self.epoch {
            return None;
        }
        self.errors = 0;
        self.successes = self.successes.saturating_add(1);
        if self.untold >= 0 {
            self.untold = self.untold.saturating_add(1);
        }
        if self.successes < learning.successes {
            return None;
        }
        let proven = self.prove(base);
        if self.probe(base, learning, now) { Some(What::Probing) } else { proven.then_some(What::Proven) }
    }

    /// Ends a trial that has passed. Returns false if there was none.
    fn prove(&mut self, base: u32) -> bool {
        if self.probed_from == 0 {
            return false;
        }
        self.probed_from = 0;
        if self.learned.max(base) < self.floor.delay {
            self.floor = Floor::default();
        }
        if self.learned <= base {
            self.learned = 0;
        }
        true
    }

    fn probe(&mut self, base: u32, learning: &Learning, now: Timestamp) -> bool {
        let floor = if now < self.floor.until { self.floor.delay } else { 0 };
        let target = self.learned.saturating_sub(millis(learning.step_down)).max(floor).max(base);
        if target >= self.learned {
            return false;
        }
        self.probed_from = self.learned;
        self.learned = target;
        self.successes = 0;
        self.epoch = self.epoch.wrapping_add(1);
        true
    }

    fn throttled(&mut self, epoch: u32, base: u32, learning: &Learning, now: Timestamp) -> Option<PaceStep> {
        self.successes = 0;
        if before(epoch, self.raised) {
            return None;
        }
        self.errors = self.errors.saturating_add(1);
        let worked = std::mem::take(&mut self.probed_from);
        let what = if worked > base && epoch == self.epoch {
            self.learned = worked;
            self.mark_floor(learning, now);
            What::Restored
        } else {
            // On trial or not, this request was sent at the delay that was thought to work.
            let refused = self.learned.max(worked).max(base);
            self.learned = refused.saturating_add(millis(learning.step_up)).min(longest(base, learning));
            What::Slowed
        };
        self.epoch = self.epoch.wrapping_add(1);
        self.raised = self.epoch;
        Some(PaceStep { what, window: Some(self.window(base, learning)) })
    }

    fn mark_floor(&mut self, learning: &Learning, now: Timestamp) {
        let life_s = match self.floor.delay == self.learned {
            true => self.floor.life_s.saturating_mul(2).min(LONGEST_FLOOR_LIFE),
            false => u32::try_from(learning.floor_life.as_secs()).unwrap_or(LONGEST_FLOOR_LIFE),
        };
        self.floor = Floor { delay: self.learned, life_s, until: now + Duration::from_secs(life_s.into()) };
    }

    /// The delay, doubled for each refusal in a row after the first. The delay itself grows only by steps: a short and
    /// violent reaction stays in this window, which is not remembered.
    fn window(&self, base: u32, learning: &Learning) -> Duration {
        let doublings = u32::from(self.errors.saturating_sub(1)).min(31);
        let window = u64::from(self.learned.max(base)) << doublings;
        let longest = learning.longest_window.max(learning.max_delay).max(span(base));
        Duration::from_millis(window).min(longest)
    }

    pub(super) fn learned(&self) -> Duration {
        span(self.learned)
    }

    pub(super) fn floor(&self) -> &Floor {
        &self.floor
    }

    /// The last delay that is known to have worked, or the learned one.
    pub(super) fn safe(&self) -> Duration {
        span(self.learned.max(self.probed_from))
    }

    pub(super) fn probing(&self) -> bool {
        self.probed_from > 0
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn errors(&self) -> u16 {
        self.errors
    }

    pub(super) fn successes(&self) -> u16 {
        self.successes
    }

    pub(super) fn raised(&self) -> u32 {
        self.raised
    }

    pub(super) fn take_praise(&mut self) -> i32 {
        std::mem::take(&mut self.untold).into()
    }

    /// Takes the successes of all nodes. Those of this node since it told them are not among them.
    pub(super) fn praised(&mut self, successes: u16) {
        self.successes = successes.saturating_add(u16::try_from(self.untold).unwrap_or(0));
    }

    /// Goes on with what all nodes have learned. Epochs never go back, so that answers on their way are judged rightly.
    pub(super) fn take_in(&mut self, record: &PaceRecord, now: Timestamp) {
        let later = |mine: u32, theirs: u32| if before(theirs, mine) { mine } else { theirs };
        *self = Steps {
            learned: record.learned,
            floor: record.floor(now),
            probed_from: record.probed_from,
            epoch: later(self.epoch, record.epoch),
            raised: later(self.raised, record.raised),
            errors: record.errors,
            successes: 0,
            untold: 0,
        };
    }
}

fn longest(base: u32, learning: &Learning) -> u32 {
    millis(learning.max_delay).max(base)
}

/// Whether `epoch` came before `other`, across a wrap.
pub(super) fn before(epoch: u32, other: u32) -> bool {
    epoch.wrapping_sub(other).cast_signed() < 0
}

/// Rounded up.
pub(super) fn millis(duration: Duration) -> u32 {
    let part = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    u32::try_from(duration.as_secs().saturating_mul(1_000).saturating_add(part)).unwrap_or(u32::MAX)
}

pub(super) fn span(millis: u32) -> Duration {
    Duration::from_millis(millis.into())
}
