//! Looks for a stored answer on disk, if memory has none that suits the request.

use http::Method;
use http::request::Parts;

use super::kept::list;
use super::look::{partition, suits};
use super::plan::HostCache;
use crate::cache::{CacheKeyRef, Variants};
use crate::politeness::Origin;
use crate::politeness::reuse::request::CacheRequest;
use crate::proxy::request::client_request::ClientRequest;

/// Returns the answer on disk that suits a request. The disk is asked only if its index, which is in memory, has the
/// URL; it has 250 ms, and a late answer is a miss.
pub(crate) async fn from_disk(request: &ClientRequest, origin: &Origin, parts: &Parts) -> Option<Variants> {
    let cache = &request.shared().cache;
    let disk = cache.disk.as_ref()?;
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return None;
    }
    let settings = &request.settings;
    let host = HostCache::of(settings, settings.policies.policy(origin.host.as_str()));
    let partition = partition(request, settings, &parts.headers);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let key = CacheKeyRef::new(origin, path, &partition);
    if !host.on || disk.find(&key).is_empty() {
        return None;
    }
    let fields = list(&parts.headers);
    let asked = CacheRequest::read(parts.method == Method::HEAD, &fields, &settings.config.cache.unkeyed);
    let is_at_hand = || cache.at_hand(&key).is_some_and(|variants| variants.iter().any(|entry| suits(entry, &asked)));
    if asked.bypasses || is_at_hand() {
        return None;
    }
    cache.from_disk(&key, |entry| suits(entry, &asked)).await
}
