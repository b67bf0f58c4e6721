//! One node of a fleet: its lane, its standing, and the calls it waits for. The same steps as `gate/claim.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{FleetEvent, FleetFlaw, FleetWorld, Reply, TIMEOUT, is_quiet};
use crate::politeness::fleet::appointment::Appointment;
use crate::politeness::fleet::calls::{Answer, Claim, Settlement, Told, UnusedTurn};
use crate::politeness::fleet::node::{Node, Plan, Verdict, Window, Wish};
use crate::politeness::fleet::slots::{self, Slots};
use crate::politeness::fleet::standing::{BEAT, StandingState};
use crate::politeness::lane::Lane;
use crate::politeness::policy::Policy;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Step, Ticket, Visit};

pub(super) struct SimNode {
    node: Node,
    lane: Lane,
    appointment: Appointment,
    /// Its clock minus the true time.
    pub(super) skew: i64,
    calls: BTreeMap<u64, (Call, u64)>,
    /// The last start without a claim, by the ledger's clock.
    started_alone: u64,
    visits: u64,
    pub(super) cut_until: u64,
    pub(super) stopped_until: u64,
    pub(super) is_dead: bool,
}

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "most calls are claims")]
pub(super) enum Call {
    Claim { ticket: Ticket, claim: Claim, wish: Wish },
    Beat { until: u64 },
    Settle(Settlement),
    Hold { until: u64 },
    Ping,
}

/// What a granted claim leaves behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    unused: UnusedTurn,
    next: Option<(u64, u64)>,
    others: u64,
}

pub(super) fn policy(delay: Duration, burst: u32) -> Policy {
    Policy { delay, burst, concurrency: 100, max_wait: Duration::from_secs(600), ..Policy::default() }
}

pub(super) fn hold(until: u64) -> Told {
    Told { held: until, ..Told::default() }
}

impl SimNode {
    pub(super) fn new(index: usize, count: usize, skew: i64, policy: Policy) -> Self {
        let slots = Slots { rank: index as u32, nodes: count as u32 };
        SimNode {
            node: Node::new(slots, TIMEOUT, 0_u64.saturating_add_signed(skew)),
            lane: Lane::new(policy, 7),
            appointment: Appointment::default(),
            skew,
            calls: BTreeMap::new(),
            started_alone: 0,
            visits: 0,
            cut_until: 0,
            stopped_until: 0,
            is_dead: false,
        }
    }
}

fn stamp(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

impl FleetWorld {
    pub(super) fn visit(&mut self, node: usize) {
        let now = stamp(self.local(node));
        let number = self.nodes[node].visits;
        self.nodes[node].visits += 1;
        let pause = self.dice.below(3 * self.delay);
        if self.nodes[node].lane.queued() < 20 {
            let _ = self.nodes[node].lane.join(Visit::new(ClientId(number % 3), number), now);
        }
        self.after(pause, FleetEvent::Visit(node));
        self.drive(node);
    }

    pub(super) fn drive(&mut self, node: usize) {
        loop {
            let now = stamp(self.local(node));
            let lane = &mut self.nodes[node].lane;
            match lane.next_step(now) {
                Step::Prepare(ticket) => {
                    if lane.ready(ticket, now) {
                        self.started(node, ticket);
                    }
                }
                Step::Start(ticket) => self.started(node, ticket),
                Step::Refuse(..) => {}
                Step::Wait(alarm) => {
                    if let Some(alarm) = alarm {
                        let wait = alarm.at.since(now).as_micros() as u64;
                        let late = self.dice.below(200);
                        self.after(wait.max(1) + late, FleetEvent::Drive(node));
                    }
                    return;
                }
            }
        }
    }

    /// The lane starts a visit: asks the ledger, or looks for a slot.
    fn started(&mut self, node: usize, ticket: Ticket) {
        let now = self.local(node);
        let (is_hasty, is_free) = (self.flawed(FleetFlaw::IsNotQuiet), self.flawed(FleetFlaw::NoSlots));
        let SimNode { node: this, lane, appointment, .. } = &mut self.nodes[node];
        let Some(terms) = lane.turn_terms(ticket) else { return };
        let wish = appointment.wish(&terms);
        let plan = match this.plan(&wish, now) {
            Plan::Wait { .. } if is_hasty && this.state() == StandingState::Alone => {
                let (slots, step) = (this.standing().slots(), slots::step(wish.delay));
                let from = this.local(slots.next(this.theirs(now, now), step), now);
                Plan::Start(Window { from, until: from + 5_000 })
            }
            Plan::Wait { .. } if is_free && this.state() == StandingState::Alone => {
                Plan::Start(Window { from: now, until: now + 5_000 })
            }
            plan => plan,
        };
        match plan {
            Plan::Ask(claim) => self.call(node, Call::Claim { ticket, claim, wish }),
            Plan::Start(window) => {
                appointment.use_slot(window.from);
                let wait = window.from.saturating_sub(now);
                self.after(wait, FleetEvent::Send { node, ticket, window, grant: None });
            }
            Plan::Wait { until, others } => {
                appointment.keep(&wish);
                lane.put_off(ticket, stamp(until), others as u32, stamp(now));
            }
        }
    }

    pub(super) fn call(&mut self, node: usize, call: Call) {
        self.numbers += 1;
        let (id, asked) = (self.numbers, self.local(node));
        self.nodes[node].calls.insert(id, (call.clone(), asked));
        self.after(TIMEOUT, FleetEvent::Timeout { node, id });
        let wire = self.on_the_wire();
        if self.nodes[node].cut_until <= self.now {
            self.after(wire, FleetEvent::Arrive { node, id, call: Box::new(call) });
        }
    }

    pub(super) fn time_out(&mut self, node: usize, id: u64) {
        if self.nodes[node].calls.contains_key(&id) {
            self.answer(node, id, Reply::Away);
        }
    }

    pub(super) fn answer(&mut self, node: usize, id: u64, reply: Reply) {
        let now = self.local(node);
        let Some((call, asked)) = self.nodes[node].calls.remove(&id) else { return };
        if matches!(reply, Reply::Away) || now > asked + TIMEOUT {
            self.say(|| format!("node {node}: {call:?} failed"));
            self.nodes[node].node.failed(now);
            if let Call::Claim { ticket, wish, .. } = call {
                self.nodes[node].appointment.keep(&wish);
                self.started(node, ticket);
            }
            return;
        }
        match (call, reply) {
            (Call::Claim { ticket, claim, wish }, Reply::Claimed(answer)) => {
                self.claimed(node, (ticket, claim, wish), *answer, asked);
            }
            (Call::Beat { .. }, Reply::Beaten(beat)) => {
                let state = self.nodes[node].node.beat(&beat, asked, now);
                self.say(|| format!("node {node}: {beat:?} {state:?}"));
            }
            (Call::Ping, Reply::Time(theirs)) if self.nodes[node].node.answers_again(theirs, asked, now) => {
                let sent = self.nodes[node].started_alone;
                if sent > 0 && !self.flawed(FleetFlaw::KeepsStartsToItself) {
                    self.call(node, Call::Settle(Settlement { sent, ..Settlement::default() }));
                } else {
                    self.beat_now(node);
                }
            }
            (Call::Settle(_), Reply::Done) if self.nodes[node].node.state() == StandingState::Telling => {
                self.beat_now(node);
            }
            _ => {}
        }
    }

    fn claimed(&mut self, node: usize, asked: (Ticket, Claim, Wish), answer: Answer, asked_at: u64) {
        let (ticket, claim, wish) = asked;
        let now = self.local(node);
        let hasty = self.flawed(FleetFlaw::SendsEarly);
        let SimNode { node: this, lane, appointment, .. } = &mut self.nodes[node];
        match this.heard(&claim, answer, asked_at, now) {
            Verdict::Go { mut window, unused, next, others, .. } => {
                if hasty {
                    window.from = now;
                }
                let grant = Some(Grant { unused, next, others });
                let late = self.dice.below(120);
                self.after(window.from.saturating_sub(now) + late, FleetEvent::Send { node, ticket, window, grant });
            }
            Verdict::Wait { until, others, told } => {
                appointment.keep_number(told.number);
                lane.put_off(ticket, stamp(until), others as u32, stamp(now));
                self.drive(node);
            }
            Verdict::News(news) => {
                assert!(is_quiet(&news));
                appointment.version = news.version;
                self.started(node, ticket);
            }
            Verdict::Again => {
                appointment.keep_number(wish.number);
                self.started(node, ticket);
            }
        }
    }

    /// The window has begun.
    pub(super) fn send(&mut self, node: usize, ticket: Ticket, window: Window, grant: Option<Grant>) {
        let now = self.local(node);
        let is_late = now > window.until && !self.flawed(FleetFlaw::SendsLate);
        let SimNode { node: this, lane, appointment, .. } = &mut self.nodes[node];
        if is_late || !lane.agree(ticket, stamp(now)) {
            lane.miss_window(ticket);
            if let Some(Grant { unused, next, .. }) = grant {
                if self.burst <= 1 {
                    appointment.keep_unused(unused);
                }
                next.into_iter().for_each(|(number, _)| appointment.keep_number(number));
            }
            return self.drive(node);
        }
        let theirs = this.theirs(now, now);
        lane.sent(ticket, stamp(now));
        match grant {
            Some(Grant { next, others, unused }) => {
                if self.flaw == Some(FleetFlaw::HandsBackUsedTurns) {
                    appointment.keep_unused(unused);
                }
                if let Some((number, at)) = next {
                    appointment.keep_number(number);
                    lane.appoint(stamp(at), others as u32);
                }
            }
            None => {
                self.nodes[node].started_alone = theirs;
                self.judge.alone += 1;
            }
        }
        self.say(|| format!("node {node}: SENT {}", if grant.is_some() { "" } else { "alone" }));
        self.judge.send(self.now, self.delay, self.burst);
        let took = 10_000 + self.dice.below(200_000);
        self.after(took, FleetEvent::Leave(node, ticket));
        self.drive(node);
    }

    pub(super) fn leave(&mut self, node: usize, ticket: Ticket) {
        let now = stamp(self.local(node));
        self.nodes[node].lane.leave(ticket, now);
        self.drive(node);
    }

    pub(super) fn beat(&mut self, node: usize) {
        if self.nodes[node].node.state() == StandingState::Alone {
            self.call(node, Call::Ping);
            return self.after(BEAT / 2, FleetEvent::Beat(node));
        }
        if self.nodes[node].node.state() != StandingState::Telling {
            self.beat_now(node);
        }
        self.after(BEAT, FleetEvent::Beat(node));
    }

    fn beat_now(&mut self, node: usize) {
        let now = self.local(node);
        self.nodes[node].node.beats(now);
        let until = match self.nodes[node].node.state() {
            StandingState::Starting => u64::MAX,
            _ => self.nodes[node].node.theirs(now, now) + TIMEOUT,
        };
        self.call(node, Call::Beat { until });
    }

    /// The host answers a node's request with a Retry-After.
    pub(super) fn hold(&mut self, node: usize, time: u64) {
        let now = self.local(node);
        let SimNode { node: this, lane, .. } = &mut self.nodes[node];
        lane.hold(stamp(now + time), stamp(now));
        let until = this.theirs(now + time, now);
        self.call(node, Call::Hold { until });
    }
}
