//! Sends a request in its turn, and again where that helps: on another connection, if its own turned out to be dead or
//! the origin closed it before it looked at the request; and after a temporary refusal, as often as the operator
//! allows.
//!
//! Every attempt is a visit of its own, so a retry waits for its turn too, at the front of the queue. The client sees
//! one answer: the last one. If a request cannot be sent again, or not within the client's patience, the client gets
//! the answer that the origin gave.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http_body::Body;

use super::orphans;
use crate::clock;
use crate::gate::{Permit, Place, at, now};
use crate::politeness::retries::may_retry;
use crate::politeness::signals::{self, Fields, Signals};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Outcome, Purpose, Visit};
use crate::politeness::{HostKey, Origin};
use crate::proxy::answer::failure::Failure;
use crate::proxy::request::label::{self, Who};
use crate::proxy::{Settings, Shared, Worker};
use crate::upstream::{Answer, LaneAddress, Message, Orphan, Ready, Terms, Unanswered, UpstreamError, Watch};

/// The largest body that is kept for sending again. Safe methods with a body are queries, and rarely longer.
const KEPT_BODY: u64 = 64 * 1024;

/// How often a request that no origin has looked at gets another connection. On each it is the first request, so one is
/// nearly always enough; an origin that closes three new connections wants no requests.
const MOST_CONNECTIONS: usize = 3;

/// A longer body, or one of unknown length, may become a long transfer. A shorter one fits into the buffers on its way
/// (64 KiB is what Linux gives a socket at first), so a client that reads slowly cannot make it last.
const SHORT_BODY: u64 = 64 * 1024;

/// Whether a body may occupy its place at the host for long.
pub(crate) fn may_take_long(body: &impl Body) -> bool {
    !body.is_end_stream() && body.size_hint().upper().is_none_or(|most| most > SHORT_BODY)
}

/// One request on its way to its origin.
#[derive(Clone, Copy)]
pub(crate) struct Errand<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) settings: &'a Settings,
    pub(crate) origin: &'a Origin,
    /// The lanes it may take its turn in: the first, or the next if the address of the one before cannot be reached.
    /// Never empty.
    pub(crate) lanes: &'a [LaneAddress],
    pub(crate) visit: Visit,
    pub(crate) who: Who<'a>,
    /// Whether it may be sent again after a refusal: its method is safe.
    pub(crate) safe: bool,
    /// Whether a small body may be read before it is sent. Not if the client waits for an answer before it sends the
    /// body.
    pub(crate) keep_body: bool,
    /// Whether it asks to switch protocols, which only HTTP/1.1 can do.
    pub(crate) upgrade: bool,
}

pub(crate) struct Sent {
    pub(crate) answer: Answer,
    pub(crate) permit: Permit,
    /// From the send to the response head.
    pub(crate) took: Duration,
    pub(crate) attempts: u32,
}

/// The outcome of one attempt, and the request itself if it may be repeated.
type OneTry = Result<(Sent, Option<Box<Message>>), Failure>;

impl<'a> Errand<'a> {
    /// Waits for the request's turn and sends it.
    pub(crate) async fn send(self, message: Box<Message>) -> Result<Sent, Failure> {
        let (place, at_hand, joined) = self.join(&message)?;
        let (sent, again) = self.try_once(place, at_hand, message, 1, joined).await?;
        match again {
            // Boxed, because it is rare and its space would be part of every request.
            Some(message) if self.wants_retry(&sent) => Box::pin(self.retry(sent, message, joined)).await,
            _ => Ok(sent),
        }
    }

    /// Takes a place in the queue. Most requests find their host free and a connection at hand, and go through at once.
    fn join(&self, message: &Message) -> Result<(Place, Option<Ready>, Timestamp), Failure> {
        let (gate, upstream, moment) = (&self.worker.shared.gate, &self.worker.upstream, clock::now());
        let joined = at(moment);
        let is_whole = !self.keep_body || message.has_no_body();
        let at_hand = if is_whole { upstream.at_hand(self.terms(), self.origin, moment)? } else { None };
        let place = gate.join_at(self.budget(), self.visit, at_hand.is_some(), joined);
        match (place, at_hand) {
            (Ok(place), at_hand) if place.has_turn() => Ok((place, at_hand, joined)),
            (place, at_hand) => {
                at_hand.into_iter().for_each(|ready| upstream.put_back(self.terms(), ready));
                Ok((place?, None, joined))
            }
        }
    }

    /// Makes one attempt. Also returns the request if it may be repeated.
    async fn try_once(
        &self,
        mut place: Place,
        at_hand: Option<Ready>,
        mut message: Box<Message>,
        attempt: u32,
        joined: Timestamp,
    ) -> OneTry {
        let ready = match at_hand {
            Some(ready) => ready,
            None => {
                place.known_as(|| label::of(self.who, self.origin, &message));
                place.called().await?;
                if self.keep_body {
                    message.keep_body(KEPT_BODY).await?;
                }
                let ready = self.worker.upstream.ready(self.terms(), self.origin).await;
                let ready = self.ready(&place, ready);
                match (ready, self.elsewhere()) {
                    (Err(error), Some(next)) if error.is_unreachable() => {
                        drop(place);
                        return next.try_there(message, attempt, joined).await;
                    }
                    (ready, _) => ready?,
                }
            }
        };
        let mut permit = place.turn_as(|| label::of(self.who, self.origin, &message)).await?;
        let spare = if self.safe { message.again() } else { None };
        match self.exchange(ready, message, &mut permit).await {
            Ok((answer, took)) => Ok((Sent { answer, permit, took, attempts: attempt }, spare)),
            Err(Unanswered { error, again: None }) => Err(error.into()),
            Err(Unanswered { again: Some(message), .. }) => {
                drop(permit);
                let sent = Box::pin(self.resend(message, attempt, joined)).await?;
                Ok((sent, spare))
            }
        }
    }

    /// Returns the same errand for the next address of its host.
    fn elsewhere(&self) -> Option<Self> {
        let lanes = self.lanes.get(1..).filter(|lanes| !lanes.is_empty())?;
        Some(Errand { lanes, ..*self })
    }

    /// Waits in the lane of this address, because the address before it cannot be reached. Boxed, because it comes back
    /// to [`try_once`](Errand::try_once).
    fn try_there(
        self,
        message: Box<Message>,
        attempt: u32,
        joined: Timestamp,
    ) -> Pin<Box<dyn Future<Output = OneTry> + Send + 'a>> {
        Box::pin(async move {
            let visit = Visit { retry: self.visit.retry, ..self.once_more(joined) };
            let place = self.worker.shared.gate.join(self.budget(), visit)?;
            self.try_once(place, None, message, attempt, joined).await
        })
    }

    fn budget(&self) -> &'a HostKey {
        &self.lanes[0].budget
    }

    /// Sends the request over another connection, at the front of the queue: its own was dead, or the origin closed it.
    async fn resend(&self, mut message: Box<Message>, attempt: u32, joined: Timestamp) -> Result<Sent, Failure> {
        let mut connections = 0;
        loop {
            let mut place = self.worker.shared.gate.join(self.budget(), self.once_more(joined))?;
            place.known_as(|| label::of(self.who, self.origin, &message));
            place.called().await?;
            let ready = self.ready(&place, self.worker.upstream.ready_alone(self.terms(), self.origin).await)?;
            let mut permit = place.turn_as(|| label::of(self.who, self.origin, &message)).await?;
            connections += 1;
            match self.exchange(ready, message, &mut permit).await {
                Ok((answer, took)) => return Ok(Sent { answer, permit, took, attempts: attempt }),
                Err(Unanswered { again: Some(again), .. }) if connections < MOST_CONNECTIONS => message = again,
                Err(Unanswered { error, again }) => {
                    if again.is_some() {
                        permit.report_of(Some(self.origin), Outcome::Failed, now());
                    }
                    return Err(error.into());
                }
            }
        }
    }

    fn terms(&self) -> Terms<'_> {
        let terms = self.settings.terms().of(self.visit.client);
        Terms { http2: terms.http2 && !self.upgrade, only: self.lanes[0].address, ..terms }
    }

    /// Tells the lane that a connection could not be opened.
    fn ready(&self, place: &Place, ready: Result<Ready, UpstreamError>) -> Result<Ready, UpstreamError> {
        ready.inspect_err(|error| {
            if error.blames_the_origin() {
                place.failed(self.origin);
            }
        })
    }

    async fn exchange(
        &self,
        ready: Ready,
        message: Box<Message>,
        permit: &mut Permit,
    ) -> Result<(Answer, Duration), Unanswered> {
        let uploads = may_take_long(message.body());
        let (shared, budget) = (&self.worker.shared, self.budget());
        let mut sending = Sending { shared, budget, permit, uploads, sent: None };
        let outcome = self.worker.upstream.send(self.terms(), ready, message, &mut sending).await;
        let Sending { permit, sent, .. } = sending;
        let heard = now();
        match &outcome {
            Ok(Answer::Response(response)) => {
                let (shared, headers) = (&self.worker.shared, response.headers());
                let signals = signals(shared, self.settings, self.budget(), response.status(), headers, heard);
                permit.report_of(Some(self.origin), Outcome::Heard(signals), heard);
            }
            Ok(Answer::Switched(..)) => permit.report(Outcome::Opened, heard),
            // A request that can be sent again has not failed yet.
            Err(Unanswered { error, again: None }) if error.blames_the_origin() => {
                permit.report_of(Some(self.origin), Outcome::Failed, heard);
            }
            Err(_) => {}
        }
        outcome.map(|answer| (answer, heard.since(sent.unwrap_or(heard))))
    }

    fn wants_retry(&self, sent: &Sent) -> bool {
        match &sent.answer {
            Answer::Response(response) => may_retry(sent.attempts, response.status().as_u16(), &self.settings.retrying),
            Answer::Switched(..) => false,
        }
    }

    /// The same visit again, with what is left of the client's patience.
    fn once_more(&self, joined: Timestamp) -> Visit {
        let most = self.worker.shared.gate.policy(self.budget()).max_wait;
        let most = most.min(self.visit.max_wait.unwrap_or(Duration::MAX));
        let max_wait = Some(most.saturating_sub(now().since(joined)));
        Visit { retry: true, max_wait, purpose: Purpose::Page, ..self.visit }
    }

    /// Sends the request again for as long as that may help.
    async fn retry(&self, mut sent: Sent, mut message: Box<Message>, joined: Timestamp) -> Result<Sent, Failure> {
        while self.wants_retry(&sent) && sent.permit.may_retry() {
            // A request that cannot be sent in time keeps the answer it has.
            let Ok(place) = self.worker.shared.gate.join(self.budget(), self.once_more(joined)) else { break };
            let attempt = sent.attempts + 1;
            drop(sent);
            self.worker.shared.metrics.lessons.retries.inc();
            self.worker.shared.metrics.tally.count(self.budget().as_str(), |row| row.retried += 1);
            match self.try_once(place, None, message, attempt, joined).await? {
                (next, Some(spare)) => (sent, message) = (next, spare),
                (next, None) => return Ok(next),
            }
        }
        Ok(sent)
    }
}

/// Reads what an answer says about pacing.
pub(crate) fn signals(
    shared: &Shared,
    settings: &Settings,
    budget: &HostKey,
    status: StatusCode,
    headers: &http::HeaderMap,
    heard: Timestamp,
) -> Signals {
    let fields = Fields::of(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let signals = signals::read(status.as_u16(), &fields, &settings.listening, heard);
    if signals.answer == signals::Answer::Throttled {
        shared.metrics.lessons.throttle(status.as_u16());
        shared.metrics.tally.count(budget.as_str(), |row| row.throttled += 1);
    }
    signals
}

/// A request that is being sent, with its permit.
struct Sending<'a> {
    shared: &'a Arc<Shared>,
    budget: &'a HostKey,
    permit: &'a mut Permit,
    /// Whether its body may take long.
    uploads: bool,
    sent: Option<Timestamp>,
}

impl Watch for &mut Sending<'_> {
    fn started(&mut self) {
        self.sent = Some(self.permit.sent());
        if self.uploads {
            self.permit.transfers();
        }
    }

    fn abandoned(&mut self, orphan: Orphan) {
        orphans::listen(self.shared, self.budget, self.permit.take(), orphan);
    }
}
