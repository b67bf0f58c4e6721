//! Finds the limit of a host and stays just below it.
//!
//! A limiter hands out a fixed amount per time. So between two moments at which it had nothing left, the number of
//! accepted requests by the time is its limit: two refusals measure it. What is known is a bracket: the limit, a pace
//! that held, and a higher one that was refused. There are three states:
//! - **Refused** (`refusal`): one request at a time is a canary, after waits that fit what people configure. The first
//!   success says how long the host was shut, and with that what the refusal means for the bracket.
//! - **Try**: a pace must hold for a while, or for longer than the host was shut. Then the next one is tried, part of
//!   the way to the refused one, until the rest of the way is not worth a refusal. At first contact the limit is
//!   unknown, and the pace doubles until the first refusal.
//! - **Hold**: just below the limit. Now and then a probe finds out whether it has risen.
//!
//! A host that was shut for long has a window or bans. If it gives far more than before within the time that it was
//! shut, it bans: then the refused pace is kept away from. A refusal may also be about requests at the same time, or
//! about nothing (`causes`), slow answers lower the pace before a refusal does (`latency`), and some refusals are in
//! disguise (`disguise`).
//!
//! Numbers without another source come from simulation (`curtsy simulate --matrix`); changing any of them by half moves
//! goodput by about a point. Rates are requests per second, times are seconds. No clock, no dice: the same answers at
//! the same times lead to the same pace.

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
use super::steps::{PaceStep, before};
use super::{Epoch, PaceReport, What};
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;

/// The first pace: half a second apart, as careful clients do it.
pub const FIRST_DELAY: Duration = Duration::from_millis(500);
/// At first contact, a pace is doubled after this many sends and seconds.
const DOUBLED_AFTER: (u16, f32) = (5, 1.0);
/// Later, a pace has held after this many sends and seconds, or a little more than the host's cycle. The time is
/// shorter, down to a quarter, where the limit allows the third number of requests in it.
const HELD_AFTER: (u16, f32, f32) = (12, 20.0, 40.0);
/// Stays this far below the limit (BBR leaves a policer 1 %; with that, there were a fifth more refusals), and this
/// much more for each ban, up to ten times.
const MARGIN: f32 = 0.017;
const MARGIN_OF_BAN: f32 = 0.01;
/// A refused pace is remembered for half an hour, doubled with each ban: hosts change their limits.
const REFUSED_FOR: f32 = 1800.0;
/// Requests between two probes: the first number, doubled with each probe that finds nothing, up to the second; but no
/// more than half an hour or the third number.
const PROBE_AFTER: (f32, f32, f32) = (90.0, 600.0, 400.0);
/// The factor from one pace to the next, if none was refused, and that of a probe.
const UP: f32 = 1.5;
const PROBE: f32 = 1.35;
/// The way from the limit to a refused pace that is tried next, as a power: a little more than half of it, and a third
/// where a refusal is costly (matrix: half for all costs 0.2 points and 0.5 refusals).
const PART: (f32, f32) = (0.6, 0.33);
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

/// A pace on trial.
#[derive(Clone, Copy, Debug, Default)]
struct PaceTrial {
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
    /// A pace is on trial: at first contact, above the limit, or at a limit that is only an estimate.
    tries: bool,
    rate: f32,
    /// Infinite before the first refusal.
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
    attempt: PaceTrial,
    /// When the next probe is due.
    next_at: f64,
    /// Probes that found nothing since the limit last changed.
    confirmed: u16,
    /// The limit was raised since a pace below it was refused.
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
        Auto { epoch, refused_epoch: epoch, tries: true, rate, limit, refused_rate, ..Auto::default() }
    }

    /// Counts a request; `in_flight` includes it.
    pub(super) fn sent(&mut self, in_flight: u32, m: &Moment) -> Epoch {
        let (delay, gap) = (1.0 / m.rate, (m.now - self.last_sent) as f32);
        let waited = gap <= 1.25 * delay + 0.01 || in_flight >= self.places(m.places);
        if self.measured_from == 0.0 {
            self.measured_from = m.now;
            self.rate = if self.limit == f32::INFINITY { self.rate.max(m.rate) } else { self.rate };
        } else if !self.run.is_on && !waited {
            self.measured_from += f64::from(gap - delay);
        } else if !self.run.is_on {
            let gap = gap.min(2.0 * delay);
            self.attempt.sends = self.attempt.sends.saturating_add(1);
            self.attempt.seconds += gap;
            self.attempt.excess += if self.limit < f32::INFINITY { 1.0 - self.limit * gap } else { 0.0 };
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
        self.causes.accepted(epoch.in_flight, self.sends);
        if self.run.is_on {
            if !before(epoch.number, self.refused_epoch) {
                self.reopen(m);
            }
            return;
        }
        self.latency.heard(took);
        if self.bans == 0 && self.gives_far_more(m) {
            self.know_ban(m);
        } else if self.tries && self.has_held() {
            self.prove(m);
        } else if !self.tries && m.now >= self.next_at && self.rate < m.fastest {
            self.probe(m);
        }
    }

    /// Whether a success now is only counted.
    pub(super) fn is_calm(&self, m: &Moment) -> bool {
        let knows_all = self.rate >= m.fastest && (!self.tries || self.limit == f32::INFINITY);
        let is_steady = knows_all || !self.tries && m.now < self.next_at;
        is_steady && !self.run.is_on && !self.latency.is_due() && !self.causes.limits_places()
    }

    fn attempt(&mut self, rate: f32, needed: f32, m: &Moment) {
        (self.tries, self.rate) = (true, rate.min(m.fastest));
        self.attempt = PaceTrial { needed, ..PaceTrial::default() };
    }

    /// Whether a pace above the limit is on trial.
    fn is_above_limit(&self) -> bool {
        self.tries && self.rate > 1.001 * self.limit
    }

    fn has_held(&self) -> bool {
        let PaceTrial { sends, seconds, excess, needed } = self.attempt;
        if self.limit == f32::INFINITY {
            return sends >= DOUBLED_AFTER.0 && seconds >= DOUBLED_AFTER.1;
        }
        sends >= HELD_AFTER.0 && seconds >= self.hold_time() && excess >= needed
    }

    fn hold_time(&self) -> f32 {
        let least = (HELD_AFTER.2 / self.limit).clamp(0.25 * HELD_AFTER.1, HELD_AFTER.1);
        (1.1 * self.cycle()).clamp(least, LONGEST_CYCLE)
    }

    /// A pace has held: tries the next one.
    fn prove(&mut self, m: &Moment) {
        if self.limit == f32::INFINITY {
            if self.rate < m.fastest {
                self.epoch = self.epoch.wrapping_add(1);
                self.attempt(2.0 * self.rate, 0.0, m);
            }
            return;
        }
        if self.rate >= 0.999 * self.refused_rate {
            self.refused_rate = f32::INFINITY;
        }
        if self.rate > 1.03 * self.limit {
            (self.confirmed, self.raised) = (0, true);
        }
        let top = if self.rate >= m.fastest { 1.0 / (1.0 - MARGIN) } else { 1.0 };
        self.set_limit(self.limit.max(self.rate * top), m);
        self.climb(m);
    }

    /// Tries the next higher pace, if that is worth a refusal.
    fn climb(&mut self, m: &Moment) {
        if self.rate >= m.fastest || self.knows_refused(m.now) && !self.is_worth_halving(m.now) {
            return self.schedule(self.cost, m);
        }
        self.attempt(self.limit * self.step(m.now).min(UP), f32::NEG_INFINITY, m);
    }

    fn probe(&mut self, m: &Moment) {
        if self.is_worth_halving(m.now) {
            self.attempt(self.limit * self.step(m.now), f32::NEG_INFINITY, m);
        } else if self.bans == 0 || !self.knows_refused(m.now) {
            self.attempt(self.limit * PROBE, self.free_excess(), m);
        }
    }

    /// The factor that leads part of the way to a refused pace.
    fn step(&self, now: f64) -> f32 {
        let part = if self.bans == 0 && self.cost < SHORT { PART.0 } else { PART.1 };
        if self.knows_refused(now) { (self.refused_rate / self.limit).powf(part) } else { UP }
    }

    /// Whether a refused pace is so far above the limit that finding out more is worth a refusal: the costlier one is,
    /// the less a few percent are worth it. A ban of 10 s costs what 3 % bring in five minutes.
    fn is_worth_halving(&self, now: f64) -> bool {
        let (worth, least) = if self.bans > 0 { (300.0, 0.1) } else { (1000.0, 0.02) };
        let tight = 1.0 + (self.cost / worth).clamp(least, 0.6);
        self.knows_refused(now) && self.refused_rate > tight * self.limit
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
        self.tries = false;
        self.rate = self.limit * (1.0 - MARGIN - MARGIN_OF_BAN * f32::from(self.bans.saturating_sub(1).min(10)));
    }

    /// Holds the limit, and says when to probe again: later after each probe in vain, and after costly refusals.
    fn schedule(&mut self, shut: f32, m: &Moment) {
        self.set_limit(self.limit, m);
        let requests = (PROBE_AFTER.0 * doubled(self.confirmed)).min(PROBE_AFTER.1);
        let latest = REFUSED_FOR.max(PROBE_AFTER.2 / self.limit);
        // After a short time shut, the next probe comes within ten minutes (matrix: 500 to 650 s differ by 0.04
        // refusals).
        let rest = if shut < 120.0 { (40.0 * shut).min(540.0) } else { 40.0 * shut };
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

    /// Whether the host gives far more than before within the time that it was shut: then it was a ban, not a window.
    fn gives_far_more(&self, m: &Moment) -> bool {
        let open = (m.now - self.opened_at) as f32;
        self.shut > SHORT && self.gave > 0 && self.given >= 2 * self.gave + 2 && open < 0.9 * self.shut
    }

    fn know_ban(&mut self, m: &Moment) {
        let open = (m.now - self.opened_at) as f32;
        (self.bans, self.shut) = (1, 0.0);
        if self.tries && self.first > 0.0 {
            // What the first opening gave beyond the limit was saved up.
            let limit = (self.given - self.gave) as f32 / (open - self.first).max(0.5 * open);
            self.set_limit(limit.min(self.rate), m);
            self.credit = (self.gave as f32 - self.limit * self.first).clamp(1.0, 200.0);
            self.climb(m);
        }
    }

    fn rate(&self) -> f32 {
        self.latency.share() * self.rate
    }

    pub(super) fn delay(&self) -> Duration {
        delay(self.rate())
    }

    /// The learned delay; zero before the first refusal.
    pub(super) fn learned(&self) -> Duration {
        if self.limit == f32::INFINITY { Duration::ZERO } else { self.delay() }
    }

    /// Requests that may be in flight: one while the host refuses.
    pub(super) fn places(&self, configured: u32) -> u32 {
        if self.run.is_on { 1 } else { self.causes.places(configured) }
    }

    pub(super) fn epoch(&self) -> u32 {
        self.epoch
    }

    pub(super) fn probing(&self) -> bool {
        self.tries && self.limit < f32::INFINITY
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

    const NOW: f64 = 10_000.0;

    fn moment(now: f64) -> Moment {
        Moment { now, fastest: 20.0, slowest: 0.01, rate: 1.0, places: 8, longest_wait: 900.0 }
    }

    /// A host whose limit is believed to be one request a second.
    fn limited() -> Auto {
        Auto::starting_with(Duration::from_secs(1), 0, Timestamp::from_millis(9_000_000))
    }

    #[test]
    fn only_after_a_long_time_shut_is_a_host_not_probed_for_long() {
        for (shut, least, most) in [(0.0, 90.0, 90.0), (61.0, 500.0, 600.0), (300.0, 3_600.0, 14_400.0)] {
            let mut auto = limited();
            auto.schedule(shut, &moment(NOW));
            let wait = auto.next_at - NOW;
            assert!((least..=most).contains(&wait), "shut for {shut} s: {wait} s");
        }
    }

    /// The request that reopens a host that had banned says little about its limit.
    #[test]
    fn a_ban_during_a_try_lowers_the_pace_by_half_at_most() {
        let mut auto = Auto { tries: true, bans: 1, credit: 200.0, opened_at: NOW - 60.0, given: 30, ..limited() };
        auto.throttled(Epoch::default(), &moment(NOW));
        auto.throttled(Epoch { number: auto.epoch, ..Epoch::default() }, &moment(NOW + 10.0));
        auto.reopen(&moment(NOW + 30.0));
        assert_eq!((auto.bans, auto.tries), (2, true));
        assert!((0.5..=0.97).contains(&auto.limit), "{}", auto.limit);
    }

    /// Infinity times no time is no number.
    #[test]
    fn excess_is_a_number_at_first_contact() {
        let mut auto = Auto::at_epoch(0);
        (0..5).for_each(|_| _ = auto.sent(1, &moment(NOW)));
        assert_eq!((auto.attempt.sends, auto.attempt.excess), (4, 0.0));
    }
}
