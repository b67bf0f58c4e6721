//! Tests of how a lane treats origins that fail.

use std::time::Duration;

use super::*;
use crate::politeness::breaker::{BreakerChange, Tolerance};
use crate::politeness::lane::Objection;
use crate::politeness::policy::Policy;
use crate::politeness::signals::Signals;
use crate::politeness::visit::{Visit, VisitOutcome};
use crate::politeness::{HostKey, Scheme};

const GOOD: OriginId = OriginId(80);
const BAD: OriginId = OriginId(81);
const ALICE: ClientId = ClientId(1);
const MALLORY: ClientId = ClientId(2);

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn visit(client: ClientId, origin: OriginId, url: u64) -> Visit {
    Visit { origin, ..Visit::new(client, url) }
}

fn unspaced() -> Lane {
    Lane::new(Policy { delay: Duration::ZERO, ..Policy::steps() }, 1)
}

/// Makes a visit that joins, is called and cannot open its connection.
fn fail(lane: &mut Lane, visit: Visit, schooling: &LearningPolicy, now: Timestamp) -> Option<LaneLesson> {
    let ticket = lane.join(visit, now).unwrap().ticket;
    assert_eq!(lane.next_step(now), Step::Prepare(ticket));
    let lesson = lane.unreachable(ticket, schooling, now);
    lane.leave(ticket, now);
    lesson
}

/// Ten failures of two clients in a row, at once.
fn break_down(lane: &mut Lane, now: Timestamp) {
    for url in 0..10 {
        let client = if url == 0 { ALICE } else { MALLORY };
        fail(lane, visit(client, BAD, url), &LearningPolicy::default(), now);
    }
}

/// Starts a visit that is called at once.
fn start(lane: &mut Lane, visit: Visit, now: Timestamp) -> Ticket {
    let ticket = lane.join(visit, now).unwrap().ticket;
    assert_eq!(lane.next_step(now), Step::Prepare(ticket));
    lane.ready(ticket, now);
    assert_eq!(lane.next_step(now), Step::Start(ticket));
    lane.sent(ticket, now);
    ticket
}

#[test]
fn failures_in_a_row_give_an_origin_up_and_one_visit_at_a_time_is_on_trial() {
    let mut lane = unspaced();
    break_down(&mut lane, at(0));
    let refusal = lane.join(visit(ALICE, BAD, 99), at(1_000)).unwrap_err();
    assert!(matches!(refusal, LaneRefusal::BreakerOpen { retry_after } if retry_after >= secs(29)), "{refusal:?}");
    // After the cooldown one visit is called; a second is refused until the first has ended.
    let first = lane.join(visit(ALICE, BAD, 1), at(30_000)).unwrap().ticket;
    let second = lane.join(visit(ALICE, BAD, 2), at(30_000)).unwrap().ticket;
    assert_eq!(lane.next_step(at(30_000)), Step::Prepare(first));
    assert!(matches!(lane.next_step(at(30_000)), Step::Refuse(it, LaneRefusal::BreakerOpen { .. }) if it == second));
    // It fails: twice the cooldown.
    lane.unreachable(first, &LearningPolicy::default(), at(30_100));
    lane.leave(first, at(30_100));
    assert!(lane.join(visit(ALICE, BAD, 3), at(90_000)).is_err());
    let third = start(&mut lane, visit(ALICE, BAD, 3), at(100_000));
    let lesson =
        lane.report(third, VisitOutcome::Heard(Signals::SERVED), &LearningPolicy::default(), at(100_100)).unwrap();
    assert!(matches!(lesson.breaker, Some(BreakerChange::Closed { .. })), "{lesson:?}");
    assert!(lane.failing_origins(at(100_100)).is_empty());
}

/// A visit on trial that steps aside leaves the trial to the next one.
#[test]
fn a_visit_that_steps_aside_is_not_on_trial() {
    let mut lane = unspaced();
    break_down(&mut lane, at(0));
    let first = lane.join(visit(ALICE, BAD, 1), at(30_000)).unwrap().ticket;
    assert_eq!(lane.next_step(at(30_000)), Step::Prepare(first));
    assert!(lane.step_aside(first, at(30_000)));
    let second = lane.join(visit(ALICE, BAD, 2), at(30_000)).unwrap().ticket;
    assert_eq!(lane.next_step(at(30_000)), Step::Prepare(second));
}

/// X66: a client chooses the port it asks for.
#[test]
fn an_origin_that_is_given_up_closes_no_other_origin_of_its_host() {
    let mut lane = unspaced();
    break_down(&mut lane, at(0));
    assert!(lane.join(visit(ALICE, BAD, 20), at(1)).is_err());
    let good = start(&mut lane, visit(ALICE, GOOD, 21), at(1));
    assert!(lane.foresee(&visit(ALICE, GOOD, 0), at(1)).objection.is_none());
    assert_eq!(lane.foresee(&visit(ALICE, BAD, 0), at(1)).objection, Some(Objection::Broken));
    assert!(lane.is_broken());
    lane.report(good, VisitOutcome::Heard(Signals::SERVED), &LearningPolicy::default(), at(2));
    assert!(!lane.is_broken(), "the host has served something since");
}

#[test]
fn a_visit_to_an_origin_that_is_given_up_is_refused_and_holds_up_no_other() {
    let mut lane = Lane::new(Policy { delay: secs(1), concurrency: 1, ..Policy::steps() }, 1);
    let schooling =
        LearningPolicy { tolerance: Tolerance { failures: 1, ..Tolerance::default() }, ..LearningPolicy::default() };
    let first = lane.join(visit(ALICE, BAD, 1), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(first));
    let [bad, good] = [BAD, GOOD].map(|origin| lane.join(visit(ALICE, origin, 2), at(0)).unwrap().ticket);
    lane.unreachable(first, &schooling, at(0));
    lane.leave(first, at(0));
    assert!(matches!(lane.next_step(at(0)), Step::Refuse(it, LaneRefusal::BreakerOpen { .. }) if it == bad));
    assert_eq!(lane.next_step(at(1_000)), Step::Prepare(good), "the attempt has cost a turn");
}

/// Ten attempts at a port where nothing listens must not take less time than ten requests.
#[test]
fn failed_connection_attempts_are_spaced_like_requests() {
    let mut lane = Lane::new(Policy { delay: secs(1), ..Policy::steps() }, 1);
    let (mut now, mut failed, mut waiting) = (at(0), Vec::new(), 0..10);
    let mut join = |lane: &mut Lane, now| waiting.next().map(|url| lane.join(visit(MALLORY, BAD, url), now).unwrap());
    while join(&mut lane, now).is_some() {}
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => {
                failed.push(now.since(at(0)).as_secs());
                lane.unreachable(ticket, &LearningPolicy::default(), now);
                lane.leave(ticket, now);
            }
            Step::Wait(Some(alarm)) => now = alarm.at,
            Step::Wait(None) => break,
            step => panic!("{step:?}"),
        }
    }
    assert_eq!(failed, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn people_are_told_which_origin_fails() {
    let mut lane = unspaced();
    let origin = Origin { scheme: Scheme::Http, host: HostKey::parse("a.test").unwrap(), port: 81 };
    fail(&mut lane, visit(ALICE, BAD, 1), &LearningPolicy::default(), at(0));
    lane.name_origin(BAD, &origin);
    let shown = lane.failing_origins(at(0));
    assert_eq!(shown, [FailingOrigin { origin, breaker: BreakerView::Closed, failures: 1 }]);
    assert!(lane.lessons.is_some());
    lane.forget(at(1));
    assert!(lane.failing_origins(at(1)).is_empty());
}

/// A tunnel or a download may last for hours, and says nothing about whether the origin answers now.
#[test]
fn what_began_before_changes_nothing_and_keeps_no_other_from_being_on_trial() {
    let mut lane = unspaced();
    let tunnel = start(&mut lane, visit(ALICE, BAD, 50), at(0));
    break_down(&mut lane, at(1));
    assert_eq!(lane.report(tunnel, VisitOutcome::Opened, &LearningPolicy::default(), at(31_000)), None);
    let trial = lane.join(visit(ALICE, BAD, 51), at(31_000)).unwrap().ticket;
    assert_eq!(lane.next_step(at(31_000)), Step::Prepare(trial));
    lane.leave(trial, at(31_100));
    let next = lane.join(visit(ALICE, BAD, 52), at(31_200)).unwrap().ticket;
    assert_eq!(lane.next_step(at(31_200)), Step::Prepare(next), "the first left without an answer");
}
