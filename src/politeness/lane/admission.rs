//! Joining a lane: which visits are admitted, which are refused at once, and with which retry time.
//!
//! The wait is predicted from everything that is known at arrival: the queue, the delay, holds, places, and the visits
//! that were told to come back before then. Later arrivals of other clients can still lengthen it, because the queue is
//! fair; so waiting visits are checked again at every step. An admitted visit is not refused because sends before it
//! were a little late ([`SLIP`]). When the delay becomes longer, visits that can no longer be served in time are
//! refused at once.

use std::time::Duration;

use super::crawl_delay::asked_of;
use super::{Lane, Obstacle};
use crate::politeness::policy::{Delays, Order};
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, LaneRefusal, PagePart, Purpose, Ticket, Visit};
use crate::politeness::visit_table::{Phase, VisitEntry};

/// An admitted visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub ticket: Ticket,
    /// When the visit is expected to start; in report mode, when it would have started.
    pub expected: Timestamp,
    /// The visit is called already, without a step: it is a robots.txt fetch or a page that waited for one, and nothing
    /// may come between; or it is a part that rides.
    pub is_called: bool,
}

/// Why a visit would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objection {
    Paused,
    /// The breaker is open.
    Broken,
    /// The host is held, or paused, for longer than the visit may wait.
    Held,
    /// The queue is full.
    Full,
    TooLong,
    /// curtsy stops before the visit's turn comes.
    Draining,
}

/// What a visit that arrived now could expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    pub delays: Delays,
    /// The same word as [`View::why`](super::View::why).
    pub why: &'static str,
    /// When the visit would start if it were admitted.
    pub start: Timestamp,
    pub objection: Option<Objection>,
}

/// An admitted visit may wait longer than foreseen, by up to this fraction of its patience, because every send before
/// it is a little late: 1/16 is 3 ms for each turn at a delay of 50 ms, where the 99th percentile measured is 1.5 ms.
const SLIP: u32 = 16;

impl Lane {
    /// Adds a visit to the queue, or refuses it at once, for example if it could not be served in time.
    pub fn join(&mut self, visit: Visit, now: Timestamp) -> Result<Joined, LaneRefusal> {
        if visit.purpose != Purpose::Page
            && let Some(ticket) = self.enter_free(&visit, Phase::Preparing, now)
        {
            return Ok(Joined { ticket, expected: now, is_called: true });
        }
        if visit.part != PagePart::No
            && let Some(joined) = self.join_part(&visit, now)
        {
            return joined;
        }
        let asked = asked_of(&visit);
        let rank = self.rank(&visit, now);
        // While the lane drains, all clients share one queue.
        let line = if self.is_draining() { Rank::Retry } else { rank };
        let expected = self.expected(line, visit.client, visit.urgency, asked, now);
        let deadline = self.admit(&visit, rank, expected, now)?;
        self.mix(asked);
        let entry = VisitEntry::new(&Visit { purpose: Purpose::Page, ..visit }, Phase::Waiting, deadline, now);
        let ticket = self.roll.enter(entry);
        if !self.enforced() {
            self.heed(ticket, now);
        }
        let (client, urgency) = self.stands_as(visit.client, visit.urgency);
        self.queue.join(ticket.number, line, client, urgency);
        let is_fetch = visit.purpose == Purpose::RobotsFetch;
        let shadow = if visit.denied || is_fetch { None } else { self.shadow_joins(ticket, &visit, now) };
        let expected = shadow.unwrap_or(expected);
        Ok(Joined { ticket, expected, is_called: false })
    }

    fn rank(&mut self, visit: &Visit, now: Timestamp) -> Rank {
        if visit.retry {
            Rank::Retry
        } else if self.comes_back(visit.client, visit.url, now) {
            Rank::Returning
        } else {
            Rank::Newcomer
        }
    }

    /// Returns whether this visit comes back when it was told to.
    fn comes_back(&mut self, client: ClientId, url: u64, now: Timestamp) -> bool {
        let Some(returns) = &mut self.returns else { return false };
        let told = returns.take(client, url, now);
        if returns.is_empty() {
            self.returns = None;
        }
        told
    }

    /// Without fairness, all clients share one queue.
    pub(super) fn stands_as(&self, client: ClientId, urgency: u8) -> (ClientId, u8) {
        match self.policy.order {
            Order::Fair => (client, urgency),
            Order::Fifo => (ClientId(0), 0),
        }
    }

    /// Returns until when the visit waits, or its refusal.
    pub(super) fn admit(
        &mut self,
        visit: &Visit,
        rank: Rank,
        expected: Timestamp,
        now: Timestamp,
    ) -> Result<Timestamp, LaneRefusal> {
        if !self.enforced() {
            return Ok(Timestamp::NEVER);
        }
        let patience = self.policy.max_wait.min(visit.max_wait.unwrap_or(Duration::MAX));
        let deadline = match rank {
            // The client was told to come now, so its own shorter `max_wait` does not count against it, and neither do
            // turns that were not foreseen.
            Rank::Returning => {
                expected.max(now) + self.policy.max_wait + self.turns_for_lost_rides(asked_of(visit), now)
            }
            Rank::Retry | Rank::Newcomer => now + patience,
        };
        if let Some(until) = self.refused_by_breaker(visit.origin, visit.client, now).filter(|_| !self.paused) {
            return Err(self.broken(visit.origin, visit.client, visit.url, expected.max(until), now));
        }
        let objection = self.objection(rank, patience, deadline, expected, now);
        // The requests that wait for a robots.txt are counted already, and cannot go on without its fetch.
        let is_counted = visit.purpose == Purpose::RobotsFetch && objection == Some(Objection::Full);
        let objection = if is_counted { self.too_late(deadline, expected) } else { objection };
        let Some(objection) = objection else {
            let deadline = deadline.max(expected + patience / SLIP);
            return Ok(self.drain.as_ref().map_or(deadline, |drain| drain.before_end(deadline)));
        };
        Err(match objection {
            Objection::Paused | Objection::Broken | Objection::Held => {
                self.cooling(visit.client, visit.url, expected, now)
            }
            Objection::Full => {
                LaneRefusal::QueueFull { retry_after: self.tell(visit.client, visit.url, expected, now) }
            }
            Objection::Draining => {
                LaneRefusal::ShuttingDown { retry_after: Some(self.tell(visit.client, visit.url, expected, now)) }
            }
            Objection::TooLong => {
                LaneRefusal::WaitTooLong { retry_after: self.tell(visit.client, visit.url, expected, now) }
            }
        })
    }

    /// Returns why a visit would be refused, apart from its origin's breaker.
    fn objection(
        &self,
        rank: Rank,
        patience: Duration,
        deadline: Timestamp,
        expected: Timestamp,
        now: Timestamp,
    ) -> Option<Objection> {
        let parked = self.riding.as_ref().map_or(0, |riding| riding.parked());
        let waiting = self.queue.len() + parked + self.robots_waits as usize;
        let at_once = waiting == 0 && expected <= now;
        if self.paused {
            Some(Objection::Paused)
        } else if self.turns.bars().held_or_closed_until() > now + patience {
            Some(Objection::Held)
        } else if rank == Rank::Newcomer && waiting >= self.policy.max_queue && !at_once {
            Some(Objection::Full)
        } else {
            self.too_late(deadline, expected)
        }
    }

    fn too_late(&self, deadline: Timestamp, expected: Timestamp) -> Option<Objection> {
        let too_long = (expected > deadline).then_some(Objection::TooLong);
        too_long.or_else(|| self.is_late(expected).then_some(Objection::Draining))
    }

    /// Predicts what would happen to a visit that joined now: the same as [`join`](Lane::join) would decide, for this
    /// client and its place in the fair queue. Changes nothing.
    pub fn foresee(&self, visit: &Visit, now: Timestamp) -> Expectation {
        let &Visit { client, origin, url, urgency, crawl_delay, .. } = visit;
        let delays = self.delays_for(crawl_delay, now);
        let follows = self.may_follow_fetch(visit, now);
        let returns = self.returns.as_ref().is_some_and(|returns| returns.is_due(client, url, now));
        let rank = if returns { Rank::Returning } else { Rank::Newcomer };
        let line = if self.is_draining() { Rank::Retry } else { rank };
        let expected = || self.expected(line, client, urgency, asked_of(visit), now);
        let start = if follows { now } else { expected() };
        if !self.enforced() {
            return Expectation { delays, why: delays.why(), start: now, objection: None };
        }
        let why = self.obstacle(now).map_or_else(|| delays.why(), Obstacle::word);
        let patience = self.policy.max_wait;
        let deadline = if returns { start.max(now) + patience } else { now + patience };
        let objection = self.objection(rank, patience, deadline, start, now);
        if let Some(until) = self.refused_by_breaker(origin, client, now).filter(|_| !self.paused) {
            let start = start.max(until);
            return Expectation { delays, why: "breaker", start, objection: Some(Objection::Broken) };
        }
        Expectation { delays, why, start, objection }
    }

    pub(super) fn cooling(&mut self, client: ClientId, url: u64, expected: Timestamp, now: Timestamp) -> LaneRefusal {
        if self.paused {
            return LaneRefusal::HostCooling { retry_after: None };
        }
        LaneRefusal::HostCooling { retry_after: Some(self.tell(client, url, expected, now)) }
    }

    pub(super) fn tell(&mut self, client: ClientId, url: u64, expected: Timestamp, now: Timestamp) -> Duration {
        let delay = self.turns.spacing().delay;
        self.returns.get_or_insert_default().tell(client, url, expected, delay, now)
    }

    /// Returns when a visit that joins now can expect to start. Newcomers go after visits that were told to come back.
    pub(super) fn expected(
        &self,
        rank: Rank,
        client: ClientId,
        urgency: u8,
        asked: Duration,
        now: Timestamp,
    ) -> Timestamp {
        let (start, ahead) = self.start_in_line(rank, client, urgency, asked, now);
        if rank != Rank::Newcomer {
            return start;
        }
        let returning = self.returns.as_ref().map_or(0, |returns| returns.expected(now, start));
        self.start_behind_more((start, ahead), returning, asked, now)
    }

    pub(super) fn start_behind(&self, ahead: usize, now: Timestamp) -> Timestamp {
        self.turns.predict(ahead, now).max(self.place_behind(ahead, now))
    }
}
