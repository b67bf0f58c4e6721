//! The readers of responses, made public for the fuzz targets; compiled for nothing else.

use bytes::BytesMut;
use http::HeaderMap;

use super::chunked::{self, Chunks, Malformed, Piece};
use super::head::{self, Framing};

/// What was read from some bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Everything that was parsed of the head; empty if the head was never complete.
    pub head: String,
    pub content: Vec<u8>,
    pub trailers: HeaderMap,
    pub end: End,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub enum End {
    /// More bytes are needed.
    #[default]
    Hungry,
    /// This many bytes are left over.
    Whole(usize),
    Malformed,
}

/// Reads a response head, and its body if it is chunked, in pieces.
pub fn read_response(pieces: &[&[u8]], is_head: bool) -> Read {
    let mut read = Read::default();
    let (mut buffer, mut chunks) = (BytesMut::new(), None);
    for (index, piece) in pieces.iter().enumerate() {
        buffer.extend_from_slice(piece);
        let unread: usize = pieces[index + 1..].iter().map(|piece| piece.len()).sum();
        if read.head.is_empty() {
            match head::take(&mut buffer, is_head) {
                Ok(Some(head)) => {
                    read.head = format!("{head:?}");
                    if head.framing != Framing::Chunked {
                        read.end = End::Whole(buffer.len() + unread);
                        return read;
                    }
                    chunks = Some(Chunks::new());
                }
                Ok(None) => continue,
                Err(_) => {
                    read.end = End::Malformed;
                    return read;
                }
            }
        }
        if let Some(chunks) = &mut chunks
            && read_chunks(chunks, &mut buffer, &mut read, unread)
        {
            return read;
        }
    }
    read
}

/// Reads only chunks, in pieces.
pub fn read_body(pieces: &[&[u8]]) -> Read {
    let mut read = Read::default();
    let (mut buffer, mut chunks) = (BytesMut::new(), Chunks::new());
    for piece in pieces {
        buffer.extend_from_slice(piece);
        if read_chunks(&mut chunks, &mut buffer, &mut read, 0) {
            break;
        }
    }
    read
}

/// Writes the content in chunks, one for each piece that is not empty, and the last chunk.
pub fn write_body(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut wire = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        chunked::write(&mut wire, piece);
    }
    wire.extend_from_slice(chunked::END);
    wire
}

/// Reads what there is; returns true at the end.
fn read_chunks(chunks: &mut Chunks, buffer: &mut BytesMut, read: &mut Read, unread: usize) -> bool {
    loop {
        match chunks.next(buffer) {
            Ok(Piece::Content(content)) => read.content.extend_from_slice(&content),
            Ok(Piece::Trailers(trailers)) => read.trailers = trailers,
            Ok(Piece::Hungry) => return false,
            Ok(Piece::End) => {
                read.end = End::Whole(buffer.len() + unread);
                return true;
            }
            Err(Malformed) => {
                read.end = End::Malformed;
                return true;
            }
        }
    }
}
