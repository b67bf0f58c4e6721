//! A stream that sees which frames pass through it, and so knows what the `h2` crate does not report.
//!
//! Above all it knows when a request's head has really left, which is when a request starts, and which requests an
//! origin that sends GOAWAY may have processed. It also ends a connection whose origin sends only frames without
//! purpose.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock;
use crate::frames::{Chatter, Follower, Frame, PREFACE};
use crate::upstream::error::UpstreamError;
use crate::upstream::tls_fault::HandshakeFault;

/// What was seen, for the users of the connection.
#[derive(Debug)]
pub(super) struct WitnessRecord {
    /// The last stream whose request head was handed to the stream below, and the last whose head has left it.
    written: u32,
    left: u32,
    /// Written data waits for the origin to accept it.
    pub(super) blocked: bool,
    /// The origin's settings, which must come first, have arrived.
    pub(super) settled: bool,
    /// Another frame arrived before the settings.
    unsettled: bool,
    /// The origin accepts no more requests, and has processed none beyond this stream.
    pub(super) last_stream: Option<u32>,
    pub(super) heard: Instant,
    chatter: Chatter,
    /// Why the stream ended, if it ended with an error.
    pub(super) cut: Option<Cut>,
    /// The tasks that wait for a head to leave.
    waiting: Vec<Waker>,
}

/// An error of the stream, for every request that it affects.
#[derive(Clone, Debug)]
pub(super) enum Cut {
    /// The origin's first frame is not its settings.
    Unsettled,
    Chatter,
    Handshake(HandshakeFault),
    Stream(io::ErrorKind),
}

#[derive(Debug)]
pub(super) struct Witness<S> {
    stream: S,
    record: Arc<Mutex<WitnessRecord>>,
    outward: Follower,
    inward: Follower,
}

impl WitnessRecord {
    fn new() -> Self {
        WitnessRecord {
            written: 0,
            left: 0,
            blocked: false,
            settled: false,
            unsettled: false,
            last_stream: None,
            heard: clock::now(),
            chatter: Chatter::default(),
            cut: None,
            waiting: Vec::new(),
        }
    }

    /// Whether the whole head of this stream's request is with the origin, or on its way there.
    pub(super) fn has_left(&self, stream: u32) -> bool {
        self.left >= stream
    }

    /// Whether the origin cannot have seen the whole head.
    pub(super) fn was_kept(&self, stream: u32) -> bool {
        self.written < stream
    }

    /// Wakes this task when a head leaves.
    pub(super) fn watch(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|known| known.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    fn wrote(&mut self, frame: Frame) {
        if frame.ends_head() {
            self.written = self.written.max(frame.stream);
        }
        self.chatter.wrote(frame);
    }

    fn flushed(&mut self) {
        self.blocked = false;
        if self.left < self.written {
            self.left = self.written;
            self.waiting.drain(..).for_each(Waker::wake);
        }
    }

    fn read(&mut self, frame: Frame) {
        self.settled |= frame.tells_settings();
        if let Some(last) = frame.last_stream() {
            self.last_stream = Some(self.last_stream.unwrap_or(last).min(last));
        }
        self.unsettled |= !self.settled;
        self.chatter.read(frame);
    }

    /// Ends the connection of an origin that begins with something other than HTTP/2, or sends only frames without
    /// purpose.
    fn check(&mut self) -> io::Result<()> {
        let cut = match self.chatter.is_too_much() {
            _ if self.unsettled => Cut::Unsettled,
            true => Cut::Chatter,
            false => return Ok(()),
        };
        self.cut = Some(cut);
        Err(io::ErrorKind::InvalidData.into())
    }
}

impl Cut {
    fn by(error: &io::Error) -> Self {
        match UpstreamError::reading(error) {
            UpstreamError::Handshake(fault) => Cut::Handshake(fault),
            _ => Cut::Stream(error.kind()),
        }
    }

    pub(super) fn error(self) -> UpstreamError {
        match self {
            Cut::Unsettled => UpstreamError::Protocol("it does not begin with HTTP/2".to_owned()),
            Cut::Chatter => UpstreamError::Protocol("too many frames that say nothing".to_owned()),
            Cut::Handshake(fault) => UpstreamError::Handshake(fault),
            // On this stream only writes have a limit.
            Cut::Stream(io::ErrorKind::TimedOut) => UpstreamError::WriteTimeout,
            Cut::Stream(io::ErrorKind::BrokenPipe) => UpstreamError::Closed,
            Cut::Stream(kind) => UpstreamError::reading(&kind.into()),
        }
    }
}

impl<S> Witness<S> {
    pub(super) fn new(stream: S) -> (Self, Arc<Mutex<WitnessRecord>>) {
        let record = Arc::new(Mutex::new(WitnessRecord::new()));
        let (outward, inward) = (Follower::new(PREFACE), Follower::new(0));
        (Witness { stream, record: record.clone(), outward, inward }, record)
    }

    fn settle<T>(&mut self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        match &outcome {
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => {
                self.record.lock().cut.get_or_insert_with(|| Cut::by(error));
            }
            Poll::Pending => self.record.lock().blocked = true,
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Witness<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, buf);
        match &outcome {
            Poll::Ready(Ok(())) if buf.filled().len() > before => {
                let mut record = this.record.lock();
                record.heard = clock::now();
                this.inward.follow(&buf.filled()[before..], |frame| record.read(frame));
                Poll::Ready(record.check())
            }
            Poll::Pending => outcome,
            Poll::Ready(_) => this.settle(outcome),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Witness<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            let mut record = this.record.lock();
            this.outward.follow(&buf[..written], |frame| record.wrote(frame));
        }
        this.settle(outcome)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = outcome {
            this.record.lock().flushed();
        }
        this.settle(outcome)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const HEAD: &[u8] = b"\x00\x00\x10\x01\x05\x00\x00\x00\x01 sixteen bytes. ";

    fn polled<T>(future: impl Future<Output = T>) -> Poll<T> {
        std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn a_head_has_left_when_all_of_it_is_through() {
        let (near, mut far) = duplex(20);
        let (mut witness, record) = Witness::new(near);
        assert_eq!(witness.write(b"PRI * HTTP/2.0\r\n\r\nSM").await.unwrap(), 20);
        assert!(polled(witness.write(b"\r\n\r\n")).is_pending());
        assert!(record.lock().blocked);
        far.read_exact(&mut [0; 20]).await.unwrap();
        witness.write_all(b"\r\n\r\n").await.unwrap();
        assert_eq!(witness.write(HEAD).await.unwrap(), 16);
        assert!(record.lock().was_kept(1), "the origin has but a part");
        far.read_exact(&mut [0; 20]).await.unwrap();
        witness.write_all(&HEAD[16..]).await.unwrap();
        assert!(!record.lock().was_kept(1) && !record.lock().has_left(1), "it may be in a buffer of TLS");
        witness.flush().await.unwrap();
        let record = record.lock();
        assert!(record.has_left(1) && !record.has_left(3) && !record.blocked);
    }

    #[tokio::test]
    async fn an_origin_is_heard_out() {
        let (near, mut far) = duplex(1 << 16);
        let (mut witness, record) = Witness::new(near);
        far.write_all(b"\0\0\0\x04\0\0\0\0\0").await.unwrap();
        witness.read_exact(&mut [0; 9]).await.unwrap();
        assert!(record.lock().settled && record.lock().last_stream.is_none());
        for last in [b"\x7f\xff\xff\xff", b"\0\0\0\x05"] {
            far.write_all(b"\0\0\x08\x07\0\0\0\0\0").await.unwrap();
            far.write_all(last).await.unwrap();
            far.write_all(&[0; 4]).await.unwrap();
            witness.read_exact(&mut [0; 17]).await.unwrap();
        }
        assert_eq!(record.lock().last_stream, Some(5));
        far.write_all(&b"\0\0\0\x06\0\0\0\0\0".repeat(1001)).await.unwrap();
        assert!(witness.read_exact(&mut [0; 1001 * 9]).await.is_err());
        assert!(matches!(record.lock().cut, Some(Cut::Chatter)));
    }
}
