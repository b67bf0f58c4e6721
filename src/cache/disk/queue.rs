//! The queue between the request path and the writer thread.
//!
//! The request path adds a job and goes on; it never waits. Bodies are bounded by bytes: if the writer is behind, a
//! response is not stored on disk, and is counted. Jobs without a body are always accepted, since a lost deletion would
//! bring a response back after a restart.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::catalogue::Revision;
use super::index::{DiskPlace, UrlHash};
use super::purge::Purge;
use crate::cache::{CacheKey, Entry};

/// What the writer is asked to do.
#[derive(Debug)]
pub(super) enum DiskJob {
    /// Stores a whole response.
    Put(CacheKey, Arc<Entry>),
    /// Begins a large response, of which there is only the head. Its body comes in pieces, under this number.
    Begin(u64, CacheKey, Arc<Entry>),
    Piece(u64, Bytes),
    /// Completes a large response, whose body must have this length.
    Finish(u64, u64),
    Abandon(u64),
    /// Deletes responses that are no longer in the index.
    Delete(SmallVec<[DiskPlace; 1]>),
    Revise {
        url: UrlHash,
        id: u64,
        revision: Revision,
    },
    Purge(Purge, oneshot::Sender<u64>),
    /// Writes every row to the catalogue.
    Flush(oneshot::Sender<()>),
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum DiskTask {
    Job {
        number: u64,
        job: DiskJob,
    },
    /// Nothing to do until the given time.
    Idle,
    End,
}

#[derive(Debug, Default)]
pub(super) struct DiskQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    ended: Condvar,
}

#[derive(Debug)]
struct QueueState {
    jobs: VecDeque<(u64, DiskJob)>,
    /// Bytes of bodies in `jobs`.
    bytes: usize,
    /// Number of the next job.
    next: u64,
    /// False while the disk fails, or belongs to another curtsy.
    takes_bodies: bool,
    is_closing: bool,
    has_ended: bool,
}

impl Default for QueueState {
    fn default() -> Self {
        let jobs = VecDeque::new();
        QueueState { jobs, bytes: 0, next: 1, takes_bodies: true, is_closing: false, has_ended: false }
    }
}

impl DiskQueue {
    /// Adds a job. Returns false if there is no room for its body.
    pub(super) fn push(&self, job: DiskJob) -> bool {
        let size = job.size();
        let mut state = self.state.lock();
        let has_room = state.takes_bodies && state.bytes + size <= MOST_BYTES;
        if state.is_closing || state.has_ended || (job.has_body() && !has_room) {
            return false;
        }
        state.bytes += size;
        let number = state.next;
        state.next += 1;
        state.jobs.push_back((number, job));
        self.changed.notify_one();
        true
    }

    /// Returns the number of the next job.
    pub(super) fn next_number(&self) -> u64 {
        self.state.lock().next
    }

    /// Waits for the next job, until `until`.
    pub(super) fn take(&self, until: Instant) -> DiskTask {
        let mut state = self.state.lock();
        loop {
            if let Some((number, job)) = state.jobs.pop_front() {
                state.bytes -= job.size();
                return DiskTask::Job { number, job };
            }
            if state.is_closing {
                return DiskTask::End;
            }
            if self.changed.wait_until(&mut state, until.into_std()).timed_out() {
                return DiskTask::Idle;
            }
        }
    }

    /// Returns the number of the next job if the queue is empty.
    pub(super) fn number_if_empty(&self) -> Option<u64> {
        let state = self.state.lock();
        state.jobs.is_empty().then_some(state.next)
    }

    /// Waits until `until` or until the queue is closed. Returns true if it is closed.
    pub(super) fn wait_for_close(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.is_closing && !self.changed.wait_until(&mut state, until.into_std()).timed_out() {}
        state.is_closing
    }

    /// While the disk fails, bodies are refused, and those in the queue are dropped.
    pub(super) fn take_bodies(&self, takes: bool) {
        let mut state = self.state.lock();
        state.takes_bodies = takes;
        if !takes {
            state.jobs.retain(|(_, job)| !job.has_body());
            state.bytes = 0;
        }
    }

    /// Accepts no more jobs, and lets the writer end after those in the queue.
    pub(super) fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_all();
    }

    pub(super) fn set_ended(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        state.jobs.clear();
        self.ended.notify_all();
    }

    /// Waits for the writer's end. Returns false if it takes longer than until `until`.
    pub(super) fn wait_for_end(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.has_ended && !self.ended.wait_until(&mut state, until.into_std()).timed_out() {}
        state.has_ended
    }
}

impl DiskJob {
    fn has_body(&self) -> bool {
        matches!(self, DiskJob::Put(..) | DiskJob::Begin(..) | DiskJob::Piece(..))
    }

    fn size(&self) -> usize {
        match self {
            DiskJob::Put(_, entry) | DiskJob::Begin(_, _, entry) => entry.weight() as usize + OVERHEAD,
            DiskJob::Piece(_, piece) => piece.len() + OVERHEAD,
            _ => 0,
        }
    }
}

/// Bodies that wait for the writer. A disk that writes 100 MB/s needs a third of a second for them.
const MOST_BYTES: usize = 32 * 1024 * 1024;
/// What a job takes besides its bytes, about.
const OVERHEAD: usize = 256;
