//! Which visit is next: the queue of visits that wait for one host.
//!
//! Order: retries, then clients that come back when they were told to, then newcomers. Newcomers are served round robin
//! between owners (a user, or an address), then round robin between the clients of an owner (the names at an address);
//! a client's own visits go by urgency and then first come, first served. So a client with a thousand visits delays
//! another client by one, and an address with a thousand names delays another address by one.
//!
//! `next` takes a few steps however many visits wait. Joining, `take` and `ahead` look at each client at most, and
//! leaving from the middle at each visit: `politeness.max_queue` bounds both (1 000 by default).
//!
//! The caller identifies visits by small numbers. This module must not know time, deadlines or what a visit is.

mod fair_queue;

use self::fair_queue::FairQueue;
use super::visit::ClientId;

/// The rank of a visit. Smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rank {
    Retry,
    Returning,
    Newcomer,
}

#[derive(Debug, Default)]
pub struct Queue {
    /// A visit that waits alone, without a crowd: most hosts never have two waiting, and there may be many hosts.
    alone: Option<QueueEntry>,
    /// Two or more visits, until the last of them has left. Its memory is freed then.
    crowd: Option<Box<FairQueue>>,
}

/// What decides the position of a visit.
#[derive(Clone, Copy, Debug)]
struct QueueEntry {
    visit: u32,
    rank: Rank,
    client: ClientId,
    urgency: u8,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.crowd.as_ref().map_or(usize::from(self.alone.is_some()), |crowd| crowd.len())
    }

    pub fn is_empty(&self) -> bool {
        self.alone.is_none() && self.crowd.is_none()
    }

    /// `visit` must not be in the queue.
    pub fn join(&mut self, visit: u32, rank: Rank, client: ClientId, urgency: u8) {
        let newcomer = QueueEntry { visit, rank, client, urgency };
        if let Some(crowd) = &mut self.crowd {
            crowd.join(newcomer);
        } else if let Some(first) = self.alone.take() {
            let crowd = self.crowd.insert(Box::default());
            crowd.join(first);
            crowd.join(newcomer);
        } else {
            self.alone = Some(newcomer);
        }
    }

    /// Adds a visit before all others but those that `goes_before` names. These must be at the front already. `visit`
    /// must not be in the queue.
    pub fn join_front(&mut self, visit: u32, goes_before: impl Fn(u32) -> bool) {
        match (&mut self.crowd, self.alone.take()) {
            (None, None) => self.join(visit, Rank::Retry, ClientId(0), 0),
            (Some(crowd), _) => crowd.join_front(visit, goes_before),
            (None, Some(first)) => {
                let crowd = self.crowd.insert(Box::default());
                crowd.join(first);
                crowd.join_front(visit, goes_before);
            }
        }
    }

    /// `visit` must be in the queue.
    pub fn leave(&mut self, visit: u32) {
        self.alone = None;
        if let Some(crowd) = &mut self.crowd {
            crowd.leave(visit);
            self.disperse();
        }
    }

    /// Returns the next visit without taking it.
    pub fn next(&self) -> Option<u32> {
        self.first(|_, _| true)
    }

    pub fn pop(&mut self) -> Option<u32> {
        let visit = self.next()?;
        self.take(visit);
        Some(visit)
    }

    /// Returns the first visit that is `wanted`. Looks at the first of the retries, the first of the returning visits,
    /// and the first visit of each client in turn. `wanted` also gets whether the visit is a newcomer.
    pub fn first(&self, wanted: impl Fn(u32, bool) -> bool) -> Option<u32> {
        match &self.crowd {
            Some(crowd) => crowd.first(wanted),
            None => {
                self.alone.filter(|alone| wanted(alone.visit, alone.rank == Rank::Newcomer)).map(|alone| alone.visit)
            }
        }
    }

    /// Takes a visit that is the first of its line; the ring goes on behind it. `visit` must be in the queue.
    pub fn take(&mut self, visit: u32) {
        if let Some(crowd) = &mut self.crowd {
            crowd.take(visit);
            self.disperse();
        } else {
            self.alone = None;
        }
    }

    /// Returns how many clients have visits waiting that are neither retries nor returning; at least one.
    pub fn clients(&self) -> usize {
        self.crowd.as_ref().map_or(1, |crowd| crowd.clients()).max(1)
    }

    /// Returns every visit, in the order in which they are served if no visit joins or leaves.
    pub fn in_order(&self) -> Vec<u32> {
        match &self.crowd {
            Some(crowd) => crowd.in_order(),
            None => self.alone.iter().map(|alone| alone.visit).collect(),
        }
    }

    /// Returns how many visits would go before a visit that joined now, if no other visit joined after it.
    pub fn ahead(&self, rank: Rank, client: ClientId, urgency: u8) -> usize {
        match (&self.crowd, &self.alone) {
            (Some(crowd), _) => crowd.ahead(rank, client, urgency),
            (None, Some(alone)) => usize::from(alone.goes_before(rank, client, urgency)),
            (None, None) => 0,
        }
    }

    /// Calls `see` for each visit that [`Queue::ahead`] counts, in no particular order. Walks over all of them.
    pub fn each_ahead(&self, rank: Rank, client: ClientId, urgency: u8, mut see: impl FnMut(u32)) {
        match (&self.crowd, &self.alone) {
            (Some(crowd), _) => crowd.each_ahead(rank, client, urgency, see),
            (None, Some(alone)) if alone.goes_before(rank, client, urgency) => see(alone.visit),
            _ => {}
        }
    }

    fn disperse(&mut self) {
        if self.crowd.as_ref().is_some_and(|crowd| crowd.len() == 0) {
            self.crowd = None;
        }
    }
}

impl QueueEntry {
    fn goes_before(&self, rank: Rank, client: ClientId, urgency: u8) -> bool {
        let more_urgent = self.client == client && urgency < self.urgency;
        self.rank < rank || (self.rank == rank && !(rank == Rank::Newcomer && more_urgent))
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
