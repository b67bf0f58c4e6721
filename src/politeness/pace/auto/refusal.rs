//! Refusals: how long to wait, when the host has reopened, and what that says about its limit.

use std::time::Duration;

use super::{Aim, Auto, AutoPhase, Epoch, Moment, NOTHING, PaceStep, SHORT, What, before};

/// Windows as people configure them, and the waits that outlast them.
const WINDOWS: [f32; 13] = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0];
const WAITS: [f32; 6] = [1.0, 10.0, 61.0, 121.0, 301.0, 901.0];
/// Beyond this many requests in one opening, waits only double: such a window is long, or the host is fast.
const MANY: u32 = 100;

/// Refusals in a row, until the first success. Their epoch separates them from older requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RefusalRun {
    pub(super) is_on: bool,
    /// Requests sent one at a time that were refused, with the first; and all that were refused.
    pub(super) canaries: u8,
    pub(super) refusals: u16,
    /// The fewest in flight, and the share of accepted requests that had as many.
    pub(super) in_flight: u8,
    pub(super) share: f32,
    pub(super) since: f64,
    /// The last refusal, after `since`.
    last: f32,
    /// The pace in force at the first refusal, and the successes before it.
    pub(super) rate: f32,
    pub(super) after: u32,
    wait: f32,
    first_wait: f32,
}

impl RefusalRun {
    fn last(&self) -> f64 {
        self.since + f64::from(self.last)
    }
}

/// A window that resets at known times.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownWindow {
    /// Its length; zero if none is known.
    seconds: f32,
    /// The present one began between these times.
    from: f64,
    by: f64,
    accepted: u32,
}

impl KnownWindow {
    /// Its length, or the other time if none is known.
    pub(super) fn or(&self, other: f32) -> f32 {
        if self.seconds > 0.0 { self.seconds } else { other }
    }

    pub(super) fn count(&mut self, now: f64, is_shut: bool) {
        let seconds = f64::from(self.seconds);
        if seconds > 0.0 && now >= self.by + seconds && !is_shut {
            let passed = ((now - self.by) / seconds).floor() * seconds;
            (self.from, self.by, self.accepted) = (self.from + passed, self.by + passed, 0);
        }
        self.accepted = self.accepted.saturating_add(1);
    }

    /// How long until the next one begins.
    fn wait(&self, surely: bool, now: f64) -> f32 {
        let seconds = f64::from(self.seconds);
        let began = if surely || self.by - self.from < 4.0 { self.by } else { (self.from + self.by) / 2.0 };
        let next = began + ((now + 0.2 - began) / seconds).ceil() * seconds;
        (next - now) as f32 + 0.05
    }

    /// The host reopened between `from` and `by`. Returns the least and the most that the window can have given; `None`
    /// if it was not a window's end, and then there is no window.
    fn ended(&mut self, from: f64, by: f64, rate: f32) -> Option<(f32, f32)> {
        if self.seconds == 0.0 {
            return None;
        }
        let seconds = f64::from(self.seconds);
        let windows = ((by - self.by) / seconds).round();
        let (from, by) = (from.max(self.from + windows * seconds), by.min(self.by + windows * seconds));
        let (given, unsure) = (self.accepted.saturating_sub(1) as f32, (self.by - self.from) as f32);
        if from >= by + 0.5 {
            *self = KnownWindow::default();
            return None;
        }
        (self.from, self.by, self.accepted) = (from.min(by), by, 1);
        (windows == 1.0).then_some((given, given + 1.0 + unsure * rate))
    }
}

/// What refusals that have ended measured.
struct Measured {
    rate: f32,
    /// The host was shut, and for long.
    shut: f32,
    long: bool,
    /// Requests accepted, by the time between two refusals.
    accepted: f32,
    time: f32,
    /// Requests that the limit is known to allow in the opening that ended, or since the last refusal.
    given: f32,
    /// The limit by all that was given, and by what was given while the host was open.
    limit: f32,
    while_open: f32,
    /// The window's quota, at least and at most.
    quota: Option<(f32, f32)>,
}

impl Auto {
    pub(super) fn throttled(&mut self, epoch: Epoch, m: &Moment) -> Option<PaceStep> {
        self.noise.heard(1.0);
        if before(epoch.number, self.refused_epoch) {
            if self.run.is_on {
                self.run.in_flight = self.run.in_flight.min(epoch.in_flight);
                self.run.refusals = self.run.refusals.saturating_add(1);
            }
            return None;
        }
        if self.run.is_on {
            self.run.canaries = self.run.canaries.saturating_add(1);
            self.run.refusals = self.run.refusals.saturating_add(1);
            self.run.last = (m.now - self.run.since) as f32;
            self.run.wait = self.next_wait(m.now).min(m.longest_wait);
        } else {
            let wait = match self.phase {
                AutoPhase::Start => (1.0 / m.rate).max(1.0),
                AutoPhase::Hold | AutoPhase::Try(_) => (1.0 / m.fastest).max(1.3 / self.limit.min(m.rate)),
            };
            self.run = RefusalRun {
                is_on: true,
                canaries: 1,
                refusals: 1,
                in_flight: epoch.in_flight,
                share: self.places.share_from(epoch.in_flight),
                since: m.now,
                last: 0.0,
                rate: m.rate,
                after: self.given,
                wait: wait.min(m.longest_wait),
                first_wait: wait,
            };
        }
        self.epoch = self.epoch.wrapping_add(1);
        self.refused_epoch = self.epoch;
        Some(PaceStep { what: What::Slowed, window: Some(Duration::from_secs_f32(self.run.wait)) })
    }

    fn next_wait(&mut self, now: f64) -> f32 {
        let RefusalRun { canaries, wait, .. } = self.run;
        if self.window.seconds > 0.0 && canaries <= 3 {
            return self.window.wait(canaries == 3, now);
        }
        if canaries == 4 {
            self.window = KnownWindow::default();
        }
        let given = if self.phase == AutoPhase::Start { self.accepted } else { self.given };
        if canaries == 2 && self.recovery > wait {
            return if given < 2 * MANY { self.recovery } else { 0.5 * self.recovery };
        }
        if given < MANY {
            return WAITS.into_iter().find(|time| *time > 1.5 * wait).unwrap_or(f32::INFINITY);
        }
        (2.0 * wait).max(1.0)
    }

    /// The host serves again.
    pub(super) fn reopen(&mut self, m: &Moment) {
        let run = self.run;
        let shut = (m.now - run.since) as f32;
        let short = run.canaries == 1 && shut <= SHORT + 3.0 * run.first_wait;
        let long = run.canaries >= 2 && shut > SHORT || shut > SHORT + 3.0 * run.first_wait;
        if long {
            self.cost = shut;
            if !self.bans {
                // With Retry-After the host may ask for more than its window.
                self.shut = (0.85 * self.shut).max(if run.canaries >= 2 { shut } else { shut.min(62.0) });
            }
            (self.gave_before, self.gave) = (self.gave, u16::try_from(self.given).unwrap_or(u16::MAX));
        } else {
            self.shut *= 0.97;
            self.cost *= 0.8;
        }
        let quota = self.window.ended(run.last(), m.now, run.rate);
        self.run.is_on = false;
        if run.canaries == 2 && run.wait == self.recovery {
            self.recovery *= 0.6;
        } else if run.canaries >= 2 && self.phase != AutoPhase::Start {
            self.recovery = run.wait;
        }
        let lone = short && f32::from(run.refusals) <= 1.0 + 0.03 * run.after as f32;
        if !self.is_about_places(short, m) && !self.is_noise(lone, shut, m) {
            if !lone {
                self.noise.forget();
            }
            self.learn(shut, long, quota, m);
            let unsure = if run.canaries >= 2 { (m.now - run.last()) as f32 } else { 0.0 };
            (self.measured_from, self.accepted, self.unsure, self.idle) = (run.since, 0, unsure, 0.0);
        }
        (self.opened_at, self.given) = (m.now, 0);
    }

    fn learn(&mut self, shut: f32, long: bool, quota: Option<(f32, f32)>, m: &Moment) {
        let (accepted, rate) = (self.accepted as f32, self.run.rate);
        if self.phase == AutoPhase::Start {
            return self.learn_first(shut, long, m);
        }
        let time = ((self.run.since - self.measured_from) as f32).max(1e-3);
        let open = ((m.now - self.opened_at) as f32).max(1e-3);
        let given = if long { self.given as f32 } else { accepted };
        let limit = if long && !self.bans {
            given / self.recognise_window(given, m.now).unwrap_or(open)
        } else {
            accepted / (time - (0.5 * self.unsure).min(0.5 * time))
        };
        let open_until_refused = ((self.run.since - self.opened_at) as f32).max(1e-3);
        let while_open = (self.given as f32 - self.credit) / open_until_refused;
        self.ban_count = self.ban_count.saturating_add(u8::from(self.bans && long));
        let measured = Measured { rate, shut, long, accepted, time, given, limit, while_open, quota };
        match self.phase {
            AutoPhase::Try(aim @ (Aim::Up | Aim::Between | Aim::Rise | Aim::Nudge)) => {
                self.learn_from_try(aim, &measured, m);
            }
            AutoPhase::Start | AutoPhase::Hold | AutoPhase::Try(Aim::First | Aim::Look) => {
                self.learn_from_belief(&measured, m);
            }
        }
    }

    fn learn_first(&mut self, shut: f32, long: bool, m: &Moment) {
        let (accepted, rate) = (self.accepted as f32, self.run.rate);
        let time = ((m.now - self.measured_from) as f32).max(1e-3);
        self.note_refused(rate, shut, m.now);
        self.set_limit((0.7 * rate).min(accepted / time), m);
        self.far = accepted < 10.0 || self.run.canaries == 1 && shut > 30.0;
        self.gave = u16::try_from(self.accepted).unwrap_or(u16::MAX);
        if long && accepted >= 4.0 {
            let look = self.limit.max((2.0 * accepted + 2.0) / (0.5 * time)).min(0.5 * rate);
            self.attempt(Aim::Look, look, NOTHING, m);
        } else {
            self.attempt(Aim::First, self.limit, NOTHING, m);
        }
    }

    /// Two openings that gave the same, and a length that people choose: a window.
    fn recognise_window(&mut self, given: f32, now: f64) -> Option<f32> {
        let (last, gave) = (self.run.last(), f32::from(self.gave_before));
        let looks = self.phase == AutoPhase::Try(Aim::Look) && given <= 1.05 * gave;
        if self.run.canaries < 2 || !looks && (given - gave).abs() > (0.12 * given).max(1.0) {
            return None;
        }
        let (refused, open) = ((last - self.opened_at) as f32, (now - self.opened_at) as f32);
        let seconds = WINDOWS.into_iter().rev().find(|window| refused < *window && *window <= 1.01 * open)?;
        if given >= 3.0 && now - last > f64::from(0.05 * seconds) && self.window.seconds == 0.0 {
            self.window = KnownWindow { seconds, from: last, by: now, accepted: 1 };
        }
        Some(seconds)
    }

    /// A higher pace was refused.
    fn learn_from_try(&mut self, aim: Aim, measured: &Measured, m: &Moment) {
        let &Measured { rate, shut, long, accepted, time, given, limit, while_open, quota } = measured;
        // Between two refusals of a host that only fills a bucket, nothing could be saved up.
        let unclear =
            if self.bans { self.unsure.max((self.opened_at - self.measured_from) as f32) } else { self.unsure };
        let exact = self.shut <= SHORT && unclear <= 0.1 * time && (8.0..=120.0).contains(&accepted);
        let refusals = self.run.refusals;
        let in_vain = self.attempt.rungs == 0;
        self.confirmed = self.confirmed.saturating_add(u8::from(in_vain));
        if in_vain && (aim == Aim::Nudge || aim == Aim::Rise && self.attempt.excess <= self.free_excess()) {
            if aim == Aim::Rise {
                self.credit = self.attempt.excess.max(0.7 * self.credit).min(200.0);
            }
            let better = (accepted / time).min(0.97 * rate);
            self.set_limit(if aim == Aim::Nudge && exact { better.max(self.limit) } else { self.limit }, m);
            if aim == Aim::Rise && self.probes.is_multiple_of(3) && shut < 5.0 {
                self.attempt(Aim::Nudge, 1.06 * self.limit, 2.0, m);
            } else {
                self.schedule(refusals, shut, m);
            }
            return;
        }
        self.far = false;
        let (limit, refused) = match quota.filter(|_| self.window.seconds > 0.0) {
            Some((least, most)) => {
                (self.limit.max((least / self.window.seconds).min(0.97 * rate)), rate.min(most / self.window.seconds))
            }
            None if exact => ((1.01 * accepted / time).min(0.98 * rate), rate.min((accepted + 1.0) / time)),
            None if long && given >= 12.0 => {
                (self.limit.max((if self.bans { while_open } else { limit }).min(0.97 * rate)), rate)
            }
            None => (self.limit, rate),
        };
        self.note_refused(refused, shut, m.now);
        self.set_limit(limit, m);
        self.schedule(refusals, shut, m);
    }

    /// A pace was refused that was believed to be below the limit.
    fn learn_from_belief(&mut self, measured: &Measured, m: &Moment) {
        let &Measured { rate, shut, long, accepted, time, given, while_open, .. } = measured;
        let (before, holds) = (self.limit, self.phase == AutoPhase::Hold);
        self.note_refused(rate, shut, m.now);
        let banned = self.bans && long;
        let few = given < 8.0 && !banned;
        let mut limit = match () {
            () if few && long => (given + 0.5) / ((m.now - self.opened_at) as f32).max(1e-3),
            () if few => (given + 0.5) / time,
            () if banned => while_open.max(0.5 * before),
            () => measured.limit,
        };
        if self.idle > 0.3 * time {
            limit = limit.max(0.85 * before);
        }
        limit = limit.min(0.97 * before);
        if holds && self.raised_from > 0.0 {
            if limit < 1.1 * self.raised_from {
                // The limit was raised by what had been saved up.
                self.credit = self.credit.max(self.raised_excess).min(200.0);
                self.confirmed = self.raised_confirmed.saturating_add(1);
            }
            limit = limit.max(self.raised_from);
        } else if holds {
            limit = limit.max(0.5 * before);
            self.confirmed = if limit < 0.8 * before { 0 } else { self.confirmed };
        }
        self.raised_from = 0.0;
        self.far = self.far && few && accepted < 3.0;
        self.set_limit(limit, m);
        if few || !holds {
            self.attempt(Aim::First, self.limit, NOTHING, m);
        } else {
            self.schedule(self.run.refusals, shut, m);
        }
    }
}
