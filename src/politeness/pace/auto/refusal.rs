//! Refusals: how long to wait, when the host has reopened, and what that says about its limit.

use std::time::Duration;

use super::{Auto, Epoch, Moment, PaceStep, SHORT, What, before, disguise};

/// Waits after refusals: just more than the round times that people configure; 10 s is the ban of Apache's mod_evasive.
const WAITS: [f32; 7] = [1.0, 5.0, 10.0, 61.0, 121.0, 301.0, 901.0];
/// On a faster host waits only double: a minute lost there is more than a few refusals. Before the first refusal it is
/// one that has accepted this many requests.
const FAST: (f32, u32) = (2.0, 100);
/// With Retry-After a host may ask for more than its window (matrix: half or double costs 0.2 to 1 points).
const LONGEST_TOLD: f32 = 62.0;

/// Refusals in a row, until the first success. Their epoch separates them from older requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalRun {
    pub(super) is_on: bool,
    /// Requests sent one at a time that were refused, with the first.
    pub(super) canaries: u8,
    /// The fewest in flight.
    pub(super) in_flight: u8,
    pub(super) since: f64,
    /// The pace in force at the first refusal.
    pub(super) rate: f32,
    pub(super) wait: f32,
    pub(super) first_wait: f32,
}

impl Auto {
    pub(super) fn throttled(&mut self, epoch: Epoch, m: &Moment) -> Option<PaceStep> {
        if before(epoch.number, self.refused_epoch) {
            self.run.in_flight = self.run.in_flight.min(epoch.in_flight);
            return None;
        }
        if self.run.is_on {
            self.run.canaries = self.run.canaries.saturating_add(1);
            self.run.wait = self.next_wait();
        } else {
            // A ban is waited out at once.
            let known = self.recovery * if self.bans > 0 { 1.0 } else { 0.2 };
            let least = if self.limit < f32::INFINITY { known } else { 1.0 };
            let wait =
                if self.disguise.is_on_trial { disguise::WAITS[0] } else { (2.0 / self.limit.min(m.rate)).max(least) };
            let (in_flight, since, rate) = (epoch.in_flight, m.now, m.rate);
            self.run = RefusalRun { is_on: true, canaries: 1, in_flight, since, rate, wait, first_wait: wait };
        }
        self.run.wait = self.run.wait.min(m.longest_wait);
        self.epoch = self.epoch.wrapping_add(1);
        self.refused_epoch = self.epoch;
        Some(PaceStep { what: What::Slowed, window: Some(Duration::from_secs_f32(self.run.wait)) })
    }

    fn next_wait(&self) -> f32 {
        let RefusalRun { canaries, wait, .. } = self.run;
        let is_fast = if self.limit == f32::INFINITY { self.accepted >= FAST.1 } else { self.limit > FAST.0 };
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
        if !self.is_innocent(run.canaries == 1 && !long, m) {
            self.learn(shut, long, m);
            (self.measured_from, self.accepted) = (run.since, 0);
        }
        (self.opened_at, self.given) = (m.now, 0);
    }

    fn learn(&mut self, shut: f32, long: bool, m: &Moment) {
        let (rate, given, accepted) = (self.run.rate, self.given as f32, self.accepted as f32);
        let time = |from: f64, to: f64| ((to - from) as f32).max(1e-3);
        let measured = time(self.measured_from, self.run.since);
        let banned = self.bans > 0 && long;
        self.bans = self.bans.saturating_add(u8::from(banned));
        if self.limit == f32::INFINITY {
            return self.learn_first(long, time(self.measured_from, m.now), m);
        }
        if self.is_above_limit() {
            self.confirmed = self.confirmed.saturating_add(1);
            if self.attempt.excess > self.attempt.needed {
                self.note_refused(rate, m.now);
                if self.shut <= SHORT && accepted >= 8.0 {
                    // Between two refusals of a host that only fills a bucket, nothing could be saved up.
                    self.limit = self.limit.max(accepted / measured).min(0.98 * rate);
                    let is_clear = self.attempt.seconds >= 0.3 * measured;
                    self.refused_rate = if is_clear { rate.min((accepted + 1.0) / measured) } else { rate };
                }
            }
            // What was refused may have been beyond what the host saves up.
            self.credit = self.attempt.excess.max(0.7 * self.credit).min(200.0);
            return self.schedule(shut, m);
        }
        // A pace was refused that was believed to be below the limit.
        self.note_refused(rate, m.now);
        let estimate = match () {
            () if banned => (given - self.credit) / time(self.opened_at, self.run.since),
            () if long => (given + 0.5) / time(self.opened_at, m.now),
            () => (accepted + 0.5) / measured,
        };
        // After a ban the credit is only a guess, and may be more than the host gave.
        let least = if self.tries && !banned { 0.0 } else { 0.5 * self.limit };
        self.raised = false;
        self.set_limit(estimate.max(least).min(0.97 * self.limit), m);
        self.attempt(self.limit, f32::NEG_INFINITY, m);
    }

    fn learn_first(&mut self, long: bool, time: f32, m: &Moment) {
        let (accepted, rate) = (self.accepted as f32, self.run.rate);
        self.confirmed = 0;
        self.note_refused(rate, m.now);
        let estimate = (0.7 * rate).min(accepted / time);
        (self.gave, self.first) = (self.accepted, (self.run.since - self.measured_from) as f32);
        // After a long time shut: a window gives as much again and no more, and a host that bans gives more.
        let look = estimate.max((2.0 * accepted + 2.0) / (0.5 * time)).min(0.5 * rate);
        self.set_limit(if long && accepted >= 4.0 { look } else { estimate }, m);
        self.attempt(self.limit, f32::NEG_INFINITY, m);
    }
}
