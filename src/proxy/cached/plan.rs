//! What a request remembers about the cache while it waits for its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use http::header::{ETAG, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

use super::kept::KeptRequest;
use crate::cache::{CacheKey, ChangeCount, Entry};
use crate::politeness::policy::{CacheMode, Mode, Policy};
use crate::politeness::reuse::reusing::ValidateReason;
use crate::politeness::reuse::storing::CacheRules;
use crate::proxy::Settings;
#[cfg(test)]
use crate::{
    cache::CacheKeyRef,
    politeness::{HostKey, Origin, Scheme, reuse::request::CacheRequest},
};

/// How the cache concerns a request that is sent to its origin.
#[derive(Debug)]
pub(crate) enum CacheStep {
    /// The cache is off for this host.
    Off,
    /// Nothing stored answers it, and its answer is not stored.
    Forward(ForwardReason),
    /// Its method changes something: a success makes stored answers invalid.
    Invalidate(Box<CacheKey>),
    /// Its answer may be stored.
    Plan(Arc<CachePlan>),
}

/// A request whose answer may be stored.
#[derive(Debug)]
pub(crate) struct CachePlan {
    pub(crate) key: CacheKey,
    /// The count of changes of the URL when the request was made.
    pub(super) asked: ChangeCount,
    pub(crate) request: KeptRequest,
    pub(crate) host: HostCache,
    pub(super) why: ForwardReason,
    /// The stored answer that the origin is asked about.
    pub(super) entry: Option<Arc<Entry>>,
    /// The conditions of the request are ours.
    pub(super) conditional: AtomicBool,
}

impl CachePlan {
    /// Whether nothing was stored for its URL.
    pub(crate) fn found_nothing(&self) -> bool {
        self.why == ForwardReason::UriMiss
    }
}

#[cfg(test)]
impl CachePlan {
    /// The plan of a GET for this path, without header fields and with nothing stored.
    pub(crate) fn of_get(path: &str) -> Arc<Self> {
        let origin = Origin { scheme: Scheme::Http, host: HostKey::parse("a.test").expect("a name"), port: 80 };
        let rules = CacheRules { heuristic: 0, stale: 0, min_refresh: 0 };
        Arc::new(CachePlan {
            key: CacheKeyRef::new(&origin, path, "").to_key(),
            asked: ChangeCount::default(),
            request: KeptRequest::new(CacheRequest::default(), &HeaderMap::new()).expect("a small head"),
            host: HostCache { on: true, report: false, rules },
            why: ForwardReason::UriMiss,
            entry: None,
            conditional: AtomicBool::new(false),
        })
    }
}

/// Why a request is sent although there is a cache: the `fwd` of Cache-Status (RFC 9211, section 2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardReason {
    Bypass,
    Method,
    UriMiss,
    VaryMiss,
    Stale,
    Request,
}

impl ForwardReason {
    pub(crate) fn word(self) -> &'static str {
        match self {
            ForwardReason::Bypass => "bypass",
            ForwardReason::Method => "method",
            ForwardReason::UriMiss => "uri-miss",
            ForwardReason::VaryMiss => "vary-miss",
            ForwardReason::Stale => "stale",
            ForwardReason::Request => "request",
        }
    }
}

impl From<ValidateReason> for ForwardReason {
    fn from(reason: ValidateReason) -> Self {
        match reason {
            ValidateReason::Stale => ForwardReason::Stale,
            ValidateReason::Request => ForwardReason::Request,
        }
    }
}

/// The operator's rules for the cache at one host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCache {
    pub(crate) on: bool,
    /// Nothing is served; what would have been is counted.
    pub(crate) report: bool,
    pub(crate) rules: CacheRules,
}

impl HostCache {
    pub(crate) fn of(settings: &Settings, policy: &Policy) -> Self {
        let seconds = |span: std::time::Duration| u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
        // The key is checked to be between 0 and 1.
        let heuristic = (settings.config.cache.heuristic * 1_000.0) as u16;
        HostCache {
            on: policy.cache == CacheMode::Shared,
            report: policy.mode == Mode::Report,
            rules: CacheRules { heuristic, stale: seconds(policy.stale), min_refresh: seconds(policy.min_refresh) },
        }
    }
}

impl CacheStep {
    /// The plan of a request whose answer may be stored.
    pub(crate) fn plan(&self) -> Option<&Arc<CachePlan>> {
        if let CacheStep::Plan(plan) = self { Some(plan) } else { None }
    }
}

impl CachePlan {
    /// Sets our conditions instead of the client's, if a stored answer has validators. Returns the head as it was, for
    /// the case that the origin's answer is about something else.
    pub(crate) fn set_conditions(&self, parts: &mut Parts) -> Option<Box<Parts>> {
        let validators = self.entry.as_deref().map(validators).filter(|validators| !validators.is_empty())?;
        let plain = Box::new(parts.clone());
        parts.headers.remove(IF_NONE_MATCH);
        parts.headers.remove(IF_MODIFIED_SINCE);
        parts.headers.extend(validators);
        self.conditional.store(true, Relaxed);
        Some(plain)
    }
}

/// The conditions that ask whether a stored answer is still right.
pub(super) fn validators(entry: &Entry) -> HeaderMap {
    let fields: [(HeaderName, HeaderName); 2] = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    let mut conditions = HeaderMap::new();
    for (validator, condition) in fields {
        let value = entry.field(validator.as_str()).and_then(|value| HeaderValue::from_bytes(value).ok());
        if let Some(value) = value {
            conditions.insert(condition, value);
        }
    }
    conditions
}
