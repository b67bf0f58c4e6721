//! Shares with the fleet what hosts teach and what the operator sets, and takes in what other nodes learned.
//!
//! A record has a version. A node tells a record only if it learned it from the stored version, so that twenty refusals
//! heard by eight nodes raise the delay once. A node whose version differs takes the stored record in with its next
//! claim.

use std::sync::Arc;

use super::shared_lane::{LaneState, SharedLane};
use super::{Gate, now};
use crate::ledger::{FOR_EVER, FleetLedger, Ledger, record};
use crate::politeness::HostKey;
use crate::politeness::fleet::calls::{HostNews, Steered, Told};
use crate::politeness::lane::HostMemory;
use crate::politeness::time::Timestamp;

/// What this node knows about a host and the fleet must know.
struct Knowledge {
    version: u64,
    held: u64,
    record: Option<String>,
    keep_ms: u64,
}

impl Gate {
    /// Tells the fleet what a host has just taught, in a task of its own.
    pub(super) fn share(self: &Arc<Self>, lane: &Arc<SharedLane>) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let (gate, fleet, lane) = (self.clone(), fleet.clone(), lane.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { tell(&gate, &fleet, &lane).await });
        }
    }

    /// Takes in what an operator has changed about a host at another node, so that visits that wait hear of it.
    pub fn refresh(self: &Arc<Self>, host: &str) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let lane = HostKey::parse(host).ok().and_then(|host| self.registry.known(&host));
        let (Some(lane), Ok(runtime)) = (lane, tokio::runtime::Handle::try_current()) else { return };
        let (gate, fleet) = (self.clone(), fleet.clone());
        runtime.spawn(async move {
            let version = lane.look(|state| state.appointment().version);
            let told = Told { version, ..Told::default() };
            if let Some((false, news)) = fleet.tell(lane.host().as_str(), told).await {
                adopt(&gate, &lane, &news);
            }
        });
    }

    /// Tells the fleet what the operator has set for a host.
    pub(super) fn share_steering(self: &Arc<Self>, lane: &Arc<SharedLane>, forget: bool) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (fleet, lane) = (fleet.clone(), lane.clone());
        let (steered, known) = lane.look(|state| {
            state.appointment().unshared += 1;
            state.lane.appoint(Timestamp::START, 0);
            (steering_of(state, forget), state.appointment().version)
        });
        let gate = self.clone();
        runtime.spawn(async move {
            let host = lane.host().as_str();
            let told = fleet.steer(host, steered).await;
            lane.look(|state| state.appointment().unshared -= 1);
            match told {
                Ok(version) => {
                    // If another node changed something too, this one does not know it yet.
                    let is_all = version == known + 1;
                    lane.look(|state| state.appointment().version = if is_all { version } else { 0 });
                    fleet.announce_host(host);
                    gate.refresh(host);
                }
                Err(error) => {
                    let advice = error.to_string();
                    tracing::warn!(event = "fleet.unshared", host, advice, "other nodes do not know what was set");
                }
            }
        });
    }
}

async fn tell(gate: &Arc<Gate>, fleet: &Arc<FleetLedger>, lane: &Arc<SharedLane>) {
    // Twice: if another node was first, what it learned may be less than what this one heard.
    for _ in 0..2 {
        let Knowledge { version, held, record, keep_ms } = lane.look(knowledge);
        let mine = record.clone();
        let told = Told { version, held, record, keep_ms };
        let Some((fits, news)) = fleet.tell(lane.host().as_str(), told).await else { return };
        if fits {
            lane.look(|state| state.appointment().version = news.version);
            return;
        }
        let is_less = record::learned(mine.as_deref()) > record::learned(Some(&news.record));
        if is_less {
            lane.look(|state| state.appointment().version = news.version);
            continue;
        }
        adopt(gate, lane, &news);
        return;
    }
}

fn knowledge(state: &mut LaneState) -> Knowledge {
    let now = now();
    let memory = state.lane.memory(now);
    let held = state.lane.held_until();
    let version = state.appointment().version;
    let record =
        memory.pace.map(|pace| record::write(&pace)).or_else(|| (version > 0).then(|| record::NONE.to_owned()));
    let keep_ms = if record.is_some() { REMEMBERED_MS } else { held.since(now).as_millis() as u64 + 60_000 };
    Knowledge { version, held: if held > now { held.as_micros() } else { 0 }, record, keep_ms }
}

/// How long Redis keeps what a host taught: 30 days, as long as a node remembers it.
const REMEMBERED_MS: u64 = 30 * 86_400 * 1_000;

fn steering_of(state: &mut LaneState, forget: bool) -> Steered {
    let closed = match state.lane.paused_until(now()) {
        Some(Timestamp::NEVER) => FOR_EVER,
        Some(until) => until.as_micros(),
        None => 0,
    };
    let overrides = record::write_overrides(&state.lane.overrides());
    Steered { overrides: Some(overrides), closed: Some(closed), lift: false, forget }
}

/// Takes in what the fleet knows about a host. If the fleet knows less than this node, tells it.
pub(super) fn take_in(gate: &Arc<Gate>, fleet: &Arc<FleetLedger>, lane: &Arc<SharedLane>, news: HostNews) {
    let news = fleet.local_news(lane.host().as_str(), news);
    let known = lane.look(|state| state.appointment().version);
    if news.version >= known {
        return adopt(gate, lane, &news);
    }
    // Redis has forgotten: what this node knows is the fleet's memory.
    let is_steered = lane.look(|state| {
        state.appointment().version = news.version;
        state.lane.overrides() != Default::default() || state.lane.paused_until(now()).is_some()
    });
    gate.share(lane);
    if is_steered {
        gate.share_steering(lane, false);
    }
}

fn adopt(gate: &Arc<Gate>, lane: &Arc<SharedLane>, news: &HostNews) {
    let (now, book) = (now(), gate.book.load());
    let end = |until: u64| if until >= FOR_EVER { Timestamp::NEVER } else { Timestamp::from_micros(until) };
    let memory = HostMemory {
        last_sent: None,
        held_until: (news.held > now.as_micros()).then(|| end(news.held)),
        pace: record::read(&news.record, now),
        paused_until: (news.closed > now.as_micros()).then(|| end(news.closed)),
    };
    let overrides = record::read_overrides(&news.overrides);
    lane.with(now, |state| {
        let appointment = state.appointment();
        if appointment.unshared > 0 || appointment.version >= news.version {
            return;
        }
        appointment.version = news.version;
        // What the ledger said before may be the end of a pause that is over.
        state.lane.appoint(Timestamp::START, 0);
        state.lane.adopt(&memory, overrides, &book.schooling, now);
        gate.registry.keep_news(lane, state, now);
    });
}
