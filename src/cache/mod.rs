//! Stored answers: the shared cache (RFC 9111).
//!
//! This module keeps answers and finds them; `politeness/reuse` decides which may be stored and used. Memory is
//! bounded by `cache.memory`.

mod entry;
mod filling;
mod key;
mod memory;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub use self::entry::{Entry, EntryTerms, Pieces, head_length, write_head};
pub use self::filling::Filling;
pub use self::key::{CacheKey, CacheKeyRef};
pub use self::memory::{MOST_VARIANTS, Memory, Variants};

use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::reuse::policy::CacheTime;
use crate::politeness::time::Timestamp;

/// The cache of this process.
#[derive(Debug)]
pub struct Cache {
    pub memory: Memory,
    /// The bytes that bodies which are being stored have reserved, and the most that they may.
    filling: AtomicU64,
    filling_most: u64,
}

/// Bodies that are being stored may take this part of the memory; the rest is for stored answers.
const FILLING_SHARE: u64 = 8;

impl Cache {
    /// A cache that keeps at most this many bytes in memory.
    pub fn new(memory: u64) -> Self {
        let filling_most = memory / FILLING_SHARE;
        Cache { memory: Memory::new(memory - filling_most), filling: AtomicU64::new(0), filling_most }
    }

    /// Returns what memory has for a URL.
    pub fn at_hand(&self, key: &CacheKeyRef<'_>) -> Option<Arc<Variants>> {
        self.memory.get(key)
    }

    /// Stores an entry. Returns false if no tier takes it.
    pub fn store(&self, key: CacheKey, entry: Arc<Entry>) -> bool {
        self.memory.store(key, entry)
    }

    /// Removes one entry of a URL.
    pub fn remove_entry(&self, key: &CacheKeyRef<'_>, entry: &Arc<Entry>) {
        self.memory.remove_entry(key, entry);
    }

    /// Removes all answers for a URL, and returns how many there were.
    pub fn remove(&self, key: &CacheKeyRef<'_>) -> usize {
        self.memory.remove(key)
    }

    /// Removes all answers of a host, and returns how many there were.
    pub fn remove_host(&self, host: &HostKey) -> usize {
        self.memory.remove_where(|key| key.origin.host == *host)
    }

    /// Removes everything, and returns how many answers there were.
    pub fn clear(&self) -> usize {
        self.memory.remove_where(|_| true)
    }
}

/// Now, on both clocks.
pub fn now() -> CacheTime {
    let wall = clock::wall().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    let wall = u64::try_from(wall.as_micros()).unwrap_or(u64::MAX);
    CacheTime { steady: Timestamp::from_micros(clock::micros()), wall: Timestamp::from_micros(wall) }
}
