//! The path of a guest (a visit in the world) through a lane and out to the origin, with everything that can go wrong
//! on it.

use std::time::Duration;

use super::Flaw;
use super::oracle::{BrokenPromise, Promise, broken};
use super::world::{SimEvent, SimStage, World};
use crate::politeness::lane::LEAD;
use crate::politeness::visit::{PagePart, Purpose, Ticket, Visit};
use crate::politeness::visit_table::LONG_TRANSFER;

impl World {
    pub(super) fn prepare(&mut self, host: usize, ticket: Ticket) -> Result<(), BrokenPromise> {
        let id = self.hosts[host].by_ticket[&ticket];
        // A part that rides overtakes no visit: it takes no turn.
        if !self.hosts[host].lane.is_called_to_ride(ticket) {
            self.check_order(host, id)?;
        }
        self.check_called(host, id)?;
        if !self.step_aside(id) {
            self.connect(id);
        }
        Ok(())
    }

    /// Starts a guest that already has its connection.
    pub(super) fn start_at_once(&mut self, host: usize, ticket: Ticket) -> Result<(), BrokenPromise> {
        let (id, now) = (self.hosts[host].by_ticket[&ticket], self.now);
        if !self.hosts[host].lane.is_called_to_ride(ticket) {
            self.check_order(host, id)?;
            self.check_needs_turn(host, id)?;
        }
        self.check_called(host, id)?;
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.stage = SimStage::Ready;
        guest.preparing_since = now;
        self.start(host, ticket)
    }

    fn connect(&mut self, id: u64) {
        let now = self.now;
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.stage = SimStage::Preparing;
        guest.preparing_since = now;
        if self.is_refused(id) {
            return self.fail_soon(id);
        }
        match self.dice.below(100) {
            0..=69 => self.after(Duration::ZERO, SimEvent::Connected(id)),
            70..=93 => {
                let handshake = self.dice.up_to(Duration::from_millis(400));
                self.after(handshake, SimEvent::Connected(id));
            }
            94..=97 => {
                let handshake = self.dice.up_to(Duration::from_secs(5));
                self.after(handshake, SimEvent::Connected(id));
            }
            _ => self.after(Duration::from_secs(10), SimEvent::GiveUp(id)),
        }
    }

    pub(super) fn connected(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let now = self.now;
        let Some(guest) = self.guests.get_mut(&id).filter(|guest| guest.stage == SimStage::Preparing) else {
            return Ok(());
        };
        guest.stage = SimStage::Ready;
        let took = now.since(guest.preparing_since);
        guest.prepared_for += took;
        let (host, ticket) = (guest.host, guest.ticket);
        if took > LEAD && self.hosts[host].oracle.mixed {
            // Other visits were called beside it, and its start begins their crawl delays anew.
            self.foresee_nothing(host);
        }
        if self.hosts[host].lane.ready(ticket, now) {
            self.tally.started_at_once += 1;
            self.start(host, ticket)?;
            return self.steps(host);
        }
        if self.dice.chance(3) {
            let kept = self.dice.up_to(Duration::from_secs(5));
            self.after(kept, SimEvent::ConnectionLost(id));
        }
        self.steps(host)
    }

    pub(super) fn connection_lost(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let Some(guest) = self.guests.get(&id).filter(|guest| guest.stage == SimStage::Ready) else { return Ok(()) };
        let (host, ticket) = (guest.host, guest.ticket);
        self.hosts[host].lane.unready(ticket, self.now);
        self.connect(id);
        self.steps(host)
    }

    pub(super) fn start(&mut self, host: usize, ticket: Ticket) -> Result<(), BrokenPromise> {
        let id = self.hosts[host].by_ticket[&ticket];
        let (now, asked) = (self.now, self.guests[&id].visit.crawl_delay);
        if self.hosts[host].lane.rides(ticket) {
            self.check_ride(host, id)?;
        } else {
            self.hosts[host].oracle.change(now, |oracle| oracle.robots = asked);
        }
        self.check_start(host, id)?;
        self.tally.made_room += u64::from(self.in_flight(host) >= self.hosts[host].oracle.concurrency());
        let terms = self.hosts[host].oracle.terms();
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.stage = SimStage::Told;
        guest.preparing_since = self.now;
        guest.terms = terms;
        if self.flawed(Flaw::CountsTheGrant) {
            self.hosts[host].lane.sent(ticket, self.now);
        }
        let moment = self.dice.up_to(Duration::from_millis(2));
        match self.dice.below(100) {
            0..=4 => self.after(moment, SimEvent::GiveUp(id)),
            5..=24 => {
                let answer = self.dice.up_to(Duration::from_millis(300));
                self.after(answer, SimEvent::LedgerAnswers(id));
            }
            _ => self.after(moment, SimEvent::Write(id)),
        }
        Ok(())
    }

    pub(super) fn ledger_answers(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let Some(guest) = self.guests.get(&id) else { return Ok(()) };
        let (host, ticket) = (guest.host, guest.ticket);
        // A part that rides needs no turn of the ledger.
        let needs_turn = guest.terms.enforced() && guest.rides_with.is_none();
        if needs_turn && self.dice.chance(20) {
            let until = self.now + self.dice.up_to(Duration::from_secs(2));
            self.hosts[host].elsewhere = self.hosts[host].elsewhere.max(until);
            let is_ready = self.hosts[host].lane.put_off(ticket, until, 0, self.now);
            self.put_back(id, host);
            if !is_ready {
                let guest = self.guests.get_mut(&id).expect("a guest");
                (guest.stage, guest.put_off) = (SimStage::Waiting, true);
            }
        } else if self.flawed(Flaw::NeverConfirms) || self.hosts[host].lane.agree(ticket, self.now) {
            let terms = self.hosts[host].oracle.terms();
            let guest = self.guests.get_mut(&id).expect("a guest");
            guest.terms.renew(terms);
            self.after(Duration::ZERO, SimEvent::Write(id));
        } else {
            self.put_back(id, host);
        }
        self.steps(host)
    }

    fn put_back(&mut self, id: u64, host: usize) {
        self.tally.put_back += 1;
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.stage = SimStage::Ready;
        guest.rides_with = None;
        // The time that the ledger took does not count as waiting for the lane.
        guest.prepared_for += self.now.since(guest.preparing_since);
        self.foresee_nothing(host);
    }

    pub(super) fn write(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let now = self.now;
        let Some(guest) = self.guests.get_mut(&id) else { return Ok(()) };
        guest.stage = SimStage::Sent;
        guest.sent = now;
        self.tally.sent += 1;
        let (host, ticket, terms, visit, rides) =
            (guest.host, guest.ticket, guest.terms, guest.visit, guest.rides_with);
        self.tally.sent_in_grace += u64::from(self.hosts[host].drain_end.is_some());
        if let Some(most) = rides {
            self.hosts[host].oracle.send_part(terms, now)?;
            self.check_ride_sent(host, most)?;
        } else {
            self.tally.followed += u64::from(self.hosts[host].oracle.send(terms, visit.purpose, now)?);
            self.turn_sent(host, &visit, terms.enforced());
        }
        if !self.flawed(Flaw::CountsTheGrant) {
            let breach = self.hosts[host].lane.sent(ticket, now);
            if let Some(breach) = breach {
                return broken(Promise::Audit, format!("{breach:?} at {now:?}"));
            }
        }
        let slowest = if self.dice.chance(10) { 8_000 } else { 300 };
        let thinking = self.dice.up_to(Duration::from_millis(slowest));
        self.after(thinking, SimEvent::Answered(id));
        self.steps(host)
    }

    pub(super) fn answered(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let now = self.now;
        let Some(guest) = self.guests.get(&id) else { return Ok(()) };
        let (host, visit) = (guest.host, guest.visit);
        let (retry, purpose) = (visit.retry, visit.purpose);
        let took = now.since(guest.sent);
        let answered = self.dice.chance(90);
        if answered {
            self.hosts[host].oracle.answered(took, now);
        }
        if self.hosts[host].oracle.policy.delay_factor > 0.0 {
            self.foresee_nothing(host);
        }
        if answered {
            self.report(id)?;
        }
        self.steps(host)?;
        if purpose == Purpose::RobotsFetch {
            self.leave(id)?;
            let page = self.visit(true);
            return self.join(host, Visit { purpose: Purpose::AfterRobotsFetch, retry: false, ..page });
        }
        if !retry && self.dice.chance(5) {
            self.leave(id)?;
            // The retry goes before all other visits, which could not be foreseen.
            self.foresee_nothing(host);
            let again = self.visit(true);
            return self.join(host, again);
        }
        if visit.part == PagePart::No && self.enforced(host) && self.dice.chance(30) {
            self.load_parts(host, &visit)?;
        }
        let longest = if self.dice.chance(6) { self.begin_transfer(id) } else { Duration::from_millis(500) };
        let body = self.dice.up_to(longest);
        self.after(body, SimEvent::Ended(id));
        Ok(())
    }

    /// Begins a transfer: the answer is a WebSocket, or a body that may take long. Returns for how long at most.
    fn begin_transfer(&mut self, id: u64) -> Duration {
        let (now, is_open) = (self.now, self.dice.chance(30));
        let Some(guest) = self.guests.get_mut(&id) else { return Duration::ZERO };
        let (host, ticket) = (guest.host, guest.ticket);
        guest.long_from = if is_open { now } else { guest.sent + LONG_TRANSFER };
        if !self.flawed(Flaw::HidesTransfers) {
            let lane = &mut self.hosts[host].lane;
            if is_open { lane.stays_open(ticket) } else { lane.transfers(ticket) }
        }
        // How long it takes could not be foreseen.
        self.foresee_nothing(host);
        Duration::from_secs(80)
    }

    pub(super) fn give_up(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let Some(guest) = self.guests.get(&id) else { return Ok(()) };
        if guest.stage == SimStage::Told && self.flawed(Flaw::KeepsTheTurnOfALeaver) {
            self.forget(id);
            return Ok(());
        }
        self.tally.left += 1;
        self.leave(id)
    }
}
