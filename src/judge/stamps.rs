//! A connection that reports when its bytes arrived, by the kernel's timestamps.
//!
//! On loopback that is the moment at which the client sent them, however busy this process is. So no client is blamed
//! for a gap that only looks short because the request before it was read late.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

pub(super) use self::kernel::keep_time;
use crate::clock;

#[derive(Debug)]
pub struct StampedStream {
    stream: TcpStream,
    arrived: Arc<Mutex<Instant>>,
}

impl StampedStream {
    /// Takes a connection of a listener that keeps the time.
    pub fn new(stream: TcpStream) -> StampedStream {
        StampedStream { stream, arrived: Arc::new(Mutex::new(clock::now())) }
    }

    /// A handle that says when the bytes that were read last had arrived.
    pub fn arrived(&self) -> Arc<Mutex<Instant>> {
        self.arrived.clone()
    }
}

#[cfg(target_os = "linux")]
mod kernel {
    use std::io::IoSliceMut;
    use std::os::fd::AsRawFd;
    use std::time::{Duration, SystemTime};

    use nix::cmsg_space;
    use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt::ReceiveTimestampns};
    use nix::sys::time::TimeSpec;

    use super::*;

    /// Turns timestamps on; connections of a listener inherit this. The kernel begins to date packets a moment after
    /// the first socket on the machine asks for it, so a listener must ask before clients come. Without timestamps the
    /// time of reading is used.
    pub(in crate::judge) fn keep_time(socket: &impl AsFd) {
        let _ = setsockopt(socket, ReceiveTimestampns, &true);
    }

    /// Reads what is available and returns when the last byte of it arrived.
    pub(super) fn receive(stream: &impl AsRawFd, buffer: &mut [u8]) -> io::Result<(usize, Instant)> {
        let (mut space, mut pieces) = (cmsg_space!(TimeSpec), [IoSliceMut::new(buffer)]);
        let received = recvmsg::<()>(stream.as_raw_fd(), &mut pieces, Some(&mut space), MsgFlags::empty())?;
        let stamp = received.cmsgs()?.find_map(|message| match message {
            ControlMessageOwned::ScmTimestampns(time) => Some(SystemTime::UNIX_EPOCH + Duration::from(time)),
            _ => None,
        });
        // The kernel's clock is the wall clock.
        Ok((received.bytes, stamp.map_or_else(clock::now, clock::moment_of)))
    }
}

/// Other systems do not date the bytes of a connection: the time of reading is used.
#[cfg(not(target_os = "linux"))]
mod kernel {
    use super::*;

    pub(in crate::judge) fn keep_time(_socket: &impl AsFd) {}

    pub(super) fn receive(stream: &impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Instant)> {
        Ok((rustix::io::read(stream, buffer)?, clock::now()))
    }
}

impl AsyncRead for StampedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            let read = || kernel::receive(&self.stream, buffer.initialize_unfilled());
            match self.stream.try_io(Interest::READABLE, read) {
                Ok((count, arrived)) => {
                    buffer.advance(count);
                    *self.arrived.lock() = arrived;
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for StampedStream {
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

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use tokio::io::AsyncReadExt;

    use super::*;

    /// The first bytes may come before the kernel has begun to date packets.
    #[tokio::test]
    async fn bytes_are_dated_when_they_are_sent() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        keep_time(&listener);
        let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut stream = StampedStream::new(listener.accept().await.unwrap().0);
        for _ in 0..100 {
            sender.write_all(b"now").unwrap();
            let sent = clock::now();
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 3);
            if *stream.arrived().lock() <= sent + Duration::from_millis(5) {
                return;
            }
        }
        panic!("always dated when they were read");
    }
}
