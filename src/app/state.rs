//! Opening what survives a restart, and closing it.
//!
//! What must not be shared or cannot be understood (another process, a newer format) keeps curtsy from starting. What
//! cannot be read or written does not: curtsy says so and goes on from memory, as careful as if it had just visited
//! everybody.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::StartError;
use crate::clock;
use crate::config::Config;
use crate::politeness::time::Timestamp;
use crate::store::{self, Keep, Opened, Store, StoreError};

/// The store, and the time before which nobody knows who was visited, if there is one.
pub(super) fn open(config: &Config) -> Result<(Arc<Store>, Option<Timestamp>), StartError> {
    let keep = Keep { remember: config.adaptive.remember, ..Keep::default() };
    let Some(directory) = store::directory(&config.state_dir) else { return Ok((Arc::new(Store::memory(keep)), None)) };
    let (store, unsettled) = match Store::open(&directory, keep) {
        Ok((store, opened)) => {
            tell(&directory, &opened);
            (store, opened.unsettled)
        }
        Err(error @ StoreError::Unusable { .. }) => {
            tracing::warn!(
                event = "state.unusable",
                "{error}. Until then nothing that is learned survives a restart, and nothing of before is known"
            );
            (Store::memory(keep), true)
        }
        Err(error @ (StoreError::Held { .. } | StoreError::Newer { .. })) => return Err(StartError::State(error)),
    };
    Ok((Arc::new(store), unsettled.then(|| Timestamp::from_micros(clock::micros()))))
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
