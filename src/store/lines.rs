//! The state as JSON lines, to look at, to move to another machine, to edit with `jq` or `grep`.
//!
//! The first line says the version; each other line is one record. Reading is strict: a line that is not understood
//! stops the import, with its number, and nothing is imported.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use super::database::{Database, Writer};
use super::error::Cause;
use super::outbox::Unsaved;
use super::record::{HostRecord, JobRecord, RobotsRecord};
use crate::politeness::HostKey;

/// Changes when older readers would misunderstand a line.
const VERSION: u32 = 1;

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum Line {
    CurtsyState { version: u32 },
    Host { key: String, record: HostRecord },
    Robots { origin: String, record: RobotsRecord },
    Job { client: String, record: JobRecord },
}

/// Records that were exported or imported.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub hosts: u64,
    pub robots: u64,
    pub jobs: u64,
}

/// Why an export or import was not done.
#[derive(Debug)]
pub enum LinesError {
    /// The store lives in memory, or was closed.
    NothingKept,
    Unsaved(Unsaved),
    Line {
        number: u64,
        what: String,
    },
    Stream(io::Error),
    Disk(Cause),
}

pub(super) fn export(database: &Database, mut to: impl Write) -> Result<Count, LinesError> {
    let mut count = Count::default();
    database.hold_still()?;
    write(&mut to, &Line::CurtsyState { version: VERSION })?;
    database.hosts(|key, record| {
        count.hosts += 1;
        write(&mut to, &Line::Host { key: key.to_owned(), record })
    })?;
    database.each_robots(|origin, record| {
        count.robots += 1;
        write(&mut to, &Line::Robots { origin, record })
    })?;
    for (client, record) in database.jobs(usize::MAX >> 1)? {
        count.jobs += 1;
        write(&mut to, &Line::Job { client, record })?;
    }
    to.flush().map_err(LinesError::Stream)?;
    Ok(count)
}

fn write(to: &mut impl Write, line: &Line) -> Result<(), LinesError> {
    let mut text = serde_json::to_vec(line).map_err(|error| LinesError::Stream(error.into()))?;
    text.push(b'\n');
    to.write_all(&text).map_err(LinesError::Stream)
}

pub(super) fn import(database: &mut Database, mut from: impl BufRead) -> Result<Count, LinesError> {
    database.transaction(|writer| {
        let mut count = Count::default();
        let mut text = Vec::new();
        for number in 1.. {
            let what = match read(&mut from, &mut text)? {
                Taken::End if number == 1 => Err("is missing, the one that says the version of the export".to_owned()),
                Taken::End => break,
                Taken::TooLong => Err(format!("is longer than {LONGEST_LINE} bytes")),
                Taken::Line => understand(&text, number == 1),
            };
            let line = what.map_err(|what| LinesError::Line { number, what })?;
            apply(writer, line, &mut count)?;
        }
        Ok(count)
    })
}

enum Taken {
    Line,
    TooLong,
    End,
}

fn read(from: &mut impl BufRead, text: &mut Vec<u8>) -> Result<Taken, LinesError> {
    text.clear();
    from.take(LONGEST_LINE).read_until(b'\n', text).map_err(LinesError::Stream)?;
    Ok(match text.len() as u64 {
        0 => Taken::End,
        LONGEST_LINE if text.last() != Some(&b'\n') => Taken::TooLong,
        _ => Taken::Line,
    })
}

fn understand(text: &[u8], first: bool) -> Result<Line, String> {
    let line: Line = serde_json::from_slice(text.trim_ascii_end()).map_err(|error| {
        let begin = if first { "does not begin a curtsy export" } else { "is not understood" };
        // serde counts lines too, and would always say 1.
        let what = error.to_string();
        let what = what.split(" at line ").next().unwrap_or_default();
        format!("{begin}: {what} (column {})", error.column())
    })?;
    match &line {
        Line::CurtsyState { version } if *version != VERSION => Err(format!(
            "says version {version}, this curtsy reads version {VERSION}; export again with this version of curtsy"
        )),
        Line::CurtsyState { .. } if !first => Err("begins a second export; import one at a time".to_owned()),
        Line::CurtsyState { .. } => Ok(line),
        _ if first => Err("is not the first line of a curtsy export, which says its version".to_owned()),
        Line::Host { key, .. } => check_host(key).map(|()| line),
        Line::Robots { origin, .. } => check_origin(origin).map(|()| line),
        Line::Job { client, .. } if client.is_empty() => Err("has a job without a client".to_owned()),
        Line::Job { .. } => Ok(line),
    }
}

/// In the one spelling that is ever asked for.
fn check_host(key: &str) -> Result<(), String> {
    let written = if key.contains(':') { format!("[{key}]") } else { key.to_owned() };
    match HostKey::parse(&written) {
        Ok(host) if host.as_str() == key => Ok(()),
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

fn apply(writer: &mut Writer<'_>, line: Line, count: &mut Count) -> rusqlite::Result<()> {
    match line {
        Line::CurtsyState { .. } => {}
        Line::Host { key, record } => {
            count.hosts += 1;
            writer.host(&key, Some(&record))?;
        }
        Line::Robots { origin, record } => {
            count.robots += 1;
            writer.robots(&origin, Some(&record))?;
        }
        Line::Job { client, record } => {
            count.jobs += 1;
            writer.job(&client, Some(&record))?;
        }
    }
    Ok(())
}

/// The longest robots.txt that is read, in base64, several times over.
const LONGEST_LINE: u64 = 4 << 20;

/// Bytes as text, in JSON.
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
        LinesError::Disk(Cause::of_sqlite(&error))
    }
}

impl fmt::Display for LinesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinesError::NothingKept => write!(f, "nothing is kept: `state_dir` is \"memory\""),
            LinesError::Unsaved(unsaved) => write!(f, "{unsaved}"),
            LinesError::Line { number, what } => {
                write!(f, "line {number} {what}. Nothing was imported: mend or remove the line and import again")
            }
            LinesError::Stream(error) => write!(f, "{error}"),
            LinesError::Disk(cause) => write!(f, "the state file failed: {cause}"),
        }
    }
}

impl std::error::Error for LinesError {}
