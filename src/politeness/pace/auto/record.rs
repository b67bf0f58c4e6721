//! What `auto` shares with the other nodes of a fleet: the limit, the pace on trial, and whether the host refuses.
//!
//! What each node measures by its own answers stays with it: noise, requests at the same time, latency, disguise.

use super::super::{LimitRecord, PaceRecord};
use super::refusal::RefusalRun;
use super::{Auto, AutoPhase, before, delay, seconds};
use crate::politeness::pace::steps::millis;
use crate::politeness::time::Timestamp;

const PHASES: [AutoPhase; 5] =
    [AutoPhase::Start, AutoPhase::Hold, AutoPhase::Check, AutoPhase::Climb, AutoPhase::Probe];

impl Auto {
    pub(in crate::politeness::pace) fn record(&self, now: Timestamp) -> Option<PaceRecord> {
        let floor = self.refused(now).map_or(0, |(refused, _)| millis(refused));
        let left = |until: f64| (until - seconds(now)).clamp(0.0, 86_400.0) as u32;
        let limit = LimitRecord {
            phase: PHASES.iter().position(|phase| *phase == self.phase).map_or(0, |index| index as u8),
            rate: thousandths(self.rate),
            limit: thousandths(self.limit),
            refused_rate: thousandths(self.refused_rate),
            refused_left_s: left(self.refused_until),
            bans: self.bans,
            confirmed: self.confirmed,
            next_left_s: left(self.next_at),
            canaries: if self.run.is_on { self.run.canaries.max(1) } else { 0 },
            refused_ago_ms: ((seconds(now) - self.run.since).clamp(0.0, 4_000_000.0) * 1e3) as u32,
        };
        let floor_left_s = if floor > 0 { limit.refused_left_s } else { 0 };
        (self.measured_from > 0.0 || self.phase != AutoPhase::Start).then(|| PaceRecord {
            learned: if self.phase == AutoPhase::Start { 0 } else { millis(delay(self.limit.min(self.rate))) },
            floor,
            floor_life_s: floor_left_s,
            floor_left_s,
            epoch: self.epoch,
            raised: self.refused_epoch,
            limit: Some(limit),
            ..PaceRecord::default()
        })
    }

    /// Goes on with what all nodes have learned. A record of another policy is a delay to begin with.
    pub(in crate::politeness::pace) fn take_in(&mut self, record: &PaceRecord, now: Timestamp) {
        let later = |mine: u32, theirs: u32| if before(theirs, mine) { mine } else { theirs };
        let (epoch, refused_epoch) = (later(self.epoch, record.epoch), later(self.refused_epoch, record.raised));
        let Some(told) = record.limit.filter(|told| told.rate > 0) else {
            *self = Auto { epoch, refused_epoch, ..Auto::remembering(record.safe_delay(), &record.floor(now), now) };
            return;
        };
        let at = |left: u32| seconds(now) + f64::from(left);
        (self.epoch, self.refused_epoch) = (epoch, refused_epoch);
        self.phase = PHASES.get(usize::from(told.phase)).copied().unwrap_or_default();
        (self.rate, self.limit) = (rate(told.rate), rate(told.limit));
        (self.refused_rate, self.refused_until) = (rate(told.refused_rate), at(told.refused_left_s.min(86_400)));
        (self.bans, self.confirmed) = (told.bans, told.confirmed);
        self.next_at = at(told.next_left_s.min(86_400));
        let since = seconds(now) - f64::from(told.refused_ago_ms) / 1e3;
        match (told.canaries, self.run.is_on) {
            (0, _) => self.run.is_on = false,
            (canaries, true) => self.run.canaries = self.run.canaries.max(canaries),
            (canaries, false) => {
                self.run = RefusalRun::default();
                (self.run.is_on, self.run.canaries, self.run.refusals) = (true, canaries, 1);
                (self.run.since, self.run.rate, self.run.after) = (since, self.rate, self.given);
            }
        }
    }
}

/// Returns a rate in requests per thousand seconds; 0 stands for no limit.
fn thousandths(rate: f32) -> u32 {
    if rate.is_finite() { ((rate * 1e3) as u32).max(1) } else { 0 }
}

fn rate(thousandths: u32) -> f32 {
    if thousandths == 0 { f32::INFINITY } else { thousandths as f32 / 1e3 }
}
