//! How this node stands to one server of the ledger, and what it started there alone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use super::link::LedgerError;
use super::local_now;
use crate::politeness::fleet::node::Node;
use crate::politeness::fleet::slots::Slots;
use crate::politeness::fleet::standing::StandingState;

/// At most so many hosts visited alone are told to the ledger. Beyond that, its own doubt covers them.
const MOST_ALONE: usize = 100_000;

#[derive(Debug)]
pub(super) struct ShardState {
    pub(super) node: Mutex<Node>,
    /// The last start without a claim by host, on the ledger's clock, and how long it matters, in milliseconds.
    alone: Mutex<HashMap<String, (u64, u64)>>,
    /// Why the node is alone.
    trouble: Mutex<Option<LedgerError>>,
    /// Keys that the server had evicted at the first heartbeat.
    evicted: Mutex<Option<u64>>,
    /// Whether the log says that it evicts more.
    reported: AtomicBool,
}

impl ShardState {
    pub(super) fn new(slots: Slots, timeout: u64) -> Self {
        ShardState {
            node: Mutex::new(Node::new(slots, timeout, local_now())),
            alone: Mutex::default(),
            trouble: Mutex::default(),
            evicted: Mutex::default(),
            reported: AtomicBool::new(false),
        }
    }

    pub(super) fn state(&self) -> StandingState {
        self.node.lock().state()
    }

    pub(super) fn trouble(&self) -> Option<LedgerError> {
        self.trouble.lock().clone()
    }

    /// Notes that a call failed, and logs it if the node has become alone by it.
    pub(super) fn failed(&self, error: &LedgerError) {
        let is_new = self.node.lock().failed(local_now());
        *self.trouble.lock() = Some(error.clone());
        if is_new {
            let (cause, advice) = (error.word(), error.to_string());
            tracing::warn!(event = "fleet.alone", cause, advice, "this node goes on alone: each host gets its share");
        }
    }

    /// Takes how many keys the server has evicted so far. Logs once that there are more than at the first heartbeat.
    pub(super) fn has_evicted(&self, evicted: u64) {
        let before = *self.evicted.lock().get_or_insert(evicted);
        if evicted > before && !self.reported.swap(true, Relaxed) {
            let advice = "CONFIG SET maxmemory-policy noeviction";
            tracing::warn!(
                event = "fleet.evicted",
                advice,
                "Redis evicts keys: it may forget when a host was visited, and a request may start a delay early"
            );
        }
    }

    /// Logs a new state.
    pub(super) fn is_now(&self, state: StandingState) {
        if state == StandingState::Joined {
            *self.trouble.lock() = None;
        }
        let (nodes, rank) = {
            let node = self.node.lock();
            (node.standing().slots().nodes, node.standing().slots().rank)
        };
        tracing::info!(event = "fleet.state", state = state.word(), nodes, rank, "this node's place in the fleet");
    }

    pub(super) fn started_alone(&self, host: &str, at: u64, keep_ms: u64) {
        let mut alone = self.alone.lock();
        if alone.len() < MOST_ALONE || alone.contains_key(host) {
            alone.insert(host.to_owned(), (at, keep_ms));
        }
    }

    /// Takes the starts that still matter.
    pub(super) fn take_alone(&self) -> Vec<(String, (u64, u64))> {
        let now = local_now();
        let theirs = self.node.lock().theirs(now, now);
        let starts = std::mem::take(&mut *self.alone.lock());
        starts.into_iter().filter(|(_, (at, keep_ms))| at + keep_ms * 1_000 > theirs).collect()
    }
}
