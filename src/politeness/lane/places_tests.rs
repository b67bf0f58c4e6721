//! Tests of places between clients, long transfers, and admitted requests, with literal times in milliseconds.

use super::*;
use crate::politeness::visit::{ClientId, LaneRefusal, Step, Visit};

const fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000_000 + millis)
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn visit(client: u64, url: u64) -> Visit {
    Visit::new(ClientId(client), url)
}

/// A lane without spacing, so that only places count.
fn places(concurrency: u32, max_wait: u64) -> Lane {
    Lane::new(Policy { delay: Duration::ZERO, concurrency, max_wait: ms(max_wait), ..Policy::default() }, 1)
}

/// Sends every visit that can start at `now`, and returns them.
fn send_all(lane: &mut Lane, now: Timestamp) -> Vec<Ticket> {
    let mut sent = Vec::new();
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
            Step::Start(ticket) => {
                assert_eq!(lane.sent(ticket, now), None);
                sent.push(ticket);
            }
            Step::Refuse(..) => {}
            Step::Wait(_) => return sent,
        }
    }
}

fn join(lane: &mut Lane, client: u64, url: u64, now: Timestamp) -> Ticket {
    lane.join(visit(client, url), now).expect("room").ticket
}

/// X65: a client whose visits take long gets no place that another client waits for, once it has its share.
#[test]
fn a_client_holds_no_more_than_its_share_of_places_while_another_waits() {
    let mut lane = places(4, 150_000);
    for url in 0..20 {
        join(&mut lane, 1, url, at(0));
    }
    let slow = send_all(&mut lane, at(0));
    assert_eq!(slow.len(), 4, "alone it has all of them");
    let quick: Vec<Ticket> = (0..20).map(|url| join(&mut lane, 2, url, at(1))).collect();
    // One visit of the slow client ends each second; the quick client's visits end at once.
    let mut served = 0;
    for (second, ticket) in slow.into_iter().enumerate().take(2) {
        let mut now = at(1_000 * (second as u64 + 1));
        lane.leave(ticket, now);
        for _ in 0..5 {
            for started in send_all(&mut lane, now) {
                assert!(quick.contains(&started), "the slow client has {} places already", 3 - second);
                served += 1;
                lane.leave(started, now + ms(1));
            }
            now = now + ms(2);
        }
    }
    assert!(served >= 10, "{served}");
}

/// Retry-After is computed from the visits under way, not only from those that have ended.
#[test]
fn retry_after_grows_with_the_age_of_what_is_in_flight() {
    let mut lane = places(2, 10_000);
    let quick = join(&mut lane, 1, 0, at(0));
    send_all(&mut lane, at(0));
    lane.leave(quick, at(100));
    join(&mut lane, 1, 1, at(200));
    join(&mut lane, 1, 2, at(200));
    assert_eq!(send_all(&mut lane, at(200)).len(), 2);
    let impatient = |url| Visit { max_wait: Some(Duration::ZERO), ..visit(2, url) };
    let told = |lane: &mut Lane, url, now| match lane.join(impatient(url), at(now)) {
        Err(LaneRefusal::WaitTooLong { retry_after }) => retry_after.as_secs(),
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut lane, 1, 210), 1, "visits usually take 100 ms");
    assert_eq!(told(&mut lane, 2, 10_200), 10, "these have taken ten seconds");
    assert_eq!(told(&mut lane, 3, 40_200), 40);
}

/// 150 visits at 1 s apart with a max_wait of 150 s. The last one is expected at the very end of it.
#[test]
fn an_admitted_visit_is_not_refused_because_each_send_is_a_little_late() {
    let mut lane = Lane::new(Policy::default(), 1);
    let (mut now, mut admitted) = (at(0), 0);
    for url in 0..200 {
        admitted += usize::from(lane.join(visit(1, url), now).is_ok());
    }
    assert_eq!(admitted, 151, "one starts at once, and the last is expected after exactly max_wait");
    let mut sent = 0;
    loop {
        match lane.next_step(now) {
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
            Step::Start(ticket) => {
                // From the turn to the socket.
                now = now + Duration::from_micros(300);
                assert_eq!(lane.sent(ticket, now), None);
                lane.leave(ticket, now);
                sent += 1;
            }
            Step::Refuse(_, refusal) => panic!("after {sent} were sent: {refusal:?}"),
            Step::Wait(Some(alarm)) => now = alarm.at,
            Step::Wait(None) => break,
        }
    }
    assert_eq!(sent, 151);
}

/// A visit that can no longer be served in time is refused when that happens, not when its patience ends.
#[test]
fn a_longer_delay_refuses_at_once_visits_that_can_no_longer_be_served_in_time() {
    let mut lane = Lane::new(Policy::default(), 1);
    for url in 0..101 {
        join(&mut lane, 1, url, at(0));
    }
    assert_eq!(send_all(&mut lane, at(0)).len(), 1);
    lane.set_learned_delay(ms(3_000), at(10));
    let mut refused = Vec::new();
    loop {
        match lane.next_step(at(10)) {
            Step::Refuse(_, LaneRefusal::WaitTooLong { retry_after }) => refused.push(retry_after),
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, at(10))),
            Step::Start(_) => panic!("too early"),
            Step::Refuse(_, refusal) => panic!("{refusal:?}"),
            Step::Wait(_) => break,
        }
    }
    assert!((45..=51).contains(&refused.len()), "{} were refused", refused.len());
    assert!(refused.iter().all(|told| *told >= ms(147_000)), "{refused:?}");
}

/// X70: a WebSocket gives its place back at once, a download when it has become long; both are bounded.
#[test]
fn long_transfers_move_to_places_of_their_own() {
    let mut lane = places(2, 150_000);
    let sockets: Vec<Ticket> = (0..2).map(|url| join(&mut lane, 1, url, at(0))).collect();
    assert_eq!(send_all(&mut lane, at(0)), sockets);
    lane.stays_open(sockets[0]);
    lane.transfers(sockets[1]);
    let next = join(&mut lane, 2, 1, at(10));
    assert_eq!(send_all(&mut lane, at(10)), [next], "the WebSocket's place is free");
    assert_eq!((lane.in_flight(), lane.lasting()), (2, 1));
    let behind = join(&mut lane, 2, 2, at(20));
    let Step::Wait(Some(alarm)) = lane.next_step(at(20)) else { panic!("there is no place") };
    assert_eq!(alarm.at, at(30_000), "when the download has become long");
    assert_eq!(send_all(&mut lane, alarm.at), [behind]);
    assert_eq!((lane.in_flight(), lane.lasting()), (2, 2));
    lane.stays_open(next);
    lane.stays_open(behind);
    join(&mut lane, 3, 3, at(40_000));
    assert_eq!(send_all(&mut lane, at(40_000)), [], "places for long transfers are full, too");
    lane.leave(sockets[0], at(50_000));
    assert_eq!(send_all(&mut lane, at(50_000)).len(), 1);
    assert_eq!((lane.in_flight(), lane.lasting()), (2, 2));
}

/// A visit whose origin has not answered is not a transfer: a slow host gets no more visits because of it.
#[test]
fn a_slow_answer_gives_no_place_back() {
    let mut lane = places(1, 150_000);
    let slow = join(&mut lane, 1, 1, at(0));
    send_all(&mut lane, at(0));
    join(&mut lane, 2, 2, at(10));
    assert_eq!(send_all(&mut lane, at(100_000)), []);
    lane.transfers(slow);
    assert_eq!(send_all(&mut lane, at(100_000)).len(), 1);
}

/// X65, X70: one client cannot fill the places of both kinds.
#[test]
fn one_client_leaves_a_place_to_others_however_many_transfers_it_has() {
    let mut lane = places(3, 150_000);
    for url in 0..20 {
        join(&mut lane, 1, url, at(0));
    }
    for second in 0..10 {
        for ticket in send_all(&mut lane, at(second * 1_000)) {
            lane.stays_open(ticket);
        }
    }
    assert_eq!((lane.in_flight(), lane.lasting()), (2, 3));
    assert_eq!(lane.walk_through(&visit(1, 99), at(20_000)), None);
    let other = join(&mut lane, 2, 1, at(20_000));
    assert_eq!(send_all(&mut lane, at(20_000)), [other]);
}
