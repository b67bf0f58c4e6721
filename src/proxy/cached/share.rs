//! Answers of flights, as the cache sees them: which requests may take part, and what their clients are told.

use std::net::IpAddr;
use std::sync::Arc;

use http::Response;

use super::plan::{CachePlan, CacheStep, ForwardReason};
use super::respond;
use super::status::{self, Fate, How};
use crate::cache::{self, Entry};
use crate::config::ResponseHeaders;
use crate::metrics::RequestOutcome;
use crate::politeness::reuse::request::CacheRequest;
use crate::proxy::answer::body::Body;
use crate::proxy::request::client_request::ClientRequest;

/// The word of metrics and of the access log.
const SHARED: &str = "shared";

impl CacheStep {
    /// Returns the plan of a request that may share answers; `None` if its answer is its own in any case.
    pub(crate) fn shareable(&self) -> Option<&Arc<CachePlan>> {
        match self {
            CacheStep::Plan(plan) if !plan.host.report => Some(plan),
            _ => None,
        }
    }

    /// Answers from what is stored by now: it was stored since the request was looked up, or the origin confirmed it
    /// when another client asked.
    pub(crate) fn answer_shared(&self, request: &mut ClientRequest, entry: &Entry) -> Response<Body> {
        match self {
            CacheStep::Plan(plan) => {
                let how = if plan.found_nothing() { How::Fresh } else { How::Shared(plan.why) };
                plan.request.with_fields(|asked| respond::respond(request, entry, asked, how, cache::now()))
            }
            _ => {
                let how = How::Shared(ForwardReason::UriMiss);
                respond::respond(request, entry, &CacheRequest::default(), how, cache::now())
            }
        }
    }

    /// Notes that the request gets the answer to another client's, with this head and from this address. Returns
    /// whether the head is all.
    pub(crate) fn pass_shared(
        &self,
        request: &mut ClientRequest,
        head: Response<()>,
        address: Option<IpAddr>,
    ) -> Response<bool> {
        let (why, is_head) = match self {
            CacheStep::Plan(plan) => (plan.why, plan.request.asked.is_head),
            _ => (ForwardReason::UriMiss, false),
        };
        let mut head = head.map(|()| is_head);
        if request.settings.config.responses.headers == ResponseHeaders::Full {
            let name = request.shared().identity.status_name();
            status::tell(head.headers_mut(), name, why, Fate::Collapsed);
        }
        request.shared().metrics.cache.request(SHARED);
        request.cached(SHARED);
        request.saves(address);
        request.answered(head.status().as_u16(), RequestOutcome::Cached);
        head
    }
}
