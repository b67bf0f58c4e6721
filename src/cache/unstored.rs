//! Remembers why the last answer for a URL was not stored: for people, and so that the next request does not prepare
//! for an answer that will hardly be stored either.
//!
//! A table of fixed size: each slot has part of a hash and a reason. Two URLs in one slot replace each other.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::politeness::reuse::storing::{NotStored, will_recur};

/// The number of URLs it can remember: 32 KiB.
const SLOTS: usize = 4_096;
/// The bits of a reason; 0 is none.
const REASON: u64 = 0x7f;
/// Set if the site has said so twice in a row.
const RECURS: u64 = 0x80;
const NOTE: u64 = REASON | RECURS;

#[derive(Debug)]
pub(super) struct Unstored(Box<[AtomicU64]>);

impl Default for Unstored {
    fn default() -> Self {
        Unstored((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Unstored {
    /// Notes a reason. `is_usual` says that it was an ordinary request, which others resemble.
    pub(super) fn note(&self, hash: u64, reason: NotStored, is_usual: bool) {
        let recurs = is_usual && will_recur(reason) && self.of(hash).is_some_and(will_recur);
        self.slot(hash).store(hash & !NOTE | (reason as u64 + 1) | if recurs { RECURS } else { 0 }, Relaxed);
    }

    /// Whether the answer to an ordinary request for this URL will hardly be stored.
    pub(super) fn will_recur(&self, hash: u64) -> bool {
        let noted = self.slot(hash).load(Relaxed);
        noted & RECURS != 0 && noted & !NOTE == hash & !NOTE
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
        NotStored::ALL.get(reason).copied().filter(|_| noted & !NOTE == hash & !NOTE)
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
            unstored.note(hash, reason, false);
            assert_eq!((unstored.of(hash), unstored.of(neighbour)), (Some(reason), None), "{reason:?}");
        }
        unstored.clear(neighbour);
        assert!(unstored.of(hash).is_some());
        unstored.clear(hash);
        assert_eq!((unstored.of(hash), unstored.of(0)), (None, None));
    }

    #[test]
    fn only_what_a_site_says_twice_in_a_row_recurs() {
        use NotStored::{NoStore, Private, Status, Unexpected};
        for (reasons, recurs) in [
            (&[(NoStore, true)][..], false),
            (&[(NoStore, true), (Private, true)], true),
            (&[(NoStore, true), (NoStore, false)], false),
            (&[(NoStore, true), (NoStore, true), (NoStore, true), (Unexpected, true)], false),
            (&[(NoStore, true), (Unexpected, true), (NoStore, true)], false),
            (&[(Status, true), (Status, true)], false),
        ] {
            let (unstored, hash) = (Unstored::default(), 0xdead_beef_cafe_f00d);
            reasons.iter().for_each(|(reason, is_usual)| unstored.note(hash, *reason, *is_usual));
            assert_eq!((unstored.will_recur(hash), unstored.will_recur(hash ^ 1 << 9)), (recurs, false), "{reasons:?}");
            assert_eq!(unstored.of(hash), reasons.last().map(|(reason, _)| *reason));
        }
    }
}
