//! The client's end of a connection: plain TCP, TLS over it or an HTTP/2 stream, with bytes that were read ahead.
//!
//! An enum, because the set is closed and plain HTTP, which is the usual case, must not pay for the others. TLS wraps
//! another near end, so whatever a client's connection is made of, the rest of the code sees one type.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::first_bytes::{self, FirstBytes};

#[derive(Debug)]
pub(crate) struct ClientStream {
    /// Bytes that were read before it was known what they are; they are read again first.
    early: Bytes,
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<ClientStream>>),
    /// A stream of an HTTP/2 connection, which goes on after the stream has ended.
    Stream(Box<TokioIo<Upgraded>>),
}

/// What a client may send of one upload before the origin has taken it: the value that HTTP/2 begins with.
pub(crate) const STREAM_WINDOW: u32 = 64 * 1024;

/// How much is read from a client whose request waits. Few requests are longer.
pub(crate) const MOST_WAITING: usize = 16 * 1024;

/// Larger than the first flight of most clients, so that one read is enough to look at it.
const FIRST_READ: usize = 1024;

impl ClientStream {
    /// Puts bytes back in front of those that are still to come.
    pub(crate) fn behind(mut self, early: Bytes) -> Self {
        self.early = if self.early.is_empty() { early } else { [early, self.early].concat().into() };
        self
    }

    /// How much is read from a client whose request waits. Reading shows whether the client is still connected. An
    /// HTTP/2 stream shows that in no other way, so as much is read as its window lets the client send at first.
    pub(crate) fn most_waiting(&self) -> usize {
        match &self.wire {
            Wire::Stream(_) => STREAM_WINDOW as usize,
            Wire::Plain(_) | Wire::Tls(_) => MOST_WAITING,
        }
    }

    /// Whether the client has closed its side, checked without reading: for a client from which nothing more is read.
    /// Registers no waker, so the caller has to look now and then.
    pub(crate) fn has_left(&self, cx: &mut Context<'_>) -> bool {
        let Some(tcp) = self.tcp() else { return false };
        let ready = pin!(tcp.ready(Interest::READABLE)).poll(cx);
        matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Ends the connection with a reset, so that the client sees that something is missing.
    pub(crate) fn reset(self) {
        if let Some(tcp) = self.tcp() {
            let _ = SockRef::from(tcp).set_linger(Some(Duration::ZERO));
        }
    }

    /// Lets the end of the connection travel in one packet with the bytes that are written from now on: a client that
    /// sees the bytes sees the end. Without TCP there is nothing to be done, and other systems than Linux cannot do it.
    pub(crate) fn join_end_to_bytes(&self) {
        #[cfg(target_os = "linux")]
        if let Some(tcp) = self.tcp() {
            let _ = SockRef::from(tcp).set_tcp_cork(true);
        }
    }

    fn tcp(&self) -> Option<&TcpStream> {
        match &self.wire {
            Wire::Plain(tcp) => Some(tcp),
            Wire::Tls(tls) => tls.get_ref().0.tcp(),
            Wire::Stream(_) => None,
        }
    }

    /// Returns what the client's first bytes are, which stay to be read; `None` if it disconnects without sending any.
    /// Nothing is lost if this is dropped before its end.
    pub(crate) async fn opening(&mut self) -> io::Result<Option<FirstBytes>> {
        loop {
            match first_bytes::read(&self.early) {
                FirstBytes::More => {}
                known => return Ok(Some(known)),
            }
            let mut bytes = BytesMut::with_capacity(FIRST_READ);
            let read = match &mut self.wire {
                Wire::Plain(tcp) => tcp.read_buf(&mut bytes).await?,
                Wire::Tls(tls) => tls.read_buf(&mut bytes).await.or_else(|error| end(error).map(|()| 0))?,
                Wire::Stream(stream) => stream.read_buf(&mut bytes).await?,
            };
            if read == 0 {
                // After the end of the stream nothing can change what this is.
                return Ok((!self.early.is_empty()).then_some(FirstBytes::Other));
            }
            let early = std::mem::take(&mut self.early);
            self.early = if early.is_empty() { bytes.freeze() } else { [early, bytes.freeze()].concat().into() };
        }
    }

    /// Returns the first byte, which stays to be read; `None` if the client sends nothing.
    pub(crate) async fn first_byte(&mut self) -> io::Result<Option<u8>> {
        if self.early.is_empty() {
            let mut bytes = BytesMut::with_capacity(FIRST_READ);
            self.read_buf(&mut bytes).await?;
            self.early = bytes.freeze();
        }
        Ok(self.early.first().copied())
    }
}

impl From<Upgraded> for ClientStream {
    fn from(stream: Upgraded) -> Self {
        ClientStream { early: Bytes::new(), wire: Wire::Stream(Box::new(TokioIo::new(stream))) }
    }
}

impl From<TcpStream> for ClientStream {
    fn from(tcp: TcpStream) -> Self {
        ClientStream { early: Bytes::new(), wire: Wire::Plain(tcp) }
    }
}

impl From<TlsStream<ClientStream>> for ClientStream {
    fn from(tls: TlsStream<ClientStream>) -> Self {
        ClientStream { early: Bytes::new(), wire: Wire::Tls(Box::new(tls)) }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.early.is_empty() {
            let count = this.early.len().min(buf.remaining());
            buf.put_slice(&this.early[..count]);
            this.early.advance(count);
            return Poll::Ready(Ok(()));
        }
        match &mut this.wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Wire::Tls(tls) => Poll::Ready(ready!(Pin::new(tls).poll_read(cx, buf)).or_else(end)),
            Wire::Stream(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

/// Treats the end of a connection without a TLS `close_notify` as an ordinary end: many clients close like that, and it
/// cannot cut short what HTTP has framed.
fn end(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(error) }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Wire::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
            Wire::Stream(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Wire::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
            Wire::Stream(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_flush(cx),
            Wire::Stream(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().wire {
            Wire::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Wire::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
            Wire::Stream(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
