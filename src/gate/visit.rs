//! One visit, from joining the queue of its host to the permit.
//!
//! [`Place::pass`] takes a visit through its steps: wait until the turn is near, get ready, claim
//! the turn, and get ready again if the turn was lost. [`Gate::visit`] joins first. What "ready" means is up to the
//! caller's [`Preparation`].

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::permit::Permit;
use super::place::{Called, Place, Position, Turn};
use super::waiting_list::Label;
use super::{Gate, now};
use crate::politeness::fault::OriginFault;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, Visit};
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
        prepare(called, preparation).await
    }
}

/// Makes a called visit ready and waits for its turn, again and again if the turn is lost.
async fn prepare<P: Preparation>(mut called: Called, preparation: &mut P) -> Result<(P::Ready, Permit), P::Error> {
    loop {
        let ready = make_ready(&called, preparation).await?;
        match called.turn(|| preparation.label()).await? {
            Turn::Given(permit) => return Ok((ready, permit)),
            Turn::Lost(again) => {
                preparation.put_back(ready);
                called = again;
            }
            Turn::Later(queued) => {
                preparation.put_back(ready);
                called = queued.known_as(preparation.label(), preparation.withdrawn()).called().await?;
            }
        }
    }
}

/// Goes on with a visit that was ready when it joined.
async fn go_on<P: Preparation>(
    turn: Turn,
    ready: P::Ready,
    preparation: &mut P,
) -> Result<(P::Ready, Permit), P::Error> {
    match turn {
        Turn::Given(permit) => Ok((ready, permit)),
        Turn::Lost(called) => {
            preparation.put_back(ready);
            prepare(called, preparation).await
        }
        Turn::Later(queued) => {
            preparation.put_back(ready);
            let called = queued.known_as(preparation.label(), preparation.withdrawn()).called().await?;
            prepare(called, preparation).await
        }
    }
}

/// Makes a called visit ready. Reports to the lane if its origin fails.
pub(super) async fn make_ready<P: Preparation>(called: &Called, preparation: &mut P) -> Result<P::Ready, P::Error> {
    preparation.get_ready().await.inspect_err(|error| {
        preparation.fault(error).into_iter().for_each(|fault| called.noted(fault));
        preparation.blamed(error).into_iter().for_each(|origin| called.failed(origin));
    })
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
