//! A lane: the visits of one host, and the answer to "what next?".
//!
//! A lane does no arithmetic of its own. [`Turns`] decides when the next visit may start, the queue decides which visit
//! is next, places limit how many are in flight, and the lane combines their answers. It reads no clock and wakes no
//! task. After every change (a visit joins, leaves, is ready, was sent…) the caller calls [`Lane::next_step`] and
//! carries out the step, until the step says to wait. So every decision is made here, under the caller's lock, and the
//! returned step describes it completely.
//!
//! # The path of a visit
//! `join` → in the queue → `Step::Prepare` → its connection is made ready → `ready` → `Step::Start` → its head is
//! written → `sent` → `report`, from which the lane learns → `leave`. `leave` is allowed at any moment and is the only
//! way out: it gives back the visit's position in the queue, its turn if the request was not sent, and its place in
//! flight if it has one. A long transfer gives its place back earlier ([`holders`]). A refused visit has already left.
//! If no visit waits, [`Lane::walk_through`] does the same in one call.
//!
//! # How a connection gets ready
//! A turn is claimed last, when the connection is open; a visit without a ready connection cannot use one. So the lane
//! *calls* visits in fair order a little ([`LEAD`]) before their turn: early enough to open a connection, and late
//! enough that the connection does not idle until the origin closes it. It calls no more visits than there are free
//! places, so that waiting visits open no extra connections. Among the called visits, the first that is ready starts.
//! If a called visit is still not ready after the lead, it keeps its rank, but the lane calls another visit beside it,
//! so an origin that does not answer cannot delay other visits for ever. The time that a visit takes to get ready does
//! not count as waiting for the host.
//!
//! # Which visit keeps the timer
//! `Step::Wait` names one visit as the keeper of the alarm. When that visit leaves, the caller asks for the next step
//! again, and the lane names the next keeper. No other visit needs a timer, not even for its deadline.
//!
//! # Shared turns
//! If a shared ledger decides too, the caller asks it between `Start` and the send. If the ledger refuses, the caller
//! calls [`Lane::put_off`]. If it agrees but took time, [`Lane::agree`] says whether the turn is still valid.

mod admission;
mod aside;
mod claims;
mod crawl_delay;
mod drain;
mod failing;
mod fast_path;
mod holders;
mod lessons;
mod memory;
mod recent;
mod riding;
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
use super::policy::{Counts, Delays, Mode, Policy};
use super::queue::Queue;
use super::retry_promises::RetryPromises;
use super::time::Timestamp;
use super::turns::{Spacing, Turns};
use super::visit::{Purpose, Ticket};
use super::visit_table::{Phase, VisitTable};

use self::drain::Drain;
use self::lessons::Learned;
use self::riding::Riding;
use self::shadow::Shadow;
use self::steering::Steering;

pub use self::admission::{Expectation, Joined, Objection};
pub use self::claims::TurnTerms;
pub use self::failing::FailingOrigin;
pub use self::lessons::LaneLesson;
pub use self::memory::HostMemory;
pub use self::recent::{HoldSpan, Recent, Timeline};
pub use self::steering::Forgotten;
pub use self::steps::LEAD;
pub use self::view::{BreakerView, Condition, Obstacle, View};
pub use super::bars::Held;

/// One host's lane. The fields are laid out in the order in which a visit to a free host needs them: with many hosts,
/// most of what such a visit touches comes from memory, one piece of 64 bytes at a time.
#[derive(Debug)]
#[repr(C)]
pub struct Lane {
    turns: Turns,
    places: Places,
    queue: Queue,
    /// Visits that are preparing or ready, in the order they were called.
    called: SmallVec<[u32; 4]>,
    /// Visits that were told to start and keep a place, oldest first.
    flying: SmallVec<[u32; 4]>,
    roll: VisitTable,
    returns: Option<Box<RetryPromises>>,
    /// What was learned from the host's answers. `None` for most hosts.
    lessons: Option<Box<Learned>>,
    /// In report mode: what pacing would have done.
    shadow: Option<Box<Shadow>>,
    /// If pages are counted: their parts.
    riding: Option<Box<Riding>>,
    /// Requests that wait for robots.txt and join afterwards.
    robots_waits: u32,
    /// Visits that stepped aside, and the number of the last call that was counted.
    aside: u32,
    calls: u32,
    paused: bool,
    /// Whether visits that wait may have different crawl delays.
    mixed: bool,
    /// The memory holds something that is not saved yet.
    unsaved: bool,
    delays: Delays,
    /// Shared by all hosts that are treated alike.
    policy: Arc<Policy>,
    /// When the last successful answer came.
    last_success: Timestamp,
    audit: Audit,
    /// Long transfers that gave their ordinary places back. There are as many separate places for them.
    lasting: Vec<u32>,
    /// What an operator set for this host. `None` for most hosts.
    steering: Option<Box<Steering>>,
    /// When curtsy stops, if that is known.
    drain: Option<Box<Drain>>,
    recent: Recent,
    /// `None` for hosts that were visited once, and for quiet ones.
    timeline: Option<Box<Timeline>>,
}

impl Lane {
    /// Creates the lane of a host without a memory. `seed` seeds the jitter.
    #[allow(dead_code, reason = "benchmarks use it")]
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
            roll: VisitTable::new(),
            returns: None,
            audit: Audit::default(),
            paused: false,
            robots_waits: 0,
            aside: 0,
            calls: 0,
            unsaved: false,
            mixed: false,
            last_success: Timestamp::START,
            steering: None,
            drain: None,
            lessons: None,
            shadow: None,
            recent: Recent::default(),
            timeline: None,
            riding: None,
        };
        lane.cast_shadow();
        lane
    }

    /// Reports that a called visit has its connection. Returns whether the visit may start already, without a step: it
    /// may be a robots.txt fetch, a page that waited for one, or a part that rides.
    pub fn ready(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        let entry = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Preparing);
        let Some(entry) = entry else { return false };
        entry.phase = Phase::Ready;
        let deadline = entry.deadline + now.since(entry.since);
        entry.deadline = self.drain.as_ref().map_or(deadline, |drain| drain.before_end(deadline));
        let (deadline, purpose) = (entry.deadline, entry.purpose);
        self.roll.watch(deadline);
        if let Some(starts) = self.ride_ready(ticket, now) {
            return starts;
        }
        purpose != Purpose::Page && self.start_free(ticket, purpose, now)
    }

    /// Makes a ready visit get ready again, as if it had lost its connection.
    #[cfg(test)]
    pub fn unready(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.get_mut(ticket).filter(|entry| entry.phase == Phase::Ready) else { return };
        entry.phase = Phase::Preparing;
        entry.since = now;
    }

    /// Returns whether a visit that was told to start some time ago may still do so. If not, the visit is ready again,
    /// ahead of the other ready visits, and will be told to start again.
    #[must_use]
    pub fn confirm(&mut self, ticket: Ticket, now: Timestamp) -> bool {
        if !self.holds_turn(ticket) {
            return !self.rides(ticket) || self.confirm_ride(ticket, now);
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

    /// Reports that the head of a visit that was told to start was written at `now`. The caller counts and logs a
    /// breach.
    pub fn sent(&mut self, ticket: Ticket, now: Timestamp) -> Option<Breach> {
        let entry = self.roll.get_mut(ticket).filter(|entry| entry.phase.may_start())?;
        let phase = std::mem::replace(&mut entry.phase, Phase::Started);
        entry.since = now;
        let (retry, purpose, client, part) = (entry.retry, entry.purpose, entry.client, entry.part);
        match (phase, purpose) {
            (Phase::Riding, _) => self.settle_ride(),
            (_, Purpose::RobotsFetch) => self.turns.sent_fetch(now),
            (_, Purpose::Page | Purpose::AfterRobotsFetch) => {
                self.note_start(purpose, now);
                self.turns.sent(now);
            }
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.sent(ticket, now);
        }
        let breach = match phase {
            Phase::Riding => self.audit.judge_ride(now, self.ride_owed()),
            Phase::Claimed if self.enforced() => self.audit.judge(now, purpose, self.turns.owed()),
            _ => {
                self.audit.note(now);
                None
            }
        };
        if phase == Phase::Claimed && self.policy.count == Counts::Pages {
            self.open_ride(client, purpose, part, now);
        }
        if self.lessons.is_some() {
            self.count_send(ticket, retry, now);
        }
        breach
    }

    /// Removes the visit, whatever its phase. Ignores tickets of visits that have already left.
    pub fn leave(&mut self, ticket: Ticket, now: Timestamp) {
        let Some(entry) = self.roll.remove(ticket) else { return };
        if let Some(lessons) = &mut self.lessons {
            lessons.breakers.left(entry.origin, ticket);
        }
        match entry.phase {
            Phase::Waiting => self.queue.leave(ticket.number),
            Phase::Aside => self.aside -= 1,
            Phase::Parked => self.leave_riding(ticket),
            Phase::Preparing | Phase::Ready => {
                self.called.retain(|number| *number != ticket.number);
                self.leave_riding(ticket);
            }
            Phase::Riding => {
                self.settle_ride();
                self.flying.retain(|number| *number != ticket.number);
            }
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
        if self.shadow.is_some() {
            self.shadow_leaves(ticket, now);
        }
    }

    /// Frees the memory of past visits if the lane is empty. Call it now and then, when no visit has come for a while.
    pub fn give_back_room(&mut self, now: Timestamp) {
        self.roll.give_back_room();
        self.forget_old_timeline(now);
        let is_quiet = self.timeline.is_none() && self.in_flight() == 0;
        if is_quiet && self.delays.learned.is_zero() && !self.begins_slower() {
            self.drop_lessons(now);
        }
    }

    /// Replaces the policy, also for visits that already wait. Grants no fresh burst. Keeps what an operator set for
    /// this host.
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

    /// Sets the delay that robots.txt asks of the visit that is next or started last; zero if it asks for none.
    pub fn set_robots_delay(&mut self, delay: Duration, now: Timestamp) {
        self.mixed |= self.queued() > 0;
        self.delays.robots = delay;
        self.respace(now);
    }

    /// Sets the learned delay as if the host had taught it; zero if there is none.
    #[cfg(test)]
    pub(super) fn set_learned_delay(&mut self, delay: Duration, now: Timestamp) {
        self.delays.learned = delay;
        self.respace(now);
    }

    /// Lets no visit start before `until`, because the host asked for it. A shorter hold does not end a longer one.
    pub fn hold(&mut self, until: Timestamp, now: Timestamp) {
        self.hold_for(Held::Other, until, now);
    }

    fn hold_for(&mut self, cause: Held, until: Timestamp, now: Timestamp) {
        self.unsaved |= self.turns.hold(until, cause, now);
        self.note_hold(cause, until, now);
        if let Some(shadow) = &mut self.shadow {
            shadow.turns.hold(until, cause, now);
        }
        self.refuse_late(now);
    }

    /// Returns whether forgetting this lane would break a promise: a visit is in it, waits for robots.txt or was told
    /// to come back, or the host is held, paused, overridden by an operator, refused by a breaker or still owed part of
    /// an interval. What the lane has learned is in its [`HostMemory`], which the caller that forgets a lane must keep.
    pub fn owes(&self, now: Timestamp) -> bool {
        self.owes_until(now) > now
    }

    /// Returns until when the lane owes something, if no visit comes; never, if time alone does not end it.
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
        self.turns.bars().held_until
    }

    /// Visits that have not been told to start.
    pub fn queued(&self) -> usize {
        let riding = self.riding.as_ref().map_or(0, |riding| riding.waiting());
        self.queue.len() + self.called.len() + riding + self.aside()
    }

    /// Visits that were told to start and keep a place, without the long transfers that gave theirs back.
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
        let deadline = self.drain.as_ref().map_or(entry.deadline, |drain| drain.before_end(entry.deadline));
        entry.deadline = deadline;
        let asked = entry.crawl_delay();
        self.roll.watch(deadline);
        // Visits that came meanwhile may have another crawl delay.
        self.mix(asked);
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
