//! TLS origins: a certificate authority for tests, and servers with valid and invalid certificates.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::TLS12;
use rustls::{RootCertStore, ServerConfig};
use tempfile::NamedTempFile;

use super::origin::{Origin, Visitor};

/// Names and addresses of this machine.
pub(crate) const HERE: [&str; 2] = ["localhost", "127.0.0.1"];

pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: NamedTempFile,
}

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("an authority that this test made")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, key()).expect("sound parameters");
        let mut file = NamedTempFile::new().expect("a writable temporary directory");
        file.write_all(issuer.pem().as_bytes()).expect("room for a certificate");
        Authority { issuer, file }
    }

    /// A file with the certificate of the authority.
    pub(crate) fn file(&self) -> PathBuf {
        self.file.path().to_owned()
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        self.server_with(&HERE, |_| ())
    }

    /// A server that shows a certificate for these names.
    pub(crate) fn server_with(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Arc<ServerConfig> {
        let (params, key) = (leaf(names, change), key());
        let certificate = params.signed_by(&key, &self.issuer).expect("sound parameters");
        serving(certificate.der().clone(), &key)
    }

    /// A certificate for this machine and its key, in PEM.
    pub(crate) fn certificate(&self) -> (String, String) {
        let (params, key) = (leaf(&HERE, |_| ()), key());
        let certificate = params.signed_by(&key, &self.issuer).expect("sound parameters");
        (certificate.pem(), key.serialize_pem())
    }

    /// An origin that plays the script after the TLS handshake.
    pub(crate) fn origin(&self, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
        origin(self.server(), script)
    }
}

/// A server with a self-signed certificate, and that certificate in PEM.
pub(crate) fn self_signed(change: impl FnOnce(&mut CertificateParams)) -> (Arc<ServerConfig>, String) {
    let (params, key) = (leaf(&HERE, change), key());
    let certificate = params.self_signed(&key).expect("sound parameters");
    (serving(certificate.der().clone(), &key), certificate.pem())
}

/// The same server with TLS 1.2 as its newest version.
pub(crate) fn old(server: &ServerConfig) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS12])
        .expect("the provider speaks TLS 1.2");
    Arc::new(builder.with_no_client_auth().with_cert_resolver(server.cert_resolver.clone()))
}

/// The same server, but it requires a client certificate.
pub(crate) fn asking_for_certificates(server: &ServerConfig, authority: &Authority) -> Arc<ServerConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.issuer.der().clone()).expect("a certificate of an authority");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
    let builder = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.expect("the provider speaks the default versions");
    let builder = builder.with_client_cert_verifier(verifier.build().expect("there is a root"));
    Arc::new(builder.with_cert_resolver(server.cert_resolver.clone()))
}

pub(crate) fn origin(server: Arc<ServerConfig>, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
    Origin::scripted(move |visitor| {
        if visitor.start_tls(&server) {
            script(visitor);
        }
    })
}

/// The same at a chosen loopback address.
pub(crate) fn on(ip: &str, server: Arc<ServerConfig>, script: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
    Origin::on(ip, move |visitor| {
        if visitor.start_tls(&server) {
            script(visitor);
        }
    })
}

pub(crate) fn https(origin: &Origin, path: &str) -> String {
    format!("https://{}{path}", origin.authority())
}

fn leaf(names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names).expect("names that can stand in a certificate");
    change(&mut params);
    params
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn key() -> KeyPair {
    KeyPair::generate().expect("a fresh key")
}

fn serving(certificate: CertificateDer<'static>, key: &KeyPair) -> Arc<ServerConfig> {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider speaks the default versions");
    Arc::new(builder.with_no_client_auth().with_single_cert(vec![certificate], key).expect("a key of its own"))
}
