//! The breaker: a host that only fails is left alone for a while, then tried with one request at a time.
//!
//! Closed, it counts failures in a row. Enough of them open it: nobody starts until the cooldown has passed. Then visits
//! are on trial ([`Breaker::is_open`]; the lane lets one at a time): if one is served, the breaker closes; if it fails,
//! it opens again for twice as long; if it is told "too fast", the host lives but wants peace, so the breaker stays as it
//! was and cools down once more.
//!
//! Promises: answers to what began before the cooldown had passed change nothing; while nothing fails, it costs a
//! comparison.

use std::time::Duration;

use super::signals::Answer;
use super::time::Timestamp;

/// How much failure is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// So many failures in a row open the breaker; 0 = never.
    pub failures: u16,
    /// Doubles each time a probe fails.
    pub cooldown: Duration,
    pub longest_cooldown: Duration,
    /// So many refusals in a row at the largest delay open it, too; 0 = never.
    pub throttled: u16,
}

impl Default for Tolerance {
    fn default() -> Self {
        let (cooldown, longest_cooldown) = (Duration::from_secs(30), Duration::from_secs(600));
        Tolerance { failures: 10, cooldown, longest_cooldown, throttled: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u16,
    throttled: u16,
    open: Option<Open>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    since: Timestamp,
    until: Timestamp,
    cooldown: Duration,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many failures in a row.
    Failures(u16),
    /// So many refusals in a row at the largest delay.
    Throttled(u16),
}

/// Nobody starts before this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUntil {
    pub time: Timestamp,
    pub why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Opened { until: Timestamp, why: Why },
    Closed { since: Timestamp },
}

/// What became of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ending {
    /// When it began: was called to make its connection ready, or sent.
    pub began: Timestamp,
    pub answer: Answer,
    /// A refusal that counted although the delay could not grow any more.
    pub at_limit: bool,
}

impl Breaker {
    pub fn new() -> Self {
        Breaker::default()
    }

    /// What a visit would be told that wanted to start now; nothing if it might.
    pub fn refusal(&self, now: Timestamp) -> Option<NotUntil> {
        let Open { until, why, .. } = self.open?;
        (now < until).then_some(NotUntil { time: until, why })
    }

    /// Whether nobody may start, or whoever does is on trial.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// From when on visits are on trial, if it is open.
    pub fn trials_from(&self) -> Option<Timestamp> {
        self.open.map(|open| open.until)
    }

    pub fn heard(&mut self, ending: Ending, tolerance: &Tolerance, now: Timestamp) -> Option<Change> {
        match self.open {
            None => self.count(ending, tolerance, now),
            Some(open) if ending.began >= open.until => self.probed(open, ending.answer, tolerance, now),
            Some(_) => None,
        }
    }

    /// The operator knows better.
    pub fn close(&mut self) {
        *self = Breaker::new();
    }

    /// Failures in a row, up to now.
    pub fn failures(&self) -> u16 {
        self.failures
    }

    fn count(&mut self, ending: Ending, tolerance: &Tolerance, now: Timestamp) -> Option<Change> {
        match ending.answer {
            Answer::Failed => self.failures = self.failures.saturating_add(1),
            // It answers.
            Answer::Success | Answer::Neutral => *self = Breaker::new(),
            Answer::Throttled => {
                self.failures = 0;
                self.throttled = self.throttled.saturating_add(ending.at_limit.into());
            }
        }
        if tolerance.failures > 0 && self.failures >= tolerance.failures {
            Some(self.open(Why::Failures(self.failures), tolerance.cooldown, now, now))
        } else if tolerance.throttled > 0 && self.throttled >= tolerance.throttled {
            // Holds grow longer than the first cooldown long before it comes to this.
            Some(self.open(Why::Throttled(self.throttled), tolerance.longest_cooldown, now, now))
        } else {
            None
        }
    }

    fn probed(&mut self, open: Open, answer: Answer, tolerance: &Tolerance, now: Timestamp) -> Option<Change> {
        let Open { since, cooldown, why, .. } = open;
        match answer {
            Answer::Success | Answer::Neutral => {
                self.close();
                Some(Change::Closed { since })
            }
            Answer::Failed => {
                self.failures = self.failures.saturating_add(1);
                let longer = cooldown.saturating_mul(2).min(tolerance.longest_cooldown).max(cooldown);
                Some(self.open(Why::Failures(self.failures), longer, since, now))
            }
            Answer::Throttled => Some(self.open(why, cooldown, since, now)),
        }
    }

    fn open(&mut self, why: Why, cooldown: Duration, since: Timestamp, now: Timestamp) -> Change {
        let until = now + cooldown;
        self.open = Some(Open { since, until, cooldown, why });
        Change::Opened { until, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    /// A visit that begins and ends at once.
    fn visit(breaker: &mut Breaker, answer: Answer, now: Timestamp) -> Option<Change> {
        assert_eq!(breaker.refusal(now), None);
        breaker.heard(Ending { began: now, answer, at_limit: false }, &Tolerance::default(), now)
    }

    fn opened(now: Timestamp) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..10 {
            visit(&mut breaker, Answer::Failed, now);
        }
        breaker
    }

    fn until(breaker: &Breaker, now: Timestamp) -> Option<Timestamp> {
        breaker.refusal(now).map(|refusal| refusal.time)
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let mut breaker = Breaker::new();
        for _ in 0..9 {
            assert_eq!(visit(&mut breaker, Answer::Failed, at(0)), None);
        }
        let why = Why::Failures(10);
        assert_eq!(visit(&mut breaker, Answer::Failed, at(1)), Some(Change::Opened { until: at(31), why }));
        assert_eq!(breaker.refusal(at(30)), Some(NotUntil { time: at(31), why }));
    }

    #[test]
    fn any_answer_ends_the_row() {
        for answer in [Answer::Success, Answer::Neutral, Answer::Throttled] {
            let mut breaker = Breaker::new();
            for _ in 0..100 {
                for _ in 0..9 {
                    visit(&mut breaker, Answer::Failed, at(0));
                }
                assert_eq!(visit(&mut breaker, answer, at(0)), None, "{answer:?}");
                assert_eq!(breaker.failures(), 0);
            }
        }
    }

    #[test]
    fn after_the_cooldown_one_that_is_served_closes_it() {
        let mut breaker = opened(at(0));
        assert_eq!(until(&breaker, at(29)), Some(at(30)));
        assert_eq!(until(&breaker, at(30)), None);
        assert!(breaker.is_open(), "on trial");
        assert_eq!(visit(&mut breaker, Answer::Success, at(32)), Some(Change::Closed { since: at(0) }));
        assert!(!breaker.is_open());
        assert_eq!(breaker.failures(), 0);
    }

    #[test]
    fn a_failed_probe_doubles_the_cooldown_up_to_the_longest() {
        let mut breaker = opened(at(0));
        let mut now = until(&breaker, at(0)).unwrap();
        let mut cooldowns = Vec::new();
        for _ in 0..7 {
            visit(&mut breaker, Answer::Failed, now);
            cooldowns.push(until(&breaker, now).unwrap().since(now).as_secs());
            now = until(&breaker, now).unwrap();
        }
        assert_eq!(cooldowns, [60, 120, 240, 480, 600, 600, 600]);
        visit(&mut breaker, Answer::Success, now);
        for _ in 0..10 {
            visit(&mut breaker, Answer::Failed, now);
        }
        assert_eq!(until(&breaker, now), Some(now + Duration::from_secs(30)), "closed, it starts anew");
    }

    #[test]
    fn a_probe_that_is_told_too_fast_does_not_close_it() {
        let mut breaker = opened(at(0));
        let change = visit(&mut breaker, Answer::Throttled, at(30));
        assert_eq!(change, Some(Change::Opened { until: at(60), why: Why::Failures(10) }));
        assert!(breaker.refusal(at(59)).is_some());
        visit(&mut breaker, Answer::Failed, at(60));
        assert_eq!(until(&breaker, at(60)), Some(at(120)), "nor does it count as a failure");
    }

    #[test]
    fn what_left_before_it_opened_changes_nothing() {
        let mut breaker = opened(at(0));
        for answer in [Answer::Success, Answer::Failed, Answer::Throttled] {
            assert_eq!(
                breaker.heard(Ending { began: at(0), answer, at_limit: false }, &Tolerance::default(), at(40)),
                None
            );
        }
        assert_eq!(until(&breaker, at(5)), Some(at(30)));
    }

    #[test]
    fn giving_up_on_a_host_that_only_refuses_is_optional() {
        let refused = Ending { began: at(0), answer: Answer::Throttled, at_limit: true };
        let mut breaker = Breaker::new();
        for _ in 0..1_000 {
            assert_eq!(breaker.heard(refused, &Tolerance::default(), at(0)), None);
        }
        let tolerance = Tolerance { throttled: 20, ..Tolerance::default() };
        let mut breaker = Breaker::new();
        for _ in 0..19 {
            assert_eq!(breaker.heard(refused, &tolerance, at(0)), None);
            assert_eq!(breaker.heard(Ending { at_limit: false, ..refused }, &tolerance, at(0)), None);
        }
        let change = breaker.heard(refused, &tolerance, at(0));
        assert_eq!(change, Some(Change::Opened { until: at(600), why: Why::Throttled(20) }));
    }

    #[test]
    fn it_can_be_off_and_be_closed_by_hand() {
        let off = Tolerance { failures: 0, ..Tolerance::default() };
        let mut breaker = Breaker::new();
        for _ in 0..100 {
            let ending = Ending { began: at(0), answer: Answer::Failed, at_limit: false };
            assert_eq!(breaker.heard(ending, &off, at(0)), None);
        }
        let mut breaker = opened(at(0));
        breaker.close();
        assert_eq!(breaker.refusal(at(0)), None);
    }
}
