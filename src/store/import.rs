//! Imports an export in two steps: first the whole export is read and checked, then its records are passed one by one
//! to the code that knows what they mean.
//!
//! So a line that is not understood changes nothing, however long the export is, and no disk and no lock waits for a
//! slow sender: until the second step, the data lies in a file without a name in the state directory. If the disk fails
//! in the middle of the second step, the import reports how far it got.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::lines::{Lines, LinesError, StoredLine};

/// What happened to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportFate {
    New,
    /// A different record was known before.
    Replaced,
    /// Not imported, for this reason.
    Skipped(Skipped),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// The record can no longer change a decision.
    TooOld,
    /// What is known here is more recent.
    NewerHere,
    /// The record's own text is not valid here.
    Unusable,
    NoRoom,
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    pub hosts: ImportTally,
    pub robots: ImportTally,
    pub jobs: ImportTally,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportTally {
    pub new: u64,
    pub replaced: u64,
    pub too_old: u64,
    pub newer_here: u64,
    pub unusable: u64,
    pub no_room: u64,
}

/// For logs: shows only the skipped kinds that occurred.
impl fmt::Display for ImportTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} new, {} replaced", self.new, self.replaced)?;
        let skipped = [
            (self.too_old, "too old"),
            (self.newer_here, "newer here"),
            (self.unusable, "unusable"),
            (self.no_room, "without room"),
        ];
        skipped.iter().filter(|(count, _)| *count > 0).try_for_each(|(count, why)| write!(f, ", {count} {why}"))
    }
}

impl ImportTally {
    fn count(&mut self, fate: ImportFate) {
        let number = match fate {
            ImportFate::New => &mut self.new,
            ImportFate::Replaced => &mut self.replaced,
            ImportFate::Skipped(Skipped::TooOld) => &mut self.too_old,
            ImportFate::Skipped(Skipped::NewerHere) => &mut self.newer_here,
            ImportFate::Skipped(Skipped::Unusable) => &mut self.unusable,
            ImportFate::Skipped(Skipped::NoRoom) => &mut self.no_room,
        };
        *number += 1;
    }
}

/// An export in which every line was understood.
#[derive(Debug)]
pub(super) struct Spool(File);

impl Spool {
    pub(super) fn fill(directory: &Path, from: impl BufRead) -> Result<Spool, LinesError> {
        let mut file = BufWriter::new(nameless(directory).map_err(LinesError::Stream)?);
        let mut lines = Lines::new(from);
        while lines.next()?.is_some() {
            file.write_all(lines.text()).map_err(LinesError::Stream)?;
        }
        let mut file = file.into_inner().map_err(|error| LinesError::Stream(error.into_error()))?;
        file.rewind().map_err(LinesError::Stream)?;
        Ok(Spool(file))
    }

    /// Passes every record to `take`. Calls `pause` now and then, with the number of lines so far.
    pub(super) fn tell(
        self,
        mut take: impl FnMut(StoredLine) -> ImportFate,
        mut pause: impl FnMut(u64) -> Result<(), LinesError>,
    ) -> Result<Imported, LinesError> {
        let mut imported = Imported::default();
        let mut lines = Lines::new(BufReader::new(self.0));
        let mut since = (0, 0);
        while let Some(entry) = lines.next()? {
            since = (since.0 + 1, since.1 + lines.text().len());
            if let Some(entry) = entry {
                let tally = match entry {
                    StoredLine::Host(..) => &mut imported.hosts,
                    StoredLine::Robots(..) => &mut imported.robots,
                    StoredLine::Job(..) => &mut imported.jobs,
                };
                tally.count(take(entry));
            }
            if since.0 >= MOST_LINES || since.1 >= MOST_BYTES {
                since = (0, 0);
                pause(lines.number())?;
            }
        }
        pause(lines.number())?;
        Ok(imported)
    }
}

// Less than the outbox can hold at once.
const MOST_LINES: usize = 4_000;
const MOST_BYTES: usize = 4 << 20;

/// Creates a file that disappears with this process, however the process ends.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("import-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
