//! The flights of all workers: finds the flight of a request, and tells its members what happens.
//!
//! Promises: a flight is forgotten when its answer is in or its last member leaves; dropping a [`Membership`] leaves
//! the flight, so a disconnected client never holds others up. No lock is held across an await.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::answer::{Share, SharedAnswer, may_have, wants_newest};
use super::body::BodyReader;
use super::unshareable::Unshareable;
use crate::cache::{Cache, Entry};
use crate::gate::Follower;
use crate::metrics::{Collapsed, Metrics};
use crate::politeness::flight::{CallReply, Flight, Following, Member, Round};
use crate::politeness::reuse::request::CacheRequest;
use crate::proxy::cached::CachePlan;

/// The flights of all workers.
#[derive(Debug)]
pub(crate) struct Flights {
    shards: [Mutex<FlightTable>; SHARDS],
    hasher: RandomState,
    unshareable: Unshareable,
    /// What all shared bodies keep, in bytes.
    pub(crate) kept: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
    cache: Arc<Cache>,
}

/// The flights by the hash of what their members have in common. If two have the same hash, the second is not begun.
type FlightTable = HashMap<u64, Arc<FlightCell>, RandomState>;

/// More than there are workers that look for a flight at the same moment.
const SHARDS: usize = 16;

/// One flight, for its members.
#[derive(Debug)]
struct FlightCell {
    /// What the members have in common: the URL (of the request that began the flight), and the request fields that
    /// choose an answer whatever Vary says.
    first: Arc<CachePlan>,
    selecting: Box<[u8]>,
    hash: u64,
    aloft: Mutex<Aloft>,
    news: Notify,
}

#[derive(Debug, Default)]
struct Aloft {
    flight: Flight,
    landed: Option<Landing>,
    /// Readers for the members that may share the answer.
    seats: Vec<(Member, BodyReader)>,
}

#[derive(Debug)]
enum Landing {
    Shared(Arc<SharedAnswer>),
    /// The origin has confirmed what is stored: each member looks there.
    Stored,
    Private,
}

/// Returns how a request takes part in flights; `None` if it does not. Ranges and conditions are answered for their own
/// client, Authorization is, and `max-stale` or `no-store` make the answer useless for others.
fn following(request: &CacheRequest<'_>) -> Option<Following> {
    let directives = &request.directives;
    let is_private = request.has_authorization || directives.no_store || directives.max_stale.is_some();
    if is_private || directives.only_if_cached || request.is_conditional {
        return None;
    }
    match (request.is_head, wants_newest(request)) {
        (true, true) => None,
        (true, false) => Some(Following::HeadOnly),
        (false, true) => Some(Following::Newest),
        (false, false) => Some(Following::Any),
    }
}

impl Flights {
    pub(crate) fn new(cache: Arc<Cache>, metrics: Arc<Metrics>) -> Arc<Self> {
        let hasher = RandomState::default();
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::with_hasher(hasher.clone())));
        let (unshareable, kept) = (Unshareable::default(), Arc::default());
        Arc::new(Flights { shards, hasher, unshareable, kept, metrics, cache })
    }

    /// Joins the flight for the same thing, or begins one. `None` if the request is better sent alone.
    pub(crate) fn join(self: &Arc<Self>, plan: &Arc<CachePlan>) -> Option<Membership> {
        let following = following(&plan.request.asked)?;
        let selecting = plan.request.selecting(String::new(), false).values;
        let hash = match selecting.is_empty() {
            true => plan.key.hash_code(),
            false => self.hasher.hash_one((plan.key.hash_code(), &selecting)),
        };
        if self.unshareable.has(hash) {
            return None;
        }
        let mut shard = self.shard(hash).lock();
        let cell = match shard.entry(hash) {
            Slot::Occupied(slot) => {
                let cell = slot.get();
                (cell.first.key == plan.key && cell.selecting == selecting).then(|| cell.clone())?
            }
            // A HEAD leads no flight.
            Slot::Vacant(_) if following == Following::HeadOnly => return None,
            Slot::Vacant(slot) => {
                let (first, aloft, news) = (plan.clone(), Mutex::default(), Notify::new());
                slot.insert(Arc::new(FlightCell { first, selecting, hash, aloft, news })).clone()
            }
        };
        let member = cell.aloft.lock().flight.join(following)?;
        drop(shard);
        let (flights, request, is_void) = (self.clone(), plan.clone(), AtomicBool::new(false));
        Some(Membership { flights, cell, member, request, is_void })
    }

    fn shard(&self, hash: u64) -> &Mutex<FlightTable> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }

    /// Forgets a flight, if `may` still allows it. Requests that come later begin another one.
    fn forget(&self, cell: &Arc<FlightCell>, may: impl FnOnce(&Aloft) -> bool) {
        if let Slot::Occupied(slot) = self.shard(cell.hash).lock().entry(cell.hash)
            && Arc::ptr_eq(slot.get(), cell)
            && may(&cell.aloft.lock())
        {
            slot.remove();
        }
    }
}

/// A request's part in a flight. Dropping it leaves the flight.
#[derive(Debug)]
pub(crate) struct Membership {
    flights: Arc<Flights>,
    cell: Arc<FlightCell>,
    member: Member,
    request: Arc<CachePlan>,
    /// It has left, or another task has taken its part.
    is_void: AtomicBool,
}

impl Membership {
    pub(crate) fn request(&self) -> &CachePlan {
        &self.request
    }

    pub(crate) fn flights(&self) -> &Arc<Flights> {
        &self.flights
    }

    /// Whether this request leads.
    pub(crate) fn leads(&self) -> bool {
        !self.is_void.load(Relaxed) && self.cell.aloft.lock().flight.is_led_by(self.member)
    }

    /// Whether this request leads and others wait for its answer.
    pub(crate) fn leads_others(&self) -> bool {
        self.leads() && self.cell.aloft.lock().flight.has_others(self.member)
    }

    /// Ends the flight, if this request leads it and no other waits for its answer. Returns false if others wait.
    pub(crate) fn lands_alone(&self) -> bool {
        let mut has_others = false;
        if !self.is_void.load(Relaxed) {
            self.flights.forget(&self.cell, |aloft| {
                let leads = aloft.flight.is_led_by(self.member);
                has_others = leads && aloft.flight.has_others(self.member);
                let ends = leads && !has_others;
                self.is_void.store(ends, Relaxed);
                ends
            });
        }
        !has_others
    }

    /// Reports that the request was sent.
    pub(crate) fn sent(&self) {
        self.cell.aloft.lock().flight.sent(self.member);
    }

    /// Reports that the request leads and waits for another turn, because it is sent again.
    pub(crate) fn retries(&self) {
        self.cell.aloft.lock().flight.waits_again(self.member, true);
        self.cell.news.notify_waiters();
    }

    /// Hands the leader's part over to a task that goes on without its client.
    pub(crate) fn hand_over(&self) -> Membership {
        self.is_void.store(true, Relaxed);
        Membership {
            flights: self.flights.clone(),
            cell: self.cell.clone(),
            member: self.member,
            request: self.request.clone(),
            is_void: AtomicBool::new(false),
        }
    }

    /// Shares the answer with all members. Returns the leader's own view of it.
    pub(crate) fn share(&self, answer: SharedAnswer) -> Share {
        let answer = Arc::new(answer);
        self.flights.forget(&self.cell, |_| true);
        let mut aloft = self.cell.aloft.lock();
        aloft.flight.landed(self.member);
        let seats = aloft.flight.members().map(|member| (member, answer.body().reader())).collect();
        aloft.seats = seats;
        aloft.landed = Some(Landing::Shared(answer.clone()));
        drop(aloft);
        self.cell.news.notify_waiters();
        let reader = answer.body().reader();
        Share::Coming(answer, reader)
    }

    /// Ends the flight: the origin has confirmed the stored answer, in which the members find theirs.
    pub(crate) fn share_stored(&self) {
        self.land(Landing::Stored);
    }

    /// Ends the flight: the answer is for the leader alone, and later requests need not wait for one.
    pub(crate) fn keep_private(&self) {
        self.flights.unshareable.note(self.cell.hash);
        self.land(Landing::Private);
    }

    fn land(&self, landing: Landing) {
        if !self.leads() {
            return;
        }
        self.flights.forget(&self.cell, |_| true);
        let mut aloft = self.cell.aloft.lock();
        aloft.flight.landed(self.member);
        aloft.landed = Some(landing);
        drop(aloft);
        self.cell.news.notify_waiters();
    }

    /// Returns this member's share of the answer, once there is one and it is for this request.
    fn take_share(&self, aloft: &mut Aloft) -> Option<Share> {
        if self.is_void.load(Relaxed) || !aloft.flight.is_member(self.member) {
            return None;
        }
        let share = match aloft.landed.as_ref()? {
            Landing::Private => return None,
            Landing::Stored => Share::Stored(self.stored()?),
            Landing::Shared(answer) => {
                let index = aloft.seats.iter().position(|(member, _)| *member == self.member)?;
                let answer = answer.clone();
                if !answer.is_for(&self.request) {
                    return None;
                }
                Share::Coming(answer, aloft.seats.swap_remove(index).1)
            }
        };
        aloft.flight.leave(self.member);
        self.is_void.store(true, Relaxed);
        self.flights.metrics.collapsed(Collapsed::Shared);
        Some(share)
    }

    /// Returns the stored answer for this request, which the origin has just confirmed.
    fn stored(&self) -> Option<Arc<Entry>> {
        let variants = self.flights.cache.at_hand(&self.request.key.borrowed())?;
        variants.iter().find(|entry| may_have(&self.request, entry)).cloned()
    }

    async fn until<T>(&self, found: impl Fn(&mut Aloft) -> Option<T>) -> T {
        loop {
            let mut news = std::pin::pin!(self.cell.news.notified());
            news.as_mut().enable();
            if let Some(found) = found(&mut self.cell.aloft.lock()) {
                return found;
            }
            news.await;
        }
    }
}

impl Follower for Membership {
    type Shared = Share;

    fn is_led(&self) -> bool {
        let aloft = self.cell.aloft.lock();
        aloft.landed.is_none() && aloft.flight.is_led()
    }

    fn called(&self) -> CallReply {
        if self.is_void.load(Relaxed) {
            return CallReply::Alone;
        }
        let mut aloft = self.cell.aloft.lock();
        if aloft.landed.is_none() {
            return aloft.flight.called(self.member);
        }
        drop(aloft);
        self.leave();
        CallReply::Alone
    }

    fn waits_again(&self) {
        self.cell.aloft.lock().flight.waits_again(self.member, false);
        self.cell.news.notify_waiters();
    }

    fn leave(&self) {
        if self.is_void.swap(true, Relaxed) {
            return;
        }
        let mut aloft = self.cell.aloft.lock();
        let (led, before) = (aloft.flight.is_led_by(self.member), aloft.flight.is_member(self.member));
        aloft.flight.leave(self.member);
        let seat = aloft.seats.iter().position(|(member, _)| *member == self.member);
        let seat = seat.map(|index| aloft.seats.swap_remove(index));
        let (is_empty, is_over) = (aloft.flight.is_empty(), aloft.landed.is_some());
        drop(aloft);
        // Dropped without the lock, because it wakes the task that fills the body.
        drop(seat);
        if led && !is_over && !is_empty {
            self.flights.metrics.collapsed(Collapsed::FailedOver);
        } else if before && is_over && !led {
            self.flights.metrics.collapsed(Collapsed::Released);
        }
        if is_empty && !is_over {
            self.flights.forget(&self.cell, |aloft| aloft.flight.is_empty());
        }
        self.cell.news.notify_waiters();
    }

    async fn shared(&self) -> Share {
        self.until(|aloft| self.take_share(aloft)).await
    }

    async fn released(&self, round: Round) {
        self.until(|aloft| aloft.flight.is_released(round).then_some(())).await;
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.leave();
    }
}
