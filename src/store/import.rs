//! Taking in an export, in two goes: first all of it is read and understood, then it is told record by record to whoever
//! knows what the records mean.
//!
//! So a line that is not understood changes nothing, however long the export is, and no disk and no lock waits for a
//! slow sender: what was read lies in a file without a name, in the state directory, until it is told. If the disk
//! gives up in the middle, the import says how far it came.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, BufWriter, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::lines::{Entry, Lines, LinesError};

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    New,
    /// Something else was known before.
    Replaced,
    /// Not taken, for this reason.
    Skipped(Skipped),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skipped {
    /// It can change nothing any more.
    TooOld,
    /// What is known here was found out later.
    NewerHere,
    /// Its own text makes no sense here.
    Unusable,
    NoRoom,
}

/// What became of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Imported {
    pub hosts: Tally,
    pub robots: Tally,
    pub jobs: Tally,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub new: u64,
    pub replaced: u64,
    pub too_old: u64,
    pub newer_here: u64,
    pub unusable: u64,
    pub no_room: u64,
}

/// For logs: only what there was.
impl fmt::Display for Tally {
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

impl Tally {
    fn count(&mut self, fate: Fate) {
        let number = match fate {
            Fate::New => &mut self.new,
            Fate::Replaced => &mut self.replaced,
            Fate::Skipped(Skipped::TooOld) => &mut self.too_old,
            Fate::Skipped(Skipped::NewerHere) => &mut self.newer_here,
            Fate::Skipped(Skipped::Unusable) => &mut self.unusable,
            Fate::Skipped(Skipped::NoRoom) => &mut self.no_room,
        };
        *number += 1;
    }
}

/// An export of which every line was understood.
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

    /// Tells every record to `take`. `pause` is called now and then, with the number of lines so far.
    pub(super) fn tell(
        self,
        mut take: impl FnMut(Entry) -> Fate,
        mut pause: impl FnMut(u64) -> Result<(), LinesError>,
    ) -> Result<Imported, LinesError> {
        let mut imported = Imported::default();
        let mut lines = Lines::new(BufReader::new(self.0));
        let mut since = (0, 0);
        while let Some(entry) = lines.next()? {
            since = (since.0 + 1, since.1 + lines.text().len());
            if let Some(entry) = entry {
                let tally = match entry {
                    Entry::Host(..) => &mut imported.hosts,
                    Entry::Robots(..) => &mut imported.robots,
                    Entry::Job(..) => &mut imported.jobs,
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

// Less than may wait for the disk at once.
const MOST_LINES: usize = 4_000;
const MOST_BYTES: usize = 4 << 20;

/// It goes away with this process, however that ends.
fn nameless(directory: &Path) -> io::Result<File> {
    let path = directory.join(format!("import-{}-{:08x}", std::process::id(), fastrand::u32(..)));
    let file = OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}
