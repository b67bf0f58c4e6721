//! One line per request, on demand (`log.access`).
//!
//! A separate thread writes the lines: a full disk or a slow terminal loses lines, which are counted, and never delays
//! requests. Nothing secret is written: no credentials, no cookies, and query strings only if asked for. Text that a
//! client sends cannot break out of its line.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use serde_json::json;

use crate::clock;
use crate::config::{self, QueryStrings};
use crate::telemetry::{json_text, misleads};

/// Lines that may wait for the writer: a second's worth at the highest rate measured.
const BACKLOG: usize = 16_384;

#[derive(Debug)]
pub struct AccessLog {
    lines: Option<SyncSender<LogMessage>>,
    json: bool,
    lost: AtomicU64,
}

/// A message to the writer thread.
#[derive(Debug)]
enum LogMessage {
    Line(String),
    /// The file was renamed: the next line goes into a new one under the old name.
    Reopen,
}

/// The output that lines are written to.
struct LogOutput {
    out: Box<dyn Write + Send>,
    path: Option<PathBuf>,
}

/// What the log says about a request, except for its ending. Filled in from its arrival on.
#[derive(Debug)]
pub(crate) struct LogEntry {
    pub(crate) at: SystemTime,
    pub(crate) client: SocketAddr,
    /// The user name, if the client logged in with one.
    pub(crate) user: Option<String>,
    /// The user, or what the client calls itself.
    pub(crate) name: Option<String>,
    pub(crate) method: String,
    pub(crate) url: String,
    /// A Curtsy-Error code, if curtsy answered itself.
    pub(crate) error: Option<&'static str>,
    pub(crate) origin: Option<Duration>,
    pub(crate) wait: Duration,
    /// What the cache did for it: `hit`, `stale`, `validated` or `miss`.
    pub(crate) cache: Option<&'static str>,
}

/// What is known about a request when it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) status: u16,
    pub(crate) bytes: u64,
    pub(crate) took: Duration,
    pub(crate) cut_by: Option<CutBy>,
    /// The part of the host's delay that was decisive.
    pub(crate) why: Option<&'static str>,
}

/// The side that cut an answer short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CutBy {
    Client,
    Origin,
}

impl CutBy {
    fn word(self) -> &'static str {
        match self {
            CutBy::Client => "client",
            CutBy::Origin => "origin",
        }
    }
}

impl AccessLog {
    pub fn off() -> Self {
        AccessLog { lines: None, json: false, lost: AtomicU64::new(0) }
    }

    pub fn open(target: &config::AccessLogTarget, json: bool) -> io::Result<Self> {
        let output = match target {
            config::AccessLogTarget::Off => return Ok(AccessLog::off()),
            config::AccessLogTarget::Stdout => LogOutput { out: Box::new(io::stdout()), path: None },
            config::AccessLogTarget::Path(path) => LogOutput { out: Box::new(open(path)?), path: Some(path.clone()) },
        };
        let (lines, written) = sync_channel(BACKLOG);
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || write_lines(&written, output))?;
        Ok(AccessLog { lines: Some(lines), json, lost: AtomicU64::new(0) })
    }

    /// Opens the file again, for log rotation by renaming. Earlier lines go into the old file.
    pub fn reopen(&self) {
        if let Some(lines) = &self.lines {
            // Blocks if the writer is behind. Reopening is rare, and no request does it.
            let _ = lines.send(LogMessage::Reopen);
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.lines.is_some()
    }

    pub(crate) fn write(&self, entry: &LogEntry, status: u16, bytes: u64, took: Duration, cut_by: Option<CutBy>) {
        let Some(lines) = &self.lines else { return };
        let line = if self.json {
            json_line(entry, status, bytes, took, cut_by)
        } else {
            text_line(entry, status, bytes, took, cut_by)
        };
        if lines.try_send(LogMessage::Line(line)).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

impl LogEntry {
    pub(crate) fn new(client: SocketAddr, method: &http::Method, url: &str, queries: QueryStrings) -> Self {
        let url = shown(url, queries).into_owned();
        LogEntry {
            at: clock::wall(),
            client,
            user: None,
            name: None,
            method: method.to_string(),
            url,
            error: None,
            origin: None,
            wait: Duration::ZERO,
            cache: None,
        }
    }
}

/// Returns a URL as logs may show it.
pub(crate) fn shown(url: &str, queries: QueryStrings) -> Cow<'_, str> {
    match (url.split_once('?'), queries) {
        (None, _) | (_, QueryStrings::Keep) => url.into(),
        (Some((path, _)), QueryStrings::Redact) => format!("{path}?…").into(),
        (Some((path, _)), QueryStrings::Drop) => path.into(),
    }
}

impl LogEntry {
    /// Returns the event for API listeners, with a URL that may be shown.
    pub(crate) fn told(&self, url: &str, ending: &Ending) -> serde_json::Value {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        json!({
            "client": self.name.clone().unwrap_or_else(|| self.client.ip().to_string()),
            "method": self.method,
            "url": url,
            "status": (ending.status != 0).then_some(ending.status),
            "bytes": ending.bytes,
            "took_ms": millis(ending.took),
            "wait_ms": millis(self.wait),
            "origin_ms": self.origin.map(millis),
            "why": ending.why,
            "error": self.error,
            "cache": self.cache,
            "complete": ending.cut_by.is_none(),
            "cut_by": ending.cut_by.map(CutBy::word),
        })
    }
}

fn text_line(entry: &LogEntry, status: u16, bytes: u64, took: Duration, cut_by: Option<CutBy>) -> String {
    let name = entry.name.as_deref().unwrap_or("-");
    let status = if status == 0 { "-".to_owned() } else { status.to_string() };
    let mut line = format!(
        "{} {} {} {} {} {status} {bytes}B took={:.3}s",
        humantime::format_rfc3339_millis(entry.at),
        entry.client.ip(),
        one_word(name),
        one_word(&entry.method),
        one_word(&entry.url),
        took.as_secs_f64(),
    );
    if !entry.wait.is_zero() {
        line.push_str(&format!(" wait={:.3}s", entry.wait.as_secs_f64()));
    }
    if let Some(origin) = entry.origin {
        line.push_str(&format!(" origin={:.3}s", origin.as_secs_f64()));
    }
    if let Some(word) = entry.cache {
        line.push_str(&format!(" cache={word}"));
    }
    if let Some(code) = entry.error {
        line.push_str(&format!(" error={code}"));
    }
    if let Some(cut_by) = cut_by {
        line.push_str(&format!(" cut=true cut_by={}", cut_by.word()));
    }
    line.push('\n');
    line
}

fn json_line(entry: &LogEntry, status: u16, bytes: u64, took: Duration, cut_by: Option<CutBy>) -> String {
    let seconds = |duration: Duration| (duration.as_secs_f64() * 1000.0).round() / 1000.0;
    let line = json!({
        "ts": humantime::format_rfc3339_millis(entry.at).to_string(),
        "event": "request",
        "client": entry.client.ip().to_string(),
        "user": entry.user,
        "name": entry.name,
        "method": entry.method,
        "url": entry.url,
        "status": (status != 0).then_some(status),
        "bytes": bytes,
        "took_s": seconds(took),
        "wait_s": seconds(entry.wait),
        "origin_s": entry.origin.map(seconds),
        "error": entry.error,
        "cache": entry.cache,
        "complete": cut_by.is_none(),
        "cut_by": cut_by.map(CutBy::word),
    });
    json_text(&line) + "\n"
}

/// Escapes blanks, control characters and invisible marks: with them a client could write columns or lines of its own.
fn one_word(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    text.chars()
        .flat_map(|c| if misleads(c) || c.is_whitespace() { c.escape_unicode().collect() } else { vec![c] })
        .collect()
}

/// The lines show which client requests what: only the owner, and a group of the operator's choice, may read them.
const MODE: u32 = 0o640;

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(MODE).open(path)
}

fn write_lines(messages: &Receiver<LogMessage>, mut output: LogOutput) {
    while let Ok(message) = messages.recv() {
        output.take(message);
        // Flush when there is a pause, so that `tail -f` shows the last line and a burst is written in one go.
        let mut next = messages.try_recv();
        while let Ok(message) = next {
            output.take(message);
            next = messages.try_recv();
        }
        let _ = output.out.flush();
    }
}

impl LogOutput {
    fn take(&mut self, message: LogMessage) {
        match (message, &self.path) {
            (LogMessage::Line(line), _) => {
                let _ = self.out.write_all(line.as_bytes());
            }
            (LogMessage::Reopen, Some(path)) => {
                let _ = self.out.flush();
                match open(path) {
                    Ok(file) => self.out = Box::new(file),
                    Err(error) => tracing::warn!(
                        event = "access_log.error", path = %path.display(), %error,
                        "cannot reopen the access log; lines still go to the old file"
                    ),
                }
            }
            (LogMessage::Reopen, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(url: &str, queries: QueryStrings) -> LogEntry {
        LogEntry::new("127.0.0.1:9".parse().unwrap(), &http::Method::GET, url, queries)
    }

    #[test]
    fn query_strings_are_redacted_unless_asked_for() {
        let url = "http://a.test/x?token=secret";
        assert_eq!(entry(url, QueryStrings::Redact).url, "http://a.test/x?…");
        assert_eq!(entry(url, QueryStrings::Drop).url, "http://a.test/x");
        assert_eq!(entry(url, QueryStrings::Keep).url, url);
    }

    #[test]
    fn a_line_stays_one_line() {
        let mut entry = entry("http://a.test/\n2026 forged", QueryStrings::Keep);
        entry.name = Some("a b\u{1b}[31m".to_owned());
        let text = text_line(&entry, 200, 5, Duration::from_millis(1500), None);
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.contains("a\\u{20}b\\u{1b}[31m"), "{text}");
        let json = json_line(&entry, 0, 5, Duration::ZERO, Some(CutBy::Origin));
        assert_eq!(json.matches('\n').count(), 1);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap()["status"], serde_json::Value::Null);
    }
}
