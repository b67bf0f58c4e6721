//! The certificate of the proxy itself, for clients that speak TLS to it: two PEM files that the operator maintains.
//!
//! Read at start and on reload. If the files do not match or cannot be used, the error names the file, and a
//! certificate that is already in use stays in use.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{describe, provider};

/// The TLS configuration of the proxy's own listeners.
#[derive(Clone, Debug)]
pub struct ServerCert {
    config: Arc<ServerConfig>,
    chain: Vec<CertificateDer<'static>>,
}

/// Why the proxy's own certificate cannot be used.
#[derive(Debug)]
pub struct BadCertificate {
    path: PathBuf,
    fault: ServerCertFault,
}

#[derive(Debug)]
enum ServerCertFault {
    Unreadable(pem::Error),
    /// The file has no certificate.
    Empty,
    /// The two do not match, or are of a kind that is not supported.
    Unusable(rustls::Error),
    Ended,
}

impl ServerCert {
    /// `http2`: whether to offer HTTP/2 to clients.
    pub fn load(certificate: &Path, key: &Path, http2: bool, now: SystemTime) -> Result<Self, BadCertificate> {
        let at = |path: &Path| {
            let path = path.to_owned();
            |fault| BadCertificate { path, fault }
        };
        let chain = read_chain(certificate).map_err(at(certificate))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(ServerCertFault::Unreadable).map_err(at(key))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("the provider speaks the default versions")
            .with_no_client_auth()
            .with_single_cert(chain.clone(), secret)
            .map_err(ServerCertFault::Unusable)
            .map_err(at(key))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        let own = ServerCert { config: Arc::new(config), chain };
        if own.until().is_some_and(|until| until <= now) {
            return Err(at(certificate)(ServerCertFault::Ended));
        }
        Ok(own)
    }

    /// Replaces another. If the certificate is the same, clients can still resume their sessions.
    #[must_use]
    pub fn following(self, before: &ServerCert) -> ServerCert {
        let is_same = self.chain == before.chain && self.config.alpn_protocols == before.config.alpn_protocols;
        if is_same { before.clone() } else { self }
    }

    pub fn config(&self) -> Arc<ServerConfig> {
        self.config.clone()
    }

    /// Whether the certificate expires within this time.
    pub fn ends_within(&self, span: Duration, now: SystemTime) -> bool {
        self.until().is_some_and(|until| until < now + span)
    }

    fn until(&self) -> Option<SystemTime> {
        self.chain.first().and_then(describe).map(|description| description.until)
    }
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerCertFault> {
    let found = CertificateDer::pem_file_iter(path).map_err(ServerCertFault::Unreadable)?;
    let chain: Vec<_> = found.collect::<Result<_, _>>().map_err(ServerCertFault::Unreadable)?;
    if chain.is_empty() { Err(ServerCertFault::Empty) } else { Ok(chain) }
}

impl fmt::Display for BadCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.fault {
            ServerCertFault::Unreadable(pem::Error::Io(error)) => {
                write!(f, "cannot read {path} of tls.listen: {error}")
            }
            ServerCertFault::Unreadable(pem::Error::NoItemsFound) => {
                write!(f, "{path} of tls.listen_key has no key in it")
            }
            ServerCertFault::Unreadable(error) => write!(f, "{path} of tls.listen is not PEM: {error}"),
            ServerCertFault::Empty => write!(f, "{path} of tls.listen_cert has no certificate in it; it must be PEM"),
            ServerCertFault::Unusable(rustls::Error::InconsistentKeys(_)) => {
                write!(f, "{path} of tls.listen_key is not the key of tls.listen_cert")
            }
            ServerCertFault::Unusable(error) => write!(f, "{path} of tls.listen_key cannot be used: {error}"),
            ServerCertFault::Ended => write!(f, "{path} of tls.listen_cert is not valid any more"),
        }
    }
}

impl Error for BadCertificate {}

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;
    use crate::clock;

    struct Pair {
        directory: tempfile::TempDir,
    }

    impl Pair {
        fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
            let mut params = CertificateParams::new(["proxy.test".to_owned()]).unwrap();
            change(&mut params);
            let key = KeyPair::generate().unwrap();
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("cert"), params.self_signed(&key).unwrap().pem()).unwrap();
            fs::write(directory.path().join("key"), key.serialize_pem()).unwrap();
            Pair { directory }
        }

        fn load(&self) -> Result<ServerCert, BadCertificate> {
            let (certificate, key) = (self.directory.path().join("cert"), self.directory.path().join("key"));
            ServerCert::load(&certificate, &key, true, clock::wall())
        }

        fn told(&self, file: &str, content: &str) -> String {
            let path = self.directory.path().join(file);
            let before = fs::read(&path).unwrap();
            fs::write(&path, content).unwrap();
            let told = self.load().unwrap_err().to_string();
            fs::write(&path, before).unwrap();
            assert!(told.contains(&*path.to_string_lossy()), "{told}");
            told
        }
    }

    #[test]
    fn a_certificate_that_did_not_change_keeps_its_sessions() {
        let (one, other) = (Pair::new(|_| ()), Pair::new(|_| ()));
        let before = one.load().unwrap();
        assert!(Arc::ptr_eq(&one.load().unwrap().following(&before).config, &before.config));
        assert!(!Arc::ptr_eq(&other.load().unwrap().following(&before).config, &before.config));
    }

    #[test]
    fn files_that_cannot_be_used_are_told_by_name() {
        let pair = Pair::new(|_| ());
        assert!(pair.told("cert", "hello").contains("has no certificate in it"));
        assert!(pair.told("key", "hello").contains("has no key in it"));
        assert!(pair.told("cert", "-----BEGIN CERTIFICATE-----\nAA").contains("is not PEM"));
        let strange = KeyPair::generate().unwrap().serialize_pem();
        assert!(pair.told("key", &strange).contains("is not the key of tls.listen_cert"));
        fs::remove_file(pair.directory.path().join("key")).unwrap();
        assert!(pair.load().unwrap_err().to_string().contains("cannot read"));
    }

    #[test]
    fn a_certificate_has_a_last_day() {
        let ended = Pair::new(|params| params.not_after = date_time_ymd(2020, 1, 1));
        assert!(ended.load().unwrap_err().to_string().contains("is not valid any more"));
        let own = Pair::new(|params| params.not_after = date_time_ymd(2999, 1, 1)).load().unwrap();
        assert!(!own.ends_within(Duration::from_secs(3600), clock::wall()));
    }
}
