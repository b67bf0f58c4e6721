//! Every remembered host, in memory.
//!
//! Because of this index the request path never waits for disk: the stored hosts are read once, at start, and looked up
//! here. So the index must be small. A host is identified by a hash of its name and takes 56 B. The hash has 64 bits
//! and a new key in each process, so an attacker cannot choose names that collide; among a million hosts the chance of
//! any collision is 3 in 100 million. What people set is rare and is stored separately.
//!
//! The index bounds its own size: a full shard drops the oldest eighth of its hosts, but none that is paused,
//! overridden or held while there are others. Hosts dropped here are deleted from disk at the next tidying.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::record::{HostRecord, StoredOverrides};

#[derive(Debug)]
pub(super) struct Index {
    shards: Box<[Mutex<Shard>]>,
    /// Hosts in one shard, at most.
    most: usize,
    hash: RandomState,
    /// Hosts dropped because there was no room.
    evicted: AtomicUsize,
}

/// Sorted by hash. A hash table would take up to twice the memory just after it doubled. A tree would take half as much
/// again, and longer to fill at start. Here inserting a new host moves the entries after it, which are at most 230 kB.
#[derive(Debug)]
struct Shard {
    hashes: Vec<u64>,
    /// One for each hash.
    hosts: Vec<Slim>,
    steered: HashMap<u64, Steered>,
}

/// What people set, except a pause without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steered {
    overrides: StoredOverrides,
    paused_until_us: u64,
}

/// A [`HostRecord`] without what is stored separately, in 48 B.
#[derive(Clone, Copy, Debug)]
struct Slim {
    floor_until_us: u64,
    updated_us: u64,
    last_sent_us: u64,
    held_until_us: u64,
    learned_ms: u32,
    floor_ms: u32,
    floor_ttl_ms: u32,
    paused: bool,
    steered: bool,
}

impl Index {
    pub(super) fn new(most: usize) -> Self {
        let shards = (most / HOSTS_PER_SHARD).clamp(1, MOST_SHARDS);
        // Hosts do not spread evenly over shards, so each may hold a little more than its share.
        let most = (most / shards).max(1) + if shards > 1 { HOSTS_PER_SHARD / 16 } else { 0 };
        Index {
            most,
            shards: (0..shards).map(|_| Mutex::new(Shard::new(most))).collect(),
            hash: RandomState::new(),
            evicted: AtomicUsize::new(0),
        }
    }

    /// Adds a host that is not in the index, out of order. The caller must call [`Index::sort`] afterwards.
    pub(super) fn append(&self, key: &str, record: &HostRecord, now_us: u64) {
        let (hash, number) = self.place(key);
        let mut shard = self.shards[number].lock();
        if shard.hosts.len() >= self.most {
            shard.make_room(self.most / 8 + 1, now_us);
        }
        let end = shard.hosts.len();
        shard.insert(end, hash, record);
    }

    pub(super) fn sort(&mut self) {
        let half = self.shards.len().div_ceil(2);
        std::thread::scope(|scope| {
            for shards in self.shards.chunks_mut(half) {
                scope.spawn(|| shards.iter_mut().for_each(|shard| shard.get_mut().sort()));
            }
        });
    }

    pub(super) fn get(&self, key: &str) -> Option<HostRecord> {
        let (hash, number) = self.place(key);
        let shard = self.shards[number].lock();
        shard.hashes.binary_search(&hash).ok().map(|at| shard.full(at))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        let (hash, number) = self.place(key);
        self.shards[number].lock().hashes.binary_search(&hash).is_ok()
    }

    /// Returns what was known before.
    pub(super) fn put(&self, key: &str, record: &HostRecord, now_us: u64) -> Option<HostRecord> {
        self.set(key, record, now_us, Shard::replace)
    }

    /// Adds a host, unless the index has it already.
    pub(super) fn put_new(&self, key: &str, record: &HostRecord, now_us: u64) {
        self.set(key, record, now_us, |_, _, _| ());
    }

    fn set(
        &self,
        key: &str,
        record: &HostRecord,
        now_us: u64,
        known: impl FnOnce(&mut Shard, usize, &HostRecord),
    ) -> Option<HostRecord> {
        let (hash, number) = self.place(key);
        let mut shard = self.shards[number].lock();
        match shard.hashes.binary_search(&hash) {
            Ok(at) => {
                let before = shard.full(at);
                known(&mut shard, at, record);
                return Some(before);
            }
            Err(_) if shard.hosts.len() >= self.most => {
                let evicted = shard.make_room(self.most / 8 + 1, now_us);
                self.evicted.fetch_add(evicted, Relaxed);
                let at = shard.hashes.partition_point(|other| *other < hash);
                shard.insert(at, hash, record);
            }
            Err(at) => shard.insert(at, hash, record),
        }
        None
    }

    /// Locks one shard at a time, so that no request waits for the whole.
    pub(super) fn retain(&self, keep: impl Fn(&HostRecord) -> bool) {
        for shard in &self.shards {
            shard.lock().retain(|_, record| keep(record));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().hosts.len()).sum()
    }

    /// Returns how many hosts were dropped because there was no room, since the last call.
    pub(super) fn take_evicted(&self) -> usize {
        self.evicted.swap(0, Relaxed)
    }

    pub(super) fn evicted(&self) -> usize {
        self.evicted.load(Relaxed)
    }

    fn place(&self, key: &str) -> (u64, usize) {
        let hash = self.hash.hash_one(key);
        // The upper half of the hash chooses the shard.
        (hash, ((hash >> 32) as usize * self.shards.len()) >> 32)
    }
}

impl Shard {
    /// Reserves the full capacity at once: unused capacity costs address space, not memory, and growing would leave
    /// holes.
    fn new(most: usize) -> Self {
        Shard { hashes: Vec::with_capacity(most), hosts: Vec::with_capacity(most), steered: HashMap::new() }
    }

    fn full(&self, at: usize) -> HostRecord {
        let slim = &self.hosts[at];
        let steered = if slim.steered { self.steered.get(&self.hashes[at]).copied() } else { None };
        let Steered { overrides, paused_until_us } = steered.unwrap_or_default();
        HostRecord {
            learned_ms: slim.learned_ms,
            floor_ms: slim.floor_ms,
            floor_ttl_ms: slim.floor_ttl_ms,
            floor_until_us: slim.floor_until_us,
            updated_us: slim.updated_us,
            last_sent_us: slim.last_sent_us,
            held_until_us: slim.held_until_us,
            paused: slim.paused,
            paused_until_us,
            overrides,
        }
    }

    fn insert(&mut self, at: usize, hash: u64, record: &HostRecord) {
        self.hashes.insert(at, hash);
        self.hosts.insert(at, Slim::from(record));
        self.set_aside(hash, record);
    }

    fn replace(&mut self, at: usize, record: &HostRecord) {
        self.hosts[at] = Slim::from(record);
        self.set_aside(self.hashes[at], record);
    }

    fn set_aside(&mut self, hash: u64, record: &HostRecord) {
        let steered = Steered::of(record);
        if steered != Steered::default() {
            self.steered.insert(hash, steered);
        } else if !self.steered.is_empty() {
            self.steered.remove(&hash);
        }
    }

    fn retain(&mut self, keep: impl Fn(u64, &HostRecord) -> bool) {
        let mut kept = 0;
        for at in 0..self.hosts.len() {
            if keep(self.hashes[at], &self.full(at)) {
                self.hashes[kept] = self.hashes[at];
                self.hosts[kept] = self.hosts[at];
                kept += 1;
            } else {
                self.steered.remove(&self.hashes[at]);
            }
        }
        self.hashes.truncate(kept);
        self.hosts.truncate(kept);
    }

    /// Drops the `count` hosts that matter least. Drops many at once, because finding them means looking at all.
    fn make_room(&mut self, count: usize, now_us: u64) -> usize {
        let before = self.hosts.len();
        let mut ranks: Vec<_> = (0..before).map(|at| (self.full(at).rank(now_us), self.hashes[at])).collect();
        let last = count.clamp(1, before) - 1;
        let (_, limit, _) = ranks.select_nth_unstable(last);
        let limit = *limit;
        self.retain(|hash, record| (record.rank(now_us), hash) > limit);
        before - self.hosts.len()
    }

    fn sort(&mut self) {
        // The records are moved only after their places are known: they are six times as large as a hash.
        let mut order: Vec<(u64, usize)> = self.hashes.iter().copied().zip(0..).collect();
        order.sort_unstable();
        let before = self.hosts.clone();
        self.hashes.clear();
        self.hosts.clear();
        self.hashes.extend(order.iter().map(|(hash, _)| hash));
        self.hosts.extend(order.iter().map(|(_, at)| before[*at]));
    }
}

impl HostRecord {
    /// The host with the smallest rank is dropped first.
    fn rank(&self, now_us: u64) -> (bool, u64) {
        let binds = self.is_steered(now_us) || self.held_until_us > now_us;
        (binds, self.updated_us.max(self.last_sent_us))
    }
}

impl From<&HostRecord> for Slim {
    fn from(record: &HostRecord) -> Self {
        Slim {
            floor_until_us: record.floor_until_us,
            updated_us: record.updated_us,
            last_sent_us: record.last_sent_us,
            held_until_us: record.held_until_us,
            learned_ms: record.learned_ms,
            floor_ms: record.floor_ms,
            floor_ttl_ms: record.floor_ttl_ms,
            paused: record.paused,
            steered: Steered::of(record) != Steered::default(),
        }
    }
}

impl Steered {
    fn of(record: &HostRecord) -> Self {
        Steered { overrides: record.overrides, paused_until_us: record.paused_until_us }
    }
}

/// Scanning a shard of this size takes some 50 µs, which is the longest that a thread waits for its lock. Inserting a
/// new host moves half of it on average, which takes some 5 µs.
const HOSTS_PER_SHARD: usize = 4096;
const MOST_SHARDS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    impl Index {
        pub(in crate::store) fn remove(&self, key: &str) {
            let (hash, number) = self.place(key);
            self.shards[number].lock().retain(|other, _| other != hash);
        }
    }

    fn learned(ms: u32, updated_us: u64) -> HostRecord {
        HostRecord { learned_ms: ms, updated_us, ..HostRecord::default() }
    }

    #[test]
    fn a_host_is_found_as_it_was_put() {
        let index = Index::new(100);
        let record = HostRecord {
            learned_ms: 1,
            floor_ms: 2,
            floor_ttl_ms: 3,
            floor_until_us: 4,
            updated_us: 5,
            last_sent_us: 6,
            held_until_us: 7,
            paused: true,
            paused_until_us: 10,
            overrides: StoredOverrides { delay_ms: Some(8), burst: None, concurrency: Some(9) },
        };
        index.put("a.example", &record, 0);
        assert_eq!(index.get("a.example"), Some(record));
        assert_eq!(index.get("b.example"), None);
        let plain = learned(1, 5);
        index.put("a.example", &plain, 0);
        assert_eq!(index.get("a.example"), Some(plain), "the overrides are removed too");
        index.remove("a.example");
        assert_eq!(index.get("a.example"), None);
    }

    #[test]
    fn a_filled_index_finds_everything_once_it_is_sorted() {
        let mut index = Index::new(1_000);
        let record = |n: u32| HostRecord {
            overrides: StoredOverrides { burst: n.is_multiple_of(3).then_some(n), ..StoredOverrides::default() },
            ..learned(n, 1)
        };
        for n in 0..1_000 {
            index.append(&format!("{n}.example"), &record(n), 0);
        }
        index.sort();
        for n in 0..1_000 {
            assert_eq!(index.get(&format!("{n}.example")), Some(record(n)));
        }
        for n in 1_000..2_000 {
            index.append(&format!("{n}.example"), &learned(1, 2), 0);
        }
        index.sort();
        assert!(index.len() <= 1_000, "{}", index.len());
        assert!(index.contains("1999.example") && index.contains("0.example") && !index.contains("1.example"));
    }

    #[test]
    fn a_full_index_forgets_the_oldest() {
        let index = Index::new(80);
        for n in 0..81 {
            index.put(&format!("{n}.example"), &learned(1, n), 0);
        }
        assert_eq!(index.len(), 81 - 11);
        assert_eq!(index.take_evicted(), 11);
        assert_eq!(index.get("10.example"), None);
        assert!(index.get("11.example").is_some() && index.get("80.example").is_some());
    }

    #[test]
    fn what_binds_stays_while_there_is_anything_else() {
        let index = Index::new(80);
        let held = HostRecord { held_until_us: 1_000, ..learned(1, 0) };
        for n in 0..40 {
            index.put(&format!("held-{n}.example"), &held, 500);
        }
        for n in 0..1_000 {
            index.put(&format!("{n}.example"), &learned(1, n), 500);
        }
        assert!((0..40).all(|n| index.get(&format!("held-{n}.example")).is_some()));
        assert!(index.len() <= 80);
        for n in 0..1_000 {
            index.put(&format!("{n}.example"), &learned(1, n), 2_000);
        }
        assert!((0..40).all(|n| index.get(&format!("held-{n}.example")).is_none()), "the hold is over");
    }

    #[test]
    fn the_bound_holds_over_many_shards() {
        let most = 40_000;
        let index = Index::new(most);
        assert!(index.shards.len() > 1);
        for n in 0..100_000 {
            index.put(&format!("{n}.example"), &learned(1, n), 0);
        }
        assert!(index.len() <= most + most / 8, "{}", index.len());
        assert!(index.len() >= most * 3 / 4, "{}", index.len());
    }

    #[test]
    fn what_no_longer_matters_can_be_swept() {
        let index = Index::new(100);
        for n in 0..10 {
            index.put(&format!("{n}.example"), &learned(1, n), 0);
        }
        index.retain(|record| record.updated_us >= 5);
        assert_eq!(index.len(), 5);
        assert!(index.contains("5.example") && !index.contains("4.example"));
    }

    #[test]
    fn a_host_is_small() {
        assert_eq!(size_of::<Slim>(), 48);
    }
}
