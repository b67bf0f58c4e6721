//! Joins the fleet, if one is configured.

use std::hash::Hasher;
use std::sync::Arc;

use fnv::FnvHasher;

use super::StartError;
use crate::config::Config;
use crate::gate::{self, Gate};
use crate::ledger::view::NodeFigures;
use crate::ledger::{FleetLedger, FleetNotice, FleetThread, Ledger};
use crate::metrics::Metrics;
use crate::proxy::{Shared, StoppedClients};
use crate::upstream::Trust;

/// Starts the thread of the fleet. Does not wait for Redis: requests are answered without it.
pub(super) fn start(config: &Config, metrics: &Arc<Metrics>) -> Result<(Ledger, Option<FleetThread>), StartError> {
    if config.fleet.redis.is_empty() {
        return Ok((Ledger::Local, None));
    }
    let trust = Trust::load(&config.tls).map_err(StartError::Roots)?;
    let Some(ledger) = FleetLedger::new(&config.fleet, trust.without_alpn(), metrics.clone()).map(Arc::new) else {
        return Ok((Ledger::Local, None));
    };
    let thread = FleetThread::start(ledger.clone()).map_err(StartError::Thread)?;
    Ok((Ledger::Fleet(ledger), Some(thread)))
}

/// Lets the other nodes see what this one does.
pub(super) fn introduce(shared: &Arc<Shared>) {
    let Ledger::Fleet(ledger) = shared.gate.ledger() else { return };
    // The gate owns the ledger, which must not own the gate.
    let shared = Arc::downgrade(shared);
    ledger.introduce(move || {
        let shared = shared.upgrade()?;
        let settings = shared.settings.load();
        let config = &settings.config;
        let politeness = format!("{:?}", (&config.politeness, &config.pacing, &config.adaptive, &config.host));
        let mut digest = FnvHasher::default();
        digest.write(politeness.as_bytes());
        Some(NodeFigures {
            name: shared.identity.name().to_owned(),
            starts: shared.metrics.wait_counts().iter().sum(),
            waiting: shared.gate.queued(),
            settings: format!("{:08x}", digest.finish() >> 32),
        })
    });
}

/// Shares stopped clients with the fleet, and passes on what other nodes tell.
pub(super) fn listening(stops: StoppedClients, gate: &Arc<Gate>) -> Arc<StoppedClients> {
    let stops = Arc::new(stops.with_ledger(gate.ledger().clone()));
    if let Ledger::Fleet(ledger) = gate.ledger() {
        // Weak, because the gate owns the ledger.
        let (gate, hearing) = (Arc::downgrade(gate), stops.clone());
        ledger.on_notice(move |notice| match (notice, gate.upgrade()) {
            (FleetNotice::Host(host), Some(gate)) => gate.refresh(&host),
            (FleetNotice::Stops(told), Some(_)) => hearing.hear(&told, gate::now()),
            (FleetNotice::Joined, Some(gate)) => gate.share_owed(),
            (_, None) => {}
        });
    }
    stops
}
