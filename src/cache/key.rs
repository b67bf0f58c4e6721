//! What a stored answer is found by: the URL as it was asked for, and the partition.
//!
//! The origin comes from the target that was read and vetted, never from a Host field. Path and query are compared as
//! sent: nothing is normalised, so two spellings are two keys.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::LazyLock;

use foldhash::quality::RandomState;
use quick_cache::Equivalent;
use smol_str::SmolStr;

use crate::politeness::{HostKey, Origin, Scheme};

/// The key of a URL in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheKey {
    pub origin: Origin,
    /// Path and query.
    pub path: SmolStr,
    /// Whose answers these are; empty if all clients share them.
    pub partition: SmolStr,
    hash: u64,
}

/// The same, borrowed: a lookup allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct CacheKeyRef<'a> {
    pub origin: &'a Origin,
    pub path: &'a str,
    pub partition: &'a str,
    hash: u64,
}

/// Random, so that no client can choose paths whose hashes collide.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

impl CacheKey {
    pub fn borrowed(&self) -> CacheKeyRef<'_> {
        CacheKeyRef { origin: &self.origin, path: &self.path, partition: &self.partition, hash: self.hash }
    }

    /// A hash of the whole, which is the same for the whole life of this process.
    pub fn hash_code(&self) -> u64 {
        self.hash
    }

    /// Reads a URL as [`CacheKey::url`] writes it.
    pub fn read(url: &str, partition: &str) -> Option<CacheKey> {
        let (scheme, rest) = url.split_once("://")?;
        let scheme = [Scheme::Http, Scheme::Https].into_iter().find(|known| known.as_str() == scheme)?;
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // The last colon inside brackets is part of an IPv6 address.
        let (host, port) = match authority.rsplit_once(':').filter(|(_, port)| !port.contains(']')) {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, scheme.default_port()),
        };
        let origin = Origin { scheme, host: HostKey::parse(host).ok()?, port };
        Some(CacheKeyRef::new(&origin, path, partition).to_key())
    }

    /// The URL as text.
    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }
}

impl<'a> CacheKeyRef<'a> {
    /// Hashes the key once; a request that is stored needs the hash six times.
    pub fn new(origin: &'a Origin, path: &'a str, partition: &'a str) -> Self {
        CacheKeyRef { origin, path, partition, hash: SEED.hash_one((origin, path, partition)) }
    }

    pub fn hash_code(&self) -> u64 {
        self.hash
    }

    pub fn to_key(&self) -> CacheKey {
        let (origin, path, partition) = (self.origin.clone(), self.path.into(), self.partition.into());
        CacheKey { origin, path, partition, hash: self.hash }
    }
}

/// Hashes as [`CacheKeyRef`] does, so that either finds the other.
impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for CacheKeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Compares in full: a collision of hashes is a miss.
impl Equivalent<CacheKey> for CacheKeyRef<'_> {
    fn equivalent(&self, key: &CacheKey) -> bool {
        *self.path == *key.path && *self.origin == key.origin && *self.partition == *key.partition
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(scheme: Scheme, host: &str, port: u16, path: &str, partition: &str) -> CacheKey {
        let origin = Origin { scheme, host: HostKey::parse(host).unwrap(), port };
        CacheKeyRef::new(&origin, path, partition).to_key()
    }

    #[test]
    fn a_key_is_read_from_its_url() {
        for (scheme, host, port, path) in [
            (Scheme::Http, "example.com", 80, "/a?b=http://c.test:1/"),
            (Scheme::Https, "example.com", 8443, "/"),
            (Scheme::Http, "[::1]", 80, "/x]:9"),
            (Scheme::Https, "[::1]", 81, "?y"),
        ] {
            let key = key(scheme, host, port, path, "ada");
            assert_eq!(CacheKey::read(&key.url(), "ada"), Some(key));
        }
        assert_eq!(CacheKey::read("ftp://a.test/", ""), None);
    }

    /// C7
    #[test]
    fn only_the_same_url_in_the_same_partition_is_the_same_key() {
        let one = key(Scheme::Http, "example.com", 80, "/a?b", "");
        let same = key(Scheme::Http, "Example.COM.", 80, "/a?b", "");
        assert!(same.borrowed().equivalent(&one));
        let hasher = RandomState::default();
        assert_eq!(hasher.hash_one(&one), hasher.hash_one(same.borrowed()));
        for other in [
            key(Scheme::Https, "example.com", 80, "/a?b", ""),
            key(Scheme::Http, "example.com", 81, "/a?b", ""),
            key(Scheme::Http, "www.example.com", 80, "/a?b", ""),
            key(Scheme::Http, "example.com", 80, "/A?b", ""),
            key(Scheme::Http, "example.com", 80, "/%61?b", ""),
            key(Scheme::Http, "example.com", 80, "/a?b=", ""),
            key(Scheme::Http, "example.com", 80, "/a?b", "ada"),
        ] {
            assert!(!other.borrowed().equivalent(&one), "{other:?}");
        }
    }
}
