//! Transfers large bodies to and from a running curtsy, piece by piece.
//!
//! Uses chunks (RFC 9112, section 7.1), so that a truncated response is not mistaken for a complete one, and the length
//! of a body need not be known before it is sent.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::time::Duration;

use super::admin::{Answer, Running, Trouble, value};
use crate::store::{Count, Imported, LinesError};

/// Longer than it takes to import a million hosts.
const PATIENCE: Duration = Duration::from_secs(600);
const PIECE: usize = 64 << 10;
/// The largest response in bytes, except for an export.
const LONGEST_ANSWER: u64 = 1 << 20;

impl Running {
    pub(super) fn export(&self, to: &mut impl Write) -> Result<Count, LinesError> {
        self.begin("GET", "").map_err(LinesError::Stream)?;
        let mut from = BufReader::new(&self.stream);
        let head = Head::read(&mut from).map_err(LinesError::Stream)?;
        if head.status != 200 || !head.chunked {
            let trouble = self.refusal(&head, from);
            return Err(LinesError::Stream(io::Error::other(trouble.text)));
        }
        copy_lines(BufReader::new(Chunks::new(from)), to).map_err(LinesError::Stream)
    }

    pub(super) fn import(&self, from: impl Read) -> Result<Imported, Trouble> {
        let failed = |error: io::Error| Trouble::failure(format!("{}: {error}", self.address));
        let fields = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n";
        self.begin("POST", fields).map_err(failed)?;
        self.send_chunks(from).map_err(failed)?;
        let mut answer = BufReader::new(&self.stream);
        let head = Head::read(&mut answer).map_err(failed)?;
        let body = rest(answer).map_err(failed)?;
        let told = value(&Answer { status: head.status, body }, self.address)?;
        serde_json::from_value(told)
            .map_err(|error| Trouble::failure(format!("that is not a known version of curtsy: {error}")))
    }

    fn begin(&self, method: &str, fields: &str) -> io::Result<()> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let (host, token) = (self.address, self.authorization());
        let head =
            format!("{method} /api/v1/state HTTP/1.1\r\nHost: {host}\r\n{token}{fields}Connection: close\r\n\r\n");
        (&self.stream).write_all(head.as_bytes())
    }

    fn send_chunks(&self, mut from: impl Read) -> io::Result<()> {
        let (mut to, mut piece) = (&self.stream, vec![0; PIECE]);
        loop {
            let count = match from.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            to.write_all(format!("{count:x}\r\n").as_bytes())?;
            to.write_all(&piece[..count])?;
            to.write_all(b"\r\n")?;
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Returns the error that a response reports.
    pub(super) fn refusal(&self, head: &Head, from: impl BufRead) -> Trouble {
        let refused = rest(from).map(|body| value(&Answer { status: head.status, body }, self.address));
        match refused {
            Ok(Err(trouble)) => trouble,
            _ => Trouble::failure(format!("{} is not a known version of curtsy", self.address)),
        }
    }
}

fn rest(from: impl Read) -> io::Result<String> {
    let mut body = Vec::new();
    from.take(LONGEST_ANSWER).read_to_end(&mut body)?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

/// The parts of a response head that are needed here.
pub(super) struct Head {
    pub(super) status: u16,
    chunked: bool,
}

impl Head {
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Head> {
        let first = line(from)?;
        let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse().ok()).ok_or_else(bad)?;
        let mut head = Head { status, chunked: false };
        loop {
            let field = line(from)?.to_ascii_lowercase();
            if field.is_empty() {
                return Ok(head);
            }
            head.chunked |= field.split_whitespace().eq(["transfer-encoding:", "chunked"]);
        }
    }
}

/// Reads a line and removes its line ending.
fn line(from: &mut impl BufRead) -> io::Result<String> {
    let mut line = Vec::new();
    from.take(PIECE as u64).read_until(b'\n', &mut line)?;
    let line = line.strip_suffix(b"\r\n").ok_or_else(bad)?;
    String::from_utf8(line.to_vec()).map_err(|_| bad())
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP, or was cut off")
}

/// Decodes a chunked body.
struct Chunks<R> {
    from: R,
    /// Bytes left in the current chunk; `None` between chunks, before the first and after the last.
    left: Option<u64>,
    ended: bool,
}

impl<R: BufRead> Chunks<R> {
    fn new(from: R) -> Self {
        Chunks { from, left: None, ended: false }
    }

    fn begin_chunk(&mut self) -> io::Result<u64> {
        let size = line(&mut self.from)?;
        let left = u64::from_str_radix(&size, 16).map_err(|_| bad())?;
        self.ended = left == 0;
        Ok(left)
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.ended || to.is_empty() {
            return Ok(0);
        }
        let left = match self.left {
            Some(left) => left,
            None => self.begin_chunk()?,
        };
        if self.ended {
            return Ok(0);
        }
        let count = (&mut self.from).take(left).read(to)?;
        if count == 0 {
            return Err(bad());
        }
        self.left = Some(left - count as u64).filter(|left| *left > 0);
        if self.left.is_none() && !line(&mut self.from)?.is_empty() {
            return Err(bad());
        }
        Ok(count)
    }
}

/// Copies an export, and counts its entries.
fn copy_lines(mut from: impl BufRead, to: &mut impl Write) -> io::Result<Count> {
    let (mut count, mut line) = (Count::default(), Vec::new());
    while from.read_until(b'\n', &mut line)? > 0 {
        let kinds: [(&[u8], &mut u64); 3] = [
            (br#"{"kind":"host""#, &mut count.hosts),
            (br#"{"kind":"robots""#, &mut count.robots),
            (br#"{"kind":"job""#, &mut count.jobs),
        ];
        for (begin, number) in kinds {
            *number += u64::from(line.starts_with(begin));
        }
        to.write_all(&line)?;
        line.clear();
    }
    to.flush()?;
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unchunked(text: &str) -> io::Result<String> {
        let mut all = String::new();
        Chunks::new(BufReader::with_capacity(3, text.as_bytes())).read_to_string(&mut all)?;
        Ok(all)
    }

    #[test]
    fn chunks_are_put_together_and_a_missing_end_is_noticed() {
        assert_eq!(unchunked("5\r\nhello\r\nA\r\n, world!\r\n\r\n0\r\n\r\n").unwrap(), "hello, world!\r\n");
        for cut in ["", "5\r\nhel", "5\r\nhello\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "x\r\n"] {
            unchunked(cut).unwrap_err();
        }
    }

    #[test]
    fn an_export_is_counted_on_its_way() {
        let text = "{\"kind\":\"curtsy-state\",\"version\":1}\n{\"kind\":\"host\",\"key\":\"a\"}\n{\"kind\":\"job\"}\n";
        let mut out = Vec::new();
        assert_eq!(copy_lines(text.as_bytes(), &mut out).unwrap(), Count { hosts: 1, robots: 0, jobs: 1 });
        assert_eq!(out, text.as_bytes());
    }
}
