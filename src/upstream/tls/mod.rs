//! TLS towards origins: which certificates curtsy trusts, and the handshake.
//!
//! The crypto provider is named here and nowhere else, so that changing it is a change of one line. An origin is always
//! verified: there is no option to disable that. If the origin is offered HTTP/2 and HTTP/1.1, it chooses.

mod roots;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

pub use self::roots::{BadRoots, system_certificates};

use super::error::UpstreamError;
use super::tls_fault::{CertificateFault, HandshakeFault};
use crate::clock;
use crate::config;
use crate::politeness::HostKey;

/// Origins whose sessions are remembered, so that the next handshake is half the work. About 7 KiB each, most of it the
/// certificates. The default of rustls is 256, fewer than a crawl visits in the minutes that most sessions live.
const SESSIONS: usize = 1024;

/// How much may be encrypted and not yet accepted by the origin. One record: more would only hide from an upload that
/// its origin is slow.
const MOST_UNSENT: usize = 16 * 1024;

/// The roots that curtsy trusts. Rebuilt on reload, so that no session outlives the roots by which it was verified.
#[derive(Clone)]
pub struct Trust {
    /// Offers HTTP/2 and HTTP/1.1.
    both: TlsConnector,
    http1: TlsConnector,
    /// What was wrong with a host's certificate, and until when that is remembered.
    faults: Arc<Cache<HostKey, (CertificateFault, Instant)>>,
}

/// How many hosts with a bad certificate are remembered, and for how long: for as long as curtsy waits before it
/// fetches their robots.txt again.
const MOST_FAULTS: usize = 1024;
const KEEP_FAULT: Duration = Duration::from_secs(30);

impl Trust {
    /// Reads the roots from disk, so it must not be called on the request path.
    pub fn load(config: &config::Tls) -> Result<Self, BadRoots> {
        let versions = if config.min_version == "1.3" { &[&TLS13][..] } else { &[&TLS13, &TLS12] };
        let mut client = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions)
            .expect("the provider speaks all versions that can be configured")
            .with_root_certificates(roots::gather(&config.extra_roots)?)
            .with_no_client_auth();
        client.resumption = Resumption::in_memory_sessions(SESSIONS);
        client.alpn_protocols = vec![b"http/1.1".to_vec()];
        // The clone shares the sessions.
        let mut both = client.clone();
        both.alpn_protocols.insert(0, b"h2".to_vec());
        let faults = Arc::new(Cache::new(MOST_FAULTS));
        Ok(Trust { both: Arc::new(both).into(), http1: Arc::new(client).into(), faults })
    }

    /// Returns a connector to servers that speak no HTTP, with the same roots and versions.
    pub fn without_alpn(&self) -> TlsConnector {
        let mut client = ClientConfig::clone(self.http1.config());
        client.alpn_protocols.clear();
        Arc::new(client).into()
    }

    /// Returns what was wrong with the host's certificate a moment ago.
    pub fn fault(&self, host: &HostKey) -> Option<CertificateFault> {
        self.faults.get(host).and_then(|(fault, until)| (clock::now() < until).then_some(fault))
    }

    /// Resolves when the origin has proved that it is this host.
    pub(super) async fn handshake(
        &self,
        host: &HostKey,
        stream: TcpStream,
        http2: bool,
    ) -> Result<TlsStream<TcpStream>, UpstreamError> {
        let name = match host.ip() {
            Some(ip) => ServerName::IpAddress(ip.into()),
            None => ServerName::try_from(host.as_str().to_owned())
                .map_err(|_| UpstreamError::Handshake(HandshakeFault::Name))?,
        };
        let connector = if http2 { &self.both } else { &self.http1 };
        connector
            .connect_with(name, stream, |session| session.set_buffer_limit(Some(MOST_UNSENT)))
            .await
            .map_err(|error| UpstreamError::tls(&error))
            .inspect_err(|error| {
                if let UpstreamError::Certificate(fault) = error {
                    self.faults.insert(host.clone(), (fault.clone(), clock::now() + KEEP_FAULT));
                }
            })
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

impl fmt::Debug for Trust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trust").finish_non_exhaustive()
    }
}
