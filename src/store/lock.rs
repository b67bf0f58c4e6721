//! Ensures one process per state directory, and records how the last process ended and which clock it used.
//!
//! The operating system keeps the lock, so the lock ends with its holder, however that ends; the file's presence means
//! nothing. Its text is the holder's process id, which a refused process reports. A holder that has written everything
//! leaves "settled" instead, so that the next holder can distinguish a clean end from a kill, a full disk or a loss of
//! power. After either word follow the boot id of the machine and its boot time on the holder's clock. If the next
//! holder disagrees about that time, the wall clock was set in between, and the difference says by how much.

use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use super::error::{StoreError, StoreFault};
use crate::clock;

/// Held until dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    before: Before,
    /// The clock to which the times in the state file refer.
    told_by: Option<Boot>,
}

/// The boot id, and the boot time.
type Boot = (String, Duration);

/// The holder before this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Before {
    Nobody,
    /// Everything the last holder did is on disk, and its times are still valid.
    Settled,
    /// The last holder was killed or could not write, or the clock was set since.
    Unsettled,
}

impl Lock {
    pub(crate) fn take(directory: &Path) -> Result<Lock, StoreError> {
        Lock::take_file(directory, FILE)
    }

    /// Takes the lock of another folder than the state directory, which has a file of this name.
    pub(crate) fn take_file(directory: &Path, name: &str) -> Result<Lock, StoreError> {
        let path = directory.join(name);
        let unusable = |error: &std::io::Error| StoreError::unusable(&path, StoreFault::of_io(error));
        let is_new = !path.exists();
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(MODE)
            .open(&path)
            .map_err(|error| unusable(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(StoreError::Held { directory: directory.to_owned(), pid: holder(&mut file) });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(&error)),
        }
        // Every user that can open the file can lock it. Older versions made it readable by all. Only its owner can
        // change that, so a failure is ignored.
        let _ = file.set_permissions(Permissions::from_mode(MODE));
        let text = read(&mut file);
        let boot = clock::boot();
        let before = if is_new { Before::Nobody } else { Before::tell(&text, boot.as_ref()) };
        // Until the times in the file are moved to this process's clock, they refer to the other one.
        let mut lock = Lock { file, before, told_by: told_by(&text).or(boot) };
        lock.write_pid().map_err(|error| unusable(&error))?;
        Ok(lock)
    }

    /// For a lock file that cannot be written: checks that no process holds it, and returns by how much the clock was
    /// set since its last holder.
    pub(crate) fn look(directory: &Path) -> Result<Option<ClockStep>, StoreError> {
        let Ok(mut file) = File::open(directory.join(FILE)) else { return Ok(None) };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::Held { directory: directory.to_owned(), pid: holder(&mut file) })
            }
            _ => Ok(ClockStep::between(told_by(&read(&mut file)).as_ref(), clock::boot().as_ref())),
        }
    }

    pub(crate) fn before(&self) -> Before {
        self.before
    }

    /// Returns by how much the clock was set since the times in the state file were written.
    pub(crate) fn clock_step(&self) -> Option<ClockStep> {
        ClockStep::between(self.told_by.as_ref(), clock::boot().as_ref())
    }

    /// Records that the times in the state file now refer to the clock of this process.
    pub(crate) fn adopt_clock(&mut self) -> std::io::Result<()> {
        self.told_by = clock::boot();
        self.write_pid()
    }

    /// Releases the lock and marks the state as settled: there is nothing left to write.
    pub(crate) fn settle(mut self) -> std::io::Result<()> {
        self.told_by = clock::boot();
        let text = self.text(SETTLED);
        write(&mut self.file, &text)
    }

    /// A full disk may refuse even this write. The file is then emptied, so that it no longer says "settled".
    fn write_pid(&mut self) -> std::io::Result<()> {
        let text = self.text(&std::process::id().to_string());
        write(&mut self.file, &text).or_else(|_| self.file.set_len(0))
    }

    fn text(&self, word: &str) -> String {
        let boot = self.told_by.as_ref().map(|(id, at)| format!(" {id} {}", at.as_millis()));
        format!("{word}{}\n", boot.unwrap_or_default())
    }
}

impl Drop for Lock {
    /// Unlocks explicitly. Closing is not enough while a child process is being started: until it runs, it shares the
    /// file.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

impl Before {
    fn tell(text: &str, boot: Option<&Boot>) -> Before {
        let settled = text.split_whitespace().next() == Some(SETTLED);
        let same_clock = ClockStep::between(told_by(text).as_ref(), boot).is_none();
        if settled && same_clock { Before::Settled } else { Before::Unsettled }
    }
}

/// By how much the wall clock was set between two processes, in microseconds; positive if forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockStep(pub(crate) i64);

impl ClockStep {
    /// Returns None if the clock was not set, or if that is unknown: the machine was restarted in between, or the
    /// system does not report its boot.
    fn between(then: Option<&Boot>, now: Option<&Boot>) -> Option<ClockStep> {
        let ((then_id, then), (now_id, now)) = then.zip(now)?;
        let micros = |at: &Duration| i64::try_from(at.as_micros()).ok();
        let step = micros(now)? - micros(then)?;
        (then_id == now_id && then.abs_diff(*now) > CLOCK_DRIFT).then_some(ClockStep(step))
    }

    /// Converts a time of the previous process to the clock of this one. 0 means "never" on any clock.
    pub(crate) fn moved(self, at_us: u64) -> u64 {
        if at_us == 0 { 0 } else { at_us.saturating_add_signed(self.0).max(1) }
    }
}

fn told_by(text: &str) -> Option<Boot> {
    let mut words = text.split_whitespace().skip(1);
    let (id, ms) = (words.next()?, words.next()?.parse().ok()?);
    Some((id.to_owned(), Duration::from_millis(ms)))
}

/// Returns an empty text if the file cannot be read, which means that the last holder did not end well.
fn read(file: &mut File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).map_or_else(|_| String::new(), |_| text)
}

fn write(file: &mut File, text: &str) -> std::io::Result<()> {
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// File name in the state directory.
const FILE: &str = "lock";
const MODE: u32 = 0o600;
const SETTLED: &str = "settled";
/// Smaller differences are the usual corrections of a clock.
const CLOCK_DRIFT: Duration = Duration::from_secs(1);

fn holder(file: &mut File) -> Option<u32> {
    read(file).split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_which_process_holds_it() {
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
    fn a_process_that_could_not_write_its_pid_has_not_ended_cleanly() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(FILE), "").unwrap();
        assert_eq!(Lock::take(directory.path()).unwrap().before(), Before::Unsettled);
    }

    #[test]
    fn times_mean_nothing_once_the_clock_was_set() {
        let boot = |id: &str, ms| Some((id.to_owned(), Duration::from_millis(ms)));
        let tell = |boot: Option<Boot>| Before::tell("settled a-b 1790000000000\n", boot.as_ref());
        let day = 24 * 3600 * 1000;
        assert_eq!(tell(boot("a-b", 1_790_000_000_900)), Before::Settled);
        assert_eq!(tell(boot("a-b", 1_790_000_000_000 + day)), Before::Unsettled);
        assert_eq!(tell(boot("a-b", 1_790_000_000_000 - day)), Before::Unsettled);
        assert_eq!(tell(boot("c-d", 1_790_000_500_000)), Before::Settled, "another start of the machine");
        assert_eq!(tell(None), Before::Settled);
        assert_eq!(Before::tell("settled\n", boot("a-b", 1).as_ref()), Before::Settled);
        assert_eq!(Before::tell("4711\n", boot("a-b", 1).as_ref()), Before::Unsettled);
    }

    #[test]
    fn it_is_known_by_how_much_the_clock_was_set() {
        let boot = |id: &str, ms: u64| Some((id.to_owned(), Duration::from_millis(ms)));
        let step = |text: &str, now: Option<Boot>| ClockStep::between(told_by(text).as_ref(), now.as_ref());
        let (text, day) = ("4711 a-b 1790000000000\n", 24 * 3600 * 1000);
        assert_eq!(step(text, boot("a-b", 1_790_000_000_000 + day)), Some(ClockStep(86_400_000_000)));
        assert_eq!(step(text, boot("a-b", 1_790_000_000_000 - day)), Some(ClockStep(-86_400_000_000)));
        assert_eq!(step(text, boot("a-b", 1_790_000_000_999)), None);
        assert_eq!(step(text, boot("c-d", 1)), None, "another start of the machine");
        assert_eq!((step("4711\n", boot("a-b", 1)), step(text, None)), (None, None));
        let back = ClockStep(-1_000);
        assert_eq!((back.moved(5_000), back.moved(10), back.moved(0)), (4_000, 1, 0));
    }

    /// X43: a user that can open the file could lock it and keep curtsy from starting.
    #[test]
    fn other_users_cannot_open_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        let mode = || path.metadata().unwrap().permissions().mode() & 0o777;
        drop(Lock::take(directory.path()).unwrap());
        assert_eq!(mode(), MODE);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        drop(Lock::take(directory.path()).unwrap());
        assert_eq!(mode(), MODE, "an older one's is mended");
    }

    #[test]
    fn a_dead_process_leaves_no_lock() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("lock"), "4294967295\nleft over from longer ago\n").unwrap();
        let mut lock = Lock::take(directory.path()).unwrap();
        lock.adopt_clock().unwrap();
        let text = std::fs::read_to_string(directory.path().join("lock")).unwrap();
        assert!(text.starts_with(&format!("{} ", std::process::id())) && text.lines().count() == 1, "{text}");
    }
}
