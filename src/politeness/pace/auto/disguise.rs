//! Refusals in disguise: "forbidden" that means "too fast".
//!
//! Some limiters answer 403. Most 403 are about the page, though, and such a page must never slow a host. What tells
//! them apart is time: a limiter begins to refuse after it has served many pages, and serves the same page after a
//! pause. So when a row of successes turns into many 403, the host is put on trial: these 403 count as refusals, and
//! the request of the last one is sent again after a pause. If it is served then, that is the proof, and from then on
//! 403 is a refusal. If other pages are served and that one is not, or nothing is after the longest pause, the pages
//! are forbidden: nothing has been learned, and there is no trial for an hour.

use super::{Auto, Epoch, Moment, before};
use crate::politeness::pace::PaceReport;
use crate::politeness::signals::PaceSignal;

/// Successes in a row, at first contact and later; and 403 among the answers that follow: all of six, or half of 32.
/// Pages that are forbidden here and there, whatever their share, lead to this at one in 1100 hosts at first contact,
/// and once in ten million requests later.
const SERVED: (u8, u8) = (10, 30);
const SOME: (u8, u8) = (6, 32);
/// Waits of a trial, in seconds, one for each retry that is usual (`retry.max`). Bans of limiters that answer 403 last
/// 10 s (Apache's mod_evasive) to a minute.
pub(super) const WAITS: [f32; 3] = [2.0, 12.0, 61.0];
const NOT_AGAIN: f64 = 3600.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Disguise {
    /// Successes in a row, before the answers that are watched.
    served: u8,
    /// Answers since the first 403, how many of them were 403, and the successes after the last one.
    watched: u8,
    forbidden: u8,
    row: u8,
    pub(super) is_on_trial: bool,
    /// A request that was sent again was answered 403 again.
    is_repeated: bool,
    is_proven: bool,
    /// There were 403 that were no refusals. On a host that refuses by 403, two in a row then are one.
    is_usual: bool,
    /// When the first request that is watched was sent, or no trial begins before.
    until: f64,
}

impl Auto {
    /// Returns what an answer means for the pace.
    pub(super) fn unmask(&mut self, heard: &PaceReport, m: &Moment) -> PaceSignal {
        let sent = m.now - heard.took.as_secs_f64();
        match heard.signals.answer {
            PaceSignal::Suspect => self.suspect(heard.epoch, sent, m),
            PaceSignal::Success => {
                self.disguise.served(sent);
                let is_new = self.run.is_on && !before(heard.epoch.number, self.refused_epoch);
                if is_new { self.judge_trial(heard.epoch.retry, m) } else { PaceSignal::Success }
            }
            answer => answer,
        }
    }

    pub(in crate::politeness::pace) fn refuses_in_disguise(&self) -> bool {
        let Disguise { is_on_trial, is_proven, is_usual, forbidden, .. } = self.disguise;
        is_on_trial || is_proven && (forbidden >= 2 || !is_usual)
    }

    /// The host serves again after it had refused: the page that it had refused, or another one.
    fn judge_trial(&mut self, retry: bool, m: &Moment) -> PaceSignal {
        let disguise = &mut self.disguise;
        let is_repeated = disguise.is_repeated && !retry;
        if disguise.is_on_trial && retry {
            (disguise.is_proven, disguise.is_on_trial, disguise.is_usual) = (true, false, false);
        } else if disguise.is_on_trial && (is_repeated || disguise.row >= SERVED.0) {
            self.acquit(m);
        } else if disguise.is_on_trial {
            return PaceSignal::Neutral;
        }
        self.disguise.is_usual |= is_repeated;
        self.disguise.is_repeated = false;
        PaceSignal::Success
    }

    fn acquit(&mut self, m: &Moment) {
        self.run.is_on = false;
        self.disguise = Disguise { until: m.now + NOT_AGAIN, is_usual: true, ..Disguise::default() };
    }

    fn suspect(&mut self, epoch: Epoch, sent: f64, m: &Moment) -> PaceSignal {
        let disguise = &mut self.disguise;
        disguise.is_repeated |= epoch.retry;
        if disguise.is_on_trial {
            disguise.row = 0;
            if usize::from(self.run.canaries) >= WAITS.len() && !before(epoch.number, self.refused_epoch) {
                self.acquit(m);
                return PaceSignal::Neutral;
            }
            return PaceSignal::Throttled;
        }
        disguise.is_on_trial = disguise.looks_like_pace(sent, m.now);
        if self.refuses_in_disguise() { PaceSignal::Throttled } else { PaceSignal::Neutral }
    }
}

impl Disguise {
    fn served(&mut self, sent: f64) {
        // A success may be older than the first 403: refusals are quick, and pages take their time.
        if self.watched > 0 && sent <= self.until {
            return;
        }
        self.row = self.row.saturating_add(1);
        if self.watched == 0 {
            self.served = self.row;
        } else if self.row >= SERVED.0 || self.is_proven {
            self.is_usual |= !self.is_proven;
            (self.watched, self.forbidden, self.served) = (0, 0, self.row);
        } else {
            self.watched = self.watched.saturating_add(1);
        }
    }

    /// Counts a 403, and returns whether the host should be put on trial.
    fn looks_like_pace(&mut self, sent: f64, now: f64) -> bool {
        if self.watched == 0 && self.until <= now {
            self.until = sent;
        }
        self.row = 0;
        (self.watched, self.forbidden) = (self.watched.saturating_add(1), self.forbidden.saturating_add(1));
        let is_row = self.forbidden == self.watched && self.forbidden >= SOME.0;
        let is_half = self.watched >= SOME.1 && 2 * self.forbidden >= self.watched;
        let served = self.served >= if self.is_usual { SERVED.1 } else { SERVED.0 };
        let begins = served && (is_row || is_half) && now >= self.until && !self.is_proven;
        if !begins && self.watched >= SOME.1 && !self.is_proven {
            (self.served, self.watched, self.forbidden, self.is_usual) = (0, 0, 0, true);
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::politeness::lab::Dice;
    use crate::politeness::pace::PaceLoad;
    use crate::politeness::signals::Signals;

    const ROW: usize = SOME.0 as usize;

    /// Requests to a host, one every 50 ms or after the wait that was asked for, each answered at once.
    struct Visits {
        auto: Auto,
        now: f64,
        waited: f32,
    }

    impl Visits {
        fn new() -> Self {
            Visits { auto: Auto::at_epoch(0), now: 1_000.0, waited: 0.0 }
        }

        /// Returns whether the answer was taken as a refusal.
        fn hear(&mut self, answer: PaceSignal, retry: bool) -> bool {
            self.now += 0.05;
            let (now, rate) = (self.now, 20.0);
            let moment = Moment { now, fastest: rate, slowest: 0.01, rate, places: 8, longest_wait: 900.0 };
            let epoch = self.auto.sent(1, &moment).of_retry(retry);
            let signals = Signals { answer, ..Signals::SERVED };
            let load = PaceLoad { in_flight: 0, places: 8 };
            let step = self.auto.heard(&PaceReport { epoch, signals, load, took: Duration::ZERO }, &moment);
            let wait = step.and_then(|step| step.window).unwrap_or_default().as_secs_f32();
            self.waited += wait;
            self.now += f64::from(wait);
            wait > 0.0
        }

        fn served(&mut self, times: usize) {
            (0..times).for_each(|_| assert!(!self.hear(PaceSignal::Success, false)));
        }

        /// 403 until it is taken as a refusal. Returns how many.
        fn forbidden(&mut self, most: usize) -> usize {
            (1..=most).find(|_| self.hear(PaceSignal::Suspect, false)).expect("a refusal")
        }
    }

    #[test]
    fn a_page_that_a_pause_opens_proves_a_limiter() {
        let mut visits = Visits::new();
        visits.served(70);
        assert_eq!((visits.forbidden(20), visits.waited), (ROW, 2.0));
        assert!(visits.auto.refuses_in_disguise() && visits.hear(PaceSignal::Suspect, true), "still banned");
        assert!(!visits.hear(PaceSignal::Success, true) && visits.waited == 14.0);
        visits.served(30);
        assert_eq!(visits.forbidden(1), 1);
        assert!(visits.auto.refuses_in_disguise(), "the client need not see it");
    }

    #[test]
    fn every_other_request_refused_is_seen_too() {
        let mut visits = Visits::new();
        visits.served(SERVED.0.into());
        let refused = (0..40).find(|_| {
            let refused = visits.hear(PaceSignal::Suspect, false);
            refused || visits.hear(PaceSignal::Success, false)
        });
        assert!(refused.is_some());
        visits.hear(PaceSignal::Success, true);
        assert!(visits.auto.disguise.is_proven);
    }

    #[test]
    fn a_forbidden_section_is_tried_once_an_hour() {
        let mut visits = Visits::new();
        visits.served(70);
        visits.forbidden(20);
        while visits.auto.disguise.is_on_trial {
            visits.hear(PaceSignal::Suspect, true);
        }
        assert_eq!(visits.waited, WAITS.iter().sum::<f32>());
        let (rate, until) = (visits.auto.rate, visits.now + 3500.0);
        while visits.now < until {
            visits.hear(PaceSignal::Suspect, false);
            (0..40).for_each(|_| assert!(!visits.hear(PaceSignal::Success, false)));
        }
        assert_eq!((visits.waited, visits.auto.limit), (WAITS.iter().sum::<f32>(), f32::INFINITY));
        assert!(visits.auto.rate >= rate && !visits.auto.refuses_in_disguise());
    }

    #[test]
    fn other_pages_that_are_served_end_the_trial() {
        let mut visits = Visits::new();
        visits.served(70);
        visits.forbidden(20);
        visits.hear(PaceSignal::Success, false);
        assert!(visits.auto.disguise.is_on_trial, "it may have been called before the retry");
        visits.hear(PaceSignal::Suspect, true);
        visits.hear(PaceSignal::Success, false);
        assert!(!visits.auto.disguise.is_on_trial && !visits.auto.disguise.is_proven && !visits.auto.run.is_on);
        assert_eq!(visits.auto.limit, f32::INFINITY);
    }

    #[test]
    fn where_403_is_a_refusal_a_forbidden_page_costs_once() {
        let mut visits = Visits::new();
        visits.served(70);
        visits.forbidden(20);
        visits.hear(PaceSignal::Success, true);
        visits.served(30);
        assert!(visits.hear(PaceSignal::Suspect, false) && visits.hear(PaceSignal::Suspect, true));
        visits.served(1);
        for _ in 0..50 {
            assert!(!visits.hear(PaceSignal::Suspect, false) && !visits.auto.refuses_in_disguise());
            visits.served(5);
        }
        assert_eq!(visits.forbidden(2), 2);
    }

    /// Pages that are forbidden at any pace, interleaved with others in any share, never slow a host.
    #[test]
    fn pages_that_are_forbidden_here_and_there_say_nothing() {
        for seed in 0..400 {
            let (mut dice, mut visits) = (Dice(seed), Visits::new());
            for n in 0..2_000 {
                let forbidden = dice.chance(1 + seed % 60) || seed % 7 == 0 && n % (2 + seed / 7 % 5) == 0;
                let answer = if forbidden { PaceSignal::Suspect } else { PaceSignal::Success };
                assert!(!visits.hear(answer, false) && !visits.auto.refuses_in_disguise(), "seed {seed}");
            }
        }
    }
}
