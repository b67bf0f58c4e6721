//! The client of a connection: its address, the tunnel that it may be inside of, and its requests under way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::connections::OpenConnection;
use crate::politeness::visit::ClientId;
use crate::politeness::{Origin, Scheme};
use crate::proxy::Shared;
use crate::timeout_stream::Deadline;

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) peer: SocketAddr,
    /// Derived from its address.
    pub(crate) id: ClientId,
    pub(crate) limit: Arc<Deadline>,
    /// Whether requests may come while others are under way, as in HTTP/2.
    many_at_once: bool,
    /// Requests under way.
    busy: AtomicUsize,
    /// Requests so far.
    asked: AtomicU64,
    /// Whether only the end of the connection marks the end of the answer.
    ends_by_close: AtomicBool,
    inside: Option<Inside>,
    /// The client that the table of clients has met on this connection: its number, or 0.
    met: AtomicU64,
    /// Bytes of large request heads that wait.
    pub(crate) heavy: AtomicUsize,
    /// Since when each answer waits for the client to take more of it. Used only where many requests run at once: there
    /// the connection itself may be busy with other answers.
    untaken: Mutex<BTreeMap<u64, Instant>>,
    /// Keeps the connection counted as open until it, or the tunnel that it became, is over.
    open: Arc<OpenClient>,
}

/// The tunnel around a connection.
#[derive(Debug)]
pub(crate) struct Inside {
    /// Where the tunnel goes. Requests inside may be for this origin only.
    pub(crate) origin: Origin,
    /// The user that opened the tunnel.
    pub(crate) user: Option<String>,
    /// The name that the client gave itself in the CONNECT, if it is not a user.
    pub(crate) name: Option<String>,
}

impl Client {
    pub(crate) fn new(shared: &Shared, peer: SocketAddr, limit: Arc<Deadline>, open: Arc<OpenClient>) -> Self {
        Client::of(peer, shared.gate.client(peer.ip().to_canonical()), limit, open)
    }

    fn of(peer: SocketAddr, id: ClientId, limit: Arc<Deadline>, open: Arc<OpenClient>) -> Self {
        Client {
            peer,
            id,
            limit,
            many_at_once: false,
            busy: AtomicUsize::new(0),
            asked: AtomicU64::new(0),
            ends_by_close: AtomicBool::new(false),
            inside: None,
            met: AtomicU64::new(0),
            heavy: AtomicUsize::new(0),
            untaken: Mutex::default(),
            open,
        }
    }

    /// Returns the same client, on an HTTP/2 connection.
    pub(crate) fn with_many_at_once(self) -> Self {
        Client { many_at_once: true, ..self }
    }

    /// Returns the same client, inside a tunnel.
    pub(crate) fn within(&self, inside: Inside, many_at_once: bool) -> Self {
        let limit = Arc::new(Deadline::watched());
        self.open.follow(&limit);
        Client { many_at_once, inside: Some(inside), ..Client::of(self.peer, self.id, limit, self.open.clone()) }
    }

    pub(crate) fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    /// Whether this client was not met on this connection before. Then it is from now on.
    pub(crate) fn is_met_first(&self, id: ClientId) -> bool {
        let is_first = self.met.load(Relaxed) != id.0;
        if is_first {
            self.met.store(id.0, Relaxed);
        }
        is_first
    }

    /// Notes that the table of clients has forgotten the client.
    pub(crate) fn is_forgotten(&self) {
        self.met.store(0, Relaxed);
    }

    pub(crate) fn has_one_at_a_time(&self) -> bool {
        !self.many_at_once
    }

    /// Returns the origin of an intercepted tunnel if the request that has just begun is the first inside it.
    pub(crate) fn first_asked_inside(&self) -> Option<&Origin> {
        let origin = &self.inside.as_ref()?.origin;
        (origin.scheme == Scheme::Https && self.asked.load(Relaxed) == 1).then_some(origin)
    }

    pub(crate) fn has_asked(&self) -> bool {
        self.asked.load(Relaxed) > 0
    }

    /// Notes that the answer has no length and ends when the connection does: HTTP/1.0.
    pub(crate) fn hears_the_end_by_close(&self) {
        self.ends_by_close.store(true, Relaxed);
    }

    pub(crate) fn ends_by_close(&self) -> bool {
        self.ends_by_close.load(Relaxed)
    }

    /// Notes that a piece of an answer was handed on. The next piece is requested only after the client has taken this
    /// one.
    pub(crate) fn is_handed_on(&self, answer: u64) {
        if self.many_at_once {
            self.untaken.lock().insert(answer, clock::now());
        }
    }

    /// Notes that the next piece is requested, or that the answer is over.
    pub(crate) fn is_taken(&self, answer: u64) {
        if self.many_at_once {
            self.untaken.lock().remove(&answer);
        }
    }

    /// Returns the longest time for which the client has taken nothing of an answer.
    pub(crate) fn longest_untaken(&self) -> Duration {
        let since = self.untaken.lock().values().min().copied();
        since.map_or(Duration::ZERO, |since| clock::now() - since)
    }

    /// Notes that a request is under way; its connection has no time limit meanwhile. Returns the number of the
    /// request.
    pub(crate) fn is_busy(&self) -> u64 {
        if self.busy.fetch_add(1, Relaxed) == 0 {
            self.limit.clear();
        }
        self.asked.fetch_add(1, Relaxed)
    }

    /// Notes that a request is over. After the last one, the connection waits for the next request.
    pub(crate) fn is_idle(&self, idle: Duration, head_timeout: Duration, now: Instant) {
        if self.busy.fetch_sub(1, Relaxed) == 1 {
            self.waits(idle, head_timeout, now);
        }
    }

    /// Starts the wait for a request. In HTTP/2 the first bytes may be anything, so there the limit covers the whole
    /// time.
    pub(crate) fn waits(&self, idle: Duration, head_timeout: Duration, now: Instant) {
        if self.many_at_once {
            self.limit.rest_within(idle);
        } else {
            self.limit.begin_within(idle, head_timeout, now);
        }
    }
}

/// An open client connection, counted while it lives.
#[derive(Debug)]
pub(crate) struct OpenClient {
    shared: Arc<Shared>,
    place: OpenConnection,
}

impl OpenClient {
    pub(crate) fn new(shared: Arc<Shared>, place: OpenConnection) -> Self {
        shared.metrics.client_connections.inc();
        OpenClient { shared, place }
    }

    /// Makes another limit responsible for the connection's timeouts from now on.
    pub(crate) fn follow(&self, limit: &Arc<Deadline>) {
        self.place.follow(limit);
    }
}

impl Drop for OpenClient {
    fn drop(&mut self) {
        self.shared.metrics.client_connections.dec();
    }
}
