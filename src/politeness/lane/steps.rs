//! "What next?": the one question a lane answers, and the alarm that says when to ask again.
//!
//! The order is: refuse visits that cannot be served in time, start a visit that is ready, call the next visit, then
//! the next part of a page. Each step concerns one visit; the caller carries it out and asks again.

use std::time::Duration;

use super::Lane;
use super::crawl_delay::Forecast;
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Alarm, LaneRefusal, Step, Ticket};
use crate::politeness::visit_table::Phase;

/// How long before its turn a visit is called. A TLS handshake across the world takes about half a second with DNS;
/// servers that close idle connections early do so after 5 s.
pub const LEAD: Duration = Duration::from_secs(1);

/// The deadline of a visit that must be refused, whatever its deadline was before.
const TOO_LATE: Timestamp = Timestamp::START;

impl Lane {
    /// Returns what to do now. Call it after every other call, until it says to wait.
    pub fn next_step(&mut self, now: Timestamp) -> Step {
        // How many places there are depends on the delay too.
        self.settle_rides(now);
        self.heed_next(now);
        self.set_aside(now);
        self.next_drained()
            .or_else(|| self.refuse_one(now))
            .or_else(|| self.refuse_broken(now))
            .or_else(|| self.start_one(now))
            .or_else(|| self.call_one(now))
            .or_else(|| self.ride_one(now))
            .unwrap_or_else(|| Step::Wait(self.alarm(now)))
    }

    /// Refuses a waiting visit that can no longer be served in time.
    fn refuse_one(&mut self, now: Timestamp) -> Option<Step> {
        let ticket = self.hopeless(now)?;
        let entry = *self.roll.get_mut(ticket)?;
        self.leave(ticket, now);
        let expected = self.expected(Rank::Newcomer, entry.client, entry.urgency, entry.crawl_delay(), now);
        let is_held = entry.deadline > TOO_LATE && self.turns.bars().held_or_closed_until() > entry.deadline;
        let refusal = if self.is_draining() {
            self.drained(&entry, expected, now)
        } else if self.paused || is_held {
            self.cooling(entry.client, entry.url, expected, now)
        } else {
            LaneRefusal::WaitTooLong { retry_after: self.tell(entry.client, entry.url, expected, now) }
        };
        Some(Step::Refuse(ticket, refusal))
    }

    /// Returns a visit that can no longer be served in time. The one that starts next comes first: without it, the
    /// others may not have to wait for its crawl delay.
    fn hopeless(&mut self, now: Timestamp) -> Option<Ticket> {
        let start = self.turns.earliest(now);
        let is_late = |&number: &u32| {
            let entry = self.roll.entry(number);
            entry.phase.waits_for_the_host() && entry.deadline < start
        };
        if let Some(number) = self.next_to_start(now).filter(is_late) {
            return Some(self.roll.ticket(number));
        }
        let to_ride = self.riding.as_ref().map_or(&[][..], |riding| riding.called());
        self.roll.hopeless(start, now, to_ride)
    }

    fn start_one(&mut self, now: Timestamp) -> Option<Step> {
        let index = self.first_ready()?;
        let phase = if !self.enforced() {
            self.turns.take();
            Phase::Waved
        } else if self.may_claim() && self.turns.claim(now).is_ok() {
            Phase::Claimed
        } else {
            return None;
        };
        let number = self.called.remove(index);
        self.flying.push(number);
        let ticket = self.roll.ticket(number);
        self.roll.get_mut(ticket)?.phase = phase;
        Some(Step::Start(ticket))
    }

    fn call_one(&mut self, now: Timestamp) -> Option<Step> {
        if self.queue.is_empty() || (self.enforced() && self.next_call(now) > now) {
            return None;
        }
        let number = self.next_in_line()?;
        self.queue.take(number);
        let ticket = self.roll.ticket(number);
        let entry = self.roll.get_mut(ticket)?;
        entry.phase = Phase::Preparing;
        entry.since = now;
        self.called.push(ticket.number);
        self.may_be_trial(ticket, now);
        Some(Step::Prepare(ticket))
    }

    /// Marks the visits that can no longer be served in time because the delay has become longer; the next steps refuse
    /// them. A delay that is longer only because of one slow answer (`delay_factor`) is no reason.
    pub(super) fn give_up_on_the_late(&mut self, now: Timestamp) {
        if self.queue.is_empty() || !self.enforced() || self.is_draining() {
            return;
        }
        let mut forecast = Forecast::new(self, now);
        self.called.iter().for_each(|&number| forecast.add(number));
        let is_late = |number: &u32| {
            let is_late = forecast.turn(*number) > self.roll.entry(*number).deadline;
            if !is_late {
                forecast.add(*number);
            }
            is_late
        };
        let late: Vec<u32> = self.queue.in_order().into_iter().filter(is_late).collect();
        for number in late {
            let ticket = self.roll.ticket(number);
            if let Some(entry) = self.roll.get_mut(ticket) {
                entry.deadline = TOO_LATE;
                self.roll.watch(TOO_LATE);
            }
        }
    }

    /// Returns whether no step can follow before the caller reports something, because no visit waits for the host.
    #[inline]
    pub fn rests(&self) -> bool {
        self.queue.is_empty() && self.first_ready().is_none() && self.no_part_waits() && !self.is_draining()
    }

    pub(super) fn first_ready(&self) -> Option<usize> {
        self.called.iter().position(|&number| self.roll.entry(number).phase == Phase::Ready)
    }

    fn may_claim(&self) -> bool {
        !self.paused && self.in_flight() < self.concurrency()
    }

    /// Returns when the lane calls the next visit in the queue, if nothing changes until then.
    fn next_call(&self, now: Timestamp) -> Timestamp {
        let limit = self.concurrency();
        let taken = self.in_flight() + self.called.len();
        if self.paused || self.in_flight() >= limit || taken >= 2 * limit {
            return Timestamp::NEVER;
        }
        let preparing = self.called.iter().map(|&number| self.roll.entry(number));
        let late = preparing.filter(|entry| entry.phase == Phase::Preparing && entry.since + LEAD <= now).count();
        if taken - late >= limit {
            return self.next_late(now);
        }
        // The turns that failed attempts have cost delay the next attempt, not only the next request.
        let behind = (self.turns.predict(self.called.len() - late, now) - LEAD).max(self.turns.bars().taken_until);
        // Sooner, if a visit that was called before it takes too long.
        if behind > now { behind.min(self.next_late(now)) } else { behind }
    }

    /// Returns when a called visit will have used up its lead.
    fn next_late(&self, now: Timestamp) -> Timestamp {
        let preparing = self.called.iter().map(|&number| self.roll.entry(number));
        let late = preparing.filter(|entry| entry.phase == Phase::Preparing).map(|entry| entry.since + LEAD);
        late.filter(|&late| late > now).min().unwrap_or(Timestamp::NEVER)
    }

    /// Returns the next time at which something happens by itself.
    fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        let ready = self.first_ready();
        let keeper = ready
            .map(|index| self.called[index])
            .or_else(|| self.queue.next())
            .or_else(|| self.riding.as_ref()?.keeper())
            .or_else(|| self.called.first().copied())?;
        let give_up = self.roll.first_deadline() + Duration::from_micros(1);
        let call = if self.next_in_line().is_none() { Timestamp::NEVER } else { self.next_call(now) };
        let start = match ready {
            Some(_) if self.may_claim() => self.turns.next_claim(now),
            _ => Timestamp::NEVER,
        };
        let at = give_up.min(call).min(start).min(self.next_set_aside()).min(self.next_ride(now));
        (at < Timestamp::NEVER).then(|| Alarm { at, keeper: self.roll.ticket(keeper) })
    }
}
