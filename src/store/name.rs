//! Where state is kept, and the deployment's name, which is kept there as a line of text.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::config::StateDir;

/// Returns the directory that `state_dir` means, or none if nothing is to be kept.
pub fn directory(state_dir: &StateDir) -> Option<PathBuf> {
    match state_dir {
        StateDir::Memory => None,
        StateDir::Path(path) => Some(path.clone()),
        StateDir::Auto => Some(auto_directory(|name| std::env::var_os(name).map(PathBuf::from))),
    }
}

/// Prefers a service manager's choice, then the user's own directory, then the system's (XDG base directories).
fn auto_directory(variable: impl Fn(&str) -> Option<PathBuf>) -> PathBuf {
    let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
    absolute("STATE_DIRECTORY")
        .or_else(|| absolute("XDG_STATE_HOME").map(|home| home.join("curtsy")))
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state/curtsy")))
        .unwrap_or_else(|| PathBuf::from("/var/lib/curtsy"))
}

/// Returns `curtsy-` and six hex digits, created once and kept: other proxies distinguish deployments by this name.
pub fn deployment_name(directory: &Path) -> io::Result<String> {
    let path = directory.join("name");
    match fs::read_to_string(&path) {
        Ok(name) if is_name(name.trim()) => return Ok(name.trim().to_owned()),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        Err(error) => return Err(error),
    }
    let name = new_name();
    fs::write(&path, format!("{name}\n"))?;
    Ok(name)
}

pub fn new_name() -> String {
    format!("curtsy-{:06x}", fastrand::u32(..1 << 24))
}

fn is_name(text: &str) -> bool {
    text.strip_prefix("curtsy-").is_some_and(|rest| rest.len() == 6 && rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("deep/state");
        let name = deployment_name(&state).unwrap();
        assert!(is_name(&name), "{name}");
        assert_eq!(deployment_name(&state).unwrap(), name);
        fs::write(state.join("name"), "garbage\r\nX: y").unwrap();
        assert!(is_name(&deployment_name(&state).unwrap()));
    }

    #[test]
    fn the_users_own_place_comes_before_the_systems() {
        let given = |set: &[(&str, &str)]| {
            let set: Vec<_> = set.iter().map(|(name, path)| ((*name).to_owned(), PathBuf::from(path))).collect();
            auto_directory(move |name| set.iter().find(|(set, _)| set == name).map(|(_, path)| path.clone()))
        };
        assert_eq!(given(&[]), PathBuf::from("/var/lib/curtsy"));
        assert_eq!(given(&[("HOME", "/h")]), PathBuf::from("/h/.local/state/curtsy"));
        assert_eq!(given(&[("HOME", "/h"), ("XDG_STATE_HOME", "/x")]), PathBuf::from("/x/curtsy"));
        assert_eq!(given(&[("HOME", "/h"), ("STATE_DIRECTORY", "/s")]), PathBuf::from("/s"));
        assert_eq!(given(&[("HOME", "relative")]), PathBuf::from("/var/lib/curtsy"));
    }
}
