//! Reads what client and origin send in the clear before they encrypt: the host that the client wants, and the
//! protocol.
//!
//! A hello that is cut short, too long or not understood tells nothing; nothing is ever guessed. What is gathered is
//! bounded, and freed as soon as it is read.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// The first message of either side, gathered from one or more records.
#[derive(Debug)]
pub(crate) struct Hello {
    bytes: Vec<u8>,
    read: bool,
}

/// What the client offers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The host it wants, if it says so.
    pub(crate) name: Option<String>,
    /// Whether it would speak HTTP/2, HTTP/1.x, or something else. A client that names no protocol means HTTP/1.1 here.
    pub(crate) http2: bool,
    pub(crate) http1: bool,
    pub(crate) other: bool,
    /// A hash of the ciphers, whose list differs between programs.
    pub(crate) program: u64,
}

/// What the origin chose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChosenProtocol {
    pub(crate) tls13: bool,
    pub(crate) suite: u16,
    /// Always false in TLS 1.3, where the choice is encrypted.
    pub(crate) http2: bool,
}

/// Hellos with post-quantum keys have 2 KiB; this leaves room for growth.
const LONGEST: usize = 16 * 1024;

const CLIENT_HELLO: u8 = 1;
const SERVER_HELLO: u8 = 2;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;
const TLS13: u16 = 0x0304;

impl Hello {
    pub(crate) fn new() -> Self {
        Hello { bytes: Vec::new(), read: false }
    }

    /// Adds a piece. Returns `Some` once: the whole message, or an empty one if it is too long. What follows the
    /// message in the same record belongs to the next message and is left out, so that the cuts between pieces change
    /// nothing.
    pub(crate) fn gather(&mut self, piece: &[u8]) -> Option<Vec<u8>> {
        if self.read {
            return None;
        }
        let room = LONGEST - self.bytes.len();
        self.bytes.extend_from_slice(&piece[..piece.len().min(room)]);
        let whole = self.length().filter(|length| *length <= self.bytes.len());
        if whole.is_none() && self.bytes.len() < LONGEST {
            return None;
        }
        self.read = true;
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.truncate(whole.unwrap_or(0));
        Some(bytes)
    }

    fn length(&self) -> Option<usize> {
        let [_, a, b, c] = *self.bytes.first_chunk()?;
        Some(4 + u32::from_be_bytes([0, a, b, c]) as usize)
    }
}

impl Offer {
    pub(crate) fn read(message: &[u8]) -> Option<Offer> {
        let mut rest = HelloReader(message);
        if rest.byte()? != CLIENT_HELLO {
            return None;
        }
        rest.skip(3 + 2 + 32)?;
        rest.short_list()?;
        let ciphers = rest.list()?;
        rest.short_list()?;
        let program = BuildHasherDefault::<DefaultHasher>::default().hash_one(ciphers.0);
        let mut offer = Offer { program, ..Offer::default() };
        each_extension(rest, |kind, body| match kind {
            SERVER_NAME => offer.name = server_name(body),
            ALPN => offer.read_protocols(body),
            _ => {}
        })?;
        offer.http1 |= !offer.http2 && !offer.other;
        Some(offer)
    }

    fn read_protocols(&mut self, mut body: HelloReader<'_>) {
        let mut protocols = body.list().unwrap_or(HelloReader(&[]));
        while let Some(protocol) = protocols.short_list() {
            match protocol.0 {
                b"h2" => self.http2 = true,
                b"http/1.1" | b"http/1.0" => self.http1 = true,
                // Chromium adds a name without meaning, so that servers keep tolerating new ones (RFC 8701).
                [first, second] if first == second && first & 0x0f == 0x0a => {}
                _ => self.other = true,
            }
        }
    }
}

impl ChosenProtocol {
    pub(crate) fn read(message: &[u8]) -> Option<ChosenProtocol> {
        let mut rest = HelloReader(message);
        if rest.byte()? != SERVER_HELLO {
            return None;
        }
        rest.skip(3 + 2 + 32)?;
        rest.short_list()?;
        let mut choice = ChosenProtocol { tls13: false, suite: rest.number()?, http2: false };
        rest.skip(1)?;
        each_extension(rest, |kind, mut body| match kind {
            SUPPORTED_VERSIONS => choice.tls13 = body.number() == Some(TLS13),
            ALPN => {
                let chosen = body.list().and_then(|mut list| list.short_list());
                choice.http2 = chosen.is_some_and(|name| name.0 == b"h2");
            }
            _ => {}
        })?;
        Some(choice)
    }
}

fn each_extension<'a>(mut rest: HelloReader<'a>, mut visit: impl FnMut(u16, HelloReader<'a>)) -> Option<()> {
    if rest.0.is_empty() {
        return Some(());
    }
    let mut extensions = rest.list()?;
    while !extensions.0.is_empty() {
        let kind = extensions.number()?;
        visit(kind, extensions.list()?);
    }
    Some(())
}

fn server_name(mut body: HelloReader<'_>) -> Option<String> {
    let mut names = body.list()?;
    let is_host = names.byte()? == 0;
    let name = std::str::from_utf8(names.list()?.0).ok().filter(|name| name.is_ascii() && name.len() <= 255)?;
    is_host.then(|| name.to_ascii_lowercase())
}

/// Bytes, read from the front.
#[derive(Clone, Copy)]
struct HelloReader<'a>(&'a [u8]);

impl<'a> HelloReader<'a> {
    fn take(&mut self, count: usize) -> Option<HelloReader<'a>> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(HelloReader(taken))
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.take(count).map(|_| ())
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|taken| taken.0[0])
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).map(|taken| u16::from_be_bytes([taken.0[0], taken.0[1]]))
    }

    /// Takes a list that has its length before it in two bytes.
    fn list(&mut self) -> Option<HelloReader<'a>> {
        let length = self.number()?;
        self.take(usize::from(length))
    }

    /// Takes a list that has its length before it in one byte.
    fn short_list(&mut self) -> Option<HelloReader<'a>> {
        let length = self.byte()?;
        self.take(usize::from(length))
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;

    fn list(bytes: &[u8]) -> Vec<u8> {
        let mut list = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
        list.extend(bytes);
        list
    }

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &list(body)].concat()
    }

    fn message(kind: u8, fixed: &[u8], extensions: &[u8]) -> Vec<u8> {
        let body = [&[3, 3][..], &[7; 32], &[0], fixed, &list(extensions)].concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        [&[kind][..], &length[1..], &body].concat()
    }

    pub(in super::super) fn client(name: &str, protocols: &[&str]) -> Vec<u8> {
        let sni = extension(SERVER_NAME, &list(&[&[0][..], &list(name.as_bytes())].concat()));
        let names: Vec<u8> =
            protocols.iter().flat_map(|name| [&[name.len() as u8][..], name.as_bytes()].concat()).collect();
        let alpn = if names.is_empty() { Vec::new() } else { extension(ALPN, &list(&names)) };
        message(CLIENT_HELLO, &[0, 2, 0x13, 1, 1, 0], &[extension(0x0a0a, &[]), sni, alpn].concat())
    }

    pub(in super::super) fn server(tls13: bool, suite: u16, protocol: Option<&str>) -> Vec<u8> {
        let version = if tls13 { extension(SUPPORTED_VERSIONS, &TLS13.to_be_bytes()) } else { Vec::new() };
        let alpn = protocol
            .map_or_else(Vec::new, |name| extension(ALPN, &list(&[&[name.len() as u8][..], name.as_bytes()].concat())));
        message(SERVER_HELLO, &[&suite.to_be_bytes()[..], &[0]].concat(), &[version, alpn].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_offers_is_read() {
        let offer = |protocols: &[&str]| Offer::read(&samples::client("A.Test", protocols)).unwrap();
        let program = offer(&[]).program;
        assert_ne!(program, 0);
        let plain = Offer { name: Some("a.test".to_owned()), http1: true, program, ..Offer::default() };
        assert_eq!(offer(&[]), plain);
        assert_eq!(offer(&["http/1.1"]), plain);
        assert_eq!(offer(&["\x1a\x1a", "h2", "http/1.1"]), Offer { http2: true, ..plain.clone() });
        assert_eq!(offer(&["h2"]), Offer { http2: true, http1: false, ..plain.clone() });
        assert_eq!(offer(&["imap"]), Offer { other: true, http1: false, ..plain });
    }

    #[test]
    fn what_an_origin_chose_is_read() {
        let choice = |tls13, suite, protocol| ChosenProtocol::read(&samples::server(tls13, suite, protocol)).unwrap();
        assert_eq!(choice(true, 0x1302, None), ChosenProtocol { tls13: true, suite: 0x1302, http2: false });
        assert_eq!(choice(false, 0xc02f, Some("h2")), ChosenProtocol { tls13: false, suite: 0xc02f, http2: true });
        assert!(!choice(false, 0xc02f, Some("http/1.1")).http2);
    }

    /// A hello may end where its extensions would begin.
    #[test]
    fn a_hello_that_is_cut_anywhere_is_not_read() {
        let (client, server) = (samples::client("a.test", &["h2"]), samples::server(true, 0x1301, None));
        for cut in 0..client.len() {
            assert_eq!(Offer::read(&client[..cut]).filter(|_| cut != 45), None, "{cut}");
        }
        for cut in 0..server.len() {
            assert_eq!(ChosenProtocol::read(&server[..cut]).filter(|_| cut != 42), None, "{cut}");
        }
    }

    /// TLS 1.2 origins send their certificate in the record of their hello.
    #[test]
    fn what_follows_a_hello_in_its_record_is_no_part_of_it() {
        let without_extensions = [&[SERVER_HELLO, 0, 0, 38, 3, 3][..], &[7; 32], &[0, 0xc0, 0x2f, 0]].concat();
        let record = [&without_extensions[..], &samples::server(true, 0x1301, Some("h2"))].concat();
        assert_eq!(Hello::new().gather(&record), Some(without_extensions));
    }

    #[test]
    fn a_hello_is_gathered_from_pieces_within_bounds() {
        let sent = samples::client("a.test", &[]);
        let mut hello = Hello::new();
        let (last, before) = sent.split_last().unwrap();
        assert!(before.chunks(7).all(|piece| hello.gather(piece).is_none()));
        assert_eq!(hello.gather(&[*last]), Some(sent));
        assert_eq!(hello.gather(b"more"), None);

        let mut endless = Hello::new();
        assert_eq!(endless.gather(&[1, 0xff, 0xff, 0xff]), None);
        assert_eq!(endless.gather(&[0; LONGEST]), Some(Vec::new()));
        assert_eq!(endless.bytes.capacity(), 0);
    }
}
