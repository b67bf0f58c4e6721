//! The state that survives a restart.
//!
//! It consists of a file in the state directory (SQLite, docs/decisions/0004), and the hosts of that file in memory.
//! Three promises:
//! - **No request waits for disk.** Hosts are looked up in memory, where all of them are; a change is put into the
//!   outbox. Only a robots.txt copy is read later, by a thread of its own, instead of being fetched from its origin.
//! - **A kill costs less than 2 s of changes, a clean stop none.** One thread writes the collected changes every
//!   second; a new hold, a pause and what people set are written at once.
//! - **A disk that fails makes curtsy no less polite.** It goes on in memory, [`Store::health`] reports the failure,
//!   and writing is tried again.
//!
//! Decides nothing: the callers know what a record means.

mod database;
mod error;
mod import;
mod index;
mod lines;
mod lock;
mod name;
mod open;
mod outbox;
mod pending;
mod reader;
mod record;
mod retention;
mod schema;
mod tidy;
mod writer;

use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use self::error::{StoreError, StoreFault};
pub use self::import::{ImportFate, ImportTally, Imported, Skipped};
pub use self::lines::{LineCount, LinesError, StoredLine};
pub(crate) use self::lock::{Before, Lock};
pub use self::name::{deployment_name, directory, new_name};
pub use self::open::{FILE, OpenedStore, SetAside};
pub use self::outbox::{Health, Unsaved};
pub use self::record::{HostRecord, JobRecord, RobotsRecord, StoredOverrides};
pub use self::retention::Retention;

use self::database::Database;
use self::import::Spool;
use self::index::Index;
use self::open::StoreParts;
use self::outbox::{Haste, Outbox};
use self::pending::Batch;
use self::reader::{Copies, StoreReader};
use self::writer::Writer;
use crate::clock;

/// The store. Dropping it begins to close it, without waiting.
#[derive(Debug)]
pub struct Store {
    keep: Retention,
    index: Arc<Index>,
    /// None if nothing is kept on disk.
    disk: Option<Disk>,
}

#[derive(Debug)]
struct Disk {
    directory: PathBuf,
    copies: Copies,
    outbox: Arc<Outbox>,
}

impl Store {
    /// Opens the state in `directory`, or creates it. Blocks while the file is read.
    pub fn open(directory: &Path, keep: Retention) -> Result<(Store, OpenedStore), StoreError> {
        let (found, opened) = open::open(directory, &keep, clock::micros())?;
        Ok((Store::start(directory, keep, found, Outbox::default())?, opened))
    }

    /// Opens the state like [`Store::open`], but a directory that cannot be written is no error. What can be read is
    /// used; changes wait in memory, and are written as soon as the directory can be written. [`OpenedStore::trouble`]
    /// and [`Store::health`] report it.
    pub fn open_anyway(directory: &Path, keep: Retention) -> Result<(Store, OpenedStore), StoreError> {
        let (found, opened) = open::open_anyway(directory, &keep, clock::micros())?;
        let outbox = opened.trouble.as_ref().map_or_else(Outbox::default, |trouble| Outbox::unopened(trouble.into()));
        Ok((Store::start(directory, keep, found, outbox)?, opened))
    }

    fn start(directory: &Path, keep: Retention, mut found: StoreParts, outbox: Outbox) -> Result<Store, StoreError> {
        let thread = |error: &std::io::Error| StoreError::unusable(directory, StoreFault::of_io(error));
        let reader = found.copies.take().map(StoreReader::start).transpose().map_err(|error| thread(&error))?;
        let copies: Copies = Arc::new(reader.map(Arc::new).into());
        let outbox = Arc::new(outbox);
        let writer = Writer::new(directory.to_owned(), outbox.clone(), keep, found, copies.clone());
        let index = writer.index().clone();
        std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || writer.run())
            .map_err(|error| thread(&error))?;
        Ok(Store { keep, index, disk: Some(Disk { directory: directory.to_owned(), copies, outbox }) })
    }

    /// Creates a store that ends with the process. It remembers hosts, so that dropping a lane loses no state of its
    /// host.
    pub fn memory(keep: Retention) -> Store {
        Store { keep, index: Arc::new(Index::new(keep.hosts)), disk: None }
    }

    /// Looks up a host, in memory only.
    pub fn host(&self, key: &str) -> Option<HostRecord> {
        self.index.get(key)
    }

    pub fn put_host(&self, key: &str, record: HostRecord) {
        let now_us = clock::micros();
        let before = self.index.put(key, &record, now_us).unwrap_or_default();
        let haste = if record.binds_anew(&before, now_us) { Haste::Binding } else { Haste::Usual };
        self.put(haste, |batch| batch.put_host(key, Some(record)));
    }

    /// Returns the number of remembered hosts.
    #[allow(dead_code, reason = "tests and benchmarks use it")]
    pub fn hosts(&self) -> usize {
        self.index.len()
    }

    /// Whether this record can still change a decision.
    pub fn matters(&self, record: &HostRecord) -> bool {
        self.keep.matters(record, clock::micros())
    }

    /// Calls `each` for every host on disk, in order. Blocks for an unbounded time: not for the request path.
    pub fn each_host(&self, mut each: impl FnMut(&str, &HostRecord)) -> Result<(), LinesError> {
        let database = self.settled_file()?;
        let mut last = String::new();
        loop {
            let hosts = database.hosts_after(&last, SLICE)?;
            hosts.iter().for_each(|(key, record)| each(key, record));
            match hosts.into_iter().next_back() {
                Some((key, _)) => last = key,
                None => return Ok(()),
            }
        }
    }

    /// Returns the robots.txt copies of a host's origins, a few at most. Blocks for an unbounded time: not for the
    /// request path.
    pub fn robots_of_host(&self, host: &str) -> Result<Vec<RobotsRecord>, LinesError> {
        let database = self.settled_file()?;
        let mut copies = Vec::new();
        for scheme in ["http", "https"] {
            let origin = format!("{scheme}://{host}");
            copies.extend(database.robots(&origin)?);
            let with_port = format!("{origin}:");
            let others = database.robots_after(&with_port, MOST_PORTS)?;
            copies.extend(others.into_iter().filter(|(key, _)| key.starts_with(&with_port)).map(|(_, copy)| copy));
        }
        Ok(copies)
    }

    /// Returns the stored copy of an origin's robots.txt; None if there is none, or if the disk takes longer than
    /// fetching it from the origin would.
    pub async fn robots(&self, origin: &str) -> Option<RobotsRecord> {
        let disk = self.disk.as_ref()?;
        if let Some(pending) = disk.outbox.robots(origin) {
            return pending;
        }
        let reader = disk.copies.load_full()?;
        reader.robots(origin).await
    }

    pub fn put_robots(&self, origin: &str, record: RobotsRecord) {
        self.put(Haste::Usual, |batch| batch.put_robots(origin, Some(record)));
    }

    pub fn put_job(&self, client: &str, record: JobRecord) {
        self.put(Haste::Binding, |batch| batch.put_job(client, Some(record)));
    }

    pub fn delete_job(&self, client: &str) {
        self.put(Haste::Binding, |batch| batch.put_job(client, None));
    }

    /// Returns None if nothing is kept on disk.
    pub fn health(&self) -> Option<Health> {
        self.outbox().map(Outbox::health)
    }

    /// Waits until everything put so far is on disk.
    pub fn flush(&self, patience: Duration) -> Result<(), Unsaved> {
        self.outbox().map_or(Ok(()), |outbox| outbox.flush(patience))
    }

    /// Writes what is left and releases the directory. Later changes stay in memory. If everything is written, the next
    /// process that opens the directory knows that nothing is missing; a store that is only dropped does not say so.
    pub fn close(&self, patience: Duration) -> Result<(), Unsaved> {
        let Some(outbox) = self.outbox() else { return Ok(()) };
        outbox.complete();
        self.end(patience)
    }

    /// Closes the store without saying that nothing is missing: for a process that did not send the last requests
    /// itself.
    pub fn end(&self, patience: Duration) -> Result<(), Unsaved> {
        let Some(outbox) = self.outbox() else { return Ok(()) };
        outbox.begin_close(patience);
        outbox.wait_for_end()
    }

    /// Writes everything that is kept, as JSON lines. Blocks for an unbounded time: not for the request path.
    pub fn export(&self, to: impl Write) -> Result<LineCount, LinesError> {
        lines::export(&self.settled_file()?, to)
    }

    /// Reads what [`Store::export`] wrote. If every line is understood, passes the records one by one to `take`, which
    /// knows what they mean and puts what it accepts into this store. Not for the request path.
    pub fn import(
        &self,
        from: impl BufRead,
        take: impl FnMut(StoredLine) -> ImportFate,
    ) -> Result<Imported, LinesError> {
        let directory = &self.disk.as_ref().ok_or(LinesError::NothingKept)?.directory;
        if let Some(Health { trouble: Some(cause), .. }) = self.health() {
            return Err(LinesError::Disk(cause));
        }
        Spool::fill(directory, from)?
            .tell(take, |after| self.flush(PATIENCE).map_err(|unsaved| LinesError::Unsaved { after, unsaved }))
    }

    /// Returns the file after everything put so far is in it.
    fn settled_file(&self) -> Result<Database, LinesError> {
        let disk = self.disk.as_ref().ok_or(LinesError::NothingKept)?;
        let path = disk.directory.join(open::FILE);
        if !disk.outbox.is_open() {
            return Ok(Database::read_only(&path)?);
        }
        self.flush(PATIENCE).map_err(|unsaved| LinesError::Unsaved { after: 0, unsaved })?;
        Ok(Database::reader(&path)?)
    }

    fn outbox(&self) -> Option<&Outbox> {
        self.disk.as_ref().map(|disk| &*disk.outbox)
    }

    fn put(&self, haste: Haste, change: impl FnOnce(&mut Batch) -> bool) {
        if let Some(outbox) = self.outbox() {
            outbox.put(haste, change);
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(outbox) = self.outbox() {
            outbox.begin_close(PATIENCE);
        }
    }
}

/// Hosts that are read at once.
const SLICE: usize = 1_000;
/// Ports of one host and scheme. More origins on one host are rare, and the largest delay is likely among the first.
const MOST_PORTS: usize = 16;
/// Time limit for a write that a caller waits for; a healthy disk takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
pub(crate) mod tests;
