//! One visit, from joining the queue of its host to the permit.
//!
//! [`Gate::visit`] joins, and [`Place::pass`] takes the visit through its steps: wait until the turn is near, get
//! ready, claim the turn, and get ready again if the turn was lost. What "ready" means is up to the caller's
//! [`Preparation`].
//!
//! The type says how far the visit is: [`Queued`], [`Called`], and a [`Permit`] in the end. Dropping any of them leaves
//! the queue, as dropping a permit settles the visit: a disconnected client never stays queued.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::claim::{self, LedgerWord};
use super::in_line::InLine;
use super::permit::{Account, Permit, Stay};
use super::shared_lane::{Entered, ToldChange};
use super::waiting_list::{Label, VisitClient};
use super::{Gate, now, too_many};
use crate::ledger::Ledger;
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::policy::{Counts, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, PagePart, Purpose, Visit};
use crate::politeness::{HostKey, Origin};

/// What a request does before its turn.
pub trait Preparation {
    /// What the request needs when its turn comes, usually a connection.
    type Ready;
    type Error: From<LaneRefusal>;

    /// Makes the request ready. Called when the turn is near, and again if the turn was lost.
    fn get_ready(&mut self) -> impl Future<Output = Result<Self::Ready, Self::Error>> + Send;

    /// Returns what is ready without waiting. A visit that has it passes a free host at once.
    fn at_hand(&mut self) -> Result<Option<Self::Ready>, Self::Error> {
        Ok(None)
    }

    /// Takes back what was ready and is not used, because another visit claimed the turn first.
    fn put_back(&mut self, ready: Self::Ready) {
        drop(ready);
    }

    /// Returns the origin if this error is its failure, so that the lane learns from it.
    fn blamed(&self, _error: &Self::Error) -> Option<&Origin> {
        None
    }

    /// Returns in one word how the host failed, to show it.
    fn fault(&self, _error: &Self::Error) -> Option<OriginFault> {
        None
    }

    /// Labels the visit for the API and the log. Called only if the visit waits.
    fn label(&self) -> Option<Label> {
        None
    }

    /// Returns the flag that is true if the visit stops waiting although its client is still connected.
    fn withdrawn(&self) -> Option<Arc<AtomicBool>> {
        None
    }
}

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

impl Gate {
    /// Joins the host's queue and waits for the turn. Returns what the request needs, and the permit to use it.
    pub async fn visit<P: Preparation>(
        self: &Arc<Self>,
        host: &HostKey,
        visit: Visit,
        now: Timestamp,
        preparation: &mut P,
    ) -> Result<(P::Ready, Permit), P::Error> {
        let at_hand = preparation.at_hand()?;
        match (self.join_at(host, visit, at_hand.is_some(), now), at_hand) {
            (Ok(Place(Position::Through(permit))), Some(ready)) => Ok((ready, permit)),
            (Ok(Place(Position::Started(started))), Some(ready)) => {
                let turn = Box::pin(started.started()).await?;
                Box::pin(go_on(turn, ready, preparation)).await
            }
            (place, at_hand) => {
                at_hand.into_iter().for_each(|ready| preparation.put_back(ready));
                // Boxed, so that a visit that passes at once does not pay for the space of waiting and connecting.
                Box::pin(place?.pass(preparation)).await
            }
        }
    }

    /// Joins the host's queue, or returns at once why the visit is refused. For callers that do something between
    /// joining and waiting; the others use [`Gate::visit`].
    pub fn join(self: &Arc<Self>, host: &HostKey, visit: Visit) -> Result<Place, LaneRefusal> {
        self.join_at(host, visit, false, now())
    }

    /// Joins the host's queue. A visit that is ready has its turn at once if the host is free.
    pub(super) fn join_at(
        self: &Arc<Self>,
        host: &HostKey,
        visit: Visit,
        is_ready: bool,
        now: Timestamp,
    ) -> Result<Place, LaneRefusal> {
        if self.off.load(Relaxed) {
            self.metrics.tally.count(host.as_str(), |row| row.visits += 1);
            return Ok(Place(Position::Through(Permit::free())));
        }
        let lane = match self.registry.known(host) {
            Some(lane) => lane,
            None => self.registry.lane(host, &self.book.load(), now)?,
        };
        let purpose_is_fetch = visit.purpose == Purpose::RobotsFetch;
        let (entered, account, is_part) = lane.look(|state| {
            state.used(now);
            if let Ledger::Fleet(fleet) = &self.ledger {
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
                self.tell_of_crawl_delay(lane.host(), &others, &delays);
            }
            if entered.told == Some(ToldChange::Start) && !purpose_is_fetch {
                self.metrics.hosts.visit(&mut state.badge, lane.host(), Duration::ZERO);
            }
            let is_part = visit.part != PagePart::No && state.lane.policy().count == Counts::Pages;
            Ok((entered, Account { delays, obstacle: None, mode, is_alone: false, ahead }, is_part))
        })?;
        // Unless the policy is enforced, no fetch waits.
        let is_fetch = purpose_is_fetch && (entered.is_free || account.mode != Mode::Enforce);
        let (gate, ticket, client, waited) = (self.clone(), entered.ticket, visit.client, Duration::ZERO);
        let (left, granted) = (None, None);
        let stay =
            Stay { gate, lane, ticket, client, waited, account, left, is_fetch, purpose_is_fetch, is_part, granted };
        if entered.told == Some(ToldChange::Start) && claim::needed(&stay).is_none() {
            return Ok(Place(Position::Through(Permit::new(Box::new(stay)))));
        }
        self.wait_in_lane(stay, &visit, &entered, now)
    }

    /// Keeps a visit that has entered its lane until its turn.
    fn wait_in_lane(
        self: &Arc<Self>,
        stay: Stay,
        visit: &Visit,
        entered: &Entered,
        now: Timestamp,
    ) -> Result<Place, LaneRefusal> {
        let ids = (stay.ticket, VisitClient::of(visit));
        let line = InLine::new(self.clone(), stay.lane.clone(), ids, now, entered.expected);
        let mut standing = Box::new(Standing { line, stay });
        match entered.told {
            Some(ToldChange::Start) => return Ok(Place(Position::Started(Called(standing)))),
            Some(_) => return Ok(Place(Position::Called(Called(standing)))),
            None => {}
        }
        standing.line.start_waiting(|| None);
        let (host, expected) = (standing.stay.lane.host(), entered.expected);
        tracing::debug!(event = "waiting", %host, wait_s = expected.since(now).as_secs_f64(), "a request waits");
        if self.is_crowded_for(visit.peer) {
            return Err(too_many(expected, now));
        }
        Ok(Place(Position::Queued(Queued(standing))))
    }
}

impl Place {
    /// Waits for the turn. Returns what the request needs, and the permit to use it.
    pub async fn pass<P: Preparation>(self, preparation: &mut P) -> Result<(P::Ready, Permit), P::Error> {
        let called = match self.0 {
            Position::Through(permit) => return Ok((preparation.get_ready().await?, permit)),
            Position::Called(called) => called.withdrawn_by(preparation.withdrawn()),
            Position::Started(started) => {
                let ready = preparation.get_ready().await?;
                return go_on(started.started().await?, ready, preparation).await;
            }
            Position::Queued(queued) => queued.known_as(preparation.label(), preparation.withdrawn()).called().await?,
        };
        let ready = make_ready(&called, preparation).await?;
        go_on(called.turn(|| preparation.label()).await?, ready, preparation).await
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

    #[cfg(test)]
    pub(super) fn account(&self) -> Option<&Account> {
        match &self.0 {
            Position::Through(permit) => permit.account(),
            Position::Called(Called(standing)) | Position::Started(Called(standing)) => Some(&standing.stay.account),
            Position::Queued(Queued(standing)) => Some(&standing.stay.account),
        }
    }
}

/// Goes on with a visit that was ready for its turn: gets ready again for as long as the turn is lost.
async fn go_on<P: Preparation>(
    mut turn: Turn,
    mut ready: P::Ready,
    preparation: &mut P,
) -> Result<(P::Ready, Permit), P::Error> {
    loop {
        let called = match turn {
            Turn::Given(permit) => return Ok((ready, permit)),
            Turn::Lost(called) => {
                preparation.put_back(ready);
                called
            }
            Turn::Later(queued) => {
                preparation.put_back(ready);
                queued.known_as(preparation.label(), preparation.withdrawn()).called().await?
            }
        };
        ready = make_ready(&called, preparation).await?;
        turn = called.turn(|| preparation.label()).await?;
    }
}

/// Makes a called visit ready. Reports to the lane if its origin fails.
pub(super) async fn make_ready<P: Preparation>(called: &Called, preparation: &mut P) -> Result<P::Ready, P::Error> {
    preparation.get_ready().await.inspect_err(|error| {
        preparation.fault(error).into_iter().for_each(|fault| called.noted(fault));
        preparation.blamed(error).into_iter().for_each(|origin| called.failed(origin));
    })
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

/// A visit of a test.
#[cfg(test)]
#[derive(Default)]
pub(super) struct Rehearsal {
    /// How long its connection takes to open.
    pub(super) opening: std::time::Duration,
    /// Whether it has a connection before it joins.
    pub(super) is_at_hand: bool,
    pub(super) label: Option<Label>,
    /// Counts the calls of `get_ready` and of `put_back`.
    pub(super) readied: u32,
    pub(super) put_back: u32,
}

#[cfg(test)]
impl Preparation for Rehearsal {
    type Ready = ();
    type Error = LaneRefusal;

    async fn get_ready(&mut self) -> Result<(), LaneRefusal> {
        self.readied += 1;
        if !self.opening.is_zero() {
            tokio::time::sleep(self.opening).await;
        }
        Ok(())
    }

    fn at_hand(&mut self) -> Result<Option<()>, LaneRefusal> {
        Ok(self.is_at_hand.then_some(()))
    }

    fn put_back(&mut self, (): ()) {
        self.put_back += 1;
    }

    fn label(&self) -> Option<Label> {
        self.label.clone()
    }
}

#[cfg(test)]
impl Place {
    /// Waits for the turn of a visit whose connection is open as soon as it is wanted.
    pub(super) async fn permit(self) -> Result<Permit, LaneRefusal> {
        Ok(self.pass(&mut Rehearsal::default()).await?.1)
    }
}
