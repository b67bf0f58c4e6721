//! What a request asks of its host's lane: the name of its client, how urgent it is, and how long it would wait.
//!
//! A client may only ask for less: a shorter wait, a later place among its own visits. Nothing it sends makes curtsy
//! less polite.

use std::hash::Hasher;
use std::time::Duration;

use fnv::FnvHasher;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::gate::Gate;
use crate::politeness::Origin;
use crate::politeness::visit::{ClientId, USUAL_URGENCY, Visit};
use crate::proxy::Settings;

/// Returns the client as a number, as [`visit`] does, for callers that need nothing else.
pub(crate) fn client(gate: &Gate, headers: &HeaderMap, user: Option<&str>, peer: Peer) -> ClientId {
    peer.named(gate, user.or_else(|| name(headers)))
}

/// The other end of the connection, and what a name means there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Derived from its address.
    pub(crate) id: ClientId,
    /// Whether users log in. If not, a name only separates the clients of one address.
    pub(crate) logs_in: bool,
}

impl Peer {
    pub(crate) fn new(settings: &Settings, id: ClientId) -> Self {
        Peer { id, logs_in: settings.users.is_some() }
    }

    pub(crate) fn named(self, gate: &Gate, name: Option<&str>) -> ClientId {
        match name.map(|name| gate.client(name)) {
            None => self.id,
            Some(user) if self.logs_in => user,
            Some(name) => self.id.named(name),
        }
    }
}

/// Made once, because looking it up by text costs each request twice as much.
static CLIENT: HeaderName = HeaderName::from_static("curtsy-client");

/// Returns the name that the client gives itself.
pub(crate) fn name(headers: &HeaderMap) -> Option<&str> {
    headers.get_all(&CLIENT).iter().find_map(text)
}

/// Hashes a path. Not keyed, because the hash only separates a client's own visits.
pub(crate) fn digest(path: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(path.as_bytes());
    hasher.finish()
}

/// Reads what a request asks of its host's lane. Also returns the client's name: a proxy user, or the name that the
/// client gives itself.
///
/// Reads the fields in one pass: most requests have none of these, and asking for each by name costs three times as
/// much.
pub(crate) fn visit<'a>(
    gate: &Gate,
    origin: &Origin,
    parts: &'a Parts,
    user: Option<&'a str>,
    peer: Peer,
) -> (Visit, Option<&'a str>) {
    let (mut name, mut max_wait, mut urgency, mut own_urgency) = (user, None, None, None);
    let may_be_option = |(field, _): &(&HeaderName, _)| matches!(field.as_str().as_bytes().first(), Some(b'c' | b'p'));
    for (field, value) in parts.headers.iter().filter(may_be_option) {
        match field.as_str() {
            "curtsy-client" => name = name.or(text(value)),
            "curtsy-priority" => own_urgency = own_urgency.or(read_own_urgency(value)),
            "priority" => urgency = urgency.or(read_urgency(value)),
            "curtsy-max-wait" => max_wait = shorter(max_wait, own_wait(value)),
            "prefer" => max_wait = shorter(max_wait, preferred_wait(value)),
            _ => {}
        }
    }
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let visit = Visit {
        origin: gate.origin(origin),
        peer: peer.id,
        urgency: own_urgency.or(urgency).unwrap_or(USUAL_URGENCY),
        max_wait,
        ..Visit::new(peer.named(gate, name), digest(path))
    };
    (visit, name)
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// `Priority: u=1` (RFC 9218).
fn read_urgency(value: &HeaderValue) -> Option<u8> {
    parameter(text(value)?, "u")?.parse().ok().filter(|urgency| *urgency <= 7)
}

/// `Curtsy-Priority: 1` to 9.
fn read_own_urgency(value: &HeaderValue) -> Option<u8> {
    text(value)?.trim().parse().ok().filter(|urgency| (1..=9).contains(urgency))
}

/// `Prefer: wait=10` (RFC 7240, section 4.3), in seconds.
fn preferred_wait(value: &HeaderValue) -> Option<Duration> {
    parameter(text(value)?, "wait")?.parse().ok().map(Duration::from_secs)
}

/// `Curtsy-Max-Wait: 0` is "now or never".
fn own_wait(value: &HeaderValue) -> Option<Duration> {
    text(value)?.trim().parse().ok().map(Duration::from_secs)
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok().filter(|text| !text.is_empty())
}

/// The value of `name=value` in a list.
fn parameter<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split([',', ';']).find_map(|item| {
        let (key, value) = item.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::{HeaderName, Request};

    use super::*;
    use crate::gate::{Bounds, HostPersistence};
    use crate::politeness::HostKey;
    use crate::politeness::policy::PolicyBook;
    use crate::store::{Retention, Store};

    fn gate() -> Arc<Gate> {
        let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
        let bounds = Bounds { most: 1, idle: Duration::ZERO };
        Gate::new(PolicyBook::default(), bounds, 1, memories, Arc::default()).into()
    }

    fn parts(fields: &[(&str, &str)]) -> Parts {
        let mut request = Request::new(());
        for (name, value) in fields {
            let (name, value) =
                (HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
            request.headers_mut().append(name, value);
        }
        request.into_parts().0
    }

    fn visit_with(fields: &[(&str, &str)]) -> Visit {
        let (gate, origin) = (gate(), Origin::of_tunnel(HostKey::parse("a.test").unwrap(), 80));
        let peer = Peer { id: gate.client("peer"), logs_in: false };
        visit(&gate, &origin, &parts(fields), None, peer).0
    }

    #[test]
    fn the_shortest_wait_counts() {
        let wait = |fields: &[_]| visit_with(fields).max_wait;
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("prefer", "respond-async, wait=10")]), Some(Duration::from_secs(10)));
        assert_eq!(wait(&[("prefer", "wait=10"), ("curtsy-max-wait", "0")]), Some(Duration::ZERO));
        assert_eq!(wait(&[("curtsy-max-wait", "3"), ("prefer", "wait=10")]), Some(Duration::from_secs(3)));
        assert_eq!(wait(&[("prefer", "wait=soon"), ("curtsy-max-wait", "-1")]), None);
    }

    #[test]
    fn a_client_is_the_same_to_its_lane_and_to_its_quota() {
        let gate = gate();
        let id = gate.client("peer");
        for (user, fields) in [
            (None, &[][..]),
            (None, &[("curtsy-client", "")]),
            (None, &[("curtsy-client", "a")]),
            (None, &[("curtsy-client", "\u{e9}"), ("curtsy-client", "b"), ("curtsy-client", "c")]),
            (Some("ada"), &[("curtsy-client", "a")]),
        ] {
            let parts = parts(fields);
            let origin = Origin::of_tunnel(HostKey::parse("a.test").unwrap(), 80);
            for logs_in in [false, true] {
                let peer = Peer { id, logs_in };
                let in_lane = visit(&gate, &origin, &parts, user, peer).0.client;
                assert_eq!(client(&gate, &parts.headers, user, peer), in_lane, "{user:?} {fields:?}");
                assert!(logs_in || in_lane.owner() == id.owner(), "a name takes no turns of its own: {fields:?}");
            }
        }
    }

    /// S62
    #[test]
    fn urgency_is_read_from_either_field() {
        let urgency = |fields: &[_]| visit_with(fields).urgency;
        assert_eq!(urgency(&[]), USUAL_URGENCY);
        assert_eq!(urgency(&[("priority", "u=1, i")]), 1);
        assert_eq!(urgency(&[("priority", "i, u=9")]), USUAL_URGENCY);
        assert_eq!(urgency(&[("curtsy-priority", "5"), ("priority", "u=0")]), 5);
        assert_eq!(urgency(&[("priority", "u=0"), ("curtsy-priority", "5")]), 5);
        assert_eq!(urgency(&[("curtsy-priority", "0")]), USUAL_URGENCY);
    }
}
