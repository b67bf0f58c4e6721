//! Compares shadows with lanes that are enforced: both must report the same waits.

use super::*;
use crate::politeness::policy::{Mode, Policy};
use crate::politeness::visit::{ClientId, Step, Visit};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn reporting(delay: Duration, concurrency: u32) -> Lane {
    Lane::new(Policy { mode: Mode::Report, delay, concurrency, ..Policy::default() }, 1)
}

fn visit() -> Visit {
    Visit::new(ClientId(1), 1)
}

/// Joins and sends a visit at once, as report mode does with every visit.
fn send(lane: &mut Lane, millis: u64) -> Ticket {
    let ticket = lane.join(visit(), at(millis)).unwrap().ticket;
    assert_eq!(lane.next_step(at(millis)), Step::Prepare(ticket));
    lane.ready(ticket, at(millis));
    assert_eq!(lane.next_step(at(millis)), Step::Start(ticket));
    lane.sent(ticket, at(millis));
    ticket
}

fn would_wait(lane: &mut Lane, ticket: Ticket, millis: u64) -> u128 {
    lane.would_wait(ticket, at(millis)).expect("report mode").as_millis()
}

/// Three visits at once, one place, 400 ms each: they would have started at 0, 400 and 800, though none has ended
/// before.
#[test]
fn a_place_that_is_taken_is_waited_for() {
    let mut lane = reporting(Duration::ZERO, 1);
    let tickets = [0, 1, 2].map(|_| send(&mut lane, 0));
    let told = tickets.map(|ticket| {
        let told = would_wait(&mut lane, ticket, 400);
        lane.leave(ticket, at(400));
        told
    });
    assert_eq!(told, [0, 400, 800]);
    let late = send(&mut lane, 1_000);
    assert_eq!(would_wait(&mut lane, late, 1_100), 200, "the third would have left at 1 200");
}

/// The third answer comes first, then the first: the second visit has waited for the first all the same.
#[test]
fn a_visit_that_ends_late_has_waited_for_those_before_it() {
    let mut lane = reporting(Duration::ZERO, 1);
    let [first, second, third] = [0, 1, 2].map(|_| send(&mut lane, 0));
    for ticket in [third, first] {
        lane.leave(ticket, at(400));
    }
    assert_eq!(would_wait(&mut lane, second, 400), 400);
}

#[test]
fn turns_and_places_are_both_waited_for() {
    let mut lane = reporting(ms(100), 2);
    let tickets: Vec<_> = (0..5).map(|_| send(&mut lane, 0)).collect();
    let told: Vec<_> = tickets.iter().map(|ticket| would_wait(&mut lane, *ticket, 1_000)).collect();
    // In pairs, and within each pair one delay apart.
    assert_eq!(told, [0, 100, 1_000, 1_100, 2_000]);
}

#[test]
fn a_shorter_stay_than_usual_frees_its_place_sooner() {
    let mut lane = reporting(Duration::ZERO, 1);
    let slow = send(&mut lane, 0);
    lane.leave(slow, at(5_000));
    let quick = send(&mut lane, 10_000);
    let next = send(&mut lane, 10_000);
    assert_eq!(would_wait(&mut lane, next, 10_000), 5_000, "as long as the one before");
    lane.leave(quick, at(10_300));
    assert_eq!(would_wait(&mut lane, next, 10_300), 300);
}

#[test]
fn a_visit_that_was_never_sent_takes_no_place() {
    let mut lane = reporting(Duration::ZERO, 1);
    let ghost = lane.join(visit(), at(0)).unwrap().ticket;
    lane.leave(ghost, at(900));
    let next = send(&mut lane, 1_000);
    assert_eq!(would_wait(&mut lane, next, 1_000), 0);
}

#[test]
fn memory_is_bounded_by_places_and_visits() {
    let mut lane = reporting(ms(1_000), 3);
    let stays = send(&mut lane, 0);
    for n in 1..1_000 {
        let ticket = send(&mut lane, n);
        lane.leave(ticket, at(n));
    }
    let shadow = lane.shadow.as_ref().unwrap();
    assert_eq!((shadow.here.len(), shadow.gone.len()), (1, 3));
    assert_eq!(would_wait(&mut lane, stays, 2_000), 0, "it does not wait for later visits");
}

#[test]
fn only_report_mode_has_shadows() {
    let mut lane = Lane::new(Policy::default(), 1);
    let ticket = lane.join(visit(), at(0)).unwrap().ticket;
    assert_eq!(lane.would_wait(ticket, at(0)), None);
}

/// Returns the waits of an enforced lane where each visit keeps its place for `stay`.
fn enforced(policy: Policy, arrivals: &[u64], stay: u64) -> Vec<u128> {
    let mut lane = Lane::new(policy, 1);
    let (mut joined, mut waits, mut leaving) = (Vec::new(), vec![0; arrivals.len()], Vec::new());
    for now in 0..200_000 {
        leaving.retain(|&(ticket, until)| {
            if until == now {
                lane.leave(ticket, at(now));
            }
            until > now
        });
        for &arrival in arrivals.iter().filter(|&&arrival| arrival == now) {
            joined.push((lane.join(visit(), at(now)).unwrap().ticket, arrival));
        }
        loop {
            match lane.next_step(at(now)) {
                Step::Prepare(ticket) => assert!(!lane.ready(ticket, at(now))),
                Step::Start(ticket) => {
                    lane.sent(ticket, at(now));
                    leaving.push((ticket, now + stay));
                    let index = joined.iter().position(|(other, _)| *other == ticket).unwrap();
                    waits[index] = u128::from(now - joined[index].1);
                }
                Step::Refuse(..) => panic!("no visit waits that long"),
                Step::Wait(_) => break,
            }
        }
        if joined.len() == arrivals.len() && leaving.is_empty() && lane.queued() == 0 {
            return waits;
        }
    }
    panic!("a visit waits for ever");
}

fn reported(policy: Policy, arrivals: &[u64], stay: u64) -> Vec<u128> {
    let mut lane = Lane::new(Policy { mode: Mode::Report, ..policy }, 1);
    let (mut waits, mut here) = (vec![0; arrivals.len()], Vec::new());
    let end = arrivals.last().unwrap() + stay;
    for now in 0..=end {
        here.retain(|&(index, ticket, until): &(usize, Ticket, u64)| {
            if until == now {
                waits[index] = would_wait(&mut lane, ticket, now);
                lane.leave(ticket, at(now));
            }
            until > now
        });
        for (index, _) in arrivals.iter().enumerate().filter(|(_, arrival)| **arrival == now) {
            here.push((index, send(&mut lane, now), now + stay));
        }
    }
    waits
}

/// If all visits stay equally long, what is reported is what would have happened.
#[test]
fn reports_are_what_enforcing_would_have_done() {
    let policy = |delay, concurrency| Policy { delay: ms(delay), concurrency, ..Policy::default() };
    for (policy, arrivals, stay) in [
        (policy(100, 1), vec![0, 0, 0, 50, 700, 701], 250),
        (policy(0, 2), vec![0, 0, 0, 0, 0, 1_000, 5_000], 400),
        (policy(300, 4), vec![0, 10, 20, 30, 40, 50], 100),
        (policy(10, 3), (0..30).map(|n| n * 20).collect(), 333),
        (policy(0, 1), (0..20).map(|n| n * 90).collect(), 100),
    ] {
        assert_eq!(reported(policy, &arrivals, stay), enforced(policy, &arrivals, stay), "{arrivals:?} {stay}");
    }
}

/// A visit that robots.txt denies would never have been in the queue.
#[test]
fn a_denied_visit_has_no_shadow() {
    let (mut lane, mut numbers) = (reporting(ms(1_000), 4), Vec::new());
    for denied in [false, true, false] {
        numbers.push(lane.join(Visit { denied, ..visit() }, at(0)).expect("no visit is refused").ticket);
    }
    assert_eq!(lane.would_wait(numbers[1], at(0)), None);
    assert_eq!(would_wait(&mut lane, numbers[2], 0), 1_000, "as if there had been two");
}
