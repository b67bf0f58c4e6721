//! What curtsy presents to the clients of an intercepted host: one TLS configuration per host, created when it is first
//! needed and kept while there is room.
//!
//! Each host has its own configuration, so that a session of one host is never resumed with another.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quick_cache::sync::Cache;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;

use super::authority::{Authority, Ca};
use super::provider;
use crate::clock;
use crate::politeness::HostKey;

/// Number of hosts kept, at a few KiB each with their sessions. Signing again for a forgotten host takes less time than
/// a handshake.
const MOST: usize = 1024;
/// Sessions kept for each host: more than the number of clients that usually use one host.
const SESSIONS: usize = 16;
/// A client that receives a certificate can use it for at least this long.
const SPARE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub struct Leaves {
    authority: Arc<Authority>,
    /// Whether the CA is stored nowhere and ends with this process.
    in_memory: bool,
    /// What clients should trust: the CA, and the one that will follow it.
    trusted: Vec<CertificateDer<'static>>,
    http2: bool,
    provider: Arc<CryptoProvider>,
    hosts: Cache<HostKey, Leaf>,
}

#[derive(Clone, Debug)]
struct Leaf {
    config: Arc<ServerConfig>,
    until: SystemTime,
}

impl Leaves {
    /// `also`: other certificates that clients should trust. `http2`: whether to offer HTTP/2 to clients.
    pub fn new(authority: Authority, also: Vec<CertificateDer<'static>>, http2: bool) -> Self {
        let mut trusted = vec![authority.certificate().clone()];
        trusted.extend(also.into_iter().filter(|certificate| certificate != authority.certificate()));
        Self::with(Arc::new(authority), trusted, http2, false)
    }

    /// Creates one with a CA for this run only.
    pub fn in_memory(http2: bool) -> Self {
        let authority = Authority::new(Ca::make()).expect("what was just made can be read");
        let trusted = vec![authority.certificate().clone()];
        Self::with(Arc::new(authority), trusted, http2, true)
    }

    fn with(authority: Arc<Authority>, trusted: Vec<CertificateDer<'static>>, http2: bool, in_memory: bool) -> Self {
        Leaves { authority, in_memory, trusted, http2, provider: provider(), hosts: Cache::new(MOST) }
    }

    /// Returns the certificates that clients should trust.
    pub fn trusted(&self) -> &[CertificateDer<'static>] {
        &self.trusted
    }

    /// Replaces `before`. Certificates signed by the same CA stay in use, and a CA in memory stays the same one.
    #[must_use]
    pub fn following(self: Arc<Self>, before: &Arc<Leaves>) -> Arc<Leaves> {
        let same_ca = if self.in_memory { before.in_memory } else { self.trusted == before.trusted };
        match (same_ca, self.http2 == before.http2) {
            (true, true) => before.clone(),
            (true, false) => {
                let (authority, trusted) = (before.authority.clone(), before.trusted.clone());
                Arc::new(Self::with(authority, trusted, self.http2, self.in_memory))
            }
            (false, _) => self,
        }
    }

    /// Returns the TLS configuration for clients of this host. Signs a certificate if necessary, which is cheap
    /// compared with the handshake that follows. Concurrent callers for the same host wait for that one signature.
    pub fn of(&self, host: &HostKey) -> Arc<ServerConfig> {
        if let Some(leaf) = self.hosts.get(host)
            && leaf.until < clock::wall() + SPARE
        {
            self.hosts.remove_if(host, |old| old.until == leaf.until);
        }
        let made = self.hosts.get_or_insert_with(host, || Ok::<_, std::convert::Infallible>(self.make(host)));
        let Ok(leaf) = made;
        leaf.config
    }

    fn make(&self, host: &HostKey) -> Leaf {
        let (certified, until) = self.authority.sign(host);
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider speaks the default versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Always(Arc::new(certified))));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        if self.http2 {
            config.alpn_protocols.insert(0, b"h2".to_vec());
        }
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        Leaf { config: Arc::new(config), until }
    }
}

/// Presents this certificate whatever name the client's hello asks for. The host that was named in CONNECT is the one
/// that was checked, so a client that asks for another one in its hello gets this certificate all the same.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves() -> Leaves {
        Leaves::in_memory(true)
    }

    #[test]
    fn a_reload_keeps_what_it_can() {
        let before = Arc::new(leaves());
        assert!(Arc::ptr_eq(&Arc::new(leaves()).following(&before), &before), "a CA in memory stays");
        let without = Arc::new(Leaves::in_memory(false)).following(&before);
        assert_eq!(without.trusted(), before.trusted());
        assert_eq!(without.of(&host(1)).alpn_protocols, [b"http/1.1"]);
        let kept = || Arc::new(Leaves::new(Authority::new(Ca::make()).unwrap(), Vec::new(), true));
        assert!(!Arc::ptr_eq(&kept().following(&before), &before));
        assert_ne!(kept().following(&kept()).trusted(), kept().trusted());
    }

    fn host(n: usize) -> HostKey {
        HostKey::parse(&format!("h{n}.test")).unwrap()
    }

    #[test]
    fn a_host_is_signed_for_once() {
        let leaves = leaves();
        assert!(Arc::ptr_eq(&leaves.of(&host(1)), &leaves.of(&host(1))));
        assert!(!Arc::ptr_eq(&leaves.of(&host(1)), &leaves.of(&host(2))));
    }

    /// X46
    #[test]
    fn ten_thousand_names_are_not_kept() {
        let leaves = leaves();
        for n in 0..10_000 {
            leaves.of(&host(n));
        }
        assert!(leaves.hosts.len() <= MOST, "{}", leaves.hosts.len());
    }

    #[test]
    fn a_leaf_near_its_end_is_made_anew() {
        let leaves = leaves();
        let first = leaves.of(&host(1));
        leaves.hosts.insert(host(1), Leaf { config: first.clone(), until: clock::wall() + SPARE / 2 });
        assert!(!Arc::ptr_eq(&first, &leaves.of(&host(1))));
    }

    /// X46
    #[test]
    fn concurrent_callers_get_the_same() {
        let leaves = leaves();
        let all: Vec<Arc<ServerConfig>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| leaves.of(&host(1)))).collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }
}
