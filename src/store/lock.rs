//! One process per state directory, and how the last one ended.
//!
//! The operating system keeps the lock, so it ends with its holder, however that ends; the file's presence means
//! nothing. Its text is the holder's process id, for whoever is refused. A holder that has written everything it knew
//! leaves another text, so that the next one can tell a clean end from a kill, a full disk or a loss of power.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::error::{Cause, StoreError};
use crate::clock;

/// Held until dropped.
#[derive(Debug)]
pub(super) struct Lock {
    file: File,
    before: Before,
}

/// The holder before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    Nobody,
    /// Everything it did is on disk, in times that still mean what they meant.
    Settled,
    /// It was killed or could not write, or the clock was set since.
    Unsettled,
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
        let before = Before::read(&mut file);
        write(&mut file, &format!("{}\n", std::process::id())).map_err(|error| unusable(&error))?;
        Ok(Lock { file, before })
    }

    /// Only looks whether somebody holds it, where it cannot be written.
    pub(super) fn look(directory: &Path) -> Result<(), StoreError> {
        let Ok(mut file) = File::open(directory.join("lock")) else { return Ok(()) };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::Held { directory: directory.to_owned(), pid: holder(&mut file) })
            }
            _ => Ok(()),
        }
    }

    pub(super) fn before(&self) -> Before {
        self.before
    }

    /// Lets go, with nothing left to write.
    pub(super) fn settle(mut self) -> std::io::Result<()> {
        let boot = clock::boot().map(|(id, at)| format!(" {id} {}", at.as_millis()));
        write(&mut self.file, &format!("{SETTLED}{}\n", boot.unwrap_or_default()))
    }
}

impl Drop for Lock {
    /// Closing would do, were it not for programs that are just being started: until they run, they share the file.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Before {
    fn read(file: &mut File) -> Before {
        let mut text = String::new();
        match file.read_to_string(&mut text) {
            Ok(0) => Before::Nobody,
            Ok(_) => Before::tell(&text, clock::boot()),
            Err(_) => Before::Unsettled,
        }
    }

    fn tell(text: &str, boot: Option<(String, Duration)>) -> Before {
        let mut words = text.split_whitespace();
        if words.next() != Some(SETTLED) {
            return Before::Unsettled;
        }
        let then = words.next().zip(words.next().and_then(|ms| ms.parse().ok()).map(Duration::from_millis));
        match (then, boot) {
            (Some((id, before)), Some((now_id, now))) if id == now_id && before.abs_diff(now) > CLOCK_DRIFT => {
                Before::Unsettled
            }
            _ => Before::Settled,
        }
    }
}

fn write(file: &mut File, text: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

const SETTLED: &str = "settled";
/// Less is what a clock is corrected by all the time.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

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
    fn a_clean_end_is_told_from_a_kill() {
        let directory = tempfile::tempdir().unwrap();
        let take = || Lock::take(directory.path()).unwrap();
        let lock = take();
        assert_eq!(lock.before(), Before::Nobody);
        drop(lock);
        let lock = take();
        assert_eq!(lock.before(), Before::Unsettled);
        lock.settle().unwrap();
        assert_eq!(take().before(), Before::Settled);
    }

    #[test]
    fn times_mean_nothing_once_the_clock_was_set() {
        let boot = |id: &str, ms| Some((id.to_owned(), Duration::from_millis(ms)));
        let tell = |boot| Before::tell("settled a-b 1790000000000\n", boot);
        let day = 24 * 3600 * 1000;
        assert_eq!(tell(boot("a-b", 1_790_000_000_900)), Before::Settled);
        assert_eq!(tell(boot("a-b", 1_790_000_000_000 + day)), Before::Unsettled);
        assert_eq!(tell(boot("a-b", 1_790_000_000_000 - day)), Before::Unsettled);
        assert_eq!(tell(boot("c-d", 1_790_000_500_000)), Before::Settled, "another start of the machine");
        assert_eq!(tell(None), Before::Settled);
        assert_eq!(Before::tell("settled\n", boot("a-b", 1)), Before::Settled);
        assert_eq!(Before::tell("4711\n", boot("a-b", 1)), Before::Unsettled);
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
