//! One HTTP/1.1 connection to an origin (or parent proxy), driven by whoever uses it.
//!
//! hyper wants each client connection to be polled; the usual way is a task of its own, which costs two task switches a
//! request. Here the task that waits for the response polls the connection itself, and so does the response body
//! afterwards: the whole request runs in the client's own task (docs/decisions/0001-inline-connections.md). It also
//! means that a request head is written at the very moment [`Connection::send`] is polled, which is what pacing counts
//! from.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;

use super::Terms;
use super::body::{RequestBody, without_forbidden_trailers};
use super::error::UpstreamError;
use super::pool::{Place, Pool};
use crate::patience::{Limit, Patient};

pub type OriginStream = TokioIo<Patient<TcpStream>>;

pub(super) struct Connection {
    sender: http1::SendRequest<RequestBody>,
    driver: http1::Connection<OriginStream, RequestBody>,
    /// Set once hyper is done with the connection: it must not be polled again.
    over: bool,
    limit: Arc<Limit>,
    relay: Arc<Relay>,
    place: Place,
    /// Of the rules that the guard judged the address by.
    generation: u64,
    reused: bool,
}

/// A request that was not sent, or not answered, and the reason.
#[derive(Debug)]
pub(super) struct Unsent {
    pub(super) error: UpstreamError,
    /// The request itself, if not a byte of it was written.
    pub(super) request: Option<Box<Request<RequestBody>>>,
    /// Whether the origin had begun to answer.
    pub(super) answered: bool,
}

impl Connection {
    pub(super) async fn open(stream: TcpStream, place: Place, terms: Terms<'_>) -> Result<Self, UpstreamError> {
        let head_size = terms.head_size;
        let idle = terms.config.idle_timeout;
        let limit = Arc::new(Limit::none());
        let io = TokioIo::new(Patient::new(stream, limit.clone(), idle, idle));
        let (sender, driver) = http1::Builder::new()
            .max_header_size(head_size)
            .max_buf_size(head_size.max(LEAST_BUFFER))
            // Old servers fold lines and put spaces before colons; both are made harmless by parsing them (RFC 9112,
            // sections 5.1 and 5.2).
            .allow_spaces_after_header_name_in_responses(true)
            .allow_obsolete_multiline_headers_in_responses(true)
            .title_case_headers(true)
            .handshake(io)
            .await
            .map_err(|error| UpstreamError::exchanging(&error))?;
        Ok(Connection {
            sender,
            driver,
            over: false,
            limit,
            relay: Arc::default(),
            place,
            generation: terms.generation,
            reused: false,
        })
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether this connection has answered a request before: only then can a silent end mean "stale".
    pub(super) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Sends the request and waits for the response head.
    pub(super) async fn send(
        mut self: Box<Self>,
        mut request: Request<RequestBody>,
        limits: &Limits,
    ) -> Result<(Response<Incoming>, Box<Self>), Unsent> {
        self.limit.listen();
        match request.body_mut() {
            RequestBody::Empty => self.limit.within(limits.response),
            // The origin's time begins when it has the whole request.
            RequestBody::Streaming(streaming) => {
                self.limit.clear();
                streaming.begins(&self.limit, limits.response);
            }
        }
        let mut reply = pin!(self.sender.try_send_request(request));
        let outcome = std::future::poll_fn(|cx| {
            self.relay.follow(cx.waker());
            self.drive();
            // Only the driver can complete the reply, and it was polled just now, so no waker is left behind.
            let outcome = reply.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.relay.rest();
            outcome
        })
        .await;
        match outcome {
            Ok(response) => {
                self.reused = true;
                self.limit.each_within(limits.idle);
                Ok((response, self))
            }
            Err(mut failure) => {
                let request = failure.take_message().map(Box::new);
                let answered = self.limit.has_heard();
                Err(Unsent { error: UpstreamError::exchanging(&failure.into_error()), request, answered })
            }
        }
    }

    /// Lets hyper read and write as far as it can.
    fn drive(&mut self) {
        let waker = Waker::from(self.relay.clone());
        let mut cx = Context::from_waker(&waker);
        self.relay.note();
        while !self.over && self.relay.take_note() {
            // An error here reaches the user of the connection through its reply or body.
            self.over = self.driver.poll_without_shutdown(&mut cx).is_ready();
        }
    }

    /// The bare stream, after the origin has switched protocols, with what it has sent since.
    pub(super) fn into_stream(mut self) -> (OriginStream, Bytes) {
        self.limit.clear();
        self.drive();
        let parts = self.driver.into_parts();
        (parts.io, parts.read_buf)
    }

    /// After a response: whether the connection may serve another request.
    fn is_free(&mut self) -> bool {
        // Nobody waits for this connection any more, so whatever happens to it wakes nobody.
        self.relay.forget();
        self.limit.clear();
        self.drive();
        !self.over && self.sender.is_ready()
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("place", &self.place).field("reused", &self.reused).finish_non_exhaustive()
    }
}

/// How long an origin may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) response: Duration,
    pub(super) idle: Duration,
}

/// hyper's smallest read buffer.
const LEAST_BUFFER: usize = 8192;

/// The waker that the connection knows. What happens while it is being polled is noted and dealt with on the spot;
/// what happens later wakes the task that polled it last. Without this, hyper's channels would wake the very task that
/// is running, and every request would be polled twice.
#[derive(Debug, Default)]
struct Relay {
    task: Mutex<Option<Waker>>,
    polling: AtomicBool,
    noted: AtomicBool,
}

impl Relay {
    /// From now on wakes this task, which is about to poll the connection.
    fn follow(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
        drop(task);
        self.polling.store(true, Ordering::Release);
    }

    fn note(&self) {
        self.noted.store(true, Ordering::Release);
    }

    /// Whether something happened since the last look.
    fn take_note(&self) -> bool {
        self.noted.swap(false, Ordering::AcqRel)
    }

    /// Polling is over. Something that happened since the last look must not be lost.
    fn rest(&self) {
        self.polling.store(false, Ordering::Release);
        if self.noted.load(Ordering::Acquire) {
            self.wake_task();
        }
    }

    /// Polling is over, and the task will be back without being woken.
    fn pause(&self) {
        self.polling.store(false, Ordering::Release);
    }

    fn forget(&self) {
        *self.task.lock() = None;
        self.polling.store(false, Ordering::Release);
    }

    fn wake_task(&self) {
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.note();
        if !self.polling.load(Ordering::Acquire) {
            self.wake_task();
        }
    }
}

/// A response body, and the connection it comes on: given back to the pool when the body is complete, closed when it
/// is dropped before that.
#[derive(Debug)]
pub struct Reply {
    incoming: Incoming,
    lease: Option<Lease>,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Box<Connection>,
    pub(super) pool: Arc<Pool>,
    pub(super) pool_per_host: usize,
    /// False if what was seen of the response makes the rest of the connection doubtful.
    pub(super) reusable: bool,
}

impl Reply {
    pub(super) fn new(incoming: Incoming, lease: Lease) -> Self {
        let mut reply = Reply { incoming, lease: Some(lease) };
        if reply.incoming.is_end_stream() {
            reply.give_back();
        }
        reply
    }

    fn next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut quiet = Context::from_waker(Waker::noop());
        let Some(lease) = &mut self.lease else { return Pin::new(&mut self.incoming).poll_frame(&mut quiet) };
        lease.connection.relay.follow(cx.waker());
        // What hyper has already read comes first; asking for it also tells hyper that more is wanted.
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        if frame.is_ready() {
            lease.connection.relay.pause();
            return frame;
        }
        lease.connection.drive();
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut quiet);
        match frame {
            Poll::Ready(_) => lease.connection.relay.pause(),
            Poll::Pending => lease.connection.relay.rest(),
        }
        frame
    }

    fn give_back(&mut self) {
        if let Some(Lease { mut connection, pool, pool_per_host, reusable }) = self.lease.take()
            && reusable
            && connection.is_free()
        {
            pool.put(connection, pool_per_host);
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = this.next(cx);
        match &frame {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Err(_))) => this.lease = None,
            Poll::Ready(Some(Ok(_))) if this.incoming.is_end_stream() => this.give_back(),
            Poll::Ready(Some(Ok(_))) => {}
        }
        frame.map(|frame| frame.map(|frame| frame.map(without_forbidden_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
