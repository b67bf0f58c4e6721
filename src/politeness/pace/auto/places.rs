//! Limits on requests at the same time.
//!
//! If refusals come only while unusually many requests are in flight, and end at once, the host may limit those and
//! not the pace. Then fewer are in flight, and one more is tried now and then. If the host refuses even so, the guess
//! was wrong.

use super::{Auto, AutoPhase, Moment};

/// In flight when a request was refused: only this share of the accepted requests had as many.
const RARE: f32 = 0.15;
/// Requests until one more place is tried, doubled after each failure; and until the next one after a success.
const MORE_AFTER: (u32, u32) = (500, 300);
/// A wrong guess is not repeated for this long.
const NOT_AGAIN: f64 = 1800.0;
/// Requests after which a guess is judged by the pace that it allows.
const JUDGED_AFTER: u32 = 60;

#[derive(Clone, Debug, Default)]
pub(super) struct PlaceGuard {
    /// The places allowed; zero if there is no limit.
    limit: u8,
    failures: u8,
    /// Refusals in a row that look like this limit, with the fewest in flight and the highest pace of them.
    votes: u8,
    fewest: u8,
    rate: f32,
    sent: u32,
    more_at: u32,
    /// The limit of the pace before the guess; and from when on the guess is judged, or the next one allowed.
    pace_before: f32,
    judged_sent: u32,
    from: f64,
    /// Requests in flight with accepted ones: more than this are rare.
    usual: f32,
}

impl PlaceGuard {
    pub(super) fn count(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Moves the quantile by small steps, up or down by how rare that is.
    pub(super) fn accepted(&mut self, in_flight: u8) {
        self.usual += 0.3 * if f32::from(in_flight) > self.usual { 1.0 - RARE } else { -RARE };
    }

    pub(super) fn bound(&self, configured: u32) -> u32 {
        if self.limit > 0 { configured.min(self.limit.into()) } else { configured }
    }

    /// Tries one more place, if it is time.
    fn widen(&mut self, configured: u32) {
        if self.limit > 0 && self.sent.wrapping_sub(self.more_at).cast_signed() >= 0 {
            self.more_at = self.sent.wrapping_add(MORE_AFTER.1);
            self.limit = if u32::from(self.limit) + 1 < configured { self.limit + 1 } else { 0 };
        }
    }

    /// Whether the limit costs more than it can be worth. Then it is gone.
    fn is_useless(&mut self, waited: bool, now: f64) -> bool {
        if self.limit == 0 || self.sent.wrapping_sub(self.judged_sent) < JUDGED_AFTER {
            return false;
        }
        let rate = JUDGED_AFTER as f32 / ((now - self.from) as f32).max(1e-3);
        (self.judged_sent, self.from) = (self.sent, now);
        let useless = waited && rate < 0.9 * self.pace_before;
        if useless {
            (self.limit, self.votes, self.from) = (0, 0, now + NOT_AGAIN);
        }
        useless
    }

    /// A refusal within the limit: takes a place back. Returns false if that does not explain it.
    fn narrow(&mut self, short: bool, in_flight: u8, now: f64) -> bool {
        if short && in_flight >= self.limit.max(2) {
            self.limit -= 1;
            self.failures = (self.failures + 1).min(4);
            self.more_at = self.sent.wrapping_add(MORE_AFTER.0 << self.failures);
            return true;
        }
        (self.limit, self.votes, self.from) = (0, 0, now + NOT_AGAIN);
        false
    }

    /// Returns the pace that was innocent, after the second refusal in a row that looks like this limit.
    fn vote(&mut self, in_flight: u8, rate: f32) -> Option<f32> {
        self.fewest = if self.votes == 0 { in_flight } else { self.fewest.min(in_flight) };
        self.rate = if self.votes == 0 { rate } else { self.rate.max(rate) };
        self.votes += 1;
        if self.votes < 2 {
            return None;
        }
        (self.limit, self.votes, self.failures) = (self.fewest - 1, 0, 0);
        self.more_at = self.sent.wrapping_add(MORE_AFTER.0);
        Some(self.rate)
    }
}

impl Auto {
    /// Tries one more place if it is time, and gives up a limit that costs more than it can be worth.
    pub(super) fn judge_places(&mut self, waited: bool, m: &Moment) {
        self.places.widen(m.places);
        if self.places.is_useless(waited, m.now) {
            self.set_limit(self.places.pace_before, m);
            self.refused_rate = f32::INFINITY;
            self.schedule(0.0, m);
        }
    }

    /// Whether the refusals that have just ended were about requests at the same time.
    pub(super) fn is_about_places(&mut self, short: bool, m: &Moment) -> bool {
        let (in_flight, rate) = (self.run.in_flight, self.run.rate);
        let places = &mut self.places;
        if places.limit > 0 {
            return places.narrow(short, in_flight, m.now);
        }
        let rare = in_flight >= 2 && f32::from(in_flight) > places.usual;
        if !short || !rare || m.now <= places.from || self.phase == AutoPhase::Probe {
            places.votes = 0;
            return false;
        }
        let Some(innocent) = places.vote(in_flight, rate) else { return false };
        let measured = self.accepted as f32 / ((self.run.since - self.measured_from) as f32).max(1e-3);
        places.pace_before = if self.limit < f32::INFINITY { self.limit.min(measured) } else { 0.0 };
        (places.judged_sent, places.from) = (places.sent, self.last_sent);
        self.set_limit(innocent, m);
        self.refused_rate = f32::INFINITY;
        self.climb(m);
        true
    }
}
