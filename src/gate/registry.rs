//! Maps hosts to lanes.
//!
//! The map is bounded. Hosts without a recent visit are forgotten, but never one whose lane owes something (a waiting
//! visit, a permit, a hold, an unfinished interval), and what a lane has learned is saved before it is removed. When
//! the registry is full, the least recently used lanes that owe nothing are forgotten at once. If every lane owes
//! something, a new host is refused, with the time at which a lane will owe nothing. Two hosts never share a lane.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dashmap::DashMap;
use foldhash::quality::RandomState;
use parking_lot::{Mutex, RwLock};

use super::Apply;
use super::persistence::HostPersistence;
use super::shared_lane::{LaneState, SharedLane};
use crate::politeness::HostKey;
use crate::politeness::lane::Lane;
use crate::politeness::policy::PolicyBook;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::LaneRefusal;
use crate::store::{Health, HostRecord, Store};

/// A scan of all lanes locks one shard at a time. With 256 shards the longest wait measured was about a millisecond at
/// a million hosts.
const SHARDS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Largest number of hosts.
    pub most: usize,
    /// A host without a visit for this long may be forgotten.
    pub idle: Duration,
}

#[derive(Debug)]
pub(super) struct Registry {
    memories: HostPersistence,
    /// The hash takes fewer steps than the standard library's, and still has a random key per process.
    lanes: DashMap<Resident, (), RandomState>,
    /// Number of lanes. Asking the map would lock all its shards.
    count: AtomicUsize,
    bounds: RwLock<Bounds>,
    /// Locked while a lane is made, so that a host never gets two.
    full: Mutex<Full>,
    /// When lanes stop starting visits, in microseconds.
    drain_end: AtomicU64,
}

/// The result of the last scan of a full registry.
#[derive(Debug, Default)]
struct Full {
    /// Another scan before this time would find nothing more.
    look_again: Timestamp,
    /// When the first lanes will owe nothing, soonest first. `told` counts the refused hosts that got one of these
    /// times.
    owed_until: Vec<Timestamp>,
    told: usize,
    /// When a full registry was last logged.
    logged: Timestamp,
}

/// One scan forgets this fraction of the lanes (one sixteenth): a scan of 100 000 lanes takes some twenty milliseconds,
/// which every new host must not pay.
const AT_ONCE: usize = 16;
/// The next scan waits this long for each lane, so that scans take some 2 % of the time at most.
const BETWEEN_LOOKS: Duration = Duration::from_micros(10);
/// Largest number of different times that refused hosts get.
const MOST_TOLD: usize = 1000;
const BETWEEN_LOGS: Duration = Duration::from_secs(60);

/// A lane, found by its host's name. Only the lane stores the name: a lookup then takes one memory access less, which
/// is half of its cost if there are many hosts.
#[derive(Debug)]
struct Resident(Arc<SharedLane>);

impl Resident {
    fn host(&self) -> &HostKey {
        self.0.host()
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

impl Registry {
    pub(super) fn new(bounds: Bounds, memories: HostPersistence) -> Self {
        Registry {
            memories,
            lanes: DashMap::with_hasher_and_shard_amount(RandomState::default(), SHARDS),
            count: AtomicUsize::new(0),
            bounds: RwLock::new(bounds),
            full: Mutex::default(),
            drain_end: AtomicU64::new(Timestamp::NEVER.as_micros()),
        }
    }

    /// Returns the host's lane. Makes one if there is none.
    pub(super) fn lane(
        &self,
        host: &HostKey,
        book: &PolicyBook,
        now: Timestamp,
    ) -> Result<Arc<SharedLane>, LaneRefusal> {
        let mut full = self.full.lock();
        if let Some(lane) = self.known(host) {
            return Ok(lane);
        }
        // A host that the operator has set something for gets a lane even now, and there are few such hosts.
        if !(self.make_room(&mut full, now) || self.memories.is_steered(host, now)) {
            full.log(self.len(), now);
            return Err(LaneRefusal::HostsFull { retry_after: full.tell(now) });
        }
        let lane = self.draining(self.memories.lane(host, book, now), now);
        let lane = Arc::new(SharedLane::new(host.clone(), lane, now));
        let before = self.lanes.insert(Resident(lane.clone()), ());
        debug_assert!(before.is_none(), "a host has one lane");
        self.count.fetch_add(1, Relaxed);
        Ok(lane)
    }

    /// Whether there is room for one more lane. Makes room if necessary.
    fn make_room(&self, full: &mut Full, now: Timestamp) -> bool {
        let most = self.bounds.read().most;
        if self.len() < most {
            return true;
        }
        if now < full.look_again {
            return false;
        }
        let (mut idle, mut owed_until) = (Vec::new(), Vec::new());
        self.each(|_, lane| {
            // A task that holds the lane is about to use it.
            let is_used = Arc::strong_count(lane) > 1;
            let (until, used) = lane.look(|state| (state.lane.owes_until(now), state.last_used()));
            match until {
                _ if is_used => {}
                until if until <= now => idle.push(used),
                Timestamp::NEVER => {}
                until => owed_until.push(until),
            }
        });
        if idle.is_empty() {
            full.found_nothing(owed_until, self.len(), now);
            return false;
        }
        let wanted = (self.len() - most) + (most / AT_ONCE).max(1);
        let last = wanted.min(idle.len()) - 1;
        let latest = *idle.select_nth_unstable(last).1;
        let mut left = wanted;
        self.forget(now, |state| {
            let goes = left > 0 && state.last_used() <= latest;
            left -= usize::from(goes);
            goes
        });
        self.len() < most
    }

    /// Saves a hold for a host that has no room for a lane.
    pub(super) fn hold_without_lane(&self, host: &HostKey, book: &PolicyBook, until: Timestamp, now: Timestamp) {
        let mut lane = self.memories.lane(host, book, now);
        lane.hold(until, now);
        self.memories.keep_news(host, &mut lane, now);
    }

    /// The host's own lane.
    pub(super) fn known(&self, host: &HostKey) -> Option<Arc<SharedLane>> {
        self.lanes.get(host).map(|entry| entry.key().0.clone())
    }

    /// Whether anything is known of the host, in a lane or in the store.
    pub(super) fn remembers(&self, host: &HostKey) -> bool {
        self.lanes.contains_key(host) || self.memories.knows(host)
    }

    /// Returns the lane that a host without a recent visit would get, or `None` if nothing is known of the host.
    pub(super) fn remembered(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Option<Lane> {
        self.memories.knows(host).then(|| self.memories.lane(host, book, now))
    }

    /// Returns the lane that a host without one would get now.
    pub(super) fn foreseen(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Lane {
        self.memories.lane(host, book, now)
    }

    /// Saves what another curtsy knew of a host that has no lane.
    pub(super) fn import(&self, host: &HostKey, record: &HostRecord) {
        self.memories.import(host, record);
    }

    pub(super) fn keep(&self, host: &HostKey, lane: &mut Lane, now: Timestamp) {
        self.memories.keep_news(host, lane, now);
    }

    pub(super) fn store(&self) -> &Store {
        self.memories.store()
    }

    /// The end of the host's hold, whether the host has a lane or not.
    pub(super) fn held_until(&self, host: &HostKey) -> Timestamp {
        match self.lanes.get(host) {
            Some(entry) => entry.key().0.look(|state| state.lane.held_until()),
            None => self.memories.of(host).held_until.unwrap_or_default(),
        }
    }

    /// Saves what a lane has just learned.
    pub(super) fn keep_news(&self, lane: &SharedLane, state: &mut LaneState, now: Timestamp) {
        self.memories.keep_news(lane.host(), &mut state.lane, now);
    }

    /// Saves everything that a restart must know.
    pub(super) fn keep_all(&self, now: Timestamp) {
        self.each(|host, lane| lane.look(|state| self.memories.keep_all(host, &mut state.lane, now)));
    }

    pub(super) fn change(&self, book: &PolicyBook, bounds: Bounds, apply: Apply, now: Timestamp) {
        *self.bounds.write() = bounds;
        if apply == Apply::All {
            self.each(|host, lane| lane.change(book.policy(host.as_str()).clone(), &book.schooling, now));
        }
        self.full.lock().look_again = Timestamp::START;
    }

    /// Drains every lane, including lanes that are made later.
    pub(super) fn drain(&self, end: Timestamp, now: Timestamp) {
        {
            // A lane that is being made is in the registry when this block ends, or it knows the end.
            let _nobody_makes_one = self.full.lock();
            self.drain_end.store(end.as_micros(), Relaxed);
        }
        self.each(|_, lane| lane.with(now, |state| state.lane.drain(end, now)));
    }

    /// Tells a new lane if curtsy is stopping.
    fn draining(&self, mut lane: Lane, now: Timestamp) -> Lane {
        let end = Timestamp::from_micros(self.drain_end.load(Relaxed));
        if end < Timestamp::NEVER {
            lane.drain(end, now);
        }
        lane
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        let idle = self.bounds.read().idle;
        self.forget(now, |state| {
            state.lane.give_back_room(now);
            let policy = state.lane.policy();
            let needed = idle.max(policy.delay.saturating_mul(policy.burst));
            now.since(state.last_used()) >= needed
        });
    }

    /// Forgets lanes that owe nothing and for which `may_go` returns true.
    fn forget(&self, now: Timestamp, mut may_go: impl FnMut(&mut LaneState) -> bool) {
        self.lanes.retain(|resident, ()| {
            let (host, lane) = (resident.host(), &resident.0);
            // Lanes are cloned under the same lock, so a lane with a single owner here cannot gain a second.
            let goes = Arc::strong_count(lane) == 1 && lane.look(|state| !state.lane.owes(now) && may_go(state));
            if goes {
                lane.look(|state| self.memories.keep_all(host, &mut state.lane, now));
                self.count.fetch_sub(1, Relaxed);
            }
            !goes
        });
    }

    /// Calls `see` for every lane. Locks one shard at a time.
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

impl Full {
    /// Records that no lane can be forgotten. The lanes of `owed_until` will owe nothing at those times, the others
    /// when their visits are over.
    fn found_nothing(&mut self, mut owed_until: Vec<Timestamp>, lanes: usize, now: Timestamp) {
        if owed_until.len() > MOST_TOLD {
            owed_until.select_nth_unstable(MOST_TOLD);
            owed_until.truncate(MOST_TOLD);
        }
        owed_until.sort_unstable();
        let rest = BETWEEN_LOOKS.saturating_mul(u32::try_from(lanes).unwrap_or(u32::MAX));
        self.look_again = owed_until.first().map_or(now + rest, |&first| first.min(now + rest));
        (self.owed_until, self.told) = (owed_until, 0);
    }

    /// Returns after how many seconds a refused host finds room, if no other host takes it first.
    fn tell(&mut self, now: Timestamp) -> Duration {
        let free = self.owed_until.get(self.told).or(self.owed_until.last()).map_or(Duration::ZERO, |at| at.since(now));
        self.told += 1;
        Duration::from_secs(free.as_micros().div_ceil(1_000_000).max(1) as u64)
    }

    fn log(&mut self, lanes: usize, now: Timestamp) {
        if now.since(self.logged) >= BETWEEN_LOGS {
            self.logged = now;
            tracing::warn!(
                event = "hosts.full",
                hosts = lanes,
                "all of the hosts that curtsy can keep were visited just now, so others are refused; hosts.max is too small"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::visit::{ClientId, Visit};
    use crate::store::Retention;

    const DAY: Duration = Duration::from_secs(86_400);

    fn host(n: u32) -> HostKey {
        HostKey::parse(&format!("h{n}.test")).unwrap()
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + seconds * 1_000)
    }

    fn registry(most: usize) -> Registry {
        let store = Arc::new(Store::memory(Retention::default()));
        Registry::new(Bounds { most, idle: DAY }, HostPersistence::new(store, None))
    }

    fn teach(registry: &Registry, lane: &SharedLane, until: Timestamp, now: Timestamp) {
        lane.with(now, |state| {
            state.lane.hold(until, now);
            registry.keep_news(lane, state, now);
        });
    }

    fn visit(lane: &SharedLane, now: Timestamp) {
        lane.look(|state| {
            state.used(now);
            let ticket = state.lane.walk_through(&Visit::new(ClientId(1), 1), now).expect("a free host");
            assert_eq!(state.lane.sent(ticket, now), None);
            state.lane.leave(ticket, now);
        });
    }

    /// Promise 5, X35: a host whose last visit was one delay ago makes room at once for an unknown host.
    #[test]
    fn a_full_registry_forgets_the_least_recently_used_that_owe_nothing() {
        let (registry, book) = (registry(10), PolicyBook::default());
        let busy = registry.lane(&host(0), &book, at(0)).unwrap();
        busy.look(|state| state.lane.join(Visit::new(ClientId(1), 1), at(0))).unwrap();
        drop(busy);
        for n in 1..10 {
            visit(&registry.lane(&host(n), &book, at(u64::from(n))).unwrap(), at(u64::from(n)));
        }
        for n in 10..15 {
            visit(&registry.lane(&host(n), &book, at(10)).unwrap(), at(10));
            assert!(registry.known(&host(n - 9)).is_none(), "the least recently used one goes");
            assert_eq!(registry.len(), 10);
        }
        assert!(registry.known(&host(0)).is_some(), "a visit waits there");
    }

    #[test]
    fn a_host_is_refused_until_a_lane_owes_nothing() {
        let (registry, book) = (registry(2), PolicyBook::default());
        let half_a_second = Duration::from_millis(500);
        visit(&registry.lane(&host(0), &book, at(0)).unwrap(), at(0));
        visit(&registry.lane(&host(1), &book, at(5)).unwrap(), at(5));
        visit(&registry.lane(&host(0), &book, at(5)).unwrap(), at(5) + half_a_second);
        let told = |n, now| registry.lane(&host(n), &book, now).map(drop).unwrap_err().retry_after();
        let now = at(5) + half_a_second;
        assert_eq!([told(2, now), told(3, now)], [1, 1].map(|seconds| Some(Duration::from_secs(seconds))));
        assert!(registry.known(&host(2)).is_none(), "two hosts never share a lane");
        registry.hold_without_lane(&host(2), &book, at(60), now);
        assert_eq!(registry.held_until(&host(2)), at(60), "a hold is kept without one");
        registry.lane(&host(3), &book, at(6)).unwrap();
        assert!(registry.known(&host(1)).is_none() && registry.known(&host(0)).is_some());
    }

    #[test]
    fn looking_for_room_is_not_the_price_of_every_new_host() {
        let (registry, book) = (registry(1600), PolicyBook::default());
        for n in 0..1600 {
            visit(&registry.lane(&host(n), &book, at(0)).unwrap(), at(0));
        }
        registry.lane(&host(2000), &book, at(10)).unwrap();
        assert_eq!(registry.len(), 1501, "room for a hundred");
        let mut full = Full::default();
        full.found_nothing(vec![at(9), at(7), at(8)], 1600, at(5));
        assert_eq!(full.look_again, at(5) + Duration::from_millis(16));
        assert_eq!([full.tell(at(5)), full.tell(at(5)), full.tell(at(6))], [2, 3, 3].map(Duration::from_secs));
        assert_eq!(full.tell(at(6)), Duration::from_secs(3), "nothing more is known");
    }

    #[test]
    fn a_host_that_was_forgotten_is_remembered() {
        let registry = registry(10);
        let book = PolicyBook::default();
        let lane = registry.lane(&host(1), &book, at(0)).unwrap();
        teach(&registry, &lane, at(1_800), at(0));
        assert_eq!(registry.held_until(&host(1)), at(1_800));
        drop(lane);
        registry.lanes.clear();
        assert_eq!(registry.held_until(&host(1)), at(1_800), "kept at once, not only when it is forgotten");
        let again = registry.lane(&host(1), &book, at(60)).unwrap();
        assert_eq!(again.look(|state| state.lane.held_until()), at(1_800));
    }
}
