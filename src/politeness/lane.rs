//! A lane: one host's visits, and the answer to "what next?".
//!
//! It has no arithmetic of its own: [`Turns`] says when, the queue says who, places say how many, and the lane asks
//! them in order. It reads no clock and wakes nobody. Whoever changes something (joins, leaves, is ready, has sent…)
//! then calls [`Lane::next_step`] and obeys, again and again until it is told to wait; so every decision is taken here,
//! under the caller's lock, and the step it led to is the whole account of it.
//!
//! # The way of a visit
//! `join` → in the queue → `Step::Prepare` → its connection is made ready → `ready` → `Step::Start` → its head is
//! written → `sent` → `report` → `leave`. `leave` is right at any moment, and the only way out: it gives back the place
//! in the line, the turn if it was not sent, and the place in flight if it was. A visit that was refused has left.
//!
//! # How a connection gets ready
//! A turn is claimed last, when the connection is open, and is worth nothing to a visit that is not ready. So the lane
//! *calls* visits in fair order a little ([`LEAD`]) before their turn: early enough to open a connection, late enough
//! that it does not idle until the origin closes it, and no more of them than there are free places, so that waiting
//! opens no connections of its own. Among the called the first that is ready starts. One that is still not ready after
//! the lead keeps its rank, but another is called beside it: an origin that does not answer delays nobody else for ever.
//! The time a visit takes to get ready is not counted as waiting for the host.
//!
//! # Who keeps the timer
//! `Step::Wait` names one visit as keeper of the alarm. When that visit leaves, the caller asks again and is told the
//! next keeper; no other visit needs a timer, not even for its deadline.
//!
//! # Where turns are shared
//! When a shared ledger has a say too, it is asked between `Start` and the send. Its "no" is [`Lane::postpone`]; after
//! a "yes" that took time, [`Lane::confirm`] says whether the turn still stands.

use std::collections::VecDeque;
use std::time::Duration;

use super::audit::{Audit, Breach};
use super::places::Places;
use super::policy::{Delays, Mode, Order, Policy};
use super::queue::{Queue, Rank};
use super::returns::Returns;
use super::roll::{Entry, Phase, Roll};
use super::time::Timestamp;
use super::turns::{Memory, Spacing, Turns};
use super::visit::{Alarm, ClientId, Outcome, Refusal, Step, Ticket, Visit};

#[derive(Debug)]
pub struct Lane {
    policy: Policy,
    delays: Delays,
    turns: Turns,
    places: Places,
    queue: Queue,
    /// Visits that prepare or are ready, in the order they were called.
    called: VecDeque<u32>,
    roll: Roll,
    returns: Returns,
    audit: Audit,
    paused: bool,
    /// In report mode: what the turns would be if they were enforced.
    shadow: Option<Box<Turns>>,
}

/// A visit that is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    pub ticket: Ticket,
    /// When it is expected to start; in report mode, when it would have been.
    pub expected: Timestamp,
}

/// How long before its turn a visit is called. A TLS handshake across the world takes about half a second with DNS;
/// servers that close idle connections early do so after 5 s.
pub const LEAD: Duration = Duration::from_secs(1);

impl Lane {
    /// The lane of a host nobody remembers. `seed` feeds the jitter.
    pub fn new(policy: Policy, seed: u64) -> Self {
        let turns = Turns::new(plain_spacing(&policy), seed);
        Lane::with(policy, turns)
    }

    /// The lane of a host that was visited before it was forgotten or curtsy was restarted.
    pub fn remembering(policy: Policy, memory: Memory, seed: u64, now: Timestamp) -> Self {
        let turns = Turns::remembering(plain_spacing(&policy), memory, seed, now);
        Lane::with(policy, turns)
    }

    fn with(policy: Policy, turns: Turns) -> Self {
        let mut lane = Lane {
            delays: Delays { configured: policy.delay, ..Delays::default() },
            places: Places::new(policy.concurrency),
            policy,
            turns,
            queue: Queue::default(),
            called: VecDeque::new(),
            roll: Roll::new(),
            returns: Returns::default(),
            audit: Audit::default(),
            paused: false,
            shadow: None,
        };
        lane.cast_shadow();
        lane
    }

    /// Takes a place in the line, or is told at once that it would not be worth it.
    pub fn join(&mut self, visit: Visit, now: Timestamp) -> Result<Joined, Refusal> {
        let rank = self.rank(&visit, now);
        let expected = self.expected(rank, visit.client, visit.urgency, now);
        let deadline = self.admit(&visit, rank, expected, now)?;
        let Visit { client, url, urgency, .. } = visit;
        let ticket = self.roll.enter(Entry { client, url, urgency, phase: Phase::Waiting, since: now, deadline });
        let (client, urgency) = self.stands_as(client, urgency);
        self.queue.join(ticket.number, rank, client, urgency);
        let expected = self.shadow.as_deref_mut().map_or(expected, |turns| would_start(turns, now));
        Ok(Joined { ticket, expected })
    }

    /// What to do now. Call it after every other call, until it says to wait.
    pub fn next_step(&mut self, now: Timestamp) -> Step {
        self.refuse_one(now)
            .or_else(|| self.start_one(now))
            .or_else(|| self.call_one(now))
            .unwrap_or_else(|| Step::Wait(self.alarm(now)))
    }

    /// A called visit has its connection.
    pub fn ready(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Preparing) else { return };
        entry.phase = Phase::Ready;
        entry.deadline = entry.deadline + now.since(entry.since);
        let deadline = entry.deadline;
        self.roll.watch(deadline);
    }

    /// A ready visit lost its connection before its turn and makes another.
    pub fn unready(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Ready) else { return };
        entry.phase = Phase::Preparing;
        entry.since = now;
    }

    /// Whether a visit that was told to start some time ago may still do so. If not, it is back among the ready, before
    /// the others, and will be told again.
    #[must_use]
    pub fn confirm(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        if !self.holds_turn(ticket) {
            return true;
        }
        self.turns.give_back();
        if !self.paused && self.turns.claim(now).is_ok() {
            return true;
        }
        self.put_back(ticket);
        false
    }

    /// A shared ledger refused this visit's turn until then; it waits among the ready, before the others.
    pub fn postpone(&mut self, ticket: Ticket, until: Timestamp) {
        if self.holds_turn(ticket) {
            self.turns.give_back();
            self.turns.taken_elsewhere(until);
            self.put_back(ticket);
        }
    }

    /// The head of a visit that was told to start was written at `now`. A breach is for the caller to count and log.
    pub fn sent(&mut self, ticket: Ticket, now: Timestamp) -> Option<Breach> {
        let entry = self.roll.get_mut(ticket).filter(|entry| entry.phase.has_turn())?;
        let phase = std::mem::replace(&mut entry.phase, Phase::Started);
        entry.since = now;
        self.turns.sent(now);
        if phase == Phase::Claimed && self.enforced() {
            return self.audit.judge(now, self.turns.owed());
        }
        self.audit.note(now);
        None
    }

    /// What became of a visit that was sent.
    pub fn report(&mut self, ticket: Ticket, outcome: Outcome, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Started) else { return };
        let response_time = now.since(entry.since);
        if outcome == Outcome::Answered {
            self.delays.response = self.policy.response_delay(response_time);
            self.respace(now);
        }
    }

    /// The visit is gone, wherever it stood. Tickets of visits that have left are ignored.
    pub fn leave(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.remove(ticket) else { return };
        match entry.phase {
            Phase::Waiting => self.queue.leave(ticket.number),
            Phase::Preparing | Phase::Ready => self.called.retain(|&number| number != ticket.number),
            Phase::Claimed | Phase::Waved => self.turns.give_back(),
            Phase::Started => self.places.observe(now.since(entry.since)),
        }
    }

    /// New numbers, for those who wait too. Nobody gets a fresh burst by it.
    pub fn change(&mut self, policy: Policy, now: Timestamp) {
        self.places.change(policy.concurrency);
        self.delays.configured = policy.delay;
        if policy.delay_factor != self.policy.delay_factor {
            self.delays.response = Duration::ZERO;
        }
        self.policy = policy;
        self.respace(now);
        self.cast_shadow();
    }

    /// What robots.txt asks for; zero if nothing.
    pub fn set_robots_delay(&mut self, delay: Duration, now: Timestamp) {
        self.delays.robots = delay;
        self.respace(now);
    }

    /// What the host taught us; zero if nothing.
    pub fn set_learned_delay(&mut self, delay: Duration, now: Timestamp) {
        self.delays.learned = delay;
        self.respace(now);
    }

    /// Nobody before `until`. A shorter hold does not end a longer one.
    pub fn hold(&mut self, until: Timestamp, now: Timestamp) {
        self.turns.hold(until, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.hold(until, now);
        }
    }

    /// Ends a hold early.
    pub fn lift(&mut self, now: Timestamp) {
        self.turns.lift(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.lift(now);
        }
    }

    /// Nobody starts until [`Lane::resume`]. Who waits may go on waiting; who comes is refused.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Whether forgetting this lane would break a promise: somebody is in it or was told to come back, or the host is
    /// held, paused, or still owed part of an interval. Whoever forgets lanes must also let them idle for longer than any
    /// delay times burst that may yet be asked for, since that would count from the send that is forgotten.
    pub fn owes(&self, now: Timestamp) -> bool {
        self.roll.len() > 0 || self.paused || self.turns.owes(self.policy.burst, now) || self.returns.owes(now)
    }

    /// What must outlive this lane.
    pub fn memory(&self) -> Memory {
        self.turns.memory()
    }

    pub fn policy(&self) -> Policy {
        self.policy
    }

    pub fn delays(&self) -> Delays {
        self.delays
    }

    pub fn held_until(&self) -> Timestamp {
        self.turns.held_until()
    }

    pub fn paused(&self) -> bool {
        self.paused
    }

    /// Visits that have not been told to start.
    pub fn queued(&self) -> usize {
        self.queue.len() + self.called.len()
    }

    /// Visits that were told to start and have not left.
    pub fn in_flight(&self) -> usize {
        self.roll.len() - self.queued()
    }

    fn holds_turn(&mut self, ticket: Ticket) -> bool {
        self.roll.get_mut(ticket).is_some_and(|entry| entry.phase == Phase::Claimed)
    }

    fn put_back(&mut self, ticket: Ticket) {
        let Some(entry) = self.roll.get_mut(ticket) else { return };
        entry.phase = Phase::Ready;
        let deadline = entry.deadline;
        self.roll.watch(deadline);
        self.called.push_front(ticket.number);
    }

    fn rank(&mut self, visit: &Visit, now: Timestamp) -> Rank {
        if visit.retry {
            Rank::Retry
        } else if self.returns.take(visit.client, visit.url, now) {
            Rank::Returning
        } else {
            Rank::Newcomer
        }
    }

    /// Without fairness everyone stands in one line.
    fn stands_as(&self, client: ClientId, urgency: u8) -> (ClientId, u8) {
        match self.policy.order {
            Order::Fair => (client, urgency),
            Order::Fifo => (ClientId(0), 0),
        }
    }

    fn enforced(&self) -> bool {
        self.policy.mode == Mode::Enforce
    }

    /// Until when the visit waits, or why it need not.
    fn admit(&mut self, visit: &Visit, rank: Rank, expected: Timestamp, now: Timestamp) -> Result<Timestamp, Refusal> {
        if !self.enforced() {
            return Ok(Timestamp::NEVER);
        }
        let patience = self.policy.max_wait.min(visit.max_wait.unwrap_or(Duration::MAX));
        let deadline = match rank {
            // It was told to come now, so its own impatience does not count against it.
            Rank::Returning => expected.max(now) + self.policy.max_wait,
            Rank::Retry | Rank::Newcomer => now + patience,
        };
        if self.paused || self.turns.held_until() > now + patience {
            return Err(self.cooling(visit.client, visit.url, expected, now));
        }
        let at_once = self.queue.is_empty() && expected <= now;
        if rank == Rank::Newcomer && self.queue.len() >= self.policy.max_queue && !at_once {
            let retry_after = self.tell(visit.client, visit.url, expected, now);
            return Err(Refusal::QueueFull { retry_after });
        }
        if expected > deadline {
            let retry_after = self.tell(visit.client, visit.url, expected, now);
            return Err(Refusal::WaitTooLong { retry_after });
        }
        Ok(deadline)
    }

    fn cooling(&mut self, client: ClientId, url: u64, expected: Timestamp, now: Timestamp) -> Refusal {
        let retry_after = (!self.paused).then(|| self.tell(client, url, expected, now));
        Refusal::HostCooling { retry_after }
    }

    fn tell(&mut self, client: ClientId, url: u64, expected: Timestamp, now: Timestamp) -> Duration {
        self.returns.tell(client, url, expected, self.turns.spacing().delay, now)
    }

    /// When a visit that joins now can expect to start. Newcomers let those go first who were told to come back.
    fn expected(&self, rank: Rank, client: ClientId, urgency: u8, now: Timestamp) -> Timestamp {
        let (client, urgency) = self.stands_as(client, urgency);
        let ahead = self.called.len() + self.queue.ahead(rank, client, urgency);
        let start = self.start_behind(ahead, now);
        if rank != Rank::Newcomer {
            return start;
        }
        match self.returns.expected(now, start) {
            0 => start,
            returning => self.start_behind(ahead + returning, now),
        }
    }

    fn start_behind(&self, ahead: usize, now: Timestamp) -> Timestamp {
        self.turns.predict(ahead, now).max(self.places.predict(self.in_flight(), ahead, now))
    }

    /// Somebody who waits can no longer be served in time.
    fn refuse_one(&mut self, now: Timestamp) -> Option<Step> {
        let ticket = self.roll.hopeless(self.turns.earliest(now))?;
        let entry = *self.roll.get_mut(ticket)?;
        self.leave(ticket, now);
        let expected = self.expected(Rank::Newcomer, entry.client, entry.urgency, now);
        let refusal = if self.paused || self.turns.held_until() > entry.deadline {
            self.cooling(entry.client, entry.url, expected, now)
        } else {
            Refusal::WaitTooLong { retry_after: self.tell(entry.client, entry.url, expected, now) }
        };
        Some(Step::Refuse(ticket, refusal))
    }

    fn start_one(&mut self, now: Timestamp) -> Option<Step> {
        let index = self.first_ready()?;
        let phase = if !self.enforced() {
            self.turns.take();
            Phase::Waved
        } else if self.may_claim() && self.turns.claim(now).is_ok() {
            Phase::Claimed
        } else {
            return None;
        };
        let number = self.called.remove(index)?;
        let ticket = self.roll.ticket(number);
        self.roll.get_mut(ticket)?.phase = phase;
        Some(Step::Start(ticket))
    }

    fn call_one(&mut self, now: Timestamp) -> Option<Step> {
        if self.queue.is_empty() || (self.enforced() && self.next_call(now) > now) {
            return None;
        }
        let ticket = self.roll.ticket(self.queue.pop()?);
        let entry = self.roll.get_mut(ticket)?;
        entry.phase = Phase::Preparing;
        entry.since = now;
        self.called.push_back(ticket.number);
        Some(Step::Prepare(ticket))
    }

    fn first_ready(&self) -> Option<usize> {
        self.called.iter().position(|&number| self.roll.entry(number).phase == Phase::Ready)
    }

    fn may_claim(&self) -> bool {
        !self.paused && self.in_flight() < self.places.limit()
    }

    /// When the next visit in the queue is to be called, as things stand.
    fn next_call(&self, now: Timestamp) -> Timestamp {
        let limit = self.places.limit();
        let taken = self.in_flight() + self.called.len();
        if self.paused || self.in_flight() >= limit || taken >= 2 * limit {
            return Timestamp::NEVER;
        }
        let preparing = self.called.iter().map(|&number| self.roll.entry(number));
        let late = preparing.filter(|entry| entry.phase == Phase::Preparing && entry.since + LEAD <= now).count();
        if taken - late >= limit {
            return self.next_late(now);
        }
        self.turns.predict(self.called.len() - late, now) - LEAD
    }

    /// When a called visit will have used up its lead.
    fn next_late(&self, now: Timestamp) -> Timestamp {
        let preparing = self.called.iter().map(|&number| self.roll.entry(number));
        let late = preparing.filter(|entry| entry.phase == Phase::Preparing).map(|entry| entry.since + LEAD);
        late.filter(|&late| late > now).min().unwrap_or(Timestamp::NEVER)
    }

    /// The next time at which something happens by itself.
    fn alarm(&self, now: Timestamp) -> Option<Alarm> {
        let ready = self.first_ready();
        let keeper = ready
            .map(|index| self.called[index])
            .or_else(|| self.queue.next())
            .or_else(|| self.called.front().copied())?;
        let give_up = self.roll.first_deadline() + Duration::from_micros(1);
        let call = if self.queue.is_empty() { Timestamp::NEVER } else { self.next_call(now) };
        let start = match ready {
            Some(_) if self.may_claim() => self.turns.next_claim(now),
            _ => Timestamp::NEVER,
        };
        let at = give_up.min(call).min(start);
        (at < Timestamp::NEVER).then(|| Alarm { at, keeper: self.roll.ticket(keeper) })
    }

    fn respace(&mut self, now: Timestamp) {
        let calm = self.delays.only_configured();
        let spacing = Spacing {
            delay: self.delays.effective(),
            burst: if calm { self.policy.burst } else { 1 },
            jitter: self.policy.jitter,
        };
        self.turns.change(spacing, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.change(spacing, now);
        }
    }

    fn cast_shadow(&mut self) {
        if self.policy.mode != Mode::Report {
            self.shadow = None;
        } else if self.shadow.is_none() {
            self.shadow = Some(Box::new(self.turns.shadow()));
        }
    }
}

fn plain_spacing(policy: &Policy) -> Spacing {
    Spacing { delay: policy.delay, burst: policy.burst, jitter: policy.jitter }
}

/// In report mode every visit takes the turn it would have had.
fn would_start(turns: &mut Turns, now: Timestamp) -> Timestamp {
    let start = turns.earliest(now);
    turns.take();
    turns.sent(start);
    start
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
