//! Warns about files with secrets that every user of this machine may read. curtsy uses the files anyway.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::load::Draft;
use super::problems::{ConfigProblem, FilePosition};

/// Returns the warnings about the files that settings name. CA keys are not among them: curtsy does not start with an
/// exposed CA key.
pub(super) fn files(draft: &Draft<'_>) -> Vec<ConfigProblem> {
    let (access, tls) = (&draft.config.access, &draft.config.tls);
    let named = [("access.users_file", &access.users_file), ("tls.listen_key", &tls.listen_key)];
    let told = |(key, path): (&str, &Option<_>)| warning(path.as_deref()?, key, draft.origins.place(key).cloned());
    named.into_iter().filter_map(told).collect()
}

/// Returns the warning about one file, or `None` if other users cannot read it. A missing file gives no warning here:
/// the code that reads the file reports it.
pub(super) fn warning(path: &Path, what: &str, place: Option<FilePosition>) -> Option<ConfigProblem> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o7777;
    let path = path.display();
    // The log shows only the message, so the advice is part of it.
    let message = format!("any user on this machine can read {what} {path} (mode {mode:04o}): chmod 600 {path}");
    (mode & EVERYBODY != 0).then(|| ConfigProblem::warning(message, "", place))
}

const EVERYBODY: u32 = 0o004;

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;
    use crate::config::{FileChoice, Sources, load};

    /// X59
    #[test]
    fn a_file_that_everybody_can_read_is_told_with_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let [config, users, token] = ["curtsy.toml", "users", "token"].map(|name| directory.path().join(name));
        fs::write(&config, format!("access.users_file = '{}'", users.display())).unwrap();
        let env = [("CURTSY_METRICS__TOKEN_FILE".to_owned(), token.display().to_string())].into();
        let sources = Sources { file: FileChoice::Path(config), env, ..Sources::default() };
        for path in [&users, &token] {
            fs::write(path, "hunter2").unwrap();
        }
        for (mode, expected) in [(0o600, 0), (0o640, 0), (0o644, 2), (0o604, 2)] {
            for path in [&users, &token] {
                fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            }
            let warnings = load(&sources).unwrap().warnings;
            assert_eq!(warnings.len(), expected, "{mode:o}");
            for warning in warnings {
                assert!(warning.message.contains(&format!("(mode {mode:04o}): chmod 600 ")), "{}", warning.message);
                assert!(!warning.message.contains("hunter2"));
            }
        }
    }
}
