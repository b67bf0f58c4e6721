//! The files of the local CA: two PEM files, in the state directory or where the operator says.
//!
//! A CA in the state directory is created when it is first needed, and can be replaced with an overlap: the next CA
//! lies beside it and is handed out to clients before it signs anything. Files elsewhere belong to the operator and are
//! only read. A key that others could read is not used.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::authority::{Authority, Ca, NotACa, parse};
use crate::config;

/// The files of a CA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    /// The files of the next CA; `None` if the operator maintains these files.
    next: Option<(PathBuf, PathBuf)>,
}

/// Whether the CA existed already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenedCa {
    Read,
    Made,
}

/// Why there is no CA.
#[derive(Debug)]
pub enum CaError {
    Unreadable {
        path: PathBuf,
        error: io::Error,
    },
    Unwritable {
        path: PathBuf,
        error: io::Error,
    },
    /// Others than its owner may read the key.
    Exposed {
        key: PathBuf,
    },
    Unusable {
        certificate: PathBuf,
        fault: NotACa,
    },
    /// The files belong to the operator; curtsy does not replace them.
    Foreign {
        certificate: PathBuf,
    },
}

/// What a person wants to know about a CA's certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    pub name: String,
    pub from: SystemTime,
    pub until: SystemTime,
    /// SHA-256, in hex with colons, as other tools show it.
    pub fingerprint: String,
}

impl Files {
    /// Returns `None` if there is no state directory.
    pub fn of(config: &config::Tls, state_dir: Option<&Path>) -> Option<Files> {
        if let (Some(certificate), Some(key)) = (&config.ca_cert, &config.ca_key) {
            return Some(Files { certificate: certificate.clone(), key: key.clone(), next: None });
        }
        let at = |name: &str| state_dir.map(|directory| directory.join(name));
        let next = at("ca-next.pem").zip(at("ca-next.key"));
        Some(Files { certificate: at("ca.pem")?, key: at("ca.key")?, next })
    }

    pub fn certificate(&self) -> &Path {
        &self.certificate
    }

    pub fn key(&self) -> &Path {
        &self.key
    }

    /// Returns the certificate file of the next CA, if there is one.
    pub fn next(&self) -> Option<&Path> {
        self.next.as_ref().map(|(certificate, _)| certificate.as_path()).filter(|path| path.exists())
    }

    /// Returns the CA that signs. Creates it if there is none yet and it belongs in the state directory.
    pub fn open(&self) -> Result<(Ca, OpenedCa), CaError> {
        match (self.read(), &self.next) {
            (Err(CaError::Unreadable { path, error }), Some(_))
                if error.kind() == io::ErrorKind::NotFound && path == self.certificate =>
            {
                let ca = Ca::make();
                write(&ca, &self.certificate, &self.key)?;
                Ok((ca, OpenedCa::Made))
            }
            (read, _) => read.map(|ca| (ca, OpenedCa::Read)),
        }
    }

    /// Returns the CA that signs, ready to sign.
    pub fn authority(&self) -> Result<(Authority, OpenedCa), CaError> {
        let (ca, opened) = self.open()?;
        let unusable = |fault| CaError::Unusable { certificate: self.certificate.clone(), fault };
        Ok((Authority::new(ca).map_err(unusable)?, opened))
    }

    fn read(&self) -> Result<Ca, CaError> {
        let certificate = text(&self.certificate)?;
        let key = text(&self.key)?;
        let unreadable = |error| CaError::Unreadable { path: self.key.clone(), error };
        let mode = fs::metadata(&self.key).map_err(unreadable)?.permissions().mode();
        if mode & OTHERS != 0 {
            return Err(CaError::Exposed { key: self.key.clone() });
        }
        let unusable = |fault| CaError::Unusable { certificate: self.certificate.clone(), fault };
        Ca::read(&certificate, &key).map_err(unusable)
    }

    /// Returns the certificates that clients should trust: of the CA that signs, and of the next one if there is one.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, CaError> {
        let paths = std::iter::once(self.certificate.as_path()).chain(self.next());
        let read = |path: &Path| {
            let unusable = CaError::Unusable { certificate: path.to_owned(), fault: NotACa::Certificate };
            CertificateDer::from_pem_slice(text(path)?.as_bytes()).map_err(|_| unusable)
        };
        paths.map(read).collect()
    }

    /// Creates the next CA, unless there is one. It signs nothing before [`Files::switch`].
    pub fn prepare(&self) -> Result<OpenedCa, CaError> {
        let (certificate, key) = self.next.as_ref().ok_or_else(|| self.foreign())?;
        if certificate.exists() {
            return Ok(OpenedCa::Read);
        }
        write(&Ca::make(), certificate, key)?;
        Ok(OpenedCa::Made)
    }

    /// Replaces this CA by the next one. Nothing remains of this one.
    pub fn switch(&self) -> Result<(), CaError> {
        self.prepare()?;
        let (certificate, key) = self.next.as_ref().ok_or_else(|| self.foreign())?;
        // Between the two renames the pair does not match, and curtsy refuses to start. After an interruption here,
        // switching again finishes the work.
        if key.exists() {
            rename(key, &self.key)?;
        }
        rename(certificate, &self.certificate)
    }

    fn foreign(&self) -> CaError {
        CaError::Foreign { certificate: self.certificate.clone() }
    }
}

const OTHERS: u32 = 0o077;

fn text(path: &Path) -> Result<String, CaError> {
    fs::read_to_string(path).map_err(|error| CaError::Unreadable { path: path.to_owned(), error })
}

/// Writes the certificate last: once it exists, the CA is complete.
fn write(ca: &Ca, certificate: &Path, key: &Path) -> Result<(), CaError> {
    if let Some(directory) = key.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| CaError::Unwritable { path: directory.to_owned(), error })?;
    }
    write_file(key, &ca.key_pem(), 0o600)?;
    write_file(certificate, &pem(ca.certificate()), 0o644)
}

/// Never leaves half a file, nor one that others could read for a moment.
fn write_file(path: &Path, text: &str, mode: u32) -> Result<(), CaError> {
    let beside = path.with_extension("new");
    let write = || {
        let _ = fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|error| CaError::Unwritable { path: path.to_owned(), error })?;
    rename(&beside, path)
}

fn rename(from: &Path, to: &Path) -> Result<(), CaError> {
    fs::rename(from, to).map_err(|error| CaError::Unwritable { path: to.to_owned(), error })
}

/// Returns the certificate in PEM, as most programs want it (RFC 7468).
pub fn pem(certificate: &CertificateDer<'_>) -> String {
    let text = STANDARD.encode(certificate);
    let mut lines = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in text.as_bytes().chunks(64) {
        lines.extend(line.iter().map(|byte| char::from(*byte)));
        lines.push('\n');
    }
    lines.push_str("-----END CERTIFICATE-----\n");
    lines
}

/// Returns `None` if this is not a certificate.
pub fn describe(certificate: &CertificateDer<'_>) -> Option<Description> {
    let parsed = parse(certificate)?;
    let name = parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    let hash = digest::digest(&digest::SHA256, certificate);
    let fingerprint: Vec<String> = hash.as_ref().iter().map(|byte| format!("{byte:02X}")).collect();
    Some(Description {
        name: name.map_or_else(|| parsed.subject().to_string(), str::to_owned),
        from: parsed.validity().not_before.to_datetime().into(),
        until: parsed.validity().not_after.to_datetime().into(),
        fingerprint: fingerprint.join(":"),
    })
}

impl fmt::Display for CaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CaError::Unreadable { path, error } => write!(f, "cannot read {} of the CA: {error}", path.display()),
            CaError::Unwritable { path, error } => write!(f, "cannot keep the CA in {}: {error}", path.display()),
            CaError::Exposed { key } => {
                let key = key.display();
                write!(
                    f,
                    "others can read the CA's key {key}, so it must not be trusted: chmod 600 {key}, or make a new CA"
                )
            }
            CaError::Unusable { certificate, fault } => write!(f, "the CA in {}: {fault}", certificate.display()),
            CaError::Foreign { certificate } => {
                let certificate = certificate.display();
                write!(f, "{certificate} (tls.ca_cert) is yours, so curtsy does not replace it")
            }
        }
    }
}

impl std::error::Error for CaError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(directory: &Path) -> Files {
        Files::of(&config::Tls::default(), Some(directory)).unwrap()
    }

    #[test]
    fn a_ca_is_made_once_and_its_key_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(&directory.path().join("deep/state"));
        let (first, opened) = files.open().unwrap();
        assert_eq!(opened, OpenedCa::Made);
        let (second, opened) = files.open().unwrap();
        assert_eq!((opened, first.certificate()), (OpenedCa::Read, second.certificate()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(files.key()), mode(&directory.path().join("deep/state"))), (0o600, 0o700));
        assert!(!text(files.certificate()).unwrap().contains("KEY"));
    }

    #[test]
    fn a_key_that_others_can_read_is_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        files.open().unwrap();
        fs::set_permissions(files.key(), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(files.open(), Err(CaError::Exposed { .. })));
    }

    #[test]
    fn a_lost_key_is_told_and_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        files.open().unwrap();
        fs::remove_file(files.key()).unwrap();
        assert!(matches!(files.open(), Err(CaError::Unreadable { path, .. }) if path == files.key));
    }

    #[test]
    fn the_next_ca_is_trusted_before_it_signs() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        let (old, _) = files.open().unwrap();
        assert_eq!(files.prepare().unwrap(), OpenedCa::Made);
        assert_eq!(files.prepare().unwrap(), OpenedCa::Read);
        let both = files.certificates().unwrap();
        assert_eq!((both.len(), &both[0]), (2, old.certificate()));
        assert_eq!(files.open().unwrap().0.certificate(), old.certificate());
        files.switch().unwrap();
        assert_eq!(files.open().unwrap().0.certificate(), &both[1]);
        assert_eq!(files.certificates().unwrap(), [both[1].clone()]);
    }

    #[test]
    fn an_interrupted_switch_is_finished_by_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let files = files(directory.path());
        files.open().unwrap();
        files.prepare().unwrap();
        fs::rename(directory.path().join("ca-next.key"), files.key()).unwrap();
        assert!(matches!(files.open(), Err(CaError::Unusable { fault: NotACa::Mismatch, .. })));
        files.switch().unwrap();
        files.open().unwrap();
    }

    #[test]
    fn an_operators_own_files_are_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| Some(directory.path().join(name));
        let tls = config::Tls { ca_cert: at("a.pem"), ca_key: at("a.key"), ..config::Tls::default() };
        let files = Files::of(&tls, None).unwrap();
        assert!(matches!(files.open(), Err(CaError::Unreadable { .. })), "it is not made");
        assert!(matches!(files.prepare(), Err(CaError::Foreign { .. })));
        assert!(matches!(files.switch(), Err(CaError::Foreign { .. })));
    }

    #[test]
    fn a_certificate_is_described() {
        let described = describe(Ca::make().certificate()).unwrap();
        assert!(described.name.starts_with("curtsy CA "), "{described:?}");
        assert_eq!(described.fingerprint.len(), 32 * 3 - 1);
        assert!(described.from < described.until);
    }
}
