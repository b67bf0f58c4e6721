//! Shared turns: what a lane tells the ledger that it shares with other nodes, and what it does with the answer.
//!
//! The caller asks the ledger between `Step::Start` and the send. The ledger's word replaces the one before, so a time
//! that it names can also be sooner than the last one: a hold was lifted, or other nodes have left the line.

use std::time::Duration;

use super::steps::LEAD;
use super::{Lane, Ticket};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::Purpose;
use crate::politeness::visit_table::Phase;

/// What the ledger must know to grant a visit its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnTerms {
    /// The gap that this start keeps from the one before, jitter included.
    pub gap: Duration,
    pub burst: u32,
    pub held_until: Timestamp,
    pub limit: usize,
    /// Requests usually keep their places for longer than the gap.
    pub is_slow: bool,
    /// Another visit waits behind this one.
    pub more: bool,
    /// The visit waited for its robots.txt and shares the turn of the fetch.
    pub follows_fetch: bool,
    /// How long a start matters to the next one.
    pub keep: Duration,
    /// Successes since the last claim, for the other nodes; -1 if the row was broken.
    pub praise: i32,
}

impl Lane {
    /// Whether a visit that was told to start needs a turn of the ledger: not if it rides, pacing is not enforced, or
    /// starts are not spaced.
    pub fn needs_turn(&mut self, ticket: Ticket) -> bool {
        self.is_spaced() && self.holds_turn(ticket)
    }

    /// Whether starts are spaced. If not, nodes ask the ledger for no turns, and each has its part of the places.
    pub fn is_spaced(&self) -> bool {
        !self.turns.spacing().delay.is_zero()
    }

    /// Leaves this lane its part of the places, because the ledger does not count those of the other nodes.
    pub fn share_places(&mut self, nodes: u32) {
        self.places.share(nodes);
    }

    /// Takes the successes in a row of all nodes, as an answer to a claim says.
    pub fn praised(&mut self, successes: u64) {
        if let Some(lessons) = &mut self.lessons {
            lessons.pace.praised(successes);
        }
    }

    /// Returns what the ledger must know about a visit that was told to start; `None` if it needs no turn. Call it once
    /// for each claim: it takes out the successes that were not told yet.
    pub fn turn_terms(&mut self, ticket: Ticket) -> Option<TurnTerms> {
        if !self.needs_turn(ticket) {
            return None;
        }
        let follows_fetch = self.roll.get_mut(ticket)?.purpose == Purpose::AfterRobotsFetch;
        let gap = self.turns.gap();
        let saving_up = self.policy.delay.saturating_mul(self.policy.burst.max(1));
        let praise = self.lessons.as_mut().map_or(0, |lessons| lessons.pace.take_praise());
        Some(TurnTerms {
            gap,
            burst: self.turns.spacing().burst,
            held_until: self.turns.bars().held_until,
            limit: self.concurrency(),
            is_slow: self.places.kept() > gap,
            more: self.queued() > 0,
            follows_fetch,
            keep: saving_up.max(gap).max(self.policy.max_crawl_delay).max(Duration::from_secs(60)) * 2,
            praise,
        })
    }

    /// Takes the ledger's refusal: no visit of this lane starts before `until`, and `others` nodes take turns
    /// meanwhile. Returns whether the visit stays ready; if not, it waits in the queue again, ahead of the others,
    /// because its connection would be too old by then.
    pub fn put_off(&mut self, ticket: Ticket, until: Timestamp, others: u32, now: Timestamp) -> bool {
        if !self.holds_turn(ticket) {
            return true;
        }
        self.turns.give_back();
        self.turns.told_elsewhere(until, others);
        self.put_back(ticket);
        if until <= now + LEAD {
            return true;
        }
        self.count_calls();
        self.called.retain(|number| *number != ticket.number);
        if let Some(entry) = self.roll.get_mut(ticket) {
            entry.phase = Phase::Waiting;
            self.return_to_line(ticket);
        }
        false
    }

    /// Takes the ledger's grant, whose window has begun. Returns whether the turn is still valid; if not, the visit is
    /// ready again.
    #[must_use]
    pub fn agree(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        self.turns.told_elsewhere(Timestamp::START, self.turns.others());
        self.confirm(ticket, now)
    }

    /// Makes a granted visit ready again, because its window is over.
    pub fn miss_window(&mut self, ticket: Ticket) {
        if self.holds_turn(ticket) {
            self.turns.give_back();
            self.put_back(ticket);
        }
    }

    /// Notes when the next start of this node is expected. Call it after [`Lane::sent`].
    pub fn appoint(&mut self, until: Timestamp, others: u32) {
        self.turns.told_elsewhere(until, others);
    }
}
