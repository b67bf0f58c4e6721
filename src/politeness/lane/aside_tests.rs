//! A lane with visits that step aside and back.

use super::*;
use crate::politeness::policy::Policy;
use crate::politeness::visit::{LaneRefusal, Step, Visit};
use std::time::Duration;

const DELAY: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

/// A lane whose first visit was sent at 0 and is in flight.
fn lane(policy: Policy) -> (Lane, Ticket) {
    let mut lane = Lane::new(policy, 7);
    let first = lane.walk_through(&Visit::new(ClientId(1), 1), at(0)).expect("free");
    assert_eq!(lane.sent(first, at(0)), None);
    (lane, first)
}

fn policy() -> Policy {
    Policy { delay: DELAY, concurrency: 2, ..Policy::default() }
}

/// Joins a visit and carries out steps until the lane waits. Returns its ticket and whether it was called.
fn join(lane: &mut Lane, client: u64, now: Timestamp) -> (Ticket, bool) {
    let ticket = lane.join(Visit::new(ClientId(client), client), now).unwrap().ticket;
    (ticket, called(lane, now).contains(&ticket))
}

fn called(lane: &mut Lane, now: Timestamp) -> Vec<Ticket> {
    let mut called = Vec::new();
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => called.push(ticket),
            Step::Wait(_) => return called,
            step => panic!("{step:?}"),
        }
    }
}

fn start(lane: &mut Lane, ticket: Ticket, now: Timestamp) {
    assert!(!lane.ready(ticket, now));
    assert_eq!(lane.next_step(now), Step::Start(ticket));
    assert_eq!(lane.sent(ticket, now), None);
}

#[test]
fn followers_that_step_aside_stop_nobody() {
    let (mut lane, _) = lane(policy());
    for follower in 2..40 {
        let (ticket, is_called) = join(&mut lane, follower, at(10));
        assert!(is_called, "nobody is before follower {follower}");
        assert!(lane.step_aside(ticket, at(10)));
    }
    assert_eq!((lane.aside(), lane.queued(), lane.in_flight()), (38, 38, 1));
    let (other, is_called) = join(&mut lane, 99, at(20));
    assert!(is_called);
    start(&mut lane, other, at(1_000));
}

#[test]
fn visits_step_back_in_the_order_in_which_they_were_called_before_all_others() {
    let (mut lane, first) = lane(policy());
    let followers: Vec<Ticket> = (2..6).map(|client| join(&mut lane, client, at(10)).0).collect();
    // The places are taken, so only some are called at first.
    for &follower in &followers {
        let _ = called(&mut lane, at(10));
        assert!(lane.step_aside(follower, at(10)));
    }
    let (other, _) = join(&mut lane, 9, at(20));
    let retry = lane.join(Visit { retry: true, ..Visit::new(ClientId(8), 8) }, at(30)).unwrap().ticket;
    for index in [2, 0, 3, 1] {
        lane.step_back(followers[index], at(100));
    }
    lane.leave(first, at(100));
    let mut order = Vec::new();
    assert!(!lane.ready(other, at(200)));
    for now in (1..=6).map(|turn| at(1_000 * turn)) {
        loop {
            match lane.next_step(now) {
                Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
                Step::Start(ticket) => {
                    assert_eq!(lane.sent(ticket, now), None);
                    lane.leave(ticket, now);
                    order.push(ticket);
                }
                Step::Wait(_) => break,
                Step::Refuse(..) => panic!("a refusal"),
            }
        }
    }
    // The other visit was called beside them before they stepped back.
    order.retain(|&ticket| ticket != other);
    assert_eq!(order, [followers.as_slice(), &[retry]].concat());
}

#[test]
fn a_visit_that_steps_back_in_time_has_the_turn_that_it_would_have_had() {
    let (mut lane, _) = lane(policy());
    let (follower, _) = join(&mut lane, 2, at(10));
    assert!(lane.step_aside(follower, at(10)));
    lane.step_back(follower, at(700));
    assert_eq!(called(&mut lane, at(700)), [follower]);
    start(&mut lane, follower, at(1_000));
}

#[test]
fn only_a_called_visit_with_time_to_spare_steps_aside() {
    let (mut lane, first) = lane(policy());
    assert!(!lane.step_aside(first, at(1)), "it is sent");
    let hurry = Visit { max_wait: Some(Duration::from_secs(5)), ..Visit::new(ClientId(2), 2) };
    let hurry = lane.join(hurry, at(10)).unwrap().ticket;
    assert_eq!(called(&mut lane, at(10)), [hurry]);
    assert!(!lane.step_aside(hurry, at(10)));
    let waiting = lane.join(Visit::new(ClientId(3), 3), at(10)).unwrap().ticket;
    assert!(!lane.step_aside(waiting, at(10)), "it is not called");
    start(&mut lane, hurry, at(1_000));
    lane.drain(at(60_000), at(1_000));
    lane.leave(first, at(1_001));
    assert_eq!(called(&mut lane, at(1_001)), [waiting]);
    assert!(!lane.step_aside(waiting, at(1_001)), "curtsy stops");
}

#[test]
fn a_visit_aside_that_leaves_leaves_nothing_behind() {
    let (mut lane, first) = lane(policy());
    let (follower, _) = join(&mut lane, 2, at(10));
    assert!(lane.step_aside(follower, at(10)));
    lane.leave(follower, at(20));
    lane.step_back(follower, at(30));
    lane.leave(first, at(40));
    assert_eq!((lane.aside(), lane.queued(), lane.in_flight()), (0, 0, 0));
    assert!(!lane.owes(at(5_000)));
}

#[test]
fn a_visit_that_steps_back_into_a_pause_is_refused_at_its_deadline() {
    let (mut lane, _) = lane(Policy { max_wait: Duration::from_secs(10), ..policy() });
    let (follower, _) = join(&mut lane, 2, at(10));
    assert!(lane.step_aside(follower, at(10)));
    lane.pause();
    lane.step_back(follower, at(3_000));
    assert!(matches!(lane.next_step(at(9_000)), Step::Wait(Some(_))));
    let refused = lane.next_step(at(11_000));
    assert_eq!(refused, Step::Refuse(follower, LaneRefusal::HostCooling { retry_after: None }));
}

/// In a fleet, the ledger may put a visit off for longer than its connection lives. It then waits at the front like
/// those that step back, all in the order in which they were called.
#[test]
fn a_visit_that_is_put_off_waits_in_the_order_of_the_calls() {
    let (mut lane, _) = lane(Policy { concurrency: 4, ..policy() });
    let (put_off, is_called) = join(&mut lane, 2, at(100));
    assert!(is_called);
    let mut step_aside = |client| {
        let (ticket, is_called) = join(&mut lane, client, at(1_000));
        assert!(is_called && lane.step_aside(ticket, at(1_000)), "{client}");
        ticket
    };
    let (second, third) = (step_aside(3), step_aside(4));
    assert!(!lane.ready(put_off, at(1_050)));
    assert_eq!(lane.next_step(at(1_050)), Step::Start(put_off));
    lane.step_back(third, at(1_060));
    assert!(!lane.put_off(put_off, at(9_000), 1, at(1_070)), "its connection would be too old");
    lane.step_back(second, at(1_080));
    assert_eq!(lane.queue.in_order(), [put_off.number, second.number, third.number]);
}
