//! Asks again for an answer that was given while stale (`stale-while-revalidate`, RFC 5861).
//!
//! Politeness comes before freshness: the request is sent only if the host is free at this moment, with the lowest
//! urgency, one at a time for each host. A client never waits for it.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, PRAGMA, RANGE};
use http::request::Parts;
use http::{Method, StatusCode};
use http_body::Body as _;
use parking_lot::Mutex;

use super::kept::{KeptRequest, pairs};
use super::plan::{CachePlan, CacheStep, ForwardReason, HostCache, validators};
use crate::cache::{CacheKeyRef, Entry};
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::visit::Visit;
use crate::politeness::{HostKey, Origin};
use crate::proxy::answer::body::Body;
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::request::label::ClientName;
use crate::proxy::request::{forward, headers};
use crate::proxy::visit::send::{Delivered, Delivery, Sent};
use crate::proxy::{Settings, Shared, Worker};
use crate::upstream::{Answer, CURTSY, Message, RequestBody};

/// Each takes a connection and a task; a proxy that refreshes more at once is short of something else.
const MOST: usize = 64;
/// RFC 9218, section 4.1.
const LEAST_URGENT: u8 = 7;

/// The hosts that are being asked again.
#[derive(Debug, Default)]
pub(crate) struct Refreshes(Mutex<HashSet<HostKey>>);

/// The place of one refresh at its host. Dropping it frees the place.
struct RefreshPlace {
    shared: Arc<Shared>,
    host: HostKey,
}

impl RefreshPlace {
    fn take(shared: &Arc<Shared>, host: &HostKey) -> Option<Self> {
        let mut hosts = shared.refreshes.0.lock();
        (hosts.len() < MOST && hosts.insert(host.clone()))
            .then(|| RefreshPlace { shared: shared.clone(), host: host.clone() })
    }
}

impl Drop for RefreshPlace {
    fn drop(&mut self) {
        self.shared.refreshes.0.lock().remove(&self.host);
    }
}

/// A request of curtsy's own for a stored URL.
struct Refresh {
    place: RefreshPlace,
    worker: Arc<Worker>,
    settings: Arc<Settings>,
    step: CacheStep,
    visit: Visit,
    message: Box<Message>,
    origin: Origin,
}

/// Begins to ask for a stored URL again, in a task of its own.
pub(super) fn begin(request: &ClientRequest, visit: &Visit, parts: &Parts, key: &CacheKeyRef<'_>, entry: &Arc<Entry>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let Some(place) = RefreshPlace::take(request.shared(), &key.origin.host) else { return };
    let (settings, mut parts) = (request.settings.clone(), Box::new(parts.clone()));
    for name in [CACHE_CONTROL, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, PRAGMA, RANGE] {
        parts.headers.remove(name);
    }
    parts.method = Method::GET;
    let asked = CacheRequest::glance(false, pairs(&parts.headers), &settings.config.cache.unkeyed);
    let Some(kept) = KeptRequest::new(asked, &parts.headers) else { return };
    parts.headers.extend(validators(entry));
    let identity = forward::identity(request);
    let via = headers::outgoing(&mut parts, key.origin, false, identity);
    let message = Message::new(&parts, via, RequestBody::Empty, &settings.config.upstream);
    let host = HostCache::of(&settings, settings.policies.policy(key.origin.host.as_str()));
    let (why, entry) = (ForwardReason::Stale, Some(entry.clone()));
    let asked = request.shared().cache.change_count(key);
    let conditional = true.into();
    let plan = CachePlan { key: key.to_key(), asked, request: kept, host, why, entry, conditional };
    // Now or never: no request may wait behind it.
    let max_wait = Some(Duration::ZERO);
    let visit = Visit { client: CURTSY, peer: CURTSY, urgency: LEAST_URGENT, max_wait, ..*visit };
    let (worker, origin, step) = (request.worker.clone(), key.origin.clone(), CacheStep::Plan(Arc::new(plan)));
    runtime.spawn(Refresh { place, worker, settings, step, visit, message, origin }.run());
}

impl Refresh {
    async fn run(self) {
        let Refresh { place, worker, settings, step, visit, message, origin } = self;
        let who = ClientName { name: None, address: std::net::Ipv4Addr::LOCALHOST.into() };
        let (safe, keep_body, upgrade) = (false, false, false);
        let delivery = Delivery {
            worker: &worker,
            settings: &settings,
            origin: &origin,
            visit,
            who,
            safe,
            keep_body,
            upgrade,
            member: None,
        };
        if let Ok(Delivered::Sent(sent)) = delivery.send(message).await {
            hear(&place.shared, &settings, &step, sent).await;
        }
    }
}

async fn hear(shared: &Arc<Shared>, settings: &Settings, step: &CacheStep, sent: Sent) {
    let (Answer::Response(mut response), CacheStep::Plan(plan)) = (sent.answer, step) else { return };
    let version = response.version();
    headers::incoming(response.headers_mut(), forward::signature(settings, shared), version);
    if plan.is_confirmed(shared, &response, sent.took) || response.status() == StatusCode::NOT_MODIFIED {
        return;
    }
    let Ok(Some(tap)) = plan.try_begin(shared, settings, &mut response, sent.took) else { return };
    let mut body = Body::passing(response.into_body()).storing(Some(tap));
    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {}
}
