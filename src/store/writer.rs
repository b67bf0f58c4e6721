//! The one thread that writes.
//!
//! It writes the collected changes in one transaction, and tidies up in between. A write that fails is tried again, at
//! growing intervals; so is opening a file that could not be opened at start. Requests never wait for this thread, and
//! nothing here panics if the disk fails.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use super::database::Database;
use super::error::{StoreError, StoreFault};
use super::index::Index;
use super::lock::Lock;
use super::open::{self, StoreParts};
use super::outbox::{Outbox, Work};
use super::pending::Batch;
use super::reader::{Copies, StoreReader};
use super::retention::Retention;
use super::tidy::{self, Tidy};
use crate::clock;

#[derive(Debug)]
pub(super) struct Writer {
    directory: PathBuf,
    outbox: Arc<Outbox>,
    /// None until the directory can be written.
    database: Option<Database>,
    index: Arc<Index>,
    copies: Copies,
    keep: Retention,
    tidy: Tidy,
    tidy_at: Instant,
    /// Held so that no other process opens the file before the last change is in it.
    lock: Option<Lock>,
}

impl Writer {
    /// Creates a writer for the opened state; the index is shared with the store.
    pub(super) fn new(
        directory: PathBuf,
        outbox: Arc<Outbox>,
        keep: Retention,
        found: StoreParts,
        copies: Copies,
    ) -> Self {
        let StoreParts { index, lock, database, .. } = found;
        let (index, tidy_at) = (Arc::new(index), clock::now() + tidy::FIRST);
        Writer { directory, outbox, database, index, copies, keep, tidy: Tidy::default(), tidy_at, lock }
    }

    pub(super) fn index(&self) -> &Arc<Index> {
        &self.index
    }

    pub(super) fn run(mut self) {
        loop {
            match self.outbox.next(self.tidy_at) {
                Work::Write { batch, number } => self.write(batch, number),
                Work::Tidy => self.tidy(),
                Work::End => break,
            }
        }
        let settled = self.database.as_ref().is_some_and(|database| {
            if let Err(error) = database.settle() {
                tracing::debug!(event = "state.unsettled", %error, "the log of the state file stays beside it");
            }
            self.outbox.is_settled()
        });
        if let Some(Err(error)) = self.lock.filter(|_| settled).map(Lock::settle) {
            tracing::debug!(event = "state.unsettled", %error, "the next start will take this for a kill");
        }
        self.outbox.ended();
    }

    fn write(&mut self, batch: Batch, number: u64) {
        let written = match self.database() {
            Ok(database) => database.write(&batch).map_err(|error| (StoreFault::of_sqlite(&error), error.to_string())),
            Err(error) => Err((StoreFault::from(&error), error.to_string())),
        };
        match written {
            Ok(()) => {
                if self.outbox.succeeded(number) {
                    tracing::info!(event = "state.recovered", "the state file is written again");
                }
            }
            Err((cause, error)) => return self.failed(batch, &cause, &error),
        }
        if !batch.robots.is_empty() || tidy::is_crowded(&self.index, &self.keep) {
            // Soon rather than now: a caller that waits for the write need not wait for the tidying.
            self.tidy_at = self.tidy_at.min(clock::now() + tidy::SOON);
        }
    }

    /// Returns the file; opens it if that was not possible before.
    fn database(&mut self) -> Result<&mut Database, StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.open_late()?,
        };
        Ok(self.database.insert(database))
    }

    /// Opens the file. Hosts in it are used from now on, unless something newer is known about them.
    fn open_late(&mut self) -> Result<Database, StoreError> {
        open::make_directory(&self.directory)?;
        let lock = match self.lock.take() {
            Some(lock) => lock,
            None => Lock::take(&self.directory)?,
        };
        let database = open::open_late(&self.directory, self.lock.insert(lock), clock::micros())?;
        let unusable = |error: &rusqlite::Error| open::unusable(&self.directory, error);
        let mut last = String::new();
        loop {
            let hosts = database.hosts_after(&last, SLICE).map_err(|error| unusable(&error))?;
            let now_us = clock::micros();
            for (key, record) in hosts.iter().filter(|(_, record)| self.keep.matters(record, now_us)) {
                self.index.put_new(key, record, now_us);
            }
            match hosts.into_iter().next_back() {
                Some((key, _)) => last = key,
                None => break,
            }
        }
        let copies = Database::reader(&self.directory.join(open::FILE)).map_err(|error| unusable(&error))?;
        let reader = StoreReader::start(copies)
            .map_err(|error| StoreError::unusable(&self.directory, StoreFault::of_io(&error)))?;
        self.copies.store(Some(Arc::new(reader)));
        Ok(database)
    }

    fn tidy(&mut self) {
        self.tidy_at = clock::now() + tidy::EVERY;
        let Some(database) = &mut self.database else { return };
        match self.tidy.slice(database, &self.index, &self.keep, clock::micros()) {
            Ok(pause) => self.tidy_at = clock::now() + pause,
            Err(error) => self.failed(Batch::default(), &StoreFault::of_sqlite(&error), &error.to_string()),
        }
    }

    fn failed(&self, batch: Batch, cause: &StoreFault, error: &str) {
        if self.outbox.failed(batch, cause.clone()) {
            tracing::warn!(
                event = "state.unwritten", %cause, error,
                "cannot write the state file; curtsy goes on from memory and keeps trying"
            );
        }
    }
}

/// Hosts that are read at once.
const SLICE: usize = 1_000;
