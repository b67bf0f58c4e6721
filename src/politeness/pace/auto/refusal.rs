//! Refusals: how long to wait, when the host has reopened, and what that says about its limit.

use std::time::Duration;

use super::{Auto, AutoPhase, Epoch, Moment, PaceStep, SHORT, What, before, disguise};

/// Just more than the round times that people configure; 10 s is the ban of Apache's mod_evasive. From simulation:
/// without 5 s, real limiters lose half a point; 31 s after 10 s costs half a refusal per 1000 more.
const WAITS: [f32; 7] = [1.0, 5.0, 10.0, 61.0, 121.0, 301.0, 901.0];
/// On a fast host waits only double: a minute lost there is more than a few refusals. Fast is a limit above the first
/// number (matrix: 4 costs 0.3 points), or this many requests before the first refusal (50 or 200: 0.1 refusals more).
const FAST: (f32, u32) = (2.0, 100);
/// With Retry-After a host may ask for more than its window. In simulation twice as much loses a point with a host that
/// asks for ten times its window, and half as much loses 0.2 points.
const LONGEST_TOLD: f32 = 62.0;

/// Refusals in a row, until the first success. Their epoch separates them from older requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalRun {
    pub(super) is_on: bool,
    /// Requests sent one at a time that were refused, with the first; and all that were refused.
    pub(super) canaries: u8,
    pub(super) refusals: u16,
    /// The fewest in flight.
    pub(super) in_flight: u8,
    pub(super) since: f64,
    /// The pace in force at the first refusal, and the successes before it.
    pub(super) rate: f32,
    pub(super) after: u32,
    wait: f32,
    first_wait: f32,
}

impl Auto {
    pub(super) fn throttled(&mut self, epoch: Epoch, m: &Moment) -> Option<PaceStep> {
        self.causes.heard(1.0);
        self.run.refusals = self.run.refusals.saturating_add(1);
        if before(epoch.number, self.refused_epoch) {
            self.run.in_flight = self.run.in_flight.min(epoch.in_flight);
            return None;
        }
        if self.run.is_on {
            self.run.canaries = self.run.canaries.saturating_add(1);
            self.run.wait = self.next_wait().min(m.longest_wait);
        } else {
            let wait = match self.phase {
                _ if self.disguise.is_on_trial => disguise::WAITS[0],
                AutoPhase::Start => (1.0 / m.rate).max(1.0),
                // A ban is waited out at once.
                _ => (2.0 / self.limit.min(m.rate)).max(self.recovery * if self.bans > 0 { 1.0 } else { 0.2 }),
            };
            let (in_flight, rate, after, since) = (epoch.in_flight, m.rate, self.given, m.now);
            let wait = wait.min(m.longest_wait);
            let first = RefusalRun { is_on: true, canaries: 1, refusals: 1, ..RefusalRun::default() };
            self.run = RefusalRun { in_flight, since, rate, after, wait, first_wait: wait, ..first };
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.refused_epoch = self.epoch;
        Some(PaceStep { what: What::Slowed, window: Some(Duration::from_secs_f32(self.run.wait)) })
    }

    fn next_wait(&self) -> f32 {
        let RefusalRun { canaries, wait, .. } = self.run;
        let is_fast = if self.phase == AutoPhase::Start { self.accepted >= FAST.1 } else { self.limit > FAST.0 };
        match () {
            () if self.disguise.is_on_trial => disguise::WAITS[usize::from(canaries - 1).min(2)],
            () if is_fast => (2.0 * wait).max(1.0),
            () => WAITS.into_iter().find(|time| *time > 1.5 * wait).unwrap_or(f32::INFINITY),
        }
    }

    /// The host serves again.
    pub(super) fn reopen(&mut self, m: &Moment) {
        let run = self.run;
        let shut = (m.now - run.since) as f32;
        let long = shut > SHORT && (run.canaries >= 2 || self.bans > 0 || shut > SHORT + 3.0 * run.first_wait);
        let short = run.canaries == 1 && !long;
        if run.canaries >= 2 {
            self.recovery = run.wait;
        }
        if long {
            (self.cost, self.gave) = (shut, self.given);
            if self.bans == 0 {
                self.shut = (0.85 * self.shut).max(if run.canaries >= 2 { shut } else { shut.min(LONGEST_TOLD) });
            }
        } else {
            self.shut *= 0.97;
            self.cost *= 0.8;
        }
        self.run.is_on = false;
        if !self.is_about_places(short, m) && !self.is_noise(short, shut, m) {
            self.learn(shut, long, m);
            (self.measured_from, self.accepted) = (run.since, 0);
        }
        (self.opened_at, self.given) = (m.now, 0);
    }

    fn learn(&mut self, shut: f32, long: bool, m: &Moment) {
        let (accepted, given, rate) = (self.accepted as f32, self.given as f32, self.run.rate);
        let time = |from: f64, to: f64| ((to - from) as f32).max(1e-3);
        let measured = time(self.measured_from, self.run.since);
        let banned = self.bans > 0 && long;
        self.bans = self.bans.saturating_add(u8::from(banned));
        match self.phase {
            AutoPhase::Start => self.learn_first(long, time(self.measured_from, m.now), m),
            AutoPhase::Probe if self.attempt.excess <= self.free_excess() => {
                // What was refused may have been beyond what the host saves up: the limit can be the same.
                self.credit = self.attempt.excess.max(0.7 * self.credit).min(200.0);
                self.confirmed = self.confirmed.saturating_add(1);
                self.schedule(shut, m);
            }
            AutoPhase::Climb | AutoPhase::Probe => {
                self.confirmed = self.confirmed.saturating_add(1);
                // Between two refusals of a host that only fills a bucket, nothing could be saved up.
                let unclear = if self.bans > 0 { time(self.measured_from, self.opened_at) } else { 0.0 };
                let exact = self.shut <= SHORT && unclear <= 0.1 * measured && (8.0..=120.0).contains(&accepted);
                // If most of the time the pace was lower, the measure says little about this one.
                let is_clear = exact && self.attempt.seconds >= 0.3 * measured;
                self.note_refused(if is_clear { rate.min((accepted + 1.0) / measured) } else { rate }, m.now);
                self.limit = if exact { (accepted / measured).min(0.98 * rate) } else { self.limit };
                self.schedule(shut, m);
            }
            AutoPhase::Hold | AutoPhase::Check => {
                // A pace was refused that was believed to be below the limit.
                let (held, holds) = (self.limit, self.phase == AutoPhase::Hold);
                self.note_refused(rate, m.now);
                let few = given < 8.0 && !banned;
                let counted = if few { given + 0.5 } else { given };
                let limit = match () {
                    () if banned => (given - self.credit) / time(self.opened_at, self.run.since),
                    () if long && (few || self.bans == 0) => counted / time(self.opened_at, m.now),
                    () => (if few { counted } else { accepted }) / measured,
                };
                // A slow host serves in clumps, which tell little about its limit.
                let least = if self.latency.is_quiet() { 0.5 } else { 0.9 } * held;
                let limit = if holds || banned { limit.max(least) } else { limit };
                self.raised = false;
                self.set_limit(limit.min(0.97 * if holds { held } else { rate }), m);
                if few || !holds {
                    self.attempt(AutoPhase::Check, self.limit, f32::NEG_INFINITY, m);
                } else {
                    self.schedule(shut, m);
                }
            }
        }
    }

    fn learn_first(&mut self, long: bool, time: f32, m: &Moment) {
        let (accepted, rate) = (self.accepted as f32, self.run.rate);
        self.confirmed = 0;
        self.note_refused(rate, m.now);
        self.set_limit((0.7 * rate).min(accepted / time), m);
        (self.gave, self.first) = (self.accepted, (self.run.since - self.measured_from) as f32);
        // After a long time shut: a window gives as much again and no more, and a host that bans gives more.
        let look = self.limit.max((2.0 * accepted + 2.0) / (0.5 * time)).min(0.5 * rate);
        let rate = if long && accepted >= 4.0 { look } else { self.limit };
        self.attempt(AutoPhase::Check, rate, f32::NEG_INFINITY, m);
    }
}
