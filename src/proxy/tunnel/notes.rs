//! Remembers hosts whose tunnels are not paced inside, for the log (at most once an hour for each) and for the API; and
//! clients whose tunnels were closed because of that, for the answer to their next CONNECT.
//!
//! Bounded: if there are more hosts than room, only the metrics count the rest.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use quick_cache::sync::Cache;
use tokio::time::Instant;

use super::bursts::Unpaced;
use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::visit::ClientId;

/// How often a host is logged, and for how long it is remembered.
const EVERY: Duration = Duration::from_secs(3600);
/// Hosts remembered, at about 100 bytes each.
const MOST: usize = 1_000;

#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<HashMap<HostKey, UnpacedNote>>);

#[derive(Debug)]
struct UnpacedNote {
    since: Instant,
    last: Unpaced,
    tunnels: u64,
}

impl Notes {
    /// Notes that a tunnel to this host is not paced inside.
    pub(crate) fn note(&self, host: &HostKey, why: Unpaced) {
        let now = clock::now();
        let mut notes = self.0.lock();
        if let Some(note) = notes.get_mut(host).filter(|note| note.is_fresh(now)) {
            note.last = why;
            note.tunnels += 1;
            return;
        }
        if notes.len() >= MOST {
            notes.retain(|_, note| note.is_fresh(now));
        }
        if notes.len() < MOST {
            notes.insert(host.clone(), UnpacedNote { since: now, last: why, tunnels: 1 });
            drop(notes);
            tracing::warn!(event = "tunnel.unpaced", %host, reason = why.label(), "{}", why.advice());
        }
    }

    /// Returns the reason of the last unpaced tunnel to this host, and how many were unpaced within the hour.
    pub(crate) fn of(&self, host: &HostKey) -> Option<(&'static str, u64)> {
        let now = clock::now();
        self.0.lock().get(host).filter(|note| note.is_fresh(now)).map(|note| (note.last.label(), note.tunnels))
    }
}

/// Clients whose tunnel to a host had HTTP/2 inside and was closed.
#[derive(Debug)]
pub(crate) struct Http2Refusals(Cache<(ClientId, HostKey), Instant>);

/// A client that comes later asks for something else.
const REFUSED_FOR: Duration = Duration::from_secs(10 * 60);

impl Default for Http2Refusals {
    fn default() -> Self {
        Http2Refusals(Cache::new(MOST))
    }
}

impl Http2Refusals {
    pub(crate) fn note(&self, client: ClientId, host: &HostKey) {
        self.0.insert((client, host.clone()), clock::now() + REFUSED_FOR);
    }

    /// Whether the next tunnel of this client to the host is refused. True once for each tunnel that was closed: a
    /// client that uses HTTP/1.1 afterwards gets through.
    pub(crate) fn take(&self, client: ClientId, host: &HostKey) -> bool {
        self.0.remove(&(client, host.clone())).is_some_and(|(_, until)| clock::now() < until)
    }
}

impl UnpacedNote {
    fn is_fresh(&self, now: Instant) -> bool {
        now.duration_since(self.since) < EVERY
    }
}

impl Unpaced {
    /// The label in metrics and in the API.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Unpaced::Http2 => "http2",
            Unpaced::WebSocket => "websocket",
            Unpaced::Other => "other",
            Unpaced::Off => "off",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Unpaced::Http2 => {
                "requests to this host are not paced: they are inside an HTTP/2 tunnel, and only the opening of the \
                 tunnel waited for a turn; turn on interception (curtsy --intercept), let the client use HTTP/1.1 (curl \
                 --http1.1), or set tls.tunnel.http2 = \"refuse\""
            }
            Unpaced::WebSocket => {
                "what this host is sent is not paced: a tunnel carries no requests and answers (probably a WebSocket), \
                 and only its opening waited for a turn; turn on interception (curtsy --intercept) to pace requests"
            }
            Unpaced::Other => {
                "what this host is sent is not paced: a tunnel carries something other than HTTP over TLS, and only its \
                 opening waited for a turn; if it should not, leave its port out of access.connect_ports"
            }
            Unpaced::Off => "requests inside tunnels are not paced: tls.tunnel.pace_requests is off",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str) -> HostKey {
        HostKey::parse(name).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_remembered_for_an_hour() {
        let notes = Notes::default();
        assert_eq!(notes.of(&host("a.test")), None);
        notes.note(&host("a.test"), Unpaced::Http2);
        notes.note(&host("a.test"), Unpaced::WebSocket);
        assert_eq!(notes.of(&host("a.test")), Some(("websocket", 2)));
        assert_eq!(notes.of(&host("b.test")), None);
        tokio::time::advance(EVERY).await;
        assert_eq!(notes.of(&host("a.test")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_room_for_so_many_hosts_and_no_more() {
        let notes = Notes::default();
        for number in 0..2 * MOST {
            notes.note(&host(&format!("h{number}.test")), Unpaced::Other);
        }
        assert_eq!(notes.0.lock().len(), MOST);
        tokio::time::advance(EVERY).await;
        notes.note(&host("late.test"), Unpaced::Other);
        assert_eq!(notes.0.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_is_refused_once_for_each_tunnel() {
        let (refusals, at) = (Http2Refusals::default(), host("a.test"));
        refusals.note(ClientId(1), &at);
        assert!(!refusals.take(ClientId(2), &at) && !refusals.take(ClientId(1), &host("b.test")));
        assert!(refusals.take(ClientId(1), &at) && !refusals.take(ClientId(1), &at));
        refusals.note(ClientId(1), &at);
        tokio::time::advance(REFUSED_FOR).await;
        assert!(!refusals.take(ClientId(1), &at));
    }
}
