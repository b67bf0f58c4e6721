//! Crawl delays: what robots.txt asks of each visit, by the group of its User-Agent.
//!
//! A client chooses its User-Agent, so the delay of one group applies only to the visits of that group: such a visit
//! starts no sooner than its delay after the last start, by whichever client. The next start of another group keeps
//! only its own distance. A delay counts from the moment its visit is next in the queue, so a visit that is refused or
//! leaves changes nothing. The queue stays in order: a visit with a long delay is not overtaken.

use std::time::Duration;

use super::{LEAD, Lane};
use crate::politeness::policy::Delays;
use crate::politeness::queue::Rank;
use crate::politeness::time::{Timestamp, whole_millis};
use crate::politeness::visit::{ClientId, Ticket, Visit};

impl Lane {
    /// Sets the lane's spacing for the visit that starts next.
    pub(super) fn heed_next(&mut self, now: Timestamp) {
        if let Some(next) = self.next_to_start(now) {
            self.heed(self.roll.ticket(next), now);
        }
    }

    /// Returns the visit that starts next, if visits that wait may have different crawl delays. A called visit that
    /// takes longer than its lead to get ready gives way: its delay, if it is long, must not delay the visits that are
    /// called beside it.
    pub(super) fn next_to_start(&self, now: Timestamp) -> Option<u32> {
        if !self.mixed {
            return None;
        }
        let ready = self.first_ready().map(|index| self.called[index]);
        let in_time = |&&number: &&u32| self.roll.entry(number).since + LEAD > now;
        ready
            .or_else(|| self.called.iter().find(in_time).copied())
            .or_else(|| self.next_in_line())
            .or_else(|| self.called.first().copied())
    }

    /// Sets the lane's spacing for this visit.
    pub(super) fn heed(&mut self, ticket: Ticket, now: Timestamp) {
        let asked = self.roll.get_mut(ticket).map(|entry| entry.crawl_delay());
        if let Some(asked) = asked.filter(|asked| *asked != self.delays.robots) {
            self.mixed |= self.queued() > 0;
            self.delays.robots = asked;
            // The predicted starts of the visits behind it allow for this delay, so none of them is refused.
            self.change_spacing(now);
        }
    }

    /// Notes that a visit with this crawl delay joins.
    pub(super) fn mix(&mut self, asked: Duration) {
        self.mixed = (self.mixed && self.queued() > 0) || asked != self.delays.robots;
    }

    /// Returns the parts of the delay for a visit with this crawl delay.
    pub fn delays_for(&self, asked: Duration, now: Timestamp) -> Delays {
        let delays = Delays { robots: asked, ..self.delays };
        let base = delays.configured.max(asked);
        Delays { learned: self.learned_above(base, now).unwrap_or(delays.learned), ..delays }
    }

    /// Returns when a visit that joins now can start, and how many visits go before it.
    pub(super) fn start_in_line(
        &self,
        rank: Rank,
        client: ClientId,
        urgency: u8,
        asked: Duration,
        now: Timestamp,
    ) -> (Timestamp, usize) {
        let (client, urgency) = self.stands_as(client, urgency);
        if self.is_spaced_for(asked) {
            let ahead = self.called.len() + self.queue.ahead(rank, client, urgency);
            return (self.start_behind(ahead, now), ahead);
        }
        let mut line = Forecast::new(self, now);
        self.called.iter().for_each(|&number| line.add(number));
        self.queue.each_ahead(rank, client, urgency, |number| line.add(number));
        (line.turn_of(asked).max(self.place_behind(line.ahead, now)), line.ahead)
    }

    /// Returns when the visit of [`Lane::start_in_line`] can start if `more` visits with the same crawl delay go before
    /// it that are not in the queue.
    pub(super) fn start_behind_more(
        &self,
        (start, ahead): (Timestamp, usize),
        more: usize,
        asked: Duration,
        now: Timestamp,
    ) -> Timestamp {
        if more == 0 || !self.is_spaced_for(asked) {
            return start + self.gap(asked, now).saturating_mul(u32::try_from(more).unwrap_or(u32::MAX));
        }
        self.start_behind(ahead + more, now)
    }

    /// Returns whether the lane's spacing fits a visit with this crawl delay and all visits that wait.
    fn is_spaced_for(&self, asked: Duration) -> bool {
        asked == self.delays.robots && !(self.mixed && self.queued() > 0)
    }

    /// Returns the longest gap before a visit with this crawl delay.
    pub(super) fn gap(&self, asked: Duration, now: Timestamp) -> Duration {
        let delay = self.delays_for(asked, now).effective();
        delay.saturating_add(delay.mul_f64(self.policy.jitter.max(0.0)))
    }
}

/// Returns the crawl delay of a visit in whole milliseconds, as it is stored.
pub(super) fn asked_of(visit: &Visit) -> Duration {
    Duration::from_millis(whole_millis(visit.crawl_delay).into())
}

/// Predicts starts in a queue, visit by visit.
pub(super) struct Forecast<'a> {
    lane: &'a Lane,
    now: Timestamp,
    /// Visits added so far, which go before the next one.
    pub(super) ahead: usize,
    /// The sum of their gaps, and the smallest gap. Used only if visits may have different crawl delays.
    gaps: Duration,
    least: Duration,
}

impl<'a> Forecast<'a> {
    pub(super) fn new(lane: &'a Lane, now: Timestamp) -> Self {
        Forecast { lane, now, ahead: 0, gaps: Duration::ZERO, least: Duration::MAX }
    }

    /// Adds a visit. Visits that are predicted later go behind it.
    pub(super) fn add(&mut self, number: u32) {
        let gap = self.lane.gap(self.lane.roll.entry(number).crawl_delay(), self.now);
        (self.gaps, self.least, self.ahead) = (self.gaps.saturating_add(gap), self.least.min(gap), self.ahead + 1);
    }

    /// Returns when this visit gets its turn, behind the visits that were added. Ignores places.
    pub(super) fn turn(&self, number: u32) -> Timestamp {
        if self.lane.mixed {
            return self.turn_of(self.lane.roll.entry(number).crawl_delay());
        }
        self.lane.turns.predict(self.ahead, self.now)
    }

    fn turn_of(&self, asked: Duration) -> Timestamp {
        let own = self.lane.gap(asked, self.now);
        self.lane.turns.predict_gaps(self.gaps.saturating_add(own), self.least.min(own), self.now)
    }
}

#[cfg(test)]
#[path = "crawl_delay_tests.rs"]
mod tests;
