//! Who is at the other end of a connection, and what the connection is for.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Shared;
use super::worker::Open;
use crate::clock;
use crate::patience::Limit;
use crate::politeness::Origin;
use crate::politeness::visit::ClientId;

#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: SocketAddr,
    /// By its address.
    pub(super) id: ClientId,
    pub(super) limit: Arc<Limit>,
    /// Whether requests may come while others are under way, as in HTTP/2.
    many_at_once: bool,
    /// Requests under way.
    busy: AtomicUsize,
    /// Requests that there ever were.
    asked: AtomicU64,
    /// Whether only the end of the connection says where its answer ends.
    ends_by_close: AtomicBool,
    inside: Option<Inside>,
    /// Bytes of large heads that wait.
    pub(super) heavy: AtomicUsize,
    /// Since when answers wait for the client to take more of them, where there are many at once: the connection itself
    /// may be busy with others.
    untaken: Mutex<BTreeMap<u64, Instant>>,
    /// Counted as open until the connection, or the tunnel that it became, is over.
    open: Arc<Open>,
}

/// The tunnel that a connection is inside of.
#[derive(Debug)]
pub(super) struct Inside {
    /// Where it leads, and all that may be asked for in it.
    pub(super) origin: Origin,
    /// Who opened it.
    pub(super) user: Option<String>,
    /// By which name it went then, if it is no user.
    pub(super) name: Option<String>,
}

impl Client {
    pub(super) fn new(shared: &Shared, peer: SocketAddr, limit: Arc<Limit>, open: Arc<Open>) -> Self {
        Client {
            peer,
            id: shared.gate.client(peer.ip()),
            limit,
            many_at_once: false,
            busy: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            ends_by_close: AtomicBool::new(false),
            inside: None,
            heavy: AtomicUsize::new(0),
            untaken: Mutex::default(),
            open,
        }
    }

    /// The same client on a connection of HTTP/2.
    pub(super) fn with_many_at_once(self) -> Self {
        Client { many_at_once: true, ..self }
    }

    /// The same client inside of a tunnel.
    pub(super) fn within(&self, inside: Inside, many_at_once: bool) -> Self {
        let limit = Arc::new(Limit::watched());
        self.open.follow(&limit);
        Client {
            peer: self.peer,
            id: self.id,
            limit,
            many_at_once,
            busy: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            ends_by_close: AtomicBool::new(false),
            inside: Some(inside),
            heavy: AtomicUsize::new(0),
            untaken: Mutex::default(),
            open: self.open.clone(),
        }
    }

    pub(super) fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    pub(super) fn has_one_at_a_time(&self) -> bool {
        !self.many_at_once
    }

    pub(super) fn has_asked(&self) -> bool {
        self.asked.load(Relaxed) > 0
    }

    /// Its answer has no length, and ends when the connection does: HTTP/1.0.
    pub(super) fn hears_the_end_by_close(&self) {
        self.ends_by_close.store(true, Relaxed);
    }

    pub(super) fn ends_by_close(&self) -> bool {
        self.ends_by_close.load(Relaxed)
    }

    /// A piece of an answer was handed on, and the next is not asked for before the client has taken it.
    pub(super) fn is_handed_on(&self, answer: u64) {
        if self.many_at_once {
            self.untaken.lock().insert(answer, clock::now());
        }
    }

    /// The next piece is asked for, or nobody wants it any more.
    pub(super) fn is_taken(&self, answer: u64) {
        if self.many_at_once {
            self.untaken.lock().remove(&answer);
        }
    }

    /// How long the client has taken nothing of an answer, at the worst.
    pub(super) fn longest_untaken(&self) -> Duration {
        let since = self.untaken.lock().values().min().copied();
        since.map_or(Duration::ZERO, |since| clock::now() - since)
    }

    /// A request is under way, and takes as long as it takes. Answers its number.
    pub(super) fn is_busy(&self) -> u64 {
        if self.busy.fetch_add(1, Relaxed) == 0 {
            self.limit.clear();
        }
        self.asked.fetch_add(1, Relaxed)
    }

    /// A request is over. When it was the last, the connection waits for the next one.
    pub(super) fn is_idle(&self, idle: Duration, head_timeout: Duration, now: Instant) {
        if self.busy.fetch_sub(1, Relaxed) == 1 {
            self.waits(idle, head_timeout, now);
        }
    }

    /// The connection waits for a request. What comes first in HTTP/2 may be anything, so there the whole time counts.
    pub(super) fn waits(&self, idle: Duration, head_timeout: Duration, now: Instant) {
        if self.many_at_once {
            self.limit.rest_within(idle);
        } else {
            self.limit.begin_within(idle, head_timeout, now);
        }
    }
}
