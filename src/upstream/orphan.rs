//! A request that was sent and whose client no longer waits for the response.
//!
//! The origin works on it all the same, and its response may contain rate limit fields that the next requests need to
//! know. Only the head of the response is read; the connection is closed after it.

use std::future::poll_fn;
use std::time::Duration;

use http::Response;

use super::connection::Connection;
use super::error::UpstreamError;

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

#[derive(Debug)]
pub struct Orphan {
    pub(super) connection: Box<Connection>,
    pub(super) is_head: bool,
}

impl Orphan {
    /// Returns the head of the response, within the time limit that was set when the request was sent.
    pub async fn answer(self) -> Result<Response<()>, UpstreamError> {
        let Orphan { mut connection, is_head } = self;
        // All of the request is written, so no other time limit begins.
        poll_fn(|cx| connection.poll_exchange(is_head, Duration::ZERO, cx)).await.map(|head| head.response)
    }
}

/// Passes the connection to the watch if it is dropped while the response is awaited.
pub(super) struct Awaiting<'a, W: SendWatch> {
    connection: Option<Box<Connection>>,
    watch: &'a mut W,
    is_head: bool,
}

impl<'a, W: SendWatch> Awaiting<'a, W> {
    pub(super) fn new(connection: Box<Connection>, watch: &'a mut W, is_head: bool) -> Self {
        Awaiting { connection: Some(connection), watch, is_head }
    }

    pub(super) fn parts(&mut self) -> (&mut Connection, &mut W) {
        (self.connection.as_mut().expect("it is taken at the end"), self.watch)
    }

    pub(super) fn take(mut self) -> Box<Connection> {
        self.connection.take().expect("it is taken once")
    }
}

impl<W: SendWatch> Drop for Awaiting<'_, W> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take().filter(|connection| connection.has_sent_all()) {
            self.watch.abandoned(Orphan { connection, is_head: self.is_head });
        }
    }
}
