//! Retry-After (RFC 9110, 10.2.3): seconds, or a date.
//!
//! Promises: a date counts from the response's own `Date`, so that it does not matter if two clocks disagree. A wait of
//! zero, a time in the past, a negative number and text that is not a time count as absent, because "come back at once"
//! after a refusal is never meant.

use std::time::Duration;

use super::{Timestamp, http_date, span};

/// Returns how long to wait, counted from when the response was `sent`.
pub(super) fn read(text: &str, sent: Timestamp, now: Timestamp) -> Option<Duration> {
    let wait = span::read(text, sent).or_else(|| http_date::robust(text, now).map(|until| until.since(sent)));
    wait.filter(|wait| !wait.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Sun, 06 Nov 1994 08:49:37 GMT
    const SENT: Timestamp = Timestamp::from_millis(784_111_777_000);

    fn wait(text: &str) -> Option<Duration> {
        read(text, SENT, SENT + Duration::from_secs(500))
    }

    /// S63
    #[test]
    fn seconds_and_dates_are_waits() {
        assert_eq!(wait("30"), Some(Duration::from_secs(30)));
        assert_eq!(wait("1.5"), Some(Duration::from_millis(1_500)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_secs(60)), "from its Date, not from now");
        assert_eq!(wait("Sunday, 06-Nov-94 08:50:37 GMT"), Some(Duration::from_secs(60)));
        assert_eq!(wait("Sun Nov  6 08:50:37 1994"), Some(Duration::from_secs(60)));
        assert_eq!(wait("SUN, 6 Nov 1994  08:50:37 UTC"), Some(Duration::from_secs(60)), "not written by the book");
        assert_eq!(wait("1784111777"), Some(Duration::from_secs(1_000_000_000)), "the caller has the cap");
    }

    /// S63
    #[test]
    fn nothing_to_wait_for_is_nothing_said() {
        for text in ["0", "0.0", "-5", "Sun, 06 Nov 1994 08:49:37 GMT", "Sat, 05 Nov 1994 08:49:37 GMT", "soon", ""] {
            assert_eq!(wait(text), None, "{text:?}");
        }
    }
}
