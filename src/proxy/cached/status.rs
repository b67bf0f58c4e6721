//! Adds Cache-Status to a response (RFC 9211): what the cache did for the request.

use std::cell::RefCell;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::plan::ForwardReason;
use crate::proxy::answer::fields::write_number;

const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// How a stored answer came to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Fresh,
    /// It is stale, for this reason.
    Stale(&'static str),
    /// The origin confirmed it.
    Validated(ForwardReason),
    /// The origin confirmed it when another client asked.
    Shared(ForwardReason),
}

impl How {
    /// The word of metrics and of the access log.
    pub(super) fn word(self) -> &'static str {
        match self {
            How::Fresh => "hit",
            How::Stale(_) => "stale",
            How::Validated(_) => "validated",
            How::Shared(_) => "shared",
        }
    }
}

thread_local! {
    /// A buffer, and the last field: requests in a row often get the same.
    static LAST: RefCell<(Vec<u8>, HeaderValue)> = const { RefCell::new((Vec::new(), HeaderValue::from_static(""))) };
}

/// Says how a stored answer came to be used. `ttl` is for how many seconds it is still fresh.
pub(super) fn tell_of_hit(headers: &mut HeaderMap, name: &str, how: How, ttl: i64) {
    match how {
        How::Fresh => write(headers, name, &["; hit; ttl="], Some(ttl), &[]),
        How::Stale(detail) => write(headers, name, &["; hit; ttl="], Some(ttl), &["; detail=", detail]),
        How::Validated(why) => tell(headers, name, &["; fwd=", why.word(), "; fwd-status=304; stored"]),
        How::Shared(why) => tell(headers, name, &["; fwd=", why.word(), "; fwd-status=304; collapsed; stored"]),
    }
}

/// Adds the field with these parameters. `name` is curtsy's.
pub(super) fn tell(headers: &mut HeaderMap, name: &str, parameters: &[&str]) {
    write(headers, name, parameters, None, &[]);
}

/// Written piece by piece: this runs for every request, and formatting costs five times as much.
fn write(headers: &mut HeaderMap, name: &str, before: &[&str], number: Option<i64>, behind: &[&str]) {
    LAST.with_borrow_mut(|(text, last)| {
        text.clear();
        text.extend_from_slice(name.as_bytes());
        before.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
        if let Some(number) = number {
            if number < 0 {
                text.push(b'-');
            }
            write_number(text, number.unsigned_abs());
        }
        behind.iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
        if *text != last.as_bytes() {
            let Ok(value) = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(text)) else { return };
            *last = value;
        }
        headers.append(CACHE_STATUS, last.clone());
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C59
    #[test]
    fn the_field_says_what_happened() {
        let told = |how, ttl| {
            let mut headers = HeaderMap::new();
            tell_of_hit(&mut headers, "c", how, ttl);
            headers[CACHE_STATUS].to_str().unwrap().to_owned()
        };
        for (how, ttl, text) in [
            (How::Fresh, 2871, "c; hit; ttl=2871"),
            (How::Fresh, 2871, "c; hit; ttl=2871"),
            (How::Stale("host-cooling"), -372, "c; hit; ttl=-372; detail=host-cooling"),
            (How::Validated(ForwardReason::Stale), 0, "c; fwd=stale; fwd-status=304; stored"),
            (How::Shared(ForwardReason::UriMiss), 0, "c; fwd=uri-miss; fwd-status=304; collapsed; stored"),
        ] {
            assert_eq!(told(how, ttl), text);
        }
    }
}
