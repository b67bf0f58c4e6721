//! Refusals: how long to wait, when the host has reopened, and what that says about its limit.

use std::time::Duration;

use super::{Auto, AutoPhase, Epoch, Moment, PaceStep, SHORT, What, before, disguise};

/// Waits that outlast the windows that people configure. Beyond so many requests in one opening waits only double:
/// such a window is long, or the host is fast.
const WAITS: [f32; 7] = [1.0, 5.0, 10.0, 61.0, 121.0, 301.0, 901.0];
const MANY: u32 = 100;

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
        self.noise.heard(1.0);
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
                _ => (1.0 / m.fastest)
                    .max(2.0 / self.limit.min(m.rate))
                    .max(self.recovery * if self.bans > 0 { 1.0 } else { 0.2 }),
            };
            let (in_flight, rate, after) = (epoch.in_flight, m.rate, self.given);
            let (wait, since) = (wait.min(m.longest_wait), m.now);
            self.run = RefusalRun {
                is_on: true,
                canaries: 1,
                refusals: 1,
                in_flight,
                since,
                rate,
                after,
                wait,
                first_wait: wait,
            };
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.refused_epoch = self.epoch;
        Some(PaceStep { what: What::Slowed, window: Some(Duration::from_secs_f32(self.run.wait)) })
    }

    fn next_wait(&self) -> f32 {
        let RefusalRun { canaries, wait, .. } = self.run;
        let given = if self.phase == AutoPhase::Start { self.accepted } else { self.given };
        match () {
            () if self.disguise.is_on_trial => disguise::WAITS[usize::from(canaries - 1).min(2)],
            () if canaries == 2 && self.recovery > wait => self.recovery * if given < 2 * MANY { 1.0 } else { 0.5 },
            () if given < MANY => WAITS.into_iter().find(|time| *time > 1.5 * wait).unwrap_or(f32::INFINITY),
            () => (2.0 * wait).max(1.0),
        }
    }

    /// The host serves again.
    pub(super) fn reopen(&mut self, m: &Moment) {
        let run = self.run;
        let shut = (m.now - run.since) as f32;
        let slow = SHORT + 3.0 * run.first_wait;
        let long = (run.canaries >= 2 || self.bans > 0) && shut > SHORT || shut > slow;
        let short = run.canaries == 1 && !long;
        if long {
            self.cost = shut;
            if self.bans == 0 {
                // With Retry-After the host may ask for more than its window.
                self.shut = (0.85 * self.shut).max(if run.canaries >= 2 { shut } else { shut.min(62.0) });
            }
            self.gave = self.given;
        } else {
            self.shut *= 0.97;
            self.cost *= 0.8;
        }
        if run.canaries == 2 && run.wait == self.recovery {
            self.recovery *= 0.5;
        } else if run.canaries >= 2 {
            self.recovery = run.wait;
        }
        self.run.is_on = false;
        let lone = short && f32::from(run.refusals) <= 1.0 + 0.03 * run.after as f32;
        if !self.is_about_places(short, m) && !self.is_noise(lone, shut, m) {
            self.learn(shut, long, m);
            (self.measured_from, self.accepted) = (run.since, 0);
        }
        (self.opened_at, self.given) = (m.now, 0);
    }

    fn learn(&mut self, shut: f32, long: bool, m: &Moment) {
        let (accepted, rate) = (self.accepted as f32, self.run.rate);
        let time = |from: f64, to: f64| ((to - from) as f32).max(1e-3);
        let (measured, open) = (time(self.measured_from, self.run.since), time(self.opened_at, m.now));
        let given = self.given as f32;
        let banned = self.bans > 0 && long;
        self.bans = self.bans.saturating_add(u8::from(banned));
        let opening = match self.bans {
            0 if long => given / open,
            0 => 0.0,
            _ => (given - self.credit) / time(self.opened_at, self.run.since),
        };
        match self.phase {
            AutoPhase::Start => self.learn_first(long, time(self.measured_from, m.now), m),
            AutoPhase::Climb | AutoPhase::Probe => {
                self.confirmed = self.confirmed.saturating_add(1);
                if self.phase == AutoPhase::Probe && self.attempt.excess <= self.free_excess() {
                    self.credit = self.attempt.excess.max(0.7 * self.credit).min(200.0);
                } else {
                    // Between two refusals of a host that only fills a bucket, nothing could be saved up.
                    let unclear = if self.bans > 0 { time(self.measured_from, self.opened_at) } else { 0.0 };
                    let exact = self.shut <= SHORT && unclear <= 0.1 * measured && (8.0..=120.0).contains(&accepted);
                    // If the host saves nothing up, that is too little: most of the time the pace was lower.
                    let known = if exact && self.attempt.seconds >= 0.3 * measured {
                        rate.min((accepted + 1.0) / measured)
                    } else {
                        rate
                    };
                    self.note_refused(known, m.now);
                    self.limit = if exact { (accepted / measured).min(0.98 * rate) } else { self.limit };
                }
                self.schedule(shut, m);
            }
            AutoPhase::Hold | AutoPhase::Check => {
                // A pace was refused that was believed to be below the limit.
                let held = self.limit;
                self.note_refused(rate, m.now);
                let (few, holds) = (given < 8.0 && !banned, self.phase == AutoPhase::Hold);
                let mut limit = match () {
                    () if banned => opening.max(0.5 * held),
                    () if long && few => (given + 0.5) / open,
                    () if long && self.bans == 0 => opening,
                    () => (if few { given + 0.5 } else { accepted }) / measured,
                };
                if holds {
                    limit = limit.max(0.5 * held);
                    self.confirmed = if limit < 0.8 * held { 0 } else { self.confirmed };
                }
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
        let least = if long { 0.0 } else { 0.35 * rate };
        self.set_limit((0.7 * rate).min((accepted / time).max(least)), m);
        (self.gave, self.first) = (self.accepted, (self.run.since - self.measured_from) as f32);
        // After a long time shut: a window gives as much again and no more, and a host that bans gives more.
        let look = self.limit.max((2.0 * accepted + 2.0) / (0.5 * time)).min(0.5 * rate);
        let rate = if long && accepted >= 4.0 { look } else { self.limit };
        self.attempt(AutoPhase::Check, rate, f32::NEG_INFINITY, m);
    }
}
