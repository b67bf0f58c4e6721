//! Opens a cache folder: takes its lock, reads the catalogue into the index, and makes files and catalogue agree.
//!
//! The catalogue decides. A row that reaches beyond the end of its file is deleted, and so are bytes and files that no
//! row points to. A damaged catalogue is deleted with all files: it is only a cache.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;

use super::catalogue::{Catalogue, CatalogueBatch, CatalogueRow, CatalogueVersion};
use super::files::{self, CATALOGUE, LOCK, SegmentName};
use super::index::{DiskIndex, DiskPlace};
use super::segments::{SegmentState, Segments};
use super::status::DiskTrouble;
use crate::store::{Before, Lock, StoreError, StoreFault};

/// An open cache folder.
#[derive(Debug)]
pub(super) struct CacheFolder {
    pub(super) lock: Lock,
    pub(super) catalogue: Catalogue,
    pub(super) segments: Segments,
    /// Id of the next row.
    pub(super) next_id: u64,
    /// Why the catalogue had to be deleted, if it had to.
    pub(super) damage: Option<String>,
}

/// Opens or creates a folder. The index has every response when this returns.
pub(super) fn open(directory: &Path, limit: u64, index: &DiskIndex) -> Result<CacheFolder, DiskTrouble> {
    files::prepare(directory).map_err(|error| io_trouble(&error))?;
    let mut lock = Lock::take_file(directory, LOCK).map_err(|error| match error {
        StoreError::Held { pid, .. } => DiskTrouble::Held(pid),
        other => DiskTrouble::Failed(StoreFault::from(&other)),
    })?;
    let mut damage = None;
    let loaded = match load(directory, limit, index, &lock) {
        Err(DiskTrouble::Failed(StoreFault::Damaged(why))) => {
            damage = Some(why);
            index.clear();
            delete_all(directory).map_err(|error| io_trouble(&error))?;
            load(directory, limit, index, &lock)
        }
        loaded => loaded,
    };
    let (catalogue, segments, next_id) = loaded?;
    if let Err(error) = lock.adopt_clock() {
        tracing::debug!(event = "cache.unsettled", %error, "the lock file cannot be written");
    }
    Ok(CacheFolder { lock, catalogue, segments, next_id, damage })
}

fn load(
    directory: &Path,
    limit: u64,
    index: &DiskIndex,
    lock: &Lock,
) -> Result<(Catalogue, Segments, u64), DiskTrouble> {
    let path = directory.join(CATALOGUE);
    if let Err(error) = files::create(&path)
        && error.kind() != io::ErrorKind::AlreadyExists
    {
        return Err(io_trouble(&error));
    }
    let (mut catalogue, version) = Catalogue::open(&path).map_err(|error| trouble(&error))?;
    if version == CatalogueVersion::Newer {
        return Err(DiskTrouble::Newer);
    }
    let is_clean = lock.before() == Before::Settled;
    if !is_clean && let Some(complaint) = catalogue.check().map_err(|error| trouble(&error))? {
        return Err(DiskTrouble::Failed(StoreFault::Damaged(complaint)));
    }
    if lock.clock_step().is_some() {
        catalogue.suspect_all().map_err(|error| trouble(&error))?;
    }
    let mut loading = Loading::new(directory, index, is_clean).map_err(|error| io_trouble(&error))?;
    catalogue.each(|row| loading.take(&row)).map_err(|error| trouble(&error))?;
    catalogue.write(&loading.surplus).map_err(|error| trouble(&error))?;
    let next_id = loading.next_id;
    let segments = loading.finish(limit).map_err(|error| io_trouble(&error))?;
    Ok((catalogue, segments, next_id))
}

/// The files and rows while the catalogue is read.
struct Loading<'a> {
    directory: &'a Path,
    index: &'a DiskIndex,
    is_clean: bool,
    files: HashMap<SegmentName, u64>,
    states: BTreeMap<u32, SegmentState>,
    /// Where the last record of a segment ends.
    ends: HashMap<u32, u64>,
    surplus: CatalogueBatch,
    next_id: u64,
}

impl<'a> Loading<'a> {
    fn new(directory: &'a Path, index: &'a DiskIndex, is_clean: bool) -> io::Result<Self> {
        let files = files::segments(directory)?.into_iter().collect();
        let (states, ends, surplus) = (BTreeMap::new(), HashMap::new(), CatalogueBatch::default());
        Ok(Loading { directory, index, is_clean, files, states, ends, surplus, next_id: 1 })
    }

    fn take(&mut self, row: &CatalogueRow) {
        self.next_id = self.next_id.max(row.id + 1);
        let end = u64::from(row.offset).saturating_add(row.length);
        let bytes = match self.files.get(&row.segment) {
            Some(bytes) if end <= *bytes && u64::from(row.head_length) <= row.length => *bytes,
            _ => return self.surplus.deleted.push(row.id),
        };
        let is_large = row.segment.is_large;
        let new = SegmentState { is_large, bytes, live: 0, first_id: row.id, last_id: row.id };
        self.count(row.segment.number, new, end);
        let place = DiskPlace { is_checked: self.is_clean, ..DiskPlace::from(row) };
        for replaced in self.index.put(self.index.hash(&row.url, &row.partition), place, 0) {
            self.surplus.deleted.push(replaced.id);
            if let Some(state) = self.states.get_mut(&replaced.segment) {
                state.live -= 1;
            }
        }
    }

    fn count(&mut self, number: u32, new: SegmentState, end: u64) {
        let state = self.states.entry(number).or_insert(new);
        state.live += 1;
        state.last_id = new.last_id;
        let last = self.ends.entry(number).or_default();
        *last = end.max(*last);
    }

    /// Deletes files that no row points to, and continues the newest segment.
    fn finish(self, limit: u64) -> io::Result<Segments> {
        let newest = self.files.keys().map(|name| name.number).max().unwrap_or(0);
        for name in self.files.keys() {
            let is_known = self.states.get(&name.number).is_some_and(|state| state.is_large == name.is_large);
            if !is_known {
                files::delete(&name.path(self.directory))?;
            }
        }
        let last = self.states.iter().rfind(|(_, state)| !state.is_large).map(|(number, _)| *number);
        let mut segments = Segments::new(self.directory, limit, self.states, newest + 1);
        if let Some(number) = last {
            segments.resume(number, self.ends.get(&number).copied().unwrap_or(0))?;
        }
        Ok(segments)
    }
}

impl From<&CatalogueRow> for DiskPlace {
    fn from(row: &CatalogueRow) -> Self {
        DiskPlace {
            id: row.id,
            length: row.length,
            segment: row.segment.number,
            offset: row.offset,
            head_length: row.head_length,
            variant: row.variant,
            hits: 0,
            is_large: row.segment.is_large,
            is_checked: true,
            is_revised: row.is_revised,
            is_suspect: row.is_suspect,
        }
    }
}

/// Deletes the catalogue with its log, and every file with responses.
fn delete_all(directory: &Path) -> io::Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        files::delete(&directory.join(format!("{CATALOGUE}{suffix}")))?;
    }
    files::segments(directory)?.into_iter().try_for_each(|(name, _)| files::delete(&name.path(directory)))
}

pub(super) fn trouble(error: &rusqlite::Error) -> DiskTrouble {
    DiskTrouble::Failed(StoreFault::of_sqlite(error))
}

pub(super) fn io_trouble(error: &io::Error) -> DiskTrouble {
    DiskTrouble::Failed(StoreFault::of_io(error))
}
