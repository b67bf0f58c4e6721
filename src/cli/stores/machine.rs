//! Where the stores of this machine and of this user are, and the programs that change them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

/// What the search for stores depends on. Tests use another root and another home.
#[derive(Clone, Debug)]
pub(in crate::cli) struct Machine {
    /// The root of the file system.
    pub(super) root: PathBuf,
    pub(super) home: Option<PathBuf>,
    pub(super) java_home: Option<PathBuf>,
    pub(super) data_home: Option<PathBuf>,
    /// The folders with programs.
    pub(super) path: Vec<PathBuf>,
    pub(super) uid: u32,
    /// The user who became root with sudo.
    pub(in crate::cli) sudo_user: Option<String>,
}

/// Searched after the user's own path, which often lacks them after `su`.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

impl Machine {
    pub(in crate::cli) fn of(env: &BTreeMap<String, String>) -> Self {
        let folder = |name: &str| env.get(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let path = std::env::split_paths(env.get("PATH").map_or("", String::as_str)).filter(|path| path.is_absolute());
        let uid = geteuid().as_raw();
        Machine {
            root: PathBuf::from("/"),
            home: folder("HOME"),
            java_home: folder("JAVA_HOME"),
            data_home: folder("XDG_DATA_HOME"),
            path: path.chain(SYSTEM_PROGRAMS.map(PathBuf::from)).collect(),
            uid,
            sudo_user: if uid == 0 { sudo_user(env) } else { None },
        }
    }

    pub(in crate::cli) fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Returns why stores in the home directory must not be touched.
    pub(in crate::cli) fn foreign_home(&self) -> Option<String> {
        if let Some(user) = &self.sudo_user {
            return Some(format!("belongs to {user}: run `curtsy setup` without sudo"));
        }
        let home = self.home.as_ref()?;
        let owner = fs::metadata(home).ok()?.uid();
        (owner != self.uid).then(|| format!("{} belongs to another user (uid {owner})", home.display()))
    }

    /// Returns an absolute path below the root.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(super) fn in_home(&self, path: &str) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(path))
    }

    /// Returns the folders in this one, in the order of their names.
    pub(super) fn folders_in(folder: &Path) -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut folders: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
        folders.sort();
        folders
    }

    /// Returns the program with this name.
    pub(super) fn program(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        let runnable = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        self.path.iter().map(|folder| folder.join(name.as_ref())).find(runnable)
    }
}

/// Returns the user who ran sudo. Root may do so, too, and stays root.
fn sudo_user(env: &BTreeMap<String, String>) -> Option<String> {
    let other = env.get("SUDO_UID").is_some_and(|uid| uid != "0");
    other.then(|| env.get("SUDO_USER").cloned().unwrap_or_else(|| "another user".to_owned()))
}

#[cfg(test)]
impl Machine {
    /// A machine without any program, whose root and home are in this folder.
    pub(super) fn bare(folder: &Path) -> Self {
        let (root, home) = (folder.join("root"), folder.join("home"));
        fs::create_dir_all(&root).unwrap();
        fs::create_dir_all(&home).unwrap();
        let env = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        Machine { root, path: vec![folder.join("bin")], ..Machine::of(&env) }
    }

    /// Adds a program that runs this shell script.
    pub(super) fn with(self, name: &str, script: &str) -> Self {
        fs::create_dir_all(&self.path[0]).unwrap();
        // Another process writes it: a file that this one has open cannot be run, and a child that another test starts
        // meanwhile would have it open, too.
        let write = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let mut command = std::process::Command::new("sh");
        command.args(["-c", write, "sh"]).arg(self.path[0].join(name)).arg(script);
        assert!(command.status().unwrap().success());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_path_if_they_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path()).with("certutil", "");
        assert_eq!(machine.program("certutil"), Some(folder.path().join("bin/certutil")));
        fs::write(folder.path().join("bin/keytool"), "").unwrap();
        assert_eq!(machine.program("keytool"), None, "it cannot be run");
    }

    #[test]
    fn sudo_is_known_by_its_variables() {
        let env = |uid: &str| {
            BTreeMap::from([("SUDO_UID", uid), ("SUDO_USER", "ada")].map(|(k, v)| (k.to_owned(), v.to_owned())))
        };
        assert_eq!(sudo_user(&env("1000")).as_deref(), Some("ada"));
        assert_eq!((sudo_user(&env("0")), sudo_user(&BTreeMap::new())), (None, None));
    }

    #[test]
    fn the_home_of_another_user_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path());
        assert_eq!(machine.foreign_home(), None);
        let by_sudo = Machine { sudo_user: Some("ada".to_owned()), ..machine.clone() };
        assert!(by_sudo.foreign_home().unwrap().contains("ada"));
        let other = Machine { uid: machine.uid + 1, ..machine };
        assert!(other.foreign_home().unwrap().contains("another user"));
    }
}
