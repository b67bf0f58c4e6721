//! Tests of a lane with literal times in milliseconds. The named cases of the limiter's history are here.

use super::*;
use crate::politeness::policy::{LearningPolicy, Order};
use crate::politeness::visit::{Alarm, ClientId, LaneRefusal, Step, Visit, VisitOutcome};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lane(delay: u64) -> Lane {
    Lane::new(Policy { delay: ms(delay), ..Policy::default() }, 1)
}

fn visit(client: u64, url: u64) -> Visit {
    Visit::new(ClientId(client), url)
}

fn hurried(client: u64, max_wait: u64) -> Visit {
    Visit { max_wait: Some(ms(max_wait)), ..visit(client, client) }
}

fn millis(time: Timestamp) -> u64 {
    time.as_micros() / 1_000
}

/// Visits arrive, connections are ready at once, answers take no time. Returns when the head of each visit was sent.
fn starts(lane: &mut Lane, arrivals: &[(u64, Visit)]) -> Vec<u64> {
    let mut sent = vec![u64::MAX; arrivals.len()];
    let mut tickets: Vec<(Ticket, usize)> = Vec::new();
    let mut pending = arrivals.iter().enumerate().peekable();
    let mut now = at(0);
    loop {
        while let Some((index, &(_, visit))) = pending.next_if(|(_, (arrival, _))| at(*arrival) <= now) {
            tickets.push((lane.join(visit, now).expect("room").ticket, index));
        }
        let alarm = match lane.next_step(now) {
            Step::Prepare(ticket) => {
                lane.ready(ticket, now);
                continue;
            }
            Step::Start(ticket) => {
                assert_eq!(lane.sent(ticket, now), None);
                let (_, index) = *tickets.iter().find(|(other, _)| *other == ticket).unwrap();
                sent[index] = millis(now);
                lane.leave(ticket, now);
                continue;
            }
            Step::Refuse(..) => panic!("no visit is refused here"),
            Step::Wait(alarm) => alarm.map(|alarm| alarm.at),
        };
        let arrival = pending.peek().map(|(_, (arrival, _))| at(*arrival));
        match alarm.into_iter().chain(arrival).min() {
            Some(next) => now = next,
            None => return sent,
        }
    }
}

fn started(lane: &mut Lane, now: u64) -> Option<Ticket> {
    loop {
        match lane.next_step(at(now)) {
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, at(now))),
            Step::Start(ticket) => return Some(ticket),
            Step::Refuse(..) => {}
            Step::Wait(_) => return None,
        }
    }
}

fn start_now(lane: &mut Lane, now: u64) -> Ticket {
    let ticket = lane.join(visit(99, 99), at(now)).unwrap().ticket;
    assert_eq!(started(lane, now), Some(ticket));
    assert_eq!(lane.sent(ticket, at(now)), None);
    ticket
}

#[test]
fn first_request_no_delay() {
    assert_eq!(starts(&mut lane(1_000), &[(700, visit(1, 1))]), [700]);
}

#[test]
fn second_within_the_interval_waits_and_after_it_does_not() {
    let arrivals = [(0, visit(1, 1)), (400, visit(1, 2)), (5_000, visit(1, 3))];
    assert_eq!(starts(&mut lane(1_000), &arrivals), [0, 1_000, 5_000]);
}

#[test]
fn arrivals_at_0_500_and_1200_start_at_0_1000_and_2000() {
    let arrivals = [(0, visit(1, 1)), (500, visit(2, 2)), (1_200, visit(3, 3))];
    assert_eq!(starts(&mut lane(1_000), &arrivals), [0, 1_000, 2_000]);
}

#[test]
fn five_at_once_start_a_second_apart() {
    let arrivals: Vec<(u64, Visit)> = (0..5).map(|n| (0, visit(n, n))).collect();
    assert_eq!(starts(&mut lane(1_000), &arrivals), [0, 1_000, 2_000, 3_000, 4_000]);
}

#[test]
fn a_hundred_hosts_at_once_use_at_least_95_percent_and_none_goes_faster() {
    let mut within_ten_seconds = 0;
    for _ in 0..100 {
        let arrivals: Vec<(u64, Visit)> = (0..20).map(|n| (0, visit(n % 3, n))).collect();
        let mut sent = starts(&mut lane(1_000), &arrivals);
        sent.sort_unstable();
        assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= 1_000));
        within_ten_seconds += sent.iter().filter(|&&sent| sent < 10_000).count();
    }
    assert!(within_ten_seconds >= 950, "{within_ten_seconds}");
}

#[test]
fn zero_disables() {
    let arrivals: Vec<(u64, Visit)> = (0..20).map(|n| (n, visit(1, n))).collect();
    let asked: Vec<u64> = arrivals.iter().map(|&(arrival, _)| arrival).collect();
    assert_eq!(starts(&mut lane(0), &arrivals), asked);
}

#[test]
fn a_hundred_cancelled_waiters_delay_no_other_visit() {
    let mut lane = lane(1_000);
    let first = start_now(&mut lane, 0);
    lane.leave(first, at(1));
    let waiting: Vec<Ticket> = (0..100).map(|n| lane.join(visit(n, n), at(10)).unwrap().ticket).collect();
    assert_eq!(started(&mut lane, 10), None);
    waiting.iter().for_each(|&ticket| lane.leave(ticket, at(20)));
    let last = lane.join(visit(7, 7), at(30)).unwrap();
    assert_eq!(millis(last.expected), 1_000);
    assert_eq!(started(&mut lane, 999), None);
    assert_eq!(started(&mut lane, 1_000), Some(last.ticket));
}

#[test]
fn a_client_that_leaves_between_turn_and_send_spends_nothing() {
    let mut lane = lane(1_000);
    let first = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    let second = lane.join(visit(2, 2), at(0)).unwrap().ticket;
    assert_eq!(started(&mut lane, 0), Some(first));
    assert_eq!(started(&mut lane, 5), None, "a turn is not sent yet");
    lane.leave(first, at(7));
    assert_eq!(started(&mut lane, 7), Some(second));
}

#[test]
fn a_connection_that_takes_300_ms_compresses_no_gap() {
    let mut lane = lane(1_000);
    let slow = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(slow));
    lane.ready(slow, at(300));
    assert_eq!(lane.next_step(at(300)), Step::Start(slow));
    lane.sent(slow, at(305));
    let next = lane.join(visit(2, 2), at(310)).unwrap();
    assert_eq!(millis(next.expected), 1_305);
    assert_eq!(started(&mut lane, 1_304), None);
    assert_eq!(started(&mut lane, 1_305), Some(next.ticket));
}

#[test]
fn a_ready_visit_passes_one_that_is_not_ready() {
    let mut lane = lane(1_000);
    let slow = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    let quick = lane.join(visit(2, 2), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(slow));
    assert_eq!(lane.next_step(at(0)), Step::Prepare(quick));
    lane.ready(quick, at(10));
    assert_eq!(lane.next_step(at(10)), Step::Start(quick));
    lane.sent(quick, at(10));
    lane.ready(slow, at(500));
    assert_eq!(started(&mut lane, 1_010), Some(slow));
}

#[test]
fn the_first_called_goes_first_among_the_ready() {
    let mut lane = lane(1_000);
    let before = start_now(&mut lane, 0);
    let first = lane.join(visit(1, 1), at(500)).unwrap().ticket;
    let second = lane.join(visit(1, 2), at(500)).unwrap().ticket;
    assert_eq!(lane.next_step(at(500)), Step::Prepare(first));
    assert!(matches!(lane.next_step(at(500)), Step::Wait(Some(_))), "the second's turn is not near");
    assert_eq!(lane.next_step(at(1_000)), Step::Prepare(second));
    lane.ready(second, at(1_000));
    lane.ready(first, at(1_000));
    assert_eq!(lane.next_step(at(1_000)), Step::Start(first));
    lane.leave(before, at(1_000));
}

/// Found by the simulation: the alarm was set for the turn after that of the visit that hangs, a whole delay too late.
#[test]
fn a_connection_that_hangs_costs_no_turn_of_a_long_delay() {
    let mut lane = lane(7_000);
    let hangs = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(hangs));
    let next = lane.join(visit(2, 2), at(200)).unwrap().ticket;
    assert_eq!(lane.next_step(at(200)), Step::Wait(Some(Alarm { at: at(1_000), keeper: next })));
    assert_eq!(lane.next_step(at(1_000)), Step::Prepare(next));
    assert!(!lane.ready(next, at(1_050)));
    assert_eq!(lane.next_step(at(1_050)), Step::Start(next), "though {hangs:?} came first");
}

#[test]
fn a_connection_that_hangs_holds_up_a_lonely_place_only_for_the_lead() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..Policy::default() }, 1);
    let hangs = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    let waits = lane.join(visit(2, 2), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(hangs));
    assert_eq!(lane.next_step(at(0)), Step::Wait(Some(Alarm { at: at(1_000), keeper: waits })));
    assert_eq!(lane.next_step(at(1_000)), Step::Prepare(waits));
    lane.ready(waits, at(1_020));
    assert_eq!(lane.next_step(at(1_020)), Step::Start(waits));
    lane.sent(waits, at(1_020));
    lane.ready(hangs, at(1_500));
    assert!(matches!(lane.next_step(at(2_020)), Step::Wait(_)), "one place");
    lane.leave(waits, at(2_500));
    assert_eq!(lane.next_step(at(2_500)), Step::Start(hangs));
}

#[test]
fn no_visit_opens_a_connection_long_before_its_turn() {
    let mut lane = lane(60_000);
    start_now(&mut lane, 0);
    let next = lane.join(visit(1, 1), at(100)).unwrap().ticket;
    assert_eq!(lane.next_step(at(100)), Step::Wait(Some(Alarm { at: at(59_000), keeper: next })));
    assert_eq!(lane.next_step(at(59_000)), Step::Prepare(next));
}

#[test]
fn concurrency_is_kept_and_a_place_is_used_at_once() {
    let policy = Policy { delay: ms(0), concurrency: 2, ..Policy::default() };
    let mut lane = Lane::new(policy, 1);
    let tickets: Vec<Ticket> = (0..3).map(|n| lane.join(visit(n, n), at(0)).unwrap().ticket).collect();
    for &ticket in &tickets[..2] {
        assert_eq!(started(&mut lane, 0), Some(ticket));
        lane.sent(ticket, at(0));
    }
    assert_eq!((started(&mut lane, 900), lane.in_flight(), lane.queued()), (None, 2, 1));
    lane.leave(tickets[1], at(901));
    assert_eq!(started(&mut lane, 901), Some(tickets[2]));
}

#[test]
fn the_wait_for_a_place_is_predicted_from_experience() {
    let mut lane = Lane::new(Policy { delay: ms(0), concurrency: 1, ..Policy::default() }, 1);
    let first = start_now(&mut lane, 0);
    lane.leave(first, at(8_000));
    start_now(&mut lane, 8_000);
    let refusal = lane.join(hurried(1, 5_000), at(8_000)).unwrap_err();
    assert_eq!(refusal, LaneRefusal::WaitTooLong { retry_after: ms(8_000) });
}

#[test]
fn now_or_never() {
    let mut lane = lane(1_000);
    let lucky = lane.join(hurried(1, 0), at(0)).unwrap().ticket;
    assert_eq!(started(&mut lane, 0), Some(lucky));
    lane.sent(lucky, at(0));
    let refusal = lane.join(hurried(2, 0), at(300)).unwrap_err();
    assert_eq!(refusal, LaneRefusal::WaitTooLong { retry_after: ms(1_000) });
}

#[test]
fn getting_ready_is_not_waiting_for_the_host() {
    let mut lane = lane(1_000);
    let slow = lane.join(hurried(1, 0), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(slow));
    assert_eq!(started(&mut lane, 200), None);
    lane.ready(slow, at(300));
    assert_eq!(started(&mut lane, 300), Some(slow));
}

#[test]
fn a_new_concurrency_counts_at_once() {
    let mut lane = Lane::new(Policy { delay: ms(0), concurrency: 1, ..Policy::default() }, 1);
    start_now(&mut lane, 0);
    let second = lane.join(visit(2, 2), at(0)).unwrap().ticket;
    assert_eq!(started(&mut lane, 0), None);
    lane.change(Policy { delay: ms(0), concurrency: 2, ..Policy::default() }, at(5));
    assert_eq!(started(&mut lane, 5), Some(second));
}

#[test]
fn deferred_carries_the_right_wait() {
    let mut lane = lane(10_000);
    start_now(&mut lane, 0);
    let refusal = lane.join(hurried(1, 2_000), at(2_500)).unwrap_err();
    assert_eq!(refusal.retry_after(), Some(ms(8_000)), "7.5 s, rounded up");
}

#[test]
fn a_client_that_comes_back_when_told_gets_in_ahead_of_newcomers() {
    let mut lane = lane(1_000);
    start_now(&mut lane, 0);
    let told = lane.join(hurried(1, 0), at(100)).unwrap_err().retry_after().unwrap();
    assert_eq!(told, ms(1_000));
    let newcomers: Vec<Ticket> = (2..10).map(|n| lane.join(visit(n, n), at(200)).unwrap().ticket).collect();
    assert_eq!(started(&mut lane, 1_000), Some(newcomers[0]));
    lane.sent(newcomers[0], at(1_000));
    let back = lane.join(hurried(1, 0), at(100) + told).expect("it was told so");
    assert_eq!(started(&mut lane, 2_000), Some(back.ticket));
    lane.sent(back.ticket, at(2_000));
    assert_eq!(started(&mut lane, 3_000), Some(newcomers[1]));
}

#[test]
fn a_crowd_is_told_different_seconds_and_each_of_them_is_true() {
    let mut lane = lane(500);
    let mut busy = start_now(&mut lane, 0);
    let mut told: Vec<u64> =
        (1..=30).map(|n| lane.join(hurried(n, 0), at(1)).unwrap_err().retry_after().unwrap().as_secs()).collect();
    let mut different = told.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), 30);
    for (client, seconds) in (1..=30).zip(told.drain(..)) {
        let back = lane.join(hurried(client, 0), at(1 + seconds * 1_000)).expect("as told").ticket;
        lane.leave(busy, at(1 + seconds * 1_000));
        assert_eq!(started(&mut lane, 1 + seconds * 1_000), Some(back));
        lane.sent(back, at(1 + seconds * 1_000));
        busy = back;
    }
}

#[test]
fn a_full_queue_refuses_with_the_time_it_takes() {
    let mut lane = Lane::new(Policy { max_queue: 2, ..Policy::default() }, 1);
    start_now(&mut lane, 0);
    for n in 0..2 {
        lane.join(visit(n, n), at(0)).unwrap();
    }
    assert_eq!(lane.join(visit(5, 5), at(0)).unwrap_err(), LaneRefusal::QueueFull { retry_after: ms(3_000) });
    assert!(lane.join(Visit { retry: true, ..visit(6, 6) }, at(0)).is_ok(), "a retry has waited before");
}

#[test]
fn a_busy_client_does_not_use_up_the_patience_of_another() {
    let mut lane = lane(1_000);
    start_now(&mut lane, 0);
    for n in 0..100 {
        lane.join(visit(1, n), at(0)).unwrap();
    }
    let polite = lane.join(hurried(2, 3_000), at(0)).unwrap();
    assert_eq!(millis(polite.expected), 2_000);
    assert!(lane.join(hurried(1, 50_000), at(0)).is_err());
}

#[test]
fn a_long_hold_answers_the_waiting_at_once_and_each_with_its_own_second() {
    let mut lane = lane(1_000);
    start_now(&mut lane, 0);
    for n in 0..3 {
        lane.join(visit(n, n), at(0)).unwrap();
    }
    lane.hold(at(600_000), at(500));
    let mut told = Vec::new();
    while let Step::Refuse(_, LaneRefusal::HostCooling { retry_after }) = lane.next_step(at(500)) {
        told.push(retry_after.unwrap().as_secs());
    }
    told.sort_unstable();
    assert_eq!(told, [600, 601, 602]);
    assert_eq!(lane.queued(), 0);
    let newcomer = lane.join(visit(9, 9), at(501)).unwrap_err();
    assert_eq!(newcomer, LaneRefusal::HostCooling { retry_after: Some(ms(603_000)) });
}

#[test]
fn a_short_hold_only_delays() {
    let mut lane = lane(1_000);
    let ticket = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    lane.hold(at(5_000), at(0));
    assert_eq!(started(&mut lane, 4_999), None);
    assert_eq!(started(&mut lane, 5_000), Some(ticket));
}

#[test]
fn a_pause_stops_everyone_and_tells_newcomers() {
    let mut lane = lane(1_000);
    let ticket = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    assert_eq!(lane.next_step(at(0)), Step::Prepare(ticket));
    lane.ready(ticket, at(5));
    lane.pause();
    assert_eq!(started(&mut lane, 10), None);
    assert_eq!(lane.join(visit(2, 2), at(10)).unwrap_err(), LaneRefusal::HostCooling { retry_after: None });
    lane.resume();
    assert_eq!(started(&mut lane, 20), Some(ticket));
}

#[test]
fn a_visit_that_has_waited_long_enough_is_answered() {
    let mut lane = Lane::new(Policy { concurrency: 1, max_wait: ms(2_000), ..Policy::default() }, 1);
    start_now(&mut lane, 0);
    let ticket = lane.join(visit(1, 1), at(100)).unwrap().ticket;
    let mut now = at(100);
    let refusal = loop {
        match lane.next_step(now) {
            Step::Wait(Some(alarm)) if alarm.keeper == ticket => now = alarm.at,
            Step::Refuse(refused, refusal) if refused == ticket => break refusal,
            step => panic!("{step:?}"),
        }
    };
    // The visit in flight has taken 2.1 s, and may take as long again.
    assert_eq!(
        (now, refusal),
        (at(2_100) + Duration::from_micros(1), LaneRefusal::WaitTooLong { retry_after: ms(3_000) })
    );
    lane.leave(ticket, at(2_101));
    assert_eq!(lane.queued(), 0);
}

#[test]
fn robots_and_what_was_learned_lengthen_the_delay_and_end_the_burst() {
    let mut lane = Lane::new(Policy { burst: 3, ..Policy::default() }, 1);
    let arrivals: Vec<(u64, Visit)> = (0..3).map(|n| (0, visit(n, n))).collect();
    let asked: Vec<(u64, Visit)> =
        arrivals.iter().map(|&(at, visit)| (at, Visit { crawl_delay: ms(5_000), ..visit })).collect();
    assert_eq!(starts(&mut lane, &asked), [0, 5_000, 10_000]);
    lane.set_robots_delay(ms(100), at(20_000));
    lane.set_learned_delay(ms(2_000), at(20_000));
    assert_eq!(lane.delays().effective(), ms(2_000));
    let burst = Lane::new(Policy { burst: 3, ..Policy::default() }, 1);
    assert_eq!(starts(&mut { burst }, &arrivals), [0, 0, 0]);
}

#[test]
fn a_slow_answer_lengthens_the_delay_if_asked_to() {
    let mut lane = Lane::new(Policy { delay_factor: 2.0, ..Policy::default() }, 1);
    let first = start_now(&mut lane, 0);
    lane.report(first, VisitOutcome::Opened, &LearningPolicy::default(), at(1_500));
    lane.leave(first, at(1_600));
    assert_eq!(millis(lane.join(visit(1, 1), at(1_600)).unwrap().expected), 3_000);
}

#[test]
fn a_turn_that_waited_for_a_ledger_is_asked_again() {
    let mut lane = lane(1_000);
    let ticket = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    assert_eq!(started(&mut lane, 0), Some(ticket));
    lane.hold(at(3_000), at(50));
    assert!(!lane.confirm(ticket, at(80)));
    assert_eq!((lane.in_flight(), lane.queued()), (0, 1));
    assert_eq!(started(&mut lane, 3_000), Some(ticket));
    assert!(lane.put_off(ticket, at(3_700), 0, at(3_010)), "its connection stays open");
    assert_eq!(lane.next_step(at(3_010)), Step::Wait(Some(Alarm { at: at(3_700), keeper: ticket })));
    assert_eq!(started(&mut lane, 3_700), Some(ticket));
    assert!(lane.agree(ticket, at(3_710)));
    lane.sent(ticket, at(3_710));
}

#[test]
fn report_starts_everyone_at_once_and_tells_what_would_have_been() {
    let mut lane = Lane::new(Policy { mode: Mode::Report, concurrency: 1, ..Policy::default() }, 1);
    for n in 0..4 {
        let joined = lane.join(visit(n, n), at(0)).unwrap();
        assert_eq!(millis(joined.expected), n * 1_000);
        assert_eq!(started(&mut lane, 0), Some(joined.ticket));
        assert_eq!(lane.sent(joined.ticket, at(0)), None);
    }
    lane.change(Policy::default(), at(300));
    assert_eq!(millis(lane.join(visit(9, 9), at(300)).unwrap().expected), 1_000, "what was sent counts");
}

#[test]
fn off_paces_and_holds_no_visit() {
    let mut lane = Lane::new(Policy { mode: Mode::Off, concurrency: 1, ..Policy::default() }, 1);
    lane.hold(at(90_000), at(0));
    for n in 0..4 {
        let ticket = lane.join(visit(n, n), at(0)).unwrap().ticket;
        assert_eq!(started(&mut lane, 0), Some(ticket));
    }
}

#[test]
fn first_come_first_served_without_fairness() {
    let mut lane = Lane::new(Policy { order: Order::Fifo, ..Policy::default() }, 1);
    let arrivals = [(0, visit(1, 1)), (0, visit(1, 2)), (0, Visit { urgency: 0, ..visit(1, 3) }), (0, visit(2, 4))];
    assert_eq!(starts(&mut lane, &arrivals), [0, 1_000, 2_000, 3_000]);
}

#[test]
fn cleanup_keeps_what_is_owed_and_removes_what_is_stale() {
    let mut lane = lane(1_000);
    assert!(!lane.owes(at(0)), "nothing happened yet");
    let ticket = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    assert!(lane.owes(at(9_000)), "a visit waits");
    started(&mut lane, 0);
    lane.sent(ticket, at(0));
    assert!(lane.owes(at(9_000)), "a visit is in flight");
    lane.leave(ticket, at(100));
    assert!(lane.owes(at(999)) && !lane.owes(at(1_000)));
    lane.hold(at(5_000), at(2_000));
    assert!(lane.owes(at(5_999)) && !lane.owes(at(6_000)));
    lane.pause();
    assert!(lane.owes(at(9_000)));
    lane.resume();
    lane.hold(at(20_000), at(9_000));
    assert!(lane.join(hurried(2, 0), at(9_000)).is_err());
    assert!(lane.owes(at(75_000)), "a client was told to come back at 20 s");
    assert!(!lane.owes(at(90_000)));
}

#[test]
fn a_lane_made_again_from_memory_grants_nothing() {
    let mut lane = lane(1_000);
    start_now(&mut lane, 0);
    lane.hold(at(4_000), at(100));
    let policy = Policy { burst: 5, ..Policy::default() };
    let mut again = Lane::remembering(policy, &lane.memory(at(200)), &LearningPolicy::default(), 1, at(200));
    assert_eq!(again.held_until(), at(4_000));
    let arrivals: Vec<(u64, Visit)> = (0..3).map(|n| (200, visit(n, n))).collect();
    assert_eq!(starts(&mut again, &arrivals), [4_000, 5_000, 6_000]);
}

#[test]
fn an_old_ticket_changes_nothing() {
    let mut lane = lane(1_000);
    let old = lane.join(visit(1, 1), at(0)).unwrap().ticket;
    lane.leave(old, at(0));
    let new = lane.join(visit(2, 2), at(0)).unwrap().ticket;
    lane.leave(old, at(1));
    lane.ready(old, at(1));
    assert_eq!(lane.sent(old, at(1)), None);
    assert!(lane.confirm(old, at(1)));
    assert_eq!(started(&mut lane, 2), Some(new));
}

/// There may be a hundred thousand lanes: what is rare goes into a box.
#[test]
fn a_lane_stays_small() {
    assert!(size_of::<Lane>() <= 664, "{} bytes", size_of::<Lane>());
}
