//! Every remembered host, in memory.
//!
//! This is why the request path never waits for disk: what a restart remembers is read once, at start, and asked for
//! here. So it must be small. A host is known by a hash of its name (64 bits, keyed anew in each process, so nobody can
//! choose names that collide; two of a million hosts do with a chance of 3 in 100 million) and takes 56 B. Numbers that
//! people set are rare and stand aside.
//!
//! Bounded by itself: a full shard forgets the oldest eighth of its hosts, but none that is paused, overridden or held
//! while there are others. What is forgotten here is forgotten on disk at the next tidying.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::record::{HostRecord, Overrides};

#[derive(Debug)]
pub(super) struct Index {
    shards: Box<[Mutex<Shard>]>,
    /// Hosts in one shard, at most.
    most: usize,
    hash: RandomState,
    /// Forgotten for want of room.
    evicted: AtomicUsize,
}

#[derive(Debug, Default)]
struct Shard {
    /// A tree rather than a hash table, whose doublings would cost up to twice the memory.
    hosts: BTreeMap<u64, Slim>,
    overrides: HashMap<u64, Overrides>,
}

/// A [`HostRecord`] without its overrides, in 48 B.
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
    overridden: bool,
}

impl Index {
    pub(super) fn new(most: usize) -> Self {
        let shards = (most / HOSTS_PER_SHARD).clamp(1, MOST_SHARDS);
        Index {
            // Hosts do not spread evenly: a little more than a shard's share.
            most: (most / shards).max(1) + if shards > 1 { HOSTS_PER_SHARD / 16 } else { 0 },
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            hash: RandomState::new(),
            evicted: AtomicUsize::new(0),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<HostRecord> {
        let (hash, shard) = self.place(key);
        let shard = shard.lock();
        shard.hosts.get(&hash).map(|slim| shard.full(hash, slim))
    }

    pub(super) fn contains(&self, key: &str) -> bool {
        let (hash, shard) = self.place(key);
        shard.lock().hosts.contains_key(&hash)
    }

    pub(super) fn put(&self, key: &str, record: &HostRecord, now_us: u64) {
        let (hash, shard) = self.place(key);
        let mut shard = shard.lock();
        if shard.hosts.len() >= self.most && !shard.hosts.contains_key(&hash) {
            let evicted = shard.make_room(self.most / 8 + 1, now_us);
            self.evicted.fetch_add(evicted, Relaxed);
        }
        if record.overrides == Overrides::default() {
            shard.overrides.remove(&hash);
        } else {
            shard.overrides.insert(hash, record.overrides);
        }
        shard.hosts.insert(hash, Slim::from(record));
    }

    pub(super) fn remove(&self, key: &str) {
        let (hash, shard) = self.place(key);
        shard.lock().remove(hash);
    }

    /// One shard at a time, so that nobody waits for the whole.
    pub(super) fn retain(&self, keep: impl Fn(&HostRecord) -> bool) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            let gone: Vec<u64> = shard
                .hosts
                .iter()
                .filter(|(hash, slim)| !keep(&shard.full(**hash, slim)))
                .map(|(hash, _)| *hash)
                .collect();
            for hash in gone {
                shard.remove(hash);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().hosts.len()).sum()
    }

    /// How many were forgotten for want of room since this was last asked.
    pub(super) fn take_evicted(&self) -> usize {
        self.evicted.swap(0, Relaxed)
    }

    pub(super) fn evicted(&self) -> usize {
        self.evicted.load(Relaxed)
    }

    fn place(&self, key: &str) -> (u64, &Mutex<Shard>) {
        let hash = self.hash.hash_one(key);
        // The upper half chooses the shard; the tree orders by all of it.
        let number = ((hash >> 32) as usize * self.shards.len()) >> 32;
        (hash, &self.shards[number])
    }
}

impl Shard {
    fn full(&self, hash: u64, slim: &Slim) -> HostRecord {
        let overrides = if slim.overridden { self.overrides.get(&hash).copied() } else { None };
        HostRecord {
            learned_ms: slim.learned_ms,
            floor_ms: slim.floor_ms,
            floor_ttl_ms: slim.floor_ttl_ms,
            floor_until_us: slim.floor_until_us,
            updated_us: slim.updated_us,
            last_sent_us: slim.last_sent_us,
            held_until_us: slim.held_until_us,
            paused: slim.paused,
            overrides: overrides.unwrap_or_default(),
        }
    }

    fn remove(&mut self, hash: u64) {
        self.hosts.remove(&hash);
        self.overrides.remove(&hash);
    }

    /// Forgets the `count` hosts that matter least. Many at once, because finding them means looking at all.
    fn make_room(&mut self, count: usize, now_us: u64) -> usize {
        let mut ranks: Vec<((bool, u64), u64)> =
            self.hosts.iter().map(|(hash, slim)| (slim.rank(now_us), *hash)).collect();
        let count = count.min(ranks.len());
        if count < ranks.len() {
            ranks.select_nth_unstable(count);
        }
        for (_, hash) in &ranks[..count] {
            self.remove(*hash);
        }
        count
    }
}

impl Slim {
    /// The smallest goes first.
    fn rank(&self, now_us: u64) -> (bool, u64) {
        let bound = self.paused || self.overridden || self.held_until_us > now_us;
        (bound, self.updated_us.max(self.last_sent_us))
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
            overridden: record.overrides != Overrides::default(),
        }
    }
}

/// Looking through a shard of this size takes some 50 µs, which is the longest anyone waits for its lock.
const HOSTS_PER_SHARD: usize = 4096;
const MOST_SHARDS: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

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
            overrides: Overrides { delay_ms: Some(8), burst: None, concurrency: Some(9) },
        };
        index.put("a.example", &record, 0);
        assert_eq!(index.get("a.example"), Some(record));
        assert_eq!(index.get("b.example"), None);
        let plain = learned(1, 5);
        index.put("a.example", &plain, 0);
        assert_eq!(index.get("a.example"), Some(plain), "the overrides are gone too");
        index.remove("a.example");
        assert_eq!(index.get("a.example"), None);
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
