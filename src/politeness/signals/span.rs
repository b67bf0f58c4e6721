//! A number that means a time span: seconds from now, or a point in time.
//!
//! Origins write both into the same fields. A number beyond a billion cannot be a wait (31 years), so it is a Unix
//! time; a number beyond a million million is a Unix time in milliseconds. Read as waits, such numbers have closed
//! hosts for decades.

use std::time::Duration;

use super::Timestamp;

/// Returns the time from `sent` on; zero if the moment is over; `None` if the text is not a plain decimal number.
pub(super) fn read(text: &str, sent: Timestamp) -> Option<Duration> {
    thousandths(text).map(|millis| of_millis(millis, sent))
}

/// Like [`read`], for a number in thousandths.
pub(super) fn of_millis(millis: u64, sent: Timestamp) -> Duration {
    let seconds = millis / 1_000;
    if seconds <= A_BILLION {
        return Duration::from_millis(millis);
    }
    let moment = if seconds <= A_MILLION_MILLIONS { millis } else { seconds };
    Timestamp::from_millis(moment).since(sent)
}

const A_BILLION: u64 = 1_000_000_000;
const A_MILLION_MILLIONS: u64 = 1_000_000_000_000;

/// Reads a whole number. A fraction is cut off.
pub(super) fn whole(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(fraction)?;
    digits(whole)
}

/// Rounded up, so that no wait is cut short. Shopify sends "2.0".
fn thousandths(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(fraction)?;
    let (three, rest) = fraction.split_at(fraction.len().min(3));
    let scale = 10_u64.pow(3 - three.len() as u32);
    let beyond = u64::from(rest.bytes().any(|digit| digit != b'0'));
    Some(digits(whole)? * 1_000 + digits(three)? * scale + beyond)
}

/// Reads at most fifteen digits: enough for a Unix time in milliseconds, far from overflow.
fn digits(text: &str) -> Option<u64> {
    let plain = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    #[test]
    fn small_numbers_are_seconds() {
        assert_eq!(read("120", SENT), Some(Duration::from_secs(120)));
        assert_eq!(read("0", SENT), Some(Duration::ZERO));
        assert_eq!(read("1000000000", SENT), Some(Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn fractions_are_rounded_up() {
        assert_eq!(read("2.0", SENT), Some(Duration::from_secs(2)));
        assert_eq!(read("0.25", SENT), Some(Duration::from_millis(250)));
        assert_eq!(read("0.0001", SENT), Some(Duration::from_millis(1)));
        assert_eq!(read("1.9999", SENT), Some(Duration::from_millis(2_000)));
        assert_eq!(whole("4.9"), Some(4));
    }

    #[test]
    fn large_numbers_are_moments() {
        assert_eq!(read("1790000060", SENT), Some(Duration::from_secs(60)));
        assert_eq!(read("1790000060.5", SENT), Some(Duration::from_millis(60_500)));
        assert_eq!(read("1790000060000", SENT), Some(Duration::from_secs(60)));
        assert_eq!(read("1789999999", SENT), Some(Duration::ZERO), "it is over");
    }

    #[test]
    fn the_rest_is_nothing() {
        for text in ["", "-1", "+1", "1e3", "0x10", "5s", ".5", "5.", "1.2.3", "1 2", "1,2", "١", "9999999999999999"] {
            assert_eq!(read(text, SENT), None, "{text:?}");
        }
    }
}
