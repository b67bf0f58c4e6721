//! Says what the cache would do for a request, without sending it or counting it.

use http::{HeaderMap, HeaderValue, Method};

use super::kept::list;
use super::look::{Judged, judge, suits};
use super::plan::HostCache;
use super::status::How;
use crate::cache::{self, CacheKeyRef};
use crate::politeness::Origin;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::storing::NotStored;
use crate::proxy::{Settings, Shared};

/// What the cache would do for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheForecast {
    /// `off`, `miss`, `fresh`, `stale` (given although stale) or `validate`.
    pub state: &'static str,
    /// For how many seconds the stored answer is still fresh; negative if it is stale.
    pub ttl: Option<i64>,
    /// The age of the stored answer in seconds.
    pub age: Option<u32>,
    /// Why the last answer was not stored, if nothing is stored.
    pub not_stored: Option<&'static str>,
}

impl CacheForecast {
    /// Whether the request would be answered without being sent.
    pub fn answers(&self) -> bool {
        matches!(self.state, "fresh" | "stale")
    }
}

/// A request whose answer is foreseen.
pub(crate) struct ForecastRequest<'a> {
    pub(crate) origin: &'a Origin,
    pub(crate) path: &'a str,
    pub(crate) method: &'a str,
    pub(crate) user_agent: Option<&'a HeaderValue>,
    pub(crate) partition: &'a str,
}

/// Foresees what the cache does for a request with no other field than User-Agent. Looks on disk too, in a thread of
/// its own.
pub(crate) async fn forecast(shared: &Shared, settings: &Settings, request: &ForecastRequest<'_>) -> CacheForecast {
    let host = HostCache::of(settings, settings.policies.policy(request.origin.host.as_str()));
    let nothing = |state, not_stored| CacheForecast { state, ttl: None, age: None, not_stored };
    let is_head = request.method == Method::HEAD.as_str();
    if !host.on || host.report || !(is_head || request.method == Method::GET.as_str()) {
        return nothing("off", None);
    }
    let key = CacheKeyRef::new(request.origin, request.path, request.partition);
    let agent = request.user_agent.map(|value| (http::header::USER_AGENT, value.clone()));
    let headers: HeaderMap = agent.into_iter().collect();
    let fields = list(&headers);
    let asked = CacheRequest::read(is_head, &fields, &settings.config.cache.unkeyed);
    let variants = shared.cache.peek(&key, |entry| suits(entry, &asked)).await;
    let (state, entry) = match judge(settings, request.origin, variants.as_deref(), &asked, host) {
        Judged::Use(entry, How::Fresh, _) => ("fresh", entry),
        Judged::Use(entry, ..) => ("stale", entry),
        Judged::Validate(entry, _) => ("validate", entry),
        Judged::Miss(_) => return nothing("miss", shared.cache.not_stored(&key).map(NotStored::word)),
    };
    let (policy, now) = (&entry.terms.policy, cache::now());
    CacheForecast { state, ttl: Some(policy.ttl(now)), age: Some(policy.age(now)), not_stored: None }
}
