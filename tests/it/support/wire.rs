//! A TCP connection seen byte by byte: what both the test client and the test origin stand on.
//!
//! Reads messages by their framing but never corrects them; a silence longer than the wire's patience is an answer
//! ([`End::Silence`]), not a hang.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::deadline::PATIENCE;
use super::message::{Message, latin1};

/// How a direction of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Reset,
    /// Nothing came for as long as the wire is patient; the connection may well be open.
    Silence,
}

pub(crate) struct Wire {
    stream: TcpStream,
    unread: Vec<u8>,
    /// Every byte that ever arrived, for a witness on another thread.
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a fresh socket takes options");
        let wire = Wire { stream, unread: Vec::new(), seen: Arc::default() };
        wire.patience(PATIENCE);
        wire
    }

    pub(crate) fn seen(&self) -> Arc<Mutex<Vec<u8>>> {
        self.seen.clone()
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.stream.peer_addr().expect("a connected socket")
    }

    /// How long to wait for bytes, and for room to write them.
    pub(crate) fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a non-zero time");
        self.stream.set_write_timeout(Some(limit)).expect("a non-zero time");
    }

    /// Sends what it can: a peer that stopped listening is what many tests are about.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Says "no more from me" and keeps listening.
    pub(crate) fn half_close(&mut self) {
        // The peer may have gone already; that is for the next read to find.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes the end of this connection a reset instead of a FIN.
    pub(crate) fn end_with_reset(&self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("an open socket takes options");
    }

    /// Lets the receive buffer be tiny, so that a reader who does not read is felt by the writer at once.
    pub(crate) fn small_window(&self) {
        socket2::SockRef::from(&self.stream).set_recv_buffer_size(4096).expect("an open socket takes options");
    }

    /// The next bytes as they come; `Err` when no more will.
    pub(crate) fn read_some(&mut self) -> Result<Vec<u8>, End> {
        if self.unread.is_empty() {
            self.fill()?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    pub(crate) fn read_exactly(&mut self, count: usize) -> Result<Vec<u8>, End> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    /// Everything until the peer says no more.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.unread), end);
            }
        }
    }

    /// A head up to and including its empty line; `Err` if the connection ended before it was whole.
    pub(crate) fn read_head(&mut self) -> Result<Message, End> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                return Ok(Message::from_head(self.unread.drain(..at + 4).collect()));
            }
            self.fill()?;
        }
    }

    /// The body that belongs to a head, by Transfer-Encoding, else Content-Length, else what `otherwise` says.
    pub(crate) fn read_body(&mut self, message: &mut Message, otherwise: Unframed) {
        let length = message.values("Content-Length").first().and_then(|value| value.parse().ok());
        message.whole = if message.value("Transfer-Encoding").to_ascii_lowercase().contains("chunked") {
            self.read_chunks(message).is_ok()
        } else if let Some(length) = length {
            self.read_counted(message, length)
        } else if otherwise == Unframed::UntilClose {
            let (body, end) = self.read_to_end();
            message.body = body;
            end == End::Fin
        } else {
            true
        };
    }

    fn read_counted(&mut self, message: &mut Message, length: usize) -> bool {
        while self.unread.len() < length {
            if self.fill().is_err() {
                message.body = std::mem::take(&mut self.unread);
                return false;
            }
        }
        message.body = self.unread.drain(..length).collect();
        true
    }

    fn read_chunks(&mut self, message: &mut Message) -> Result<(), End> {
        loop {
            let size = self.read_line()?;
            let size = size.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("not a chunk size: {size:?}"));
            if size == 0 {
                break;
            }
            let chunk = self.read_exactly(size + 2)?;
            message.body.extend_from_slice(&chunk[..size]);
        }
        loop {
            let line = self.read_line()?;
            if line.is_empty() {
                return Ok(());
            }
            message.trailers.push(line);
        }
    }

    fn read_line(&mut self) -> Result<String, End> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                let line: Vec<u8> = self.unread.drain(..at + 2).collect();
                return Ok(latin1(&line[..at]));
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), End> {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(End::Fin),
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                self.seen.lock().expect("no test panics while noting bytes").extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Err(End::Silence),
            Err(_) => Err(End::Reset),
        }
    }
}

/// What a message without Content-Length and Transfer-Encoding has for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unframed {
    NoBody,
    UntilClose,
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
