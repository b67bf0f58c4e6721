//! A client that sends exactly the bytes it is told to and reports exactly the bytes it gets.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::ops::{Deref, DerefMut};

use socket2::{Domain, Socket, Type};

use super::message::Message;
use super::wire::{End, Unframed, Wire};

pub(crate) struct Client {
    wire: Wire,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Client { wire: Wire::new(TcpStream::connect(address).expect("a server listens")) }
    }

    /// Connects from the given loopback address, so that curtsy sees another client than 127.0.0.1.
    pub(crate) fn connect_from(source: Ipv4Addr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((source, 0)).into()).expect("all of 127.0.0.0/8 is this machine");
        socket.connect(&address.into()).expect("a server listens");
        Client { wire: Wire::new(socket.into()) }
    }

    /// Sends a head given as lines, with the empty line after it. Adds the Host field that HTTP/1.1 requires if the
    /// test gives none. `send` sends exact bytes.
    pub(crate) fn send_head(&mut self, lines: &[&str]) {
        let has_host = lines.iter().any(|line| line.get(..5).is_some_and(|name| name.eq_ignore_ascii_case("host:")));
        let wants_host = lines[0].ends_with(" HTTP/1.1") && !has_host;
        let lines = if wants_host { [lines, &["Host: ignored.test"]].concat() } else { lines.to_vec() };
        self.send(head(&lines));
    }

    /// Sends a head and reads the whole answer to it.
    pub(crate) fn ask(&mut self, lines: &[&str]) -> Message {
        self.send_head(lines);
        self.response_to(lines[0])
    }

    /// Reads the next response with its body. Not for HEAD or CONNECT.
    pub(crate) fn response(&mut self) -> Message {
        self.response_to("GET")
    }

    /// Reads the next response head, which may be a 1xx.
    pub(crate) fn response_head(&mut self) -> Message {
        self.read_head().unwrap_or_else(|end| panic!("no response, but {end:?}"))
    }

    /// Reads everything until the connection ends, and fails if it does not end.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let (rest, end) = self.read_to_end();
        assert_ne!(end, End::Silence, "the connection is still open; so far: {:?}", String::from_utf8_lossy(&rest));
        rest
    }

    /// Asserts that the connection ends now, with nothing more on it.
    pub(crate) fn expect_end(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "more bytes than expected: {:?}", String::from_utf8_lossy(&rest));
    }

    pub(crate) fn reset(self) {
        self.wire.end_with_reset();
    }

    fn response_to(&mut self, request_line: &str) -> Message {
        let mut response = self.response_head();
        if has_body(request_line, response.status()) {
            self.read_body(&mut response, Unframed::UntilClose);
        }
        response
    }
}

impl Deref for Client {
    type Target = Wire;

    fn deref(&self) -> &Wire {
        &self.wire
    }
}

impl DerefMut for Client {
    fn deref_mut(&mut self) -> &mut Wire {
        &mut self.wire
    }
}

pub(crate) fn head(lines: &[&str]) -> String {
    lines.join("\r\n") + "\r\n\r\n"
}

fn has_body(request_line: &str, status: u16) -> bool {
    let tunnel = request_line.starts_with("CONNECT ") && status / 100 == 2;
    !tunnel && !request_line.starts_with("HEAD ") && !matches!(status, 100..=199 | 204 | 304)
}
