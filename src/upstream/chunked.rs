//! The chunked transfer coding, read and written (RFC 9112, section 7.1).
//!
//! Reading is strict: every line ends in CRLF, a size is one to fifteen hex digits, and extensions are skipped up to a
//! limit. With a lax reader here, one response could be read as two.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::head::MOST_FIELDS;

/// The longest size line, with its extensions.
const LONGEST_LINE: usize = 4096;
/// The longest trailer section, all fields together.
const LONGEST_TRAILERS: usize = 16 * 1024;

/// Written after the last chunk, if there are no trailers.
pub(super) const END: &[u8] = b"0\r\n\r\n";

/// Writes one chunk. It must not be empty: an empty chunk ends the body.
pub(super) fn write(out: &mut Vec<u8>, content: &[u8]) {
    out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
    out.extend_from_slice(content);
    out.extend_from_slice(b"\r\n");
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Chunks {
    state: ChunkState,
}

#[derive(Debug, PartialEq, Eq)]
enum ChunkState {
    Size,
    /// Bytes left of this chunk.
    Content(u64),
    ContentEnd,
    Trailers,
    End,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Content(Bytes),
    Trailers(HeaderMap),
    /// The body is complete.
    End,
    /// More bytes are needed.
    Hungry,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl Chunks {
    pub(crate) fn new() -> Self {
        Chunks { state: ChunkState::Size }
    }

    /// Whether the last piece has been taken.
    pub(super) fn is_over(&self) -> bool {
        self.state == ChunkState::End
    }

    /// Takes the next piece off the front of `buffer`.
    pub(crate) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            match self.state {
                ChunkState::Size => {
                    let Some(line) = take_line(buffer, LONGEST_LINE)? else { return Ok(Piece::Hungry) };
                    self.state = match read_size(&line)? {
                        0 => ChunkState::Trailers,
                        size => ChunkState::Content(size),
                    };
                }
                ChunkState::Content(0) => self.state = ChunkState::ContentEnd,
                ChunkState::Content(left) => {
                    if buffer.is_empty() {
                        return Ok(Piece::Hungry);
                    }
                    let now = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                    self.state = ChunkState::Content(left - now as u64);
                    return Ok(Piece::Content(buffer.split_to(now).freeze()));
                }
                ChunkState::ContentEnd => {
                    if buffer.len() < 2 {
                        return Ok(Piece::Hungry);
                    }
                    if !buffer.starts_with(b"\r\n") {
                        return Err(Malformed);
                    }
                    buffer.advance(2);
                    self.state = ChunkState::Size;
                }
                ChunkState::Trailers => {
                    let Some(trailers) = take_trailers(buffer)? else { return Ok(Piece::Hungry) };
                    self.state = ChunkState::End;
                    return Ok(if trailers.is_empty() { Piece::End } else { Piece::Trailers(trailers) });
                }
                ChunkState::End => return Ok(Piece::End),
            }
        }
    }
}

/// Takes a line without its CRLF; `None` if the line is not complete.
fn take_line(buffer: &mut BytesMut, longest: usize) -> Result<Option<Bytes>, Malformed> {
    let Some(end) = buffer.iter().take(longest).position(|byte| *byte == b'\n') else {
        return if buffer.len() >= longest { Err(Malformed) } else { Ok(None) };
    };
    let line = buffer.split_to(end + 1).freeze();
    let line = line.strip_suffix(b"\r\n").ok_or(Malformed).map(|line| line.len()).map(|length| line.slice(..length))?;
    if line.contains(&b'\r') { Err(Malformed) } else { Ok(Some(line)) }
}

/// Parses a chunk size. Fifteen digits keep it below 2^60, so that nothing can overflow.
fn read_size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let rest = line[digits..].trim_ascii_start();
    if digits == 0 || digits > 15 || !(rest.is_empty() || rest.starts_with(b";")) {
        return Err(Malformed);
    }
    let text = std::str::from_utf8(&line[..digits]).map_err(|_| Malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| Malformed)
}

fn take_trailers(buffer: &mut BytesMut) -> Result<Option<HeaderMap>, Malformed> {
    if buffer.starts_with(b"\r\n") {
        buffer.advance(2);
        return Ok(Some(HeaderMap::new()));
    }
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut trailers = HeaderMap::new();
    let length = match httparse::parse_headers(buffer, &mut fields) {
        Ok(httparse::Status::Complete((length, fields)))
            if length <= LONGEST_TRAILERS && ends_lines_in_crlf(&buffer[..length]) =>
        {
            for field in fields {
                let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|_| Malformed)?;
                trailers.append(name, HeaderValue::from_bytes(field.value).map_err(|_| Malformed)?);
            }
            length
        }
        Ok(httparse::Status::Partial) if buffer.len() < LONGEST_TRAILERS => return Ok(None),
        Ok(_) | Err(_) => return Err(Malformed),
    };
    buffer.advance(length);
    Ok(Some(trailers))
}

fn ends_lines_in_crlf(bytes: &[u8]) -> bool {
    bytes.split_inclusive(|byte| *byte == b'\n').all(|line| line.ends_with(b"\r\n"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds the bytes in steps; returns the content, the trailers, and the bytes left over.
    fn decode(bytes: &[u8], step: usize) -> Result<(Vec<u8>, HeaderMap, Vec<u8>), Malformed> {
        let (mut chunks, mut buffer) = (Chunks::new(), BytesMut::new());
        let (mut content, mut trailers) = (Vec::new(), HeaderMap::new());
        let mut rest = bytes;
        loop {
            match chunks.next(&mut buffer)? {
                Piece::Content(bytes) => content.extend_from_slice(&bytes),
                Piece::Trailers(fields) => trailers = fields,
                Piece::End => {
                    buffer.extend_from_slice(rest);
                    return Ok((content, trailers, buffer.to_vec()));
                }
                Piece::Hungry if rest.is_empty() => return Err(Malformed),
                Piece::Hungry => {
                    let (now, later) = rest.split_at(step.min(rest.len()));
                    buffer.extend_from_slice(now);
                    rest = later;
                }
            }
        }
    }

    #[test]
    fn chunks_become_content_however_they_arrive() {
        let wire = b"5\r\nhello\r\n06;a=\"b\"\r\n world\r\n0\r\nX-Sum: 1\r\n\r\nnext";
        for step in 1..wire.len() {
            let (content, trailers, rest) = decode(wire, step).unwrap();
            assert_eq!(
                (&content[..], trailers["x-sum"].as_bytes(), &rest[..]),
                (&b"hello world"[..], &b"1"[..], &b"next"[..])
            );
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let bad: [&[u8]; 16] = [
            b"\r\n",
            b"x\r\n",
            b"0x5\r\nhello\r\n",
            b"+5\r\nhello\r\n",
            b" 5\r\nhello\r\n",
            b"5\nhello\r\n0\r\n\r\n",
            b"5\r\nhelloX\r\n",
            b"5\r\nhello\n",
            b"FFFFFFFFFFFFFFFFF\r\n",
            b"5 5\r\nhello\r\n",
            b"5;\r\r\nhello\r\n0\r\n\r\n",
            b"0\r\nbad name: x\r\n\r\n",
            b"0\r\n folded: x\r\n\r\n",
            b"0\r\n\n",
            b"0\r\nx: 1\n\r\n",
            b"5\r\nhello\r\n0\r\n",
        ];
        for wire in bad {
            assert!(decode(wire, 1).is_err(), "{:?}", String::from_utf8_lossy(wire));
            assert!(decode(wire, wire.len()).is_err(), "{:?}", String::from_utf8_lossy(wire));
        }
    }

    #[test]
    fn extensions_and_trailers_have_an_end() {
        assert!(decode(&[b"5;".as_slice(), &[b'x'; 5000]].concat(), 100).is_err());
        assert!(decode(&[b"0\r\nx: ".as_slice(), &[b'x'; 20_000]].concat(), 1000).is_err());
        let long = [b"0\r\nx: ".as_slice(), &[b'x'; 20_000], b"\r\n\r\n"].concat();
        assert!(decode(&long, 1000).is_err());
        assert!(decode(&long, long.len()).is_err());
    }

    proptest! {
        #[test]
        fn any_content_survives(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8), step in 1usize..40) {
            let mut wire = Vec::new();
            for piece in &pieces {
                write(&mut wire, piece);
            }
            wire.extend_from_slice(END);
            let (content, _, rest) = decode(&wire, step).unwrap();
            prop_assert_eq!(content, pieces.concat());
            prop_assert!(rest.is_empty());
        }

        #[test]
        fn no_bytes_make_it_panic(wire in prop::collection::vec(any::<u8>(), 0..200), step in 1usize..20) {
            let _ = decode(&wire, step);
        }
    }
}
