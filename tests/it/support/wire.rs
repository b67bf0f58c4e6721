//! A TCP or TLS connection, byte by byte: the base of the test client and the test origin.
//!
//! Reads messages by their framing but never corrects them. A silence longer than the patience of the connection
//! returns [`End::Silence`] and does not hang.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, HandshakeKind, ServerConfig, ServerConnection};

use super::deadline::PATIENCE;
use super::message::{Message, latin1};
use super::socket::Socket;

/// How a direction of a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Fin,
    Reset,
    /// Nothing arrived within the patience of the connection, which may still be open.
    Silence,
}

pub(crate) struct Wire {
    stream: Socket,
    tls: Option<Session>,
    unread: Vec<u8>,
    /// Every byte that ever arrived, for another thread.
    seen: Arc<Mutex<Vec<u8>>>,
}

/// Which end of the TLS connection this is.
enum Session {
    Server(Box<ServerConnection>),
    Client(Box<ClientConnection>),
}

impl Session {
    fn read(&mut self, stream: &mut Socket, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Session::Server(session) => rustls::Stream::new(&mut **session, stream).read(buffer),
            Session::Client(session) => rustls::Stream::new(&mut **session, stream).read(buffer),
        }
    }

    fn write(&mut self, stream: &mut Socket, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Session::Server(session) => {
                let mut stream = rustls::Stream::new(&mut **session, stream);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
            Session::Client(session) => {
                let mut stream = rustls::Stream::new(&mut **session, stream);
                stream.write_all(bytes).and_then(|()| stream.flush())
            }
        }
    }
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a fresh socket takes options");
        let wire = Wire { stream: Socket::new(stream), tls: None, unread: Vec::new(), seen: Arc::default() };
        wire.patience(PATIENCE);
        wire
    }

    /// When the bytes that were read last had arrived.
    pub(crate) fn arrived(&self) -> Instant {
        self.stream.arrived()
    }

    pub(crate) fn seen(&self) -> Arc<Mutex<Vec<u8>>> {
        self.seen.clone()
    }

    /// Starts TLS as the server; returns false if the handshake fails.
    pub(crate) fn start_tls(&mut self, config: &Arc<ServerConfig>) -> bool {
        assert!(self.unread.is_empty(), "a client does not send its hello before it may");
        let mut session = ServerConnection::new(config.clone()).expect("a sound configuration");
        let agreed = session.complete_io(&mut self.stream).is_ok();
        self.tls = agreed.then(|| Session::Server(Box::new(session)));
        agreed
    }

    /// Starts TLS as the client; the error says why the other side was not trusted.
    pub(crate) fn seek_tls(&mut self, config: &Arc<ClientConfig>, name: &str) -> Result<(), String> {
        assert!(self.unread.is_empty(), "a server does not speak before its client");
        let name = ServerName::try_from(name.to_owned()).expect("a name for a certificate");
        let mut session = ClientConnection::new(config.clone(), name).expect("a sound configuration");
        while session.is_handshaking() {
            session.complete_io(&mut self.stream).map_err(|error| error.to_string())?;
        }
        self.tls = Some(Session::Client(Box::new(session)));
        Ok(())
    }

    /// The server name that the client sent; `None` for an address.
    pub(crate) fn server_name(&mut self) -> Option<String> {
        self.session().server_name().map(str::to_owned)
    }

    pub(crate) fn handshake_kind(&mut self) -> HandshakeKind {
        let kind = match self.tls.as_mut().expect("this wire speaks TLS") {
            Session::Server(session) => session.handshake_kind(),
            Session::Client(session) => session.handshake_kind(),
        };
        kind.expect("the handshake is over")
    }

    /// The certificate that the server has sent.
    pub(crate) fn peer_certificate(&self) -> Vec<u8> {
        let Some(Session::Client(session)) = &self.tls else { panic!("this wire is no client under TLS") };
        session.peer_certificates().expect("the handshake is over")[0].to_vec()
    }

    /// Sends a TLS record without application data.
    pub(crate) fn send_new_keys(&mut self) {
        self.session().refresh_traffic_keys().expect("TLS 1.3 after its handshake");
        self.send("");
    }

    /// Sends a TLS close_notify. Without it, the end of the connection is unexpected.
    pub(crate) fn close_notify(&mut self) {
        self.session().send_close_notify();
        self.send("");
    }

    fn session(&mut self) -> &mut ServerConnection {
        match &mut self.tls {
            Some(Session::Server(session)) => session,
            _ => panic!("this wire is no server under TLS"),
        }
    }

    /// The address of this end.
    pub(crate) fn local(&self) -> SocketAddr {
        self.stream.local_addr().expect("a connected socket")
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.stream.peer_addr().expect("a connected socket")
    }

    /// Sets how long to wait for bytes, and for room to write them.
    pub(crate) fn patience(&self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a non-zero time");
        self.stream.set_write_timeout(Some(limit)).expect("a non-zero time");
    }

    /// Sends what it can and returns whether all was sent; many tests have a peer that stops reading.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        match &mut self.tls {
            None => self.stream.write_all(bytes.as_ref()).is_ok(),
            Some(session) => session.write(&mut self.stream, bytes.as_ref()).is_ok(),
        }
    }

    /// Closes the sending side and keeps reading.
    pub(crate) fn half_close(&mut self) {
        // The peer may have disconnected already; the next read will show it.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Makes the end of this connection a reset instead of a FIN.
    pub(crate) fn end_with_reset(&self) {
        socket2::SockRef::from(&*self.stream).set_linger(Some(Duration::ZERO)).expect("an open socket takes options");
    }

    /// Makes the receive buffer tiny, so that the peer's writes block at once if this end does not read.
    pub(crate) fn small_window(&self) {
        socket2::SockRef::from(&*self.stream).set_recv_buffer_size(4096).expect("an open socket takes options");
    }

    /// Reads the next bytes as they arrive; `Err` at the end.
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

    /// Reads everything until the peer closes.
    pub(crate) fn read_to_end(&mut self) -> (Vec<u8>, End) {
        loop {
            if let Err(end) = self.fill() {
                return (std::mem::take(&mut self.unread), end);
            }
        }
    }

    /// Reads a head with its empty line; `Err` if the connection ended before it was complete.
    pub(crate) fn read_head(&mut self) -> Result<Message, End> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                return Ok(Message::from_head(self.unread.drain(..at + 4).collect(), self.arrived()));
            }
            self.fill()?;
        }
    }

    /// Reads the body of a head, by Transfer-Encoding, else by Content-Length, else by `otherwise`.
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
        let read = match &mut self.tls {
            None => self.stream.read(&mut buffer),
            Some(session) => session.read(&mut self.stream, &mut buffer),
        };
        match read {
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

/// The body of a message that has neither Content-Length nor Transfer-Encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unframed {
    NoBody,
    UntilClose,
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
