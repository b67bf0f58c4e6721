//! Refusals that are not about the pace.
//!
//! If refusals come only while unusually many requests are in flight, and end at once, the host may limit those. Then
//! fewer are in flight for a while; if the host refuses even so, the guess was wrong. If lone refusals come again
//! although the pace is clearly lower, they are noise: for half an hour they change nothing.

use super::{Auto, MARGIN, Moment, REFUSED_FOR};

/// In flight when a request was refused: only this share of the accepted requests had as many. In simulation a tenth
/// and a fifth do the same.
const RARE: f32 = 0.15;
/// Requests for which a limit of places counts. Finding it again costs two refusals: one in 1000.
const PLACES_FOR: u32 = 2000;
/// A refusal after fewer successes is not a lone one. In simulation 15 or 40 differ by 0.2 points.
const LONE_AFTER: u32 = 25;
/// A larger share of refusals is no noise.
const MOST: f32 = 0.05;

#[derive(Clone, Debug, Default)]
pub(super) struct Causes {
    /// The places allowed, until which send; zero if there is no limit.
    places: u8,
    until: u32,
    /// Requests in flight with accepted ones: more than this are rare.
    usual: f32,
    /// The last refusal, if it looked like a limit of places: the requests in flight, and the pace.
    suspect: (u8, f32),
    /// The limit before the first lone refusal; zero if there was none. From it on until this time they are noise.
    lone_limit: f32,
    noise_until: f64,
    /// The share of refusals over the last hundred answers.
    refused: f32,
    /// No guess about places before this time.
    from: f64,
}

impl Causes {
    /// Moves the quantile by small steps, up or down by how rare that is.
    pub(super) fn accepted(&mut self, in_flight: u8, sends: u32) {
        self.refused -= self.refused / 100.0;
        self.usual += 0.3 * if f32::from(in_flight) > self.usual { 1.0 - RARE } else { -RARE };
        if self.places > 0 && self.until.wrapping_sub(sends) > PLACES_FOR {
            self.places = 0;
        }
    }

    pub(super) fn places(&self, configured: u32) -> u32 {
        if self.places > 0 { configured.min(self.places.into()) } else { configured }
    }

    pub(super) fn limits_places(&self) -> bool {
        self.places > 0
    }
}

impl Auto {
    /// Whether the refusals that have just ended say nothing about the pace, or only a little.
    pub(super) fn is_innocent(&mut self, short: bool, m: &Moment) -> bool {
        self.is_about_places(short, m) || self.is_noise(short, m)
    }

    fn is_about_places(&mut self, short: bool, m: &Moment) -> bool {
        let (run, causes) = (self.run, &mut self.causes);
        let first = std::mem::take(&mut causes.suspect);
        if causes.places > 0 {
            (causes.places, causes.from) = (0, m.now + f64::from(REFUSED_FOR));
            return false;
        }
        let rare = run.in_flight >= 2 && f32::from(run.in_flight) > causes.usual;
        if !short || !rare || m.now < causes.from {
            return false;
        }
        if first.0 == 0 {
            causes.suspect = (run.in_flight, run.rate);
            return false;
        }
        (causes.places, causes.until) = (first.0.min(run.in_flight) - 1, self.sends.wrapping_add(PLACES_FOR));
        self.set_limit(first.1.max(run.rate), m);
        self.refused_rate = f32::INFINITY;
        self.climb(m);
        true
    }

    /// A lone refusal at a pace that was believed in lowers it a little. If that does not help, it is noise.
    fn is_noise(&mut self, short: bool, m: &Moment) -> bool {
        let (rate, is_try, is_early) = (self.run.rate, self.tries || self.raised, self.given < LONE_AFTER);
        let causes = &mut self.causes;
        causes.refused += (1.0 - causes.refused) / 100.0;
        if m.now < causes.noise_until && self.run.canaries <= 2 && causes.refused < MOST {
            return true;
        }
        if !short {
            (causes.lone_limit, causes.noise_until) = (0.0, 0.0);
        }
        if !short || is_early || is_try {
            return false;
        }
        if causes.lone_limit == 0.0 {
            causes.lone_limit = self.limit;
        }
        if rate < 0.8 * causes.lone_limit {
            causes.noise_until = m.now + f64::from(REFUSED_FOR);
            self.refused_rate = f32::INFINITY;
        }
        let lone_limit = causes.lone_limit;
        if rate < 0.8 * lone_limit {
            self.set_limit(lone_limit, m);
            self.climb(m);
        } else {
            self.set_limit(0.95 * rate / (1.0 - MARGIN), m);
            self.schedule(0.0, m);
        }
        true
    }
}
