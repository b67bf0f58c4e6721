//! The breakers of one host: one for each origin that fails, nothing for the others.
//!
//! Bounded: at most [`MOST`] origins of a host. Beyond that, the origin that failed the longest time ago is forgotten,
//! unless all are still cooling down; then failures of another origin are not counted, though each still costs a turn.

use super::Origin;
use super::breaker::{Breaker, BreakerChange, Ruling, Tolerance, VisitEnding};
use super::signals::PaceSignal;
use super::time::Timestamp;
use super::visit::{ClientId, OriginId, Ticket};

#[derive(Debug, Default)]
pub(super) struct Breakers {
    failing: Vec<Failing>,
}

#[derive(Debug)]
pub(super) struct Failing {
    id: OriginId,
    /// Shown to operators; not known before [`Breakers::name`].
    pub(super) name: Option<Origin>,
    pub(super) breaker: Breaker,
    last: Timestamp,
}

/// Few ports of a host fail at the same time. This limit keeps a client that tries all 65 535 from filling memory.
const MOST: usize = 8;

impl Breakers {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Failing> {
        self.failing.iter()
    }

    /// Whether no origin fails.
    pub(super) fn is_empty(&self) -> bool {
        self.failing.is_empty()
    }

    pub(super) fn any_open(&self) -> bool {
        self.failing.iter().any(|failing| failing.breaker.is_open())
    }

    /// Whether requests to any origin are refused at this time.
    pub(super) fn any_refused(&self, now: Timestamp) -> bool {
        self.failing.iter().any(|failing| failing.breaker.refusal(now).is_some())
    }

    pub(super) fn ruling(&self, origin: OriginId, client: ClientId, now: Timestamp) -> Ruling {
        let known = self.failing.iter().find(|failing| failing.id == origin);
        known.map_or(Ruling::Free, |failing| failing.breaker.ruling(client, now))
    }

    pub(super) fn get_mut(&mut self, origin: OriginId) -> Option<&mut Breaker> {
        self.failing.iter_mut().find(|failing| failing.id == origin).map(|failing| &mut failing.breaker)
    }

    pub(super) fn name(&mut self, id: OriginId, origin: &Origin) {
        if let Some(failing) = self.failing.iter_mut().find(|failing| failing.id == id && failing.name.is_none()) {
            failing.name = Some(origin.clone());
        }
    }

    /// Notes that a visit to this origin has left.
    pub(super) fn left(&mut self, origin: OriginId, ticket: Ticket) {
        if let Some(breaker) = self.get_mut(origin) {
            breaker.left(ticket);
        }
    }

    pub(super) fn heard(
        &mut self,
        origin: OriginId,
        ending: VisitEnding,
        tolerance: &Tolerance,
        now: Timestamp,
    ) -> Option<BreakerChange> {
        let index = self.index(origin, ending.answer, now)?;
        let failing = &mut self.failing[index];
        failing.last = now;
        let change = failing.breaker.heard(ending, tolerance, now);
        if failing.breaker.is_well() {
            self.failing.swap_remove(index);
        }
        change
    }

    /// Counts failures again that a response had ended: its body has broken off, so they count as if it had not come.
    pub(super) fn take_back(&mut self, origin: OriginId, failures: u16, now: Timestamp) {
        if let Some(index) = self.index(origin, PaceSignal::Failed, now) {
            self.failing[index].breaker.take_back(failures);
        }
    }

    pub(super) fn close(&mut self) {
        self.failing.clear();
    }

    /// Returns the index where an origin's failures are counted. An origin that answers well has none.
    fn index(&mut self, id: OriginId, answer: PaceSignal, now: Timestamp) -> Option<usize> {
        let known = self.failing.iter().position(|failing| failing.id == id);
        if known.is_some() || matches!(answer, PaceSignal::Success | PaceSignal::Neutral | PaceSignal::Suspect) {
            return known;
        }
        if self.failing.len() >= MOST {
            let idle = self.failing.iter().enumerate().filter(|(_, failing)| failing.breaker.refusal(now).is_none());
            let oldest = idle.min_by_key(|(_, failing)| failing.last)?.0;
            self.failing.swap_remove(oldest);
        }
        self.failing.push(Failing { id, name: None, breaker: Breaker::new(), last: now });
        Some(self.failing.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    fn hear(breakers: &mut Breakers, origin: u32, answer: PaceSignal, now: Timestamp) -> Option<BreakerChange> {
        let ticket = Ticket { number: 0, generation: 0 };
        let ending = VisitEnding { ticket, client: ClientId(1), began: now, answer, at_limit: false };
        breakers.heard(OriginId(origin), ending, &Tolerance::default(), now)
    }

    fn is_free(breakers: &Breakers, origin: u32, now: Timestamp) -> bool {
        breakers.ruling(OriginId(origin), ClientId(1), now) == Ruling::Free
    }

    #[test]
    fn each_origin_fails_by_itself_and_costs_nothing_when_it_is_well() {
        let mut breakers = Breakers::default();
        for _ in 0..10 {
            hear(&mut breakers, 81, PaceSignal::Failed, at(0));
            hear(&mut breakers, 80, PaceSignal::Success, at(0));
        }
        assert!(!is_free(&breakers, 81, at(1)) && is_free(&breakers, 80, at(1)));
        assert_eq!(breakers.failing.len(), 1);
        hear(&mut breakers, 81, PaceSignal::Success, at(40));
        assert!(breakers.is_empty());
    }

    #[test]
    fn no_number_of_ports_takes_more_memory_or_frees_one_that_cools_down() {
        let mut breakers = Breakers::default();
        for _ in 0..10 {
            hear(&mut breakers, 0, PaceSignal::Failed, at(0));
        }
        for origin in 1..1_000 {
            hear(&mut breakers, origin, PaceSignal::Failed, at(1));
        }
        assert_eq!(breakers.failing.len(), MOST);
        assert!(!is_free(&breakers, 0, at(2)));
    }
}
