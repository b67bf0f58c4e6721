//! Remembers URLs whose answers could not be shared lately, so that later requests do not wait for them in vain.
//!
//! A table of fixed size: each slot has part of a hash and the time of the note. Two URLs in one slot replace each
//! other, which costs a wait or a saving, never a wrong answer.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::clock;

/// The number of URLs it can remember: 128 KiB.
const SLOTS: usize = 16_384;
/// How long a note counts, in seconds. Sites change what they say about caching rarely, and with a release.
const REMEMBERED: u64 = 600;
/// Seconds since 1970 fit into this many bits for some centuries.
const SECONDS: u32 = 34;

#[derive(Debug)]
pub(super) struct Unshareable(Box<[AtomicU64]>);

impl Default for Unshareable {
    fn default() -> Self {
        Unshareable((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Unshareable {
    pub(super) fn note(&self, hash: u64) {
        self.slot(hash).store(mark(hash) | now(), Relaxed);
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        let noted = self.slot(hash).load(Relaxed);
        let at = noted & ((1 << SECONDS) - 1);
        noted != 0 && noted >> SECONDS == mark(hash) >> SECONDS && now().saturating_sub(at) < REMEMBERED
    }

    fn slot(&self, hash: u64) -> &AtomicU64 {
        &self.0[hash as usize % SLOTS]
    }
}

fn mark(hash: u64) -> u64 {
    hash >> SECONDS << SECONDS
}

/// The time in seconds, at least one.
fn now() -> u64 {
    clock::micros() / 1_000_000 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_remembered_and_no_other() {
        let unshareable = Unshareable::default();
        let hash = 0xdead_beef_cafe_f00d;
        assert!(!unshareable.has(hash) && !unshareable.has(0));
        unshareable.note(hash);
        assert!(unshareable.has(hash));
        assert!(!unshareable.has(hash ^ 1 << 60), "another one in the same slot");
        unshareable.note(hash ^ 1 << 60);
        assert!(!unshareable.has(hash), "it was replaced");
    }
}
