//! Reads the event stream of a running curtsy (server-sent events) line by line.

use std::io::{self, BufRead, BufReader};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

use crate::cli::admin::{AdminTrouble, RunningCurtsy};
use crate::cli::http::{self, BodyReader, HttpResponse};

/// How long the stream may be silent. curtsy sends a comment at least every fifteen seconds, even if nothing happens.
const SILENCE: Duration = Duration::from_secs(40);
/// The longest line in bytes; more than any event has.
const LONGEST_LINE: u64 = 1 << 20;

#[derive(Debug)]
pub(in crate::cli) struct Feed {
    lines: BufReader<BodyReader<TcpStream>>,
    /// The number of the last event that had a number.
    last: Option<u64>,
}

impl Feed {
    /// Opens the stream, after the event with this number if one is given.
    pub(in crate::cli) fn open(running: &RunningCurtsy, query: &str, after: Option<u64>) -> Result<Self, AdminTrouble> {
        let failed = |error: io::Error| AdminTrouble::failure(format!("{}: {error}", running.address));
        let stream = running.stream.try_clone().map_err(failed)?;
        let (host, token) = (running.address, running.authorization());
        let after_field = after.map_or_else(String::new, |id| format!("Last-Event-ID: {id}\r\n"));
        let request = format!("GET /api/v1/events?{query} HTTP/1.0\r\nHost: {host}\r\n{token}{after_field}\r\n");
        http::begin(&stream, SILENCE, &request).map_err(failed)?;
        let response = HttpResponse::read(stream).map_err(failed)?;
        match response.status {
            200 => Ok(Feed { lines: BufReader::new(response.reader()), last: after }),
            _ => Err(running.refusal(response)),
        }
    }

    pub(in crate::cli) fn last(&self) -> Option<u64> {
        self.last
    }

    /// Returns the next event; `None` if the stream has ended, or was silent for too long.
    pub(in crate::cli) fn next(&mut self) -> Option<Value> {
        loop {
            let mut line = String::new();
            let read = io::Read::take(&mut self.lines, LONGEST_LINE).read_line(&mut line);
            if read.ok()? == 0 {
                return None;
            }
            if let Some(id) = line.strip_prefix("id: ") {
                self.last = id.trim().parse().ok().or(self.last);
            }
            if let Some(event) = line.strip_prefix("data: ").and_then(|event| serde_json::from_str(event).ok()) {
                return Some(event);
            }
        }
    }
}
