//! Stepping aside: a called visit that waits for the answer to another request, and comes back if it cannot use it.
//!
//! A visit that follows a flight ([`flight`](crate::politeness::flight)) stands in the queue like any other. When it is
//! called while the answer is out, it steps aside: it needs no connection and no turn, and the next visit is called in
//! its place. If the answer cannot be shared, it steps back to the front of the queue. Visits that step back are served
//! in the order in which they were called the first time, before all others, so following changes no order.
//!
//! A visit aside has no place, no turn and no part in predictions. It keeps its deadline. The caller must let it step
//! back, or leave, within [`LONGEST_ASIDE`].

use super::Lane;
use crate::politeness::flight::LONGEST_ASIDE;
use crate::politeness::policy::Counts;
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, PagePart, Purpose, Ticket};
use crate::politeness::visit_table::Phase;

impl Lane {
    /// Takes a called visit out of the way of the others. Returns false if it must go on instead: its client might not
    /// be willing to wait for both the answer and another turn, curtsy stops, or no visit waits for turns here.
    #[must_use]
    pub fn step_aside(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        let Some(entry) = self.roll.get(ticket) else { return false };
        let is_called = matches!(entry.phase, Phase::Preparing | Phase::Ready) && self.called.contains(&ticket.number);
        let is_part = entry.part != PagePart::No && self.policy.count == Counts::Pages;
        let is_patient = entry.deadline >= now + LONGEST_ASIDE + self.turns.spacing().delay;
        if !is_called || is_part || !is_patient || !self.enforced() || self.is_draining() {
            return false;
        }
        self.count_calls();
        self.called.retain(|number| *number != ticket.number);
        self.aside += 1;
        let Some(entry) = self.roll.get_mut(ticket) else { return false };
        (entry.phase, entry.purpose) = (Phase::Aside, Purpose::Page);
        let origin = entry.origin;
        // Another visit may try whether a failing origin answers again.
        if let Some(lessons) = &mut self.lessons {
            lessons.breakers.left(origin, ticket);
        }
        true
    }

    /// Puts a visit that stepped aside at the front of the queue. Ignores all others.
    pub fn step_back(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Aside) else { return };
        entry.phase = Phase::Waiting;
        let (asked, deadline) = (entry.crawl_delay(), entry.deadline);
        self.aside -= 1;
        self.roll.watch(deadline);
        self.mix(asked);
        self.return_to_line(ticket);
        self.refuse_late(now);
    }

    /// Puts a visit that was called at the front of the queue, behind those that were called before it. Its call must
    /// have been counted.
    pub(super) fn return_to_line(&mut self, ticket: Ticket) {
        if self.is_draining() {
            // Every turn before the end is promised.
            return self.queue.join(ticket.number, Rank::Retry, ClientId(0), 0);
        }
        let roll = &self.roll;
        let called = roll.entry(ticket.number).called;
        self.queue.join_front(ticket.number, |number| (1..called).contains(&roll.entry(number).called));
    }

    /// Numbers the called visits that have no number yet, in the order in which they were called.
    pub(super) fn count_calls(&mut self) {
        for index in 0..self.called.len() {
            let ticket = self.roll.ticket(self.called[index]);
            if let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.called == 0) {
                self.calls = self.calls.wrapping_add(1).max(1);
                entry.called = self.calls;
            }
        }
    }

    /// Visits that stepped aside.
    pub fn aside(&self) -> usize {
        self.aside as usize
    }
}

#[cfg(test)]
#[path = "aside_tests.rs"]
mod tests;
