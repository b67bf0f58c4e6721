//! One process per state directory.
//!
//! The operating system keeps the lock, so it ends with its holder, however that ends; the file's presence means
//! nothing. Its text is the holder's process id, for whoever is refused.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;

use super::error::{Cause, StoreError};

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
}

impl Lock {
    pub(super) fn take(directory: &Path) -> Result<Lock, StoreError> {
        let path = directory.join("lock");
        let unusable = |error: &std::io::Error| StoreError::unusable(&path, Cause::of_io(error));
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| unusable(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Held { directory: directory.to_owned(), pid: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(&error)),
        }
        sign(&mut file).map_err(|error| unusable(&error))?;
        Ok(Lock { file })
    }
}

impl Drop for Lock {
    /// Closing would do, were it not for programs that are just being started: until they run, they share the file.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn sign(file: &mut File) -> std::io::Result<()> {
    let text = format!("{}\n", std::process::id());
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_holds_it() {
        let directory = tempfile::tempdir().unwrap();
        let lock = Lock::take(directory.path()).unwrap();
        match Lock::take(directory.path()) {
            Err(StoreError::Held { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(lock);
        Lock::take(directory.path()).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_locks_nobody_out() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lock"), "4294967295\nleft over from longer ago\n").unwrap();
        let _lock = Lock::take(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join("lock")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }
}
