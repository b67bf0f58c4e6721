//! Shares with the fleet what hosts teach and what the operator sets, and takes in what other nodes learned.
//!
//! A record has a version. A node tells a record only if it learned it from the stored version, so that twenty refusals
//! heard by eight nodes raise the delay once. A node whose version differs takes the stored record in with its next
//! claim.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::shared_lane::{LaneState, SharedLane};
use super::{Gate, now};
use crate::ledger::{FOR_EVER, FleetLedger, Ledger, record};
use crate::politeness::HostKey;
use crate::politeness::fleet::appointment::Owed;
use crate::politeness::fleet::calls::{HostNews, Steered, Told};
use crate::politeness::lane::HostMemory;
use crate::politeness::pace::PaceRecord;
use crate::politeness::time::Timestamp;

impl Gate {
    /// Tells the fleet what a host has just taught, in a task of its own.
    pub(super) fn share(self: &Arc<Self>, lane: &Arc<SharedLane>) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let (gate, fleet, lane) = (self.clone(), fleet.clone(), lane.clone());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { tell(&gate, &fleet, &lane).await });
        }
    }

    /// Takes in what an operator has changed about a host at another node, so that visits that wait hear of it.
    pub fn refresh(self: &Arc<Self>, host: &str) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let lane = HostKey::parse(host).ok().and_then(|host| self.registry.known(&host));
        let (Some(lane), Ok(runtime)) = (lane, Handle::try_current()) else { return };
        let (gate, fleet) = (self.clone(), fleet.clone());
        runtime.spawn(async move {
            let version = lane.look(|state| state.appointment().version);
            let told = Told { version, ..Told::default() };
            if let Some((false, news)) = fleet.tell(lane.host().as_str(), told).await {
                adopt(&gate, &lane, &news);
            }
        });
    }

    /// Tells the fleet what the operator has set for a host. If Redis does not answer, it is told when it does.
    pub(super) fn share_steering(self: &Arc<Self>, lane: &Arc<SharedLane>, forget: bool) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let Ok(runtime) = Handle::try_current() else { return };
        let (gate, fleet, lane) = (self.clone(), fleet.clone(), lane.clone());
        let (steered, known) = lane.look(|state| {
            let appointment = state.appointment();
            appointment.unshared += 1;
            appointment.owed.steering = false;
            let forget = std::mem::take(&mut appointment.owed.forget) || forget;
            state.lane.appoint(Timestamp::START, 0);
            (steering_of(state, forget), state.appointment().version)
        });
        runtime.spawn(async move {
            let host = lane.host().as_str();
            let forget = steered.forget;
            let told = fleet.steer(host, steered).await;
            lane.look(|state| {
                let appointment = state.appointment();
                appointment.unshared -= 1;
                match told {
                    // If another node changed something too, this one does not know it yet.
                    Ok(version) => appointment.version = if version == known + 1 { version } else { 0 },
                    Err(_) => (appointment.owed.steering, appointment.owed.forget) = (true, forget),
                }
            });
            if let Err(error) = told {
                let advice = error.to_string();
                tracing::warn!(event = "fleet.unshared", host, advice, "other nodes are told when Redis is back");
                return;
            }
            fleet.announce_host(host);
            gate.refresh(host);
        });
    }

    /// Tells the fleet what was learned and set here while it could not be told. Called when this node has joined.
    pub fn share_owed(self: &Arc<Self>) {
        let mut owing = Vec::new();
        self.registry.each(|_, lane| {
            let owed = lane.look(|state| state.appointment_if_any().map(|appointment| appointment.owed));
            if let Some(owed) = owed.filter(|owed| *owed != Owed::default()) {
                owing.push((lane.clone(), owed));
            }
        });
        for (lane, owed) in owing {
            if owed.record {
                self.share(&lane);
            }
            if owed.steering {
                self.share_steering(&lane, false);
            }
        }
    }
}

async fn tell(gate: &Arc<Gate>, fleet: &Arc<FleetLedger>, lane: &Arc<SharedLane>) {
    let host = lane.host().as_str();
    // Twice: if another node was first, what it learned may be less than what this one heard.
    for _ in 0..2 {
        let (told, mine) = lane.look(|state| {
            state.appointment().owed.record = false;
            knowledge(state)
        });
        let Some((fits, news)) = fleet.tell(host, told).await else {
            return lane.look(|state| state.appointment().owed.record = true);
        };
        let theirs = record::read(&news.record).unwrap_or_default();
        if !fits && !mine.is_some_and(|mine| mine.outweighs(&theirs)) {
            return adopt(gate, lane, &news);
        }
        let is_unspaced = lane.look(|state| {
            state.appointment().version = news.version;
            state.lane.policy().delay.is_zero()
        });
        if fits {
            // Nodes that need no turn at this host do not hear of it by a claim.
            if is_unspaced {
                fleet.announce_host(host);
            }
            return;
        }
    }
}

/// Returns what the fleet must know about a host, with what was learned also as a value.
fn knowledge(state: &mut LaneState) -> (Told, Option<PaceRecord>) {
    let now = now();
    let held = state.lane.held_until();
    let pace = state.lane.pace().and_then(|pace| pace.record(now));
    let version = state.appointment().version;
    let record = pace.map(|pace| record::write(&pace)).or_else(|| (version > 0).then(|| record::NONE.to_owned()));
    let keep_ms = if record.is_some() { REMEMBERED_MS } else { held.since(now).as_millis() as u64 + 60_000 };
    let held = if held > now { held.as_micros() } else { 0 };
    (Told { version, held, record, keep_ms }, pace)
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
        held_until: (news.held > now.as_micros()).then(|| end(news.held)),
        paused_until: (news.closed > now.as_micros()).then(|| end(news.closed)),
        ..HostMemory::default()
    };
    let record = record::read(&news.record);
    lane.with(now, |state| {
        let appointment = state.appointment();
        if appointment.version >= news.version {
            return;
        }
        appointment.version = news.version;
        appointment.quota = record.and_then(|record| record.quota).map_or(0, |quota| quota.every);
        // What was set here and is not shared yet is newer.
        let overrides = (!appointment.is_ahead()).then(|| record::read_overrides(&news.overrides));
        // What the ledger said before may be the end of a pause that is over.
        state.lane.appoint(Timestamp::START, 0);
        state.lane.take_in(&memory, record.as_ref(), overrides, &book.schooling, now);
        gate.registry.keep_news(lane, state, now);
    });
}

impl LaneState {
    /// Whether the host has announced a quota that the fleet does not know of.
    pub(super) fn has_quota_news(&mut self, now: Timestamp) -> bool {
        let every = self.lane.pace().map_or(0, |pace| pace.quota_interval(now));
        (every > 0 || self.appointment.is_some()) && self.appointment().hears_quota(every)
    }
}
