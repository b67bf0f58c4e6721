//! What a lane learns from answers, and from missing answers: a pace, and when to leave a host alone.
//!
//! Most hosts never teach anything, so lessons are stored apart from the lane and only where there is something to
//! keep. The pace yields a delay, a limit of visits in flight, and holds. Breakers are in `failing`.

use std::time::Duration;

use super::{Held, Lane};
use crate::politeness::breaker::{self, Tolerance, VisitEnding};
use crate::politeness::breakers::Breakers;
use crate::politeness::pace::{self, Cause, FIRST_DELAY, Hold, Learner, Learning, Pace, PaceLoad, PaceReport, What};
use crate::politeness::policy::LearningPolicy;
use crate::politeness::retries::Budget;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{OriginId, Ticket, VisitOutcome};
use crate::politeness::visit_table::{Phase, VisitEntry};

/// What was learned from a host, and the rules by which it was learned.
#[derive(Debug)]
pub(super) struct Learned {
    learning: Learning,
    pub(super) tolerance: Tolerance,
    pub(super) pace: Pace,
    pub(super) breakers: Breakers,
    retries: Budget,
    /// The share of first tries that may be followed by a second one.
    retry_share: f64,
}

/// What an answer changed, for the log and the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLesson {
    pub pace: Option<pace::Change>,
    pub breaker: Option<breaker::BreakerChange>,
    /// The delay in force now.
    pub delay: Duration,
    /// The limit of visits in flight before the answer and now.
    pub concurrency: (usize, usize),
}

impl Learned {
    fn new(learning: Learning, schooling: &LearningPolicy, now: Timestamp) -> Self {
        let LearningPolicy { tolerance, ref retrying, .. } = *schooling;
        let retry_share = retrying.budget;
        let mut pace = Pace::new();
        pace.follow(&learning, now);
        Learned { learning, tolerance, pace, breakers: Breakers::default(), retries: Budget::new(), retry_share }
    }

    /// Returns whether anything that was learned is still worth keeping.
    fn is_worth_keeping(&self, now: Timestamp) -> bool {
        let kept = self.pace.memory(now).is_some() || self.pace.held_until() > now || self.pace.follows_quota(now);
        !self.breakers.is_empty() || kept || !self.retries.is_whole(now)
    }
}

impl Lane {
    /// Reports what became of a visit that was sent. Returns what changed, if anything did.
    pub fn report(
        &mut self,
        ticket: Ticket,
        outcome: VisitOutcome,
        schooling: &LearningPolicy,
        now: Timestamp,
    ) -> Option<LaneLesson> {
        let entry =
            *self.roll.get_mut(ticket).filter(|entry| matches!(entry.phase, Phase::Started | Phase::Lasting))?;
        if !matches!(outcome, VisitOutcome::Failed | VisitOutcome::Truncated) && self.policy.delay_factor > 0.0 {
            self.delays.response = self.policy.response_delay(now.since(entry.since));
            self.respace(now);
        }
        if matches!(outcome, VisitOutcome::Heard(signals) if signals.answer == PaceSignal::Success) {
            self.last_success = now;
        }
        let signals = match outcome {
            VisitOutcome::Heard(signals) => Some(signals),
            VisitOutcome::Opened => None,
            VisitOutcome::Failed | VisitOutcome::Truncated => Some(Signals::FAILED),
        };
        let failures = self.failures_of(entry.origin);
        if outcome == VisitOutcome::Truncated && entry.forgave > 0 {
            self.lessons_or_new(schooling, now).breakers.take_back(entry.origin, entry.forgave, now);
        }
        let lesson = self.learn(ticket, &entry, signals, schooling, now);
        if let Some(entry) = self.roll.get_mut(ticket) {
            entry.forgave = failures;
        }
        lesson
    }

    /// Returns the number of failures in a row of one origin.
    fn failures_of(&mut self, origin: OriginId) -> u16 {
        let breaker = self.lessons.as_mut().and_then(|lessons| lessons.breakers.get_mut(origin));
        breaker.map_or(0, |breaker| breaker.failures())
    }

    /// Takes a retry from the host's budget, and returns whether one was left. Always false where pacing is not
    /// enforced.
    pub fn may_retry(&mut self, schooling: &LearningPolicy, now: Timestamp) -> bool {
        // Without enforced waits, the second try would follow the refusal at once.
        self.enforced() && self.lessons_or_new(schooling, now).retries.take(now)
    }

    /// Returns whether the host means "too fast" by the status that its last suspect answer had.
    pub fn refuses_in_disguise(&self) -> bool {
        self.lessons.as_ref().is_some_and(|lessons| lessons.pace.refuses_in_disguise())
    }

    /// Returns how many retries the host's budget has left; `None` while nothing is kept about the host.
    pub fn retries_left(&self, now: Timestamp) -> Option<u32> {
        self.lessons.as_ref().map(|lessons| lessons.retries.left(now))
    }

    /// Sets the rules to learn by from now on.
    pub fn school(&mut self, schooling: &LearningPolicy, now: Timestamp) {
        let learning = self.learning(schooling);
        if let Some(lessons) = &mut self.lessons {
            (lessons.learning, lessons.tolerance) = (learning, schooling.tolerance);
            lessons.retry_share = schooling.retrying.budget;
            lessons.pace.follow(&learning, now);
            self.respace(now);
        }
        self.measure(schooling, now);
    }

    /// Returns the settings by which this host learns.
    pub(super) fn learning(&self, schooling: &LearningPolicy) -> Learning {
        Learning { learner: self.policy.learner, ..schooling.learning }
    }

    /// Whether the next answer begins the measurement. Like the timeline it needs a second request, which most hosts
    /// never get.
    pub(super) fn begins_to_measure(&self) -> bool {
        self.policy.learner == Learner::Auto && self.lessons.is_none() && self.timeline.is_some()
    }

    /// Begins to learn before there is anything to learn from, if the policy begins slower than configured.
    pub(super) fn measure(&mut self, schooling: &LearningPolicy, now: Timestamp) {
        if self.begins_slower() && self.lessons.is_none() {
            self.lessons_or_new(schooling, now);
            self.respace(now);
        }
    }

    /// Whether the first requests are further apart than configured. Without lessons they would not be.
    pub(super) fn begins_slower(&self) -> bool {
        self.policy.learner == Learner::Auto && !self.policy.delay.is_zero() && self.policy.delay < FIRST_DELAY
    }

    /// Returns the pace that was learned from this host, if any.
    pub fn pace(&self) -> Option<&Pace> {
        self.lessons.as_ref().map(|lessons| &lessons.pace)
    }

    /// Returns how many visits may be in flight at the moment.
    pub fn concurrency(&self) -> usize {
        self.places.limit()
    }

    /// Returns how many visits may be in flight if a visit with this crawl delay is next.
    pub(super) fn concurrency_for(&self, asked: Duration, now: Timestamp) -> usize {
        let Some(Learned { learning, pace, .. }) = self.lessons.as_deref() else { return self.places.limit() };
        let base = self.delays.configured.max(asked);
        self.places.part(pace.concurrency(self.policy.concurrency, base, learning, now).max(1) as usize)
    }

    /// Counts a request that is sent, and notes the epoch with which its answer must be reported.
    pub(super) fn count_send(&mut self, ticket: Ticket, retry: bool, now: Timestamp) {
        let (load, base) = (self.load(), self.base());
        let Some(lessons) = &mut self.lessons else { return };
        if !retry {
            lessons.retries.sent(lessons.retry_share);
        }
        let epoch = lessons.pace.sent(load, base, &lessons.learning, now);
        self.respace(now);
        if let Some(entry) = self.roll.get_mut(ticket) {
            entry.epoch = Some(epoch.of_retry(retry));
        }
    }

    /// Counts a success, if counting is all that it leads to. Returns false otherwise; then nothing has happened.
    pub(super) fn only_counts(&mut self, entry: &VisitEntry, now: Timestamp) -> bool {
        let (load, base) = (self.load(), self.base());
        let Some(lessons) = self.lessons.as_mut().filter(|lessons| lessons.breakers.is_empty()) else { return false };
        let (epoch, took) = (entry.epoch.unwrap_or_default(), now.since(entry.since));
        let heard = PaceReport { epoch, signals: Signals::SERVED, load, took };
        entry.forgave == 0 && lessons.pace.only_counts(&heard, base, &lessons.learning, now)
    }

    fn learn(
        &mut self,
        ticket: Ticket,
        entry: &VisitEntry,
        signals: Option<Signals>,
        schooling: &LearningPolicy,
        now: Timestamp,
    ) -> Option<LaneLesson> {
        let teaches = signals.is_some_and(|signals| signals != Signals::SERVED);
        if self.lessons.is_none() && !teaches && !self.begins_to_measure() {
            return None;
        }
        let (before, load, base) = (self.concurrency(), self.load(), self.base());
        let last_sent = self.turns.memory().last_sent;
        let is_first = self.lessons.is_none();
        let lessons = self.lessons_or_new(schooling, now);
        let mut epoch = entry.epoch.unwrap_or_default();
        if let Some(sent) = last_sent.filter(|_| is_first) {
            // The pace has not seen the sends before there was anything to learn.
            epoch = lessons.pace.sent(load, base, &lessons.learning, sent);
        }
        let change = signals.and_then(|signals| {
            let heard = PaceReport { epoch, signals, load, took: now.since(entry.since) };
            let learning = lessons.learning;
            lessons.pace.heard(heard, base, &learning, now)
        });
        let at_limit = change
            .is_some_and(|change| change.what == What::Slowed && change.before >= lessons.learning.max_delay.max(base));
        // A tunnel that opens shows that the host is alive.
        let answer = signals.map_or(PaceSignal::Success, |signals| signals.answer);
        let ending = VisitEnding { ticket, client: entry.client, began: entry.since, answer, at_limit };
        let breaker = lessons.breakers.heard(entry.origin, ending, &lessons.tolerance, now);
        self.obey_lessons(change, now);
        if let Some(asked) = signals.and_then(|signals| signals.retry_after) {
            self.hold_for(Held::Pace(Cause::RetryAfter), now + asked, now);
        }
        let concurrency = (before, self.concurrency());
        let delay = self.delays.effective();
        (change.is_some() || breaker.is_some()).then_some(LaneLesson { pace: change, breaker, delay, concurrency })
    }

    pub(super) fn obey_lessons(&mut self, change: Option<pace::Change>, now: Timestamp) {
        self.respace(now);
        if let Some(change) = change {
            self.unsaved |= change.what != What::Held;
        }
        if let Some(Hold { until, cause }) = change.and_then(|change| change.hold) {
            self.hold_for(Held::Pace(cause), until, now);
        }
        // Drops lessons that are no longer worth keeping, so that they cost nothing. Answers on their way still need
        // their epochs.
        if self.in_flight() <= 1 && self.policy.learner != Learner::Auto {
            self.drop_lessons(now);
        }
    }

    /// Drops lessons that are not worth keeping. What `auto` has measured so far is, while requests come.
    pub(super) fn drop_lessons(&mut self, now: Timestamp) {
        self.lessons.take_if(|lessons| !lessons.is_worth_keeping(now));
    }

    /// Returns how busy the host is, without the visit that was sent or answered now.
    fn load(&self) -> PaceLoad {
        let in_flight = u32::try_from(self.in_flight().saturating_sub(1)).unwrap_or(u32::MAX);
        PaceLoad { in_flight, places: self.policy.concurrency.max(1) }
    }

    /// Returns the delay if nothing had been learned: the longer of the configured delay and the crawl delay.
    fn base(&self) -> Duration {
        self.delays.configured.max(self.delays.robots)
    }

    /// Returns the learned part of the delay if the rest came to `base`; `None` if nothing was learned.
    pub(super) fn learned_above(&self, base: Duration, now: Timestamp) -> Option<Duration> {
        self.lessons.as_ref().map(|lessons| lessons.pace.delay(base, &lessons.learning, now))
    }

    /// Returns whether the host has taught a longer delay than the configured one. A longer delay with which `auto`
    /// begins was not taught.
    pub(super) fn is_slowed(&self, now: Timestamp) -> bool {
        let is_taught = |pace: &Pace| !pace.learned().is_zero() || pace.follows_quota(now);
        self.delays.learned > self.delays.configured && self.pace().is_none_or(is_taught)
    }

    /// Sets the learned parts of the delay and of the limit, from what is known now.
    pub(super) fn apply_lessons(&mut self, now: Timestamp) {
        let base = self.base();
        if let Some(Learned { learning, pace, .. }) = self.lessons.as_deref() {
            self.delays.learned = pace.delay(base, learning, now);
            self.places.change(pace.concurrency(self.policy.concurrency, base, learning, now));
        }
    }

    /// Forgets what was learned, and returns whether there was anything. Keeps holds, and the count of used-up retries.
    pub(super) fn forget_lessons(&mut self) -> bool {
        let Some(lessons) = &mut self.lessons else { return false };
        let learned = lessons.pace.learned() > Duration::ZERO || lessons.breakers.any_open();
        lessons.pace.forget();
        lessons.breakers.close();
        learned
    }

    pub(super) fn lessons_or_new(&mut self, schooling: &LearningPolicy, now: Timestamp) -> &mut Learned {
        let learning = self.learning(schooling);
        self.lessons.get_or_insert_with(|| Box::new(Learned::new(learning, schooling, now)))
    }
}

#[cfg(test)]
#[path = "lessons_tests.rs"]
mod tests;
