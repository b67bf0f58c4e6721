//! Learning robots.txt from an answer that is on its way to a client.
//!
//! Clients that are polite themselves ask for robots.txt first; then curtsy need not ask for it again. The answer is
//! read along while it passes and delays nobody; of one that breaks off nothing is learned. What is learned counts for
//! every client, so nobody may be able to choose the answer: only a request that could be curtsy's own teaches, and only
//! if the answer is the file or "there is none".

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, HOST, PRAGMA, PROXY_AUTHORIZATION, USER_AGENT,
};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method, Response};
use tokio::sync::OwnedSemaphorePermit;

use super::{Settings, Shared, Worker};
use crate::politeness::robots::MAX_BODY;
use crate::politeness::{Origin, policy};
use crate::robots::fetch;

/// An answer that is read along.
#[derive(Debug)]
pub(super) struct Lesson {
    shared: Arc<Shared>,
    origin: Origin,
    cache_ttl: Duration,
    status: u16,
    headers: HeaderMap,
    body: Vec<u8>,
    /// How many answers are read along at the same time is bounded, because each is kept until it ends.
    _place: OwnedSemaphorePermit,
}

/// Whether the answer to this request may teach anything.
pub(super) fn may_come(request: &Parts) -> bool {
    let asks_for_it = request.uri.path_and_query().is_some_and(|path| path == "/robots.txt");
    asks_for_it && request.method == Method::GET && could_be_ours(&request.headers)
}

impl Lesson {
    /// Boxed, because it is rare and its space would be part of every answer.
    pub(super) fn begin<B>(
        worker: &Worker,
        settings: &Settings,
        origin: &Origin,
        response: &Response<B>,
    ) -> Option<Box<Lesson>> {
        let status = response.status().as_u16();
        let plain = response.headers().get(CONTENT_ENCODING).is_none_or(|coding| coding == "identity");
        let tells = matches!(status, 404 | 410) || (status == 200 && plain);
        let shared = worker.shared.clone();
        if !tells || shared.gate.policy(&origin.host).robots == policy::Robots::Off {
            return None;
        }
        Some(Box::new(Lesson {
            _place: shared.robots.read_along(origin)?,
            origin: origin.clone(),
            cache_ttl: settings.config.robots.cache_ttl,
            status,
            headers: response.headers().clone(),
            body: Vec::new(),
            shared,
        }))
    }

    /// A piece of the body is passing.
    pub(super) fn read(&mut self, piece: &[u8]) {
        // One byte more than is looked at tells that there is more.
        let room = (MAX_BODY + 1).saturating_sub(self.body.len());
        if self.status == 200 {
            self.body.extend_from_slice(&piece[..piece.len().min(room)]);
        }
    }

    /// All of it has passed.
    pub(super) fn end(self) {
        let Lesson { shared, origin, cache_ttl, status, headers, body, .. } = self;
        let previous = shared.robots.record(&origin);
        let record = fetch::overheard(previous.as_deref(), status, headers, body, cache_ttl);
        shared.robots.learn(&origin, record);
        tracing::debug!(event = "robots.learned", %origin, status, "robots.txt learned from an answer to a client");
    }
}

/// Whether nothing in the request makes its answer another than the one that curtsy would get. With a Range, a Cookie
/// or `Accept: application/json` a client could have the origin say things about robots.txt that it says to nobody
/// else.
fn could_be_ours(headers: &HeaderMap) -> bool {
    let harmless = |name: &HeaderName| {
        const HARMLESS: [HeaderName; 7] =
            [HOST, USER_AGENT, ACCEPT_ENCODING, CONNECTION, PROXY_AUTHORIZATION, CACHE_CONTROL, PRAGMA];
        HARMLESS.contains(name) || matches!(name.as_str(), "proxy-connection" | "keep-alive") || is_our_own(name)
    };
    headers.iter().all(|(name, value)| harmless(name) || (name == ACCEPT && (value == "*/*" || value == "text/plain")))
}

/// `Curtsy-*` is for curtsy and never crosses.
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
        for (name, value) in [
            ("range", "bytes=0-0"),
            ("cookie", "a=b"),
            ("authorization", "Basic dTpw"),
            ("accept", "application/json"),
            ("if-none-match", "\"x\""),
            ("x-forwarded-host", "b.test"),
            ("content-length", "5"),
        ] {
            assert!(!ours(&[("host", "a.test"), (name, value)]), "{name}");
        }
    }
}
