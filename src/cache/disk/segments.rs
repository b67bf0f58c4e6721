//! The files with responses: appends to them, and counts what they hold.
//!
//! A segment takes responses until it is full; a large response has a file of its own. Bytes are written before they
//! are catalogued. After a failed write the segment is cut back to its last whole record.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::files::{self, SegmentName};
use super::record;
use crate::clock;

/// What is known about a file with responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentState {
    pub(super) is_large: bool,
    pub(super) bytes: u64,
    /// Responses in it that are still used.
    pub(super) live: u64,
    /// Rows of the catalogue that point into it are between these two.
    pub(super) first_id: u64,
    pub(super) last_id: u64,
}

#[derive(Debug)]
pub(super) struct Segments {
    directory: PathBuf,
    /// Size from which a new segment is begun.
    full: u64,
    all: BTreeMap<u32, SegmentState>,
    /// The segment that is written, with its length.
    open: Option<OpenSegment>,
    next: u32,
    bytes: u64,
}

#[derive(Debug)]
struct OpenSegment {
    number: u32,
    file: File,
    length: u64,
}

/// A large response while it is written.
#[derive(Debug)]
pub(super) struct LargeFile {
    pub(super) name: SegmentName,
    file: File,
}

impl Segments {
    /// Takes over the files that the catalogue knows. `last` is the segment that may be continued, with the end of its
    /// last record.
    pub(super) fn new(directory: &Path, limit: u64, all: BTreeMap<u32, SegmentState>, next: u32) -> Segments {
        let bytes = all.values().map(|segment| segment.bytes).sum();
        Segments { directory: directory.to_owned(), full: full_size(limit), all, open: None, next, bytes }
    }

    /// Continues the newest segment after the end of its last record.
    pub(super) fn resume(&mut self, number: u32, end: u64) -> io::Result<()> {
        let name = SegmentName { number, is_large: false };
        let file = files::open(&name.path(&self.directory))?;
        file.set_len(end)?;
        if let Some(segment) = self.all.get_mut(&number) {
            self.bytes = self.bytes - segment.bytes + end;
            segment.bytes = end;
            self.open = Some(OpenSegment { number, file, length: end });
        }
        Ok(())
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn full(&self) -> u64 {
        self.full
    }

    /// Responses in all files.
    pub(super) fn live(&self) -> u64 {
        self.all.values().map(|segment| segment.live).sum()
    }

    /// Appends a record and returns where it begins.
    pub(super) fn append(&mut self, pieces: &[&[u8]]) -> io::Result<(SegmentName, u32)> {
        let length: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
        if self.open.as_ref().is_some_and(|open| open.length + length > self.full) {
            self.open = None;
        }
        if self.open.is_none() {
            self.begin()?;
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotFound.into()) };
        let (number, at) = (open.number, open.length);
        if let Err(error) = write_at(&open.file, at, pieces) {
            // If even this fails, the segment is left as it is, and its end is never read.
            let cut = open.file.set_len(at);
            if cut.is_err() {
                self.open = None;
            }
            return Err(error);
        }
        open.length += length;
        self.grew(number, length);
        let offset = u32::try_from(at).map_err(|_| io::ErrorKind::FileTooLarge)?;
        Ok((SegmentName { number, is_large: false }, offset))
    }

    /// Begins a segment with a record that says what it is.
    fn begin(&mut self) -> io::Result<()> {
        let name = SegmentName { number: self.next, is_large: false };
        let file = files::create(&name.path(&self.directory))?;
        self.next += 1;
        let first = record::first_record(fastrand::u128(..), clock::micros() / 1_000_000);
        let state = SegmentState { is_large: false, bytes: 0, live: 0, first_id: u64::MAX, last_id: 0 };
        self.all.insert(name.number, state);
        let written = write_at(&file, 0, &[first.as_bytes()]);
        if written.is_err() {
            self.drop_segment(name)?;
        }
        written?;
        self.grew(name.number, first.len() as u64);
        self.open = Some(OpenSegment { number: name.number, file, length: first.len() as u64 });
        Ok(())
    }

    pub(super) fn begin_large(&mut self) -> io::Result<LargeFile> {
        let name = SegmentName { number: self.next, is_large: true };
        let file = files::create(&name.path(&self.directory))?;
        self.next += 1;
        let state = SegmentState { is_large: true, bytes: 0, live: 0, first_id: u64::MAX, last_id: 0 };
        self.all.insert(name.number, state);
        Ok(LargeFile { name, file })
    }

    pub(super) fn append_large(&mut self, large: &LargeFile, bytes: &[u8]) -> io::Result<()> {
        let at = self.all.get(&large.name.number).map_or(0, |segment| segment.bytes);
        write_at(&large.file, at, &[bytes])?;
        self.grew(large.name.number, bytes.len() as u64);
        Ok(())
    }

    /// Gives a large response the newest number, so that it is evicted last.
    pub(super) fn renew_large(&mut self, old: SegmentName) -> io::Result<SegmentName> {
        let new = SegmentName { number: self.next, ..old };
        std::fs::rename(old.path(&self.directory), new.path(&self.directory))?;
        self.next += 1;
        if let Some(state) = self.all.remove(&old.number) {
            self.all.insert(new.number, SegmentState { live: 0, first_id: u64::MAX, last_id: 0, ..state });
        }
        Ok(new)
    }

    /// Counts a row that points into a file.
    pub(super) fn added(&mut self, number: u32, id: u64) {
        if let Some(segment) = self.all.get_mut(&number) {
            segment.live += 1;
            segment.first_id = segment.first_id.min(id);
            segment.last_id = segment.last_id.max(id);
        }
    }

    /// Counts a row that was deleted. Returns the file if nothing in it is used any more.
    pub(super) fn removed(&mut self, number: u32) -> Option<SegmentName> {
        let segment = self.all.get_mut(&number)?;
        segment.live = segment.live.saturating_sub(1);
        let is_open = self.open.as_ref().is_some_and(|open| open.number == number);
        (segment.live == 0 && !is_open).then_some(SegmentName { number, is_large: segment.is_large })
    }

    /// Returns the file that is evicted next: the oldest, but not one that is being written.
    pub(super) fn oldest(&self, is_busy: impl Fn(u32) -> bool) -> Option<(SegmentName, SegmentState)> {
        let found = self.all.iter().find(|(number, _)| !is_busy(**number));
        found.map(|(number, state)| (SegmentName { number: *number, is_large: state.is_large }, *state))
    }

    /// Deletes a file.
    pub(super) fn drop_segment(&mut self, name: SegmentName) -> io::Result<()> {
        files::delete(&name.path(&self.directory))?;
        if let Some(state) = self.all.remove(&name.number) {
            self.bytes -= state.bytes;
        }
        if self.open.as_ref().is_some_and(|open| open.number == name.number) {
            self.open = None;
        }
        Ok(())
    }

    pub(super) fn names(&self) -> Vec<SegmentName> {
        self.all.iter().map(|(number, state)| SegmentName { number: *number, is_large: state.is_large }).collect()
    }

    fn grew(&mut self, number: u32, by: u64) {
        self.bytes += by;
        if let Some(segment) = self.all.get_mut(&number) {
            segment.bytes += by;
        }
    }
}

impl LargeFile {
    /// Writes over the beginning of the file.
    pub(super) fn rewrite(&self, header: &[u8]) -> io::Result<()> {
        self.file.write_all_at(header, 0)
    }
}

/// Eight segments make up the limit; more than 64 MiB each would evict too much at once.
fn full_size(limit: u64) -> u64 {
    (limit / 8).min(64 * 1024 * 1024)
}

fn write_at(mut file: &File, at: u64, pieces: &[&[u8]]) -> io::Result<()> {
    use std::io::Seek as _;
    file.seek(io::SeekFrom::Start(at))?;
    let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|piece| IoSlice::new(piece)).collect();
    let mut rest = &mut slices[..];
    IoSlice::advance_slices(&mut rest, 0);
    while !rest.is_empty() {
        match file.write_vectored(rest) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut rest, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
