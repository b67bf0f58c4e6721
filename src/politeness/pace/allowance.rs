//! The allowance: a quota that the host announces, spent evenly until it resets.
//!
//! Every answer with a quota replaces what was known, and every request sent in between takes one. The host may not
//! have counted the requests in flight yet, so they are subtracted as well.
//!
//! Promises: no more requests than are left before the quota resets, however they are spaced. If the host refuses a
//! request although its quota has some left, the quota is doubted for a while and can then only slow down.

use std::time::Duration;

use super::QuotaRecord;
use super::steps::{millis, span};
use crate::politeness::signals::{PaceSignal, Quota, Signals};
use crate::politeness::time::Timestamp;

/// How long a quota counts if no newer one arrives.
const FRESH: Duration = Duration::from_secs(3600);
/// Reset times are whole seconds, usually rounded up.
const ROUNDED_BY: Duration = Duration::from_secs(1);
/// The quota is spent this long before it resets, so that requests that are sent a little late waste none of it.
/// Simulated: without it, a window of 5 s is used to 96 % instead of 99 %.
const AHEAD: Duration = Duration::from_millis(500);
/// After the reset the pace stays until the first answer says how much is left now, but for no longer than this.
const UNTIL_TOLD: Duration = Duration::from_secs(10);
/// How long a quota is doubted. Simulated against a host that claims four times its quota.
const DOUBT: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(super) struct Allowance {
    left: u32,
    /// Milliseconds between two requests, so that what is left lasts.
    every: u32,
    /// When the quota resets; START if the host announced none.
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
        if signals.answer == PaceSignal::Throttled && self.is_contradicted(signals, now) {
            self.doubted_until = now + DOUBT;
        }
        let spent = signals.used_up.map(|reset| Quota { remaining: 0, reset });
        if let Some(quota) = signals.quota.or(spent) {
            if self.last_sent == Timestamp::START {
                self.last_sent = now;
            }
            let reset = now + quota.reset.min(FRESH) + slack;
            let left = quota.remaining.saturating_sub(in_flight);
            // Until some of the quota comes back, all answers mean the same reset, each rounded up. The earliest is
            // closest.
            let same = left <= self.left && now < self.reset && reset < self.reset + ROUNDED_BY;
            let rounded = if same { reset.since(self.reset) } else { Duration::ZERO };
            self.reset = if same { reset.min(self.reset) } else { reset };
            self.left = left;
            let lasts = quota.reset.saturating_sub(rounded);
            self.every = millis(lasts.saturating_sub(AHEAD).max(lasts / 2) / self.left.max(1));
        } else if now >= self.reset {
            self.reset = Timestamp::START;
        }
    }

    /// When a quota that the answer calls used up resets, as exactly as earlier answers told.
    pub(super) fn resets_at(&self, signals: &Signals, slack: Duration, now: Timestamp) -> Option<Timestamp> {
        let told = now + signals.used_up?.saturating_add(slack);
        let known = signals.quota.is_none() && self.reset <= told && told < self.reset + ROUNDED_BY;
        Some(if known { self.reset } else { told })
    }

    /// The delay that makes the quota last. Waiting for the reset may take longer than `longest`.
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

    /// Returns whether a quota, or the doubt about one, still counts.
    pub(super) fn is_in_force(&self, now: Timestamp) -> bool {
        now < self.reset || self.doubted(now)
    }

    /// Whether the host has announced a quota.
    pub(super) fn is_told(&self) -> bool {
        self.reset != Timestamp::START
    }

    pub(super) fn doubted(&self, now: Timestamp) -> bool {
        now < self.doubted_until
    }

    /// Returns what other nodes must know about the quota; `None` if there is none.
    pub(super) fn record(&self, now: Timestamp) -> Option<QuotaRecord> {
        (now < self.reset).then(|| QuotaRecord {
            left: self.left,
            every: self.every,
            reset_left_ms: millis(self.reset.since(now)),
            doubt_left_s: u32::try_from(self.doubted_until.since(now).as_secs()).unwrap_or(u32::MAX),
        })
    }

    /// Takes a quota that another node has heard of.
    pub(super) fn take_in(&mut self, quota: &QuotaRecord, now: Timestamp) {
        if self.last_sent == Timestamp::START {
            self.last_sent = now;
        }
        (self.left, self.every) = (quota.left, quota.every);
        self.reset = now + span(quota.reset_left_ms).min(FRESH);
        self.doubted_until = now + Duration::from_secs(quota.doubt_left_s.into()).min(DOUBT);
    }

    /// Whether the host refuses although its quota has some left.
    fn is_contradicted(&self, signals: &Signals, now: Timestamp) -> bool {
        let told = signals.used_up.is_some() || signals.quota.is_some();
        if told { signals.used_up.is_none() } else { self.left > 0 && now < self.reset }
    }
}
