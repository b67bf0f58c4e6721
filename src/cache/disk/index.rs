//! Where every stored response is on disk, in memory.
//!
//! The key is a hash of URL and partition with a seed of this process. Two URLs with one hash do not matter: a record
//! is used only if it has the URL that was asked for. So the index needs some 90 bytes for each response.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::files::SegmentName;

/// Where a response is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskPlace {
    /// Row of the catalogue.
    pub(super) id: u64,
    /// Length of the whole record.
    pub(super) length: u64,
    pub(super) segment: u32,
    pub(super) offset: u32,
    /// Length of the record up to the body.
    pub(super) head_length: u32,
    /// Hash of what distinguishes the variants of a URL.
    pub(super) variant: u32,
    /// Reads since it was written.
    pub(super) hits: u16,
    pub(super) is_large: bool,
    /// The digest of a large response is known to be right.
    pub(super) is_checked: bool,
    /// The catalogue has a newer head than the record.
    pub(super) is_revised: bool,
    /// The wall clock was set since it was stored, so its age is unknown.
    pub(super) is_suspect: bool,
}

impl DiskPlace {
    pub(super) fn segment(&self) -> SegmentName {
        SegmentName { number: self.segment, is_large: self.is_large }
    }
}

/// A hash of URL and partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct UrlHash(u64);

#[derive(Debug)]
pub(super) struct DiskIndex {
    seed: RandomState,
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<UrlHash, SmallVec<[DiskPlace; 1]>, foldhash::fast::RandomState>,
    /// URLs that were forgotten while responses for them may still be in the writer's queue. A response that was
    /// queued before must not be indexed.
    forgotten: HashMap<UrlHash, u64>,
}

impl DiskIndex {
    pub(super) fn new() -> DiskIndex {
        DiskIndex { seed: RandomState::default(), shards: std::array::from_fn(|_| Mutex::default()) }
    }

    pub(super) fn hash(&self, url: &str, partition: &str) -> UrlHash {
        let mut hasher = self.seed.build_hasher();
        hasher.write(url.as_bytes());
        hasher.write_u8(0xff);
        hasher.write(partition.as_bytes());
        UrlHash(hasher.finish())
    }

    /// Returns the variants of a URL, the newest first.
    pub(super) fn get(&self, url: UrlHash) -> SmallVec<[DiskPlace; 1]> {
        self.shard(url).places.get(&url).cloned().unwrap_or_default()
    }

    /// Adds a response that was queued as number `queued`, in front of older variants. Returns the places that it
    /// replaces: the same variant, and the oldest if there are too many. If the URL was forgotten since, returns the
    /// place itself.
    pub(super) fn put(&self, url: UrlHash, place: DiskPlace, queued: u64) -> SmallVec<[DiskPlace; 1]> {
        let mut shard = self.shard(url);
        if shard.forgotten.get(&url).is_some_and(|since| queued < *since) {
            return SmallVec::from_elem(place, 1);
        }
        let places = shard.places.entry(url).or_default();
        let mut replaced: SmallVec<[DiskPlace; 1]> =
            places.iter().filter(|old| old.variant == place.variant).copied().collect();
        places.retain(|old| old.variant != place.variant);
        places.insert(0, place);
        replaced.extend(places.drain(places.len().min(MOST_VARIANTS)..));
        replaced
    }

    /// Removes the response with this row, if it is still the one. Returns what was known about it.
    pub(super) fn remove(&self, url: UrlHash, id: u64) -> Option<DiskPlace> {
        let mut shard = self.shard(url);
        let places = shard.places.get_mut(&url)?;
        let at = places.iter().position(|place| place.id == id)?;
        let place = places.remove(at);
        if places.is_empty() {
            shard.places.remove(&url);
        }
        Some(place)
    }

    /// Removes every variant of a URL, and refuses those that were queued before number `next`.
    pub(super) fn forget(&self, url: UrlHash, next: u64) -> SmallVec<[DiskPlace; 1]> {
        let mut shard = self.shard(url);
        shard.forgotten.insert(url, next);
        shard.places.remove(&url).unwrap_or_default()
    }

    /// Drops the memory of forgotten URLs. Only when the queue was empty and every row is loaded.
    pub(super) fn settle(&self, queued: u64) {
        for shard in &self.shards {
            shard.lock().forgotten.retain(|_, since| *since > queued);
        }
    }

    /// Changes what is known about a response, if it is still there.
    pub(super) fn change(&self, url: UrlHash, id: u64, change: impl FnOnce(&mut DiskPlace)) {
        let mut shard = self.shard(url);
        let place = shard.places.get_mut(&url).and_then(|places| places.iter_mut().find(|place| place.id == id));
        if let Some(place) = place {
            change(place);
        }
    }

    /// Whether there is a large response whose digest was never checked.
    pub(super) fn has_unchecked_large(&self) -> bool {
        let is_unchecked = |place: &DiskPlace| place.is_large && !place.is_checked;
        self.shards.iter().any(|shard| shard.lock().places.values().flatten().any(is_unchecked))
    }

    pub(super) fn clear(&self) {
        for shard in &self.shards {
            shard.lock().places.clear();
        }
    }

    fn shard(&self, url: UrlHash) -> parking_lot::MutexGuard<'_, Shard> {
        self.shards[(url.0 >> 32) as usize % SHARDS].lock()
    }
}

/// More than the cores of usual machines, so that workers rarely wait for each other.
const SHARDS: usize = 64;
/// Variants of one URL, as in memory.
const MOST_VARIANTS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(id: u64, variant: u32) -> DiskPlace {
        DiskPlace {
            id,
            length: 1,
            segment: 1,
            offset: 0,
            head_length: 1,
            variant,
            hits: 0,
            is_large: false,
            is_checked: true,
            is_revised: false,
            is_suspect: false,
        }
    }

    fn ids(places: &[DiskPlace]) -> Vec<u64> {
        places.iter().map(|place| place.id).collect()
    }

    #[test]
    fn a_variant_replaces_itself_and_the_oldest_goes() {
        let index = DiskIndex::new();
        let url = index.hash("http://a.example/", "");
        assert!(index.put(url, place(1, 1), 1).is_empty());
        assert!(index.put(url, place(2, 2), 2).is_empty());
        assert_eq!(ids(&index.put(url, place(3, 1), 3)), [1]);
        assert_eq!(ids(&index.get(url)), [3, 2]);
        for variant in 3..=16 {
            assert!(index.put(url, place(u64::from(variant) + 10, variant), 4).is_empty());
        }
        assert_eq!(ids(&index.put(url, place(99, 99), 5)), [2]);
        assert_eq!(index.get(url).len(), MOST_VARIANTS);
    }

    #[test]
    fn partitions_are_told_apart() {
        let index = DiskIndex::new();
        let url = "http://a.example/";
        assert_ne!(index.hash(url, ""), index.hash(url, "client"));
        assert_ne!(index.hash("ab", "c"), index.hash("a", "bc"));
    }

    /// An unsafe request forgets a URL while an older answer for it waits in the queue.
    #[test]
    fn what_was_queued_before_it_was_forgotten_stays_forgotten() {
        let index = DiskIndex::new();
        let url = index.hash("http://a.example/", "");
        index.put(url, place(1, 1), 1);
        assert_eq!(ids(&index.forget(url, 5)), [1]);
        assert_eq!(ids(&index.put(url, place(2, 1), 4)), [2], "it is handed back, to be deleted");
        assert!(index.get(url).is_empty());
        assert!(index.put(url, place(3, 1), 5).is_empty());
        index.settle(5);
        assert_eq!(ids(&index.get(url)), [3]);
        assert!(index.put(url, place(4, 2), 0).is_empty(), "the queue was empty in between");
    }

    #[test]
    fn a_newer_response_is_not_removed_with_an_older_row() {
        let index = DiskIndex::new();
        let url = index.hash("http://a.example/", "");
        index.put(url, place(1, 1), 1);
        index.put(url, place(2, 1), 2);
        assert_eq!(index.remove(url, 1), None);
        assert_eq!(index.remove(url, 2).map(|place| place.id), Some(2));
        assert!(index.get(url).is_empty());
    }

    #[test]
    fn an_entry_is_small() {
        assert!(std::mem::size_of::<(UrlHash, SmallVec<[DiskPlace; 1]>)>() <= 72);
    }
}
