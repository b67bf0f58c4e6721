//! Refusals at random, whatever the pace.
//!
//! A lone refusal lowers the pace a little. If it comes again although the pace is clearly lower, it was not the pace:
//! for half an hour lone refusals change nothing, unless they become more.

use super::refusal::RefusalRun;
use super::{Auto, AutoPhase, MARGIN, Moment};

/// A refusal after this many successes is a lone one.
const LONE_AFTER: u32 = 25;
const HALF_AN_HOUR: f64 = 1800.0;

#[derive(Clone, Debug, Default)]
pub(super) struct NoiseGuard {
    /// The pace of the first lone refusal, the limit then, and the time of the last one.
    rate: f32,
    limit: f32,
    last: f64,
    /// The share of refusals: over the last hundred answers, and when noise was recognised; zero if it was not.
    share: f32,
    usual: f32,
    /// Lone refusals in a row that came early.
    early: u8,
}

impl NoiseGuard {
    pub(super) fn heard(&mut self, refused: f32) {
        self.share += (refused - self.share) / 100.0;
    }

    pub(super) fn forget(&mut self) {
        (self.early, self.rate, self.usual) = (0, 0.0, 0.0);
    }
}

impl Auto {
    /// Whether the refusals that have just ended say nothing about the pace, or only a little.
    pub(super) fn is_noise(&mut self, lone: bool, shut: f32, m: &Moment) -> bool {
        let RefusalRun { canaries, refusals, after, rate, since, .. } = self.run;
        let noise = &mut self.noise;
        let is_known = noise.usual > 0.0 && m.now - noise.last < HALF_AN_HOUR;
        if is_known && canaries <= 2 && refusals <= 3 && noise.share < 0.02 + 2.0 * noise.usual {
            return true;
        }
        let starts = self.phase == AutoPhase::Start;
        if !lone || matches!(self.phase, AutoPhase::Try(_)) || starts && after < LONE_AFTER || self.raised_from > 0.0 {
            return false;
        }
        noise.early = if after >= LONE_AFTER { 0 } else { noise.early.saturating_add(1) };
        if noise.early >= 2 {
            return false;
        }
        if noise.rate == 0.0 || rate > 1.02 * noise.rate || m.now - noise.last > HALF_AN_HOUR {
            (noise.rate, noise.limit) = (rate, if starts { 2.0 * m.fastest } else { self.limit });
        } else if rate < 0.92 * noise.rate && after >= LONE_AFTER {
            (noise.last, noise.usual) = (m.now, noise.share.max(0.01));
            let limit = if starts { noise.limit } else { noise.limit.max(self.limit) };
            self.set_limit(limit, m);
            self.schedule(1, 0.0, m);
            return true;
        }
        noise.last = m.now;
        self.set_limit(0.95 * rate / (1.0 - MARGIN), m);
        self.schedule(1, shut, m);
        (self.measured_from, self.accepted, self.idle, self.unsure) = (since, 0, 0.0, 0.0);
        true
    }
}
