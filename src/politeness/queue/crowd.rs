//! The lines of a crowd: a ring of clients, each with its own visits in order, behind two lines of those who go first.
//!
//! Linked through small numbers in three vectors: no allocation per visit, and leaving from anywhere takes a few steps.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Place, Rank};
use crate::politeness::visit::ClientId;

#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// By the visit's number: where it stands in its line.
    links: Vec<Link>,
    /// The first two are the retries and the returning; the rest belong to clients and stand in a ring.
    lines: Vec<Line>,
    spare_lines: Vec<u32>,
    line_of: HashMap<ClientId, u32, BuildHasherDefault<Mix>>,
    /// The line in the ring that is served next.
    next_line: u32,
    /// How many clients' lines are longer than this index. The sum up to `n` is the number of visits that n rounds take.
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
    ring_before: u32,
    ring_after: u32,
}

const NONE: u32 = u32::MAX;
const RETRIES: u32 = 0;
const RETURNING: u32 = 1;
/// Lines that stand before the ring.
const FIXED: usize = 2;
impl Crowd {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// `visit` must not stand in a line.
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
        debug_assert_eq!(self.links[visit as usize].line, NONE, "a visit stands in one line");
        self.links[visit as usize] = Link { line, ..unused };
        let (_, before) = self.place(line, urgency);
        self.link(visit, before);
        if line >= FIXED as u32 {
            self.count_longer(line);
        }
        self.len += 1;
    }

    /// `visit` must stand in a line.
    pub(super) fn leave(&mut self, visit: u32) {
        let line = self.unlink(visit);
        self.len -= 1;
        if line >= FIXED as u32 {
            let len = self.lines[line as usize].len;
            self.longer[len as usize] -= 1;
            if len == 0 {
                self.drop_line(line);
            }
        }
    }

    /// Somebody must stand in a line.
    pub(super) fn next(&self) -> u32 {
        let [retry, returning] = [RETRIES, RETURNING].map(|line| self.lines[line as usize].first);
        if retry != NONE {
            retry
        } else if returning != NONE {
            returning
        } else {
            self.lines[self.next_line as usize].first
        }
    }

    /// `visit` must be the first of its line. Lines of the ring that were passed over wait for the next round.
    pub(super) fn take(&mut self, visit: u32) {
        let line = self.links[visit as usize].line;
        if line >= FIXED as u32 {
            self.next_line = self.lines[line as usize].ring_after;
        }
        self.leave(visit);
    }

    pub(super) fn first(&self, wanted: impl Fn(u32, bool) -> bool) -> Option<u32> {
        let fixed = [RETRIES, RETURNING].map(|line| self.lines[line as usize].first);
        fixed
            .into_iter()
            .find(|&first| first != NONE && wanted(first, false))
            .or_else(|| self.ring().map(|line| self.lines[line as usize].first).find(|&first| wanted(first, true)))
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
        let mut ring: Vec<_> = self.ring().map(line).collect();
        while order.len() < self.len {
            order.extend(ring.iter_mut().filter_map(Iterator::next));
        }
        order
    }

    /// The lines of the ring, the next one first.
    fn ring(&self) -> impl Iterator<Item = u32> {
        let after = |line: &u32| Some(self.lines[*line as usize].ring_after).filter(|&line| line != self.next_line);
        std::iter::successors((!self.line_of.is_empty()).then_some(self.next_line), after)
    }

    pub(super) fn ahead(&self, rank: Rank, client: ClientId, urgency: u8) -> usize {
        let [retries, returning] = [RETRIES, RETURNING].map(|line| self.lines[line as usize].len as usize);
        match rank {
            Rank::Retry => retries,
            Rank::Returning => retries + returning,
            Rank::Newcomer => retries + returning + self.ahead_in_ring(client, urgency),
        }
    }

    fn ahead_in_ring(&self, client: ClientId, urgency: u8) -> usize {
        let (own, behind) = match self.line_of.get(&client) {
            Some(&line) => {
                let (own, _) = self.place(line, urgency);
                (own, self.lines[line as usize].len as usize - own)
            }
            None => (0, 0),
        };
        let rounds: u32 = self.longer[..self.longer.len().min(own + 1)].iter().sum();
        // In the round in which it is served itself, its own line must not be counted.
        rounds as usize - usize::from(behind > 0)
    }

    /// Where a visit of this urgency belongs in a line: how many stand before it, and the last of them.
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

    fn count_longer(&mut self, line: u32) {
        let index = self.lines[line as usize].len as usize - 1;
        if self.longer.len() <= index {
            self.longer.resize(index + 1, 0);
        }
        self.longer[index] += 1;
    }

    fn line(&mut self, client: ClientId) -> u32 {
        if let Some(&line) = self.line_of.get(&client) {
            return line;
        }
        let number = match self.spare_lines.pop() {
            Some(number) => {
                self.lines[number as usize] = Line::of(client);
                number
            }
            None => {
                self.lines.push(Line::of(client));
                self.lines.len() as u32 - 1
            }
        };
        self.enter_ring(number);
        self.line_of.insert(client, number);
        number
    }

    /// A new line is served after every other one: just before the next.
    fn enter_ring(&mut self, number: u32) {
        if self.line_of.is_empty() {
            (self.lines[number as usize].ring_before, self.lines[number as usize].ring_after) = (number, number);
            self.next_line = number;
            return;
        }
        let after = self.next_line;
        let before = self.lines[after as usize].ring_before;
        self.lines[before as usize].ring_after = number;
        self.lines[after as usize].ring_before = number;
        (self.lines[number as usize].ring_before, self.lines[number as usize].ring_after) = (before, after);
    }

    fn drop_line(&mut self, number: u32) {
        let Line { client, ring_before, ring_after, .. } = self.lines[number as usize];
        self.lines[ring_before as usize].ring_after = ring_after;
        self.lines[ring_after as usize].ring_before = ring_before;
        if self.next_line == number {
            self.next_line = ring_after;
        }
        self.line_of.remove(&client);
        self.spare_lines.push(number);
    }
}

impl Line {
    fn of(client: ClientId) -> Self {
        Line { client, first: NONE, last: NONE, len: 0, ring_before: NONE, ring_after: NONE }
    }
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

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
