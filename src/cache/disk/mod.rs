//! The disk tier: stored answers that survive a restart.
//!
//! Answers are WARC records in append-only files, and a catalogue (SQLite) says where each of them is. Promises:
//! - **No request waits for disk.** The index is in memory; a response to store is put into a queue, and skipped if the
//!   queue is full; a read that takes longer than 250 ms is a miss.
//! - **A doubtful copy is a miss.** A record is used only if its URL, length and digest are right. So a kill, a full
//!   disk or a flipped bit never makes curtsy serve a torn body.
//! - **Bytes are bounded**, by `cache.disk`. The oldest file goes first.
//! - **A disk that fails harms nothing else.** Forwarding and the memory tier go on, and writing is tried again.

mod catalogue;
mod draft;
mod evict;
mod files;
mod index;
mod large;
mod news;
pub mod note;
mod open;
mod purge;
mod queue;
mod reader;
pub mod record;
mod rows;
mod segments;
mod status;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::sync::oneshot;

pub use self::files::is_folder;
pub use self::index::DiskPlace;
pub use self::news::{DiskListener, DiskNews};
pub use self::purge::Purge;
pub use self::reader::LargeBody;
pub use self::rows::{DiskRow, VerifyReport, verify};
pub use self::status::{DiskCounts, DiskStatus, DiskTrouble};

use self::catalogue::Revision;
use self::index::{DiskIndex, UrlHash};
use self::queue::{DiskJob, DiskQueue};
use self::reader::{ReadJob, Readers};
use self::status::{DiskCounters, count};
use super::{CacheKey, CacheKeyRef, Entry, Memory};
use crate::clock;

/// Stored answers on disk. Dropping it begins to close it, without waiting.
#[derive(Debug)]
pub struct DiskTier {
    shared: Arc<DiskShared>,
    next_draft: AtomicU64,
}

/// What the threads share.
#[derive(Debug)]
struct DiskShared {
    directory: PathBuf,
    limit: u64,
    index: DiskIndex,
    queue: DiskQueue,
    counters: DiskCounters,
    readers: Readers,
    listener: DiskListener,
    /// Where answers are used without being read here.
    memory: OnceLock<Weak<Memory>>,
}

impl DiskTier {
    /// Starts to use a folder, with at most `limit` bytes. Returns at once: a thread opens the folder and reads the
    /// catalogue, and until then nothing is found. [`DiskTier::status`] says if the folder cannot be used.
    pub fn start(directory: &Path, limit: u64) -> std::io::Result<DiskTier> {
        DiskTier::start_with(directory, limit, DiskListener::new(|_| ()))
    }

    /// The same, with a callback for news.
    pub fn start_with(directory: &Path, limit: u64, listener: DiskListener) -> std::io::Result<DiskTier> {
        let (shared, start) = DiskShared::new(directory, limit, listener)?;
        start.run(&shared)?;
        let writer = shared.clone();
        std::thread::Builder::new().name("cache-writer".to_owned()).spawn(move || writer::run(&writer))?;
        Ok(DiskTier { shared, next_draft: AtomicU64::new(1) })
    }

    /// Lets uses in memory count when files are evicted. Only the first call has an effect.
    pub(super) fn watch(&self, memory: &Arc<Memory>) {
        let _ = self.shared.memory.set(Arc::downgrade(memory));
    }

    /// Returns where the variants of a URL are, the newest first. In memory only.
    pub fn find(&self, key: &CacheKeyRef<'_>) -> SmallVec<[DiskPlace; 1]> {
        self.shared.index.get(self.hash(key))
    }

    /// Whether a variant is still there.
    pub fn has(&self, key: &CacheKeyRef<'_>, place: DiskPlace) -> bool {
        self.find(key).iter().any(|now| now.id == place.id)
    }

    /// Reads a variant. None if it is gone, damaged, or not there in time. The body of a large one is read later, in
    /// pieces.
    pub async fn read(&self, key: &CacheKeyRef<'_>, place: DiskPlace) -> Option<Entry> {
        let (answer, answered) = oneshot::channel();
        let job = ReadJob::Copy { place, url: url(key), partition: key.partition.to_owned(), answer };
        if !self.shared.readers.ask(job) {
            count(&self.shared.counters.late);
            return None;
        }
        match tokio::time::timeout(PATIENCE, answered).await {
            Ok(copy) => copy.ok().flatten(),
            Err(_) => {
                count(&self.shared.counters.late);
                None
            }
        }
    }

    /// Stores a whole entry, later. If the writer is behind, the entry is skipped.
    pub fn put(&self, key: CacheKey, entry: Arc<Entry>) {
        if entry.large().is_some() {
            // It is on disk already, or was until it was evicted.
            return;
        }
        if !self.shared.queue.push(DiskJob::Put(key, entry)) {
            count(&self.shared.counters.skipped);
        }
    }

    /// Replaces head and terms of a stored entry: after a 304, or a HEAD that confirms it. Stores the entry if it is
    /// not on disk.
    pub fn refresh(&self, key: CacheKey, entry: Arc<Entry>) {
        let url = self.hash(&key.borrowed());
        let variant = note::variant(&entry.terms);
        let places = self.shared.index.get(url);
        let Some(place) = places.iter().find(|place| place.variant == variant) else {
            return self.put(key, entry);
        };
        let revision = Revision { note: note::write(&entry.terms), head: entry.head().to_vec() };
        self.shared.queue.push(DiskJob::Revise { url, id: place.id, revision });
    }

    /// Begins to store a large response, of which `entry` has the head. None if the writer is behind.
    pub fn begin(&self, key: CacheKey, entry: Arc<Entry>) -> Option<LargeWrite> {
        let number = self.next_draft.fetch_add(1, Relaxed);
        let is_begun = self.shared.queue.push(DiskJob::Begin(number, key, entry));
        if !is_begun {
            count(&self.shared.counters.skipped);
        }
        is_begun.then(|| LargeWrite { shared: self.shared.clone(), number, length: 0, is_open: true })
    }

    /// Forgets every variant of a URL, and returns how many there were.
    pub fn forget(&self, key: &CacheKeyRef<'_>) -> usize {
        let places = self.shared.index.forget(self.hash(key), self.shared.queue.next_number());
        let forgotten = places.len();
        if forgotten > 0 {
            self.shared.queue.push(DiskJob::Delete(places));
        }
        forgotten
    }

    /// Forgets one variant.
    pub fn forget_like(&self, key: &CacheKeyRef<'_>, entry: &Entry) {
        let (url, variant) = (self.hash(key), note::variant(&entry.terms));
        for place in self.shared.index.get(url).into_iter().filter(|place| place.variant == variant) {
            self.shared.forget_place(url, place);
        }
    }

    /// Forgets what people choose, and returns how many responses that were. None if the disk does not answer in time.
    pub async fn purge(&self, purge: Purge) -> Option<u64> {
        let (answer, answered) = oneshot::channel();
        if !self.shared.queue.push(DiskJob::Purge(purge, answer)) {
            return None;
        }
        tokio::time::timeout(PEOPLES_PATIENCE, answered).await.ok()?.ok()
    }

    /// Waits until everything stored so far is in the catalogue.
    pub async fn flush(&self) -> bool {
        let (answer, answered) = oneshot::channel();
        let is_asked = self.shared.queue.push(DiskJob::Flush(answer));
        is_asked && matches!(tokio::time::timeout(PEOPLES_PATIENCE, answered).await, Ok(Ok(())))
    }

    pub fn status(&self) -> DiskStatus {
        self.shared.counters.status(self.shared.directory.clone(), self.shared.limit)
    }

    /// Writes what is queued and closes the folder. Blocks at most for `patience`; returns false if that was too short.
    pub fn close(&self, patience: Duration) -> bool {
        self.shared.queue.close();
        self.shared.queue.wait_for_end(clock::now() + patience)
    }

    fn hash(&self, key: &CacheKeyRef<'_>) -> UrlHash {
        self.shared.index.hash(&url(key), key.partition)
    }
}

impl Drop for DiskTier {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

impl DiskShared {
    fn new(
        directory: &Path,
        limit: u64,
        listener: DiskListener,
    ) -> std::io::Result<(Arc<DiskShared>, reader::ReaderStart)> {
        let (readers, start) = Readers::start()?;
        let (queue, counters, index) = (DiskQueue::default(), DiskCounters::default(), DiskIndex::new());
        let directory = directory.to_owned();
        Ok((
            Arc::new(DiskShared {
                directory,
                limit,
                index,
                queue,
                counters,
                readers,
                listener,
                memory: OnceLock::new(),
            }),
            start,
        ))
    }

    /// Sets or clears the trouble. Returns whether that is news.
    fn set_trouble(&self, trouble: Option<DiskTrouble>) -> bool {
        let mut now = self.counters.trouble.lock();
        let is_news = now.is_some() != trouble.is_some();
        *now = trouble;
        is_news
    }

    fn forget_place(&self, url: UrlHash, place: DiskPlace) {
        if let Some(place) = self.index.remove(url, place.id) {
            self.queue.push(DiskJob::Delete(SmallVec::from_elem(place, 1)));
        }
    }
}

/// A large response while its body passes. Dropping it abandons the response.
#[derive(Debug)]
pub struct LargeWrite {
    shared: Arc<DiskShared>,
    number: u64,
    length: u64,
    is_open: bool,
}

impl LargeWrite {
    /// Adds a piece of the body. Returns false if the writer is behind: the response is not stored.
    pub fn push(&mut self, piece: Bytes) -> bool {
        self.length += piece.len() as u64;
        if self.is_open && !self.shared.queue.push(DiskJob::Piece(self.number, piece)) {
            count(&self.shared.counters.skipped);
            self.abandon();
        }
        self.is_open
    }

    /// Completes the response: its body has all of its bytes.
    pub fn finish(mut self) {
        if self.is_open {
            self.is_open = !self.shared.queue.push(DiskJob::Finish(self.number, self.length));
        }
    }

    fn abandon(&mut self) {
        if std::mem::take(&mut self.is_open) {
            self.shared.queue.push(DiskJob::Abandon(self.number));
        }
    }
}

impl Drop for LargeWrite {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Returns the folder that `cache.dir = "auto"` means: a service manager's choice, then the user's own folder, then the
/// system's (XDG base directories).
pub fn auto_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    absolute("CACHE_DIRECTORY")
        .or_else(|| absolute("XDG_CACHE_HOME").map(|home| home.join("curtsy")))
        .or_else(|| absolute("HOME").map(|home| home.join(".cache/curtsy")))
        .unwrap_or_else(|| PathBuf::from("/var/cache/curtsy"))
}

fn url(key: &CacheKeyRef<'_>) -> String {
    format!("{}{}", key.origin, key.path)
}

/// A larger response has a file of its own.
pub const LARGEST_IN_SEGMENT: u64 = 1024 * 1024;
/// A read replaces a request to the origin, which rarely takes longer than this.
const PATIENCE: Duration = Duration::from_millis(250);
/// For people, who can wait.
const PEOPLES_PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
