//! What a node keeps for one host between two claims: its number in the line, and a turn that it did not use.

use super::calls::{Settlement, UnusedTurn};
use super::node::Wish;
use crate::politeness::lane::TurnTerms;
use crate::politeness::time::whole_micros;

#[derive(Clone, Debug, Default)]
pub struct Appointment {
    /// The node's number in the host's line; 0 = none.
    pub number: u64,
    /// The version of what the node knows about the host.
    pub version: u64,
    /// Changes of an operator at this node that the ledger does not know yet. Until it does, its word is older.
    pub unshared: u32,
    /// A granted turn that was not sent.
    unused: Option<UnusedTurn>,
    /// The turn of the last robots.txt fetch, which the page that waited for it shares.
    fetched: Option<UnusedTurn>,
    /// The last slot that was used while the node was alone, by its own clock. A slot is for one start.
    slot: u64,
}

impl Appointment {
    /// Returns what to ask for a visit with these terms. Takes the number and the unused turn out: at most one claim
    /// may carry them.
    pub fn wish(&mut self, terms: &TurnTerms) -> Wish {
        let fetched = self.fetched.take().filter(|_| terms.follows_fetch);
        Wish {
            delay: whole_micros(terms.gap),
            burst: terms.burst.into(),
            held: terms.held_until.as_micros(),
            limit: terms.limit as u64,
            track: terms.is_slow || terms.burst > 1,
            more: terms.more,
            number: std::mem::take(&mut self.number),
            version: self.version,
            unused: self.unused.take().or(fetched),
            keep_ms: u64::try_from(terms.keep.as_millis()).unwrap_or(u64::MAX),
            slot: self.slot,
        }
    }

    /// Notes that a start uses this slot.
    pub fn use_slot(&mut self, from: u64) {
        self.slot = from;
    }

    /// Takes back what a claim carried that was not answered.
    pub fn keep(&mut self, wish: &Wish) {
        self.keep_number(wish.number);
        self.unused = self.unused.or(wish.unused);
    }

    /// Keeps a number that was drawn.
    pub fn keep_number(&mut self, number: u64) {
        self.number = self.number.max(number);
    }

    /// Keeps a granted turn that was not sent, for the next claim.
    pub fn keep_unused(&mut self, unused: UnusedTurn) {
        self.unused = Some(unused);
    }

    /// Notes the turn of a robots.txt fetch that was sent.
    pub fn fetched(&mut self, turn: UnusedTurn) {
        self.fetched = Some(turn);
    }

    /// Returns what the node owes the ledger when no visit waits any more.
    pub fn resign(&mut self) -> Option<Settlement> {
        let settled = Settlement {
            unused: self.unused.take(),
            number: std::mem::take(&mut self.number),
            ..Settlement::default()
        };
        (settled != Settlement::default()).then_some(settled)
    }

    /// Forgets what another server was asked.
    pub fn forget(&mut self) {
        (self.number, self.unused, self.fetched) = (0, None, None);
    }
}
