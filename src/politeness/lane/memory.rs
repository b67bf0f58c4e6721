//! What outlives a lane and the process.
//!
//! Windows after refusals, open breakers and streaks are not part of it: they are short, and a host that still wants
//! fewer requests will say so. Promises: a lane that remembers grants no visit an earlier start than the forgotten lane
//! would have; and whatever a file or a clock says, it holds visits for no longer than the host itself could have asked
//! for.

use std::sync::Arc;
use std::time::Duration;

use super::{Lane, Turns, plain_spacing};
use crate::politeness::pace::{self, Pace, PaceRecord};
use crate::politeness::policy::{LearningPolicy, Overrides, Policy};
use crate::politeness::time::Timestamp;
use crate::politeness::turns;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    pub last_sent: Option<Timestamp>,
    /// Until when the host asked to be left alone.
    pub held_until: Option<Timestamp>,
    pub pace: Option<pace::PaceMemory>,
    /// When an operator's pause ends: never, if only an operator can end it.
    pub paused_until: Option<Timestamp>,
}

impl Lane {
    /// Creates the lane of a host that was visited before, from the memory of an earlier lane or process.
    pub fn remembering(
        policy: impl Into<Arc<Policy>>,
        memory: &HostMemory,
        schooling: &LearningPolicy,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let policy = policy.into();
        let memory = memory.bounded(schooling, now);
        let turns = turns::TurnsMemory { last_sent: memory.last_sent, held_until: memory.held_until };
        let turns = Turns::remembering(plain_spacing(&policy), turns, seed, now);
        let mut lane = Lane::with(policy, turns);
        lane.set_pause(memory.paused_until);
        lane.unsaved = false;
        lane.recall_pace(&memory, schooling, now);
        lane.measure(schooling, now);
        lane
    }

    /// Adds the memory of one host to a lane that several hosts share: the most careful value counts for all of them.
    pub fn recall(&mut self, memory: &HostMemory, schooling: &LearningPolicy, now: Timestamp) {
        let memory = memory.bounded(schooling, now);
        self.recall_pace(&memory, schooling, now);
        if let Some(until) = memory.held_until {
            self.hold(until, now);
        }
        if let Some(last) = memory.last_sent {
            self.turns.taken_elsewhere(last + self.delays.effective());
        }
    }

    /// Replaces what was learned and set here by what was learned and set elsewhere. Grants no visit an earlier start:
    /// of two sends the later counts, of two holds the longer.
    pub fn adopt(&mut self, memory: &HostMemory, overrides: Overrides, schooling: &LearningPolicy, now: Timestamp) {
        if let Some(lessons) = &mut self.lessons {
            lessons.pace.forget();
        }
        self.steer(overrides, now);
        self.recall(memory, schooling, now);
        self.set_pause(memory.bounded(schooling, now).paused_until);
        self.unsaved = true;
    }

    /// Replaces what was learned here by what the fleet knows. Without overrides, what an operator set here stays.
    /// Grants no visit an earlier start, as [`Lane::adopt`].
    pub fn take_in(
        &mut self,
        memory: &HostMemory,
        record: Option<&PaceRecord>,
        overrides: Option<Overrides>,
        schooling: &LearningPolicy,
        now: Timestamp,
    ) {
        let memory = memory.bounded(schooling, now);
        if let Some(overrides) = overrides {
            self.steer(overrides, now);
            self.set_pause(memory.paused_until);
        }
        let learning = self.learning(schooling);
        match (record, &mut self.lessons) {
            (Some(record), _) => self.lessons_or_new(schooling, now).pace.take_in(record, &learning, now),
            (None, Some(lessons)) => lessons.pace.forget(),
            (None, None) => {}
        }
        if let Some(until) = memory.held_until {
            self.hold(until, now);
        }
        self.respace(now);
        self.unsaved = true;
    }

    pub fn last_sent(&self) -> Option<Timestamp> {
        self.turns.memory().last_sent
    }

    /// Returns what must outlive this lane.
    pub fn memory(&self, now: Timestamp) -> HostMemory {
        let asked_until = self.turns.bars().asked_until;
        HostMemory {
            last_sent: self.last_sent(),
            held_until: (asked_until > Timestamp::START).then_some(asked_until),
            pace: self.pace().and_then(|pace| pace.memory(now)),
            paused_until: self.paused_until(now),
        }
    }

    /// Returns whether the memory holds something new since the last call.
    pub fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.unsaved)
    }

    /// Returns whether forgetting what [`Lane::memory`] says could change the start of any visit. A send matters for as
    /// long as any delay that counts from it, even one that robots.txt has yet to ask for.
    pub fn is_memorable(&self, now: Timestamp) -> bool {
        let HostMemory { last_sent, held_until, pace, paused_until } = self.memory(now);
        let saving_up = self.policy.delay.saturating_mul(self.policy.burst.max(1));
        let longest = saving_up.max(self.delays.effective()).max(self.policy.max_crawl_delay);
        paused_until.is_some()
            || pace.is_some()
            || held_until > Some(now)
            || last_sent.is_some_and(|last| last + longest > now)
    }

    fn set_pause(&mut self, until: Option<Timestamp>) {
        match until {
            Some(Timestamp::NEVER) => self.pause(),
            Some(until) => self.pause_until(until),
            None => self.resume(),
        }
    }

    fn recall_pace(&mut self, memory: &HostMemory, schooling: &LearningPolicy, now: Timestamp) {
        let learning = self.learning(schooling);
        let Some(pace) = memory.pace.map(|pace| Pace::remembering(&pace, &learning, now)) else { return };
        let known = self.pace().map(Pace::learned).unwrap_or_default();
        if pace.learned() > known {
            self.lessons_or_new(schooling, now).pace = pace;
            self.respace(now);
        }
    }
}

impl HostMemory {
    /// Limits times that are too far in the future: they come from a clock that was set back, or from a damaged file.
    fn bounded(self, schooling: &LearningPolicy, now: Timestamp) -> HostMemory {
        let latest = now + schooling.learning.longest_hold;
        let last_day = now + LONGEST_PAUSE;
        let end = |until: Timestamp| if until < Timestamp::NEVER { until.min(last_day) } else { until };
        HostMemory {
            last_sent: self.last_sent.map(|last| last.min(now)),
            held_until: self.held_until.map(|until| until.min(latest)),
            paused_until: self.paused_until.map(end),
            ..self
        }
    }
}

/// The longest pause with an end that an operator may set. A pause without an end is not limited.
const LONGEST_PAUSE: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
