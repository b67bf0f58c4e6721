//! WARC/1.1 records (ISO 28500:2017): how a stored response is written to a segment, and read back.
//!
//! A record is a header, a block and two empty lines. The block is the HTTP response: its head as text, then its body.
//! Other tools can read the records; two fields of curtsy's own carry what a cache needs besides. Pure: bytes in, bytes
//! out. A record that is not exactly as curtsy writes it is rejected, never repaired.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{Context, SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as NOTE_CODE;

/// SHA-256 of a block.
pub type BlockDigest = [u8; 32];

/// The header of a record that holds a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WarcHeader {
    /// Unique; written as a UUID.
    pub id: u128,
    /// When the response arrived, in whole seconds since the Unix epoch.
    pub date_s: u64,
    pub url: String,
    /// Whose answer it is, if clients do not share answers; empty if they do.
    pub partition: String,
    /// The address that the response came from.
    pub address: Option<IpAddr>,
    /// What the cache knows about the response, as bytes that only the cache understands.
    pub note: Vec<u8>,
    pub digest: BlockDigest,
    pub block_length: u64,
}

/// Why bytes are not a record of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    /// The header does not end within the bytes given.
    Cut,
    /// The header is not one that curtsy writes.
    Malformed,
    /// The block is shorter or longer than the header says.
    Length,
    /// The block is not what was written.
    Digest,
}

impl WarcHeader {
    /// Returns the header as text, up to and including the empty line. None if a value does not fit on a line or is too
    /// long: such a response is not stored.
    pub fn write(&self) -> Option<String> {
        let fits = |text: &str| text.bytes().all(|byte| byte >= b' ' && byte != 0x7f);
        if self.url.is_empty() || self.url.contains(' ') || !fits(&self.url) || !fits(&self.partition) {
            return None;
        }
        let mut text = String::with_capacity(400 + self.url.len() + 2 * self.note.len());
        text.push_str("WARC/1.1\r\nWARC-Type: response\r\n");
        // Writing to a string cannot fail.
        let _ = write!(text, "WARC-Record-ID: <urn:uuid:{}>\r\nWARC-Date: {}\r\n", uuid(self.id), date(self.date_s));
        let _ = write!(text, "WARC-Target-URI: {}\r\n", self.url);
        if let Some(address) = self.address {
            let _ = write!(text, "WARC-IP-Address: {address}\r\n");
        }
        let _ = write!(text, "WARC-Block-Digest: sha256:{}\r\n", hex(&self.digest));
        if !self.partition.is_empty() {
            let _ = write!(text, "{PARTITION}: {}\r\n", self.partition);
        }
        let _ = write!(text, "{NOTE}: {}\r\n", NOTE_CODE.encode(&self.note));
        // A fixed width: the header of a body that is written while it passes is completed at the end.
        let _ = write!(text, "{RESPONSE}\r\nContent-Length: {:0LENGTH_DIGITS$}\r\n\r\n", self.block_length);
        (text.len() <= LONGEST_HEADER).then_some(text)
    }

    /// Reads a header from the start of `bytes`, and returns it with its length.
    pub fn read(bytes: &[u8]) -> Result<(WarcHeader, usize), BadRecord> {
        let within = &bytes[..bytes.len().min(LONGEST_HEADER)];
        let end = memchr::memmem::find(within, b"\r\n\r\n").ok_or(BadRecord::Cut)?;
        let text = std::str::from_utf8(&within[..end]).map_err(|_| BadRecord::Malformed)?;
        let header = parse(text).ok_or(BadRecord::Malformed)?;
        // A header has one spelling. So whatever is read is exactly what was written.
        match header.write() {
            Some(spelled) if spelled.as_bytes() == &bytes[..end + 4] => Ok((header, end + 4)),
            _ => Err(BadRecord::Malformed),
        }
    }
}

/// Reads a whole record and checks its length and its digest. Returns the header and where the block begins.
pub fn read_whole(bytes: &[u8]) -> Result<(WarcHeader, usize), BadRecord> {
    let (header, at) = WarcHeader::read(bytes)?;
    let block = bytes[at..].strip_suffix(END).ok_or(BadRecord::Length)?;
    if block.len() as u64 != header.block_length {
        return Err(BadRecord::Length);
    }
    if digest_of([block]) != header.digest {
        return Err(BadRecord::Digest);
    }
    Ok((header, at))
}

/// Returns the record that a segment begins with: which program wrote it, and in which format.
pub fn first_record(id: u128, date_s: u64) -> String {
    let block = format!(
        "software: curtsy/{}\r\nformat: WARC file version 1.1\r\ndescription: shared cache of HTTP responses\r\n",
        env!("CARGO_PKG_VERSION")
    );
    format!(
        "WARC/1.1\r\nWARC-Type: warcinfo\r\nWARC-Record-ID: <urn:uuid:{}>\r\nWARC-Date: {}\r\n\
         Content-Type: application/warc-fields\r\nContent-Length: {}\r\n\r\n{block}\r\n\r\n",
        uuid(id),
        date(date_s),
        block.len()
    )
}

/// Returns the digest of a block that comes in pieces.
pub fn digest_of<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> BlockDigest {
    let mut digest = Context::new(&SHA256);
    pieces.into_iter().for_each(|piece| digest.update(piece));
    finished(digest)
}

pub fn finished(digest: Context) -> BlockDigest {
    let mut value = BlockDigest::default();
    value.copy_from_slice(digest.finish().as_ref());
    value
}

/// Follows the block of every record.
pub const END: &[u8] = b"\r\n\r\n";
/// A longer header is neither written nor read. URLs are shorter: a request head has at most 64 KiB.
pub const LONGEST_HEADER: usize = 192 * 1024;

const NOTE: &str = "Curtsy-Entry";
const PARTITION: &str = "Curtsy-Partition";
const RESPONSE: &str = "Content-Type: application/http;msgtype=response";
/// Enough for a terabyte.
const LENGTH_DIGITS: usize = 12;

fn parse(text: &str) -> Option<WarcHeader> {
    let mut lines = text.split("\r\n").peekable();
    let (version, kind) = (lines.next()?, lines.next()?);
    if version != "WARC/1.1" || kind != "WARC-Type: response" {
        return None;
    }
    let id = parse_uuid(field(lines.next()?, "WARC-Record-ID")?.strip_prefix("<urn:uuid:")?.strip_suffix('>')?)?;
    let date_s = parse_date(field(lines.next()?, "WARC-Date")?)?;
    let url = field(lines.next()?, "WARC-Target-URI")?.to_owned();
    let address = lines.next_if(|line| field(line, "WARC-IP-Address").is_some());
    let address = match address {
        Some(line) => Some(field(line, "WARC-IP-Address")?.parse().ok()?),
        None => None,
    };
    let digest = parse_hex(field(lines.next()?, "WARC-Block-Digest")?.strip_prefix("sha256:")?)?.try_into().ok()?;
    let partition = lines.next_if(|line| field(line, PARTITION).is_some());
    let partition = partition.and_then(|line| field(line, PARTITION)).unwrap_or_default().to_owned();
    let note = NOTE_CODE.decode(field(lines.next()?, NOTE)?).ok()?;
    if lines.next()? != RESPONSE {
        return None;
    }
    let block_length = field(lines.next()?, "Content-Length")?.parse().ok()?;
    lines.next().is_none().then_some(())?;
    Some(WarcHeader { id, date_s, url, partition, address, note, digest, block_length })
}

fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?.strip_prefix(": ")
}

fn date(seconds: u64) -> humantime::Rfc3339Timestamp {
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.min(LAST_SECOND));
    humantime::format_rfc3339_seconds(at)
}

/// The last second of the year 9999, the last that a date can express.
const LAST_SECOND: u64 = 253_402_300_799;

fn parse_date(text: &str) -> Option<u64> {
    let at = humantime::parse_rfc3339(text).ok()?;
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|since| since.as_secs())
}

/// Writes a random number as a UUID of version 4 (RFC 9562).
fn uuid(id: u128) -> String {
    let text = format!("{:032x}", id & !UUID_FIXED | UUID_VERSION);
    format!("{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
}

/// The bits of a UUID that say its version and variant, and their values.
const UUID_FIXED: u128 = 0xf000_c000_0000_0000_0000;
const UUID_VERSION: u128 = 0x4000_8000_0000_0000_0000;

fn parse_uuid(text: &str) -> Option<u128> {
    (text.len() == 36).then_some(())?;
    u128::from_str_radix(&text.replace('-', ""), 16).ok()
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(block: &[u8]) -> WarcHeader {
        WarcHeader {
            id: 0x0123_4567_89ab_4def_8123_4567_89ab_cdef,
            date_s: 1_795_000_000,
            url: "http://example.com/a?b=c".to_owned(),
            partition: String::new(),
            address: Some("127.0.0.1".parse().unwrap()),
            note: vec![1, 2, 255],
            digest: digest_of([block]),
            block_length: block.len() as u64,
        }
    }

    fn record(block: &[u8]) -> Vec<u8> {
        [header(block).write().unwrap().as_bytes(), block, END].concat()
    }

    const BLOCK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

    #[test]
    fn what_is_written_is_read() {
        for (address, partition) in [(None, ""), (Some("::1".parse().unwrap()), "user ada")] {
            let wanted = WarcHeader { address, partition: partition.to_owned(), ..header(BLOCK) };
            let bytes = [wanted.write().unwrap().as_bytes(), BLOCK, END].concat();
            let (found, at) = read_whole(&bytes).unwrap();
            assert_eq!((found, &bytes[at..bytes.len() - 4]), (wanted, BLOCK));
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_found() {
        let good = record(BLOCK);
        for at in 0..good.len() {
            assert!(read_whole(&good[..at]).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                let same = read_whole(&bad).is_ok_and(|(found, _)| found == header(BLOCK));
                assert!(!same, "bit {bit} of byte {at}");
            }
        }
        let longer = [&good[..], b"x"].concat();
        assert_eq!(read_whole(&longer), Err(BadRecord::Length));
    }

    #[test]
    fn values_that_would_break_a_line_are_not_written() {
        for url in ["", "http://a.example/\r\nX: y", "http://a.example/ b"] {
            assert_eq!(WarcHeader { url: url.to_owned(), ..header(BLOCK) }.write(), None, "{url:?}");
        }
        let long = WarcHeader { note: vec![0; LONGEST_HEADER], ..header(BLOCK) };
        assert_eq!(long.write(), None);
    }

    /// The header of a large body is written twice: before the body, and completed after it.
    #[test]
    fn a_header_keeps_its_length_when_it_is_completed() {
        let before = WarcHeader { digest: [0; 32], block_length: 0, ..header(BLOCK) };
        assert_eq!(before.write().map(|text| text.len()), header(BLOCK).write().map(|text| text.len()));
    }

    #[test]
    fn ids_are_uuids() {
        assert_eq!(uuid(u128::MAX), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(parse_uuid(&uuid(7)), Some(UUID_VERSION | 7));
    }
}
