//! The certificate databases of browsers (NSS): one that all Chromium browsers share, and one in each profile of
//! Firefox.
//!
//! Firefox reads the database when it starts, Chromium too.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::machine::Machine;
use super::{CaStore, FoundStores, NamedCa, OURS, StoreEntry, run};

/// Programs that use the shared database.
pub(in crate::cli) const CHROMIUMS: [&str; 8] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "brave-browser",
    "microsoft-edge",
    "vivaldi",
];
/// The database of Chromium in the home directory, and of its snap.
const SHARED: [&str; 2] = [".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
/// Folders with profiles of Firefox: its own, that of newer versions, of its snap and of its flatpak.
const PROFILES: [&str; 4] = [
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];
const FIREFOXES: [&str; 2] = ["firefox", "firefox-esr"];
/// The file that makes a folder a database.
const DATABASE: &str = "cert9.db";
/// Trusted to sign certificates of servers, and for nothing else.
const TRUSTED: &str = "C,,";
/// certutil asks for a password on the terminal unless it gets a file. An empty one fits databases without a password.
const NO_PASSWORD: [&str; 2] = ["-f", "/dev/null"];
const INSTALL: &str = "needs certutil: apt-get install libnss3-tools, dnf install nss-tools or pacman -S nss; \
                       then run it again";

struct NssDatabase {
    folder: PathBuf,
    certutil: PathBuf,
}

pub(super) fn chromium(machine: &Machine) -> FoundStores<'static> {
    let has_database = |folder: &PathBuf| folder.join(DATABASE).is_file();
    let data = machine.data_home.clone().or_else(|| machine.in_home(".local/share"));
    let places = SHARED.iter().filter_map(|place| machine.in_home(place));
    let places = places.chain(data.map(|data| data.join("pki/nssdb")));
    let mut folders: Vec<PathBuf> = places.filter(has_database).collect();
    // A Chromium that has never run has no database yet, and uses one that it finds in the first place.
    if folders.is_empty() && CHROMIUMS.iter().any(|name| machine.program(name).is_some()) {
        folders.extend(machine.in_home(SHARED[0]));
    }
    found(machine, folders, "not installed")
}

pub(super) fn firefox(machine: &Machine) -> FoundStores<'static> {
    let folders = PROFILES.iter().filter_map(|place| machine.in_home(place));
    let profiles = folders.flat_map(|folder| Machine::folders_in(&folder));
    let folders = profiles.filter(|folder| folder.join(DATABASE).is_file()).collect();
    let installed = FIREFOXES.iter().any(|name| machine.program(name).is_some());
    found(machine, folders, if installed { "it has no profile yet; start it once" } else { "not installed" })
}

fn found(machine: &Machine, folders: Vec<PathBuf>, absent: &str) -> FoundStores<'static> {
    if folders.is_empty() {
        return FoundStores::Absent(absent.to_owned());
    }
    if let Some(why) = machine.foreign_home() {
        return FoundStores::Absent(why);
    }
    let Some(certutil) = machine.program("certutil") else { return FoundStores::Unusable(INSTALL.to_owned()) };
    let database = |folder| Box::new(NssDatabase { folder, certutil: certutil.clone() }) as Box<dyn CaStore>;
    FoundStores::Stores(folders.into_iter().map(database).collect())
}

impl NssDatabase {
    fn certutil(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        let database = format!("sql:{}", self.folder.display());
        let all = [&["-d", &database], arguments, &NO_PASSWORD].concat();
        run(&self.certutil, &all, input).map_err(|why| self.advice(why))
    }

    fn advice(&self, why: String) -> String {
        if why.contains("SEC_ERROR_BAD_PASSWORD") {
            return "it has a primary password: import the file of `curtsy ca export` in the browser's settings, \
                    as an authority for websites"
                .to_owned();
        }
        why
    }

    fn create(&self) -> Result<(), String> {
        if self.folder.join(DATABASE).is_file() {
            return Ok(());
        }
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|error| format!("cannot be made: {error}"))?;
        let database = format!("sql:{}", self.folder.display());
        run(&self.certutil, &["-N", "-d", &database, "--empty-password"], "").map(drop)
    }

    fn add(&self, ca: &NamedCa) -> Result<(), String> {
        self.certutil(&["-A", "-a", "-t", TRUSTED, "-n", &ca.name], &ca.pem).map(drop).inspect_err(|_| {
            // A database with a password keeps the certificate, untrusted. Failing again changes nothing.
            let _ = self.certutil(&["-D", "-n", &ca.name], "");
        })
    }
}

impl CaStore for NssDatabase {
    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn entries(&self) -> Result<Vec<StoreEntry>, String> {
        if !self.folder.join(DATABASE).is_file() {
            return Ok(Vec::new());
        }
        let list = self.certutil(&["-L"], "")?;
        let aliases = trusted(&list).into_iter().filter(|alias| alias.starts_with(OURS));
        aliases.map(|alias| self.entry(&alias)).collect()
    }

    fn change(&self, remove: &[StoreEntry], add: &[NamedCa]) -> Result<(), String> {
        for entry in remove {
            self.certutil(&["-D", "-n", &entry.alias], "")?;
        }
        self.create()?;
        add.iter().try_for_each(|ca| self.add(ca))
    }
}

impl NssDatabase {
    fn entry(&self, alias: &str) -> Result<StoreEntry, String> {
        let pem = self.certutil(&["-L", "-a", "-n", alias], "")?;
        let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok();
        let name = certificate.as_ref().and_then(NamedCa::of).map(|ca| ca.name).unwrap_or_default();
        Ok(StoreEntry { name, alias: alias.to_owned() })
    }
}

/// Returns the names in a list of certutil that are trusted for servers. A name may have spaces; the last word of a
/// line is the trust.
fn trusted(list: &str) -> Vec<String> {
    let columns = list.lines().filter_map(|line| line.trim_end().rsplit_once(' '));
    let is_trusted = |trust: &str| trust.split(',').count() == 3 && trust.starts_with(['C', 'T']);
    columns.filter(|(_, trust)| is_trusted(trust)).map(|(name, _)| name.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_list_is_read_as_certutil_prints_it() {
        let list = "\nCertificate Nickname          Trust Attributes\n                 SSL,S/MIME,JAR/XPI\n\n\
                    curtsy-ca-0123456789abcdef                 C,,  \nmy own CA     CT,C,C\ncurtsy-ca-1   ,,   \n";
        assert_eq!(trusted(list), ["curtsy-ca-0123456789abcdef", "my own CA"], "one is not trusted");
    }

    fn make_profile(machine: &Machine, place: &str) {
        let folder = machine.in_home(place).unwrap();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(DATABASE), "").unwrap();
    }

    fn places(found: FoundStores<'_>) -> Vec<String> {
        match found {
            FoundStores::Stores(stores) => stores.iter().map(|store| store.place()).collect(),
            FoundStores::Absent(why) | FoundStores::Unusable(why) => vec![why],
        }
    }

    #[test]
    fn browsers_are_known_by_their_databases() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path());
        assert_eq!(places(chromium(&machine)), ["not installed"]);
        assert_eq!(places(firefox(&machine)), ["not installed"]);
        make_profile(&machine, ".mozilla/firefox/a.default");
        fs::create_dir_all(machine.in_home(".mozilla/firefox/Crash Reports").unwrap()).unwrap();
        make_profile(&machine, "snap/firefox/common/.mozilla/firefox/b");
        assert!(places(firefox(&machine))[0].contains("apt-get install libnss3-tools"));
        let machine = machine.with("certutil", "").with("chromium", "");
        let at = |place: &str| machine.in_home(place).unwrap().display().to_string();
        let profiles = [".mozilla/firefox/a.default", "snap/firefox/common/.mozilla/firefox/b"].map(at);
        assert_eq!(places(firefox(&machine)), profiles);
        assert_eq!(places(chromium(&machine)), [at(".pki/nssdb")], "it has not run yet");
        make_profile(&machine, ".local/share/pki/nssdb");
        assert_eq!(places(chromium(&machine)), [at(".local/share/pki/nssdb")]);
    }

    #[test]
    fn stores_in_the_home_of_another_user_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path()).with("certutil", "");
        make_profile(&machine, ".pki/nssdb");
        let other = Machine { uid: machine.uid + 1, ..machine };
        assert!(places(chromium(&other))[0].contains("another user"));
    }

    #[test]
    fn a_database_with_a_password_is_explained() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path()).with("certutil", "echo SEC_ERROR_BAD_PASSWORD: no >&2; exit 255");
        make_profile(&machine, ".pki/nssdb");
        let FoundStores::Stores(stores) = chromium(&machine) else { panic!("a database") };
        assert!(stores[0].entries().unwrap_err().contains("primary password"));
    }
}
