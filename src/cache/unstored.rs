//! Remembers why the last answer for a URL was not stored, for people.
//!
//! A table of fixed size: each slot has part of a hash and a reason. Two URLs in one slot replace each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::politeness::reuse::storing::NotStored;

/// The number of URLs it can remember: 32 KiB.
const SLOTS: usize = 4_096;
/// A reason takes this many bits; 0 is none.
const REASON: u64 = 0xff;

#[derive(Debug)]
pub(super) struct Unstored(Box<[AtomicU64]>);

impl Default for Unstored {
    fn default() -> Self {
        Unstored((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Unstored {
    pub(super) fn note(&self, hash: u64, reason: NotStored) {
        self.slot(hash).store(hash & !REASON | (reason as u64 + 1), Relaxed);
    }

    /// Forgets the reason: an answer was stored.
    pub(super) fn clear(&self, hash: u64) {
        if self.of(hash).is_some() {
            self.slot(hash).store(0, Relaxed);
        }
    }

    pub(super) fn of(&self, hash: u64) -> Option<NotStored> {
        let noted = self.slot(hash).load(Relaxed);
        let reason = usize::try_from(noted & REASON).ok()?.checked_sub(1)?;
        NotStored::ALL.get(reason).copied().filter(|_| noted & !REASON == hash & !REASON)
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.0[(hash >> 32) as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reason_of_a_url_is_remembered() {
        let unstored = Unstored::default();
        let (hash, neighbour) = (0xdead_beef_cafe_f00d, 0xdead_beef_cafe_000d);
        for reason in NotStored::ALL {
            unstored.note(hash, reason);
            assert_eq!((unstored.of(hash), unstored.of(neighbour)), (Some(reason), None), "{reason:?}");
        }
        unstored.clear(neighbour);
        assert!(unstored.of(hash).is_some());
        unstored.clear(hash);
        assert_eq!((unstored.of(hash), unstored.of(0)), (None, None));
    }
}
