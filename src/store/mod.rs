//! What survives a restart.
//!
//! A file in the state directory (SQLite, docs/decisions/0004), and the hosts in it in memory. Three promises:
//! - **Nobody waits for disk.** A host is asked for in memory, where all of them are; a change is put into the
//!   outbox. Only a robots.txt copy is read later, by a thread of its own, instead of being fetched from its origin.
//! - **A kill costs less than 2 s of changes, a clean stop none.** One thread writes what has gathered, every second.
//! - **A disk that fails makes nothing ruder.** Memory goes on; [`Store::health`] says so; writing is tried again.
//!
//! Must not decide anything: what a record means is the caller's business.

mod database;
mod error;
mod index;
mod keep;
mod lines;
mod lock;
mod name;
mod open;
mod outbox;
mod pending;
mod reader;
mod record;
mod schema;
mod tidy;
mod writer;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use self::error::{Cause, StoreError};
pub use self::keep::Keep;
pub use self::lines::{Count, LinesError};
pub use self::name::{deployment_name, directory, new_name};
pub use self::open::{Opened, SetAside};
pub use self::outbox::{Health, Unsaved};
pub use self::record::{HostRecord, JobRecord, Overrides, RobotsRecord};

use self::database::Database;
use self::index::Index;
use self::open::Parts;
use self::outbox::Outbox;
use self::reader::Reader;
use self::writer::Writer;
use crate::clock;

/// Dropping it begins to close it, without waiting.
#[derive(Debug)]
pub struct Store {
    index: Arc<Index>,
    /// None if nothing is kept.
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    path: PathBuf,
    database: Arc<Mutex<Option<Database>>>,
    outbox: Arc<Outbox>,
    reader: Reader,
}

impl Store {
    /// Opens the state in `directory`, or begins one. Takes as long as reading it does.
    pub fn open(directory: &Path, keep: Keep) -> Result<(Store, Opened), StoreError> {
        let (Parts { lock, path, database, index }, opened) = open::open(directory, &keep, clock::micros())?;
        let thread = |error: &std::io::Error| StoreError::unusable(&path, Cause::of_io(error));
        let reader = Reader::start(&path).map_err(|error| thread(&error))?;
        let database = Arc::new(Mutex::new(Some(database)));
        let (index, outbox) = (Arc::new(index), Arc::new(Outbox::default()));
        let writer = Writer::new(outbox.clone(), database.clone(), index.clone(), keep, lock);
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| thread(&error))?;
        Ok((Store { index, disk: Some(Disk { path, database, outbox, reader }) }, opened))
    }

    /// A store that ends with the process. It remembers hosts, so that forgetting a lane forgets nothing else.
    pub fn memory(keep: Keep) -> Store {
        Store { index: Arc::new(Index::new(keep.hosts)), disk: None }
    }

    /// Looks in memory only.
    pub fn host(&self, key: &str) -> Option<HostRecord> {
        self.index.get(key)
    }

    pub fn put_host(&self, key: &str, record: HostRecord) {
        self.index.put(key, &record, clock::micros());
        self.put(|disk| disk.outbox.put(|batch| batch.put_host(key, Some(record))));
    }

    pub fn delete_host(&self, key: &str) {
        self.index.remove(key);
        self.put(|disk| disk.outbox.put(|batch| batch.put_host(key, None)));
    }

    /// Hosts that are remembered.
    pub fn hosts(&self) -> usize {
        self.index.len()
    }

    /// What is kept of an origin's robots.txt; none if nothing is, or if the disk takes longer than asking the origin.
    pub async fn robots(&self, origin: &str) -> Option<RobotsRecord> {
        let disk = self.disk.as_ref()?;
        match disk.outbox.robots(origin) {
            Some(pending) => pending,
            None => disk.reader.robots(origin).await,
        }
    }

    pub fn put_robots(&self, origin: &str, record: RobotsRecord) {
        self.put(|disk| disk.outbox.put(|batch| batch.put_robots(origin, Some(record))));
    }

    pub fn delete_robots(&self, origin: &str) {
        self.put(|disk| disk.outbox.put(|batch| batch.put_robots(origin, None)));
    }

    pub fn put_job(&self, client: &str, record: JobRecord) {
        self.put(|disk| disk.outbox.put(|batch| batch.put_job(client, Some(record))));
    }

    pub fn delete_job(&self, client: &str) {
        self.put(|disk| disk.outbox.put(|batch| batch.put_job(client, None)));
    }

    /// None if nothing is kept.
    pub fn health(&self) -> Option<Health> {
        self.disk.as_ref().map(|disk| disk.outbox.health())
    }

    /// Waits until everything put so far is on disk.
    pub fn flush(&self, patience: Duration) -> Result<(), Unsaved> {
        self.disk.as_ref().map_or(Ok(()), |disk| disk.outbox.flush(patience))
    }

    /// Writes what is left and lets go of the directory. Later changes stay in memory. If all of it is written, the
    /// next who opens it knows that nothing is missing; a store that is only dropped says nothing of the kind.
    pub fn close(&self, patience: Duration) -> Result<(), Unsaved> {
        let Some(disk) = &self.disk else { return Ok(()) };
        disk.outbox.complete();
        disk.outbox.begin_close(patience);
        disk.outbox.wait_for_end()
    }

    /// Everything that is kept, as JSON lines. Takes as long as it takes: not for the request path.
    pub fn export(&self, to: impl Write) -> Result<Count, LinesError> {
        let disk = self.disk.as_ref().ok_or(LinesError::NothingKept)?;
        disk.outbox.flush(PATIENCE).map_err(LinesError::Unsaved)?;
        lines::export(&Database::reader(&disk.path)?, to)
    }

    /// Adds what [`Store::export`] wrote, all of it or nothing; keys that are there are replaced, others stay.
    /// While it reads, nothing is written: do not let it read from a slow connection.
    pub fn import(&self, from: impl BufRead) -> Result<Count, LinesError> {
        let disk = self.disk.as_ref().ok_or(LinesError::NothingKept)?;
        disk.outbox.flush(PATIENCE).map_err(LinesError::Unsaved)?;
        let mut database = disk.database.lock();
        let database = database.as_mut().ok_or(LinesError::NothingKept)?;
        let count = lines::import(database, from)?;
        let now_us = clock::micros();
        database.hosts(|key, record| {
            // What was learned while this ran is newer than what was imported.
            if !disk.outbox.holds_host(key) {
                self.index.put(key, &record, now_us);
            }
            Ok::<_, LinesError>(())
        })?;
        Ok(count)
    }

    fn put(&self, change: impl FnOnce(&Disk)) {
        if let Some(disk) = &self.disk {
            change(disk);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            disk.outbox.begin_close(PATIENCE);
        }
    }
}

/// For a write that is waited for; a healthy disk takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
