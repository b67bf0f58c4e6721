//! Refusals that are not about the pace.
//!
//! If refusals come only while unusually many requests are in flight, and end at once, the host may limit those. Then
//! fewer are in flight for a while. If the host refuses even so, the guess was wrong.
//!
//! A lone refusal may be noise. If it comes again although the pace is clearly lower, it was not the pace: for half an
//! hour lone refusals change nothing.

use super::{Auto, AutoPhase, MARGIN, Moment, REFUSED_FOR};

/// In flight when a request was refused: only this share of the accepted requests had as many. In simulation a tenth
/// and a fifth do the same.
const RARE: f32 = 0.15;
/// Requests for which a limit of places counts, and after which it is judged by the pace that it allows. Finding it
/// again costs two refusals: one in 1000. In simulation half and double of it do the same.
const PLACES_FOR: u32 = 2000;
const JUDGED_AFTER: u32 = 60;
/// A refusal after fewer successes is not a lone one, and a larger share of refusals is no noise. In simulation 15 or
/// 40 successes, and 3 or 8 %, differ by 0.2 points; without either bound some limiters refused hundreds of 1000.
const LONE_AFTER: u32 = 25;
const MOST: f32 = 0.05;

#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    /// The places allowed; zero if there is no limit. Then the sends at which it began and was last judged.
    places: u8,
    begun: u32,
    judged: u32,
    /// Refusals in a row that look like a limit of places, with the fewest in flight and the highest pace of them.
    votes: u8,
    fewest: u8,
    innocent: f32,
    /// The limit of the pace before the guess; and from when on the guess is judged, or the next one allowed.
    pace_before: f32,
    from: f64,
    /// Requests in flight with accepted ones: more than this are rare.
    usual: f32,
    /// The pace of the first lone refusal, the limit then, and the time of the last one.
    lone_rate: f32,
    lone_limit: f32,
    lone_at: f64,
    /// Lone refusals in a row that came early.
    early: u8,
    is_noisy: bool,
    /// The share of refusals over the last hundred answers.
    refused: f32,
}

impl Causes {
    /// Moves the quantile by small steps, up or down by how rare that is.
    pub(super) fn heard(&mut self, refused: f32) {
        self.refused += (refused - self.refused) / 100.0;
    }

    pub(super) fn accepted(&mut self, in_flight: u8) {
        self.usual += 0.3 * if f32::from(in_flight) > self.usual { 1.0 - RARE } else { -RARE };
    }

    pub(super) fn places(&self, configured: u32) -> u32 {
        if self.places > 0 { configured.min(self.places.into()) } else { configured }
    }

    pub(super) fn limits_places(&self) -> bool {
        self.places > 0
    }

    fn drop_places(&mut self, from: f64) {
        (self.places, self.votes, self.from) = (0, 0, from);
    }
}

impl Auto {
    /// Gives up a limit of places that is old, or costs more than it can be worth.
    pub(super) fn judge_places(&mut self, waited: bool, m: &Moment) {
        let causes = &mut self.causes;
        if causes.places == 0 || self.sends.wrapping_sub(causes.judged) < JUDGED_AFTER {
            return;
        }
        let rate = JUDGED_AFTER as f32 / ((m.now - causes.from) as f32).max(1e-3);
        (causes.judged, causes.from) = (self.sends, m.now);
        if waited && rate < 0.9 * causes.pace_before {
            let limit = causes.pace_before;
            causes.drop_places(m.now + f64::from(REFUSED_FOR));
            self.set_limit(limit, m);
            self.refused_rate = f32::INFINITY;
            self.schedule(0.0, m);
        } else if self.sends.wrapping_sub(causes.begun) >= PLACES_FOR {
            causes.drop_places(m.now);
        }
    }

    /// Whether the refusals that have just ended were about requests at the same time.
    pub(super) fn is_about_places(&mut self, short: bool, m: &Moment) -> bool {
        let (run, causes) = (self.run, &mut self.causes);
        if causes.places > 0 {
            causes.drop_places(m.now + f64::from(REFUSED_FOR));
            return false;
        }
        let rare = run.in_flight >= 2 && f32::from(run.in_flight) > causes.usual;
        if !short || !rare || m.now <= causes.from {
            causes.votes = 0;
            return false;
        }
        let is_first = causes.votes == 0;
        (causes.votes, causes.fewest, causes.innocent) = if is_first {
            (1, run.in_flight, run.rate)
        } else {
            (0, causes.fewest.min(run.in_flight), causes.innocent.max(run.rate))
        };
        if is_first {
            return false;
        }
        let measured = self.accepted as f32 / ((run.since - self.measured_from) as f32).max(1e-3);
        causes.pace_before = if self.limit < f32::INFINITY { self.limit.min(measured) } else { 0.0 };
        (causes.places, causes.begun, causes.judged) = (causes.fewest - 1, self.sends, self.sends);
        causes.from = self.last_sent;
        let innocent = causes.innocent;
        self.set_limit(innocent, m);
        self.refused_rate = f32::INFINITY;
        self.climb(m);
        true
    }

    /// Whether a refusal that has just ended says nothing about the pace, or only a little.
    pub(super) fn is_noise(&mut self, short: bool, shut: f32, m: &Moment) -> bool {
        let (run, causes) = (self.run, &mut self.causes);
        let recent = m.now - causes.lone_at < f64::from(REFUSED_FOR);
        if causes.is_noisy && recent && run.canaries <= 2 && run.refusals <= 3 && causes.refused < MOST {
            return true;
        }
        let (lone, early) = (short && run.refusals == 1, run.after < LONE_AFTER);
        // What a try at another pace meets is the limit.
        let tries = match self.phase {
            AutoPhase::Start => early,
            AutoPhase::Check => causes.lone_rate == 0.0,
            AutoPhase::Hold => self.raised,
            AutoPhase::Climb | AutoPhase::Probe => true,
        };
        if !lone || tries {
            (causes.is_noisy, causes.lone_rate) = (false, if lone { causes.lone_rate } else { 0.0 });
            return false;
        }
        causes.early = if early { causes.early.saturating_add(1) } else { 0 };
        if causes.early >= 2 {
            return false;
        }
        let starts = self.phase == AutoPhase::Start;
        let is_first = causes.lone_rate == 0.0 || run.rate > 1.02 * causes.lone_rate || !recent;
        if is_first {
            (causes.lone_rate, causes.lone_limit) = (run.rate, if starts { 2.0 * m.fastest } else { self.limit });
        }
        causes.lone_at = m.now;
        causes.is_noisy = !is_first && !early && run.rate < 0.8 * causes.lone_rate;
        let (limit, shut) =
            if causes.is_noisy { (causes.lone_limit, 0.0) } else { (0.95 * run.rate / (1.0 - MARGIN), shut) };
        self.set_limit(limit, m);
        self.schedule(shut, m);
        if starts {
            self.attempt(AutoPhase::Check, self.rate, f32::NEG_INFINITY, m);
        }
        (self.measured_from, self.accepted) = (run.since, 0);
        true
    }
}
