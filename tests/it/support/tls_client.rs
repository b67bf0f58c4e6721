//! A client that opens a tunnel through curtsy and speaks TLS in it, with a configurable trust store.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use curtsy::config::Config;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::client::Client;
use super::curtsy::Curtsy;
use super::deadline::Stopwatch;
use super::origin::{HELLO, Origin};
use super::tls_origin::Authority;

/// A curtsy that intercepts all tunnels and trusts origins of this authority.
pub(crate) fn intercepting(authority: &Authority, change: impl FnOnce(&mut Config)) -> Curtsy {
    let roots = vec![authority.file()];
    Curtsy::with(|config| {
        config.tls.intercept = true;
        config.tls.extra_roots = roots;
        change(config);
    })
}

/// An origin that reports when each request arrived.
pub(crate) fn punctual(authority: &Authority) -> (Origin, Receiver<Duration>) {
    let ((arrived, arrivals), watch) = (mpsc::channel(), Stopwatch::start());
    let origin = authority.origin(move |visitor| {
        while let Some(request) = visitor.request() {
            arrived.send(watch.at(request.at)).expect("the test waits for it");
            visitor.send(HELLO);
        }
    });
    (origin, arrivals)
}

/// A client configuration that trusts only curtsy's CA.
pub(crate) fn believing(curtsy: &Curtsy, protocols: &[&str]) -> Arc<ClientConfig> {
    let response = curtsy.get("http://curtsy.invalid/ca.pem");
    assert_eq!(response.status(), 200, "{}", response.text());
    believing_pem(&response.text(), protocols)
}

/// A client configuration that trusts the certificates in this PEM.
pub(crate) fn believing_pem(pem: &str, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.expect("PEM")).expect("a certificate of an authority");
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider speaks the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// Opens a tunnel to this authority.
pub(crate) fn tunnel(curtsy: &Curtsy, authority: &str) -> Client {
    let mut client = curtsy.client();
    let response = client.ask(&[&format!("CONNECT {authority} HTTP/1.1"), &format!("Host: {authority}")]);
    assert_eq!(response.status(), 200, "{}", response.text());
    client
}

/// A client with TLS inside a tunnel that trusts curtsy.
pub(crate) fn inside(curtsy: &Curtsy, host: &str, port: u16) -> Client {
    let mut client = tunnel(curtsy, &format!("{host}:{port}"));
    client.seek_tls(&believing(curtsy, &["http/1.1"]), host).expect("curtsy is believed");
    client
}
