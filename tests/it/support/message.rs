//! One HTTP message as it was on the wire, for tests to assert on.
//!
//! Each byte becomes one character (Latin-1), so that reading a message repairs nothing that a proxy may have mangled.

use std::time::Instant;

/// A request as the origin got it, or a response as the client got it.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Every byte of the head, with the empty line.
    pub(crate) raw: Vec<u8>,
    pub(crate) body: Vec<u8>,
    /// Lines after the last chunk.
    pub(crate) trailers: Vec<String>,
    /// Whether the body ended where its framing says.
    pub(crate) whole: bool,
    /// When the last bytes of the head arrived.
    pub(crate) at: Instant,
    /// The number of the origin's connection, from 0.
    pub(crate) connection: usize,
}

impl Message {
    pub(crate) fn from_head(raw: Vec<u8>, at: Instant) -> Self {
        Message { raw, body: Vec::new(), trailers: Vec::new(), whole: true, at, connection: 0 }
    }

    /// The request line or status line.
    pub(crate) fn line(&self) -> String {
        self.lines().next().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        self.line().split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn reason(&self) -> String {
        self.line().splitn(3, ' ').nth(2).unwrap_or_default().to_owned()
    }

    /// Name and value of every field, in the order of the wire.
    pub(crate) fn fields(&self) -> Vec<(String, String)> {
        self.lines()
            .skip(1)
            .filter_map(|line| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned())))
            .collect()
    }

    /// Every value of one field, in the order of the wire.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        self.fields().into_iter().filter(|(each, _)| each.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The values of one field as one list; empty if the field is not there.
    pub(crate) fn value(&self, name: &str) -> String {
        self.values(name).join(", ")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    pub(crate) fn text(&self) -> String {
        latin1(&self.body)
    }

    pub(crate) fn head(&self) -> String {
        latin1(&self.raw)
    }

    /// The code of a refusal by curtsy; empty for an answer of the origin.
    pub(crate) fn refusal(&self) -> String {
        self.value("Curtsy-Error")
    }

    fn lines(&self) -> impl Iterator<Item = String> + use<> {
        self.head().split("\r\n").map(str::to_owned).collect::<Vec<_>>().into_iter()
    }
}

pub(crate) fn latin1(bytes: &[u8]) -> String {
    bytes.iter().map(|&byte| char::from(byte)).collect()
}
