//! Reading signals from a status and a header.

use proptest::prelude::*;

use super::*;

// Mon, 21 Sep 2026 14:13:20 GMT
const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn hear(status: u16, header: &[(&'static str, &'static str)]) -> Signals {
    let fields = SignalFields::of(header.iter().map(|(name, value)| (*name, value.as_bytes())));
    read(status, &fields, &SignalPolicy::default(), NOW)
}

fn plain(answer: PaceSignal) -> Signals {
    Signals { answer, ..Signals::FAILED }
}

const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn a_status_says_what_the_host_thinks_of_the_pace() {
    for status in [101, 200, 204, 301, 304, 400, 401, 404, 405, 410, 451] {
        assert_eq!(hear(status, &[]), plain(PaceSignal::Success), "{status}");
    }
    for status in [408, 425] {
        assert_eq!(hear(status, &[]), plain(PaceSignal::Neutral), "{status}");
    }
    assert_eq!(hear(403, &[]), plain(PaceSignal::Suspect));
    for status in [500, 502, 504, 520, 599] {
        assert_eq!(hear(status, &[]), plain(PaceSignal::Failed), "{status}");
    }
    for status in [429, 503] {
        assert_eq!(hear(status, &[]), plain(PaceSignal::Throttled), "{status}");
    }
}

#[test]
fn which_statuses_throttle_is_configured() {
    let listening = SignalPolicy { statuses: vec![403, 420], ..SignalPolicy::default() };
    let answer = |status| read(status, &SignalFields::default(), &listening, NOW).answer;
    assert_eq!(answer(403), PaceSignal::Throttled);
    assert_eq!(answer(420), PaceSignal::Throttled);
    assert_eq!(answer(429), PaceSignal::Neutral);
    assert_eq!(answer(503), PaceSignal::Failed);
}

/// S72
#[test]
fn a_403_with_a_limit_is_a_limit() {
    assert_eq!(hear(403, &[("retry-after", "9")]).retry_after, Some(secs(9)));
    assert_eq!(hear(403, &[("retry-after", "9")]).answer, PaceSignal::Throttled);
    assert_eq!(hear(403, &[("retry-after", "0")]).answer, PaceSignal::Suspect);
    let github = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1790000060")];
    assert_eq!(hear(403, &github), Signals { used_up: Some(secs(60)), ..plain(PaceSignal::Throttled) });
    assert_eq!(hear(403, &[("x-ratelimit-remaining", "0")]), plain(PaceSignal::Throttled));
    assert_eq!(hear(403, &[("x-ratelimit-remaining", "1")]), plain(PaceSignal::Suspect));
}

/// S64
#[test]
fn retry_after_counts_from_the_date_of_the_answer() {
    let date = ("date", "Mon, 21 Sep 2026 14:00:00 GMT");
    let until = ("retry-after", "Mon, 21 Sep 2026 14:00:30 GMT");
    assert_eq!(hear(429, &[date, until]).retry_after, Some(secs(30)));
    assert_eq!(hear(429, &[until]).retry_after, None, "by our clock it is over");
    assert_eq!(hear(429, &[("date", "?"), ("retry-after", "1790000030")]).retry_after, Some(secs(30)));
}

/// S63, X63
#[test]
fn retry_after_is_capped_and_heard_only_where_it_is_meant() {
    assert_eq!(hear(429, &[("retry-after", "86400")]).retry_after, Some(secs(3600)));
    assert_eq!(hear(503, &[("retry-after", "999999999999999")]).retry_after, Some(secs(3600)));
    assert_eq!(hear(301, &[("retry-after", "30")]), plain(PaceSignal::Success));
    assert_eq!(hear(500, &[("retry-after", "30")]), plain(PaceSignal::Failed));
    assert_eq!(hear(404, &[("retry-after", "30")]), plain(PaceSignal::Success));
    assert_eq!(hear(429, &[("retry-after", "1"), ("retry-after", "9")]).retry_after, Some(secs(1)));
}

/// S68, X63
#[test]
fn a_used_up_quota_is_capped_and_any_answer_may_tell_of_it() {
    let header = [("ratelimit", "a;r=0;t=86400")];
    assert_eq!(hear(200, &header), Signals { used_up: Some(secs(3600)), ..plain(PaceSignal::Success) });
    assert_eq!(hear(404, &[("ratelimit", "a;r=5;t=10")]).quota, Some(Quota { remaining: 5, reset: secs(10) }));
}

/// S68
#[test]
fn a_stored_answer_tells_of_no_quota() {
    let quota = ("ratelimit", "a;r=5;t=10");
    assert_eq!(hear(200, &[quota, ("age", "7")]).quota, None);
    assert!(hear(200, &[quota, ("age", "0")]).quota.is_some());
}

#[test]
fn quotas_can_be_left_unheard() {
    let deaf = SignalPolicy { ratelimit_fields: false, ..SignalPolicy::default() };
    let fields = SignalFields { ratelimit: [Some("a;r=0;t=10"), None, None, None], ..SignalFields::default() };
    assert_eq!(read(200, &fields, &deaf, NOW), plain(PaceSignal::Success));
    assert_eq!(read(403, &fields, &deaf, NOW), plain(PaceSignal::Suspect));
}

#[test]
fn values_that_are_no_text_are_not_there() {
    let header: [(&str, &[u8]); 2] = [("retry-after", b"\xff"), ("ratelimit", b"a;r=\xff;t=3")];
    assert_eq!(SignalFields::of(header), SignalFields::default());
}

/// Parts of valid fields, and parts that break them.
fn scraps() -> impl Strategy<Value = String> {
    let words = [
        "0",
        "1",
        "-1",
        "9",
        "60",
        "1e9",
        "2.5",
        "1790000060",
        "1790000060000",
        "999999999999999",
        "\"a\"",
        "b",
        ";r=",
        ";t=",
        ";w=",
        ";qu=",
        "requests",
        ",",
        ", ",
        ";",
        "=",
        "\"",
        "\\",
        " ",
        "Mon, ",
        "21 Sep 2026 ",
        "14:13:20 GMT",
        "Monday, 21-Sep-26 ",
        "Mon Sep 21 ",
        "2026",
        "remaining=",
        "reset=",
        "é",
    ];
    proptest::collection::vec(proptest::sample::select(words.to_vec()), 0..12).prop_map(|scraps| scraps.concat())
}

proptest! {
    #[test]
    fn whatever_is_written_the_numbers_are_within_bounds(
        status in 0_u16..1_000,
        values in proptest::collection::vec(scraps(), NAMES.len()),
        now in 0..u64::MAX,
    ) {
        let fields = SignalFields::of(NAMES.iter().copied().zip(values.iter().map(String::as_bytes)));
        let listening = SignalPolicy::default();
        let signals = read(status, &fields, &listening, Timestamp::from_micros(now));
        let most = listening.retry_after_max;
        prop_assert!(signals.retry_after.is_none_or(|wait| !wait.is_zero() && wait <= most));
        prop_assert!(signals.retry_after.is_none() || signals.answer == PaceSignal::Throttled);
        prop_assert!(signals.used_up.is_none_or(|wait| wait <= most));
        prop_assert!(signals.quota.is_none_or(|quota| (1..=1_000_000_000).contains(&quota.remaining)));
        let again = read(status, &fields, &listening, Timestamp::from_micros(now));
        prop_assert_eq!(signals, again);
    }

    #[test]
    fn a_wait_is_heard_as_written(seconds in 1_u32..3_600, thousandths in 0_u32..1_000) {
        let text = format!("{seconds}.{thousandths:03}");
        let fields = SignalFields { retry_after: Some(&text), ..SignalFields::default() };
        let wait = Duration::from_millis(u64::from(seconds) * 1_000 + u64::from(thousandths)).min(secs(3_600));
        prop_assert_eq!(read(429, &fields, &SignalPolicy::default(), NOW).retry_after, Some(wait));
    }
}

const NAMES: [&str; 11] = [
    "date",
    "age",
    "retry-after",
    "ratelimit",
    "ratelimit-policy",
    "ratelimit-remaining",
    "ratelimit-reset",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "x-rate-limit-remaining",
    "x-rate-limit-reset",
];
