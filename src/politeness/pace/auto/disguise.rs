//! Refusals in disguise: "forbidden" that means "too fast".
//!
//! Some limiters answer 403. Most 403 are about the page, though, and such a page must never slow a host. What tells
//! them apart is time: a limiter refuses every page once it has been exceeded, and serves again after a pause. So a row
//! of 403 right after a long row of successes is tested: the host is left alone for a moment, and longer if it still
//! refuses. If it then serves, that is a proof. Two proofs, and from then on a few 403 in a row count as a refusal. If
//! it still refuses after the longest pause, the pages are forbidden, and nothing is tested for an hour.

use std::time::Duration;

use crate::politeness::signals::PaceSignal;

/// Successes before, and 403 in a row: among pages that are forbidden here and there, whatever their share, such rows
/// come once in a million requests.
const SUSPICIOUS: (u8, u8) = (30, 6);
/// Pauses of a test, in seconds. Bans of limiters that answer 403 last 10 s (Apache's mod_evasive) to a minute.
const PAUSES: [u64; 3] = [2, 12, 61];
const PROOFS: u8 = 2;
/// Once proven: this many 403 in a row are a refusal, so that a single forbidden page is none.
const REFUSED: u8 = 2;
const NOT_AGAIN: f64 = 3600.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Disguise {
    /// Successes in a row before the present row of 403.
    served: u8,
    /// 403 in a row.
    row: u8,
    /// Pauses of the present test; zero if there is none.
    pauses: u8,
    proofs: u8,
    /// In a test, the end of the pause; else, when the first request of the row was sent, or no test begins before.
    until: f64,
}

impl Disguise {
    /// Returns what an answer means for the pace, and for how long to leave the host alone for a test.
    pub(super) fn read(&mut self, answer: PaceSignal, sent: f64, now: f64) -> (PaceSignal, Option<Duration>) {
        match answer {
            PaceSignal::Suspect => self.suspect(sent, now),
            PaceSignal::Success => {
                if self.pauses > 0 && sent >= self.until {
                    self.proofs = self.proofs.saturating_add(1);
                    self.pauses = 0;
                }
                // A success may be older than the row: refusals are quick, and pages take their time.
                if self.row == 0 || self.pauses > 0 || sent > self.until {
                    self.served = if self.row > 0 { 1 } else { self.served.saturating_add(1) };
                    self.row = 0;
                }
                (answer, None)
            }
            PaceSignal::Throttled | PaceSignal::Neutral | PaceSignal::Failed => (answer, None),
        }
    }

    fn suspect(&mut self, sent: f64, now: f64) -> (PaceSignal, Option<Duration>) {
        if self.row == 0 && self.pauses == 0 && self.until <= now {
            self.until = sent;
        }
        self.row = self.row.saturating_add(1);
        if self.proofs >= PROOFS {
            let answer = if self.row >= REFUSED { PaceSignal::Throttled } else { PaceSignal::Neutral };
            return (answer, None);
        }
        let is_suspicious = self.served >= SUSPICIOUS.0 && self.row >= SUSPICIOUS.1;
        let begins = self.pauses == 0 && is_suspicious && now >= self.until;
        let goes_on = self.pauses > 0 && sent >= self.until;
        let pause = match PAUSES.get(usize::from(self.pauses)) {
            Some(seconds) if begins || goes_on => Duration::from_secs(*seconds),
            None if goes_on => {
                (self.pauses, self.until) = (0, now + NOT_AGAIN);
                return (PaceSignal::Neutral, None);
            }
            _ => return (PaceSignal::Neutral, None),
        };
        self.pauses += 1;
        self.until = now + pause.as_secs_f64();
        (PaceSignal::Neutral, Some(pause))
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
            assert_eq!(read(&mut disguise, PaceSignal::Success, 40, from), (PaceSignal::Success, None));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 5, from + 4_000), (PaceSignal::Neutral, None));
            let pause = Some(Duration::from_secs(2));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, from + 4_500), (PaceSignal::Neutral, pause));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 3, from + 4_600), (PaceSignal::Neutral, None), "older");
            let longer = (PaceSignal::Neutral, Some(Duration::from_secs(12)));
            assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, from + 6_500), longer);
            read(&mut disguise, PaceSignal::Success, 9, from + 20_000);
        }
        assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, 300_000).0, PaceSignal::Neutral, "a forbidden page");
        assert_eq!(read(&mut disguise, PaceSignal::Suspect, 1, 300_100).0, PaceSignal::Throttled);
    }

    #[test]
    fn a_forbidden_section_is_tested_once_an_hour() {
        let mut disguise = Disguise::default();
        let mut now = 0;
        let mut paused = Duration::ZERO;
        while now < 7_000_000 {
            let answer = if now < 4_000 { PaceSignal::Success } else { PaceSignal::Suspect };
            let (means, pause) = disguise.read(answer, at(now), at(now));
            assert_ne!(means, PaceSignal::Throttled);
            paused += pause.unwrap_or_default();
            now += 100 + pause.unwrap_or_default().as_millis() as u64;
        }
        assert_eq!(paused, Duration::from_secs(2 + 12 + 61) * 2);
    }

    #[test]
    fn pages_that_are_forbidden_here_and_there_say_nothing() {
        for seed in 0..200 {
            let (mut dice, mut disguise) = (Dice(seed), Disguise::default());
            for n in 0..2_000 {
                let forbidden = dice.chance(1 + seed % 60);
                let answer = if forbidden { PaceSignal::Suspect } else { PaceSignal::Success };
                let (means, pause) = disguise.read(answer, at(n * 50), at(n * 50));
                assert!(means != PaceSignal::Throttled && pause.is_none(), "seed {seed}");
            }
        }
    }
}
