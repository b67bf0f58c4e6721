//! Tests of what a lane does with its visits while curtsy stops.

use std::time::Duration;

use super::*;
use crate::politeness::policy::{LearningPolicy, Mode, Policy};
use crate::politeness::visit::Visit;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn visit(n: u64) -> Visit {
    Visit::new(ClientId(n), n)
}

/// One visit a second; the first one was sent at 0.
fn busy(policy: Policy, waiting: u64) -> (Lane, Vec<Ticket>) {
    let mut lane = Lane::new(Policy { delay: Duration::from_secs(1), ..policy }, 7);
    let first = lane.walk_through(&visit(0), at(0)).expect("a free host");
    assert_eq!(lane.sent(first, at(0)), None);
    let tickets = (1..=waiting).map(|n| lane.join(visit(n), at(0)).expect("there is room").ticket).collect();
    (lane, tickets)
}

/// Runs the lane until it says to wait. Returns which visits are refused, and with how many seconds.
fn refusals(lane: &mut Lane, now: Timestamp) -> Vec<(Ticket, u64)> {
    let mut told = Vec::new();
    loop {
        match lane.next_step(now) {
            Step::Refuse(ticket, LaneRefusal::ShuttingDown { retry_after: Some(after) }) => {
                told.push((ticket, after.as_secs()));
            }
            Step::Refuse(_, refusal) => panic!("{refusal:?}"),
            Step::Wait(_) => return told,
            Step::Prepare(_) | Step::Start(_) => {}
        }
    }
}

#[test]
fn visits_that_fit_stay_and_the_others_are_told_their_own_time() {
    let (mut lane, tickets) = busy(Policy::default(), 6);
    assert_eq!(refusals(&mut lane, at(0)), []);
    lane.drain(at(3_500), at(0));
    assert_eq!(refusals(&mut lane, at(0)), [(tickets[3], 4), (tickets[4], 5), (tickets[5], 6)]);
    assert_eq!(lane.queued(), 3);
}

/// No visit is forgotten that was refused and not told yet, and none is admitted for a time after the first end.
#[test]
fn a_later_end_changes_nothing() {
    let (mut lane, tickets) = busy(Policy::default(), 6);
    lane.drain(at(3_500), at(0));
    lane.drain(at(60_000), at(0));
    assert_eq!(refusals(&mut lane, at(0)), [(tickets[3], 4), (tickets[4], 5), (tickets[5], 6)]);
    assert!(matches!(lane.join(visit(9), at(0)), Err(LaneRefusal::ShuttingDown { .. })));
    lane.drain(at(2_500), at(0));
    assert_eq!(refusals(&mut lane, at(0)).len(), 1, "an earlier end counts");
}

/// A visit that loses its turn while curtsy stops waits no longer than the others.
#[test]
fn a_visit_that_is_put_back_waits_until_the_end_at_most() {
    let (mut lane, tickets) = busy(Policy::default(), 1);
    assert_eq!(lane.next_step(at(500)), Step::Prepare(tickets[0]));
    lane.ready(tickets[0], at(500));
    assert_eq!(lane.next_step(at(1_000)), Step::Start(tickets[0]));
    lane.drain(at(3_500), at(1_000));
    assert!(!lane.put_off(tickets[0], at(60_000), 0, at(1_100)));
    assert_eq!(refusals(&mut lane, at(1_100)), [(tickets[0], 59)]);
}

#[test]
fn a_hold_in_the_grace_decides_again() {
    let (mut lane, tickets) = busy(Policy::default(), 3);
    lane.drain(at(3_500), at(0));
    assert_eq!(refusals(&mut lane, at(0)), []);
    lane.ready(tickets[0], at(0));
    lane.hold(at(2_600), at(100));
    assert_eq!(refusals(&mut lane, at(100)), [(tickets[1], 4), (tickets[2], 5)], "the first still fits");
    lane.hold(at(60_100), at(200));
    assert_eq!(refusals(&mut lane, at(200)), [(tickets[0], 60)]);
    assert_eq!(lane.queued(), 0);
}

#[test]
fn newcomers_follow_the_same_rule_and_delay_no_other_visit() {
    let (mut lane, _) = busy(Policy::default(), 2);
    lane.drain(at(3_500), at(0));
    // Fairness would let a new client go before the second visit of a busy one.
    let joined = lane.join(visit(9), at(10)).expect("it starts at 3 s");
    assert_eq!(joined.expected, at(3_000));
    let refused = lane.join(visit(10), at(20)).unwrap_err();
    assert_eq!(refused, LaneRefusal::ShuttingDown { retry_after: Some(Duration::from_secs(4)) });
    let mut free = Lane::new(Policy { delay: Duration::from_secs(1), ..Policy::default() }, 7);
    free.drain(at(3_500), at(0));
    assert!(free.walk_through(&visit(1), at(10)).is_some(), "a free host serves as ever");
}

#[test]
fn a_visit_that_would_not_be_over_in_time_does_not_fit() {
    let (mut lane, tickets) = busy(Policy::default(), 2);
    lane.places.observe(at(0), at(2_000));
    lane.drain(at(3_500), at(0));
    assert_eq!(refusals(&mut lane, at(0)), [(tickets[1], 2)], "visits take two seconds");
}

#[test]
fn a_turn_that_does_not_come_is_refused_at_the_end() {
    let (mut lane, tickets) = busy(Policy { concurrency: 1, ..Policy::default() }, 1);
    lane.drain(at(3_500), at(0));
    assert_eq!(refusals(&mut lane, at(3_500)), [], "it is not known how long visits take");
    let told = refusals(&mut lane, at(3_501));
    assert_eq!(told.iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets);
}

#[test]
fn no_visit_is_refused_if_none_waits() {
    let mut lane = Lane::new(Policy { mode: Mode::Report, ..Policy::default() }, 7);
    lane.drain(at(0), at(0));
    assert!(lane.join(visit(5), at(10)).is_ok());
    assert_eq!(refusals(&mut lane, at(10)), []);
}

/// A failed connection attempt costs one turn. Its visit does not count as waiting for another one.
#[test]
fn a_connection_that_fails_in_the_grace_costs_one_turn() {
    let (mut lane, tickets) = busy(Policy::default(), 2);
    lane.drain(at(2_500), at(0));
    assert_eq!(refusals(&mut lane, at(0)), []);
    lane.unreachable(tickets[0], &LearningPolicy::default(), at(900));
    lane.leave(tickets[0], at(900));
    assert_eq!(refusals(&mut lane, at(900)), [], "it may start at two seconds");
    assert_eq!(lane.queued(), 1);
}
