//! The part of a request that is still to be written: the rest of its head, then its body piece by piece.
//!
//! The next piece is requested only when the last one has been written, so a slow origin slows its client down.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::io::AsyncWrite;

use super::body::RequestBody;
use super::chunked;
use super::error::BodyFault;
use super::message::{Message, write_field};

#[derive(Debug)]
pub(super) struct Upload {
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
pub(super) enum UploadError {
    /// The client's body failed.
    Body(BodyFault),
    /// The origin accepts no more.
    Stream,
}

impl Upload {
    pub(super) fn new(message: Message) -> Self {
        let state = if matches!(message.body, RequestBody::Empty) { UploadState::Last } else { UploadState::Flowing };
        Upload { out: message.head, written: 0, body: message.body, chunked: message.chunked, state, started: false }
    }

    /// Creates an upload with nothing left to write.
    pub(super) fn done() -> Self {
        let (out, body) = (Vec::new(), RequestBody::Empty);
        Upload { out, written: 0, body, chunked: false, state: UploadState::Over, started: true }
    }

    /// Writes as much as the origin accepts. Ready once everything is written.
    pub(super) fn push<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), UploadError>> {
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

    pub(super) fn is_head_only(&self) -> bool {
        matches!(self.body, RequestBody::Empty)
    }

    /// Whether the origin has the head: that is when a request starts.
    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// Whether there is more to write, and the origin may still accept it.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.state, UploadState::Flowing | UploadState::Last)
    }

    /// Whether the origin has all of the request.
    pub(super) fn is_over(&self) -> bool {
        self.state == UploadState::Over
    }

    pub(super) fn failure(&self) -> Option<io::ErrorKind> {
        match self.state {
            UploadState::Failed(kind) => Some(kind),
            _ => None,
        }
    }

    /// Returns the request without a body, to be sent again.
    pub(super) fn into_message(self, is_head: bool) -> Message {
        Message { head: self.out, body: RequestBody::Empty, chunked: false, is_head, repeatable: true }
    }
}
