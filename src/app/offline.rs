//! Reads and changes the state directory of a stopped curtsy, through the same API as that of a running one.
//!
//! Calls the API without a listener, so that a call means the same, and is refused for the same reasons, in both cases.
//! Holds the directory's lock, so no curtsy can start on the directory meanwhile. Marks the directory as cleanly closed
//! only if it was so before: after a crash, the last sent requests stay unknown.

use std::fmt;
use std::io::{BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use tokio::runtime::Runtime;
use tower_service::Service;

use super::steering::LiveSettings;
use super::{StartError, standalone, state};
use crate::admin::{self, Admin};
use crate::config::Config;
use crate::proxy::DryRun;
use crate::shutdown::{self, Stopper};
use crate::store::{self, Imported, LineCount, LinesError, OpenedStore, Store, StoreError, Unsaved};
use crate::upstream::Resolver;

#[derive(Debug)]
pub struct Offline {
    runtime: Runtime,
    admin: Arc<Admin>,
    store: Arc<Store>,
    directory: PathBuf,
    settled: bool,
    _stopper: Stopper,
}

#[derive(Debug)]
pub enum OfflineError {
    /// `state_dir` is "memory".
    Memory,
    /// The directory has no state file: no curtsy has stored anything here yet.
    Empty(PathBuf),
    State(StoreError),
    Parts(StartError),
}

impl Offline {
    /// Opens the state directory. With `changes`, the directory is created if missing and must be writable.
    pub fn open(config: Config, changes: bool) -> Result<Offline, OfflineError> {
        let directory = store::directory(&config.state_dir).ok_or(OfflineError::Memory)?;
        if !changes && !directory.join(store::FILE).exists() {
            return Err(OfflineError::Empty(directory));
        }
        let (store, opened) = open(&directory, &config, changes).map_err(OfflineError::State)?;
        let store = Arc::new(store);
        let (stopper, stop) = shutdown::channel();
        let shared = standalone::parts(config, &store, &opened.jobs, stop.clone()).map_err(OfflineError::Parts)?;
        let shared = Arc::new(shared);
        let admin = Admin {
            metrics: shared.metrics.clone(),
            gate: shared.gate.clone(),
            robots: shared.robots.clone(),
            store: store.clone(),
            steering: Arc::new(LiveSettings::new(shared.clone(), Vec::new())),
            desk: DryRun::new(shared, Arc::new(Resolver::default())),
            stop: stop.clone(),
            token: None,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            proxy: Vec::new(),
            own: admin::AdminState::new(stop),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| OfflineError::Parts(StartError::Thread(error)))?;
        let (admin, settled) = (Arc::new(admin), !opened.unsettled);
        Ok(Offline { runtime, admin, store, directory, settled, _stopper: stopper })
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Calls the API once and returns the status and the body.
    pub fn call(&self, method: &str, path: &str, body: Option<String>) -> std::io::Result<(u16, String)> {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("content-type", "application/json");
        let request = request.body(body.map_or_else(Body::empty, Body::from)).map_err(std::io::Error::other)?;
        self.runtime.block_on(async {
            let Ok(answer) = admin::router(self.admin.clone()).call(request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), LONGEST_ANSWER).await.map_err(std::io::Error::other)?;
            Ok((status, String::from_utf8_lossy(&body).into_owned()))
        })
    }

    pub fn export(&self, to: impl Write) -> Result<LineCount, LinesError> {
        self.store.export(to)
    }

    pub fn import(&self, from: impl BufRead) -> Result<Imported, LinesError> {
        admin::take_in(&self.admin, from, self.runtime.handle())
    }

    /// Waits until everything is on disk.
    pub fn close(self) -> Result<(), Unsaved> {
        if self.settled { self.store.close(PATIENCE) } else { self.store.end(PATIENCE) }
    }
}

/// Opens the store. Without `changes`, a directory that can be read but not written is enough.
fn open(directory: &Path, config: &Config, changes: bool) -> Result<(Store, OpenedStore), StoreError> {
    let keep = state::keep(config);
    if changes {
        return Store::open(directory, keep);
    }
    match Store::open_anyway(directory, keep)? {
        (_, OpenedStore { unread: true, trouble: Some(trouble), .. }) => Err(trouble),
        opened => Ok(opened),
    }
}

/// The largest response body in bytes; more than any response has.
const LONGEST_ANSWER: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfflineError::Memory => write!(f, "nothing is kept: `state_dir` is \"memory\""),
            OfflineError::Empty(directory) => write!(f, "nothing is kept in {}", directory.display()),
            OfflineError::State(error) => error.fmt(f),
            OfflineError::Parts(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for OfflineError {}
