//! A lane and the visits that wait in it.
//!
//! A task that changes something drives the lane on, and wakes the tasks of the visits that the lane names.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

use crate::metrics::hosts::SeriesHandle;
use crate::politeness::HostKey;
use crate::politeness::fleet::appointment::Appointment;
use crate::politeness::lane::{Joined, Lane};
use crate::politeness::policy::{LearningPolicy, Policy};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Alarm, LaneRefusal, Step, Ticket, Visit};

/// Laid out in the order in which a visit needs the fields: with many hosts, most accesses miss the CPU caches.
#[derive(Debug)]
#[repr(C)]
pub(super) struct SharedLane {
    host: HostKey,
    /// Locked for one decision, never across an await.
    state: Mutex<LaneState>,
}

#[derive(Debug)]
#[repr(C)]
pub(super) struct LaneState {
    last_used: Timestamp,
    /// Whether the host has its own metric series.
    pub(super) badge: SeriesHandle,
    pub(super) lane: Lane,
    alarm: Option<Alarm>,
    /// `None` if no visit waits.
    dormitory: Option<Box<Waiters>>,
    /// The lane's visit count at the last call of `take_visits`.
    counted: u32,
    /// The longest crawl delay that was logged.
    told_crawl_delay_ms: u32,
    /// In a fleet: what this node keeps for the host between two claims.
    pub(super) appointment: Option<Box<Appointment>>,
}

/// Visits that wait to be told something.
#[derive(Debug, Default)]
struct Waiters {
    /// Indexed by ticket number. A number is reused as soon as its visit has left.
    sleepers: Vec<Waiter>,
    /// Visits that have left with this refusal and have not received it yet. Their numbers may already belong to other
    /// visits.
    refused: Vec<(Ticket, LaneRefusal)>,
}

#[derive(Debug, Default)]
struct Waiter {
    ticket: Option<Ticket>,
    told: Option<ToldChange>,
    waker: Option<Waker>,
}

/// A visit that has entered the lane.
pub(super) struct Entered {
    pub(super) ticket: Ticket,
    pub(super) expected: Timestamp,
    /// What the visit was told on entering.
    pub(super) told: Option<ToldChange>,
    /// Whether the host was free.
    pub(super) is_free: bool,
}

/// An instruction to a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToldChange {
    Prepare,
    Start,
    Refused(LaneRefusal),
}

impl SharedLane {
    pub(super) fn new(host: HostKey, lane: Lane, now: Timestamp) -> Self {
        SharedLane {
            host,
            state: Mutex::new(LaneState {
                last_used: now,
                badge: SeriesHandle::default(),
                lane,
                alarm: None,
                dormitory: None,
                counted: 0,
                told_crawl_delay_ms: 0,
                appointment: None,
            }),
        }
    }

    /// Changes the state, then drives the lane on.
    pub(super) fn with<T>(&self, now: Timestamp, change: impl FnOnce(&mut LaneState) -> T) -> T {
        let mut state = self.state.lock();
        let outcome = change(&mut state);
        state.drive(now);
        outcome
    }

    /// Runs `look` under the lock, and does not drive the lane on afterwards.
    pub(super) fn look<T>(&self, look: impl FnOnce(&mut LaneState) -> T) -> T {
        look(&mut self.state.lock())
    }

    pub(super) fn change(&self, policy: Arc<Policy>, schooling: &LearningPolicy, now: Timestamp) {
        self.with(now, |state| {
            state.lane.change(policy, now);
            state.lane.school(schooling, now);
        });
    }

    pub(super) fn host(&self) -> &HostKey {
        &self.host
    }
}

impl LaneState {
    pub(super) fn used(&mut self, now: Timestamp) {
        self.last_used = now;
    }

    pub(super) fn appointment(&mut self) -> &mut Appointment {
        self.appointment.get_or_insert_default()
    }

    pub(super) fn appointment_if_any(&mut self) -> Option<&mut Appointment> {
        self.appointment.as_deref_mut()
    }

    /// Whether robots.txt asks this visit for a longer delay than any visit before. A shorter delay is not new, because
    /// groups may alternate.
    pub(super) fn is_new_crawl_delay(&mut self, asked: Duration) -> bool {
        let asked_ms = u32::try_from(asked.as_millis()).unwrap_or(u32::MAX);
        let is_new = asked_ms > self.told_crawl_delay_ms;
        self.told_crawl_delay_ms = self.told_crawl_delay_ms.max(asked_ms);
        is_new
    }

    /// Returns the number of visits since the last call.
    pub(super) fn take_visits(&mut self) -> u32 {
        let visits = self.lane.visits();
        visits.wrapping_sub(std::mem::replace(&mut self.counted, visits))
    }

    pub(super) fn last_used(&self) -> Timestamp {
        self.last_used
    }

    /// Lets a visit in. A free host starts it at once if its connection is ready, and calls it otherwise.
    pub(super) fn enter(&mut self, visit: Visit, is_ready: bool, now: Timestamp) -> Result<Entered, LaneRefusal> {
        if is_ready && let Some(ticket) = self.lane.walk_through(&visit, now) {
            return Ok(Entered { ticket, expected: now, told: Some(ToldChange::Start), is_free: true });
        }
        // The crawl delay of a refused visit may have changed what happens to other visits.
        let joined = self.lane.join(visit, now).inspect_err(|_| self.drive(now));
        let Joined { ticket, expected, is_called } = joined?;
        if is_called {
            return Ok(Entered { ticket, expected, told: Some(ToldChange::Prepare), is_free: true });
        }
        match self.drive_for(ticket, now) {
            Some(ToldChange::Refused(refusal)) => Err(refusal),
            told => Ok(Entered { ticket, expected, told, is_free: false }),
        }
    }

    /// Notes that a called visit is ready. Returns what it is told.
    pub(super) fn ready(&mut self, ticket: Ticket, now: Timestamp) -> Option<ToldChange> {
        if self.lane.ready(ticket, now) { Some(ToldChange::Start) } else { self.drive_for(ticket, now) }
    }

    /// Carries out the lane's next steps. There are none if no visit waits.
    #[inline]
    pub(super) fn drive(&mut self, now: Timestamp) {
        if self.lane.rests() {
            self.alarm = None;
        } else {
            self.drive_on(now);
        }
    }

    fn drive_on(&mut self, now: Timestamp) {
        while !self.lane.rests() {
            let step = self.lane.next_step(now);
            self.obey(step);
            if matches!(step, Step::Wait(_)) {
                return;
            }
        }
        self.alarm = None;
    }

    fn obey(&mut self, step: Step) {
        match step {
            Step::Prepare(ticket) => self.tell(ticket, ToldChange::Prepare),
            Step::Start(ticket) => self.tell(ticket, ToldChange::Start),
            Step::Refuse(ticket, refusal) => self.refuse(ticket, refusal),
            Step::Wait(alarm) => self.set_alarm(alarm),
        }
    }

    /// Drives the lane on for a visit whose task is awake, and returns what that visit is told.
    pub(super) fn drive_for(&mut self, ticket: Ticket, now: Timestamp) -> Option<ToldChange> {
        // The usual case, a free host, stores nothing and wakes no task.
        let step = self.lane.next_step(now);
        let told = match step {
            Step::Prepare(called) if called == ticket => Some(ToldChange::Prepare),
            Step::Start(started) if started == ticket => Some(ToldChange::Start),
            _ => {
                self.obey(step);
                None
            }
        };
        if !matches!(step, Step::Wait(_)) {
            self.drive(now);
        }
        told.or_else(|| self.take_told(ticket))
    }

    /// Returns what the visit was told since the last call.
    pub(super) fn take_told(&mut self, ticket: Ticket) -> Option<ToldChange> {
        let Waiters { sleepers, refused } = self.dormitory.as_deref_mut()?;
        if let Some(index) = refused.iter().position(|(refused, _)| *refused == ticket) {
            return Some(ToldChange::Refused(refused.swap_remove(index).1));
        }
        sleepers.get_mut(ticket.number()).filter(|sleeper| sleeper.ticket == Some(ticket))?.told.take()
    }

    /// Registers the waker that is called when there is something to tell the visit.
    pub(super) fn sleep(&mut self, ticket: Ticket, waker: &Waker) {
        let sleeper = self.sleeper(ticket);
        if !sleeper.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            sleeper.waker = Some(waker.clone());
        }
    }

    /// When the visit must drive the lane on, if it is the one that keeps the timer.
    pub(super) fn alarm_of(&self, ticket: Ticket) -> Option<Timestamp> {
        self.alarm.filter(|alarm| alarm.keeper == ticket).map(|alarm| alarm.at)
    }

    /// When the lane must be driven on.
    pub(super) fn alarm_at(&self) -> Option<Timestamp> {
        self.alarm.map(|alarm| alarm.at)
    }

    /// Lets a visit leave.
    pub(super) fn leave(&mut self, ticket: Ticket, now: Timestamp) {
        self.lane.leave(ticket, now);
        if self.dormitory.is_some() {
            self.forget(ticket);
        }
    }

    /// Removes what is stored for a visit that has left. An entry under its number may already belong to another visit.
    fn forget(&mut self, ticket: Ticket) {
        let Some(Waiters { sleepers, refused }) = self.dormitory.as_deref_mut() else { return };
        if let Some(sleeper) = sleepers.get_mut(ticket.number()).filter(|sleeper| sleeper.ticket == Some(ticket)) {
            *sleeper = Waiter::default();
        }
        refused.retain(|(refused, _)| *refused != ticket);
        if refused.is_empty() && self.lane.queued() + self.lane.in_flight() == 0 {
            self.dormitory = None;
        }
    }

    fn tell(&mut self, ticket: Ticket, told: ToldChange) {
        let sleeper = self.sleeper(ticket);
        sleeper.told = Some(told);
        if let Some(waker) = sleeper.waker.take() {
            waker.wake();
        }
    }

    /// Takes the turns of all visits that are ready, as if other claims had come first.
    #[cfg(test)]
    pub(super) fn lose_turns(&mut self, now: Timestamp) {
        let waiting = self.dormitory.iter().flat_map(|dormitory| &dormitory.sleepers);
        for ticket in waiting.filter_map(|sleeper| sleeper.ticket).collect::<Vec<_>>() {
            self.lane.unready(ticket, now);
            self.tell(ticket, ToldChange::Prepare);
        }
    }

    fn refuse(&mut self, ticket: Ticket, refusal: LaneRefusal) {
        let waker = std::mem::take(self.sleeper(ticket)).waker;
        self.dormitory.get_or_insert_default().refused.push((ticket, refusal));
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes the keeper so that it sets its timer, if the keeper is new or the time came nearer.
    fn set_alarm(&mut self, alarm: Option<Alarm>) {
        let before = std::mem::replace(&mut self.alarm, alarm);
        let Some(alarm) = alarm else { return };
        if before.is_some_and(|before| before.keeper == alarm.keeper && before.at <= alarm.at) {
            return;
        }
        if let Some(waker) = &self.sleeper(alarm.keeper).waker {
            waker.wake_by_ref();
        }
    }

    fn sleeper(&mut self, ticket: Ticket) -> &mut Waiter {
        let number = ticket.number();
        let sleepers = &mut self.dormitory.get_or_insert_default().sleepers;
        if number >= sleepers.len() {
            sleepers.resize_with(number + 1, Waiter::default);
        }
        let sleeper = &mut sleepers[number];
        if sleeper.ticket != Some(ticket) {
            *sleeper = Waiter { ticket: Some(ticket), ..Waiter::default() };
        }
        sleeper
    }
}
