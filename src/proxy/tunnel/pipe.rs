//! One direction of a tunnel: moves bytes from one stream to the other, as far as the caller lets them pass.
//!
//! Reads into a buffer that all tunnels of a worker share, and writes from it at once. Only what cannot or may not be
//! written yet is kept. So a tunnel in which nothing moves costs no buffer, and a slow reader slows its writer: nothing
//! is read while something is kept, except for a little that shows whether a waiting client is still connected.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once, at first and at most. A GiB takes 1.0 s of CPU time in pieces of 16 KiB, 0.85 s in pieces
/// of 64 KiB and 0.7 s in pieces of 256 KiB, where splice(2) takes 0.55 s; but what a slow reader leaves has to be
/// kept.
const AT_FIRST: usize = 16 * 1024;
const AT_ONCE: usize = 256 * 1024;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; AT_ONCE]);
}

#[derive(Debug)]
pub(crate) struct Pipe {
    /// What was read and is not written yet, after `gone` bytes that are.
    kept: Vec<u8>,
    gone: usize,
    /// How much to read at once: more while all of it is taken, less when it is not.
    reach: usize,
    /// How much is kept of a source that is held back.
    most_waiting: usize,
    /// This many of the next bytes may pass.
    cleared: usize,
    /// Nothing may pass at present.
    held: bool,
    /// The source has ended.
    ended: bool,
    /// The end has been passed on to the other side.
    closed: bool,
    /// Something was written that may need a flush to go out.
    unflushed: bool,
    /// Bytes written so far.
    moved: u64,
}

/// Why there is nothing more to write.
enum PipeStop {
    /// Everything is written.
    Empty,
    /// The other end takes no more at present.
    Full,
    Held,
    /// What is left is not enough to tell whether it may pass.
    Hungry,
}

impl Pipe {
    /// Creates a pipe with bytes that go first, and with a limit for what is kept while nothing may pass.
    pub(crate) fn with(kept: Vec<u8>, most_waiting: usize) -> Self {
        Pipe {
            kept,
            most_waiting,
            gone: 0,
            reach: AT_FIRST,
            cleared: 0,
            held: false,
            ended: false,
            closed: false,
            unflushed: false,
            moved: 0,
        }
    }

    /// Returns what was read and has not passed.
    pub(crate) fn into_kept(mut self) -> Vec<u8> {
        self.kept.split_off(self.gone)
    }

    fn waiting(&self) -> usize {
        self.kept.len() - self.gone
    }

    pub(crate) fn moved(&self) -> u64 {
        self.moved
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether all that was read has passed.
    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether what was read may not pass at present.
    pub(crate) fn is_held(&self) -> bool {
        self.held
    }

    /// Whether so much is held back that nothing more is read.
    pub(crate) fn is_full(&self) -> bool {
        self.held && self.waiting() >= self.most_waiting
    }

    /// Moves what can be moved; ready when the source has ended and the end has been passed on. `leave` returns how
    /// many of the bytes it is shown may pass; zero if it must see more. It is asked once for each byte that passes.
    pub(crate) fn poll_move<R, W>(
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
                    let (written, stop) = self.write(cx, &kept[self.gone..], to, &mut leave)?;
                    self.keep(kept, written);
                    if matches!(stop, PipeStop::Full) {
                        return Poll::Pending;
                    }
                }
                if self.ended && !self.held && !self.kept.is_empty() {
                    // No more bytes will come to tell what this is, so it passes as it is.
                    self.cleared = self.waiting();
                    continue;
                }
                if self.ended {
                    return if self.held { Poll::Pending } else { self.poll_close(cx, to) };
                }
                let room = if self.held { self.most_waiting.saturating_sub(self.waiting()) } else { self.reach };
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
                    if matches!(stop, PipeStop::Full) {
                        self.reach = (self.reach / 2).max(AT_FIRST);
                        return Poll::Pending;
                    }
                    if read == self.reach {
                        self.reach = (self.reach * 2).min(AT_ONCE);
                    }
                }
            }
        })
    }

    /// Writes what may pass and is taken. Returns how many bytes that was, and why not more.
    fn write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: &mut W,
        leave: &mut impl FnMut(&mut Context<'_>, &[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<(usize, PipeStop)> {
        let mut written = 0;
        self.held = false;
        while written < bytes.len() {
            if self.cleared == 0 {
                match leave(cx, &bytes[written..]) {
                    Poll::Ready(cleared) => self.cleared = cleared?,
                    Poll::Pending => {
                        self.held = true;
                        return Ok((written, PipeStop::Held));
                    }
                }
                if self.cleared == 0 {
                    return Ok((written, PipeStop::Hungry));
                }
            }
            let Poll::Ready(count) = Pin::new(&mut *to).poll_write(cx, &bytes[written..written + self.cleared])? else {
                return Ok((written, PipeStop::Full));
            };
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            written += count;
            self.cleared -= count;
            self.unflushed = true;
            self.moved += count as u64;
        }
        Ok((written, PipeStop::Empty))
    }

    /// Keeps what is not written. Once everything is written, its space is freed.
    fn keep(&mut self, bytes: Vec<u8>, written: usize) {
        self.gone += written;
        if self.gone < bytes.len() {
            self.kept = bytes;
        } else {
            self.gone = 0;
        }
    }

    /// Flushes, because there is nothing to move at present.
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

pub(crate) fn poll_read<R: AsyncRead + Unpin>(
    cx: &mut Context<'_>,
    from: &mut R,
    room: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut room = ReadBuf::new(room);
    ready!(Pin::new(from).poll_read(cx, &mut room))?;
    Poll::Ready(Ok(room.filled().len()))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::proxy::accept::client_stream::MOST_WAITING;

    /// A pipe between two streams, and their other ends: `near` is written to, `far` read from.
    struct Scene {
        pipe: Pipe,
        from: DuplexStream,
        to: DuplexStream,
        near: DuplexStream,
        far: DuplexStream,
    }

    impl Scene {
        fn new() -> Self {
            let ((near, from), (to, far)) = (duplex(1 << 20), duplex(1000));
            Scene { pipe: Pipe::with(Vec::new(), MOST_WAITING), from, to, near, far }
        }

        /// Moves what can be moved now, with this `leave` for the bytes shown. Returns whether the pipe is over.
        async fn go(&mut self, mut leave: impl FnMut(&[u8]) -> Poll<usize>) -> bool {
            // Without this, tokio's cooperative budget runs out and the streams are never ready.
            tokio::task::yield_now().await;
            let Scene { pipe, from, to, .. } = self;
            poll_fn(|cx| Poll::Ready(pipe.poll_move(cx, from, to, |_, bytes| leave(bytes).map(Ok)).is_ready())).await
        }

        async fn heard(&mut self) -> String {
            tokio::task::yield_now().await;
            let mut room = [0; 1000];
            let mut room = ReadBuf::new(&mut room);
            poll_fn(|cx| {
                let _ = Pin::new(&mut self.far).poll_read(cx, &mut room);
                Poll::Ready(())
            })
            .await;
            String::from_utf8(room.filled().to_vec()).unwrap()
        }
    }

    fn all(bytes: &[u8]) -> Poll<usize> {
        Poll::Ready(bytes.len())
    }

    #[tokio::test]
    async fn a_slow_reader_slows_its_writer_and_gets_everything() {
        let mut scene = Scene::new();
        scene.near.write_all(&[b'x'; 3 * AT_ONCE]).await.unwrap();
        let mut heard = 0;
        while heard < 3 * AT_ONCE {
            assert!(!scene.go(all).await);
            assert!(scene.pipe.kept.len() <= AT_ONCE);
            heard += scene.heard().await.len();
        }
        scene.near.shutdown().await.unwrap();
        assert!(scene.go(all).await, "the end is passed on");
        assert_eq!(scene.far.read(&mut [0]).await.unwrap(), 0);
        assert_eq!((scene.pipe.moved(), scene.pipe.kept.capacity()), (3 * AT_ONCE as u64, 0));
    }

    #[tokio::test]
    async fn a_fast_reader_gets_larger_pieces() {
        let mut scene = Scene::new();
        let (to, far) = duplex(1 << 20);
        (scene.to, scene.far) = (to, far);
        scene.near.write_all(&[b'x'; 1 << 20]).await.unwrap();
        assert_eq!(scene.pipe.reach, AT_FIRST);
        scene.go(all).await;
        assert_eq!((scene.pipe.reach, scene.pipe.moved()), (AT_ONCE, 1 << 20));
        scene.near.write_all(&[b'x'; AT_ONCE]).await.unwrap();
        scene.go(all).await;
        assert_eq!((scene.pipe.reach, scene.pipe.waiting()), (AT_ONCE / 2, AT_ONCE));
    }

    #[tokio::test]
    async fn what_may_not_pass_waits_and_little_behind_it() {
        let mut scene = Scene::new();
        scene.near.write_all(&[b'x'; 3 * MOST_WAITING]).await.unwrap();
        let mut first = true;
        scene.go(|_| if std::mem::take(&mut first) { Poll::Ready(3) } else { Poll::Pending }).await;
        assert_eq!(scene.heard().await, "xxx");
        for _ in 0..3 {
            scene.go(|_| Poll::Pending).await;
        }
        assert!(scene.pipe.is_held() && scene.pipe.waiting() <= MOST_WAITING, "{}", scene.pipe.waiting());
        scene.go(|_| Poll::Ready(4)).await;
        assert!(!scene.pipe.is_held());
        assert!(scene.heard().await.len() > 100, "what may pass again does");
    }

    #[tokio::test]
    async fn an_end_is_noticed_while_something_waits() {
        let mut scene = Scene::new();
        scene.near.write_all(b"request").await.unwrap();
        scene.go(|_| Poll::Pending).await;
        assert!(!scene.pipe.has_ended());
        scene.near.shutdown().await.unwrap();
        assert!(!scene.go(|_| Poll::Pending).await, "what waits is not dropped");
        assert!(scene.pipe.has_ended());
        assert!(scene.go(all).await);
        assert_eq!(scene.heard().await, "request");
    }

    #[tokio::test]
    async fn what_cannot_be_told_yet_is_shown_again_with_more() {
        let mut scene = Scene::new();
        let whole = |bytes: &[u8]| Poll::Ready(if bytes.len() < 4 { 0 } else { 4 });
        for (piece, expected) in [("ab", ""), ("cde", "abcd"), ("fg", ""), ("h", "efgh"), ("ij", "")] {
            scene.near.write_all(piece.as_bytes()).await.unwrap();
            scene.go(whole).await;
            assert_eq!(scene.heard().await, expected);
        }
        scene.near.shutdown().await.unwrap();
        assert!(scene.go(whole).await);
        assert_eq!(scene.heard().await, "ij", "an end tells, too");
    }
}
