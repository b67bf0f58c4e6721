//! The way to origins: ready connections, requests sent on them, tunnels.
//!
//! Opening a connection and sending on it are two steps on purpose: [`Upstream::ready`] does everything that takes
//! time, so that a request can start the moment it may. Each worker has an [`Upstream`] of its own (the pool stays in
//! one runtime); what is [`Shared`] between them is the resolver.

mod body;
mod connection;
mod dial;
mod error;
mod guard;
mod parent;
mod pool;
mod resolve;

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use tokio::net::TcpStream;

use self::connection::{Connection, Lease, Limits, Unsent};
use self::pool::{Place, Pool};

pub use self::body::RequestBody;
pub use self::connection::{OriginStream, Reply};
pub use self::error::{BodyFault, UpstreamError};
pub use self::guard::{Denied, Guard};
pub use self::resolve::Resolver;

use crate::config;
use crate::politeness::HostKey;

#[derive(Debug)]
pub struct Upstream {
    resolver: Arc<Resolver>,
    pool: Arc<Pool>,
}

/// The settings of one request: they may change between two.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    pub config: &'a config::Upstream,
    pub guard: &'a Guard,
    pub head_size: usize,
    /// Counts changes of the settings: a connection opened under others is not used again.
    pub generation: u64,
}

/// A connection that a request can be written on at once.
#[derive(Debug)]
pub struct Ready {
    connection: Box<Connection>,
}

/// What the origin answered.
#[derive(Debug)]
pub enum Answer {
    Response(Response<Reply>),
    /// 101: the rest of the connection belongs to another protocol. The bytes are what the origin has sent of it.
    Switched(Response<()>, OriginStream, Bytes),
}

impl Upstream {
    pub fn new(resolver: Arc<Resolver>) -> Self {
        Upstream { resolver, pool: Arc::default() }
    }

    /// A connection to the host, from the pool or new.
    pub async fn ready(&self, terms: Terms<'_>, host: &HostKey, port: u16) -> Result<Ready, UpstreamError> {
        let place = match terms.config.proxy {
            Some(_) => {
                terms.guard.judge_unresolved(host, port).map_err(UpstreamError::Denied)?;
                Place::Parent
            }
            None => Place::Origin(host.clone(), port),
        };
        if let Some(connection) = self.pool.take(&place, terms.config.keep_alive, terms.generation) {
            return Ok(Ready { connection });
        }
        self.open(terms, place).await
    }

    async fn open(&self, terms: Terms<'_>, place: Place) -> Result<Ready, UpstreamError> {
        let stream = match (&place, &terms.config.proxy) {
            (Place::Origin(host, port), _) => {
                dial::connect(&self.resolver, terms.guard, terms.config, host, *port).await?
            }
            (Place::Parent, Some(parent)) => dial::connect_parent(&self.resolver, terms.config, parent).await?,
            (Place::Parent, None) => unreachable!("a place at the parent is only taken where there is one"),
        };
        let connection = Connection::open(stream, place, terms).await?;
        Ok(Ready { connection: Box::new(connection) })
    }

    /// Sends the request and waits for the response head. A request that found its reused connection dead is sent once
    /// more on a new one, if that is safe: not a byte of it was written, or it has no body, may be repeated, and not a
    /// byte was answered.
    pub async fn send(
        &self,
        terms: Terms<'_>,
        ready: Ready,
        request: Request<RequestBody>,
    ) -> Result<Answer, UpstreamError> {
        let place = ready.connection.place().clone();
        let request = dressed(request, &place, terms.config);
        let spare = if ready.connection.is_reused() { spare(&request) } else { None };
        let stale = match self.exchange(terms, ready, request).await {
            Ok(answer) => return Ok(answer),
            Err(unsent) => unsent,
        };
        let again = match (stale.request, spare) {
            (Some(request), _) => *request,
            (None, Some(request)) if !stale.answered && stale.error.is_unanswered() => request,
            (None, _) => return Err(stale.error),
        };
        let ready = self.open(terms, place).await?;
        self.exchange(terms, ready, again).await.map_err(|unsent| unsent.error)
    }

    async fn exchange(&self, terms: Terms<'_>, ready: Ready, request: Request<RequestBody>) -> Result<Answer, Unsent> {
        let limits = Limits { response: terms.config.response_timeout, idle: terms.config.idle_timeout };
        let (response, connection) = ready.connection.send(request, &limits).await?;
        let reusable = check_response(&response).map_err(|error| Unsent { error, request: None, answered: true })?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let (stream, early) = connection.into_stream();
            return Ok(Answer::Switched(response.map(drop), stream, early));
        }
        let lease = Lease { connection, pool: self.pool.clone(), pool_per_host: terms.config.pool_per_host, reusable };
        Ok(Answer::Response(response.map(|incoming| Reply::new(incoming, lease))))
    }

    /// A bare connection to the host, through the parent proxy if there is one.
    pub async fn tunnel(
        &self,
        terms: Terms<'_>,
        host: &HostKey,
        port: u16,
    ) -> Result<(TcpStream, Bytes), UpstreamError> {
        match &terms.config.proxy {
            None => {
                let stream = dial::connect(&self.resolver, terms.guard, terms.config, host, port).await?;
                Ok((stream, Bytes::new()))
            }
            Some(parent) => {
                terms.guard.judge_unresolved(host, port).map_err(UpstreamError::Denied)?;
                let stream = dial::connect_parent(&self.resolver, terms.config, parent).await?;
                let opening = parent::open_tunnel(stream, parent, host, port);
                tokio::time::timeout(terms.config.connect_timeout, opening)
                    .await
                    .map_err(|_| UpstreamError::ConnectTimeout)?
            }
        }
    }

    /// Closes connections that have been idle for too long. Called now and then by the worker.
    pub fn sweep(&self, keep_alive: std::time::Duration) {
        self.pool.sweep(keep_alive);
    }

    pub fn idle_connections(&self) -> usize {
        self.pool.len()
    }
}

/// The request as the next hop wants it: a parent proxy gets the whole URI and its credentials, an origin only the path
/// (RFC 9112, section 3.2).
fn dressed(mut request: Request<RequestBody>, place: &Place, config: &config::Upstream) -> Request<RequestBody> {
    match (place, &config.proxy) {
        (Place::Parent, Some(parent)) => {
            if let Some(value) = parent::authorization(parent) {
                request.headers_mut().insert(http::header::PROXY_AUTHORIZATION, value);
            }
        }
        _ => {
            let uri = std::mem::take(request.uri_mut());
            *request.uri_mut() = uri.into_parts().path_and_query.map_or_else(Uri::default, Uri::from);
        }
    }
    request
}

/// A second copy of a request that may be sent twice.
fn spare(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    if !matches!(request.body(), RequestBody::Empty) || !request.method().is_idempotent() {
        return None;
    }
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

/// Refuses a response that cannot be passed on safely. Answers whether the connection may be used again.
fn check_response<B>(response: &Response<B>) -> Result<bool, UpstreamError> {
    let status = response.status().as_u16();
    if !(100..=599).contains(&status) {
        return Err(UpstreamError::Status(status));
    }
    let mut codings = response.headers().get_all(http::header::TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(true) };
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Err(UpstreamError::TransferCoding);
    }
    // Both lengths at once is how responses are smuggled (RFC 9112, section 6.3): believe the chunks, then close.
    Ok(!response.headers().contains_key(http::header::CONTENT_LENGTH))
}
