//! Finds the limit of a host and stays just below it.
//!
//! A limiter hands out a fixed amount per time. So between two moments at which it had nothing left, the number of
//! accepted requests by the time is the limit: two refusals measure it. Around this idea:
//! - **Start**: two requests a second, doubled while all goes well, until the first refusal.
//! - **Refused**: one request at a time is a canary, after waits that fit what people configure (`refusal`).
//! - **Try**: a higher pace counts once it has held for a while; then the next one, or half-way to a refused one.
//! - **Hold**: just below the limit, with rare probes whether it has risen.
//! - A refusal is not always about pace: it may be about requests at the same time, or noise (`causes`).
//! - Slow answers lower the pace before a refusal does (`latency`), and some refusals are in disguise (`disguise`).
//!
//! Numbers without another source come from simulation (`curtsy simulate --matrix`): half of any costs about a point.
//! Rates are requests per second, times are seconds. The same answers at the same times lead to the same pace.

mod causes;
mod disguise;
mod latency;
mod record;
mod refusal;

use std::time::Duration;

use self::causes::Causes;
use self::disguise::Disguise;
use self::latency::LatencyGuard;
use self::refusal::RefusalRun;
use super::steps::{Floor, PaceStep, before};
use super::{Epoch, LimitStage, LimitView, PaceMemory, PaceReport, What};
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;

/// The first pace: half a second apart, as careful clients do it. Doubled after this many successes and seconds.
pub const FIRST_DELAY: Duration = Duration::from_millis(500);
const DOUBLED_AFTER: (u16, f64) = (5, 1.0);
/// Stays this far below the limit (BBR leaves a policer 1 %; with that, there were a fifth more refusals), and this
/// much more for each ban, up to ten times.
const MARGIN: f32 = 0.017;
const MARGIN_OF_BAN: f32 = 0.01;
/// A refused pace is remembered for half an hour: hosts change their limits.
const REFUSED_FOR: f32 = 1800.0;
/// Requests between two probes: the first number, doubled with each probe that finds nothing, up to the second; but no
/// more than half an hour or the third number.
const PROBE_AFTER: (f32, f32, f32) = (80.0, 600.0, 200.0);
/// The factor from one try to the next, also near a ban, and that of a probe. A larger probe is refused as often and
/// lasts shorter.
const UP: (f32, f32) = (1.5, 1.25);
const PROBE: f32 = 1.35;
/// The way from the limit to a refused pace that is tried next, as a power: a little more than half of it, and a third
/// where a refusal is costly (matrix: half for all costs 0.2 points and 0.3 refusals).
const PART: (f32, f32) = (0.6, 0.33);
/// A pace has held after this many sends and this time, or a little more than the host's cycle. The time is shorter,
/// down to a quarter, where the limit allows that many requests in it.
const HELD_AFTER: (u16, f32, f32) = (12, 20.0, 80.0);
/// Being shut for longer than this shows a window or a ban, not a bucket that fills.
const SHORT: f32 = 3.0;
/// What is tried or waited for at most, to know whether a pace holds for a whole window: five minutes.
const LONGEST_CYCLE: f32 = 300.0;

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
    /// Tries whether an estimate holds; after a long time shut also whether the host bans.
    Check,
    /// Tries a higher pace, up to one that was refused.
    Climb,
    /// Tries whether the limit has risen.
    Probe,
}

/// A pace on trial.
#[derive(Clone, Copy, Debug, Default)]
struct Attempt {
    sends: u16,
    seconds: f32,
    /// Sends more than the limit would have made, and how many it takes to prove anything.
    excess: f32,
    needed: f32,
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
    sends: u32,
    last_sent: f64,
    /// Requests accepted since the last refusal. Time without any to send does not count.
    measured_from: f64,
    accepted: u32,
    /// Requests accepted since the host reopened, and in the opening before.
    opened_at: f64,
    given: u32,
    gave: u32,
    /// The time that the first opening took.
    first: f32,
    attempt: Attempt,
    /// Hold: when the next probe is due. Start: when the pace may be doubled.
    next_at: f64,
    /// Probes that found nothing since the limit last changed. Start: successes at this pace.
    confirmed: u16,
    /// The limit was raised since it was last refused.
    raised: bool,
    /// The host bans: it shuts for longer than the excess takes. Zero if not known, else one more than bans since.
    bans: u8,
    /// Requests that the host grants at once after a quiet time.
    credit: f32,
    run: RefusalRun,
    /// How long the host was shut: the longest time and the last long time, both fading.
    shut: f32,
    cost: f32,
    /// The wait that ended the last refusals.
    recovery: f32,
    causes: Causes,
    latency: LatencyGuard,
    disguise: Disguise,
}

impl Auto {
    /// Knows nothing, and learns nothing from requests sent before this epoch.
    pub(super) fn at_epoch(epoch: u32) -> Self {
        let (limit, refused_rate, rate) = (f32::INFINITY, f32::INFINITY, 1.0 / FIRST_DELAY.as_secs_f32());
        Auto { epoch, refused_epoch: epoch, rate, limit, refused_rate, ..Auto::default() }
    }

    /// Begins with a delay that was learned earlier or by another policy; zero if none was.
    pub(super) fn starting_with(learned: Duration, epoch: u32, now: Timestamp) -> Self {
        let auto = Auto::at_epoch(epoch);
        if learned.is_zero() {
            return auto;
        }
        let rate = 1.0 / learned.as_secs_f32();
        let next_at = seconds(now) + f64::from((PROBE_AFTER.0 / rate).clamp(30.0, REFUSED_FOR));
        Auto { phase: AutoPhase::Hold, rate, limit: rate, next_at, ..auto }
    }

    /// The floor is the delay that was refused.
    pub(super) fn remembering(learned: Duration, floor: &Floor, now: Timestamp) -> Self {
        let mut auto = Auto::starting_with(learned, 0, now);
        if floor.delay > 0 && now < floor.until {
            auto.note_refused(1000.0 / floor.delay as f32, seconds(now));
        }
        auto
    }

    pub(super) fn memory(&self, now: Timestamp) -> Option<PaceMemory> {
        let (refused, life) = self.refused(now).unwrap_or_default();
        let floor_until = if life.is_zero() { Timestamp::START } else { now + life };
        let refuses = if self.run.is_on { 0.7 * self.run.rate } else { f32::INFINITY };
        let learned = delay(self.limit.min(self.rate).min(refuses));
        let memory = PaceMemory { learned, floor: refused, floor_life: life, floor_until, updated: now };
        (self.phase != AutoPhase::Start || self.run.is_on).then_some(memory)
    }

    /// Counts a request; `in_flight` includes it.
    pub(super) fn sent(&mut self, in_flight: u32, m: &Moment) -> Epoch {
        let (delay, gap) = (1.0 / m.rate, (m.now - self.last_sent) as f32);
        let waited = gap <= 1.25 * delay + 0.01 || in_flight >= self.places(m.places);
        if self.measured_from == 0.0 {
            (self.measured_from, self.next_at) = (m.now, self.next_at.max(m.now + DOUBLED_AFTER.1));
            self.rate = if self.phase == AutoPhase::Start { self.rate.max(m.rate) } else { self.rate };
        } else if !self.run.is_on && !waited {
            self.measured_from += f64::from(gap - delay);
        } else if !self.run.is_on && self.probing() {
            let gap = gap.min(2.0 * delay);
            self.attempt.sends = self.attempt.sends.saturating_add(1);
            self.attempt.seconds += gap;
            self.attempt.excess += 1.0 - self.limit * gap;
        }
        (self.last_sent, self.sends) = (m.now, self.sends.wrapping_add(1));
        let in_flight = u8::try_from(in_flight).unwrap_or(u8::MAX);
        Epoch { number: self.epoch, in_flight, waited, retry: false }
    }

    pub(super) fn heard(&mut self, heard: &PaceReport, m: &Moment) -> Option<PaceStep> {
        let before = self.rate();
        match self.unmask(heard, m) {
            PaceSignal::Throttled => return self.throttled(heard.epoch, m),
            PaceSignal::Success => self.served(heard.epoch, heard.took.as_secs_f32(), m),
            PaceSignal::Failed | PaceSignal::Neutral | PaceSignal::Suspect => return None,
        }
        let what = if self.rate() < before { What::Slowed } else { What::Probing };
        (self.rate() != before).then_some(PaceStep { what, window: None })
    }

    fn served(&mut self, epoch: Epoch, took: f32, m: &Moment) {
        self.accepted += 1;
        self.given += 1;
        self.causes.heard(0.0);
        self.causes.accepted(epoch.in_flight);
        if self.run.is_on {
            if !before(epoch.number, self.refused_epoch) {
                self.reopen(m);
            }
            return;
        }
        self.latency.heard(took, self.rate);
        self.judge_places(epoch.waited, m);
        match self.phase {
            AutoPhase::Start => self.double(epoch, m),
            AutoPhase::Hold if m.now >= self.next_at && self.rate < m.fastest => self.probe(m),
            AutoPhase::Hold => {}
            AutoPhase::Check | AutoPhase::Climb | AutoPhase::Probe => self.prove(m),
        }
    }

    /// Whether a success now is only counted.
    pub(super) fn is_calm(&self, m: &Moment) -> bool {
        let is_steady = match self.phase {
            AutoPhase::Start => self.rate >= m.fastest,
            AutoPhase::Hold => self.rate >= m.fastest || m.now < self.next_at,
            AutoPhase::Check | AutoPhase::Climb | AutoPhase::Probe => false,
        };
        is_steady && !self.run.is_on && !self.latency.is_due() && !self.causes.limits_places()
    }

    fn double(&mut self, epoch: Epoch, m: &Moment) {
        let is_new = epoch.waited && epoch.number == self.epoch;
        self.confirmed = self.confirmed.saturating_add(is_new.into());
        let is_proven = self.confirmed >= DOUBLED_AFTER.0 && m.now >= self.next_at;
        if is_proven && self.latency.is_quiet() && self.rate < m.fastest {
            (self.confirmed, self.next_at) = (0, m.now + DOUBLED_AFTER.1);
            self.epoch = self.epoch.wrapping_add(1);
            self.rate = (2.0 * self.rate).min(m.fastest);
        }
    }

    fn probe(&mut self, m: &Moment) {
        if self.is_worth_halving(m.now) {
            let rate = self.limit * (self.refused_rate / self.limit).powf(self.part());
            self.attempt(AutoPhase::Climb, rate, (1.3 * self.credit).min(40.0) + 1.0, m);
        } else if self.bans == 0 || !self.knows_refused(m.now) {
            self.attempt(AutoPhase::Probe, self.limit * PROBE, self.free_excess(), m);
        }
    }

    fn attempt(&mut self, phase: AutoPhase, rate: f32, needed: f32, m: &Moment) {
        (self.phase, self.rate) = (phase, rate.min(m.fastest));
        self.attempt = Attempt { needed, ..Attempt::default() };
    }

    /// Ends a try that has held for long enough.
    fn prove(&mut self, m: &Moment) {
        let Attempt { sends, seconds, excess, needed } = self.attempt;
        if self.sees_ban(m) || sends < HELD_AFTER.0 || seconds < self.hold_time() || excess < needed {
            return;
        }
        // A check may be faster than the estimate, to look for bans; then it proves less.
        let checks = self.phase == AutoPhase::Check;
        let rate = self.limit.max(if checks { 0.7 * self.rate } else { self.rate });
        if rate >= 0.999 * self.refused_rate {
            self.refused_rate = f32::INFINITY;
        }
        if rate > 1.03 * self.limit {
            (self.confirmed, self.raised) = (0, true);
        }
        if rate >= m.fastest {
            self.set_limit(rate / (1.0 - MARGIN), m);
            self.schedule(0.0, m);
        } else {
            self.set_limit(rate, m);
            self.climb(m);
        }
    }

    /// Whether the host gives far more than before within the time that it was shut: then it was a ban, not a window.
    fn sees_ban(&mut self, m: &Moment) -> bool {
        let open = (m.now - self.opened_at) as f32;
        let gives_more = self.gave > 0 && self.given >= 2 * self.gave + 2;
        if self.bans > 0 || self.shut <= SHORT || !gives_more || open >= 0.9 * self.shut {
            return false;
        }
        (self.bans, self.shut) = (1, 0.0);
        if self.phase == AutoPhase::Check {
            // What the first opening gave beyond the limit was saved up.
            let limit = (self.given - self.gave) as f32 / (open - self.first).max(0.5 * open);
            self.set_limit(self.limit.max(limit.min(self.rate)), m);
            self.credit = (self.gave as f32 - self.limit * self.first).clamp(1.0, 200.0);
            self.climb(m);
        }
        true
    }

    /// Tries the next higher pace, if that is worth a refusal.
    fn climb(&mut self, m: &Moment) {
        let step = if self.bans > 0 && self.refused_rate < 2.2 * self.limit { UP.1 } else { UP.0 };
        if !self.knows_refused(m.now) {
            self.refused_rate = f32::INFINITY;
        } else if !self.is_worth_halving(m.now) {
            return self.schedule(self.cost, m);
        }
        let step = (self.refused_rate / self.limit).powf(self.part()).min(step);
        self.attempt(AutoPhase::Climb, self.limit * step, f32::NEG_INFINITY, m);
    }

    fn part(&self) -> f32 {
        if self.bans == 0 && self.cost < SHORT { PART.0 } else { PART.1 }
    }

    /// Whether a refused pace is so far above the limit that finding out more is worth a refusal: the costlier one is,
    /// the less a few percent are worth it. A ban of 10 s costs what 3 % bring in five minutes.
    fn is_worth_halving(&self, now: f64) -> bool {
        let (worth, least) = if self.bans > 0 { (600.0, 0.1) } else { (1000.0, 0.02) };
        let tight = 1.0 + (self.cost / worth).clamp(least, 0.6);
        self.knows_refused(now) && self.refused_rate > tight * self.limit
    }

    fn hold_time(&self) -> f32 {
        let least = (HELD_AFTER.2 / self.limit).clamp(0.25 * HELD_AFTER.1, HELD_AFTER.1);
        // Far below a refused pace, half of the time is enough.
        let least = if self.refused_rate > 2.0 * self.limit { 0.5 * least } else { least };
        (1.1 * self.cycle()).clamp(least, LONGEST_CYCLE)
    }

    /// Sends above the limit that prove nothing: saved-up credit, or what a window gives before it is used up.
    fn free_excess(&self) -> f32 {
        (1.3 * self.credit + 3.0).max(0.75 * self.limit * self.cycle().min(LONGEST_CYCLE))
    }

    /// The time after which the host gives again what it gave; zero if it only fills a bucket.
    fn cycle(&self) -> f32 {
        if self.shut > SHORT { self.shut } else { 0.0 }
    }

    fn set_limit(&mut self, limit: f32, m: &Moment) {
        self.limit = limit.max(m.slowest).min(m.fastest / (1.0 - MARGIN));
        self.phase = AutoPhase::Hold;
        self.rate = self.limit * (1.0 - MARGIN - MARGIN_OF_BAN * f32::from(self.bans.saturating_sub(1).min(10)));
    }

    /// Holds the limit, and says when to probe again: later after each probe in vain, and after costly refusals.
    fn schedule(&mut self, shut: f32, m: &Moment) {
        self.set_limit(self.limit, m);
        let requests = (PROBE_AFTER.0 * doubled(self.confirmed)).min(PROBE_AFTER.1);
        let latest = REFUSED_FOR.max(PROBE_AFTER.2 / self.limit);
        // After a short time shut, a rise is noticed within ten minutes.
        let rest = if shut < 120.0 { (40.0 * shut).min(500.0) } else { 40.0 * shut };
        let mut wait = (requests / self.limit).min(latest).max(rest).max(30.0);
        if self.is_worth_halving(m.now) {
            // Until then, what was saved up is spent and what still counts is forgotten.
            wait = self.hold_time().max(if shut > 5.0 { 2.0 * shut } else { 0.0 });
        }
        self.next_at = m.now + f64::from(wait);
    }

    fn note_refused(&mut self, rate: f32, now: f64) {
        // A ban is not provoked again at the same rate for twice as long as the last time.
        let life = REFUSED_FOR * doubled(self.bans.saturating_sub(1).into());
        (self.refused_rate, self.refused_until) = (rate, now + f64::from(life));
    }

    fn knows_refused(&self, now: f64) -> bool {
        self.refused_rate < f32::INFINITY && now < self.refused_until
    }

    /// The delay that was refused, and for how long this counts.
    fn refused(&self, now: Timestamp) -> Option<(Duration, Duration)> {
        let life = Duration::from_secs_f64((self.refused_until - seconds(now)).clamp(0.0, 86_400.0));
        (self.refused_rate > self.limit && self.knows_refused(seconds(now))).then(|| (delay(self.refused_rate), life))
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
            AutoPhase::Check | AutoPhase::Climb | AutoPhase::Probe => LimitStage::Trying,
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

    pub(super) fn delay(&self) -> Duration {
        delay(self.rate())
    }

    /// The learned delay; zero before the first refusal.
    pub(super) fn learned(&self) -> Duration {
        if self.phase == AutoPhase::Start { Duration::ZERO } else { self.delay() }
    }

    /// Requests that may be in flight: one while the host refuses.
    pub(super) fn places(&self, configured: u32) -> u32 {
        if self.run.is_on { 1 } else { self.causes.places(configured) }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn probing(&self) -> bool {
        matches!(self.phase, AutoPhase::Check | AutoPhase::Climb | AutoPhase::Probe)
    }

    pub(super) fn errors(&self) -> u16 {
        if self.run.is_on { self.run.canaries.into() } else { 0 }
    }

    pub(super) fn successes(&self) -> u16 {
        u16::try_from(self.given).unwrap_or(u16::MAX)
    }
}

/// Doubled so many times, up to 64-fold.
fn doubled(times: u16) -> f32 {
    2_f32.powi(times.min(6).into())
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
