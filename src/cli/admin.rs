//! Asking a running curtsy: where its admin listener is, and one GET to it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::config::Config;

/// Somebody on this machine, or in its network, answers or is not there.
pub(super) const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// More than any answer has.
const LONGEST_ANSWER: u64 = 64 << 20;

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

/// The address in a URL such as `http://127.0.0.1:3129`.
pub(super) fn of_url(url: &str) -> Result<SocketAddr, String> {
    let rest = url.strip_prefix("http://").ok_or("the URL must begin with http://")?;
    let authority = rest.split('/').next().unwrap_or_default();
    let found = authority.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))?.next();
    found.ok_or_else(|| format!("{authority} has no address"))
}

/// Where a curtsy with this configuration can be asked; `None` if its admin listener is off.
pub(super) fn of_config(config: &Config) -> Option<SocketAddr> {
    let mut address = config.admin?;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    Some(address)
}

/// `Err` with a kind of [`io::ErrorKind::InvalidData`] if somebody answers who speaks no HTTP.
pub(super) fn get(stream: &TcpStream, path: &str, token: Option<&str>, patience: Duration) -> io::Result<Answer> {
    let (mut stream, address) = (stream, stream.peer_addr()?);
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    // In HTTP/1.0 an answer is never chunked, and ends with its connection.
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n{token}\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.take(LONGEST_ANSWER).read_to_end(&mut answer)?;
    read(&String::from_utf8_lossy(&answer))
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "that is not curtsy"))
}

fn read(answer: &str) -> Option<Answer> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.get(2..5)?.parse().ok()?;
    Some(Answer { status, body: body.to_owned() })
}
