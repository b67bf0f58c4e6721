//! Refusals in disguise: "forbidden" that means "too fast".
//!
//! Some limiters answer 403. Most 403 are about the page, though, and such a page must never slow a host. What tells
//! them apart is time: a limiter begins to refuse after it has served many pages, and serves again after a pause and at
//! a lower pace. So when a long row of successes turns into many 403, the host is tested: left alone for a moment, then
//! visited more slowly. A row of successes then is a proof; a 403 leads to a longer pause and a lower pace. Two proofs,
//! and from then on a few 403 count as a refusal. If the host refuses even after the longest pause, the pages are
//! forbidden, and nothing is tested for an hour.

use std::time::Duration;

use crate::politeness::signals::PaceSignal;

/// Successes in a row, at first contact and later; and 403 among the answers that follow: all of six, or half of 32.
/// Pages that are forbidden here and there, whatever their share, lead to this at one in 2500 hosts at first contact,
/// and once in ten million requests later.
const SERVED: (u8, u8) = (12, 30);
const SOME: (u8, u8) = (6, 32);
/// Pauses of a test, in seconds. Bans of limiters that answer 403 last 10 s (Apache's mod_evasive) to a minute. After
/// each the pace is half as high.
const PAUSES: [u64; 3] = [2, 12, 61];
/// Successes in a row after a pause that are a proof, and the proofs needed. After the first, less leads to a test.
const ROW: u8 = 12;
const PROOFS: u8 = 2;
const NOT_AGAIN: f64 = 3600.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Disguise {
    /// Successes in a row, before the answers that are watched.
    served: u8,
    /// Answers since the first 403, how many of them were 403, and the successes after the last one.
    watched: u8,
    forbidden: u8,
    row: u8,
    /// Pauses of the present test; zero if there is none.
    pauses: u8,
    proofs: u8,
    /// There were 403 that led to no test.
    is_usual: bool,
    /// In a test, the end of its pause; else when the first request watched was sent, or no test begins before.
    until: f64,
}

impl Disguise {
    /// Returns what an answer means for the pace, and for how long to leave the host alone for a test.
    pub(super) fn read(&mut self, answer: PaceSignal, sent: f64, now: f64) -> (PaceSignal, Option<Duration>) {
        match answer {
            PaceSignal::Suspect => self.suspect(sent, now),
            PaceSignal::Success => {
                self.served(sent);
                (answer, None)
            }
            PaceSignal::Throttled | PaceSignal::Neutral | PaceSignal::Failed => (answer, None),
        }
    }

    /// The pace is divided by this during a test.
    pub(super) fn slowdown(&self) -> f32 {
        f32::from(1_u8 << self.pauses)
    }

    fn served(&mut self, sent: f64) {
        // A success may be older than the first 403: refusals are quick, and pages take their time.
        if self.watched > 0 && sent <= self.until {
            return;
        }
        self.row = self.row.saturating_add(1);
        if self.watched == 0 {
            self.served = self.row;
        } else if self.row >= ROW {
            self.proofs += u8::from(self.pauses > 0 && self.proofs < PROOFS);
            self.is_usual |= self.pauses == 0;
            (self.pauses, self.watched, self.forbidden, self.served) = (0, 0, 0, self.row);
        } else {
            self.watched = self.watched.saturating_add(1);
        }
    }

    fn suspect(&mut self, sent: f64, now: f64) -> (PaceSignal, Option<Duration>) {
        if self.watched == 0 && self.until <= now {
            self.until = sent;
        }
        self.row = 0;
        (self.watched, self.forbidden) = (self.watched.saturating_add(1), self.forbidden.saturating_add(1));
        if self.proofs >= PROOFS {
            // A single forbidden page is no refusal.
            let answer = if self.forbidden >= 2 { PaceSignal::Throttled } else { PaceSignal::Neutral };
            return (answer, None);
        }
        let is_row = self.forbidden == self.watched && self.forbidden >= SOME.0;
        let is_half = self.watched >= SOME.1 && 2 * self.forbidden >= self.watched;
        let served = self.served
            >= match (self.proofs, self.is_usual) {
                (0, true) => SERVED.1,
                (0, false) => SERVED.0,
                _ => ROW,
            };
        let begins = self.pauses == 0 && served && (is_row || is_half) && now >= self.until;
        if !begins && (self.pauses == 0 || sent < self.until) {
            if self.pauses == 0 && self.watched >= SOME.1 {
                (self.served, self.watched, self.forbidden, self.is_usual) = (0, 0, 0, true);
            }
            return (PaceSignal::Neutral, None);
        }
        let Some(seconds) = PAUSES.get(usize::from(self.pauses)) else {
            *self = Disguise { until: now + NOT_AGAIN, is_usual: true, ..Disguise::default() };
            return (PaceSignal::Neutral, None);
        };
        self.pauses += 1;
        self.until = now + *seconds as f64;
        (PaceSignal::Neutral, Some(Duration::from_secs(*seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::lab::Dice;

    fn at(millis: u64) -> f64 {
        1_000.0 + millis as f64 / 1_000.0
    }

    /// Reads answers to requests that are sent every 100 ms and answered at once. Returns the last.
    fn read(disguise: &mut Disguise, answer: PaceSignal, times: u64, from: u64) -> (PaceSignal, Option<Duration>) {
        (0..times).map(|n| disguise.read(answer, at(from + 100 * n), at(from + 100 * n))).last().unwrap()
    }

    #[test]
    fn two_rows_that_a_pause_ends_prove_a_limiter() {
        let mut disguise = Disguise::default();
        for from in [0, 100_000] {
            assert_eq!(read(&mut disguise, PaceSignal::Success, 70, from), (PaceSignal::Success, None));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 5, from + 7_000), (PaceSignal::Neutral, None));
            let pause = Some(Duration::from_secs(2));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, from + 7_500), (PaceSignal::Neutral, pause));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 3, from + 7_600), (PaceSignal::Neutral, None), "older");
            let longer = (PaceSignal::Neutral, Some(Duration::from_secs(12)));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, from + 9_600), longer);
            read(&mut disguise, PaceSignal::Success, 13, from + 23_000);
        }
        assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, 300_000).0, PaceSignal::Neutral, "a forbidden page");
        assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, 300_100).0, PaceSignal::Throttled);
    }

    #[test]
    fn every_other_request_refused_is_seen_too() {
        let mut disguise = Disguise::default();
        let mut now = 0;
        for _ in 0..2 {
            read(&mut disguise, PaceSignal::Success, 70, now);
            now += 7_000;
            let mut pause = None;
            while pause.is_none() {
                pause = disguise.read(PaceSignal::Suspect, at(now), at(now)).1;
                disguise.read(PaceSignal::Success, at(now + 100), at(now + 100));
                now += 200;
                assert!(now < 200_000, "never tested");
            }
            assert_eq!((pause, disguise.slowdown()), (Some(Duration::from_secs(2)), 2.0));
            read(&mut disguise, PaceSignal::Success, 13, now + 2_000);
            assert_eq!(disguise.slowdown(), 1.0);
            now += 10_000;
        }
        assert_eq!(disguise.proofs, PROOFS);
    }

    #[test]
    fn a_forbidden_section_is_tested_once_an_hour() {
        let mut disguise = Disguise::default();
        let mut now = 0;
        let mut paused = Duration::ZERO;
        while now < 7_000_000 {
            let answer = if now < 7_000 { PaceSignal::Success } else { PaceSignal::Suspect };
            let (means, pause) = disguise.read(answer, at(now), at(now));
            assert_ne!(means, PaceSignal::Throttled);
            paused += pause.unwrap_or_default();
            now += 100 + pause.unwrap_or_default().as_millis() as u64;
        }
        assert_eq!((paused, disguise.slowdown()), (Duration::from_secs(2 + 12 + 61), 1.0));
    }

    /// Pages that are forbidden at any pace, interleaved with others in any share, never slow a host.
    #[test]
    fn pages_that_are_forbidden_here_and_there_say_nothing() {
        for seed in 0..400 {
            let (mut dice, mut disguise) = (Dice(seed), Disguise::default());
            for n in 0..2_000 {
                let forbidden = dice.chance(1 + seed % 60) || seed % 7 == 0 && n % (2 + seed / 7 % 5) == 0;
                let answer = if forbidden { PaceSignal::Suspect } else { PaceSignal::Success };
                let (means, pause) = disguise.read(answer, at(n * 50), at(n * 50));
                assert!(means != PaceSignal::Throttled && pause.is_none(), "seed {seed}");
            }
        }
    }
}
