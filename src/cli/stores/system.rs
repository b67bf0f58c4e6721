//! Adds our CA to the system's trusted CAs, and removes it again.
//!
//! Linux systems have a folder of CA files, and a command that builds the list for programs from it. Only files named
//! after our CA's fingerprint are ever written or removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::machine::Machine;
use super::{CaStore, FoundStores, NamedCa, PREFIX, StoreEntry, run};

/// How a family of systems manages its trusted CAs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Family {
    folder: &'static str,
    extension: &'static str,
    /// The command to run after a file was added.
    add: &'static [&'static str],
    /// The command to run after a file was removed.
    remove: &'static [&'static str],
}

/// Debian, Ubuntu and Alpine; Fedora and RHEL; openSUSE; Arch.
const FAMILIES: [Family; 4] = [
    Family {
        folder: "/usr/local/share/ca-certificates",
        extension: "crt",
        add: &["update-ca-certificates"],
        remove: &["update-ca-certificates", "--fresh"],
    },
    Family {
        folder: "/etc/pki/ca-trust/source/anchors",
        extension: "pem",
        add: &["update-ca-trust", "extract"],
        remove: &["update-ca-trust", "extract"],
    },
    Family {
        folder: "/etc/pki/trust/anchors",
        extension: "pem",
        add: &["update-ca-certificates"],
        remove: &["update-ca-certificates"],
    },
    Family {
        folder: "/etc/ca-certificates/trust-source/anchors",
        extension: "pem",
        add: &["trust", "extract-compat"],
        remove: &["trust", "extract-compat"],
    },
];

/// One action.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TrustStep {
    Write(PathBuf, String),
    Remove(PathBuf),
    Run(&'static [&'static str]),
}

struct SystemStore<'a> {
    family: Family,
    folder: PathBuf,
    machine: &'a Machine,
}

/// `curtsy ca trust`: makes the system trust these CAs. Returns what was done, step by step.
pub(in crate::cli) fn trust(machine: &Machine, cas: &[NamedCa], dry_run: bool) -> Result<String, String> {
    let store = SystemStore::find(machine).ok_or(UNKNOWN)?;
    store.carry_out(&store.steps(&[], cas), dry_run)
}

/// `curtsy ca untrust`: undoes it.
pub(in crate::cli) fn untrust(machine: &Machine, cas: &[NamedCa], dry_run: bool) -> Result<String, String> {
    let store = SystemStore::find(machine).ok_or(UNKNOWN)?;
    let mut ours = store.entries()?;
    ours.retain(|entry| cas.iter().any(|ca| ca.name == entry.name));
    if ours.is_empty() {
        return Ok(format!("This CA is not in {}.\n", store.folder.display()));
    }
    store.carry_out(&store.steps(&ours, &[]), dry_run)
}

pub(super) fn find(machine: &Machine) -> FoundStores<'_> {
    match SystemStore::find(machine) {
        Some(store) => FoundStores::Stores(vec![Box::new(store)]),
        None => FoundStores::Absent(UNKNOWN.to_owned()),
    }
}

const UNKNOWN: &str =
    "curtsy does not know where this system keeps its trusted CAs; add the file of `curtsy ca export` by hand";

impl<'a> SystemStore<'a> {
    fn find(machine: &'a Machine) -> Option<Self> {
        let stores = FAMILIES.map(|family| SystemStore { family, folder: machine.at(family.folder), machine });
        stores.into_iter().find(|store| store.folder.is_dir())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{}", self.family.extension))
    }

    fn steps(&self, remove: &[StoreEntry], add: &[NamedCa]) -> Vec<TrustStep> {
        let removals = remove.iter().map(|entry| TrustStep::Remove(self.file(&entry.alias)));
        let writes = add.iter().map(|ca| TrustStep::Write(self.file(&ca.name), ca.pem.clone()));
        let command = if remove.is_empty() { self.family.add } else { self.family.remove };
        removals.chain(writes).chain([TrustStep::Run(command)]).collect()
    }

    /// Performs the steps, unless `dry_run`, and returns a description of them. If one fails, removes the files that
    /// were written: the next update of the system would add them.
    fn carry_out(&self, steps: &[TrustStep], dry_run: bool) -> Result<String, String> {
        let mut told = String::new();
        for step in steps {
            if !dry_run {
                self.take(step).inspect_err(|_| take_back(steps))?;
            }
            let would = if dry_run { "would " } else { "" };
            told.push_str(&match step {
                TrustStep::Write(path, _) => format!("{would}write {}\n", path.display()),
                TrustStep::Remove(path) => format!("{would}remove {}\n", path.display()),
                TrustStep::Run(command) => format!("{would}run {}\n", command.join(" ")),
            });
        }
        Ok(told)
    }

    fn take(&self, step: &TrustStep) -> Result<(), String> {
        let denied = |path: &Path, error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                let path = path.display();
                format!("only root may change {path}: run it with sudo, and with --state-dir so that it finds this CA")
            }
            _ => format!("cannot change {}: {error}", path.display()),
        };
        match step {
            TrustStep::Write(path, text) => fs::write(path, text).map_err(|error| denied(path, error)),
            TrustStep::Remove(path) => fs::remove_file(path).map_err(|error| denied(path, error)),
            TrustStep::Run(command) => {
                let (name, arguments) = command.split_first().expect("a command has a name");
                let missing = || format!("there is no {name}; install the package ca-certificates");
                let program = self.machine.program(name).ok_or_else(missing)?;
                run(&program, arguments, "").map(drop)
            }
        }
    }
}

fn take_back(steps: &[TrustStep]) {
    for step in steps {
        if let TrustStep::Write(path, _) = step {
            // It may not have been written yet.
            let _ = fs::remove_file(path);
        }
    }
}

impl CaStore for SystemStore<'_> {
    fn place(&self) -> String {
        self.folder.display().to_string()
    }

    fn needs_root(&self) -> bool {
        !self.machine.is_root()
    }

    fn entries(&self) -> Result<Vec<StoreEntry>, String> {
        let list = fs::read_dir(&self.folder).map_err(|error| format!("cannot be read: {error}"))?;
        let names = list.flatten().filter_map(|entry| {
            let name = entry.file_name().to_str()?.strip_suffix(self.family.extension)?.strip_suffix('.')?.to_owned();
            name.starts_with(PREFIX).then_some(name)
        });
        Ok(names.map(|name| StoreEntry { alias: name.clone(), name }).collect())
    }

    fn change(&self, remove: &[StoreEntry], add: &[NamedCa]) -> Result<(), String> {
        self.carry_out(&self.steps(remove, add), false).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::stores::{StoreKind, StoreOutcome, TrustGoal, settle};
    use crate::tls::Ca;

    fn ca() -> NamedCa {
        NamedCa::of(Ca::make().certificate()).unwrap()
    }

    /// A Debian whose command writes down its arguments and then runs this script.
    fn debian(folder: &Path, script: &str) -> Machine {
        let machine = Machine::bare(folder);
        fs::create_dir_all(machine.at(FAMILIES[0].folder)).unwrap();
        let machine = machine.with("update-ca-certificates", &format!("echo ran $* >> {folder:?}/ran\n{script}"));
        Machine { uid: 0, ..machine }
    }

    fn files(machine: &Machine) -> Vec<String> {
        let list = fs::read_dir(machine.at(FAMILIES[0].folder)).unwrap();
        list.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_system_is_known_by_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::bare(folder.path());
        assert!(trust(&machine, &[], true).unwrap_err().contains("curtsy ca export"));
        for family in FAMILIES.into_iter().rev() {
            fs::create_dir_all(machine.at(family.folder)).unwrap();
            assert_eq!(SystemStore::find(&machine).unwrap().family, family);
        }
    }

    #[test]
    fn what_trust_does_untrust_undoes() {
        let folder = tempfile::tempdir().unwrap();
        let (machine, ours) = (debian(folder.path(), ""), [ca()]);
        fs::write(machine.at(FAMILIES[0].folder).join("other.crt"), "").unwrap();
        let dry = trust(&machine, &ours, true).unwrap();
        assert!(dry.starts_with("would write ") && dry.ends_with("would run update-ca-certificates\n"), "{dry}");
        assert_eq!(files(&machine), ["other.crt"], "nothing is done");
        trust(&machine, &ours, false).unwrap();
        let file = machine.at(FAMILIES[0].folder).join(format!("{}.crt", ours[0].name));
        assert_eq!(fs::read_to_string(file).unwrap(), ours[0].pem);
        assert!(untrust(&machine, &[ca()], false).unwrap().contains("is not in"), "another CA");
        untrust(&machine, &ours, false).unwrap();
        assert_eq!(files(&machine), ["other.crt"], "the other one stays");
        assert_eq!(fs::read_to_string(folder.path().join("ran")).unwrap(), "ran\nran --fresh\n");
    }

    #[test]
    fn a_failed_command_is_reported_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let machine = debian(folder.path(), "echo disk full >&2; exit 1");
        let why = trust(&machine, &[ca()], false).unwrap_err();
        assert_eq!(why, "update-ca-certificates failed: disk full");
        assert_eq!(files(&machine), [""; 0]);
        fs::remove_dir_all(folder.path().join("bin")).unwrap();
        assert!(trust(&machine, &[ca()], false).unwrap_err().contains("install the package ca-certificates"));
    }

    fn settled(machine: &Machine, goal: &TrustGoal) -> StoreOutcome {
        settle(StoreKind::System, machine, goal).remove(0)
    }

    #[test]
    fn the_goal_is_reached_once_and_an_old_ca_goes() {
        let folder = tempfile::tempdir().unwrap();
        let machine = debian(folder.path(), "");
        let (old, new, stranger) = (ca(), ca(), ca());
        trust(&machine, &[old.clone(), stranger.clone()], false).unwrap();
        let known = [old.name, new.name.clone()].into();
        let goal = TrustGoal { wanted: vec![new.clone()], known, ..TrustGoal::default() };
        let user = Machine { uid: 1000, ..machine.clone() };
        assert!(matches!(settled(&user, &goal), StoreOutcome::NeedsRoot(_)));
        let dry = settled(&machine, &TrustGoal { dry_run: true, ..goal.clone() });
        assert!(matches!(dry, StoreOutcome::Settled(text) if text.starts_with("would be trusted in ")));
        assert_eq!(files(&machine).len(), 2, "nothing is done");
        let StoreOutcome::Settled(text) = settled(&machine, &goal) else { panic!("it is done") };
        assert!(text.starts_with("trusted in ") && text.ends_with("; the old one removed"), "{text}");
        let again = settled(&machine, &goal);
        assert!(matches!(again, StoreOutcome::Settled(text) if text.starts_with("already trusted in ")));
        let undo = TrustGoal { wanted: Vec::new(), ..goal };
        assert!(matches!(settled(&machine, &undo), StoreOutcome::Settled(text) if text.starts_with("removed from ")));
        assert_eq!(files(&machine), [format!("{}.crt", stranger.name)], "the CA of another curtsy stays");
        assert!(matches!(settled(&machine, &undo), StoreOutcome::Settled(text) if text.starts_with("not in ")));
        settled(&machine, &TrustGoal { every: true, ..undo });
        assert_eq!(files(&machine), [""; 0]);
    }
}
