//! Opens the store of what survives a restart, and closes it.
//!
//! A directory in use by another process, or with a newer format, prevents curtsy from starting. A directory that
//! cannot be read or written does not: curtsy logs it, works from memory, is as careful as if it had just visited every
//! host, and writes as soon as it can.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use crate::clock;
use crate::config::Config;
use crate::politeness::time::Timestamp;
use crate::store::{self, JobRecord, OpenedStore, Retention, Store};

/// What the store returned at start.
pub(super) struct Remembered {
    pub(super) store: Arc<Store>,
    pub(super) jobs: Vec<(String, JobRecord)>,
    /// It is unknown which hosts were visited before this time.
    pub(super) unknown_before: Option<Timestamp>,
}

pub(super) fn open(config: &Config) -> Result<Remembered, StartError> {
    let keep = keep(config);
    let (store, opened) = match store::directory(&config.state_dir) {
        None => (Store::memory(keep), OpenedStore::default()),
        Some(directory) => {
            let (store, opened) = Store::open_anyway(&directory, keep).map_err(StartError::State)?;
            tell(&directory, &opened);
            (store, opened)
        }
    };
    let unknown_before = opened.unsettled.then(|| Timestamp::from_micros(clock::micros()));
    Ok(Remembered { store: Arc::new(store), jobs: opened.jobs, unknown_before })
}

/// Returns how much to keep, and for how long.
pub(super) fn keep(config: &Config) -> Retention {
    Retention {
        hosts: config.state.hosts,
        robots_bytes: config.state.robots as u64,
        remember: config.adaptive.remember,
        ..Retention::default()
    }
}

fn tell(directory: &Path, opened: &OpenedStore) {
    let directory = directory.display();
    if let Some(aside) = &opened.set_aside {
        tracing::warn!(
            event = "state.damaged", path = %aside.path.display(), why = aside.why,
            "the state file is damaged: it was renamed to this path, and a new empty one was created"
        );
    }
    if let Some(format) = opened.migrated_from {
        tracing::info!(event = "state.migrated", %directory, format, "the state file was migrated to this version");
    }
    if let Some(mode) = opened.exposed {
        tracing::warn!(
            event = "state.exposed", %directory, mode = format!("{mode:03o}"),
            "other users of this machine can read the state directory; chmod 700 prevents it"
        );
    }
    if opened.clock_step_us != 0 {
        let step_s = opened.clock_step_us as f64 / 1e6;
        tracing::warn!(
            event = "state.clock",
            step_s,
            "the wall clock was set, or the machine slept, since the last run; the times in the state file were moved"
        );
    }
    let OpenedStore { hosts, new, unsettled, .. } = *opened;
    match &opened.trouble {
        None => tracing::info!(event = "state.opened", %directory, hosts, new, unsettled, "the state file is open"),
        Some(error) => {
            let known = if opened.unread { "nothing from before is known" } else { "what was learned before counts" };
            tracing::warn!(
                event = "state.unusable",
                hosts,
                "{error}. curtsy keeps trying; until it succeeds, {known} and nothing new survives a restart"
            );
        }
    }
}

/// Saves the state and closes the store. Must be called after all workers have stopped: later changes are not saved.
pub(super) fn close(store: &Store) {
    if let Err(unsaved) = store.close(PATIENCE) {
        tracing::warn!(event = "state.unsaved", "not everything that was learned is saved: {unsaved}");
    }
}

/// How long to wait for the disk at stop. A healthy disk takes milliseconds, and the operator waits for curtsy to stop.
const PATIENCE: Duration = Duration::from_secs(5);
