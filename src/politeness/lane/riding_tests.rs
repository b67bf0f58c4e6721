//! Tests of which parts of pages ride, which wait for a turn, and what ends rides.

use std::time::Duration;

use super::*;
use crate::politeness::audit::Breach;
use crate::politeness::pace::Learner;
use crate::politeness::policy::{LearningPolicy, Mode, Policy};
use crate::politeness::rides::PAGE_LOAD;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::visit::VisitOutcome;

const BROWSER: ClientId = ClientId(1 << 32);
const OTHER: ClientId = ClientId(2 << 32);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

fn policy() -> Policy {
    Policy { count: Counts::Pages, page_parts: 3, delay: Duration::from_secs(1), concurrency: 2, ..Policy::steps() }
}

fn lane() -> Lane {
    Lane::new(policy(), 7)
}

fn page(client: ClientId) -> Visit {
    Visit::new(client, 1)
}

fn part(client: ClientId, url: u64) -> Visit {
    Visit { part: PagePart::Resource, ..Visit::new(client, url) }
}

/// Sends a visit that has a connection. Returns its ticket, if it need not wait.
fn send(lane: &mut Lane, visit: &Visit, now: Timestamp) -> Option<Ticket> {
    let ticket = lane.walk_through(visit, now)?;
    assert_eq!(lane.sent(ticket, now), None);
    Some(ticket)
}

/// Makes a whole visit. Returns whether it need not wait.
fn visit(lane: &mut Lane, visit: &Visit, now: Timestamp) -> bool {
    send(lane, visit, now).inspect(|&ticket| lane.leave(ticket, now)).is_some()
}

/// Parks a part, which then waits.
fn park(lane: &mut Lane, part: &Visit, now: Timestamp) -> Ticket {
    let joined = lane.join(*part, now).expect("it is admitted");
    assert!(!joined.is_called && lane.is_parked(joined.ticket));
    joined.ticket
}

/// Returns the visits that the lane calls and starts now, each as soon as it is called.
fn starts(lane: &mut Lane, now: Timestamp) -> Vec<Ticket> {
    let mut started = Vec::new();
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => started.extend(lane.ready(ticket, now).then_some(ticket)),
            Step::Start(ticket) => started.push(ticket),
            Step::Refuse(ticket, refusal) => panic!("{ticket:?}: {refusal:?}"),
            Step::Wait(_) => return started,
        }
    }
}

#[test]
fn parts_ride_on_the_turn_of_their_page_up_to_the_bound() {
    let mut lane = lane();
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    for url in 0..3 {
        assert!(visit(&mut lane, &part(BROWSER, url), at(10)), "part {url}");
    }
    assert!(!visit(&mut lane, &part(BROWSER, 4), at(20)), "one too many");
    assert!(!visit(&mut lane, &part(OTHER, 5), at(20)), "of a client without a page");
    assert_eq!(lane.parts_rode(), 3);
}

/// The parts of a page do not delay the next page, and the next page comes no sooner.
#[test]
fn pages_keep_their_distance_whatever_parts_do() {
    let mut lane = lane();
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    assert!(visit(&mut lane, &part(BROWSER, 1), at(900)));
    assert!(!visit(&mut lane, &page(BROWSER), at(999)));
    assert!(visit(&mut lane, &page(BROWSER), at(1_000)));
    assert!(visit(&mut lane, &part(BROWSER, 1), at(1_000)));
}

#[test]
fn a_label_means_nothing_where_requests_are_counted() {
    let mut lane = Lane::new(Policy { count: Counts::Requests, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    assert!(!visit(&mut lane, &part(BROWSER, 1), at(10)));
    let joined = lane.join(part(BROWSER, 1), at(10)).unwrap();
    assert_eq!((joined.expected, lane.is_parked(joined.ticket)), (at(1_000), false));
}

#[test]
fn a_part_without_a_ride_takes_a_turn_that_carries_the_others() {
    let mut lane = lane();
    let parts: Vec<Ticket> = (0..5).map(|url| park(&mut lane, &part(BROWSER, url), at(0))).collect();
    let started = starts(&mut lane, at(0));
    assert_eq!(started, parts[..1], "the first takes a turn, the others wait for it");
    assert_eq!(lane.sent(parts[0], at(5)), None);
    assert_eq!(starts(&mut lane, at(5)), parts[1..2], "one place is left");
    assert_eq!(lane.sent(parts[1], at(5)), None);
    for index in 0..2 {
        lane.leave(parts[index], at(20));
        assert_eq!(starts(&mut lane, at(20)), parts[index + 2..index + 3]);
        assert_eq!(lane.sent(parts[index + 2], at(20)), None);
    }
    lane.leave(parts[2], at(30));
    assert_eq!(starts(&mut lane, at(30)), [], "three have ridden");
    assert_eq!(starts(&mut lane, at(1_005)), parts[4..], "the fifth takes the next turn");
    assert!(!lane.rides(parts[4]));
}

/// Forty parts that wait for one turn do not wait forty turns.
#[test]
fn parts_are_admitted_by_the_turns_that_they_need() {
    let few = Policy { page_parts: 100, delay: Duration::from_secs(20), ..policy() };
    let mut lane = Lane::new(few, 7);
    let joined = |lane: &mut Lane, url| lane.join(part(BROWSER, url), at(0));
    assert!((0..40).all(|url| joined(&mut lane, url).is_ok_and(|joined| joined.expected <= at(20_000))));
    let mut lane = Lane::new(Policy { page_parts: 1, ..few }, 7);
    let admitted = (0..40).filter(|&url| joined(&mut lane, url).is_ok()).count();
    assert!((7..=9).contains(&admitted), "one part and one turn in 20 s, for 150 s: {admitted}");
    assert!(matches!(joined(&mut lane, 99), Err(LaneRefusal::WaitTooLong { .. })));
}

#[test]
fn what_scripts_fetch_rides_but_its_turn_carries_nothing() {
    let data = |url| Visit { part: PagePart::Data, ..part(BROWSER, url) };
    let mut lane = lane();
    assert!(visit(&mut lane, &data(1), at(0)));
    assert!(!visit(&mut lane, &data(2), at(10)));
    assert_eq!(lane.join(data(2), at(10)).unwrap().expected, at(1_000), "it waits for its own turn");
    assert_eq!(lane.join(data(3), at(10)).unwrap().expected, at(2_000));
    let mut lane = Lane::new(policy(), 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    assert!(visit(&mut lane, &data(1), at(10)));
}

#[test]
fn a_page_carries_parts_while_it_loads() {
    let load = PAGE_LOAD.as_millis() as u64;
    let mut lane = lane();
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    assert!(visit(&mut lane, &page(OTHER), at(load - 500)));
    assert!(visit(&mut lane, &part(BROWSER, 1), at(load - 1)));
    assert!(!visit(&mut lane, &part(BROWSER, 2), at(load)));
}

/// What a lane is told, after which no part rides.
type EndOfRides = fn(&mut Lane);

#[test]
fn rides_end_with_a_hold_a_pause_or_a_lesson() {
    let throttled = |lane: &mut Lane| {
        let ticket = lane.walk_through(&part(BROWSER, 9), at(10)).expect("it rides");
        assert_eq!(lane.sent(ticket, at(10)), None);
        let signals = Signals { answer: PaceSignal::Throttled, ..Signals::SERVED };
        lane.report(ticket, VisitOutcome::Heard(signals), &LearningPolicy::default(), at(20));
        lane.leave(ticket, at(20));
    };
    let ends: [(&str, EndOfRides); 5] = [
        ("a hold", |lane| lane.hold(at(100), at(10))),
        ("a pause", |lane| {
            lane.pause();
            lane.resume();
        }),
        ("a pause with an end", |lane| lane.pause_until(at(100))),
        ("a learned delay", |lane| lane.set_learned_delay(Duration::from_secs(3), at(10))),
        ("a refusal", throttled),
    ];
    for (what, end) in ends {
        let mut lane = lane();
        assert!(visit(&mut lane, &page(BROWSER), at(0)));
        end(&mut lane);
        for moment in [20, 99, 100, 900] {
            assert!(!visit(&mut lane, &part(BROWSER, 1), at(moment)), "{what}, after {moment} ms");
        }
    }
}

/// `auto` begins slower than 250 ms, which the host has not asked for.
#[test]
fn parts_ride_before_the_first_refusal() {
    let mut lane =
        Lane::new(Policy { learner: Learner::Auto, delay: Duration::from_millis(250), page_parts: 60, ..policy() }, 1);
    lane.school(&LearningPolicy::default(), at(0));
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    assert_eq!(lane.delays().effective(), Duration::from_millis(500));
    for url in 1..=60 {
        assert!(visit(&mut lane, &part(BROWSER, url), at(20)), "part {url}");
    }
}

#[test]
fn parked_parts_wait_for_their_own_turns_after_a_hold() {
    let mut lane = lane();
    let busy: Vec<Ticket> = [page(BROWSER), part(BROWSER, 1)]
        .iter()
        .map(|visit| send(&mut lane, visit, at(0)).expect("there are two places"))
        .collect();
    let parked: Vec<Ticket> = (2..4).map(|url| park(&mut lane, &part(BROWSER, url), at(10))).collect();
    assert_eq!(starts(&mut lane, at(10)), [], "there is a ride, but no place");
    lane.hold(at(5_000), at(20));
    busy.iter().for_each(|&ticket| lane.leave(ticket, at(30)));
    assert_eq!(starts(&mut lane, at(30)), []);
    assert!(!lane.is_parked(parked[0]) && !lane.is_parked(parked[1]));
    assert_eq!(starts(&mut lane, at(5_000)), parked[..1]);
    assert_eq!(lane.sent(parked[0], at(5_000)), None);
    assert_eq!(starts(&mut lane, at(5_999)), []);
    assert_eq!(starts(&mut lane, at(6_000)), parked[1..]);
}

/// A part that has a connection does not take a turn while a part before it gets ready to ride.
#[test]
fn a_part_does_not_overtake_the_parts_before_it_with_a_turn() {
    let mut lane = Lane::new(Policy { page_parts: 100, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let rides = [1, 2].map(|url| send(&mut lane, &part(BROWSER, url), at(10)).expect("there are two places"));
    let parked = [3, 4].map(|url| park(&mut lane, &part(BROWSER, url), at(10)));
    lane.leave(rides[0], at(1_500));
    assert_eq!(lane.next_step(at(1_500)), Step::Prepare(parked[0]));
    assert_eq!(lane.walk_through(&part(BROWSER, 5), at(1_500)), None);
    assert!(lane.walk_through(&page(OTHER), at(1_500)).is_some(), "a page need not wait for parts");
}

/// Also if its robots.txt was just read and it could start at once.
#[test]
fn a_part_that_has_a_ride_takes_no_turn() {
    let mut lane = lane();
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let after_fetch = Visit { purpose: Purpose::AfterRobotsFetch, ..part(BROWSER, 1) };
    let joined = lane.join(after_fetch, at(5_000)).expect("it is admitted");
    assert!(joined.is_called && lane.ready(joined.ticket, at(5_001)) && lane.rides(joined.ticket));
    assert!(visit(&mut lane, &page(BROWSER), at(5_002)), "the turn is free");
}

/// Until it is sent, the turn of a part counts for the parts behind it.
#[test]
fn a_second_part_waits_for_the_turn_of_the_first() {
    let mut lane = Lane::new(Policy { burst: 3, ..policy() }, 7);
    let first = park(&mut lane, &part(BROWSER, 1), at(0));
    assert_eq!(starts(&mut lane, at(0)), [first]);
    assert_eq!(lane.walk_through(&part(BROWSER, 2), at(1)), None);
    assert_eq!(lane.sent(first, at(2)), None);
    let second = lane.walk_through(&part(BROWSER, 2), at(3)).expect("a ride");
    assert!(lane.rides(second));
}

/// Turns go first: a page whose turn has come gets the next free place, however many parts wait.
#[test]
fn parts_do_not_keep_a_page_from_its_turn() {
    let mut lane = Lane::new(Policy { concurrency: 1, page_parts: 100, ..policy() }, 7);
    let mut busy = send(&mut lane, &page(BROWSER), at(0)).expect("free");
    let parked: Vec<Ticket> = (1..9).map(|url| park(&mut lane, &part(BROWSER, url), at(0))).collect();
    let next = lane.join(page(OTHER), at(0)).unwrap().ticket;
    for (index, &part) in parked.iter().enumerate().take(4) {
        let now = at(200 * (index as u64 + 1));
        lane.leave(busy, now);
        assert_eq!(starts(&mut lane, now), [part], "{index}");
        assert_eq!(lane.sent(part, now), None);
        busy = part;
    }
    lane.leave(busy, at(1_000));
    assert_eq!(starts(&mut lane, at(1_000)), [next]);
}

#[test]
fn a_client_with_parts_leaves_others_their_share_of_the_places() {
    let mut lane = Lane::new(Policy { concurrency: 4, page_parts: 100, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    lane.join(page(OTHER), at(0)).unwrap();
    let mut rides = 0;
    while lane.walk_through(&part(BROWSER, 1), at(10)).is_some() {
        rides += 1;
    }
    assert_eq!(rides, 2);
}

#[test]
fn urgent_parts_ride_first() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..policy() }, 7);
    let page = send(&mut lane, &page(BROWSER), at(0)).expect("free");
    let urgencies = [(1, 3), (2, 1), (3, 3)];
    let parked = urgencies.map(|(url, urgency)| park(&mut lane, &Visit { urgency, ..part(BROWSER, url) }, at(0)));
    let mut order = Vec::new();
    let mut last = page;
    for millis in 1..4 {
        lane.leave(last, at(millis));
        let started = starts(&mut lane, at(millis));
        assert_eq!(lane.sent(started[0], at(millis)), None);
        last = started[0];
        order.extend(started);
    }
    assert_eq!(order, [parked[1], parked[0], parked[2]]);
}

#[test]
fn a_part_that_gives_up_gives_its_place_back() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let unsent = lane.walk_through(&part(BROWSER, 1), at(10)).expect("it rides");
    let parked = park(&mut lane, &part(BROWSER, 2), at(10));
    let impatient = park(&mut lane, &Visit { max_wait: Some(Duration::from_millis(300)), ..part(BROWSER, 3) }, at(10));
    lane.leave(unsent, at(20));
    assert_eq!(starts(&mut lane, at(20)), [parked]);
    assert!(
        matches!(lane.next_step(at(311)), Step::Refuse(ticket, LaneRefusal::WaitTooLong { .. }) if ticket == impatient)
    );
    assert_eq!((lane.queued(), lane.in_flight()), (0, 1));
}

#[test]
fn while_curtsy_stops_no_part_rides() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..policy() }, 7);
    let page = send(&mut lane, &page(BROWSER), at(0)).expect("free");
    let parked = park(&mut lane, &part(BROWSER, 1), at(0));
    lane.drain(at(5_000), at(10));
    lane.leave(page, at(10));
    assert_eq!(starts(&mut lane, at(10)), []);
    assert_eq!(starts(&mut lane, at(1_000)), [parked]);
}

/// The audit shares no arithmetic with the lane: it would see parts that ride without a turn, too many, or in a hold.
#[test]
fn the_audit_counts_the_parts_after_each_turn() {
    let mut lane = lane();
    let owed = (2, Timestamp::START);
    assert!(lane.audit.judge_ride(at(0), owed).is_some(), "no turn carries it");
    lane.audit.turn();
    assert_eq!([lane.audit.judge_ride(at(1), owed), lane.audit.judge_ride(at(2), owed)], [None, None]);
    assert_eq!(lane.audit.judge_ride(at(3), owed), Some(Breach::TooManyParts { parts: 3, most: 2 }));
    lane.audit.turn();
    assert_eq!(lane.audit.judge_ride(at(4), owed), None);
    assert_eq!(lane.audit.judge_ride(at(5), (2, at(9))), Some(Breach::Held { until: at(9) }));
}

/// In report mode every request starts at once, and parts would have ridden.
#[test]
fn the_shadow_of_a_part_rides_too() {
    let mut lane = Lane::new(Policy { mode: Mode::Report, concurrency: 10, ..policy() }, 7);
    let mut would_wait = |visit: &Visit, now| {
        let ticket = lane.join(*visit, now).unwrap().ticket;
        assert_eq!(lane.next_step(now), Step::Prepare(ticket));
        lane.ready(ticket, now);
        assert_eq!(lane.next_step(now), Step::Start(ticket));
        assert_eq!(lane.sent(ticket, now), None);
        lane.would_wait(ticket, now).expect("a shadow").as_millis()
    };
    assert_eq!(would_wait(&page(BROWSER), at(0)), 0);
    assert_eq!((1..4).map(|url| would_wait(&part(BROWSER, url), at(10))).collect::<Vec<_>>(), [0, 0, 0]);
    assert_eq!(would_wait(&part(BROWSER, 4), at(10)), 990, "one too many");
    assert_eq!(would_wait(&part(OTHER, 5), at(10)), 1_990, "it has no page");
    assert_eq!(would_wait(&part(BROWSER, 6), at(10)), 990, "it rides on the turn of the fourth");
}

/// A client that comes when told is not refused because a part loses its ride and takes the turn before it.
#[test]
fn a_part_that_loses_its_ride_costs_no_returning_client_its_visit() {
    let mut lane = Lane::new(Policy { page_parts: 1, max_wait: Duration::from_millis(500), ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let told = lane.join(page(OTHER), at(0)).unwrap_err().retry_after();
    assert_eq!(told, Some(Duration::from_secs(1)));
    let next = lane.join(page(BROWSER), at(1_000)).unwrap().ticket;
    assert_eq!(starts(&mut lane, at(1_000)), [next]);
    lane.sent(next, at(1_000));
    lane.leave(next, at(1_010));
    let [rides, loses] = [1, 2].map(|url| lane.join(part(BROWSER, url), at(1_050)).unwrap().ticket);
    assert!(lane.ready(rides, at(1_060)));
    lane.sent(rides, at(1_060));
    lane.leave(rides, at(1_090));
    let returns = lane.join(page(OTHER), at(1_100)).unwrap();
    assert_eq!(returns.expected, at(2_000));
    assert_eq!(starts(&mut lane, at(1_100)), []);
    assert!(!lane.ready(loses, at(1_900)));
    assert_eq!(starts(&mut lane, at(2_000)), [loses]);
    lane.sent(loses, at(2_000));
    assert_eq!(starts(&mut lane, at(3_000)), [returns.ticket]);
}

/// A part that was called to ride waits for a place, not for a turn: the next turn may come after its deadline.
#[test]
fn a_part_that_waits_for_a_place_is_not_refused_because_no_turn_comes() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let impatient = Visit { max_wait: Some(Duration::from_millis(500)), ..part(BROWSER, 1) };
    let joined = lane.join(impatient, at(900)).unwrap();
    assert!(joined.is_called);
    let other = send(&mut lane, &page(OTHER), at(1_000)).expect("the turn is free, and so is the place");
    assert!(!lane.ready(joined.ticket, at(1_050)), "no place");
    assert!(matches!(lane.next_step(at(1_050)), Step::Wait(Some(_))));
    lane.leave(other, at(1_100));
    assert_eq!(starts(&mut lane, at(1_100)), [joined.ticket]);
}

/// It is refused when its own time is over.
#[test]
fn a_part_that_waits_for_a_place_is_refused_at_its_deadline() {
    let mut lane = Lane::new(Policy { concurrency: 1, ..policy() }, 7);
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    let impatient = Visit { max_wait: Some(Duration::from_millis(500)), ..part(BROWSER, 1) };
    let ticket = lane.join(impatient, at(900)).unwrap().ticket;
    assert!(send(&mut lane, &page(OTHER), at(1_000)).is_some());
    assert!(!lane.ready(ticket, at(1_050)), "no place");
    let Step::Wait(Some(alarm)) = lane.next_step(at(1_050)) else { panic!("it waits") };
    // The time that it took to get ready does not count as waiting.
    assert_eq!(alarm.at, at(1_550) + Duration::from_micros(1));
    assert!(matches!(lane.next_step(alarm.at), Step::Refuse(refused, _) if refused == ticket));
}

/// In a fleet, the next turn may be far away: other nodes take turns, too. Parts need none.
#[test]
fn parts_do_not_wait_for_the_appointment_of_their_node() {
    let mut lane = lane();
    assert!(visit(&mut lane, &page(BROWSER), at(0)));
    lane.appoint(at(4_000), 3);
    assert!(visit(&mut lane, &part(BROWSER, 1), at(10)));
    assert!(!visit(&mut lane, &page(BROWSER), at(3_999)));
}
