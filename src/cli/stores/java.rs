//! The trust stores of the Java installations on this machine (`cacerts`).
//!
//! Several installations often share one store. On Debian and Fedora it follows the system's store, so it may have our
//! CA already, under a name that the system chose.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::machine::Machine;
use super::{CaStore, FoundStores, NamedCa, StoreEntry, name_of, run};

/// Folders with installations: of packages, and of tools that install several versions.
const FOLDERS: [&str; 4] = ["/usr/lib/jvm", "/usr/lib64/jvm", "/usr/java", "/opt/java"];
const FOLDERS_IN_HOME: [&str; 2] = [".sdkman/candidates/java", ".jdks"];
/// Where an installation has its store; the second one is Java 8's.
const STORES: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];
/// The password of every store that has not been changed.
const PASSWORD: &str = "changeit";

struct JavaStore {
    path: PathBuf,
    keytool: PathBuf,
    is_root: bool,
}

pub(super) fn find(machine: &Machine) -> FoundStores<'static> {
    let homes = homes(machine);
    let stores = homes.iter().flat_map(|home| STORES.map(|store| home.join(store)));
    // The same file by several names is one store.
    let paths: BTreeSet<PathBuf> = stores.filter_map(|path| fs::canonicalize(path).ok()).collect();
    if paths.is_empty() {
        return FoundStores::Absent("not installed".to_owned());
    }
    let own = homes.iter().map(|home| home.join("bin/keytool")).find(|keytool| keytool.is_file());
    let Some(keytool) = machine.program("keytool").or(own) else {
        let why = "needs keytool, which comes with Java; or let `curtsy env --java` name a store for each shell";
        return FoundStores::Unusable(why.to_owned());
    };
    let is_root = machine.is_root();
    let store = |path| Box::new(JavaStore { path, keytool: keytool.clone(), is_root }) as Box<dyn CaStore>;
    FoundStores::Stores(paths.into_iter().map(store).collect())
}

/// Returns the folders of all installations.
fn homes(machine: &Machine) -> Vec<PathBuf> {
    let on_path = machine.program("java").and_then(|java| fs::canonicalize(java).ok());
    let on_path = on_path.as_deref().and_then(Path::parent).and_then(Path::parent).map(Path::to_owned);
    let own = FOLDERS_IN_HOME.iter().filter_map(|folder| machine.in_home(folder));
    // As root, Java in another user's home directory is not ours to change.
    let own = own.filter(|_| machine.foreign_home().is_none());
    let folders = FOLDERS.iter().map(|folder| machine.at(folder)).chain(own);
    let found = folders.flat_map(|folder| Machine::folders_in(&folder));
    machine.java_home.iter().cloned().chain(on_path).chain(found).collect()
}

impl JavaStore {
    fn keytool(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let path = self.path.display().to_string();
        let all = [arguments, &["-keystore", &path, "-storepass", PASSWORD]].concat();
        run(&self.keytool, &all, input).map_err(|why| self.advice(why))
    }

    fn advice(&self, why: String) -> String {
        if why.contains("password was incorrect") {
            let path = self.path.display();
            return format!(
                "its password is not {PASSWORD}; with the file of `curtsy ca export`: keytool -importcert -alias curtsy \
                 -file ca.pem -keystore {path} (and -delete -alias curtsy to undo it)"
            );
        }
        why
    }
}

impl CaStore for JavaStore {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn needs_root(&self) -> bool {
        let opened = OpenOptions::new().append(true).open(&self.path);
        !self.is_root && opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    fn entries(&self) -> Result<Vec<StoreEntry>, String> {
        self.keytool(&["-list"], "").map(|list| listed(&list))
    }

    fn change(&self, remove: &[StoreEntry], add: &[NamedCa]) -> Result<(), String> {
        for entry in remove {
            self.keytool(&["-delete", "-alias", &entry.alias], "")?;
        }
        add.iter().try_for_each(|ca| self.keytool(&["-importcert", "-noprompt", "-alias", &ca.name], &ca.pem).map(drop))
    }
}

/// Reads a list of keytool: a line that begins with the alias, then a line with the fingerprint.
fn listed(list: &str) -> Vec<StoreEntry> {
    let lines: Vec<&str> = list.lines().collect();
    let pairs = lines.windows(2).filter_map(|pair| {
        let (alias, _) = pair[0].split_once(", ")?;
        let (_, fingerprint) = pair[1].split_once("(SHA-256): ")?;
        Some(StoreEntry { name: name_of(fingerprint), alias: alias.to_owned() })
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "Keystore type: JKS\nKeystore provider: SUN\n\nYour keystore contains 2 entries\n\n\
        debian:curtsy-ca-dda7.pem, Nov 18, 2026, trustedCertEntry, \n\
        Certificate fingerprint (SHA-256): DD:A7:8B:3F:4E:C6:7B:D0:C9:99:93:C1:8D:E7:B4:7A:02:CD\n\
        curtsy-ca-0011, Nov 18, 2026, trustedCertEntry, \n\
        Certificate fingerprint (SHA-256): 00:11:8B:3F:4E:C6:7B:D0:C9:99:93:C1:8D:E7:B4:7A:02:CD\n";

    #[test]
    fn a_list_is_read_as_keytool_prints_it() {
        let entry = |name: &str, alias: &str| StoreEntry { name: name.to_owned(), alias: alias.to_owned() };
        let expected = [
            entry("curtsy-ca-dda78b3f4ec67bd0", "debian:curtsy-ca-dda7.pem"),
            entry("curtsy-ca-00118b3f4ec67bd0", "curtsy-ca-0011"),
        ];
        assert_eq!(listed(LIST), expected);
        assert!(expected.iter().all(StoreEntry::is_ours) && !entry("", "debian:curt.pem").is_ours());
    }

    /// Makes an installation and returns its store.
    fn install(machine: &Machine, name: &str, store: &str) -> PathBuf {
        let path = machine.at("/usr/lib/jvm").join(name).join(store);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        path
    }

    #[test]
    fn a_store_that_installations_share_is_one() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path());
        assert!(matches!(find(&machine), FoundStores::Absent(_)));
        let first = install(&machine, "17", STORES[0]);
        install(&machine, "8", STORES[1]);
        let shared = machine.at("/usr/lib/jvm/21/lib/security");
        fs::create_dir_all(&shared).unwrap();
        std::os::unix::fs::symlink(&first, shared.join("cacerts")).unwrap();
        let FoundStores::Unusable(why) = find(&machine) else { panic!("there is no keytool") };
        assert!(why.contains("keytool"), "{why}");
        let FoundStores::Stores(stores) = find(&machine.with("keytool", "")) else { panic!("there are stores") };
        assert_eq!(stores.len(), 2);
    }

    #[test]
    fn entries_are_changed_by_their_aliases() {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo $* >> {0:?}/ran; cat >> {0:?}/ran", folder.path());
        let machine = Machine::bare(folder.path()).with("keytool", &script);
        let path = install(&machine, "17", STORES[0]);
        let FoundStores::Stores(stores) = find(&machine) else { panic!("there is a store") };
        let old = StoreEntry { name: "curtsy-ca-1".to_owned(), alias: "debian:curtsy-ca-1.pem".to_owned() };
        stores[0].change(&[old], &[NamedCa { name: "curtsy-ca-2".to_owned(), pem: "PEM\n".to_owned() }]).unwrap();
        let rest = format!("-keystore {} -storepass changeit", path.display());
        let delete = format!("-delete -alias debian:curtsy-ca-1.pem {rest}\n");
        let import = format!("-importcert -noprompt -alias curtsy-ca-2 {rest}\nPEM\n");
        assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), delete + &import);
    }

    #[test]
    fn a_changed_password_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let says = "echo keytool error: java.io.IOException: Keystore was tampered with, or password was incorrect";
        let machine = Machine::bare(folder.path()).with("keytool", &format!("{says}; exit 1"));
        let path = install(&machine, "17", STORES[0]);
        let FoundStores::Stores(stores) = find(&machine) else { panic!("there is a store") };
        let why = stores[0].entries().unwrap_err();
        assert!(why.contains("is not changeit") && why.contains(&format!("-keystore {} ", path.display())), "{why}");
    }
}
