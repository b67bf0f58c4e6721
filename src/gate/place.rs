//! A visit's place in the queue of its host, until its turn comes.
//!
//! Dropping the place leaves the queue, as dropping a [`Permit`] settles the visit: a disconnected client never stays
//! queued.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use super::leaving::Leaving;
use super::line::Label;
use super::permit::{Account, Permit, Stay};
use super::shared_lane::{Entered, SharedLane, Told};
use super::{Gate, now};
use crate::clock;
use crate::metrics::Stage;
use crate::politeness::Origin;
use crate::politeness::policy::Mode;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Purpose, Refusal, Ticket, Visit};
use crate::timer::Timer;

/// A place in a host's queue.
#[derive(Debug)]
pub struct Place(Kind);

#[derive(Debug)]
enum Kind {
    /// The host is not paced: there is no queue.
    Free,
    /// The host was free and the visit was ready: it may start.
    Started(Box<Stay>),
    Standing(Box<Standing>),
}

/// Dropped in this order: first the line, then the lane.
#[derive(Debug)]
struct Standing {
    line: InLine,
    stay: Stay,
}

/// The state that is needed only while waiting.
#[derive(Debug)]
struct InLine {
    gate: Arc<Gate>,
    lane: Arc<SharedLane>,
    ticket: Ticket,
    peer: ClientId,
    joined: Timestamp,
    expected: Timestamp,
    /// Whether the visit was told to make its connection ready.
    called: bool,
    /// Whether the visit's task waits to be told something. Dropping it then means that the client disconnected.
    asleep: bool,
    /// The visit's number in the line of all hosts.
    number: Option<u64>,
    timer: Timer,
    /// True if the visit stops waiting for a reason other than its client.
    withdrawn: Option<Arc<AtomicBool>>,
}

impl Place {
    /// The place of a gate that paces no host.
    pub(super) fn free() -> Self {
        Place(Kind::Free)
    }

    pub(super) fn join(
        gate: Arc<Gate>,
        lane: Arc<SharedLane>,
        visit: Visit,
        is_ready: bool,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let is_fetch = visit.purpose == Purpose::RobotsFetch;
        let (entered, account) = lane.look(|state| {
            state.used(now);
            let ahead = state.lane.queued();
            let entered = state.enter(visit, is_ready, now)?;
            let (delays, mode) = (state.lane.delays_for(visit.crawl_delay, now), state.lane.policy().mode);
            if state.is_new_crawl_delay(visit.crawl_delay) {
                let others = state.lane.delays_for(Duration::ZERO, now);
                gate.tell_of_crawl_delay(lane.host(), &others, &delays);
            }
            if entered.told == Some(Told::Start) && !is_fetch {
                gate.metrics.hosts.visit(&mut state.badge, lane.host(), Duration::ZERO);
            }
            Ok((entered, Account { delays, obstacle: None, mode, ahead }))
        })?;
        let Entered { ticket, expected, told, is_free } = entered;
        let (waited, is_heeded, served, left) = (Duration::ZERO, true, None, None);
        // Unless the policy is enforced, no fetch waits.
        let is_fetch = is_fetch && (is_free || account.mode != Mode::Enforce);
        let stay = Stay { gate, lane, ticket, waited, account, is_heeded, served, left, is_fetch };
        if told == Some(Told::Start) {
            return Ok(Place(Kind::Started(Box::new(stay))));
        }
        let called = told.is_some();
        let line = InLine {
            gate: stay.gate.clone(),
            lane: stay.lane.clone(),
            ticket,
            peer: visit.peer,
            joined: now,
            expected,
            called,
            asleep: false,
            number: None,
            timer: Timer::default(),
            withdrawn: None,
        };
        let mut standing = Box::new(Standing { line, stay });
        if !called {
            standing.line.start_waiting();
        }
        Ok(Place(Kind::Standing(standing)))
    }

    #[cfg(test)]
    pub(super) fn account(&self) -> Option<&Account> {
        match &self.0 {
            Kind::Free => None,
            Kind::Started(stay) => Some(&stay.account),
            Kind::Standing(standing) => Some(&standing.stay.account),
        }
    }

    fn standing(&self) -> Option<&Standing> {
        match &self.0 {
            Kind::Standing(standing) => Some(standing),
            Kind::Free | Kind::Started(_) => None,
        }
    }

    /// Whether the visit may start at once.
    pub fn has_turn(&self) -> bool {
        self.standing().is_none()
    }

    /// The expected start of a visit that was not called at once.
    pub(super) fn waits_until(&self) -> Option<Timestamp> {
        self.standing().filter(|standing| !standing.line.called).map(|standing| standing.line.expected)
    }

    /// Waits until the turn is near and the connection should be made ready.
    pub async fn called(&mut self) -> Result<(), Refusal> {
        match &mut self.0 {
            Kind::Standing(standing) => standing.called().await,
            Kind::Free | Kind::Started(_) => Ok(()),
        }
    }

    /// Reports that the connection to this origin could not be made.
    pub fn failed(&self, origin: &Origin) {
        let Some(Standing { stay, .. }) = self.standing() else { return };
        let (now, book) = (now(), stay.gate.book.load());
        stay.learn(now, Some(origin), |lane| lane.unreachable(stay.ticket, &book.schooling, now));
    }

    /// Sets the flag for withdrawal. Dropping the place while it waits counts as a disconnected client unless the flag
    /// is true.
    pub fn withdrawn_by(&mut self, withdrawn: Arc<AtomicBool>) {
        if let Kind::Standing(standing) = &mut self.0 {
            standing.line.withdrawn = Some(withdrawn);
        }
    }

    /// Labels the queued visit for the API and the log.
    pub fn known_as(&mut self, label: impl FnOnce() -> Label) {
        if let Some(Standing { line, .. }) = self.standing()
            && let Some(number) = line.number
        {
            line.gate.line.label(number, label());
        }
    }

    /// Waits for the turn. Call it when the connection is ready.
    pub async fn turn(self) -> Result<Permit, Refusal> {
        self.turn_as(Label::default).await
    }

    /// Like [`turn`](Place::turn), and labels the visit if it has to wait.
    pub async fn turn_as(self, label: impl FnOnce() -> Label) -> Result<Permit, Refusal> {
        match self.0 {
            Kind::Free => Ok(Permit::free()),
            Kind::Started(stay) => Ok(Permit::new(stay)),
            Kind::Standing(standing) => standing.turn(label).await,
        }
    }
}

impl Standing {
    async fn called(&mut self) -> Result<(), Refusal> {
        let Standing { line, stay } = self;
        if line.called {
            return Ok(());
        }
        while !line.called {
            match line.told().await {
                Told::Prepare => line.called = true,
                Told::Refused(refusal) => return Err(refusal),
                Told::Start => {}
            }
        }
        stay.waited = now().since(line.joined);
        Ok(())
    }

    async fn turn(mut self: Box<Self>, label: impl FnOnce() -> Label) -> Result<Permit, Refusal> {
        let Standing { line, stay } = &mut *self;
        let (ticket, ready) = (stay.ticket, now());
        let mut told = stay.lane.look(|state| {
            let free = state.lane.set_out(ticket, ready);
            let told = if free { Some(Told::Start) } else { state.drive_for(ticket, ready) };
            if told == Some(Told::Start) {
                stay.count(state);
            }
            told
        });
        let at_once = told == Some(Told::Start);
        if told.is_none() && line.number.is_none() {
            let number = line.start_waiting();
            line.gate.line.label(number, label());
        }
        loop {
            match told {
                Some(Told::Start) => break,
                Some(Told::Refused(refusal)) => return Err(refusal),
                Some(Told::Prepare) | None => told = Some(line.told().await),
            }
        }
        line.stop_waiting();
        if !at_once {
            stay.waited += now().since(ready);
            stay.lane.look(|state| stay.count(state));
        }
        if !stay.waited.is_zero() {
            stay.account.obstacle = stay.lane.look(|state| state.lane.overcome(now()));
        }
        let Standing { stay, .. } = *self;
        Ok(Permit::new(Box::new(stay)))
    }
}

impl InLine {
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

    /// Enters the line of all hosts. Must be called only once.
    fn start_waiting(&mut self) -> u64 {
        self.gate.waiting.fetch_add(1, Relaxed);
        let number = self.gate.line.enter(&self.lane, self.peer, self.joined, self.expected);
        self.number = Some(number);
        number
    }

    fn tell_of_leaving(&self) {
        if let Some((listener, number)) = self.gate.leaving.get().zip(self.number) {
            let after = now().since(self.joined);
            (listener.0)(&Leaving { line: &self.gate.line, lane: &self.lane, number, after });
        }
    }

    #[inline]
    fn stop_waiting(&mut self) {
        if let Some(number) = self.number.take() {
            self.gate.waiting.fetch_sub(1, Relaxed);
            self.gate.line.leave(number);
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.asleep && !self.withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.load(Relaxed)) {
            self.gate.metrics.disconnect(Stage::Queued);
            self.tell_of_leaving();
        }
        self.stop_waiting();
    }
}
