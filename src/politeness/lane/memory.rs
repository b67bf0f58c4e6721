//! What outlives a lane, and the process.
//!
//! Windows after refusals, open breakers and streaks are not in it: they are short, and a host that is still cross will
//! say so. Promises: a lane that remembers grants nobody an earlier start than the one that was forgotten, and whatever
//! a file or a clock says, it holds nobody for longer than the host itself could have asked for.

use std::sync::Arc;
use std::time::Duration;

use super::{Lane, Turns, plain_spacing};
use crate::politeness::pace::{self, Pace};
use crate::politeness::policy::{Overrides, Policy, Schooling};
use crate::politeness::time::Timestamp;
use crate::politeness::turns;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub last_sent: Option<Timestamp>,
    /// Until when the host asked to be left alone.
    pub held_until: Option<Timestamp>,
    pub pace: Option<pace::Memory>,
    /// When the pause that people set ends: never, if only they can end it.
    pub paused_until: Option<Timestamp>,
}

impl Lane {
    /// The lane of a host that was visited before it was forgotten or curtsy was restarted.
    pub fn remembering(
        policy: impl Into<Arc<Policy>>,
        memory: &Memory,
        schooling: &Schooling,
        seed: u64,
        now: Timestamp,
    ) -> Self {
        let policy = policy.into();
        let memory = memory.bounded(schooling, now);
        let turns = turns::Memory { last_sent: memory.last_sent, held_until: memory.held_until };
        let turns = Turns::remembering(plain_spacing(&policy), turns, seed, now);
        let mut lane = Lane::with(policy, turns);
        lane.asked_until = memory.held_until.unwrap_or_default();
        lane.set_pause(memory.paused_until);
        lane.unsaved = false;
        lane.recall_pace(&memory, schooling, now);
        lane
    }

    /// A host that is remembered joins a lane that others share: the most careful counts for all of them.
    pub fn recall(&mut self, memory: &Memory, schooling: &Schooling, now: Timestamp) {
        let memory = memory.bounded(schooling, now);
        self.recall_pace(&memory, schooling, now);
        if let Some(until) = memory.held_until {
            self.hold(until, now);
        }
        if let Some(last) = memory.last_sent {
            self.turns.taken_elsewhere(last + self.delays.effective());
        }
    }

    /// Takes what was learned and set elsewhere in place of its own. Grants nobody an earlier start: of two sends the
    /// later counts, of two holds the longer.
    pub fn adopt(&mut self, memory: &Memory, overrides: Overrides, schooling: &Schooling, now: Timestamp) {
        if let Some(lessons) = &mut self.lessons {
            lessons.pace.forget();
        }
        self.steer(overrides, now);
        self.recall(memory, schooling, now);
        self.set_pause(memory.bounded(schooling, now).paused_until);
        self.unsaved = true;
    }

    pub fn last_sent(&self) -> Option<Timestamp> {
        self.turns.memory().last_sent
    }

    /// What must outlive this lane.
    pub fn memory(&self, now: Timestamp) -> Memory {
        Memory {
            last_sent: self.last_sent(),
            held_until: (self.asked_until > Timestamp::START).then_some(self.asked_until),
            pace: self.pace().and_then(|pace| pace.memory(now)),
            paused_until: self.paused_until(now),
        }
    }

    /// Whether its memory holds something new; asking makes it old.
    pub fn take_unsaved(&mut self) -> bool {
        std::mem::take(&mut self.unsaved)
    }

    /// Whether forgetting what [`Lane::memory`] says could change anybody's start. A send matters for as long as any
    /// delay that counts from it, be it one that robots.txt has yet to ask for.
    pub fn is_memorable(&self, now: Timestamp) -> bool {
        let Memory { last_sent, held_until, pace, paused_until } = self.memory(now);
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

    fn recall_pace(&mut self, memory: &Memory, schooling: &Schooling, now: Timestamp) {
        let Some(pace) = memory.pace.map(|pace| Pace::remembering(&pace, &schooling.learning, now)) else { return };
        let known = self.pace().map(Pace::learned).unwrap_or_default();
        if pace.learned() > known {
            self.lessons_or_new(schooling).pace = pace;
            self.respace(now);
        }
    }
}

impl Memory {
    /// A time in the future is the work of a clock that was set back, or of a damaged file.
    fn bounded(self, schooling: &Schooling, now: Timestamp) -> Memory {
        let latest = now + schooling.learning.longest_hold;
        let last_day = now + LONGEST_PAUSE;
        let end = |until: Timestamp| if until < Timestamp::NEVER { until.min(last_day) } else { until };
        Memory {
            last_sent: self.last_sent.map(|last| last.min(now)),
            held_until: self.held_until.map(|until| until.min(latest)),
            paused_until: self.paused_until.map(end),
            ..self
        }
    }
}

/// As long as people may say; without an end it is as long as they like.
const LONGEST_PAUSE: Duration = Duration::from_secs(366 * 86_400);

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
