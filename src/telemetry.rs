//! The log: one event, one line, on stderr; text for people, JSON for machines.
//!
//! Both show the same fields. Whatever an event carries, it stays on its own line: control characters and invisible
//! marks are escaped, so that no peer can add lines, colours or text directions of its own.

use std::fmt::{self, Write};
use std::io::{IsTerminal, stderr};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::time::Instant;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use crate::clock;
use crate::config::{Log, LogFormat};

/// Changes the level of a log that is running.
#[derive(Clone, Debug)]
pub struct LevelHandle(reload::Handle<EnvFilter, tracing_subscriber::Registry>);

/// Starts the log of this process. A second call does nothing, because tests share a process.
pub fn start(log: &Log, colour: bool) -> LevelHandle {
    let (filter, handle) = reload::Layer::new(filter(&log.level));
    let format = if is_json(log.format) { LineFormat::Json } else { LineFormat::Text { colour } };
    let lines = tracing_subscriber::fmt::layer().with_writer(stderr).event_format(format);
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(filter).with(lines));
    LevelHandle(handle)
}

impl LevelHandle {
    pub fn set(&self, level: &str) {
        let _ = self.0.reload(filter(level));
    }
}

/// `auto` means JSON unless stderr is a terminal.
pub fn is_json(format: LogFormat) -> bool {
    match format {
        LogFormat::Auto => !stderr().is_terminal(),
        LogFormat::Json => true,
        LogFormat::Text => false,
    }
}

/// Parses a level that the configuration has checked. A bare level applies only to curtsy's own events: libraries log a
/// line for each frame that a peer sends, and at `trace` its content. Their events are shown only if the level names
/// them, as in `info,h2=warn`.
fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_new(directives(level)).unwrap_or_else(|_| EnvFilter::new("off,curtsy=info"))
}

fn directives(level: &str) -> String {
    level.split(',').map(str::trim).fold("off".to_owned(), |all, part| match part.contains('=') {
        true => format!("{all},{part}"),
        false => format!("{all},curtsy={part}"),
    })
}

/// A line that may repeat is usually logged at most once in this time.
pub const REPEAT: Duration = Duration::from_secs(60);

/// Limits a log line that would repeat: it is logged now and then, with the number of times it was left out.
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<(Option<Instant>, u64)>);

impl LogLimiter {
    pub const fn new() -> Self {
        LogLimiter(Mutex::new((None, 0)))
    }

    /// Returns how often the line was left out since the last time, if it may be logged now.
    pub fn may_speak(&self, every: Duration) -> Option<u64> {
        let now = clock::now();
        let (last, silent) = &mut *self.0.lock();
        if last.is_some_and(|last| now.duration_since(last) < every) {
            *silent += 1;
            return None;
        }
        *last = Some(now);
        Some(std::mem::take(silent))
    }
}

#[derive(Clone, Copy, Debug)]
enum LineFormat {
    Text { colour: bool },
    Json,
}

impl<S, N> FormatEvent<S, N> for LineFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = LogFields::default();
        event.record(&mut fields);
        let level = *event.metadata().level();
        let line = match self {
            LineFormat::Text { colour } => text_line(clock::wall(), level, fields, *colour),
            LineFormat::Json => json_line(clock::wall(), level, fields),
        };
        writeln!(writer, "{line}")
    }
}

#[derive(Debug, Default)]
struct LogFields {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl LogFields {
    fn put(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(text)) => self.message = text,
            (name, value) => self.others.push((name, value)),
        }
    }
}

impl Visit for LogFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}").into());
    }
}

/// `14:02:11.402 WARN  cannot accept a connection; trying again error="…"`, in UTC.
fn text_line(at: SystemTime, level: Level, fields: LogFields, colour: bool) -> String {
    let time = humantime::format_rfc3339_millis(at).to_string();
    let time = time.get(11..23).unwrap_or(&time);
    let (before, after) = match (colour, level) {
        (false, _) => ("", ""),
        (true, Level::ERROR) => ("\x1b[31m", "\x1b[0m"),
        (true, Level::WARN) => ("\x1b[33m", "\x1b[0m"),
        (true, Level::INFO) => ("\x1b[32m", "\x1b[0m"),
        (true, _) => ("\x1b[2m", "\x1b[0m"),
    };
    let mut line = format!("{time} {before}{level:<5}{after} {}", one_line(&fields.message));
    for (name, value) in fields.others {
        if name == "event" {
            continue;
        }
        let shown = match &value {
            Value::String(text) if is_word(text) => text.clone(),
            Value::String(text) => format!("\"{}\"", one_line(text)),
            other => other.to_string(),
        };
        let _ = write!(line, " {name}={shown}");
    }
    line
}

fn json_line(at: SystemTime, level: Level, fields: LogFields) -> String {
    let mut line = Map::new();
    line.insert("ts".to_owned(), humantime::format_rfc3339_millis(at).to_string().into());
    line.insert("level".to_owned(), level.as_str().to_ascii_lowercase().into());
    for (name, value) in fields.others {
        line.insert(name.to_owned(), value);
    }
    if !fields.message.is_empty() {
        line.insert("msg".to_owned(), fields.message.into());
    }
    json_text(&Value::Object(line))
}

/// Returns the value as JSON that stays on one line in every reader: characters for which [`misleads`] is true become
/// `\u202e` and the like. They occur only inside strings, where an escape means the same.
pub fn json_text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(misleads) {
        return text;
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if misleads(c) {
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| _ = write!(safe, "\\u{unit:04x}"));
        } else {
            safe.push(c);
        }
    }
    safe
}

/// Whether a character would end a line, colour it, reverse its direction or be invisible in it.
pub fn misleads(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'=' | b'\\'))
}

fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Breaks a text into lines that fit a terminal if each is indented by so many columns. The first one is not
/// indented: the caller has written a label there.
pub fn wrapped(text: &str, indent: usize, columns: usize) -> String {
    let (mut wrapped, mut width) = (String::new(), indent);
    for (index, word) in text.split(' ').enumerate() {
        let length = word.chars().count();
        if index > 0 && width + 1 + length > columns {
            wrapped.push('\n');
            wrapped.extend(std::iter::repeat_n(' ', indent));
            width = indent;
        } else if index > 0 {
            wrapped.push(' ');
            width += 1;
        }
        wrapped.push_str(word);
        width += length;
    }
    wrapped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &str, others: &[(&'static str, &str)]) -> LogFields {
        LogFields {
            message: message.to_owned(),
            others: others.iter().map(|(name, value)| (*name, Value::from(*value))).collect(),
        }
    }

    #[test]
    fn a_text_line_is_short_and_complete() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(50_531_402);
        let fields = fields("slow", &[("event", "host.slow"), ("host", "a.test"), ("why", "it is")]);
        assert_eq!(text_line(at, Level::WARN, fields, false), "14:02:11.402 WARN  slow host=a.test why=\"it is\"");
    }

    #[test]
    fn a_peer_cannot_forge_a_line() {
        let evil = "x\n14:00:00 ERROR forged\x1b[31m";
        let text = text_line(SystemTime::UNIX_EPOCH, Level::INFO, fields(evil, &[("host", evil)]), false);
        let json = json_line(SystemTime::UNIX_EPOCH, Level::INFO, fields(evil, &[("host", evil)]));
        for line in [text, json] {
            assert!(!line.contains('\n') && !line.contains('\x1b'), "{line}");
        }
    }

    #[test]
    fn invisible_marks_are_shown_by_their_numbers() {
        let evil = "a\u{202e}b\u{2028}c\u{e0041}d\u{9b}e";
        let text = text_line(SystemTime::UNIX_EPOCH, Level::INFO, fields(evil, &[("url", evil)]), false);
        let json = json_line(SystemTime::UNIX_EPOCH, Level::INFO, fields(evil, &[("url", evil)]));
        assert!(!text.contains(misleads) && text.contains("\\u{202e}"), "{text}");
        assert!(!json.contains(misleads) && json.contains("\\u202e"), "{json}");
        let read: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&read["msg"], &read["url"]), (&evil.into(), &evil.into()));
    }

    #[test]
    fn a_level_is_for_curtsys_own_lines() {
        assert_eq!(directives("info"), "off,curtsy=info");
        assert_eq!(directives("curtsy::proxy=debug, info,h2=warn"), "off,curtsy::proxy=debug,curtsy=info,h2=warn");
        for level in ["off", "trace", "curtsy::proxy=debug,info"] {
            assert!(EnvFilter::try_new(directives(level)).is_ok(), "{level}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_line_that_repeats_is_said_seldom() {
        let seldom = LogLimiter::new();
        let every = Duration::from_secs(60);
        assert_eq!(seldom.may_speak(every), Some(0));
        assert_eq!(seldom.may_speak(every), None);
        assert_eq!(seldom.may_speak(every), None);
        tokio::time::advance(every).await;
        assert_eq!(seldom.may_speak(every), Some(2));
    }

    #[test]
    fn a_json_line_has_its_fields() {
        let line = json_line(SystemTime::UNIX_EPOCH, Level::INFO, fields("hi", &[("event", "ready")]));
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["event"], &value["msg"], &value["level"]), (&"ready".into(), &"hi".into(), &"info".into()));
    }

    #[test]
    fn a_long_text_is_broken_between_words() {
        assert_eq!(wrapped("short", 2, 80), "short");
        let long = "word ".repeat(40);
        assert!(
            wrapped(&long, 11, 80).lines().skip(1).all(|line| line.starts_with("           word") && line.len() <= 80)
        );
        assert_eq!(wrapped(&format!("{} b", "a".repeat(100)), 2, 80), format!("{}\n  b", "a".repeat(100)));
    }
}
