//! A request's body on its way into a stream.
//!
//! The next piece is requested when the last one has been accepted, and a piece is accepted only as far as the origin's
//! windows are open, so a slow origin slows its client down.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::{Reason, SendStream};
use http_body::Body;
use tokio::time::Instant;

use super::link::MOST_UNSENT;
use crate::clock;
use crate::upstream::body::RequestBody;
use crate::upstream::error::BodyFault;

#[derive(Debug)]
pub(super) struct StreamUpload {
    stream: SendStream<Bytes>,
    /// Bytes that were taken from the body and that the origin has not accepted yet.
    piece: Bytes,
    body: RequestBody,
    state: StreamUploadState,
    /// Nothing of the body has been requested.
    pub(super) untouched: bool,
    /// Since when the origin accepts nothing.
    pub(super) stuck_since: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamUploadState {
    Flowing,
    /// The origin has the whole body.
    Over,
    /// The origin accepts no more, or the client's body failed.
    Failed,
}

impl StreamUpload {
    /// `piece`: the part of the body that is known already.
    pub(super) fn new(stream: SendStream<Bytes>, piece: Bytes, body: RequestBody) -> Self {
        let state = if is_nothing(&piece, &body) { StreamUploadState::Over } else { StreamUploadState::Flowing };
        StreamUpload { stream, piece, body, state, untouched: true, stuck_since: None }
    }

    /// Whether there is more to send, and the origin may still accept it.
    pub(super) fn is_live(&self) -> bool {
        self.state == StreamUploadState::Flowing
    }

    /// Sends as much as the origin accepts. An error comes from the client's body; if the origin accepts no more, its
    /// response explains why.
    pub(super) fn push(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BodyFault>> {
        while self.state == StreamUploadState::Flowing {
            if !self.piece.is_empty() {
                ready!(self.send_piece(cx));
                continue;
            }
            self.untouched = false;
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(content) => self.piece = content,
                    Err(frame) => {
                        let trailers = frame.into_trailers().unwrap_or_default();
                        let sent = self.stream.send_trailers(trailers).is_ok();
                        self.state = if sent { StreamUploadState::Over } else { StreamUploadState::Failed };
                    }
                },
                Some(Err(fault)) => {
                    self.stream.send_reset(Reason::CANCEL);
                    self.state = StreamUploadState::Failed;
                    return Poll::Ready(Err(fault));
                }
                None => self.send(Bytes::new(), true),
            }
        }
        Poll::Ready(Ok(()))
    }

    fn send_piece(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stream.capacity() == 0 {
            self.stream.reserve_capacity(self.piece.len().min(MOST_UNSENT));
            match self.stream.poll_capacity(cx) {
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => self.state = StreamUploadState::Failed,
                Poll::Pending => {
                    self.stuck_since.get_or_insert_with(clock::now);
                    return Poll::Pending;
                }
            }
        }
        let room = self.stream.capacity().min(self.piece.len());
        if room > 0 && self.state == StreamUploadState::Flowing {
            self.stuck_since = None;
            let piece = self.piece.split_to(room);
            let is_last = is_nothing(&self.piece, &self.body) || (self.piece.is_empty() && self.body.is_end_stream());
            self.send(piece, is_last);
        }
        Poll::Ready(())
    }

    fn send(&mut self, piece: Bytes, is_last: bool) {
        match self.stream.send_data(piece, is_last) {
            Ok(()) if is_last => self.state = StreamUploadState::Over,
            Ok(()) => {}
            Err(_) => self.state = StreamUploadState::Failed,
        }
    }

    /// Returns the body, to be sent on another stream.
    pub(super) fn into_body(self) -> RequestBody {
        self.body
    }
}

/// Whether a request is complete without a body.
pub(super) fn is_nothing(piece: &Bytes, body: &RequestBody) -> bool {
    piece.is_empty() && matches!(body, RequestBody::Empty)
}
