//! Turns a directory into an open file with all hosts in memory, or into an error that says why that failed.
//!
//! A damaged file is never deleted and never repaired in place: it is renamed, together with its log, and an empty file
//! is created. A file that is only full, read-only or in use is never treated as damaged.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::database::Database;
use super::error::{StoreError, StoreFault};
use super::index::Index;
use super::lock::{Before, ClockStep, Lock};
use super::record::{HostRecord, JobRecord};
use super::retention::Retention;
use super::schema::{STEPS, Version};

/// File name in the state directory.
pub const FILE: &str = "state.db";

/// What was found when a store was opened.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OpenedStore {
    /// Hosts that are remembered.
    pub hosts: usize,
    pub jobs: Vec<(String, JobRecord)>,
    /// There was no file, or it was empty.
    pub new: bool,
    /// The format that the file had before it was migrated.
    pub migrated_from: Option<u32>,
    pub set_aside: Option<SetAside>,
    /// The last changes of the previous process may be missing, or their times may refer to another clock.
    pub unsettled: bool,
    /// By how much the wall clock was set since the previous process, in microseconds; 0 if it was not set, or if that
    /// is unknown. Stored times are moved by this much.
    pub clock_step_us: i64,
    /// Why the directory cannot be written now. The store keeps trying.
    pub trouble: Option<StoreError>,
    /// The file could not be read either: nothing from earlier runs is known.
    pub unread: bool,
    /// The directory's mode, if other users may read it.
    pub exposed: Option<u32>,
}

/// A damaged file that was moved out of the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub path: PathBuf,
    pub why: String,
}

/// The parts that a store starts with.
#[derive(Debug)]
pub(super) struct StoreParts {
    pub(super) index: Index,
    pub(super) lock: Option<Lock>,
    /// None while the directory cannot be written.
    pub(super) database: Option<Database>,
    /// For the reader of robots.txt copies.
    pub(super) copies: Option<Database>,
}

pub(super) fn open(directory: &Path, keep: &Retention, now_us: u64) -> Result<(StoreParts, OpenedStore), StoreError> {
    make_directory(directory)?;
    let mut lock = Lock::take(directory)?;
    let (database, index, opened) = open_locked(directory, &mut lock, keep, now_us)?;
    found(directory, lock, database, index).map(|found| (found, opened))
}

/// Opens the state like [`open`], but a directory that can be neither written nor read is no error.
pub(super) fn open_anyway(
    directory: &Path,
    keep: &Retention,
    now_us: u64,
) -> Result<(StoreParts, OpenedStore), StoreError> {
    let mut lock = match make_directory(directory).and_then(|()| Lock::take(directory)) {
        Err(trouble @ StoreError::Unusable { .. }) => return unwritable(directory, None, trouble, keep, now_us),
        taken => taken?,
    };
    match open_locked(directory, &mut lock, keep, now_us) {
        Err(trouble @ StoreError::Unusable { .. }) => unwritable(directory, Some(lock), trouble, keep, now_us),
        opened => {
            let (database, index, opened) = opened?;
            found(directory, lock, database, index).map(|found| (found, opened))
        }
    }
}

fn found(directory: &Path, lock: Lock, database: Database, index: Index) -> Result<StoreParts, StoreError> {
    let path = directory.join(FILE);
    let copies = Database::reader(&path).map_err(|error| unusable(&path, &error))?;
    Ok(StoreParts { index, lock: Some(lock), database: Some(database), copies: Some(copies) })
}

/// Uses the existing file, if it can be read. The lock, if there is one, keeps other processes from writing meanwhile.
fn unwritable(
    directory: &Path,
    lock: Option<Lock>,
    trouble: StoreError,
    keep: &Retention,
    now_us: u64,
) -> Result<(StoreParts, OpenedStore), StoreError> {
    let step = match &lock {
        Some(lock) => lock.clock_step(),
        None => Lock::look(directory)?,
    };
    let exposed = exposed(directory);
    match read_only(directory, keep, step, now_us) {
        Ok((copies, index, opened)) => {
            let found = StoreParts { index, lock, database: None, copies: Some(copies) };
            Ok((found, OpenedStore { trouble: Some(trouble), exposed, ..opened }))
        }
        Err(StoreError::Unusable { .. }) => {
            let found = StoreParts { index: Index::new(keep.hosts), lock, database: None, copies: None };
            let trouble = Some(trouble);
            Ok((found, OpenedStore { unsettled: true, unread: true, trouble, exposed, ..OpenedStore::default() }))
        }
        Err(error) => Err(error),
    }
}

/// Opens a file that could not be opened at start, without reading it, and moves its times to the clock of this
/// process.
pub(super) fn open_late(directory: &Path, lock: &mut Lock, now_us: u64) -> Result<Database, StoreError> {
    let path = directory.join(FILE);
    let open = |lock: &Lock| {
        let (mut database, _) = open_file(&path)?;
        database.try_writing().map_err(|error| unusable(&path, &error))?;
        move_times(&mut database, lock.clock_step()).map_err(|error| unusable(&path, &error))?;
        let complaint = database.check().map_err(|error| unusable(&path, &error))?;
        complaint.map_or(Ok(database), |what| Err(StoreError::unusable(&path, StoreFault::Damaged(what))))
    };
    let opened = match open(lock) {
        Err(StoreError::Unusable { cause: StoreFault::Damaged(why), .. }) => {
            let aside =
                move_aside(&path, now_us).map_err(|error| StoreError::unusable(&path, StoreFault::of_io(&error)))?;
            tracing::warn!(
                event = "state.damaged", path = %aside.display(), why,
                "the state file is damaged: it was renamed to this path, and a new empty one was created"
            );
            open(lock)
        }
        opened => opened,
    }?;
    adopt_clock(lock);
    Ok(opened)
}

/// Creates the directory if it does not exist. Only its owner may read it, because it shows which hosts are visited.
pub(super) fn make_directory(directory: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|error| StoreError::unusable(directory, StoreFault::of_io(&error)))
}

/// Returns the directory's mode, if other users may read it. The mode is left as it is: the owner may want it so.
fn exposed(directory: &Path) -> Option<u32> {
    let mode = fs::metadata(directory).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

fn open_locked(
    directory: &Path,
    lock: &mut Lock,
    keep: &Retention,
    now_us: u64,
) -> Result<(Database, Index, OpenedStore), StoreError> {
    let path = directory.join(FILE);
    let step = lock.clock_step();
    let mut set_aside = None;
    let mut loaded = load(&path, keep, step, now_us);
    if let Err(StoreError::Unusable { cause: StoreFault::Damaged(why), .. }) = loaded {
        let aside =
            move_aside(&path, now_us).map_err(|error| StoreError::unusable(directory, StoreFault::of_io(&error)))?;
        set_aside = Some(SetAside { path: aside, why });
        loaded = load(&path, keep, step, now_us);
    }
    let (database, index, mut opened) = loaded?;
    adopt_clock(lock);
    opened.unsettled = lock.before() == Before::Unsettled || set_aside.is_some();
    opened.set_aside = set_aside;
    opened.exposed = exposed(directory);
    Ok((database, index, opened))
}

/// Records that the times in the file now refer to this process's clock. If that cannot be written, the lock file is
/// empty.
fn adopt_clock(lock: &mut Lock) {
    if let Err(error) = lock.adopt_clock() {
        tracing::debug!(event = "state.unsettled", %error, "the lock file cannot be written");
    }
}

/// Reads the existing state without changing it. It does not say what was sent last.
fn read_only(
    directory: &Path,
    keep: &Retention,
    step: Option<ClockStep>,
    now_us: u64,
) -> Result<(Database, Index, OpenedStore), StoreError> {
    let path = directory.join(FILE);
    let unusable = |error: &rusqlite::Error| unusable(&path, error);
    fs::metadata(&path).map_err(|error| StoreError::unusable(&path, StoreFault::of_io(&error)))?;
    let database = Database::read_only(&path).map_err(|error| unusable(&error))?;
    match database.version().map_err(|error| unusable(&error))? {
        Version::Current => {}
        Version::Newer(found) => return Err(StoreError::Newer { path, found, known: STEPS.len() as u32 }),
        Version::New | Version::Older(_) | Version::Foreign => {
            let why = "it must be brought up to date, and cannot be written".to_owned();
            return Err(StoreError::unusable(&path, StoreFault::Other(why)));
        }
    }
    let (index, jobs) = read(&database, keep, step, now_us).map_err(|error| unusable(&error))?;
    let clock_step_us = step.map_or(0, |step| step.0);
    let opened = OpenedStore { hosts: index.len(), jobs, unsettled: true, clock_step_us, ..OpenedStore::default() };
    Ok((database, index, opened))
}

pub(super) fn unusable(path: &Path, error: &rusqlite::Error) -> StoreError {
    StoreError::unusable(path, StoreFault::of_sqlite(error))
}

fn load(
    path: &Path,
    keep: &Retention,
    step: Option<ClockStep>,
    now_us: u64,
) -> Result<(Database, Index, OpenedStore), StoreError> {
    let unusable = |error: &rusqlite::Error| unusable(path, error);
    let (mut database, version) = open_file(path)?;
    move_times(&mut database, step).map_err(|error| unusable(&error))?;
    let (complaint, read) = std::thread::scope(|scope| {
        // Runs in parallel with the reading, on another core if there is one.
        let check = scope.spawn(|| Database::reader(path)?.check());
        let read = read(&database, keep, None, now_us);
        (check.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), read)
    });
    if let Some(complaint) = complaint.map_err(|error| unusable(&error))? {
        return Err(StoreError::unusable(path, StoreFault::Damaged(complaint)));
    }
    let (index, jobs) = read.map_err(|error| unusable(&error))?;
    database.try_writing().map_err(|error| unusable(&error))?;
    let new = version == Version::New;
    let migrated_from = if let Version::Older(from) = version { Some(from) } else { None };
    let clock_step_us = step.map_or(0, |step| step.0);
    let opened = OpenedStore { hosts: index.len(), jobs, new, migrated_from, clock_step_us, ..OpenedStore::default() };
    Ok((database, index, opened))
}

/// Opens or creates the file, and migrates it.
fn open_file(path: &Path) -> Result<(Database, Version), StoreError> {
    let first = first_bytes(path).map_err(|error| StoreError::unusable(path, StoreFault::of_io(&error)))?;
    let damaged = |why: &str| StoreError::unusable(path, StoreFault::Damaged(why.to_owned()));
    if !first.is_empty() && !begins_well(&first) {
        return Err(damaged("it does not begin as a database"));
    }
    let (database, version) = Database::open(path).map_err(|error| unusable(path, &error))?;
    match version {
        Version::New | Version::Current | Version::Older(_) => Ok((database, version)),
        Version::Newer(found) => Err(StoreError::Newer { path: path.to_owned(), found, known: STEPS.len() as u32 }),
        Version::Foreign => Err(damaged("some other program's file")),
    }
}

/// If the clock was set since the times in the file were written, moves all of them, so that they stay valid.
fn move_times(database: &mut Database, step: Option<ClockStep>) -> rusqlite::Result<()> {
    step.map_or(Ok(()), |step| database.move_times(step.0))
}

fn read(
    database: &Database,
    keep: &Retention,
    step: Option<ClockStep>,
    now_us: u64,
) -> rusqlite::Result<(Index, Vec<(String, JobRecord)>)> {
    let mut index = Index::new(keep.hosts);
    let moved = |record: &HostRecord| step.map_or(*record, |step| record.moved(step));
    database.learned_hosts(|key, record| {
        let record = moved(&record);
        if keep.matters(&record, now_us) {
            index.append(key, &record, now_us);
        }
    })?;
    index.sort();
    database.steered_hosts(|key, record| {
        let record = moved(&record);
        if keep.matters(&record, now_us) {
            index.put(key, &record, now_us);
        }
        Ok(())
    })?;
    let mut jobs = database.jobs(keep.jobs)?;
    if let Some(step) = step {
        jobs.iter_mut().for_each(|(_, job)| job.move_times(step));
    }
    Ok((index, jobs))
}

/// Creates the file if there is none, readable only by its owner, because it shows which hosts are visited. SQLite
/// gives its other files the same permissions.
fn first_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
    let mut bytes = Vec::new();
    file.take(20).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Checks the magic string, and the write and read version (SQLite file format, 1.3). SQLite itself would treat a short
/// file as a new one, delete the log of a foreign one, and report one with an unknown write version as read-only.
fn begins_well(first: &[u8]) -> bool {
    first.len() == 20
        && first.starts_with(b"SQLite format 3\0")
        && first[18..].iter().all(|version| matches!(version, 1 | 2))
}

/// Renames the log as well: it belongs to the damaged file, and SQLite would apply it to the new one.
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
