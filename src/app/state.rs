//! Opening what survives a restart, and closing it.
//!
//! What must not be shared or cannot be understood (another process, a newer format) keeps curtsy from starting. What
//! cannot be read or written does not: curtsy says so, goes on from memory, as careful as if it had just visited every
//! host, and writes as soon as it can.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use crate::clock;
use crate::config::Config;
use crate::politeness::time::Timestamp;
use crate::store::{self, JobRecord, Keep, Opened, Store};

/// What is remembered at start.
pub(super) struct Remembered {
    pub(super) store: Arc<Store>,
    pub(super) jobs: Vec<(String, JobRecord)>,
    /// Nobody knows who was visited before this.
    pub(super) unknown_before: Option<Timestamp>,
}

pub(super) fn open(config: &Config) -> Result<Remembered, StartError> {
    let keep = keep(config);
    let (store, opened) = match store::directory(&config.state_dir) {
        None => (Store::memory(keep), Opened::default()),
        Some(directory) => {
            let (store, opened) = Store::open_anyway(&directory, keep).map_err(StartError::State)?;
            tell(&directory, &opened);
            (store, opened)
        }
    };
    let unknown_before = opened.unsettled.then(|| Timestamp::from_micros(clock::micros()));
    Ok(Remembered { store: Arc::new(store), jobs: opened.jobs, unknown_before })
}

/// How much is kept, and for how long.
pub(super) fn keep(config: &Config) -> Keep {
    Keep {
        hosts: config.state.hosts,
        robots_bytes: config.state.robots as u64,
        remember: config.adaptive.remember,
        ..Keep::default()
    }
}

fn tell(directory: &Path, opened: &Opened) {
    let directory = directory.display();
    if let Some(aside) = &opened.set_aside {
        tracing::warn!(
            event = "state.damaged", path = %aside.path.display(), why = aside.why,
            "the state file is damaged: it was set aside under this name, and an empty one begun"
        );
    }
    if let Some(format) = opened.migrated_from {
        tracing::info!(event = "state.migrated", %directory, format, "the state file was brought up to date");
    }
    if let Some(mode) = opened.exposed {
        tracing::warn!(
            event = "state.exposed", %directory, mode = format!("{mode:03o}"),
            "other users of this machine can look into the state directory; chmod 700 shuts them out"
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
    let Opened { hosts, new, unsettled, .. } = *opened;
    match &opened.trouble {
        None => tracing::info!(event = "state.opened", %directory, hosts, new, unsettled, "the state file is open"),
        Some(error) => {
            let known = if opened.unread { "nothing of before is known" } else { "what was learned before counts" };
            tracing::warn!(
                event = "state.unusable",
                hosts,
                "{error}. curtsy keeps trying; until it succeeds, {known} and nothing new survives a restart"
            );
        }
    }
}

/// To be called when nothing is learned any more.
pub(super) fn close(store: &Store) {
    if let Err(unsaved) = store.close(PATIENCE) {
        tracing::warn!(event = "state.unsaved", "not everything that was learned is kept: {unsaved}");
    }
}

/// A healthy disk takes milliseconds, and whoever stops curtsy waits.
const PATIENCE: Duration = Duration::from_secs(5);
