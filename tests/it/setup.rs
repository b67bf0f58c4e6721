//! `curtsy setup` with the real certutil, in a home directory of its own. The stores of the machine itself are not
//! touched: the tests name the parts that are in the home directory.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::program::curtsy;

const IN_HOME: &str = "chromium,firefox,variables,intercept";

struct Home {
    folder: TempDir,
}

/// What a command printed, and its exit code.
struct Told {
    out: String,
    err: String,
    code: Option<i32>,
}

impl Home {
    /// A home directory with a profile of Firefox and the database of Chromium.
    fn new() -> Self {
        let home = Home { folder: tempfile::tempdir().expect("a writable temporary directory") };
        for place in [".pki/nssdb", ".mozilla/firefox/a.default"] {
            let folder = home.path(place);
            fs::create_dir_all(&folder).expect("room for a folder");
            certutil(&folder, &["-N", "--empty-password"]);
        }
        home
    }

    fn path(&self, place: &str) -> PathBuf {
        self.folder.path().join(place)
    }

    fn curtsy(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Told {
        let mut command = curtsy();
        command.env("HOME", self.folder.path()).current_dir(self.folder.path()).args(arguments);
        for name in ["XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "STATE_DIRECTORY", "SUDO_UID", "SUDO_USER"] {
            command.env_remove(name);
        }
        let output = command.envs(variables.iter().copied()).output().expect("the built program starts");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Told { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
    }

    fn setup(&self, arguments: &[&str]) -> Told {
        self.curtsy(&[&["setup", "--only", IN_HOME], arguments].concat(), &[])
    }

    /// The names of CAs in both browsers, which must be the same.
    fn trusted(&self) -> BTreeSet<String> {
        let names = |place: &str| -> BTreeSet<String> {
            let list = certutil(&self.path(place), &["-L"]);
            let first = list.lines().filter_map(|line| line.split_whitespace().next());
            first.filter(|name| name.starts_with("curtsy")).map(str::to_owned).collect()
        };
        let (chromium, firefox) = (names(".pki/nssdb"), names(".mozilla/firefox/a.default"));
        assert_eq!(chromium, firefox);
        chromium
    }

    /// All files and folders.
    fn content(&self) -> BTreeSet<PathBuf> {
        fn look(folder: &Path, found: &mut BTreeSet<PathBuf>) {
            for entry in fs::read_dir(folder).expect("a folder").flatten() {
                found.insert(entry.path());
                if entry.path().is_dir() {
                    look(&entry.path(), found);
                }
            }
        }
        let mut found = BTreeSet::new();
        look(self.folder.path(), &mut found);
        found
    }
}

fn certutil(folder: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("certutil");
    command.args(arguments).arg("-d").arg(format!("sql:{}", folder.display()));
    let output = command.output().unwrap_or_else(|error| panic!("certutil (libnss3-tools) is not installed: {error}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Whether the line of this part begins with the text.
fn says(told: &Told, part: &str, text: &str) -> bool {
    told.out.lines().any(|line| line.starts_with(part) && line[part.len()..].trim_start().starts_with(text))
}

/// A second run changes nothing, and `--undo` leaves only the CA, which is used by nothing.
#[test]
fn setup_works_once_and_undo_removes_everything() {
    let home = Home::new();
    let before = home.content();
    let told = home.setup(&["--dry-run"]);
    assert_eq!((told.code, home.content()), (Some(0), before.clone()), "{}{}", told.out, told.err);
    assert!(says(&told, "chromium", "would be trusted in "), "{}", told.out);

    let told = home.setup(&[]);
    assert_eq!(told.code, Some(0), "{}{}", told.out, told.err);
    for (part, text) in [("CA", "made in "), ("firefox", "trusted in "), ("intercept", "turned on in ")] {
        assert!(says(&told, part, text), "{part}:\n{}", told.out);
    }
    assert!(told.out.contains("eval \"$(curtsy env)\""), "{}", told.out);
    assert_eq!(home.trusted().len(), 1);
    let shown = home.curtsy(&["config", "show"], &[]).out;
    assert!(shown.lines().any(|line| line.starts_with("intercept = true")), "{shown}");
    assert!(home.path(".local/state/curtsy/trust/bundle.pem").exists());

    let (names, told) = (home.trusted(), home.setup(&[]));
    for (part, text) in [("CA", "already "), ("chromium", "already trusted"), ("intercept", "already on ")] {
        assert!(says(&told, part, text), "{part}:\n{}", told.out);
    }
    assert_eq!(home.trusted(), names);

    let told = home.setup(&["--undo"]);
    assert!(told.code == Some(0) && says(&told, "firefox", "removed from "), "{}{}", told.out, told.err);
    assert_eq!(home.trusted(), BTreeSet::new());
    let left: Vec<PathBuf> = home.content().difference(&before).cloned().collect();
    let known = [".config", ".local", ".local/state", ".local/state/curtsy"].map(|name| home.path(name));
    let kept = ["ca.key", "ca.pem", "trusted-cas"].map(|name| home.path(".local/state/curtsy").join(name));
    assert_eq!(left, known.into_iter().chain(kept).collect::<Vec<_>>());
}

/// A rotated CA leaves the stores, a deleted one is found by its record, and another curtsy's stays until `--all`.
#[test]
fn old_and_lost_cas_are_found_again() {
    let home = Home::new();
    home.setup(&[]);
    let first = home.trusted();
    assert_eq!(home.curtsy(&["ca", "rotate"], &[]).code, Some(0));
    home.setup(&[]);
    assert!(home.trusted().len() == 2 && home.trusted().is_superset(&first), "the next one is trusted before it signs");
    home.curtsy(&["ca", "rotate", "--now"], &[]);
    let told = home.setup(&[]);
    assert!(told.out.contains("; the old one removed"), "{}", told.out);
    assert!(home.trusted().len() == 1 && home.trusted().is_disjoint(&first), "{:?}", home.trusted());

    let own = home.trusted();
    home.curtsy(&["setup", "--only", "chromium,firefox", "--state-dir", "other"], &[]);
    let others: BTreeSet<String> = home.trusted().difference(&own).cloned().collect();
    assert_eq!(others.len(), 1);
    for name in ["ca.pem", "ca.key"] {
        fs::remove_file(home.path(".local/state/curtsy").join(name)).expect("there was a CA");
    }
    let told = home.setup(&["--undo"]);
    assert!(told.code == Some(0) && says(&told, "CA", "none in "), "{}{}", told.out, told.err);
    assert_eq!(home.trusted(), others);
    assert_eq!(home.setup(&["--undo", "--all"]).code, Some(0));
    assert_eq!(home.trusted(), BTreeSet::new());
}

/// Each thing that stands in the way is named, with what to do about it, and the exit code is 1.
#[test]
fn what_cannot_be_done_is_explained() {
    let home = Home::new();
    let told = home.curtsy(&["setup", "--only", IN_HOME], &[("CURTSY_STATE_DIR", "memory")]);
    assert!(told.code == Some(1) && told.err.contains("curtsy exec --intercept"), "{}", told.err);

    let told = home.setup(&["--state-dir", "/dev/null/x"]);
    assert!(told.code == Some(1) && told.err.contains("/dev/null/x/ca.pem of the CA: "), "{}", told.err);

    let told = home.curtsy(&["setup", "--only", "firefox"], &[("PATH", "/nowhere")]);
    assert!(
        told.code == Some(1) && says(&told, "firefox", "not done: needs certutil: apt-get install"),
        "{}",
        told.out
    );

    fs::write(home.path("curtsy.toml"), "workers = 1\n\n[tls]\nintercept = false # mine\n").expect("room for a file");
    let told = home.curtsy(&["setup", "--only", "intercept"], &[]);
    assert!(told.code == Some(1) && told.out.contains("not done: in line 4 of "), "{}", told.out);
    assert!(fs::read_to_string(home.path("curtsy.toml")).expect("it is there").ends_with("# mine\n"));
}

/// Browsers read no CA from their environment, so `exec` uses the CA that they trust already.
#[test]
fn exec_uses_the_ca_that_browsers_trust() {
    let home = Home::new();
    let shown = |home: &Home| {
        let variables = [("CURTSY_ADMIN", "off")];
        let told = home.curtsy(&["exec", "--own", "--", "sh", "-c", "cat \"$NODE_EXTRA_CA_CERTS\""], &variables);
        assert_eq!(told.code, Some(0), "{}{}", told.out, told.err);
        told
    };
    let before = shown(&home);
    assert!(before.err.contains("a CA that only this command trusts"), "{}", before.err);
    assert_eq!(home.setup(&[]).code, Some(0));
    let after = shown(&home);
    let own = fs::read_to_string(home.path(".local/state/curtsy/ca.pem")).expect("the CA of this machine");
    assert!(after.out.contains(own.trim()) && !before.out.contains(own.trim()), "{}", after.out);
    assert!(after.err.contains("decrypted with the CA of `curtsy setup`"), "{}", after.err);
}
