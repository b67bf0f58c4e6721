//! The one thread that writes: opens the folder, stores responses, catalogues them once a second, and makes room.
//!
//! Bytes are written first, and the row that points to them later, so a row is never untrue. If the disk fails, the
//! thread drops what is queued, evicts the oldest file once, and tries again at growing intervals. Nothing waits for it
//! but people who purge, and the end of the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::time::Instant;

use super::DiskShared;
use super::catalogue::{CatalogueBatch, CatalogueRow, Revision};
use super::draft::LargeDraft;
use super::files::SegmentName;
use super::index::{DiskPlace, UrlHash};
use super::open::{self, CacheFolder};
use super::purge::Purge;
use super::queue::{DiskJob, DiskTask};
use super::record::{self, WarcHeader};
use super::status::{DiskTrouble, count};
use super::{LARGEST_IN_SEGMENT, note};
use crate::cache::{CacheKey, Entry};
use crate::clock;

#[derive(Debug)]
pub(super) struct DiskWriter {
    pub(super) shared: Arc<DiskShared>,
    pub(super) folder: CacheFolder,
    pub(super) batch: CatalogueBatch,
    /// Responses whose newer head is in `batch`.
    revised: Vec<(UrlHash, u64)>,
    /// Large responses that are being written.
    pub(super) drafts: HashMap<u64, LargeDraft>,
    /// Bytes of the catalogue's files.
    pub(super) catalogue_bytes: u64,
    commit_at: Option<Instant>,
    failing: Option<Failing>,
}

/// The disk fails.
#[derive(Clone, Copy, Debug)]
struct Failing {
    in_a_row: u32,
    try_at: Instant,
}

/// Opens the folder and writes until the queue is closed.
pub(super) fn run(shared: &Arc<DiskShared>) {
    if let Some(folder) = open_patiently(shared) {
        DiskWriter::new(shared.clone(), folder).run();
    }
    shared.queue.set_ended();
}

/// Opens the folder; tries again if that fails. None if it is of no use, or if curtsy stops.
fn open_patiently(shared: &DiskShared) -> Option<CacheFolder> {
    let mut in_a_row = 0;
    loop {
        let trouble = match open::open(&shared.directory, shared.limit, &shared.index) {
            Ok(folder) => {
                opened(shared, &folder);
                return Some(folder);
            }
            Err(trouble) => trouble,
        };
        shared.index.clear();
        let is_new = shared.set_trouble(Some(trouble.clone()));
        if is_new {
            let directory = shared.directory.display();
            tracing::warn!(
                event = "cache.unwritten", %directory, why = %trouble,
                "cannot use the cache folder; stored answers stay in memory alone"
            );
            shared.tell("cache.unwritten", None, Some(&trouble.to_string()));
        }
        count(&shared.counters.write_failures);
        shared.queue.take_bodies(false);
        if trouble.is_final() || shared.queue.wait_for_close(clock::now() + pause(in_a_row)) {
            return None;
        }
        in_a_row += 1;
    }
}

fn opened(shared: &DiskShared, folder: &CacheFolder) {
    let directory = shared.directory.display();
    if let Some(why) = &folder.damage {
        tracing::warn!(
            event = "cache.damaged", %directory, why,
            "the catalogue of the cache folder is damaged: all stored answers in it were deleted"
        );
        shared.tell("cache.damaged", None, Some(why));
    }
    if shared.set_trouble(None) {
        tracing::info!(event = "cache.recovered", %directory, "the cache folder can be used again");
        shared.tell("cache.recovered", None, None);
    }
    shared.queue.take_bodies(true);
    tracing::debug!(event = "cache.loaded", %directory, objects = folder.segments.live(), "read the catalogue");
}

impl DiskWriter {
    pub(super) fn new(shared: Arc<DiskShared>, folder: CacheFolder) -> Self {
        let mut writer = DiskWriter {
            shared,
            folder,
            batch: CatalogueBatch::default(),
            revised: Vec::new(),
            drafts: HashMap::new(),
            catalogue_bytes: 0,
            commit_at: None,
            failing: None,
        };
        writer.measure();
        match writer.make_room(0) {
            Ok(()) => writer.publish(),
            Err(trouble) => writer.failed(trouble),
        }
        writer.shared.counters.is_loaded.store(true, Relaxed);
        writer
    }

    pub(super) fn run(mut self) {
        loop {
            let until = self.commit_at.into_iter().chain(self.failing.map(|failing| failing.try_at)).min();
            match self.shared.queue.take(until.unwrap_or_else(|| clock::now() + LONG)) {
                DiskTask::Job { number, job } => self.job(number, job),
                DiskTask::Idle => {}
                DiskTask::End => break,
            }
            self.when_due();
        }
        self.end();
    }

    /// Does what the time asks for.
    fn when_due(&mut self) {
        let now = clock::now();
        if self.failing.is_some_and(|failing| failing.try_at <= now) {
            // The next response is the trial. Its failure sets the time of the next one.
            self.shared.queue.take_bodies(true);
            if let Some(failing) = &mut self.failing {
                failing.try_at = now + LONG;
            }
        }
        if self.commit_at.is_some_and(|at| at <= now) {
            self.commit_or_fail();
        }
        if let Some(number) = self.shared.queue.number_if_empty() {
            self.shared.index.settle(number);
        }
    }

    fn end(mut self) {
        for (_, draft) in std::mem::take(&mut self.drafts) {
            self.abandon(&draft);
        }
        self.commit_or_fail();
        // After a kill, large responses that were not read stay doubtful for the next process, too.
        let is_settled =
            self.batch.is_empty() && self.folder.catalogue.settle().is_ok() && !self.shared.index.has_unchecked_large();
        let CacheFolder { lock, catalogue, .. } = self.folder;
        drop(catalogue);
        if is_settled && let Err(error) = lock.settle() {
            tracing::debug!(event = "cache.unsettled", %error, "the next start will take this for a kill");
        }
    }

    pub(super) fn job(&mut self, number: u64, job: DiskJob) {
        let done = match job {
            DiskJob::Put(key, entry) => self.put(number, &key, &entry),
            DiskJob::Begin(draft, key, entry) => self.begin_large(draft, number, &key, &entry),
            DiskJob::Piece(draft, piece) => self.piece(draft, &piece),
            DiskJob::Finish(draft, length) => self.finish_large(draft, length),
            DiskJob::Abandon(draft) => {
                if let Some(draft) = self.drafts.remove(&draft) {
                    self.abandon(&draft);
                }
                Ok(())
            }
            DiskJob::Delete(places) => {
                places.iter().for_each(|place| self.forget_row(place));
                Ok(())
            }
            DiskJob::Revise { url, id, revision } => {
                self.revise(url, id, revision);
                Ok(())
            }
            DiskJob::Purge(purge, answer) => self.purge(&purge).map(|count| answer.send(count).unwrap_or_default()),
            DiskJob::Flush(answer) => self.commit().map(|()| answer.send(()).unwrap_or_default()),
        };
        match done {
            Ok(()) => self.publish(),
            Err(trouble) => self.failed(trouble),
        }
    }

    /// Stores a whole response.
    fn put(&mut self, number: u64, key: &CacheKey, entry: &Entry) -> Result<(), DiskTrouble> {
        let block_length = entry.head().len() as u64 + entry.length();
        if block_length > self.largest_in_segment() {
            return self.put_large(number, key, entry);
        }
        let pieces = || std::iter::once(entry.head()).chain(entry.body()).map(|piece| &piece[..]);
        let header = header(key, entry, record::digest_of(pieces()), block_length);
        let Some(text) = header.write() else { return Ok(()) };
        let record: Vec<&[u8]> =
            std::iter::once(text.as_bytes()).chain(pieces()).chain(std::iter::once(record::END)).collect();
        let length: u64 = record.iter().map(|piece| piece.len() as u64).sum();
        self.make_room(length)?;
        let (segment, offset) = self.folder.segments.append(&record).map_err(|error| open::io_trouble(&error))?;
        let head_length = (text.len() + entry.head().len()) as u32;
        self.add(number, header, &CatalogueRow { segment, offset, length, head_length, ..self.row(entry) });
        self.succeeded();
        Ok(())
    }

    /// A row with everything but its place.
    pub(super) fn row(&self, entry: &Entry) -> CatalogueRow {
        CatalogueRow {
            id: 0,
            segment: SegmentName { number: 0, is_large: false },
            offset: 0,
            length: 0,
            head_length: 0,
            variant: note::variant(&entry.terms),
            url: String::new(),
            partition: String::new(),
            received_us: entry.terms.policy.received.wall.as_micros(),
            is_revised: false,
            is_suspect: false,
        }
    }

    /// Adds a written response to the index, and to the next transaction.
    pub(super) fn add(&mut self, number: u64, header: WarcHeader, row: &CatalogueRow) {
        let id = self.folder.next_id;
        self.folder.next_id += 1;
        let row = CatalogueRow { id, url: header.url, partition: header.partition, ..*row };
        self.folder.segments.added(row.segment.number, id);
        let url = self.shared.index.hash(&row.url, &row.partition);
        let place = DiskPlace::from(&row);
        self.batch.added.push(row);
        for replaced in self.shared.index.put(url, place, number) {
            self.forget_row(&replaced);
        }
        self.commit_soon();
        count(&self.shared.counters.written);
    }

    /// Deletes a row that is no longer in the index, and its file if nothing else is in it.
    pub(super) fn forget_row(&mut self, place: &DiskPlace) {
        self.batch.deleted.push(place.id);
        self.commit_soon();
        if let Some(empty) = self.folder.segments.removed(place.segment)
            && let Err(error) = self.folder.segments.drop_segment(empty)
        {
            tracing::debug!(event = "cache.undeleted", %error, "a file without responses stays until it is evicted");
        }
    }

    pub(super) fn revise(&mut self, url: UrlHash, id: u64, revision: Revision) {
        self.batch.revised.push((id, revision));
        self.revised.push((url, id));
        self.commit_soon();
    }

    fn purge(&mut self, purge: &Purge) -> Result<u64, DiskTrouble> {
        self.commit()?;
        let mut found = Vec::new();
        let matching = |row: CatalogueRow| {
            if purge.matches(&row.url) {
                found.push((self.shared.index.hash(&row.url, &row.partition), row.id));
            }
        };
        self.folder.catalogue.each(matching).map_err(|error| open::trouble(&error))?;
        let places: Vec<DiskPlace> = found.iter().filter_map(|(url, id)| self.shared.index.remove(*url, *id)).collect();
        places.iter().for_each(|place| self.forget_row(place));
        if *purge == Purge::All {
            // The segment that is written, too: its bytes shall be gone.
            for name in self.folder.segments.names() {
                if !self.drafts.values().any(|draft| draft.name() == name) {
                    self.folder.segments.drop_segment(name).map_err(|error| open::io_trouble(&error))?;
                }
            }
        }
        self.commit()?;
        Ok(places.len() as u64)
    }

    pub(super) fn commit_soon(&mut self) {
        self.commit_at.get_or_insert_with(|| clock::now() + BETWEEN_COMMITS);
    }

    fn commit_or_fail(&mut self) {
        match self.commit() {
            Ok(()) => self.publish(),
            Err(trouble) => {
                self.commit_soon();
                self.failed(trouble);
            }
        }
    }

    /// Writes the collected rows.
    pub(super) fn commit(&mut self) -> Result<(), DiskTrouble> {
        self.commit_at = None;
        if self.batch.is_empty() {
            return Ok(());
        }
        self.folder.catalogue.write(&self.batch).map_err(|error| open::trouble(&error))?;
        self.batch = CatalogueBatch::default();
        for (url, id) in self.revised.drain(..) {
            self.shared.index.change(url, id, |place| {
                place.is_revised = true;
                place.is_suspect = false;
            });
        }
        self.measure();
        Ok(())
    }

    fn measure(&mut self) {
        let size = |name: &str| self.shared.directory.join(name).metadata().map_or(0, |file| file.len());
        self.catalogue_bytes = size("cache.db") + size("cache.db-wal") + size("cache.db-shm");
    }

    fn publish(&self) {
        let counters = &self.shared.counters;
        counters.bytes.store(self.folder.segments.bytes() + self.catalogue_bytes, Relaxed);
        counters.objects.store(self.folder.segments.live(), Relaxed);
    }

    pub(super) fn succeeded(&mut self) {
        if self.failing.take().is_some() && self.shared.set_trouble(None) {
            let directory = self.shared.directory.display();
            tracing::info!(event = "cache.recovered", %directory, "the cache folder is written again");
            self.shared.tell("cache.recovered", None, None);
        }
    }

    /// Stops storing for a while. What is stored already is still served.
    fn failed(&mut self, trouble: DiskTrouble) {
        count(&self.shared.counters.write_failures);
        for (_, draft) in std::mem::take(&mut self.drafts) {
            self.abandon(&draft);
        }
        self.shared.queue.take_bodies(false);
        let in_a_row = self.failing.map_or(0, |failing| failing.in_a_row + 1);
        self.failing = Some(Failing { in_a_row, try_at: clock::now() + pause(in_a_row) });
        if in_a_row == 0 {
            let directory = self.shared.directory.display();
            tracing::warn!(
                event = "cache.unwritten", %directory, why = %trouble,
                "cannot write to the cache folder; new answers stay in memory alone until it works again"
            );
            self.shared.tell("cache.unwritten", None, Some(&trouble.to_string()));
            // Perhaps the disk is full, and this is what is missing.
            let _ = self.evict_oldest();
        }
        self.shared.set_trouble(Some(trouble));
        self.publish();
    }

    /// The largest response that shares a file with others.
    pub(super) fn largest_in_segment(&self) -> u64 {
        LARGEST_IN_SEGMENT.min(self.folder.segments.full() / 2)
    }
}

/// The header of a record for this response.
pub(super) fn header(key: &CacheKey, entry: &Entry, digest: record::BlockDigest, block_length: u64) -> WarcHeader {
    WarcHeader {
        id: fastrand::u128(..),
        date_s: entry.terms.policy.received.wall.as_micros() / 1_000_000,
        url: key.url(),
        partition: key.partition.to_string(),
        address: entry.terms.address,
        note: note::write(&entry.terms),
        digest,
        block_length,
    }
}

/// 1, 2, 4 … 60 seconds.
fn pause(in_a_row: u32) -> Duration {
    Duration::from_secs(1 << in_a_row.min(6)).min(Duration::from_secs(60))
}

/// A kill loses what was stored since the last commit, and a commit writes whole pages.
const BETWEEN_COMMITS: Duration = Duration::from_secs(1);
/// Longer than anything that the thread waits for.
const LONG: Duration = Duration::from_secs(24 * 3600);
