//! A response body that arrives on a stream of a link.
//!
//! The origin may send more only when what it sent has been read, so a slow client slows its origin down. If this is
//! dropped before its end, the stream is cancelled, and the connection stays open.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::alarm::StreamTimeout;
use super::fault;
use super::passage::StreamGuard;
use super::upload::StreamUpload;
use crate::clock;
use crate::upstream::reply::Broken;

/// A response body; None once it is over.
#[derive(Debug, Default)]
pub(in crate::upstream) struct StreamReply(Option<Box<ComingBody>>);

#[derive(Debug)]
struct ComingBody {
    body: RecvStream,
    /// Bytes left of the announced length.
    left: Option<u64>,
    /// Bytes passed on that may not have been read yet.
    handed: usize,
    /// The request body. An origin may respond while it is still being sent.
    upload: StreamUpload,
    idle: Duration,
    heard: Instant,
    alarm: StreamTimeout,
    passage: StreamGuard,
}

impl StreamReply {
    pub(super) fn new(
        body: RecvStream,
        left: Option<u64>,
        upload: StreamUpload,
        passage: StreamGuard,
        idle: Duration,
    ) -> Self {
        if body.is_end_stream() {
            return StreamReply(None);
        }
        let (heard, alarm) = (clock::now(), StreamTimeout::default());
        StreamReply(Some(Box::new(ComingBody { body, left, handed: 0, upload, idle, heard, alarm, passage })))
    }
}

impl ComingBody {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Broken>> {
        // A caller that polls for more has consumed what came before.
        let taken = std::mem::take(&mut self.handed);
        // An error means that the stream is over, which shows below.
        let _ = self.body.flow_control().release_capacity(taken);
        // The response decides how the exchange ends, not a request that can no longer be sent.
        if self.upload.is_live() && self.upload.push(cx).is_ready() {
            self.heard = clock::now();
        }
        match self.poll_body(cx) {
            Poll::Pending if self.upload.is_live() => Poll::Pending,
            Poll::Pending => {
                ready!(self.alarm.poll(self.heard + self.idle, cx));
                self.passage.link().doubt();
                Poll::Ready(Err(Broken::TimedOut))
            }
            outcome => {
                self.heard = clock::now();
                outcome
            }
        }
    }

    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Broken>> {
        let broken = |error: h2::Error| fault::of_body(&error);
        if let Some(content) = ready!(self.body.poll_data(cx)) {
            let content = content.map_err(broken)?;
            self.handed = content.len();
            self.left = self.left.map(|left| left.saturating_sub(content.len() as u64));
            return Poll::Ready(Ok(Some(Frame::data(content))));
        }
        let trailers = ready!(self.body.poll_trailers(cx)).map_err(broken)?;
        Poll::Ready(Ok(trailers.map(Frame::trailers)))
    }
}

impl Body for StreamReply {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let Some(coming) = &mut this.0 else { return Poll::Ready(None) };
        let outcome = ready!(coming.poll_next(cx));
        let is_last = match &outcome {
            Ok(Some(frame)) => frame.is_trailers() || coming.body.is_end_stream(),
            Ok(None) | Err(_) => true,
        };
        if is_last {
            this.0 = None;
        }
        Poll::Ready(outcome.transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            None => SizeHint::with_exact(0),
            Some(coming) => coming.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
