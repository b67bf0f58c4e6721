//! Tests of how visits of different robots.txt groups are spaced in one lane.

use super::*;
use crate::politeness::policy::Policy;
use crate::politeness::visit::{LaneRefusal, Step, Visit};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn visit(client: u64, crawl_delay: u64) -> Visit {
    Visit { crawl_delay: ms(crawl_delay), ..Visit::new(ClientId(client), client) }
}

fn lane() -> Lane {
    Lane::new(Policy { delay: ms(100), ..Policy::default() }, 1)
}

/// Returns when each waiting visit starts, by client.
fn starts(lane: &mut Lane, mut now: Timestamp) -> Vec<(u64, u64)> {
    let mut starts = Vec::new();
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
            Step::Start(ticket) => {
                let client = lane.roll.get_mut(ticket).unwrap().client.0;
                starts.push((client, now.since(at(0)).as_millis() as u64));
                assert_eq!(lane.sent(ticket, now), None);
                lane.leave(ticket, now);
            }
            Step::Wait(Some(alarm)) => now = alarm.at,
            Step::Wait(None) => return starts,
            Step::Refuse(_, refusal) => panic!("{refusal:?}"),
        }
    }
}

/// X66: a request that is refused slows down no other request.
#[test]
fn a_visit_that_is_refused_changes_nothing() {
    let mut lane = lane();
    lane.join(visit(1, 0), at(0)).unwrap();
    starts(&mut lane, at(0));
    let before = lane.delays();
    let impatient = Visit { max_wait: Some(Duration::ZERO), ..visit(2, 60_000) };
    assert_eq!(lane.walk_through(&impatient, at(50)), None);
    let refusal = lane.join(impatient, at(50)).unwrap_err();
    assert!(matches!(refusal, LaneRefusal::WaitTooLong { retry_after } if retry_after.as_secs() == 60), "{refusal:?}");
    assert_eq!(lane.delays(), before);
    lane.join(visit(1, 0), at(60)).unwrap();
    assert_eq!(starts(&mut lane, at(60)), [(1, 100)]);
}

#[test]
fn a_crawl_delay_counts_before_its_own_visit_and_not_before_the_next() {
    let mut lane = lane();
    lane.join(visit(1, 0), at(0)).unwrap();
    assert_eq!(starts(&mut lane, at(0)), [(1, 0)]);
    let slow = lane.join(visit(2, 5_000), at(0)).unwrap();
    let quick = lane.join(visit(3, 0), at(0)).unwrap();
    assert_eq!((slow.expected, quick.expected), (at(5_000), at(5_100)));
    assert_eq!(starts(&mut lane, at(0)), [(2, 5_000), (3, 5_100)]);
    assert_eq!(lane.foresee(&visit(4, 0), at(5_100)).start, at(5_200));
    assert_eq!(lane.foresee(&visit(4, 9_000), at(5_100)).start, at(14_100));
}

#[test]
fn what_is_foreseen_is_true_for_a_line_of_different_delays() {
    let mut lane = lane();
    lane.join(visit(9, 0), at(0)).unwrap();
    starts(&mut lane, at(0));
    let asked = [0, 2_000, 300, 0, 2_000, 0];
    let expected: Vec<(u64, u64)> = (1..)
        .zip(asked)
        .map(|(client, delay)| (client, lane.join(visit(client, delay), at(0)).unwrap().expected))
        .map(|(client, expected)| (client, expected.since(at(0)).as_millis() as u64))
        .collect();
    assert_eq!(starts(&mut lane, at(0)), expected);
    assert_eq!(expected.last(), Some(&(6, 4_600)));
}

#[test]
fn a_slow_visit_that_leaves_holds_up_no_other_visit() {
    let mut lane = lane();
    lane.join(visit(1, 0), at(0)).unwrap();
    starts(&mut lane, at(0));
    let slow = lane.join(visit(2, 60_000), at(10)).unwrap().ticket;
    lane.join(visit(3, 0), at(20)).unwrap();
    assert!(matches!(lane.next_step(at(20)), Step::Wait(_)));
    lane.leave(slow, at(50));
    assert_eq!(starts(&mut lane, at(50)), [(3, 100)]);
}

/// A visit with a shorter crawl delay than the one before it need not wait for that visit's delay.
#[test]
fn a_visit_that_comes_alone_is_let_in_by_its_own_delay() {
    let mut lane = lane();
    let slow = lane.walk_through(&visit(1, 60_000), at(0)).unwrap();
    lane.sent(slow, at(0));
    lane.leave(slow, at(10));
    assert_eq!(lane.delays().robots, ms(60_000));
    assert_eq!(lane.walk_through(&visit(2, 60_000), at(100)), None);
    let quick = lane.walk_through(&visit(2, 0), at(100)).unwrap();
    assert_eq!(lane.sent(quick, at(100)), None);
}

/// A connection that hangs must not make the visits behind it keep its crawl delay.
#[test]
fn a_slow_visit_that_hangs_lends_its_delay_to_no_other_visit() {
    let mut lane = lane();
    lane.join(visit(1, 0), at(0)).unwrap();
    starts(&mut lane, at(0));
    lane.join(visit(2, 5_000), at(0)).unwrap();
    let Step::Prepare(hangs) = lane.next_step(at(4_000)) else { panic!("the slow visit is called before its turn") };
    lane.join(visit(3, 0), at(5_000)).unwrap();
    lane.join(visit(4, 0), at(5_000)).unwrap();
    assert_eq!(starts(&mut lane, at(5_000)), [(3, 5_000), (4, 5_100)]);
    lane.leave(hangs, at(5_200));
}

/// A visit whose crawl delay has become too long for it is refused alone: the visits behind it need not keep it.
#[test]
fn a_hopeless_crawl_delay_takes_no_other_visit_with_it() {
    let mut lane = Lane::new(Policy { delay: ms(100), concurrency: 1, ..Policy::default() }, 1);
    let first = lane.walk_through(&visit(1, 0), at(0)).expect("a free host");
    assert_eq!(lane.sent(first, at(0)), None);
    let wait = |visit: Visit, urgency, secs| Visit { urgency, max_wait: Some(Duration::from_secs(secs)), ..visit };
    let quick = lane.join(wait(visit(2, 0), 7, 7), at(0)).unwrap();
    let slow = lane.join(wait(visit(2, 5_000), 0, 6), at(0)).unwrap();
    assert!(slow.expected < quick.expected.max(at(6_000)), "{slow:?}, {quick:?}");
    let again = lane.join(Visit { retry: true, ..visit(3, 0) }, at(2_990)).unwrap().ticket;
    lane.leave(first, at(3_000));
    assert_eq!(lane.next_step(at(3_000)), Step::Prepare(again));
    assert!(!lane.ready(again, at(3_000)));
    assert_eq!(lane.next_step(at(3_000)), Step::Start(again));
    assert_eq!(lane.sent(again, at(3_000)), None);
    let refused = lane.next_step(at(3_000));
    assert!(matches!(refused, Step::Refuse(ticket, LaneRefusal::WaitTooLong { .. }) if ticket == slow.ticket));
    assert!(matches!(lane.next_step(at(3_000)), Step::Wait(_)));
    lane.leave(again, at(3_010));
    assert_eq!(starts(&mut lane, at(3_010)), [(2, 3_100)]);
}

/// In a fleet, a visit may lose its turn to a visit of another group. It still keeps its own delay from it.
#[test]
fn a_visit_that_is_put_off_keeps_its_crawl_delay() {
    for put_off_until in [5_500, 7_000] {
        let mut lane = lane();
        lane.join(visit(1, 0), at(0)).unwrap();
        starts(&mut lane, at(0));
        let slow = lane.join(visit(2, 5_000), at(0)).unwrap().ticket;
        assert_eq!(lane.next_step(at(4_000)), Step::Prepare(slow));
        assert!(!lane.ready(slow, at(4_000)));
        assert_eq!(lane.next_step(at(5_000)), Step::Start(slow));
        let quick = lane.join(visit(3, 0), at(5_010)).unwrap().ticket;
        assert_eq!(lane.next_step(at(5_010)), Step::Prepare(quick));
        assert!(!lane.ready(quick, at(5_010)));
        assert!(matches!(lane.next_step(at(5_010)), Step::Wait(_)));
        let stays_ready = lane.put_off(slow, at(put_off_until), 0, at(5_020));
        let expected = if stays_ready { vec![(2, 5_500), (3, 5_600)] } else { vec![(3, 7_000), (2, 12_000)] };
        assert_eq!(starts(&mut lane, at(5_020)), expected, "put off until {put_off_until}");
    }
}
