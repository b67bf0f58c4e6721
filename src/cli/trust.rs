//! Writes the files that make clients trust a CA: its certificate, a bundle with the system's roots, and files for
//! wget, PHP and Java.
//!
//! All files are in one folder that other users cannot read, because it contains a copy of the user's own wgetrc, which
//! may have passwords. The CA's key is never here.

mod java;

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::{tls, upstream};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrustFiles {
    pub(super) ca: PathBuf,
    /// The system's roots and ours.
    pub(super) bundle: PathBuf,
    /// GnuTLS reads no variable, so wget needs its own configuration file.
    pub(super) wgetrc: PathBuf,
    /// A folder with settings for PHP.
    pub(super) php: PathBuf,
    /// A trust store for Java.
    pub(super) java: PathBuf,
}

impl TrustFiles {
    /// Writes all files. `variable` returns the value of an environment variable.
    pub(super) fn write(
        folder: &Path,
        ca_pem: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> io::Result<TrustFiles> {
        private_folder(folder)?;
        let at = |name: &str| folder.join(name);
        let php = at("php");
        private_folder(&php)?;
        let trust =
            TrustFiles { ca: at("ca.pem"), bundle: at("bundle.pem"), wgetrc: at("wgetrc"), php, java: at("trust.jks") };
        let ours = CertificateDer::pem_slice_iter(ca_pem.as_bytes()).collect::<Result<Vec<_>, _>>();
        // In a shell with these variables, our own bundle passes for the system's. Its CA may have been replaced.
        let before = CertificateDer::pem_file_iter(&trust.ca).into_iter().flatten().flatten().collect::<Vec<_>>();
        let mut roots = upstream::system_certificates();
        roots.retain(|root| !before.contains(root));
        let mut bundle: String = roots.iter().map(tls::pem).collect();
        bundle.push_str(ca_pem);
        roots.extend(ours.map_err(io::Error::other)?);
        put(&trust.ca, ca_pem.as_bytes())?;
        put(&trust.bundle, bundle.as_bytes())?;
        put(&trust.java, &java::store(&roots))?;
        put(&trust.wgetrc, wgetrc(&trust, variable).as_bytes())?;
        let path = trust.bundle.display();
        put(&trust.php.join("curtsy.ini"), format!("curl.cainfo=\"{path}\"\nopenssl.cafile=\"{path}\"\n").as_bytes())?;
        Ok(trust)
    }
}

/// Returns the content of our wgetrc. `WGETRC` replaces the user's file, so the user's file is copied into ours.
fn wgetrc(trust: &TrustFiles, variable: impl Fn(&str) -> Option<String>) -> String {
    let ours = trust.wgetrc.to_str();
    let named = variable("WGETRC").filter(|path| !path.is_empty() && Some(path.as_str()) != ours);
    let theirs = named.or_else(|| variable("CURTSY_OLD_WGETRC")).map(PathBuf::from);
    let theirs = theirs.or_else(|| variable("HOME").map(|home| Path::new(&home).join(".wgetrc")));
    let mut text = theirs.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_default();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text + &format!("ca_certificate = {}\n", trust.bundle.display())
}

fn private_folder(path: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(false).mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Writes a file atomically: another command may be reading it.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(bytes)?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::tls::{Ca, pem};

    #[test]
    fn every_client_finds_its_file_and_other_users_cannot_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let mine = directory.path().join("mine");
        fs::write(&mine, "password = secret").unwrap();
        let (ca, folder) = (pem(Ca::make().certificate()), directory.path().join("trust"));
        let variable = |name: &str| (name == "WGETRC").then(|| mine.display().to_string());
        let trust = TrustFiles::write(&folder, &ca, variable).unwrap();
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert_eq!(text(&trust.ca), ca);
        assert!(text(&trust.bundle).ends_with(&ca));
        let wgetrc = format!("password = secret\nca_certificate = {}\n", trust.bundle.display());
        assert_eq!(text(&trust.wgetrc), wgetrc);
        let again = TrustFiles::write(&folder, &ca, |name| match name {
            "WGETRC" => Some(trust.wgetrc.display().to_string()),
            "CURTSY_OLD_WGETRC" => Some(mine.display().to_string()),
            _ => None,
        });
        assert_eq!((again.unwrap(), text(&trust.wgetrc)), (trust.clone(), wgetrc), "it is not copied into itself");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&trust.wgetrc), mode(&trust.php)), (0o700, 0o600, 0o700));
    }
}
