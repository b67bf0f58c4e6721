//! Makes a response of a stored answer: the whole, a range of it, or a 304 (RFC 9111, section 4.3.2).

use std::cell::RefCell;

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue};
use http::{HeaderMap, Response, StatusCode, Version};

use super::status::{self, How};
use crate::cache::{Entry, Pieces, ReadyHeads};
use crate::config::ResponseHeaders;
use crate::metrics::RequestOutcome;
use crate::politeness::reuse::conditions::{Portion, Representation, portion};
use crate::politeness::reuse::policy::CacheTime;
use crate::politeness::reuse::request::CacheRequest;
use crate::proxy::answer::body::Body;
use crate::proxy::request::client_request::ClientRequest;

const CURTSY: HeaderName = HeaderName::from_static("curtsy");

/// Answers a request from a stored answer.
pub(super) fn respond(
    request: &mut ClientRequest,
    entry: &Entry,
    asked: &CacheRequest<'_>,
    how: How,
    now: CacheTime,
) -> Response<Body> {
    let mut response = portioned(entry, asked, now, &request.shared().cache.ready);
    response.headers_mut().insert(header::AGE, age(entry.terms.policy.age(now)));
    if request.settings.config.responses.headers == ResponseHeaders::Full {
        tell(response.headers_mut(), request.shared().identity.status_name(), how, entry.terms.policy.ttl(now));
    } else {
        status::leave_out(response.headers_mut());
    }
    *response.version_mut() = Version::HTTP_11;
    entry.count_hit();
    request.shared().metrics.cache.request(how.word());
    request.cached(how.word());
    request.saves(entry.terms.address);
    let outcome = match how {
        How::Validated(_) => RequestOutcome::Forwarded,
        How::Fresh | How::Stale(_) | How::Shared(_) => RequestOutcome::Cached,
    };
    request.answered(response.status().as_u16(), outcome);
    response
}

thread_local! {
    /// The last Age: answers in a row are often of the same age.
    static LAST_AGE: RefCell<(u32, HeaderValue)> = const { RefCell::new((0, HeaderValue::from_static("0"))) };
}

fn age(seconds: u32) -> HeaderValue {
    LAST_AGE.with_borrow_mut(|(last, value)| {
        if *last != seconds {
            (*last, *value) = (seconds, HeaderValue::from(seconds));
        }
        value.clone()
    })
}

/// What the client gets of a stored answer. Without conditions that is the whole, whatever is stored.
fn portion_of(entry: &Entry, asked: &CacheRequest<'_>, now: CacheTime) -> Portion {
    if !asked.is_conditional {
        return Portion::Whole;
    }
    let stored = Representation {
        status: entry.status().as_u16(),
        etag: entry.field("etag"),
        last_modified: entry.field("last-modified"),
        length: entry.length(),
    };
    portion(asked, &stored, now)
}

fn portioned(entry: &Entry, asked: &CacheRequest<'_>, now: CacheTime, ready: &ReadyHeads) -> Response<Body> {
    let portion = portion_of(entry, asked, now);
    let mut headers = entry.served(ready);
    let (status, body) = match portion {
        Portion::NotModified => {
            headers = not_modified(&headers);
            (StatusCode::NOT_MODIFIED, Body::stored(Pieces::new()))
        }
        Portion::OutOfRange => {
            headers = not_modified(&headers);
            headers.insert(header::CONTENT_RANGE, text(format!("bytes */{}", entry.length())));
            (StatusCode::RANGE_NOT_SATISFIABLE, Body::stored(Pieces::new()))
        }
        Portion::Range(first, last) => {
            headers.remove(header::CONTENT_LENGTH);
            headers.insert(header::CONTENT_RANGE, text(format!("bytes {first}-{last}/{}", entry.length())));
            (StatusCode::PARTIAL_CONTENT, range(entry, first, last))
        }
        Portion::Whole if asked.is_head => {
            if !entry.terms.head_only && !headers.contains_key(header::CONTENT_LENGTH) {
                headers.insert(header::CONTENT_LENGTH, HeaderValue::from(entry.length()));
            }
            (entry.status(), Body::stored(Pieces::new()))
        }
        Portion::Whole => (entry.status(), whole(entry)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The fields of a 304 (RFC 9110, section 15.4.5).
fn not_modified(headers: &HeaderMap) -> HeaderMap {
    const KEPT: [HeaderName; 9] = [
        header::CACHE_CONTROL,
        header::CONTENT_LOCATION,
        header::DATE,
        header::ETAG,
        header::EXPIRES,
        header::LAST_MODIFIED,
        header::SET_COOKIE,
        header::VARY,
        header::VIA,
    ];
    let kept = headers.iter().filter(|(name, _)| KEPT.contains(name));
    let mut fields = HeaderMap::new();
    kept.for_each(|(name, value)| {
        fields.append(name, value.clone());
    });
    fields
}

fn whole(entry: &Entry) -> Body {
    match entry.large() {
        Some(large) => Body::on_disk(large),
        None => Body::stored(entry.body().clone()),
    }
}

fn range(entry: &Entry, first: u64, last: u64) -> Body {
    match entry.large() {
        Some(mut large) => {
            large.select(first, last - first + 1);
            Body::on_disk(large)
        }
        None => Body::stored(cut(entry.body(), first, last)),
    }
}

/// The bytes from `first` to `last`, inclusive.
fn cut(body: &[Bytes], first: u64, last: u64) -> Pieces {
    let (mut at, mut pieces) = (0, Pieces::new());
    for piece in body {
        let end = at + piece.len() as u64;
        let (from, to) = (first.max(at), (last + 1).min(end));
        if from < to {
            pieces.push(piece.slice((from - at) as usize..(to - at) as usize));
        }
        at = end;
    }
    pieces
}

/// Adds Cache-Status, and says how stale an answer is.
fn tell(headers: &mut HeaderMap, name: &str, how: How, ttl: i64) {
    status::tell_of_hit(headers, name, how, ttl);
    if let How::Stale(why) = how {
        headers.append(CURTSY, text(format!("stale={}, why={why}", (-ttl).max(0))));
    }
}

/// Makes a value of text that has no control characters.
pub(super) fn text(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_may_span_pieces() {
        let body = [Bytes::from_static(b"abc"), Bytes::from_static(b"defg"), Bytes::from_static(b"h")];
        let text = |first, last| cut(&body, first, last).concat();
        assert_eq!(text(0, 7), b"abcdefgh");
        assert_eq!(text(2, 3), b"cd");
        assert_eq!(text(4, 5), b"ef");
        assert_eq!(text(7, 7), b"h");
    }
}
