//! Recognises what a client sends first in a tunnel: TLS, a request in plain HTTP, HTTP/2, or something else.
//!
//! Decides by bytes alone. It is as lenient as servers are (RFC 9112, sections 2.2 and 3: empty lines before a request,
//! any blank between its words), so that a client cannot hide its requests by spelling them oddly. Such requests are
//! then answered as bad requests.

/// The first byte of a TLS connection.
pub(crate) const TLS_HANDSHAKE: u8 = 0x16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstBytes {
    Tls,
    /// HTTP/1 in the clear.
    Request,
    /// HTTP/2 in the clear, which begins with its preface ("prior knowledge").
    Http2,
    Other,
    /// More bytes are needed to tell.
    More,
}

/// RFC 9113, section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// No registered method is longer than 17 characters.
const LONGEST_METHOD: usize = 32;
/// Methods that curtsy waits for if they come in pieces. Other protocols begin with words, too, and their clients may
/// wait for an answer to a piece of a line.
const METHODS: [&[u8]; 20] = [
    b"GET",
    b"HEAD",
    b"POST",
    b"PUT",
    b"DELETE",
    b"CONNECT",
    b"OPTIONS",
    b"TRACE",
    b"PATCH",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
    b"QUERY",
    b"PURGE",
];
/// A longer first line that has not ended is taken for a request. RFC 9112, section 3, recommends to support 8000
/// octets.
const LONGEST_LINE: usize = 8 * 1024;

pub(crate) fn read(bytes: &[u8]) -> FirstBytes {
    if bytes.first() == Some(&TLS_HANDSHAKE) {
        return FirstBytes::Tls;
    }
    if bytes.starts_with(PREFACE) {
        return FirstBytes::Http2;
    }
    if PREFACE.starts_with(bytes) {
        return FirstBytes::More;
    }
    let Some(start) = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')) else { return FirstBytes::More };
    let rest = &bytes[start..];
    let end = rest.iter().position(|byte| *byte == b'\n');
    read_line(&rest[..end.unwrap_or(rest.len())], end.is_some())
}

fn read_line(line: &[u8], is_whole: bool) -> FirstBytes {
    let mut words = line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty());
    let method = words.next().unwrap_or_default();
    if method.is_empty() || method.len() > LONGEST_METHOD || !method.iter().all(|byte| is_token(*byte)) {
        return FirstBytes::Other;
    }
    let target = words.next();
    // Also without a version: that is an HTTP/0.9 request.
    if target.is_some_and(|target| target[0] == b'/') || line.len() > LONGEST_LINE {
        return FirstBytes::Request;
    }
    if !is_whole {
        let may_be = METHODS.iter().any(|known| match known.get(..method.len()) {
            // The word is complete if a blank follows it.
            Some(begun) => {
                begun.eq_ignore_ascii_case(method) && (method.len() == known.len() || line.ends_with(method))
            }
            None => false,
        });
        return if may_be { FirstBytes::More } else { FirstBytes::Other };
    }
    let version = words.next_back().unwrap_or_default();
    let is_http = version.get(..5).is_some_and(|name| name.eq_ignore_ascii_case(b"HTTP/"));
    if is_http { FirstBytes::Request } else { FirstBytes::Other }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0b | 0x0c | b'\r')
}

/// RFC 9110, section 5.6.2.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_recognised_as_soon_as_they_can_be() {
        for text in [
            "GET /",
            "GET / HTTP/1.1\r\n",
            "get /",
            "OPTIONS * HTTP/1.1\r\n",
            "GET http://a.test/ HTTP/1.1\r\n",
            "\r\n\r\nGET /x",
            "GET\t/x",
            "GET \x0b /x",
            "POST a.test HTTP/1.0\n",
            "PRI * HTTP/2.0\r\nHost: a.test\r\n",
        ] {
            assert_eq!(read(text.as_bytes()), FirstBytes::Request, "{text:?}");
        }
        let long = format!("GET http://{}", "a".repeat(LONGEST_LINE));
        assert_eq!(read(long.as_bytes()), FirstBytes::Request);
    }

    #[test]
    fn other_protocols_are_not_requests() {
        for text in [
            "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
            "NICK crawler\r\n",
            "USER a 0 * :a\r\n",
            "PING\r\n",
            "*1\r\n$4\r\nPING\r\n",
            "<?xml version='1.0'?>",
            "\0\0\0\x08",
            "\x13BitTorrent protocol",
            "THISISMUCHLONGERTHANANYMETHODINHTTPIS",
            "ping",
            "hello there",
            "GE T",
        ] {
            assert_eq!(read(text.as_bytes()), FirstBytes::Other, "{text:?}");
        }
        assert_eq!(read(b"\x16\x03\x01"), FirstBytes::Tls);
        assert_eq!(read(PREFACE), FirstBytes::Http2);
    }

    #[test]
    fn a_beginning_is_not_judged_too_soon() {
        for text in ["", "G", "GET", "GET ", "GET http://a.test/ HT", "opti", "PRI * HTTP/2.0\r\n\r\nSM", "\r\n"] {
            assert_eq!(read(text.as_bytes()), FirstBytes::More, "{text:?}");
        }
    }
}
