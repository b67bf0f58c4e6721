//! A lane as operators see it: what it knows, and what it would decide, at one moment.
//!
//! Read only, and made from the numbers that decide, so that it always agrees with what happens.

use std::time::Duration;

use super::{FailingOrigin, Held, Lane, Recent};
use crate::politeness::breaker::{self, NotUntil};
use crate::politeness::pace::{LimitView, Pace};
use crate::politeness::policy::{Counts, Delays, Mode, Overrides};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::ClientId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub mode: Mode,
    pub count: Counts,
    /// Parts of pages that have started without a turn since the lane was created, modulo 2^32.
    pub parts: u32,
    pub delays: Delays,
    /// A probe below this delay failed not long ago.
    pub floor: Option<Duration>,
    /// Whether the current delay is a trial.
    pub probing: bool,
    pub error_streak: u16,
    pub success_streak: u16,
    pub held: Option<(Timestamp, Held)>,
    pub obstacle: Option<Obstacle>,
    /// See [`Lane::paused_until`].
    pub paused_until: Option<Timestamp>,
    /// When the next visit could start if it came alone; never, during a pause that only an operator can end.
    pub next_start: Timestamp,
    pub last_sent: Option<Timestamp>,
    pub last_success: Option<Timestamp>,
    pub queued: usize,
    /// Visits that keep a place.
    pub in_flight: usize,
    /// Long transfers, which have separate places.
    pub long_transfers: usize,
    /// Visits that have come since the lane was created, modulo 2^32.
    pub visits: u32,
    /// How many visits may be in flight at the moment, and by the policy.
    pub concurrency: (usize, usize),
    pub burst: u32,
    /// Visits that could start now, one right after the other.
    pub burst_left: u32,
    /// The worst of its origins' breakers.
    pub breaker: BreakerView,
    /// Whether an origin's breaker is open and the host has served nothing since.
    pub is_broken: bool,
    /// Failures in a row of the origin that has the most.
    pub failures: u16,
    /// Origins that have failed lately.
    pub failing: Vec<FailingOrigin>,
    pub overrides: Overrides,
    /// See [`Lane::retries_left`].
    pub retries_left: Option<u32>,
    pub recent: Recent,
    /// See [`Pace::limit`].
    pub limit: Option<LimitView>,
}

/// A visit that starts within this time after it could was not delayed by anything: timers and threads take their time.
const AT_ONCE: Duration = Duration::from_millis(50);

/// What delays visits that could start by the delay alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Paused,
    Held(Held),
    /// As many visits are in flight as allowed.
    Concurrency,
}

impl Obstacle {
    pub fn word(self) -> &'static str {
        match self {
            Obstacle::Paused => "paused",
            Obstacle::Held(held) => held.word(),
            Obstacle::Concurrency => "concurrency",
        }
    }
}

/// The state of a host in one word. If several apply, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    Paused,
    Broken,
    Held,
    /// The last connection to the host could not be opened.
    Unreachable,
    Waiting,
    Active,
    Idle,
}

impl Condition {
    pub const ALL: [Condition; 7] = [
        Condition::Paused,
        Condition::Broken,
        Condition::Held,
        Condition::Unreachable,
        Condition::Waiting,
        Condition::Active,
        Condition::Idle,
    ];

    fn of([paused, broken, held, unreachable]: [bool; 4], queued: usize, in_flight: usize) -> Condition {
        match () {
            () if paused => Condition::Paused,
            () if broken => Condition::Broken,
            () if held => Condition::Held,
            () if unreachable => Condition::Unreachable,
            () if queued > 0 => Condition::Waiting,
            () if in_flight > 0 => Condition::Active,
            () => Condition::Idle,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Condition::Paused => "paused",
            Condition::Broken => "broken",
            Condition::Held => "held",
            Condition::Unreachable => "unreachable",
            Condition::Waiting => "waiting",
            Condition::Active => "active",
            Condition::Idle => "idle",
        }
    }
}

impl View {
    pub fn condition(&self) -> Condition {
        let in_flight = self.in_flight + self.long_transfers;
        let troubles = [self.paused_until.is_some(), self.is_broken, self.held.is_some(), self.recent.is_unreachable()];
        Condition::of(troubles, self.queued, in_flight)
    }

    /// Returns what visits wait for, in one word: an obstacle, or else the largest part of the delay.
    pub fn why(&self) -> &'static str {
        self.obstacle.map_or_else(|| self.delays.why(), Obstacle::word)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerView {
    Closed,
    Open(NotUntil),
    /// One visit at a time is on trial.
    Trial,
}

impl Lane {
    pub fn view(&self, now: Timestamp) -> View {
        let pace = self.pace();
        View {
            mode: self.policy.mode,
            count: self.policy.count,
            parts: self.parts_rode(),
            delays: self.delays,
            floor: pace.and_then(|pace| pace.floor(now)),
            probing: pace.is_some_and(Pace::probing),
            error_streak: pace.map_or(0, Pace::error_streak),
            success_streak: pace.map_or(0, Pace::success_streak),
            held: (self.held_until() > now).then_some((self.held_until(), self.turns.bars().held_by)),
            obstacle: self.obstacle(now),
            paused_until: self.paused_until(now),
            next_start: self.next_start(now),
            last_sent: self.last_sent(),
            last_success: (self.last_success > Timestamp::START).then_some(self.last_success),
            queued: self.waiting(),
            in_flight: self.in_flight(),
            long_transfers: self.lasting(),
            visits: self.visits(),
            concurrency: (self.concurrency(), self.policy.concurrency.max(1) as usize),
            burst: self.policy.burst.max(1),
            burst_left: self.turns.left(now),
            breaker: self.worst_breaker(now),
            is_broken: self.is_broken(),
            failures: self.most_failures(),
            failing: self.failing_origins(now),
            overrides: self.overrides(),
            retries_left: self.retries_left(now),
            recent: self.recent,
            limit: pace.and_then(Pace::limit),
        }
    }

    /// Returns [`View::condition`] and [`View::breaker`] without computing the rest, for callers that ask a hundred
    /// thousand lanes.
    pub fn condition(&self, now: Timestamp) -> (Condition, BreakerView) {
        let (breaker, held) = (self.worst_breaker(now), self.held_until() > now);
        let troubles = [self.paused_until(now).is_some(), self.is_broken(), held, self.recent.is_unreachable()];
        (Condition::of(troubles, self.waiting(), self.in_flight() + self.lasting()), breaker)
    }

    /// Returns what prevents a visit from starting although its turn would allow it.
    pub fn obstacle(&self, now: Timestamp) -> Option<Obstacle> {
        match () {
            () if !self.enforced() => None,
            () if self.paused_until(now).is_some() => Some(Obstacle::Paused),
            () if self.held_until() > now.max(self.spaced()) => Some(Obstacle::Held(self.turns.bars().held_by)),
            () if self.is_full() && self.turns.earliest(now) <= now => Some(Obstacle::Concurrency),
            () => None,
        }
    }

    /// Returns the obstacle that ended last before a visit that waited got its turn now.
    pub fn overcome(&self, now: Timestamp) -> Option<Obstacle> {
        let (held, spaced) = (self.held_until(), self.spaced());
        match () {
            () if !self.enforced() => None,
            () if self.is_full() && now > held.max(spaced) + AT_ONCE => Some(Obstacle::Concurrency),
            () if held > spaced => Some(Obstacle::Held(self.turns.bars().held_by)),
            () => None,
        }
    }

    /// Returns when the delay alone would let the next visit start.
    fn spaced(&self) -> Timestamp {
        self.last_sent().map_or(Timestamp::START, |last| last + self.delays.effective())
    }

    fn is_full(&self) -> bool {
        self.in_flight() >= self.concurrency()
    }

    /// See [`View::next_start`].
    pub fn next_start(&self, now: Timestamp) -> Timestamp {
        if self.paused { Timestamp::NEVER } else { self.turns.earliest(now) }
    }

    /// Returns how long the longest-waiting visit of this client has waited in the queue.
    pub fn longest_wait(&self, client: ClientId, now: Timestamp) -> Duration {
        let waiting = self.queue.in_order().into_iter().map(|number| self.roll.entry(number));
        waiting.filter(|entry| entry.client == client).map(|entry| now.since(entry.since)).max().unwrap_or_default()
    }

    /// See [`View::visits`].
    pub fn visits(&self) -> u32 {
        self.roll.entered()
    }
}

impl BreakerView {
    pub(super) fn of(breaker: &breaker::Breaker, now: Timestamp) -> BreakerView {
        match breaker.refusal(now) {
            Some(refusal) => BreakerView::Open(refusal),
            None if breaker.is_open() => BreakerView::Trial,
            None => BreakerView::Closed,
        }
    }
}
