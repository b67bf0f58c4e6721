//! Any response: its fields about time (Retry-After, RateLimit fields, dates) are read without a panic, and the results
//! are within bounds.

#![no_main]

use std::time::Duration;

use curtsy::politeness::signals::structured::parse;
use curtsy::politeness::signals::{PaceSignal, SignalFields, SignalPolicy, read, strict_date};
use curtsy::politeness::time::Timestamp;
use libfuzzer_sys::fuzz_target;
use sfv::{Dictionary, FieldType, Item, List};

// Mon, 21 Sep 2026 14:13:20 GMT
const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Replaces the system's function and gives hash maps the same keys in each run (`sfv` builds dictionaries from hash
/// maps). Otherwise the coverage that steers the fuzzer differs between runs, and so do the inputs of `scripts/fuzz
/// --fixed`.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
    // SAFETY: callers of getrandom(2) pass a buffer of this length.
    unsafe { std::ptr::write_bytes(buffer, 7, length) };
    length.cast_signed()
}

// Input: a status, then fields, one per line.
fuzz_target!(|response: &str| {
    let mut lines = response.lines();
    let status = lines.next().and_then(|line| line.parse().ok()).unwrap_or(429);
    let fields: Vec<(String, &str)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim_ascii()))
        .collect();
    check_response(status, &fields);
    for (_, value) in &fields {
        check_date(value);
        check_structured::<List>(value);
        check_structured::<Dictionary>(value);
        check_structured::<Item>(value);
    }
});

fn check_response(status: u16, fields: &[(String, &str)]) {
    let fields = SignalFields::of(fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let listening = SignalPolicy::default();
    let most = listening.retry_after_max;
    let signals = read(status, &fields, &listening, NOW);
    assert!(signals.retry_after.is_none_or(|wait| !wait.is_zero() && wait <= most));
    assert!(signals.retry_after.is_none() || signals.answer == PaceSignal::Throttled);
    assert!(signals.used_up.is_none_or(|wait| wait <= most));
    assert!(signals.quota.is_none_or(|quota| (1..=1_000_000_000).contains(&quota.remaining)));
}

/// A date that follows the grammar is a date in upper case too, and a Retry-After in the future is obeyed.
fn check_date(value: &str) {
    let date = strict_date(value, NOW);
    assert_eq!(strict_date(&value.to_ascii_uppercase(), NOW), date);
    let ahead = date.map(|date| date.since(NOW)).filter(|ahead| *ahead > Duration::ZERO);
    if let Some(ahead) = ahead {
        let (fields, listening) = (SignalFields { retry_after: Some(value), ..SignalFields::default() }, SignalPolicy::default());
        let wait = read(429, &fields, &listening, NOW).retry_after;
        assert_eq!(wait, Some(ahead.min(listening.retry_after_max)), "{value:?}");
    }
}

/// A parsed value can be serialized and parsed again.
fn check_structured<T: FieldType + PartialEq + std::fmt::Debug>(value: &str) {
    let Some(read) = parse::<T>([value]) else { return };
    let written: Option<String> = read.serialize().into();
    if let Some(written) = written {
        assert_eq!(parse::<T>([written.as_str()]), Some(read), "{value:?}");
    }
}
