//! Converts a request that was written for HTTP/1.1 back to a request for HTTP/2.
//!
//! Requests wait in written form, because nearly all of them are sent in that form and because they then do not keep
//! the buffers they were read into. Fields that concern one HTTP/1.1 connection are left out (RFC 9113, section 8.2.2),
//! and Host becomes `:authority`.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, COOKIE, HOST, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, Request, Uri, Version};

use crate::upstream::error::UpstreamError;
use crate::upstream::message::Message;

/// Returns the request, and the part of its body that is already written.
pub(super) fn read_back(message: &Message) -> Result<(Request<()>, Bytes), UpstreamError> {
    // A copy, because the message may be sent again.
    let all = Bytes::copy_from_slice(&message.head);
    parse(&all).ok_or_else(|| UpstreamError::Protocol("the request cannot be said in HTTP/2".to_owned()))
}

fn parse(all: &Bytes) -> Option<(Request<()>, Bytes)> {
    let lines = memchr::memchr_iter(b'\n', all).count();
    let mut fields = vec![httparse::EMPTY_HEADER; lines];
    let mut parsed = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(length) = parsed.parse(all).ok()? else { return None };
    let mut request = Request::new(());
    *request.method_mut() = parsed.method?.parse().ok()?;
    *request.version_mut() = Version::HTTP_2;
    let headers = request.headers_mut();
    let mut authority = None;
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        let value = HeaderValue::from_maybe_shared(all.slice_ref(field.value)).ok()?;
        match name {
            HOST => authority = Some(value),
            CONNECTION | TRANSFER_ENCODING => {}
            name => append(headers, name, value),
        }
    }
    let path = PathAndQuery::from_maybe_shared(all.slice_ref(parsed.path?.as_bytes())).ok()?;
    *request.uri_mut() =
        Uri::builder().scheme(Scheme::HTTPS).authority(authority?.as_bytes()).path_and_query(path).build().ok()?;
    Some((request, all.slice(length..)))
}

/// Keeps secrets out of the table that compresses fields, because clients share it (RFC 7541, section 7.1).
fn append(headers: &mut HeaderMap, name: HeaderName, mut value: HeaderValue) {
    value.set_sensitive(name == AUTHORIZATION || name == COOKIE);
    headers.append(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::RequestBody;

    fn read(head: &str) -> (Request<()>, Bytes) {
        let (head, body) = (head.as_bytes().to_vec(), RequestBody::Empty);
        read_back(&Message { head, body, chunked: false, is_head: false, repeatable: true }).unwrap()
    }

    #[test]
    fn fields_of_one_connection_stay_behind() {
        let (request, body) = read(
            "POST /a?b HTTP/1.1\r\nHost: a.test:444\r\nConnection: TE\r\nTe: trailers\r\nX: 1\r\nX: 2\r\n\
             Cookie: s\r\nTransfer-Encoding: chunked\r\n\r\nkept",
        );
        assert_eq!(request.uri(), "https://a.test:444/a?b");
        let fields: Vec<_> = request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(fields, [("te", &b"trailers"[..]), ("x", b"1"), ("x", b"2"), ("cookie", b"s")]);
        assert!(request.headers()["cookie"].is_sensitive());
        assert_eq!(body, "kept");
    }

    #[test]
    fn odd_bytes_come_through() {
        let (request, _) = read("GET /%2f/..;?a=%zz&&[] HTTP/1.1\r\nHost: [::1]\r\nX: \u{e9}\r\n\r\n");
        assert_eq!(request.uri().path_and_query().unwrap(), "/%2f/..;?a=%zz&&[]");
        assert_eq!(request.headers()["x"].as_bytes(), "\u{e9}".as_bytes());
    }
}
