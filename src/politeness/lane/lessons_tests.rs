//! Tests of how a lane reacts to what it learns.

use super::*;
use crate::politeness::lane::HostMemory;
use crate::politeness::pace::Cause;
use crate::politeness::policy::{Mode, Policy};
use crate::politeness::signals::Quota;
use crate::politeness::visit::{ClientId, Step, Visit};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn visit(url: u64) -> Visit {
    Visit::new(ClientId(1), url)
}

fn lane(policy: Policy) -> Lane {
    Lane::new(policy, 1)
}

/// Starts and sends a visit as soon as the lane lets it. Returns when.
fn start(lane: &mut Lane, mut now: Timestamp) -> (Ticket, Timestamp) {
    let ticket = lane.join(visit(now.as_micros()), now).unwrap().ticket;
    loop {
        match lane.next_step(now) {
            Step::Prepare(called) => assert!(!lane.ready(called, now)),
            Step::Start(started) => {
                assert_eq!(started, ticket);
                assert_eq!(lane.sent(ticket, now), None);
                return (ticket, now);
            }
            Step::Wait(alarm) => now = alarm.expect("a visit waits").at,
            Step::Refuse(..) => panic!("refused"),
        }
    }
}

fn answer(lane: &mut Lane, ticket: Ticket, answer: PaceSignal, now: Timestamp) -> Option<LaneLesson> {
    let signals = Signals { answer, ..Signals::SERVED };
    let lesson = lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), now);
    lane.leave(ticket, now);
    lesson
}

#[test]
fn a_host_that_serves_teaches_nothing_and_costs_nothing() {
    let mut lane = lane(Policy::steps());
    let (ticket, now) = start(&mut lane, at(0));
    assert_eq!(answer(&mut lane, ticket, PaceSignal::Success, now), None);
    assert!(lane.lessons.is_none());
}

#[test]
fn a_refusal_slows_the_host_and_holds_it() {
    let mut lane = lane(Policy::steps());
    let (ticket, now) = start(&mut lane, at(0));
    let lesson = answer(&mut lane, ticket, PaceSignal::Throttled, now).unwrap();
    assert_eq!((lesson.delay, lane.delays().learned), (secs(2), secs(2)));
    let hold = lesson.pace.unwrap().hold.unwrap();
    assert_eq!((hold.until, hold.cause), (now + secs(2), Cause::Backoff));
    assert_eq!(start(&mut lane, at(100)).1, at(2_000));
    assert!(lane.take_unsaved() && lane.is_memorable(at(3_600_000)), "what was learned outlives the lane");
}

/// Twenty refusals of one burst are one event.
#[test]
fn a_burst_of_refusals_counts_once() {
    let mut lane = lane(Policy { delay: Duration::ZERO, concurrency: 20, ..Policy::steps() });
    let burst: Vec<_> = (0..20).map(|_| start(&mut lane, at(0)).0).collect();
    for ticket in burst {
        answer(&mut lane, ticket, PaceSignal::Throttled, at(100));
    }
    assert_eq!(lane.delays().learned, secs(1));
}

#[test]
fn concurrency_falls_with_the_delay_and_comes_back() {
    let mut lane = lane(Policy::steps());
    let mut now = at(0);
    for _ in 0..5 {
        let (ticket, sent) = start(&mut lane, now);
        now = sent;
        answer(&mut lane, ticket, PaceSignal::Throttled, now);
    }
    assert_eq!((lane.delays().learned, lane.concurrency()), (secs(6), 3));
    // After twenty successes the lane tries a step less; the floor does not limit a trial that was never refused.
    for _ in 0..20 {
        let (ticket, sent) = start(&mut lane, now);
        now = sent;
        answer(&mut lane, ticket, PaceSignal::Success, now);
    }
    assert_eq!((lane.delays().learned, lane.concurrency()), (secs(5), 4));
}

/// How many places there are depends on the crawl delay, so the short path must ask by the delay of its own visit.
#[test]
fn the_short_path_counts_places_by_the_crawl_delay_of_the_visit() {
    let mut lane = lane(Policy { concurrency: 2, ..Policy::steps() });
    let mut now = at(0);
    for _ in 0..5 {
        let (ticket, sent) = start(&mut lane, now);
        now = sent;
        answer(&mut lane, ticket, PaceSignal::Throttled, now);
    }
    let slow = Visit { crawl_delay: secs(6), ..visit(1) };
    now = now + secs(900);
    let in_flight = lane.walk_through(&slow, now).expect("free");
    assert_eq!((lane.sent(in_flight, now), lane.concurrency()), (None, 2));
    assert_eq!(lane.walk_through(&visit(2), now + secs(60)), None, "only one at a time without that crawl delay");
    assert!(lane.walk_through(&slow, now + secs(60)).is_some());
}

#[test]
fn retry_after_holds_everyone() {
    let mut lane = lane(Policy::steps());
    let (ticket, now) = start(&mut lane, at(0));
    let signals = Signals { answer: PaceSignal::Throttled, retry_after: Some(secs(30)), ..Signals::SERVED };
    lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), now);
    lane.leave(ticket, now);
    assert_eq!(start(&mut lane, at(1_000)).1, at(30_000));
}

#[test]
fn a_quota_paces_before_anybody_is_refused() {
    let mut lane = lane(Policy { delay: Duration::ZERO, ..Policy::steps() });
    let (ticket, now) = start(&mut lane, at(0));
    let quota = Some(Quota { remaining: 4, reset: secs(20) });
    lane.report(ticket, VisitOutcome::Heard(Signals { quota, ..Signals::SERVED }), &LearningPolicy::default(), now);
    lane.leave(ticket, now);
    assert!(lane.delays().learned >= secs(4), "{:?}", lane.delays());
}

/// Nothing else is learned from such a host, and no request is in flight in between.
#[test]
fn a_quota_is_remembered_until_it_resets() {
    let mut lane = lane(Policy { delay: Duration::ZERO, ..Policy::steps() });
    let quota = Some(Quota { remaining: 1, reset: secs(20) });
    let mut now = at(0);
    for signals in [Signals { quota, ..Signals::SERVED }, Signals::SERVED] {
        let (ticket, sent) = start(&mut lane, now);
        lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), sent);
        lane.leave(ticket, sent);
        now = sent;
    }
    assert_eq!(now, at(19_500));
    assert_eq!(start(&mut lane, now).1, at(29_500), "10 s later, not 19.5 s: the quota is over by then");
}

/// The first answer from which anything is learned comes after sends that the pace has not seen.
#[test]
fn the_first_word_of_a_quota_holds_no_longer_than_it_says() {
    let mut lane = lane(Policy { delay: Duration::ZERO, ..Policy::steps() });
    let (ticket, now) = start(&mut lane, at(0));
    let spent = Signals { used_up: Some(secs(10)), ..Signals::SERVED };
    lane.report(ticket, VisitOutcome::Heard(spent), &LearningPolicy::default(), now + secs(1));
    lane.leave(ticket, now + secs(1));
    let again = start(&mut lane, at(2_000)).1;
    assert!((at(11_000)..at(12_000)).contains(&again), "{again:?}");
}

/// Without enforced waits, a second try would follow a refusal at once.
#[test]
fn nothing_is_sent_again_where_pacing_is_not_enforced() {
    for mode in [Mode::Report, Mode::Off] {
        let mut lane = lane(Policy { mode, ..Policy::steps() });
        assert!(!lane.may_retry(&LearningPolicy::default(), at(0)), "{mode:?}");
    }
}

/// A host from which nothing else is learned does not refill the budget for second tries.
#[test]
fn a_spent_budget_is_not_forgotten() {
    let mut lane = lane(Policy { learner: pace::Learner::Off, ..Policy::default() });
    let schooling = LearningPolicy::default();
    let (mut now, mut taken) = (at(0), 0);
    for _ in 0..40 {
        let (ticket, sent) = start(&mut lane, now);
        now = sent;
        let refused = Signals { answer: PaceSignal::Throttled, ..Signals::SERVED };
        lane.report(ticket, VisitOutcome::Heard(refused), &schooling, now);
        taken += u32::from(lane.may_retry(&schooling, now));
        lane.leave(ticket, now);
    }
    assert!(taken <= 17, "{taken} of 40: ten, a tenth of the rest and one every 20 s");
}

#[test]
fn retries_are_rationed() {
    let mut lane = lane(Policy::steps());
    let schooling = LearningPolicy::default();
    assert_eq!((0..100).filter(|_| lane.may_retry(&schooling, at(0))).count(), 10);
}

#[test]
fn other_rules_apply_at_once() {
    let mut lane = lane(Policy::steps());
    let (ticket, now) = start(&mut lane, at(0));
    answer(&mut lane, ticket, PaceSignal::Throttled, now);
    let mut schooling = LearningPolicy::default();
    schooling.learning.max_delay = Duration::from_millis(1_500);
    lane.school(&schooling, now);
    assert_eq!(lane.delays().effective(), Duration::from_millis(1_500));
}

/// Bodies that break off are failures in a row, although each begins with a head that says all is well. This also holds
/// if several are under way at once.
#[test]
fn answers_that_break_off_open_the_breaker() {
    for at_once in [1, 4] {
        let mut lane = lane(Policy { delay: Duration::ZERO, concurrency: 4, ..Policy::steps() });
        let mut opened = None;
        for round in 0..12 {
            let now = at(round * 1_000);
            let tickets: Vec<Ticket> = (0..at_once).map(|_| start(&mut lane, now).0).collect();
            let heard = VisitOutcome::Heard(Signals::SERVED);
            for &ticket in &tickets {
                lane.report(ticket, heard, &LearningPolicy::default(), now);
            }
            for ticket in tickets {
                let lesson = lane.report(ticket, VisitOutcome::Truncated, &LearningPolicy::default(), now);
                opened = opened.or_else(|| lesson.and_then(|lesson| lesson.breaker).map(|_| round));
                lane.leave(ticket, now);
            }
            if opened.is_some() {
                break;
            }
        }
        assert_eq!(opened, Some(if at_once == 1 { 9 } else { 2 }), "ten in a row, {at_once} at once");
    }
}

#[test]
fn a_whole_answer_ends_a_row_of_broken_ones() {
    let mut lane = lane(Policy { delay: Duration::ZERO, ..Policy::steps() });
    for round in 0..40 {
        let now = at(round * 1_000);
        let (ticket, _) = start(&mut lane, now);
        lane.report(ticket, VisitOutcome::Heard(Signals::SERVED), &LearningPolicy::default(), now);
        if round % 2 == 0 {
            assert_eq!(
                lane.report(ticket, VisitOutcome::Truncated, &LearningPolicy::default(), now).and_then(|l| l.breaker),
                None
            );
        }
        lane.leave(ticket, now);
    }
}

/// A host's policy can differ from the others', and a change of it by a reload keeps the learned delay.
#[test]
fn a_change_of_policy_keeps_the_learned_delay() {
    let schooling = LearningPolicy::default();
    let policy = |learner| Policy { learner, ..Policy::default() };
    let mut lane = lane(policy(pace::Learner::Steps));
    let (ticket, now) = start(&mut lane, at(0));
    let refused = Signals { answer: PaceSignal::Throttled, ..Signals::SERVED };
    lane.report(ticket, VisitOutcome::Heard(refused), &schooling, now);
    lane.leave(ticket, now);
    assert_eq!((lane.delays().learned, lane.pace().unwrap().limit()), (secs(2), None));
    for learner in [pace::Learner::Auto, pace::Learner::Steps, pace::Learner::Auto] {
        lane.change(policy(learner), now);
        lane.school(&schooling, now);
        assert_eq!(lane.delays().learned, secs(2), "{learner:?}");
        assert_eq!(lane.pace().unwrap().limit().is_some(), learner == pace::Learner::Auto, "{learner:?}");
    }
    lane.report(ticket, VisitOutcome::Heard(refused), &schooling, now);
    assert_eq!(lane.delays().learned, secs(2), "an answer to a request of before the change");
}

/// What `auto` measures costs memory, and most hosts have one request.
#[test]
fn a_host_is_measured_from_its_second_request_until_it_is_quiet() {
    let policy = Policy { learner: pace::Learner::Auto, ..Policy::default() };
    let answered = |lane: &mut Lane, after, signals| {
        let (ticket, now) = start(lane, after);
        lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), now);
        lane.leave(ticket, now);
    };
    let mut lane = lane(policy);
    answered(&mut lane, at(0), Signals::SERVED);
    assert!(lane.pace().is_none());
    answered(&mut lane, at(2_000), Signals::SERVED);
    assert!(lane.pace().is_some_and(|pace| pace.limit().is_some()));
    lane.give_back_room(at(600_000));
    assert!(lane.pace().is_some(), "it may go on");
    lane.give_back_room(at(1_800_000));
    assert!(lane.pace().is_none());
    answered(&mut lane, at(2_000_000), Signals { answer: PaceSignal::Throttled, ..Signals::SERVED });
    answered(&mut lane, at(3_000_000), Signals::SERVED);
    lane.give_back_room(at(9_000_000));
    assert!(lane.pace().is_some_and(|pace| pace.learned() > Duration::ZERO), "a limit was learned");
    // A pace is a fraction that does not come out even at most delays.
    for delay in [50, 70, 125, 333] {
        let fast = Policy { delay: Duration::from_millis(delay), ..policy };
        let mut lane = Lane::remembering(fast, &HostMemory::default(), &LearningPolicy::default(), 7, at(0));
        assert!(lane.delays().learned >= Duration::from_millis(500), "it begins slower than it may be");
        let mut last = at(0);
        for _ in 0..100 {
            let (ticket, now) = start(&mut lane, last);
            answer(&mut lane, ticket, PaceSignal::Success, now);
            last = now;
        }
        assert_eq!(lane.delays().learned, Duration::ZERO, "{delay} ms");
        lane.give_back_room(at(9_000_000));
        assert!(lane.pace().is_some(), "without it, the next requests would go unmeasured");
    }
}
