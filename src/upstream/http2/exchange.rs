//! One request on a link, up to the head of its response.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{Response, StatusCode};
use tokio::time::Instant;

use super::alarm::StreamTimeout;
use super::fault::{self, StreamOutcome};
use super::link::StreamSlot;
use super::passage::StreamGuard;
use super::read_back::read_back;
use super::reply::StreamReply;
use super::upload::{StreamUpload, is_nothing};
use crate::clock;
use crate::upstream::Unanswered;
use crate::upstream::body::RequestBody;
use crate::upstream::connection::MOST_INTERIM;
use crate::upstream::error::UpstreamError;
use crate::upstream::head;
use crate::upstream::message::Message;
use crate::upstream::orphan::{Awaiting, InTransit, Orphan, SendWatch};
use crate::upstream::reply::Reply;

#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Limits {
    /// Time from the end of the request to the head of the response.
    pub(in crate::upstream) response: Duration,
    /// How long the origin may accept nothing of a request, or be silent in the middle of a response.
    pub(in crate::upstream) idle: Duration,
}

/// A request whose response is awaited.
struct Exchange {
    response: ResponseFuture,
    upload: StreamUpload,
    passage: StreamGuard,
    interim: usize,
    is_head: bool,
    limits: Limits,
    /// When the response must have arrived.
    due: Instant,
    alarm: StreamTimeout,
}

/// Why there is no response, and what the origin did with the request.
type Failed = (UpstreamError, StreamOutcome);

/// Sends the request and waits for the head of the final response. Calls `watch` when the request's head has left, and
/// passes it what is left if this future is dropped before the response arrives.
pub(in crate::upstream) async fn send(
    seat: StreamSlot,
    mut message: Box<Message>,
    limits: Limits,
    watch: &mut impl SendWatch,
) -> Result<Response<StreamReply>, (Unanswered, StreamOutcome)> {
    let (request, kept) =
        read_back(&message).map_err(|error| (Unanswered { error, again: None }, StreamOutcome::Dealt))?;
    let is_reused = seat.link().has_answered();
    let Some((response, stream)) = seat.link().begin(request, is_nothing(&kept, &message.body)) else {
        return Err((Unanswered { error: UpstreamError::Closed, again: Some(message) }, StreamOutcome::Untouched));
    };
    let passage = StreamGuard::new(seat, stream.stream_id().as_u32());
    let body = std::mem::replace(&mut message.body, RequestBody::Empty);
    let exchange = Exchange {
        response,
        upload: StreamUpload::new(stream, kept, body),
        passage,
        interim: 0,
        is_head: message.is_head,
        limits,
        due: clock::now() + limits.response,
        alarm: StreamTimeout::default(),
    };
    let mut awaiting = Awaiting::new(exchange, watch);
    let outcome = poll_fn(|cx| {
        let (exchange, watch) = awaiting.parts();
        exchange.poll(cx, &mut || watch.started())
    })
    .await;
    let exchange = awaiting.take();
    let failed = match outcome {
        Ok(mut response) => match check(&mut response) {
            Ok(length) => return Ok(exchange.into_reply(response, length, message.is_head)),
            Err(error) => (error, StreamOutcome::Dealt),
        },
        Err(failed) => failed,
    };
    let (error, fate) = failed;
    if fate == StreamOutcome::Untouched {
        // An origin that refuses one request refuses the next: later requests use another connection.
        exchange.passage.link().doubt();
    }
    let may_again = match fate {
        StreamOutcome::Untouched | StreamOutcome::Misplaced => exchange.upload.untouched,
        StreamOutcome::Unknown => message.repeatable && is_reused,
        StreamOutcome::Dealt => false,
    };
    message.body = exchange.upload.into_body();
    Err((Unanswered { error, again: may_again.then_some(message) }, fate))
}

impl Exchange {
    fn poll(&mut self, cx: &mut Context<'_>, started: &mut impl FnMut()) -> Poll<Result<Response<RecvStream>, Failed>> {
        if self.passage.starts(cx.waker()) {
            started();
        }
        let was_live = self.upload.is_live();
        if let Poll::Ready(Err(fault)) = self.upload.push(cx) {
            return Poll::Ready(Err((UpstreamError::RequestBody(fault), StreamOutcome::Dealt)));
        }
        // The response timeout starts when the origin has the whole request.
        if was_live && !self.upload.is_live() {
            self.due = clock::now() + self.limits.response;
        }
        match self.poll_head(cx) {
            Poll::Ready(outcome) => {
                if self.passage.may_have_started() {
                    started();
                }
                Poll::Ready(outcome)
            }
            Poll::Pending => self.poll_overdue(cx).map(|error| Err((error, StreamOutcome::Dealt))),
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Response<RecvStream>, Failed>> {
        while let Poll::Ready(Some(Ok(_))) = self.response.poll_informational(cx) {
            self.interim += 1;
            if self.interim > MOST_INTERIM {
                let error = UpstreamError::Protocol("too many interim responses".to_owned());
                return Poll::Ready(Err((error, StreamOutcome::Dealt)));
            }
        }
        let link = self.passage.link();
        let failed = |error: h2::Error| fault::of_request(&error, self.passage.stream, &link.record());
        Pin::new(&mut self.response).poll(cx).map_err(failed)
    }

    /// Only the origin's time counts: for the response, once it has the request; until then, for accepting the request.
    fn poll_overdue(&mut self, cx: &mut Context<'_>) -> Poll<UpstreamError> {
        let (due, error) = match (self.upload.is_live(), self.upload.stuck_since) {
            (false, _) => (self.due, UpstreamError::ResponseTimeout),
            (true, Some(since)) => (since + self.limits.idle, UpstreamError::WriteTimeout),
            (true, None) => return Poll::Pending,
        };
        self.alarm.poll(due, cx).map(|()| {
            self.passage.link().doubt();
            error
        })
    }

    /// Waits for the response.
    async fn answer(mut self) -> Result<Response<StreamReply>, UpstreamError> {
        let outcome = poll_fn(|cx| self.poll(cx, &mut || ())).await;
        let mut response = outcome.map_err(|(error, _)| error)?;
        let (length, is_head) = (check(&mut response)?, self.is_head);
        Ok(self.into_reply(response, length, is_head))
    }

    fn into_reply(self, response: Response<RecvStream>, length: Option<u64>, is_head: bool) -> Response<StreamReply> {
        self.passage.link().note_answer();
        let has_body = !is_head && !matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        response.map(|body| {
            if has_body {
                StreamReply::new(body, length, self.upload, self.passage, self.limits.idle)
            } else {
                StreamReply::default()
            }
        })
    }
}

impl InTransit for Exchange {
    fn has_sent_all(&self) -> bool {
        self.passage.has_started() && !self.upload.is_live()
    }

    fn into_orphan(self) -> Orphan {
        let peer = self.passage.link().peer();
        Orphan::new(async move { Ok(self.answer().await?.map(|reply| Reply::shared(reply, peer))) })
    }
}

/// Checks what HTTP/2 leaves open about a response head and clients must be able to rely on. Returns the length of the
/// body, if the head states one.
fn check(response: &mut Response<RecvStream>) -> Result<Option<u64>, UpstreamError> {
    match response.status().as_u16() {
        101 => Err(UpstreamError::Upgrade),
        _ => head::check_length(response.headers_mut()),
    }
}
