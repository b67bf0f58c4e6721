//! A visit that follows a flight: it waits for its turn, and for the answer to another request, whichever comes first.
//!
//! It stands in the queue of its host like any other visit. If its turn comes while the answer is out, it steps aside
//! and steps back if the answer is of no use. The flight decides which ([`Follower`]); this module only obeys.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::timeout;

use super::Gate;
use super::permit::Permit;
use super::visit::{Place, Position, Preparation, Turn, make_ready};
use crate::politeness::HostKey;
use crate::politeness::flight::{CallReply, LONGEST_ASIDE, Round};
use crate::politeness::policy::Mode;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, Visit};

/// A request's part in a flight.
pub trait Follower {
    /// The answer to another request.
    type Shared;

    /// Whether another request of the flight is under way.
    fn is_led(&self) -> bool;

    /// Reports that the turn is near, and returns what to do.
    fn called(&self) -> CallReply;

    /// Reports that the turn was not near after all: the request waits, and does not lead.
    fn waits_again(&self);

    /// Leaves the flight: the request goes on alone.
    fn leave(&self);

    /// Returns an answer that was stored since the request was looked up, and gives it to the whole flight. Called when
    /// a request that had to wait has its turn.
    fn stored_meanwhile(&self) -> Option<Self::Shared>;

    /// Resolves when there is an answer that this request may share. Never resolves after [`Follower::leave`].
    fn shared(&self) -> impl Future<Output = Self::Shared> + Send;

    /// Resolves when the members that stepped aside in this round must step back.
    fn released(&self, round: Round) -> impl Future<Output = ()> + Send;
}

/// What became of a visit that follows.
#[derive(Debug)]
pub enum Passage<R, S> {
    Turn(R, Permit),
    Shared(S),
}

type Passed<P, F> = Result<Passage<<P as Preparation>::Ready, <F as Follower>::Shared>, <P as Preparation>::Error>;

impl Gate {
    /// Like [`Gate::visit`], for a request that is a member of a flight.
    pub async fn follow<P: Preparation, F: Follower + Sync>(
        self: &Arc<Self>,
        host: &HostKey,
        visit: Visit,
        now: Timestamp,
        preparation: &mut P,
        follower: &F,
    ) -> Passed<P, F> {
        // The first of a flight passes a free host at once, as it would without a flight.
        let leads = !follower.is_led() && follower.called() == CallReply::Lead;
        let at_hand = if leads { preparation.at_hand()? } else { None };
        match (self.join_at(host, visit, at_hand.is_some(), now), at_hand) {
            (Ok(Place(Position::Through(permit))), Some(ready)) => Ok(Passage::Turn(ready, permit)),
            (Ok(Place(Position::Started(started))), Some(ready)) => {
                let place = match Box::pin(started.started()).await? {
                    Turn::Given(permit) => return Ok(Passage::Turn(ready, permit)),
                    Turn::Lost(called) => Place(Position::Called(called)),
                    Turn::Later(queued) => Place(Position::Queued(queued)),
                };
                preparation.put_back(ready);
                follower.waits_again();
                Box::pin(place.follow(preparation, follower)).await
            }
            (place, at_hand) => {
                at_hand.into_iter().for_each(|ready| preparation.put_back(ready));
                if leads {
                    follower.waits_again();
                }
                // Boxed, so that a visit that passes at once does not pay for the space of waiting and connecting.
                match place {
                    Ok(place) => Box::pin(place.follow(preparation, follower)).await,
                    Err(refusal) => Box::pin(follow_refused(refusal, visit.max_wait, follower)).await,
                }
            }
        }
    }
}

/// Waits for the answer without a place in the queue: the host takes no more visits, but one is under way.
async fn follow_refused<R, S, E: From<LaneRefusal>>(
    refusal: LaneRefusal,
    max_wait: Option<Duration>,
    follower: &(impl Follower<Shared = S> + Sync),
) -> Result<Passage<R, S>, E> {
    let longest = max_wait.unwrap_or(LONGEST_ASIDE).min(LONGEST_ASIDE);
    if follower.is_led()
        && let Ok(shared) = timeout(longest, follower.shared()).await
    {
        return Ok(Passage::Shared(shared));
    }
    follower.leave();
    Err(refusal.into())
}

/// What a follower waited for, or the answer that came first.
enum Either<T, S> {
    Own(T),
    Shared(S),
}

/// Unwraps what a follower waited for. Returns from the function with the answer, if that came first.
macro_rules! own {
    ($either:expr) => {
        match $either {
            Either::Own(own) => own,
            Either::Shared(shared) => return Ok(Passage::Shared(shared)),
        }
    };
}

/// A follower that waits, and the flag that says that it stops waiting although its client is still connected.
struct Listening<'a, F> {
    follower: &'a F,
    withdrawn: Arc<AtomicBool>,
}

impl<F: Follower> Listening<'_, F> {
    /// Waits for `own` or for an answer to share.
    async fn either<T>(&self, own: impl Future<Output = T>) -> Either<T, F::Shared> {
        let shared = async {
            let shared = self.follower.shared().await;
            self.withdrawn.store(true, Relaxed);
            shared
        };
        tokio::select! {
            biased;
            shared = shared => Either::Shared(shared),
            own = own => Either::Own(own),
        }
    }

    /// Waits until the visit has to go on, and leaves the flight if that takes too long.
    async fn aside(&self, round: Round) -> Either<(), F::Shared> {
        let released = async {
            if timeout(LONGEST_ASIDE, self.follower.released(round)).await.is_err() {
                self.follower.leave();
            }
        };
        self.either(released).await
    }
}

impl Place {
    async fn follow<P: Preparation, F: Follower + Sync>(self, preparation: &mut P, follower: &F) -> Passed<P, F> {
        if self.mode() == Some(Mode::Report) {
            follower.leave();
        }
        let withdrawn = preparation.withdrawn().unwrap_or_default();
        let listening = Listening { follower, withdrawn };
        let mut called = match self.0 {
            Position::Through(permit) => return follow_unpaced(permit, preparation, &listening).await,
            // Started only if it was ready, which `Gate::follow` has dealt with: it gets ready and claims again.
            Position::Called(called) | Position::Started(called) => {
                called.withdrawn_by(Some(listening.withdrawn.clone()))
            }
            Position::Queued(queued) => {
                let queued = queued.known_as(preparation.label(), Some(listening.withdrawn.clone()));
                own!(listening.either(queued.called()).await)?
            }
        };
        loop {
            if let CallReply::StepAside(round) = follower.called() {
                match called.step_aside(|| preparation.label()) {
                    Ok(aside) => {
                        own!(listening.aside(round).await);
                        called = own!(listening.either(aside.step_back().called()).await)?;
                        continue;
                    }
                    // It has no time to step aside: it goes on, and listens.
                    Err(same) => called = same,
                }
            }
            let ready = own!(listening.either(make_ready(&called, preparation)).await)?;
            match own!(listening.either(called.turn(|| preparation.label())).await)? {
                Turn::Given(permit) => match follower.stored_meanwhile() {
                    // Its turn is the next visit's: it was not sent.
                    Some(shared) => {
                        preparation.put_back(ready);
                        return Ok(Passage::Shared(shared));
                    }
                    None => return Ok(start(follower, ready, permit)),
                },
                Turn::Lost(again) => {
                    preparation.put_back(ready);
                    called = again;
                }
                Turn::Later(queued) => {
                    preparation.put_back(ready);
                    follower.waits_again();
                    let queued = queued.known_as(preparation.label(), Some(listening.withdrawn.clone()));
                    called = own!(listening.either(queued.called()).await)?;
                }
            }
        }
    }
}

/// A host that is not paced has no queue: the visit waits for the answer and nothing else.
async fn follow_unpaced<P: Preparation, F: Follower + Sync>(
    permit: Permit,
    preparation: &mut P,
    listening: &Listening<'_, F>,
) -> Passed<P, F> {
    while let CallReply::StepAside(round) = listening.follower.called() {
        own!(listening.aside(round).await);
    }
    let ready = own!(listening.either(preparation.get_ready()).await)?;
    Ok(start(listening.follower, ready, permit))
}

/// The turn has come. A visit that does not lead by now goes on alone.
fn start<R, F: Follower>(follower: &F, ready: R, permit: Permit) -> Passage<R, F::Shared> {
    if follower.called() != CallReply::Lead {
        follower.leave();
    }
    Passage::Turn(ready, permit)
}

#[cfg(test)]
#[path = "follow_tests.rs"]
mod tests;
