//! Report mode: every visit starts at once, and beside it its shadow waits as if pacing were enforced.
//!
//! The shadow starts when it would have had its turn and a place, and keeps that place for as long as the visit really
//! keeps its own. Visits that are still here are assumed to stay as long as others did, or as long as they have stayed
//! already; so the wait of a visit is best read late. Shadows form one queue, first come first served, and are never
//! refused. This module only counts and reports: it delays no visit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Lane;
use crate::politeness::policy::Counts;
use crate::politeness::rides::RideBook;
use crate::politeness::time::Timestamp;
use crate::politeness::turns::Turns;
use crate::politeness::visit::{PagePart, Ticket, Visit};

#[derive(Debug)]
pub(super) struct Shadow {
    pub(super) turns: Turns,
    /// Visits that have not left, in the order they came.
    here: Vec<ShadowVisit>,
    /// When the others would have left, in the order they came. Between two visits that are still here only the
    /// latest matter, and no more than there are places.
    gone: Vec<(u64, Timestamp)>,
    came: u64,
    /// If pages are counted: on which turns parts would ride.
    rides: RideBook,
}

#[derive(Debug)]
struct ShadowVisit {
    ticket: Ticket,
    /// The number of this arrival. Counts up.
    number: u64,
    joined: Timestamp,
    sent: Option<Timestamp>,
    /// When the visit would have had its turn, and when a turn and a place.
    turn: Timestamp,
    start: Timestamp,
}

/// How many visits may be in flight, and how long they usually stay.
#[derive(Clone, Copy)]
struct ShadowRoom {
    places: usize,
    kept: Duration,
}

impl Shadow {
    /// `turns` is a copy of the lane's turns with nothing claimed.
    pub(super) fn new(turns: Turns) -> Self {
        Shadow { turns, here: Vec::new(), gone: Vec::new(), came: 0, rides: RideBook::default() }
    }

    /// Adds a visit. A part rides on a turn of its client, if there is one that carries up to `parts` of them.
    fn join(&mut self, ticket: Ticket, visit: &Visit, parts: Option<u32>, now: Timestamp) {
        let &Visit { client, part, .. } = visit;
        let ride = parts.filter(|_| part != PagePart::No).and_then(|most| self.rides.since(client, most, now));
        // A ride from before the end of a hold is over.
        let turn = match ride.filter(|&since| since >= self.turns.bars().held_until) {
            Some(since) => {
                self.rides.ride(client);
                self.rides.settle();
                since.max(now)
            }
            None => {
                let turn = self.turns.earliest(now);
                self.turns.take();
                self.turns.sent(turn);
                self.rides.turn(client, part != PagePart::Data, turn);
                turn
            }
        };
        self.here.push(ShadowVisit { ticket, number: self.came, joined: now, sent: None, turn, start: turn });
        self.came += 1;
    }

    pub(super) fn sent(&mut self, ticket: Ticket, now: Timestamp) {
        if let Some(guest) = self.here.iter_mut().find(|guest| guest.ticket == ticket) {
            guest.sent = Some(now);
        }
    }

    fn leave(&mut self, ticket: Ticket, room: ShadowRoom, now: Timestamp) {
        self.settle(room, now);
        let Some(index) = self.here.iter().position(|guest| guest.ticket == ticket) else { return };
        let ShadowVisit { number, sent, start, .. } = self.here.remove(index);
        let Some(sent) = sent else { return };
        let position = self.gone.partition_point(|(other, _)| *other < number);
        self.gone.insert(position, (number, start + now.since(sent)));
        // A visit that is still here may have come before others that are gone: it must not lose those before it.
        let oldest = index.checked_sub(1).map_or(0, |before| self.here[before].number);
        let newest = self.here.get(index).map_or(u64::MAX, |after| after.number);
        let from = self.gone.partition_point(|(other, _)| *other < oldest);
        let mut to = self.gone.partition_point(|(other, _)| *other < newest);
        while to - from > room.places {
            let first = (from..to).min_by_key(|&index| self.gone[index].1);
            first.map(|index| self.gone.remove(index));
            to -= 1;
        }
    }

    /// Computes again when each shadow would have started: with its turn, when fewer visits before it are left than
    /// there are places.
    fn settle(&mut self, room: ShadowRoom, now: Timestamp) {
        let mut last = LastEnds { ends: BinaryHeap::new(), most: room.places };
        let mut gone = self.gone.iter().peekable();
        for guest in &mut self.here {
            while let Some((_, end)) = gone.next_if(|(number, _)| *number < guest.number) {
                last.push(*end);
            }
            guest.start = guest.turn.max(last.place_free());
            let stayed = guest.sent.map_or(Duration::ZERO, |sent| now.since(sent));
            last.push(guest.start + stayed.max(room.kept));
        }
    }

    fn start(&mut self, ticket: Ticket, room: ShadowRoom, now: Timestamp) -> Option<(Timestamp, Timestamp)> {
        self.settle(room, now);
        self.here.iter().find(|guest| guest.ticket == ticket).map(|guest| (guest.joined, guest.start))
    }
}

/// The latest ends of the visits that came before, as many as there are places: the first of these ends frees a place.
struct LastEnds {
    ends: BinaryHeap<Reverse<Timestamp>>,
    most: usize,
}

impl LastEnds {
    fn push(&mut self, end: Timestamp) {
        self.ends.push(Reverse(end));
        if self.ends.len() > self.most {
            self.ends.pop();
        }
    }

    fn place_free(&self) -> Timestamp {
        match self.ends.peek() {
            Some(Reverse(first)) if self.ends.len() >= self.most => *first,
            _ => Timestamp::START,
        }
    }
}

impl Lane {
    /// Returns how long this visit would have waited for its turn and a place, as far as can be known now. `None`
    /// outside report mode.
    pub fn would_wait(&mut self, ticket: Ticket, now: Timestamp) -> Option<Duration> {
        let room = self.room();
        let (joined, start) = self.shadow.as_mut()?.start(ticket, room, now)?;
        Some(start.since(joined))
    }

    /// Adds the shadow of a visit that joined just now, and returns when it would start.
    pub(super) fn shadow_joins(&mut self, ticket: Ticket, visit: &Visit, now: Timestamp) -> Option<Timestamp> {
        let room = self.room();
        let parts = self.parts_in_shadow(now);
        let shadow = self.shadow.as_mut()?;
        shadow.join(ticket, visit, parts, now);
        shadow.start(ticket, room, now).map(|(_, start)| start)
    }

    pub(super) fn shadow_leaves(&mut self, ticket: Ticket, now: Timestamp) {
        let room = self.room();
        if let Some(shadow) = &mut self.shadow {
            shadow.leave(ticket, room, now);
        }
    }

    /// Returns how many parts would ride on one turn; `None` if every request would take one.
    fn parts_in_shadow(&self, now: Timestamp) -> Option<u32> {
        (self.policy.count == Counts::Pages && !self.is_slowed(now) && !self.paused).then_some(self.policy.page_parts)
    }

    fn room(&self) -> ShadowRoom {
        ShadowRoom { places: self.concurrency(), kept: self.places.kept() }
    }
}

#[cfg(test)]
#[path = "shadow_tests.rs"]
mod tests;
