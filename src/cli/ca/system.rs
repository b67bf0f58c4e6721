//! Adds our CA to the system's trusted CAs, and removes it again.
//!
//! Linux systems have a folder of CA files, and a command that builds the list for programs from it. Only files named
//! after our CA's fingerprint are ever written or removed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustls::pki_types::CertificateDer;

use crate::tls;

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

/// Debian and Ubuntu; Fedora and RHEL; Arch.
const FAMILIES: [Family; 3] = [
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

pub(super) fn trust(certificates: &[CertificateDer<'static>], dry_run: bool) -> Result<String, String> {
    let (family, folder) = find(Path::new("/"))?;
    carry_out(&to_trust(family, &folder, certificates), dry_run)
}

pub(super) fn untrust(certificates: &[CertificateDer<'static>], dry_run: bool) -> Result<String, String> {
    let (family, folder) = find(Path::new("/"))?;
    let steps = to_untrust(family, &folder, certificates);
    if steps.is_empty() {
        return Ok(format!("This CA is not in {}.\n", folder.display()));
    }
    carry_out(&steps, dry_run)
}

fn find(root: &Path) -> Result<(Family, PathBuf), String> {
    let folder = |family: &Family| root.join(family.folder.trim_start_matches('/'));
    let found = FAMILIES.iter().map(|family| (*family, folder(family))).find(|(_, folder)| folder.is_dir());
    found.ok_or_else(|| {
        "curtsy does not know where this system keeps its trusted CAs; add the file of `curtsy ca export` by hand"
            .to_owned()
    })
}

fn to_trust(family: Family, folder: &Path, certificates: &[CertificateDer<'static>]) -> Vec<TrustStep> {
    let write = |certificate| TrustStep::Write(file(family, folder, certificate), tls::pem(certificate));
    certificates.iter().map(write).chain([TrustStep::Run(family.add)]).collect()
}

fn to_untrust(family: Family, folder: &Path, certificates: &[CertificateDer<'static>]) -> Vec<TrustStep> {
    let files = certificates.iter().map(|certificate| file(family, folder, certificate));
    let mut steps: Vec<TrustStep> = files.filter(|file| file.exists()).map(TrustStep::Remove).collect();
    if !steps.is_empty() {
        steps.push(TrustStep::Run(family.remove));
    }
    steps
}

fn file(family: Family, folder: &Path, certificate: &CertificateDer<'static>) -> PathBuf {
    let fingerprint = tls::describe(certificate).map(|shown| shown.fingerprint.replace(':', "").to_ascii_lowercase());
    let short: String = fingerprint.unwrap_or_default().chars().take(16).collect();
    folder.join(format!("curtsy-ca-{short}.{}", family.extension))
}

/// Performs the steps, unless `dry_run`, and returns a description of them.
fn carry_out(steps: &[TrustStep], dry_run: bool) -> Result<String, String> {
    let mut told = String::new();
    for step in steps {
        if !dry_run {
            take(step)?;
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

fn take(step: &TrustStep) -> Result<(), String> {
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
            let (program, arguments) = command.split_first().expect("a command has a name");
            let ran = Command::new(program).args(arguments).output();
            let output = ran.map_err(|error| format!("cannot run {program}: {error}"))?;
            let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
            if output.status.success() { Ok(()) } else { Err(format!("{program} failed: {}", said())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Ca;

    #[test]
    fn a_system_is_known_by_its_folder() {
        let root = tempfile::tempdir().unwrap();
        assert!(find(root.path()).unwrap_err().contains("curtsy ca export"));
        for family in [FAMILIES[2], FAMILIES[1], FAMILIES[0]] {
            fs::create_dir_all(root.path().join(&family.folder[1..])).unwrap();
            assert_eq!(find(root.path()).unwrap().0, family);
        }
    }

    #[test]
    fn what_trust_does_untrust_undoes() {
        let folder = tempfile::tempdir().unwrap();
        let family = Family { add: &["true"], remove: &["true"], ..FAMILIES[0] };
        let (ours, other) = ([Ca::make().certificate().clone()], folder.path().join("other.crt"));
        fs::write(&other, "").unwrap();
        let dry = carry_out(&to_trust(family, folder.path(), &ours), true).unwrap();
        assert!(dry.starts_with("would write ") && dry.ends_with("would run true\n"), "{dry}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is done");
        carry_out(&to_trust(family, folder.path(), &ours), false).unwrap();
        assert_eq!(fs::read_to_string(file(family, folder.path(), &ours[0])).unwrap(), tls::pem(&ours[0]));
        let stranger = [Ca::make().certificate().clone()];
        assert_eq!(to_untrust(family, folder.path(), &stranger), []);
        carry_out(&to_untrust(family, folder.path(), &ours), false).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the other one stays");
        assert!(other.exists());
    }

    #[test]
    fn a_command_that_fails_is_named() {
        assert!(take(&TrustStep::Run(&["false"])).unwrap_err().starts_with("false failed"));
        assert!(take(&TrustStep::Run(&["no-such-command-at-all"])).unwrap_err().contains("cannot run"));
    }
}
