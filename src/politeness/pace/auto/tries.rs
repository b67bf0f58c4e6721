//! Tries: a higher pace counts once it has held for a while.

use super::{Aim, Auto, AutoPhase, KnownWindow, MARGIN, Moment, NOTHING, SHORT};

/// A pace has held after this many sends and this time, or after 1.2 times as long as the host was shut.
const HELD_AFTER: (u16, f32) = (12, 20.0);
/// Factors from one try to the next: while searching, while nearly nothing is known, and for a probe from a limit.
const UP: f32 = 1.4;
const FAR_UP: f32 = 2.0;
pub(super) const PROBE: f32 = 1.5;
/// A refused pace that is this close to the limit is not worth another try.
const TIGHT: f32 = 1.02;

/// A pace on trial.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attempt {
    pub(super) sends: u16,
    pub(super) seconds: f32,
    /// Sends more than the limit would have made, and how many it takes to prove anything.
    pub(super) excess: f32,
    pub(super) needed: f32,
    /// Tries that held since the limit.
    pub(super) rungs: u8,
}

impl Auto {
    /// Ends a try that has held for long enough.
    pub(super) fn prove(&mut self, aim: Aim, m: &Moment) {
        if self.sees_ban(aim, m) {
            return;
        }
        let Attempt { sends, seconds, excess, needed, rungs } = self.attempt;
        if sends < HELD_AFTER.0 || seconds < self.hold_time() || excess < needed {
            return;
        }
        let rate = match aim {
            Aim::First => self.rate.max(self.limit),
            Aim::Look => self.limit.max(0.7 * self.rate),
            Aim::Up | Aim::Between | Aim::Rise | Aim::Nudge => self.rate,
        };
        if rate >= 0.999 * self.refused_rate {
            self.refused_rate = f32::INFINITY;
        }
        self.attempt.rungs = rungs.saturating_add(1);
        if rate > 1.03 * self.limit {
            (self.raised_from, self.raised_excess, self.raised_confirmed) = (self.limit, excess, self.confirmed);
            self.confirmed = 0;
        }
        let at_the_top = rate >= m.fastest;
        self.set_limit(if at_the_top { rate / (1.0 - MARGIN) } else { rate }, m);
        match aim {
            Aim::Rise if !at_the_top => self.attempt(Aim::Rise, rate * FAR_UP, NOTHING, m),
            Aim::First | Aim::Look | Aim::Up | Aim::Between if !at_the_top => self.go_on(m),
            _ => self.schedule(1, 0.0, m),
        }
    }

    /// Whether the host gives far more than before within the time that it was shut: then it was a ban, not a window.
    fn sees_ban(&mut self, aim: Aim, m: &Moment) -> bool {
        let open = (m.now - self.opened_at) as f32;
        let gave = u32::from(self.gave);
        let gives_more = gave > 0 && self.given >= 2 * gave + 2;
        if self.bans || self.shut <= SHORT || !gives_more || open >= 0.9 * self.shut {
            return false;
        }
        (self.bans, self.shut, self.window) = (true, 0.0, KnownWindow::default());
        if aim == Aim::Look {
            self.set_limit(self.limit.max((self.given - gave) as f32 / open), m);
            self.credit = self.credit.max(gave as f32).min(200.0);
            self.go_on(m);
        }
        true
    }

    pub(super) fn go_on(&mut self, m: &Moment) {
        if !self.knows_refused(m.now) {
            self.refused_rate = f32::INFINITY;
            self.attempt(Aim::Up, self.limit * self.step(), NOTHING, m);
        } else if self.is_worth_halving(m.now) {
            let step = (self.refused_rate / self.limit).sqrt().min(self.step());
            self.attempt(Aim::Between, self.limit * step, NOTHING, m);
        } else {
            self.schedule(1, self.cost, m);
        }
    }

    pub(super) fn attempt(&mut self, aim: Aim, rate: f32, needed: f32, m: &Moment) {
        self.phase = AutoPhase::Try(aim);
        self.rate = rate.min(m.fastest);
        self.attempt = Attempt { needed, rungs: self.attempt.rungs, ..Attempt::default() };
    }

    pub(super) fn is_worth_halving(&self, now: f64) -> bool {
        // The costlier a refusal, the less a few percent are worth one.
        let tight = (1.0 + self.cost / 1000.0).clamp(TIGHT, 1.6);
        self.knows_refused(now) && self.refused_rate > tight * self.limit
    }

    fn step(&self) -> f32 {
        match () {
            () if self.cost > 120.0 => {
                if self.far {
                    1.5
                } else {
                    1.25
                }
            }
            () if self.far || self.bans && self.refused_rate > 3.0 * self.limit => FAR_UP,
            () => UP,
        }
    }

    pub(super) fn hold_time(&self) -> f32 {
        if self.shut <= SHORT { HELD_AFTER.1 } else { (1.2 * self.window.or(self.shut)).clamp(HELD_AFTER.1, 300.0) }
    }

    /// Sends above the limit that prove nothing: saved-up credit, or what a window gives before it is used up.
    pub(super) fn free_excess(&self) -> f32 {
        let saved = 1.3 * self.credit + 3.0;
        if self.shut <= SHORT { saved } else { saved.max(0.75 * self.limit * self.window.or(self.shut).min(300.0)) }
    }
}
