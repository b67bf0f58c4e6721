//! The errors of a store, in sentences that say what to do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{ErrorCode, ffi};

/// Why a store cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// Another process uses the directory.
    Held { directory: PathBuf, pid: Option<u32> },
    /// The file was written by a newer curtsy.
    Newer { path: PathBuf, found: u32, known: u32 },
    /// The directory or the file cannot be used.
    Unusable { path: PathBuf, cause: StoreFault },
}

/// Why the disk failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreFault {
    Full,
    ReadOnly,
    /// The content of the file is not what was written.
    Damaged(String),
    Other(String),
}

impl StoreError {
    pub(super) fn unusable(path: &Path, cause: StoreFault) -> Self {
        StoreError::Unusable { path: path.to_owned(), cause }
    }
}

impl StoreFault {
    pub(crate) fn of_io(error: &io::Error) -> Self {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match error.kind() {
            StorageFull | QuotaExceeded => StoreFault::Full,
            PermissionDenied | ReadOnlyFilesystem => StoreFault::ReadOnly,
            _ => StoreFault::Other(error.to_string()),
        }
    }

    pub(crate) fn of_sqlite(error: &rusqlite::Error) -> Self {
        let rusqlite::Error::SqliteFailure(failure, _) = error else {
            // Everything else is a value of a type or size that curtsy never writes.
            return StoreFault::Damaged(error.to_string());
        };
        match (failure.code, failure.extended_code) {
            (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => StoreFault::Full,
            (ErrorCode::ReadOnly | ErrorCode::PermissionDenied, _) => StoreFault::ReadOnly,
            (ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::ConstraintViolation, _)
            | (_, ffi::SQLITE_IOERR_SHORT_READ | ffi::SQLITE_IOERR_CORRUPTFS | ffi::SQLITE_ERROR) => {
                // SQLITE_ERROR means a statement that does not fit the tables. Ours fit our tables, so the tables are
                // not ours.
                StoreFault::Damaged(error.to_string())
            }
            _ => StoreFault::Other(error.to_string()),
        }
    }
}

impl From<&StoreError> for StoreFault {
    fn from(error: &StoreError) -> Self {
        match error {
            StoreError::Unusable { cause, .. } => cause.clone(),
            StoreError::Held { .. } | StoreError::Newer { .. } => StoreFault::Other(error.to_string()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::Held { directory, pid } => {
                write!(f, "the state directory {} is in use by ", directory.display())?;
                match pid {
                    Some(pid) => write!(f, "process {pid}")?,
                    None => write!(f, "another process")?,
                }
                write!(f, ". Stop it, or give this curtsy a `state_dir` of its own")
            }
            StoreError::Newer { path, found, known } => write!(
                f,
                "{} was written by a newer curtsy (format {found}; this one knows {known}). Run that curtsy, or move the \
                 file away to begin with an empty one",
                path.display()
            ),
            StoreError::Unusable { path, cause } => {
                let path = path.display();
                match cause {
                    StoreFault::Full => write!(f, "cannot keep state in {path}: the disk is full. Free some space"),
                    StoreFault::ReadOnly => {
                        write!(f, "cannot keep state in {path}: it cannot be written. Give this user the right to")
                    }
                    StoreFault::Damaged(what) => write!(f, "{path} is damaged ({what}). Move it away"),
                    StoreFault::Other(what) => write!(f, "cannot keep state in {path}: {what}. Repair it"),
                }?;
                write!(f, ", or choose another `state_dir` (\"memory\" keeps nothing)")
            }
        }
    }
}

impl std::error::Error for StoreError {}

impl fmt::Display for StoreFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreFault::Full => write!(f, "the disk is full"),
            StoreFault::ReadOnly => write!(f, "it cannot be written"),
            StoreFault::Damaged(what) => write!(f, "the file is damaged: {what}"),
            StoreFault::Other(what) => write!(f, "{what}"),
        }
    }
}
