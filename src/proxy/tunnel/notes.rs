//! Remembers hosts whose tunnels are not paced inside, for the log (at most once an hour for each) and for the API.
//!
//! Bounded: if there are more hosts than room, only the metrics count the rest.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::bursts::Unpaced;
use crate::clock;
use crate::politeness::HostKey;

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
            tracing::info!(event = "tunnel.unpaced", %host, reason = why.label(), "{}", why.advice());
        }
    }

    /// Returns the reason of the last unpaced tunnel to this host, and how many were unpaced within the hour.
    pub(crate) fn of(&self, host: &HostKey) -> Option<(&'static str, u64)> {
        let now = clock::now();
        self.0.lock().get(host).filter(|note| note.is_fresh(now)).map(|note| (note.last.label(), note.tunnels))
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
            Unpaced::Http2 => "requests inside an HTTP/2 tunnel cannot be separated: the tunnel takes one turn",
            Unpaced::WebSocket => "a tunnel carries no requests and answers (probably a WebSocket): it takes one turn",
            Unpaced::Other => "a tunnel carries something other than HTTP over TLS: it takes one turn",
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
}
