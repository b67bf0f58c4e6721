//! Opening what survives a restart, and closing it.
//!
//! What must not be shared or cannot be understood (another process, a newer format) keeps curtsy from starting. What
//! cannot be read or written does not: curtsy says so and goes on from memory, as careful as if it had just visited
//! everybody.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use crate::clock;
use crate::config::Config;
use crate::politeness::time::Timestamp;
use crate::store::{self, Cause, JobRecord, Keep, Opened, Store, StoreError};

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
        Some(directory) => match Store::open(&directory, keep) {
            Ok((store, opened)) => {
                tell(&directory, &opened);
                (store, opened)
            }
            Err(StoreError::Unusable { path, cause }) => unwritable(&directory, keep, path, cause)?,
            Err(error) => return Err(StartError::State(error)),
        },
    };
    let unknown_before = opened.unsettled.then(|| Timestamp::from_micros(clock::micros()));
    Ok(Remembered { store: Arc::new(store), jobs: opened.jobs, unknown_before })
}

/// What is there counts, if it can be read.
fn unwritable(directory: &Path, keep: Keep, path: PathBuf, cause: Cause) -> Result<(Store, Opened), StartError> {
    let error = StoreError::Unusable { path, cause: cause.clone() };
    match Store::read_only(directory, keep, cause) {
        Ok((store, opened)) => {
            let Opened { hosts, .. } = opened;
            tracing::warn!(
                event = "state.unusable",
                hosts,
                "{error}. Until then what was learned before counts, and nothing that is learned survives a restart"
            );
            Ok((store, opened))
        }
        Err(StoreError::Unusable { .. }) => {
            tracing::warn!(
                event = "state.unusable",
                "{error}. Until then nothing that is learned survives a restart, and nothing of before is known"
            );
            Ok((Store::memory(keep), Opened { unsettled: true, ..Opened::default() }))
        }
        Err(error) => Err(StartError::State(error)),
    }
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
    let Opened { hosts, new, unsettled, .. } = *opened;
    tracing::info!(event = "state.opened", %directory, hosts, new, unsettled, "the state file is open");
}

/// To be called when nothing is learned any more.
pub(super) fn close(store: &Store) {
    if let Err(unsaved) = store.close(PATIENCE) {
        tracing::warn!(event = "state.unsaved", "not everything that was learned is kept: {unsaved}");
    }
}

/// A healthy disk takes milliseconds, and whoever stops curtsy waits.
const PATIENCE: Duration = Duration::from_secs(5);
