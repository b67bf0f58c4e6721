//! Tests of the rules as a whole: a request, an answer, and what a later request gets.

use super::policy::{CacheTime, ReusePolicy};
use super::request::CacheRequest;
use super::response::CacheResponse;
use super::reusing::{CannotAsk, Reuse, StaleReason, ValidateReason, may_serve_stale, reuse};
use super::storing::{CacheRules, NotStored, may_store};
use super::*;
use crate::politeness::time::Timestamp;

/// Wed, 18 Nov 2026 10:00:00 GMT
const NOW: u64 = 1_794_996_000;
const DATE: &[u8] = b"Wed, 18 Nov 2026 10:00:00 GMT";
const RULES: CacheRules = CacheRules { heuristic: 100, stale: 3_600, min_refresh: 0 };

fn at(seconds: u64) -> CacheTime {
    CacheTime::both(Timestamp::from_millis((NOW + seconds) * 1_000))
}

fn store(request: &[Field<'_>], status: u16, response: &[Field<'_>]) -> Result<ReusePolicy, NotStored> {
    let request = CacheRequest::read(false, request, &[]);
    may_store(&request, &CacheResponse::read(status, response), &RULES, 0, at(0))
}

fn says(cache_control: &str) -> Result<ReusePolicy, NotStored> {
    store(&[], 200, &[("date", DATE), ("cache-control", cache_control.as_bytes())])
}

fn later(policy: &ReusePolicy, seconds: u64, request: &[Field<'_>]) -> Reuse {
    reuse(policy, &CacheRequest::read(false, request, &[]), &RULES, at(seconds))
}

#[test]
fn the_date_of_these_tests_is_the_moment_of_these_tests() {
    assert_eq!(CacheResponse::read(200, &[("date", DATE)]).date(at(0).wall), Some(at(0).wall));
}

/// C1, C2, C3, C9
#[test]
fn what_is_meant_for_one_client_is_not_stored() {
    for spelling in ["private", "PRIVATE, max-age=9", "max-age=9, private=\"x\"", "public, private, max-age=9"] {
        assert_eq!(says(spelling), Err(NotStored::Private), "{spelling}");
    }
    for spelling in ["no-store", "No-Store, max-age=9", "max-age=9, public, no-store"] {
        assert_eq!(says(spelling), Err(NotStored::NoStore), "{spelling}");
    }
    let with = |name: &'static str, value: &'static [u8]| {
        store(&[], 200, &[("cache-control", b"public, s-maxage=9"), (name, value)])
    };
    assert_eq!(with("set-cookie", b"a=1"), Err(NotStored::SetCookie));
    assert_eq!(with("vary", b"x, *"), Err(NotStored::Vary));
    let authorized = |control: &'static [u8]| store(&[("authorization", b"x")], 200, &[("cache-control", control)]);
    assert_eq!(authorized(b"max-age=9"), Err(NotStored::Authorization));
    for control in [&b"max-age=9, public"[..], b"s-maxage=9", b"max-age=9, must-revalidate"] {
        assert!(authorized(control).is_ok());
    }
}

/// C3: what a site tells its CDN can forbid, and nothing else.
#[test]
fn what_a_cdn_must_not_share_is_not_shared() {
    let both = |cdn: &'static [u8], control: &'static [u8]| {
        store(&[], 200, &[("date", DATE), ("cdn-cache-control", cdn), ("cache-control", control)])
    };
    for (cdn, refused) in [(&b"No-Store"[..], NotStored::NoStore), (b"max-age=9, private", NotStored::Private)] {
        assert_eq!(both(cdn, b"public, max-age=9"), Err(refused));
    }
    assert!(both(b"no-cache", b"max-age=9").is_ok_and(|policy| policy.flags.no_cache));
    assert_eq!(both(b"max-age=1", b"max-age=9"), says("max-age=9"), "lifetimes are for CDNs");
    assert_eq!(both(b"max-age=9", b"no-store"), Err(NotStored::NoStore));
    assert_eq!(both(b"public, s-maxage=9", b"max-age=9"), says("max-age=9"));
    assert_eq!(both(b"&&&, \"", b"max-age=9"), says("max-age=9"));
}

/// C1
#[test]
fn a_request_with_authorization_gets_only_what_may_be_shared() {
    let authorized: &[Field<'_>] = &[("authorization", b"x")];
    assert_eq!(later(&says("max-age=9").unwrap(), 1, authorized), Reuse::Ignore);
    for control in ["max-age=9, public", "s-maxage=9", "max-age=9, must-revalidate"] {
        assert_eq!(later(&says(control).unwrap(), 1, authorized), Reuse::Fresh, "{control}");
    }
}

/// C10, C13
#[test]
fn some_statuses_are_never_stored() {
    let lasts = |status| store(&[], status, &[("cache-control", b"public, max-age=9")]);
    for status in [100, 199, 206, 304, 428, 429, 431, 511] {
        assert_eq!(lasts(status), Err(NotStored::Status), "{status}");
    }
    assert!(lasts(599).is_ok() && lasts(503).is_ok());
    let silent = |status| store(&[], status, &[("last-modified", b"Wed, 18 Nov 2026 09:00:00 GMT"), ("date", DATE)]);
    assert_eq!(silent(302), Err(NotStored::Status));
    assert_eq!(silent(404).unwrap().lifetime, 360);
    let understood = |status| store(&[], status, &[("cache-control", b"no-store, must-understand, max-age=9")]);
    assert!(understood(200).is_ok());
    assert_eq!(understood(599), Err(NotStored::NotUnderstood));
}

#[test]
fn a_request_can_forbid_storing() {
    let answer: &[Field<'_>] = &[("cache-control", b"max-age=9")];
    assert_eq!(store(&[("cache-control", b"no-store")], 200, answer), Err(NotStored::RequestNoStore));
    assert_eq!(store(&[("cache-control", b"max-stale=5")], 200, answer), Err(NotStored::RequestMaxStale));
}

/// C15, C19, C20
#[test]
fn a_lifetime_comes_from_the_first_that_speaks() {
    let lifetime = |fields: &[Field<'_>]| store(&[], 200, fields).map(|policy| policy.lifetime);
    let tomorrow: Field<'_> = ("expires", b"Thu, 19 Nov 2026 10:00:00 GMT");
    assert_eq!(lifetime(&[("cache-control", b"max-age=5, s-maxage=7"), tomorrow]), Ok(7));
    assert_eq!(lifetime(&[("cache-control", b"max-age=5"), tomorrow, ("date", DATE)]), Ok(5));
    assert_eq!(lifetime(&[tomorrow, ("date", DATE)]), Ok(86_400));
    assert_eq!(lifetime(&[tomorrow, tomorrow]), Ok(0));
    assert_eq!(lifetime(&[("expires", b"0")]), Ok(0));
    assert_eq!(lifetime(&[("cache-control", b"max-age=3600.0"), tomorrow]), Ok(0));
    let old: Field<'_> = ("last-modified", b"Sun, 08 Nov 2026 10:00:00 GMT");
    assert_eq!(lifetime(&[("date", DATE), old]), Ok(86_400), "a tenth of ten days, and at most one");
    assert_eq!(lifetime(&[("date", DATE), old, ("pragma", b"no-cache")]), Ok(0));
    assert_eq!(lifetime(&[("etag", b"\"1\"")]), Ok(0));
    assert_eq!(lifetime(&[("date", DATE)]), Err(NotStored::NoLifetime));
}

/// C16, C17
#[test]
fn an_age_counts_both_clocks_and_no_nonsense() {
    let age = |fields: &[Field<'_>], took| {
        let fields = [&[("cache-control", &b"max-age=9"[..])], fields].concat();
        let response = CacheResponse::read(200, &fields);
        may_store(&CacheRequest::default(), &response, &RULES, took, at(0)).unwrap().initial_age
    };
    let hour_ago: Field<'_> = ("date", b"Wed, 18 Nov 2026 09:00:00 GMT");
    assert_eq!(age(&[hour_ago], 0), 3_600);
    assert_eq!(age(&[hour_ago, ("age", b"4000")], 5), 4_005);
    assert_eq!(age(&[("date", b"Wed, 18 Nov 2026 11:00:00 GMT"), ("age", b"7")], 0), 7);
    assert_eq!(age(&[("age", b"18446744073709551615")], 7), directives::LONGEST + 7);
    for nonsense in [&b"-5"[..], b"5.5", b"x", b"", b"5 6"] {
        assert_eq!(age(&[("age", nonsense)], 0), 0);
    }
    assert_eq!(age(&[("age", b"5, 9"), ("age", b"100")], 0), 5);
}

#[test]
fn a_fresh_answer_is_used_and_a_stale_one_is_not() {
    let policy = says("max-age=60").unwrap();
    assert_eq!(later(&policy, 59, &[]), Reuse::Fresh);
    assert_eq!(later(&policy, 60, &[]), Reuse::Validate(ValidateReason::Stale));
    assert_eq!(later(&says("no-cache, max-age=60").unwrap(), 0, &[]), Reuse::Validate(ValidateReason::Stale));
    let doubtful = ReusePolicy { flags: policy::ReuseFlags { doubtful: true, ..policy.flags }, ..policy };
    assert_eq!(later(&doubtful, 1, &[]), Reuse::Validate(ValidateReason::Stale));
}

#[test]
fn a_client_may_want_newer_or_accept_older() {
    let (policy, by_request) = (says("max-age=60").unwrap(), Reuse::Validate(ValidateReason::Request));
    let control =
        |policy: &ReusePolicy, seconds, line: &str| later(policy, seconds, &[("cache-control", line.as_bytes())]);
    assert_eq!(control(&policy, 1, "no-cache"), by_request);
    assert_eq!(later(&policy, 1, &[("pragma", b"no-cache")]), by_request);
    assert_eq!(control(&policy, 10, "max-age=9"), by_request);
    assert_eq!(control(&policy, 9, "max-age=9"), Reuse::Fresh);
    assert_eq!(control(&policy, 0, "max-age=0"), by_request);
    assert_eq!(control(&policy, 30, "min-fresh=31"), by_request);
    assert_eq!(control(&policy, 30, "min-fresh=30"), Reuse::Fresh);
    assert_eq!(control(&policy, 90, "max-stale=30"), Reuse::Stale(StaleReason::MaxStale));
    assert_eq!(control(&policy, 91, "max-stale=30"), Reuse::Validate(ValidateReason::Stale));
    for strict in ["max-age=60, must-revalidate", "max-age=60, proxy-revalidate", "s-maxage=60"] {
        let policy = says(strict).unwrap();
        assert_eq!(control(&policy, 90, "max-stale"), Reuse::Validate(ValidateReason::Stale), "{strict}");
    }
}

#[test]
fn stale_while_revalidate_ends() {
    let policy = says("max-age=60, stale-while-revalidate=10").unwrap();
    assert_eq!(later(&policy, 69, &[]), Reuse::Stale(StaleReason::WhileRevalidate));
    assert_eq!(later(&policy, 70, &[]), Reuse::Validate(ValidateReason::Stale));
    let strict = says("max-age=60, stale-while-revalidate=10, must-revalidate").unwrap();
    assert_eq!(later(&strict, 61, &[]), Reuse::Validate(ValidateReason::Stale));
}

#[test]
fn the_operator_may_ask_less_often() {
    let rules = CacheRules { min_refresh: 600, ..RULES };
    let policy = says("no-cache, max-age=60").unwrap();
    let request = CacheRequest::read(false, &[("cache-control", b"no-cache")], &[]);
    assert_eq!(reuse(&policy, &request, &rules, at(599)), Reuse::Stale(StaleReason::MinRefresh));
    assert_eq!(reuse(&policy, &request, &rules, at(600)), Reuse::Validate(ValidateReason::Stale));
    let authorized = CacheRequest::read(false, &[("authorization", b"x")], &[]);
    assert_eq!(reuse(&policy, &authorized, &rules, at(1)), Reuse::Ignore);
}

/// C33, C34
#[test]
fn a_host_that_is_left_alone_is_no_site_that_fails() {
    let stale = |control: &str, seconds, request: &[Field<'_>], cause| {
        let request = CacheRequest::read(false, request, &[]);
        may_serve_stale(&says(control).unwrap(), &request, cause, &RULES, at(seconds))
    };
    assert!(stale("max-age=60", 3_660, &[], CannotAsk::Refused));
    assert!(!stale("max-age=60", 3_661, &[], CannotAsk::Refused));
    assert!(stale("max-age=60, stale-if-error=9000", 9_060, &[], CannotAsk::Refused));
    assert!(!stale("max-age=60", 61, &[], CannotAsk::Failed));
    assert!(stale("max-age=60, stale-if-error=9", 69, &[], CannotAsk::Failed));
    for strict in ["no-cache, max-age=60", "max-age=60, must-revalidate", "s-maxage=60", "max-age=60, proxy-revalidate"]
    {
        assert!(!stale(strict, 61, &[], CannotAsk::Refused), "{strict}");
    }
    for wish in ["no-cache", "max-age=9000", "min-fresh=1"] {
        assert!(!stale("max-age=60", 61, &[("cache-control", wish.as_bytes())], CannotAsk::Refused), "{wish}");
    }
    assert!(!stale("max-age=60", 61, &[("authorization", b"x")], CannotAsk::Refused));
}
