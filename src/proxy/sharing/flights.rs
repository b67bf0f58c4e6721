//! The flights of all workers: finds the flight of a request, and tells its members what happens.
//!
//! Promises: a flight is forgotten when its answer is in or its last member leaves; dropping a [`Membership`] leaves
//! the flight, so a disconnected client never holds others up. No lock is held across an await.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use foldhash::quality::RandomState;
use parking_lot::Mutex;

use super::answer::{Share, SharedAnswer, is_fresh, may_have};
use super::flying::{Aloft, FlightCell, Flying, Landing, following, selecting_of};
use super::unshareable::Unshareable;
use crate::cache::{Cache, Entry};
use crate::gate::Follower;
use crate::metrics::{Collapsed, Metrics};
use crate::politeness::flight::{CallReply, Following, Member, Round};
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

/// What is under way, by the hash of what requests for the same thing have in common. If other requests have the same
/// hash, they go alone.
type FlightTable = HashMap<u64, Flying, RandomState>;

/// More than there are workers that look for a flight at the same moment.
const SHARDS: usize = 16;

impl Flights {
    pub(crate) fn new(cache: Arc<Cache>, metrics: Arc<Metrics>) -> Arc<Self> {
        let hasher = RandomState::default();
        let shards = std::array::from_fn(|_| Mutex::new(HashMap::with_hasher(hasher.clone())));
        let (unshareable, kept) = (Unshareable::default(), Arc::default());
        Arc::new(Flights { shards, hasher, unshareable, kept, metrics, cache })
    }

    /// Joins the requests for the same thing. `None` if the request is better sent alone.
    pub(crate) fn join(self: &Arc<Self>, plan: &Arc<CachePlan>) -> Option<Membership> {
        let following = following(&plan.request.asked)?;
        let selecting = selecting_of(plan);
        let hash = match selecting.is_empty() {
            true => plan.key.hash_code(),
            false => self.hasher.hash_one((plan.key.hash_code(), &selecting)),
        };
        if !plan.request.asked.is_head {
            return self.join_at(hash, plan, &selecting, following);
        }
        // A HEAD shares the answer to a GET that is under way, but leads only other HEADs: its answer has no body.
        let follows = if following == Following::Any { Some(Following::HeadOnly) } else { None };
        let of_get = follows.and_then(|following| self.join_at(hash, plan, &selecting, following));
        of_get.or_else(|| self.join_at(!hash, plan, &selecting, following))
    }

    fn join_at(
        self: &Arc<Self>,
        hash: u64,
        plan: &Arc<CachePlan>,
        selecting: &[u8],
        following: Following,
    ) -> Option<Membership> {
        if self.unshareable.has(hash) {
            return None;
        }
        let mut shard = self.shard(hash).lock();
        let (member, cell) = match shard.entry(hash) {
            Slot::Vacant(_) if following == Following::HeadOnly => return None,
            Slot::Vacant(slot) => {
                slot.insert(Flying::Alone(plan.clone()));
                (Member::FIRST, OnceLock::new())
            }
            Slot::Occupied(mut slot) => {
                let flying = slot.get_mut();
                let cell = flying.is_for(plan, selecting).then(|| flying.flight())?;
                let member = cell.aloft.lock().flight.join(following)?;
                (member, OnceLock::from(cell))
            }
        };
        drop(shard);
        let (flights, request, is_void) = (self.clone(), plan.clone(), AtomicBool::new(false));
        Some(Membership { flights, hash, member, request, cell, is_void })
    }

    fn shard(&self, hash: u64) -> &Mutex<FlightTable> {
        &self.shards[(hash >> 32) as usize % SHARDS]
    }
}

/// A request's part in a flight. Dropping it leaves the flight.
#[derive(Debug)]
pub(crate) struct Membership {
    flights: Arc<Flights>,
    hash: u64,
    member: Member,
    request: Arc<CachePlan>,
    /// Its flight. Empty while it is alone, as far as it knows.
    cell: OnceLock<Arc<FlightCell>>,
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

    /// Returns its flight; `None` if it is still alone.
    fn cell(&self) -> Option<&Arc<FlightCell>> {
        if self.cell.get().is_none()
            && let Some(Flying::Flight(cell)) = self.flights.shard(self.hash).lock().get(&self.hash)
            && Arc::ptr_eq(&cell.first, &self.request)
        {
            let _ = self.cell.set(cell.clone());
        }
        self.cell.get()
    }

    /// Returns its flight, which begins now if it was alone.
    fn flight(&self) -> &Arc<FlightCell> {
        self.cell.get_or_init(|| {
            let mut shard = self.flights.shard(self.hash).lock();
            match shard.get_mut(&self.hash).filter(|flying| Arc::ptr_eq(flying.first(), &self.request)) {
                Some(flying) => flying.flight(),
                // It has left, so no other can join.
                None => FlightCell::under_way(&self.request),
            }
        })
    }

    /// Forgets what is under way, so that later requests begin anew: this request if it is alone, else its flight if
    /// `may` allows it. Returns whether it did.
    fn forget(&self, may: impl FnOnce(&Aloft) -> bool) -> bool {
        let mut shard = self.flights.shard(self.hash).lock();
        let Slot::Occupied(slot) = shard.entry(self.hash) else { return false };
        let is_own = |cell: &Arc<FlightCell>| match self.cell.get() {
            Some(own) => Arc::ptr_eq(cell, own),
            None => Arc::ptr_eq(&cell.first, &self.request),
        };
        let goes = match slot.get() {
            Flying::Alone(first) => Arc::ptr_eq(first, &self.request),
            Flying::Flight(cell) => is_own(cell) && may(&cell.aloft.lock()),
        };
        if goes {
            slot.remove();
        }
        goes
    }

    /// Whether this request leads.
    pub(crate) fn leads(&self) -> bool {
        let leads = |cell: &Arc<FlightCell>| cell.aloft.lock().flight.is_led_by(self.member);
        !self.is_void.load(Relaxed) && self.cell().is_none_or(leads)
    }

    /// Whether this request leads and others wait for its answer.
    pub(crate) fn leads_others(&self) -> bool {
        let has_others = |cell: &Arc<FlightCell>| cell.aloft.lock().flight.has_others(self.member);
        self.leads() && self.cell().is_some_and(has_others)
    }

    /// Ends the flight, if this request leads it and no other waits for its answer. Returns false if others wait.
    pub(crate) fn lands_alone(&self) -> bool {
        if self.is_void.load(Relaxed) {
            return true;
        }
        let mut has_others = false;
        let ends = self.forget(|aloft| {
            let leads = aloft.flight.is_led_by(self.member);
            has_others = leads && aloft.flight.has_others(self.member);
            leads && !has_others
        });
        self.is_void.store(ends, Relaxed);
        !has_others
    }

    /// Reports that the request was sent.
    pub(crate) fn sent(&self) {
        // One that is alone counts as sent.
        if let Some(cell) = self.cell.get() {
            cell.aloft.lock().flight.sent(self.member);
        }
    }

    /// Reports that the request leads and waits for another turn, because it is sent again.
    pub(crate) fn retries(&self) {
        if let Some(cell) = self.cell() {
            cell.aloft.lock().flight.waits_again(self.member, true);
            cell.news.notify_waiters();
        }
    }

    /// Hands the leader's part over to a task that goes on without its client.
    pub(crate) fn hand_over(&self) -> Membership {
        self.is_void.store(true, Relaxed);
        Membership {
            flights: self.flights.clone(),
            hash: self.hash,
            member: self.member,
            request: self.request.clone(),
            cell: self.cell.clone(),
            is_void: AtomicBool::new(false),
        }
    }

    /// Shares the answer with all members. Returns the leader's own view of it.
    pub(crate) fn share(&self, answer: SharedAnswer) -> Share {
        let (answer, cell) = (Arc::new(answer), self.flight());
        self.forget(|_| true);
        let mut aloft = cell.aloft.lock();
        aloft.flight.landed(self.member);
        let seats = aloft.flight.members().map(|member| (member, answer.body().reader())).collect();
        aloft.seats = seats;
        aloft.landed = Some(Landing::Shared(answer.clone()));
        drop(aloft);
        cell.news.notify_waiters();
        let reader = answer.body().reader();
        Share::Coming(answer, reader)
    }

    /// Ends the flight: the members find their answer in what is stored.
    pub(crate) fn share_stored(&self) {
        self.land(Landing::Stored);
    }

    /// Ends the flight: the answer is for the leader alone, and later requests need not wait for one.
    pub(crate) fn keep_private(&self) {
        self.flights.unshareable.note(self.hash);
        self.land(Landing::Private);
    }

    fn land(&self, landing: Landing) {
        if self.lands_alone() {
            return;
        }
        let cell = self.flight();
        self.forget(|_| true);
        let mut aloft = cell.aloft.lock();
        aloft.flight.landed(self.member);
        aloft.landed = Some(landing);
        drop(aloft);
        cell.news.notify_waiters();
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

    /// Returns the stored answer for this request.
    fn stored(&self) -> Option<Arc<Entry>> {
        let variants = self.flights.cache.at_hand(&self.request.key.borrowed())?;
        variants.iter().find(|entry| may_have(&self.request, entry)).cloned()
    }

    async fn until<T>(&self, found: impl Fn(&mut Aloft) -> Option<T>) -> T {
        let cell = self.flight();
        loop {
            let mut news = std::pin::pin!(cell.news.notified());
            news.as_mut().enable();
            if let Some(found) = found(&mut cell.aloft.lock()) {
                return found;
            }
            news.await;
        }
    }
}

impl Follower for Membership {
    type Shared = Share;

    fn is_led(&self) -> bool {
        self.cell.get().is_some_and(|cell| {
            let aloft = cell.aloft.lock();
            aloft.landed.is_none() && aloft.flight.is_led()
        })
    }

    fn called(&self) -> CallReply {
        if self.is_void.load(Relaxed) {
            return CallReply::Alone;
        }
        let Some(cell) = self.cell.get() else { return CallReply::Lead };
        let mut aloft = cell.aloft.lock();
        if aloft.landed.is_none() {
            return aloft.flight.called(self.member);
        }
        drop(aloft);
        self.leave();
        CallReply::Alone
    }

    fn waits_again(&self) {
        let cell = self.flight();
        cell.aloft.lock().flight.waits_again(self.member, false);
        cell.news.notify_waiters();
    }

    fn leave(&self) {
        if self.is_void.swap(true, Relaxed) || self.forget(|_| false) {
            return;
        }
        let Some(cell) = self.cell() else { return };
        let mut aloft = cell.aloft.lock();
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
            self.forget(|aloft| aloft.flight.is_empty());
        }
        cell.news.notify_waiters();
    }

    fn stored_meanwhile(&self) -> Option<Share> {
        // If there was an answer already, the look-up decided against it.
        let entry = if self.request.found_nothing() { self.stored() } else { None };
        let entry = entry.filter(|entry| is_fresh(&self.request, &entry.terms.policy))?;
        self.share_stored();
        self.flights.metrics.collapsed(Collapsed::Shared);
        Some(Share::Stored(entry))
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

#[cfg(test)]
#[path = "flights_tests.rs"]
mod tests;
