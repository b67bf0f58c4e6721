//! The time between requests that a robots.txt asks for: the values of Crawl-delay and Request-rate.
//!
//! Neither is in RFC 9309, so they are read as sites write them: a number, followed by anything. Promises: a value that
//! is not a number asks for nothing; a number too large for a duration is the longest duration.

use std::time::Duration;

use crate::politeness::time::whole_micros;

/// The longest delay that is read, one year. Keeps arithmetic and the stored form small.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// `10`, `0.5`, `.5`, `10 s`.
pub(super) fn crawl_delay(value: &[u8]) -> Option<Duration> {
    let (seconds, _) = number(value)?;
    Some(duration(seconds))
}

/// `1/10`, `1/10s`, `100/15m`, `1/10s 0600-0845`: returns the time of one request. The hours of the day are ignored,
/// which can only make curtsy slower.
pub(super) fn request_rate(value: &[u8]) -> Option<Duration> {
    let (requests, rest) = number(value)?;
    let (period, unit) = number(rest.strip_prefix(b"/")?)?;
    let seconds = match unit.first().map(u8::to_ascii_lowercase) {
        Some(b'm') => 60.0,
        Some(b'h') => 3_600.0,
        Some(b'd') => 86_400.0,
        _ => 1.0,
    };
    (requests > 0.0).then(|| duration(period * seconds / requests))
}

/// In whole microseconds, as it is stored.
fn duration(seconds: f64) -> Duration {
    let asked = Duration::try_from_secs_f64(seconds).map_or(LONGEST, |duration| duration.min(LONGEST));
    Duration::from_micros(whole_micros(asked))
}

/// Reads a decimal number without sign or exponent, and returns the text after it. So `-3`, `inf` and `nan` are not
/// numbers.
fn number(text: &[u8]) -> Option<(f64, &[u8])> {
    let text = text.trim_ascii_start();
    let end = text.iter().position(|byte| !byte.is_ascii_digit() && *byte != b'.').unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some((number, rest.trim_ascii_start()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_a_number_of_seconds() {
        let millis = |value: &str| crawl_delay(value.as_bytes()).map(|delay| delay.as_millis());
        assert_eq!(millis("10"), Some(10_000));
        assert_eq!(millis("0.25"), Some(250));
        assert_eq!(millis(".5"), Some(500));
        assert_eq!(millis("2."), Some(2_000));
        assert_eq!(millis("10<BR>"), Some(10_000));
        assert_eq!(millis("0"), Some(0));
        assert_eq!(millis(&"9".repeat(400)), Some(LONGEST.as_millis()));
        for nonsense in ["", "-3", "inf", "nan", "word", ".", "1.2.3", "+1", "\u{665}"] {
            assert_eq!(millis(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn a_rate_is_the_time_of_one_request() {
        let millis = |value: &str| request_rate(value.as_bytes()).map(|delay| delay.as_millis());
        assert_eq!(millis("1/10"), Some(10_000));
        assert_eq!(millis("1 / 10 s"), Some(10_000));
        assert_eq!(millis("100/15m"), Some(9_000));
        assert_eq!(millis("400/1H"), Some(9_000));
        assert_eq!(millis("9000/1d"), Some(9_600));
        assert_eq!(millis("1/10s 1820-1940"), Some(10_000));
        assert_eq!(millis("0.5/1"), Some(2_000));
        assert_eq!(request_rate(b"11/1"), Some(Duration::from_micros(90_910)), "rounded up");
        for nonsense in ["", "1", "1/", "0/10", "/10", "a/b", "-1/10", "1/-10"] {
            assert_eq!(millis(nonsense), None, "{nonsense}");
        }
    }
}
