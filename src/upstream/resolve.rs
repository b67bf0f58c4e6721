//! Names to addresses: the system's resolver with a time limit and bounded caches.
//!
//! The system's resolver (files, DNS, mDNS as the machine is set up) gives no TTL, so answers are kept for a fixed
//! short time; see docs/decisions/0002-system-resolver.md. `lookups.rs` decides which client may look up what, and
//! when.

use std::fmt;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use quick_cache::sync::Cache;
use tokio::time::{Instant, timeout};

use super::error::UpstreamError;
use super::lookups::{LookedUp, Lookup, Lookups, LookupsFull};
use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::visit::ClientId;

/// How long an answer is used. A polite crawler visits a host once a second, so this saves nearly every look-up, and a
/// moved site is found within a minute.
const KEEP: Duration = Duration::from_secs(60);
/// How long "no such name" is remembered, and that a name takes too long.
const KEEP_FAILURE: Duration = Duration::from_secs(5);
/// How long a name that resolved takes precedence over names that may not exist.
const PROVEN: Duration = Duration::from_secs(3600);
/// Names kept, resolved and failed ones each. At about 200 bytes each, 2 MB. Dead names never push out good ones.
const MOST: usize = 10_000;

pub struct Resolver {
    lookups: Arc<Lookups>,
    known: Arc<KnownNames>,
    /// How long an answer is used.
    keep: Duration,
}

/// The results of look-ups.
struct KnownNames {
    answers: Cache<HostKey, ResolvedName>,
    failures: Cache<HostKey, FailedName>,
    /// The address that was reached last, for hosts with several.
    reached: Cache<HostKey, IpAddr>,
}

#[derive(Clone)]
struct ResolvedName {
    addresses: Arc<[IpAddr]>,
    at: Instant,
}

#[derive(Clone)]
struct FailedName {
    /// The resolver's error text; None if the look-up took too long.
    why: Option<Arc<str>>,
    until: Instant,
}

impl Default for Resolver {
    fn default() -> Self {
        Resolver::new(Arc::new(ask_system), KEEP)
    }
}

impl Resolver {
    /// Creates a resolver that calls this function, on threads of its own, and uses an answer for `keep`.
    pub fn new(lookup: Arc<Lookup>, keep: Duration) -> Self {
        let (answers, failures, reached) = (Cache::new(MOST), Cache::new(MOST), Cache::new(MOST));
        let known = Arc::new(KnownNames { answers, failures, reached });
        let keeper = known.clone();
        let lookups = Lookups::new(lookup, move |host, found| keeper.keep(host, found));
        Resolver { lookups, known, keep }
    }

    /// Returns all addresses of a host. An IP literal is its own address.
    pub async fn lookup(
        &self,
        host: &HostKey,
        client: ClientId,
        limit: Duration,
    ) -> Result<Arc<[IpAddr]>, UpstreamError> {
        if let Some(ip) = host.ip() {
            return Ok(Arc::new([ip]));
        }
        let now = clock::now();
        if let Some(known) = self.known.of(host, self.keep, now) {
            return known;
        }
        let asking = self.lookups.ask(host, client, self.known.is_proven(host, now));
        // By then every request that waits now has an answer, or has given up. Random, or they would all retry at once.
        let mut asking =
            asking.map_err(|LookupsFull| UpstreamError::DnsBusy(limit + limit.mul_f64(fastrand::f64())))?;
        match timeout(limit, asking.found()).await {
            Ok(found) => found.map_err(UpstreamError::Dns),
            Err(_) => {
                // A name that no thread has looked up yet may be a good one.
                if asking.is_running() {
                    self.known.fail(host, None);
                }
                Err(UpstreamError::DnsTimeout)
            }
        }
    }

    /// Returns the addresses in the order in which to try them one by one: first the one that was reached last, then by
    /// number, so that all workers and all names of a machine agree.
    pub(super) fn in_order(&self, host: &HostKey, addresses: &[IpAddr]) -> Vec<IpAddr> {
        let mut order = addresses.to_vec();
        order.sort_unstable();
        order.dedup();
        if order.len() > 1
            && let Some(reached) = self.known.reached.get(host)
            && let Some(place) = order.iter().position(|ip| *ip == reached)
        {
            order[..=place].rotate_right(1);
        }
        order
    }

    /// Remembers which address of a host could be reached.
    pub(super) fn reached(&self, host: &HostKey, ip: IpAddr) {
        if host.ip().is_none() && self.known.reached.get(host) != Some(ip) {
            self.known.reached.insert(host.clone(), ip);
        }
    }
}

impl KnownNames {
    fn of(&self, host: &HostKey, keep: Duration, now: Instant) -> Option<Result<Arc<[IpAddr]>, UpstreamError>> {
        if let Some(answer) = self.answers.get(host).filter(|answer| now < answer.at + keep) {
            return Some(Ok(answer.addresses));
        }
        let failed = self.failures.get(host).filter(|failed| now < failed.until)?;
        Some(Err(failed.why.map_or(UpstreamError::DnsTimeout, |why| UpstreamError::Dns(why.as_ref().to_owned()))))
    }

    fn is_proven(&self, host: &HostKey, now: Instant) -> bool {
        self.answers.get(host).is_some_and(|answer| now < answer.at + PROVEN)
    }

    fn keep(&self, host: &HostKey, found: &LookedUp) {
        match found {
            Ok(addresses) => {
                self.answers.insert(host.clone(), ResolvedName { addresses: addresses.clone(), at: clock::now() });
                self.failures.remove(host);
            }
            Err(why) => self.fail(host, Some(why)),
        }
    }

    fn fail(&self, host: &HostKey, why: Option<&str>) {
        let failed = FailedName { why: why.map(Arc::from), until: clock::now() + KEEP_FAILURE };
        self.failures.insert(host.clone(), failed);
    }
}

fn ask_system(name: &str) -> std::io::Result<Vec<IpAddr>> {
    Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "resolve_tests.rs"]
mod tests;
