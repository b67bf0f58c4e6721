//! The ledger as a pure value: the same rules as the scripts in `src/ledger/scripts`, without Redis.
//!
//! It is the ledger of the simulation, and a test gives it and the scripts the same calls and compares the answers. So
//! a change here is a change there, and the other way round.
//!
//! Promises: a granted start is at least the delay after the end of the window before it, or takes a token of the
//! burst; it does not begin before the end of a hold or a pause; a host whose memory may be lost counts as visited.

use std::collections::BTreeMap;

use super::FORGOTTEN_GRANTS;
use super::calls::{Answer, Beat, Claim, Go, HostNews, NotUntil, Obstacle, Ruling, Settlement, Steered, Told};
use super::slots;

/// A last start further ahead than this comes from a clock that was set back since.
const CLOCK_WAS_SET: u64 = 10_000_000;
/// One token of a burst.
const TOKEN: u64 = 1_000_000;
/// A node that was silent for this long is missing, and for this long is removed.
pub const MISSING_AFTER: u64 = 1_600_000;
pub const REMOVED_AFTER: u64 = 60_000_000;
/// How long a counted place is kept without a word from its node.
pub const PLACE_KEPT: u64 = 30_000_000;

/// One bucket of hosts, and the nodes.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    /// Names the server.
    pub name: u64,
    pub(in crate::politeness) era: Option<u64>,
    hosts: BTreeMap<String, HostBook>,
    /// Joining time and last heartbeat by node.
    nodes: BTreeMap<String, (u64, u64)>,
}

#[derive(Clone, Debug, Default)]
struct HostBook {
    /// The latest moment at which the last granted start can have been sent.
    last: Option<u64>,
    /// The last number drawn and the last number served.
    drawn: u64,
    served: u64,
    held: u64,
    closed: u64,
    version: u64,
    /// Millionths of a token at `last`.
    tokens: u64,
    record: String,
    overrides: String,
    /// Successes in a row since the record was told.
    successes: u64,
    /// Requests in flight by the ends of their windows, and until when they are counted.
    places: BTreeMap<u64, u64>,
    /// The last start that was not counted. `None` while no start is.
    uncounted: Option<u64>,
}

impl HostBook {
    fn news(&self) -> HostNews {
        let HostBook { version, held, closed, .. } = *self;
        HostNews { version, held, closed, record: self.record.clone(), overrides: self.overrides.clone() }
    }

    /// Returns the tokens at a time, if there were `tokens` at `last`. No more than one is saved up during a hold.
    fn tokens_at(&self, (last, tokens): (u64, u64), claim: &Claim, at: u64) -> u64 {
        let full = claim.burst * TOKEN;
        let refill = |from: u64, to: u64| to.saturating_sub(from) * TOKEN / claim.delay;
        if last >= self.held {
            return (tokens + refill(last, at)).min(full);
        }
        let held = (tokens + refill(last, at.min(self.held))).min(TOKEN);
        (held + refill(self.held, at)).min(full)
    }

    /// Returns when the next start may be, by the spacing alone.
    fn spaced(&self, (last, tokens): (u64, u64), claim: &Claim) -> u64 {
        if claim.burst <= 1 {
            return last + claim.delay;
        }
        let from = last.max(self.held);
        let lacking = TOKEN.saturating_sub(self.tokens_at((last, tokens), claim, from));
        from + (lacking * claim.delay).div_ceil(TOKEN)
    }

    /// Returns when a start behind `ahead` numbers can be, if it may be at `spaced` by the spacing alone.
    fn place_in_time(&self, claim: &Claim, (last, spaced): (u64, u64), ahead: u64, now: u64) -> u64 {
        let step = claim.delay + claim.window;
        let mut at = (spaced.max(self.held).max(self.closed) + ahead * step).max(now + claim.reach);
        if claim.burst > 1 {
            // The end of a window names its start, so two starts of a burst must differ.
            at = at.max((last + 1).saturating_sub(claim.window));
        }
        let slot = slots::step(claim.delay);
        if let Some(mine) = claim.mine {
            return mine.next(at, slot);
        }
        if claim.missing.is_empty() {
            return at;
        }
        let missing: Vec<u64> = claim.missing.iter().map(|rank| u64::from(*rank) * slot).collect();
        slots::clear_of(at, &missing, u64::from(claim.nodes) * slot, (slot, step))
    }

    /// Returns when to look again if all places are taken. Begins to count places if the claim asks for it.
    fn places_at(&mut self, claim: &Claim, last: u64, turns: u64, now: u64) -> Option<u64> {
        if claim.limit == 0 {
            return None;
        }
        self.places.retain(|_, until| *until > now);
        if claim.track && self.uncounted.is_none() {
            self.uncounted = Some(last);
        } else if !claim.track && self.places.is_empty() {
            self.uncounted = None;
        }
        let all = claim.limit * claim.delay;
        let past = now.saturating_sub(self.uncounted?);
        let implied = if past < all { ((all - past) / claim.delay + 1).min(claim.limit) } else { 0 };
        if self.places.len() as u64 + implied < claim.limit {
            return None;
        }
        Some(now + claim.delay.max(50_000) * turns)
    }

    /// Counts a start as sent at the end of its window.
    fn grant(&mut self, claim: &Claim, (last, tokens): (u64, u64), at: u64) {
        let end = at + claim.window;
        if claim.limit > 0 && self.uncounted.is_some() {
            self.places.insert(end, end + PLACE_KEPT);
        }
        self.tokens = match claim.burst {
            0 | 1 => 0,
            _ => self.tokens_at((last, tokens), claim, end).saturating_sub(TOKEN),
        };
        self.last = Some(end);
    }

    /// Serves a number, and returns the node's next one; 0 = none. A turn that was handed back keeps its own place, so
    /// that the number is for the next start.
    fn next_number(&mut self, claim: &Claim, number: u64, (handed_back, is_outstanding): (bool, bool)) -> u64 {
        if handed_back && is_outstanding {
            return number;
        }
        if handed_back {
            self.drawn -= 1;
        } else {
            self.served = number;
        }
        if !claim.more {
            return 0;
        }
        self.drawn += 1;
        self.drawn
    }

    /// Frees the place of a request.
    fn free(&mut self, place: u64) {
        self.places.remove(&place);
    }
}

impl Shared {
    /// The ledger of a server that is named so, without a memory.
    pub fn named(name: u64) -> Self {
        Shared { name, ..Shared::default() }
    }

    /// Answers a claim.
    pub fn claim(&mut self, host: &str, claim: &Claim, now: u64) -> Answer {
        let name = if claim.name { self.name } else { 0 };
        let ruling = self.rule(host, claim, now);
        let is_ruled = matches!(ruling, Ruling::NotUntil(_) | Ruling::Go(_));
        let book = self.hosts.get(host).filter(|_| is_ruled && claim.praise > 0);
        Answer { now, name, successes: book.map_or(0, |book| book.successes), ruling }
    }

    fn rule(&mut self, host: &str, claim: &Claim, now: u64) -> Ruling {
        if now > claim.until {
            return Ruling::TooLate;
        }
        let known = self.hosts.get(host).map_or(0, |book| book.version);
        if known != claim.version {
            return Ruling::News(self.hosts.get(host).map(HostBook::news).unwrap_or_default());
        }
        let (mut last, mut tokens, handed_back) = self.last_start(host, claim, now);
        let book = self.hosts.entry(host.to_owned()).or_default();
        book.successes = u64::try_from(claim.praise).map_or(0, |praise| book.successes + praise);
        if handed_back {
            // Kept even if this claim is refused.
            book.last = Some(last);
            claim.unused.into_iter().for_each(|unused| book.free(unused.end));
        }
        if claim.doubt > last {
            (last, tokens) = (claim.doubt, 0);
        }
        book.held = book.held.max(claim.held);
        let spaced = book.spaced((last, tokens), claim);
        let is_outstanding = book.served < claim.number && claim.number <= book.drawn;
        let number = if is_outstanding { claim.number } else { book.drawn + 1 };
        book.drawn = book.drawn.max(number);
        let ahead = if handed_back { 0 } else { number - book.served - 1 };
        let at = book.place_in_time(claim, (last, spaced), ahead, now);
        let line = book.drawn - book.served - 1;
        if let Some(look_again) = book.places_at(claim, last, number - book.served, now) {
            return Ruling::NotUntil(NotUntil { at: look_again.max(at), number, line, why: Obstacle::Places });
        }
        if at - now > claim.early {
            let why = match spaced {
                spaced if book.closed > spaced.max(book.held) => Obstacle::Pause,
                spaced if book.held > spaced => Obstacle::Hold,
                _ => Obstacle::Delay,
            };
            return Ruling::NotUntil(NotUntil { at, number, line, why });
        }
        book.grant(claim, (last, tokens), at);
        let next = book.next_number(claim, number, (handed_back, is_outstanding));
        let end = at + claim.window;
        let step = claim.delay + claim.window;
        let free = book.spaced((end, book.tokens), claim);
        let next_at = if next > 0 { free + (next - book.served - 1) * step } else { 0 };
        let line = book.drawn.saturating_sub(book.served + u64::from(next > 0));
        Ruling::Go(Go {
            start: at,
            before: last,
            number: next,
            at: next_at,
            line,
            counted: book.places.contains_key(&end),
        })
    }

    /// Returns the last start and the tokens at that time, and whether the claim hands a turn back.
    fn last_start(&mut self, host: &str, claim: &Claim, now: u64) -> (u64, u64, bool) {
        let book = self.hosts.get(host);
        let Some((last, tokens)) = book.and_then(|book| Some((book.last?, book.tokens))) else {
            let era = self.era.filter(|era| *era <= now + CLOCK_WAS_SET).unwrap_or(now + FORGOTTEN_GRANTS);
            self.era = Some(era);
            return (era, 0, false);
        };
        if last > now + CLOCK_WAS_SET {
            // Kept: otherwise every claim would begin the delay anew.
            let book = self.hosts.entry(host.to_owned()).or_default();
            (book.last, book.tokens) = (Some(now), 0);
            return (now, 0, false);
        }
        match claim.unused.filter(|unused| unused.end == last) {
            Some(unused) if claim.burst <= 1 => (unused.before, tokens, true),
            _ => (last, tokens, false),
        }
    }

    /// Takes what a node reports about a start.
    pub fn settle(&mut self, host: &str, settled: &Settlement) {
        let is_known = self.hosts.contains_key(host);
        if !is_known && settled.sent == 0 {
            return;
        }
        let book = self.hosts.entry(host.to_owned()).or_default();
        if let Some(unused) = settled.unused.filter(|unused| book.last == Some(unused.end)) {
            book.last = Some(unused.before);
            book.free(unused.end);
        }
        if settled.number > book.served && settled.number == book.drawn {
            book.drawn -= 1;
        }
        if book.last.is_none_or(|last| settled.sent > last) && settled.sent > 0 {
            (book.last, book.tokens) = (Some(settled.sent), 0);
        }
        book.free(settled.place);
    }

    /// Counts a request that lasts longer than its turn implies.
    pub fn stay(&mut self, host: &str, place: u64, now: u64) {
        let book = self.hosts.entry(host.to_owned()).or_default();
        book.places.insert(place, now + PLACE_KEPT);
        if book.uncounted.is_none() {
            book.uncounted = Some(book.last.unwrap_or(now));
        }
    }

    /// Takes what a node has learned. Returns what is known now, and whether the record was taken.
    pub fn tell(&mut self, host: &str, told: &Told) -> (bool, HostNews) {
        let book = self.hosts.entry(host.to_owned()).or_default();
        book.held = book.held.max(told.held);
        let fits = told.version == book.version;
        if let Some(record) = told.record.as_ref().filter(|_| fits) {
            (book.record, book.version, book.successes) = (record.clone(), book.version + 1, 0);
        }
        (fits, book.news())
    }

    /// Takes what an operator changes. Returns the new version.
    pub fn steer(&mut self, host: &str, steered: &Steered, now: u64) -> u64 {
        let book = self.hosts.entry(host.to_owned()).or_default();
        book.version += 1;
        if let Some(overrides) = &steered.overrides {
            book.overrides.clone_from(overrides);
        }
        book.closed = steered.closed.unwrap_or(book.closed);
        if steered.lift {
            book.held = book.held.min(now);
        }
        if steered.forget {
            (book.record, book.overrides, book.successes) = (String::new(), String::new(), 0);
        }
        book.version
    }

    /// Notes a heartbeat. `leaves` removes the node.
    pub fn beat(&mut self, node: &str, leaves: bool, now: u64) -> Beat {
        self.nodes.retain(|_, (_, last)| *last + REMOVED_AFTER > now);
        let joined = self.nodes.get(node).map_or(now, |(joined, _)| *joined);
        if leaves {
            self.nodes.remove(node);
        } else {
            self.nodes.insert(node.to_owned(), (joined, now));
        }
        let mut order: Vec<(u64, &String, u64)> =
            self.nodes.iter().map(|(node, (joined, last))| (*joined, node, *last)).collect();
        order.sort_unstable();
        let rank_of = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        let missing = order.iter().enumerate().filter(|(_, (_, _, last))| *last + MISSING_AFTER < now);
        Beat {
            now,
            name: self.name,
            nodes: rank_of(order.len()),
            rank: order.iter().position(|(_, name, _)| *name == node).map_or(0, rank_of),
            missing: missing.map(|(index, _)| rank_of(index)).collect(),
            evicted: 0,
        }
    }

    /// Forgets everything, as a server that was emptied.
    pub fn empty(&mut self) {
        *self = Shared::named(self.name);
    }
}
