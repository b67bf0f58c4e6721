//! Pages and their parts: a second count of which parts may ride, from the world's events alone.
//!
//! A part is checked when it is told to start without a turn: its client must have taken a turn lately, after every
//! hold and pause, and neither that turn nor the host's latest one may carry more parts than allowed. A part that could
//! ride must not wait.

use std::time::Duration;

use super::oracle::{BrokenPromise, Promise, broken};
use super::world::{SimStage, SimVisit, World};
use crate::politeness::policy::{Counts, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, PagePart, Purpose, Visit};

/// What the world knows about the pages of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct SimPages {
    /// The latest turn of each client that carries parts, and the parts on it.
    turns: Vec<(ClientId, Timestamp, u32)>,
    /// Parts sent without a turn since the latest turn.
    sent: u32,
    /// The same with those that were told to start and gave up.
    told: u32,
    /// Whether pages were ever counted here.
    pub(super) ever: bool,
}

const PAGE_LOAD: Duration = Duration::from_secs(30);

impl SimPages {
    pub(super) fn new(ever: bool) -> Self {
        SimPages { ever, ..SimPages::default() }
    }

    /// Rides are over: the host was paused, or its lane is new.
    pub(super) fn end(&mut self) {
        self.turns.clear();
    }

    fn turn(&mut self, visit: &Visit, now: Timestamp) {
        if visit.part != PagePart::Data && visit.purpose != Purpose::RobotsFetch {
            self.turns.retain(|turn| turn.0 != visit.client);
            self.turns.push((visit.client, now, 0));
        }
    }
}

impl World {
    /// Whether parts may ride at this host at all.
    fn rides_are_on(&self, host: usize) -> bool {
        let at = &self.hosts[host];
        let (policy, oracle) = (&at.oracle.policy, &at.oracle);
        let is_closed = oracle.paused || self.now < oracle.held_until || at.drain_end.is_some();
        let is_paced = policy.mode == Mode::Enforce && oracle.learned <= policy.delay;
        policy.count == Counts::Pages && is_paced && !is_closed
    }

    /// A part is told to start without a turn.
    pub(super) fn check_ride(&mut self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        let (now, visit) = (self.now, self.guests[&id].visit);
        let most = self.hosts[host].oracle.policy.page_parts;
        if visit.part == PagePart::No || visit.retry || !self.rides_are_on(host) {
            return broken(Promise::Rides, format!("{visit:?} rides at {now:?}: {:?}", self.hosts[host].oracle));
        }
        let held_until = self.hosts[host].oracle.held_until;
        let SimPages { turns, told, .. } = &mut self.hosts[host].pages;
        let Some((_, since, parts)) = turns.iter_mut().find(|turn| turn.0 == visit.client) else {
            return broken(Promise::Rides, format!("{visit:?} rides on no turn"));
        };
        *parts += 1;
        *told += 1;
        if *since + PAGE_LOAD <= now || *since < held_until || *parts > most {
            return broken(Promise::Rides, format!("part {parts} of {most} at {now:?} rides on the turn of {since:?}"));
        }
        self.tally.rode += 1;
        let guest = self.guests.get_mut(&id).expect("a guest");
        guest.rides_with = Some(most);
        Ok(())
    }

    /// A visit is called as soon as it comes. If it is a part and does not ride, then it has no ride, and no part of
    /// its client waits for one.
    pub(super) fn check_needs_turn(&self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        let (at, visit) = (&self.hosts[host], &self.guests[&id].visit);
        let is_part = visit.part != PagePart::No && !visit.retry && !self.guests[&id].returning;
        // Without a delay, every request has its turn at once.
        let is_on = self.rides_are_on(host) && !at.oracle.policy.delay.is_zero();
        if !is_part || !is_on || at.lane.is_called_to_ride(self.guests[&id].ticket) {
            return Ok(());
        }
        let mut here = self.guests.values().filter(|guest| guest.host == host && guest.visit.client == visit.client);
        let waits = here.any(|guest| at.lane.is_parked(guest.ticket));
        if (waits && visit.part == PagePart::Resource) || self.has_ride(host, visit.client) {
            return broken(Promise::Rides, format!("{visit:?} takes a turn and need not: {:?}", at.pages));
        }
        Ok(())
    }

    /// Returns whether a turn of this client carries one more part.
    fn has_ride(&self, host: usize, client: ClientId) -> bool {
        let at = &self.hosts[host];
        let most = at.oracle.policy.page_parts;
        let is_open = |turn: &(ClientId, Timestamp, u32)| {
            turn.0 == client && turn.1 + PAGE_LOAD > self.now && turn.1 >= at.oracle.held_until && turn.2 < most
        };
        at.pages.turns.iter().any(is_open) && at.pages.told < most
    }

    /// A part is sent without a turn, at the origin's side.
    pub(super) fn check_ride_sent(&mut self, host: usize, most: u32) -> Result<(), BrokenPromise> {
        // The number may have been raised since the part was told to start.
        let most = most.max(self.hosts[host].oracle.policy.page_parts);
        let pages = &mut self.hosts[host].pages;
        pages.sent += 1;
        if pages.sent > most {
            return broken(Promise::Rides, format!("{} parts after one turn, {most} may", pages.sent));
        }
        Ok(())
    }

    /// A turn is sent. It carries parts if it was given by the rules: not if pacing was off then.
    pub(super) fn turn_sent(&mut self, host: usize, visit: &Visit, by_the_rules: bool) {
        let (now, enforced) = (self.now, by_the_rules && self.enforced(host));
        let told = self.guests.values().filter(|guest| guest.host == host && guest.stage == SimStage::Told);
        let unsent = told.filter(|guest| guest.rides_with.is_some()).count() as u32;
        let at = &mut self.hosts[host];
        at.pages.sent = 0;
        // A fetch of robots.txt that found the host free carries no parts, so it does not begin a new count.
        at.pages.told = if visit.purpose == Purpose::RobotsFetch { at.pages.told } else { unsent };
        if enforced && at.oracle.policy.count == Counts::Pages {
            at.pages.turn(visit, now);
        }
    }

    /// The lane says to wait: then no part could ride. Looks only at hosts with visits of one client.
    pub(super) fn check_parts_wait(&self, host: usize, places: usize) -> Result<(), BrokenPromise> {
        let at = &self.hosts[host];
        let here: Vec<&SimVisit> = self.guests.values().filter(|guest| guest.host == host).collect();
        let Some(client) = here.first().map(|guest| guest.visit.client) else { return Ok(()) };
        let has_ride = self.has_ride(host, client);
        // A part that has lost its ride once waits for its own turn.
        let waits = |guest: &&SimVisit| guest.stage == SimStage::Waiting && at.lane.is_parked(guest.ticket);
        let taken = here.iter().filter(|guest| guest.stage.has_place()).count();
        let is_alone = here.iter().all(|guest| guest.visit.client == client) && at.elsewhere <= self.now;
        // Without a delay, every request has its turn at once; failed attempts cost the delay of the visit before.
        let is_alone = is_alone && !at.oracle.policy.delay.is_zero() && !at.oracle.mixed;
        if has_ride && is_alone && self.rides_are_on(host) && taken < places && here.iter().any(waits) {
            return broken(Promise::Idle, format!("a part waits at {:?}: {:?}", self.now, at.pages));
        }
        Ok(())
    }

    /// A page was answered, and its client loads the parts.
    pub(super) fn load_parts(&mut self, host: usize, page: &Visit) -> Result<(), BrokenPromise> {
        for _ in 0..self.dice.below(9) {
            let part = if self.dice.chance(80) { PagePart::Resource } else { PagePart::Data };
            let visit = Visit { client: page.client, peer: page.peer, part, ..self.visit(false) };
            let purpose = if self.dice.chance(50) { Purpose::Page } else { Purpose::AfterRobotsFetch };
            self.join(host, Visit { purpose, ..visit })?;
        }
        Ok(())
    }
}
