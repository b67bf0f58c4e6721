//! The way to origins: ready connections, requests sent on them, tunnels.
//!
//! Opening a connection and sending on it are two steps on purpose: [`Upstream::ready`] does everything that takes
//! time, so that a request can start the moment it may. Each worker has an [`Upstream`] of its own (the pool stays in
//! one runtime); they share only the [`Resolver`].

mod body;
mod chunked;
mod connection;
mod dial;
mod error;
#[cfg(fuzzing)]
pub mod fuzzing;
mod guard;
mod head;
mod http1;
mod http2;
mod lookups;
mod message;
mod open;
mod orphan;
mod parent;
mod pool;
mod reply;
mod resolve;
mod stream;
mod tls;
mod tls_fault;

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use smallvec::{SmallVec, smallvec};
use tokio::time::Instant;

use self::connection::Connection;
use self::http2::{Limits, Link, Links, StreamOutcome, StreamSlot};
use self::pool::{Destination, Pool};

pub use self::body::RequestBody;
#[cfg(not(fuzzing))]
pub(crate) use self::chunked::{Chunks, Piece};
pub use self::error::{BodyFault, UpstreamError};
pub use self::guard::{Denied, Guard};
pub use self::lookups::{CURTSY, Lookup};
pub use self::message::Message;
pub use self::orphan::{Orphan, SendWatch};
pub use self::reply::{Broken, Reply};
pub use self::resolve::Resolver;
pub use self::stream::Stream;
pub use self::tls::{BadRoots, Trust, system_certificates};
pub use self::tls_fault::{CertificateFault, HandshakeFault};

use crate::clock;
use crate::config::{self, Key};
use crate::metrics::Metrics;
use crate::politeness::visit::ClientId;
use crate::politeness::{HostKey, Origin};

#[derive(Debug)]
pub struct Upstream {
    resolver: Arc<Resolver>,
    pool: Arc<Pool>,
    links: Links,
    metrics: Arc<Metrics>,
}

/// The settings of one request: they may change from one request to the next.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub config: &'a config::Upstream,
    pub guard: &'a Guard,
    pub trust: &'a Trust,
    pub head_size: usize,
    /// Counts changes of the settings: a connection opened under other settings is not used again.
    pub generation: u64,
    /// Whether the request may go over HTTP/2 if the origin speaks it.
    pub http2: bool,
    /// The client whose share of the look-ups the request uses.
    pub client: ClientId,
    /// The only address that the request may go to: that of the lane it waits in, if lanes are per address.
    pub only: Option<IpAddr>,
}

impl Terms<'_> {
    /// Returns the same terms for a request of this client.
    #[must_use]
    pub fn of(self, client: ClientId) -> Self {
        Terms { client, ..self }
    }
}

/// A lane that a request may wait in, and the address it leads to if lanes are per address.
#[derive(Clone, Debug)]
pub struct LaneAddress {
    pub budget: HostKey,
    pub address: Option<IpAddr>,
}

/// Lanes in the order in which to try them; at least one.
pub type LaneAddresses = SmallVec<[LaneAddress; 1]>;

/// A connection on which a request can be written at once.
#[derive(Debug)]
pub struct Ready(ReadyKind);

#[derive(Debug)]
enum ReadyKind {
    Own(Box<Connection>),
    /// HTTP/2: a seat on a shared link.
    Shared(StreamSlot),
    /// HTTP/2: the first seat on a link that others may use once this request has started.
    First(StreamSlot),
}

/// The origin's response.
#[derive(Debug)]
pub enum Answer {
    /// Boxed, because it is handed on many times.
    Response(Box<Response<Reply>>),
    /// 101: the rest of the connection belongs to another protocol. The bytes are what the origin has already sent of
    /// it.
    Switched(Response<()>, Stream, Bytes),
}

/// A request without a response.
#[derive(Debug)]
pub struct Unanswered {
    pub error: UpstreamError,
    /// The request, if it was not sent, or if it is safe to send it again because the origin sent nothing.
    pub again: Option<Box<Message>>,
}

impl From<UpstreamError> for Unanswered {
    fn from(error: UpstreamError) -> Self {
        Unanswered { error, again: None }
    }
}

/// Follows the first request on a link. The link is for other requests too from the moment it is written.
struct FirstOnLink<'a, W> {
    links: &'a Links,
    link: Arc<Link>,
    watch: W,
}

impl<W: SendWatch> SendWatch for FirstOnLink<'_, W> {
    fn started(&mut self) {
        self.links.add(self.link.clone());
        self.watch.started();
    }

    fn abandoned(&mut self, orphan: Orphan) {
        self.watch.abandoned(orphan);
    }
}

impl Upstream {
    pub fn new(resolver: Arc<Resolver>, metrics: Arc<Metrics>) -> Self {
        Upstream { resolver, pool: Arc::default(), links: Links::default(), metrics }
    }

    /// Returns a connection to the origin, from the pool or new.
    pub async fn ready(&self, terms: Terms<'_>, origin: &Origin) -> Result<Ready, UpstreamError> {
        if let Some(ready) = self.at_hand(terms, origin, clock::now())? {
            return Ok(ready);
        }
        let place = self.place(terms, origin)?;
        // Boxed, here and below: opening is rare, and otherwise every waiting request would include its space.
        Box::pin(self.open(terms, place, false)).await
    }

    /// Returns a connection to the origin from the pool, if there is one. A caller that does not use it at once must
    /// [put it back](Upstream::put_back).
    pub fn at_hand(&self, terms: Terms<'_>, origin: &Origin, now: Instant) -> Result<Option<Ready>, UpstreamError> {
        let place = self.place(terms, origin)?;
        let connection = self.pool.take(&place, terms.config.keep_alive, terms.generation, now);
        Ok(connection.map(|connection| Ready(ReadyKind::Own(connection))))
    }

    pub fn put_back(&self, terms: Terms<'_>, ready: Ready) {
        if let ReadyKind::Own(connection) = ready.0 {
            self.pool.put(connection, terms.config.pool_per_host);
        }
    }

    /// Returns the addresses of the host, for lanes that are per address.
    async fn by_address(&self, terms: Terms<'_>, host: &HostKey) -> Result<LaneAddresses, UpstreamError> {
        let ips = self.resolver.lookup(host, terms.client, terms.config.dns_timeout).await?;
        let lane = |ip: IpAddr| LaneAddress { budget: HostKey::from(ip), address: Some(ip) };
        Ok(self.resolver.in_order(host, &ips).into_iter().map(lane).collect())
    }

    /// Checks that the host has an address, and that it may be visited.
    pub async fn vet(&self, terms: Terms<'_>, origin: &Origin) -> Result<(), UpstreamError> {
        let judged = if terms.config.proxy.is_some() {
            terms.guard.judge_unresolved(&origin.host, origin.port)
        } else {
            let ips = self.resolver.lookup(&origin.host, terms.client, terms.config.dns_timeout).await?;
            terms.guard.judge(&origin.host, origin.port, &ips)
        };
        judged.map_err(UpstreamError::Denied)
    }

    /// Returns the lanes that a visit to this host may wait in: one, or one for each of its addresses. If the first
    /// address cannot be reached, the next one is tried, in its own lane. Behind a parent proxy the addresses are
    /// unknown.
    pub async fn lanes(&self, terms: Terms<'_>, key: Key, host: &HostKey) -> Result<LaneAddresses, UpstreamError> {
        let budget = match key {
            Key::Ip if terms.config.proxy.is_none() => return Box::pin(self.by_address(terms, host)).await,
            Key::Host | Key::Ip => host.clone(),
            Key::Domain => host.domain(),
        };
        Ok(smallvec![LaneAddress { budget, address: None }])
    }

    /// Returns the budget that a visit to this host uses: that of the first of its lanes.
    pub async fn budget(&self, terms: Terms<'_>, key: Key, host: &HostKey) -> Result<HostKey, UpstreamError> {
        let first = self.lanes(terms, key, host).await?.into_iter().next();
        Ok(first.map_or_else(|| host.clone(), |lane| lane.budget))
    }

    /// Returns a new connection to the origin, or one on which the origin sent something just now.
    pub async fn ready_new(&self, terms: Terms<'_>, origin: &Origin) -> Result<Ready, UpstreamError> {
        let place = self.place(terms, origin)?;
        self.open(terms, place, true).await
    }

    /// Returns a connection on which this request is the first. So the request is served even by an origin that closes
    /// after every few responses, however many requests have to move at once.
    pub async fn ready_alone(&self, terms: Terms<'_>, origin: &Origin) -> Result<Ready, UpstreamError> {
        let place = self.place(terms, origin)?;
        self.open_alone(terms, place).await
    }

    fn place(&self, terms: Terms<'_>, origin: &Origin) -> Result<Destination, UpstreamError> {
        match terms.config.proxy {
            None => Ok(Destination::Origin(origin.clone(), terms.only)),
            Some(_) => open::place_behind_parent(terms, origin),
        }
    }

    /// Sends the request and waits for the response head. Calls `watch` when the request's head has been written, and
    /// passes it what is left if this future is dropped before the response arrives.
    ///
    /// If a reused connection turns out to be dead before a byte was written, or an HTTP/2 origin has not processed the
    /// request, the request is returned to be sent [`again`](Unanswered::again). The same happens if it was written and
    /// not a byte came back, provided that it has no body and may be repeated. The caller must decide about both: a new
    /// connection takes time, in which the permission to start may expire.
    pub async fn send(
        &self,
        terms: Terms<'_>,
        ready: Ready,
        message: Box<Message>,
        mut watch: impl SendWatch,
    ) -> Result<Answer, Unanswered> {
        match ready.0 {
            ReadyKind::Own(connection) => http1::send(connection, message, terms, &self.pool, &mut watch).await,
            ReadyKind::Shared(seat) => Box::pin(self.exchange_shared(terms, seat, message, &mut watch)).await,
            ReadyKind::First(seat) => {
                let mut watch = FirstOnLink { links: &self.links, link: seat.link().clone(), watch };
                Box::pin(self.exchange_shared(terms, seat, message, &mut watch)).await
            }
        }
    }

    async fn exchange_shared(
        &self,
        terms: Terms<'_>,
        seat: StreamSlot,
        message: Box<Message>,
        watch: &mut impl SendWatch,
    ) -> Result<Answer, Unanswered> {
        let (place, peer) = (seat.place(), seat.link().peer());
        let limits = Limits { response: terms.config.response_timeout, idle: terms.config.idle_timeout };
        match http2::send(seat, message, limits, watch).await {
            Ok(response) => Ok(Answer::Response(Box::new(response.map(|reply| Reply::shared(reply, peer))))),
            Err((unanswered, fate)) => {
                if fate == StreamOutcome::Misplaced {
                    self.links.give_up(&place);
                }
                Err(unanswered)
            }
        }
    }

    /// Opens a bare connection to the host, through the parent proxy if there is one.
    pub async fn tunnel(&self, terms: Terms<'_>, host: &HostKey, port: u16) -> Result<(Stream, Bytes), UpstreamError> {
        let (dialled, early) = self.reach(terms, host, port).await?;
        Ok((Stream::Plain(dialled.stream), early))
    }

    /// Closes connections that have been idle for too long. The worker calls this now and then.
    pub fn sweep(&self, keep_alive: std::time::Duration) {
        self.pool.sweep(keep_alive);
        self.links.sweep(keep_alive);
    }
}
