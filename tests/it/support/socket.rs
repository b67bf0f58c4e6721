//! Sockets that know when their bytes came, by the kernel's time.
//!
//! On loopback that is the moment they were sent, however long the thread that reads them had to wait for its turn on a
//! busy machine. A note taken by that thread would be late, and the gap behind it too short by as much.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};
use nix::sys::time::TimeSpec;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

use super::deadline::{moment, now};

/// Has the kernel note the time of whatever comes; connections of a listener do as it does.
pub(crate) fn keep_time(socket: &impl AsFd) {
    setsockopt(socket, ReceiveTimestampns, &true).expect("an open socket takes options");
}

/// What there is to read, and when the last of it came.
fn receive(stream: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Instant)> {
    let (mut space, mut pieces) = (cmsg_space!(TimeSpec), [IoSliceMut::new(buffer)]);
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut space), MsgFlags::empty())?;
    let stamp = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(UNIX_EPOCH + Duration::from(time)),
        _ => None,
    });
    // The end of a connection has no stamp.
    Ok((received.bytes, stamp.map_or_else(now, moment)))
}

/// For threads.
pub(crate) struct Socket {
    stream: TcpStream,
    arrived: Instant,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        keep_time(&stream);
        Socket { stream, arrived: now() }
    }

    /// When the last bytes that were read had come.
    pub(crate) fn arrived(&self) -> Instant {
        self.arrived
    }
}

impl Deref for Socket {
    type Target = TcpStream;

    fn deref(&self) -> &TcpStream {
        &self.stream
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (count, arrived) = receive(&self.stream, buffer)?;
        self.arrived = arrived;
        Ok(count)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.write_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// For tasks.
pub(crate) struct TaskSocket {
    stream: tokio::net::TcpStream,
    arrived: Arc<Mutex<Instant>>,
}

impl TaskSocket {
    pub(crate) fn new(stream: tokio::net::TcpStream) -> Self {
        keep_time(&stream);
        TaskSocket { stream, arrived: Arc::new(Mutex::new(now())) }
    }

    /// Shows when the last bytes that were read had come, to whom the socket itself is out of reach.
    pub(crate) fn arrived(&self) -> Arc<Mutex<Instant>> {
        self.arrived.clone()
    }
}

impl AsyncRead for TaskSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = || receive(&self.stream, buffer.initialize_unfilled());
            match self.stream.try_io(Interest::READABLE, read) {
                Ok((count, arrived)) => {
                    buffer.advance(count);
                    *self.arrived.lock().expect("nobody panics while noting") = arrived;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for TaskSocket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The note is of the moment of sending, not of reading.
#[test]
fn bytes_are_dated_when_they_are_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    keep_time(&listener);
    let mut sender = TcpStream::connect(listener.local_addr().expect("a bound listener")).expect("somebody listens");
    let mut socket = Socket::new(listener.accept().expect("a connection").0);
    let before = now();
    sender.write_all(b"now").expect("an open connection");
    let after = now();
    super::pause(super::ms(50));
    let mut buffer = [0; 16];
    assert_eq!(socket.read(&mut buffer).expect("bytes that are there"), 3);
    let close = super::ms(1);
    assert!(socket.arrived() + close >= before && socket.arrived() <= after + close, "{:?}", socket.arrived() - before);
}
