//! Checks a request before it is forwarded: refuses what curtsy cannot pass on, answers the last hop of TRACE and
//! OPTIONS requests, and bounds the memory of large heads while their requests wait, for each connection and in total.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue, MAX_FORWARDS, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, Method, Response, Version};

use super::client_request::ClientRequest;
use crate::proxy::Shared;
use crate::proxy::accept::client::Client;
use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::{BadRequest, Failure, Refusal};

/// No registered method is longer than 17 characters; a longer one is an attempt at something else.
const LONGEST_METHOD: usize = 32;

/// Refuses a request that cannot be forwarded. Returns the answer to one that has reached its last hop.
pub(super) fn check(request: &ClientRequest, parts: &mut Parts) -> Result<Option<Response<Body>>, Failure> {
    if parts.method.as_str().len() > LONGEST_METHOD {
        return Err(BadRequest::Method.into());
    }
    // Most requests have none of these fields, and asking for each by name costs much more.
    let is_checked =
        |name: &HeaderName| matches!(name.as_str(), "expect" | "content-length" | "transfer-encoding" | "via");
    if parts.headers.keys().any(is_checked) {
        check_expectation(&parts.headers, parts.version)?;
        check_framing(&mut parts.headers)?;
        if request.shared().identity.has_signed(&parts.headers) {
            return Err(Refusal::Loop.into());
        }
    }
    // Other methods keep the field unchanged.
    match parts.method {
        Method::TRACE | Method::OPTIONS => Ok(count_hop(parts)?),
        _ => Ok(None),
    }
}

/// Refuses every expectation but `100-continue`, the only one there is (RFC 9110, section 10.1.1). HTTP/1.0 has none.
fn check_expectation(headers: &HeaderMap, version: Version) -> Result<(), BadRequest> {
    match headers.get(EXPECT) {
        Some(value) if version == Version::HTTP_11 && !value.as_bytes().eq_ignore_ascii_case(b"100-continue") => {
            Err(BadRequest::Expectation)
        }
        _ => Ok(()),
    }
}

/// Refuses every transfer coding but `chunked`, which hyper decodes: any other would reach the origin still applied,
/// but not announced.
fn check_framing(headers: &mut HeaderMap) -> Result<(), BadRequest> {
    check_lengths(headers)?;
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(BadRequest::TransferCoding),
    }
}

/// Makes one length of several equal ones (RFC 9112, section 6.3). Refuses lengths that differ or are not plain
/// numbers.
fn check_lengths(headers: &mut HeaderMap) -> Result<(), BadRequest> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next().cloned() else { return Ok(()) };
    let mut others = lengths.peekable();
    let is_repeated = others.peek().is_some();
    if !is_length(first.as_bytes()) || others.any(|other| other != first) {
        return Err(BadRequest::ContentLength);
    }
    if is_repeated {
        headers.insert(CONTENT_LENGTH, first);
    }
    Ok(())
}

/// Digits only, and no leading zero, which some servers take for octal. This is stricter than RFC 9110, section 8.6.
fn is_length(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(u8::is_ascii_digit) && (value.len() == 1 || value[0] != b'0')
}

/// Answers a TRACE or OPTIONS that has reached its last hop, and counts the others down (RFC 9110, section 7.6.2).
fn count_hop(parts: &mut Parts) -> Result<Option<Response<Body>>, BadRequest> {
    let Some(value) = parts.headers.get(MAX_FORWARDS) else { return Ok(None) };
    let text = value.to_str().map_err(|_| BadRequest::MaxForwards)?;
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadRequest::MaxForwards);
    }
    match text.parse::<u64>().map_err(|_| BadRequest::MaxForwards)? {
        0 if parts.method == Method::TRACE => Ok(Some(echo(parts))),
        0 => Ok(Some(options())),
        hops => {
            parts.headers.insert(MAX_FORWARDS, HeaderValue::from(hops - 1));
            Ok(None)
        }
    }
}

/// Echoes the request as it arrived, without what must not be shown to a script (RFC 9110, section 9.3.8).
fn echo(parts: &Parts) -> Response<Body> {
    const SECRET: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];
    let mut text = format!("{} {} {:?}\r\n", parts.method, parts.uri, parts.version).into_bytes();
    for (name, value) in parts.headers.iter().filter(|(name, _)| !SECRET.contains(name)) {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    let mut response = Response::new(Body::from(Bytes::from(text)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("message/http"));
    response
}

fn options() -> Response<Body> {
    let mut response = Response::new(Body::from(Bytes::new()));
    let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, PATCH, OPTIONS, TRACE, CONNECT");
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

/// A head is large above this: a waiting request takes 7 KiB besides its head and should take less than 20 KiB in
/// total.
pub(super) const USUAL_HEAD: usize = 8 * 1024;
/// The bound for one connection: eight of the largest heads that HTTP/1.1 may have, or sixteen of HTTP/2.
const MOST_OF_A_CONNECTION: usize = 512 * 1024;
/// The bound for all connections: 3 KiB for each of the 20 000 requests that may wait by default.
const MOST: usize = 64 * 1024 * 1024;
/// When a client may retry: by default one request a second leaves the queue of each host.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// A large head that waits, counted while this value lives. An HTTP/2 client can name a field of 4 KiB with one byte,
/// as often as it likes (RFC 7541, section 2.3.2), so 250 KiB on the wire would take 130 MiB here. Ordinary heads are
/// not counted: the bounds of the queue cover them.
#[derive(Debug)]
pub(super) struct LargeHead {
    shared: Arc<Shared>,
    client: Arc<Client>,
    size: usize,
}

/// Counts a large head that is about to wait. Refuses it if too many such bytes wait already.
pub(super) fn weigh(shared: &Arc<Shared>, client: &Arc<Client>, size: usize) -> Result<LargeHead, Refusal> {
    let heavy = LargeHead { shared: shared.clone(), client: client.clone(), size };
    let of_connection = add(&client.heavy, size);
    let of_all = add(&shared.heavy, size);
    if of_connection > MOST_OF_A_CONNECTION || of_all > MOST {
        return Err(Refusal::HeadsFull { retry_after: RETRY_AFTER });
    }
    Ok(heavy)
}

fn add(bytes: &AtomicUsize, size: usize) -> usize {
    bytes.fetch_add(size, Relaxed) + size
}

impl Drop for LargeHead {
    fn drop(&mut self) {
        self.client.heavy.fetch_sub(self.size, Relaxed);
        self.shared.heavy.fetch_sub(self.size, Relaxed);
    }
}
