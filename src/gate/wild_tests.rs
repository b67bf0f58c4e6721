//! The gate under random load: visits arrive in crowds, leave at any moment, never get their connection or are refused,
//! while policies change, hosts are held and idle lanes are forgotten. Runs on virtual time, with many seeds.
//!
//! The simulation of the core checks what lanes decide. This checks what the gate keeps beside them: wakers, timers,
//! tickets, permits and counts.

use std::collections::HashMap;
use std::sync::Mutex;

use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::politeness::policy::Policy;
use crate::politeness::signals::{PaceSignal, Signals};
use crate::politeness::visit::{PagePart, Purpose, Visit, VisitOutcome};
use crate::store::{Retention, Store};

const HOSTS: u64 = 4;
const VISITS: u64 = 150;
/// The least delay of any policy in this test.
const LEAST: Duration = Duration::from_millis(40);
/// Longer than any visit can take.
const END: Duration = Duration::from_secs(300);

struct GateWorld {
    gate: Arc<Gate>,
    sends: Mutex<HashMap<u64, Vec<(Instant, Purpose)>>>,
    told: AtomicUsize,
}

fn book(dice: &mut fastrand::Rng) -> PolicyBook {
    let general = Policy {
        delay: LEAST + Duration::from_millis(dice.u64(..200)),
        concurrency: dice.u32(1..5),
        max_wait: Duration::from_secs(dice.u64(1..20)),
        max_queue: dice.usize(1..100),
        ..Policy::default()
    };
    PolicyBook::from(general)
}

fn bounds(dice: &mut fastrand::Rng) -> Bounds {
    Bounds { most: dice.usize(1..6), idle: Duration::from_secs(1) }
}

fn some(dice: &mut fastrand::Rng, most: u64) -> Duration {
    Duration::from_millis(dice.u64(..=most))
}

/// Runs one visit from its arrival to its end, however it ends.
async fn visit(world: Arc<GateWorld>, seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    sleep(some(&mut dice, 8_000)).await;
    let number = dice.u64(..HOSTS);
    let host = HostKey::parse(&format!("h{number}.test")).unwrap();
    let client = ClientId(dice.u64(..5));
    let visit = Visit {
        client,
        peer: client,
        origin: OriginId(dice.u32(..2)),
        url: dice.u64(..50),
        urgency: dice.u8(..8),
        retry: dice.u8(..20) == 0,
        max_wait: dice.bool().then(|| some(&mut dice, 5_000)),
        crawl_delay: Duration::ZERO,
        denied: false,
        tunnelled: false,
        may_share: false,
        purpose: [Purpose::Page, Purpose::RobotsFetch, Purpose::AfterRobotsFetch][dice.usize(..3)],
        part: PagePart::No,
    };
    let stay = if dice.u8(..4) == 0 { some(&mut dice, 2_000) } else { END };
    let whole = pass(&world, number, &host, visit, dice);
    if timeout(stay, whole).await.is_err() {
        assert!(stay < END, "seed {seed}: a visit was never told anything");
    }
    world.told.fetch_add(1, Relaxed);
}

/// A visit that opens its connection, or fails to.
struct WildVisit {
    dice: fastrand::Rng,
    origin: Origin,
}

impl Preparation for WildVisit {
    type Ready = ();
    type Error = Option<LaneRefusal>;

    async fn get_ready(&mut self) -> Result<(), Option<LaneRefusal>> {
        sleep(some(&mut self.dice, 400)).await;
        if self.dice.u8(..10) == 0 { Err(None) } else { Ok(()) }
    }

    /// Half of the visits have a connection ready.
    fn at_hand(&mut self) -> Result<Option<()>, Option<LaneRefusal>> {
        Ok(self.dice.bool().then_some(()))
    }

    fn blamed(&self, error: &Option<LaneRefusal>) -> Option<&Origin> {
        error.is_none().then_some(&self.origin)
    }
}

async fn pass(world: &GateWorld, number: u64, host: &HostKey, visit: Visit, dice: fastrand::Rng) {
    let purpose = visit.purpose;
    let mut wild = WildVisit { dice, origin: Origin::of_tunnel(host.clone(), 81) };
    let Ok(((), mut permit)) = world.gate.visit(host, visit, now(), &mut wild).await else { return };
    let mut dice = wild.dice;
    if dice.u8(..10) == 0 {
        return;
    }
    sleep(some(&mut dice, 30)).await;
    permit.sent();
    world.sends.lock().unwrap().entry(number).or_default().push((clock::now(), purpose));
    sleep(some(&mut dice, 500)).await;
    let outcome = match dice.u8(..20) {
        0 => VisitOutcome::Heard(Signals { answer: PaceSignal::Throttled, ..Signals::SERVED }),
        1 => VisitOutcome::Failed,
        2 => VisitOutcome::Opened,
        _ => VisitOutcome::Heard(Signals::SERVED),
    };
    permit.report(outcome, now());
    sleep(some(&mut dice, 300)).await;
}

/// Does what an operator and the sweeper do meanwhile.
async fn disturb(world: Arc<GateWorld>, seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    for _ in 0..20 {
        sleep(some(&mut dice, 1_000)).await;
        match dice.u8(..4) {
            0 => world.gate.change(book(&mut dice), bounds(&mut dice), dice.usize(..200), Apply::All),
            1 => {
                let host = HostKey::parse(&format!("h{}.test", dice.u64(..HOSTS))).unwrap();
                world.gate.hold(&host, now() + some(&mut dice, 3_000));
            }
            _ => world.gate.sweep(),
        }
    }
}

async fn live(seed: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let metrics: Arc<Metrics> = Arc::default();
    let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
    let gate = Arc::new(Gate::new(book(&mut dice), bounds(&mut dice), 100, memories, metrics.clone()));
    let world = Arc::new(GateWorld { gate, sends: Mutex::default(), told: AtomicUsize::new(0) });
    let mut tasks: Vec<_> = (0..VISITS).map(|_| tokio::spawn(visit(world.clone(), dice.u64(..)))).collect();
    tasks.push(tokio::spawn(disturb(world.clone(), dice.u64(..))));
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(world.told.load(Relaxed) as u64, VISITS);
    assert_eq!(metrics.spacing_violations.get(), 0, "seed {seed}");
    assert_eq!(world.gate.queued(), 0, "seed {seed}: a visit is still counted as waiting");
    for (host, sends) in &*world.sends.lock().unwrap() {
        for pair in sends.windows(2) {
            let gap = pair[1].0 - pair[0].0;
            if (pair[0].1, pair[1].1) == (Purpose::RobotsFetch, Purpose::AfterRobotsFetch) {
                continue;
            }
            assert!(gap + Duration::from_millis(1) >= LEAST, "seed {seed}, host {host}: {gap:?} apart");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_visits_do_the_gate_keeps_its_promises() {
    for seed in 0..60 {
        live(seed).await;
    }
}
