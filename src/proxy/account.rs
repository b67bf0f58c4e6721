//! What a response tells about the wait it had: `Curtsy`, `Server-Timing` and `Proxy-Status` (`responses.headers`).

use std::fmt::Write;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::identity::Identity;
use crate::gate::Permit;
use crate::politeness::policy::{Delays, Mode};

const CURTSY: HeaderName = HeaderName::from_static("curtsy");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Less is no waiting but the time it takes to look.
const A_MOMENT: Duration = Duration::from_millis(1);

/// Says how long the request waited, why, and behind how many; nothing if its host is not paced.
pub(super) fn tell(headers: &mut HeaderMap, permit: &Permit, origin: Duration, identity: &Identity) {
    let Some(account) = permit.account() else { return };
    let (waited, delay) = (permit.waited(), account.delays.effective());
    let mut text = String::with_capacity(80);
    let _ = write!(
        text,
        "wait={}, delay={}, why={}, queue={}",
        seconds(waited),
        seconds(delay),
        why(&account.delays),
        account.ahead
    );
    if account.mode == Mode::Report {
        let _ = write!(text, ", would-wait={}", seconds(account.would_wait));
    }
    put(headers, CURTSY, text);
    if waited < A_MOMENT {
        return;
    }
    let timing = format!("curtsy-wait;dur={}, curtsy-origin;dur={}", waited.as_millis(), origin.as_millis());
    put(headers, SERVER_TIMING, timing);
    let status = format!("{}; details=\"waited {} s\"", identity.status_name(), seconds(waited));
    put(headers, PROXY_STATUS, status);
}

/// Behind what the origin says by the same name.
fn put(headers: &mut HeaderMap, name: HeaderName, value: String) {
    if let Ok(value) = HeaderValue::try_from(value) {
        headers.append(name, value);
    }
}

/// Which part of the delay is the largest.
fn why(delays: &Delays) -> &'static str {
    let effective = delays.effective();
    if effective == delays.learned && !effective.is_zero() {
        "learned"
    } else if effective == delays.robots && effective > delays.configured {
        "robots"
    } else if effective == delays.response && effective > delays.configured {
        "response-time"
    } else {
        "configured"
    }
}

/// A structured-field decimal has at most three digits behind the point (RFC 8941, section 3.3.2).
fn seconds(duration: Duration) -> String {
    let millis = duration.as_millis();
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_is_the_reason() {
        let s = Duration::from_secs;
        let delays = |configured, robots, learned, response| Delays {
            configured: s(configured),
            robots: s(robots),
            learned: s(learned),
            response: s(response),
        };
        assert_eq!(why(&delays(1, 0, 0, 0)), "configured");
        assert_eq!(why(&delays(1, 5, 0, 0)), "robots");
        assert_eq!(why(&delays(1, 5, 5, 0)), "learned");
        assert_eq!(why(&delays(1, 1, 0, 3)), "response-time");
        assert_eq!(why(&delays(0, 0, 0, 0)), "configured");
    }

    #[test]
    fn times_are_decimals() {
        assert_eq!(seconds(Duration::from_micros(1_234_567)), "1.234");
        assert_eq!(seconds(Duration::ZERO), "0.000");
    }
}
