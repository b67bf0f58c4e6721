//! The response fields that describe a request's wait: `Curtsy`, `Server-Timing` and `Proxy-Status`
//! (`responses.headers`).

use std::cell::RefCell;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::gate::{Account, Permit};
use crate::metrics::A_MOMENT;
use crate::proxy::request::headers::Identity;
use crate::proxy::robots::ask::Warning;

const CURTSY: HeaderName = HeaderName::from_static("curtsy");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// Adds the objection of robots.txt.
pub(crate) fn warn(headers: &mut HeaderMap, warning: Warning) {
    put(headers, CURTSY, warned(warning));
}

/// Adds how long the request waited, why, and behind how many requests. Adds nothing if the host is not paced.
pub(crate) fn tell(headers: &mut HeaderMap, permit: &Permit, origin: Duration, attempts: u32, identity: &Identity) {
    let Some(account) = permit.account() else { return };
    let waited = permit.waited();
    if let Some(value) = value(account, (waited, attempts, permit.would_wait())) {
        headers.append(CURTSY, value);
    }
    if waited >= A_MOMENT {
        tell_of_waiting(headers, waited, origin, identity);
    }
}

/// The content of the `Curtsy` field.
struct LastField {
    account: Account,
    more: More,
}

/// How long the request waited, how often it was sent, and, in report mode, how long it would have waited.
type More = (Duration, u32, Option<Duration>);

thread_local! {
    /// Most requests do not wait, so they get the same text as the request before.
    static LAST: RefCell<Option<(LastField, HeaderValue)>> = const { RefCell::new(None) };
}

fn value(account: &Account, more: More) -> Option<HeaderValue> {
    LAST.with_borrow_mut(|last| match last {
        Some((said, value)) if said.more == more && said.account == *account => Some(value.clone()),
        _ => {
            let said = LastField { account: *account, more };
            let value = HeaderValue::from_maybe_shared(Bytes::from(said.text())).ok()?;
            *last = Some((said, value.clone()));
            Some(value)
        }
    })
}

impl LastField {
    fn text(&self) -> Vec<u8> {
        let (waited, attempts, would_wait) = self.more;
        let mut text = Vec::with_capacity(96);
        text.extend_from_slice(b"wait=");
        write_millis(&mut text, waited.as_millis());
        text.extend_from_slice(b", delay=");
        write_millis(&mut text, self.account.delays.effective().as_millis());
        text.extend_from_slice(b", why=");
        text.extend_from_slice(self.account.why().as_bytes());
        text.extend_from_slice(b", queue=");
        write_number(&mut text, self.account.ahead as u64);
        if self.account.is_alone {
            text.extend_from_slice(b", fleet=alone");
        }
        if attempts > 1 {
            text.extend_from_slice(b", attempts=");
            write_number(&mut text, attempts.into());
        }
        if let Some(would_wait) = would_wait {
            text.extend_from_slice(b", would-wait=");
            write_millis(&mut text, would_wait.as_millis());
        }
        text
    }
}

fn warned(warning: Warning) -> Vec<u8> {
    match warning {
        Warning::Denied(Some(line)) => format!("robots=denied;line={line}").into_bytes(),
        Warning::Denied(None) => b"robots=denied".to_vec(),
        Warning::Unknown => b"robots=unknown".to_vec(),
    }
}

fn tell_of_waiting(headers: &mut HeaderMap, waited: Duration, origin: Duration, identity: &Identity) {
    let timing = format!("curtsy-wait;dur={}, curtsy-origin;dur={}", waited.as_millis(), origin.as_millis());
    put(headers, SERVER_TIMING, timing.into_bytes());
    let mut status = format!("{}; details=\"waited ", identity.status_name()).into_bytes();
    write_millis(&mut status, waited.as_millis());
    status.extend_from_slice(b" s\"");
    put(headers, PROXY_STATUS, status);
}

/// Appends a field after any that the origin sent under the same name.
fn put(headers: &mut HeaderMap, name: HeaderName, value: Vec<u8>) {
    if let Ok(value) = HeaderValue::from_maybe_shared(Bytes::from(value)) {
        headers.append(name, value);
    }
}

/// Writes seconds with three decimals, the most that a structured-field decimal may have (RFC 8941, section 3.3.2).
/// Written digit by digit: this runs for every request, and formatting costs five times as much.
fn write_millis(text: &mut Vec<u8>, millis: u128) {
    let millis = u64::try_from(millis).unwrap_or(u64::MAX);
    let rest = (millis % 1_000) as u32;
    write_number(text, millis / 1_000);
    text.extend_from_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

pub(crate) fn write_number(text: &mut Vec<u8>, number: u64) {
    if number >= 10 {
        write_number(text, number / 10);
    }
    text.push(digit((number % 10) as u32));
}

fn digit(number: u32) -> u8 {
    b'0' + (number % 10) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_decimals() {
        let seconds = |micros| {
            let mut text = Vec::new();
            write_millis(&mut text, Duration::from_micros(micros).as_millis());
            String::from_utf8(text).unwrap()
        };
        assert_eq!(seconds(1_234_567), "1.234");
        assert_eq!(seconds(0), "0.000");
        assert_eq!(seconds(3_600_050_000), "3600.050");
    }
}
