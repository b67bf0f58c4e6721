//! JSON Schema of the file, for editors: completion, descriptions and red underlines while typing.
//!
//! Types and defaults come from the table of keys, descriptions from the comments in `config.toml`.

use serde_json::{Value as Json, json};

use super::keys::{KEYS, RULE_KEYS, RULES, name_of, section_of};
use super::{Config, TEMPLATE};

/// Returns the schema, in draft 2020-12.
pub fn schema() -> Json {
    let mut root = object();
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("curtsy configuration");
    let defaults = Config::default();
    for row in KEYS.iter() {
        let mut value = row.schema();
        value["description"] = json!(description(section_of(row.path), name_of(row.path)));
        value["default"] = row.get(&defaults).unwrap_or_default();
        if value["default"].is_null() {
            value.as_object_mut().map(|value| value.remove("default"));
        }
        section(&mut root, section_of(row.path))["properties"][name_of(row.path)] = value;
    }
    let mut rule = object();
    rule["required"] = json!(["match"]);
    for row in RULE_KEYS.iter() {
        rule["properties"][row.path] = row.schema();
        rule["properties"][row.path]["description"] = json!(description(RULES, row.path));
    }
    root["properties"][RULES] = json!({ "type": "array", "items": rule });
    root
}

fn object() -> Json {
    json!({ "type": "object", "additionalProperties": false, "properties": {} })
}

fn section<'a>(root: &'a mut Json, path: &str) -> &'a mut Json {
    path.split('.').filter(|part| !part.is_empty()).fold(root, |parent, part| {
        let section = &mut parent["properties"][part];
        if section.is_null() {
            *section = object();
        }
        section
    })
}

/// Returns the comment behind a key in `config.toml`, whether the key is commented out or not.
pub(super) fn description(section: &str, name: &str) -> Option<&'static str> {
    let mut current = "";
    for line in TEMPLATE.lines() {
        let line = line.strip_prefix("# ").unwrap_or(line);
        if let Some(header) = line.strip_prefix('[') {
            current = header.trim_matches(['[', ']']);
        }
        let is_key = line.split_once(" = ").is_some_and(|(key, _)| key == name);
        if is_key && current == section {
            return line.rsplit_once(" # ").map(|(_, comment)| comment.trim());
        }
    }
    None
}
