//! From a directory to an open file with everything in memory, or a sentence that says why not.
//!
//! A damaged file is never deleted and never repaired in place: it is set aside under a new name, with its log, and an
//! empty one is begun. Nothing that is only full, read-only or in use is called damaged.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::database::Database;
use super::error::{Cause, StoreError};
use super::index::Index;
use super::keep::Keep;
use super::lock::{Before, Lock};
use super::record::JobRecord;
use super::scan;
use super::schema::{STEPS, Version};

/// In the state directory.
pub const FILE: &str = "state.db";

/// What was found when a store was opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Hosts that are remembered.
    pub hosts: usize,
    pub jobs: Vec<(String, JobRecord)>,
    /// There was no file, or nothing in it.
    pub new: bool,
    /// The format the file had before it was brought up to date.
    pub migrated_from: Option<u32>,
    pub set_aside: Option<SetAside>,
    /// What the process before this one did last may be missing, or be told in times of another clock.
    pub unsettled: bool,
}

/// A damaged file that was moved out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub path: PathBuf,
    pub why: String,
}

#[derive(Debug)]
pub(super) struct Parts {
    pub(super) lock: Lock,
    pub(super) database: Database,
    pub(super) index: Index,
}

pub(super) fn open(directory: &Path, keep: &Keep, now_us: u64) -> Result<(Parts, Opened), StoreError> {
    let unusable = |error: &io::Error| StoreError::unusable(directory, Cause::of_io(error));
    fs::create_dir_all(directory).map_err(|error| unusable(&error))?;
    let lock = Lock::take(directory)?;
    let path = directory.join(FILE);
    let mut set_aside = None;
    let mut loaded = load(&path, keep, now_us);
    if let Err(StoreError::Unusable { cause: Cause::Damaged(why), .. }) = loaded {
        let aside = move_aside(&path, now_us).map_err(|error| unusable(&error))?;
        set_aside = Some(SetAside { path: aside, why });
        loaded = load(&path, keep, now_us);
    }
    let (database, index, mut opened) = loaded?;
    opened.unsettled = lock.before() == Before::Unsettled || set_aside.is_some();
    opened.set_aside = set_aside;
    Ok((Parts { lock, database, index }, opened))
}

/// What is there, without touching it. Nobody knows what was sent last.
pub(super) fn read_only(directory: &Path, keep: &Keep, now_us: u64) -> Result<(Database, Index, Opened), StoreError> {
    Lock::look(directory)?;
    let path = directory.join(FILE);
    let unusable = |error: &rusqlite::Error| unusable(&path, error);
    fs::metadata(&path).map_err(|error| StoreError::unusable(&path, Cause::of_io(&error)))?;
    let database = Database::read_only(&path).map_err(|error| unusable(&error))?;
    match database.version().map_err(|error| unusable(&error))? {
        Version::Current => {}
        Version::Newer(found) => return Err(StoreError::Newer { path, found, known: STEPS.len() as u32 }),
        Version::New | Version::Older(_) | Version::Foreign => {
            let why = "it must be brought up to date, and cannot be written".to_owned();
            return Err(StoreError::unusable(&path, Cause::Other(why)));
        }
    }
    let other = Database::read_only(&path).map_err(|error| unusable(&error))?;
    let (index, jobs) = read(&database, other, keep, now_us).map_err(|error| unusable(&error))?;
    let opened = Opened { hosts: index.len(), jobs, unsettled: true, ..Opened::default() };
    Ok((database, index, opened))
}

pub(super) fn unusable(path: &Path, error: &rusqlite::Error) -> StoreError {
    StoreError::unusable(path, Cause::of_sqlite(error))
}

fn load(path: &Path, keep: &Keep, now_us: u64) -> Result<(Database, Index, Opened), StoreError> {
    let first = first_bytes(path).map_err(|error| StoreError::unusable(path, Cause::of_io(&error)))?;
    let unusable = |error: &rusqlite::Error| unusable(path, error);
    let damaged = |why: &str| StoreError::unusable(path, Cause::Damaged(why.to_owned()));
    if !first.is_empty() && !begins_well(&first) {
        return Err(damaged("it does not begin as a database"));
    }
    let (database, version) = Database::open(path).map_err(|error| unusable(&error))?;
    let migrated_from = match version {
        Version::New | Version::Current => None,
        Version::Older(from) => Some(from),
        Version::Newer(found) => {
            return Err(StoreError::Newer { path: path.to_owned(), found, known: STEPS.len() as u32 });
        }
        Version::Foreign => return Err(damaged("some other program's file")),
    };
    let (complaint, read) = std::thread::scope(|scope| {
        // Beside the reading, on another core where there is one.
        let check = scope.spawn(|| Database::reader(path)?.check());
        let read = Database::reader(path).and_then(|other| read(&database, other, keep, now_us));
        (check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), read)
    });
    if let Some(complaint) = complaint.map_err(|error| unusable(&error))? {
        return Err(damaged(&complaint));
    }
    let (index, jobs) = read.map_err(|error| unusable(&error))?;
    database.try_writing().map_err(|error| unusable(&error))?;
    let new = version == Version::New;
    let opened = Opened { hosts: index.len(), jobs, new, migrated_from, ..Opened::default() };
    Ok((database, index, opened))
}

fn read(
    database: &Database,
    other: Database,
    keep: &Keep,
    now_us: u64,
) -> rusqlite::Result<(Index, Vec<(String, JobRecord)>)> {
    let mut index = Index::new(keep.hosts);
    scan::each_host(database, other, |key, record| {
        if keep.matters(record, now_us) {
            index.append(key, record, now_us);
        }
    })?;
    index.sort();
    database.steered_hosts(|key, record| {
        if keep.matters(&record, now_us) {
            index.put(key, &record, now_us);
        }
        Ok(())
    })?;
    let jobs = database.jobs(keep.jobs)?;
    Ok((index, jobs))
}

/// Makes the file if there is none, for its owner alone: which hosts are visited is nobody else's business. SQLite gives
/// its other files the same rights.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    let mut bytes = Vec::new();
    file.take(20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Magic string, page size, write and read version (SQLite file format, 1.3). SQLite itself would take a short file for
/// a new one, throw the log of a strange one away, and call one with an unknown write version read-only.
fn begins_well(first: &[u8]) -> bool {
    first.len() == 20
        && first.starts_with(b"SQLite format 3\0")
        && first[18..].iter().all(|version| matches!(version, 1 | 2))
}

/// The log goes along: it belongs to the damaged file, and SQLite would apply it to the new one.
fn move_aside(path: &Path, now_us: u64) -> io::Result<PathBuf> {
    let mut number = now_us / 1_000_000;
    let aside = loop {
        let aside = with_suffix(path, &format!(".damaged-{number}"));
        if !aside.try_exists()? {
            break aside;
        }
        number += 1;
    };
    fs::rename(path, &aside)?;
    for log in ["-wal", "-shm"] {
        match fs::rename(with_suffix(path, log), with_suffix(&aside, log)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
