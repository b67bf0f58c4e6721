//! Moves bytes both ways, once client and origin speak something that curtsy does not read: CONNECT and WebSocket.
//!
//! When one direction ends, the end is passed on and the other direction goes on. A tunnel in which nothing moves for
//! `upstream.idle_timeout` is closed. Reading order: `pipe.rs` moves bytes, `pacer.rs` makes requests inside wait for
//! their turn, `bursts.rs` finds where they begin.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Response, StatusCode};
use tokio::io::AsyncWrite;
use tokio::time::Sleep;

use crate::clock;
use crate::metrics::Metrics;
use crate::proxy::Worker;
use crate::proxy::accept::client_stream::ClientStream;
use crate::proxy::accept::serve;
use crate::proxy::accept::upgrade::Upgrade;
use crate::proxy::answer::body::Body;
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::request::client_request::InFlight;
use crate::proxy::request::headers;
use crate::timeout_stream::{Deadline, TimeoutStream};
use crate::upstream::Stream;

use super::pacer::{PacedTunnel, Pacer};
use super::pipe::{self, Pipe};

/// The two ends of a tunnel.
pub(crate) struct Ends {
    pub(crate) client: Upgrade,
    pub(crate) origin: Stream,
    /// Bytes that the origin has sent already.
    pub(crate) early: Bytes,
}

/// Joins client and origin as soon as the client's connection is handed over.
pub(crate) fn join(request: &mut ClientRequest, ends: Ends, passage: Option<PacedTunnel>) {
    let (worker, settings) = (request.worker.clone(), request.settings.clone());
    let (mut in_flight, working) = (request.take_in_flight(), worker.live.begin());
    let Ends { client, origin, early } = ends;
    tokio::spawn(async move {
        let _working = working;
        let Some(near) = client.arrive().await else {
            // The origin has seen a connection all the same.
            if let Some(permit) = in_flight.as_mut().and_then(|in_flight| in_flight.permit_mut()) {
                permit.spent();
            }
            return;
        };
        let shared = &worker.shared;
        let idle = settings.config.upstream.idle_timeout;
        let limit = Arc::new(Deadline::none());
        limit.each_within(idle);
        let (in_flight, pacer) = match (in_flight, passage) {
            (Some(in_flight), Some(passage)) => {
                (None, Some(Pacer::new(shared.clone(), &settings, passage, in_flight, limit.clone())))
            }
            (in_flight, _) => (in_flight, None),
        };
        drop(settings);
        let mut tunnel = Tunnel {
            up: Pipe::with(Vec::new(), near.most_waiting()),
            down: Pipe::with(early.into(), MOST_HELD),
            near: TimeoutStream::new(near, limit.clone(), idle, idle),
            far: TimeoutStream::new(origin, limit, idle, idle),
            pacer,
            counted: (0, 0),
            look: None,
            farewell: None,
        };
        shared.metrics.tunnels.open.inc();
        // An error is ignored: no side is to blame for how a tunnel ends, and everything that has moved counts.
        let _ = poll_fn(|cx| {
            let over = tunnel.poll(cx);
            tunnel.count(&shared.metrics);
            over
        })
        .await;
        shared.metrics.tunnels.open.dec();
        if tunnel.has_found_http() {
            return tunnel.serve_http(worker).await;
        }
        tunnel.settle(in_flight);
    });
}

/// Answers 101 and joins the two connections behind it.
pub(crate) fn switch(request: &mut ClientRequest, response: Response<()>, ends: Ends) -> Response<Body> {
    let protocol = response.headers().get(UPGRADE).cloned();
    let identity = request.settings.config.upstream.via.then_some(&request.shared().identity);
    let version = response.version();
    let mut response = response.map(|()| Body::from(Bytes::new()));
    headers::incoming(response.headers_mut(), identity, version);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    if let Some(protocol) = protocol {
        response.headers_mut().insert(UPGRADE, protocol);
    }
    join(request, ends, None);
    response
}

/// Whether the client has disconnected. If not, wakes the task later to look again.
fn poll_left(look: &mut Option<Pin<Box<Sleep>>>, near: &ClientStream, cx: &mut Context<'_>) -> bool {
    if near.has_left(cx) {
        return true;
    }
    let alarm = look.get_or_insert_with(|| Box::pin(tokio::time::sleep(LOOK)));
    while alarm.as_mut().poll(cx).is_ready() {
        alarm.as_mut().reset(clock::now() + LOOK);
    }
    false
}

struct Tunnel {
    near: TimeoutStream<ClientStream>,
    far: TimeoutStream<Stream>,
    up: Pipe,
    down: Pipe,
    /// Only for a tunnel opened by CONNECT.
    pacer: Option<Pacer>,
    /// Bytes that the metrics have counted already, up and down.
    counted: (u64, u64),
    /// When to check whether a client from which nothing more is read is still connected.
    look: Option<Pin<Box<Sleep>>>,
    /// Until when both sides are watched after the client was sent the end.
    farewell: Option<Pin<Box<Sleep>>>,
}

/// How much of an answer is kept while its last record is held back: a record, and as much again, which shows that it
/// was not the last.
const MOST_HELD: usize = 36 * 1024;

/// How long both sides are watched after the client was sent the end, to see whether the end cut something short. Most
/// clients close their side at once, or with their next request.
const FAREWELL: Duration = Duration::from_secs(2);

/// A client that disconnects must give its place in the queue back within 100 ms (docs/https.md).
const LOOK: Duration = Duration::from_millis(50);

impl Tunnel {
    /// Moves what can be moved, both ways; ready when the tunnel is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.farewell.is_some() {
            return self.poll_farewell(cx);
        }
        // Bytes from the origin move before the client's next ones.
        let mut heard = self.poll_down(cx)?;
        if self.down.has_ended() && self.down.is_held() {
            self.pacer.iter_mut().for_each(Pacer::origin_ended);
            heard = self.poll_down(cx)?;
        }
        if self.pacer.as_ref().is_some_and(Pacer::is_closing) {
            self.near.get_mut().join_end_to_bytes();
            heard = self.poll_down(cx)?;
            return if heard.is_pending() && self.down.is_empty() { self.poll_farewell(cx) } else { heard.map(Ok) };
        }
        let Tunnel { near, far, up, pacer, look, .. } = self;
        if let Some(pacer) = pacer {
            pacer.check_http2()?;
        }
        let asked = up.poll_move(cx, near, far, |cx, bytes| match pacer.as_mut() {
            Some(pacer) => pacer.poll_pass(cx, bytes),
            None => Poll::Ready(Ok(bytes.len())),
        })?;
        if pacer.as_ref().is_some_and(Pacer::has_found_http) {
            return Poll::Ready(Ok(()));
        }
        // A request whose client or origin has disconnected does not wait any longer.
        let left = up.has_ended() || (up.is_full() && poll_left(look, near.get_mut(), cx));
        let is_announced = left && pacer.as_ref().is_some_and(Pacer::is_origin_closing);
        if up.is_held() && (heard.is_ready() || is_announced) {
            pacer.iter_mut().for_each(Pacer::origin_closed);
        }
        let in_vain = up.is_held() && (left || heard.is_ready());
        if in_vain || (heard.is_ready() && asked.is_ready()) {
            return Poll::Ready(Ok(()));
        }
        match pacer {
            Some(pacer) => pacer.poll_look(cx, up.moved() + self.down.moved()).map(Ok),
            None => Poll::Pending,
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Tunnel { near, far, down, pacer, .. } = self;
        down.poll_move(cx, far, near, |cx, bytes| match pacer.as_mut() {
            Some(pacer) => pacer.poll_answer(cx, bytes).map(Ok),
            None => Poll::Ready(Ok(bytes.len())),
        })
    }

    /// Sends the client the end of a tunnel that curtsy closes, and watches both sides for a moment.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Tunnel { near, far, pacer, farewell, .. } = self;
        let Some(pacer) = pacer else { return Poll::Ready(Ok(())) };
        if farewell.is_none() {
            ready!(Pin::new(&mut *near).poll_shutdown(cx))?;
            pacer.has_closed();
        }
        let alarm = farewell.get_or_insert_with(|| Box::pin(tokio::time::sleep(FAREWELL)));
        let mut room = [0; 1024];
        if let Poll::Ready(count) = pipe::poll_read(cx, far, &mut room) {
            let is_cut = pacer.hears_after_end(&room[..count.unwrap_or(0)]);
            if is_cut {
                return Poll::Ready(Ok(()));
            }
        }
        if let Poll::Ready(count) = pipe::poll_read(cx, near, &mut room) {
            pacer.is_sent_after_end(&room[..count.unwrap_or(0)]);
            return Poll::Ready(Ok(()));
        }
        ready!(alarm.as_mut().poll(cx));
        pacer.is_sent_after_end(&[]);
        Poll::Ready(Ok(()))
    }

    fn has_found_http(&self) -> bool {
        self.pacer.as_ref().is_some_and(Pacer::has_found_http)
    }

    /// Answers the requests inside, which take the path of all others. Returns a type-erased future, because
    /// that path leads back here.
    fn serve_http(self, worker: Arc<Worker>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let near = self.near.into_inner().behind(self.up.into_kept().into());
        let client = self.pacer.map(Pacer::into_http);
        Box::pin(async move {
            if let Some(client) = client {
                serve::http1(worker, near, client).await;
            }
        })
    }

    /// Counts what has moved since the last time.
    fn count(&mut self, metrics: &Metrics) {
        let moved = (self.up.moved(), self.down.moved());
        let (up, down) = (moved.0 - self.counted.0, moved.1 - self.counted.1);
        if up > 0 {
            metrics.transfers.up(up);
        }
        if down > 0 {
            metrics.transfers.down(down);
        }
        self.counted = moved;
    }

    /// Counts what the tunnel has moved and how it was paced.
    fn settle(self, in_flight: Option<Box<InFlight>>) {
        let to_client = self.down.moved();
        if let Some(pacer) = self.pacer {
            pacer.ended(to_client);
        }
        if let Some(mut in_flight) = in_flight {
            in_flight.moved(to_client);
            in_flight.completed();
        }
    }
}
