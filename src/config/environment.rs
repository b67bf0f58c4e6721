//! `CURTSY_*` variables: which key each of them sets.
//!
//! A name that sets no key is an error, because a setting that is silently ignored is worse than none. Names that
//! belong to other commands, and those that Kubernetes adds for a Service called "curtsy", are ignored.

use std::collections::BTreeMap;
use std::path::Path;

use super::Config;
use super::exposed;
use super::keys::{KEYS, KeyRow};
use super::load::Draft;
use super::problems::{ConfigProblem, FilePosition};
use super::raw::Raw;
use super::suggest::nearest;

const PREFIX: &str = "CURTSY_";

/// Variables that other parts of curtsy read.
/// `cargo run` sets the last one, which build.rs gives to the compiler.
const TAKEN: [&str; 5] = ["CURTSY_CONFIG", "CURTSY_ADMIN_URL", "CURTSY_PROXY", "CURTSY_ACTIVE", "CURTSY_REVISION"];

/// The prefix of variables in which `curtsy env` saves the old values of the shell.
const OLD: &str = "CURTSY_OLD";

pub(super) fn read(env: &BTreeMap<String, String>, draft: &mut Draft<'_>) {
    for (name, value) in env.range(PREFIX.to_owned()..).take_while(|(name, _)| name.starts_with(PREFIX)) {
        if TAKEN.contains(&name.as_str()) || name.starts_with(OLD) || is_service_link(name) {
            continue;
        }
        if let Some(row) = row_of(name) {
            draft.put(row, &Raw::typed(value), &|span| FilePosition::in_variable(name, value, span));
        } else if let Some(row) = name.strip_suffix("_FILE").and_then(row_of) {
            read_from_file(name, value, row, env, draft);
        } else {
            draft.problems.push(unknown(name, value));
        }
    }
}

/// Returns the variable of a key: "CURTSY_UPSTREAM__KEEP_ALIVE" for "upstream.keep_alive".
pub(super) fn variable(path: &str) -> String {
    format!("{PREFIX}{}", path.to_uppercase().replace('.', "__"))
}

fn row_of(name: &str) -> Option<&'static KeyRow<Config>> {
    KEYS.iter().find(|row| variable(row.path) == name)
}

/// Reads a `..._FILE` variable: its value is the path of a file that contains the setting. Containers receive secrets
/// this way.
fn read_from_file(
    name: &str,
    path: &str,
    row: &'static KeyRow<Config>,
    env: &BTreeMap<String, String>,
    draft: &mut Draft<'_>,
) {
    let place = FilePosition::in_variable(name, path, &(0..path.len()));
    let plain = variable(row.path);
    if env.contains_key(&plain) {
        let message = format!("{plain} and {name} are both set");
        draft.problems.push(ConfigProblem::error(message, "keep one of them", Some(place)));
        return;
    }
    match std::fs::read_to_string(path) {
        Ok(text) => {
            let text = text.trim_end_matches(['\r', '\n']);
            draft.put(row, &Raw::typed(text), &|_| place.clone());
            draft.problems.extend(exposed::warning(Path::new(path), name, Some(place)));
        }
        Err(error) => {
            draft.problems.push(ConfigProblem::error(format!("{path} cannot be read: {error}"), "", Some(place)));
        }
    }
}

fn unknown(name: &str, value: &str) -> ConfigProblem {
    // Names are compared without the prefix, which would make any two of them look similar.
    let endings: Vec<String> = KEYS.iter().map(|row| variable(row.path).split_off(PREFIX.len())).collect();
    let advice = match nearest(name.trim_start_matches(PREFIX), endings.iter().map(String::as_str)) {
        Some(known) => format!("did you mean {PREFIX}{known}?"),
        None => "`curtsy config show` lists the keys; CURTSY_SECTION__KEY sets one".to_owned(),
    };
    let place = FilePosition::in_variable(name, value, &(0..value.len())).without_excerpt();
    ConfigProblem::error(format!("unknown variable {name}"), advice, Some(place))
}

/// Kubernetes sets `CURTSY_SERVICE_HOST`, `CURTSY_PORT_3128_TCP_ADDR` and the like in every pod of the namespace if a
/// Service is named "curtsy".
fn is_service_link(name: &str) -> bool {
    let is_port =
        |rest: &str| rest.is_empty() || rest.trim_start_matches('_').starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT").is_some_and(|(_, rest)| is_port(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_a_variable() {
        assert_eq!(variable("listen"), "CURTSY_LISTEN");
        assert_eq!(variable("tls.tunnel.max_lifetime"), "CURTSY_TLS__TUNNEL__MAX_LIFETIME");
    }

    #[test]
    fn no_key_looks_like_a_service_link() {
        for row in KEYS.iter() {
            assert!(!is_service_link(&variable(row.path)), "{}", row.path);
        }
        for name in ["CURTSY_SERVICE_HOST", "CURTSY_SERVICE_PORT_PROXY", "CURTSY_PORT", "CURTSY_PORT_3128_TCP_ADDR"] {
            assert!(is_service_link(name), "{name}");
        }
    }
}
