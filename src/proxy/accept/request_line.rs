//! Corrects the status of a request that hyper refuses by itself, if the request line is at fault.
//!
//! hyper answers 431 to every head that is too large and 400 to every version that it does not know, before there is a
//! request to look at. A client should get 414 for a URL that is too long (RFC 9110, section 15.5.15) and 505 for
//! another major version (section 15.6.6). So this stream measures the first line after each answer, and replaces the
//! status line of such a refusal by one of the same length. The bytes that are read do not change.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::timeout_stream::TimeoutStream;

use super::client_stream::ClientStream;

const TOO_LARGE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\n";
const TOO_LONG: &[u8; TOO_LARGE.len()] = b"HTTP/1.1 414 URI Too Long (limits.head_size)\r\n";
const BAD_REQUEST: &[u8] = b"HTTP/1.1 400 Bad Request\r\n";
const BAD_VERSION: &[u8; BAD_REQUEST.len()] = b"HTTP/1.1 505 Bad Version\r\n";

/// What hyper reads requests from.
pub(crate) type HttpStream = TokioIo<RequestLine>;

/// A client's connection as hyper sees it.
#[derive(Debug)]
pub(crate) struct RequestLine {
    stream: TimeoutStream<ClientStream>,
    /// The longest head that is accepted.
    most: usize,
    /// Bytes of the first line since the last answer.
    length: usize,
    has_ended: bool,
    foreign_version: bool,
}

impl RequestLine {
    pub(crate) fn new(stream: TimeoutStream<ClientStream>, most: usize) -> Self {
        RequestLine { stream, most, length: 0, has_ended: false, foreign_version: false }
    }

    pub(crate) fn into_inner(self) -> TimeoutStream<ClientStream> {
        self.stream
    }

    fn read(&mut self, bytes: &[u8]) {
        match memchr::memchr(b'\n', bytes) {
            Some(end) => {
                self.length += end;
                self.has_ended = true;
                self.foreign_version = has_foreign_version(&bytes[..end]);
            }
            None => self.length += bytes.len(),
        }
    }

    /// Returns the same answer with the right status, if hyper gave another.
    fn correct(&mut self, answer: &[u8]) -> Option<Vec<u8>> {
        let (too_long, foreign) = (self.length >= self.most, self.foreign_version);
        (self.length, self.has_ended, self.foreign_version) = (0, false, false);
        let (said, meant) = match (too_long, foreign) {
            (true, _) => (TOO_LARGE, &TOO_LONG[..]),
            (false, true) => (BAD_REQUEST, &BAD_VERSION[..]),
            (false, false) => return None,
        };
        answer.strip_prefix(said).map(|rest| [meant, rest].concat())
    }
}

/// Whether a request line ends in a major version other than 1.
fn has_foreign_version(line: &[u8]) -> bool {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    matches!(line, [.., b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
        if *major != b'1' && major.is_ascii_digit() && minor.is_ascii_digit())
}

impl AsyncRead for RequestLine {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, buf);
        if !this.has_ended {
            this.read(&buf.filled()[before..]);
        }
        outcome
    }
}

impl AsyncWrite for RequestLine {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match this.correct(buf) {
            Some(corrected) => Pin::new(&mut this.stream).poll_write(cx, &corrected),
            None => Pin::new(&mut this.stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        match bufs.first().and_then(|first| this.correct(first)) {
            Some(corrected) => Pin::new(&mut this.stream).poll_write(cx, &corrected),
            None => Pin::new(&mut this.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_major_version_is_foreign() {
        for line in ["GET / HTTP/3.0\r", "GET http://a.test/ HTTP/2.0", "G HTTP/0.9\r"] {
            assert!(has_foreign_version(line.as_bytes()), "{line}");
        }
        for line in ["GET / HTTP/1.1\r", "GET / HTTP/1.2\r", "GET /HTTP/3.0\r", "GET / http/3.0", "", "GET / HTTP/30"] {
            assert!(!has_foreign_version(line.as_bytes()), "{line}");
        }
    }
}
