//! The allowance: a quota the host tells of, spent evenly until it comes back.
//!
//! Every answer that tells of it replaces what was known; every request that leaves in between takes one. Those on their
//! way may not have been counted by the host yet, so they are taken off as well.
//!
//! Promises: no more requests than are left before the quota is back, however they are spaced. A quota that the host's
//! own refusals contradict is doubted for a while, and then only ever slows down.

use std::time::Duration;

use super::steps::{millis, span};
use crate::politeness::signals::{Answer, Quota, Signals};
use crate::politeness::time::Timestamp;

/// How long a word about a quota counts when nothing newer is heard.
const FRESH: Duration = Duration::from_secs(3600);
/// Resets are told in whole seconds, rounded up as a rule: on average they come half a second earlier.
const HALF_A_SECOND: Duration = Duration::from_millis(500);
/// After the reset the pace stays until the first answer tells how much there is now; slow ones need not be waited for.
const UNTIL_TOLD: Duration = Duration::from_secs(10);
/// Simulated against a host that claims four times its quota.
const DOUBT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(super) struct Allowance {
    left: u32,
    /// Milliseconds between two requests, so that what is left lasts.
    every: u32,
    /// When it is back; START if the host told of none.
    reset: Timestamp,
    last_sent: Timestamp,
    doubted_until: Timestamp,
}

impl Allowance {
    pub(super) fn sent(&mut self, now: Timestamp) {
        self.last_sent = now;
        self.left = self.left.saturating_sub(1);
    }

    pub(super) fn heard(&mut self, signals: &Signals, in_flight: u32, slack: Duration, now: Timestamp) {
        if signals.answer == Answer::Throttled && self.is_contradicted(signals, now) {
            self.doubted_until = now + DOUBT;
        }
        let spent = signals.used_up.map(|reset| Quota { remaining: 0, reset });
        if let Some(quota) = signals.quota.or(spent) {
            if self.last_sent == Timestamp::START {
                self.last_sent = now;
            }
            let within = quota.reset.min(FRESH);
            self.left = quota.remaining.saturating_sub(in_flight);
            self.every = millis(quota.reset.saturating_sub(HALF_A_SECOND).max(HALF_A_SECOND) / self.left.max(1));
            self.reset = now + within + slack;
        } else if now >= self.reset {
            self.reset = Timestamp::START;
        }
    }

    /// The delay that makes it last; waiting for it to come back may take longer than `longest`.
    pub(super) fn interval(&self, longest: Duration, now: Timestamp) -> Option<Duration> {
        if self.reset == Timestamp::START {
            return None;
        }
        let evenly = span(self.every).min(longest);
        let afterwards = evenly.min(UNTIL_TOLD);
        Some(match self.left {
            _ if now >= self.reset => afterwards,
            0 => self.reset.since(self.last_sent).max(afterwards),
            _ => evenly,
        })
    }

    pub(super) fn doubted(&self, now: Timestamp) -> bool {
        now < self.doubted_until
    }

    /// "Too fast", although there is something left.
    fn is_contradicted(&self, signals: &Signals, now: Timestamp) -> bool {
        let told = signals.used_up.is_some() || signals.quota.is_some();
        if told { signals.used_up.is_none() } else { self.left > 0 && now < self.reset }
    }
}
