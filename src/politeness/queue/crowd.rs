//! The lines of a crowd: a ring of owners, each with a ring of its clients, each of these with its own visits in order.
//! Two lines come before the ring: the retries and the returning visits.
//!
//! The visits are linked by small numbers in vectors: no allocation per visit, and leaving from anywhere takes a few
//! steps.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Place, Rank};
use crate::politeness::visit::ClientId;

#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// Indexed by the visit's number: its position in its line.
    links: Vec<Link>,
    /// The first two are the retries and the returning visits; the rest belong to clients and are in the ring of their
    /// owner.
    lines: Vec<Line>,
    spare_lines: Vec<u32>,
    line_of: HashMap<ClientId, u32, BuildHasherDefault<Mix>>,
    owners: Vec<Owner>,
    spare_owners: Vec<u32>,
    owner_of: HashMap<u32, u32, BuildHasherDefault<Mix>>,
    /// The owner that is served next.
    next_owner: u32,
    /// How many owners have more visits than this index. The sum up to `n` is the number of visits that n rounds take.
    longer: Vec<u32>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    line: u32,
    urgency: u8,
}

#[derive(Clone, Copy, Debug)]
struct Line {
    client: ClientId,
    first: u32,
    last: u32,
    len: u32,
    /// The index of its owner.
    owner: u32,
    ring: Neighbours,
}

/// The clients of one user or address.
#[derive(Clone, Copy, Debug)]
struct Owner {
    id: u32,
    /// Its client that is served next.
    next_line: u32,
    /// Its clients' visits.
    len: u32,
    ring: Neighbours,
}

#[derive(Clone, Copy, Debug)]
struct Neighbours {
    before: u32,
    after: u32,
}

const NONE: u32 = u32::MAX;
/// The neighbours of an element that is in no ring yet.
const ALONE: Neighbours = Neighbours { before: NONE, after: NONE };
const RETRIES: u32 = 0;
const RETURNING: u32 = 1;
/// The number of lines before the ring.
const FIXED: usize = 2;

impl Crowd {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a visit. `visit` must not be in a line.
    pub(super) fn join(&mut self, Place { visit, rank, client, urgency }: Place) {
        if self.lines.is_empty() {
            self.lines.extend([Line::of(ClientId(0)); FIXED]);
        }
        let (line, urgency) = match rank {
            Rank::Retry => (RETRIES, 0),
            Rank::Returning => (RETURNING, 0),
            Rank::Newcomer => (self.line(client), urgency),
        };
        let unused = Link { before: NONE, after: NONE, line: NONE, urgency };
        if self.links.len() <= visit as usize {
            self.links.resize(visit as usize + 1, unused);
        }
        debug_assert_eq!(self.links[visit as usize].line, NONE, "a visit is in one line");
        self.links[visit as usize] = Link { line, ..unused };
        let (_, before) = self.place(line, urgency);
        self.link(visit, before);
        if line >= FIXED as u32 {
            self.count(self.lines[line as usize].owner);
        }
        self.len += 1;
    }

    /// Removes a visit. `visit` must be in a line.
    pub(super) fn leave(&mut self, visit: u32) {
        let line = self.unlink(visit);
        self.len -= 1;
        if line >= FIXED as u32 {
            let Line { len, owner, .. } = self.lines[line as usize];
            let owned = &mut self.owners[owner as usize].len;
            *owned -= 1;
            self.longer[*owned as usize] -= 1;
            if len == 0 {
                self.drop_line(line);
            }
        }
    }

    /// Returns the next visit. At least one visit must be in a line.
    pub(super) fn next(&self) -> u32 {
        let [retry, returning] = [RETRIES, RETURNING].map(|line| self.lines[line as usize].first);
        if retry != NONE {
            retry
        } else if returning != NONE {
            returning
        } else {
            self.lines[self.owners[self.next_owner as usize].next_line as usize].first
        }
    }

    /// Takes a visit. `visit` must be the first of its line. Owners and clients that were passed over wait for the next
    /// round.
    pub(super) fn take(&mut self, visit: u32) {
        let line = self.links[visit as usize].line;
        if line >= FIXED as u32 {
            let Line { owner, ring, .. } = self.lines[line as usize];
            self.owners[owner as usize].next_line = ring.after;
            self.next_owner = self.owners[owner as usize].ring.after;
        }
        self.leave(visit);
    }

    pub(super) fn first(&self, wanted: impl Fn(u32, bool) -> bool) -> Option<u32> {
        let fixed = [RETRIES, RETURNING].map(|line| self.lines[line as usize].first);
        fixed
            .into_iter()
            .find(|&first| first != NONE && wanted(first, false))
            .or_else(|| self.ring().flat_map(|owner| self.clients_of(owner)).find(|&first| wanted(first, true)))
    }

    pub(super) fn clients(&self) -> usize {
        self.line_of.len()
    }

    pub(super) fn in_order(&self) -> Vec<u32> {
        let after = |visit: &u32| Some(self.links[*visit as usize].after).filter(|&after| after != NONE);
        let line = |line: u32| {
            std::iter::successors(Some(self.lines[line as usize].first).filter(|&first| first != NONE), after)
        };
        let mut order: Vec<u32> = line(RETRIES).chain(line(RETURNING)).collect();
        let of_owner = |owner: u32| in_turn(self.lines_of(owner).map(line).collect()).into_iter();
        order.extend(in_turn(self.ring().map(of_owner).collect()));
        order
    }

    /// The owners, the next one first.
    fn ring(&self) -> impl Iterator<Item = u32> {
        let after =
            |owner: &u32| Some(self.owners[*owner as usize].ring.after).filter(|&after| after != self.next_owner);
        std::iter::successors((!self.owner_of.is_empty()).then_some(self.next_owner), after)
    }

    /// The lines of an owner's clients, the next one first.
    fn lines_of(&self, owner: u32) -> impl Iterator<Item = u32> {
        let next = self.owners[owner as usize].next_line;
        let after = move |line: &u32| Some(self.lines[*line as usize].ring.after).filter(|&after| after != next);
        std::iter::successors(Some(next), after)
    }

    /// The first visits of an owner's clients.
    fn clients_of(&self, owner: u32) -> impl Iterator<Item = u32> {
        self.lines_of(owner).map(|line| self.lines[line as usize].first)
    }

    pub(super) fn ahead(&self, rank: Rank, client: ClientId, urgency: u8) -> usize {
        let [retries, returning] = [RETRIES, RETURNING].map(|line| self.lines[line as usize].len as usize);
        match rank {
            Rank::Retry => retries,
            Rank::Returning => retries + returning,
            Rank::Newcomer => retries + returning + self.ahead_in_ring(client, urgency),
        }
    }

    /// Calls `see` for each visit that [`Crowd::ahead`] counts, in no particular order.
    pub(super) fn each_ahead(&self, rank: Rank, client: ClientId, urgency: u8, mut see: impl FnMut(u32)) {
        self.visits_of(RETRIES).for_each(&mut see);
        if rank > Rank::Retry {
            self.visits_of(RETURNING).for_each(&mut see);
        }
        if rank != Rank::Newcomer {
            return;
        }
        let owner = self.owner_of.get(&client.owner()).copied();
        let line = self.line_of.get(&client).copied();
        let own = line.map_or(0, |line| self.place(line, urgency).0);
        let most = |other: u32| if Some(other) == line { own } else { own + 1 };
        let mut owned = 0;
        for other in owner.into_iter().flat_map(|owner| self.lines_of(owner)) {
            self.visits_of(other).take(most(other)).for_each(|visit| {
                owned += 1;
                see(visit);
            });
        }
        for other in self.ring().filter(|&other| Some(other) != owner) {
            let visits = in_turn(self.lines_of(other).map(|line| self.visits_of(line)).collect());
            visits.into_iter().take(owned + 1).for_each(&mut see);
        }
    }

    fn visits_of(&self, line: u32) -> impl Iterator<Item = u32> {
        let some = |visit: u32| Some(visit).filter(|&visit| visit != NONE);
        std::iter::successors(some(self.lines[line as usize].first), move |&visit| {
            some(self.links[visit as usize].after)
        })
    }

    fn ahead_in_ring(&self, client: ClientId, urgency: u8) -> usize {
        let Some(&owner) = self.owner_of.get(&client.owner()) else { return self.owner_of.len() };
        let line = self.line_of.get(&client).copied();
        let own = line.map_or(0, |line| self.place(line, urgency).0);
        let others = self.lines_of(owner).filter(|&other| Some(other) != line);
        let owned = own + others.map(|other| (self.lines[other as usize].len as usize).min(own + 1)).sum::<usize>();
        let rounds: u32 = self.longer[..self.longer.len().min(owned + 1)].iter().sum();
        // The owner itself must not be counted in the round in which this visit is served.
        rounds as usize - usize::from(self.owners[owner as usize].len as usize > owned)
    }

    /// Returns where a visit of this urgency belongs in a line: how many visits are before it, and the last of them.
    fn place(&self, line: u32, urgency: u8) -> (usize, u32) {
        let Line { first, last, len, .. } = self.lines[line as usize];
        if last == NONE || self.links[last as usize].urgency <= urgency {
            return (len as usize, last);
        }
        let (mut count, mut before, mut visit) = (0, NONE, first);
        while self.links[visit as usize].urgency <= urgency {
            count += 1;
            before = visit;
            visit = self.links[visit as usize].after;
        }
        (count, before)
    }

    fn link(&mut self, visit: u32, before: u32) {
        let line = &mut self.lines[self.links[visit as usize].line as usize];
        line.len += 1;
        let after = if before == NONE { line.first } else { self.links[before as usize].after };
        if before == NONE {
            line.first = visit;
        } else {
            self.links[before as usize].after = visit;
        }
        if after == NONE {
            line.last = visit;
        } else {
            self.links[after as usize].before = visit;
        }
        let link = &mut self.links[visit as usize];
        (link.before, link.after) = (before, after);
    }

    fn unlink(&mut self, visit: u32) -> u32 {
        let Link { before, after, line: number, .. } = self.links[visit as usize];
        debug_assert_ne!(number, NONE, "only a visit in a line can leave it");
        let line = &mut self.lines[number as usize];
        line.len -= 1;
        if before == NONE {
            line.first = after;
        } else {
            self.links[before as usize].after = after;
        }
        if after == NONE {
            line.last = before;
        } else {
            self.links[after as usize].before = before;
        }
        self.links[visit as usize].line = NONE;
        number
    }

    fn count(&mut self, owner: u32) {
        let owner = &mut self.owners[owner as usize];
        owner.len += 1;
        let index = owner.len as usize - 1;
        if self.longer.len() <= index {
            self.longer.resize(index + 1, 0);
        }
        self.longer[index] += 1;
    }

    fn line(&mut self, client: ClientId) -> u32 {
        if let Some(&line) = self.line_of.get(&client) {
            return line;
        }
        let owner = self.owner(client.owner());
        let number = put(&mut self.lines, &mut self.spare_lines, Line { owner, ..Line::of(client) });
        let Owner { next_line, .. } = self.owners[owner as usize];
        self.lines.enter_ring(number, next_line);
        if next_line == NONE {
            self.owners[owner as usize].next_line = number;
        }
        self.line_of.insert(client, number);
        number
    }

    fn owner(&mut self, id: u32) -> u32 {
        if let Some(&owner) = self.owner_of.get(&id) {
            return owner;
        }
        let owner = Owner { id, next_line: NONE, len: 0, ring: ALONE };
        let number = put(&mut self.owners, &mut self.spare_owners, owner);
        if self.owner_of.is_empty() {
            self.next_owner = NONE;
        }
        self.owners.enter_ring(number, self.next_owner);
        if self.next_owner == NONE {
            self.next_owner = number;
        }
        self.owner_of.insert(id, number);
        number
    }

    fn drop_line(&mut self, number: u32) {
        let Line { client, owner: owner_number, ring, .. } = self.lines[number as usize];
        self.lines.leave_ring(ring);
        self.line_of.remove(&client);
        self.spare_lines.push(number);
        let owner = &mut self.owners[owner_number as usize];
        if owner.next_line == number {
            owner.next_line = ring.after;
        }
        if owner.len > 0 {
            return;
        }
        let Owner { id, ring, .. } = *owner;
        self.owners.leave_ring(ring);
        if self.next_owner == owner_number {
            self.next_owner = ring.after;
        }
        self.owner_of.remove(&id);
        self.spare_owners.push(owner_number);
    }
}

impl Line {
    fn of(client: ClientId) -> Self {
        Line { client, first: NONE, last: NONE, len: 0, owner: NONE, ring: ALONE }
    }
}

/// Elements that are linked in a ring.
trait InRing {
    fn ring_of(&mut self, number: u32) -> &mut Neighbours;

    /// Inserts an element just before `next`, so that it is served after every other one. The first element of a ring
    /// has no next.
    fn enter_ring(&mut self, number: u32, next: u32) {
        if next == NONE {
            *self.ring_of(number) = Neighbours { before: number, after: number };
            return;
        }
        let before = self.ring_of(next).before;
        self.ring_of(before).after = number;
        self.ring_of(next).before = number;
        *self.ring_of(number) = Neighbours { before, after: next };
    }

    /// Links the neighbours of the element that leaves.
    fn leave_ring(&mut self, Neighbours { before, after }: Neighbours) {
        self.ring_of(before).after = after;
        self.ring_of(after).before = before;
    }
}

impl InRing for Vec<Line> {
    fn ring_of(&mut self, number: u32) -> &mut Neighbours {
        &mut self[number as usize].ring
    }
}

impl InRing for Vec<Owner> {
    fn ring_of(&mut self, number: u32) -> &mut Neighbours {
        &mut self[number as usize].ring
    }
}

/// Stores an element where there is room, and returns its number.
fn put<T>(all: &mut Vec<T>, spare: &mut Vec<u32>, thing: T) -> u32 {
    let number = spare.pop().unwrap_or(all.len() as u32);
    match all.get_mut(number as usize) {
        Some(old) => *old = thing,
        None => all.push(thing),
    }
    number
}

/// Takes one of each in turn, until all are empty.
fn in_turn(mut lines: Vec<impl Iterator<Item = u32>>) -> Vec<u32> {
    let mut order = Vec::new();
    while !lines.is_empty() {
        lines.retain_mut(|line| line.next().map(|visit| order.push(visit)).is_some());
    }
    order
}

/// Client numbers are keyed hashes already: one multiplication spreads them over the table.
#[derive(Debug, Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
