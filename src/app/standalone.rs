//! Builds the parts of curtsy for a single question, without a running proxy.
//!
//! Opens no listener and writes nothing to the access log.

use std::sync::Arc;

use super::ca::CaLocation;
use super::{StartError, book, settings};
use crate::cache::Cache;
use crate::clock;
use crate::config::{AccessLogTarget, Config, Listen};
use crate::gate::{Gate, HostPersistence};
use crate::metrics::Metrics;
use crate::politeness::time::Timestamp;
use crate::proxy::{self, DryRun, Identity, Shared, SharedParts, StoppedClients};
use crate::robots::{Question, Report, Robots};
use crate::shutdown::Stop;
use crate::store::{JobRecord, Retention, Store};
use crate::upstream::Resolver;

/// Fetches a robots.txt as a proxy with this configuration would, and reports what it means. Stores nothing.
pub fn ask_about_robots(config: Config, question: &Question) -> Result<Report, StartError> {
    let (_stopper, stop) = crate::shutdown::channel();
    let store = Arc::new(Store::memory(Retention::default()));
    let desk = DryRun::new(Arc::new(parts(config, &store, &[], stop)?), Arc::new(Resolver::default()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
    Ok(runtime.block_on(desk.ask(question)))
}

/// Builds what the workers of a running proxy would share.
pub(super) fn parts(
    mut config: Config,
    store: &Arc<Store>,
    jobs: &[(String, JobRecord)],
    stop: Stop,
) -> Result<Shared, StartError> {
    config.access.users_file = None;
    config.tls.intercept = false;
    config.log.access = AccessLogTarget::Off;
    let own: Vec<_> = config.listen.iter().map(|Listen::Tcp(address)| *address).chain(config.admin).collect();
    let metrics = Arc::new(Metrics::new());
    let (book, bounds, most_waiting) = (book::book(&config), book::bounds(&config), config.pacing.max_queue_total);
    Ok(Shared::new(SharedParts {
        settings: settings(config, &own, CaLocation::ThisRun)?,
        metrics: metrics.clone(),
        identity: Identity::new("curtsy"),
        access_log: proxy::AccessLog::open(&AccessLogTarget::Off, false).map_err(StartError::AccessLog)?,
        gate: Arc::new(Gate::new(book, bounds, most_waiting, HostPersistence::new(store.clone(), None), metrics)),
        robots: Arc::new(Robots::new(ONE_FILE, store.clone())),
        cache: Arc::new(Cache::new(LITTLE_CACHE)),
        stops: Arc::new(StoppedClients::new(store.clone(), jobs, Timestamp::from_micros(clock::micros()))),
        stop,
    }))
}

/// Nothing is stored without a listener.
const LITTLE_CACHE: u64 = 1 << 20;
/// Cache size in bytes: enough for the rules of the longest robots.txt.
const ONE_FILE: usize = 4 << 20;
