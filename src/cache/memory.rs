//! The memory tier: stored answers by URL, bounded by bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use foldhash::quality::RandomState;
use parking_lot::{Mutex, MutexGuard};
use quick_cache::sync::Cache as QuickCache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;

use super::entry::Entry;
use super::key::{CacheKey, CacheKeyRef};

/// As many answers are kept for one URL; a further one replaces the oldest. Enough for encodings and languages, and an
/// endless Vary stays bounded.
pub const MOST_VARIANTS: usize = 16;

/// The answers stored for one URL, the newest first. Most URLs have one, which takes no allocation here.
pub type Variants = SmallVec<[Arc<Entry>; 1]>;

/// Stored answers in memory.
#[derive(Debug)]
pub struct Memory {
    entries: QuickCache<CacheKey, Variants, EntryWeight, RandomState, EvictionCount>,
    evictions: Arc<AtomicU64>,
    /// Locks for changes of a URL's variants: a change reads, then writes.
    changes: [Mutex<()>; CHANGES],
    /// The bytes it may hold.
    capacity: u64,
    /// The largest entry it takes.
    largest: u64,
}

/// More than the number of workers that store at the same moment.
const CHANGES: usize = 16;

impl Memory {
    /// Holds at most this many bytes.
    pub fn new(bytes: u64) -> Self {
        let shards = 1 << (bytes / LEAST_SHARD).clamp(1, MOST_SHARDS).ilog2();
        let options = OptionsBuilder::new()
            .estimated_items_capacity(usize::try_from(bytes / USUAL_ENTRY).unwrap_or(usize::MAX).max(1))
            .weight_capacity(bytes)
            .shards(shards)
            .build()
            .expect("both capacities are given");
        let evictions = EvictionCount::default();
        Memory {
            evictions: evictions.0.clone(),
            entries: QuickCache::with_options(options, EntryWeight, RandomState::default(), evictions),
            changes: Default::default(),
            capacity: bytes,
            largest: (bytes / LARGEST_SHARE).min(bytes / shards as u64 / 2),
        }
    }

    /// The largest entry it takes.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The bytes it may hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns what is stored for a URL.
    pub fn get(&self, key: &CacheKeyRef<'_>) -> Option<Variants> {
        self.entries.get(key)
    }

    /// The same, without counting it as used.
    pub fn peek(&self, key: &CacheKeyRef<'_>) -> Option<Variants> {
        self.entries.peek(key)
    }

    /// Stores an entry, in the place of the one with the same selecting fields. Returns false if it is too large.
    pub fn store(&self, key: CacheKey, entry: Arc<Entry>) -> bool {
        if entry.weight() > self.largest {
            self.remove_like(&key.borrowed(), &entry);
            return false;
        }
        let _change = self.change(&key.borrowed());
        let mut variants = Variants::new();
        if let Some(before) = self.entries.peek(&key.borrowed()) {
            let others = before.iter().filter(|other| !replaces(&entry, other));
            variants.extend(others.take(MOST_VARIANTS - 1).cloned());
        }
        variants.insert(0, entry);
        // All variants of a URL are weighed together; the oldest go if they would not fit.
        while variants.len() > 1 && variants.iter().map(|entry| entry.weight()).sum::<u64>() > self.largest {
            variants.pop();
        }
        self.entries.insert(key, variants);
        true
    }

    /// Removes the entry with the same selecting fields.
    pub(super) fn remove_like(&self, key: &CacheKeyRef<'_>, entry: &Entry) {
        self.retain(key, |other| !replaces(entry, other));
    }

    /// Removes one entry, if it is still there.
    pub fn remove_entry(&self, key: &CacheKeyRef<'_>, entry: &Arc<Entry>) {
        self.retain(key, |other| !Arc::ptr_eq(entry, other));
    }

    fn retain(&self, key: &CacheKeyRef<'_>, keeps: impl Fn(&Arc<Entry>) -> bool) {
        let _change = self.change(key);
        let Some(before) = self.entries.peek(key) else { return };
        let kept: Variants = before.iter().filter(|entry| keeps(entry)).cloned().collect();
        if kept.is_empty() {
            self.entries.remove(key);
        } else if kept.len() < before.len() {
            self.entries.insert(key.to_key(), kept);
        }
    }

    /// Removes all answers for a URL, and returns how many there were.
    pub fn remove(&self, key: &CacheKeyRef<'_>) -> usize {
        let _change = self.change(key);
        self.entries.remove(key).map_or(0, |(_, variants)| variants.len())
    }

    /// Removes all answers whose key matches, and returns how many there were.
    pub fn remove_where(&self, matches: impl Fn(&CacheKey) -> bool) -> usize {
        let removed = AtomicU64::new(0);
        self.entries.retain(|key, variants| {
            let goes = matches(key);
            if goes {
                removed.fetch_add(variants.len() as u64, Relaxed);
            }
            !goes
        });
        removed.load(Relaxed) as usize
    }

    /// Every URL with its answers.
    pub fn all(&self) -> Vec<(CacheKey, Variants)> {
        self.entries.iter().collect()
    }

    /// The bytes it holds.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    /// The URLs that made room for others so far.
    pub fn evictions(&self) -> u64 {
        self.evictions.load(Relaxed)
    }

    /// The URLs it holds answers for.
    pub fn urls(&self) -> usize {
        self.entries.len()
    }

    fn change(&self, key: &CacheKeyRef<'_>) -> MutexGuard<'_, ()> {
        self.changes[key.hash_code() as usize % CHANGES].lock()
    }
}

/// Whether a new entry takes the place of another: they answer the same requests.
fn replaces(new: &Entry, old: &Entry) -> bool {
    new.terms.selecting == old.terms.selecting && (!new.terms.head_only || old.terms.head_only)
}

/// An entry takes at most this part of the memory.
const LARGEST_SHARE: u64 = 8;
/// A shard holds no more than its share of the bytes, and an entry no more than half a shard.
const LEAST_SHARD: u64 = 16 << 20;
/// More than the number of cores that access the cache at the same moment.
const MOST_SHARDS: u64 = 16;
/// A page of 20 KiB and a small object, halfway.
const USUAL_ENTRY: u64 = 8 << 10;

/// Counts evictions.
#[derive(Clone, Debug, Default)]
struct EvictionCount(Arc<AtomicU64>);

impl Lifecycle<CacheKey, Variants> for EvictionCount {
    type RequestState = ();

    fn on_evict(&self, (): &mut (), _key: CacheKey, _variants: Variants) {
        self.0.fetch_add(1, Relaxed);
    }
}

#[derive(Clone, Debug)]
struct EntryWeight;

impl Weighter<CacheKey, Variants> for EntryWeight {
    fn weight(&self, key: &CacheKey, variants: &Variants) -> u64 {
        let key = size_of::<(CacheKey, Variants)>() + KEY_OVERHEAD + key.path.len() + key.origin.host.as_str().len();
        key as u64 + variants.iter().map(|entry| entry.weight()).sum::<u64>()
    }
}

/// Reference counts, the table's own entry, and what the allocator adds, roughly.
const KEY_OVERHEAD: usize = 112;
