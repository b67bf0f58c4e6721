//! Measures the cost of a decision: time of an admission, memory of a lane and of a waiting visit.
//!
//! `cargo bench --bench pacing` prints one line per figure, `cargo bench --bench pacing -- gate` only those of one part
//! (lane, waiting, gate, backlog). Unless noted, time is processor time of this thread, which other work on the machine
//! disturbs least; memory is the growth of the process. Both are read from Linux' `/proc`. There are no thresholds: the
//! reader compares the figures with the targets.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use curtsy::gate::{Bounds, Gate, HostPersistence, Permit, Preparation, now};
use curtsy::politeness::HostKey;
use curtsy::politeness::lane::Lane;
use curtsy::politeness::policy::{LearningPolicy, Policy, PolicyBook};
use curtsy::politeness::signals::Signals;
use curtsy::politeness::time::Timestamp;
use curtsy::politeness::visit::{ClientId, LaneRefusal, Step, Ticket, Visit, VisitOutcome};
use curtsy::store::{Retention, Store};

/// The allocator of release builds: `cargo bench --profile dist --features jemalloc`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    // Cargo adds its own arguments, which begin with a dash.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let parts: [(&str, fn()); 4] =
        [("lane", lanes), ("waiting", crowds), ("gate", through_the_gate), ("backlog", a_backlog_at_the_gate)];
    for (name, part) in parts {
        if wanted.is_empty() || wanted.iter().any(|wanted| wanted == name) {
            part();
        }
    }
}

fn lanes() {
    println!("size of a lane: {} B", size_of::<Lane>());
    let lanes = memory_of_lanes(100_000);
    admission_on_one_free_host();
    admission_on_many_free_hosts(lanes);
}

fn crowds() {
    memory_of_waiting(10_000);
    waiting("a client each", 10_000, |n| n);
    waiting("100 clients", 10_000, |n| n % 100);
    waiting("one client", 10_000, |_| 1);
}

/// How much of the allowed rate the gate uses if visits always wait and nothing is sent. `--bench backlog` measures it
/// with sending.
fn a_backlog_at_the_gate() {
    let (hosts, visitors, delay, time) = (1_000, 3, Duration::from_millis(50), Duration::from_secs(5));
    let gate = gate(delay, hosts, hosts * visitors);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let begun = processor_time();
    let visits: u64 = runtime.block_on(async {
        // Workers use the same timer.
        curtsy::timer::install_bell().expect("a timer");
        let until = now() + time;
        let visitor = |n: usize| tokio::spawn(keep_visiting(gate.clone(), host(n % hosts), until));
        let visitors: Vec<_> = (0..hosts * visitors).map(visitor).collect();
        let mut visits = 0;
        for visitor in visitors {
            visits += visitor.await.expect("a visitor");
        }
        visits
    });
    report("a visit that waits at the gate", begun, visits);
    // The first visit to a host does not wait.
    let allowed = hosts as f64 * (time.as_secs_f64() / delay.as_secs_f64() + 1.0);
    println!("1 000 hosts at 50 ms, three waiting at each: {:.1} % used", 100.0 * visits as f64 / allowed);
}

async fn keep_visiting(gate: Arc<Gate>, host: HostKey, until: Timestamp) -> u64 {
    let mut visits = 0;
    loop {
        let mut permit = admit(&gate, &host, visits).await;
        if now() > until {
            return visits;
        }
        permit.sent();
        permit.report(VisitOutcome::Heard(Signals::SERVED), now());
        visits += 1;
    }
}

fn gate(delay: Duration, most_hosts: usize, most_waiting: usize) -> Arc<Gate> {
    let book = PolicyBook::from(Policy { delay, ..Policy::default() });
    let bounds = Bounds { most: most_hosts, idle: Duration::from_secs(3600) };
    let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
    Arc::new(Gate::new(book, bounds, most_waiting, memories, Arc::default()))
}

/// The whole cost of a request's decision: registry, lock, clock and lane.
fn through_the_gate() {
    let gate = gate(Duration::from_millis(1), 100_000, 1000);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let before = resident();
        for n in 0..100_000 {
            go(&gate, &host(n), n as u64).await;
            if n + 1 == 10_000 {
                println!("memory of 10 000 hosts: {} B each", (resident() - before) / 10_000);
            }
        }
        println!("memory of 100 000 hosts: {} B each", (resident() - before) / 100_000);
        at_many_hosts(&gate).await;
        let begun = processor_time();
        let known = host(0);
        for n in 0..100_000 {
            drop(admit(&gate, &known, n).await);
        }
        report("admission through the gate, one host, and left", begun, 100_000);
        let begun = processor_time();
        for n in 0..1_000_000 {
            // Hosts that find no room are refused.
            drop(gate.join(&host(n), visit(n as u64 % 8, n as u64)));
        }
        report("a million hosts in a registry of 100 000, join and leave", begun, 1_000_000);
        println!("memory after a million hosts: {} MiB over empty", (resident() - before) >> 20);
    });
}

/// Visits hosts in an order that no cache predicts. A request has just read its host's name, so only the name is in the
/// caches. Measured with the clock, because processor time is counted in steps longer than a batch; the median, which
/// no interruption moves.
async fn at_many_hosts(gate: &Arc<Gate>) {
    let (batches, batch) = (100, 1_000);
    let (mut admitting, mut settling) = (Vec::new(), Vec::new());
    for first in (0..batches).map(|n| n * batch) {
        let names: Vec<_> = (first..first + batch).map(|n| host(n * 7_919 % 100_000)).collect();
        let mut permits = Vec::with_capacity(batch);
        let begun = now();
        for name in &names {
            permits.push(admit(gate, name, 1).await);
        }
        let admitted = now();
        for mut permit in permits {
            permit.sent();
            permit.report(VisitOutcome::Heard(Signals::SERVED), now());
        }
        admitting.push(admitted.since(begun));
        settling.push(now().since(admitted));
    }
    let each = |times: Vec<Duration>| median(times).as_nanos() / batch as u128;
    println!("admission through the gate at 100 000 hosts: {} ns", each(admitting));
    println!("sent, reported and left after it: {} ns", each(settling));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn host(n: usize) -> HostKey {
    HostKey::parse(&format!("www.host-{n}.example")).expect("a name")
}

async fn go(gate: &Arc<Gate>, host: &HostKey, n: u64) {
    let mut permit = admit(gate, host, n).await;
    permit.sent();
    permit.report(VisitOutcome::Heard(Signals::SERVED), now());
}

async fn admit(gate: &Arc<Gate>, host: &HostKey, n: u64) -> Permit {
    let ((), permit) = gate.visit(host, visit(n % 8, n), now(), &mut Pooled).await.expect("a free host");
    permit
}

/// A request that finds a connection in the pool, as most do.
struct Pooled;

impl Preparation for Pooled {
    type Ready = ();
    type Error = LaneRefusal;

    async fn get_ready(&mut self) -> Result<(), LaneRefusal> {
        Ok(())
    }

    fn at_hand(&mut self) -> Result<Option<()>, LaneRefusal> {
        Ok(Some(()))
    }
}

/// A host that may be visited at once, again and again.
fn admission_on_one_free_host() {
    let mut lane = Lane::new(Policy::default(), 1);
    let mut now = Timestamp::from_millis(1_000_000);
    let visits: u64 = 2_000_000;
    let begun = processor_time();
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
    let begun = processor_time();
    for n in 0..visits {
        // A stride coprime to the count visits all of them in an order that no cache predicts.
        let index = n.wrapping_mul(7_919) % count;
        visit_free(&mut lanes[index as usize], n, now);
        now = now + Duration::from_micros(100);
    }
    report("admission on 100 000 free hosts, join to leave", begun, visits);
}

fn visit_free(lane: &mut Lane, n: u64, now: Timestamp) {
    let schooling = LearningPolicy::default();
    let joined = lane.join(black_box(visit(n % 8, n)), now).expect("a free host");
    assert_eq!(lane.next_step(now), Step::Prepare(joined.ticket));
    lane.ready(joined.ticket, now);
    assert_eq!(lane.next_step(now), Step::Start(joined.ticket));
    assert_eq!(lane.sent(joined.ticket, now), None);
    lane.report(joined.ticket, VisitOutcome::Heard(Signals::SERVED), &schooling, now);
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

/// Measures crowds that stay in memory, so that none reuses the memory of another.
fn memory_of_waiting(count: u64) {
    let lanes = 20;
    let mut crowds = Vec::with_capacity(2 * lanes as usize);
    for (who, clients) in [("a client each", count), ("one client", 1)] {
        let before = resident();
        for _ in 0..lanes {
            let mut lane = patient_lane();
            for n in 0..count {
                lane.join(visit(n % clients, n), Timestamp::from_millis(1)).expect("room");
            }
            crowds.push(lane);
        }
        let each = resident().saturating_sub(before) as u64 / (lanes * count);
        println!("{count} waiting ({who}), memory of each: {each} B");
    }
}

fn patient_lane() -> Lane {
    let policy = Policy { max_wait: Duration::from_secs(1_000_000), max_queue: 1_000_000, ..Policy::default() };
    Lane::new(policy, 1)
}

/// A crowd in one lane: visits join, leave from the middle, and are served. Repeated many times, because the kernel
/// counts processor time in steps of milliseconds.
fn waiting(who: &str, count: u64, client: impl Fn(u64) -> u64) {
    let rounds = 50;
    let now = Timestamp::from_millis(1_000_000);
    let mut lanes: Vec<Lane> = (0..rounds).map(|_| patient_lane()).collect();

    let begun = processor_time();
    let mut tickets: Vec<Vec<Ticket>> = Vec::new();
    for lane in &mut lanes {
        tickets.push((0..count).map(|n| lane.join(visit(client(n), n), now).expect("room").ticket).collect());
    }
    report(&format!("{count} waiting ({who}), join"), begun, rounds * count);

    let begun = processor_time();
    for (lane, tickets) in lanes.iter_mut().zip(&tickets) {
        tickets.iter().skip(1).step_by(2).for_each(|&ticket| lane.leave(ticket, now));
    }
    report(&format!("{count} waiting ({who}), leave"), begun, rounds * count / 2);

    let begun = processor_time();
    let served: u64 = lanes.iter_mut().map(|lane| serve(lane, now)).sum();
    report(&format!("{count} waiting ({who}), serve"), begun, served);
}

fn serve(lane: &mut Lane, mut now: Timestamp) -> u64 {
    let mut served = 0;
    while lane.queued() > 0 {
        match lane.next_step(now) {
            Step::Prepare(ticket) => assert!(!lane.ready(ticket, now)),
            Step::Start(ticket) => {
                lane.sent(ticket, now);
                lane.leave(ticket, now);
                served += 1;
            }
            Step::Wait(alarm) => now = alarm.expect("a visit waits").at,
            Step::Refuse(..) => panic!("no visit has a deadline so soon"),
        }
    }
    served
}

fn visit(client: u64, url: u64) -> Visit {
    Visit::new(ClientId(client), url)
}

fn report(what: &str, begun: u64, times: u64) {
    println!("{what}: {} ns", (processor_time() - begun) / times);
}

/// Nanoseconds this thread has run.
fn processor_time() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

/// Bytes of memory the process uses now.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * 4096
}
