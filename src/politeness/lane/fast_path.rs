//! The short path through a free lane: no visit waits in it, and nothing delays the next visit.
//!
//! Most visits find their host free and a connection in the pool: [`Lane::walk_through`] is `join`, `ready` and the
//! steps between and after them in one call, and [`Lane::takes_for_granted`] is the `report` of an answer that changes
//! nothing. Promise: the short path decides nothing of its own. It succeeds only where the long path would succeed at
//! once, and the lane is the same after either.

use std::time::Duration;

use super::Lane;
use super::crawl_delay::asked_of;
use crate::politeness::breaker::Ruling;
use crate::politeness::signals::Signals;
use crate::politeness::time::Timestamp;
use crate::politeness::turns::Turns;
use crate::politeness::visit::{PagePart, Purpose, Ticket, Visit, VisitOutcome};
use crate::politeness::visit_table::{Phase, VisitEntry};

impl Lane {
    /// Admits a visit that has a connection and gives it its turn, if the host is free. Returns `None` otherwise; then
    /// the visit has not entered, and the caller must use [`Lane::join`].
    #[must_use]
    pub fn walk_through(&mut self, visit: &Visit, now: Timestamp) -> Option<Ticket> {
        let rides = if visit.part == PagePart::No { None } else { self.ride_through(visit, now) };
        rides.or_else(|| self.enter_free(visit, Phase::Claimed, now))
    }

    /// Calls a visit, or gives it its turn (this phase is `Preparing` or `Claimed`), if the host is free.
    pub(super) fn enter_free(&mut self, visit: &Visit, phase: Phase, now: Timestamp) -> Option<Ticket> {
        if self.in_flight() >= self.concurrency() {
            self.set_aside(now);
        }
        if !(self.is_free_for(visit, now) && self.could_claim(visit, now)) {
            return None;
        }
        self.mixed = false;
        let deadline = now + self.policy.max_wait.min(visit.max_wait.unwrap_or(Duration::MAX));
        let ticket = self.roll.enter(VisitEntry::new(visit, phase, deadline, now));
        self.heed(ticket, now);
        if phase == Phase::Claimed {
            self.turns.give();
            self.flying.push(ticket.number);
        } else {
            self.called.push(ticket.number);
        }
        Some(ticket)
    }

    /// Gives its turn to a robots.txt fetch, or to a page that waited for one, that is ready and finds the host free.
    /// Otherwise the visit waits as any page does.
    pub(super) fn start_free(&mut self, ticket: Ticket, purpose: Purpose, now: Timestamp) -> bool {
        if purpose == Purpose::AfterRobotsFetch || self.called.len() == 1 {
            self.heed(ticket, now);
        }
        // The other visits are spaced from the fetch, so a page that follows it at once overtakes no visit that could
        // start.
        let follows = purpose == Purpose::AfterRobotsFetch && self.turns.check_after_fetch(now).is_ok();
        let is_free = if follows { self.has_place() } else { self.called.len() == 1 && self.has_room() };
        let starts = is_free && self.claim_for(purpose, now);
        if starts {
            self.called.retain(|number| *number != ticket.number);
            self.flying.push(ticket.number);
        }
        if let Some(entry) = self.roll.get_mut(ticket) {
            (entry.phase, entry.purpose) =
                if starts { (Phase::Claimed, purpose) } else { (entry.phase, Purpose::Page) };
        }
        starts
    }

    /// Returns whether a page that waited for its robots.txt would start at once.
    pub(super) fn may_follow_fetch(&self, visit: &Visit, now: Timestamp) -> bool {
        let follows = visit.purpose == Purpose::AfterRobotsFetch && self.could_claim(visit, now);
        follows && self.is_free_for(visit, now)
    }

    pub(super) fn claim_for(&mut self, purpose: Purpose, now: Timestamp) -> bool {
        match purpose {
            Purpose::AfterRobotsFetch => self.turns.claim_after_fetch(now).is_ok(),
            Purpose::Page | Purpose::RobotsFetch => self.turns.claim(now).is_ok(),
        }
    }

    /// Takes an expected answer that is only counted. Returns false for any other answer; then nothing has happened,
    /// and the caller must report it.
    #[must_use]
    pub fn takes_for_granted(&mut self, ticket: Ticket, outcome: VisitOutcome, now: Timestamp) -> bool {
        let measures = self.shadow.is_some() || self.policy.delay_factor > 0.0;
        if measures || outcome != VisitOutcome::Heard(Signals::SERVED) {
            return false;
        }
        let entry = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Started).copied();
        let learns = self.lessons.is_some() || self.begins_to_measure();
        if learns && !entry.is_some_and(|entry| self.only_counts(&entry, now)) {
            return false;
        }
        if entry.is_some() {
            self.last_success = now;
        }
        true
    }

    /// Returns whether no visit was called or told to come back before, there is room, the visit's origin is not
    /// failing, and the visit does not wait for a ride.
    fn is_free_for(&self, visit: &Visit, now: Timestamp) -> bool {
        let rides = visit.part != PagePart::No && self.waits_for_ride(visit, now);
        let comes_first = self.called.is_empty() && self.returns.is_none() && !rides;
        let has_room = self.has_room() && self.may_hold(visit.client);
        comes_first && has_room && (self.lessons.is_none() || self.lessons_allow(visit, now))
    }

    /// Returns whether what was learned from the host leaves a place for this visit: how many places there are depends
    /// on its crawl delay, and its origin may be failing.
    fn lessons_allow(&self, visit: &Visit, now: Timestamp) -> bool {
        let has_place = self.in_flight() < self.concurrency_for(asked_of(visit), now);
        has_place && self.ruling(visit.origin, visit.client, now) == Ruling::Free
    }

    /// Returns whether a visit could claim a turn now. The visit must be alone in the lane.
    fn could_claim(&self, visit: &Visit, now: Timestamp) -> bool {
        let asked = asked_of(visit);
        let could = |turns: &Turns| match visit.purpose {
            Purpose::AfterRobotsFetch => turns.check_after_fetch(now).is_ok(),
            Purpose::Page | Purpose::RobotsFetch => turns.next_claim(now) <= now,
        };
        if asked == self.delays.robots {
            return could(&self.turns);
        }
        let mut turns = self.turns.clone();
        turns.change(self.spacing(&self.delays_for(asked, now)), now);
        could(&turns)
    }

    /// Returns whether only the turn can delay a visit that is alone in the lane.
    fn has_room(&self) -> bool {
        self.queue.is_empty() && self.has_place()
    }

    fn has_place(&self) -> bool {
        self.enforced() && !self.paused && self.in_flight() < self.places.limit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::lane::Joined;
    use crate::politeness::pace::Learner;
    use crate::politeness::policy::{LearningPolicy, Mode, Policy};
    use crate::politeness::signals::PaceSignal;
    use crate::politeness::visit::{ClientId, Step};

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + millis)
    }

    fn policy() -> Policy {
        Policy { delay: Duration::from_secs(1), concurrency: 2, ..Policy::steps() }
    }

    fn visit(n: u64) -> Visit {
        Visit::new(ClientId(n), n)
    }

    /// Compares two lanes with the same history, one of which takes the long path. Returns whether the short path was
    /// open.
    fn compare(policy: Policy, before: impl Fn(&mut Lane), now: Timestamp) -> bool {
        let [mut short, mut long] = [(); 2].map(|()| Lane::new(policy, 7));
        for lane in [&mut short, &mut long] {
            before(lane);
        }
        let Some(ticket) = short.walk_through(&visit(9), now) else {
            assert_eq!(format!("{short:?}"), format!("{long:?}"), "something has happened");
            return false;
        };
        assert_eq!(long.join(visit(9), now), Ok(Joined { ticket, expected: now, is_called: false }));
        assert_eq!(long.next_step(now), Step::Prepare(ticket));
        assert!(!long.ready(ticket, now));
        assert_eq!(long.next_step(now), Step::Start(ticket));
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
        true
    }

    fn go(lane: &mut Lane, n: u64, now: Timestamp) -> Ticket {
        let ticket = lane.walk_through(&visit(n), now).expect("a free host");
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
    fn one_page_follows_its_robots_fetch_at_once() {
        let purpose = |purpose, n| Visit { purpose, ..visit(n) };
        let mut lane = Lane::new(policy(), 7);
        let Joined { ticket: fetch, is_called, .. } = lane.join(purpose(Purpose::RobotsFetch, 1), at(0)).unwrap();
        assert!(is_called, "a free host");
        assert!(lane.ready(fetch, at(0)));
        assert_eq!(lane.sent(fetch, at(0)), None);
        assert_eq!(lane.walk_through(&purpose(Purpose::RobotsFetch, 2), at(10)), None, "another fetch waits");
        assert_eq!(lane.walk_through(&visit(3), at(10)), None, "so does a page that did not wait for it");
        lane.leave(fetch, at(10));
        let page = lane.walk_through(&purpose(Purpose::AfterRobotsFetch, 4), at(10)).expect("it may follow");
        assert_eq!(lane.walk_through(&purpose(Purpose::AfterRobotsFetch, 5), at(10)), None, "one page alone");
        assert_eq!(lane.sent(page, at(12)), None);
        assert_eq!(lane.walk_through(&purpose(Purpose::AfterRobotsFetch, 5), at(1_000)), None);
        assert!(lane.walk_through(&purpose(Purpose::AfterRobotsFetch, 5), at(1_012)).is_some());
    }

    /// The page keeps its distance from the send before the fetch, by the crawl delay that the fetch has brought.
    #[test]
    fn a_page_that_follows_its_robots_fetch_keeps_the_crawl_delay() {
        let mut lane = Lane::new(policy(), 7);
        let first = go(&mut lane, 1, at(0));
        lane.leave(first, at(10));
        let fetch = lane.walk_through(&Visit { purpose: Purpose::RobotsFetch, ..visit(2) }, at(1_500)).expect("free");
        assert_eq!(lane.sent(fetch, at(1_500)), None);
        let (purpose, crawl_delay) = (Purpose::AfterRobotsFetch, Duration::from_secs(10));
        let page = Visit { purpose, crawl_delay, ..visit(3) };
        assert_eq!(lane.walk_through(&page, at(1_510)), None);
        assert!(lane.walk_through(&page, at(10_000)).is_some());
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
        let preparing = |lane: &mut Lane| {
            let ticket = lane.join(visit(1), at(0)).unwrap().ticket;
            assert_eq!(lane.next_step(at(0)), Step::Prepare(ticket));
        };
        assert!(!compare(policy(), preparing, at(0)), "a visit that came before");
        assert!(!compare(Policy { mode: Mode::Report, ..policy() }, |_| {}, at(0)), "report mode");
        let told = |lane: &mut Lane| {
            lane.hold(at(10_000), at(0));
            let impatient = Visit { max_wait: Some(Duration::ZERO), ..visit(3) };
            assert!(lane.join(impatient, at(0)).is_err());
        };
        assert!(!compare(policy(), told, at(20_000)), "a visit that was told to come back");
    }

    /// Two lanes with the same history get the same answer, one of them by the short path if it may.
    fn hear(policy: Policy, before: impl Fn(&mut Lane), outcome: VisitOutcome) -> bool {
        let [mut short, mut long] = [(); 2].map(|()| Lane::new(policy, 7));
        before(&mut short);
        before(&mut long);
        let (ticket, untouched) = (go(&mut short, 1, at(20_000)), go(&mut long, 1, at(20_000)));
        let as_it_was = format!("{short:?}");
        if !short.takes_for_granted(ticket, outcome, at(20_300)) {
            assert_eq!(format!("{short:?}"), as_it_was, "something has happened");
            return false;
        }
        assert_eq!(long.report(untouched, outcome, &LearningPolicy::default(), at(20_300)), None);
        assert_eq!(format!("{short:?}"), format!("{long:?}"));
        true
    }

    #[test]
    fn only_an_answer_that_teaches_nothing_is_taken_for_granted() {
        let served = VisitOutcome::Heard(Signals::SERVED);
        assert!(hear(policy(), |_| {}, served));
        assert!(!hear(policy(), |_| {}, VisitOutcome::Failed));
        assert!(!hear(policy(), |_| {}, VisitOutcome::Opened));
        let throttled = VisitOutcome::Heard(Signals { answer: PaceSignal::Throttled, ..Signals::SERVED });
        assert!(!hear(policy(), |_| {}, throttled));
        let told = Signals { used_up: Some(Duration::from_secs(1)), ..Signals::SERVED };
        assert!(!hear(policy(), |_| {}, VisitOutcome::Heard(told)));
        assert!(!hear(Policy { delay_factor: 1.0, ..policy() }, |_| {}, served), "its time counts");
        let taught = |lane: &mut Lane| {
            let ticket = go(lane, 9, at(0));
            lane.report(ticket, throttled, &LearningPolicy::default(), at(100));
            lane.leave(ticket, at(100));
        };
        assert!(!hear(policy(), taught, served), "it may be time to try to go faster");
    }

    #[test]
    fn auto_only_counts_most_successes() {
        let served = VisitOutcome::Heard(Signals::SERVED);
        let schooled = |lane: &mut Lane| lane.school(&LearningPolicy::default(), at(0));
        let auto = Policy { learner: Learner::Auto, ..policy() };
        let visit = |lane: &mut Lane, n: u64| {
            let ticket = go(lane, n, at(1_000 * n));
            lane.report(ticket, served, &LearningPolicy::default(), at(1_000 * n + 100));
            lane.leave(ticket, at(1_000 * n + 100));
        };
        assert!(hear(auto, schooled, served), "most hosts have one request");
        assert!(!hear(auto, |lane| visit(lane, 3), served), "the second begins the measurement");
        let measured = |lane: &mut Lane| (3..5).for_each(|n| visit(lane, n));
        assert!(hear(auto, measured, served), "it cannot become faster");
        assert!(!hear(Policy { delay: Duration::from_millis(50), ..auto }, schooled, served), "it may become faster");
        let refused = |lane: &mut Lane| {
            schooled(lane);
            let ticket = go(lane, 9, at(0));
            let throttled = VisitOutcome::Heard(Signals { answer: PaceSignal::Throttled, ..Signals::SERVED });
            lane.report(ticket, throttled, &LearningPolicy::default(), at(100));
            lane.leave(ticket, at(100));
        };
        assert!(!hear(auto, refused, served), "the host serves again");
    }

    #[test]
    fn a_fetch_that_is_not_alone_is_ready_and_waits() {
        let mut lane = Lane::new(policy(), 7);
        let fetch = lane.join(Visit { purpose: Purpose::RobotsFetch, ..visit(1) }, at(0)).unwrap();
        assert!(fetch.is_called);
        let second = lane.join(visit(2), at(0)).unwrap().ticket;
        assert_eq!(lane.next_step(at(0)), Step::Prepare(second), "it may make its connection beside the first");
        assert!(!lane.ready(second, at(0)));
        assert_eq!(lane.next_step(at(0)), Step::Start(second));
        assert!(!lane.ready(fetch.ticket, at(0)), "the turn is taken");
        assert!(matches!(lane.next_step(at(0)), Step::Wait(_)));
        assert!(!lane.ready(fetch.ticket, at(0)), "it is ready already");
    }

    /// It is called and started at once, although other pages would have to keep their distance from the fetch.
    #[test]
    fn a_page_without_a_connection_follows_its_robots_fetch_too() {
        let mut lane = Lane::new(policy(), 7);
        let fetch = lane.walk_through(&Visit { purpose: Purpose::RobotsFetch, ..visit(1) }, at(0)).expect("free");
        assert_eq!(lane.sent(fetch, at(0)), None);
        let max_wait = Some(Duration::ZERO);
        let page = Visit { purpose: Purpose::AfterRobotsFetch, max_wait, ..visit(2) };
        let joined = lane.join(page, at(10)).unwrap();
        assert!(joined.is_called);
        assert!(matches!(lane.next_step(at(10)), Step::Wait(_)));
        assert!(lane.ready(joined.ticket, at(60)));
        assert_eq!(lane.sent(joined.ticket, at(60)), None);
    }
}
