//! Refusals at random, whatever the pace.
//!
//! A lone refusal lowers the pace a little. If it comes again although the pace is clearly lower, it was not the pace:
//! for half an hour lone refusals change nothing, unless they become more.

use super::{Auto, AutoPhase, MARGIN, Moment};

/// A refusal after this many successes is a lone one.
const LONE_AFTER: u32 = 25;
const HALF_AN_HOUR: f64 = 1800.0;
/// More than this share of refusals is no noise.
const MOST: f32 = 0.05;

#[derive(Clone, Debug, Default)]
pub(super) struct NoiseGuard {
    /// The pace of the first lone refusal, the limit then, and the time of the last one.
    rate: f32,
    limit: f32,
    last: f64,
    /// The share of refusals over the last hundred answers.
    share: f32,
    is_known: bool,
    /// Lone refusals in a row that came early.
    early: u8,
}

impl NoiseGuard {
    pub(super) fn heard(&mut self, refused: f32) {
        self.share += (refused - self.share) / 100.0;
    }
}

impl Auto {
    /// Whether the refusals that have just ended say nothing about the pace, or only a little.
    pub(super) fn is_noise(&mut self, lone: bool, shut: f32, m: &Moment) -> bool {
        let (run, noise) = (self.run, &mut self.noise);
        let recent = m.now - noise.last < HALF_AN_HOUR;
        if noise.is_known && recent && run.canaries <= 2 && run.refusals <= 3 && noise.share < MOST {
            return true;
        }
        let starts = self.phase == AutoPhase::Start;
        let early = run.after < LONE_AFTER;
        if !lone
            || starts && early
            || matches!(self.phase, AutoPhase::Climb | AutoPhase::Probe)
            || self.phase == AutoPhase::Check && noise.rate == 0.0
            || self.raised
        {
            (noise.is_known, noise.rate) = (false, if lone { noise.rate } else { 0.0 });
            return false;
        }
        noise.early = if early { noise.early.saturating_add(1) } else { 0 };
        if noise.early >= 2 {
            return false;
        }
        let is_first = noise.rate == 0.0 || run.rate > 1.02 * noise.rate || !recent;
        if is_first {
            (noise.rate, noise.limit) = (run.rate, if starts { 2.0 * m.fastest } else { self.limit });
        }
        noise.last = m.now;
        noise.is_known = !is_first && !early && run.rate < 0.8 * noise.rate;
        let (noise_limit, is_known) = (noise.limit, noise.is_known);
        self.set_limit(
            if is_known { noise_limit.max(self.limit.min(noise_limit)) } else { 0.95 * run.rate / (1.0 - MARGIN) },
            m,
        );
        self.schedule(if is_known { 0.0 } else { shut }, m);
        if starts {
            self.attempt(AutoPhase::Check, self.rate, f32::NEG_INFINITY, m);
        }
        (self.measured_from, self.accepted) = (run.since, 0);
        true
    }
}
