//! Host to lane.
//!
//! Bounded: hosts that nobody has visited for a while are forgotten, but never one to which something is owed (a waiter,
//! a permit, a hold, an unfinished interval). When the registry is full of promises, new hosts share one lane, which is
//! slower for them and breaks no promise.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::RwLock;

use super::shared_lane::SharedLane;
use crate::politeness::HostKey;
use crate::politeness::lane::Lane;
use crate::politeness::policy::PolicyBook;
use crate::politeness::time::Timestamp;

/// Looking through all lanes holds one shard at a time; with 256 the longest wait measured was about a millisecond at a
/// million hosts.
const SHARDS: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Hosts kept.
    pub most: usize,
    /// Without a visit for this long, a host may be forgotten.
    pub idle: Duration,
}

#[derive(Debug)]
pub(super) struct Registry {
    lanes: DashMap<HostKey, Arc<SharedLane>>,
    /// Asking the map would lock all its shards.
    count: AtomicUsize,
    bounds: RwLock<Bounds>,
    /// For hosts that find no room.
    crowded: RwLock<Option<Arc<SharedLane>>>,
}

impl Registry {
    pub(super) fn new(bounds: Bounds) -> Self {
        Registry {
            lanes: DashMap::with_shard_amount(SHARDS),
            count: AtomicUsize::new(0),
            bounds: RwLock::new(bounds),
            crowded: RwLock::new(None),
        }
    }

    pub(super) fn lane(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Arc<SharedLane> {
        if let Some(lane) = self.lanes.get(host) {
            return lane.clone();
        }
        if self.len() >= self.bounds.read().most {
            self.sweep(now);
            if self.len() >= self.bounds.read().most {
                return self.crowded(book, now);
            }
        }
        let entry = self.lanes.entry(host.clone()).or_insert_with(|| {
            self.count.fetch_add(1, Relaxed);
            let seed = fastrand::u64(..);
            Arc::new(SharedLane::new(Lane::new(book.policy(host.as_str()), seed), now))
        });
        entry.clone()
    }

    fn crowded(&self, book: &PolicyBook, now: Timestamp) -> Arc<SharedLane> {
        let mut crowded = self.crowded.write();
        let lane = crowded.get_or_insert_with(|| Arc::new(SharedLane::new(Lane::new(book.general, 0), now)));
        lane.clone()
    }

    pub(super) fn change(&self, book: &PolicyBook, bounds: Bounds, now: Timestamp) {
        *self.bounds.write() = bounds;
        for entry in &self.lanes {
            entry.value().change(book.policy(entry.key().as_str()), now);
        }
        if let Some(lane) = &*self.crowded.read() {
            lane.change(book.general, now);
        }
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        let idle = self.bounds.read().idle;
        self.lanes.retain(|_, lane| {
            // Lanes are cloned under the same lock, so a single owner seen here cannot gain a second.
            let keep = Arc::strong_count(lane) > 1
                || lane.look(|state| {
                    let policy = state.lane.policy();
                    let needed = idle.max(policy.delay.saturating_mul(policy.burst));
                    state.lane.owes(now) || now.since(state.last_used()) < needed
                });
            if !keep {
                self.count.fetch_sub(1, Relaxed);
            }
            keep
        });
    }

    pub(super) fn len(&self) -> usize {
        self.count.load(Relaxed)
    }
}
