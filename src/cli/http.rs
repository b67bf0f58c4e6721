//! A small blocking HTTP/1 client: writes one request, reads the head of the response, then its body.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::buf::Reader;
use bytes::{Buf, BytesMut};

use crate::upstream::{Chunks, Piece};

const PIECE: usize = 16 << 10;
/// The longest head in bytes, and the most fields in it; more than any server sends.
const LONGEST_HEAD: usize = 64 << 10;
const MOST_FIELDS: usize = 128;

/// A response of which the head was read.
#[derive(Debug)]
pub(super) struct HttpResponse<R> {
    pub(super) status: u16,
    pub(super) chunked: bool,
    /// The first bytes of the body.
    buffer: BytesMut,
    from: R,
}

pub(super) type BodyReader<R> = io::Chain<Reader<BytesMut>, R>;

/// Writes the request, and bounds every wait of the connection.
pub(super) fn begin(mut stream: &TcpStream, patience: Duration, request: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(request.as_bytes())
}

impl<R: Read> HttpResponse<R> {
    /// Reads the head. Fails with [`io::ErrorKind::InvalidData`] if it is not HTTP, or ends too early.
    pub(super) fn read(mut from: R) -> io::Result<Self> {
        let mut buffer = BytesMut::new();
        loop {
            if let Some((length, status, chunked)) = head(&buffer)? {
                buffer.advance(length);
                return Ok(HttpResponse { status, chunked, buffer, from });
            }
            if buffer.len() > LONGEST_HEAD {
                return Err(bad());
            }
            read_more(&mut from, &mut buffer)?;
        }
    }

    /// Reads until the connection ends, at most this many bytes. Returns what was read, also if that failed in the end.
    /// The response must not be chunked: no response to an HTTP/1.0 request is.
    pub(super) fn text(self, longest: u64) -> (String, io::Result<usize>) {
        let mut body = Vec::new();
        let read = self.reader().take(longest).read_to_end(&mut body);
        (String::from_utf8_lossy(&body).into_owned(), read)
    }

    /// Copies a chunked body. Fails with [`io::ErrorKind::InvalidData`] if it is not complete.
    pub(super) fn copy_chunks(mut self, to: &mut impl Write) -> io::Result<()> {
        let mut chunks = Chunks::new();
        loop {
            match chunks.next(&mut self.buffer).map_err(|_| bad())? {
                Piece::Content(content) => to.write_all(&content)?,
                Piece::Trailers(_) | Piece::End => return to.flush(),
                Piece::Hungry => read_more(&mut self.from, &mut self.buffer)?,
            }
        }
    }

    pub(super) fn reader(self) -> BodyReader<R> {
        self.buffer.reader().chain(self.from)
    }
}

/// Returns the length of the head, the status, and whether the body is chunked; `None` if the head is not complete.
fn head(bytes: &[u8]) -> io::Result<Option<(usize, u16, bool)>> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = response.parse(bytes).map_err(|_| bad())? else { return Ok(None) };
    let chunked = response.headers.iter().any(|field| {
        field.name.eq_ignore_ascii_case("transfer-encoding") && field.value.eq_ignore_ascii_case(b"chunked")
    });
    Ok(Some((length, response.code.ok_or_else(bad)?, chunked)))
}

fn read_more(from: &mut impl Read, buffer: &mut BytesMut) -> io::Result<()> {
    let mut piece = [0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Err(bad()),
            Ok(count) => {
                buffer.extend_from_slice(&piece[..count]);
                return Ok(());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP, or was cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unchunked(body: &str) -> io::Result<String> {
        let all = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        let response = HttpResponse::read(all.as_bytes()).unwrap();
        assert_eq!((response.status, response.chunked), (200, true));
        let mut content = Vec::new();
        response.copy_chunks(&mut content)?;
        Ok(String::from_utf8(content).unwrap())
    }

    #[test]
    fn chunks_are_put_together_and_a_missing_end_is_noticed() {
        assert_eq!(unchunked("5\r\nhello\r\nA\r\n, world!\r\n\r\n0\r\n\r\n").unwrap(), "hello, world!\r\n");
        for cut in ["", "5\r\nhel", "5\r\nhello\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "x\r\n"] {
            unchunked(cut).unwrap_err();
        }
    }

    #[test]
    fn a_body_ends_with_the_connection() {
        let response = HttpResponse::read(&b"HTTP/1.0 404 Not Found\r\nContent-Length: 5\r\n\r\nhello"[..]).unwrap();
        assert_eq!((response.status, response.chunked), (404, false));
        assert_eq!(response.text(4).0, "hell");
        for bad in ["", "SSH-2.0", "HTTP/1.0 200 OK\r\nA: b\r\n", "HTTP/1.1 xx\r\n\r\n"] {
            assert_eq!(HttpResponse::read(bad.as_bytes()).unwrap_err().kind(), io::ErrorKind::InvalidData, "{bad}");
        }
    }
}
