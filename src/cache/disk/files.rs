//! The files of a cache folder: their names, how they are created, and which of them belong to curtsy.
//!
//! ```text
//! CACHEDIR.TAG        tells backups to leave the folder out; curtsy deletes files only in a folder that has it
//! cache.lock          one curtsy for each folder
//! cache.db            the catalogue
//! 000017.warc         a segment of many responses
//! large/000018.warc   one large response
//! ```
//!
//! Segments and large responses share one sequence of numbers, which is the order in which they are evicted. A number
//! is never used twice. Only the owner can read the files.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// File name of the catalogue.
pub(super) const CATALOGUE: &str = "cache.db";

/// File name of the lock. Not that of the state directory, which may be the same folder.
pub(super) const LOCK: &str = "cache.lock";

/// A file with responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct SegmentName {
    pub(super) number: u32,
    pub(super) is_large: bool,
}

impl SegmentName {
    pub(super) fn path(self, directory: &Path) -> PathBuf {
        let name = format!("{:06}.warc", self.number);
        if self.is_large { directory.join(LARGE).join(name) } else { directory.join(name) }
    }

    fn of(path: &Path, is_large: bool) -> Option<SegmentName> {
        let digits = path.file_name()?.to_str()?.strip_suffix(".warc")?;
        let ours = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
        ours.then(|| digits.parse().ok()).flatten().map(|number| SegmentName { number, is_large })
    }
}

/// Creates the folder, if it does not exist, and marks it as a cache. Refuses a folder with segments that has no mark:
/// they are the user's own, and curtsy would evict them.
pub(super) fn prepare(directory: &Path) -> io::Result<()> {
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    make(directory)?;
    let tag = directory.join(TAG);
    if !tag.try_exists()? {
        if !segments(directory)?.is_empty() {
            let why = "it has WARC files that are not from a cache; choose another folder";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        create(&tag)?.write_all(TAG_TEXT.as_bytes())?;
    }
    make(&directory.join(LARGE))
}

/// Whether a folder has stored responses.
pub fn is_folder(directory: &Path) -> bool {
    directory.join(CATALOGUE).exists()
}

/// Lists the files with responses, with their lengths, in no order.
pub(super) fn segments(directory: &Path) -> io::Result<Vec<(SegmentName, u64)>> {
    let mut found = Vec::new();
    for (folder, is_large) in [(directory.to_owned(), false), (directory.join(LARGE), true)] {
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if let Some(name) = SegmentName::of(&entry.path(), is_large) {
                found.push((name, entry.metadata()?.len()));
            }
        }
    }
    Ok(found)
}

/// Creates a file that only its owner can read.
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

pub(super) fn open_to_read(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Deletes a file; one that does not exist is deleted already.
pub(super) fn delete(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

const LARGE: &str = "large";
const TAG: &str = "CACHEDIR.TAG";
/// The first line is fixed by the Cache Directory Tagging specification.
const TAG_TEXT: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
     # This folder holds responses that curtsy stored. Deleting it while curtsy does not run is safe.\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_numbered_warc_files_are_segments() {
        let directory = tempfile::tempdir().unwrap();
        prepare(directory.path()).unwrap();
        for name in ["000001.warc", "large/1234567.warc", "1.warc", "00001x.warc", "000002.warc.gz", "notes.txt"] {
            fs::write(directory.path().join(name), "x").unwrap();
        }
        let mut found = segments(directory.path()).unwrap();
        found.sort_unstable();
        let name = |number, is_large| SegmentName { number, is_large };
        assert_eq!(found, [(name(1, false), 1), (name(1_234_567, true), 1)]);
        assert_eq!(name(1, false).path(directory.path()), directory.path().join("000001.warc"));
    }

    #[test]
    fn archives_of_the_user_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("000001.warc"), "mine").unwrap();
        let error = prepare(directory.path()).unwrap_err();
        assert!(error.to_string().contains("choose another folder"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was created");
    }
}
