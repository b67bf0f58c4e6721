//! Turns interception on in the user's configuration, and off again.
//!
//! Only a file that is exactly as this program wrote it is removed. For any other file it says which line to change: a
//! rewritten file would lose its order or its comments.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use crate::cli::stores::StoreOutcome;
use crate::config::{self, Loaded, ValueSource};

const KEY: &str = "tls.intercept";

/// The whole file.
const TEXT: &str = "\
# Written by `curtsy setup`. `curtsy setup --undo` removes this file if it has not been changed.
# Every other key: curtsy config init -

[tls]
intercept = true
";

pub(super) fn settle(loaded: &Loaded, env: &BTreeMap<String, String>, undo: bool, dry_run: bool) -> StoreOutcome {
    let would = if dry_run { "would be " } else { "" };
    let source = loaded.origins.of(KEY);
    match (undo, loaded.config.tls.intercept) {
        (false, true) => {
            let by = source.map(|source| format!(" ({source})")).unwrap_or_default();
            StoreOutcome::Settled(format!("already on{by}"))
        }
        (true, false) => StoreOutcome::Settled("off".to_owned()),
        (false, false) => match (&loaded.path, config::user_file(env)) {
            (None, Some(path)) if source.is_none() => {
                report(if dry_run { Ok(()) } else { write(&path) }, &path, &format!("{would}turned on in"))
            }
            (None, None) => StoreOutcome::Left("there is no home directory to write config.toml to".to_owned()),
            _ => StoreOutcome::Left(by_hand(loaded, "true")),
        },
        (true, true) => match loaded.path.as_deref().filter(|path| is_ours(path)) {
            Some(path) => {
                let done = if dry_run { Ok(()) } else { remove(path) };
                report(done, path, &format!("{would}turned off by removing"))
            }
            None => StoreOutcome::Left(by_hand(loaded, "false")),
        },
    }
}

fn report(done: io::Result<()>, path: &Path, text: &str) -> StoreOutcome {
    match done {
        Ok(()) => StoreOutcome::Settled(format!("{text} {}", path.display())),
        Err(error) => StoreOutcome::Left(format!("{}: {error}", path.display())),
    }
}

/// Returns what the user has to change.
fn by_hand(loaded: &Loaded, value: &str) -> String {
    let file = loaded.path.as_deref().unwrap_or(Path::new("config.toml"));
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    match loaded.origins.of(KEY) {
        Some(ValueSource::File { line, .. }) => {
            format!("in line {line} of {}, write intercept = {value}", file.display())
        }
        Some(ValueSource::Env(name)) => format!("the variable {name} decides; set it to {value}"),
        Some(ValueSource::Flag(flag)) => format!("the flag {flag} decides; leave it out"),
        Some(ValueSource::Request) | None => {
            format!("in section [tls] of {}, write intercept = {value}", file.display())
        }
    }
}

fn is_ours(path: &Path) -> bool {
    fs::read_to_string(path).is_ok_and(|text| text == TEXT)
}

fn write(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    // `create_new` checks and creates in one step, so that no file that appears in between is overwritten.
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(TEXT.as_bytes())
}

fn remove(path: &Path) -> io::Result<()> {
    fs::remove_file(path)?;
    // The folder stays if it has other files.
    let _ = path.parent().map(fs::remove_dir);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FileChoice, Sources};

    /// What happens with this configuration file, if there is one, in an empty home directory.
    fn settled(home: &Path, file: Option<&str>, undo: bool) -> StoreOutcome {
        let env = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        let path = home.join("own.toml");
        let choice = match file {
            Some(text) => {
                fs::write(&path, text).unwrap();
                FileChoice::Path(path)
            }
            None => match config::user_file(&env).filter(|path| path.exists()) {
                Some(path) => FileChoice::Path(path),
                None => FileChoice::Nothing,
            },
        };
        let loaded = config::load(&Sources { file: choice, ..Sources::default() }).unwrap();
        settle(&loaded, &env, undo, false)
    }

    #[test]
    fn without_a_file_one_is_written_and_removed_again() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(".config/curtsy/config.toml");
        let on = settled(home.path(), None, false);
        assert_eq!(on, StoreOutcome::Settled(format!("turned on in {}", path.display())));
        let again = settled(home.path(), None, false);
        assert!(matches!(again, StoreOutcome::Settled(text) if text.starts_with("already on")));
        assert!(matches!(settled(home.path(), None, true), StoreOutcome::Settled(_)));
        assert!(!path.parent().unwrap().exists());
        assert_eq!(settled(home.path(), None, true), StoreOutcome::Settled("off".to_owned()));
        settled(home.path(), None, false);
        fs::write(&path, format!("{TEXT}# and a word of mine\n")).unwrap();
        assert!(matches!(settled(home.path(), None, true), StoreOutcome::Left(text) if text.contains("in line 5 of")));
        assert!(path.exists());
    }

    #[test]
    fn a_file_that_a_person_wrote_is_only_talked_about() {
        let home = tempfile::tempdir().unwrap();
        let left = |text: &str, undo| match settled(home.path(), Some(text), undo) {
            StoreOutcome::Left(told) => told,
            settled => panic!("{settled:?}"),
        };
        assert!(left("workers = 1\n", false).contains("in section [tls] of "));
        let told = left("[tls]\nintercept = false\n", false);
        assert!(told.contains("in line 2 of ") && told.ends_with("intercept = true"), "{told}");
        assert!(left("[tls]\nintercept = true\n", true).ends_with("intercept = false"));
        assert_eq!(fs::read_to_string(home.path().join("own.toml")).unwrap(), "[tls]\nintercept = true\n");
    }
}
