//! Origins that fail: connections that are refused, and how a lane may react to them.
//!
//! A second count of failures in a row, for each origin of each host, from the world's events alone. The lane is
//! checked against it: only an origin that has failed often enough is refused, and no other origin of its host; during
//! its cooldown only another client is called, and one at a time after it; failed attempts cost turns.

use std::collections::BTreeSet;
use std::time::Duration;

use super::oracle::{BrokenPromise, Promise, broken};
use super::teach::schooling;
use super::world::{SimEvent, SimStage, World};
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, OriginId, Visit};

/// What is known about one origin.
#[derive(Clone, Debug, Default)]
pub(super) struct SimOrigins {
    failures: u32,
    clients: BTreeSet<u64>,
    open: Option<OpenedBreaker>,
    trial: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct OpenedBreaker {
    until: Timestamp,
    cooldown: Duration,
}

/// Origins of each host. The last one refuses connections.
pub(super) const ORIGINS: u64 = 3;
const DEAD: OriginId = OriginId(ORIGINS as u32 - 1);

impl SimOrigins {
    /// Whether a visit of this client may be called now.
    fn is_free_for(&self, client: u64, now: Timestamp) -> bool {
        let owners: BTreeSet<u64> = self.clients.iter().map(|other| other >> 32).collect();
        let innocent = self.clients.len() == 1 && !self.clients.contains(&client)
            || owners.len() == 1 && !owners.contains(&(client >> 32));
        self.open.is_none_or(|open| self.trial.is_none() && (now >= open.until || innocent))
    }

    fn fail(&mut self, id: u64, client: u64, began: Timestamp, now: Timestamp) -> bool {
        let tolerance = schooling().tolerance;
        let is_trial = self.trial.take_if(|trial| *trial == id).is_some();
        let cooldown = match self.open {
            Some(open) if is_trial || began >= open.until => (open.cooldown * 2).min(tolerance.longest_cooldown),
            Some(_) => return false,
            None => tolerance.cooldown,
        };
        self.failures += 1;
        self.clients.insert(client);
        if self.open.is_none() && self.failures < u32::from(tolerance.failures) {
            return false;
        }
        self.open = Some(OpenedBreaker { until: now + cooldown, cooldown });
        true
    }

    fn answer(&mut self, id: u64, answer: PaceSignal, sent: Timestamp, now: Timestamp) {
        let is_trial = self.trial.take_if(|trial| *trial == id).is_some();
        match (&mut self.open, answer) {
            (Some(open), _) if !is_trial && sent < open.until => {}
            (Some(open), PaceSignal::Throttled) => open.until = now + open.cooldown,
            _ => *self = SimOrigins::default(),
        }
    }
}

impl World {
    pub(super) fn origin(&mut self) -> OriginId {
        OriginId(self.dice.below(ORIGINS) as u32)
    }

    /// Whether the connection of this guest will be refused.
    pub(super) fn is_refused(&mut self, id: u64) -> bool {
        let guest = &self.guests[&id];
        let (teaches, dead) = (self.hosts[guest.host].oracle.teaches, guest.visit.origin == DEAD);
        teaches && dead && self.dice.chance(80)
    }

    /// A visit is called to make its connection ready.
    pub(super) fn check_called(&mut self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        let (now, guest) = (self.now, &self.guests[&id]);
        let (client, origin, enforced) = (guest.visit.client.0, guest.visit.origin, self.enforced(host));
        let at = &mut self.hosts[host];
        let known = &mut at.origins[origin.0 as usize];
        let is_free = known.is_free_for(client, now);
        if enforced && !is_free {
            return broken(Promise::Origin, format!("client {client} was called at {now:?}: {known:?}"));
        }
        if known.open.is_some() && is_free {
            known.trial = Some(id);
        }
        if enforced && now < at.charged {
            return broken(Promise::Origin, format!("called at {now:?}, failures cost turns until {:?}", at.charged));
        }
        Ok(())
    }

    /// Only an origin that has failed often enough is refused for it.
    pub(super) fn check_broken(&self, host: usize, visit: &Visit, refusal: LaneRefusal) -> Result<bool, BrokenPromise> {
        if !matches!(refusal, LaneRefusal::BreakerOpen { .. }) {
            return Ok(false);
        }
        let known = &self.hosts[host].origins[visit.origin.0 as usize];
        if known.open.is_none() {
            return broken(Promise::Origin, format!("{refusal:?} for {visit:?}: {known:?}"));
        }
        Ok(true)
    }

    /// A connection is refused. It costs a turn, which could not be foreseen.
    pub(super) fn connect_failed(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let now = self.now;
        let Some(guest) = self.guests.get(&id).filter(|guest| guest.stage == SimStage::Preparing) else {
            return Ok(());
        };
        let (host, ticket, began, visit) = (guest.host, guest.ticket, guest.preparing_since, guest.visit);
        let most = self.asking_most(host);
        let at = &mut self.hosts[host];
        at.charged = at.charged.max(began) + at.oracle.policy.delay;
        // The lane counts whole microseconds, and may know of no token that was saved up.
        let free = if most.sparing() { most.free_at(now).max(now + most.longest_gap()) } else { most.free_at(now) };
        at.elsewhere = free.max(at.elsewhere) + most.delay() + Duration::from_micros(2);
        let opened = at.origins[visit.origin.0 as usize].fail(id, visit.client.0, began, now);
        let lesson = at.lane.unreachable(ticket, &schooling(), now);
        let enforced = self.enforced(host);
        if opened != lesson.is_some() && !enforced {
            // Without pacing, visits are called that a lane would keep for the client that was told to come back.
            self.forget_learned(host)?;
        } else if opened != lesson.is_some() {
            return broken(Promise::Origin, format!("{lesson:?}: {:?}", self.hosts[host].origins));
        }
        self.tally.given_up += u64::from(opened);
        self.foresee_nothing(host);
        self.leave(id)
    }

    /// An origin answered. Returns whether its breaker closed.
    pub(super) fn origin_answered(&mut self, id: u64, answer: PaceSignal) -> bool {
        let guest = &self.guests[&id];
        let (host, origin, sent) = (guest.host, guest.visit.origin.0 as usize, guest.sent);
        let (now, known) = (self.now, &mut self.hosts[host].origins[origin]);
        let was_open = known.open.is_some();
        known.answer(id, answer, sent, now);
        was_open && known.open.is_none()
    }

    pub(super) fn origin_left(&mut self, host: usize, id: u64) {
        for known in &mut self.hosts[host].origins {
            known.trial.take_if(|trial| *trial == id);
        }
    }

    pub(super) fn fail_soon(&mut self, id: u64) {
        let refused = self.dice.up_to(Duration::from_millis(50));
        self.after(refused, SimEvent::ConnectFailed(id));
    }
}
