//! Names to addresses: the system's resolver with a time limit, one look-up at a time for a name, and a bounded cache.
//!
//! The system's resolver (files, DNS, mDNS as the machine is set up) gives no TTL, so answers are kept for a fixed
//! short while; see docs/decisions/0002-system-resolver.md.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout};

use super::error::UpstreamError;
use crate::clock;
use crate::politeness::HostKey;

/// How long an answer is used. A polite crawler visits a host once a second, so this saves nearly every look-up, and a
/// moved site is found within a minute.
const KEEP: Duration = Duration::from_secs(60);
/// How long "no such name" is believed.
const KEEP_FAILURE: Duration = Duration::from_secs(5);
/// Names kept. At about 200 bytes each, 2 MB.
const MOST: usize = 10_000;

#[derive(Debug, Default)]
pub struct Resolver {
    names: DashMap<HostKey, Arc<OnceCell<Answer>>>,
}

#[derive(Debug)]
struct Answer {
    addresses: Result<Arc<[IpAddr]>, String>,
    until: Instant,
}

impl Resolver {
    /// All addresses of a host. An IP literal is its own address.
    pub async fn lookup(&self, host: &HostKey, limit: Duration) -> Result<Arc<[IpAddr]>, UpstreamError> {
        if let Some(ip) = host.ip() {
            return Ok(Arc::new([ip]));
        }
        let cell = self.cell(host);
        // The first to ask looks up; if its client leaves, the next one in line goes on.
        let answer = timeout(limit, cell.get_or_init(|| ask_system(host))).await;
        match answer {
            Ok(answer) => answer.addresses.clone().map_err(UpstreamError::Dns),
            Err(_) => Err(UpstreamError::DnsTimeout),
        }
    }

    fn cell(&self, host: &HostKey) -> Arc<OnceCell<Answer>> {
        let now = clock::now();
        if let Some(cell) = self.names.get(host).map(|entry| entry.clone())
            && cell.get().is_none_or(|answer| answer.until > now)
        {
            return cell;
        }
        if self.names.len() >= MOST {
            self.make_room(now);
        }
        let cell = Arc::new(OnceCell::new());
        self.names.insert(host.clone(), cell.clone());
        cell
    }

    /// Forgets what has expired; if that is nothing, forgets everything rather than fail a new name. A look-up that is
    /// under way goes on, it is only not shared.
    fn make_room(&self, now: Instant) {
        self.names.retain(|_, cell| cell.get().is_none_or(|answer| answer.until > now));
        if self.names.len() >= MOST {
            self.names.clear();
        }
    }
}

async fn ask_system(host: &HostKey) -> Answer {
    let addresses = match tokio::net::lookup_host((host.as_str(), 0)).await {
        Ok(found) => {
            let mut ips: Vec<IpAddr> = found.map(|address| address.ip()).collect();
            ips.dedup();
            if ips.is_empty() { Err("no address".to_owned()) } else { Ok(ips.into()) }
        }
        Err(error) => Err(resolver_words(&error.to_string())),
    };
    let keep = if addresses.is_ok() { KEEP } else { KEEP_FAILURE };
    Answer { addresses, until: clock::now() + keep }
}

fn resolver_words(text: &str) -> String {
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    #[tokio::test]
    async fn localhost_has_an_address_and_is_remembered() {
        let resolver = Resolver::default();
        let host = HostKey::parse("localhost").unwrap();
        let found = resolver.lookup(&host, LIMIT).await.unwrap();
        assert!(found.iter().all(IpAddr::is_loopback));
        assert!(Arc::ptr_eq(&found, &resolver.lookup(&host, LIMIT).await.unwrap()));
    }

    #[tokio::test]
    async fn a_full_cache_forgets_instead_of_failing() {
        let resolver = Resolver::default();
        for n in 0..MOST {
            let answer = Answer { addresses: Ok(Arc::new([])), until: clock::now() + KEEP };
            let host = HostKey::parse(&format!("h{n}.test")).unwrap();
            resolver.names.insert(host, Arc::new(OnceCell::new_with(Some(answer))));
        }
        resolver.lookup(&HostKey::parse("localhost").unwrap(), LIMIT).await.unwrap();
        assert!(resolver.names.len() <= MOST);
    }
}
