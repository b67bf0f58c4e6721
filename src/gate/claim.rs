//! Claims a turn from the ledger of the fleet, between the lane's `Start` and the permit.
//!
//! A claim runs in a task of its own: if its visit has left when the answer comes, the task hands the turn back. While
//! a visit holds a granted turn, dropping its [`Stay`](super::permit::Stay) hands the turn back.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::now;
use super::permit::{GrantedTurn, Stay};
use super::shared_lane::{LaneState, SharedLane};
use crate::clock;
use crate::ledger::{Claimed, FleetLedger, Granted, Ledger};
use crate::politeness::fleet::calls::Settlement;
use crate::politeness::fleet::node::Wish;
use crate::politeness::time::Timestamp;
use crate::timer::Timer;

/// What became of a visit that its lane has started.
pub(super) enum LedgerWord {
    /// It may be sent now.
    Go,
    /// It waits for its turn again, with its connection.
    NotYet,
    /// It waits in the queue again, because its turn is too far away to keep a connection open.
    Later,
}

/// Returns the ledger that other nodes share, if this visit needs its word.
pub(super) fn needed(stay: &Stay) -> Option<Arc<FleetLedger>> {
    let Ledger::Fleet(fleet) = &stay.gate.ledger else { return None };
    stay.lane.look(|state| state.lane.turn_terms(stay.ticket)).map(|_| fleet.clone())
}

/// Claims the turn of a visit that its lane has started.
pub(super) async fn claim(fleet: Arc<FleetLedger>, stay: &mut Stay) -> LedgerWord {
    loop {
        let wish = stay.lane.look(|state| {
            let terms = state.lane.turn_terms(stay.ticket)?;
            Some(state.appointment().wish(&terms))
        });
        let Some(wish) = wish else { return LedgerWord::Go };
        match ask(&fleet, &stay.lane, wish).await {
            Some(Claimed::Go(granted)) => {
                if use_window(stay, granted).await {
                    return LedgerWord::Go;
                }
                return LedgerWord::NotYet;
            }
            Some(Claimed::Wait { until, others, number }) => {
                let (now, until) = (now(), Timestamp::from_micros(until));
                let stays_ready = stay.lane.with(now, |state| {
                    state.appointment().keep_number(number);
                    state.lane.put_off(stay.ticket, until, others, now)
                });
                return if stays_ready { LedgerWord::NotYet } else { LedgerWord::Later };
            }
            Some(Claimed::News(news)) => {
                super::sharing::take_in(&stay.gate, &fleet, &stay.lane, news);
            }
            None => return LedgerWord::NotYet,
        }
    }
}

/// Asks in a task of its own. Returns `None` if that task was cancelled, because curtsy ends.
async fn ask(fleet: &Arc<FleetLedger>, lane: &Arc<SharedLane>, wish: Wish) -> Option<Claimed> {
    let (tell, told) = oneshot::channel();
    let (fleet, lane) = (fleet.clone(), lane.clone());
    tokio::spawn(async move {
        let claimed = fleet.claim(lane.host().as_str(), &wish).await;
        if let Err(claimed) = tell.send(claimed) {
            hand_back(&fleet, &lane, &claimed);
        }
    });
    told.await.ok()
}

/// Waits for the window. Returns whether the visit may be sent.
async fn use_window(stay: &mut Stay, granted: Granted) -> bool {
    // From here on, dropping the stay hands the turn back.
    stay.granted = Some(Box::new(GrantedTurn { granted, is_sent: false }));
    let mut timer = Timer::default();
    while now().as_micros() < granted.window.from {
        poll_fn(|cx| timer.poll_at(clock::instant(granted.window.from), cx)).await;
    }
    let now = now();
    let is_late = now.as_micros() > granted.window.until;
    let is_valid = stay.lane.with(now, |state| {
        let is_valid = state.lane.agree(stay.ticket, now);
        if is_valid && is_late {
            state.lane.miss_window(stay.ticket);
        }
        if !is_valid || is_late {
            state.keep_unused(&granted);
        }
        is_valid && !is_late
    });
    if is_valid {
        stay.account.is_alone = granted.turn.is_none();
    } else {
        stay.granted = None;
    }
    is_valid
}

/// Keeps what a claim brought whose visit has left, for the next visit, or tells the ledger.
fn hand_back(fleet: &FleetLedger, lane: &SharedLane, claimed: &Claimed) {
    let owed = lane.with(now(), |state| {
        match claimed {
            Claimed::Go(granted) => state.keep_unused(granted),
            Claimed::Wait { number, .. } => state.appointment().keep_number(*number),
            Claimed::News(_) => {}
        }
        state.resign()
    });
    owed.into_iter().for_each(|owed| fleet.settle(lane.host().as_str(), owed));
}

impl LaneState {
    /// Keeps a granted turn that is not used, and the number that came with it.
    pub(super) fn keep_unused(&mut self, granted: &Granted) {
        let appointment = self.appointment();
        granted.next.into_iter().for_each(|(number, _)| appointment.keep_number(number));
        let turn = granted.turn.filter(|_| !granted.is_burst);
        turn.into_iter().for_each(|turn| appointment.keep_unused(turn));
    }

    /// Returns what the ledger is owed if no visit waits any more.
    pub(super) fn resign(&mut self) -> Option<Settlement> {
        if self.lane.queued() > 0 { None } else { self.appointment_if_any()?.resign() }
    }

    /// Notes that a granted start was sent.
    pub(super) fn start_sent(&mut self, granted: &Granted, is_fetch: bool) {
        let appointment = self.appointment();
        if let Some(turn) = granted.turn.filter(|_| is_fetch) {
            appointment.fetched(turn);
        }
        if let Some((number, at)) = granted.next {
            appointment.keep_number(number);
            self.lane.appoint(Timestamp::from_micros(at), granted.others);
        }
    }
}
