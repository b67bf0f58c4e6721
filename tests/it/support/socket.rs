//! Sockets that report when their bytes arrived, by the kernel's timestamps.
//!
//! On loopback that is the moment they were sent, however long the reading thread had to wait on a busy machine. A time
//! taken by that thread would be late, and the next gap would be too short by as much.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant, UNIX_EPOCH};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};
use nix::sys::time::TimeSpec;

use super::deadline::{moment, now};

/// Turns kernel timestamps on for a socket. Connections of a listener inherit this.
pub(crate) fn keep_time(socket: &impl AsFd) {
    setsockopt(socket, ReceiveTimestampns, &true).expect("an open socket takes options");
}

/// Reads what is available and returns when the last byte of it arrived.
fn receive(stream: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Instant)> {
    let (mut space, mut pieces) = (cmsg_space!(TimeSpec), [IoSliceMut::new(buffer)]);
    let received = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut space), MsgFlags::empty())?;
    let stamp = received.cmsgs()?.find_map(|message| match message {
        ControlMessageOwned::ScmTimestampns(time) => Some(UNIX_EPOCH + Duration::from(time)),
        _ => None,
    });
    // The end of a connection has no timestamp.
    Ok((received.bytes, stamp.map_or_else(now, moment)))
}

/// A blocking socket, for threads. Tasks use the stream of `curtsy judge`.
pub(crate) struct Socket {
    stream: TcpStream,
    arrived: Instant,
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> Self {
        keep_time(&stream);
        Socket { stream, arrived: now() }
    }

    /// When the bytes that were read last had arrived.
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

/// The timestamp is that of the send, not of the read.
#[test]
fn bytes_are_dated_when_they_are_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    keep_time(&listener);
    let mut sender = TcpStream::connect(listener.local_addr().expect("a bound listener")).expect("a server listens");
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
