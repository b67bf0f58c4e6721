//! A curtsy with a TLS listener, and the certificates that clients need for it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use curtsy::config::{Config, Listen};
use rustls::ClientConfig;
use tempfile::TempDir;

use super::client::Client;
use super::curtsy::Curtsy;
use super::tls_client::believing_pem;
use super::tls_origin::Authority;

/// The proxy's own certificate, in files that can be replaced.
pub(crate) struct Own {
    authority: Authority,
    directory: TempDir,
}

impl Own {
    pub(crate) fn new() -> Self {
        let own = Own { authority: Authority::new(), directory: tempfile::tempdir().expect("a temporary directory") };
        own.renew();
        own
    }

    /// Replaces the certificate by another one of the same authority.
    pub(crate) fn renew(&self) {
        let (certificate, key) = self.authority.certificate();
        fs::write(self.cert(), certificate).expect("a temporary directory");
        fs::write(self.key(), key).expect("a temporary directory");
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.directory.path().join("key.pem")
    }

    /// The certificate of its authority.
    pub(crate) fn roots(&self) -> PathBuf {
        self.authority.file()
    }

    pub(crate) fn set(&self, config: &mut Config) {
        config.tls.listen = vec![Listen::Tcp("127.0.0.1:0".parse().expect("an address literal"))];
        config.tls.listen_cert = Some(self.cert());
        config.tls.listen_key = Some(self.key());
    }

    pub(crate) fn curtsy(&self, change: impl FnOnce(&mut Config)) -> Curtsy {
        Curtsy::with(|config| {
            self.set(config);
            change(config);
        })
    }

    /// A client configuration that trusts it.
    pub(crate) fn believing(&self, protocols: &[&str]) -> Arc<ClientConfig> {
        believing_pem(&fs::read_to_string(self.roots()).expect("a file of this test"), protocols)
    }

    /// A client connected over TLS.
    pub(crate) fn client(&self, curtsy: &Curtsy, protocols: &[&str]) -> Client {
        let mut client = Client::connect(curtsy.tls_address());
        client.seek_tls(&self.believing(protocols), "localhost").expect("curtsy is believed");
        client
    }
}
