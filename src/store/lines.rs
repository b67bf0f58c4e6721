//! The state as JSON lines: to read, to move to another machine, to edit with `jq` or `grep`.
//!
//! The first line states the version; each other line is one record. Reading is strict: an error names the number of
//! the line that is not understood. Neither export nor import ever holds more than a few records in memory.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use super::database::Database;
use super::error::StoreFault;
use super::outbox::Unsaved;
use super::record::{HostRecord, JobRecord, RobotsRecord};
use crate::politeness::HostKey;

/// Changes when older readers would misunderstand a line.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum ExportLine {
    CurtsyState { version: u32 },
    Host { key: String, record: HostRecord },
    Robots { origin: String, record: RobotsRecord },
    Job { client: String, record: JobRecord },
}

/// The number of exported records.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LineCount {
    pub hosts: u64,
    pub robots: u64,
    pub jobs: u64,
}

/// A record of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoredLine {
    Host(HostKey, HostRecord),
    Robots(String, RobotsRecord),
    Job(String, JobRecord),
}

/// Why an export or import failed.
#[derive(Debug)]
pub enum LinesError {
    /// The store is in memory, or was closed.
    NothingKept,
    /// The disk failed after this many lines.
    Unsaved {
        after: u64,
        unsaved: Unsaved,
    },
    Line {
        number: u64,
        what: String,
    },
    Stream(io::Error),
    Disk(StoreFault),
}

/// Writes the export in slices, so that a slow reader does not block tidying on disk.
pub(super) fn export(database: &Database, mut to: impl Write) -> Result<LineCount, LinesError> {
    let mut count = LineCount::default();
    write(&mut to, &ExportLine::CurtsyState { version: VERSION })?;
    count.hosts = export_slices(
        |after| database.hosts_after(after, HOSTS),
        |key, record| write(&mut to, &ExportLine::Host { key, record }),
    )?;
    count.robots = export_slices(
        |after| database.robots_after(after, COPIES),
        |origin, record| write(&mut to, &ExportLine::Robots { origin, record }),
    )?;
    for (client, record) in database.jobs(usize::MAX >> 1)? {
        count.jobs += 1;
        write(&mut to, &ExportLine::Job { client, record })?;
    }
    to.flush().map_err(LinesError::Stream)?;
    Ok(count)
}

/// Reads records slice by slice, each after the last key of the slice before. Returns their number.
fn export_slices<T>(
    slice: impl Fn(&str) -> rusqlite::Result<Vec<(String, T)>>,
    mut each: impl FnMut(String, T) -> Result<(), LinesError>,
) -> Result<u64, LinesError> {
    let (mut count, mut last) = (0, String::new());
    loop {
        let records = slice(&last)?;
        let Some((key, _)) = records.last() else { return Ok(count) };
        last.clone_from(key);
        for (key, record) in records {
            count += 1;
            each(key, record)?;
        }
    }
}

// Sizes of a slice: hosts take some 100 B each, copies half a megabyte at most.
const HOSTS: usize = 1_000;
const COPIES: usize = 16;

fn write(to: &mut impl Write, line: &ExportLine) -> Result<(), LinesError> {
    let mut text = serde_json::to_vec(line).map_err(|error| LinesError::Stream(error.into()))?;
    text.push(b'\n');
    to.write_all(&text).map_err(LinesError::Stream)
}

/// Reads an export, line by line.
#[derive(Debug)]
pub(super) struct Lines<R> {
    from: R,
    text: Vec<u8>,
    /// The number of the line that was read last, from 1.
    number: u64,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(from: R) -> Self {
        Lines { from, text: Vec::new(), number: 0 }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the line as it was read.
    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns None at the end. The first line has no record.
    pub(super) fn next(&mut self) -> Result<Option<Option<StoredLine>>, LinesError> {
        self.number += 1;
        let first = self.number == 1;
        let line = match read(&mut self.from, &mut self.text)? {
            ImportTaken::End if first => Err("is missing, the one that says the version of the export".to_owned()),
            ImportTaken::End => return Ok(None),
            ImportTaken::TooLong => Err(format!("is longer than {LONGEST_LINE} bytes")),
            ImportTaken::Line => understand(&self.text, first),
        };
        line.map(Some).map_err(|what| LinesError::Line { number: self.number, what })
    }
}

enum ImportTaken {
    Line,
    TooLong,
    End,
}

fn read(from: &mut impl BufRead, text: &mut Vec<u8>) -> Result<ImportTaken, LinesError> {
    text.clear();
    from.take(LONGEST_LINE).read_until(b'\n', text).map_err(LinesError::Stream)?;
    Ok(match text.len() as u64 {
        0 => ImportTaken::End,
        LONGEST_LINE if text.last() != Some(&b'\n') => ImportTaken::TooLong,
        _ => ImportTaken::Line,
    })
}

fn understand(text: &[u8], first: bool) -> Result<Option<StoredLine>, String> {
    let line: ExportLine = serde_json::from_slice(text.trim_ascii_end()).map_err(|error| {
        let begin = if first { "does not begin a curtsy export" } else { "is not understood" };
        // serde counts lines too, and would always say 1.
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        format!("{begin}: {what} (column {})", error.column())
    })?;
    match line {
        ExportLine::CurtsyState { version } if version != VERSION => Err(format!(
            "says version {version}, this curtsy reads version {VERSION}; export again with this version of curtsy"
        )),
        ExportLine::CurtsyState { .. } if !first => Err("begins a second export; import one at a time".to_owned()),
        ExportLine::CurtsyState { .. } => Ok(None),
        _ if first => Err("is not the first line of a curtsy export, which says its version".to_owned()),
        ExportLine::Host { key, record } => Ok(Some(StoredLine::Host(host(&key)?, record))),
        ExportLine::Robots { origin, record } => {
            check_origin(&origin)?;
            Ok(Some(StoredLine::Robots(origin, record)))
        }
        ExportLine::Job { client, .. } if client.is_empty() => Err("has a job without a client".to_owned()),
        ExportLine::Job { client, record } => Ok(Some(StoredLine::Job(client, record))),
    }
}

/// Accepts only the canonical spelling, the only one that curtsy looks up.
fn host(key: &str) -> Result<HostKey, String> {
    match HostKey::of_key(key) {
        Ok(host) if host.as_str() == key => Ok(host),
        Ok(host) => Err(format!("has host {key:?}; write it as {:?}", host.as_str())),
        Err(error) => Err(format!("has host {key:?}, which is none: {error}")),
    }
}

fn check_origin(origin: &str) -> Result<(), String> {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    match rest {
        Some(authority) if !authority.is_empty() && !authority.contains('/') => Ok(()),
        _ => Err(format!("has origin {origin:?}; write it as \"https://example.org\"")),
    }
}

/// Several times the longest robots.txt that curtsy reads, in base64.
const LONGEST_LINE: u64 = 4 << 20;

/// Bytes as base64 text, in JSON.
pub(super) mod base64_text {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        BASE64_STANDARD.decode(String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl From<rusqlite::Error> for LinesError {
    fn from(error: rusqlite::Error) -> Self {
        LinesError::Disk(StoreFault::of_sqlite(&error))
    }
}

impl fmt::Display for LinesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinesError::NothingKept => write!(f, "nothing is kept: `state_dir` is \"memory\""),
            LinesError::Unsaved { after: 0, unsaved } => write!(f, "{unsaved}"),
            LinesError::Unsaved { after, unsaved } => {
                write!(f, "{unsaved}. The first {after} lines were imported; importing all of them again does no harm")
            }
            LinesError::Line { number, what } => {
                write!(f, "line {number} {what}. Nothing was imported: fix or remove the line and import again")
            }
            LinesError::Stream(error) => write!(f, "{error}"),
            LinesError::Disk(cause) => write!(f, "the state file failed: {cause}"),
        }
    }
}

impl std::error::Error for LinesError {}
