//! The roots that origins may chain to: the system's, or Mozilla's if the system has none, and the operator's own.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls_native_certs::{CertificateResult, ErrorKind, load_native_certs};

/// Why the roots cannot be loaded.
#[derive(Debug)]
pub enum BadRoots {
    /// A file in `tls.extra_roots` that cannot be used.
    File { path: PathBuf, fault: RootsFault },
    /// The system's certificates cannot be read because there are no descriptors or no memory left.
    System(rustls_native_certs::Error),
}

#[derive(Debug)]
pub enum RootsFault {
    Unreadable(pem::Error),
    /// The file has no certificate.
    Empty,
    NotARoot(rustls::Error),
}

pub(super) fn gather(extra: &[PathBuf]) -> Result<RootCertStore, BadRoots> {
    let mut roots = RootCertStore::empty();
    add_system(&mut roots, load_native_certs())?;
    for path in extra {
        add_file(&mut roots, path).map_err(|fault| BadRoots::File { path: path.clone(), fault })?;
    }
    Ok(roots)
}

/// Returns a copy of the certificates that this system trusts.
pub fn system_certificates() -> Vec<CertificateDer<'static>> {
    load_native_certs().certs
}

/// Leaves out what is permanently unreadable: a store may contain files that are not certificates. A shortage fails
/// instead, because the same store would be complete a moment later, and a reload replaces all or nothing.
fn add_system(roots: &mut RootCertStore, mut found: CertificateResult) -> Result<(), BadRoots> {
    if let Some(short) = found.errors.iter().position(is_shortage) {
        return Err(BadRoots::System(found.errors.swap_remove(short)));
    }
    for error in &found.errors {
        tracing::warn!(event = "tls.roots", %error, "a part of the system's trusted certificates cannot be read");
    }
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable == 0 {
        tracing::info!(event = "tls.roots", "the system has no trusted certificates; using Mozilla's, built in");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(())
}

/// Whether the error is temporary: no descriptor left for the process or the system, or no memory.
fn is_shortage(error: &rustls_native_certs::Error) -> bool {
    let ErrorKind::Io { inner, .. } = &error.kind else { return false };
    matches!(Errno::from_io_error(inner), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

fn add_file(roots: &mut RootCertStore, path: &Path) -> Result<(), RootsFault> {
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(path).map_err(RootsFault::Unreadable)? {
        roots.add(certificate.map_err(RootsFault::Unreadable)?).map_err(RootsFault::NotARoot)?;
    }
    if roots.len() == before { Err(RootsFault::Empty) } else { Ok(()) }
}

impl fmt::Display for BadRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, fault) = match self {
            BadRoots::File { path, fault } => (path.display(), fault),
            BadRoots::System(error) => return write!(f, "cannot read the system's trusted certificates: {error}"),
        };
        match fault {
            RootsFault::Unreadable(pem::Error::Io(error)) => {
                write!(f, "cannot read {path} of tls.extra_roots: {error}")
            }
            RootsFault::Unreadable(error) => write!(f, "{path} of tls.extra_roots is not PEM: {error}"),
            RootsFault::Empty => write!(f, "{path} of tls.extra_roots has no certificate in it; it must be PEM"),
            RootsFault::NotARoot(error) => {
                write!(f, "{path} of tls.extra_roots has a certificate that cannot be read: {error}")
            }
        }
    }
}

impl Error for BadRoots {}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn told(content: &str) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let error = gather(&[file.path().to_owned()]).unwrap_err().to_string();
        assert!(error.contains(&*file.path().to_string_lossy()), "{error}");
        error
    }

    #[test]
    fn there_are_always_roots() {
        assert!(!gather(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_shortage_of_descriptors_loses_no_root() {
        let failing = |errno: Errno| {
            let kind = ErrorKind::Io { inner: errno.into(), path: "/etc/ssl/certs/a.pem".into() };
            let mut found = CertificateResult::default();
            found.errors.push(rustls_native_certs::Error { context: "failed to open file", kind });
            let mut roots = RootCertStore::empty();
            add_system(&mut roots, found).map(|()| roots.len())
        };
        for shortage in [Errno::MFILE, Errno::NFILE, Errno::NOMEM] {
            let told = failing(shortage).unwrap_err().to_string();
            assert!(told.starts_with("cannot read the system's trusted certificates: failed to open"), "{told}");
        }
        assert!(failing(Errno::ACCESS).unwrap() > 0, "an unreadable file is left out, and Mozilla's roots are used");
    }

    #[test]
    fn a_file_adds_its_certificates() {
        let issued = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(issued.cert.pem().as_bytes()).unwrap();
        let with = gather(&[file.path().to_owned()]).unwrap().len();
        assert_eq!(with, gather(&[]).unwrap().len() + 1);
    }

    #[test]
    fn a_bad_file_is_named_with_what_is_wrong() {
        let missing = gather(&["/nowhere/ca.pem".into()]).unwrap_err().to_string();
        assert!(missing.starts_with("cannot read /nowhere/ca.pem of tls.extra_roots: No such file"), "{missing}");
        assert!(told("hello").contains("has no certificate in it"));
        assert!(told("-----BEGIN CERTIFICATE-----\nAA").contains("is not PEM"));
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert!(told(nonsense).contains("has a certificate that cannot be read"));
    }
}
