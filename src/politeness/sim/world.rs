//! The world: hosts, clients and a clock that jumps from one event to the next.
//!
//! It drives lanes as the gate does: after every report it asks for the next step and carries it out until it is told
//! to wait. Each host has one alarm, kept by the visit the lane names and lost when that visit leaves. The world keeps
//! its own record of the stage of each visit, so that `checks` need not trust the lane.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Flaw;
use super::failing::{ORIGINS, SimOrigins};
use super::oracle::{BrokenPromise, Oracle, Promise, VisitTerms, broken};
use super::pages::SimPages;
use crate::politeness::lab::Dice;
use crate::politeness::lane::Lane;
use crate::politeness::policy::{Mode, Order, Policy};
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Alarm, ClientId, LaneRefusal, PagePart, Purpose, Step, Ticket, Visit};

pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) now: Timestamp,
    pub(super) flaw: Option<Flaw>,
    pub(super) hosts: Vec<SimHost>,
    /// Visits that have joined and not left.
    pub(super) guests: BTreeMap<u64, SimVisit>,
    pub(super) tally: SimTally,
    /// Prints every event and step.
    aloud: bool,
    /// Labels every request as a part of a page.
    all_parts: bool,
    events: BTreeMap<(Timestamp, u64), SimEvent>,
    next_id: u64,
    closing: Timestamp,
}

pub(super) struct SimHost {
    pub(super) lane: Lane,
    pub(super) oracle: Oracle,
    /// When it was last slowed down by a refusal.
    pub(super) slowed: Timestamp,
    /// When an operator let curtsy forget it. Refusals of earlier requests may count or not.
    pub(super) forgot: Timestamp,
    /// Until when a shared ledger or failed connection attempts have taken the turns.
    pub(super) elsewhere: Timestamp,
    pub(super) origins: [SimOrigins; ORIGINS as usize],
    pub(super) pages: SimPages,
    /// What robots.txt asks of most clients, and of a few besides.
    pub(super) asked: Duration,
    pub(super) asked_of_few: Duration,
    /// Failed connection attempts have taken turns until then, at the least.
    pub(super) charged: Timestamp,
    pub(super) by_ticket: HashMap<Ticket, u64>,
    pub(super) keeper: Option<(u64, u64)>,
    pub(super) told: BTreeMap<(u64, u64), SimTold>,
    pub(super) just_told: Vec<(Timestamp, Duration, (u64, u64))>,
    /// How often a client was called while another waited and was not.
    pub(super) overtaken: BTreeMap<(u64, u64), u32>,
    /// The largest queue that was ever allowed: a smaller limit refuses no visit that is already in the queue.
    pub(super) most_waiting: usize,
    /// When curtsy stops.
    pub(super) drain_end: Option<Timestamp>,
    /// The most places that there ever were: a smaller limit takes none away.
    pub(super) most_places: usize,
}

#[derive(Clone, Copy)]
pub(super) struct SimTold {
    pub(super) due: Timestamp,
    /// Something happened that could not be foreseen.
    pub(super) disturbed: bool,
}

pub(super) struct SimVisit {
    pub(super) host: usize,
    pub(super) visit: Visit,
    pub(super) ticket: Ticket,
    pub(super) stage: SimStage,
    pub(super) returning: bool,
    pub(super) disturbed: bool,
    pub(super) joined: Timestamp,
    pub(super) limit: Duration,
    /// When the current preparation began, and how long all of them took.
    pub(super) preparing_since: Timestamp,
    pub(super) prepared_for: Duration,
    pub(super) terms: VisitTerms,
    pub(super) sent: Timestamp,
    /// From when on it is a long transfer.
    pub(super) long_from: Timestamp,
    /// Told to start without a turn: the most parts that may ride with it.
    pub(super) rides_with: Option<u32>,
    /// When it was first called, if it ever stepped aside: such visits go before all others, in this order.
    pub(super) stepped_back: Option<u64>,
    /// The ledger put its turn off for so long that it waits in the queue again.
    pub(super) put_off: bool,
}

impl SimVisit {
    pub(super) fn rank(&self) -> Rank {
        match (self.visit.retry || self.put_off || self.stepped_back.is_some(), self.returning) {
            (true, _) => Rank::Retry,
            (false, true) => Rank::Returning,
            (false, false) => Rank::Newcomer,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SimStage {
    Waiting,
    Preparing,
    Ready,
    Told,
    Sent,
    /// Was called, and waits for the answer to another request.
    Aside,
}

impl SimStage {
    pub(super) const COUNT: usize = 6;

    /// Whether the visit has a place, or is about to have one.
    pub(super) fn has_place(self) -> bool {
        !matches!(self, SimStage::Waiting | SimStage::Aside)
    }
}

#[derive(Default, Debug)]
pub(super) struct SimTally {
    pub(super) joined: u64,
    pub(super) called_at_once: u64,
    pub(super) walked_through: u64,
    pub(super) started_at_once: u64,
    pub(super) sent: u64,
    pub(super) refused: u64,
    pub(super) returned: u64,
    pub(super) left: u64,
    pub(super) put_back: u64,
    pub(super) forgotten: u64,
    pub(super) slowed: u64,
    pub(super) eased: u64,
    /// Lanes created again that knew of something learned.
    pub(super) reminded: u64,
    /// Visits refused because curtsy stops, and sent although it does.
    pub(super) drained: u64,
    pub(super) sent_in_grace: u64,
    /// Times an origin was given up.
    pub(super) given_up: u64,
    /// Visits that started because a long transfer had given its place back.
    pub(super) made_room: u64,
    /// Pages that came right after the fetch of their robots.txt.
    pub(super) followed: u64,
    /// Parts of pages that started without a turn, and parts that waited for that.
    pub(super) rode: u64,
    pub(super) parked: u64,
    /// Visits that stepped aside, stepped back, and left because they shared the answer to another request.
    pub(super) stepped_aside: u64,
    pub(super) stepped_back: u64,
    pub(super) shared: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum SimEvent {
    Arrive(usize),
    Return(usize, Visit),
    GiveUp(u64),
    Connected(u64),
    ConnectionLost(u64),
    ConnectFailed(u64),
    LedgerAnswers(u64),
    Write(u64),
    Answered(u64),
    Ended(u64),
    Alarm(usize, u64),
    Disturb(usize),
    Resume(usize),
    Sweep(usize),
    /// The grace period of a stop is over.
    Stopped(usize),
    /// The answer that a visit aside waits for cannot be shared, or is shared.
    StepBack(u64),
    Share(u64),
}

const START: u64 = 1_000_000_000;

impl World {
    pub(super) fn new(seed: u64, flaw: Option<Flaw>) -> Self {
        let mut world = World {
            dice: Dice(seed),
            now: Timestamp::from_millis(START),
            flaw,
            hosts: Vec::new(),
            guests: BTreeMap::new(),
            tally: SimTally::default(),
            aloud: false,
            all_parts: false,
            events: BTreeMap::new(),
            next_id: 0,
            closing: Timestamp::NEVER,
        };
        world.closing = world.now + Duration::from_secs(90);
        for host in 0..1 + world.dice.below(3) as usize {
            let order = if world.dice.chance(10) { Order::Fifo } else { Order::Fair };
            let policy = Policy { order, ..world.policy() };
            let teaches = world.dice.chance(40);
            let mut built = SimHost::new(policy, teaches, world.dice.next());
            if world.dice.chance(30) {
                built.asked_of_few = Duration::from_millis(world.dice.below(4_000));
            }
            world.hosts.push(built);
            world.after(Duration::ZERO, SimEvent::Arrive(host));
            world.after(Duration::from_secs(3), SimEvent::Disturb(host));
            world.after(Duration::from_secs(5), SimEvent::Sweep(host));
        }
        world
    }

    pub(super) fn aloud(mut self) -> Self {
        self.aloud = true;
        self
    }

    pub(super) fn all_parts(mut self) -> Self {
        self.all_parts = true;
        self
    }

    /// Runs until no event is left.
    pub(super) fn run(mut self) -> Result<SimTally, BrokenPromise> {
        while let Some(((at, _), event)) = self.events.pop_first() {
            self.now = at;
            if !self.is_stale(event) {
                self.say(|| format!("{event:?}"));
                self.happen(event)?;
                self.check_nobody_is_forgotten()?;
            }
        }
        self.check_nothing_is_left()?;
        Ok(self.tally)
    }

    pub(super) fn open(&self) -> bool {
        self.now < self.closing
    }

    pub(super) fn after(&mut self, delay: Duration, event: SimEvent) {
        self.next_id += 1;
        self.events.insert((self.now + delay, self.next_id), event);
    }

    pub(super) fn say(&self, story: impl Fn() -> String) {
        if self.aloud {
            eprintln!("{:>10.6} {}", self.now.since(Timestamp::from_millis(START)).as_secs_f64(), story());
        }
    }

    pub(super) fn flawed(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn happen(&mut self, event: SimEvent) -> Result<(), BrokenPromise> {
        match event {
            SimEvent::Arrive(host) => self.arrive(host),
            SimEvent::Return(host, visit) => self.come_back(host, visit),
            SimEvent::GiveUp(guest) => self.give_up(guest),
            SimEvent::Connected(guest) => self.connected(guest),
            SimEvent::ConnectionLost(guest) => self.connection_lost(guest),
            SimEvent::ConnectFailed(guest) => self.connect_failed(guest),
            SimEvent::LedgerAnswers(guest) => self.ledger_answers(guest),
            SimEvent::Write(guest) => self.write(guest),
            SimEvent::Answered(guest) => self.answered(guest),
            SimEvent::Ended(guest) => self.leave(guest),
            SimEvent::Alarm(host, _) => self.steps(host),
            SimEvent::Disturb(host) => self.disturb(host),
            SimEvent::Resume(host) => self.resume(host),
            SimEvent::Sweep(host) => self.sweep(host),
            SimEvent::Stopped(host) => self.stopped(host),
            SimEvent::StepBack(guest) => self.step_back(guest),
            SimEvent::Share(guest) => self.share_answer(guest),
        }
    }

    fn arrive(&mut self, host: usize) -> Result<(), BrokenPromise> {
        if !self.open() {
            return Ok(());
        }
        let crowd = if self.dice.chance(5) { 10 } else { 1 };
        for _ in 0..crowd {
            let visit = self.visit(false);
            self.join(host, visit)?;
        }
        let busy = self.hosts[host].oracle.delay().max(Duration::from_millis(300));
        let pause = if self.dice.chance(4) { Duration::from_secs(30) } else { self.dice.up_to(busy * 2) };
        self.after(pause, SimEvent::Arrive(host));
        Ok(())
    }

    pub(super) fn visit(&mut self, retry: bool) -> Visit {
        self.next_id += 1;
        let max_wait = match self.dice.below(10) {
            0 => Some(Duration::ZERO),
            1 | 2 => Some(self.dice.up_to(Duration::from_secs(10))),
            _ => None,
        };
        // Six clients: two names at each of three addresses.
        let number = self.dice.below(6);
        let client = ClientId((number / 2) << 32 | number);
        let purpose = if !retry && self.dice.chance(15) { Purpose::RobotsFetch } else { Purpose::Page };
        // Fetches of robots.txt have a client of their own, which loads no pages.
        let client = if purpose == Purpose::RobotsFetch { ClientId(9 << 32) } else { client };
        Visit {
            client,
            peer: client,
            origin: self.origin(),
            url: self.next_id,
            urgency: self.dice.below(8) as u8,
            retry,
            max_wait,
            crawl_delay: Duration::ZERO,
            denied: false,
            tunnelled: false,
            may_share: false,
            purpose,
            part: if purpose == Purpose::RobotsFetch { PagePart::No } else { self.part() },
        }
    }

    fn part(&mut self) -> PagePart {
        match self.dice.below(10) {
            0..=3 => PagePart::Resource,
            4 => PagePart::Data,
            _ if self.all_parts => PagePart::Resource,
            _ => PagePart::No,
        }
    }

    fn come_back(&mut self, host: usize, visit: Visit) -> Result<(), BrokenPromise> {
        self.tally.returned += 1;
        self.join(host, visit)
    }

    pub(super) fn join(&mut self, host: usize, visit: Visit) -> Result<(), BrokenPromise> {
        let now = self.now;
        let told = self.hosts[host].take_told(&visit, now);
        let visit = Visit { crawl_delay: self.crawl_delay(host, &visit), ..visit };
        let asked = match self.flaw {
            Some(Flaw::OneClient) => Visit { client: ClientId(9), ..visit },
            Some(Flaw::ForgetsWhoWasTold) if told.is_some() => Visit { url: 0, ..visit },
            Some(Flaw::EveryPageFollows) if visit.purpose == Purpose::Page => {
                Visit { purpose: Purpose::AfterRobotsFetch, ..visit }
            }
            _ => visit,
        };
        // As the gate does with and without an open connection.
        if self.dice.chance(25)
            && let Some(ticket) = self.hosts[host].lane.walk_through(&asked, now)
        {
            self.tally.walked_through += 1;
            self.enter(host, visit, ticket, told);
            self.start_at_once(host, ticket)?;
            return self.steps(host);
        }
        match self.hosts[host].lane.join(asked, now) {
            Ok(joined) => {
                self.enter(host, visit, joined.ticket, told);
                if joined.is_called {
                    self.tally.called_at_once += 1;
                    let id = self.hosts[host].by_ticket[&joined.ticket];
                    self.check_needs_turn(host, id)?;
                    self.prepare(host, joined.ticket)?;
                } else {
                    self.check_bounds(host)?;
                }
            }
            Err(refusal) => {
                self.check_return(host, &visit, told, refusal)?;
                self.refused(host, visit, refusal)?;
            }
        }
        self.steps(host)
    }

    fn enter(&mut self, host: usize, visit: Visit, ticket: Ticket, told: Option<SimTold>) {
        self.next_id += 1;
        self.tally.joined += 1;
        let id = self.next_id;
        let oracle = &self.hosts[host].oracle;
        let unlimited = told.is_some() || oracle.policy.mode != Mode::Enforce;
        let wish = visit.max_wait.unwrap_or(Duration::MAX).min(oracle.policy.max_wait);
        let guest = SimVisit {
            host,
            visit,
            ticket,
            stage: SimStage::Waiting,
            returning: told.is_some(),
            disturbed: told.is_some_and(|told| told.disturbed),
            joined: self.now,
            limit: if unlimited { Duration::MAX } else { wish },
            preparing_since: self.now,
            prepared_for: Duration::ZERO,
            terms: oracle.terms(),
            sent: Timestamp::NEVER,
            long_from: Timestamp::NEVER,
            rides_with: None,
            stepped_back: None,
            put_off: false,
        };
        self.say(|| format!("    host {host}: {ticket:?} is guest {id}, {visit:?}"));
        self.tally.parked += u64::from(self.hosts[host].lane.is_parked(ticket));
        self.hosts[host].by_ticket.insert(ticket, id);
        self.guests.insert(id, guest);
        if self.dice.chance(20) {
            let patience = self.dice.up_to(Duration::from_secs(15));
            self.after(patience, SimEvent::GiveUp(id));
        }
    }

    /// Asks the lane for the next step and carries it out, until it says to wait.
    pub(super) fn steps(&mut self, host: usize) -> Result<(), BrokenPromise> {
        for _ in 0..10_000 {
            let step = self.hosts[host].lane.next_step(self.now);
            self.say(|| format!("    host {host}: {step:?}"));
            match step {
                Step::Prepare(ticket) => self.prepare(host, ticket)?,
                Step::Start(ticket) => self.start(host, ticket)?,
                Step::Refuse(ticket, refusal) => self.refuse(host, ticket, refusal)?,
                Step::Wait(alarm) => return self.wait(host, alarm),
            }
        }
        broken(Promise::Answer, "the lane never says to wait".to_owned())
    }

    pub(super) fn leave(&mut self, id: u64) -> Result<(), BrokenPromise> {
        let Some(guest) = self.forget(id) else { return Ok(()) };
        self.hosts[guest.host].lane.leave(guest.ticket, self.now);
        let kept_alarm = self.hosts[guest.host].keeper.is_some_and(|(keeper, _)| keeper == id);
        if kept_alarm {
            self.hosts[guest.host].keeper = None;
        }
        if kept_alarm && self.flawed(Flaw::LosesTheAlarm) { Ok(()) } else { self.steps(guest.host) }
    }

    pub(super) fn forget(&mut self, id: u64) -> Option<SimVisit> {
        let guest = self.guests.remove(&id)?;
        self.hosts[guest.host].by_ticket.remove(&guest.ticket);
        self.origin_left(guest.host, id);
        if guest.stage == SimStage::Waiting {
            self.line_may_be_over(guest.host, guest.visit.client);
        }
        Some(guest)
    }

    fn refuse(&mut self, host: usize, ticket: Ticket, refusal: LaneRefusal) -> Result<(), BrokenPromise> {
        let id = self.hosts[host].by_ticket[&ticket];
        self.check_refusal(host, id, refusal)?;
        if self.flawed(Flaw::SwallowsRefusals) {
            return Ok(());
        }
        let guest = self.forget(id).expect("a guest");
        self.refused(host, guest.visit, refusal)
    }

    fn refused(&mut self, host: usize, visit: Visit, refusal: LaneRefusal) -> Result<(), BrokenPromise> {
        self.tally.refused += 1;
        self.tally.drained += u64::from(matches!(refusal, LaneRefusal::ShuttingDown { .. }));
        let Some(told) = refusal.retry_after() else { return Ok(()) };
        self.check_told(host, &visit, told)?;
        let due = self.now + told;
        self.hosts[host].told.insert((visit.client.0, visit.url), SimTold { due, disturbed: false });
        if self.open() && self.dice.chance(60) {
            let late = if self.dice.chance(50) { Duration::ZERO } else { self.dice.up_to(Duration::from_secs(5)) };
            self.after(told + late, SimEvent::Return(host, Visit { retry: false, ..visit }));
        }
        Ok(())
    }

    fn wait(&mut self, host: usize, alarm: Option<Alarm>) -> Result<(), BrokenPromise> {
        self.check_wait(host, alarm)?;
        self.hosts[host].keeper = None;
        let Some(Alarm { at, keeper }) = alarm else { return Ok(()) };
        self.next_id += 1;
        let (id, alarm) = (self.hosts[host].by_ticket[&keeper], self.next_id);
        self.hosts[host].keeper = Some((id, alarm));
        self.after(at.since(self.now), SimEvent::Alarm(host, alarm));
        Ok(())
    }

    /// Returns whether the event is an alarm that was set again since, or whose keeper has left.
    fn is_stale(&self, event: SimEvent) -> bool {
        match event {
            SimEvent::Alarm(host, alarm) => self.hosts[host].keeper.is_none_or(|(_, current)| current != alarm),
            _ => false,
        }
    }
}

impl SimTally {
    pub(super) fn add(&mut self, other: &SimTally) {
        self.joined += other.joined;
        self.called_at_once += other.called_at_once;
        self.walked_through += other.walked_through;
        self.started_at_once += other.started_at_once;
        self.sent += other.sent;
        self.refused += other.refused;
        self.returned += other.returned;
        self.left += other.left;
        self.put_back += other.put_back;
        self.forgotten += other.forgotten;
        self.slowed += other.slowed;
        self.eased += other.eased;
        self.reminded += other.reminded;
        self.drained += other.drained;
        self.sent_in_grace += other.sent_in_grace;
        self.given_up += other.given_up;
        self.made_room += other.made_room;
        self.followed += other.followed;
        self.rode += other.rode;
        self.parked += other.parked;
        self.stepped_aside += other.stepped_aside;
        self.stepped_back += other.stepped_back;
        self.shared += other.shared;
    }
}
