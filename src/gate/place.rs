//! A visit's place in the queue of its host, until its turn comes.
//!
//! The type says how far the visit is: [`Queued`], [`Called`], and a [`Permit`] in the end. Dropping a place leaves the
//! queue, as dropping a permit settles the visit: a disconnected client never stays queued.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::claim::{self, LedgerWord};
use super::in_line::InLine;
use super::permit::{Account, Permit, Stay};
use super::shared_lane::{Entered, SharedLane, ToldChange};
use super::waiting_list::{Label, VisitClient};
use super::{Gate, now};
use crate::ledger::Ledger;
use crate::politeness::Origin;
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::policy::{Counts, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, PagePart, Purpose, Visit};

/// A visit that has joined the queue of its host.
#[derive(Debug)]
pub struct Place(pub(super) Position);

#[derive(Debug)]
pub(super) enum Position {
    /// The visit has its turn: it was ready and the host was free, or the host is not paced.
    Through(Permit),
    Called(Called),
    /// The lane has started the visit, which was ready. The ledger of the fleet has the last word.
    Started(Called),
    Queued(Queued),
}

/// A visit whose turn is not near yet.
#[derive(Debug)]
pub(super) struct Queued(Box<Standing>);

/// A visit whose turn is near, so that it should get ready.
#[derive(Debug)]
pub(super) struct Called(Box<Standing>);

/// A visit that was called and waits for the answer to another request.
#[derive(Debug)]
pub(super) struct Aside(Box<Standing>);

/// What became of a visit that was ready for its turn.
pub(super) enum Turn {
    Given(Permit),
    /// Another claim came first, and what was ready may be too old by the next turn.
    Lost(Called),
    /// The ledger of the fleet gives the turn much later, so the visit waits to be called again.
    Later(Queued),
}

/// Dropped in this order: first the line, then the lane.
#[derive(Debug)]
struct Standing {
    line: InLine,
    stay: Stay,
}

impl Place {
    pub(super) fn join(
        gate: Arc<Gate>,
        lane: Arc<SharedLane>,
        visit: Visit,
        is_ready: bool,
        now: Timestamp,
    ) -> Result<Self, LaneRefusal> {
        let is_fetch = visit.purpose == Purpose::RobotsFetch;
        let (entered, account, is_part) = lane.look(|state| {
            state.used(now);
            if let Ledger::Fleet(fleet) = &gate.ledger {
                state.lane.share_places(fleet.sharers(lane.host().as_str(), state.lane.is_spaced()));
            }
            let ahead = state.lane.queued();
            let entered = state.enter(visit, is_ready, now)?;
            if visit.tunnelled {
                state.lane.note_tunnelled();
            }
            let (delays, mode) = (state.lane.delays_for(visit.crawl_delay, now), state.lane.policy().mode);
            if state.is_new_crawl_delay(visit.crawl_delay) {
                let others = state.lane.delays_for(Duration::ZERO, now);
                gate.tell_of_crawl_delay(lane.host(), &others, &delays);
            }
            if entered.told == Some(ToldChange::Start) && !is_fetch {
                gate.metrics.hosts.visit(&mut state.badge, lane.host(), Duration::ZERO);
            }
            let is_part = visit.part != PagePart::No && state.lane.policy().count == Counts::Pages;
            Ok((entered, Account { delays, obstacle: None, mode, is_alone: false, ahead }, is_part))
        })?;
        let Entered { ticket, expected, told, is_free } = entered;
        // Unless the policy is enforced, no fetch waits.
        let purpose_is_fetch = is_fetch;
        let is_fetch = is_fetch && (is_free || account.mode != Mode::Enforce);
        let (client, waited) = (visit.client, Duration::ZERO);
        let (left, granted) = (None, None);
        let stay =
            Stay { gate, lane, ticket, client, waited, account, left, is_fetch, purpose_is_fetch, is_part, granted };
        let fleet = if told == Some(ToldChange::Start) { claim::needed(&stay) } else { None };
        if told == Some(ToldChange::Start) && fleet.is_none() {
            return Ok(Place(Position::Through(Permit::new(Box::new(stay)))));
        }
        let line = InLine::new(stay.gate.clone(), stay.lane.clone(), (ticket, VisitClient::of(&visit)), now, expected);
        let mut standing = Box::new(Standing { line, stay });
        if fleet.is_some() {
            return Ok(Place(Position::Started(Called(standing))));
        }
        if told.is_some() {
            return Ok(Place(Position::Called(Called(standing))));
        }
        standing.line.start_waiting(|| None);
        Ok(Place(Position::Queued(Queued(standing))))
    }

    /// Whether the policy of its host is enforced; `None` if no host is paced.
    pub(super) fn mode(&self) -> Option<Mode> {
        match &self.0 {
            Position::Through(permit) => permit.account().map(|account| account.mode),
            Position::Called(Called(standing))
            | Position::Started(Called(standing))
            | Position::Queued(Queued(standing)) => Some(standing.stay.account.mode),
        }
    }

    /// The expected start of a visit that was not called at once.
    pub(super) fn waits_until(&self) -> Option<Timestamp> {
        match &self.0 {
            Position::Queued(queued) => Some(queued.0.line.expected),
            Position::Through(_) | Position::Called(_) | Position::Started(_) => None,
        }
    }

    #[cfg(test)]
    pub(super) fn account(&self) -> Option<&Account> {
        match &self.0 {
            Position::Through(permit) => permit.account(),
            Position::Called(Called(standing)) | Position::Started(Called(standing)) => Some(&standing.stay.account),
            Position::Queued(Queued(standing)) => Some(&standing.stay.account),
        }
    }
}

impl Queued {
    pub(super) fn known_as(mut self, label: Option<Label>, withdrawn: Option<Arc<AtomicBool>>) -> Self {
        self.0.line.known_as(label);
        self.0.line.withdrawn = withdrawn;
        self
    }

    /// Waits until the turn is near.
    pub(super) async fn called(mut self) -> Result<Called, LaneRefusal> {
        loop {
            match self.0.line.told().await {
                ToldChange::Prepare => break,
                ToldChange::Refused(refusal) => return Err(refusal),
                ToldChange::Start => {}
            }
        }
        self.0.stay.waited = now().since(self.0.line.joined);
        Ok(Called(self.0))
    }
}

impl Called {
    pub(super) fn withdrawn_by(mut self, withdrawn: Option<Arc<AtomicBool>>) -> Self {
        self.0.line.withdrawn = withdrawn;
        self
    }

    /// Steps aside, if the lane allows it. Labels the visit if it was not known that it has to wait.
    pub(super) fn step_aside(mut self, label: impl FnOnce() -> Option<Label>) -> Result<Aside, Called> {
        let Standing { line, stay } = &mut *self.0;
        let now = now();
        if !stay.lane.with(now, |state| state.lane.step_aside(stay.ticket, now)) {
            return Err(self);
        }
        line.start_waiting(label);
        line.doze();
        Ok(Aside(self.0))
    }

    /// Notes how the host failed, to show it.
    pub(super) fn noted(&self, fault: OriginFault) {
        let now = now();
        self.0.stay.lane.look(|state| state.lane.note_reply(HostReply::Fault(fault), now));
    }

    /// Reports that the connection to this origin could not be made.
    pub(super) fn failed(&self, origin: &Origin) {
        let stay = &self.0.stay;
        let (now, book) = (now(), stay.gate.book.load());
        stay.learn(now, Some(origin), |lane| lane.unreachable(stay.ticket, &book.schooling, now));
    }

    /// Waits for the turn of a visit that is ready. Labels it if it was not known that it has to wait.
    pub(super) async fn turn(mut self, label: impl FnOnce() -> Option<Label>) -> Result<Turn, LaneRefusal> {
        let Standing { line, stay } = &mut *self.0;
        let ready = now();
        let at_once = stay.lane.look(|state| state.ready(stay.ticket, ready));
        let told = match at_once {
            Some(told) => told,
            None => {
                line.start_waiting(label);
                line.wait(stay, ready).await
            }
        };
        self.told(told).await
    }

    /// Goes on with a visit that its lane started when it joined, because it was ready.
    pub(super) async fn started(self) -> Result<Turn, LaneRefusal> {
        self.told(ToldChange::Start).await
    }

    /// Obeys the lane. In a fleet, asks the ledger for the turn.
    async fn told(mut self, mut told: ToldChange) -> Result<Turn, LaneRefusal> {
        let Standing { line, stay } = &mut *self.0;
        loop {
            match told {
                ToldChange::Start => {}
                ToldChange::Refused(refusal) => return Err(refusal),
                ToldChange::Prepare => return Ok(Turn::Lost(self)),
            }
            let Some(fleet) = claim::needed(stay) else { break };
            let asked = now();
            match Box::pin(claim::claim(fleet, stay)).await {
                LedgerWord::Go => break,
                LedgerWord::NotYet => {
                    line.start_waiting(|| None);
                    told = line.wait(stay, asked).await;
                }
                LedgerWord::Later => {
                    line.start_waiting(|| None);
                    return Ok(Turn::Later(Queued(self.0)));
                }
            }
        }
        line.stop_waiting();
        stay.lane.look(|state| stay.count(state));
        if !stay.waited.is_zero() {
            stay.account.obstacle = stay.lane.look(|state| state.lane.overcome(now()));
        }
        Ok(Turn::Given(Permit::new(Box::new(self.0.stay))))
    }
}

impl Aside {
    /// Waits for its turn again, at the front of the queue.
    pub(super) fn step_back(self) -> Queued {
        let Standing { stay, .. } = &*self.0;
        let now = now();
        stay.lane.with(now, |state| state.lane.step_back(stay.ticket, now));
        Queued(self.0)
    }
}

impl InLine {
    /// Waits for the next instruction of the lane, and counts the time since `since` as waiting.
    async fn wait(&mut self, stay: &mut Stay, since: Timestamp) -> ToldChange {
        let told = self.told().await;
        stay.waited += now().since(since);
        told
    }
}
