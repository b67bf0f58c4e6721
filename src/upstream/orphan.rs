//! What becomes of a request that was sent if its client no longer waits for the response.
//!
//! The origin works on it all the same, and its response may contain rate limit fields that the next requests need to
//! know, or other clients may wait for it. If the body is dropped, an HTTP/1.1 connection is closed, and an HTTP/2
//! stream is cancelled.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use http::Response;

use super::error::UpstreamError;
use super::reply::Reply;

/// Follows a request that is being sent.
pub trait SendWatch {
    /// Called when the head of the request has been written.
    fn started(&mut self);

    /// Called when the sender was dropped after all of the request had been written, and before the response arrived.
    fn abandoned(&mut self, orphan: Orphan) {
        drop(orphan);
    }
}

impl<F: FnMut()> SendWatch for F {
    fn started(&mut self) {
        self();
    }
}

/// A request that is being sent, over HTTP/1.1 or HTTP/2.
pub(super) trait InTransit {
    /// Whether the origin has all of the request.
    fn has_sent_all(&self) -> bool;

    /// Goes on without the client.
    fn into_orphan(self) -> Orphan;
}

/// Passes the request to the watch if it is dropped while the response is awaited.
pub(super) struct Awaiting<'a, S: InTransit, W: SendWatch> {
    sending: Option<S>,
    watch: &'a mut W,
}

impl<'a, S: InTransit, W: SendWatch> Awaiting<'a, S, W> {
    pub(super) fn new(sending: S, watch: &'a mut W) -> Self {
        Awaiting { sending: Some(sending), watch }
    }

    pub(super) fn parts(&mut self) -> (&mut S, &mut W) {
        (self.sending.as_mut().expect("it is taken at the end"), self.watch)
    }

    pub(super) fn take(mut self) -> S {
        self.sending.take().expect("it is taken once")
    }
}

impl<S: InTransit, W: SendWatch> Drop for Awaiting<'_, S, W> {
    fn drop(&mut self) {
        if let Some(sending) = self.sending.take().filter(InTransit::has_sent_all) {
            self.watch.abandoned(sending.into_orphan());
        }
    }
}

/// The response that no client waits for.
pub struct Orphan(Pin<Box<dyn Future<Output = Result<Response<Reply>, UpstreamError>> + Send>>);

impl Orphan {
    pub(super) fn new(answer: impl Future<Output = Result<Response<Reply>, UpstreamError>> + Send + 'static) -> Self {
        Orphan(Box::pin(answer))
    }

    /// Returns the response, within the time limit that was set when the request was sent.
    pub async fn answer(self) -> Result<Response<Reply>, UpstreamError> {
        self.0.await
    }
}

impl fmt::Debug for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orphan").finish_non_exhaustive()
    }
}
