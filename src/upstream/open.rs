//! Opens connections: directly to the origin or through the parent proxy, with TLS for `https://` origins, and with
//! HTTP/2 if both sides want it.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use tokio::time::timeout_at;

use super::connection::Connection;
use super::dial::{self, Dialled};
use super::error::UpstreamError;
use super::http2::{Link, OpenedLink, OpeningLink, Route};
use super::pool::Destination;
use super::stream::Stream;
use super::tls_fault::HandshakeFault;
use super::{Ready, ReadyKind, Terms, Upstream, parent};
use crate::clock;
use crate::metrics::Handshake;
use crate::politeness::{HostKey, Origin, Scheme};

/// A new connection, by the protocol that the origin chose.
enum New {
    Http1(Box<Connection>),
    Http2(Arc<Link>),
}

impl New {
    fn ready(self) -> Result<Ready, UpstreamError> {
        match self {
            New::Http1(connection) => Ok(Ready(ReadyKind::Own(connection))),
            New::Http2(link) => link.seat().map(|seat| Ready(ReadyKind::Shared(seat))).ok_or_else(takes_none),
        }
    }
}

/// Returns where a request to this origin goes, if the parent proxy may be sent there. The parent looks up the name.
pub(super) fn place_behind_parent(terms: Terms<'_>, origin: &Origin) -> Result<Destination, UpstreamError> {
    terms.guard.judge_unresolved(&origin.host, origin.port).map_err(UpstreamError::Denied)?;
    Ok(match origin.scheme {
        Scheme::Http => Destination::Parent,
        Scheme::Https => Destination::Origin(origin.clone(), None),
    })
}

fn takes_none() -> UpstreamError {
    UpstreamError::Protocol("the origin's settings allow no request".to_owned())
}

impl Upstream {
    /// Returns a connection to the place that no request has used yet, or a link that several requests share.
    pub(super) async fn open(&self, terms: Terms<'_>, place: Destination, fresh: bool) -> Result<Ready, UpstreamError> {
        match &place {
            Destination::Origin(origin, _) if origin.scheme == Scheme::Https && terms.http2 => {
                self.open_shared(terms, &place, origin, fresh).await
            }
            Destination::Origin(origin, _) => self.open_origin(terms, origin, false).await?.ready(),
            Destination::Parent => {
                let parent =
                    terms.config.proxy.as_ref().expect("a place at the parent is only taken where there is one");
                let stream = Stream::Plain(dial::connect_parent(&self.resolver, terms, parent).await?.stream);
                Ok(Ready(ReadyKind::Own(Box::new(Connection::new(stream, place, terms)))))
            }
        }
    }

    /// Returns a seat on the link to the origin, if the origin turns out to speak HTTP/2.
    async fn open_shared(
        &self,
        terms: Terms<'_>,
        place: &Destination,
        origin: &Origin,
        fresh: bool,
    ) -> Result<Ready, UpstreamError> {
        let patience = clock::now() + terms.config.connect_timeout;
        loop {
            let OpeningLink { opened, hangs_at } =
                match self.links.way(place, |link| link.suits(terms.generation, fresh)) {
                    Route::Seat(seat) => return Ok(Ready(ReadyKind::Shared(seat))),
                    Route::Http1 => return self.open_origin(terms, origin, false).await?.ready(),
                    Route::Opening(opening) => opening,
                };
            let (mut own, is_own) = (None, AtomicBool::new(false));
            let outcome = {
                let mut opening = pin!(opened.get_or_init(async || {
                    is_own.store(true, Relaxed);
                    let (opened, outcome) = share(self.open_origin(terms, origin, true).await);
                    own = Some(outcome);
                    opened
                }));
                match timeout_at(hangs_at.min(patience), &mut opening).await {
                    Ok(opened) => Some(opened),
                    // The request's own attempt has its own limit.
                    Err(_) if is_own.load(Relaxed) => Some(opening.await),
                    Err(_) => None,
                }
            };
            match (outcome, own) {
                (_, Some(outcome)) => return outcome,
                (Some(OpenedLink::Failed(error)), None) => return Err(error.again()),
                (None, None) if clock::now() >= patience => return Err(UpstreamError::ConnectTimeout),
                (_, None) => {}
            }
        }
    }

    /// Returns a connection that no other request uses before this one has started.
    pub(super) async fn open_alone(&self, terms: Terms<'_>, place: Destination) -> Result<Ready, UpstreamError> {
        let Destination::Origin(origin, _) = &place else { return self.open(terms, place, true).await };
        let http2 = origin.scheme == Scheme::Https && terms.http2 && !self.links.wants_http1(&place);
        match self.open_origin(terms, origin, http2).await? {
            New::Http1(connection) => Ok(Ready(ReadyKind::Own(connection))),
            New::Http2(link) => link.seat().map(|seat| Ready(ReadyKind::First(seat))).ok_or_else(takes_none),
        }
    }

    /// Includes the TLS and HTTP/2 handshakes in getting ready: a slow handshake does not widen the gap between
    /// requests.
    async fn open_origin(&self, terms: Terms<'_>, origin: &Origin, http2: bool) -> Result<New, UpstreamError> {
        let (Dialled { stream, until }, early) = self.reach(terms, &origin.host, origin.port).await?;
        let place = || Destination::Origin(origin.clone(), terms.only);
        let own = |stream| New::Http1(Box::new(Connection::new(stream, place(), terms)));
        if origin.scheme == Scheme::Http {
            return Ok(own(Stream::Plain(stream)));
        }
        // In TLS the client speaks first.
        if !early.is_empty() {
            return Err(UpstreamError::Handshake(HandshakeFault::NotTls));
        }
        let handshake = timeout_at(until, terms.trust.handshake(&origin.host, stream, http2)).await;
        let handshake = handshake.unwrap_or(Err(UpstreamError::ConnectTimeout));
        self.metrics.handshake(match &handshake {
            Ok(_) => Handshake::OriginOk,
            Err(UpstreamError::Certificate(_)) => Handshake::OriginCert,
            Err(_) => Handshake::OriginFailed,
        });
        let tls = handshake?;
        let is_http2 = tls.get_ref().1.alpn_protocol() == Some(b"h2");
        let stream = Stream::Tls(Box::new(tls));
        if !is_http2 {
            return Ok(own(stream));
        }
        let link = timeout_at(until, Link::open(stream, place(), terms)).await;
        link.map_err(|_| UpstreamError::ConnectTimeout)?.map(New::Http2)
    }

    /// Connects to the host. The returned bytes are what the far end has already sent.
    pub(super) async fn reach(
        &self,
        terms: Terms<'_>,
        host: &HostKey,
        port: u16,
    ) -> Result<(Dialled, Bytes), UpstreamError> {
        let Some(parent) = &terms.config.proxy else {
            let dialled = dial::connect(&self.resolver, terms, host, port).await?;
            return Ok((dialled, Bytes::new()));
        };
        terms.guard.judge_unresolved(host, port).map_err(UpstreamError::Denied)?;
        let Dialled { stream, until } = dial::connect_parent(&self.resolver, terms, parent).await?;
        let opening = parent::open_tunnel(stream, parent, host, port);
        let (stream, early) = timeout_at(until, opening).await.map_err(|_| UpstreamError::ConnectTimeout)??;
        Ok((Dialled { stream, until }, early))
    }
}

/// Splits the result of an attempt into what other requests get and what this request gets.
fn share(outcome: Result<New, UpstreamError>) -> (OpenedLink, Result<Ready, UpstreamError>) {
    match outcome {
        Ok(New::Http2(link)) => match link.seat() {
            Some(seat) => (OpenedLink::Link(link), Ok(Ready(ReadyKind::Shared(seat)))),
            None => (OpenedLink::Failed(takes_none()), Err(takes_none())),
        },
        Ok(New::Http1(connection)) => (OpenedLink::http1(), Ok(Ready(ReadyKind::Own(connection)))),
        Err(error) => (OpenedLink::Failed(error.again()), Err(error)),
    }
}
