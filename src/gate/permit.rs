//! A permit allows one visit, and holds what that visit owes to its lane until it is over.
//!
//! Dropping the permit gives back the unused turn and the place in flight. So no path can forget to do it: not a client
//! that disconnects, not a connection that fails, not a panic.

use std::sync::Arc;
use std::time::Duration;

use super::shared_lane::{LaneState, SharedLane};
use super::{Gate, now};
use crate::clock;
use crate::ledger::{FleetLedger, Granted, Ledger};
use crate::metrics::tally::TallyRow;
use crate::politeness::Origin;
use crate::politeness::fault::HostReply;
use crate::politeness::lane::{Lane, LaneLesson, Obstacle};
use crate::politeness::policy::{Delays, Mode};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Ticket, VisitOutcome};

/// Permission to make one visit.
#[derive(Debug)]
pub struct Permit(Option<Box<Stay>>);

/// A visit's stay in its lane, from joining to leaving. Boxed, because it is moved often.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) gate: Arc<Gate>,
    pub(super) lane: Arc<SharedLane>,
    pub(super) ticket: Ticket,
    pub(super) client: ClientId,
    /// How long the visit waited. The time that its connection took does not count.
    pub(super) waited: Duration,
    pub(super) account: Account,
    /// When the visit left, if the code that drops it knows.
    pub(super) left: Option<Timestamp>,
    /// A robots.txt fetch that did not have to wait. It is not counted as a visit, and its outcome is not reported.
    pub(super) is_fetch: bool,
    /// A robots.txt fetch, whether it had to wait or not.
    pub(super) purpose_is_fetch: bool,
    /// A part of a page, at a host that counts pages.
    pub(super) is_part: bool,
    /// In a fleet: the turn that the ledger granted.
    pub(super) granted: Option<Box<GrantedTurn>>,
}

/// A turn of the fleet's ledger. It is handed back if it is not sent.
#[derive(Debug)]
pub(super) struct GrantedTurn {
    pub(super) granted: Granted,
    pub(super) is_sent: bool,
    /// The ledger's number for the request, if it must be told when the request ends.
    pub(super) watched: Option<u64>,
}

impl Stay {
    /// Counts the visit for its host. Called when its turn has come.
    pub(super) fn count(&self, state: &mut LaneState) {
        if !self.is_fetch {
            self.gate.metrics.hosts.visit(&mut state.badge, self.lane.host(), self.waited);
        }
    }

    fn tally(&self, count: impl FnOnce(&mut TallyRow)) {
        if self.gate.metrics.tally.is_kept() {
            self.gate.metrics.tally.count(self.lane.host().as_str(), count);
        }
    }

    /// Teaches the lane, saves what it learned, and reports the lesson.
    pub(super) fn learn(
        &self,
        now: Timestamp,
        origin: Option<&Origin>,
        teach: impl FnOnce(&mut Lane) -> Option<LaneLesson>,
    ) {
        let is_fleet = matches!(self.gate.ledger, Ledger::Fleet(_));
        let (lesson, is_news) = self.lane.with(now, |state| {
            let lesson = teach(&mut state.lane);
            let is_news = is_fleet && state.has_quota_news(now);
            if let Some(origin) = origin {
                state.lane.name_origin(self.gate.origin(origin), origin);
            }
            self.gate.registry.keep_news(&self.lane, state, now);
            (lesson, is_news)
        });
        if is_news || lesson.is_some_and(|lesson| lesson.pace.is_some()) {
            self.gate.share(&self.lane);
        }
        if let Some(lesson) = lesson {
            self.gate.tell(self.lane.host(), origin, &lesson, now);
        }
    }
}

impl Stay {
    /// Hands back what the ledger granted and was not used.
    fn settle(&self, fleet: &FleetLedger, now: Timestamp) {
        let host = self.lane.host().as_str();
        let owed = self.lane.with(now, |state| {
            if let Some(turn) = self.granted.as_ref().filter(|turn| !turn.is_sent) {
                state.keep_unused(&turn.granted);
            }
            state.resign()
        });
        owed.into_iter().for_each(|owed| fleet.settle(host, owed));
        if let Some((turn, number)) = self.granted.as_ref().and_then(|turn| Some((turn, turn.watched?))) {
            fleet.ended(host, &turn.granted, number);
        }
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        let now = self.left.unwrap_or_else(now);
        self.lane.with(now, |state| state.leave(self.ticket, now));
        if let Ledger::Fleet(fleet) = &self.gate.ledger {
            self.settle(fleet, now);
        }
    }
}

impl Permit {
    /// The permit of a gate that paces no host.
    pub(super) fn free() -> Self {
        Permit(None)
    }

    /// Call it when the visit's turn has come.
    pub(super) fn new(stay: Box<Stay>) -> Self {
        if !stay.is_fetch {
            stay.gate.metrics.waited(stay.client, stay.waited);
            stay.tally(|row| row.visited(stay.waited));
        }
        Permit(Some(stay))
    }

    /// Moves the permit out. The one that stays behind settles nothing when dropped.
    #[must_use]
    pub fn take(&mut self) -> Permit {
        Permit(self.0.take())
    }

    /// Gives the permit back at the time `now`.
    pub fn leave(mut self, now: Timestamp) {
        if let Some(stay) = &mut self.0 {
            stay.left = Some(now);
        }
    }

    /// Whether the fleet's window for the start is over, so that a request needs another turn.
    pub fn is_overdue(&self) -> bool {
        let granted = self.0.as_ref().and_then(|stay| stay.granted.as_ref());
        granted.is_some_and(|turn| !turn.is_sent && now().as_micros() > turn.granted.window.until)
    }

    /// Records that the request head was written just now, and returns that time.
    pub fn sent(&mut self) -> Timestamp {
        self.start_at(now(), false)
    }

    /// Records that the turn is spent by a connection that carried no request in its window.
    pub fn spent(&mut self) {
        self.start_at(now(), true);
    }

    fn start_at(&mut self, now: Timestamp, was_in_time: bool) -> Timestamp {
        let Some(stay) = &mut self.0 else { return now };
        let mut granted = stay.granted.take();
        let breach = stay.lane.with(now, |state| {
            if stay.is_part {
                stay.gate.metrics.part(state.lane.rides(stay.ticket));
            }
            let breach = state.lane.sent(stay.ticket, now);
            if let Some(turn) = &mut granted {
                turn.is_sent = true;
                state.start_sent(&turn.granted, stay.purpose_is_fetch);
            }
            breach
        });
        if let (Some(turn), Ledger::Fleet(fleet)) = (&mut granted, &stay.gate.ledger) {
            let host = stay.lane.host().as_str();
            let latest = if was_in_time { turn.granted.window.until } else { u64::MAX };
            let at = now.as_micros().min(latest);
            turn.watched = turn.watched.or_else(|| fleet.started(host, at, &turn.granted));
        }
        stay.granted = granted;
        if let Some(breach) = breach {
            stay.gate.metrics.spacing_violations.inc();
            tracing::error!(event = "spacing.violation", ?breach, "a request started too early; please report this");
        }
        now
    }

    /// Reports the outcome at the time `now`: the response head has arrived, or never will.
    pub fn report(&mut self, outcome: VisitOutcome, now: Timestamp) {
        self.report_of(None, None, outcome, now);
    }

    /// Like [`report`](Permit::report), and says what came back from which origin, so that both can be shown.
    pub fn report_of(
        &mut self,
        origin: Option<&Origin>,
        reply: Option<HostReply>,
        outcome: VisitOutcome,
        now: Timestamp,
    ) {
        let Some(stay) = self.0.as_ref() else { return };
        let ticket = stay.ticket;
        // Most answers are as expected and teach nothing.
        let is_done = stay.lane.look(|state| {
            reply.into_iter().for_each(|reply| state.lane.note_reply(reply, now));
            stay.is_fetch || state.lane.takes_for_granted(ticket, outcome, now)
        });
        if is_done {
            return;
        }
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

    /// Notes that the visit is a tunnel that was opened.
    pub fn opened(&self) {
        if let Some(stay) = &self.0 {
            stay.lane.look(|state| state.lane.note_opened());
        }
    }

    /// Marks the visit as moving a body that may take long: after a while other visits may use its place. Do not call
    /// this for short bodies, because it locks the lane.
    pub fn transfers(&self) {
        if let Some(stay) = &self.0 {
            stay.lane.look(|state| state.lane.transfers(stay.ticket));
        }
    }

    /// Marks the visit as a WebSocket: other visits may use its place at once.
    pub fn stays_open(&self) {
        if let Some(stay) = &self.0 {
            stay.lane.with(now(), |state| state.lane.stays_open(stay.ticket));
        }
    }

    /// Whether the host's retry budget allows sending this request once more. If so, takes that from the budget.
    pub fn may_retry(&self) -> bool {
        let Some(stay) = &self.0 else { return false };
        let (now, book) = (now(), stay.gate.book.load());
        stay.lane.look(|state| state.lane.may_retry(&book.schooling, now))
    }

    /// Whether the host means "too fast" by a suspect status such as 403.
    pub fn refuses_in_disguise(&self) -> bool {
        self.0.as_ref().is_some_and(|stay| stay.lane.look(|state| state.lane.refuses_in_disguise()))
    }

    pub fn waited(&self) -> Duration {
        self.0.as_ref().map_or(Duration::ZERO, |stay| stay.waited)
    }

    /// In report mode: how long the visit would have waited, as far as is known now.
    #[inline]
    pub fn would_wait(&self) -> Option<Duration> {
        let stay = self.0.as_ref().filter(|stay| stay.account.mode == Mode::Report)?;
        stay.lane.look(|state| state.lane.would_wait(stay.ticket, now()))
    }

    /// What can be shown about this visit; `None` if its host is not paced.
    pub fn account(&self) -> Option<&Account> {
        self.0.as_ref().map(|stay| &stay.account)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// The parts of the host's delay.
    pub delays: Delays,
    /// What the visit waited for, if it was more than the delay.
    pub(super) obstacle: Option<Obstacle>,
    pub mode: Mode,
    /// In a fleet: the node cannot reach the ledger and keeps to its share.
    pub is_alone: bool,
    /// Number of visits that were queued before it.
    pub ahead: usize,
}

impl Account {
    /// What the visit waited for, in one word, as [`View::why`](crate::politeness::lane::View::why) says for its host.
    pub fn why(&self) -> &'static str {
        self.obstacle.map_or_else(|| self.delays.why(), Obstacle::word)
    }
}
