//! Decides whether a stored answer may be used for a request (RFC 9111, section 4).

use super::policy::{CacheTime, ReusePolicy};
use super::request::CacheRequest;
use super::storing::CacheRules;

/// What becomes of a request for which an answer is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Use it.
    Fresh,
    /// Use it although it is stale.
    Stale(StaleReason),
    /// Ask the origin whether it is still right.
    Validate(ValidateReason),
    /// Ask as if nothing were stored.
    Ignore,
}

/// Why a stale answer is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleReason {
    /// The operator wants this URL asked for less often.
    MinRefresh,
    /// The client accepts it.
    MaxStale,
    /// The origin allows it while a new one is fetched.
    WhileRevalidate,
    /// The origin allows it if it fails.
    IfError,
}

impl StaleReason {
    /// The `detail` of Cache-Status.
    pub fn word(self) -> &'static str {
        match self {
            StaleReason::MinRefresh => "min-refresh",
            StaleReason::MaxStale => "max-stale",
            StaleReason::WhileRevalidate => "stale-while-revalidate",
            StaleReason::IfError => "stale-if-error",
        }
    }
}

/// Why a stored answer must be validated. The `fwd` of Cache-Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidateReason {
    /// Its lifetime is over, or the origin wants it validated.
    Stale,
    /// The client wants it validated.
    Request,
}

/// Why the origin cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CannotAsk {
    /// curtsy leaves the host alone: it is held, paused, given up, or its queue is full.
    Refused,
    /// The origin failed to answer, or answered with an error.
    Failed,
}

/// Decides about a stored answer that is for this request by its selecting fields.
pub fn reuse(policy: &ReusePolicy, request: &CacheRequest<'_>, rules: &CacheRules, now: CacheTime) -> Reuse {
    let (age, ttl, directives) = (policy.age(now), policy.ttl(now), &request.directives);
    if request.has_authorization && !policy.flags.answers_authorized {
        return Reuse::Ignore;
    }
    if age < rules.min_refresh && !policy.flags.doubtful {
        return if ttl > 0 { Reuse::Fresh } else { Reuse::Stale(StaleReason::MinRefresh) };
    }
    if policy.flags.no_cache || policy.flags.doubtful {
        return Reuse::Validate(ValidateReason::Stale);
    }
    // An age of zero is a fraction of a second, which is more than `max-age=0` accepts.
    let too_old = directives.max_age.is_some_and(|most| age > most || most == 0);
    if directives.no_cache || too_old {
        return Reuse::Validate(ValidateReason::Request);
    }
    let wanted = directives.min_fresh.unwrap_or(0);
    if ttl > 0 && ttl >= i64::from(wanted) {
        return Reuse::Fresh;
    }
    if ttl > 0 || wanted > 0 {
        return Reuse::Validate(ValidateReason::Request);
    }
    if !policy.flags.no_stale {
        let expired_for = -ttl;
        if directives.max_stale.is_some_and(|most| expired_for <= i64::from(most)) {
            return Reuse::Stale(StaleReason::MaxStale);
        }
        if expired_for < i64::from(policy.while_revalidate) {
            return Reuse::Stale(StaleReason::WhileRevalidate);
        }
    }
    Reuse::Validate(ValidateReason::Stale)
}

/// Decides whether a stored answer may be given because the origin cannot be asked (RFC 9111, section 4.2.4). An error
/// of the origin is passed on unless it said `stale-if-error`: a link checker must see that a site is down.
pub fn may_serve_stale(
    policy: &ReusePolicy,
    request: &CacheRequest<'_>,
    cause: CannotAsk,
    rules: &CacheRules,
    now: CacheTime,
) -> bool {
    let directives = &request.directives;
    let forbidden = policy.flags.no_cache || policy.flags.no_stale || policy.flags.doubtful;
    let unwanted = directives.no_cache || directives.max_age.is_some() || directives.min_fresh.is_some();
    let unusable = request.has_authorization && !policy.flags.answers_authorized;
    let longest = match cause {
        CannotAsk::Refused => policy.if_error.max(rules.stale),
        CannotAsk::Failed => policy.if_error,
    };
    !forbidden && !unwanted && !unusable && longest > 0 && -policy.ttl(now) <= i64::from(longest)
}
