//! A lane: one host's visits, and the answer to "what next?".
//!
//! It has no arithmetic of its own: [`Turns`] says when, the queue says who, places say how many, and the lane asks
//! them in order. It reads no clock and wakes nobody. Whoever changes something (joins, leaves, is ready, has sent…)
//! then calls [`Lane::next_step`] and obeys, again and again until it is told to wait; so every decision is taken here,
//! under the caller's lock, and the step it led to is the whole account of it.
//!
//! # The way of a visit
//! `join` → in the queue → `Step::Prepare` → its connection is made ready → `ready` → `Step::Start` → its head is
//! written → `sent` → `report`, from which the lane learns → `leave`. `leave` is right at any moment, and the only way out: it gives back the place
//! in the line, the turn if it was not sent, and the place in flight if it was. A transfer that lasts long gives its
//! place back before ([`holders`]). A visit that was refused has left. Where
//! nobody waits, [`Lane::walk_in`] and [`Lane::set_out`] are a shorter way to the same.
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

mod admission;
mod crawl_delay;
mod drain;
mod failing;
mod free;
mod holders;
mod lessons;
mod memory;
mod robots_wait;
mod shadow;
mod steering;
mod steps;
mod view;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::audit::{Audit, Breach};
use super::places::Places;
use super::policy::{Delays, Mode, Policy};
use super::queue::Queue;
use super::returns::Returns;
use super::roll::{Phase, Roll};
use super::time::Timestamp;
use super::turns::{Spacing, Turns};
use super::visit::{Purpose, Ticket};

use self::drain::Drain;
use self::lessons::Lessons;
use self::shadow::Shadow;
use self::steering::Steering;

pub use self::admission::{Expectation, Joined, Objection};
pub use self::failing::FailingOrigin;
pub use self::lessons::Lesson;
pub use self::memory::Memory;
pub use self::steering::Forgotten;
pub use self::steps::LEAD;
pub use self::view::{Breaker, Condition, Held, Obstacle, View};

/// Laid out in the order in which a visit to a free host needs it: with many hosts, most of what it touches comes from
/// memory, one piece of 64 bytes at a time.
#[derive(Debug)]
#[repr(C)]
pub struct Lane {
    turns: Turns,
    places: Places,
    queue: Queue,
    /// Visits that prepare or are ready, in the order they were called.
    called: SmallVec<[u32; 4]>,
    /// Visits that were told to start and keep a place, oldest first.
    flying: SmallVec<[u32; 4]>,
    roll: Roll,
    returns: Option<Box<Returns>>,
    /// What answers have taught; most hosts teach nothing.
    lessons: Option<Box<Lessons>>,
    /// In report mode: what would be if it were enforced.
    shadow: Option<Box<Shadow>>,
    paused: bool,
    /// Requests that wait for robots.txt and join afterwards.
    robots_waits: u32,
    /// Whether visits that wait may have different crawl delays.
    mixed: bool,
    /// Something worth remembering is new.
    unsaved: bool,
    delays: Delays,
    /// Shared by all hosts that are treated alike.
    policy: Arc<Policy>,
    /// When an answer last was a success.
    last_success: Timestamp,
    audit: Audit,
    /// The part of the hold that was asked for, and so outlives the lane.
    asked_until: Timestamp,
    /// Long transfers that gave their places back. They have as many places of their own.
    lasting: Vec<u32>,
    /// What people set for this host; most hosts are left to the policy.
    steering: Option<Box<Steering>>,
    /// When curtsy stops, if that is known.
    drain: Option<Box<Drain>>,
}

impl Lane {
    /// The lane of a host nobody remembers. `seed` feeds the jitter.
    pub fn new(policy: impl Into<Arc<Policy>>, seed: u64) -> Self {
        let policy = policy.into();
        let turns = Turns::new(plain_spacing(&policy), seed);
        Lane::with(policy, turns)
    }

    fn with(policy: Arc<Policy>, turns: Turns) -> Self {
        let mut lane = Lane {
            delays: Delays { configured: policy.delay, ..Delays::default() },
            places: Places::new(policy.concurrency),
            policy,
            turns,
            queue: Queue::default(),
            called: SmallVec::new(),
            flying: SmallVec::new(),
            lasting: Vec::new(),
            roll: Roll::new(),
            returns: None,
            audit: Audit::default(),
            paused: false,
            robots_waits: 0,
            asked_until: Timestamp::START,
            unsaved: false,
            mixed: false,
            last_success: Timestamp::START,
            steering: None,
            drain: None,
            lessons: None,
            shadow: None,
        };
        lane.cast_shadow();
        lane
    }

    /// A called visit has its connection.
    pub fn ready(&mut self, ticket: Ticket, now: Timestamp) {
        self.gets_ready(ticket, now);
    }

    /// Whether it was not before.
    fn gets_ready(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        let entry = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Preparing);
        let Some(entry) = entry else { return false };
        entry.phase = Phase::Ready;
        let deadline = entry.deadline + now.since(entry.since);
        entry.deadline = self.drain.as_ref().map_or(deadline, |drain| drain.before_end(deadline));
        let deadline = entry.deadline;
        self.roll.watch(deadline);
        true
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
        self.heed(ticket, now);
        let purpose = self.roll.get_mut(ticket).map_or(Purpose::Page, |entry| entry.purpose);
        if !self.paused && self.claim_for(purpose, now) {
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
        let (retry, purpose) = (entry.retry, entry.purpose);
        match purpose {
            Purpose::RobotsFetch => self.turns.sent_fetch(now),
            Purpose::Page | Purpose::AfterRobotsFetch => self.turns.sent(now),
        }
        self.shadow_is_sent(ticket, now);
        let breach = self.judge(phase, purpose, now);
        if let Some(epoch) = self.count_send(retry, now)
            && let Some(entry) = self.roll.get_mut(ticket)
        {
            entry.epoch = Some(epoch);
        }
        breach
    }

    fn judge(&mut self, phase: Phase, purpose: Purpose, now: Timestamp) -> Option<Breach> {
        if phase == Phase::Claimed && self.enforced() {
            return self.audit.judge(now, purpose, self.turns.owed());
        }
        self.audit.note(now);
        None
    }

    /// The visit is gone, wherever it stood. Tickets of visits that have left are ignored.
    pub fn leave(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.remove(ticket) else { return };
        if let Some(lessons) = &mut self.lessons {
            lessons.breakers.left(entry.origin, ticket);
        }
        match entry.phase {
            Phase::Waiting => self.queue.leave(ticket.number),
            Phase::Preparing | Phase::Ready => self.called.retain(|number| *number != ticket.number),
            Phase::Claimed | Phase::Waved => {
                self.turns.give_back();
                self.flying.retain(|number| *number != ticket.number);
            }
            Phase::Started => {
                self.places.observe(entry.since, now);
                self.flying.retain(|number| *number != ticket.number);
            }
            Phase::Lasting => self.lasting.retain(|number| *number != ticket.number),
        }
        self.shadow_leaves(ticket, now);
    }

    /// Keeps no room for visits that are not there. To be called now and then, when nobody has come for a while.
    pub fn give_back_room(&mut self) {
        self.roll.give_back_room();
    }

    /// New numbers, for those who wait too. Nobody gets a fresh burst by it. What people set for this host stays.
    pub fn change(&mut self, policy: impl Into<Arc<Policy>>, now: Timestamp) {
        let policy = self.steered(policy.into());
        self.places.change(policy.concurrency);
        self.delays.configured = policy.delay;
        if policy.delay_factor != self.policy.delay_factor {
            self.delays.response = Duration::ZERO;
        }
        self.policy = policy;
        self.respace(now);
        self.cast_shadow();
    }

    /// What robots.txt asks of the visit that is next, or started last; zero if nothing.
    pub fn set_robots_delay(&mut self, delay: Duration, now: Timestamp) {
        self.mixed |= self.queued() > 0;
        self.delays.robots = delay;
        self.respace(now);
    }

    /// What the host taught us, as if it had; zero if nothing.
    #[cfg(test)]
    pub(super) fn set_learned_delay(&mut self, delay: Duration, now: Timestamp) {
        self.delays.learned = delay;
        self.respace(now);
    }

    /// Nobody before `until`, because the host asked for it. A shorter hold does not end a longer one.
    pub fn hold(&mut self, until: Timestamp, now: Timestamp) {
        if until > self.asked_until.max(now) {
            self.asked_until = until;
            self.unsaved = true;
        }
        self.stand_back(until, now);
    }

    /// The same on curtsy's own account, which need not outlive the lane.
    fn stand_back(&mut self, until: Timestamp, now: Timestamp) {
        self.turns.hold(until, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.hold(until, now);
        }
        self.refuse_late(now);
    }

    /// Ends a hold early.
    pub fn lift(&mut self, now: Timestamp) {
        self.lift_lessons(now);
        self.asked_until = self.asked_until.min(now);
        self.unsaved = true;
        self.turns.lift(now);
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.lift(now);
        }
    }

    /// Whether forgetting this lane would break a promise: somebody is in it or was told to come back, or the host is
    /// held, paused, or still owed part of an interval. What it has learned is in its [`Memory`], which whoever forgets
    /// a lane must keep.
    pub fn owes(&self, now: Timestamp) -> bool {
        self.owes_until(now) > now
    }

    /// Until when it would, if no visit comes; never, where time alone does not end it.
    pub fn owes_until(&self, now: Timestamp) -> Timestamp {
        let is_refused = self.lessons.as_ref().is_some_and(|lessons| lessons.breakers.any_refused(now));
        let waits = self.roll.len() > 0 || self.robots_waits > 0;
        if waits || self.paused || self.steering.is_some() || is_refused {
            return Timestamp::NEVER;
        }
        let returns = self.returns.as_ref().map_or(Timestamp::START, |returns| returns.owes_until());
        self.turns.owes_until(self.policy.burst).max(returns)
    }

    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    pub fn delays(&self) -> Delays {
        self.delays
    }

    pub fn held_until(&self) -> Timestamp {
        self.turns.held_until()
    }

    /// Visits that have not been told to start.
    pub fn queued(&self) -> usize {
        self.queue.len() + self.called.len()
    }

    /// Visits that were told to start and keep a place. Long transfers that gave theirs back are not among them.
    pub fn in_flight(&self) -> usize {
        self.flying.len()
    }

    /// Long transfers that have given their places back.
    pub fn lasting(&self) -> usize {
        self.lasting.len()
    }

    fn holds_turn(&mut self, ticket: Ticket) -> bool {
        self.roll.get_mut(ticket).is_some_and(|entry| entry.phase == Phase::Claimed)
    }

    fn put_back(&mut self, ticket: Ticket) {
        let Some(entry) = self.roll.get_mut(ticket) else { return };
        (entry.phase, entry.purpose) = (Phase::Ready, Purpose::Page);
        let deadline = entry.deadline;
        self.roll.watch(deadline);
        self.flying.retain(|number| *number != ticket.number);
        self.called.insert(0, ticket.number);
    }

    fn enforced(&self) -> bool {
        self.policy.mode == Mode::Enforce
    }

    fn respace(&mut self, now: Timestamp) {
        let before = self.turns.spacing().delay;
        self.change_spacing(now);
        let lasting_delay = Delays { response: Duration::ZERO, ..self.delays }.effective();
        if lasting_delay > before {
            self.give_up_on_the_late(now);
        }
        self.refuse_late(now);
    }

    fn change_spacing(&mut self, now: Timestamp) {
        self.apply_lessons(now);
        let spacing = self.spacing(&self.delays);
        self.turns.change(spacing, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.change(spacing, now);
        }
    }

    fn spacing(&self, delays: &Delays) -> Spacing {
        let burst = if delays.only_configured() { self.policy.burst } else { 1 };
        Spacing { delay: delays.effective(), burst, jitter: self.policy.jitter }
    }

    fn cast_shadow(&mut self) {
        if self.policy.mode != Mode::Report {
            self.shadow = None;
        } else if self.shadow.is_none() {
            self.shadow = Some(Box::new(Shadow::new(self.turns.shadow())));
        }
    }
}

fn plain_spacing(policy: &Policy) -> Spacing {
    Spacing { delay: policy.delay, burst: policy.burst, jitter: policy.jitter }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;

#[cfg(test)]
mod places_tests;
