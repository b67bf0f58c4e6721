//! What people change about one host while curtsy runs: other numbers, a pause, a clean slate.
//!
//! Numbers that people set lie over those of the policy, whatever becomes of the policy, until they are taken back.
//!
//! Promises: nothing here grants a burst, moves the last send or ends a hold that the host asked for; who waits waits
//! on.

use std::sync::Arc;
use std::time::Duration;

use super::Lane;
use crate::politeness::policy::{Overrides, Policy};
use crate::politeness::time::Timestamp;

#[derive(Clone, Debug)]
pub(super) struct Steering {
    overrides: Overrides,
    /// What they lie over.
    policy: Arc<Policy>,
}

/// What was forgotten of a host, and what had to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    pub learned: bool,
    pub overrides: bool,
    /// Stays: until when the host is held.
    pub held_until: Option<Timestamp>,
    /// Stays: whoever paused the host meant nobody to visit it.
    pub paused: bool,
    /// Stays: robots.txt asks for it still.
    pub robots_delay: bool,
}

impl Lane {
    /// Sets other numbers than the policy's, in place of those that were set before.
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

    /// The policy as it would be if nobody had set anything.
    pub fn unsteered(&self) -> &Arc<Policy> {
        self.steering.as_ref().map_or(&self.policy, |steering| &steering.policy)
    }

    /// The numbers to go by where the policy says this.
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

    /// Nobody starts until [`Lane::resume`]. Who waits may go on waiting; who comes is refused.
    pub fn pause(&mut self) {
        self.paused = true;
        self.close(Timestamp::START);
    }

    /// Nobody starts before `until`, or [`Lane::resume`]. Who has the patience may wait for it.
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
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.close(until);
        }
    }

    /// When the pause ends: never, if only people can end it; `None` if there is none.
    pub fn paused_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = if self.paused { Timestamp::NEVER } else { self.turns.closed_until() };
        (until > now).then_some(until)
    }

    pub(super) fn held_or_closed_until(&self) -> Timestamp {
        self.turns.held_until().max(self.turns.closed_until())
    }

    /// Forgets what was learned and what was set, and says what had to stay.
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
