//! The roll of a lane: every visit in it, from joining to leaving, under its ticket.
//!
//! Promises: a ticket of a visit that has left never finds anything again; numbers stay small and dense; the memory of
//! many visits is freed when the last one leaves, that of a few visits on [request](VisitTable::give_back_room).
//! Finding visits that can no longer be served in time costs nothing until a deadline is near. This module must not
//! decide anything.

use std::time::Duration;

use smallvec::SmallVec;

use super::pace::Epoch;
use super::time::{Timestamp, whole_millis};
use super::visit::{ClientId, OriginId, PagePart, Purpose, Ticket, Visit};

#[derive(Clone, Copy, Debug)]
pub(super) struct VisitEntry {
    pub(super) client: ClientId,
    pub(super) origin: OriginId,
    /// What robots.txt asks of it, in whole milliseconds.
    pub(super) crawl_delay_ms: u32,
    pub(super) url: u64,
    pub(super) urgency: u8,
    pub(super) retry: bool,
    /// A page, unless the visit found the host free.
    pub(super) purpose: Purpose,
    pub(super) part: PagePart,
    pub(super) phase: Phase,
    pub(super) transfer: Transfer,
    /// When it was first called, as a number that counts up. Zero until a visit that was called beside it steps aside.
    pub(super) called: u32,
    /// Failures in a row that its response head ended. They count again if its body breaks off.
    pub(super) forgave: u16,
    /// Preparing: when it was called. Started and Lasting: when its head was sent.
    pub(super) since: Timestamp,
    /// When it gives up waiting for the host.
    pub(super) deadline: Timestamp,
    /// Set for a visit that was sent, if something had been learned from its host by then.
    pub(super) epoch: Option<Epoch>,
}

impl VisitEntry {
    pub(super) fn new(visit: &Visit, phase: Phase, deadline: Timestamp, now: Timestamp) -> Self {
        let &Visit { client, origin, url, urgency, retry, purpose, part, .. } = visit;
        let crawl_delay_ms = whole_millis(visit.crawl_delay);
        let (transfer, called, forgave, since, epoch) = (Transfer::No, 0, 0, now, None);
        VisitEntry {
            client,
            origin,
            crawl_delay_ms,
            url,
            urgency,
            retry,
            purpose,
            part,
            phase,
            transfer,
            called,
            forgave,
            since,
            deadline,
            epoch,
        }
    }

    pub(super) fn crawl_delay(&self) -> Duration {
        Duration::from_millis(self.crawl_delay_ms.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In the queue.
    Waiting,
    /// A part of a page that waits for a ride.
    Parked,
    /// Was called, and waits for the answer to another request.
    Aside,
    /// Called: its connection is being made ready.
    Preparing,
    /// Called and ready: needs only its turn.
    Ready,
    /// Has a turn that is not sent yet.
    Claimed,
    /// Has a turn that was taken without a check, because pacing is not enforced.
    Waved,
    /// Was told to start without a turn: a part of a page. Not sent yet.
    Riding,
    /// Its head was sent.
    Started,
    /// Its head was sent and it has given its place back: a long transfer.
    Lasting,
}

/// What a visit that was sent is known to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The origin's answer, or a short body.
    No,
    /// A body, in either direction, that may take long.
    Body,
    /// Nothing in particular: it stays open for as long as both sides like.
    Open,
}

/// A transfer is long after this time: half of the 60 s that clients and servers commonly allow for a whole response
/// (nginx' `proxy_read_timeout`, `limits.client_stall`), so pages and API calls are over by then.
pub(super) const LONG_TRANSFER: Duration = Duration::from_secs(30);

impl VisitEntry {
    /// Returns from when on the visit is a long transfer; never, if it is none.
    pub(super) fn long_from(&self) -> Timestamp {
        match (self.phase, self.transfer) {
            (Phase::Started, Transfer::Body) => self.since + LONG_TRANSFER,
            (Phase::Started, Transfer::Open) => self.since,
            _ => Timestamp::NEVER,
        }
    }
}

impl Phase {
    pub(super) fn waits_for_the_host(self) -> bool {
        matches!(self, Phase::Waiting | Phase::Parked | Phase::Ready)
    }

    /// Told to start and not sent yet.
    pub(super) fn may_start(self) -> bool {
        matches!(self, Phase::Claimed | Phase::Waved | Phase::Riding)
    }

    pub(super) fn is_sent(self) -> bool {
        matches!(self, Phase::Started | Phase::Lasting)
    }
}

#[derive(Debug)]
pub(super) struct VisitTable {
    /// Most hosts never have two visits at once, and there may be many hosts.
    slots: SmallVec<[Slot; 1]>,
    len: u32,
    /// The first free slot; each free slot names the next.
    free: u32,
    /// Never used twice, whatever happens to the slots.
    next_generation: u32,
    /// No visit that waits has an earlier deadline. May be too early, never too late.
    first_deadline: Timestamp,
    /// How far the search for hopeless visits has come, and the first deadline it has passed.
    searched: u32,
    passed: Timestamp,
}

#[derive(Debug)]
struct Slot {
    /// The generation of the visit in it; in a free slot, the number of the next free slot.
    generation: u32,
    entry: Option<VisitEntry>,
}

const NONE: u32 = u32::MAX;
/// The room that an empty roll may keep, in slots: four kilobytes.
const A_FEW: usize = 64;

impl VisitTable {
    pub(super) fn new() -> Self {
        VisitTable {
            slots: SmallVec::new(),
            len: 0,
            free: NONE,
            next_generation: 0,
            first_deadline: Timestamp::NEVER,
            searched: 0,
            passed: Timestamp::NEVER,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns how many visits have ever entered, modulo 2^32.
    pub(super) fn entered(&self) -> u32 {
        self.next_generation
    }

    pub(super) fn enter(&mut self, entry: VisitEntry) -> Ticket {
        let generation = self.next_generation;
        self.next_generation = generation.wrapping_add(1);
        let slot = Slot { generation, entry: Some(entry) };
        let number = if self.free == NONE { self.append(slot) } else { self.reuse(slot) };
        self.len += 1;
        self.watch(entry.deadline);
        Ticket { number, generation }
    }

    pub(super) fn remove(&mut self, ticket: Ticket) -> Option<VisitEntry> {
        let slot = self.slots.get_mut(ticket.number()).filter(|slot| slot.generation == ticket.generation)?;
        let entry = slot.entry.take()?;
        slot.generation = std::mem::replace(&mut self.free, ticket.number);
        self.len -= 1;
        if self.len == 0 {
            self.empty();
        }
        Some(entry)
    }

    fn append(&mut self, slot: Slot) -> u32 {
        self.slots.push(slot);
        self.slots.len() as u32 - 1
    }

    fn reuse(&mut self, slot: Slot) -> u32 {
        let number = self.free;
        self.free = std::mem::replace(&mut self.slots[number as usize], slot).generation;
        number
    }

    pub(super) fn get_mut(&mut self, ticket: Ticket) -> Option<&mut VisitEntry> {
        let slot = self.slots.get_mut(ticket.number()).filter(|slot| slot.generation == ticket.generation)?;
        slot.entry.as_mut()
    }

    pub(super) fn get(&self, ticket: Ticket) -> Option<&VisitEntry> {
        let slot = self.slots.get(ticket.number()).filter(|slot| slot.generation == ticket.generation)?;
        slot.entry.as_ref()
    }

    /// `number` must be on the roll.
    pub(super) fn ticket(&self, number: u32) -> Ticket {
        Ticket { number, generation: self.slots[number as usize].generation }
    }

    /// `number` must be on the roll.
    pub(super) fn entry(&self, number: u32) -> &VisitEntry {
        self.slots[number as usize].entry.as_ref().expect("queue and called hold only visits on the roll")
    }

    /// Notes the deadline of a visit that waits for the host, or waits for it again.
    pub(super) fn watch(&mut self, deadline: Timestamp) {
        self.first_deadline = self.first_deadline.min(deadline);
        if self.searched > 0 {
            self.passed = self.passed.min(deadline);
        }
    }

    /// Returns a time before which no waiting visit gives up.
    pub(super) fn first_deadline(&self) -> Timestamp {
        self.first_deadline
    }

    /// Returns a waiting visit that gives up before `start`, or one that needs no turn (it is parked, or was called
    /// `to_ride`) and gives up before `now`. The caller removes it and asks again; the search goes on where it stopped,
    /// so that refusing a crowd looks at each visit once.
    pub(super) fn hopeless(&mut self, start: Timestamp, now: Timestamp, to_ride: &[u32]) -> Option<Ticket> {
        if self.first_deadline >= start {
            // A search that was under way for a later start is not continued.
            self.start_search();
            return None;
        }
        while let Some(slot) = self.slots.get(self.searched as usize) {
            if let Some(entry) = slot.entry.filter(|entry| entry.phase.waits_for_the_host()) {
                let number = self.searched;
                let needs_no_turn = entry.phase == Phase::Parked || to_ride.contains(&number);
                if entry.deadline < if needs_no_turn { now } else { start } {
                    return Some(Ticket { number, generation: slot.generation });
                }
                self.passed = self.passed.min(entry.deadline);
            }
            self.searched += 1;
        }
        self.first_deadline = self.passed;
        self.start_search();
        None
    }

    fn start_search(&mut self) {
        self.searched = 0;
        self.passed = Timestamp::NEVER;
    }

    /// Frees the memory of past visits, if no visit is left.
    pub(super) fn give_back_room(&mut self) {
        if self.len == 0 && self.slots.spilled() {
            self.slots = SmallVec::new();
            self.free = NONE;
        }
    }

    fn empty(&mut self) {
        // A host that is busy again and again needs the room for a few visits every time.
        if self.slots.capacity() > A_FEW {
            self.give_back_room();
        }
        self.first_deadline = Timestamp::NEVER;
        self.start_search();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(deadline: u64, phase: Phase) -> VisitEntry {
        VisitEntry {
            client: ClientId(1),
            origin: OriginId::default(),
            crawl_delay_ms: 0,
            url: 1,
            urgency: 3,
            retry: false,
            purpose: Purpose::Page,
            part: PagePart::No,
            phase,
            transfer: Transfer::No,
            called: 0,
            forgave: 0,
            since: Timestamp::START,
            deadline: Timestamp::from_millis(deadline),
            epoch: None,
        }
    }

    #[test]
    fn an_old_ticket_finds_nothing() {
        let mut roll = VisitTable::new();
        let first = roll.enter(entry(1, Phase::Waiting));
        assert!(roll.remove(first).is_some());
        let second = roll.enter(entry(1, Phase::Waiting));
        assert_eq!(first.number, second.number);
        assert!(roll.remove(first).is_none() && roll.get_mut(first).is_none());
        assert!(roll.remove(second).is_some());

        for size in [100, 10] {
            let crowd: Vec<Ticket> = (0..size).map(|_| roll.enter(entry(1, Phase::Waiting))).collect();
            roll.give_back_room();
            assert!(crowd.iter().all(|&ticket| roll.remove(ticket).is_some()));
            assert_eq!(roll.slots.spilled(), size <= A_FEW, "the room of {size}");
            let one = roll.enter(entry(1, Phase::Waiting));
            assert!(crowd.iter().all(|&ticket| roll.remove(ticket).is_none()));
            assert!(roll.remove(one).is_some());
        }
        roll.give_back_room();
        assert!(!roll.slots.spilled());
        roll.enter(entry(1, Phase::Waiting));
    }

    #[test]
    fn the_hopeless_are_found_once_each_and_only_while_they_wait_for_the_host() {
        let mut roll = VisitTable::new();
        for deadline in [50, 10, 30, 20] {
            roll.enter(entry(deadline, Phase::Waiting));
        }
        roll.enter(entry(5, Phase::Preparing));
        let hopeless = |roll: &mut VisitTable, start: u64| {
            let mut found = Vec::new();
            while let Some(ticket) = roll.hopeless(Timestamp::from_millis(start), Timestamp::START, &[]) {
                found.push(roll.remove(ticket).unwrap().deadline.as_micros() / 1_000);
            }
            found
        };
        assert!(hopeless(&mut roll, 5).is_empty());
        assert_eq!(hopeless(&mut roll, 25), [10, 20]);
        assert_eq!(roll.first_deadline(), Timestamp::from_millis(30));
        assert!(hopeless(&mut roll, 30).is_empty(), "at its deadline a visit may still start");
        roll.enter(entry(12, Phase::Ready));
        assert_eq!(hopeless(&mut roll, 13), [12]);
        assert_eq!(hopeless(&mut roll, 99), [50, 30]);
    }

    /// The next visit may have another spacing than the one before it, so the start may move earlier between two calls.
    #[test]
    fn a_search_that_was_under_way_is_not_gone_on_with_for_an_earlier_start() {
        let mut roll = VisitTable::new();
        let tickets = [50, 10, 30].map(|deadline| roll.enter(entry(deadline, Phase::Waiting)));
        let at = Timestamp::from_millis;
        assert_eq!(roll.hopeless(at(20), at(0), &[]), Some(tickets[1]));
        assert_eq!(roll.hopeless(at(5), at(0), &[]), None);
        assert_eq!(roll.hopeless(at(60), at(0), &[]), Some(tickets[0]), "it was passed in the search before");
    }
}
