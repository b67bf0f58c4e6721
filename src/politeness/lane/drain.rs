//! Draining: curtsy stops soon, so a visit is served before the end or refused at once.
//!
//! The order of the visits that stay is fixed: first come, first served from here on. So a newcomer never delays a
//! visit that has been promised its turn. Only the host can delay it (by a hold or a longer delay); then the lane
//! decides again.
//!
//! # What a refused visit is told
//! The time at which the host would have accepted the visit if curtsy had kept running, at least one second from now.
//! It is the only time that this process knows to be right for the host: the next process remembers the last send, the
//! hold and the delay, and a client that comes back sooner would wait there. How long a restart takes is not known
//! here. The next process starts with an empty queue, so a client that comes back at its time does not wait behind
//! visits that were refused with it.

use super::Lane;
use super::crawl_delay::Forecast;
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, LaneRefusal, Step, Ticket};
use crate::politeness::visit_table::{Phase, VisitEntry};

/// The time at which a lane ends, and the visits that have been refused because of it.
#[derive(Debug)]
pub(super) struct Drain {
    end: Timestamp,
    /// They have left the lane. The last one in the list is reported first.
    refused: Vec<(Ticket, LaneRefusal)>,
}

impl Drain {
    /// Limits a deadline to the end: no visit waits for the host longer than that.
    pub(super) fn before_end(&self, deadline: Timestamp) -> Timestamp {
        deadline.min(self.end)
    }
}

impl Lane {
    /// Lets no visit start after `end`. Refuses visits that would start later, or would not be finished by then. If it
    /// is called again with a later end, the first one counts.
    pub fn drain(&mut self, end: Timestamp, now: Timestamp) {
        let drain = self.drain.get_or_insert_with(|| Box::new(Drain { end, refused: Vec::new() }));
        drain.end = drain.end.min(end);
        self.settle_rides(now);
        self.refuse_late(now);
    }

    /// Refuses the visits that no longer fit before the end. Does nothing while no end is known.
    pub(super) fn refuse_late(&mut self, now: Timestamp) {
        let Some(end) = self.drain.as_ref().map(|drain| drain.end).filter(|_| self.enforced()) else { return };
        let called = self.called.len();
        let line: Vec<u32> = std::iter::from_fn(|| self.queue.pop()).collect();
        // Predicted before any visit leaves: each by its own position in the queue.
        let starts = self.starts_to_drain(&line, now);
        let ready = |index: usize| (self.roll.entry(self.called[index]).phase == Phase::Ready).then_some(index);
        let late_called: Vec<u32> = (0..called)
            .filter_map(ready)
            .filter(|&index| self.is_late(starts[index]))
            .map(|index| self.called[index])
            .collect();
        let mut refused = Vec::new();
        for number in late_called {
            self.called.retain(|called| *called != number);
            refused.extend(self.refuse_as(number, self.start_of(0, now), now));
        }
        for (number, start) in line.into_iter().zip(starts.into_iter().skip(called)) {
            if self.is_late(start) {
                refused.extend(self.refuse_as(number, start, now));
                continue;
            }
            self.give_until(number, end);
            self.queue.join(number, Rank::Retry, ClientId(0), 0);
        }
        for index in 0..self.called.len() {
            self.give_until(self.called[index], end);
        }
        refused.reverse();
        if let Some(drain) = &mut self.drain {
            refused.append(&mut drain.refused);
            drain.refused = refused;
        }
    }

    fn give_until(&mut self, number: u32, end: Timestamp) {
        let ticket = self.roll.ticket(number);
        let Some(entry) = self.roll.get_mut(ticket) else { return };
        entry.deadline = entry.deadline.min(end);
        let (deadline, waits) = (entry.deadline, entry.phase.waits_for_the_host());
        if waits {
            self.roll.watch(deadline);
        }
    }

    /// Removes a visit that is in no queue any more from the roll, and returns its refusal.
    fn refuse_as(&mut self, number: u32, start: Timestamp, now: Timestamp) -> Option<(Ticket, LaneRefusal)> {
        let ticket = self.roll.ticket(number);
        let entry = self.roll.remove(ticket)?;
        self.shadow_leaves(ticket, now);
        Some((ticket, self.drained(&entry, start, now)))
    }

    /// Returns the refusal of a visit that would have started at `start`.
    pub(super) fn drained(&mut self, entry: &VisitEntry, start: Timestamp, now: Timestamp) -> LaneRefusal {
        let retry_after = (!self.paused).then(|| self.tell(entry.client, entry.url, start, now));
        LaneRefusal::ShuttingDown { retry_after }
    }

    /// Returns the next refusal that has not been reported yet.
    pub(super) fn next_drained(&mut self) -> Option<Step> {
        let (ticket, refusal) = self.drain.as_mut()?.refused.pop()?;
        Some(Step::Refuse(ticket, refusal))
    }

    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Returns whether a visit that starts then would not finish before the end, judged by how long visits have taken
    /// so far.
    pub(super) fn is_late(&self, start: Timestamp) -> bool {
        self.drain.as_ref().is_some_and(|drain| start > drain.end - self.places.kept())
    }

    /// Returns how long visits keep their places, as far as is known.
    #[cfg(test)]
    pub(in crate::politeness) fn places_kept(&self) -> std::time::Duration {
        self.places.kept()
    }

    /// Predicts when the called visits and then the visits of `line` can start. If their crawl delays differ, a visit
    /// that is too late does not delay the visits behind it; otherwise all visits behind it are too late as well.
    fn starts_to_drain(&self, line: &[u32], now: Timestamp) -> Vec<Timestamp> {
        let mut forecast = Forecast::new(self, now);
        let start = |&number: &u32| {
            let start = forecast.turn(number).max(self.place_behind(forecast.ahead, now));
            if !(self.mixed && self.is_late(start)) {
                forecast.add(number);
            }
            if self.paused { Timestamp::NEVER } else { start }
        };
        self.called.iter().chain(line).map(start).collect()
    }

    fn start_of(&self, ahead: usize, now: Timestamp) -> Timestamp {
        if self.paused { Timestamp::NEVER } else { self.start_behind(ahead, now) }
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
