//! Tests of how an operator steers a lane, and what no steering changes.

use super::*;
use crate::politeness::lane::{BreakerView, Expectation, Held, Objection};
use crate::politeness::pace::Cause;
use crate::politeness::policy::LearningPolicy;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::visit::{ClientId, LaneRefusal, Step, Ticket, Visit, VisitOutcome};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn visit() -> Visit {
    Visit::new(ClientId(1), 1)
}

fn slow(seconds: u64) -> Overrides {
    Overrides { delay: Some(secs(seconds)), ..Overrides::default() }
}

/// Starts and sends a visit as soon as the lane lets it. Returns when.
fn start(lane: &mut Lane, mut now: Timestamp) -> (Ticket, Timestamp) {
    let ticket = lane.join(visit(), now).unwrap().ticket;
    loop {
        match lane.next_step(now) {
            Step::Prepare(called) => assert!(!lane.ready(called, now)),
            Step::Start(_) => {
                assert_eq!(lane.sent(ticket, now), None, "too early");
                return (ticket, now);
            }
            Step::Wait(alarm) => now = alarm.expect("a visit waits").at,
            Step::Refuse(..) => panic!("refused"),
        }
    }
}

/// Makes a whole visit. Returns when it was sent.
fn go(lane: &mut Lane, now: Timestamp, signals: Signals) -> Timestamp {
    let (ticket, sent) = start(lane, now);
    lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), sent);
    lane.leave(ticket, sent);
    sent
}

const REFUSED: Signals = Signals { answer: PaceSignal::Throttled, ..Signals::SERVED };

#[test]
fn what_people_set_outlives_a_change_of_the_policy_until_it_is_taken_back() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.steer(Overrides { concurrency: Some(2), ..slow(5) }, at(0));
    assert!(lane.owes(at(0)), "it would be forgotten with the lane");
    lane.change(Policy { delay: secs(9), burst: 7, ..Policy::steps() }, at(0));
    let policy = lane.policy();
    assert_eq!((policy.delay, policy.burst, policy.concurrency), (secs(5), 7, 2));
    assert_eq!((lane.delays().effective(), lane.concurrency()), (secs(5), 2));
    lane.steer(Overrides::default(), at(0));
    assert_eq!((lane.policy().delay, lane.concurrency(), lane.owes(at(0))), (secs(9), 4, false));
}

#[test]
fn other_numbers_count_from_the_last_send_and_grant_no_burst() {
    let mut lane = Lane::new(Policy { delay: secs(10), ..Policy::steps() }, 1);
    assert_eq!(go(&mut lane, at(0), Signals::SERVED), at(0));
    lane.steer(Overrides { burst: Some(100), ..slow(1) }, at(100));
    assert_eq!(go(&mut lane, at(100), Signals::SERVED), at(1_090), "only what was saved up at the old pace counts");
    assert_eq!(go(&mut lane, at(1_090), Signals::SERVED), at(2_090));
}

#[test]
fn no_visit_is_made_faster_than_the_host_asks() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.set_robots_delay(secs(8), at(0));
    lane.steer(slow(0), at(0));
    assert_eq!(lane.delays().effective(), secs(8));
}

#[test]
fn a_pause_with_an_end_ends_by_itself() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.pause_until(at(60_000));
    assert_eq!(lane.paused_until(at(0)), Some(at(60_000)));
    assert_eq!(start(&mut lane, at(0)).1, at(60_000), "a visit with enough patience waits");
    assert_eq!(lane.paused_until(at(60_000)), None);

    let mut lane = Lane::new(Policy::steps(), 1);
    lane.pause_until(at(600_000));
    assert!(matches!(lane.join(visit(), at(0)), Err(LaneRefusal::HostCooling { retry_after: Some(_) })));
    lane.pause();
    assert_eq!(lane.paused_until(at(700_000)), Some(Timestamp::NEVER));
    lane.resume();
    assert_eq!((lane.paused_until(at(0)), lane.view(at(0)).next_start), (None, at(0)));
}

#[test]
fn to_resume_ends_no_hold() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.hold(at(30_000), at(0));
    lane.pause_until(at(90_000));
    lane.resume();
    assert_eq!(start(&mut lane, at(0)).1, at(30_000));
}

#[test]
fn what_was_learned_and_set_is_forgotten_and_a_hold_is_not() {
    let mut lane = Lane::new(Policy::steps(), 1);
    let told = Signals { retry_after: Some(secs(40)), ..REFUSED };
    go(&mut lane, at(0), told);
    lane.steer(slow(3), at(0));
    let forgotten = lane.forget(at(1));
    let held_until = Some(at(40_000));
    assert_eq!(forgotten, Forgotten { learned: true, overrides: true, held_until, paused: false, robots_delay: false });
    assert_eq!((lane.delays().learned, lane.delays().effective()), (Duration::ZERO, secs(1)));
    assert_eq!(lane.view(at(2)).held, Some((at(40_000), Held::Pace(Cause::RetryAfter))));
    assert_eq!(go(&mut lane, at(2), Signals::SERVED), at(40_000));
    let nothing = lane.forget(at(40_001));
    assert!(!nothing.learned && !nothing.overrides && nothing.held_until.is_none());
}

/// Answers to requests that were sent before it was forgotten teach nothing, however many they are.
#[test]
fn what_is_on_its_way_does_not_count_after_forgetting() {
    let mut lane = Lane::new(Policy { delay: Duration::ZERO, concurrency: 20, ..Policy::steps() }, 1);
    go(&mut lane, at(0), REFUSED);
    let old: Vec<_> = (0..3).map(|_| start(&mut lane, at(5_000)).0).collect();
    lane.forget(at(9_000));
    for ticket in old {
        lane.report(ticket, VisitOutcome::Heard(REFUSED), &LearningPolicy::default(), at(9_001));
        lane.leave(ticket, at(9_001));
    }
    assert_eq!(lane.delays().learned, Duration::ZERO);
}

#[test]
fn forgetting_grants_no_earlier_start() {
    let mut lane = Lane::new(Policy { burst: 5, ..Policy::steps() }, 1);
    for _ in 0..5 {
        go(&mut lane, at(0), Signals::SERVED);
    }
    lane.forget(at(0));
    assert_eq!(go(&mut lane, at(0), Signals::SERVED), at(1_000));
    lane.pause();
    assert!(lane.forget(at(1_000)).paused && lane.paused_until(at(1_000)).is_some(), "a pause stays");
}

#[test]
fn a_view_tells_what_decides() {
    let mut lane = Lane::new(Policy::steps(), 1);
    go(&mut lane, at(0), Signals::SERVED);
    go(&mut lane, at(1_000), REFUSED);
    let view = lane.view(at(1_001));
    assert_eq!((view.delays.learned, view.error_streak, view.success_streak), (secs(2), 1, 0));
    assert_eq!(view.held, Some((at(3_000), Held::Pace(Cause::Backoff))));
    assert_eq!((view.next_start, view.last_sent, view.last_success), (at(3_000), Some(at(1_000)), Some(at(0))));
    assert_eq!((view.queued, view.in_flight, view.concurrency), (0, 0, (4, 4)));
    assert_eq!((view.breaker, view.failures, view.retries_left), (BreakerView::Closed, 0, Some(10)));
    lane.hold(at(9_000), at(1_002));
    assert_eq!(lane.view(at(1_003)).held, Some((at(9_000), Held::Other)));
}

/// Whatever waits in the lane, a prediction for a client is what that client then gets: the same start, or a refusal.
/// Clients differ in how much of them waits already, so the prediction for one is wrong for the others.
#[test]
fn what_is_foreseen_for_a_client_is_what_that_client_gets() {
    let mut dice = 7_u64;
    let mut roll = |sides: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % sides
    };
    let (mut lane, mut differ, mut refused) =
        (Lane::new(Policy { max_wait: secs(40), concurrency: 3, ..Policy::steps() }, 1), 0, 0);
    for step in 0..3_000_u64 {
        let now = at(step * 400);
        loop {
            match lane.next_step(now) {
                Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
                Step::Start(ticket) => {
                    assert_eq!(lane.sent(ticket, now), None);
                    lane.leave(ticket, now);
                }
                Step::Refuse(..) => {}
                Step::Wait(_) => break,
            }
        }
        let visit = Visit { crawl_delay: secs(roll(3)), ..Visit::new(ClientId(roll(4)), roll(30)) };
        let other = Visit { client: ClientId(99), ..visit };
        let (foreseen, stranger) = (lane.foresee(&visit, now), lane.foresee(&other, now));
        differ += usize::from(foreseen.start != stranger.start);
        match lane.join(visit, now) {
            Ok(joined) => assert_eq!((joined.expected, None), (foreseen.start, foreseen.objection), "at step {step}"),
            Err(refusal) => {
                refused += 1;
                assert!(foreseen.objection.is_some(), "at step {step}: {refusal:?}");
            }
        }
        if roll(12) == 0 {
            lane.hold(now + secs(roll(3)), now);
        }
    }
    assert!(differ > 1_000 && refused > 100, "{differ} {refused}");
}

#[test]
fn what_is_foreseen_is_what_happens() {
    let mut lane = Lane::new(Policy { max_wait: secs(10), ..Policy::steps() }, 1);
    go(&mut lane, at(0), Signals::SERVED);
    let foresee = |lane: &Lane, delay: u64| {
        lane.foresee(&Visit { crawl_delay: secs(delay), ..Visit::new(ClientId(9), 0) }, at(0))
    };
    let Expectation { start, objection, .. } = foresee(&lane, 0);
    assert_eq!((start, objection), (at(1_000), None));
    let Expectation { delays, start, .. } = foresee(&lane, 5);
    assert_eq!((delays.effective(), start), (secs(5), at(5_000)));
    assert_eq!(foresee(&lane, 11).objection, Some(Objection::TooLong));
    lane.hold(at(20_000), at(0));
    assert_eq!((foresee(&lane, 0).start, foresee(&lane, 0).objection), (at(20_000), Some(Objection::Held)));
    assert!(matches!(lane.join(visit(), at(0)), Err(LaneRefusal::HostCooling { .. })));
    lane.pause();
    assert_eq!(foresee(&lane, 0).objection, Some(Objection::Paused));
}
