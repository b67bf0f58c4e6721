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
    /// Changes of an operator at this node that are on their way to the ledger. Until it knows them, its word is older.
    pub unshared: u32,
    /// What the ledger must be told when it answers again.
    pub owed: Owed,
    /// The interval of the last quota that the fleet knows, in milliseconds.
    pub quota: u32,
    /// A granted turn that was not sent.
    unused: Option<UnusedTurn>,
    /// The turn of the last robots.txt fetch, which the page that waited for it shares.
    fetched: Option<UnusedTurn>,
    /// The last slot that was used while the node was alone, by its own clock. A slot is for one start.
    slot: u64,
}

/// What a node learned or was set while it could not tell the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owed {
    /// A hold, or what the host taught.
    pub record: bool,
    /// What an operator set.
    pub steering: bool,
    /// An operator let the host forget everything.
    pub forget: bool,
}

impl Appointment {
    /// Whether an operator has set something here that the ledger does not know yet.
    pub fn is_ahead(&self) -> bool {
        self.unshared > 0 || self.owed.steering
    }

    /// Notes the interval of a quota. Returns whether it differs by more than a tenth from what the fleet knows, so
    /// that the fleet must be told.
    pub fn hears_quota(&mut self, every: u32) -> bool {
        let is_news = every.abs_diff(self.quota) > self.quota / 10;
        if is_news {
            self.quota = every;
        }
        is_news
    }

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
            praise: if self.version > 0 { terms.praise } else { 0 },
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quota_is_told_when_it_changes_by_a_tenth() {
        let mut appointment = Appointment::default();
        let heard = [0, 1_000, 1_099, 1_101, 1_101, 900, 0].map(|every| appointment.hears_quota(every));
        assert_eq!(heard, [false, true, false, true, false, true, true]);
    }
}
