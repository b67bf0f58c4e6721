//! The stores in which programs of this machine keep the CAs that they trust, and what is done there with ours.
//!
//! An entry in a store is named after the fingerprint of its CA, so it is found again without the CA's file. Entries of
//! other names are never changed, and neither is a store of another user.

mod java;
mod machine;
pub(super) mod nss;
pub(super) mod system;

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rustls::pki_types::CertificateDer;

use crate::tls;

pub(super) use self::machine::Machine;

/// The programs whose stores curtsy knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreKind {
    System,
    Chromium,
    Firefox,
    Java,
}

/// A CA of ours, with its name in every store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedCa {
    pub(super) name: String,
    pub(super) pem: String,
}

/// A CA that is in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StoreEntry {
    /// Made from its fingerprint, whatever the store calls it.
    name: String,
    /// What the store calls it.
    alias: String,
}

/// One place with trusted CAs.
trait CaStore {
    /// Where it is, for people.
    fn place(&self) -> String;

    /// Whether only root may change it, and this process is not root.
    fn needs_root(&self) -> bool {
        false
    }

    /// Returns the entries that may be ours.
    fn entries(&self) -> Result<Vec<StoreEntry>, String>;

    /// Removes and adds entries. An error says what to do about it.
    fn change(&self, remove: &[StoreEntry], add: &[NamedCa]) -> Result<(), String>;
}

/// What a search for the stores of one kind found.
enum FoundStores<'a> {
    Stores(Vec<Box<dyn CaStore + 'a>>),
    /// There are none, so nothing has to be done.
    Absent(String),
    /// There are some that cannot be read or changed, and what to do about it.
    Unusable(String),
}

/// Which CAs a store should have and which not.
#[derive(Clone, Debug, Default)]
pub(super) struct TrustGoal {
    pub(super) wanted: Vec<NamedCa>,
    /// The names of CAs that this curtsy has had.
    pub(super) known: BTreeSet<String>,
    /// Remove the CAs of every curtsy, not only the known ones.
    pub(super) every: bool,
    pub(super) dry_run: bool,
}

/// What happened, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoreOutcome {
    /// There is nothing left to do.
    Settled(String),
    /// Only root may change this place.
    NeedsRoot(String),
    /// It did not work, or the user has to do it; with what to do.
    Left(String),
}

impl fmt::Display for StoreOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreOutcome::Settled(text) => f.write_str(text),
            StoreOutcome::NeedsRoot(place) => write!(f, "needs root: {place}"),
            StoreOutcome::Left(text) => write!(f, "not done: {text}"),
        }
    }
}

/// Brings all stores of one kind to the goal. Returns one outcome for each store.
pub(super) fn settle(kind: StoreKind, machine: &Machine, goal: &TrustGoal) -> Vec<StoreOutcome> {
    let found = match kind {
        StoreKind::System => system::find(machine),
        StoreKind::Chromium => nss::chromium(machine),
        StoreKind::Firefox => nss::firefox(machine),
        StoreKind::Java => java::find(machine),
    };
    match found {
        FoundStores::Stores(stores) => stores.iter().map(|store| settle_one(store.as_ref(), goal)).collect(),
        FoundStores::Absent(why) => vec![StoreOutcome::Settled(format!("skipped: {why}"))],
        FoundStores::Unusable(why) => vec![StoreOutcome::Left(why)],
    }
}

fn settle_one(store: &dyn CaStore, goal: &TrustGoal) -> StoreOutcome {
    let place = store.place();
    let entries = match store.entries() {
        Ok(entries) => entries,
        Err(why) => return StoreOutcome::Left(format!("{place}: {why}")),
    };
    let is_wanted = |name: &str| goal.wanted.iter().any(|ca| ca.name == name);
    let remove: Vec<StoreEntry> = entries.iter().filter(|entry| goal.is_unwanted(entry, &is_wanted)).cloned().collect();
    let has = |name: &str| entries.iter().any(|entry| entry.name == name);
    let add: Vec<NamedCa> = goal.wanted.iter().filter(|ca| !has(&ca.name)).cloned().collect();
    let would = if goal.dry_run { "would be " } else { "" };
    let done = match (add.is_empty(), remove.is_empty()) {
        (true, true) if goal.wanted.is_empty() => return StoreOutcome::Settled(format!("not in {place}")),
        (true, true) => return StoreOutcome::Settled(format!("already trusted in {place}")),
        (true, false) if goal.wanted.is_empty() => format!("{would}removed from {place}"),
        (true, false) => format!("already trusted in {place}; the old one {would}removed"),
        (false, true) => format!("{would}trusted in {place}"),
        (false, false) => format!("{would}trusted in {place}; the old one {would}removed"),
    };
    if store.needs_root() {
        return StoreOutcome::NeedsRoot(place);
    }
    match if goal.dry_run { Ok(()) } else { store.change(&remove, &add) } {
        Ok(()) => StoreOutcome::Settled(done),
        Err(why) => StoreOutcome::Left(format!("{place}: {why}")),
    }
}

impl TrustGoal {
    fn is_unwanted(&self, entry: &StoreEntry, is_wanted: &dyn Fn(&str) -> bool) -> bool {
        entry.is_ours() && !is_wanted(&entry.name) && (self.every || self.known.contains(&entry.name))
    }
}

impl StoreEntry {
    /// Whether curtsy may remove it. Debian copies the system's CAs into Java's store under names of its own, and
    /// leaves them there when they leave the system's.
    fn is_ours(&self) -> bool {
        self.alias.strip_prefix("debian:").unwrap_or(&self.alias).starts_with(OURS)
    }
}

impl NamedCa {
    /// Returns `None` if this is not a certificate.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let fingerprint = tls::describe(certificate)?.fingerprint;
        Some(NamedCa { name: name_of(&fingerprint), pem: tls::pem(certificate) })
    }
}

/// What the names that curtsy gives begin with.
const PREFIX: &str = "curtsy-ca-";

/// What the names of entries begin with that curtsy may remove. Entries made by hand, as our documents said, have the
/// name "curtsy".
const OURS: &str = "curtsy";

/// How many hex digits of the fingerprint are in a name: 64 bits are never the same by accident.
const DIGITS: usize = 16;

/// Returns the name of the CA with this SHA-256 fingerprint, which may have colons.
fn name_of(fingerprint: &str) -> String {
    let digits: String = fingerprint.chars().filter(char::is_ascii_hexdigit).take(DIGITS).collect();
    format!("{PREFIX}{}", digits.to_ascii_lowercase())
}

/// Runs a program of the system and returns what it prints, or what it complains about.
fn run(program: &Path, arguments: &[&str], input: &str) -> Result<String, String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut command = Command::new(program);
    // Their messages are read here, so they must be in English; a JVM would report the variable.
    command.args(arguments).env("LC_ALL", "C").env_remove("JAVA_TOOL_OPTIONS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ran = command.spawn().and_then(|mut child| {
        // A program that ends without reading its input says why.
        let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input.as_bytes()));
        child.wait_with_output()
    });
    let output = ran.map_err(|error| format!("cannot run {name}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let complaint = [text(&output.stderr), text(&output.stdout)].into_iter().find(|text| !text.is_empty());
    Err(format!("{name} failed: {}", complaint.unwrap_or_else(|| output.status.to_string()).replace('\n', "; ")))
}
