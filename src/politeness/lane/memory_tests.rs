//! Tests of what a lane remembers of the lane before it, with literal times in milliseconds.

use std::time::Duration;

use super::*;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::visit::{ClientId, Step, Visit, VisitOutcome};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000_000 + millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn remembering(memory: &HostMemory, now: Timestamp) -> Lane {
    Lane::remembering(Policy::steps(), memory, &LearningPolicy::default(), 1, now)
}

/// Makes one visit as soon as the lane lets it. Returns when it was sent.
fn visit(lane: &mut Lane, signals: Signals, mut now: Timestamp) -> Timestamp {
    let visit = Visit::new(ClientId(1), 1);
    let ticket = lane.join(visit, now).unwrap().ticket;
    loop {
        match lane.next_step(now) {
            Step::Prepare(called) => assert!(!lane.ready(called, now)),
            Step::Start(_) => break,
            Step::Wait(alarm) => now = alarm.expect("a visit waits").at,
            Step::Refuse(..) => panic!("refused"),
        }
    }
    assert_eq!(lane.sent(ticket, now), None);
    lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), now);
    lane.leave(ticket, now);
    now
}

fn throttled(retry_after: Option<Duration>) -> Signals {
    Signals { answer: PaceSignal::Throttled, retry_after, ..Signals::SERVED }
}

#[test]
fn a_learned_delay_counts_for_the_first_visit() {
    let mut lane = Lane::new(Policy::steps(), 1);
    visit(&mut lane, throttled(None), at(0));
    let last = visit(&mut lane, throttled(None), at(0));
    assert_eq!(lane.delays().learned, secs(3));
    let mut again = remembering(&lane.memory(last), last);
    assert_eq!((again.delays().learned, again.take_unsaved()), (secs(3), false));
    assert_eq!(visit(&mut again, Signals::SERVED, last), last + secs(3));
}

#[test]
fn a_hold_is_remembered_if_the_host_asked_for_it() {
    let mut lane = Lane::new(Policy::steps(), 1);
    let sent = visit(&mut lane, throttled(None), at(0));
    assert_eq!(lane.held_until(), sent + secs(2), "the window after a refusal");
    assert_eq!(lane.memory(sent).held_until, None);
    let sent = visit(&mut lane, throttled(Some(secs(600))), sent);
    assert!(lane.take_unsaved());
    let memory = lane.memory(sent);
    assert_eq!(memory.held_until, Some(sent + secs(600)));
    assert_eq!(remembering(&memory, sent + secs(1)).held_until(), sent + secs(600));
}

/// A Retry-After that ends within the window after the refusal is remembered as well.
#[test]
fn a_short_wish_is_remembered_under_a_longer_window() {
    let mut lane = Lane::new(Policy::steps(), 1);
    let sent = visit(&mut lane, throttled(Some(secs(1))), at(0));
    assert_eq!((lane.held_until(), lane.memory(sent).held_until), (sent + secs(2), Some(sent + secs(1))));
}

#[test]
fn no_clock_and_no_file_holds_a_host_for_a_day() {
    let wild = Timestamp::NEVER;
    let memory = HostMemory { last_sent: Some(wild), held_until: Some(wild), ..HostMemory::default() };
    assert_eq!(remembering(&memory, at(0)).held_until(), at(0) + secs(3_600));
    let mut lane = remembering(&HostMemory { held_until: None, ..memory }, at(0));
    assert_eq!(visit(&mut lane, Signals::SERVED, at(0)), at(1_000), "a send in the future counts as now");
}

#[test]
fn what_people_paused_stays_paused() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.pause();
    assert!(lane.take_unsaved());
    assert!(remembering(&lane.memory(at(0)), at(0)).paused);
}

#[test]
fn a_pause_with_an_end_keeps_its_end() {
    let mut lane = Lane::new(Policy::steps(), 1);
    lane.pause_until(at(5_000));
    let mut again = remembering(&lane.memory(at(0)), at(1_000));
    assert_eq!((again.paused_until(at(1_000)), again.take_unsaved()), (Some(at(5_000)), false));
    assert_eq!(visit(&mut again, Signals::SERVED, at(1_000)), at(5_000));
    assert_eq!(lane.memory(at(5_000)).paused_until, None, "it is over");
    let wild = HostMemory { paused_until: Some(Timestamp::from_micros(u64::MAX - 1)), ..HostMemory::default() };
    assert_eq!(remembering(&wild, at(0)).paused_until(at(0)), Some(at(0) + secs(366 * 86_400)));
}

#[test]
fn a_shared_lane_is_as_careful_as_the_most_careful_host_in_it() {
    let pace = pace::PaceMemory { learned: secs(8), updated: at(0), ..pace::PaceMemory::default() };
    let memory =
        HostMemory { last_sent: Some(at(0)), held_until: Some(at(3_000)), pace: Some(pace), paused_until: None };
    let mut shared = Lane::new(Policy::steps(), 1);
    shared.recall(&memory, &LearningPolicy::default(), at(100));
    shared.recall(&HostMemory::default(), &LearningPolicy::default(), at(100));
    assert_eq!((shared.delays().learned, shared.held_until()), (secs(8), at(3_000)));
    assert_eq!(visit(&mut shared, Signals::SERVED, at(100)), at(8_000));
}

/// What another instance learned replaces what this one learned, but moves no start forward.
#[test]
fn what_is_adopted_grants_no_earlier_start() {
    let mut lane = Lane::new(Policy::steps(), 1);
    visit(&mut lane, throttled(None), at(0));
    let sent = visit(&mut lane, throttled(Some(secs(30))), at(0));
    lane.pause();
    let pace = pace::PaceMemory { learned: secs(5), updated: sent, ..pace::PaceMemory::default() };
    let other = HostMemory { last_sent: Some(at(0)), held_until: Some(at(1)), pace: Some(pace), paused_until: None };
    let overrides = Overrides { delay: Some(secs(4)), ..Overrides::default() };
    lane.adopt(&other, overrides, &LearningPolicy::default(), sent);
    assert_eq!((lane.delays().configured, lane.delays().learned), (secs(4), secs(5)));
    assert_eq!((lane.held_until(), lane.paused_until(sent)), (sent + secs(30), None));
    assert_eq!(lane.last_sent(), Some(sent));
    assert!(lane.take_unsaved());
    lane.adopt(&HostMemory::default(), Overrides::default(), &LearningPolicy::default(), sent);
    assert_eq!((lane.delays().effective(), lane.held_until()), (secs(1), sent + secs(30)));
}

#[test]
fn what_no_start_can_depend_on_is_not_memorable() {
    let mut lane = Lane::new(Policy::steps(), 1);
    assert!(!lane.is_memorable(at(0)));
    visit(&mut lane, Signals::SERVED, at(0));
    assert!(lane.is_memorable(at(59_000)), "robots.txt may ask for a minute yet");
    assert!(!lane.is_memorable(at(60_000)) && !lane.take_unsaved());
    lane.hold(at(100_000), at(60_000));
    assert!(lane.is_memorable(at(99_000)) && !lane.is_memorable(at(100_000)));
}
