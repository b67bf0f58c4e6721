//! A permit: leave to make one visit, and what is owed to its lane until the visit is over.
//!
//! Dropping it settles that: the turn if it was not used, the place in flight. So no path can forget to, be it a client
//! that leaves, a connection that fails or a panic.

use std::sync::Arc;
use std::time::Duration;

use super::shared_lane::{SharedLane, State};
use super::{Gate, now};
use crate::clock;
use crate::metrics::tally::Row;
use crate::politeness::Origin;
use crate::politeness::lane::{Lane, Lesson, Obstacle};
use crate::politeness::policy::{Delays, Mode};
use crate::politeness::signals::Signals;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Outcome, Ticket};

/// Leave to make one visit.
#[derive(Debug)]
pub struct Permit(Option<Box<Stay>>);

/// A visit's stay in its lane, from joining to leaving. Boxed, because it passes through many hands.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) gate: Arc<Gate>,
    pub(super) lane: Arc<SharedLane>,
    pub(super) ticket: Ticket,
    /// How long it was kept waiting. The time its connection took is its own.
    pub(super) waited: Duration,
    pub(super) account: Account,
    /// Whether its host wants to hear of every answer at once.
    pub(super) is_heeded: bool,
    /// When it had an answer that was to be expected, which its host is told when it leaves.
    pub(super) served: Option<Timestamp>,
    /// When it left, if that is known to whoever drops it.
    pub(super) left: Option<Timestamp>,
    /// A robots.txt fetch that did not have to wait: it is no visit to people.
    pub(super) is_fetch: bool,
}

/// Served as usual: an answer that teaches nothing where nothing was learned.
const SERVED: Outcome = Outcome::Heard(Signals::SERVED);

impl Stay {
    /// Its turn has come: counts it among the visits of its host.
    pub(super) fn count(&self, state: &mut State) {
        if !self.is_fetch {
            self.gate.metrics.hosts.visit(&mut state.badge, self.lane.host(), self.waited);
        }
    }

    fn tally(&self, count: impl FnOnce(&mut Row)) {
        if self.gate.metrics.tally.is_kept() {
            self.gate.metrics.tally.count(self.lane.host().as_str(), count);
        }
    }

    /// Has the lane taught, and what it learned kept and told.
    pub(super) fn learn(
        &self,
        now: Timestamp,
        origin: Option<&Origin>,
        teach: impl FnOnce(&mut Lane) -> Option<Lesson>,
    ) {
        let lesson = self.lane.with(now, |state| {
            let lesson = teach(&mut state.lane);
            if let Some(origin) = origin {
                state.lane.name_origin(self.gate.origin(origin), origin);
            }
            self.gate.registry.keep_news(&self.lane, state, now);
            lesson
        });
        if let Some(lesson) = lesson {
            self.gate.tell(self.lane.host(), origin, &lesson, now);
        }
    }

    /// The host has learned something since the request was sent.
    #[cold]
    fn report_late(&self, now: Timestamp) {
        let book = self.gate.book.load();
        self.learn(now, None, |lane| lane.report(self.ticket, SERVED, &book.schooling, now));
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let (ticket, heard, now) = (self.ticket, self.served, self.left.unwrap_or_else(now));
        let leave = |state: &mut State| {
            state.lane.leave(ticket, now);
            state.forget(ticket);
        };
        let is_gone = self.lane.with(now, |state| {
            let is_told = heard.is_none_or(|heard| state.lane.takes_for_granted(ticket, SERVED, heard));
            if is_told {
                leave(state);
            }
            is_told
        });
        if !is_gone {
            self.report_late(now);
            self.lane.with(now, leave);
        }
    }
}

impl Permit {
    /// Where nobody is paced.
    pub(super) fn free() -> Self {
        Permit(None)
    }

    /// To be called when its turn has come.
    pub(super) fn new(stay: Box<Stay>) -> Self {
        if !stay.is_fetch {
            stay.gate.metrics.waited(stay.waited);
            stay.tally(|row| row.visited(stay.waited));
        }
        Permit(Some(stay))
    }

    /// Takes it over; what is left behind settles nothing.
    #[must_use]
    pub fn take(&mut self) -> Permit {
        Permit(self.0.take())
    }

    /// Gives it back, as of just now.
    pub fn leave(mut self, now: Timestamp) {
        if let Some(stay) = &mut self.0 {
            stay.left = Some(now);
        }
    }

    /// The head of the request was written just now: tells when that is.
    pub fn sent(&mut self) -> Timestamp {
        let now = now();
        let Some(stay) = &mut self.0 else { return now };
        let (breach, is_heeded) = stay.lane.with(now, |state| {
            let breach = state.lane.sent(stay.ticket, now);
            (breach, state.lane.heeds_answers())
        });
        stay.is_heeded = is_heeded;
        if let Some(breach) = breach {
            stay.gate.metrics.spacing_violations.inc();
            tracing::error!(event = "spacing.violation", ?breach, "a request started too early; please report this");
        }
        now
    }

    /// The response head is in, as of just now, or will never be.
    pub fn report(&mut self, outcome: Outcome, now: Timestamp) {
        self.report_of(None, outcome, now);
    }

    /// The same, and says which origin it is about, so that people can be told if that fails.
    pub fn report_of(&mut self, origin: Option<&Origin>, outcome: Outcome, now: Timestamp) {
        let Some(stay) = self.0.as_mut().filter(|stay| !stay.is_fetch) else { return };
        if outcome == Outcome::Truncated {
            stay.served = None;
        }
        if outcome == SERVED && !stay.is_heeded {
            // Most answers are so, and telling it when the visit leaves is one look into the lane less.
            stay.served = Some(now);
            return;
        }
        let (stay, ticket) = (&*stay, stay.ticket);
        let book = stay.gate.book.load();
        let mut would_wait = None;
        stay.learn(now, origin, |lane| {
            let lesson = lane.report(ticket, outcome, &book.schooling, now);
            would_wait = lane.would_wait(ticket, now);
            lesson
        });
        if let Some(wait) = would_wait {
            stay.gate.metrics.would_wait(wait);
            let most = stay.lane.look(|state| state.lane.policy().max_wait);
            let end = clock::now() + wait;
            stay.tally(|row| {
                row.would_wait.add(wait);
                row.would_refuse += u64::from(wait > most);
                row.would_end = row.would_end.max(Some(end));
            });
        }
    }

    /// It moves a body that may take long: when it has, its place is free for others. Not to be told of short bodies,
    /// because it costs a look into the lane.
    pub fn transfers(&self) {
        if let Some(stay) = &self.0 {
            stay.lane.look(|state| state.lane.transfers(stay.ticket));
        }
    }

    /// It has become a WebSocket: others may have its place at once.
    pub fn stays_open(&self) {
        if let Some(stay) = &self.0 {
            stay.lane.with(now(), |state| state.lane.stays_open(stay.ticket));
        }
    }

    /// Whether the host's budget has room for sending this once more; takes it if so.
    pub fn may_retry(&self) -> bool {
        let Some(stay) = &self.0 else { return false };
        let (now, book) = (now(), stay.gate.book.load());
        stay.lane.look(|state| state.lane.may_retry(&book.schooling, now))
    }

    /// How long the host's visits may wait.
    pub fn max_wait(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |stay| stay.lane.look(|state| state.lane.policy().max_wait))
    }

    pub fn waited(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |stay| stay.waited)
    }

    /// In report mode: how long it would have waited, as far as is known by now.
    #[inline]
    pub fn would_wait(&self) -> Option<Duration> {
        let stay = self.0.as_ref().filter(|stay| stay.account.mode == Mode::Report)?;
        stay.lane.look(|state| state.lane.would_wait(stay.ticket, now()))
    }

    /// What can be told about this visit; `None` if its host is not paced.
    pub fn account(&self) -> Option<&Account> {
        self.0.as_ref().map(|stay| &stay.account)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// What the delay of the host is made of.
    pub delays: Delays,
    /// What kept it waiting, if it was more than the delay.
    pub(super) obstacle: Option<Obstacle>,
    pub mode: Mode,
    /// How many stood in line before it.
    pub ahead: usize,
}

impl Account {
    /// What it waited for, in a word, as [`View::why`](crate::politeness::lane::View::why) says of its host.
    pub fn why(&self) -> &'static str {
        self.obstacle.map_or_else(|| self.delays.why(), Obstacle::word)
    }
}
