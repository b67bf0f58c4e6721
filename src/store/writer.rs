//! The one thread that writes.
//!
//! It writes what has gathered, in one transaction, and tidies up in between. A write that fails is tried again, later
//! and later; nobody waits for it who did not ask to, and nothing here panics for want of a disk.

use std::sync::Arc;

use tokio::time::Instant;

use super::database::Database;
use super::error::Cause;
use super::index::Index;
use super::keep::Keep;
use super::lock::Lock;
use super::outbox::{Outbox, Work};
use super::pending::Batch;
use super::tidy::{self, Tidy};
use crate::clock;

#[derive(Debug)]
pub(super) struct Writer {
    outbox: Arc<Outbox>,
    database: Database,
    index: Arc<Index>,
    keep: Keep,
    tidy: Tidy,
    tidy_at: Instant,
    /// Nobody else may open the file before the last word is in it.
    lock: Lock,
}

impl Writer {
    pub(super) fn new(outbox: Arc<Outbox>, database: Database, index: Arc<Index>, keep: Keep, lock: Lock) -> Self {
        let tidy_at = clock::now() + tidy::FIRST;
        Writer { outbox, database, index, keep, tidy: Tidy::default(), tidy_at, lock }
    }

    pub(super) fn run(mut self) {
        loop {
            match self.outbox.next(self.tidy_at) {
                Work::Write { batch, number } => self.write(batch, number),
                Work::Tidy => self.tidy(),
                Work::End => break,
            }
        }
        if let Err(error) = self.database.settle() {
            tracing::debug!(event = "state.unsettled", %error, "the log of the state file stays beside it");
        }
        if self.outbox.is_settled() {
            if let Err(error) = self.lock.settle() {
                tracing::debug!(event = "state.unsettled", %error, "the next start will take this for a kill");
            }
        } else {
            drop(self.lock);
        }
        self.outbox.ended();
    }

    fn write(&mut self, batch: Batch, number: u64) {
        match self.database.write(&batch) {
            Ok(()) => {
                if self.outbox.succeeded(number) {
                    tracing::info!(event = "state.recovered", "the state file is written again");
                }
            }
            Err(error) => return self.failed(batch, &error),
        }
        if !batch.robots.is_empty() || tidy::is_crowded(&self.index, &self.keep) {
            // Soon rather than now: who waits for the write need not wait for the tidying.
            self.tidy_at = self.tidy_at.min(clock::now() + tidy::SOON);
        }
    }

    fn tidy(&mut self) {
        match self.tidy.slice(&mut self.database, &self.index, &self.keep, clock::micros()) {
            Ok(pause) => self.tidy_at = clock::now() + pause,
            Err(error) => {
                self.tidy_at = clock::now() + tidy::EVERY;
                self.failed(Batch::default(), &error);
            }
        }
    }

    fn failed(&self, batch: Batch, error: &rusqlite::Error) {
        let cause = Cause::of_sqlite(error);
        if self.outbox.failed(batch, cause.clone()) {
            tracing::warn!(
                event = "state.unwritten", %cause, %error,
                "cannot write the state file; curtsy goes on from memory and keeps trying"
            );
        }
    }
}
