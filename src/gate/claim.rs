//! Claims a turn from the ledger of the fleet, between the lane's `Start` and the permit.
//!
//! If a visit leaves before the answer comes, a task waits for it and hands the turn back. While a visit holds a
//! granted turn, dropping its [`Stay`](super::permit::Stay) hands the turn back.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::runtime::Handle;

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
    stay.lane.look(|state| state.lane.needs_turn(stay.ticket)).then(|| fleet.clone())
}

/// Claims the turn of a visit that its lane has started.
pub(super) async fn claim(fleet: Arc<FleetLedger>, stay: &mut Stay) -> LedgerWord {
    loop {
        let wish = stay.lane.look(|state| {
            let terms = state.lane.turn_terms(stay.ticket)?;
            Some(state.appointment().wish(&terms))
        });
        let Some(wish) = wish else { return LedgerWord::Go };
        match Asking::begin(&fleet, &stay.lane, wish).await {
            Claimed::Go(granted) => {
                let sharers = fleet.sharers(stay.lane.host().as_str(), true);
                stay.lane.look(|state| state.hear_ledger(granted.successes, sharers));
                if use_window(stay, granted).await {
                    return LedgerWord::Go;
                }
                return LedgerWord::NotYet;
            }
            Claimed::Wait { until, others, number, successes } => {
                let (now, until) = (now(), Timestamp::from_micros(until));
                let sharers = fleet.sharers(stay.lane.host().as_str(), true);
                let stays_ready = stay.lane.with(now, |state| {
                    state.appointment().keep_number(number);
                    state.hear_ledger(successes, sharers);
                    state.lane.put_off(stay.ticket, until, others, now)
                });
                return if stays_ready { LedgerWord::NotYet } else { LedgerWord::Later };
            }
            Claimed::News(news) => {
                super::sharing::take_in(&stay.gate, &fleet, &stay.lane, news);
            }
        }
    }
}

/// A claim whose answer has not come.
struct Claiming {
    answer: Pin<Box<dyn Future<Output = Claimed> + Send>>,
    fleet: Arc<FleetLedger>,
    lane: Arc<SharedLane>,
}

/// Waits for the answer to a claim, for as long as the visit waits.
struct Asking(Option<Claiming>);

impl Asking {
    fn begin(fleet: &Arc<FleetLedger>, lane: &Arc<SharedLane>, wish: Wish) -> Self {
        let (asked, host) = (fleet.clone(), lane.host().clone());
        let answer = Box::pin(async move { asked.claim(host.as_str(), &wish).await });
        Asking(Some(Claiming { answer, fleet: fleet.clone(), lane: lane.clone() }))
    }
}

impl Future for Asking {
    type Output = Claimed;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Claimed> {
        let Some(claiming) = &mut self.0 else { return Poll::Pending };
        let claimed = ready!(claiming.answer.as_mut().poll(cx));
        self.0 = None;
        Poll::Ready(claimed)
    }
}

/// The visit has left: a task waits for the answer and hands the turn back.
impl Drop for Asking {
    fn drop(&mut self) {
        let (Some(claiming), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            let Claiming { answer, fleet, lane } = claiming;
            hand_back(&fleet, &lane, &answer.await);
        });
    }
}

/// Waits for the window. Returns whether the visit may be sent.
async fn use_window(stay: &mut Stay, granted: Granted) -> bool {
    // From here on, dropping the stay hands the turn back.
    stay.granted = Some(Box::new(GrantedTurn { granted, is_sent: false, watched: None }));
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
    /// Takes what every answer of the ledger says about the host.
    fn hear_ledger(&mut self, successes: u64, sharers: u32) {
        self.lane.share_places(sharers);
        if successes > 0 {
            self.lane.praised(successes);
        }
    }

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
