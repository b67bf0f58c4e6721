//! When the heads of HTTP/2 requests arrived.
//!
//! The kernel dates bytes that wait in a socket with the time at which the last of them came. So the time of a head is
//! exact only if nothing was read behind it. Otherwise it is late, never early: a busy origin may read two requests at
//! once. Such a head came after the read before, which had left nothing behind.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use curtsy::judge::StampedStream;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::server::TlsStream;

use super::deadline::now;

/// A head came between these two times, which are the same if the time is exact.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadTime {
    pub(crate) from: Instant,
    pub(crate) at: Instant,
}

/// The heads by stream, and the one behind which nothing was read so far.
#[derive(Default)]
pub(crate) struct HeadTimes {
    times: HashMap<u32, HeadTime>,
    last: Option<(u32, SocketRead)>,
}

impl HeadTimes {
    pub(crate) fn of(&self, stream: u32) -> HeadTime {
        self.times[&stream]
    }

    /// Something came behind the last head.
    fn pass_last(&mut self) {
        let Some((stream, read)) = self.last.take() else { return };
        self.times.entry(stream).and_modify(|time| time.from = read.from);
    }
}

/// The latest read from the socket.
#[derive(Clone, Copy)]
struct SocketRead {
    number: u64,
    /// All bytes before this time were read before.
    from: Instant,
    /// It took all that was there, up to the end of a TLS record.
    is_whole: bool,
}

/// The stream below TLS.
pub(crate) struct RecordStream {
    stream: StampedStream,
    records: Cutter,
    latest: Arc<Mutex<SocketRead>>,
    /// When the latest read began that left nothing behind.
    drained: Instant,
}

/// The stream between TLS and HTTP/2.
pub(crate) struct FrameStream {
    stream: TlsStream<RecordStream>,
    frames: Cutter,
    arrived: Arc<Mutex<tokio::time::Instant>>,
    latest: Arc<Mutex<SocketRead>>,
    heads: Arc<Mutex<HeadTimes>>,
}

/// Cuts bytes into records or frames: heads of one size that say how much content follows.
struct Cutter {
    head: Vec<u8>,
    size: usize,
    length: fn(&[u8]) -> usize,
    /// Content that is still to come.
    left: usize,
}

impl Cutter {
    fn new(skip: usize, size: usize, length: fn(&[u8]) -> usize) -> Self {
        Cutter { head: Vec::new(), size, length, left: skip }
    }

    /// Calls `each` with the head of every piece that ends in these bytes. Returns whether they end with a piece.
    fn cut(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) -> bool {
        loop {
            let passed = self.left.min(bytes.len());
            (self.left, bytes) = (self.left - passed, &bytes[passed..]);
            if self.left == 0 && self.head.len() == self.size {
                each(&self.head);
                self.head.clear();
            }
            let Some((&byte, rest)) = bytes.split_first() else { return self.left == 0 && self.head.is_empty() };
            (self.head, bytes) = ([&self.head[..], &[byte]].concat(), rest);
            if self.head.len() == self.size {
                self.left = (self.length)(&self.head);
            }
        }
    }
}

impl RecordStream {
    /// `opened`: a moment before the first byte came.
    pub(crate) fn new(stream: StampedStream, opened: Instant) -> Self {
        let length = |head: &[u8]| usize::from(u16::from_be_bytes([head[3], head[4]]));
        let latest = Arc::new(Mutex::new(SocketRead { number: 0, from: opened, is_whole: false }));
        RecordStream { stream, records: Cutter::new(0, 5, length), latest, drained: opened }
    }
}

impl FrameStream {
    const PREFACE: usize = 24;
    const HEADERS: u8 = 1;
    const CONTINUATION: u8 = 9;
    const END_HEADERS: u8 = 4;

    /// Returns the stream, and where it notes the heads that pass.
    pub(crate) fn new(stream: TlsStream<RecordStream>) -> (Self, Arc<Mutex<HeadTimes>>) {
        let length = |head: &[u8]| u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let below = stream.get_ref().0;
        let (arrived, latest) = (below.stream.arrived(), below.latest.clone());
        let heads = Arc::<Mutex<HeadTimes>>::default();
        let frames = Cutter::new(Self::PREFACE, 9, length);
        (FrameStream { stream, frames, arrived, latest, heads: heads.clone() }, heads)
    }

    fn note(&mut self, bytes: &[u8]) {
        let (at, read) = (self.arrived.lock().into_std(), *self.latest.lock());
        let mut heads = self.heads.lock();
        if heads.last.is_some_and(|(_, last)| last.number == read.number) {
            heads.pass_last();
        }
        let ends_whole = self.frames.cut(bytes, |frame| {
            heads.pass_last();
            let ends_head = matches!(frame[3], Self::HEADERS | Self::CONTINUATION) && frame[4] & Self::END_HEADERS != 0;
            if ends_head {
                let stream = u32::from_be_bytes([frame[5], frame[6], frame[7], frame[8]]);
                let from = if read.is_whole { at } else { read.from };
                heads.times.entry(stream).or_insert(HeadTime { from, at });
                heads.last = Some((stream, read));
            }
        });
        if !ends_whole {
            heads.pass_last();
        }
    }
}

impl AsyncRead for RecordStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (began, before) = (now(), buffer.filled().len());
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let is_drained = buffer.remaining() > 0;
        let ends_record = self.records.cut(&buffer.filled()[before..], |_| ());
        let number = self.latest.lock().number + 1;
        *self.latest.lock() = SocketRead { number, from: self.drained, is_whole: is_drained && ends_record };
        if is_drained {
            self.drained = began;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for FrameStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.note(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

/// Writes pass as they are.
macro_rules! write_through {
    ($name:ident) => {
        impl AsyncWrite for $name {
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
    };
}

write_through!(RecordStream);
write_through!(FrameStream);

/// The bytes may be cut anywhere.
#[test]
fn pieces_are_found_however_the_bytes_are_cut() {
    let bytes = [b"skipped".as_slice(), b"a2xxb0c3yyy"].concat();
    for size in 1..=bytes.len() {
        let mut cutter = Cutter::new(7, 2, |head| usize::from(head[1] - b'0'));
        let mut found = Vec::new();
        let ends: Vec<bool> = bytes.chunks(size).map(|part| cutter.cut(part, |head| found.push(head[0]))).collect();
        assert_eq!((found.as_slice(), ends.last()), (b"abc".as_slice(), Some(&true)), "{size} at a time");
        assert!(!cutter.cut(b"d", |_| ()));
    }
}
