//! A request as it is sent over the wire.

use std::future::poll_fn;
use std::pin::Pin;

use http::Method;
use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, PROXY_AUTHORIZATION, VIA};
use http::request::Parts;
use http::uri::Scheme;
use http_body::Body;

use super::body::RequestBody;
use super::error::UpstreamError;
use super::parent;
use crate::config;

/// A request. Its head is written once, so that sending it again costs nothing.
#[derive(Debug)]
pub struct Message {
    pub(super) head: Vec<u8>,
    pub(super) body: RequestBody,
    pub(super) chunked: bool,
    /// A response to HEAD has no body, whatever it says about one.
    pub(super) is_head: bool,
    /// May be sent twice: no body, and an idempotent method (RFC 9110, section 9.2.2).
    pub(super) repeatable: bool,
}

impl Message {
    /// Writes the head. A parent proxy gets the whole URI and its credentials, an origin only the path (RFC 9112,
    /// section 3.2). The parent reads only `http://` requests: others go to the origin, through a tunnel. Boxed,
    /// because it is passed through many functions. `via` is written after the fields of the request.
    pub fn new(parts: &Parts, via: Option<&HeaderValue>, body: RequestBody, config: &config::Upstream) -> Box<Self> {
        let parent = config.proxy.as_ref().filter(|_| parts.uri.scheme() == Some(&Scheme::HTTP));
        let is_empty = matches!(body, RequestBody::Empty);
        let chunked = !is_empty && body.size_hint().exact().is_none();
        let mut head = Vec::with_capacity(HEAD_SIZE);
        head.extend_from_slice(parts.method.as_str().as_bytes());
        head.push(b' ');
        if parent.is_some() {
            write_authority(&mut head, &parts.uri);
        }
        write_path(&mut head, &parts.uri);
        head.extend_from_slice(b" HTTP/1.1\r\n");
        for (name, value) in &parts.headers {
            write_field(&mut head, name, value.as_bytes());
        }
        if let Some(via) = via {
            write_field(&mut head, &VIA, via.as_bytes());
        }
        if let Some(value) = parent.and_then(parent::authorization) {
            write_field(&mut head, &PROXY_AUTHORIZATION, value.as_bytes());
        }
        if chunked {
            head.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        } else if is_empty && expects_body(&parts.method) && !parts.headers.contains_key(CONTENT_LENGTH) {
            head.extend_from_slice(b"Content-Length: 0\r\n");
        }
        head.extend_from_slice(b"\r\n");
        Box::new(Message {
            head,
            chunked,
            is_head: parts.method == Method::HEAD,
            repeatable: is_empty && parts.method.is_idempotent(),
            body,
        })
    }
}

impl Message {
    /// Reads the body into memory if its length is known and at most `most`. Then the whole message is in written form,
    /// and may be sent twice. For idempotent methods.
    pub async fn keep_body(&mut self, most: u64) -> Result<(), UpstreamError> {
        let is_streaming = matches!(self.body, RequestBody::Streaming(_));
        if !is_streaming || self.chunked || self.body.size_hint().exact().is_none_or(|length| length > most) {
            return Ok(());
        }
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
            if let Ok(piece) = frame.map_err(UpstreamError::RequestBody)?.into_data() {
                self.head.extend_from_slice(&piece);
            }
        }
        self.body = RequestBody::Empty;
        self.repeatable = true;
        Ok(())
    }

    pub fn head_size(&self) -> usize {
        self.head.len()
    }

    pub fn body(&self) -> &RequestBody {
        &self.body
    }

    /// Whether the head is all there is to send.
    pub fn has_no_body(&self) -> bool {
        matches!(self.body, RequestBody::Empty)
    }

    /// Returns method and target, as they are sent.
    pub fn line(&self) -> (&str, &str) {
        let line = self.head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let mut words = str::from_utf8(line).unwrap_or_default().split(' ');
        (words.next().unwrap_or_default(), words.next().unwrap_or_default())
    }

    /// Returns the client's User-Agent; empty if it sends none.
    pub fn user_agent(&self) -> &str {
        const NAME: &[u8] = b"user-agent: ";
        let fields = self.head.split(|byte| *byte == b'\n').skip(1).take_while(|line| *line != b"\r");
        let mut values = fields.filter_map(|line| {
            let (name, value) = line.split_at_checked(NAME.len())?;
            name.eq_ignore_ascii_case(NAME).then_some(value)
        });
        values.next().and_then(|value| str::from_utf8(value).ok()).unwrap_or_default().trim_end()
    }

    /// Returns a copy, if the message may be sent twice.
    pub fn again(&self) -> Option<Box<Message>> {
        self.repeatable.then(|| Box::new(Message { head: self.head.clone(), body: RequestBody::Empty, ..*self }))
    }
}

/// Most request heads fit into this.
const HEAD_SIZE: usize = 512;

/// Servers may refuse these methods without a length (RFC 9110, section 8.6).
fn expects_body(method: &Method) -> bool {
    matches!(*method, Method::POST | Method::PUT | Method::PATCH)
}

fn write_authority(head: &mut Vec<u8>, uri: &http::Uri) {
    if let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) {
        head.extend_from_slice(scheme.as_bytes());
        head.extend_from_slice(b"://");
        head.extend_from_slice(authority.as_str().as_bytes());
    }
}

fn write_path(head: &mut Vec<u8>, uri: &http::Uri) {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    if path.starts_with('?') {
        head.push(b'/');
    }
    head.extend_from_slice(path.as_bytes());
}

/// Writes the name in `Title-Case`, as most clients do: some old servers understand nothing else.
pub(super) fn write_field(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    let start = out.len();
    out.extend_from_slice(name.as_str().as_bytes());
    let mut upper = true;
    for byte in &mut out[start..] {
        if upper {
            byte.make_ascii_uppercase();
        }
        upper = *byte == b'-';
    }
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn written(request: http::request::Builder) -> String {
        written_for(request, &config::Config::default().upstream)
    }

    fn written_for(request: http::request::Builder, config: &config::Upstream) -> String {
        let (parts, body) = request.body(RequestBody::Empty).unwrap().into_parts();
        String::from_utf8(Message::new(&parts, None, body, config).head).unwrap()
    }

    #[test]
    fn a_head_is_written_as_clients_write_it() {
        let request = Request::get("/a?b").header("host", "a.test").header("x-y-z", "1").header("etag", "\"x\"");
        assert_eq!(written(request), "GET /a?b HTTP/1.1\r\nHost: a.test\r\nX-Y-Z: 1\r\nEtag: \"x\"\r\n\r\n");
    }

    #[test]
    fn only_a_parent_proxy_gets_the_whole_target() {
        let request = || Request::get("http://a.test:81/a?b");
        assert_eq!(written(request()), "GET /a?b HTTP/1.1\r\n\r\n");
        let mut config = config::Config::default().upstream;
        let credentials = Some(("u".into(), "p".into()));
        config.proxy = Some(config::ParentProxy { host: "p.test".into(), port: 1, credentials });
        let expected = "GET http://a.test:81/a?b HTTP/1.1\r\nProxy-Authorization: Basic dTpw\r\n\r\n";
        assert_eq!(written_for(request(), &config), expected);
        assert_eq!(written_for(Request::get("https://a.test/a"), &config), "GET /a HTTP/1.1\r\n\r\n");
    }

    #[test]
    fn an_empty_path_is_a_slash() {
        assert!(written(Request::get("http://a.test?b")).starts_with("GET /?b HTTP"));
    }

    #[test]
    fn an_empty_post_says_so_once() {
        assert_eq!(written(Request::post("/")), "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
        let said = Request::post("/").header("content-length", "0");
        assert_eq!(written(said), "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n");
    }
}
