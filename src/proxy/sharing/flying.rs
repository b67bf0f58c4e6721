//! What is under way: a request that is alone, or a flight with what its members are told.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::answer::{SharedAnswer, wants_newest};
use super::body::BodyReader;
use crate::politeness::flight::{Flight, Following, Member};
use crate::politeness::reuse::request::CacheRequest;
use crate::proxy::cached::CachePlan;

/// What is under way for requests that want the same.
#[derive(Debug)]
pub(super) enum Flying {
    /// A request that no other has followed yet. It leads, and counts as sent. Most requests stay alone, and this takes
    /// no allocation.
    Alone(Arc<CachePlan>),
    Flight(Arc<FlightCell>),
}

/// One flight, for its members.
#[derive(Debug)]
pub(super) struct FlightCell {
    /// The request that began the flight. All members have its URL, and the request fields that choose an answer
    /// whatever Vary says.
    pub(super) first: Arc<CachePlan>,
    pub(super) aloft: Mutex<Aloft>,
    pub(super) news: Notify,
}

impl FlightCell {
    /// A flight that this request leads.
    pub(super) fn under_way(first: &Arc<CachePlan>) -> Arc<Self> {
        let aloft = Aloft { flight: Flight::under_way(), ..Aloft::default() };
        Arc::new(FlightCell { first: first.clone(), aloft: Mutex::new(aloft), news: Notify::new() })
    }
}

impl Flying {
    /// The request that began it.
    pub(super) fn first(&self) -> &Arc<CachePlan> {
        match self {
            Flying::Alone(first) => first,
            Flying::Flight(cell) => &cell.first,
        }
    }

    /// Whether a request with these selecting fields is for the same thing.
    pub(super) fn is_for(&self, plan: &CachePlan, selecting: &[u8]) -> bool {
        self.first().key == plan.key && *selecting_of(self.first()) == *selecting
    }

    /// Returns the flight. A request that was alone leads it.
    pub(super) fn flight(&mut self) -> Arc<FlightCell> {
        match self {
            Flying::Flight(cell) => cell.clone(),
            Flying::Alone(first) => {
                let cell = FlightCell::under_way(first);
                *self = Flying::Flight(cell.clone());
                cell
            }
        }
    }
}

/// The request fields that choose an answer whatever Vary says.
pub(super) fn selecting_of(plan: &CachePlan) -> Box<[u8]> {
    plan.request.selecting(String::new(), false).values
}

#[derive(Debug, Default)]
pub(super) struct Aloft {
    pub(super) flight: Flight,
    pub(super) landed: Option<Landing>,
    /// Readers for the members that may share the answer.
    pub(super) seats: Vec<(Member, BodyReader)>,
}

#[derive(Debug)]
pub(super) enum Landing {
    Shared(Arc<SharedAnswer>),
    /// The answer is stored, or what is stored is confirmed: each member looks there.
    Stored,
    Private,
}

/// Returns how a request takes part in flights; `None` if it does not. Ranges and conditions are answered for their own
/// client, Authorization is, and `max-stale` or `no-store` make the answer useless for others.
pub(super) fn following(request: &CacheRequest<'_>) -> Option<Following> {
    let directives = &request.directives;
    let is_private = request.has_authorization || directives.no_store || directives.max_stale.is_some();
    if is_private || directives.only_if_cached || request.is_conditional {
        return None;
    }
    Some(if wants_newest(request) { Following::Newest } else { Following::Any })
}
