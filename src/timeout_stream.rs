//! A stream that gives up on a peer that is silent for too long.
//!
//! hyper owns the stream while it reads and writes. The code that knows what is awaited (a request head, a response,
//! the next byte of a tunnel) sets the time limit through a shared [`Deadline`].
//!
//! Cheap on purpose: every request passes here four times. Moving a limit is one store. The timer is armed only when a
//! read would block, and is left alone when the limit moves to a later time: it fires early, sees that, and is set
//! again. When the limit is reached, the stream returns an error of kind `TimedOut`.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::clock;

/// How long the peer may be silent; shared by the stream and its users. All times are milliseconds after `base`.
#[derive(Debug)]
pub struct Deadline {
    base: Instant,
    at: AtomicU64,
    /// When the next byte arrives, the limit becomes this long from then, only once. 0 = leave the limit alone.
    on_first: AtomicU32,
    /// When any byte arrives, the limit becomes this long from then. 0 = leave the limit alone.
    on_each: AtomicU32,
    /// Whether a byte has arrived since the last [`Deadline::listen`].
    heard: AtomicBool,
    /// Whether no request is under way.
    resting: AtomicBool,
    /// Whether the connection ends as soon as no request is under way.
    dismissed: AtomicBool,
    /// The waker of the task that waits for the peer, if the connection can be dismissed.
    waiting: Option<Mutex<Option<Waker>>>,
}

const NEVER: u64 = u64::MAX;

impl Deadline {
    pub fn none() -> Self {
        Deadline {
            base: clock::now(),
            at: AtomicU64::new(NEVER),
            on_first: AtomicU32::new(0),
            on_each: AtomicU32::new(0),
            heard: AtomicBool::new(false),
            resting: AtomicBool::new(false),
            dismissed: AtomicBool::new(false),
            waiting: None,
        }
    }

    /// Creates a limit for a connection that can be [dismissed](Limit::dismiss).
    pub fn watched() -> Self {
        Deadline { waiting: Some(Mutex::default()), ..Deadline::none() }
    }

    /// Ends the connection: now if no request is under way, otherwise when the present request is over.
    pub fn dismiss(&self) {
        self.dismissed.store(true, Relaxed);
        if self.resting.load(Relaxed) {
            self.end();
        }
    }

    pub fn is_dismissed(&self) -> bool {
        self.dismissed.load(Relaxed)
    }

    /// Returns when the connection would time out, if no request is under way.
    pub fn rests_until(&self) -> Option<Instant> {
        self.resting.load(Relaxed).then(|| self.deadline()).flatten()
    }

    /// Resolves when the connection is dismissed. For a task that does not read yet.
    pub async fn dismissal(&self) {
        poll_fn(|cx| {
            self.waits(cx);
            if self.is_dismissed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Makes the limit expire now.
    fn end(&self) {
        self.at.store(0, Relaxed);
        if let Some(waker) = self.waiting.as_ref().and_then(|waiting| waiting.lock().take()) {
            waker.wake();
        }
    }

    fn waits(&self, cx: &Context<'_>) {
        let Some(waiting) = &self.waiting else { return };
        let mut waiting = waiting.lock();
        match &*waiting {
            Some(waker) if waker.will_wake(cx.waker()) => {}
            _ => *waiting = Some(cx.waker().clone()),
        }
    }

    /// Marks that no request is under way. A dismissal at the same moment may be missed; then the connection stays open
    /// until its usual time limit.
    fn rest(&self) {
        self.resting.store(true, Relaxed);
        if self.is_dismissed() {
            self.end();
        }
    }

    /// Starts to watch for the next byte.
    pub fn listen(&self) {
        self.heard.store(false, Relaxed);
    }

    pub fn has_heard(&self) -> bool {
        self.heard.load(Relaxed)
    }

    /// Removes the limit: waits as long as it takes.
    pub fn clear(&self) {
        self.resting.store(false, Relaxed);
        self.at.store(NEVER, Relaxed);
        self.on_first.store(0, Relaxed);
        self.on_each.store(0, Relaxed);
    }

    /// Everything that is awaited must arrive within this time.
    pub fn within(&self, all: Duration) {
        self.on_first.store(0, Relaxed);
        self.on_each.store(0, Relaxed);
        self.set(all, clock::now());
    }

    /// Marks that no request is under way. The next byte must arrive within `idle` of `now`, which the caller has read,
    /// and the rest of what it begins within `rest` after it.
    pub fn begin_within(&self, idle: Duration, rest: Duration, now: Instant) {
        self.on_each.store(0, Relaxed);
        self.on_first.store(millis(rest), Relaxed);
        self.set(idle, now);
        self.rest();
    }

    /// Marks that no request is under way. One must begin within `idle`.
    pub fn rest_within(&self, idle: Duration) {
        self.within(idle);
        self.rest();
    }

    /// Limits every pause between bytes to `idle`.
    pub fn each_within(&self, idle: Duration) {
        self.resting.store(false, Relaxed);
        self.on_first.store(0, Relaxed);
        self.on_each.store(millis(idle), Relaxed);
        self.set(idle, clock::now());
    }

    fn set(&self, from_now: Duration, now: Instant) {
        let at = now.saturating_duration_since(self.base) + from_now;
        self.at.store(at.as_millis() as u64, Relaxed);
    }

    fn byte_came(&self) {
        self.heard.store(true, Relaxed);
        let first = self.on_first.load(Relaxed);
        let next = if first > 0 {
            self.on_first.store(0, Relaxed);
            first
        } else {
            self.on_each.load(Relaxed)
        };
        if next > 0 {
            self.set(Duration::from_millis(u64::from(next)), clock::now());
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.at.load(Relaxed) {
            NEVER => None,
            at => Some(self.base + Duration::from_millis(at)),
        }
    }
}

/// The stream. Reads obey the limit. A write that the peer does not accept fails after `write_stall` in any case.
#[derive(Debug)]
pub struct TimeoutStream<S> {
    stream: S,
    limit: Arc<Deadline>,
    write_stall: Duration,
    write_blocked_since: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
    look: Duration,
}

impl<S> TimeoutStream<S> {
    /// `look`: the shortest limit that may be set while hyper waits without a limit and does not poll again. A limit
    /// set in that state is noticed this much later at the worst.
    pub fn new(stream: S, limit: Arc<Deadline>, write_stall: Duration, look: Duration) -> Self {
        TimeoutStream { stream, limit, write_stall, write_blocked_since: None, alarm: None, look }
    }

    pub fn get_mut(&mut self) -> &mut S {
        &mut self.stream
    }

    pub fn into_inner(self) -> S {
        self.stream
    }

    /// Watches for `deadline` in this task: pending until it has passed.
    fn poll_overdue(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if alarm.deadline() >= deadline {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(deadline);
        }
    }

    fn read_blocked(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.limit.waits(cx);
        loop {
            if let Some(deadline) = self.limit.deadline() {
                return self.poll_overdue(deadline, cx).map(|()| Err(timed_out("nothing came in time")));
            }
            let soon = clock::now() + self.look;
            ready!(self.poll_overdue(self.alarm.as_ref().map_or(soon, |alarm| alarm.deadline().min(soon)), cx));
            self.alarm = None;
        }
    }

    fn write_result<T>(&mut self, result: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_blocked_since = None;
            return result;
        }
        let since = *self.write_blocked_since.get_or_insert_with(clock::now);
        self.poll_overdue(since + self.write_stall, cx).map(|()| Err(timed_out("nothing was taken in time")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => this.read_blocked(cx),
            ready => {
                if buf.filled().len() > before {
                    this.limit.byte_came();
                }
                ready
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.write_result(result, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.write_result(result, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(cx);
        this.write_result(result, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

fn timed_out(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, what)
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::sleep;

    use super::*;

    const SEC: Duration = Duration::from_secs(1);

    fn pair() -> (TimeoutStream<DuplexStream>, DuplexStream, Arc<Deadline>) {
        let (near, far) = duplex(16);
        let limit = Arc::new(Deadline::none());
        (TimeoutStream::new(near, limit.clone(), 5 * SEC, SEC), far, limit)
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_given_up() {
        let (mut near, _far, limit) = pair();
        limit.within(3 * SEC);
        let before = clock::now();
        assert_eq!(near.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(clock::now() - before >= 3 * SEC);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_moved_later_or_earlier_holds() {
        let (mut near, _far, limit) = pair();
        limit.within(2 * SEC);
        tokio::select! { _ = near.read_u8() => panic!("too early"), () = sleep(SEC) => {} }
        limit.within(10 * SEC);
        tokio::select! { _ = near.read_u8() => panic!("too early"), () = sleep(9 * SEC) => {} }
        limit.within(100 * SEC);
        tokio::select! { _ = near.read_u8() => panic!("too early"), () = sleep(50 * SEC) => {} }
        limit.within(SEC);
        let before = clock::now();
        near.read_u8().await.unwrap_err();
        assert!(clock::now() - before < 2 * SEC);
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_set_between_polls_is_noticed() {
        let (mut near, _far, limit) = pair();
        let reading = tokio::spawn(async move { near.read_u8().await.unwrap_err().kind() });
        sleep(10 * SEC).await;
        let before = clock::now();
        limit.within(3 * SEC);
        assert_eq!(reading.await.unwrap(), io::ErrorKind::TimedOut);
        assert!(clock::now() - before <= 4 * SEC);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dismissed_peer_is_left_at_once_or_after_its_answer() {
        for is_busy in [false, true] {
            let (near, _far) = duplex(16);
            let limit = Arc::new(Deadline::watched());
            let mut near = TimeoutStream::new(near, limit.clone(), 5 * SEC, SEC);
            limit.begin_within(60 * SEC, 3 * SEC, clock::now());
            if is_busy {
                limit.clear();
            }
            let before = clock::now();
            let reading = tokio::spawn(async move { near.read_u8().await.unwrap_err().kind() });
            tokio::task::yield_now().await;
            limit.dismiss();
            if is_busy {
                sleep(10 * SEC).await;
                assert!(!reading.is_finished());
                limit.begin_within(60 * SEC, 3 * SEC, clock::now());
            }
            assert_eq!(reading.await.unwrap(), io::ErrorKind::TimedOut);
            assert_eq!(clock::now() - before, if is_busy { 10 * SEC } else { Duration::ZERO });
        }
    }

    #[tokio::test(start_paused = true)]
    async fn trickling_bytes_do_not_stretch_a_head() {
        let (mut near, mut far, limit) = pair();
        limit.begin_within(60 * SEC, 3 * SEC, clock::now());
        let trickle = tokio::spawn(async move {
            sleep(50 * SEC).await;
            while far.write_u8(b'x').await.is_ok() {
                sleep(SEC).await;
            }
        });
        let before = clock::now();
        while near.read_u8().await.is_ok() {}
        let waited = clock::now() - before;
        assert!(waited >= 53 * SEC && waited < 55 * SEC, "{waited:?}");
        drop(near);
        trickle.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn each_byte_renews_a_tunnels_patience() {
        let (mut near, mut far, limit) = pair();
        limit.each_within(3 * SEC);
        for _ in 0..5 {
            far.write_u8(b'x').await.unwrap();
            near.read_u8().await.unwrap();
            sleep(2 * SEC).await;
        }
        assert!(near.read_u8().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (mut near, _far, _limit) = pair();
        let before = clock::now();
        let error = near.write_all(&[0; 100]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(clock::now() - before >= 5 * SEC);
    }
}
