//! Visits that follow a flight: they step aside when they are called, and step back if the answer cannot be shared.
//!
//! The world does not model flights (`flight_tests` does): a few of the visits that are called are followers, and what
//! becomes of the answer is up to the dice. Checked: stepping aside costs no place and no turn, and visits that step
//! back are called before all others, in the order in which they were called the first time.

use super::Flaw;
use super::oracle::{BrokenPromise, Promise, broken};
use super::world::{SimEvent, SimStage, World};
use crate::politeness::flight::LONGEST_ASIDE;
use crate::politeness::visit::{Purpose, Visit};

impl World {
    /// Lets a visit that was called just now step aside, if it follows and may.
    pub(super) fn step_aside(&mut self, id: u64) -> bool {
        let guest = &self.guests[&id];
        let (host, ticket, purpose) = (guest.host, guest.ticket, guest.visit.purpose);
        if purpose != Purpose::Page || !self.dice.chance(20) {
            return false;
        }
        let head = self.dice.up_to(LONGEST_ASIDE);
        if self.flawed(Flaw::KeepsFollowersCalled) {
            let guest = self.guests.get_mut(&id).expect("a guest");
            guest.stage = SimStage::Aside;
            self.after(head, SimEvent::Share(id));
            return true;
        }
        if !self.hosts[host].lane.step_aside(ticket, self.now) {
            return false;
        }
        self.tally.stepped_aside += 1;
        self.origin_left(host, id);
        let calls = self.tally.stepped_aside;
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.stage = SimStage::Aside;
        guest.stepped_back.get_or_insert(calls);
        let is_shared = self.dice.chance(40);
        self.after(head, if is_shared { SimEvent::Share(id) } else { SimEvent::StepBack(id) });
        true
    }

    /// The answer that a visit waits for can be shared.
    pub(super) fn share_answer(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let is_aside = self.guests.get(&id).is_some_and(|guest| guest.stage == SimStage::Aside);
        self.tally.shared += u64::from(is_aside);
        if is_aside { self.leave(id) } else { Ok(()) }
    }

    /// The answer that a visit waits for cannot be shared.
    pub(super) fn step_back(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let now = self.now;
        if self.flawed(Flaw::ForgetsTheAside) {
            return Ok(());
        }
        let Some(guest) = self.guests.get_mut(&id).filter(|guest| guest.stage == SimStage::Aside) else {
            return Ok(());
        };
        guest.stage = SimStage::Waiting;
        let (host, ticket) = (guest.host, guest.ticket);
        self.tally.stepped_back += 1;
        // It goes before all others, which could not be foreseen.
        self.foresee_nothing(host);
        if self.flawed(Flaw::JoinsAgain) {
            return self.join_anew(id);
        }
        self.hosts[host].lane.step_back(ticket, now);
        self.steps(host)
    }

    /// Lets a visit leave and join again at the end of the queue, and goes on as if it had stepped back.
    fn join_anew(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let guest = &self.guests[&id];
        let (host, old, visit) = (guest.host, guest.ticket, guest.visit);
        self.hosts[host].lane.leave(old, self.now);
        self.hosts[host].by_ticket.remove(&old);
        let Ok(joined) = self.hosts[host].lane.join(Visit { max_wait: None, ..visit }, self.now) else {
            self.forget(id);
            return self.steps(host);
        };
        self.hosts[host].by_ticket.insert(joined.ticket, id);
        self.guests.get_mut(&id).expect("a guest").ticket = joined.ticket;
        self.steps(host)
    }

    /// A visit is called: no visit that stepped back is left waiting, unless it was called after this one. A visit that
    /// the ledger put off was called before, too; the world does not know when.
    pub(super) fn check_stepped_back(&self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        if self.guests[&id].put_off {
            return Ok(());
        }
        let place = |id: u64| self.guests[&id].stepped_back.unwrap_or(u64::MAX);
        let waiting = self.guests.iter().filter(|(_, guest)| guest.host == host && guest.stage == SimStage::Waiting);
        let first = waiting.map(|(&other, _)| place(other)).min().unwrap_or(u64::MAX);
        if first < place(id) {
            return broken(Promise::Order, format!("{:?} went before number {first} aside", self.guests[&id].visit));
        }
        Ok(())
    }
}
