//! What the disk tier reports: counters, and why it cannot store.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::store::StoreFault;

/// Why nothing is stored on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskTrouble {
    /// Another curtsy uses the folder.
    Held(Option<u32>),
    /// A newer curtsy wrote the catalogue.
    Newer,
    Failed(StoreFault),
}

impl DiskTrouble {
    /// Whether trying again later is of no use.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, DiskTrouble::Held(_) | DiskTrouble::Newer)
    }
}

impl fmt::Display for DiskTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskTrouble::Held(Some(pid)) => write!(f, "another curtsy uses the folder (process {pid})"),
            DiskTrouble::Held(None) => write!(f, "another curtsy uses the folder"),
            DiskTrouble::Newer => write!(f, "a newer curtsy wrote it"),
            DiskTrouble::Failed(fault) => write!(f, "{fault}"),
        }
    }
}

/// The state of the disk tier at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStatus {
    pub directory: PathBuf,
    /// The most bytes it may take.
    pub limit: u64,
    /// Bytes of all files.
    pub bytes: u64,
    pub objects: u64,
    /// False while the catalogue is being read at start.
    pub is_loaded: bool,
    pub trouble: Option<DiskTrouble>,
    pub counts: DiskCounts,
}

/// How often something happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskCounts {
    /// Responses written.
    pub written: u64,
    /// Responses that were not written because the writer was behind or the disk failed.
    pub skipped: u64,
    pub write_failures: u64,
    pub evicted: u64,
    /// Responses read.
    pub read: u64,
    /// Reads that took too long, and counted as misses.
    pub late: u64,
    /// Records that were not as written. They are deleted.
    pub damaged: u64,
}

/// The counters, which all threads share.
#[derive(Debug, Default)]
pub(super) struct DiskCounters {
    pub(super) bytes: AtomicU64,
    pub(super) objects: AtomicU64,
    pub(super) is_loaded: AtomicBool,
    pub(super) written: AtomicU64,
    pub(super) skipped: AtomicU64,
    pub(super) write_failures: AtomicU64,
    pub(super) evicted: AtomicU64,
    pub(super) read: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) damaged: AtomicU64,
    pub(super) trouble: Mutex<Option<DiskTrouble>>,
}

impl DiskCounters {
    pub(super) fn status(&self, directory: PathBuf, limit: u64) -> DiskStatus {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        DiskStatus {
            directory,
            limit,
            bytes: get(&self.bytes),
            objects: get(&self.objects),
            is_loaded: self.is_loaded.load(Relaxed),
            trouble: self.trouble.lock().clone(),
            counts: DiskCounts {
                written: get(&self.written),
                skipped: get(&self.skipped),
                write_failures: get(&self.write_failures),
                evicted: get(&self.evicted),
                read: get(&self.read),
                late: get(&self.late),
                damaged: get(&self.damaged),
            },
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}
