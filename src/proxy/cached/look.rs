//! Looks for a stored answer, after the verdict of robots.txt and before the request takes a turn.
//!
//! An answer from here takes no turn, opens no connection and teaches the pace nothing.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Response};
use smol_str::{SmolStr, format_smolstr};

use super::kept::{FieldList, KeptRequest, list, pairs};
use super::plan::{CachePlan, CacheStep, ForwardReason, HostCache};
use super::refresh;
use super::respond;
use super::status::How;
use crate::cache::{self, CacheKeyRef, Entry, Variants};
use crate::config::Partition;
use crate::politeness::Origin;
use crate::politeness::reuse::policy::CacheTime;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::reusing::{Reuse, StaleReason, reuse};
use crate::politeness::visit::Visit;
use crate::proxy::Settings;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::request::client_request::ClientRequest;
use crate::proxy::request::label::ClientName;

/// What the cache has for a request.
#[allow(clippy::large_enum_variant, reason = "It is matched at once; a box would cost an allocation for each hit")]
pub(crate) enum Looked {
    Answer(Response<Body>),
    Ask(CacheStep),
}

/// Looks for a stored answer to a request. `on_disk` is what was found there, if memory had nothing.
pub(crate) fn look(
    request: &mut ClientRequest,
    visit: &Visit,
    origin: &Origin,
    parts: &Parts,
    has_body: bool,
    on_disk: Option<Variants>,
) -> Result<Looked, Failure> {
    let settings = request.settings.clone();
    let host = HostCache::of(&settings, settings.policies.policy(origin.host.as_str()));
    if !host.on {
        return Ok(Looked::Ask(CacheStep::Off));
    }
    let partition = partition(request, &settings, &parts.headers);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let key = CacheKeyRef::new(origin, path, &partition);
    let (is_get, is_head) = (parts.method == Method::GET, parts.method == Method::HEAD);
    if !is_get && !is_head {
        return Ok(Looked::Ask(match parts.method.is_safe() {
            true => CacheStep::Forward(ForwardReason::Method),
            false => CacheStep::Invalidate(Box::new(key.to_key())),
        }));
    }
    let asked = CacheRequest::glance(is_head, pairs(&parts.headers), &settings.config.cache.unkeyed);
    if has_body || asked.bypasses {
        request.shared().metrics.cache.request("bypass");
        return Ok(Looked::Ask(CacheStep::Forward(ForwardReason::Bypass)));
    }
    let variants = on_disk.or_else(|| request.shared().cache.at_hand(&key));
    let needs_fields = |variants: &Variants| asked.needs_fields() || variants.iter().any(|entry| entry.varies());
    let fields = if variants.as_ref().is_some_and(needs_fields) { list(&parts.headers) } else { FieldList::new() };
    let asked = CacheRequest { fields: &fields, ..asked };
    let (why, entry) = match judge(&settings, origin, variants.as_deref(), &asked, host) {
        Judged::Use(entry, how, now) if !host.report => {
            if how == How::Stale(StaleReason::WhileRevalidate.word()) {
                refresh::begin(request, visit, parts, &key, &entry);
            }
            return Ok(Looked::Answer(respond::respond(request, &entry, &asked, how, now)));
        }
        Judged::Use(..) => {
            request.shared().metrics.cache.request("would_hit");
            (ForwardReason::Bypass, None)
        }
        Judged::Validate(entry, why) => (why, Some(entry)),
        Judged::Miss(why) => (why, None),
    };
    if asked.directives.only_if_cached && !host.report {
        return Err(Refusal::NotCached.into());
    }
    let Some(kept) = KeptRequest::new(asked, &parts.headers) else {
        return Ok(Looked::Ask(CacheStep::Forward(ForwardReason::Bypass)));
    };
    let changes = request.shared().cache.change_count(&key);
    let conditional = false.into();
    let plan = CachePlan { key: key.to_key(), asked: changes, request: kept, host, why, entry, conditional };
    Ok(Looked::Ask(CacheStep::Plan(Arc::new(plan))))
}

/// What is stored for a request, and what may be done with it.
pub(super) enum Judged {
    Use(Arc<Entry>, How, CacheTime),
    Validate(Arc<Entry>, ForwardReason),
    Miss(ForwardReason),
}

pub(super) fn judge(
    settings: &Settings,
    origin: &Origin,
    variants: Option<&[Arc<Entry>]>,
    asked: &CacheRequest<'_>,
    host: HostCache,
) -> Judged {
    let Some(variants) = variants else { return Judged::Miss(ForwardReason::UriMiss) };
    let Some(entry) = select(variants, asked) else { return Judged::Miss(ForwardReason::VaryMiss) };
    let entry = entry.clone();
    // The rules for destinations may have changed since it was stored.
    let judged = match entry.terms.address {
        Some(address) => settings.guard.judge(&origin.host, origin.port, &[address]),
        None => settings.guard.judge_unresolved(&origin.host, origin.port),
    };
    if judged.is_err() {
        return Judged::Miss(ForwardReason::Bypass);
    }
    let now = cache::now();
    match reuse(&entry.terms.policy, asked, &host.rules, now) {
        Reuse::Fresh => Judged::Use(entry, How::Fresh, now),
        Reuse::Stale(reason) => Judged::Use(entry, How::Stale(reason.word()), now),
        Reuse::Validate(reason) => Judged::Validate(entry, reason.into()),
        Reuse::Ignore => Judged::Miss(ForwardReason::Request),
    }
}

/// The newest stored answer that is for this request. A HEAD is answered from a GET rather than from another HEAD.
pub(super) fn select<'a>(variants: &'a [Arc<Entry>], asked: &CacheRequest<'_>) -> Option<&'a Arc<Entry>> {
    let whole = variants.iter().find(|entry| !entry.terms.head_only && suits(entry, asked));
    whole.or_else(|| variants.iter().find(|entry| suits(entry, asked)))
}

/// Whether a stored answer is for this request.
pub(super) fn suits(entry: &Entry, asked: &CacheRequest<'_>) -> bool {
    let terms = &entry.terms;
    (asked.is_head || !terms.head_only) && terms.selecting.matches(asked, terms.policy.flags.ignores_cookie)
}

/// Whose answers the request may get, if clients share none: its user, or its address and the name that it gives
/// itself.
pub(super) fn partition(request: &ClientRequest, settings: &Settings, headers: &http::HeaderMap) -> SmolStr {
    match settings.config.cache.partition {
        Partition::Shared => SmolStr::default(),
        Partition::Client => partition_of(settings, request.who(headers)),
    }
}

/// The same, for a client that is known by name and address.
pub(crate) fn partition_of(settings: &Settings, who: ClientName<'_>) -> SmolStr {
    if settings.config.cache.partition == Partition::Shared {
        return SmolStr::default();
    }
    match (who.name, settings.users.is_some()) {
        (Some(user), true) => format_smolstr!("user {user}"),
        (Some(name), false) => format_smolstr!("{} {name}", who.address),
        (None, _) => format_smolstr!("{}", who.address),
    }
}
