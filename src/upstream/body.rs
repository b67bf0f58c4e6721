//! A client's request body on its way to the origin.
//!
//! Streamed, never stored: hyper asks for the next piece only when the origin has accepted the last one, so a slow
//! origin slows the client down. A client that pauses in the middle for longer than `limits.client_stall` is given up,
//! and so is one whose pauses are shorter but whose rate is below [`LEAST_RATE`]. Time that the origin takes does not
//! count.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::error::{BodyFault, cause};
use crate::clock;
use crate::metrics::Metrics;
use crate::timeout_stream::Deadline;

#[derive(Debug)]
pub enum RequestBody {
    Empty,
    Streaming(Streaming),
}

#[derive(Debug)]
pub struct Streaming {
    incoming: Incoming,
    /// The limit of the client's connection, if that has nothing else to wait for.
    limit: Option<Arc<Deadline>>,
    /// Otherwise the request has its own timer.
    alarm: Option<Pin<Box<Sleep>>>,
    stall: Duration,
    /// Since when curtsy waits for the client.
    waiting: Option<Instant>,
    /// The total time spent waiting for the client, and the bytes received.
    waited: Duration,
    came: u64,
    /// Counts the bytes.
    metrics: Arc<Metrics>,
}

/// Bytes a second that a body must have on average, not counting the first pauses; the same as in Apache's
/// mod_reqtimeout (`body=20,MinRate=500`).
const LEAST_RATE: u64 = 500;
/// How many pauses of `limits.client_stall` a body may have before the rate counts: ten minutes by default, enough for
/// a client that computes what it sends.
const FREE_PAUSES: u32 = 10;

impl RequestBody {
    pub fn new(incoming: Incoming, limit: Option<&Arc<Deadline>>, stall: Duration, metrics: &Arc<Metrics>) -> Self {
        if incoming.is_end_stream() {
            RequestBody::Empty
        } else {
            let (limit, metrics) = (limit.cloned(), metrics.clone());
            let (alarm, waiting, waited, came) = (None, None, Duration::ZERO, 0);
            RequestBody::Streaming(Streaming { incoming, limit, alarm, stall, waiting, waited, came, metrics })
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyFault;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        match self.get_mut() {
            RequestBody::Empty => Poll::Ready(None),
            RequestBody::Streaming(streaming) => streaming.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Streaming(streaming) => streaming.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Streaming(streaming) => streaming.incoming.size_hint(),
        }
    }
}

impl Streaming {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyFault>>> {
        if self.waiting.is_none() {
            self.begin_waiting(clock::now());
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            let stalled = self.alarm.as_mut().is_some_and(|alarm| alarm.as_mut().poll(cx).is_ready());
            return if stalled { Poll::Ready(Some(Err(BodyFault::Stalled))) } else { Poll::Pending };
        };
        if let Some(since) = self.waiting.take() {
            self.waited += clock::now() - since;
        }
        if let Some(limit) = &self.limit {
            limit.clear();
        }
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.came += bytes.len() as u64;
            self.metrics.transfers.up(bytes.len() as u64);
        }
        Poll::Ready(frame.map(|frame| frame.map(without_forbidden_trailers).map_err(|error| fault(&error))))
    }

    fn begin_waiting(&mut self, now: Instant) {
        self.waiting = Some(now);
        let in_all = self.stall * FREE_PAUSES + Duration::from_secs(self.came / LEAST_RATE);
        let pause = self.stall.min(in_all.saturating_sub(self.waited));
        match &self.limit {
            Some(limit) => limit.within(pause),
            None => self.alarm = Some(Box::pin(tokio::time::sleep_until(now + pause))),
        }
    }
}

fn fault(error: &hyper::Error) -> BodyFault {
    match cause::<io::Error>(error).map(io::Error::kind) {
        Some(io::ErrorKind::TimedOut) => BodyFault::Stalled,
        Some(io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => BodyFault::Malformed,
        Some(_) => BodyFault::Left,
        None => BodyFault::Malformed,
    }
}

/// Removes trailer fields that frame, route or authorise a message: after the body they mean nothing, or do harm (RFC
/// 9110, section 6.5.1).
pub(super) fn without_forbidden_trailers(frame: Frame<Bytes>) -> Frame<Bytes> {
    match frame.into_trailers() {
        Ok(mut trailers) => {
            drop_forbidden(&mut trailers);
            Frame::trailers(trailers)
        }
        Err(data) => data,
    }
}

fn drop_forbidden(trailers: &mut HeaderMap) {
    const FORBIDDEN: [HeaderName; 16] = [
        header::AUTHORIZATION,
        header::CACHE_CONTROL,
        header::CONNECTION,
        header::CONTENT_ENCODING,
        header::CONTENT_LENGTH,
        header::CONTENT_RANGE,
        header::CONTENT_TYPE,
        header::COOKIE,
        header::HOST,
        header::MAX_FORWARDS,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
        header::SET_COOKIE,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
    ];
    for name in &FORBIDDEN {
        trailers.remove(name);
    }
    let own: Vec<HeaderName> = trailers.keys().filter(|name| name.as_str().starts_with("curtsy")).cloned().collect();
    for name in own {
        trailers.remove(name);
    }
}
