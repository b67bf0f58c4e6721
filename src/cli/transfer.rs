//! Transfers large bodies to and from a running curtsy, piece by piece.
//!
//! Uses chunks (RFC 9112, section 7.1), so that a truncated response is not mistaken for a complete one, and the length
//! of a body need not be known before it is sent.

use std::io::{self, Read, Write};
use std::time::Duration;

use super::admin::{AdminAnswer, AdminTrouble, RunningCurtsy, value};
use super::http::{self, HttpResponse};
use crate::store::{Imported, LineCount, LinesError};

/// Longer than it takes to import a million hosts.
const PATIENCE: Duration = Duration::from_secs(600);
const PIECE: usize = 64 << 10;
/// The largest response in bytes, except for an export.
const LONGEST_ANSWER: u64 = 1 << 20;

impl RunningCurtsy {
    pub(super) fn export(&self, to: &mut impl Write) -> Result<LineCount, LinesError> {
        self.begin("GET", "").map_err(LinesError::Stream)?;
        let response = HttpResponse::read(&self.stream).map_err(LinesError::Stream)?;
        if response.status != 200 || !response.chunked {
            return Err(LinesError::Stream(io::Error::other(self.refusal(response).text)));
        }
        let mut counted = LineCounter { to, begin: Vec::new(), count: LineCount::default() };
        response.copy_chunks(&mut counted).map_err(LinesError::Stream)?;
        Ok(counted.count)
    }

    pub(super) fn import(&self, from: impl Read) -> Result<Imported, AdminTrouble> {
        let failed = |error: io::Error| AdminTrouble::failure(format!("{}: {error}", self.address));
        let fields = "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n";
        self.begin("POST", fields).map_err(failed)?;
        self.send_chunks(from).map_err(failed)?;
        let answer = HttpResponse::read(&self.stream).and_then(|response| AdminAnswer::read(response, LONGEST_ANSWER));
        let told = value(&answer.map_err(failed)?, self.address)?;
        serde_json::from_value(told)
            .map_err(|error| AdminTrouble::failure(format!("that is not a known version of curtsy: {error}")))
    }

    fn begin(&self, method: &str, fields: &str) -> io::Result<()> {
        let (host, token) = (self.address, self.authorization());
        let request =
            format!("{method} /api/v1/state HTTP/1.1\r\nHost: {host}\r\n{token}{fields}Connection: close\r\n\r\n");
        http::begin(&self.stream, PATIENCE, &request)
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
    pub(super) fn refusal(&self, response: HttpResponse<impl Read>) -> AdminTrouble {
        match AdminAnswer::read(response, LONGEST_ANSWER).map(|answer| value(&answer, self.address)) {
            Ok(Err(trouble)) => trouble,
            _ => AdminTrouble::failure(format!("{} is not a known version of curtsy", self.address)),
        }
    }
}

/// Counts the entries of an export while it is copied.
struct LineCounter<W> {
    to: W,
    /// The first bytes of the current line.
    begin: Vec<u8>,
    count: LineCount,
}

impl<W: Write> Write for LineCounter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        for byte in &bytes[..written] {
            match byte {
                b'\n' => self.begin.clear(),
                _ if self.begin.len() > LONGEST_KIND => {}
                _ => {
                    self.begin.push(*byte);
                    match self.begin.as_slice() {
                        br#"{"kind":"host""# => self.count.hosts += 1,
                        br#"{"kind":"robots""# => self.count.robots += 1,
                        br#"{"kind":"job""# => self.count.jobs += 1,
                        _ => {}
                    }
                }
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// The length of the longest beginning that is counted.
const LONGEST_KIND: usize = br#"{"kind":"robots""#.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_export_is_counted_on_its_way() {
        let text = "{\"kind\":\"curtsy-state\",\"version\":1}\n{\"kind\":\"host\",\"key\":\"a\"}\n{\"kind\":\"job\"}\n";
        let mut counter = LineCounter { to: Vec::new(), begin: Vec::new(), count: LineCount::default() };
        text.as_bytes().chunks(5).for_each(|piece| counter.write_all(piece).unwrap());
        assert_eq!(counter.count, LineCount { hosts: 1, robots: 0, jobs: 1 });
        assert_eq!(counter.to, text.as_bytes());
    }
}
