//! Changes the settings of a running curtsy: from a new file, or by the operator through the API.
//!
//! One change at a time, and each applies completely or not at all. Settings that need a restart keep their old value.

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value as Json, json};
use tokio::sync::{mpsc, oneshot};

use super::ca::CaLocation;
use super::{StartError, book, settings};
use crate::admin::{ConfigSteering, Reloaded, Repaced};
use crate::config::{self, Config, Problems};
use crate::gate::Apply;
use crate::proxy::{Settings, Shared};

#[derive(Debug)]
pub(super) struct LiveSettings {
    shared: Arc<Shared>,
    /// The addresses that curtsy itself listens on.
    own: Vec<SocketAddr>,
    /// Held during a change: a change first reads the current settings, and no other change may happen in between.
    steering: Mutex<()>,
    /// Sends reload requests to the task that knows the file.
    reloads: Mutex<Option<mpsc::Sender<Reload>>>,
}

/// A request to reload the configuration file. The result is sent through it.
pub type Reload = oneshot::Sender<Reloaded>;

/// How many reload requests may wait. They are handled one at a time.
const MOST_RELOADS: usize = 8;

impl LiveSettings {
    pub(super) fn new(shared: Arc<Shared>, own: Vec<SocketAddr>) -> Self {
        LiveSettings { shared, own, steering: Mutex::new(()), reloads: Mutex::new(None) }
    }

    pub(super) fn reloads(&self) -> mpsc::Receiver<Reload> {
        let (reloads, wishes) = mpsc::channel(MOST_RELOADS);
        *self.reloads.lock() = Some(reloads);
        wishes
    }

    /// Replaces all settings, including those that were changed through the API.
    pub(super) fn replace(&self, config: Config, apply: Apply) -> Result<(), StartError> {
        // `settings` reads files, so it runs before the lock is taken.
        let mut settings = settings(config, &self.own, CaLocation::Configured)?;
        let _alone = self.steering.lock();
        let before = self.shared.settings.load_full();
        settings.succeed(&before);
        let changes = words(&before.config, &settings.config);
        self.put(settings, apply);
        self.shared.events.tell("config.reloaded", None, || json!({ "changed": changes }));
        Ok(())
    }

    /// Publishes the event that a new configuration could not be read or used.
    pub(super) fn tell_of_failure(&self) {
        let why = "the new configuration has mistakes or cannot be read; the old one stays in effect";
        self.shared.events.tell("config.reload_failed", None, || json!({ "why": why }));
    }

    fn put(&self, settings: Settings, apply: Apply) {
        let config = &settings.config;
        self.shared.gate.change(book::book(config), book::bounds(config), config.pacing.max_queue_total, apply);
        self.shared.metrics.hosts.limit(config.metrics.hosts);
        self.shared.settings.store(Arc::new(settings));
    }
}

impl ConfigSteering for LiveSettings {
    fn shown(&self) -> Json {
        config::running_json(&self.shared.settings.load().config)
    }

    fn repace(&self, wishes: &Map<String, Json>, apply: Apply) -> Result<Repaced, Problems> {
        let _alone = self.steering.lock();
        let before = self.shared.settings.load_full();
        let amended = config::repace(&before.config, wishes)?;
        let changes = words(&before.config, &amended.config);
        let mut settings = Settings::clone(&before);
        settings.config = amended.config;
        self.put(settings, apply);
        tracing::info!(event = "config.changed", ?apply, "changed by hand: {}", changes.join(", "));
        self.shared.events.tell("config.changed", None, || json!({ "changed": changes }));
        Ok(Repaced { changes, warnings: amended.warnings.into_iter().map(|warning| warning.message).collect() })
    }

    fn reload(&self) -> Option<oneshot::Receiver<Reloaded>> {
        let (reload, answer) = oneshot::channel();
        let reloads = self.reloads.lock();
        reloads.as_ref()?.try_send(reload).ok().map(|()| answer)
    }
}

fn words(before: &Config, after: &Config) -> Vec<String> {
    config::differences(before, after).iter().map(ToString::to_string).collect()
}
