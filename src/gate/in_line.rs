//! A visit while it waits: its timer, and its entry in the line of all hosts.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};

use super::disconnects::DisconnectedVisit;
use super::shared_lane::{SharedLane, ToldChange};
use super::waiting_list::{Label, VisitClient};
use super::{Gate, now};
use crate::clock;
use crate::metrics::DisconnectStage;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::Ticket;
use crate::timer::Timer;

/// The state that is needed only while waiting.
#[derive(Debug)]
pub(super) struct InLine {
    gate: Arc<Gate>,
    lane: Arc<SharedLane>,
    ticket: Ticket,
    client: VisitClient,
    pub(super) joined: Timestamp,
    pub(super) expected: Timestamp,
    /// Whether the visit's task waits to be told something. Dropping it then means that the client disconnected.
    asleep: bool,
    /// The visit's number in the line of all hosts.
    number: Option<u64>,
    timer: Timer,
    /// True if the visit stops waiting for a reason other than its client.
    pub(super) withdrawn: Option<Arc<AtomicBool>>,
}

impl InLine {
    pub(super) fn new(
        gate: Arc<Gate>,
        lane: Arc<SharedLane>,
        (ticket, client): (Ticket, VisitClient),
        joined: Timestamp,
        expected: Timestamp,
    ) -> Self {
        let (timer, asleep, number, withdrawn) = (Timer::default(), false, None, None);
        InLine { gate, lane, ticket, client, joined, expected, asleep, number, timer, withdrawn }
    }

    /// Waits for the next instruction of the lane.
    pub(super) async fn told(&mut self) -> ToldChange {
        self.asleep = true;
        let told = poll_fn(|cx| self.poll_told(cx)).await;
        self.asleep = false;
        told
    }

    /// Marks the visit as waiting for something other than an instruction of the lane.
    pub(super) fn doze(&mut self) {
        self.asleep = true;
    }

    fn poll_told(&mut self, cx: &mut Context<'_>) -> Poll<ToldChange> {
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

    /// Enters the line of all hosts, unless the visit is in it already.
    pub(super) fn start_waiting(&mut self, label: impl FnOnce() -> Option<Label>) {
        if self.number.is_some() {
            return;
        }
        self.gate.waiting.fetch_add(1, Relaxed);
        self.number = Some(self.gate.line.enter(&self.lane, self.client, self.joined, self.expected));
        self.known_as(label());
    }

    /// Labels the visit in the line of all hosts.
    pub(super) fn known_as(&self, label: Option<Label>) {
        if let Some((number, label)) = self.number.zip(label) {
            self.gate.line.label(number, label);
        }
    }

    #[inline]
    pub(super) fn stop_waiting(&mut self) {
        if let Some(number) = self.number.take() {
            self.gate.waiting.fetch_sub(1, Relaxed);
            self.gate.line.leave(number);
        }
    }

    fn tell_of_leaving(&self) {
        if let Some((listener, number)) = self.gate.leaving.get().zip(self.number) {
            let after = now().since(self.joined);
            (listener.0)(&DisconnectedVisit { line: &self.gate.line, lane: &self.lane, number, after });
        }
    }
}

impl Drop for InLine {
    fn drop(&mut self) {
        if self.asleep && !self.withdrawn.as_ref().is_some_and(|withdrawn| withdrawn.load(Relaxed)) {
            self.gate.metrics.disconnect(DisconnectStage::Queued);
            self.gate.metrics.clients.waited(self.client.id, now().since(self.joined));
            self.tell_of_leaving();
        }
        self.stop_waiting();
    }
}
