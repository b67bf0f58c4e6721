//! The effective configuration, as TOML or JSON, with or without where each value came from. Secrets are left out.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use super::Config;
use super::keys::{KEYS, RULE_KEYS, RULES, name_of, section_of};
use super::load::{Loaded, ValueSources};
use super::problems::ValueSource;

/// Returns the configuration as TOML, in the order of the table of keys.
pub fn show(loaded: &Loaded, with_origin: bool) -> String {
    let mut out = String::new();
    let mut section = "";
    for row in KEYS.iter() {
        let Some(value) = row.get(&loaded.config) else { continue };
        if section_of(row.path) != section {
            section = section_of(row.path);
            let _ = writeln!(out, "\n[{section}]");
        }
        let origin = with_origin.then(|| loaded.origins.of(row.path));
        push_line(&mut out, name_of(row.path), &value, origin);
    }
    for (index, rule) in loaded.config.host.iter().enumerate() {
        let _ = writeln!(out, "\n[[{RULES}]]");
        for row in RULE_KEYS.iter() {
            let Some(value) = row.get(rule) else { continue };
            let origin = with_origin.then(|| loaded.origins.of_rule(index, row.path));
            push_line(&mut out, row.path, &value, origin);
        }
    }
    out
}

/// Returns the configuration as JSON: sections are objects; with origins, each value is `{"value": …, "origin": …}`.
pub fn show_json(loaded: &Loaded, with_origin: bool) -> Json {
    to_json(&loaded.config, with_origin.then_some(&loaded.origins))
}

/// Returns the running configuration as JSON, without origins: it is not known where its values were set.
pub fn running_json(config: &Config) -> Json {
    to_json(config, None)
}

fn to_json(config: &Config, origins: Option<&ValueSources>) -> Json {
    let leaf = |value: Json, origin: &dyn Fn(&ValueSources) -> String| match origins {
        Some(origins) => json!({ "value": value, "origin": origin(origins) }),
        None => value,
    };
    let mut root = json!({});
    for row in KEYS.iter() {
        let Some(value) = row.get(config) else { continue };
        // Indexing a JSON object with a new name adds the name.
        let section = section_of(row.path).split('.').filter(|part| !part.is_empty());
        let section = section.fold(&mut root, |object, part| &mut object[part]);
        section[name_of(row.path)] = leaf(value, &|origins| origin_text(origins.of(row.path)));
    }
    let rules = config.host.iter().enumerate().map(|(index, rule)| {
        let values = RULE_KEYS.iter().filter_map(|row| {
            let value = leaf(row.get(rule)?, &|origins| origin_text(origins.of_rule(index, row.path)));
            Some((row.path.to_owned(), value))
        });
        Json::Object(values.collect::<Map<_, _>>())
    });
    root[RULES] = rules.collect();
    root
}

/// Wide enough for most values, so that the origins are aligned.
const COLUMN: usize = 40;

fn push_line(out: &mut String, name: &str, value: &Json, origin: Option<Option<&ValueSource>>) {
    let setting = format!("{name} = {}", toml(value));
    let _ = match origin {
        Some(origin) => writeln!(out, "{setting:COLUMN$} # {}", origin_text(origin)),
        None => writeln!(out, "{setting}"),
    };
}

/// "default", "config.toml:23", "env CURTSY_LISTEN", "--listen".
fn origin_text(origin: Option<&ValueSource>) -> String {
    match origin {
        None => "default".to_owned(),
        Some(ValueSource::File { path, line, .. }) => format!("{}:{line}", file_name(path)),
        Some(given) => given.to_string(),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

/// Writes a value as TOML. The values of the table are strings, numbers, booleans and lists of them; their JSON is
/// valid TOML except for one character.
pub(super) fn toml(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(toml).collect::<Vec<_>>().join(", ")),
        other => other.to_string().replace('\x7f', "\\u007f"),
    }
}
