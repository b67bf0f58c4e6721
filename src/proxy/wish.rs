//! What a request wishes of its host's lane: who asks, how urgent it is, and how long it would wait.
//!
//! A client may only ask for less: a shorter wait, a later place among its own visits. Nothing it sends makes curtsy
//! less polite.

use std::time::Duration;

use http::header::HeaderName;
use http::request::Parts;

use super::failure::Failure;
use super::{Settings, Worker};
use crate::config::Key;
use crate::gate::Gate;
use crate::politeness::HostKey;
use crate::politeness::visit::{ClientId, Visit};

const CLIENT: HeaderName = HeaderName::from_static("curtsy-client");
const OWN_PRIORITY: HeaderName = HeaderName::from_static("curtsy-priority");
const MAX_WAIT: HeaderName = HeaderName::from_static("curtsy-max-wait");
const PRIORITY: HeaderName = HeaderName::from_static("priority");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// RFC 9218, section 4.1: what is not said is 3.
const USUAL: u8 = 3;

/// Whose budget a visit to this host is taken from (`politeness.key`).
pub(super) async fn budget(worker: &Worker, settings: &Settings, host: &HostKey) -> Result<HostKey, Failure> {
    Ok(match settings.config.politeness.key {
        Key::Host => host.clone(),
        Key::Domain => host.domain(),
        Key::Ip => worker.upstream.address(settings.terms(), host).await?.map_or_else(|| host.clone(), HostKey::from),
    })
}

pub(super) fn read(gate: &Gate, parts: &Parts, user: Option<&str>, peer: ClientId) -> Visit {
    let named = || text(parts, CLIENT);
    let client = user.or_else(named).map_or(peer, |name| gate.client(name));
    Visit {
        client,
        url: gate.url(parts.uri.path_and_query().map_or("/", |path| path.as_str())),
        urgency: urgency(parts),
        retry: false,
        max_wait: shorter(preferred_wait(parts), own_wait(parts)),
    }
}

/// `Priority: u=1` (RFC 9218) or `Curtsy-Priority: 1` to 9.
fn urgency(parts: &Parts) -> u8 {
    let standard = || parameter(text(parts, PRIORITY)?, "u")?.parse().ok().filter(|urgency| *urgency <= 7);
    let own = || text(parts, OWN_PRIORITY)?.trim().parse().ok().filter(|urgency| (1..=9).contains(urgency));
    own().or_else(standard).unwrap_or(USUAL)
}

/// `Prefer: wait=10` (RFC 7240, section 4.3), in seconds.
fn preferred_wait(parts: &Parts) -> Option<Duration> {
    let values = parts.headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    values.filter_map(|value| parameter(value, "wait")?.parse().ok()).next().map(Duration::from_secs)
}

/// `Curtsy-Max-Wait: 0` is "now or never".
fn own_wait(parts: &Parts) -> Option<Duration> {
    text(parts, MAX_WAIT)?.trim().parse().ok().map(Duration::from_secs)
}

fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

fn text(parts: &Parts, name: HeaderName) -> Option<&str> {
    parts.headers.get(name)?.to_str().ok().filter(|text| !text.is_empty())
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
    use super::*;

    fn parts(fields: &[(&str, &str)]) -> Parts {
        let mut request = http::Request::get("http://a.test/");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn the_shortest_wait_counts() {
        let wait = |fields| shorter(preferred_wait(&parts(fields)), own_wait(&parts(fields)));
        assert_eq!(wait(&[]), None);
        assert_eq!(wait(&[("prefer", "respond-async, wait=10")]), Some(Duration::from_secs(10)));
        assert_eq!(wait(&[("prefer", "wait=10"), ("curtsy-max-wait", "0")]), Some(Duration::ZERO));
        assert_eq!(wait(&[("prefer", "wait=soon"), ("curtsy-max-wait", "-1")]), None);
    }

    #[test]
    fn urgency_is_read_from_either_field() {
        assert_eq!(urgency(&parts(&[])), 3);
        assert_eq!(urgency(&parts(&[("priority", "u=1, i")])), 1);
        assert_eq!(urgency(&parts(&[("priority", "i, u=9")])), 3);
        assert_eq!(urgency(&parts(&[("curtsy-priority", "5"), ("priority", "u=0")])), 5);
    }
}
