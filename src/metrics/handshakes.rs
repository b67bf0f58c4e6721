//! Counters for TLS handshakes, with clients and with origins.

use prometheus::{IntCounter, Registry};

use super::register::counters;

/// How a handshake ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handshake {
    ClientOk,
    /// The client rejects curtsy's certificate.
    ClientUntrusted,
    /// curtsy intercepts, but not this host or this client: the handshake passes through.
    Bypassed,
    ClientFailed,
    OriginOk,
    /// The origin's certificate is not valid.
    OriginCert,
    OriginFailed,
}

/// Side and result, in the order of [`Handshake`].
const LABELS: [[&str; 2]; 7] = [
    ["client", "ok"],
    ["client", "client_untrusted"],
    ["client", "bypassed"],
    ["client", "failed"],
    ["origin", "ok"],
    ["origin", "origin_cert"],
    ["origin", "failed"],
];

#[derive(Debug)]
pub(super) struct Handshakes([IntCounter; LABELS.len()]);

impl Handshakes {
    pub(super) fn new(registry: &Registry) -> Self {
        let ended = counters(
            registry,
            "curtsy_tls_handshakes_total",
            "TLS handshakes with clients and origins, by result.",
            &["side", "result"],
        );
        Handshakes(LABELS.map(|labels| ended.with_label_values(&labels)))
    }

    pub(super) fn count(&self, handshake: Handshake) {
        self.0[handshake as usize].inc();
    }
}
