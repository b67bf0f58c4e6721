//! Requests that wait for their robots.txt and join the lane afterwards.
//!
//! They have no order yet: whether and when each of them may start is decided when it joins. But they wait, so they
//! count in `max_queue`, and a request that could not start in time is refused at once, as if it joined now. A request
//! that may share the answer to another one is refused when it joins: until then its wait cannot be predicted.

use super::Lane;
use super::crawl_delay::asked_of;
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{LaneRefusal, Visit};

impl Lane {
    /// Counts one more request that waits for robots.txt, or refuses it as [`Lane::join`] would. Returns when the
    /// request can expect to start if the file comes at once. The caller must undo the count with
    /// [`Lane::leave_robots_wait`].
    pub fn wait_for_robots(&mut self, visit: &Visit, now: Timestamp) -> Result<Timestamp, LaneRefusal> {
        let comes_back = self.returns.as_ref().is_some_and(|returns| returns.is_due(visit.client, visit.url, now));
        let rank = if comes_back { Rank::Returning } else { Rank::Newcomer };
        let asked = asked_of(visit);
        let in_line = self.start_in_line(rank, visit.client, visit.urgency, asked, now);
        // Parts of a page ride on the turn of the first of them, and requests for one URL may need one turn together.
        let needs_none = self.counts_part(visit) || visit.may_share;
        let ahead = if needs_none { 0 } else { self.robots_waits as usize };
        let expected = self.start_behind_more(in_line, ahead, asked, now);
        self.admit(visit, rank, expected, now)?;
        self.robots_waits += 1;
        Ok(expected)
    }

    /// Counts one request less: it has its robots.txt, or has left.
    pub fn leave_robots_wait(&mut self) {
        debug_assert!(self.robots_waits > 0, "it is left once");
        self.robots_waits = self.robots_waits.saturating_sub(1);
    }

    /// Refuses a request that has waited for robots.txt for as long as it would wait for its turn.
    pub fn robots_wait_was_too_long(&mut self, visit: &Visit, now: Timestamp) -> LaneRefusal {
        let expected = self.expected(Rank::Newcomer, visit.client, visit.urgency, asked_of(visit), now);
        LaneRefusal::WaitTooLong { retry_after: self.tell(visit.client, visit.url, expected, now) }
    }

    /// Requests that wait for the host or for its robots.txt.
    pub fn waiting(&self) -> usize {
        self.queued() + self.robots_waits as usize
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::politeness::policy::Policy;
    use crate::politeness::visit::ClientId;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn visit(n: u64) -> Visit {
        Visit::new(ClientId(n), n)
    }

    /// A thousand requests for one URL may need one turn.
    #[test]
    fn requests_that_may_share_an_answer_are_not_refused_for_each_other() {
        let mut lane = Lane::new(Policy { delay: Duration::from_secs(100), ..Policy::default() }, 7);
        let shares = |n| Visit { may_share: true, ..visit(n) };
        assert!((0..20).all(|n| lane.wait_for_robots(&shares(n), at(0)).is_ok()));
        assert!(lane.wait_for_robots(&visit(20), at(0)).is_err(), "it needs a turn of its own");
    }

    #[test]
    fn a_request_that_waits_for_robots_txt_counts_in_the_queue() {
        let policy = Policy { delay: Duration::from_secs(1), max_queue: 3, ..Policy::default() };
        let mut lane = Lane::new(policy, 7);
        for n in 0..3 {
            assert_eq!(lane.wait_for_robots(&visit(n), at(0)), Ok(at(n * 1_000)));
        }
        let seconds = |seconds| Duration::from_secs(seconds);
        let full = LaneRefusal::QueueFull { retry_after: seconds(3) };
        assert_eq!(lane.wait_for_robots(&visit(3), at(0)), Err(full));
        assert!(
            matches!(lane.join(visit(4), at(0)), Err(LaneRefusal::QueueFull { .. })),
            "the queue is full for it, too"
        );
        assert_eq!((lane.waiting(), lane.queued(), lane.in_flight()), (3, 0, 0));
        assert!(lane.owes(at(0)));
        lane.leave_robots_wait();
        assert!(lane.wait_for_robots(&visit(3), at(3_000)).is_ok(), "it comes back as told");
        for n in 0..3 {
            lane.leave_robots_wait();
            assert!(lane.join(visit(n), at(3_000)).is_ok(), "no request loses its place by joining");
        }
        assert_eq!(lane.waiting(), 3);
    }

    #[test]
    fn a_request_that_could_not_start_in_time_does_not_wait_for_robots_txt() {
        let mut lane = Lane::new(Policy { delay: Duration::from_secs(10), ..Policy::default() }, 7);
        let hurried = Visit { max_wait: Some(Duration::ZERO), ..visit(1) };
        assert!(lane.wait_for_robots(&hurried, at(0)).is_ok());
        assert!(matches!(lane.wait_for_robots(&hurried, at(0)), Err(LaneRefusal::WaitTooLong { .. })));
        lane.pause();
        assert_eq!(lane.wait_for_robots(&visit(2), at(0)), Err(LaneRefusal::HostCooling { retry_after: None }));
    }
}
