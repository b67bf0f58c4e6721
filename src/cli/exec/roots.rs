//! The roots that the user's environment names for single clients.
//!
//! The variables of the command replace them by our bundle, and curtsy verifies origins for the command. So curtsy must
//! trust what the command trusted before, and the bundle must contain it: a company's CA is often set up for one client
//! only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::cli::variables;
use crate::{tls, upstream};

/// Certificates that the command trusts and the system does not know.
pub(super) struct ExtraRoots(Vec<CertificateDer<'static>>);

impl ExtraRoots {
    /// Reads the files that the environment names, and those of the configuration. Leaves out what cannot be used: the
    /// clients may not need it.
    pub(super) fn of(variable: impl Fn(&str) -> Option<String>, configured: &[PathBuf]) -> Self {
        let named = variables::root_files().filter_map(variable).map(PathBuf::from);
        let mut found: Vec<CertificateDer<'static>> = Vec::new();
        let system = upstream::system_certificates();
        for path in named.chain(configured.iter().cloned()).filter(|path| path.is_file()) {
            let Ok(certificates) = CertificateDer::pem_file_iter(path) else { continue };
            for certificate in certificates.filter_map(Result::ok) {
                let is_usable = || RootCertStore::empty().add(certificate.clone()).is_ok();
                if !system.contains(&certificate) && !found.contains(&certificate) && is_usable() {
                    found.push(certificate);
                }
            }
        }
        ExtraRoots(found)
    }

    pub(super) fn pem(&self) -> String {
        self.0.iter().map(tls::pem).collect()
    }

    /// Writes them to a file in this folder, if there are any.
    pub(super) fn write(&self, folder: &Path) -> io::Result<Option<PathBuf>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let path = folder.join("roots.pem");
        fs::write(&path, self.pem())?;
        Ok(Some(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Ca, pem};

    #[test]
    fn roots_of_single_clients_are_found_once() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = [Ca::make(), Ca::make()].map(|ca| pem(ca.certificate()));
        let at = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (both, bad) = (at("both.pem", &format!("{a}{b}")), at("bad.pem", "nothing"));
        let variable = |name: &str| match name {
            "REQUESTS_CA_BUNDLE" => Some(both.display().to_string()),
            "CURL_CA_BUNDLE" => Some(bad.display().to_string()),
            "NODE_EXTRA_CA_CERTS" => Some("/nowhere".to_owned()),
            "GIT_SSL_CAINFO" => Some(folder.path().display().to_string()),
            _ => None,
        };
        let roots = ExtraRoots::of(variable, &[at("a.pem", &a)]);
        assert_eq!(roots.pem(), format!("{a}{b}"));
        let written = roots.write(folder.path()).unwrap().expect("there are some");
        assert_eq!(fs::read_to_string(written).unwrap(), roots.pem());
        let none = ExtraRoots::of(|_| None, &[]);
        assert!(none.pem().is_empty() && none.write(folder.path()).unwrap().is_none());
    }
}
