//! A visit's place in a lane, and the permit it becomes.
//!
//! Dropping either settles it: the place in the line, the turn if it was not used, the place in flight. So no path can
//! forget to, be it a client that leaves, a connection that fails or a panic.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use super::now;
use super::shared_lane::{SharedLane, Told};
use crate::clock;
use crate::metrics::Metrics;
use crate::politeness::policy::{Delays, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Outcome, Refusal, Ticket, Visit};

/// A place in the line; of a host that is not paced, no line at all.
#[derive(Debug)]
pub struct Place(Option<Standing>);

/// Leave to make one visit.
#[derive(Debug)]
pub struct Permit {
    standing: Option<Standing>,
    waited: Duration,
}

#[derive(Debug)]
struct Standing {
    lane: Arc<SharedLane>,
    ticket: Ticket,
    joined: Timestamp,
    expected: Timestamp,
    /// Told to make its connection ready.
    called: bool,
    /// How many waited in the line when this one came.
    ahead: usize,
    /// Counted among the waiting of all hosts until its turn.
    waiting: Option<Arc<AtomicUsize>>,
    timer: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
}

impl Place {
    /// Where nobody is paced.
    pub(super) fn free() -> Self {
        Place(None)
    }

    pub(super) fn join(
        lane: Arc<SharedLane>,
        visit: Visit,
        waiting: Arc<AtomicUsize>,
        metrics: Arc<Metrics>,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let mut ahead = 0;
        let joined = lane.with(now, |state| {
            state.used(now);
            ahead = state.lane.queued();
            state.lane.join(visit, now)
        })?;
        waiting.fetch_add(1, Relaxed);
        let mut standing = Standing {
            ticket: joined.ticket,
            joined: now,
            expected: joined.expected,
            called: false,
            ahead,
            waiting: Some(waiting),
            timer: None,
            metrics,
            lane,
        };
        // A host that is free calls at once.
        standing.called = standing.lane.look(|state| state.take_told(joined.ticket)) == Some(Told::Prepare);
        Ok(Place(Some(standing)))
    }

    /// When a visit that was not called at once can expect to start.
    pub(super) fn waits_until(&self) -> Option<Timestamp> {
        self.0.as_ref().filter(|standing| !standing.called).map(|standing| standing.expected)
    }

    /// Waits until the turn is near and the connection should be made ready.
    pub async fn called(&mut self) -> Result<(), Refusal> {
        match &mut self.0 {
            Some(standing) => standing.called().await,
            None => Ok(()),
        }
    }

    /// The connection is ready: waits for the turn.
    pub async fn turn(self) -> Result<Permit, Refusal> {
        match self.0 {
            Some(standing) => standing.turn().await,
            None => Ok(Permit { standing: None, waited: Duration::ZERO }),
        }
    }
}

impl Standing {
    async fn called(&mut self) -> Result<(), Refusal> {
        while !self.called {
            match self.told().await {
                Told::Prepare => self.called = true,
                Told::Refused(refusal) => return Err(refusal),
                Told::Start => {}
            }
        }
        Ok(())
    }

    async fn turn(mut self) -> Result<Permit, Refusal> {
        let (ticket, ready) = (self.ticket, now());
        self.lane.with(ready, |state| state.lane.ready(ticket, ready));
        loop {
            match self.told().await {
                Told::Start => break,
                Told::Refused(refusal) => return Err(refusal),
                Told::Prepare => {}
            }
        }
        self.stop_waiting();
        let waited = now().since(self.joined);
        self.metrics.waited(waited);
        Ok(Permit { standing: Some(self), waited })
    }

    async fn told(&mut self) -> Told {
        poll_fn(|cx| self.poll_told(cx)).await
    }

    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<Told> {
        loop {
            let now = now();
            let ticket = self.ticket;
            let alarm = self.lane.look(|state| {
                if state.alarm_of(ticket).is_some_and(|at| at <= now) {
                    state.drive(now);
                }
                match state.take_told(ticket) {
                    Some(told) => Err(told),
                    None => {
                        state.sleep(ticket, cx.waker());
                        Ok(state.alarm_of(ticket))
                    }
                }
            });
            match alarm {
                Err(told) => return Poll::Ready(told),
                Ok(None) => return Poll::Pending,
                Ok(Some(at)) => {
                    if self.poll_timer(at, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    fn poll_timer(&mut self, at: Timestamp, cx: &mut Context<'_>) -> Poll<()> {
        let at = clock::instant(at.as_micros());
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if timer.deadline() != at {
            timer.as_mut().reset(at);
        }
        timer.as_mut().poll(cx)
    }

    fn stop_waiting(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            waiting.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.stop_waiting();
        let (ticket, now) = (self.ticket, now());
        self.lane.with(now, |state| {
            state.lane.leave(ticket, now);
            state.forget(ticket);
        });
    }
}

impl Permit {
    /// The head of the request was written just now.
    pub fn sent(&self) {
        let Some(standing) = &self.standing else { return };
        let now = now();
        if let Some(breach) = standing.lane.with(now, |state| state.lane.sent(standing.ticket, now)) {
            standing.metrics.spacing_violations.inc();
            tracing::error!(event = "spacing.violation", ?breach, "a request started too early; please report this");
        }
    }

    /// The response head is in, or will never be.
    pub fn report(&self, outcome: Outcome) {
        let Some(standing) = &self.standing else { return };
        let now = now();
        standing.lane.with(now, |state| state.lane.report(standing.ticket, outcome, now));
    }

    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// What can be told about this visit; `None` if its host is not paced.
    pub fn account(&self) -> Option<Account> {
        let standing = self.standing.as_ref()?;
        let (delays, mode) = standing.lane.look(|state| (state.lane.delays(), state.lane.policy().mode));
        let would_wait = standing.expected.since(standing.joined);
        Some(Account { delays, mode, ahead: standing.ahead, would_wait })
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Account {
    /// What the delay of the host is made of.
    pub delays: Delays,
    pub mode: Mode,
    /// How many stood in line before it.
    pub ahead: usize,
    /// In report mode: how long it would have waited.
    pub would_wait: Duration,
}
