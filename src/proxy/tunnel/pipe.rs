//! One direction of a tunnel: bytes from one stream to the other, as far as somebody lets them pass.
//!
//! Reads into a buffer that all tunnels of a worker share, and writes from it at once; only what cannot be written yet,
//! or may not, is kept. So a tunnel in which nothing moves costs no buffer, and a slow reader slows its writer: nothing
//! is read while something is kept, but for a little that tells whether a client that waits is still there.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Read at once at most. Measured for one body of 1 GiB: see docs/performance.md.
const AT_ONCE: usize = 64 * 1024;
/// Kept of a client whose request waits. Few requests are longer.
const MOST_WAITING: usize = 16 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; AT_ONCE]);
}

#[derive(Debug, Default)]
pub(super) struct Pipe {
    /// What was read and is not written yet.
    kept: Vec<u8>,
    /// So many of the next bytes may pass.
    cleared: usize,
    /// Nothing may pass at present.
    held: bool,
    /// The source has ended.
    ended: bool,
    /// The other end has been told so.
    closed: bool,
    /// Something was written that may be on its way only after a flush.
    unflushed: bool,
    /// Bytes written so far.
    moved: u64,
}

/// Why there is nothing more to write.
enum Stop {
    /// Everything is written.
    Empty,
    /// The other end takes no more at present.
    Full,
    Held,
    /// What is left is not enough to tell whether it may pass.
    Hungry,
}

impl Pipe {
    /// Bytes that are to go first.
    pub(super) fn with(kept: Vec<u8>) -> Self {
        Pipe { kept, ..Pipe::default() }
    }

    pub(super) fn moved(&self) -> u64 {
        self.moved
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether what was read may not pass at present.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }

    /// Moves what can be moved; ready when the source has ended and the other end knows. `leave` says how many of the
    /// bytes it is shown may pass; zero if it must see more. It is asked once for each byte that passes.
    pub(super) fn poll_move<R, W>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
        mut leave: impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        BUFFER.with_borrow_mut(|buffer| {
            loop {
                if !self.kept.is_empty() {
                    let kept = std::mem::take(&mut self.kept);
                    let (written, stop) = self.write(cx, &kept, to, &mut leave)?;
                    self.keep(kept, written);
                    if matches!(stop, Stop::Full) {
                        return Poll::Pending;
                    }
                }
                if self.ended && !self.held && !self.kept.is_empty() {
                    // Nobody will ever tell what this is, so it goes as it is.
                    self.cleared = self.kept.len();
                    continue;
                }
                if self.ended {
                    return if self.held { Poll::Pending } else { self.poll_close(cx, to) };
                }
                let room = if self.held { MOST_WAITING.saturating_sub(self.kept.len()) } else { AT_ONCE };
                if room == 0 {
                    return Poll::Pending;
                }
                let Poll::Ready(read) = poll_read(cx, from, &mut buffer[..room])? else {
                    return self.poll_flush(cx, to);
                };
                self.ended = read == 0;
                if !self.kept.is_empty() || self.held {
                    self.kept.extend_from_slice(&buffer[..read]);
                } else if !self.ended {
                    let (written, stop) = self.write(cx, &buffer[..read], to, &mut leave)?;
                    self.kept.extend_from_slice(&buffer[written..read]);
                    if matches!(stop, Stop::Full) {
                        return Poll::Pending;
                    }
                }
            }
        })
    }

    /// Writes what may pass and is taken: how many bytes, and why not more.
    fn write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: &mut W,
        leave: &mut impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<(usize, Stop)> {
        let mut written = 0;
        self.held = false;
        while written < bytes.len() {
            if self.cleared == 0 {
                match leave(cx, &bytes[written..]) {
                    Poll::Ready(cleared) => self.cleared = cleared?,
                    Poll::Pending => {
                        self.held = true;
                        return Ok((written, Stop::Held));
                    }
                }
                if self.cleared == 0 {
                    return Ok((written, Stop::Hungry));
                }
            }
            let Poll::Ready(count) = Pin::new(&mut *to).poll_write(cx, &bytes[written..written + self.cleared])? else {
                return Ok((written, Stop::Full));
            };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += count;
            self.cleared -= count;
            self.unflushed = true;
            self.moved += count as u64;
        }
        Ok((written, Stop::Empty))
    }

    fn keep(&mut self, mut bytes: Vec<u8>, written: usize) {
        if written < bytes.len() {
            bytes.drain(..written);
            self.kept = bytes;
        }
    }

    /// There is nothing to move at present.
    fn poll_flush<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
        if self.unflushed {
            self.unflushed = Pin::new(to).poll_flush(cx)?.is_pending();
        }
        Poll::Pending
    }

    fn poll_close<W: AsyncWrite + Unpin>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
        if !self.closed {
            ready!(Pin::new(to).poll_shutdown(cx))?;
            self.closed = true;
        }
        Poll::Ready(Ok(()))
    }
}

fn poll_read<R: AsyncRead + Unpin>(cx: &mut Context<'_>, from: &mut R, room: &mut [u8]) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(room);
    ready!(Pin::new(from).poll_read(cx, &mut room))?;
    Poll::Ready(Ok(room.filled().len()))
}
