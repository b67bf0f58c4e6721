//! What a decision costs: time of an admission, memory of a lane and of a visit that waits.
//!
//! `cargo bench --bench pacing` prints one line per figure. Memory is what the process grew by, so the first figures of
//! a run carry some noise. No thresholds: the figures to reach are compared by whoever runs it.

#![expect(clippy::disallowed_methods, reason = "a bench measures real time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use curtsy::politeness::lane::Lane;
use curtsy::politeness::policy::Policy;
use curtsy::politeness::time::Timestamp;
use curtsy::politeness::visit::{ClientId, Outcome, Step, Ticket, Visit};

fn main() {
    println!("size of a lane: {} B", size_of::<Lane>());
    waiting("a client each", 10_000, |n| n);
    waiting("100 clients", 10_000, |n| n % 100);
    waiting("one client", 10_000, |_| 1);
    let lanes = memory_of_lanes(100_000);
    admission_on_one_free_host();
    admission_on_many_free_hosts(lanes);
}

/// A host that may be visited at once, again and again.
fn admission_on_one_free_host() {
    let mut lane = Lane::new(Policy::default(), 1);
    let mut now = Timestamp::from_millis(1_000_000);
    let visits: u64 = 2_000_000;
    let begun = Instant::now();
    for n in 0..visits {
        visit_free(&mut lane, n, now);
        now = now + Duration::from_secs(2);
    }
    report("admission on one free host, join to leave", begun, visits);
}

fn admission_on_many_free_hosts(mut lanes: Vec<Lane>) {
    let count = lanes.len() as u64;
    let mut now = Timestamp::from_millis(1_000_000_000);
    let visits: u64 = 2_000_000;
    let begun = Instant::now();
    for n in 0..visits {
        // A stride coprime to the count visits all of them in an order no cache foresees.
        let index = n.wrapping_mul(7_919) % count;
        visit_free(&mut lanes[index as usize], n, now);
        now = now + Duration::from_micros(100);
    }
    report("admission on 100 000 free hosts, join to leave", begun, visits);
}

fn visit_free(lane: &mut Lane, n: u64, now: Timestamp) {
    let joined = lane.join(black_box(visit(n % 8, n)), now).expect("a free host");
    assert_eq!(lane.next_step(now), Step::Prepare(joined.ticket));
    lane.ready(joined.ticket, now);
    assert_eq!(lane.next_step(now), Step::Start(joined.ticket));
    assert_eq!(lane.sent(joined.ticket, now), None);
    lane.report(joined.ticket, Outcome::Answered, now);
    lane.leave(joined.ticket, now);
}

/// Lanes that were visited once and are idle.
fn memory_of_lanes(count: usize) -> Vec<Lane> {
    let before = resident();
    let mut lanes = Vec::with_capacity(count);
    for n in 0..count {
        let mut lane = Lane::new(Policy::default(), n as u64);
        visit_free(&mut lane, n as u64, Timestamp::from_millis(1_000));
        lanes.push(lane);
    }
    println!("memory of an idle lane: {} B", resident().saturating_sub(before) / count);
    lanes
}

/// A crowd in one lane: joins, leaves from the middle, and is served.
fn waiting(who: &str, count: u64, client: impl Fn(u64) -> u64) {
    let before = resident();
    let policy = Policy { max_wait: Duration::from_secs(1_000_000), max_queue: 1_000_000, ..Policy::default() };
    let mut lane = Lane::new(policy, 1);
    let mut now = Timestamp::from_millis(1_000_000);
    let begun = Instant::now();
    let mut tickets: Vec<Ticket> = Vec::with_capacity(count as usize);
    tickets.extend((0..count).map(|n| lane.join(visit(client(n), n), now).expect("room").ticket));
    report(&format!("{count} waiting ({who}), join"), begun, count);
    let grown = resident().saturating_sub(before + count as usize * size_of::<Ticket>());
    println!("{count} waiting ({who}), memory of each: {} B (0 if it was there already)", grown / count as usize);

    let begun = Instant::now();
    let leaving = tickets.iter().skip(1).step_by(2);
    leaving.for_each(|&ticket| lane.leave(ticket, now));
    report(&format!("{count} waiting ({who}), leave"), begun, count / 2);

    let begun = Instant::now();
    let mut served = 0;
    while lane.queued() > 0 {
        match lane.next_step(now) {
            Step::Prepare(ticket) => lane.ready(ticket, now),
            Step::Start(ticket) => {
                lane.sent(ticket, now);
                lane.leave(ticket, now);
                served += 1;
            }
            Step::Wait(alarm) => now = alarm.expect("somebody waits").at,
            Step::Refuse(..) => panic!("everyone is patient"),
        }
    }
    report(&format!("{count} waiting ({who}), serve"), begun, served);
}

fn visit(client: u64, url: u64) -> Visit {
    Visit { client: ClientId(client), url, urgency: 3, retry: false, max_wait: None }
}

fn report(what: &str, begun: Instant, times: u64) {
    println!("{what}: {:.0} ns", begun.elapsed().as_nanos() as f64 / times as f64);
}

/// Bytes of memory the process uses now.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4096
}
