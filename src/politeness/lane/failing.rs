//! Origins that fail: what a lane does about their breakers.
//!
//! A visit asks its origin's breaker when it joins and again when it is called. If the breaker opens while the visit
//! waits, the visit is refused when it is next in the queue, so that it does not hold up other origins of the host. A
//! failed connection attempt costs a turn.

use super::{BreakerView, Lane, LaneLesson};
use crate::politeness::Origin;
use crate::politeness::breaker::{Ruling, VisitEnding};
use crate::politeness::policy::LearningPolicy;
use crate::politeness::queue::Rank;
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, LaneRefusal, OriginId, Step, Ticket};
use crate::politeness::visit_table::Phase;

/// An origin of the host that has failed, as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailingOrigin {
    pub origin: Origin,
    pub breaker: BreakerView,
    /// Failures in a row.
    pub failures: u16,
}

impl Lane {
    /// Reports that the connection of a called visit could not be opened. The lane learns nothing about the pace from
    /// it. The visit must leave.
    pub fn unreachable(&mut self, ticket: Ticket, schooling: &LearningPolicy, now: Timestamp) -> Option<LaneLesson> {
        let entry = *self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Preparing)?;
        if self.is_called_to_ride(ticket) {
            // The spacing is that of the visit whose turn is next, and a part has none.
            self.heed(ticket, now);
        }
        self.turns.charge_attempt(entry.since);
        // Its turn is taken now, so the visits behind it need not wait for it once more.
        self.called.retain(|number| *number != ticket.number);
        let (began, answer) = (entry.since, PaceSignal::Failed);
        let ending = VisitEnding { ticket, client: entry.client, began, answer, at_limit: false };
        let lessons = self.lessons_or_new(schooling, now);
        let breaker = lessons.breakers.heard(entry.origin, ending, &lessons.tolerance, now);
        self.obey_lessons(None, now);
        let limit = self.concurrency();
        let delay = self.delays.effective();
        breaker.is_some().then_some(LaneLesson { pace: None, breaker, delay, concurrency: (limit, limit) })
    }

    /// Stores which origin a number stands for, so that it can be shown. Needed for origins that have failed.
    pub fn name_origin(&mut self, id: OriginId, origin: &Origin) {
        if let Some(lessons) = &mut self.lessons {
            lessons.breakers.name(id, origin);
        }
    }

    /// Returns every origin that has failed lately and whose name is known.
    pub fn failing_origins(&self, now: Timestamp) -> Vec<FailingOrigin> {
        let failing = self.lessons.iter().flat_map(|lessons| lessons.breakers.iter());
        let named = failing.filter_map(|failing| Some((failing.name.clone()?, &failing.breaker)));
        let shown = named.map(|(origin, breaker)| {
            let failures = breaker.failures();
            FailingOrigin { origin, breaker: BreakerView::of(breaker, now), failures }
        });
        shown.collect()
    }

    /// Returns what the breaker of this origin decides about a visit of this client.
    pub(super) fn ruling(&self, origin: OriginId, client: ClientId, now: Timestamp) -> Ruling {
        self.lessons.as_ref().map_or(Ruling::Free, |lessons| lessons.breakers.ruling(origin, client, now))
    }

    /// Returns until when the breaker refuses such a visit.
    pub(super) fn refused_by_breaker(&self, origin: OriginId, client: ClientId, now: Timestamp) -> Option<Timestamp> {
        match self.ruling(origin, client, now) {
            Ruling::Refused(refusal) => Some(refusal.time),
            Ruling::Free | Ruling::Trial => None,
        }
    }

    /// Returns the refusal of a visit whose origin's breaker is open. The visit could start at `expected` at the
    /// earliest.
    pub(super) fn broken(
        &mut self,
        origin: OriginId,
        client: ClientId,
        url: u64,
        expected: Timestamp,
        now: Timestamp,
    ) -> LaneRefusal {
        let retry_after = self.tell(client, url, expected, now);
        if let Some(breaker) = self.lessons.as_mut().and_then(|lessons| lessons.breakers.get_mut(origin)) {
            breaker.told(client, now + retry_after);
        }
        LaneRefusal::BreakerOpen { retry_after }
    }

    /// Refuses the visit that is next in the queue, if its origin's breaker opened while it waited.
    pub(super) fn refuse_broken(&mut self, now: Timestamp) -> Option<Step> {
        let has_open = self.lessons.as_ref().is_some_and(|lessons| lessons.breakers.any_open());
        if !has_open || !self.enforced() {
            return None;
        }
        let ticket = self.roll.ticket(self.next_in_line()?);
        let entry = *self.roll.get_mut(ticket)?;
        let until = self.refused_by_breaker(entry.origin, entry.client, now)?;
        self.leave(ticket, now);
        let expected = self.expected(Rank::Newcomer, entry.client, entry.urgency, entry.crawl_delay(), now).max(until);
        Some(Step::Refuse(ticket, self.broken(entry.origin, entry.client, entry.url, expected, now)))
    }

    /// Makes a called visit the trial of its origin's breaker, if that breaker is open and allows one.
    pub(super) fn may_be_trial(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).map(|entry| *entry) else { return };
        if self.ruling(entry.origin, entry.client, now) == Ruling::Trial
            && let Some(breaker) = self.lessons.as_mut().and_then(|lessons| lessons.breakers.get_mut(entry.origin))
        {
            breaker.begin_trial(ticket);
        }
    }

    pub(super) fn worst_breaker(&self, now: Timestamp) -> BreakerView {
        let failing = self.lessons.iter().flat_map(|lessons| lessons.breakers.iter());
        let rank = |breaker: &BreakerView| match breaker {
            BreakerView::Closed => (0, Timestamp::START),
            BreakerView::Trial => (1, Timestamp::START),
            BreakerView::Open(refusal) => (2, refusal.time),
        };
        failing.map(|failing| BreakerView::of(&failing.breaker, now)).max_by_key(rank).unwrap_or(BreakerView::Closed)
    }

    /// Returns whether an origin's breaker is open and the host has served nothing since.
    pub(super) fn is_broken(&self) -> bool {
        let failing = self.lessons.iter().flat_map(|lessons| lessons.breakers.iter());
        failing.filter_map(|failing| failing.breaker.open_since()).any(|since| self.last_success < since)
    }

    pub(super) fn most_failures(&self) -> u16 {
        let failing = self.lessons.iter().flat_map(|lessons| lessons.breakers.iter());
        failing.map(|failing| failing.breaker.failures()).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[path = "failing_tests.rs"]
mod tests;
