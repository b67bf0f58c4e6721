//! A visit's place in a lane, and the permit it becomes.
//!
//! Dropping either settles it: the place in the line, the turn if it was not used, the place in flight. So no path can
//! forget to, be it a client that leaves, a connection that fails or a panic.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;

use super::leaving::Leaving;
use super::line::Label;
use super::registry::Guest;
use super::shared_lane::{Entered, SharedLane, State, Told};
use super::{Gate, now};
use crate::clock;
use crate::metrics::Stage;
use crate::metrics::tally::{OTHERS, Row};
use crate::politeness::HostKey;
use crate::politeness::lane::{Lane, Lesson, Obstacle};
use crate::politeness::policy::{Delays, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Outcome, Refusal, Ticket, Visit};
use crate::timer::Timer;

/// A place in the line; of a host that is not paced, no line at all.
#[derive(Debug)]
pub struct Place(Option<Box<Standing>>);

/// Leave to make one visit.
#[derive(Debug)]
pub struct Permit(Option<Box<Standing>>);

/// Boxed, because it passes through many hands.
#[derive(Debug)]
struct Standing {
    gate: Arc<Gate>,
    lane: Arc<SharedLane>,
    /// Its host has no lane of its own for as long as this lasts.
    _guest: Option<Guest>,
    ticket: Ticket,
    joined: Timestamp,
    expected: Timestamp,
    /// Told to make its connection ready.
    called: bool,
    /// How long it was kept waiting. The time its connection took is its own.
    waited: Duration,
    /// Whether it waits to be told something: dropping it then means that the client left the line.
    asleep: bool,
    /// Its number among the waiting of all hosts.
    number: Option<u64>,
    timer: Timer,
    account: Account,
}

impl Place {
    /// Where nobody is paced.
    pub(super) fn free() -> Self {
        Place(None)
    }

    pub(super) fn join(
        gate: Arc<Gate>,
        lane: Arc<SharedLane>,
        guest: Option<Guest>,
        visit: Visit,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let (entered, account) = lane.look(|state| {
            state.used(now);
            let before = state.lane.delays();
            let ahead = state.lane.queued();
            let entered = state.enter(visit, now)?;
            let (delays, mode) = (state.lane.delays(), state.lane.policy().mode);
            if delays.robots != before.robots
                && let Some(host) = lane.host()
            {
                gate.tell_of_crawl_delay(host, &before, &delays);
            }
            Ok((entered, Account { delays, obstacle: None, mode, ahead }))
        })?;
        let Entered { ticket, expected, called } = entered;
        let mut standing = Box::new(Standing {
            gate,
            lane,
            _guest: guest,
            ticket,
            joined: now,
            expected,
            called,
            waited: Duration::ZERO,
            asleep: false,
            number: None,
            timer: Timer::default(),
            account,
        });
        if !called {
            standing.start_waiting();
        }
        Ok(Place(Some(standing)))
    }

    /// When it came.
    pub fn joined(&self) -> Timestamp {
        self.0.as_ref().map_or_else(now, |standing| standing.joined)
    }

    #[cfg(test)]
    pub(super) fn account(&self) -> Option<&Account> {
        self.0.as_ref().map(|standing| &standing.account)
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

    /// The connection could not be made.
    pub fn failed(&self) {
        let Some(standing) = &self.0 else { return };
        let (now, book) = (now(), standing.gate.book.load());
        let ticket = standing.ticket;
        standing.learn(now, |lane| lane.unreachable(ticket, &book.schooling, now));
    }

    /// Has people know a visit that waits by this.
    pub fn known_as(&mut self, label: impl FnOnce() -> Label) {
        if let Some(standing) = &self.0
            && let Some(number) = standing.number
        {
            standing.gate.line.label(number, label());
        }
    }

    /// The connection is ready: waits for the turn.
    pub async fn turn(self) -> Result<Permit, Refusal> {
        self.turn_as(Label::default).await
    }

    /// The same for a visit that people know by this.
    pub async fn turn_as(self, label: impl FnOnce() -> Label) -> Result<Permit, Refusal> {
        match self.0 {
            Some(standing) => standing.turn(label).await,
            None => Ok(Permit(None)),
        }
    }
}

impl Standing {
    async fn called(&mut self) -> Result<(), Refusal> {
        if self.called {
            return Ok(());
        }
        while !self.called {
            match self.told().await {
                Told::Prepare => self.called = true,
                Told::Refused(refusal) => return Err(refusal),
                Told::Start => {}
            }
        }
        self.waited = now().since(self.joined);
        Ok(())
    }

    async fn turn(mut self: Box<Self>, label: impl FnOnce() -> Label) -> Result<Permit, Refusal> {
        let (ticket, ready) = (self.ticket, now());
        let mut told = self.lane.look(|state| {
            let free = state.lane.set_out(ticket, ready);
            let told = if free { Some(Told::Start) } else { state.drive_for(ticket, ready) };
            if told == Some(Told::Start) {
                self.count(state);
            }
            told
        });
        let at_once = told == Some(Told::Start);
        if told.is_none() && self.number.is_none() {
            let number = self.start_waiting();
            self.gate.line.label(number, label());
        }
        loop {
            match told {
                Some(Told::Start) => break,
                Some(Told::Refused(refusal)) => return Err(refusal),
                Some(Told::Prepare) | None => told = Some(self.told().await),
            }
        }
        self.stop_waiting();
        if !at_once {
            self.waited += now().since(ready);
            self.lane.look(|state| self.count(state));
        }
        if !self.waited.is_zero() {
            self.account.obstacle = self.lane.look(|state| state.lane.overcome(now()));
        }
        self.gate.metrics.waited(self.waited);
        self.tally(|row| row.visited(self.waited));
        Ok(Permit(Some(self)))
    }

    /// Its turn has come: counts it among the visits of its host.
    fn count(&self, state: &mut State) {
        self.gate.metrics.hosts.visit(&mut state.badge, self.lane.host(), self.waited);
    }

    /// Hosts that have no lane of their own are counted together.
    fn tally(&self, count: impl FnOnce(&mut Row)) {
        if self.gate.metrics.tally.is_kept() {
            self.gate.metrics.tally.count(self.lane.host().map_or(OTHERS, HostKey::as_str), count);
        }
    }

    /// Has the lane taught, and what it learned kept and told.
    fn learn(&self, now: Timestamp, teach: impl FnOnce(&mut Lane) -> Option<Lesson>) {
        let lesson = self.lane.with(now, |state| {
            let lesson = teach(&mut state.lane);
            self.gate.registry.keep_news(&self.lane, state, now);
            lesson
        });
        if let Some(lesson) = lesson {
            self.gate.tell(self.lane.host(), &lesson, now);
        }
    }

    async fn told(&mut self) -> Told {
        self.asleep = true;
        let told = poll_fn(|cx| self.poll_told(cx)).await;
        self.asleep = false;
        told
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
                    if self.timer.poll_at(clock::instant(at.as_micros()), cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// To be called once.
    fn start_waiting(&mut self) -> u64 {
        self.gate.waiting.fetch_add(1, Relaxed);
        let number = self.gate.line.enter(&self.lane, self.joined, self.expected);
        self.number = Some(number);
        number
    }

    fn tell_of_leaving(&self) {
        if let Some((listener, number)) = self.gate.leaving.get().zip(self.number) {
            let after = now().since(self.joined);
            (listener.0)(&Leaving { line: &self.gate.line, lane: &self.lane, number, after });
        }
    }

    fn stop_waiting(&mut self) {
        if let Some(number) = self.number.take() {
            self.gate.waiting.fetch_sub(1, Relaxed);
            self.gate.line.leave(number);
        }
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.asleep {
            self.gate.metrics.disconnect(Stage::Queued);
            self.tell_of_leaving();
        }
        self.stop_waiting();
        let (ticket, now) = (self.ticket, now());
        self.lane.with(now, |state| {
            state.lane.leave(ticket, now);
            state.forget(ticket);
        });
    }
}

impl Permit {
    /// The head of the request was written just now: tells when that is.
    pub fn sent(&self) -> Timestamp {
        let now = now();
        let Some(standing) = &self.0 else { return now };
        let breach = standing.lane.with(now, |state| state.lane.sent(standing.ticket, now));
        if let Some(breach) = breach {
            standing.gate.metrics.spacing_violations.inc();
            tracing::error!(event = "spacing.violation", ?breach, "a request started too early; please report this");
        }
        now
    }

    /// The response head is in, as of just now, or will never be.
    pub fn report(&self, outcome: Outcome, now: Timestamp) {
        let Some(standing) = &self.0 else { return };
        let ticket = standing.ticket;
        if standing.lane.look(|state| state.lane.takes_for_granted(ticket, outcome, now)) {
            return;
        }
        let book = standing.gate.book.load();
        let mut would_wait = None;
        standing.learn(now, |lane| {
            let lesson = lane.report(ticket, outcome, &book.schooling, now);
            would_wait = lane.would_wait(ticket, now);
            lesson
        });
        if let Some(wait) = would_wait {
            standing.gate.metrics.would_wait(wait);
            let (most, end) = (self.max_wait(), clock::now() + wait);
            standing.tally(|row| {
                row.would_wait.add(wait);
                row.would_refuse += u64::from(wait > most);
                row.would_end = row.would_end.max(Some(end));
            });
        }
    }

    /// Whether the host's budget has room for sending this once more; takes it if so.
    pub fn may_retry(&self) -> bool {
        let Some(standing) = &self.0 else { return false };
        let (now, book) = (now(), standing.gate.book.load());
        standing.lane.look(|state| state.lane.may_retry(&book.schooling, now))
    }

    /// How long the host's visits may wait.
    pub fn max_wait(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |standing| standing.lane.look(|state| state.lane.policy().max_wait))
    }

    pub fn waited(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |standing| standing.waited)
    }

    /// In report mode: how long it would have waited, as far as is known by now.
    pub fn would_wait(&self) -> Option<Duration> {
        let standing = self.0.as_ref().filter(|standing| standing.account.mode == Mode::Report)?;
        standing.lane.look(|state| state.lane.would_wait(standing.ticket, now()))
    }

    /// What can be told about this visit; `None` if its host is not paced.
    pub fn account(&self) -> Option<&Account> {
        self.0.as_ref().map(|standing| &standing.account)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// What the delay of the host is made of.
    pub delays: Delays,
    /// What kept it waiting, if it was more than the delay.
    obstacle: Option<Obstacle>,
    pub mode: Mode,
    /// How many stood in line before it.
    pub ahead: usize,
}

impl Account {
    /// What it waited for, in a word, as [`View::why`](crate::politeness::lane::View::why) says of its host.
    pub fn why(&self) -> &'static str {
        self.obstacle.map_or_else(|| self.delays.why(), Obstacle::word)
    }
}
