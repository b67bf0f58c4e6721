//! Learns robots.txt from an answer that is on its way to a client.
//!
//! Clients that are polite themselves request robots.txt first; then curtsy need not fetch it again. The answer is read
//! while it passes and delays no request. Nothing is learned from an answer that breaks off. What is learned counts for
//! every client, so no client may choose the answer: only a request that could be curtsy's own teaches. And because an
//! origin may show some User-Agents another answer (a challenge page, "not found"), a file is learned only if it
//! forbids something, and only where no file that forbids something is known. Anything else curtsy asks the origin
//! itself.

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, HOST, PRAGMA, PROXY_AUTHORIZATION, USER_AGENT,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use tokio::sync::OwnedSemaphorePermit;

use crate::politeness::robots::MAX_BODY;
use crate::politeness::{Origin, policy};
use crate::proxy::{Settings, Shared};
use crate::robots::fetch;

/// An answer that is read while it passes.
#[derive(Debug)]
pub(crate) struct RobotsCapture {
    shared: Arc<Shared>,
    origin: Origin,
    cache_ttl: Duration,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// Limits how many answers are read at the same time, because each is kept until it ends.
    _place: OwnedSemaphorePermit,
}

/// Whether the answer to this request may teach anything.
pub(crate) fn may_come(request: &Parts) -> bool {
    let asks_for_it = request.uri.path_and_query().is_some_and(|path| path == "/robots.txt");
    asks_for_it && request.method == Method::GET && could_be_ours(&request.headers)
}

impl RobotsCapture {
    /// Returns a box, because a lesson is rare and its space would be part of every answer.
    pub(crate) fn begin<B>(
        shared: &Arc<Shared>,
        settings: &Settings,
        origin: &Origin,
        response: &Response<B>,
    ) -> Option<Box<RobotsCapture>> {
        let status = response.status().as_u16();
        let plain = response.headers().get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        let tells = status == 200 && plain;
        let shared = shared.clone();
        if !tells || shared.gate.policy(&origin.host).robots == policy::RobotsMode::Off {
            return None;
        }
        Some(Box::new(RobotsCapture {
            _place: shared.robots.read_along(origin)?,
            origin: origin.clone(),
            cache_ttl: settings.config.robots.cache_ttl,
            status,
            headers: response.headers().clone(),
            body: Vec::new(),
            shared,
        }))
    }

    /// Reads a piece of the body that is passing.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        // One byte above the limit is kept, to show that there is more.
        let room = (MAX_BODY + 1).saturating_sub(self.body.len());
        self.body.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    /// Learns from the answer after all of it has passed.
    pub(crate) fn end(self) {
        let RobotsCapture { shared, origin, cache_ttl, status, headers, body, .. } = self;
        let previous = shared.robots.record(&origin);
        let record = fetch::overheard(previous.as_deref(), status, headers, body, cache_ttl);
        if !record.forbids_something() {
            return;
        }
        shared.robots.learn(&origin, record);
        tracing::debug!(event = "robots.learned", %origin, status, "robots.txt learned from an answer to a client");
    }
}

/// Whether nothing in the request makes its answer different from the one that curtsy would get. With a Range, a Cookie
/// or `Accept: application/json` a client could make the origin say things about robots.txt that it says to no other
/// client; with `max-stale` or `only-if-cached` it could choose an old copy from a cache on the way.
fn could_be_ours(headers: &HeaderMap) -> bool {
    let harmless = |name: &HeaderName| {
        const HARMLESS: [HeaderName; 5] = [HOST, USER_AGENT, ACCEPT_ENCODING, CONNECTION, PROXY_AUTHORIZATION];
        HARMLESS.contains(name) || matches!(name.as_str(), "proxy-connection" | "keep-alive") || is_our_own(name)
    };
    headers.iter().all(|(name, value)| {
        harmless(name)
            || (name == ACCEPT && (value == "*/*" || value == "text/plain"))
            || ((name == CACHE_CONTROL || name == PRAGMA) && asks_for_a_new_copy(value))
    })
}

/// Whether this field only makes a cache answer with a newer copy.
fn asks_for_a_new_copy(value: &HeaderValue) -> bool {
    let is_new = |directive: &str| matches!(directive.trim().to_ascii_lowercase().as_str(), "no-cache" | "max-age=0");
    value.to_str().is_ok_and(|text| text.split(',').all(is_new))
}

/// `Curtsy-*` fields are for curtsy and are never passed on.
fn is_our_own(name: &HeaderName) -> bool {
    name.as_str().starts_with("curtsy-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(fields: &[(&'static str, &str)]) -> bool {
        let fields = fields.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        could_be_ours(&fields.collect())
    }

    #[test]
    fn only_a_request_that_could_be_our_own_teaches() {
        assert!(ours(&[("host", "a.test"), ("user-agent", "x"), ("accept", "*/*"), ("accept-encoding", "gzip")]));
        assert!(ours(&[("curtsy-client", "a"), ("proxy-connection", "keep-alive")]));
        assert!(ours(&[("cache-control", "no-cache, Max-Age=0"), ("pragma", "no-cache")]));
        for (name, value) in [
            ("range", "bytes=0-0"),
            ("cookie", "a=b"),
            ("authorization", "Basic dTpw"),
            ("accept", "application/json"),
            ("if-none-match", "\"x\""),
            ("x-forwarded-host", "b.test"),
            ("content-length", "5"),
            ("cache-control", "max-stale"),
            ("cache-control", "no-cache, only-if-cached"),
            ("cache-control", "max-age=1"),
            ("cache-control", ""),
            ("pragma", "x-get-cache-key"),
        ] {
            assert!(!ours(&[("host", "a.test"), (name, value)]), "{name}");
        }
    }
}
