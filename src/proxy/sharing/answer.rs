//! The answer that the members of a flight share, and who may have it.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use http::{HeaderMap, Response};

use super::body::{BodyReader, SharedBody};
use crate::cache::{self, Entry};
use crate::politeness::reuse::Field;
use crate::politeness::reuse::policy::ReusePolicy;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::response::CacheResponse;
use crate::politeness::reuse::reusing::{Reuse, reuse};
use crate::politeness::reuse::selecting::Selecting;
use crate::politeness::reuse::storing::{CacheRules, NotStored, is_heuristic, may_store};
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
    /// `None` if the origin says nothing about caching: then it is for those who asked before its head came.
    policy: Option<ReusePolicy>,
    rules: CacheRules,
}

/// Statuses that say that the origin cannot answer now: no answer that another client would be glad of.
fn is_failure(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

/// Decides whether the answer to a request may be shared. `headers` are those of the request, `took` is the time to the
/// head.
pub(crate) fn judge(
    headers: &HeaderMap,
    unkeyed: &[String],
    response: &Response<Reply>,
    rules: CacheRules,
    took: Duration,
) -> ShareVerdict {
    let (now, status) = (cache::now(), response.status().as_u16());
    let (asked, answered) = (fields(headers), fields(response.headers()));
    let request = CacheRequest::read(false, &asked, unkeyed);
    let answer = CacheResponse::read(status, &answered, now);
    let took = u32::try_from(took.as_secs()).unwrap_or(u32::MAX);
    let is_new = answer.says_nothing() && is_heuristic(status);
    let policy = match may_store(&request, &answer, &rules, took, now) {
        Ok(policy) if policy.ttl(now) > 0 && !policy.flags.no_cache => Some(policy),
        Ok(_) | Err(NotStored::NoLifetime) if is_new => None,
        _ if is_failure(status) => return ShareVerdict::Failure,
        _ => return ShareVerdict::Private,
    };
    // The cookies of all members agree, so they need not be compared.
    let Some(vary) = answer.vary else { return ShareVerdict::Private };
    ShareVerdict::Share(ShareTerms { selecting: Selecting::of(&request, vary, true), policy, rules })
}

impl ShareTerms {
    /// Whether the answer is for a request with these fields, which asked before the head came. A request that wants
    /// the newest answer asked before this one was sent, so nothing newer could be had.
    fn are_met_by(&self, headers: &HeaderMap, unkeyed: &[String], wants_newest: bool) -> bool {
        let asked = fields(headers);
        let request = CacheRequest::read(false, &asked, unkeyed);
        let is_fresh = |policy: &ReusePolicy| reuse(policy, &request, &self.rules, cache::now()) == Reuse::Fresh;
        self.selecting.matches(&request, true) && (wants_newest || self.policy.as_ref().is_none_or(is_fresh))
    }
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
}

impl SharedAnswer {
    pub(crate) fn new(response: &Response<Reply>, terms: ShareTerms, kept: Arc<AtomicUsize>, took: Duration) -> Self {
        let mut head = Response::new(());
        *head.status_mut() = response.status();
        *head.headers_mut() = response.headers().clone();
        SharedAnswer { head, body: SharedBody::new(response.body(), kept), terms, took }
    }

    pub(crate) fn head(&self) -> Response<()> {
        self.head.clone()
    }

    pub(crate) fn body(&self) -> &Arc<SharedBody> {
        &self.body
    }

    pub(super) fn is_for(&self, headers: &HeaderMap, unkeyed: &[String], wants_newest: bool) -> bool {
        self.terms.are_met_by(headers, unkeyed, wants_newest)
    }
}

/// What a request gets from its flight.
#[derive(Debug)]
pub(crate) enum Share {
    /// An answer, and this client's view of its body.
    Coming(Arc<SharedAnswer>, BodyReader),
    /// A stored answer that the origin has confirmed.
    Stored(Arc<Entry>),
}

/// Whether a stored answer that the origin has just confirmed is for a request with these fields.
pub(super) fn is_stored_for(entry: &Entry, headers: &HeaderMap, unkeyed: &[String], wants: (CacheRules, bool)) -> bool {
    let (rules, wants_newest) = wants;
    let asked = fields(headers);
    let request = CacheRequest::read(false, &asked, unkeyed);
    let policy = &entry.terms.policy;
    let is_fresh = wants_newest || reuse(policy, &request, &rules, cache::now()) == Reuse::Fresh;
    !entry.terms.head_only && is_fresh && entry.terms.selecting.matches(&request, policy.flags.ignores_cookie)
}

pub(super) fn fields(headers: &HeaderMap) -> Vec<Field<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}
