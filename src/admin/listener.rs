//! The connections of the admin listener: a limited number, with limits for idle clients, incomplete requests and slow
//! readers.
//!
//! When all places are taken, a connection without a request gives way, so incomplete requests shut out no client.
//! Requests have limits of their own, in total and per address, which leave places for health checks: monitoring gets
//! an answer as long as curtsy works. A page that follows events sends nothing itself, so it is disconnected now and
//! then too; browsers reconnect by themselves and continue where they were.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::connect_info::{ConnectInfo, Connected};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, RETRY_AFTER};
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::serve;
use http_body::{Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};

use super::Admin;
use crate::clock;
use crate::connections::{Connections, GivesWay, OpenConnection, neighbourhood};
use crate::timeout_stream::{Deadline, TimeoutStream};

/// A browser opens six connections, and a Prometheus one.
const MOST: usize = 256;
/// Concurrent requests, not counting health checks: sixteen places are left for those.
const MOST_UNDER_WAY: usize = MOST - 16;
/// How many of those one address may have: half, so that another address can have as many.
const SHARE: usize = MOST_UNDER_WAY / 2;
const SILENCE: Duration = Duration::from_secs(600);
/// The time limit for a head that has begun; the same as the default on the proxy's listener.
const HEAD: Duration = Duration::from_secs(10);
const STALL: Duration = Duration::from_secs(30);
/// Pause after an error of accept, so that a full file table does not become a busy loop.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

const TOO_MANY: &[u8] = b"HTTP/1.1 503 Too many connections (curtsy)\r\n\
    Connection: close\r\nContent-Length: 0\r\nRetry-After: 1\r\nCache-Control: no-store\r\n\r\n";

pub(super) struct AdminListener {
    listener: TcpListener,
    connections: Arc<Connections>,
}

pub(super) struct AdminConnection {
    stream: TimeoutStream<TcpStream>,
    visitor: Visitor,
    _open: OpenConnection,
}

/// The client of a connection, as its requests know it.
#[derive(Clone, Debug)]
pub(super) struct Visitor {
    /// The address, or for IPv6 its network, by which requests are counted.
    address: IpAddr,
    peer: IpAddr,
    limit: Arc<Deadline>,
}

impl AdminListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        AdminListener { listener, connections: Arc::default() }
    }

    /// Returns the connection, if there is a place for it; otherwise answers 503.
    fn take(&self, stream: TcpStream, peer: SocketAddr) -> Option<AdminConnection> {
        let limit = Arc::new(Deadline::watched());
        let Some(open) = self.connections.enter(peer.ip(), &limit, MOST, GivesWay::Anyone) else {
            let _ = stream.try_write(TOO_MANY);
            return None;
        };
        // Events are small and must be sent at once.
        let _ = stream.set_nodelay(true);
        let visitor = Visitor { address: neighbourhood(peer.ip()), peer: peer.ip(), limit };
        visitor.waits();
        let stream = TimeoutStream::new(stream, visitor.limit.clone(), STALL, HEAD);
        Some(AdminConnection { stream, visitor, _open: open })
    }
}

/// Returns the address that a request came from: this machine, if it came without a listener.
pub(super) fn peer(extensions: &Extensions) -> IpAddr {
    let visitor = extensions.get::<ConnectInfo<Visitor>>();
    visitor.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |ConnectInfo(visitor)| visitor.peer.to_canonical())
}

impl Visitor {
    /// Marks that the connection waits for a request.
    fn waits(&self) {
        self.limit.begin_within(SILENCE, HEAD, clock::now());
    }
}

impl Connected<serve::IncomingStream<'_, AdminListener>> for Visitor {
    fn connect_info(stream: serve::IncomingStream<'_, AdminListener>) -> Self {
        stream.io().visitor.clone()
    }
}

/// Concurrent requests, by address.
#[derive(Debug, Default)]
pub(super) struct RequestsUnderWay(Mutex<(usize, HashMap<IpAddr, usize>)>);

/// A concurrent request: the request and its response hold a place.
struct HeldRequest {
    visitor: Visitor,
    under_way: Arc<RequestsUnderWay>,
    counts: bool,
}

impl RequestsUnderWay {
    /// Counts one more request of this address, and returns true, if there is a place for it.
    fn begin(&self, address: IpAddr) -> bool {
        let (all, addresses) = &mut *self.0.lock();
        let own = addresses.get(&address).copied().unwrap_or(0);
        let fits = *all < MOST_UNDER_WAY && own < SHARE;
        if fits {
            *all += 1;
            addresses.insert(address, own + 1);
        }
        fits
    }

    fn end(&self, address: IpAddr) {
        let (all, addresses) = &mut *self.0.lock();
        *all -= 1;
        if let Some(own) = addresses.get_mut(&address) {
            *own -= 1;
            if *own == 0 {
                addresses.remove(&address);
            }
        }
    }
}

impl Drop for HeldRequest {
    fn drop(&mut self) {
        if self.counts {
            self.under_way.end(self.visitor.address);
        }
        self.visitor.waits();
    }
}

/// Counts a request until its response is sent, and refuses it if there are too many, unless it is a health check.
pub(super) async fn hold(State(admin): State<Arc<Admin>>, request: Request, next: Next) -> Response {
    // Without a listener there is nothing to count.
    let Some(ConnectInfo(visitor)) = request.extensions().get::<ConnectInfo<Visitor>>().cloned() else {
        return next.run(request).await;
    };
    visitor.limit.each_within(SILENCE);
    let counts = !matches!(request.uri().path(), "/healthz" | "/readyz");
    let under_way = admin.own.under_way.clone();
    if counts && !under_way.begin(visitor.address) {
        let fields = [(CONNECTION, "close"), (RETRY_AFTER, "1")];
        return (StatusCode::SERVICE_UNAVAILABLE, fields, "Too many requests at once.\n").into_response();
    }
    let held = HeldRequest { visitor, under_way, counts };
    next.run(request).await.map(|body| Body::new(HeldAnswer { body, _held: held }))
}

/// A response that holds its place until it is sent or dropped.
struct HeldAnswer {
    body: Body,
    _held: HeldRequest,
}

impl http_body::Body for HeldAnswer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl serve::Listener for AdminListener {
    type Io = AdminConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AdminConnection, SocketAddr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(connection) = self.take(stream, peer) {
                        return (connection, peer);
                    }
                }
                Err(_) => tokio::time::sleep(PAUSE_AFTER_ERROR).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl AsyncRead for AdminConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for AdminConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_shared_out_and_leave_room_for_health() {
        let (under_way, address) = (RequestsUnderWay::default(), |last| IpAddr::from([10, 0, 0, last]));
        let taken = |from: u8| (0..MOST).take_while(|_| under_way.begin(address(from))).count();
        assert_eq!([taken(1), taken(2), taken(3)], [SHARE, SHARE, 0]);
        under_way.end(address(1));
        assert!(under_way.begin(address(3)));
        (1..SHARE).for_each(|_| under_way.end(address(1)));
        assert_eq!(under_way.0.lock().1.len(), 2, "an address without requests is forgotten");
    }
}
