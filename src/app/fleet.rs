//! Joins the fleet, if one is configured.

use std::sync::Arc;

use super::StartError;
use crate::config::Config;
use crate::ledger::{FleetLedger, FleetThread, Ledger};
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
