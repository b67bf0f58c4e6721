//! Which visits hold the places of a host: shares of clients, and separate places for long transfers.
//!
//! - A long transfer gives its place back to the next visit and takes one of the places for long transfers. There are
//!   as many of these as ordinary places. If they are full, the transfer keeps its ordinary place.
//! - While several clients wait, a client that holds its share of the places is passed over. A client that waits alone
//!   may have all of them.
//! - Once the places for long transfers are full, one client may hold all places of both kinds but one.
//!
//! Nothing here takes a place away from a visit that needs it. If a host has a single place, nothing is shared.

use std::time::Duration;

use smallvec::SmallVec;

use super::Lane;
use crate::politeness::policy::Order;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Ticket};
use crate::politeness::visit_table::{Phase, Transfer};

impl Lane {
    /// Reports that the visit moves a body that may take long, in either direction.
    pub fn transfers(&mut self, ticket: Ticket) {
        self.note_transfer(ticket, Transfer::Body);
    }

    /// Reports that the visit stays open for as long as both sides like: it has become a WebSocket.
    pub fn stays_open(&mut self, ticket: Ticket) {
        self.note_transfer(ticket, Transfer::Open);
    }

    fn note_transfer(&mut self, ticket: Ticket, transfer: Transfer) {
        if let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Started) {
            entry.transfer = transfer;
        }
    }

    /// Moves long transfers to their separate places while no ordinary place is free.
    pub(super) fn set_aside(&mut self, now: Timestamp) {
        while self.flying.len() >= self.concurrency() && self.lasting.len() < self.places.limit() {
            let Some(index) = self.flying.iter().position(|&number| self.roll.entry(number).long_from() <= now) else {
                return;
            };
            let number = self.flying.remove(index);
            let ticket = self.roll.ticket(number);
            self.lasting.push(number);
            let Some(entry) = self.roll.get_mut(ticket) else { continue };
            entry.phase = Phase::Lasting;
            if entry.transfer == Transfer::Body {
                let since = entry.since;
                self.places.observe(since, now);
            }
        }
    }

    /// Returns when a visit in flight becomes a long transfer whose place is needed.
    pub(super) fn next_set_aside(&self) -> Timestamp {
        if self.flying.len() < self.concurrency() || self.lasting.len() >= self.places.limit() {
            return Timestamp::NEVER;
        }
        let long = self.flying.iter().map(|&number| self.roll.entry(number).long_from());
        long.min().unwrap_or(Timestamp::NEVER)
    }

    /// Returns the visit that is called next: the first in the queue whose client holds less than its share, or else
    /// the first whose client may hold one more place.
    pub(super) fn next_in_line(&self) -> Option<u32> {
        let next = self.queue.next()?;
        let limit = self.concurrency();
        if limit == 1 || self.policy.order == Order::Fifo || !self.enforced() || self.is_draining() {
            return Some(next);
        }
        let share = limit.div_ceil(self.queue.clients());
        let client = |number: u32| self.roll.entry(number).client;
        let may_hold = |number: u32| self.may_hold(client(number));
        // Retries and returning visits were promised to go first.
        let has_less = |number: u32, is_newcomer: bool| !is_newcomer || self.holds(client(number)) < share;
        let first = self.queue.first(|number, is_newcomer| has_less(number, is_newcomer) && may_hold(number));
        first.or_else(|| self.queue.first(|number, _| may_hold(number)))
    }

    /// Returns whether a client may have one more place: not the last one, if the places for long transfers are full.
    pub(super) fn may_hold(&self, client: ClientId) -> bool {
        let limit = self.places.limit();
        if self.lasting.len() < limit || limit == 1 || self.policy.order == Order::Fifo {
            return true;
        }
        let lasting = self.lasting.iter().filter(|&&number| self.roll.entry(number).client == client).count();
        self.holds(client) + lasting + 1 < 2 * limit
    }

    /// Returns the number of places that a client's visits have or are about to have.
    pub(super) fn holds(&self, client: ClientId) -> usize {
        let riding = self.riding.as_ref().map_or([].as_slice(), |riding| riding.called());
        let visits = self.flying.iter().chain(&self.called).chain(riding);
        visits.filter(|&&number| self.roll.entry(number).client == client).count()
    }

    /// Returns when the visit behind `ahead` others finds a place.
    pub(super) fn place_behind(&self, ahead: usize, now: Timestamp) -> Timestamp {
        let free = self.places.limit().saturating_sub(self.flying.len());
        if ahead < free {
            return now;
        }
        let mut movable = self.places.limit().saturating_sub(self.lasting.len());
        let ends = self.flying.iter().map(|&number| {
            let entry = self.roll.entry(number);
            let left = match entry.phase {
                Phase::Started => self.places.remaining(now.since(entry.since)),
                _ => self.places.kept(),
            };
            let long_from = entry.long_from();
            if movable == 0 || long_from == Timestamp::NEVER {
                return left;
            }
            movable -= 1;
            left.min(long_from.since(now))
        });
        let ends: SmallVec<[Duration; 8]> = ends.collect();
        self.places.predict(ends, ahead, now)
    }
}
