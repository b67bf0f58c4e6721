//! Parts of pages: which of them wait for a ride, and which ride now.
//!
//! A part waits in no queue. It is *parked* until there is a ride and a place for it. If its client has no ride, one of
//! the client's parts joins the queue and takes a turn, on which the others ride. A part that rides needs a place like
//! any visit, but no turn, so it does not delay the next page; a visit whose turn has come gets the next free place.
//!
//! Rides are over while the host is held, paused or has taught a longer delay than the configured one, and while curtsy
//! stops. Then every parked part joins the queue and waits for a turn of its own.

use std::time::Duration;

use smallvec::SmallVec;

use super::crawl_delay::asked_of;
use super::{Joined, Lane};
use crate::politeness::breaker::Ruling;
use crate::politeness::policy::{Counts, Order};
use crate::politeness::queue::Rank;
use crate::politeness::rides::RideBook;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, LaneRefusal, PagePart, Purpose, Step, Ticket, Visit};
use crate::politeness::visit_table::{Phase, VisitEntry};

/// The rides of a lane. There are none until a page takes a turn.
#[derive(Debug, Default)]
pub(super) struct Riding {
    book: RideBook,
    /// Parts that wait for a ride or a place, in the order in which they ride.
    parked: Vec<u32>,
    /// Parts that get ready to ride, or are ready and have no place.
    called: SmallVec<[u32; 4]>,
    /// Parts that take a turn for the parked parts of their clients. Some may have left.
    pullers: SmallVec<[(ClientId, Ticket); 2]>,
    /// What the host was owed when the latest part was told to start: the most parts, and until when it was held.
    owed: (u32, Timestamp),
    /// Parts that rode, modulo 2^32.
    rode: u32,
}

impl Riding {
    /// Returns the number of parts that have not been told to start.
    pub(super) fn waiting(&self) -> usize {
        self.parked.len() + self.called.len()
    }

    pub(super) fn parked(&self) -> usize {
        self.parked.len()
    }

    /// Parts that are about to have places.
    pub(super) fn called(&self) -> &[u32] {
        &self.called
    }

    /// Returns a part that waits, to keep the alarm.
    pub(super) fn keeper(&self) -> Option<u32> {
        self.parked.first().or_else(|| self.called.first()).copied()
    }

    fn leave(&mut self, number: u32) {
        self.parked.retain(|parked| *parked != number);
        self.called.retain(|called| *called != number);
    }

    /// Ends all rides. The next step moves the parked parts to the queue.
    pub(super) fn end(&mut self) {
        self.book.end();
    }
}

impl Lane {
    /// Starts a part that has a connection, if there is a ride and a place for it.
    pub(super) fn ride_through(&mut self, visit: &Visit, now: Timestamp) -> Option<Ticket> {
        let ticket = self.enter_ride(visit, Phase::Riding, now)?;
        self.begin_ride(ticket, now);
        Some(ticket)
    }

    /// Returns whether this part has a ride, or other parts of its client wait for one. Then it must not take a turn,
    /// even if the host is free.
    pub(super) fn waits_for_ride(&self, visit: &Visit, now: Timestamp) -> bool {
        let Some(riding) = self.riding.as_ref().filter(|_| self.is_free_to_ride(visit, now)) else { return false };
        let mut parts = riding.parked.iter().chain(&riding.called).map(|&number| self.roll.entry(number));
        self.has_ride(visit.client, now)
            || self.has_puller(visit.client)
            || parts.any(|part| part.client == visit.client)
    }

    /// Calls a part at once if there is a ride and a place for it, and parks it otherwise. Returns `None` for a visit
    /// that has to wait for its own turn.
    pub(super) fn join_part(&mut self, visit: &Visit, now: Timestamp) -> Option<Result<Joined, LaneRefusal>> {
        if !self.is_free_to_ride(visit, now) {
            return None;
        }
        if let Some(ticket) = self.enter_ride(visit, Phase::Preparing, now) {
            self.riding.get_or_insert_default().called.push(ticket.number);
            return Some(Ok(Joined { ticket, expected: now, is_called: true }));
        }
        let expected = self.expected_part(visit, now);
        let deadline = match self.admit(visit, Rank::Newcomer, expected, now) {
            Ok(deadline) => deadline,
            Err(refusal) => return Some(Err(refusal)),
        };
        let page = Visit { purpose: Purpose::Page, ..*visit };
        let ticket = self.roll.enter(VisitEntry::new(&page, Phase::Parked, deadline, now));
        let goes_before = |&number: &u32| {
            let other = self.roll.entry(number);
            other.client == visit.client && other.urgency > visit.urgency
        };
        let riding = self.riding.get_or_insert_default();
        let index = riding.parked.iter().position(goes_before).unwrap_or(riding.parked.len());
        riding.parked.insert(index, ticket.number);
        Some(Ok(Joined { ticket, expected, is_called: false }))
    }

    /// Returns when a part can expect to start.
    pub(super) fn expected_part(&self, visit: &Visit, now: Timestamp) -> Timestamp {
        let ahead = self.riding.as_ref().map_or(0, |riding| riding.waiting());
        let turns = u32::try_from(ahead).unwrap_or(u32::MAX) / self.policy.page_parts.max(1);
        let more_turns = self.delays.effective().saturating_mul(turns);
        if self.has_ride(visit.client, now) {
            return self.place_behind(ahead, now) + more_turns;
        }
        self.expected(Rank::Newcomer, visit.client, visit.urgency, asked_of(visit), now) + more_turns
    }

    /// Notes that a turn was sent, on which parts of its client may ride.
    pub(super) fn open_ride(&mut self, client: ClientId, purpose: Purpose, part: PagePart, now: Timestamp) {
        // The page that follows a robots.txt fetch takes one turn with it.
        if purpose != Purpose::RobotsFetch {
            self.riding.get_or_insert_default().book.turn(client, part != PagePart::Data, now);
            self.audit.turn();
        }
    }

    /// Removes a part that waits for a ride.
    pub(super) fn leave_riding(&mut self, ticket: Ticket) {
        if let Some(riding) = &mut self.riding {
            riding.leave(ticket.number);
        }
    }

    /// Settles a ride: its part was sent, or does not start.
    pub(super) fn settle_ride(&mut self) {
        if let Some(riding) = &mut self.riding {
            riding.book.settle();
        }
    }

    /// Returns whether this visit rides: it starts, or was told to start, without a turn.
    pub fn rides(&self, ticket: Ticket) -> bool {
        self.roll.get(ticket).is_some_and(|entry| entry.phase == Phase::Riding)
    }

    /// Returns whether this visit waits for a ride.
    #[cfg(test)]
    pub(in crate::politeness) fn is_parked(&self, ticket: Ticket) -> bool {
        self.roll.get(ticket).is_some_and(|entry| entry.phase == Phase::Parked)
    }

    /// Returns whether this visit has been called for a ride.
    pub(in crate::politeness) fn is_called_to_ride(&self, ticket: Ticket) -> bool {
        self.rides(ticket) || self.riding.as_ref().is_some_and(|riding| riding.called.contains(&ticket.number))
    }

    /// Returns how many parts have ridden since the lane was created, modulo 2^32.
    pub fn parts_rode(&self) -> u32 {
        self.riding.as_ref().map_or(0, |riding| riding.rode)
    }

    /// Moves parts that have lost their ride to the queue: all, if rides are over; otherwise one of each client that
    /// has no ride, whose turn the others wait for.
    pub(super) fn settle_rides(&mut self, now: Timestamp) {
        let Some(riding) = self.riding.as_ref().filter(|riding| riding.waiting() > 0) else { return };
        let (called, parked) = (riding.called.clone(), riding.parked.clone());
        let are_over = self.rides_are_over(now);
        for number in called {
            let client = self.roll.entry(number).client;
            if are_over || !self.has_ride(client, now) {
                self.wait_for_turn(number);
            }
        }
        let mut seen: SmallVec<[ClientId; 4]> = SmallVec::new();
        for number in parked {
            let &VisitEntry { client, origin, part, .. } = self.roll.entry(number);
            let is_broken = !seen.contains(&client) && self.ruling(origin, client, now) != Ruling::Free;
            if are_over || is_broken || (part == PagePart::Data && !self.has_ride(client, now)) {
                self.wait_for_turn(number);
            } else if !seen.contains(&client) {
                seen.push(client);
                if !self.has_ride(client, now) && !self.has_puller(client) {
                    self.wait_for_turn(number);
                }
            }
        }
    }

    /// Starts a part that is ready to ride, or calls the next one that may.
    pub(super) fn ride_one(&mut self, now: Timestamp) -> Option<Step> {
        let riding = self.riding.as_ref().filter(|riding| riding.waiting() > 0)?;
        let is_ready = |&&number: &&u32| {
            let entry = self.roll.entry(number);
            entry.phase == Phase::Ready && self.may_ride(entry.client, now)
        };
        if let Some(&number) = riding.called.iter().find(is_ready).filter(|_| self.in_flight() < self.concurrency()) {
            let ticket = self.roll.ticket(number);
            self.begin_ride(ticket, now);
            return Some(Step::Start(ticket));
        }
        let number = self.next_to_ride(now)?;
        let riding = self.riding.as_mut()?;
        riding.leave(number);
        riding.called.push(number);
        let ticket = self.roll.ticket(number);
        let entry = self.roll.get_mut(ticket)?;
        (entry.phase, entry.since) = (Phase::Preparing, now);
        Some(Step::Prepare(ticket))
    }

    /// Starts a part that was called to ride and is ready now, if it may and there is a place. `None` for other visits.
    pub(super) fn ride_ready(&mut self, ticket: Ticket, now: Timestamp) -> Option<bool> {
        self.riding.as_ref().filter(|riding| riding.called.contains(&ticket.number))?;
        let client = self.roll.get(ticket)?.client;
        let starts = self.may_ride(client, now) && self.in_flight() < self.concurrency();
        if starts {
            self.begin_ride(ticket, now);
        }
        Some(starts)
    }

    /// Returns whether a part that was told to start some time ago may still do so. If not, it waits for a turn.
    pub(super) fn confirm_ride(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        let is_confirmed = self.still_rides(now);
        if !is_confirmed {
            self.lose_ride(ticket);
        }
        is_confirmed
    }

    /// Makes a part that was told to start wait for a turn.
    pub(super) fn lose_ride(&mut self, ticket: Ticket) {
        self.settle_ride();
        self.put_back(ticket);
    }

    /// Returns how long the turns of parts that lose their ride can take: one part at each place, and each takes its
    /// turn before the visits that are not called yet.
    pub(super) fn turns_for_lost_rides(&self, asked: Duration, now: Timestamp) -> Duration {
        let parts = if self.policy.count == Counts::Pages { self.policy.concurrency } else { 0 };
        self.gap(asked, now).saturating_mul(parts)
    }

    /// Returns whether rides are on at the moment. What a shared ledger says is about turns, which rides do not need.
    fn still_rides(&self, now: Timestamp) -> bool {
        !self.rides_are_over(now) && self.turns.bars().taken_until <= now
    }

    /// Returns when parts that wait can ride although nothing is reported: after failed connection attempts.
    pub(super) fn next_ride(&self, now: Timestamp) -> Timestamp {
        let taken_until = self.turns.bars().taken_until;
        let waits = self.riding.as_ref().is_some_and(|riding| riding.waiting() > 0);
        if waits && taken_until > now { taken_until } else { Timestamp::NEVER }
    }

    /// Returns whether no part waits for something that the next step could give.
    pub(super) fn no_part_waits(&self) -> bool {
        let Some(riding) = &self.riding else { return true };
        riding.parked.is_empty() && !riding.called.iter().any(|&number| self.roll.entry(number).phase == Phase::Ready)
    }

    /// Returns what the host was owed when the latest part was told to start, for the audit.
    pub(super) fn ride_owed(&self) -> (u32, Timestamp) {
        self.riding.as_ref().map_or((0, Timestamp::START), |riding| riding.owed)
    }

    /// Admits a part in this phase, if there is a ride and a place for it and no part or turn goes first.
    fn enter_ride(&mut self, visit: &Visit, phase: Phase, now: Timestamp) -> Option<Ticket> {
        let riding = self.riding.as_ref()?;
        let client = visit.client;
        let is_first = !riding.parked.iter().any(|&number| self.roll.entry(number).client == client);
        let turn_is_due = self.first_ready().is_some() && self.turns.next_claim(now) <= now;
        if !is_first || turn_is_due || !self.is_free_to_ride(visit, now) || !self.may_ride(client, now) {
            return None;
        }
        self.set_aside(now);
        if !self.has_place_to_ride(client) {
            return None;
        }
        let deadline = now + self.policy.max_wait.min(visit.max_wait.unwrap_or(Duration::MAX));
        Some(self.roll.enter(VisitEntry::new(visit, phase, deadline, now)))
    }

    /// Returns whether this is a part whose turn carries others.
    pub(super) fn counts_part(&self, visit: &Visit) -> bool {
        self.policy.count == Counts::Pages && visit.part == PagePart::Resource
    }

    /// Returns whether this visit waits for rides and not for its own turn.
    fn is_free_to_ride(&self, visit: &Visit, now: Timestamp) -> bool {
        let returns = self.returns.as_ref().is_some_and(|returns| returns.is_due(visit.client, visit.url, now));
        let may_wait = match visit.part {
            PagePart::No => false,
            PagePart::Resource => true,
            // The turn of another such part would not carry it.
            PagePart::Data => self.has_ride(visit.client, now),
        };
        may_wait
            && !(visit.retry || returns || self.rides_are_over(now))
            && self.ruling(visit.origin, visit.client, now) == Ruling::Free
    }

    fn begin_ride(&mut self, ticket: Ticket, now: Timestamp) {
        let owed = (self.policy.page_parts, self.turns.bars().held_or_closed_until());
        let (Some(entry), Some(riding)) = (self.roll.get_mut(ticket), &mut self.riding) else { return };
        (entry.phase, entry.since) = (Phase::Riding, now);
        riding.called.retain(|called| *called != ticket.number);
        riding.book.ride(entry.client);
        riding.owed = owed;
        riding.rode = riding.rode.wrapping_add(1);
        self.flying.push(ticket.number);
    }

    /// Makes a part that waits for a ride wait for its own turn.
    fn wait_for_turn(&mut self, number: u32) {
        let ticket = self.roll.ticket(number);
        let Some(entry) = self.roll.get_mut(ticket) else { return };
        let (client, urgency, asked, part) = (entry.client, entry.urgency, entry.crawl_delay(), entry.part);
        let is_parked = entry.phase == Phase::Parked;
        if is_parked {
            entry.phase = Phase::Waiting;
        }
        if let Some(riding) = &mut self.riding {
            riding.leave(number);
            if part == PagePart::Resource {
                riding.pullers.retain(|(other, _)| *other != client);
                riding.pullers.push((client, ticket));
            }
        }
        self.mix(asked);
        if is_parked {
            let line = if self.is_draining() { Rank::Retry } else { Rank::Newcomer };
            let (client, urgency) = self.stands_as(client, urgency);
            self.queue.join(number, line, client, urgency);
        } else {
            self.called.push(number);
        }
    }

    /// Returns the part that rides next: of the client that holds the fewest places.
    fn next_to_ride(&self, now: Timestamp) -> Option<u32> {
        let riding = self.riding.as_ref()?;
        let mut seen: SmallVec<[ClientId; 4]> = SmallVec::new();
        let mut next = None;
        for &number in &riding.parked {
            let client = self.roll.entry(number).client;
            if seen.contains(&client) {
                continue;
            }
            seen.push(client);
            let holds = self.holds(client);
            let is_better = next.is_none_or(|(fewest, _)| holds < fewest);
            if is_better && self.may_ride(client, now) && self.has_place_to_ride(client) {
                next = Some((holds, number));
            }
        }
        next.map(|(_, number)| number)
    }

    /// Returns whether a part of this client could ride now, if there is a place.
    fn may_ride(&self, client: ClientId, now: Timestamp) -> bool {
        self.has_ride(client, now) && self.still_rides(now)
    }

    /// Returns whether the client has a ride. A ride from before the end of a hold is over.
    fn has_ride(&self, client: ClientId, now: Timestamp) -> bool {
        let since = self.riding.as_ref().and_then(|riding| riding.book.since(client, self.policy.page_parts, now));
        since.is_some_and(|since| since >= self.turns.bars().held_until)
    }

    fn has_puller(&self, client: ClientId) -> bool {
        let pulls = |ticket: Ticket| self.roll.get(ticket).is_some_and(|entry| !entry.phase.is_sent());
        let pullers = self.riding.iter().flat_map(|riding| &riding.pullers);
        pullers.into_iter().any(|&(puller, ticket)| puller == client && pulls(ticket))
    }

    /// Returns whether a part of this client may have one more place: while other clients wait, no more than its share.
    fn has_place_to_ride(&self, client: ClientId) -> bool {
        let limit = self.concurrency();
        let called = self.riding.as_ref().map_or(0, |riding| riding.called.len());
        if self.in_flight() + called >= limit || !self.may_hold(client) {
            return false;
        }
        if self.queue.is_empty() || limit == 1 || self.policy.order == Order::Fifo {
            return true;
        }
        let waits_too = self.queue.first(|number, _| self.roll.entry(number).client == client).is_some();
        self.holds(client) < limit.div_ceil(self.queue.clients() + usize::from(!waits_too))
    }

    /// Returns whether no part may ride, and every part waits for its own turn.
    fn rides_are_over(&self, now: Timestamp) -> bool {
        let is_held = self.paused || self.turns.bars().held_or_closed_until() > now;
        let is_unpaced = !self.enforced() || self.turns.spacing().delay.is_zero();
        self.policy.count == Counts::Requests || self.is_slowed(now) || is_held || is_unpaced || self.is_draining()
    }
}

#[cfg(test)]
#[path = "riding_tests.rs"]
mod tests;
