//! Sends a request in its turn, and again where that helps: on another connection, if its own turned out to be dead or
//! the origin closed it before it looked at the request; and after a temporary refusal, as often as the operator
//! allows.
//!
//! Every attempt is a visit of its own, so a retry waits for its turn too, at the front of the queue. The client sees
//! one answer: the last one. If a request cannot be sent again, or not within the client's patience, the client gets
//! the answer that the origin gave.

use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use tokio::time::Instant;

use super::orphans;
use crate::clock;
use crate::gate::{Gate, Label, Passage, Permit, Preparation, at, now};
use crate::politeness::fault::{HostReply, OriginFault};
use crate::politeness::retries::may_retry;
use crate::politeness::signals::PaceSignal;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Purpose, Visit, VisitOutcome};
use crate::politeness::{HostKey, Origin};
use crate::proxy::answer::failure::Failure;
use crate::proxy::request::label::{self, ClientName};
use crate::proxy::sharing::answer::Share;
use crate::proxy::sharing::flights::Membership;
use crate::proxy::{Settings, Shared, Worker};
use crate::upstream::{Answer, LaneAddress, Message, Orphan, Ready, SendWatch, Terms, Unanswered};

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
pub(crate) struct Delivery<'a> {
    pub(crate) worker: &'a Worker,
    pub(crate) settings: &'a Settings,
    pub(crate) origin: &'a Origin,
    pub(crate) visit: Visit,
    pub(crate) who: ClientName<'a>,
    /// Whether it may be sent again after a refusal: its method is safe.
    pub(crate) safe: bool,
    /// Whether a small body may be read before it is sent. Not if the client waits for an answer before it sends the
    /// body.
    pub(crate) keep_body: bool,
    /// Whether it asks to switch protocols, which only HTTP/1.1 can do.
    pub(crate) upgrade: bool,
    /// Its part in a flight, if it may share answers.
    pub(crate) member: Option<&'a Membership>,
}

/// What became of a request.
pub(crate) enum Delivered {
    Sent(Sent),
    /// Another client's request was sent, and the answer is for this one too.
    Shared(Share),
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

impl Delivery<'_> {
    /// Waits for the request's turn and sends it.
    pub(crate) async fn send(&self, message: Box<Message>) -> Result<Delivered, Failure> {
        let (terms, key) = (self.settings.terms().of(self.visit.client), self.settings.config.pacing.key);
        let lanes = &self.worker.upstream.lanes(terms, key, &self.origin.host).await?;
        let arrived = clock::now();
        let (joined, via) = (at(arrived), Via::AtHand(arrived));
        let mut attempt = Attempt { delivery: self, lanes, message, number: 1, joined, via };
        let budget = &lanes[0].budget;
        let turn = match self.member {
            None => self.gate().visit(budget, self.visit, joined, &mut attempt).await,
            Some(member) => match self.gate().follow(budget, self.visit, joined, &mut attempt, member).await {
                Ok(Passage::Turn(ready, permit)) => Ok((ready, permit)),
                Ok(Passage::Shared(share)) => return Ok(Delivered::Shared(share)),
                Err(failure) => Err(failure),
            },
        };
        let (sent, again) = attempt.make(turn).await?;
        Ok(Delivered::Sent(match again {
            // Boxed, because it is rare and its space would be part of every request.
            Some(message) if self.wants_retry(&sent) => Box::pin(self.retry(lanes, sent, message, joined)).await?,
            _ => sent,
        }))
    }

    fn gate(&self) -> &Arc<Gate> {
        &self.worker.shared.gate
    }

    fn terms(&self, lane: &LaneAddress) -> Terms<'_> {
        let terms = self.settings.terms().of(self.visit.client);
        Terms { http2: terms.http2 && !self.upgrade, only: lane.address, ..terms }
    }

    async fn exchange(
        &self,
        lane: &LaneAddress,
        ready: Ready,
        message: Box<Message>,
        permit: &mut Permit,
    ) -> Result<(Answer, Duration), Unanswered> {
        let uploads = may_take_long(message.body());
        let (shared, budget) = (&self.worker.shared, &lane.budget);
        let mut sending = Sending { shared, budget, permit, member: self.member, uploads, sent: None };
        let outcome = self.worker.upstream.send(self.terms(lane), ready, message, &mut sending).await;
        let Sending { permit, sent, .. } = sending;
        let heard = now();
        match &outcome {
            Ok(Answer::Response(response)) => {
                let (status, signals) = (response.status().as_u16(), self.settings.signals(response, heard));
                if signals.answer == PaceSignal::Throttled {
                    shared.count_throttled(budget, status);
                }
                let reply = Some(HostReply::Status(status));
                permit.report_of(Some(self.origin), reply, VisitOutcome::Heard(signals), heard);
            }
            Ok(Answer::Switched(..)) => permit.report(VisitOutcome::Opened, heard),
            // A request that can be sent again has not failed yet.
            Err(Unanswered { error, again: None }) if error.blames_the_origin() => {
                let reply = error.fault().map(HostReply::Fault);
                permit.report_of(Some(self.origin), reply, VisitOutcome::Failed, heard);
            }
            Err(_) => {}
        }
        outcome.map(|answer| (answer, heard.since(sent.unwrap_or(heard))))
    }

    fn wants_retry(&self, sent: &Sent) -> bool {
        let Answer::Response(response) = &sent.answer else { return false };
        let status = response.status().as_u16();
        let is_suspect = || self.settings.listening.suspects.contains(&status);
        let disguised = || is_suspect() && sent.permit.refuses_in_disguise();
        may_retry(sent.attempts, status, disguised, &self.settings.retrying)
    }

    /// The same visit again, with what is left of the client's patience.
    fn once_more(&self, budget: &HostKey, joined: Timestamp) -> Visit {
        let most = self.gate().policy(budget).max_wait;
        let most = most.min(self.visit.max_wait.unwrap_or(Duration::MAX));
        let max_wait = Some(most.saturating_sub(now().since(joined)));
        Visit { retry: true, max_wait, purpose: Purpose::Page, ..self.visit }
    }

    /// Sends the request again for as long as that may help.
    async fn retry(
        &self,
        lanes: &[LaneAddress],
        mut sent: Sent,
        mut message: Box<Message>,
        joined: Timestamp,
    ) -> Result<Sent, Failure> {
        let budget = &lanes[0].budget;
        while self.wants_retry(&sent) && sent.permit.may_retry() {
            // A request that cannot be sent in time keeps the answer it has.
            let visit = self.once_more(budget, joined);
            let Ok(place) = self.gate().join(budget, visit) else { break };
            let number = sent.attempts + 1;
            drop(sent);
            self.member.into_iter().for_each(Membership::retries);
            self.worker.shared.metrics.lessons.retries.inc();
            self.worker.shared.metrics.tally.count(budget.as_str(), |row| row.retried += 1);
            let mut attempt = Attempt { delivery: self, lanes, message, number, joined, via: Via::Any };
            let turn = place.pass(&mut attempt).await;
            match attempt.make(turn).await? {
                (next, Some(spare)) => (sent, message) = (next, spare),
                (next, None) => return Ok(next),
            }
        }
        Ok(sent)
    }
}

/// One attempt to send a request.
struct Attempt<'a> {
    delivery: &'a Delivery<'a>,
    /// The lanes that are left to try: if the address of the first cannot be reached, the next. Never empty.
    lanes: &'a [LaneAddress],
    message: Box<Message>,
    number: u32,
    /// When the request joined the queue for the first time.
    joined: Timestamp,
    via: Via,
}

/// Which connections an attempt may use.
#[derive(Clone, Copy)]
enum Via {
    /// Any. One that was in the pool at this time lets the request pass a free host at once.
    AtHand(Instant),
    Any,
    /// One on which it is the first request.
    Alone,
}

impl<'a> Attempt<'a> {
    /// Sends the request in its turn; at the next address of its host, if this one cannot be reached. Also returns the
    /// request if it may be repeated.
    async fn make(mut self, turn: Result<(Ready, Permit), Failure>) -> OneTry {
        let (ready, mut permit) = match turn {
            Ok(turn) => turn,
            // Boxed, because it is rare and its space would be part of every request.
            Err(failure) => Box::pin(self.turn_elsewhere(failure)).await?,
        };
        let Attempt { delivery, lanes, message, number, joined, .. } = self;
        let spare = if delivery.safe { message.again() } else { None };
        match delivery.exchange(&lanes[0], ready, message, &mut permit).await {
            Ok((answer, took)) => Ok((Sent { answer, permit, took, attempts: number }, spare)),
            Err(Unanswered { error, again: None }) => Err(error.into()),
            Err(Unanswered { again: Some(message), .. }) => {
                drop(permit);
                let again = Attempt { delivery, lanes, message, number, joined, via: Via::Alone };
                Ok((Box::pin(again.resend()).await?, spare))
            }
        }
    }

    /// Takes the turn at the next address of the host that can be reached, if there is one.
    async fn turn_elsewhere(&mut self, mut failure: Failure) -> Result<(Ready, Permit), Failure> {
        while let Failure::Upstream(error) = &failure
            && error.is_unreachable()
            && let [_, next @ ..] = self.lanes
            && let [lane, ..] = next
        {
            (self.lanes, self.via) = (next, Via::Any);
            let delivery = self.delivery;
            let visit = Visit { retry: delivery.visit.retry, ..delivery.once_more(&lane.budget, self.joined) };
            match delivery.gate().visit(&lane.budget, visit, now(), self).await {
                Ok(turn) => return Ok(turn),
                Err(next) => failure = next,
            }
        }
        Err(failure)
    }

    fn terms(&self) -> Terms<'_> {
        self.delivery.terms(&self.lanes[0])
    }

    /// Sends the request over another connection, at the front of the queue: its own was dead, or the origin closed it.
    async fn resend(mut self) -> Result<Sent, Failure> {
        let (delivery, lane) = (self.delivery, &self.lanes[0]);
        let mut connections = 0;
        loop {
            let visit = delivery.once_more(&lane.budget, self.joined);
            let (ready, mut permit) = delivery.gate().visit(&lane.budget, visit, now(), &mut self).await?;
            connections += 1;
            match delivery.exchange(lane, ready, self.message, &mut permit).await {
                Ok((answer, took)) => return Ok(Sent { answer, permit, took, attempts: self.number }),
                Err(Unanswered { again: Some(again), .. }) if connections < MOST_CONNECTIONS => self.message = again,
                Err(Unanswered { error, again }) => {
                    if again.is_some() {
                        let reply = error.fault().map(HostReply::Fault);
                        permit.report_of(Some(delivery.origin), reply, VisitOutcome::Failed, now());
                    }
                    return Err(error.into());
                }
            }
        }
    }
}

impl Preparation for Attempt<'_> {
    type Ready = Ready;
    type Error = Failure;

    async fn get_ready(&mut self) -> Result<Ready, Failure> {
        let &Delivery { worker, origin, keep_body, .. } = self.delivery;
        if let Via::Alone = self.via {
            return Ok(worker.upstream.ready_alone(self.terms(), origin).await?);
        }
        if keep_body {
            self.message.keep_body(KEPT_BODY).await?;
        }
        Ok(worker.upstream.ready(self.terms(), origin).await?)
    }

    /// Most requests find their host free and a connection in the pool. A body that is kept must be read first.
    fn at_hand(&mut self) -> Result<Option<Ready>, Failure> {
        let &Delivery { worker, origin, keep_body, .. } = self.delivery;
        match self.via {
            Via::AtHand(now) if !keep_body || self.message.has_no_body() => {
                Ok(worker.upstream.at_hand(self.terms(), origin, now)?)
            }
            _ => Ok(None),
        }
    }

    fn put_back(&mut self, ready: Ready) {
        self.delivery.worker.upstream.put_back(self.terms(), ready);
    }

    fn blamed(&self, error: &Failure) -> Option<&Origin> {
        error.blames_the_origin().then_some(self.delivery.origin)
    }

    fn fault(&self, error: &Failure) -> Option<OriginFault> {
        error.fault()
    }

    fn label(&self) -> Option<Label> {
        Some(label::of(self.delivery.who, self.delivery.origin, &self.message))
    }
}

/// A request that is being sent, with its permit.
struct Sending<'a> {
    shared: &'a Arc<Shared>,
    budget: &'a HostKey,
    permit: &'a mut Permit,
    member: Option<&'a Membership>,
    /// Whether its body may take long.
    uploads: bool,
    sent: Option<Timestamp>,
}

impl SendWatch for &mut Sending<'_> {
    fn started(&mut self) {
        self.sent = Some(self.permit.sent());
        self.member.into_iter().for_each(Membership::sent);
        if self.uploads {
            self.permit.transfers();
        }
    }

    fn abandoned(&mut self, orphan: Orphan) {
        let member = self.member.filter(|member| member.leads_others()).map(Membership::hand_over);
        orphans::listen(self.shared, self.budget, self.permit.take(), orphan, member);
    }
}
