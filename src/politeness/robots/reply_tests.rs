//! What a sequence of fetches means, at literal times.

use std::time::Duration;

use super::*;
use crate::politeness::robots::Agents;

const DAY: u64 = 86_400;
/// No spreading: the middle of the dice.
const MIDDLE: f64 = 0.5;

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_millis((1_000_000 + seconds) * 1_000)
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn status(status: u16) -> Fetched<'static> {
    Fetched::Answered(FetchReply { status, ..FetchReply::default() })
}

fn file(body: &'static str) -> Fetched<'static> {
    Fetched::Answered(FetchReply { status: 200, body: body.as_bytes(), etag: Some("\"1\""), ..FetchReply::default() })
}

fn retry_after(status: u16, seconds: u64) -> Fetched<'static> {
    Fetched::Answered(FetchReply { status, retry_after: Some(secs(seconds)), ..FetchReply::default() })
}

/// The record after fetches at these times.
fn after(fetches: &[(u64, Fetched<'_>)]) -> RobotsRecordState {
    let next = |record: Option<RobotsRecordState>, (seconds, fetched): &(u64, Fetched<'_>)| {
        Some(RobotsRecordState::after(record.as_ref(), fetched, at(*seconds), MIDDLE))
    };
    fetches.iter().fold(None, next).expect("a fetch")
}

/// What a record allows at a time, in short.
fn look(record: &RobotsRecordState, seconds: u64) -> String {
    let says = |says: &Says| match says {
        Says::Nothing => "nothing".to_owned(),
        Says::Rules(rules) => {
            rules.verdict(&Agents::default(), "/").rule.map_or("rules".to_owned(), |rule| rule.pattern())
        }
    };
    match record.look(at(seconds)) {
        RecordLook::Use(said) => format!("use {}", says(said)),
        RecordLook::UseAndRefresh(said) => format!("use {} and refresh", says(said)),
        RecordLook::MustFetch => "fetch".to_owned(),
        RecordLook::Refuse { kind, retry_after, .. } => format!("refuse {kind:?} {}", retry_after.as_secs()),
    }
}

#[track_caller]
fn check(record: &RobotsRecordState, expected: &[(u64, &str)]) {
    for (seconds, what) in expected {
        assert_eq!(look(record, *seconds), *what, "after {seconds} s");
    }
}

const DENY: &str = "user-agent: *\ndisallow: /\n";
const OPEN: &str = "user-agent: *\nallow: /\n";

#[test]
fn a_file_is_fresh_then_stale_then_must_be_fetched() {
    let record = after(&[(0, file(DENY))]);
    check(&record, &[(0, "use /"), (21_599, "use /"), (21_600, "use / and refresh")]);
    check(&record, &[(DAY - 1, "use / and refresh"), (DAY, "fetch"), (40 * DAY, "fetch")]);
}

#[test]
fn any_2xx_is_a_file_and_what_is_no_file_has_no_rules() {
    for good in [200, 203, 204, 206, 299] {
        check(&after(&[(0, status(good))]), &[(0, "use rules")]);
    }
    check(&after(&[(0, file("<html>Welcome</html>"))]), &[(0, "use rules")]);
}

#[test]
fn freshness_is_what_the_origin_says() {
    let freshness = Freshness { cache_control: Some("max-age=3600"), ..Freshness::default() };
    let reply = FetchReply { status: 200, freshness, ..FetchReply::default() };
    check(&after(&[(0, Fetched::Answered(reply))]), &[(3_599, "use rules"), (3_600, "use rules and refresh")]);
    let whole_day = Freshness { cache_control: Some("max-age=999999"), ..Freshness::default() };
    let reply = FetchReply { freshness: whole_day, ..reply };
    check(&after(&[(0, Fetched::Answered(reply))]), &[(DAY - 1, "use rules"), (DAY, "fetch")]);
}

#[test]
fn a_304_renews_what_is_known() {
    let record = after(&[(0, file(DENY)), (80_000, status(304))]);
    check(&record, &[(80_000, "use /"), (101_599, "use /"), (101_600, "use / and refresh")]);
    check(&record, &[(80_000 + DAY, "fetch")]);
    let answer = record.answer.expect("an answer");
    assert_eq!(answer.etag.as_deref(), Some("\"1\""));
    assert_eq!(answer.last_resort_until, at(80_000 + 30 * DAY));
}

#[test]
fn a_304_to_an_unconditional_request_is_no_answer() {
    check(&after(&[(0, status(304))]), &[(0, "refuse Unreachable 30")]);
    check(&after(&[(0, status(404)), (30_000, status(304))]), &[(30_000, "use nothing"), (DAY, "fetch")]);
}

#[test]
fn not_there_allows_everything_for_six_hours() {
    for gone in [400, 402, 404, 405, 410, 418, 499] {
        let record = after(&[(0, status(gone))]);
        check(&record, &[(0, "use nothing"), (21_599, "use nothing"), (21_600, "use nothing and refresh")]);
        check(&record, &[(DAY, "fetch")]);
    }
    let record = after(&[(0, file(DENY)), (10, status(404))]);
    check(&record, &[(10, "use nothing")]);
}

#[test]
fn a_redirect_to_nowhere_is_as_not_there() {
    check(&after(&[(0, Fetched::Lost)]), &[(0, "use nothing"), (21_600, "use nothing and refresh")]);
    for nowhere in [300, 301, 302, 303, 305, 306, 307, 308] {
        check(&after(&[(0, status(nowhere))]), &[(0, "use nothing")]);
    }
}

#[test]
fn forbidden_allows_everything_for_an_hour_only() {
    for forbidden in [401, 403, 451] {
        let record = after(&[(0, status(forbidden))]);
        check(&record, &[(0, "use nothing"), (3_599, "use nothing"), (3_600, "fetch")]);
        let record = after(&[(0, status(forbidden)), (3_600, Fetched::Failed(Some(OriginFault::Refused)))]);
        check(&record, &[(3_600, "refuse Unreachable 30")]);
    }
}

#[test]
fn no_answer_allows_nothing() {
    for failed in [
        status(500),
        status(502),
        status(503),
        status(599),
        status(600),
        status(100),
        Fetched::Failed(Some(OriginFault::Refused)),
    ] {
        let record = after(&[(0, failed)]);
        check(&record, &[(0, "refuse Unreachable 30"), (29, "refuse Unreachable 1"), (30, "fetch")]);
    }
}

#[test]
fn an_unreachable_origin_is_asked_less_and_less() {
    let mut fetches = vec![(0, status(500))];
    for (times, wait) in [(1, 30), (2, 60), (3, 120), (4, 240), (5, 480), (6, 900), (7, 900)] {
        let record = after(&fetches);
        let trouble = record.trouble.expect("trouble");
        assert_eq!((trouble.times, trouble.since), (times, at(0)));
        assert_eq!(trouble.retry_at, at(fetches[fetches.len() - 1].0 + wait), "after {times}");
        fetches.push((fetches[fetches.len() - 1].0 + wait, Fetched::Failed(Some(OriginFault::Refused))));
    }
    let many: Vec<_> = (0..100).map(|n| (n, Fetched::Failed(Some(OriginFault::Refused)))).collect();
    assert_eq!(after(&many).trouble.map(|trouble| trouble.retry_at), Some(at(99 + 900)));
}

#[test]
fn retry_after_can_only_lengthen_the_wait_for_an_unreachable_origin() {
    check(&after(&[(0, retry_after(503, 5))]), &[(0, "refuse Unreachable 30")]);
    check(&after(&[(0, retry_after(503, 300))]), &[(0, "refuse Unreachable 300")]);
    check(&after(&[(0, retry_after(503, 999_999))]), &[(0, "refuse Unreachable 3600")]);
}

#[test]
fn a_throttled_fetch_waits_as_long_as_it_is_told() {
    check(&after(&[(0, retry_after(429, 7))]), &[(0, "refuse Throttled 7"), (7, "fetch")]);
    check(&after(&[(0, retry_after(429, 999_999))]), &[(0, "refuse Throttled 3600")]);
    check(&after(&[(0, status(429))]), &[(0, "refuse Throttled 300"), (300, "fetch")]);
    check(&after(&[(0, status(429)), (300, status(429))]), &[(300, "refuse Throttled 600")]);
    let many: Vec<_> = (0..9).map(|n| (n, status(429))).collect();
    check(&after(&many), &[(8, "refuse Throttled 3600")]);
}

#[test]
fn the_last_good_copy_serves_for_thirty_days() {
    for trouble in [status(500), Fetched::Failed(Some(OriginFault::Refused)), retry_after(429, 30)] {
        let record = after(&[(0, file(DENY)), (DAY, trouble)]);
        check(&record, &[(DAY, "use /"), (DAY + 29, "use /"), (DAY + 30, "use / and refresh")]);
        check(&record, &[(30 * DAY - 1, "use / and refresh"), (30 * DAY, "fetch")]);
    }
    let record = after(&[
        (0, file(DENY)),
        (DAY, Fetched::Failed(Some(OriginFault::Refused))),
        (30 * DAY, Fetched::Failed(Some(OriginFault::Refused))),
    ]);
    check(&record, &[(30 * DAY, "refuse Unreachable 60")]);
}

#[test]
fn that_there_was_none_is_believed_for_a_day_at_most() {
    let record = after(&[(0, status(404)), (30_000, status(503))]);
    check(
        &record,
        &[(30_000, "use nothing"), (30_030, "use nothing and refresh"), (DAY - 1, "use nothing and refresh")],
    );
    check(&record, &[(DAY, "fetch")]);
    let record = after(&[(0, status(404)), (30_000, status(503)), (DAY, status(503))]);
    check(&record, &[(DAY, "refuse Unreachable 60")]);
}

#[test]
fn an_answer_ends_the_trouble() {
    let record = after(&[(0, file(DENY)), (DAY, status(500)), (DAY + 30, file(OPEN))]);
    assert_eq!(record.trouble, None);
    check(&record, &[(DAY + 30, "use /"), (DAY + 30 + 21_600, "use / and refresh")]);
    let record = after(&[(0, file(DENY)), (DAY, status(500)), (DAY + 30, status(304))]);
    check(&record, &[(DAY + 30, "use /"), (2 * DAY + 30, "fetch")]);
    assert_eq!(record.trouble, None);
}

#[test]
fn troubles_of_two_kinds_are_counted_apart_but_begun_together() {
    let record = after(&[(0, status(500)), (30, status(500)), (90, status(429))]);
    let trouble = record.trouble.expect("trouble");
    assert_eq!((trouble.kind, trouble.times, trouble.since), (TroubleKind::Throttled, 1, at(0)));
}

#[test]
fn chance_spreads_what_the_origin_did_not_say() {
    let wait = |dice: f64| {
        let record = RobotsRecordState::after(None, &Fetched::Failed(Some(OriginFault::Refused)), at(0), dice);
        record.trouble.map(|trouble| trouble.retry_at.since(at(0)))
    };
    assert_eq!((wait(0.0), wait(1.0)), (Some(secs(27)), Some(secs(33))));
    let told = RobotsRecordState::after(None, &retry_after(429, 100), at(0), 0.0);
    assert_eq!(told.trouble.map(|trouble| trouble.retry_at), Some(at(100)));
}

#[test]
fn long_validators_are_dropped() {
    let long = "x".repeat(129);
    let reply =
        FetchReply { status: 200, etag: Some(&long), last_modified: Some("yesterday"), ..FetchReply::default() };
    let record = after(&[(0, Fetched::Answered(reply))]);
    let answer = record.answer.expect("an answer");
    assert_eq!((answer.etag, answer.last_modified.as_deref()), (None, Some("yesterday")));
}

#[test]
fn five_redirects_are_followed_and_no_circle() {
    for status in [301, 302, 303, 307, 308] {
        assert!(Trail::leads_on(status), "{status}");
    }
    for status in [200, 300, 304, 305, 306, 404] {
        assert!(!Trail::leads_on(status), "{status}");
    }
    let mut trail = Trail::new("https://a.test/robots.txt".to_owned());
    assert!(!trail.follow("https://a.test/robots.txt"));
    for hop in 1..=5 {
        assert!(trail.follow(&format!("https://a.test/{hop}")), "{hop}");
    }
    assert!(!trail.follow("https://a.test/6"));
}

#[test]
fn when_an_answer_came_is_told_by_how_long_it_is_kept() {
    let came = |fetches: &[(u64, Fetched<'_>)]| after(fetches).answer.and_then(|answer| answer.came_at());
    let long = Fetched::Answered(FetchReply {
        status: 200,
        freshness: Freshness { cache_control: Some("max-age=999999"), ..Freshness::default() },
        ..FetchReply::default()
    });
    assert_eq!(came(&[(7, file("")), (9, status(503))]), Some(at(7)));
    assert_eq!(came(&[(7, long)]), Some(at(7)));
    assert_eq!(came(&[(7, file("")), (9, status(304))]), Some(at(9)));
    assert_eq!(came(&[(7, status(404))]), Some(at(7)));
    assert_eq!(came(&[(7, status(403))]), None);
}

#[test]
fn without_validators_a_304_says_nothing() {
    let record = after(&[(0, file("user-agent: *\ndisallow: /"))]).without_validators();
    let renewed = RobotsRecordState::after(Some(&record), &status(304), at(1), MIDDLE);
    assert!(renewed.trouble.is_some() && renewed.answer == record.answer);
}
