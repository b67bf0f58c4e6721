//! Finds the limit of a host and stays just below it.
//!
//! A limiter hands out a fixed amount per time. So between two moments at which it had nothing left, the number of
//! accepted requests by the time is the limit: two refusals measure it. Around this idea:
//! - **Start**: two requests a second, doubled while all goes well, until the first refusal.
//! - **Refused**: one request at a time is a canary, after waits that fit what people configure (`refusal`).
//! - **Try**: a higher pace counts once it has held for a while (`tries`); then the next one, or half-way to one that
//!   was refused.
//! - **Hold**: just below the limit, with rare probes whether it has risen.
//! - A refusal is not always about pace: it may be about requests at the same time (`places`), or noise (`noise`).
//! - Slow answers lower the pace before a refusal does (`latency`), and some refusals are in disguise (`disguise`).
//!
//! The numbers come from simulation (`curtsy simulate --matrix`); changing any of them by half moves goodput by about a
//! point. Rates are requests per second, times are seconds. No clock, no dice: the same answers at the same times lead
//! to the same pace.

mod disguise;
mod latency;
mod noise;
mod places;
mod refusal;
mod tries;

use std::time::Duration;

use self::disguise::Disguise;
use self::latency::LatencyGuard;
use self::noise::NoiseGuard;
use self::places::PlaceGuard;
use self::refusal::{KnownWindow, RefusalRun};
use self::tries::{Attempt, PROBE};
use super::steps::{Floor, PaceStep, before};
use super::{Epoch, LimitStage, LimitView, PaceMemory, PaceReport, What};
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;

/// The first pace: half a second apart, as careful clients do it.
const FIRST_RATE: f32 = 2.0;
/// A pace is doubled after this many successes and seconds.
const DOUBLED_AFTER: (u16, f64) = (5, 1.0);
/// Stays this far below the limit: BBR leaves a policer 1 %; half as many refusals with 2 %.
const MARGIN: f32 = 0.02;
/// A ban widens the margin by this much, up to ten times.
const MARGIN_OF_BAN: f32 = 0.01;
/// A refused pace is remembered for half an hour: hosts change their limits.
const REFUSED_FOR: f32 = 1800.0;
/// Requests between two probes: the first number, doubled with each probe that finds nothing, up to the second.
const PROBE_AFTER: (f32, f32) = (80.0, 500.0);
/// The latest probe: after this many seconds and requests.
const PROBE_LATEST: (f32, f32) = (1800.0, 200.0);
/// Being shut for longer than this shows a window or a ban, not a bucket that fills.
const SHORT: f32 = 3.0;
/// A try that needs no more sends than others.
const NOTHING: f32 = -1e9;

/// The numbers of one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: f64,
    /// What is configured allows this pace, and at least the slowest remains.
    pub(super) fastest: f32,
    pub(super) slowest: f32,
    /// The pace in force.
    pub(super) rate: f32,
    /// Requests that may be in flight.
    pub(super) places: u32,
    pub(super) longest_wait: f32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum AutoPhase {
    #[default]
    Start,
    Hold,
    Try(Aim),
}

/// What a try is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aim {
    /// Whether the first estimate holds.
    First,
    /// Whether a host that shut for long has a window, which gives as much again and no more, or bans.
    Look,
    /// The next higher pace, while none was refused.
    Up,
    /// Between the limit and a pace that was refused.
    Between,
    /// Whether the limit has risen.
    Rise,
    /// Whether the limit is a little higher than measured.
    Nudge,
}

/// What is known about one host: at most 320 bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct Auto {
    epoch: u32,
    /// The epoch that the last refusal began.
    refused_epoch: u32,
    phase: AutoPhase,
    rate: f32,
    /// The estimate; infinite before the first refusal.
    limit: f32,
    /// The pace above the limit that was refused last, and until when this counts.
    refused_rate: f32,
    refused_until: f64,
    /// Start: successes at this pace.
    successes: u16,
    last_sent: f64,
    /// Requests accepted since the last refusal, and the time without any to send.
    measured_from: f64,
    accepted: u32,
    idle: f32,
    /// Requests accepted since the host reopened, and in the two openings before.
    opened_at: f64,
    given: u32,
    gave: u16,
    gave_before: u16,
    attempt: Attempt,
    /// Hold: when the next probe is due. Start: when the pace may be doubled.
    probe_after: f32,
    probe_from: f64,
    probe_by: f64,
    sent: u16,
    /// Probes that found nothing since the limit last changed.
    confirmed: u8,
    probes: u8,
    /// The first estimate rests on next to nothing.
    far: bool,
    /// The host bans: it shuts for longer than the excess takes.
    bans: bool,
    ban_count: u8,
    /// Requests that the host grants at once after a quiet time.
    credit: f32,
    /// The limit before it was last raised, with the excess that raised it and the confirmations it had.
    raised_from: f32,
    raised_excess: f32,
    raised_confirmed: u8,
    run: RefusalRun,
    /// How long the host was shut: the longest time and the last long time, both fading.
    shut: f32,
    cost: f32,
    /// The wait that ended the last refusals, and how uncertain their end is.
    recovery: f32,
    unsure: f32,
    window: KnownWindow,
    noise: NoiseGuard,
    places: PlaceGuard,
    latency: LatencyGuard,
    disguise: Disguise,
}

impl Auto {
    /// Knows nothing, and learns nothing from requests sent before this epoch.
    pub(super) fn at_epoch(epoch: u32) -> Self {
        let (limit, refused_rate) = (f32::INFINITY, f32::INFINITY);
        Auto { epoch, refused_epoch: epoch, rate: FIRST_RATE, limit, refused_rate, ..Auto::default() }
    }

    /// Begins with a delay that was learned earlier or by another policy; zero if none was.
    pub(super) fn starting_with(learned: Duration, epoch: u32, now: Timestamp) -> Self {
        let auto = Auto::at_epoch(epoch);
        if learned.is_zero() {
            return auto;
        }
        let (rate, now) = (1.0 / learned.as_secs_f32(), seconds(now));
        let (phase, probe_by) = (AutoPhase::Hold, now + f64::from(PROBE_LATEST.0));
        Auto { phase, rate, limit: rate, probe_after: PROBE_AFTER.0, probe_from: now + 30.0, probe_by, ..auto }
    }

    /// The floor is the delay that was refused.
    pub(super) fn remembering(learned: Duration, floor: &Floor, now: Timestamp) -> Self {
        let mut auto = Auto::starting_with(learned, 0, now);
        if floor.delay > 0 && now < floor.until {
            auto.note_refused(1000.0 / floor.delay as f32, 0.0, seconds(now));
        }
        auto
    }

    pub(super) fn memory(&self, now: Timestamp) -> Option<PaceMemory> {
        let is_refused = self.refused_rate > self.limit && self.knows_refused(seconds(now));
        let refused = is_refused.then(|| delay(self.refused_rate));
        let life = Duration::from_secs_f64((self.refused_until - seconds(now)).clamp(0.0, 86_400.0));
        (self.phase != AutoPhase::Start).then(|| PaceMemory {
            learned: delay(self.limit.min(self.rate)),
            floor: refused.unwrap_or_default(),
            floor_life: refused.map_or(Duration::ZERO, |_| life),
            floor_until: refused.map_or(Timestamp::START, |_| now + life),
            updated: now,
        })
    }

    /// Counts a request; `in_flight` includes it.
    pub(super) fn sent(&mut self, in_flight: u32, m: &Moment) -> Epoch {
        let (delay, gap) = (1.0 / m.rate, (m.now - self.last_sent) as f32);
        let waited = gap <= 1.25 * delay + 0.01 || in_flight >= self.places(m.places);
        if self.measured_from == 0.0 {
            (self.measured_from, self.probe_from) = (m.now, m.now + DOUBLED_AFTER.1);
        } else if !self.run.is_on && !waited {
            self.idle += gap - delay;
        } else if !self.run.is_on && self.probing() {
            let gap = gap.min(2.0 * delay);
            self.attempt.sends = self.attempt.sends.saturating_add(1);
            self.attempt.seconds += gap;
            self.attempt.excess += 1.0 - self.limit * gap;
        }
        self.last_sent = m.now;
        self.sent = self.sent.saturating_add(1);
        self.places.count();
        Epoch { number: self.epoch, in_flight: u8::try_from(in_flight).unwrap_or(u8::MAX), waited }
    }

    pub(super) fn heard(&mut self, heard: &PaceReport, m: &Moment) -> Option<PaceStep> {
        let before = self.rate();
        let (answer, pause) = self.disguise.read(heard.signals.answer, m.now - heard.took.as_secs_f64(), m.now);
        if pause.is_some() {
            return Some(PaceStep { what: What::Held, window: pause });
        }
        match answer {
            PaceSignal::Throttled => return self.throttled(heard.epoch, m),
            PaceSignal::Success => self.served(heard.epoch, heard.took.as_secs_f32(), m),
            PaceSignal::Failed | PaceSignal::Neutral | PaceSignal::Suspect => return None,
        }
        let what = if self.rate() < before { What::Slowed } else { What::Probing };
        (self.rate() != before).then_some(PaceStep { what, window: None })
    }

    fn served(&mut self, epoch: Epoch, took: f32, m: &Moment) {
        self.noise.heard(0.0);
        self.accepted += 1;
        self.given += 1;
        self.window.count(m.now, self.run.is_on);
        self.places.accepted(epoch.in_flight);
        if self.run.is_on {
            if !before(epoch.number, self.refused_epoch) {
                self.reopen(m);
            }
            return;
        }
        self.latency.heard(took, self.rate);
        self.places.widen(m.places);
        if self.places.is_useless(epoch.waited, self.phase != AutoPhase::Start, m.now) {
            self.set_limit(self.places.pace_before(), m);
            self.refused_rate = f32::INFINITY;
            self.schedule(1, 0.0, m);
        }
        match self.phase {
            AutoPhase::Start => self.double(epoch, m),
            AutoPhase::Hold => self.probe_if_due(m),
            AutoPhase::Try(aim) => self.prove(aim, m),
        }
    }

    fn double(&mut self, epoch: Epoch, m: &Moment) {
        self.successes += u16::from(epoch.waited && epoch.number == self.epoch);
        if self.successes >= DOUBLED_AFTER.0 && m.now >= self.probe_from {
            (self.successes, self.probe_from) = (0, m.now + DOUBLED_AFTER.1);
            self.epoch = self.epoch.wrapping_add(1);
            self.rate = if self.latency.is_quiet() { (2.0 * self.rate).min(m.fastest) } else { self.rate };
        }
    }

    fn probe_if_due(&mut self, m: &Moment) {
        let due = f32::from(self.sent) >= self.probe_after && m.now >= self.probe_from || m.now >= self.probe_by;
        if !due || self.rate >= m.fastest {
            return;
        }
        self.attempt.rungs = 0;
        if self.is_worth_halving(m.now) {
            self.attempt(Aim::Between, (self.limit * self.refused_rate).sqrt(), (1.3 * self.credit).min(40.0) + 1.0, m);
        } else if !(self.bans && self.knows_refused(m.now)) {
            self.probes = self.probes.wrapping_add(1);
            self.attempt(Aim::Rise, self.limit * PROBE, self.free_excess(), m);
        }
    }

    fn set_limit(&mut self, limit: f32, m: &Moment) {
        self.limit = limit.max(m.slowest).min(m.fastest / (1.0 - MARGIN));
        self.phase = AutoPhase::Hold;
        self.rate = self.limit * (1.0 - MARGIN - MARGIN_OF_BAN * f32::from(self.ban_count.min(10)));
    }

    /// Holds the limit, and says when to probe again: later after each probe in vain, and after costly refusals.
    fn schedule(&mut self, refusals: u16, shut: f32, m: &Moment) {
        self.set_limit(self.limit, m);
        let doubled = PROBE_AFTER.0 * 2_f32.powi(i32::from(self.confirmed.min(8)));
        self.probe_after = (doubled * (f32::from(refusals) / 2.0).max(1.0)).min(PROBE_AFTER.1);
        let rest = shut * if self.confirmed == 0 { 10.0 } else { 40.0 };
        // After a short time shut, a rise is noticed within ten minutes.
        let rest = if shut < 120.0 { rest.min(500.0) } else { rest };
        self.sent = 0;
        self.probe_from = m.now + f64::from(rest.max(30.0));
        self.probe_by = m.now + f64::from(PROBE_LATEST.0.max(PROBE_LATEST.1 / self.limit).max(rest));
        if self.is_worth_halving(m.now) {
            self.probe_after = if shut > 5.0 { 3.0 * shut * self.limit } else { 0.0 };
            // Until then, what was saved up is spent and what still counts is forgotten.
            self.probe_from = m.now + f64::from(self.hold_time());
        }
    }

    fn note_refused(&mut self, rate: f32, shut: f32, now: f64) {
        // A ban is not provoked again at the same rate for twice as long as the last time.
        let doubled = 2_f32.powi(i32::from(self.ban_count.min(6)));
        let life = ((12.0 * shut).max(REFUSED_FOR) * doubled).max(2.0 * PROBE_LATEST.1 / self.limit);
        (self.refused_rate, self.refused_until) = (rate, now + f64::from(life));
    }

    fn knows_refused(&self, now: f64) -> bool {
        self.refused_rate < f32::INFINITY && now < self.refused_until
    }

    fn rate(&self) -> f32 {
        self.latency.bound(self.rate)
    }

    pub(super) fn view(&self) -> LimitView {
        let stage = match self.phase {
            _ if self.run.is_on => LimitStage::Refused,
            _ if self.rate() < self.rate => LimitStage::Slow,
            AutoPhase::Start => LimitStage::Starting,
            AutoPhase::Hold => LimitStage::Holding,
            AutoPhase::Try(_) => LimitStage::Trying,
        };
        let refused_at = Timestamp::from_micros((self.run.since * 1e6) as u64);
        LimitView {
            stage,
            limit: (self.limit < f32::INFINITY).then(|| delay(self.limit)),
            pace: self.delay(),
            confirmed: self.confirmed,
            refused: (self.run.since > 0.0).then(|| (delay(self.run.rate), refused_at)),
        }
    }

    pub(super) fn delay(&self) -> Duration {
        delay(self.rate())
    }

    /// The learned delay; zero before the first refusal.
    pub(super) fn learned(&self) -> Duration {
        if self.phase == AutoPhase::Start { Duration::ZERO } else { self.delay() }
    }

    /// Requests that may be in flight: one while the host refuses.
    pub(super) fn places(&self, configured: u32) -> u32 {
        if self.run.is_on { 1 } else { self.places.bound(configured) }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn probing(&self) -> bool {
        matches!(self.phase, AutoPhase::Try(_))
    }

    pub(super) fn errors(&self) -> u16 {
        if self.run.is_on { self.run.canaries.into() } else { 0 }
    }

    pub(super) fn successes(&self) -> u16 {
        u16::try_from(self.given).unwrap_or(u16::MAX)
    }
}

fn seconds(now: Timestamp) -> f64 {
    now.as_micros() as f64 / 1e6
}

fn delay(rate: f32) -> Duration {
    Duration::from_secs_f32((1.0 / rate).clamp(0.0, 86_400.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_costs_little() {
        assert!(size_of::<Auto>() <= 320, "{}", size_of::<Auto>());
    }
}
