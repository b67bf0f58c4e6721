//! Describes what a reload changed, for the log.

use std::fmt;

use serde_json::Value as Json;

use super::Config;
use super::keys::{KEYS, RULES};

/// One setting that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// "upstream.keep_alive"; "host" for the rules.
    pub path: &'static str,
    /// "4s -> 10s", "changed" for a secret, "1 rule added" for `[[host]]`.
    pub what: String,
    /// Whether it takes effect only after a restart.
    pub needs_restart: bool,
}

impl fmt::Display for KeyChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.what)?;
        if self.needs_restart { f.write_str(" (needs a restart)") } else { Ok(()) }
    }
}

/// Returns all changes, in the order of the table of keys.
pub fn differences(old: &Config, new: &Config) -> Vec<KeyChange> {
    let mut changes = Vec::new();
    for row in KEYS.iter().filter(|row| !row.same(old, new)) {
        // `rate` changes whenever `delay` does, and has no value of its own.
        let (Some(from), Some(to)) = (row.get(old), row.get(new)) else { continue };
        let what = if row.may_hide() { "changed".to_owned() } else { format!("{} -> {}", plain(&from), plain(&to)) };
        changes.push(KeyChange { path: row.path, what, needs_restart: row.needs_restart });
    }
    if old.host != new.host {
        changes.push(KeyChange { path: RULES, what: rules(old.host.len(), new.host.len()), needs_restart: false });
    }
    changes
}

fn rules(old: usize, new: usize) -> String {
    let plural = |count: usize| if count == 1 { "1 rule".to_owned() } else { format!("{count} rules") };
    match new.checked_sub(old) {
        Some(0) => "rules changed".to_owned(),
        Some(added) => format!("{} added", plural(added)),
        None => format!("{} removed", plural(old - new)),
    }
}

/// Formats a value without quotes, unless the result would be empty.
fn plain(value: &Json) -> String {
    match value {
        Json::String(text) if !text.is_empty() => text.clone(),
        Json::Array(items) if items.len() == 1 => plain(&items[0]),
        other => super::show::toml(other),
    }
}
