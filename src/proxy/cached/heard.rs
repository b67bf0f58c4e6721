//! Decides what the origin's answer means for what is stored: it confirms, replaces, refreshes or invalidates it.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::header::{
    AGE, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_LOCATION, DATE, ETAG, HeaderName, LAST_MODIFIED, LOCATION, SET_COOKIE,
};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Body as _;

use super::kept::list;
use super::plan::{CachePlan, CacheStep, ForwardReason};
use super::respond;
use super::status::{self, Fate, How};
use super::tap::StoreTap;
use crate::cache::{self, CacheKey, CacheKeyRef, Entry, EntryTerms, Filling};
use crate::clock;
use crate::config::ResponseHeaders;
use crate::politeness::reuse::directives::ResponseDirectives;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::response::CacheResponse;
use crate::politeness::reuse::reusing::{CannotAsk, StaleReason, may_serve_stale};
use crate::politeness::reuse::storing::{NotStored, may_store, may_store_by_control};
use crate::politeness::reuse::updating::{HeadFields, agrees, also_invalid, confirms, describes_the_body, invalidates};
use crate::politeness::visit::LaneRefusal;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::{Settings, Shared};
use crate::upstream::Reply;

/// What a 304 to our own conditions says.
pub(crate) enum Confirmation {
    /// It is no 304, or the conditions were the client's.
    No,
    /// The stored answer is still right.
    Yes,
    /// It is about another answer: the request must be sent again without conditions.
    Contradicts,
}

impl CachePlan {
    /// Reads what an answer says about the stored answer that the origin was asked about.
    pub(crate) fn confirmed<B>(&self, response: &Response<B>) -> Confirmation {
        let (Some(entry), true) =
            (&self.entry, self.conditional.load(Relaxed) && response.status() == StatusCode::NOT_MODIFIED)
        else {
            return Confirmation::No;
        };
        let etag = response.headers().get(ETAG).map(HeaderValue::as_bytes);
        if confirms(entry.field("etag"), etag) { Confirmation::Yes } else { Confirmation::Contradicts }
    }

    /// Updates the stored answer by an answer that no client of its own waits for. Returns whether it was a 304 that
    /// confirms it.
    pub(crate) fn is_confirmed<B>(&self, shared: &Shared, response: &Response<B>, took: Duration) -> bool {
        match (self.confirmed(response), &self.entry) {
            (Confirmation::Yes, Some(entry)) => {
                refreshed(shared, self, entry, response.headers(), took);
                true
            }
            _ => false,
        }
    }
}

impl CacheStep {
    /// Answers from the stored answer, which a 304 has confirmed. `fields` are those of the 304, without those of its
    /// connection.
    pub(crate) fn answer_confirmed(
        &self,
        request: &mut ClientRequest,
        fields: &HeaderMap,
        took: Duration,
    ) -> Option<Response<Body>> {
        let CacheStep::Plan(plan) = self else { return None };
        let entry = plan.entry.as_ref()?;
        let entry = refreshed(request.shared(), plan, entry, fields, took);
        request.shared().count_in_tally(&plan.key.origin.host, |row| row.unchanged += 1);
        let why = plan.why;
        plan.request.with_fields(|asked| {
            let mut response = respond::respond(request, &entry, asked, How::Validated(why), cache::now());
            // A cookie is for this client, and not part of what is stored.
            for cookie in fields.get_all(SET_COOKIE) {
                response.headers_mut().append(SET_COOKIE, cookie.clone());
            }
            Some(response)
        })
    }

    /// Forgets that the conditions are ours: the request is sent again as the client sent it.
    pub(crate) fn is_plain_again(&self) {
        if let CacheStep::Plan(plan) = self {
            plan.conditional.store(false, Relaxed);
        }
    }
}

/// Updates a stored answer with the fields of a 304, or of a HEAD that agrees with it, and stores it again.
fn refreshed(shared: &Shared, plan: &CachePlan, entry: &Arc<Entry>, fields: &HeaderMap, took: Duration) -> Arc<Entry> {
    let mut headers = entry.headers();
    for name in fields.keys().filter(|name| !describes_the_body(name.as_str()) && **name != SET_COOKIE) {
        headers.remove(name);
        for value in fields.get_all(name) {
            headers.append(name, value.clone());
        }
    }
    let status = entry.status();
    match plan.terms(status, &headers, took, entry.terms.address) {
        Ok(mut terms) => {
            terms.head_only = entry.terms.head_only;
            let fresh = Arc::new(entry.refreshed(&dressed(&headers), terms));
            if fresh.terms.selecting != entry.terms.selecting {
                shared.cache.remove_entry(&plan.key.borrowed(), entry);
            }
            if let Err(reason) = shared.cache.refresh(&plan.key, fresh.clone(), plan.asked) {
                shared.metrics.cache.not_stored(reason.word());
            }
            fresh
        }
        Err(reason) => {
            shared.metrics.cache.not_stored(reason.word());
            shared.cache.remove_entry(&plan.key.borrowed(), entry);
            Arc::new(entry.refreshed(&headers, entry.terms.clone()))
        }
    }
}

impl CachePlan {
    /// Decides whether an answer may be stored, and for which requests.
    fn terms(
        &self,
        status: StatusCode,
        headers: &HeaderMap,
        took: Duration,
        address: Option<IpAddr>,
    ) -> Result<EntryTerms, NotStored> {
        let (status, asked) = (status.as_u16(), &self.request.asked);
        let lines = headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
        let directives = ResponseDirectives::of(lines);
        may_store_by_control(asked, status, &directives)?;
        let fields = list(headers);
        let response = CacheResponse::controlled(status, directives, &fields);
        let took = u32::try_from(took.as_secs()).unwrap_or(u32::MAX);
        let policy = may_store(asked, &response, &self.host.rules, took, cache::now())?;
        let selecting = self.request.selecting(response.vary.unwrap_or_default(), policy.flags.ignores_cookie);
        Ok(EntryTerms { policy, selecting, address, head_only: asked.is_head })
    }
}

/// Prepares a head for storing: its age is counted elsewhere, and its date must be known (RFC 9110, section 6.6.1).
fn dressed(headers: &HeaderMap) -> Cow<'_, HeaderMap> {
    if headers.contains_key(DATE) && !headers.contains_key(AGE) {
        return Cow::Borrowed(headers);
    }
    let mut headers = headers.clone();
    headers.remove(AGE);
    if !headers.contains_key(DATE) {
        headers.insert(DATE, respond::text(httpdate::fmt_http_date(clock::wall())));
    }
    Cow::Owned(headers)
}

/// An answer on its way to the client, as the cache sees it.
pub(crate) struct Passing {
    /// Stores the body while it passes.
    pub(crate) tap: Option<StoreTap>,
}

impl Passing {
    /// Begins to store an answer if that is allowed, changes what it makes invalid, and says so in Cache-Status. The
    /// fields of the connection are removed already.
    pub(crate) fn begin(
        step: &CacheStep,
        request: &mut ClientRequest,
        response: &mut Response<Reply>,
        took: Duration,
    ) -> Self {
        let (why, tap, fate) = match step {
            CacheStep::Off => return Passing { tap: None },
            CacheStep::Forward(why) => (*why, None, Fate::Passed),
            CacheStep::Invalidate(key) => {
                invalidate(request.shared(), key, response);
                (ForwardReason::Method, None, Fate::Passed)
            }
            CacheStep::Plan(plan) => {
                let begun = plan.begin(request, response, took);
                if let Err(reason) = &begun {
                    request.shared().metrics.cache.not_stored(reason.word());
                    request.shared().cache.note_unstored(&plan.key.borrowed(), *reason);
                }
                let word = if plan.conditional.load(Relaxed) { "changed" } else { "miss" };
                request.shared().metrics.cache.request(word);
                request.cached("miss");
                let fate = begun.as_ref().map_or_else(|reason| Fate::NotStored(*reason), |_| Fate::Stored);
                (plan.why, begun.ok().flatten(), fate)
            }
        };
        if request.settings.config.responses.headers == ResponseHeaders::Full {
            let name = request.shared().identity.status_name();
            status::tell(response.headers_mut(), name, why, fate);
        }
        Passing { tap }
    }
}

impl CachePlan {
    /// Begins to store an answer. `None` if that is done already: it has no body.
    fn begin(
        &self,
        request: &ClientRequest,
        response: &mut Response<Reply>,
        took: Duration,
    ) -> Result<Option<StoreTap>, NotStored> {
        let (shared, settings) = (request.shared(), &request.settings);
        let begun = self.try_begin(shared, settings, response, took);
        let status = response.status().as_u16();
        // A newer answer that is not stored replaces the old one all the same. An error of the origin does not.
        if let (Err(_), Some(entry)) = (&begun, &self.entry)
            && status < 500
            && !matches!(status, 206 | 304 | 429)
        {
            shared.cache.remove_entry(&self.key.borrowed(), entry);
        }
        begun
    }

    pub(crate) fn try_begin(
        &self,
        shared: &Arc<Shared>,
        settings: &Settings,
        response: &mut Response<Reply>,
        took: Duration,
    ) -> Result<Option<StoreTap>, NotStored> {
        let (status, address) = (response.status(), response.body().peer());
        if !response.body().is_delimited() {
            return Err(NotStored::Undelimited);
        }
        let is_head = self.request.asked.is_head;
        if is_head && self.updates_by_head(shared, response, took) {
            return Ok(None);
        }
        let terms = self.terms(status, response.headers(), took, address)?;
        let headers = dressed(response.headers());
        if is_head {
            let entry = Entry::new(status, &headers, b"", terms);
            return shared.cache.store(&self.key, Arc::new(entry), self.asked).map(|()| None);
        }
        let length = response.body().size_hint().exact();
        let (most, under) = (settings.config.cache.max_object as u64, (self.key.clone(), self.asked));
        let filling = Filling::begin(&shared.cache, under, (status, &headers), length, most, terms)?;
        Ok(Some(StoreTap::new(shared.clone(), filling)))
    }

    /// Refreshes or removes the stored answer to a GET by the answer to a HEAD. Returns whether one was refreshed.
    fn updates_by_head(&self, shared: &Shared, response: &Response<Reply>, took: Duration) -> bool {
        let Some(entry) = self.entry.as_ref().filter(|entry| !entry.terms.head_only) else { return false };
        let new = |name: HeaderName| response.headers().get(name).map(HeaderValue::as_bytes);
        let length = response.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        let stored = HeadFields {
            status: entry.status().as_u16(),
            etag: entry.field("etag"),
            last_modified: entry.field("last-modified"),
            length: Some(entry.length()),
        };
        let head = HeadFields {
            status: response.status().as_u16(),
            etag: new(ETAG),
            last_modified: new(LAST_MODIFIED),
            length,
        };
        let refreshes = agrees(&stored, &head);
        if refreshes {
            refreshed(shared, self, entry, response.headers(), took);
        } else if head.status < 500 {
            shared.cache.remove_entry(&self.key.borrowed(), entry);
        }
        refreshes
    }
}

/// Removes what an answer to a method that is not safe makes invalid.
fn invalidate<B>(shared: &Shared, key: &CacheKey, response: &Response<B>) {
    if !invalidates(response.status().as_u16()) {
        return;
    }
    shared.cache.remove(&key.borrowed());
    for name in [LOCATION, CONTENT_LOCATION] {
        let value = response.headers().get(name).map(HeaderValue::as_bytes);
        if let Some(path) = value.and_then(|value| also_invalid(&key.origin, &key.path, value)) {
            shared.cache.remove(&CacheKeyRef::new(&key.origin, &path, &key.partition));
        }
    }
}

/// Returns a stored answer instead of a failure, if a rule allows that.
pub(crate) fn instead_of(failure: &Failure, step: &CacheStep, request: &mut ClientRequest) -> Option<Response<Body>> {
    let (cause, detail) = match failure {
        Failure::Refused(Refusal::Lane(refusal)) if leaves_alone(*refusal) => {
            (CannotAsk::Refused, failure.words().code)
        }
        Failure::Upstream(error) if error.blames_the_origin() => (CannotAsk::Failed, StaleReason::IfError.word()),
        _ => return None,
    };
    serve_stale(step, request, cause, detail)
}

/// Returns a stored answer instead of an error that the origin answered with, if the origin allowed that.
pub(crate) fn replaces_error(
    status: StatusCode,
    step: &CacheStep,
    request: &mut ClientRequest,
) -> Option<Response<Body>> {
    let fails = matches!(status.as_u16(), 429 | 500 | 502 | 503 | 504);
    fails.then(|| serve_stale(step, request, CannotAsk::Failed, StaleReason::IfError.word())).flatten()
}

fn serve_stale(
    step: &CacheStep,
    request: &mut ClientRequest,
    cause: CannotAsk,
    detail: &'static str,
) -> Option<Response<Body>> {
    let CacheStep::Plan(plan) = step else { return None };
    let entry = plan.entry.as_ref().filter(|_| !plan.host.report)?;
    let (asked, now) = (&plan.request.asked, cache::now());
    let allowed = may_serve_stale(&entry.terms.policy, asked, cause, &plan.host.rules, now);
    let respond = |asked: &CacheRequest<'_>| respond::respond(request, entry, asked, How::Stale(detail), now);
    allowed.then(|| plan.request.with_fields(respond))
}

/// Whether the host must be left alone for a while. curtsy's own end is no such reason.
fn leaves_alone(refusal: LaneRefusal) -> bool {
    match refusal {
        LaneRefusal::QueueFull { .. }
        | LaneRefusal::WaitTooLong { .. }
        | LaneRefusal::HostCooling { .. }
        | LaneRefusal::BreakerOpen { .. } => true,
        LaneRefusal::ShuttingDown { .. } | LaneRefusal::HostsFull { .. } => false,
    }
}
