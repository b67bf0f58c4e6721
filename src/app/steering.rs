//! Changes of the settings of a running curtsy: by a new file, or by the operator's hand.
//!
//! One at a time, and all of a change or nothing. What needs a restart stays as it is.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value as Json};

use super::{StartError, book, settings};
use crate::admin::{Repaced, Steering};
use crate::config::{self, Config, Problems};
use crate::gate::Apply;
use crate::proxy::{Settings, Shared};

#[derive(Debug)]
pub(super) struct Helm {
    shared: Arc<Shared>,
    /// Where curtsy itself listens.
    own: Vec<SocketAddr>,
    /// Who changes something reads first what is there, and nobody else may change it in between.
    steering: Mutex<()>,
}

impl Helm {
    pub(super) fn new(shared: Arc<Shared>, own: Vec<SocketAddr>) -> Self {
        Helm { shared, own, steering: Mutex::new(()) }
    }

    /// Replaces all settings, those that were set by hand too.
    pub(super) fn replace(&self, config: Config, apply: Apply) -> Result<(), StartError> {
        // Reads files, so it comes before the lock.
        let mut settings = settings(config, &self.own)?;
        let _alone = self.steering.lock();
        settings.succeed(&self.shared.settings.load());
        self.put(settings, apply);
        Ok(())
    }

    fn put(&self, settings: Settings, apply: Apply) {
        let config = &settings.config;
        self.shared.gate.change(book::book(config), book::bounds(config), config.politeness.max_queue_total, apply);
        self.shared.settings.store(Arc::new(settings));
    }
}

impl Steering for Helm {
    fn shown(&self) -> Json {
        config::running_json(&self.shared.settings.load().config)
    }

    fn repace(&self, wishes: &Map<String, Json>, apply: Apply) -> Result<Repaced, Problems> {
        let _alone = self.steering.lock();
        let before = self.shared.settings.load_full();
        let amended = config::repace(&before.config, wishes)?;
        let changes = config::differences(&before.config, &amended.config);
        let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        let mut settings = Settings::clone(&before);
        settings.config = amended.config;
        self.put(settings, apply);
        tracing::info!(event = "config.changed", ?apply, "changed by hand: {}", changes.join(", "));
        Ok(Repaced { changes, warnings: amended.warnings.into_iter().map(|warning| warning.message).collect() })
    }
}
