//! One stored answer: its head as text, its body, and what decides about its reuse.
//!
//! Head and body of a small answer are one allocation, and the head becomes a header map again when it is served: a
//! header map per stored answer would take twice the memory. The head has the form of HTTP/1.1, which is also how a
//! WARC record has it, so an entry is written to a file as it is and read back with [`Entry::read`].
//!
//! Promises: an entry is complete. Its body has all of its bytes; what broke off never becomes an entry.

use std::net::IpAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, StatusCode};
use memchr::{memchr, memmem};
use smallvec::{SmallVec, smallvec};

use super::disk::LargeBody;
use super::ready::{ReadyHead, ReadyHeads};
use crate::politeness::reuse::Field;
use crate::politeness::reuse::policy::ReusePolicy;
use crate::politeness::reuse::selecting::Selecting;

/// A body in pieces; a small one is one piece.
pub type Pieces = SmallVec<[Bytes; 1]>;

/// What belongs to a stored answer besides its head and body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryTerms {
    pub policy: ReusePolicy,
    pub selecting: Selecting,
    /// The address it came from, if curtsy connected to the origin itself. Each use judges it anew.
    pub address: Option<IpAddr>,
    /// It answers a HEAD request: it has no body, and answers nothing but HEAD.
    pub head_only: bool,
}

/// One stored answer.
#[derive(Debug)]
pub struct Entry {
    pub terms: EntryTerms,
    status: StatusCode,
    /// From `HTTP/1.1` to the empty line, inclusive.
    head: Bytes,
    body: Pieces,
    /// What few entries have. Boxed, because every entry would have room for it.
    extra: OnceLock<Box<Extra>>,
    hits: AtomicU32,
}

#[derive(Debug)]
enum Extra {
    /// The body, if it is so large that it is read from disk in pieces.
    Large(LargeBody),
    /// The head as a map, if it is used often.
    Ready(ReadyHead),
}

impl Entry {
    /// Packs a head and a body into an entry.
    pub fn new(status: StatusCode, headers: &HeaderMap, body: &[u8], terms: EntryTerms) -> Self {
        let mut block = BytesMut::with_capacity(head_length(headers) + body.len());
        write_head(&mut block, status, headers);
        let head_length = block.len();
        block.extend_from_slice(body);
        Entry::packed(status, block.freeze(), head_length, terms)
    }

    /// An entry whose head and body are one block, which begins with what [`write_head`] wrote.
    pub fn packed(status: StatusCode, mut block: Bytes, head_length: usize, terms: EntryTerms) -> Self {
        let head = block.split_to(head_length);
        Entry::in_pieces(status, head, smallvec![block], terms)
    }

    /// An entry with a body in several pieces, and a head that [`write_head`] wrote.
    pub fn in_pieces(status: StatusCode, head: Bytes, body: Pieces, terms: EntryTerms) -> Self {
        Entry { terms, status, head, body, extra: OnceLock::new(), hits: AtomicU32::new(0) }
    }

    /// The same head with a body that is read from disk in pieces.
    #[must_use]
    pub fn with_large_body(self, body: LargeBody) -> Self {
        Entry { body: Pieces::new(), extra: OnceLock::from(Box::new(Extra::Large(body))), ..self }
    }

    /// Reads an entry from the bytes of a file: a head, and the body behind it. `None` if the head is not one that
    /// [`write_head`] writes: a damaged copy is a miss.
    pub fn read(block: Bytes, terms: EntryTerms) -> Option<Self> {
        let head_length = memmem::find(&block, b"\r\n\r\n")? + 4;
        let line = block[..head_length].strip_prefix(b"HTTP/1.1 ")?;
        let status = StatusCode::from_bytes(line.get(..3)?).ok()?;
        let entry = Entry::packed(status, block, head_length, terms);
        let fields = entry.fields().count();
        let lines = memmem::find_iter(&entry.head, b"\r\n").count();
        // The status line and the empty line are no fields.
        (fields + 2 == lines && entry.headers().len() == fields).then_some(entry)
    }

    /// The same answer with another head and other terms: after a 304, or a HEAD that confirms it.
    #[must_use]
    pub fn refreshed(&self, headers: &HeaderMap, terms: EntryTerms) -> Self {
        let mut block = BytesMut::with_capacity(head_length(headers));
        write_head(&mut block, self.status, headers);
        let entry = Entry::in_pieces(self.status, block.freeze(), self.body.clone(), terms);
        entry.hits.store(self.hits(), Relaxed);
        match self.large() {
            Some(body) => entry.with_large_body(body),
            None => entry,
        }
    }

    /// Whether the request's fields choose between this answer and others.
    pub fn varies(&self) -> bool {
        !self.terms.selecting.vary.is_empty()
    }

    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The fields of the head, in order.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> {
        self.spans(self.fields_start()).filter_map(|(name, value)| {
            Some((str::from_utf8(self.head.get(name.0..name.1)?).ok()?, self.head.get(value.0..value.1)?))
        })
    }

    /// The first field of this name.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(given, _)| *given == name).map(|(_, value)| value)
    }

    /// The fields of the head as a map. Values share the memory of the entry.
    pub fn headers(&self) -> HeaderMap {
        let start = self.fields_start();
        // Most fields take more than 24 bytes. Age and Cache-Status come on top; growing would cost as much as filling.
        let mut headers = HeaderMap::with_capacity((self.head.len() - start) / 24 + 2);
        for (name, value) in self.spans(start) {
            let name = HeaderName::from_bytes(&self.head[name.0..name.1]);
            let value = HeaderValue::from_maybe_shared(self.head.slice(value.0..value.1));
            if let (Ok(name), Ok(value)) = (name, value) {
                headers.append(name, value);
            }
        }
        headers
    }

    /// The fields of the head for an answer to a client. A head that is ready has a place for Age and one for
    /// Cache-Status. It is made ready when it is used for the second time.
    pub fn served(&self, ready: &ReadyHeads) -> HeaderMap {
        let extra = self.extra.get().map(|extra| &**extra);
        if let Some(Extra::Ready(head)) = extra {
            return head.headers();
        }
        let headers = self.headers();
        if extra.is_none()
            && self.hits() > 0
            && let Some(head) = ready.keep(&headers)
        {
            let _ = self.extra.set(Box::new(Extra::Ready(head)));
        }
        headers
    }

    /// The end of the status line.
    fn fields_start(&self) -> usize {
        memchr(b'\n', &self.head).map_or(self.head.len(), |end| end + 1)
    }

    /// Where names and values are in the head.
    fn spans(&self, mut at: usize) -> impl Iterator<Item = ((usize, usize), (usize, usize))> {
        let head = &self.head[..];
        std::iter::from_fn(move || {
            let end = at + memchr(b'\r', &head[at..])?;
            let colon = at + memchr(b':', &head[at..end])?;
            let (name, value) = ((at, colon), ((colon + 2).min(end), end));
            at = end + 2;
            Some((name, value))
        })
    }

    /// The head as text, from `HTTP/1.1` to the empty line.
    pub fn head(&self) -> &Bytes {
        &self.head
    }

    pub fn body(&self) -> &Pieces {
        &self.body
    }

    /// The body from its beginning, if it is read from disk in pieces; [`Entry::body`] is empty then.
    pub fn large(&self) -> Option<LargeBody> {
        self.large_body().map(LargeBody::again)
    }

    /// The length of the body.
    pub fn length(&self) -> u64 {
        let pieces = || self.body.iter().map(|piece| piece.len() as u64).sum();
        self.large_body().map_or_else(pieces, LargeBody::left)
    }

    fn large_body(&self) -> Option<&LargeBody> {
        match self.extra.get().map(|extra| &**extra) {
            Some(Extra::Large(body)) => Some(body),
            _ => None,
        }
    }

    /// The memory that it takes, roughly.
    pub fn weight(&self) -> u64 {
        let terms = self.terms.selecting.vary.len() + self.terms.selecting.values.len();
        (size_of::<Entry>() + ENTRY_OVERHEAD + self.head.len() + terms) as u64 + self.length()
    }

    pub fn hits(&self) -> u32 {
        self.hits.load(Relaxed)
    }

    pub fn count_hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }
}

/// Reference counts of the entry and of its block, and what the allocator adds to three allocations.
const ENTRY_OVERHEAD: usize = 96;

/// Writes a head as [`Entry`] keeps it.
pub fn write_head(block: &mut BytesMut, status: StatusCode, headers: &HeaderMap) {
    block.extend_from_slice(b"HTTP/1.1 ");
    block.extend_from_slice(status.as_str().as_bytes());
    block.extend_from_slice(b" ");
    block.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    block.extend_from_slice(b"\r\n");
    for (name, value) in headers {
        block.extend_from_slice(name.as_str().as_bytes());
        block.extend_from_slice(b": ");
        block.extend_from_slice(value.as_bytes());
        block.extend_from_slice(b"\r\n");
    }
    block.extend_from_slice(b"\r\n");
}

/// The length of what [`write_head`] writes, at most.
pub fn head_length(headers: &HeaderMap) -> usize {
    const LONGEST_STATUS_LINE: usize = 48;
    headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum::<usize>() + LONGEST_STATUS_LINE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(fields: &[(&'static str, &'static [u8])]) -> HeaderMap {
        let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        fields.iter().map(pair).collect()
    }

    #[test]
    fn an_entry_survives_a_file() {
        let mut given = headers(&[("etag", b"\"a: b\""), ("empty", b""), ("x-latin", b"\xe9")]);
        given.append("set-x", HeaderValue::from_static("1"));
        given.append("set-x", HeaderValue::from_static("2"));
        let entry = Entry::new(StatusCode::NOT_FOUND, &given, b"\r\n\r\nbody", EntryTerms::default());
        assert_eq!(entry.headers(), given);
        let block = [&entry.head()[..], &entry.body()[0][..]].concat();
        let read = Entry::read(block.into(), EntryTerms::default()).unwrap();
        assert_eq!((read.status(), read.headers()), (StatusCode::NOT_FOUND, given));
        assert_eq!((&read.body()[0][..], read.length()), (&b"\r\n\r\nbody"[..], 8));
        assert_eq!(read.field("empty"), Some(&b""[..]));
        assert_eq!(read.field("none"), None);
    }

    #[test]
    fn what_was_not_written_here_is_not_read() {
        for text in [
            "",
            "\r\n\r\n",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "HTTP/1.1 2",
            "HTTP/1.0 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno field\r\n\r\n",
            "HTTP/1.1 200 OK\r\nbad name: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\na: \x01\r\n\r\n",
        ] {
            assert!(Entry::read(Bytes::from_static(text.as_bytes()), EntryTerms::default()).is_none(), "{text:?}");
        }
        assert!(Entry::read(Bytes::from_static(b"HTTP/1.1 200 OK\r\n\r\n"), EntryTerms::default()).is_some());
    }

    /// docs/performance.md names the memory of a stored answer besides its body, and this is the largest part of it.
    #[test]
    fn an_entry_stays_small() {
        assert!(size_of::<Entry>() <= 192, "{} bytes", size_of::<Entry>());
    }

    #[test]
    fn a_refreshed_entry_keeps_its_body() {
        let entry = Entry::new(StatusCode::OK, &headers(&[("etag", b"\"1\"")]), b"body", EntryTerms::default());
        entry.count_hit();
        let terms = EntryTerms { head_only: false, ..EntryTerms::default() };
        let fresh = entry.refreshed(&headers(&[("etag", b"\"1\""), ("x", b"new")]), terms);
        assert_eq!((&fresh.body()[0][..], fresh.field("x"), fresh.hits()), (&b"body"[..], Some(&b"new"[..]), 1));
    }
}
