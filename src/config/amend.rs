//! Changes a few values of the running configuration, as the control API requests.
//!
//! The values are read by the same table as the file, so they are refused for the same reasons, with the same messages.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};
use toml::de::DeTable;

use super::keys::{self, KeyRow};
use super::load::{Draft, Loaded};
use super::problems::{ConfigProblem, FilePosition, Problems, ValueSource};
use super::raw::Raw;
use super::suggest::nearest;
use super::{Config, check, show};

/// Returns the configuration with new values for the named keys of `[politeness]`, or everything that is wrong with
/// them. Warnings are only about the new values.
pub fn repace(config: &Config, wishes: &Map<String, Json>) -> Result<Loaded, Problems> {
    let nobody = BTreeMap::new();
    let mut draft = Draft::over(config.clone(), &nobody);
    if wishes.is_empty() {
        draft.problems.push(ConfigProblem::error("there is nothing to change", "name keys of [politeness]", None));
    }
    for (name, value) in wishes {
        match keys::find(&format!("{SECTION}.{name}")).filter(|row| !row.needs_restart) {
            Some(row) => take(&mut draft, row, value),
            None => draft.problems.push(unknown(name)),
        }
    }
    if wishes.contains_key("profile") {
        draft.apply_profile();
    }
    let problems = check::pacing(&draft);
    draft.problems.extend(problems);
    let mut loaded = draft.finish(None)?;
    loaded.warnings.retain(|warning| warning.place.as_ref().is_some_and(|place| place.origin == ValueSource::Request));
    Ok(loaded)
}

const SECTION: &str = "politeness";

/// Reads the value as if it were in the file. JSON that TOML cannot express (null, an object) is not a value of any
/// key.
fn take(draft: &mut Draft<'_>, row: &'static KeyRow<Config>, value: &Json) {
    let line = format!("value = {}", show::toml(value));
    match DeTable::parse(&line).as_ref().ok().and_then(|table| table.get_ref().values().next()) {
        Some(node) => draft.put(row, &Raw::node(node), &|_| FilePosition::in_request()),
        None => {
            let message = format!("`{}` must be a string or a number", keys::name_of(row.path));
            draft.problems.push(ConfigProblem::error(
                message,
                "write it as in the file",
                Some(FilePosition::in_request()),
            ));
        }
    }
}

fn unknown(name: &str) -> ConfigProblem {
    let known = nearest(name, keys::names_in(SECTION));
    let advice = known.map_or_else(String::new, |known| format!("did you mean `{known}`?"));
    ConfigProblem::error(format!("unknown key `{name}` in [{SECTION}]"), advice, Some(FilePosition::in_request()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::config::{Mode, Profile};

    fn changed(config: &Config, wishes: &Json) -> Result<Loaded, String> {
        repace(config, wishes.as_object().unwrap()).map_err(|problems| problems.to_string())
    }

    #[test]
    fn values_are_read_as_in_the_file() {
        let wishes = json!({ "rate": "2/s", "burst": 5, "jitter": 0.5, "max_wait": "10s", "mode": "report" });
        let politeness = changed(&Config::default(), &wishes).unwrap().config.politeness;
        assert_eq!((politeness.delay, politeness.burst), (Duration::from_millis(500), 5));
        assert_eq!((politeness.jitter, politeness.max_wait), (0.5, Duration::from_secs(10)));
        assert_eq!(politeness.mode, Mode::Report);
        assert_eq!(changed(&Config::default(), &json!({ "rate": 0.1 })).unwrap().config.politeness.delay.as_secs(), 10);
    }

    #[test]
    fn a_profile_sets_what_is_not_given_beside_it_and_later_changes_leave_it() {
        let aggressive = changed(&Config::default(), &json!({ "profile": "aggressive", "burst": 2 })).unwrap().config;
        let politeness = &aggressive.politeness;
        assert_eq!((politeness.delay.as_millis(), politeness.burst), (100, 2));
        let later = changed(&aggressive, &json!({ "concurrency": 1 })).unwrap().config;
        assert_eq!((later.pacing.profile, later.politeness.burst), (Some(Profile::Aggressive), 2));
    }

    #[test]
    fn everything_wrong_is_told_at_once() {
        let wishes =
            json!({ "brust": 5, "delay": 1, "concurrency": 0, "order": null, "jitter": {}, "max_queue": [[]] });
        let report = changed(&Config::default(), &wishes).unwrap_err();
        for part in [
            "did you mean `burst`?",
            "`delay` needs a unit",
            "cannot be 0",
            "`order` must",
            "`jitter` must",
            "6 errors",
        ] {
            assert!(report.contains(part), "{part:?} is not in\n{report}");
        }
        for wishes in [json!({}), json!({ "delay": "1s", "rate": "1/s" }), json!({ "burst": "5" })] {
            assert!(changed(&Config::default(), &wishes).is_err(), "{wishes}");
        }
        assert!(changed(&Config::default(), &json!({ "max_queue": 30_000 })).unwrap_err().contains("max_queue_total"));
    }

    #[test]
    fn a_value_cannot_smuggle_in_another_key() {
        let wishes = json!({ "mode": "off\"\ndelay = \"0s" });
        assert!(changed(&Config::default(), &wishes).is_err());
    }

    #[test]
    fn warnings_are_about_what_was_given() {
        let mut config = Config::default();
        config.politeness.max_wait = Duration::from_secs(1_000);
        let warnings = changed(&config, &json!({ "delay": "0s" })).unwrap().warnings;
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].message.contains("pacing off"), "{warnings:?}");
    }
}
