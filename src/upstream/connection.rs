//! One HTTP/1.1 connection to an origin or a parent proxy, driven by the task that uses it.
//!
//! It has no task and no channel of its own: the client's task writes the request, reads the head and then the body
//! (docs/decisions/0001-own-http1-client.md). So a request starts in the very poll in which [`Connection::send`] is
//! first polled, which is what pacing counts from. If the client disconnects, its task drops the connection.

use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::error::UpstreamError;
use super::head::{self, Head};
use super::message::Message;
use super::pool::Destination;
use super::stream::Stream;
use super::transit::{Awaiting, InTransit, TransitWatch};
use super::upload::{Upload, UploadError};
use super::{Terms, Unanswered};
use crate::clock;
use crate::timeout_stream::{Deadline, TimeoutStream};

pub(super) struct Connection {
    stream: TimeoutStream<Stream>,
    limit: Arc<Deadline>,
    /// Bytes that were read and not used yet.
    buffer: BytesMut,
    read_size: usize,
    head_size: usize,
    /// How long the origin may be silent in the middle of a response.
    idle: Duration,
    /// Number of interim responses to the present request.
    interim: usize,
    /// The request body. An origin may respond while it is still being sent.
    upload: Upload,
    place: Destination,
    /// The address of the origin; `None` if a parent proxy is in between.
    peer: Option<IpAddr>,
    /// Generation of the rules by which the guard judged the address.
    generation: u64,
    reused: bool,
    /// When the connection last became idle.
    idle_since: Instant,
}

/// Size of the first read: a head and a small body fit into it.
const FIRST_READ: usize = 8 * 1024;
/// Size of a read when a body keeps filling the buffer.
const LARGEST_READ: usize = 64 * 1024;
/// Interim responses that are skipped. An origin that sends more fails the request.
pub(super) const MOST_INTERIM: usize = 20;

/// A connection whose response is awaited.
pub(super) struct SentRequest {
    connection: Box<Connection>,
    is_head: bool,
}

impl InTransit for SentRequest {
    fn has_sent_all(&self) -> bool {
        self.connection.has_sent_all()
    }
}

impl SentRequest {
    /// Waits for the head of the response.
    pub(super) async fn answer(mut self) -> Result<(Head, Box<Connection>), UpstreamError> {
        // All of the request is written, so no other time limit begins.
        let head = poll_fn(|cx| self.connection.poll_exchange(self.is_head, Duration::ZERO, cx)).await?;
        self.connection.was_answered();
        Ok((head, self.connection))
    }
}

impl Connection {
    pub(super) fn new(stream: Stream, place: Destination, terms: Terms<'_>) -> Self {
        let limit = Arc::new(Deadline::none());
        let idle = terms.config.idle_timeout;
        let peer = if terms.config.proxy.is_none() { stream.peer() } else { None };
        Connection {
            stream: TimeoutStream::new(stream, limit.clone(), idle, idle),
            limit,
            buffer: BytesMut::new(),
            read_size: FIRST_READ,
            head_size: terms.head_size,
            idle,
            interim: 0,
            upload: Upload::done(),
            place,
            peer,
            generation: terms.generation,
            reused: false,
            idle_since: clock::now(),
        }
    }

    pub(super) fn place(&self) -> &Destination {
        &self.place
    }

    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Sends the request and waits for the head of the final response.
    pub(super) async fn send(
        mut self: Box<Self>,
        message: Box<Message>,
        response_timeout: Duration,
        watch: &mut impl TransitWatch<SentRequest>,
    ) -> Result<(Head, Box<Self>), Unanswered> {
        if self.reused && self.stream.get_mut().is_stale() {
            return Err(Unanswered { error: UpstreamError::Closed, again: Some(message) });
        }
        let mut is_started = false;
        let (is_head, repeatable) = (message.is_head, message.repeatable && self.reused);
        self.upload = Upload::new(*message);
        self.limit.listen();
        self.interim = 0;
        // The response timeout starts when the origin has the whole request.
        if self.upload.is_head_only() {
            self.limit.within(response_timeout);
        } else {
            self.limit.clear();
        }
        let mut awaiting = Awaiting::new(SentRequest { connection: self, is_head }, watch);
        let outcome = poll_fn(|cx| {
            let (SentRequest { connection, .. }, watch) = awaiting.parts();
            let outcome = connection.poll_exchange(is_head, response_timeout, cx);
            if !is_started && connection.upload.is_started() {
                is_started = true;
                watch.started();
            }
            outcome
        })
        .await;
        let SentRequest { mut connection, .. } = awaiting.take();
        match outcome {
            Ok(head) => {
                connection.was_answered();
                Ok((head, connection))
            }
            Err(error) => {
                let unanswered = error.is_unanswered() && !connection.limit.has_heard();
                let again = (repeatable && unanswered).then(|| Box::new(connection.upload.into_message(is_head)));
                Err(Unanswered { error, again })
            }
        }
    }

    /// Notes that the head of a response has come.
    fn was_answered(&mut self) {
        self.reused = true;
        if !self.upload.is_live() {
            self.limit.each_within(self.idle);
        }
    }

    pub(super) fn poll_exchange(
        &mut self,
        is_head: bool,
        response_timeout: Duration,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Head, UpstreamError>> {
        let was_live = self.upload.is_live();
        if let Poll::Ready(Err(UploadError::Body(fault))) = self.upload.push(&mut self.stream, cx) {
            return Poll::Ready(Err(UpstreamError::RequestBody(fault)));
        }
        if was_live && !self.upload.is_live() && !self.upload.is_head_only() {
            self.limit.within(response_timeout);
        }
        // An origin that accepts no more of the request may have responded without reading to the end.
        match (self.poll_head(is_head, cx), self.upload.failure()) {
            (Poll::Pending, Some(io::ErrorKind::TimedOut)) => Poll::Ready(Err(UpstreamError::WriteTimeout)),
            (Poll::Ready(Err(error)), Some(io::ErrorKind::TimedOut)) if error.is_unanswered() => {
                Poll::Ready(Err(UpstreamError::WriteTimeout))
            }
            (head, _) => head,
        }
    }

    fn poll_head(&mut self, is_head: bool, cx: &mut Context<'_>) -> Poll<Result<Head, UpstreamError>> {
        loop {
            match head::take(&mut self.buffer, is_head)? {
                Some(head) if head.response.status().is_informational() && !is_switch(&head) => {
                    self.interim += 1;
                    if self.interim > MOST_INTERIM {
                        return Poll::Ready(Err(UpstreamError::Protocol("too many interim responses".to_owned())));
                    }
                    continue;
                }
                Some(head) => return Poll::Ready(Ok(head)),
                None if self.buffer.len() > self.head_size => return Poll::Ready(Err(UpstreamError::HeadTooLarge)),
                None => {}
            }
            // A head is complete at the end of a line, so it is not parsed again before there is one.
            loop {
                let before = self.buffer.len();
                match ready!(self.poll_fill(cx)) {
                    // The bytes before the end may show that they never were a response.
                    Ok(0) => {
                        return Poll::Ready(Err(head::take(&mut self.buffer, is_head)
                            .err()
                            .unwrap_or(UpstreamError::Closed)));
                    }
                    Ok(_) if self.buffer[before..].contains(&b'\n') || self.buffer.len() > self.head_size => break,
                    Ok(_) => {}
                    Err(error) => return Poll::Ready(Err(UpstreamError::reading(&error))),
                }
            }
        }
    }

    /// Reads some more bytes; returns 0 at the end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.buffer.reserve(self.read_size);
        let room = self.buffer.capacity() - self.buffer.len();
        let read = ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx))?;
        if read == room {
            self.read_size = (self.read_size * 2).min(LARGEST_READ);
        }
        Poll::Ready(Ok(read))
    }

    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Continues to send while the response comes in. Until everything is sent, the origin may be waiting for the rest,
    /// so only then does its silence count. The response decides how the exchange ends, not a request that can no
    /// longer be sent.
    pub(super) fn push(&mut self, cx: &mut Context<'_>) {
        if self.upload.is_live() && self.upload.push(&mut self.stream, cx).is_ready() {
            self.limit.each_within(self.idle);
        }
    }

    /// Whether the origin has all of the request.
    pub(super) fn has_sent_all(&self) -> bool {
        self.upload.is_over()
    }

    /// Makes the connection ready for the next request. Returns false if it has bytes that belong to no request.
    pub(super) fn rest(&mut self) -> bool {
        self.limit.clear();
        let clean = self.buffer.is_empty();
        self.buffer = BytesMut::new();
        self.upload = Upload::done();
        self.read_size = FIRST_READ;
        self.idle_since = clock::now();
        clean
    }

    /// Returns the bare stream, after the origin has switched protocols, with the bytes that the origin has sent since.
    pub(super) fn into_stream(self) -> (Stream, Bytes) {
        (self.stream.into_inner(), self.buffer.freeze())
    }
}

fn is_switch(head: &Head) -> bool {
    head.response.status() == StatusCode::SWITCHING_PROTOCOLS
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("place", &self.place).field("reused", &self.reused).finish_non_exhaustive()
    }
}
