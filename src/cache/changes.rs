//! Counts how often the answers for a URL were removed, so that an answer that was asked for before is not stored
//! after.
//!
//! URLs share counts by their hash, so memory is bounded. A URL whose count another URL raised is a needless miss.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// How often the answers for a URL, or one with the same hash, were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChangeCount(u32);

#[derive(Debug)]
pub(super) struct Changes([AtomicU32; COUNTS]);

impl Changes {
    pub(super) fn of(&self, hash: u64) -> ChangeCount {
        ChangeCount(self.place(hash).load(SeqCst))
    }

    /// Counts a removal.
    pub(super) fn count(&self, hash: u64) {
        self.place(hash).fetch_add(1, SeqCst);
    }

    /// Counts a removal for every URL.
    pub(super) fn count_all(&self) {
        self.0.iter().for_each(|count| {
            count.fetch_add(1, SeqCst);
        });
    }

    fn place(&self, hash: u64) -> &AtomicU32 {
        // The low bits choose a lock of the memory tier.
        &self.0[(hash >> 32) as usize % COUNTS]
    }
}

impl Default for Changes {
    fn default() -> Self {
        Changes(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

/// 4 KiB. With 100 requests under way, one removal in ten makes a needless miss.
const COUNTS: usize = 1_024;
