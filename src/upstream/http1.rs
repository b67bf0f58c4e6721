//! One request over an HTTP/1.1 connection, up to the head of its response.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::{Response, StatusCode};

use super::connection::Connection;
use super::error::UpstreamError;
use super::head::Head;
use super::message::Message;
use super::orphan::{Awaiting, InTransit, Orphan, SendWatch};
use super::pool::Pool;
use super::reply::{Lease, Reply};
use super::{Answer, Terms, Unanswered};

/// A request whose response is awaited.
struct SentRequest {
    connection: Box<Connection>,
    is_head: bool,
    pool: Arc<Pool>,
    pool_per_host: usize,
}

/// Sends the request and waits for the head of the final response.
pub(super) async fn send(
    mut connection: Box<Connection>,
    message: Box<Message>,
    terms: Terms<'_>,
    pool: &Arc<Pool>,
    watch: &mut impl SendWatch,
) -> Result<Answer, Unanswered> {
    let (response_timeout, pool_per_host) = (terms.config.response_timeout, terms.config.pool_per_host);
    let (is_head, repeatable) = (message.is_head, message.repeatable && connection.is_reused());
    let begun = connection.begin(message, response_timeout);
    begun.map_err(|message| Unanswered { error: UpstreamError::Closed, again: Some(message) })?;
    let mut is_started = false;
    let sent = SentRequest { connection, is_head, pool: pool.clone(), pool_per_host };
    let mut awaiting = Awaiting::new(sent, watch);
    let outcome = poll_fn(|cx| {
        let (SentRequest { connection, .. }, watch) = awaiting.parts();
        let outcome = connection.poll_exchange(is_head, response_timeout, cx);
        if !is_started && connection.has_started() {
            is_started = true;
            watch.started();
        }
        outcome
    })
    .await;
    let sent = awaiting.take();
    match outcome {
        Ok(head) if head.response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            // The rest of the body would become the first bytes of the other protocol.
            if !sent.connection.has_sent_all() {
                return Err(UpstreamError::Upgrade.into());
            }
            let (stream, early) = sent.connection.into_stream();
            Ok(Answer::Switched(head.response, stream, early))
        }
        Ok(head) => Ok(Answer::Response(Box::new(sent.into_response(head)))),
        Err(error) => {
            let unanswered = repeatable && error.is_unanswered() && !sent.connection.has_heard();
            let again = unanswered.then(|| Box::new(sent.connection.into_message(is_head)));
            Err(Unanswered { error, again })
        }
    }
}

impl SentRequest {
    /// Returns the response, whose body returns the connection to the pool.
    fn into_response(self, Head { response, framing, keep_alive }: Head) -> Response<Reply> {
        let SentRequest { mut connection, pool, pool_per_host, .. } = self;
        connection.was_answered();
        response.map(|()| Reply::new(framing, Lease { connection, pool, pool_per_host, keep_alive }))
    }
}

impl InTransit for SentRequest {
    fn has_sent_all(&self) -> bool {
        self.connection.has_sent_all()
    }

    fn into_orphan(mut self) -> Orphan {
        Orphan::new(async move {
            // All of the request is written, so no other time limit begins.
            let head = poll_fn(|cx| self.connection.poll_exchange(self.is_head, Duration::ZERO, cx)).await?;
            Ok(self.into_response(head))
        })
    }
}
