//! Stored answers: the shared cache (RFC 9111).
//!
//! This module keeps answers and finds them; `politeness/reuse` decides which may be stored and used. Memory is
//! bounded by `cache.memory`, and what survives a restart by `cache.disk`.

mod changes;
pub mod disk;
mod entry;
mod filling;
mod key;
mod memory;
mod ready;
mod unstored;
mod view;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use smallvec::smallvec;

pub use self::changes::ChangeCount;
pub use self::entry::{Entry, EntryTerms, Pieces, head_length, write_head};
pub use self::filling::Filling;
pub use self::key::{CacheKey, CacheKeyRef};
pub use self::memory::{MOST_VARIANTS, Memory, Variants};
pub use self::ready::{CACHE_STATUS, ReadyHeads};
pub use self::view::{AnswerFacts, StoredAnswer};

use self::changes::Changes;
use self::disk::DiskTier;
use self::unstored::Unstored;
use crate::clock;
use crate::politeness::reuse::policy::CacheTime;
use crate::politeness::reuse::storing::NotStored;
use crate::politeness::time::Timestamp;

/// The cache of this process.
#[derive(Debug)]
pub struct Cache {
    pub memory: Arc<Memory>,
    /// None if nothing is kept on disk.
    pub disk: Option<DiskTier>,
    /// The bytes that bodies which are being stored have reserved, and the most that they may.
    filling: AtomicU64,
    filling_most: u64,
    pub ready: ReadyHeads,
    changes: Changes,
    unstored: Unstored,
}

/// This part of the memory is for bodies that are being stored and for heads that are ready to be served; the rest is
/// for stored answers.
const OTHER_SHARE: u64 = 8;
/// Heads that are ready may take this part: about 1 000 with the usual 64 MiB.
const READY_SHARE: u64 = 64;

impl Cache {
    /// A cache that keeps at most this many bytes in memory, and nothing on disk.
    pub fn new(memory: u64) -> Self {
        Cache::with_disk(memory, None)
    }

    pub fn with_disk(memory: u64, disk: Option<DiskTier>) -> Self {
        let (other, ready) = (memory / OTHER_SHARE, memory / READY_SHARE);
        let (filling, filling_most, ready) = (AtomicU64::new(0), other - ready, ReadyHeads::new(ready));
        let (memory, changes) = (Arc::new(Memory::new(memory - other)), Changes::default());
        disk.iter().for_each(|disk| disk.watch(&memory));
        Cache { memory, disk, filling, filling_most, ready, changes, unstored: Unstored::default() }
    }

    /// Returns what memory has for a URL.
    pub fn at_hand(&self, key: &CacheKeyRef<'_>) -> Option<Variants> {
        self.memory.get(key)
    }

    /// Returns the newest answer on disk that `suits`. A small one is in memory afterwards. The disk has 250 ms.
    pub async fn from_disk(&self, key: &CacheKeyRef<'_>, suits: impl Fn(&Entry) -> bool) -> Option<Variants> {
        let disk = self.disk.as_ref()?;
        for place in disk.find(key) {
            let Some(entry) = disk.read(key, place).await.filter(&suits).map(Arc::new) else { continue };
            if entry.large().is_none() {
                self.memory.store(key.to_key(), entry.clone());
            }
            // It may have been forgotten while it was read. Then it must not stay in memory.
            if !disk.has(key, place) {
                self.memory.remove_entry(key, &entry);
                return None;
            }
            return Some(smallvec![entry]);
        }
        None
    }

    /// Returns how often the answers for a URL were removed. A request remembers it, for [`Cache::store`].
    pub fn change_count(&self, key: &CacheKeyRef<'_>) -> ChangeCount {
        self.changes.of(key.hash_code())
    }

    /// Stores the answer to a request that was made at this count of changes.
    pub fn store(&self, key: &CacheKey, entry: Arc<Entry>, asked: ChangeCount) -> Result<(), NotStored> {
        let hash = key.hash_code();
        self.check_unchanged(hash, asked)?;
        if let Some(disk) = &self.disk {
            disk.put(key.clone(), entry.clone());
        }
        let is_stored = self.memory.store(key.clone(), entry) || self.disk.is_some();
        // The URL may have changed in this very moment.
        self.check_unchanged(hash, asked).inspect_err(|_| self.remove(&key.borrowed()))?;
        if !is_stored {
            return Err(NotStored::TooLarge);
        }
        self.unstored.clear(hash);
        Ok(())
    }

    /// Notes why an answer for a URL was not stored.
    pub fn note_unstored(&self, key: &CacheKeyRef<'_>, reason: NotStored) {
        self.unstored.note(key.hash_code(), reason);
    }

    fn check_unchanged(&self, hash: u64, asked: ChangeCount) -> Result<(), NotStored> {
        if self.changes.of(hash) == asked { Ok(()) } else { Err(NotStored::Invalidated) }
    }

    /// Stores an entry again whose head has changed and whose body has not: after a 304, or a HEAD that agrees. The
    /// request was made at this count of changes.
    pub fn refresh(&self, key: &CacheKey, entry: Arc<Entry>, asked: ChangeCount) -> Result<(), NotStored> {
        let hash = key.hash_code();
        self.check_unchanged(hash, asked)?;
        if let Some(disk) = &self.disk {
            disk.refresh(key.clone(), entry.clone());
        }
        if entry.large().is_none() {
            self.memory.store(key.clone(), entry);
        }
        self.check_unchanged(hash, asked).inspect_err(|_| self.remove(&key.borrowed()))
    }

    /// Removes one entry of a URL.
    pub fn remove_entry(&self, key: &CacheKeyRef<'_>, entry: &Arc<Entry>) {
        if let Some(disk) = &self.disk {
            disk.forget_like(key, entry);
        }
        self.memory.remove_entry(key, entry);
    }

    /// Removes all answers for a URL.
    pub fn remove(&self, key: &CacheKeyRef<'_>) {
        self.changes.count(key.hash_code());
        // The disk comes first: what `from_disk` reads at this moment is checked against it afterwards.
        if let Some(disk) = &self.disk {
            disk.forget(key);
        }
        self.memory.remove(key);
    }
}

/// Now, on both clocks.
pub fn now() -> CacheTime {
    let wall = clock::wall().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    let wall = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
    CacheTime { steady: Timestamp::from_micros(clock::micros()), wall: Timestamp::from_micros(wall) }
}
