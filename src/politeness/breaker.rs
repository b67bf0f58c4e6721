//! The breaker: a host that only fails is left alone for a while, then tried with one request at a time.
//!
//! Closed, it counts failures in a row. Enough of them open it: nobody starts until the cooldown has passed. Then one
//! visit at a time is let through as a probe: if it is served, the breaker closes; if it fails, it opens again for twice
//! as long; if it is told "too fast", the host lives but wants peace, so the breaker stays as it was and cools down once
//! more.
//!
//! Promises: answers to what left before it opened change nothing; a probe that nobody reports blocks the next for two
//! minutes at most; while nothing fails, it costs a comparison.

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

/// A probe that was let through and never heard of again: its client left, or its task died. More than any request
/// waits for a connection and the head of its response, as they are configured by default.
const PROBE_PATIENCE: Duration = Duration::from_secs(120);

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
    /// A probe is on its way; another may go at this time.
    probe: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// So many failures in a row.
    Failures(u16),
    /// So many refusals in a row at the largest delay.
    Throttled(u16),
}

/// Leave to start, to be reported with what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Leave {
    Usual,
    /// What becomes of this one decides.
    Probe,
}

/// Nobody starts before this time. When it comes, one more may have been faster.
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
    pub leave: Leave,
    pub answer: Answer,
    /// A refusal that counted although the delay could not grow any more.
    pub at_limit: bool,
}

impl Breaker {
    pub fn new() -> Self {
        Breaker::default()
    }

    /// Whether a visit may start, and as what. To be settled by [`Breaker::heard`] or [`Breaker::left`].
    pub fn may_start(&mut self, now: Timestamp) -> Result<Leave, NotUntil> {
        if let Some(refusal) = self.refusal(now) {
            return Err(refusal);
        }
        let Some(open) = &mut self.open else { return Ok(Leave::Usual) };
        open.probe = Some(now + PROBE_PATIENCE);
        Ok(Leave::Probe)
    }

    /// What a visit would be told that wanted to start now; nothing if it might.
    pub fn refusal(&self, now: Timestamp) -> Option<NotUntil> {
        let open = self.open?;
        let time = open.until.max(open.probe.unwrap_or_default());
        (now < time).then_some(NotUntil { time, why: open.why })
    }

    /// A visit with leave to start has gone without an answer that says anything about the host.
    pub fn left(&mut self, leave: Leave) {
        if let (Leave::Probe, Some(open)) = (leave, &mut self.open) {
            open.probe = None;
        }
    }

    pub fn heard(&mut self, ending: Ending, tolerance: &Tolerance, now: Timestamp) -> Option<Change> {
        match self.open {
            None => self.count(ending, tolerance, now),
            Some(open) if ending.leave == Leave::Probe => self.probed(open, ending.answer, tolerance, now),
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
        self.open = Some(Open { since, until, cooldown, why, probe: None });
        Change::Opened { until, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    fn ending(leave: Leave, answer: Answer) -> Ending {
        Ending { leave, answer, at_limit: false }
    }

    /// A visit that starts and ends at once.
    fn visit(breaker: &mut Breaker, answer: Answer, now: Timestamp) -> Option<Change> {
        let leave = breaker.may_start(now).expect("it may start");
        breaker.heard(ending(leave, answer), &Tolerance::default(), now)
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
        assert_eq!(breaker.may_start(at(30)), Err(NotUntil { time: at(31), why }));
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
    fn after_the_cooldown_one_probe_at_a_time_may_start() {
        let mut breaker = opened(at(0));
        assert_eq!(until(&breaker, at(29)), Some(at(30)));
        assert_eq!(breaker.may_start(at(30)), Ok(Leave::Probe));
        assert_eq!(breaker.may_start(at(31)).map_err(|refusal| refusal.time), Err(at(150)));
        assert_eq!(
            breaker.heard(ending(Leave::Probe, Answer::Success), &Tolerance::default(), at(32)),
            Some(Change::Closed { since: at(0) })
        );
        assert_eq!(breaker.may_start(at(32)), Ok(Leave::Usual));
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
        assert!(breaker.may_start(at(59)).is_err());
        visit(&mut breaker, Answer::Failed, at(60));
        assert_eq!(until(&breaker, at(60)), Some(at(120)), "nor does it count as a failure");
    }

    #[test]
    fn a_probe_that_leaves_makes_room_at_once() {
        let mut breaker = opened(at(0));
        let leave = breaker.may_start(at(30)).unwrap();
        breaker.left(leave);
        assert_eq!(breaker.may_start(at(30)), Ok(Leave::Probe));
        breaker.left(Leave::Usual);
        assert!(breaker.may_start(at(31)).is_err(), "somebody else left");
    }

    #[test]
    fn a_probe_that_is_never_reported_makes_room_in_time() {
        let mut breaker = opened(at(0));
        assert_eq!(breaker.may_start(at(30)), Ok(Leave::Probe));
        assert!(breaker.may_start(at(149)).is_err());
        assert_eq!(breaker.may_start(at(150)), Ok(Leave::Probe));
    }

    #[test]
    fn what_left_before_it_opened_changes_nothing() {
        let mut breaker = opened(at(0));
        for answer in [Answer::Success, Answer::Failed, Answer::Throttled] {
            assert_eq!(breaker.heard(ending(Leave::Usual, answer), &Tolerance::default(), at(5)), None);
        }
        assert_eq!(until(&breaker, at(5)), Some(at(30)));
    }

    #[test]
    fn giving_up_on_a_host_that_only_refuses_is_optional() {
        let refused = Ending { leave: Leave::Usual, answer: Answer::Throttled, at_limit: true };
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
            assert_eq!(breaker.heard(ending(Leave::Usual, Answer::Failed), &off, at(0)), None);
        }
        let mut breaker = opened(at(0));
        breaker.close();
        assert_eq!(breaker.may_start(at(0)), Ok(Leave::Usual));
    }
}
