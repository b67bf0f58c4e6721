//! The answer that the members of a flight share, and who may have it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::Response;

use super::body::{BodyReader, SharedBody};
use crate::cache::{self, Entry};
use crate::politeness::reuse::policy::ReusePolicy;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::response::CacheResponse;
use crate::politeness::reuse::reusing::{Reuse, reuse};
use crate::politeness::reuse::selecting::Selecting;
use crate::politeness::reuse::storing::{NotStored, is_heuristic, may_store};
use crate::proxy::cached::{CachePlan, list};
use crate::upstream::Reply;

/// What becomes of the answer to a request that leads.
#[derive(Debug)]
pub(crate) enum ShareVerdict {
    Share(ShareTerms),
    /// It is for the client that asked, and the next one will be too.
    Private,
    /// It says that the origin cannot answer now. The next member asks again.
    Failure,
}

/// For whom an answer is.
#[derive(Debug)]
pub(crate) struct ShareTerms {
    selecting: Selecting,
    /// `None` if the origin says nothing about caching: then it is for requests that came before its head.
    policy: Option<ReusePolicy>,
}

/// Statuses that say that the origin cannot answer now: no answer that another client would be glad of.
fn is_failure(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// Whether a request does not share an answer that was asked for before it came.
pub(super) fn wants_newest(request: &CacheRequest<'_>) -> bool {
    let directives = &request.directives;
    directives.no_cache || directives.max_age.is_some() || directives.min_fresh.is_some()
}

/// Whether an answer is fresh enough for a request. One that was asked for after the request came always is.
fn accepts(asking: &CachePlan, policy: &ReusePolicy) -> bool {
    wants_newest(&asking.request.asked) || is_fresh(asking, policy)
}

/// Whether a stored answer is fresh enough for a request, whenever it was asked for.
pub(super) fn is_fresh(asking: &CachePlan, policy: &ReusePolicy) -> bool {
    reuse(policy, &asking.request.asked, &asking.host.rules, cache::now()) == Reuse::Fresh
}

/// Whether a stored answer that the origin has just confirmed is for this request.
pub(super) fn may_have(asking: &CachePlan, entry: &Entry) -> bool {
    let policy = &entry.terms.policy;
    let suits = |request: &CacheRequest<'_>| entry.terms.selecting.matches(request, policy.flags.ignores_cookie);
    !entry.terms.head_only && accepts(asking, policy) && asking.request.with_fields(suits)
}

/// Decides whether the answer to a request may be shared. `took` is the time to its head.
pub(crate) fn judge(asking: &CachePlan, response: &Response<Reply>, took: Duration) -> ShareVerdict {
    let (now, status, fields) = (cache::now(), response.status().as_u16(), list(response.headers()));
    let answer = CacheResponse::read(status, &fields);
    let took = u32::try_from(took.as_secs()).unwrap_or(u32::MAX);
    let is_new = answer.says_nothing() && is_heuristic(status);
    let policy = match may_store(&asking.request.asked, &answer, &asking.host.rules, took, now) {
        Ok(policy) if policy.ttl(now) > 0 && !policy.flags.no_cache => Some(policy),
        Ok(_) | Err(NotStored::NoLifetime) if is_new => None,
        _ if is_failure(status) => return ShareVerdict::Failure,
        _ => return ShareVerdict::Private,
    };
    // The cookies of all members agree, so they need not be compared.
    let Some(vary) = answer.vary else { return ShareVerdict::Private };
    ShareVerdict::Share(ShareTerms { selecting: asking.request.selecting(vary, true), policy })
}

/// An answer that several clients get.
#[derive(Debug)]
pub(crate) struct SharedAnswer {
    /// The head as it goes to clients, without what concerns one of them.
    head: Response<()>,
    body: Arc<SharedBody>,
    terms: ShareTerms,
    /// From the send to the head.
    pub(crate) took: Duration,
    /// The address it came from, if curtsy connected to the origin itself.
    pub(crate) address: Option<IpAddr>,
}

impl SharedAnswer {
    pub(crate) fn new(response: &Response<Reply>, terms: ShareTerms, kept: Arc<AtomicUsize>, took: Duration) -> Self {
        let mut head = Response::new(());
        *head.status_mut() = response.status();
        *head.headers_mut() = response.headers().clone();
        let address = response.body().peer();
        SharedAnswer { head, body: SharedBody::new(response.body(), kept), terms, took, address }
    }

    pub(crate) fn head(&self) -> Response<()> {
        self.head.clone()
    }

    pub(crate) fn body(&self) -> &Arc<SharedBody> {
        &self.body
    }

    /// Whether the answer is for a request that came before its head.
    pub(super) fn is_for(&self, asking: &CachePlan) -> bool {
        let ShareTerms { selecting, policy } = &self.terms;
        // The cookies of all members agree.
        policy.as_ref().is_none_or(|policy| accepts(asking, policy))
            && asking.request.with_fields(|request| selecting.matches(request, true))
    }
}

/// What a request gets from its flight.
#[derive(Debug)]
pub(crate) enum Share {
    /// An answer, and this client's view of its body.
    Coming(Arc<SharedAnswer>, BodyReader),
    /// What is stored by now.
    Stored(Arc<Entry>),
}
