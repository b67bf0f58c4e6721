//! Decides whether an answer may be stored, and for how long it is fresh (RFC 9111, sections 3 and 4.2).

use super::directives::ResponseDirectives;
use super::policy::{CacheTime, ReuseFlags, ReusePolicy};
use super::request::CacheRequest;
use super::response::{CacheResponse, Expires};
use crate::politeness::time::Timestamp;

/// The operator's rules for one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRules {
    /// An answer without a lifetime counts as fresh for this many thousandths of the time since its Last-Modified.
    pub heuristic: u16,
    /// For how many seconds past its lifetime an answer is given while its host must be left alone.
    pub stale: u32,
    /// A stored URL is asked for no sooner than this many seconds.
    pub min_refresh: u32,
}

/// Why an answer is not stored. The word is a metric label and the `detail` of Cache-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NotStored {
    Status,
    RequestMaxStale,
    RequestNoStore,
    NoStore,
    NotUnderstood,
    Private,
    Authorization,
    SetCookie,
    Vary,
    NoLifetime,
    /// The end of the body cannot be known for certain.
    Undelimited,
    /// The body broke off.
    Incomplete,
    TooLarge,
    /// Too many bodies are being stored at the moment.
    Busy,
    /// Another request changed the resource since this one was made.
    Invalidated,
}

impl NotStored {
    pub const ALL: [NotStored; 15] = [
        NotStored::Status,
        NotStored::RequestMaxStale,
        NotStored::RequestNoStore,
        NotStored::NoStore,
        NotStored::NotUnderstood,
        NotStored::Private,
        NotStored::Authorization,
        NotStored::SetCookie,
        NotStored::Vary,
        NotStored::NoLifetime,
        NotStored::Undelimited,
        NotStored::Incomplete,
        NotStored::TooLarge,
        NotStored::Busy,
        NotStored::Invalidated,
    ];

    pub fn word(self) -> &'static str {
        match self {
            NotStored::Status => "status",
            NotStored::RequestMaxStale => "request-max-stale",
            NotStored::RequestNoStore => "request-no-store",
            NotStored::NoStore => "no-store",
            NotStored::NotUnderstood => "not-understood",
            NotStored::Private => "private",
            NotStored::Authorization => "authorization",
            NotStored::SetCookie => "set-cookie",
            NotStored::Vary => "vary",
            NotStored::NoLifetime => "no-lifetime",
            NotStored::Undelimited => "undelimited",
            NotStored::Incomplete => "incomplete",
            NotStored::TooLarge => "too-large",
            NotStored::Busy => "busy",
            NotStored::Invalidated => "invalidated",
        }
    }
}

/// Heuristics never make an answer fresh for longer than a day, which RFC 9111, section 4.2.2, suggests.
const LONGEST_GUESS: u64 = 24 * 60 * 60;

/// Decides whether the answer to a GET or HEAD may be stored. `took` is the time from the request to its head, in
/// seconds.
pub fn may_store(
    request: &CacheRequest<'_>,
    response: &CacheResponse<'_>,
    rules: &CacheRules,
    took: u32,
    now: CacheTime,
) -> Result<ReusePolicy, NotStored> {
    may_ever_store(request, response)?;
    let (lifetime, heuristic) = lifetime(response, rules, now.wall);
    let directives = &response.directives;
    let shareable = directives.public || directives.s_maxage.is_some();
    let flags = ReuseFlags {
        no_cache: directives.no_cache,
        no_stale: directives.must_revalidate || directives.proxy_revalidate || directives.s_maxage.is_some(),
        answers_authorized: shareable || directives.must_revalidate,
        ignores_cookie: shareable,
        heuristic,
        doubtful: false,
    };
    Ok(ReusePolicy {
        received: now,
        initial_age: initial_age(response, took, now.wall),
        lifetime,
        while_revalidate: directives.stale_while_revalidate.unwrap_or(0),
        if_error: directives.stale_if_error.unwrap_or(0),
        flags,
    })
}

/// The part of [`may_store`] that needs no field but Cache-Control. Most answers that are not stored end here.
pub fn may_store_by_control(
    request: &CacheRequest<'_>,
    status: u16,
    directives: &ResponseDirectives,
) -> Result<(), NotStored> {
    if !may_ever_be_stored(status) {
        return Err(NotStored::Status);
    }
    // Such a status needs a lifetime, which may be in another field.
    if !is_heuristic(status) {
        return Ok(());
    }
    refused_by_control(request, status, directives)
}

fn refused_by_control(
    request: &CacheRequest<'_>,
    status: u16,
    directives: &ResponseDirectives,
) -> Result<(), NotStored> {
    let understood = directives.must_understand && is_understood(status);
    first_of([
        (request.directives.max_stale.is_some(), NotStored::RequestMaxStale),
        (request.directives.no_store, NotStored::RequestNoStore),
        (directives.must_understand && !understood, NotStored::NotUnderstood),
        (directives.no_store && !understood, NotStored::NoStore),
        (directives.private, NotStored::Private),
    ])
}

/// The part of [`may_store`] that needs no clock.
fn may_ever_store(request: &CacheRequest<'_>, response: &CacheResponse<'_>) -> Result<(), NotStored> {
    let directives = &response.directives;
    let has_reason = response.has_lifetime() || directives.public || is_heuristic(response.status);
    if !may_ever_be_stored(response.status) || !has_reason {
        return Err(NotStored::Status);
    }
    refused_by_control(request, response.status, directives)?;
    first_of([
        (request.has_authorization && !allows_authorization(response), NotStored::Authorization),
        (response.has_set_cookie, NotStored::SetCookie),
        (response.vary.is_none(), NotStored::Vary),
        (!response.has_lifetime() && !response.has_validator, NotStored::NoLifetime),
    ])
}

/// Refuses for the first reason that applies.
fn first_of<const N: usize>(reasons: [(bool, NotStored); N]) -> Result<(), NotStored> {
    match reasons.into_iter().find(|(applies, _)| *applies) {
        Some((_, reason)) => Err(reason),
        None => Ok(()),
    }
}

/// RFC 9111, section 3.5.
fn allows_authorization(response: &CacheResponse<'_>) -> bool {
    let directives = &response.directives;
    directives.public || directives.s_maxage.is_some() || directives.must_revalidate
}

/// A part, a 304 and interim answers are no whole answers. RFC 6585 forbids storing 428, 429, 431 and 511.
fn may_ever_be_stored(status: u16) -> bool {
    status >= 200 && !matches!(status, 206 | 304 | 428 | 429 | 431 | 511)
}

/// Statuses that may be stored without a word from the origin (RFC 9110, section 15.1), without 206.
pub fn is_heuristic(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose meaning for a cache is known here: all of RFC 9110 that are final and not about one client.
fn is_understood(status: u16) -> bool {
    is_heuristic(status) || matches!(status, 201 | 202 | 205 | 302 | 303 | 307 | 400..=426 | 500..=505)
}

/// The lifetime in seconds, and whether it is a guess (RFC 9111, section 4.2.1).
fn lifetime(response: &CacheResponse<'_>, rules: &CacheRules, now: Timestamp) -> (u32, bool) {
    let directives = &response.directives;
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return (seconds, false);
    }
    let date = || response.date(now).unwrap_or(now);
    match (response.expires(now), response.last_modified(now)) {
        (Expires::Unreadable, _) => (0, false),
        (Expires::At(at), _) => (whole(at.since(date()).as_secs()), false),
        (Expires::Absent, Some(modified)) if may_guess(response) => {
            let seconds = date().since(modified).as_secs().saturating_mul(rules.heuristic.into()) / 1_000;
            (whole(seconds.min(LONGEST_GUESS)), true)
        }
        (Expires::Absent, _) => (0, true),
    }
}

fn may_guess(response: &CacheResponse<'_>) -> bool {
    (is_heuristic(response.status) || response.directives.public) && !response.pragma_no_cache
}

/// RFC 9111, section 4.2.3. A Date in the future makes nothing younger.
fn initial_age(response: &CacheResponse<'_>, took: u32, now: Timestamp) -> u32 {
    let apparent = response.date(now).map_or(0, |date| whole(now.since(date).as_secs()));
    apparent.max(response.age.saturating_add(took))
}

fn whole(seconds: u64) -> u32 {
    u32::try_from(seconds).unwrap_or(u32::MAX)
}
