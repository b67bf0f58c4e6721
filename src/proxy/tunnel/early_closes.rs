//! Remembers where it does harm that curtsy closes a tunnel behind an answer: hosts that pause within answers, and
//! clients that send a request into a tunnel that is closed already.
//!
//! Bounded: if there are more hosts or clients than room, the rest is not remembered.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::visit::ClientId;
use crate::telemetry::{LogLimiter, REPEAT};

/// For how long a host or client is remembered.
const LASTS: Duration = Duration::from_secs(3600);
/// How many of either are remembered, at about 100 bytes each.
const MOST: usize = 1_000;

/// A client and the kind of its program: programs of one machine are often one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKind {
    pub(crate) client: ClientId,
    /// A hash of what does not change in the hellos of a program.
    pub(crate) program: u64,
}

#[derive(Debug, Default)]
pub(crate) struct EarlyCloses {
    hosts: Mutex<HashMap<HostKey, Instant>>,
    clients: Mutex<HashMap<ClientKind, Instant>>,
}

impl EarlyCloses {
    /// Notes that an answer of this host went on after the end of its tunnel.
    pub(crate) fn cut(&self, host: &HostKey) {
        remember(&self.hosts, host.clone());
        static SAID: LogLimiter = LogLimiter::new();
        if let Some(more) = SAID.may_speak(REPEAT) {
            tracing::warn!(
                event = "tunnel.cut", %host, more,
                "an origin paused within an answer, and curtsy took that for its end and closed the tunnel; for an hour \
                 curtsy closes no more tunnels to it; use interception for this host"
            );
        }
    }

    /// Notes that a client has sent a request into a tunnel that was closed.
    pub(crate) fn reused(&self, client: ClientKind, host: &HostKey) {
        remember(&self.clients, client);
        static SAID: LogLimiter = LogLimiter::new();
        if let Some(more) = SAID.may_speak(REPEAT) {
            tracing::info!(
                event = "tunnel.reused", %host, more,
                "a client sent a request into a tunnel that curtsy had just closed; most clients repeat such a request; \
                 for an hour curtsy keeps the tunnels of this client open for longer"
            );
        }
    }

    /// Whether tunnels to this host are not closed behind answers.
    pub(crate) fn cuts(&self, host: &HostKey) -> bool {
        self.hosts.lock().get(host).is_some_and(|since| is_fresh(*since))
    }

    /// Whether the client sends requests into closed tunnels.
    pub(crate) fn is_reused(&self, client: ClientKind) -> bool {
        self.clients.lock().get(&client).is_some_and(|since| is_fresh(*since))
    }
}

fn is_fresh(since: Instant) -> bool {
    clock::now().duration_since(since) < LASTS
}

fn remember<K: Eq + Hash>(known: &Mutex<HashMap<K, Instant>>, key: K) {
    let mut known = known.lock();
    if known.len() >= MOST {
        known.retain(|_, since| is_fresh(*since));
    }
    if known.len() < MOST {
        known.insert(key, clock::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(program: u64) -> ClientKind {
        ClientKind { client: ClientId(1), program }
    }

    #[tokio::test(start_paused = true)]
    async fn hosts_and_clients_are_remembered_for_an_hour() {
        let (closes, host) = (EarlyCloses::default(), HostKey::parse("a.test").unwrap());
        assert!(!closes.cuts(&host) && !closes.is_reused(kind(1)));
        closes.cut(&host);
        closes.reused(kind(1), &host);
        assert!(closes.cuts(&host) && closes.is_reused(kind(1)) && !closes.is_reused(kind(2)));
        tokio::time::advance(LASTS).await;
        assert!(!closes.cuts(&host) && !closes.is_reused(kind(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many_and_no_more() {
        let (closes, host) = (EarlyCloses::default(), HostKey::parse("a.test").unwrap());
        for program in 0..2 * MOST as u64 {
            closes.reused(kind(program), &host);
        }
        assert_eq!(closes.clients.lock().len(), MOST);
        tokio::time::advance(LASTS).await;
        closes.reused(kind(0), &host);
        assert_eq!(closes.clients.lock().len(), 1);
    }
}
