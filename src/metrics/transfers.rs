//! Bytes of bodies and tunnels, by sender and receiver.
//!
//! Each piece that passes through is counted once, with one atomic add, and reported for both ends when metrics are
//! scraped. Heads are not counted, and neither is what curtsy fetches for itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus::{IntCounter, Registry};

use super::register::counters;

#[derive(Debug)]
pub struct Transfers {
    /// From clients to origins.
    up: AtomicU64,
    /// From origins to clients.
    down: AtomicU64,
    /// From curtsy itself to clients.
    own: AtomicU64,
    from_clients: IntCounter,
    to_clients: IntCounter,
    from_origins: IntCounter,
    to_origins: IntCounter,
}

impl Transfers {
    pub(super) fn new(registry: &Registry) -> Self {
        let bytes = counters(
            registry,
            "curtsy_transferred_bytes_total",
            "Bytes of bodies and tunnels, received from clients or origins and sent to them.",
            &["peer", "direction"],
        );
        let bytes = |peer, direction| bytes.with_label_values(&[peer, direction]);
        Transfers {
            up: AtomicU64::new(0),
            down: AtomicU64::new(0),
            own: AtomicU64::new(0),
            from_clients: bytes("client", "received"),
            to_clients: bytes("client", "sent"),
            from_origins: bytes("origin", "received"),
            to_origins: bytes("origin", "sent"),
        }
    }

    /// Counts a client's bytes sent to an origin.
    pub fn up(&self, bytes: u64) {
        self.up.fetch_add(bytes, Relaxed);
    }

    /// Counts an origin's bytes sent to a client.
    pub fn down(&self, bytes: u64) {
        self.down.fetch_add(bytes, Relaxed);
    }

    /// Counts the bytes of a response that curtsy made itself.
    pub fn own(&self, bytes: u64) {
        self.own.fetch_add(bytes, Relaxed);
    }

    pub(super) fn show(&self) {
        let [up, down, own] = [&self.up, &self.down, &self.own].map(|bytes| bytes.load(Relaxed));
        for (counter, bytes) in [
            (&self.from_clients, up),
            (&self.to_origins, up),
            (&self.from_origins, down),
            (&self.to_clients, down + own),
        ] {
            counter.inc_by(bytes.saturating_sub(counter.get()));
        }
    }
}
