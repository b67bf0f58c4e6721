//! The messages of origin and clients, as fixed bytes, and a cheap way to read them.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::task::{Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

/// The last byte of an answer. It occurs in no head, so it ends an answer whatever fields curtsy adds.
pub(crate) const END: u8 = b'~';
pub(crate) const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nhello~";
pub(crate) const NO_ROBOTS: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

const OCTET: usize = 250;

/// The address of a host. Hosts are loopback addresses, so that no name has to be resolved.
pub(crate) fn address(host: usize) -> Ipv4Addr {
    let octet = |value: usize| (value % OCTET) as u8 + 1;
    Ipv4Addr::new(127, octet(host / OCTET / OCTET), octet(host / OCTET), octet(host))
}

pub(crate) fn host(address: Ipv4Addr) -> usize {
    address.octets()[1..].iter().fold(0, |host, &octet| host * OCTET + usize::from(octet) - 1)
}

/// Passes the received bytes to `look`. The buffer is on the stack, where all connections share it and it stays in the
/// cache. A read that does not fill it is known to be the last: no second read is made to see that nothing is left.
pub(crate) async fn hear<T>(stream: &mut TcpStream, mut look: impl FnMut(&[u8]) -> T) -> io::Result<T> {
    poll_fn(|cx| {
        let mut bytes = [MaybeUninit::uninit(); 2048];
        let mut buffer = ReadBuf::uninit(&mut bytes);
        ready!(Pin::new(&mut *stream).poll_read(cx, &mut buffer))?;
        match buffer.filled() {
            [] => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            piece => Poll::Ready(Ok(look(piece))),
        }
    })
    .await
}
