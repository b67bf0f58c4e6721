//! Joins the fleet, if one is configured.

use std::sync::Arc;

use super::StartError;
use crate::config::Config;
use crate::gate::{self, Gate};
use crate::ledger::{FleetLedger, FleetNotice, FleetThread, Ledger};
use crate::proxy::StoppedClients;
use crate::upstream::Trust;

/// Starts the thread of the fleet. Does not wait for Redis: requests are answered without it.
pub(super) fn start(config: &Config) -> Result<(Ledger, Option<FleetThread>), StartError> {
    if config.fleet.redis.is_empty() {
        return Ok((Ledger::Local, None));
    }
    let trust = Trust::load(&config.tls).map_err(StartError::Roots)?;
    let Some(ledger) = FleetLedger::new(&config.fleet, trust.without_alpn()).map(Arc::new) else {
        return Ok((Ledger::Local, None));
    };
    let thread = FleetThread::start(ledger.clone()).map_err(StartError::Thread)?;
    Ok((Ledger::Fleet(ledger), Some(thread)))
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
            (_, None) => {}
        });
    }
    stops
}
