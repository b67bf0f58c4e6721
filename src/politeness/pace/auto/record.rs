//! What others learn of `auto`: the fleet, the memory of a host, and people.
//!
//! A fleet shares the limit, the pace on trial, and whether the host refuses. What each node measures by its own
//! answers stays with it: noise, requests at the same time, latency, disguise.

use std::time::Duration;

use super::super::{LimitRecord, LimitStage, LimitView, PaceMemory, PaceRecord};
use super::refusal::RefusalRun;
use super::{Auto, PROBE_AFTER, REFUSED_FOR, before, delay, seconds};
use crate::politeness::pace::steps::{Floor, millis};
use crate::politeness::time::Timestamp;

impl Auto {
    /// Begins with a delay that was learned earlier or by another policy; zero if none was.
    pub(in crate::politeness::pace) fn starting_with(learned: Duration, epoch: u32, now: Timestamp) -> Self {
        let auto = Auto::at_epoch(epoch);
        if learned.is_zero() {
            return auto;
        }
        let rate = 1.0 / learned.as_secs_f32();
        let next_at = seconds(now) + f64::from((PROBE_AFTER.0 / rate).clamp(30.0, REFUSED_FOR));
        Auto { tries: false, rate, limit: rate, next_at, ..auto }
    }

    /// The floor is the delay that was refused.
    pub(in crate::politeness::pace) fn remembering(learned: Duration, floor: &Floor, now: Timestamp) -> Self {
        let mut auto = Auto::starting_with(learned, 0, now);
        if floor.delay > 0 && now < floor.until {
            auto.note_refused(1000.0 / floor.delay as f32, seconds(now));
        }
        auto
    }

    pub(in crate::politeness::pace) fn memory(&self, now: Timestamp) -> Option<PaceMemory> {
        let (refused, life) = self.refused(now).unwrap_or_default();
        let floor_until = if life.is_zero() { Timestamp::START } else { now + life };
        // A host that refuses for the first time has no limit yet, but was asked too fast.
        let refuses = if self.run.is_on { 0.7 * self.run.rate } else { f32::INFINITY };
        let learned = delay(self.limit.min(self.rate).min(refuses));
        let memory = PaceMemory { learned, floor: refused, floor_life: life, floor_until, updated: now };
        (self.limit.min(refuses) < f32::INFINITY).then_some(memory)
    }

    /// The delay that was refused, and for how long this counts.
    pub(in crate::politeness::pace) fn refused(&self, now: Timestamp) -> Option<(Duration, Duration)> {
        let life = Duration::from_secs_f64((self.refused_until - seconds(now)).clamp(0.0, 86_400.0));
        (self.refused_rate > self.limit && self.knows_refused(seconds(now))).then(|| (delay(self.refused_rate), life))
    }

    pub(in crate::politeness::pace) fn view(&self) -> LimitView {
        let stage = match () {
            () if self.run.is_on => LimitStage::Refused,
            () if self.rate() < self.rate => LimitStage::Slow,
            () if self.limit == f32::INFINITY => LimitStage::Starting,
            () if self.tries => LimitStage::Trying,
            () => LimitStage::Holding,
        };
        let refused_at = Timestamp::from_micros((self.run.since * 1e6) as u64);
        LimitView {
            stage,
            limit: (self.limit < f32::INFINITY).then(|| delay(self.limit)),
            pace: self.delay(),
            confirmed: u8::try_from(self.confirmed).unwrap_or(u8::MAX),
            refused: (self.run.since > 0.0).then(|| (delay(self.run.rate), refused_at)),
        }
    }

    pub(in crate::politeness::pace) fn record(&self, now: Timestamp) -> Option<PaceRecord> {
        let floor = self.refused(now).map_or(0, |(refused, _)| millis(refused));
        let left = |until: f64| (until - seconds(now)).clamp(0.0, 86_400.0) as u32;
        let limit = LimitRecord {
            phase: self.tries.into(),
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
        let knows_limit = self.limit < f32::INFINITY;
        (self.measured_from > 0.0 || knows_limit).then(|| PaceRecord {
            learned: if knows_limit { millis(delay(self.limit.min(self.rate))) } else { 0 },
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
        (self.rate, self.limit, self.tries) = (rate(told.rate), rate(told.limit), told.phase > 0);
        (self.refused_rate, self.refused_until) = (rate(told.refused_rate), at(told.refused_left_s.min(86_400)));
        (self.bans, self.confirmed) = (told.bans, told.confirmed);
        self.next_at = at(told.next_left_s.min(86_400));
        let since = seconds(now) - f64::from(told.refused_ago_ms) / 1e3;
        match (told.canaries, self.run.is_on) {
            (0, _) => self.run.is_on = false,
            (canaries, true) => self.run.canaries = self.run.canaries.max(canaries),
            (canaries, false) => {
                self.run = RefusalRun { is_on: true, canaries, since, rate: self.rate, ..RefusalRun::default() };
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
