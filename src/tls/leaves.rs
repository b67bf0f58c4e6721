//! What curtsy shows of itself to the clients of an intercepted host: one TLS configuration per host, made when it is
//! first needed and kept while there is room.
//!
//! Each host has a configuration of its own, so that no session of one host is ever resumed with another.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quick_cache::sync::Cache;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert, ServerSessionMemoryCache};
use rustls::sign::CertifiedKey;

use super::authority::Authority;
use super::provider;
use crate::clock;
use crate::politeness::HostKey;

/// Hosts kept, at about 6 KiB each with their sessions. A forgotten one is signed for again in less time than a
/// handshake takes.
const MOST: usize = 1024;
/// Sessions remembered for each host: more clients than are usually busy with one.
const SESSIONS: usize = 16;
/// Whoever gets a certificate can use it for at least this long.
const SPARE: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug)]
pub struct Leaves {
    authority: Authority,
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
    /// `http2`: whether clients are offered it.
    pub fn new(authority: Authority, http2: bool) -> Self {
        Leaves { authority, http2, provider: provider(), hosts: Cache::new(MOST) }
    }

    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Whether these would do for the others' clients as well.
    pub fn equals(&self, other: &Leaves) -> bool {
        self.http2 == other.http2 && self.authority.certificate() == other.authority.certificate()
    }

    /// How to greet clients that want this host. Signs where it has to, which takes less than a tenth of a millisecond:
    /// whoever asks for the same host meanwhile waits for that.
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

/// The host that was asked for at CONNECT is the one that was checked, so a client that asks for another one in its
/// hello gets this certificate all the same.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::authority::Ca;
    use super::*;

    fn leaves() -> Leaves {
        Leaves::new(Authority::new(Ca::make()).unwrap(), true)
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

    #[test]
    fn many_who_ask_at_once_get_the_same() {
        let leaves = leaves();
        let all: Vec<Arc<ServerConfig>> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| leaves.of(&host(1)))).collect();
            asking.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert!(all.iter().all(|one| Arc::ptr_eq(one, &all[0])));
    }
}
