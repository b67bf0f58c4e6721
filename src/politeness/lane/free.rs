//! The short way through a lane that is free: nobody waits in it, and nothing keeps the next visit.
//!
//! Most visits find their host so. [`Lane::walk_in`] is `join` and the `Prepare` that would follow, [`Lane::set_out`] is
//! `ready` and the `Start` that would follow, each in one look. Promises to decide nothing of its own: it says yes only
//! where the long way would at once, and the lane is the same after either.

use std::time::Duration;

use super::Lane;
use crate::politeness::roll::{Entry, Phase};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Ticket, Visit};

impl Lane {
    /// Lets a visit in and calls it, if the host is free. If not, nothing has happened but that robots.txt was heeded:
    /// it is to join.
    #[must_use]
    pub fn walk_in(&mut self, visit: &Visit, now: Timestamp) -> Option<Ticket> {
        self.heed_robots(visit.crawl_delay, now);
        let comes_first = self.called.is_empty() && self.returns.is_none();
        if !(comes_first && self.has_room() && self.turns.next_claim(now) <= now) {
            return None;
        }
        let &Visit { client, url, urgency, retry, max_wait, .. } = visit;
        let deadline = now + self.policy.max_wait.min(max_wait.unwrap_or(Duration::MAX));
        let (phase, epoch) = (Phase::Preparing, None);
        let ticket = self.roll.enter(Entry { client, url, urgency, retry, phase, since: now, deadline, epoch });
        self.called.push(ticket.number);
        Some(ticket)
    }

    /// A called visit has its connection: gives it its turn, if the host is free. If not, it is ready and waits.
    #[must_use]
    pub fn set_out(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        let alone = self.called.as_slice() == [ticket.number];
        if !(self.gets_ready(ticket, now) && alone && self.has_room() && self.turns.claim(now).is_ok()) {
            return false;
        }
        self.called.clear();
        self.roll.get_mut(ticket).is_some_and(|entry| {
            entry.phase = Phase::Claimed;
            true
        })
    }

    /// Whether nothing but the turn can keep somebody who is alone here.
    fn has_room(&self) -> bool {
        let open = self.enforced() && !self.paused && !self.is_on_trial();
        open && self.queue.is_empty() && self.in_flight() < self.places.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::lane::Joined;
    use crate::politeness::policy::{Mode, Policy};
    use crate::politeness::visit::{ClientId, Step};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn policy() -> Policy {
        Policy { delay: Duration::from_secs(1), concurrency: 2, ..Policy::default() }
    }

    fn visit(n: u64) -> Visit {
        Visit::new(ClientId(n), n)
    }

    /// Two lanes that have seen the same, one of which is gone through the long way.
    fn compare(policy: Policy, before: impl Fn(&mut Lane), now: Timestamp) -> bool {
        let [mut short, mut long] = [(); 2].map(|()| Lane::new(policy, 7));
        before(&mut short);
        before(&mut long);
        let walked_in = short.walk_in(&visit(9), now);
        let joined = long.join(visit(9), now);
        let Some(ticket) = walked_in else { return false };
        assert_eq!(joined, Ok(Joined { ticket, expected: now }));
        assert_eq!(long.next_step(now), Step::Prepare(ticket));
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
        assert!(short.set_out(ticket, now));
        long.ready(ticket, now);
        assert_eq!(long.next_step(now), Step::Start(ticket));
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
        true
    }

    fn go(lane: &mut Lane, n: u64, now: Timestamp) -> Ticket {
        let ticket = lane.walk_in(&visit(n), now).expect("a free host");
        assert!(lane.set_out(ticket, now));
        assert_eq!(lane.sent(ticket, now), None);
        ticket
    }

    #[test]
    fn the_short_way_is_the_long_way() {
        assert!(compare(policy(), |_| {}, at(0)));
        let visited = |lane: &mut Lane| {
            go(lane, 1, at(0));
        };
        assert!(compare(policy(), visited, at(1_000)), "one of two places is free");
        let bursting = Policy { burst: 3, ..policy() };
        assert!(compare(bursting, visited, at(0)));
        assert!(compare(Policy { delay: Duration::ZERO, ..policy() }, visited, at(0)));
    }

    #[test]
    fn there_is_no_short_way_past_anything() {
        let visited = |lane: &mut Lane| {
            go(lane, 1, at(0));
        };
        assert!(!compare(policy(), visited, at(999)), "the delay");
        assert!(!compare(policy(), |lane| lane.hold(at(50), at(0)), at(49)), "a hold");
        assert!(!compare(policy(), Lane::pause, at(0)), "a pause");
        let full = |lane: &mut Lane| {
            go(lane, 1, at(0));
            go(lane, 2, at(1_000));
        };
        assert!(!compare(policy(), full, at(9_000)), "the places");
        let preparing = |lane: &mut Lane| assert!(lane.walk_in(&visit(1), at(0)).is_some());
        assert!(!compare(policy(), preparing, at(0)), "somebody who came before");
        assert!(!compare(Policy { mode: Mode::Report, ..policy() }, |_| {}, at(0)), "what is only told");
        let told = |lane: &mut Lane| {
            lane.hold(at(10_000), at(0));
            let impatient = Visit { max_wait: Some(Duration::ZERO), ..visit(3) };
            assert!(lane.join(impatient, at(0)).is_err());
        };
        assert!(!compare(policy(), told, at(20_000)), "somebody who was told to come back");
    }

    #[test]
    fn who_is_not_alone_is_ready_and_waits() {
        let mut lane = Lane::new(policy(), 7);
        let first = lane.walk_in(&visit(1), at(0)).unwrap();
        let second = lane.join(visit(2), at(0)).unwrap().ticket;
        assert_eq!(lane.next_step(at(0)), Step::Prepare(second), "it may make its connection beside the first");
        assert!(!lane.set_out(second, at(0)));
        assert_eq!(lane.next_step(at(0)), Step::Start(second));
        assert!(!lane.set_out(first, at(0)), "the turn is taken");
        assert!(matches!(lane.next_step(at(0)), Step::Wait(_)));
        assert!(!lane.set_out(first, at(0)), "it is ready already");
    }
}
