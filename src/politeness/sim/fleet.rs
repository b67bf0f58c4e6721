//! Several nodes with real lanes and one ledger, on a virtual clock: wires delay and lose calls, clocks differ, the
//! ledger hangs, goes away, is emptied, is rolled back or has its clock set, nodes are cut off, stopped and killed.
//!
//! The judge knows only when requests reached the origin. `CURTSY_SIM_SEEDS=100000 cargo test --release fleet_worlds`
//! makes a long run. [`FleetFlaw`] makes the nodes or the ledger do something wrong: each flaw must be caught.

mod faults;
mod lessons;
mod nodes;

use std::collections::BTreeMap;
use std::time::Duration;

use self::faults::Fault;
use self::nodes::{Call, Grant, SimNode};
use super::seeds;
use crate::politeness::fleet::calls::{Answer, Beat, Claim, HostNews};
use crate::politeness::fleet::node::Window;
use crate::politeness::fleet::shared::Shared;
use crate::politeness::lab::Dice;
use crate::politeness::visit::Ticket;

const HOST: &str = "host.test";
const TIMEOUT: u64 = 500_000;
const END: u64 = 18_000_000;

/// What a node or the ledger can do wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FleetFlaw {
    /// The ledger counts a start from the beginning of its window.
    WindowIsNotCounted,
    /// A node hands back turns that it has used.
    HandsBackUsedTurns,
    /// A ledger that was emptied counts every host as free.
    NoEra,
    /// The ledger forgets holds, and nodes do not repeat them.
    IgnoresHolds,
    /// A node that is alone starts at its own pace.
    NoSlots,
    /// A node that is alone starts before the others can know that it is.
    IsNotQuiet,
    /// A node that returns does not tell what it started alone.
    KeepsStartsToItself,
    /// A node never doubts the memory of the ledger.
    NeverDoubts,
    /// Nodes claim the slots of a missing node.
    IgnoresTheMissing,
    /// A node sends although its window is over.
    SendsLate,
    /// A node sends as soon as it hears of the grant.
    SendsEarly,
    /// The ledger grants a burst without taking a token.
    TakesNoToken,
    /// A node that is back starts wherever the ledger lets it, although others may still be alone.
    ReturnsAtOnce,
}

#[derive(Clone, Debug)]
enum FleetEvent {
    Visit(usize),
    Drive(usize),
    Beat(usize),
    Arrive { node: usize, id: u64, call: Box<Call> },
    Answer { node: usize, id: u64, reply: Reply },
    Timeout { node: usize, id: u64 },
    Send { node: usize, ticket: Ticket, window: Window, grant: Option<Grant> },
    Leave(usize, Ticket),
    Fault(Fault),
}

#[derive(Clone, Debug)]
enum Reply {
    Claimed(Box<Answer>),
    Beaten(Beat),
    Time(u64),
    Done,
    Away,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedgerHealth {
    Up,
    /// Calls fail at once.
    Away,
    /// Calls lie in its sockets until it goes on.
    Stopped,
}

struct FleetWorld {
    dice: Dice,
    now: u64,
    events: BTreeMap<(u64, u64), FleetEvent>,
    numbers: u64,
    shared: Shared,
    snapshot: Option<Shared>,
    /// The ledger's clock minus the true time.
    skew: i64,
    health: LedgerHealth,
    backlog: Vec<(usize, u64, Box<Call>)>,
    nodes: Vec<SimNode>,
    flaw: Option<FleetFlaw>,
    delay: u64,
    burst: u32,
    wire: u64,
    judge: Judge,
    log: Option<Vec<String>>,
}

/// What the origin sees.
#[derive(Debug, Default)]
struct Judge {
    last: Option<u64>,
    tokens: f64,
    /// No start is allowed within these times.
    held: Option<(u64, u64)>,
    sends: u64,
    alone: u64,
    broken: Option<String>,
}

impl Judge {
    fn send(&mut self, at: u64, delay: u64, burst: u32) {
        self.sends += 1;
        let gap = self.last.map_or(u64::MAX, |last| at - last);
        if burst <= 1 && gap < delay {
            self.broken.get_or_insert_with(|| format!("gap {gap} at {at}, owed {delay}"));
        }
        let refill = gap as f64 / delay as f64;
        self.tokens = if self.last.is_none() { burst.into() } else { (self.tokens + refill).min(burst.into()) };
        if burst > 1 && self.tokens < 1.0 - 1e-6 {
            self.broken.get_or_insert_with(|| format!("{} tokens at {at}", self.tokens));
        }
        self.tokens -= 1.0;
        if self.held.is_some_and(|(from, until)| at > from && at < until) {
            self.broken.get_or_insert_with(|| format!("sent at {at}, held {:?}", self.held));
        }
        self.last = Some(at);
    }
}

impl FleetWorld {
    fn new(seed: u64, flaw: Option<FleetFlaw>) -> Self {
        let mut dice = Dice(seed ^ 0x5eed_f1ee);
        let count = 1 + dice.below(8) as usize;
        let delay = [50_000, 100_000, 400_000, 1_000_000][dice.below(4) as usize];
        let burst = if dice.chance(15) { 2 + dice.below(3) as u32 } else { 1 };
        let wire = [100, 300, 3_000][dice.below(3) as usize];
        let mut world = FleetWorld {
            now: 0,
            events: BTreeMap::new(),
            numbers: 0,
            shared: Shared::named(1),
            snapshot: None,
            skew: dice.below(1_000_000_000) as i64 + 1_000_000_000,
            health: LedgerHealth::Up,
            backlog: Vec::new(),
            nodes: Vec::new(),
            flaw,
            delay,
            burst,
            wire,
            judge: Judge::default(),
            dice,
            log: None,
        };
        for index in 0..count {
            let skew = world.dice.below(2_000_000_000) as i64 + 5_000_000_000;
            let policy = nodes::policy(Duration::from_micros(delay), burst);
            world.nodes.push(SimNode::new(index, count, skew, policy));
            let (beat, visit) = (world.dice.below(400_000), 500_000 + world.dice.below(1_000_000));
            world.at(beat, FleetEvent::Beat(index));
            world.at(visit, FleetEvent::Visit(index));
        }
        world.plan_faults();
        world
    }

    fn at(&mut self, time: u64, event: FleetEvent) {
        self.numbers += 1;
        self.events.insert((time.max(self.now), self.numbers), event);
    }

    fn after(&mut self, time: u64, event: FleetEvent) {
        self.at(self.now + time, event);
    }

    fn theirs(&self) -> u64 {
        self.now.saturating_add_signed(self.skew)
    }

    fn local(&self, node: usize) -> u64 {
        self.now.saturating_add_signed(self.nodes[node].skew)
    }

    fn flawed(&self, flaw: FleetFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn say(&mut self, story: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(log) = &mut self.log {
            log.push(format!("{now:>9} {}", story()));
        }
    }

    fn aloud(mut self) -> Self {
        self.log = Some(Vec::new());
        self
    }

    fn run(mut self) -> Result<Judge, (String, Vec<String>)> {
        while let Some(((time, _), event)) = self.events.pop_first() {
            if time > END {
                break;
            }
            self.now = time;
            self.happen(event);
            if let Some(broken) = self.judge.broken.take() {
                return Err((broken, self.log.unwrap_or_default()));
            }
        }
        Ok(self.judge)
    }

    fn happen(&mut self, event: FleetEvent) {
        let node = match event {
            FleetEvent::Visit(node) | FleetEvent::Drive(node) | FleetEvent::Beat(node) | FleetEvent::Leave(node, _) => {
                node
            }
            FleetEvent::Answer { node, .. } | FleetEvent::Timeout { node, .. } | FleetEvent::Send { node, .. } => node,
            FleetEvent::Arrive { node, id, call } => return self.arrive(node, id, call),
            FleetEvent::Fault(fault) => return self.fault(fault),
        };
        let SimNode { stopped_until, is_dead, .. } = self.nodes[node];
        if is_dead {
            return;
        }
        if stopped_until > self.now {
            return self.at(stopped_until, event);
        }
        match event {
            FleetEvent::Visit(node) => self.visit(node),
            FleetEvent::Drive(node) => self.drive(node),
            FleetEvent::Beat(node) => self.beat(node),
            FleetEvent::Answer { node, id, reply } => self.answer(node, id, reply),
            FleetEvent::Timeout { node, id } => self.time_out(node, id),
            FleetEvent::Send { node, ticket, window, grant } => self.send(node, ticket, window, grant),
            FleetEvent::Leave(node, ticket) => self.leave(node, ticket),
            FleetEvent::Arrive { .. } | FleetEvent::Fault(_) => {}
        }
    }

    /// A call reaches the ledger.
    fn arrive(&mut self, node: usize, id: u64, call: Box<Call>) {
        match self.health {
            LedgerHealth::Up => {
                let reply = self.execute(node, *call);
                self.reply(node, id, reply);
            }
            LedgerHealth::Away => self.reply(node, id, Reply::Away),
            LedgerHealth::Stopped => self.backlog.push((node, id, call)),
        }
    }

    fn reply(&mut self, node: usize, id: u64, reply: Reply) {
        let is_lost = self.nodes[node].cut_until > self.now || self.dice.below(5_000) == 0;
        let wire = self.on_the_wire();
        if !is_lost {
            self.after(wire, FleetEvent::Answer { node, id, reply });
        }
    }

    fn on_the_wire(&mut self) -> u64 {
        let slow = if self.dice.chance(1) { self.dice.below(30_000) } else { 0 };
        self.wire / 2 + self.dice.below(self.wire) + slow
    }

    fn execute(&mut self, node: usize, call: Call) -> Reply {
        let now = self.theirs();
        match call {
            Call::Claim { claim, .. } => Reply::Claimed(Box::new(self.rule(&claim, now))),
            Call::Beat { until } if now > until => Reply::Away,
            Call::Beat { .. } => Reply::Beaten(self.shared.beat(&format!("node-{node}"), false, now)),
            Call::Settle(settled) => {
                self.shared.settle(HOST, &settled);
                Reply::Done
            }
            Call::Hold { until } => {
                if !self.flawed(FleetFlaw::IgnoresHolds) {
                    self.shared.tell(HOST, &nodes::hold(until));
                }
                let end = until.saturating_add_signed(-self.skew);
                self.judge.held = Some((self.now + 100_000, end));
                Reply::Done
            }
            Call::Ping => Reply::Time(now),
        }
    }

    fn rule(&mut self, claim: &Claim, now: u64) -> Answer {
        let mut claim = claim.clone();
        match self.flaw {
            Some(FleetFlaw::WindowIsNotCounted) => claim.window = 0,
            Some(FleetFlaw::IgnoresHolds) => claim.held = 0,
            Some(FleetFlaw::NeverDoubts) => claim.doubt = 0,
            Some(FleetFlaw::IgnoresTheMissing) => claim.missing.clear(),
            Some(FleetFlaw::ReturnsAtOnce) => claim.mine = None,
            Some(FleetFlaw::TakesNoToken) if claim.burst > 1 => claim.burst *= 2,
            _ => {}
        }
        let answer = self.shared.claim(HOST, &claim, now);
        self.say(|| format!("ledger: number {} → {:?}", claim.number, answer.ruling));
        answer
    }
}

/// Versions are not part of these worlds: all that changes is a hold.
fn is_quiet(news: &HostNews) -> bool {
    news.version == 0
}

#[test]
fn fleet_worlds_keep_their_distance() {
    let (mut sends, mut alone) = (0, 0);
    for seed in seeds(40) {
        match FleetWorld::new(seed, None).run() {
            Ok(judge) => (sends, alone) = (sends + judge.sends, alone + judge.alone),
            Err((broken, _)) => {
                let (_, log) = FleetWorld::new(seed, None).aloud().run().expect_err("the same again");
                let tail = log.len().saturating_sub(60);
                panic!("seed {seed}: {broken}\n{}", log[tail..].join("\n"));
            }
        }
    }
    assert!(sends > 1_000 && alone > 40, "too quiet to prove anything: {sends} sends, {alone} alone");
}

#[test]
fn every_flaw_of_a_fleet_is_caught() {
    let flaws = [
        FleetFlaw::WindowIsNotCounted,
        FleetFlaw::HandsBackUsedTurns,
        FleetFlaw::NoEra,
        FleetFlaw::IgnoresHolds,
        FleetFlaw::NoSlots,
        FleetFlaw::IsNotQuiet,
        FleetFlaw::KeepsStartsToItself,
        FleetFlaw::NeverDoubts,
        FleetFlaw::IgnoresTheMissing,
        FleetFlaw::SendsLate,
        FleetFlaw::SendsEarly,
        FleetFlaw::TakesNoToken,
        FleetFlaw::ReturnsAtOnce,
    ];
    for flaw in flaws {
        let caught = (0..150).any(|seed| FleetWorld::new(seed, Some(flaw)).run().is_err());
        assert!(caught, "{flaw:?} is not noticed");
    }
}
