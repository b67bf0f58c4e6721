//! Times as the API shows them: RFC 3339 in UTC for moments, numbers with their unit for durations.

use std::time::{Duration, SystemTime};

use crate::config::AddressSpan;
pub(super) use crate::gate::now;
use crate::politeness::time::Timestamp;
pub(super) use crate::politeness::time::millis;

use super::body;
use super::problem::ApiProblem;

/// Returns `None` for a time that never comes.
pub(super) fn moment(at: Timestamp) -> Option<String> {
    let at = SystemTime::UNIX_EPOCH.checked_add(Duration::from_micros(at.as_micros()))?;
    // Beyond the year 9999 RFC 3339 has no text.
    (at < SystemTime::UNIX_EPOCH + Duration::from_secs(253_402_300_800))
        .then(|| humantime::format_rfc3339_millis(at).to_string())
}

/// Rounds down to milliseconds.
pub(super) fn seconds(duration: Duration) -> f64 {
    millis(duration) as f64 / 1e3
}

/// Parses a future moment, or the time until then: "2026-11-16T15:00:00Z" or "30m".
pub(super) fn until(text: &str, now: Timestamp) -> Result<Timestamp, ApiProblem> {
    let at = match humantime::parse_rfc3339(text) {
        Ok(at) => {
            let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Timestamp::START + since
        }
        Err(_) => now + body::value::<AddressSpan>("until", text)?.0,
    };
    let longest = Duration::from_secs(366 * 86_400);
    if at <= now {
        return Err(ApiProblem::bad_request("until is in the past"));
    }
    if at.since(now) > longest {
        return Err(ApiProblem::bad_request("until is more than a year away; leave it out for a pause without end"));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

    #[test]
    fn moments_are_told_in_utc_and_never_is_none() {
        assert_eq!(moment(NOW).as_deref(), Some("2026-09-21T14:13:20.000Z"));
        assert_eq!(moment(Timestamp::NEVER), None);
    }

    #[test]
    fn an_end_is_a_moment_or_a_span_to_come() {
        assert_eq!(until("30m", NOW), Ok(NOW + Duration::from_secs(1_800)));
        assert_eq!(until("2026-09-21T14:13:21Z", NOW), Ok(NOW + Duration::from_secs(1)));
        for text in ["2026-09-21T14:13:20Z", "1969-01-01T00:00:00Z", "0s", "30", "", "soon", "400d"] {
            assert!(until(text, NOW).is_err(), "{text}");
        }
    }
}
