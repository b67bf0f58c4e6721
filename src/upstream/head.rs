//! Response heads: from bytes to a response and the framing of its body.
//!
//! Strict where two readers could see two messages (RFC 9112, section 6): lengths that disagree, unknown codings and
//! codings in HTTP/1.0 are errors. Lenient where old servers are sloppy and it does no harm: folded lines and spaces
//! before a colon are accepted and written correctly.

use std::mem::MaybeUninit;

use bytes::{Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::{HeaderMap, Response, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use smallvec::SmallVec;

use super::error::UpstreamError;

/// As many fields as hyper accepts from clients.
pub(super) const MOST_FIELDS: usize = 100;
/// As many fields as most responses have.
const USUAL_FIELDS: usize = 24;

/// As many fields as curtsy usually adds: Via, Cache-Status and Curtsy. Growing the map later would cost as much as
/// filling it.
const ADDED_FIELDS: usize = 3;

/// How the end of a body is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    /// Chunked, although the head also has a length: another reader may see another end.
    ChunkedDespiteLength,
    UntilClose,
}

#[derive(Debug)]
pub(super) struct Head {
    pub(super) response: Response<()>,
    pub(super) framing: Framing,
    /// Whether the connection may serve another request.
    pub(super) keep_alive: bool,
}

/// Takes a complete head off the front of `buffer`; `None` if more bytes are needed.
pub(super) fn take(buffer: &mut BytesMut, is_head: bool) -> Result<Option<Head>, UpstreamError> {
    if buffer.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let mut parser = httparse::ParserConfig::default();
    parser.allow_spaces_after_header_name_in_responses(true).allow_obsolete_multiline_headers_in_responses(true);
    let length = match parser.parse_response_with_uninit_headers(&mut parsed, buffer, &mut fields) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(UpstreamError::HeadTooLarge),
        Err(error) => return Err(UpstreamError::Protocol(error.to_string())),
    };
    let version = if parsed.version == Some(0) { Version::HTTP_10 } else { Version::HTTP_11 };
    let code = parsed.code.unwrap_or_default();
    let status = StatusCode::from_u16(code).map_err(|_| UpstreamError::Status(code))?;
    let phrase = parsed.reason.filter(|phrase| Some(*phrase) != status.canonical_reason()).map(str::to_owned);
    let places: SmallVec<[FieldSpan; USUAL_FIELDS]> =
        parsed.headers.iter().map(|field| FieldSpan::of(field, buffer)).collect();
    let bytes = buffer.split_to(length).freeze();
    let mut headers = HeaderMap::with_capacity(places.len() + ADDED_FIELDS);
    for place in places {
        let (name, value) = place.read(&bytes)?;
        headers.append(name, value);
    }
    let (framing, keep_alive) = frame(&mut headers, status, version, is_head)?;
    let mut response = Response::new(());
    *response.status_mut() = status;
    *response.version_mut() = version;
    *response.headers_mut() = headers;
    if let Some(phrase) = phrase.and_then(|phrase| ReasonPhrase::try_from(phrase).ok()) {
        response.extensions_mut().insert(phrase);
    }
    Ok(Some(Head { response, framing, keep_alive }))
}

/// The position of a field in the buffer. The parser's slices borrow the buffer and must end before it can be split.
#[derive(Clone, Copy)]
struct FieldSpan {
    name: (u32, u32),
    value: (u32, u32),
}

impl FieldSpan {
    fn of(field: &httparse::Header<'_>, buffer: &[u8]) -> Self {
        let range = |part: &[u8]| {
            let start = part.as_ptr() as usize - buffer.as_ptr() as usize;
            (start as u32, (start + part.len()) as u32)
        };
        // An empty value has no useful position.
        let value = if field.value.is_empty() { (0, 0) } else { range(field.value) };
        FieldSpan { name: range(field.name.as_bytes()), value }
    }

    fn read(self, bytes: &Bytes) -> Result<(HeaderName, HeaderValue), UpstreamError> {
        let bad = || UpstreamError::Protocol("invalid field".to_owned());
        let name = HeaderName::from_bytes(&bytes[self.name.0 as usize..self.name.1 as usize]).map_err(|_| bad())?;
        let value = || bytes.slice(self.value.0 as usize..self.value.1 as usize);
        // A value with a line break is no valid value until it is unfolded.
        let read = HeaderValue::from_maybe_shared(value());
        let value = read.or_else(|_| HeaderValue::from_maybe_shared(unfolded(&value()))).map_err(|_| bad())?;
        Ok((name, value))
    }
}

/// Replaces a line break and the blanks around it by one space (RFC 9112, section 5.2).
fn unfolded(value: &[u8]) -> Bytes {
    let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(&b' ').into()
}

/// Determines the framing (RFC 9112, section 6.3), and whether the connection persists (section 9.3).
fn frame(
    headers: &mut HeaderMap,
    status: StatusCode,
    version: Version,
    is_head: bool,
) -> Result<(Framing, bool), UpstreamError> {
    let chunked = check_coding(headers, version)?;
    let length = check_length(headers)?;
    let mut keep_alive = persists(headers, version);
    if chunked && length.is_some() {
        // This is how responses are smuggled: trust the chunks, and nothing that comes after them.
        headers.remove(CONTENT_LENGTH);
        keep_alive = false;
    }
    if status == StatusCode::NO_CONTENT && (chunked || length.is_some_and(|length| length > 0)) {
        // A 204 must not announce a body (RFC 9110, section 8.6), and the origin may well send what it announced.
        keep_alive = false;
    }
    let framing = match length {
        _ if is_head || status.is_informational() => Framing::Length(0),
        _ if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED => Framing::Length(0),
        Some(_) if chunked => Framing::ChunkedDespiteLength,
        None if chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => {
            keep_alive = false;
            Framing::UntilClose
        }
    };
    Ok((framing, keep_alive))
}

fn check_coding(headers: &HeaderMap, version: Version) -> Result<bool, UpstreamError> {
    // Most responses have few fields, and comparing all names costs less than a hash.
    if !headers.keys().any(|name| name == TRANSFER_ENCODING) {
        return Ok(false);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let Some(coding) = codings.next() else { return Ok(false) };
    if version == Version::HTTP_10 {
        return Err(UpstreamError::Protocol("Transfer-Encoding in HTTP/1.0".to_owned()));
    }
    if codings.next().is_some() || !coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") {
        return Err(UpstreamError::TransferCoding);
    }
    Ok(true)
}

/// Returns the length, if there is one; merges equal repetitions into one.
pub(super) fn check_length(headers: &mut HeaderMap) -> Result<Option<u64>, UpstreamError> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(None) };
    let bad = || UpstreamError::Protocol("invalid Content-Length".to_owned());
    let digits = first.as_bytes();
    if digits.is_empty() || digits.len() > 19 || !digits.iter().all(u8::is_ascii_digit) {
        return Err(bad());
    }
    let length = digits.iter().fold(0, |length, digit| length * 10 + u64::from(digit - b'0'));
    let mut repeated = false;
    for other in lengths {
        if other != first {
            return Err(bad());
        }
        repeated = true;
    }
    if repeated || (digits.len() > 1 && digits[0] == b'0') {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(Some(length))
}

fn persists(headers: &HeaderMap, version: Version) -> bool {
    let mut keep_alive = version == Version::HTTP_11;
    if !headers.keys().any(|name| name == CONNECTION) {
        return keep_alive;
    }
    for value in headers.get_all(CONNECTION) {
        for option in value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
    keep_alive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Head, UpstreamError> {
        let mut buffer = BytesMut::from(text.as_bytes());
        take(&mut buffer, false).map(|head| head.expect("a whole head"))
    }

    fn framing(fields: &str) -> (Framing, bool) {
        let head = read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).unwrap();
        (head.framing, head.keep_alive)
    }

    #[test]
    fn the_end_of_a_body_is_known_one_way() {
        assert_eq!(framing("Content-Length: 5\r\n"), (Framing::Length(5), true));
        assert_eq!(framing("Content-Length: 5\r\nContent-Length: 5\r\n"), (Framing::Length(5), true));
        assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), (Framing::Chunked, true));
        assert_eq!(
            framing("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"),
            (Framing::ChunkedDespiteLength, false)
        );
        assert_eq!(framing(""), (Framing::UntilClose, false));
        assert_eq!(framing("Content-Length: 5\r\nConnection: x, Close\r\n"), (Framing::Length(5), false));
    }

    #[test]
    fn what_could_be_framed_in_two_ways_is_refused() {
        for fields in
            ["Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: +5\r\n", "Content-Length: 5, 5\r\n"]
        {
            assert!(read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).is_err(), "{fields}");
        }
        for fields in ["Content-Length: 99999999999999999999\r\n", "Content-Length: \r\n", "Content-Length: 0x5\r\n"] {
            assert!(read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\n")).is_err(), "{fields}");
        }
        for coding in ["gzip", "gzip, chunked", "chunked, identity", "chunked\r\nTransfer-Encoding: chunked"] {
            let error = read(&format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n")).unwrap_err();
            assert!(matches!(error, UpstreamError::TransferCoding), "{coding}");
        }
        assert!(read("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }

    #[test]
    fn some_responses_have_no_body_whatever_they_say() {
        for status in ["204", "304", "101"] {
            let head = read(&format!("HTTP/1.1 {status} x\r\nContent-Length: 5\r\n\r\n")).unwrap();
            assert_eq!(head.framing, Framing::Length(0), "{status}");
        }
        let mut buffer = BytesMut::from(&b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nrest"[..]);
        assert_eq!(take(&mut buffer, true).unwrap().unwrap().framing, Framing::Length(0));
        assert_eq!(&buffer[..], b"rest");
    }

    #[test]
    fn a_connection_is_not_used_again_after_a_204_that_announced_a_body() {
        for (field, kept) in [("X: 1", true), ("Content-Length: 0", true), ("Content-Length: 5", false)] {
            assert_eq!(read(&format!("HTTP/1.1 204 x\r\n{field}\r\n\r\n")).unwrap().keep_alive, kept, "{field}");
        }
        assert!(!read("HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap().keep_alive);
    }

    #[test]
    fn old_habits_are_read_and_written_straight() {
        let head = read("HTTP/1.0 200\r\nServer : old\r\nX-Long: a\r\n   b\r\n\tc\r\nEmpty:\r\n\r\n").unwrap();
        assert_eq!(head.response.headers()["server"], "old");
        assert_eq!(head.response.headers()["x-long"], "a b c");
        assert_eq!(head.response.headers()["empty"], "");
        assert!(!head.keep_alive);
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for text in ["SSH-2.0-x\r\n\r\n", "HTTP/2 200 OK\r\n\r\n", "HTTP/1.1 99 x\r\n\r\n", "HTTP/1.1 099 x\r\n\r\n"] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read("HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n").is_err());
    }
}
