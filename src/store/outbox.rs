//! The queue of changes between the request path and the writer thread.
//!
//! The request path adds a change and goes on: it holds the lock for one look-up in a map, and never while anything is
//! written. The writer takes all changes at once. A caller that needs to know that a change is on disk waits here, with
//! a deadline.

use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::error::StoreFault;
use super::pending::Batch;
use super::record::RobotsRecord;
use crate::clock;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    /// Wakes the writer: there is something new.
    changed: Condvar,
    /// Wakes callers that wait: changes were written, or the writer has ended.
    settled: Condvar,
}

#[derive(Debug, Default)]
struct OutboxState {
    batch: Batch,
    /// Number of changes that the writer has taken and not finished.
    taken: usize,
    /// When the oldest change in the batch was added.
    first: Option<Instant>,
    /// A change in the batch is binding: the batch is written without waiting for more.
    binds: bool,
    /// When the writer last took a batch.
    last_taken: Option<Instant>,
    /// Number of the last flush. A caller waits for every change that was added before its flush got this number.
    wanted: u64,
    written: u64,
    failed: Option<FailedWrite>,
    /// The file could not be opened, at start or since.
    unopened: bool,
    /// No more changes are accepted, and at this time the writer gives up.
    closing: Option<Instant>,
    /// No more changes will follow, so the written state is complete.
    complete: bool,
    ended: bool,
    failures: u64,
    lost: u64,
    written_at_us: u64,
}

#[derive(Debug)]
struct FailedWrite {
    at: Instant,
    in_a_row: u32,
    cause: StoreFault,
}

/// How soon a change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Haste {
    /// The change is collected with others for [`PAUSE`].
    Usual,
    /// A hold, a pause or a setting, which a kill must not undo: written at once, or [`BETWEEN`] after the last write.
    Binding,
}

/// What the writer does next.
#[derive(Debug)]
pub(super) enum Work {
    Write { batch: Batch, number: u64 },
    Tidy,
    End,
}

/// The health of a store. Pending and lost changes are missing only on disk: memory still has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Why the last write failed; None if it succeeded.
    pub trouble: Option<StoreFault>,
    /// Changes not on disk yet.
    pub pending: usize,
    /// Changes dropped because there was no room while the disk failed.
    pub lost: u64,
    /// Writes that failed.
    pub failures: u64,
    /// When changes were last written; 0 if not yet.
    pub written_at_us: u64,
}

/// Changes that did not reach the disk in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsaved {
    pub changes: usize,
    pub trouble: Option<StoreFault>,
}

impl Outbox {
    /// Creates the outbox for a directory that cannot be written from the start, because of `cause`.
    pub(super) fn unopened(cause: StoreFault) -> Self {
        let failed = Some(FailedWrite { at: clock::now(), in_a_row: 1, cause });
        let state = OutboxState { failed, failures: 1, unopened: true, ..OutboxState::default() };
        Outbox { state: Mutex::new(state), ..Outbox::default() }
    }

    /// Whether the file is open for writing.
    pub(super) fn is_open(&self) -> bool {
        !self.state.lock().unopened
    }

    /// Adds a change. `change` returns whether there was room for it.
    pub(super) fn put(&self, haste: Haste, change: impl FnOnce(&mut Batch) -> bool) {
        let mut state = self.state.lock();
        if state.closing.is_some() {
            return;
        }
        let binds = haste == Haste::Binding && !state.binds;
        if state.batch.is_empty() {
            state.first = Some(clock::now());
        }
        if state.batch.is_empty() || binds {
            self.changed.notify_one();
        }
        state.binds |= binds;
        if !change(&mut state.batch) {
            state.lost += 1;
        }
    }

    /// Returns the latest change for an origin, if it is not on disk yet.
    pub(super) fn robots(&self, origin: &str) -> Option<Option<RobotsRecord>> {
        self.state.lock().batch.robots.get(origin).cloned()
    }

    /// Waits until everything put so far is on disk.
    pub(super) fn flush(&self, patience: Duration) -> Result<(), Unsaved> {
        let deadline = clock::now() + patience;
        let mut state = self.state.lock();
        state.wanted += 1;
        let number = state.wanted;
        self.changed.notify_one();
        while state.written < number && !state.ended {
            if self.settled.wait_until(&mut state, deadline.into_std()).timed_out() {
                break;
            }
        }
        if state.written >= number { Ok(()) } else { Err(state.unsaved()) }
    }

    /// Accepts no more changes. The writer writes what there is and ends, at the latest after `patience`.
    pub(super) fn begin_close(&self, patience: Duration) {
        let mut state = self.state.lock();
        state.closing.get_or_insert(clock::now() + patience);
        self.changed.notify_one();
    }

    /// Marks that the caller has added every change there is.
    pub(super) fn complete(&self) {
        self.state.lock().complete = true;
    }

    /// For the writer, at the end: whether nothing is missing on disk.
    pub(super) fn is_settled(&self) -> bool {
        let state = self.state.lock();
        state.complete && state.pending() == 0 && state.lost == 0
    }

    /// Waits until the writer has ended.
    pub(super) fn wait_for_end(&self) -> Result<(), Unsaved> {
        let mut state = self.state.lock();
        let deadline = state.closing.unwrap_or_else(clock::now) + END;
        while !state.ended {
            if self.settled.wait_until(&mut state, deadline.into_std()).timed_out() {
                break;
            }
        }
        if state.ended && state.pending() == 0 { Ok(()) } else { Err(state.unsaved()) }
    }

    pub(super) fn health(&self) -> Health {
        let state = self.state.lock();
        Health {
            trouble: state.failed.as_ref().map(|failed| failed.cause.clone()),
            pending: state.pending(),
            lost: state.lost,
            failures: state.failures,
            written_at_us: state.written_at_us,
        }
    }

    /// For the writer: sleeps until there is something to do.
    pub(super) fn next(&self, tidy_at: Instant) -> Work {
        let mut state = self.state.lock();
        loop {
            let now = clock::now();
            let due = state.due(now);
            let give_up = state.closing.filter(|deadline| now >= *deadline || due.is_none());
            if give_up.is_some() {
                return Work::End;
            }
            if due.is_some_and(|due| due <= now) {
                return Work::Write { batch: state.take(), number: state.wanted };
            }
            if tidy_at <= now && state.closing.is_none() {
                return Work::Tidy;
            }
            let next = due.map_or(tidy_at, |due| due.min(tidy_at));
            let next = state.closing.map_or(next, |deadline| deadline.min(due.unwrap_or(deadline)));
            self.changed.wait_until(&mut state, next.into_std());
        }
    }

    /// For the writer: records a successful write. Returns true if the write before it had failed.
    pub(super) fn succeeded(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        state.written = number;
        state.taken = 0;
        state.unopened = false;
        state.written_at_us = clock::micros();
        self.settled.notify_all();
        state.failed.take().is_some()
    }

    /// For the writer: puts back what was not written. Returns true if the write before this one had not failed.
    pub(super) fn failed(&self, batch: Batch, cause: StoreFault) -> bool {
        let mut state = self.state.lock();
        let lost = state.batch.put_back(batch);
        state.taken = 0;
        state.lost += lost as u64;
        state.failures += 1;
        let now = clock::now();
        let in_a_row = state.failed.as_ref().map_or(1, |failed| failed.in_a_row.saturating_add(1));
        state.failed = Some(FailedWrite { at: now, in_a_row, cause });
        in_a_row == 1
    }

    /// For the writer: records that nothing more will be written.
    pub(super) fn ended(&self) {
        self.state.lock().ended = true;
        self.settled.notify_all();
    }
}

impl OutboxState {
    /// Returns when to write; None if there is nothing to write.
    fn due(&self, now: Instant) -> Option<Instant> {
        let awaited = self.wanted > self.written;
        let to_open = self.unopened && self.closing.is_none();
        if self.batch.is_empty() && !awaited && !to_open {
            return None;
        }
        let urgent = awaited || self.closing.is_some();
        match &self.failed {
            Some(failed) if urgent => Some(failed.at + URGENT_RETRY),
            Some(failed) => Some(failed.at + backoff(failed.in_a_row)),
            None if urgent => Some(now),
            None if self.binds => Some(self.last_taken.map_or(now, |last| last + BETWEEN)),
            None => self.first.map(|first| first + PAUSE),
        }
    }

    fn take(&mut self) -> Batch {
        (self.first, self.binds, self.last_taken) = (None, false, Some(clock::now()));
        self.taken = self.batch.len();
        std::mem::take(&mut self.batch)
    }

    fn pending(&self) -> usize {
        self.batch.len() + self.taken
    }

    fn unsaved(&self) -> Unsaved {
        Unsaved { changes: self.pending(), trouble: self.failed.as_ref().map(|failed| failed.cause.clone()) }
    }
}

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} changes are not on disk", self.changes)?;
        match &self.trouble {
            Some(cause) => write!(f, ": {cause}"),
            None => write!(f, " yet: it is slow"),
        }
    }
}

impl std::error::Error for Unsaved {}

/// 1, 2, 4 … 60 s.
fn backoff(failures_in_a_row: u32) -> Duration {
    Duration::from_secs(1 << failures_in_a_row.saturating_sub(1).min(6)).min(LONGEST_BACKOFF)
}

/// How long changes are collected before they are written. Together with the write itself this must stay under the 2 s
/// of learning that a kill may cost.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Time between two writes of binding changes. Origins may request many holds at once: 20 writes a second cost some 0.2
/// % of a core.
const BETWEEN: Duration = Duration::from_millis(50);
/// So freed space is noticed within a minute.
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// Time to the next try if a caller waits for the write.
const URGENT_RETRY: Duration = Duration::from_millis(100);
/// Time from the last write to the end of the writer, in which it moves the log into the file.
const END: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::record::HostRecord;

    fn put(outbox: &Outbox, key: &str) {
        outbox.put(Haste::Usual, |batch| batch.put_host(key, Some(HostRecord::default())));
    }

    fn due_in(outbox: &Outbox) -> Option<Duration> {
        let now = clock::now();
        outbox.state.lock().due(now).map(|due| due.saturating_duration_since(now))
    }

    fn take(outbox: &Outbox) -> Batch {
        outbox.state.lock().take()
    }

    #[tokio::test(start_paused = true)]
    async fn changes_gather_for_a_second_after_the_first() {
        let outbox = Outbox::default();
        assert_eq!(due_in(&outbox), None);
        put(&outbox, "a");
        tokio::time::advance(Duration::from_millis(900)).await;
        put(&outbox, "b");
        assert_eq!(due_in(&outbox), Some(Duration::from_millis(100)));
    }

    /// Promise 7: a kill soon after a response must not forget its Retry-After.
    #[tokio::test(start_paused = true)]
    async fn what_binds_is_written_at_once_and_then_twenty_times_a_second() {
        let outbox = Outbox::default();
        let hold = |key: &str| outbox.put(Haste::Binding, |batch| batch.put_host(key, Some(HostRecord::default())));
        put(&outbox, "a");
        hold("b");
        assert_eq!(due_in(&outbox), Some(Duration::ZERO));
        assert_eq!(take(&outbox).len(), 2, "what gathered goes along");
        hold("c");
        put(&outbox, "d");
        assert_eq!(due_in(&outbox), Some(BETWEEN));
        tokio::time::advance(BETWEEN).await;
        assert_eq!((due_in(&outbox), take(&outbox).len()), (Some(Duration::ZERO), 2));
        put(&outbox, "e");
        assert_eq!(due_in(&outbox), Some(PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_disk_is_asked_less_and_less_often() {
        let outbox = Outbox::default();
        put(&outbox, "a");
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            outbox.failed(take(&outbox), StoreFault::Full);
            assert_eq!(due_in(&outbox), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(outbox.health().trouble, Some(StoreFault::Full));
        assert_eq!((outbox.health().pending, outbox.health().failures), (1, 8));
        outbox.state.lock().wanted += 1;
        assert_eq!(due_in(&outbox), Some(URGENT_RETRY), "a caller waits for it");
        take(&outbox);
        assert!(outbox.succeeded(1));
        assert_eq!((outbox.health().trouble, outbox.health().pending), (None, 0));
        assert_eq!(due_in(&outbox), None);
    }

    /// Opening is tried without a change to write, so that `/status` reports when there is space again.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_could_not_be_opened_is_tried_again() {
        let outbox = Outbox::unopened(StoreFault::Full);
        assert_eq!(due_in(&outbox), Some(Duration::from_secs(1)));
        put(&outbox, "a");
        let health = outbox.health();
        assert_eq!((health.trouble, health.pending, health.failures), (Some(StoreFault::Full), 1, 1));
        assert!(!outbox.failed(take(&outbox), StoreFault::Full), "it was said before");
        assert_eq!(due_in(&outbox), Some(Duration::from_secs(2)));
        take(&outbox);
        assert!(!outbox.is_open() && outbox.succeeded(0) && outbox.is_open());
        assert_eq!((due_in(&outbox), outbox.health().trouble), (None, None));
    }

    #[test]
    fn a_file_that_was_never_opened_ends_at_once_if_nothing_waits() {
        let outbox = Outbox::unopened(StoreFault::ReadOnly);
        outbox.begin_close(Duration::from_secs(60));
        assert!(matches!(outbox.next(clock::now() + Duration::from_secs(600)), Work::End));
    }

    #[test]
    fn nothing_is_taken_after_the_end_has_begun() {
        let outbox = Outbox::default();
        put(&outbox, "a");
        outbox.begin_close(Duration::from_secs(60));
        put(&outbox, "b");
        let far = clock::now() + Duration::from_secs(600);
        assert!(matches!(outbox.next(far), Work::Write { batch, .. } if batch.len() == 1));
        assert!(matches!(outbox.next(far), Work::End));
    }

    #[test]
    fn a_disk_that_fails_to_the_end_is_given_up() {
        let outbox = Outbox::default();
        put(&outbox, "a");
        outbox.begin_close(Duration::ZERO);
        let far = clock::now() + Duration::from_secs(600);
        assert!(matches!(outbox.next(far), Work::End));
        outbox.ended();
        assert_eq!(outbox.wait_for_end(), Err(Unsaved { changes: 1, trouble: None }));
    }
}
