//! One HTTP/1.1 connection to an origin or a parent proxy, driven by the task that uses it.
//!
//! It has no task and no channel of its own: the client's task writes the request, reads the head and then the body
//! (docs/decisions/0001-own-http1-client.md). So a request starts in the very poll in which
//! [`Connection::poll_exchange`] is first polled, which is what pacing counts from. If the client disconnects, its task
//! drops the connection.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use http_body::{Body, Frame};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use super::body::RequestBody;
use super::error::{BodyFault, UpstreamError};
use super::head::{self, Head};
use super::message::{Message, write_field};
use super::pool::Destination;
use super::stream::Stream;
use super::{Terms, chunked};
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

    pub(super) fn is_reused(&self) -> bool {
        self.reused
    }

    /// Begins a request. [`Connection::poll_exchange`] sends it. Gives the request back if a reused connection turns
    /// out to be dead: it has something to read, its end or bytes that belong to no request.
    ///
    /// Under TLS the socket may well have bytes. Servers send tickets for later sessions whenever they like, and these
    /// are processed here; only what remains for a reader counts.
    pub(super) fn begin(&mut self, message: Box<Message>, response_timeout: Duration) -> Result<(), Box<Message>> {
        let mut byte = [0];
        let is_dead = match self.stream.get_mut() {
            _ if !self.reused => false,
            Stream::Plain(tcp) => {
                !matches!(tcp.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Stream::Tls(tls) => {
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(tls).poll_read(&mut cx, &mut ReadBuf::new(&mut byte)).is_ready()
            }
        };
        if is_dead {
            return Err(message);
        }
        self.upload = Upload::new(*message);
        self.limit.listen();
        self.interim = 0;
        // The response timeout starts when the origin has the whole request.
        if self.upload.is_head_only() {
            self.limit.within(response_timeout);
        } else {
            self.limit.clear();
        }
        Ok(())
    }

    /// Whether the origin has the head: that is when a request starts.
    pub(super) fn has_started(&self) -> bool {
        self.upload.started
    }

    /// Whether a byte of the response has come.
    pub(super) fn has_heard(&self) -> bool {
        self.limit.has_heard()
    }

    /// Returns the request without a body, to be sent again.
    pub(super) fn into_message(self, is_head: bool) -> Message {
        Message { head: self.upload.out, body: RequestBody::Empty, chunked: false, is_head, repeatable: true }
    }

    /// Notes that the head of a response has come.
    pub(super) fn was_answered(&mut self) {
        self.reused = true;
        if !self.upload.is_live() {
            self.limit.each_within(self.idle);
        }
    }

    /// Sends what is left of the request, and reads the head of the final response.
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

/// The part of a request that is still to be written: the rest of its head, then its body piece by piece. The next
/// piece is requested only when the last one has been written, so a slow origin slows its client down.
#[derive(Debug)]
struct Upload {
    /// The bytes being written; those before `written` are done.
    out: Vec<u8>,
    written: usize,
    body: RequestBody,
    chunked: bool,
    state: UploadState,
    /// All of the head has been written.
    started: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UploadState {
    /// There may be more to write than `out`.
    Flowing,
    /// `out` is the last part.
    Last,
    Over,
    Failed(io::ErrorKind),
}

#[derive(Debug)]
enum UploadError {
    /// The client's body failed.
    Body(BodyFault),
    /// The origin accepts no more.
    Stream,
}

impl Upload {
    fn new(message: Message) -> Self {
        let state = if matches!(message.body, RequestBody::Empty) { UploadState::Last } else { UploadState::Flowing };
        Upload { out: message.head, written: 0, body: message.body, chunked: message.chunked, state, started: false }
    }

    /// Creates an upload with nothing left to write.
    fn done() -> Self {
        let (out, body) = (Vec::new(), RequestBody::Empty);
        Upload { out, written: 0, body, chunked: false, state: UploadState::Over, started: true }
    }

    /// Writes as much as the origin accepts. Ready once everything is written.
    fn push<S: AsyncWrite + Unpin>(&mut self, stream: &mut S, cx: &mut Context<'_>) -> Poll<Result<(), UploadError>> {
        loop {
            match self.state {
                UploadState::Over => return Poll::Ready(Ok(())),
                UploadState::Failed(_) => return Poll::Ready(Err(UploadError::Stream)),
                UploadState::Flowing | UploadState::Last => {}
            }
            while self.written < self.out.len() {
                match ready!(Pin::new(&mut *stream).poll_write(cx, &self.out[self.written..])) {
                    Ok(0) => self.state = UploadState::Failed(io::ErrorKind::WriteZero),
                    Ok(written) => self.written += written,
                    Err(error) => self.state = UploadState::Failed(error.kind()),
                }
                if let UploadState::Failed(_) = self.state {
                    return Poll::Ready(Err(UploadError::Stream));
                }
            }
            // TLS accepts more than it has sent.
            if let Err(error) = ready!(Pin::new(&mut *stream).poll_flush(cx)) {
                self.state = UploadState::Failed(error.kind());
                return Poll::Ready(Err(UploadError::Stream));
            }
            self.started = true;
            if self.state == UploadState::Last {
                self.state = UploadState::Over;
                continue;
            }
            self.out.clear();
            self.written = 0;
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => self.write_down(frame),
                Some(Err(fault)) => {
                    self.state = UploadState::Failed(io::ErrorKind::InvalidData);
                    return Poll::Ready(Err(UploadError::Body(fault)));
                }
                None => {
                    if self.chunked {
                        self.out.extend_from_slice(chunked::END);
                    }
                    self.state = UploadState::Last;
                }
            }
        }
    }

    fn write_down(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(content) if content.is_empty() => {}
            Ok(content) if self.chunked => chunked::write(&mut self.out, &content),
            Ok(content) => self.out.extend_from_slice(&content),
            Err(frame) => {
                if let (true, Ok(trailers)) = (self.chunked, frame.into_trailers()) {
                    self.out.extend_from_slice(b"0\r\n");
                    for (name, value) in &trailers {
                        write_field(&mut self.out, name, value.as_bytes());
                    }
                    self.out.extend_from_slice(b"\r\n");
                    self.state = UploadState::Last;
                }
            }
        }
    }

    fn is_head_only(&self) -> bool {
        matches!(self.body, RequestBody::Empty)
    }

    /// Whether there is more to write, and the origin may still accept it.
    fn is_live(&self) -> bool {
        matches!(self.state, UploadState::Flowing | UploadState::Last)
    }

    /// Whether the origin has all of the request.
    fn is_over(&self) -> bool {
        self.state == UploadState::Over
    }

    fn failure(&self) -> Option<io::ErrorKind> {
        match self.state {
            UploadState::Failed(kind) => Some(kind),
            _ => None,
        }
    }
}
