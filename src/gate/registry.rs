//! Host to lane.
//!
//! Bounded: hosts that nobody has visited for a while are forgotten, but never one to which something is owed (a waiter,
//! a permit, a hold, an unfinished interval), and what a lane has learned is kept when it goes. When the registry is full
//! they are forgotten sooner; when it is full of promises, new hosts share one lane, which is slower for them and breaks
//! no promise.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dashmap::DashMap;
use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};

use super::Apply;
use super::memories::Memories;
use super::shared_lane::{SharedLane, State};
use crate::politeness::HostKey;
use crate::politeness::lane::Lane;
use crate::politeness::policy::PolicyBook;
use crate::politeness::time::Timestamp;
use crate::store::{Health, HostRecord, Store};

/// Looking through all lanes holds one shard at a time; with 256 the longest wait measured was about a millisecond at a
/// million hosts.
const SHARDS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Hosts kept.
    pub most: usize,
    /// Without a visit for this long, a host may be forgotten.
    pub idle: Duration,
}

#[derive(Debug)]
pub(super) struct Registry {
    memories: Memories,
    /// Hashed with fewer steps than by the standard library, and still with a key of its own for each process.
    lanes: DashMap<Resident, (), RandomState>,
    /// Asking the map would lock all its shards.
    count: AtomicUsize,
    bounds: RwLock<Bounds>,
    /// For hosts that find no room.
    crowded: RwLock<Option<Arc<SharedLane>>>,
    /// Who is in it: a host has one lane at a time.
    guests: Guests,
    /// When room was last made, in microseconds.
    made_room: AtomicU64,
    /// When lanes stop to start visits, in microseconds.
    drain_end: AtomicU64,
}

/// In a full registry a host is forgotten after this long: sooner, and one that is visited steadily would be made anew
/// each time.
const LEAST_IDLE: Duration = Duration::from_secs(60);
/// Looking through 100 000 lanes takes some ten milliseconds, which must not become the price of every new host.
const BETWEEN_MAKING_ROOM: Duration = Duration::from_secs(1);

/// A lane that is one host's own, found by that host's name. The name is in the lane alone: looking a host up then takes
/// one look into memory less, which is half of what finding it costs where there are many.
#[derive(Debug)]
struct Resident(Arc<SharedLane>);

impl Resident {
    fn host(&self) -> &HostKey {
        self.0.host().expect("only lanes of one host are in the registry")
    }
}

impl Borrow<HostKey> for Resident {
    fn borrow(&self) -> &HostKey {
        self.host()
    }
}

impl Hash for Resident {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.host().hash(state);
    }
}

impl PartialEq for Resident {
    fn eq(&self, other: &Self) -> bool {
        self.host() == other.host()
    }
}

impl Eq for Resident {}

#[derive(Clone, Debug, Default)]
struct Guests(Arc<Mutex<HashMap<HostKey, usize>>>);

/// A visit to a host that has no lane of its own. While there is one, the host gets none: what is sent from the shared
/// lane would be too close to what is sent from there.
#[derive(Debug)]
pub(super) struct Guest {
    guests: Guests,
    host: HostKey,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut guests = self.guests.0.lock();
        if let Some(count) = guests.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                guests.remove(&self.host);
            }
        }
    }
}

impl Registry {
    pub(super) fn new(bounds: Bounds, memories: Memories) -> Self {
        Registry {
            memories,
            lanes: DashMap::with_hasher_and_shard_amount(RandomState::default(), SHARDS),
            count: AtomicUsize::new(0),
            bounds: RwLock::new(bounds),
            crowded: RwLock::new(None),
            guests: Guests::default(),
            made_room: AtomicU64::new(0),
            drain_end: AtomicU64::new(Timestamp::NEVER.as_micros()),
        }
    }

    /// The lane of the host, which may be new. Where it is shared, the guest is to be kept for as long as the lane is used.
    pub(super) fn lane(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> (Arc<SharedLane>, Option<Guest>) {
        // Held until the host is in one lane or in the other, so that two newcomers do not part ways.
        let mut guests = self.guests.0.lock();
        if let Some(lane) = self.known(host) {
            return (lane, None);
        }
        // What people set for a host counts for it alone, and people do not set it for many.
        let stays = guests.contains_key(host) || !(self.has_room(now) || self.memories.is_steered(host, now));
        if stays {
            *guests.entry(host.clone()).or_default() += 1;
            let guest = Guest { guests: self.guests.clone(), host: host.clone() };
            drop(guests);
            return (self.crowded(host, book, now), Some(guest));
        }
        (self.own(host, book, now), None)
    }

    /// A lane for a host that has none. Nobody else makes one meanwhile: the guests are locked.
    fn own(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Arc<SharedLane> {
        let lane = self.memories.lane(host, book, self.sent_from_crowd(), now);
        let lane = Arc::new(SharedLane::new(Some(host.clone()), self.draining(lane, now), now));
        let before = self.lanes.insert(Resident(lane.clone()), ());
        debug_assert!(before.is_none(), "a host has one lane");
        self.count.fetch_add(1, Relaxed);
        lane
    }

    /// It may have been to any host that had no lane.
    fn sent_from_crowd(&self) -> Option<Timestamp> {
        let crowded = self.crowded.read();
        crowded.as_ref().and_then(|lane| lane.look(|state| state.lane.last_sent()))
    }

    fn has_room(&self, now: Timestamp) -> bool {
        let Bounds { most, idle } = *self.bounds.read();
        if self.len() < most {
            return true;
        }
        let made = self.made_room.load(Relaxed);
        let due = now.since(Timestamp::from_micros(made)) >= BETWEEN_MAKING_ROOM;
        if due && self.made_room.compare_exchange(made, now.as_micros(), Relaxed, Relaxed).is_ok() {
            self.forget_after(idle.min(LEAST_IDLE), now);
        }
        self.len() < most
    }

    fn crowded(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Arc<SharedLane> {
        let mut crowded = self.crowded.write();
        let lane = crowded.get_or_insert_with(|| {
            let lane = self.draining(Lane::new(book.general().clone(), 0), now);
            Arc::new(SharedLane::new(None, lane, now))
        });
        let memory = self.memories.of(host);
        lane.with(now, |state| state.lane.recall(&memory, &book.schooling, now));
        lane.clone()
    }

    /// The host's own lane.
    pub(super) fn known(&self, host: &HostKey) -> Option<Arc<SharedLane>> {
        self.lanes.get(host).map(|entry| entry.key().0.clone())
    }

    /// Whether there is anything to know of the host, be it in a lane or not.
    pub(super) fn remembers(&self, host: &HostKey) -> bool {
        self.lanes.contains_key(host) || self.memories.knows(host)
    }

    /// The lane that a host nobody has visited lately would get; none if nothing is known of it.
    pub(super) fn remembered(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Option<Lane> {
        self.memories.knows(host).then(|| self.memories.lane(host, book, self.sent_from_crowd(), now))
    }

    /// Has kept what another curtsy knew of a host that has no lane.
    pub(super) fn import(&self, host: &HostKey, record: &HostRecord) {
        self.memories.import(host, record);
    }

    pub(super) fn keep(&self, host: &HostKey, lane: &mut Lane, now: Timestamp) {
        self.memories.keep_news(host, lane, now);
    }

    pub(super) fn store(&self) -> &Store {
        self.memories.store()
    }

    /// Until when the host is held, whether it has a lane or not.
    pub(super) fn held_until(&self, host: &HostKey) -> Timestamp {
        match self.lanes.get(host) {
            Some(entry) => entry.key().0.look(|state| state.lane.held_until()),
            None => self.memories.of(host).held_until.unwrap_or_default(),
        }
    }

    /// Has what a lane has just learned kept.
    pub(super) fn keep_news(&self, lane: &SharedLane, state: &mut State, now: Timestamp) {
        if let Some(host) = lane.host() {
            self.memories.keep_news(host, &mut state.lane, now);
        }
    }

    /// Has everything kept that a restart must know.
    pub(super) fn keep_all(&self, now: Timestamp) {
        self.each(|host, lane| lane.look(|state| self.memories.keep_all(host, &mut state.lane, now)));
    }

    pub(super) fn change(&self, book: &PolicyBook, bounds: Bounds, apply: Apply, now: Timestamp) {
        *self.bounds.write() = bounds;
        if apply == Apply::All {
            self.each(|host, lane| lane.change(book.policy(host.as_str()).clone(), &book.schooling, now));
        }
        // Whoever finds no room is new each time.
        if let Some(lane) = &*self.crowded.read() {
            lane.change(book.general().clone(), &book.schooling, now);
        }
    }

    /// Drains every lane, also those that are made from now on.
    pub(super) fn drain(&self, end: Timestamp, now: Timestamp) {
        {
            // A lane that is being made is in the registry when this is over, or knows the end.
            let _nobody_makes_one = self.guests.0.lock();
            self.drain_end.store(end.as_micros(), Relaxed);
        }
        self.each(|_, lane| lane.with(now, |state| state.lane.drain(end, now)));
        if let Some(lane) = &*self.crowded.read() {
            lane.with(now, |state| state.lane.drain(end, now));
        }
    }

    /// A new lane, which must know if curtsy is stopping.
    fn draining(&self, mut lane: Lane, now: Timestamp) -> Lane {
        let end = Timestamp::from_micros(self.drain_end.load(Relaxed));
        if end < Timestamp::NEVER {
            lane.drain(end, now);
        }
        lane
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        let idle = self.bounds.read().idle;
        self.forget_after(idle, now);
    }

    fn forget_after(&self, idle: Duration, now: Timestamp) {
        self.lanes.retain(|resident, ()| {
            let (host, lane) = (resident.host(), &resident.0);
            // Lanes are cloned under the same lock, so a single owner seen here cannot gain a second.
            let keep = Arc::strong_count(lane) > 1
                || lane.look(|state| {
                    state.lane.give_back_room();
                    let policy = state.lane.policy();
                    let needed = idle.max(policy.delay.saturating_mul(policy.burst));
                    state.lane.owes(now) || now.since(state.last_used()) < needed
                });
            if !keep {
                lane.look(|state| self.memories.keep_all(host, &mut state.lane, now));
                self.count.fetch_sub(1, Relaxed);
            }
            keep
        });
    }

    /// Every lane that is one host's own, one shard of them at a time.
    pub(super) fn each(&self, mut see: impl FnMut(&HostKey, &Arc<SharedLane>)) {
        for entry in &self.lanes {
            see(entry.key().host(), &entry.key().0);
        }
    }

    pub(super) fn store_health(&self) -> Option<Health> {
        self.memories.health()
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::visit::{ClientId, Visit};
    use crate::store::Keep;

    const DAY: Duration = Duration::from_secs(86_400);

    fn host(n: u32) -> HostKey {
        HostKey::parse(&format!("h{n}.test")).unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + seconds * 1_000)
    }

    fn registry(most: usize) -> Registry {
        let store = Arc::new(Store::memory(Keep::default()));
        Registry::new(Bounds { most, idle: DAY }, Memories::new(store, None))
    }

    fn teach(registry: &Registry, lane: &SharedLane, until: Timestamp, now: Timestamp) {
        lane.with(now, |state| {
            state.lane.hold(until, now);
            registry.keep_news(lane, state, now);
        });
    }

    #[test]
    fn a_full_registry_forgets_the_idle_sooner_and_owed_hosts_never() {
        let registry = registry(10);
        let book = PolicyBook::default();
        let busy = registry.lane(&host(0), &book, at(0)).0;
        let visit = Visit::new(ClientId(1), 1);
        busy.look(|state| state.lane.join(visit, at(0))).unwrap();
        drop(busy);
        for n in 1..10 {
            registry.lane(&host(n), &book, at(0));
        }
        let shared = registry.lane(&host(10), &book, at(30)).0;
        assert!(Arc::ptr_eq(&shared, &registry.lane(&host(11), &book, at(30)).0), "there was room");
        assert!(!Arc::ptr_eq(&shared, &registry.lane(&host(12), &book, at(61)).0), "no room was made");
        assert_eq!(registry.len(), 2);
        assert!(registry.lanes.contains_key(&host(0)), "somebody waits there");
    }

    #[test]
    fn looking_for_room_is_not_the_price_of_every_new_host() {
        let registry = registry(2);
        let book = PolicyBook::default();
        registry.lane(&host(0), &book, at(0));
        registry.lane(&host(1), &book, at(0));
        registry.lane(&host(2), &book, at(59));
        let half_a_second = Duration::from_millis(500);
        // Host 0 could go by now, but the last look was a moment ago.
        registry.lane(&host(3), &book, at(59) + half_a_second);
        assert_eq!(registry.made_room.load(Relaxed), at(59).as_micros());
        registry.lane(&host(3), &book, at(60));
        assert_eq!(registry.len(), 1);
    }

    #[test]
    fn a_host_that_was_forgotten_is_remembered() {
        let registry = registry(10);
        let book = PolicyBook::default();
        let lane = registry.lane(&host(1), &book, at(0)).0;
        teach(&registry, &lane, at(1_800), at(0));
        assert_eq!(registry.held_until(&host(1)), at(1_800));
        drop(lane);
        registry.lanes.clear();
        assert_eq!(registry.held_until(&host(1)), at(1_800), "kept at once, not only when it is forgotten");
        let again = registry.lane(&host(1), &book, at(60)).0;
        assert_eq!(again.look(|state| state.lane.held_until()), at(1_800));
    }

    /// A host without a lane of its own is held as it was when it had one.
    #[test]
    fn a_crowd_is_as_careful_as_the_hosts_in_it() {
        let registry = registry(2);
        let book = PolicyBook::default();
        teach(&registry, &registry.lane(&host(1), &book, at(0)).0, at(100), at(0));
        registry.lanes.clear();
        teach(&registry, &registry.lane(&host(2), &book, at(1)).0, at(1_000), at(1));
        let crowd = registry.lane(&host(1), &book, at(2)).0;
        assert!(crowd.host().is_none(), "there was room");
        assert_eq!(crowd.look(|state| state.lane.held_until()), at(100));
    }
}
