//! What an operator changes about one host while curtsy runs: other numbers, a pause, a clean slate.
//!
//! Numbers that an operator sets override those of the policy, even if the policy changes, until they are taken back.
//!
//! Promises: nothing here grants a burst, moves the last send or ends a hold that the host asked for. Waiting visits
//! keep waiting.

use std::sync::Arc;
use std::time::Duration;

use super::Lane;
use crate::politeness::policy::{Overrides, Policy};
use crate::politeness::time::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct Steering {
    overrides: Overrides,
    /// The policy without the overrides.
    policy: Arc<Policy>,
}

/// What was forgotten about a host, and what had to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    pub learned: bool,
    pub overrides: bool,
    /// Stays: until when the host is held.
    pub held_until: Option<Timestamp>,
    /// Stays: the operator who paused the host wanted no visits to it.
    pub paused: bool,
    /// Stays: robots.txt still asks for it.
    pub robots_delay: bool,
}

impl Lane {
    /// Overrides the policy's numbers. Replaces all earlier overrides.
    pub fn steer(&mut self, overrides: Overrides, now: Timestamp) {
        let policy = self.unsteered().clone();
        let any = overrides != Overrides::default();
        self.steering = any.then(|| Box::new(Steering { overrides, policy: policy.clone() }));
        self.unsaved = true;
        self.change(policy, now);
    }

    pub fn overrides(&self) -> Overrides {
        self.steering.as_ref().map(|steering| steering.overrides).unwrap_or_default()
    }

    /// Returns the policy without any overrides.
    pub fn unsteered(&self) -> &Arc<Policy> {
        self.steering.as_ref().map_or(&self.policy, |steering| &steering.policy)
    }

    /// Takes the policy of the host and returns it with the overrides applied.
    pub(super) fn steered(&mut self, policy: Arc<Policy>) -> Arc<Policy> {
        match &mut self.steering {
            Some(steering) => {
                let steered = steering.overrides.over(&policy);
                steering.policy = policy;
                Arc::new(steered)
            }
            None => policy,
        }
    }

    /// Lets no visit start until [`Lane::resume`]. Waiting visits may go on waiting; new visits are refused.
    pub fn pause(&mut self) {
        self.paused = true;
        self.close(Timestamp::START);
    }

    /// Lets no visit start before `until`, or [`Lane::resume`]. A visit with enough patience may wait for it.
    pub fn pause_until(&mut self, until: Timestamp) {
        self.paused = false;
        self.close(until);
    }

    pub fn resume(&mut self) {
        self.paused = false;
        self.close(Timestamp::START);
    }

    fn close(&mut self, until: Timestamp) {
        self.unsaved = true;
        self.turns.close(until);
        if let Some(riding) = &mut self.riding {
            riding.end();
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.close(until);
        }
    }

    /// Returns when the pause ends: never, if only an operator can end it; `None` if there is none.
    pub fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = if self.paused { Timestamp::NEVER } else { self.turns.bars().closed_until };
        (until > now).then_some(until)
    }

    /// Forgets what was learned and what was set, and returns what had to stay.
    pub fn forget(&mut self, now: Timestamp) -> Forgotten {
        let overrides = self.steering.is_some();
        let learned = self.forget_lessons();
        self.delays.response = Duration::ZERO;
        self.steer(Overrides::default(), now);
        let held_until = self.held_until();
        Forgotten {
            learned,
            overrides,
            held_until: (held_until > now).then_some(held_until),
            paused: self.paused_until(now).is_some(),
            robots_delay: !self.delays.robots.is_zero(),
        }
    }
}

#[cfg(test)]
#[path = "steering_tests.rs"]
mod tests;
