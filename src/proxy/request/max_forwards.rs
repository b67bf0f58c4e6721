//! Counts the hops of TRACE and OPTIONS requests (RFC 9110, section 7.6.2).

use bytes::Bytes;
use http::header::{self, HeaderName, HeaderValue, MAX_FORWARDS};
use http::request::Parts;
use http::{Method, Response};

use crate::proxy::answer::body::Body;
use crate::proxy::answer::failure::BadRequest;

/// Answers a request that has reached its last hop, and counts the others down. Other methods keep the field unchanged.
pub(crate) fn answer(parts: &mut Parts) -> Result<Option<Response<Body>>, BadRequest> {
    if !matches!(parts.method, Method::TRACE | Method::OPTIONS) {
        return Ok(None);
    }
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
