//! A stream to an origin on which the kernel keeps little that it has not sent.
//!
//! A request head that waits in the kernel behind an upload counts as sent. It would come late, and the next request
//! too soon after it. By default the kernel keeps megabytes. Here it keeps what the connection sends in [`QUEUE`]: a
//! fixed limit would either delay heads on a slow connection or cost a fast one a wake-up for every TLS record.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::clock;
use crate::upstream::stream::Stream;

/// How long a head may wait in the kernel. A tenth of a delay of 40 ms; in tests, gaps on a shared connection are exact
/// to 10 ms.
const QUEUE: Duration = Duration::from_millis(4);
/// How long bytes are counted before the limit changes. What fits into the kernel's queue counts as if it had been
/// sent, so a window that is not several times as long as the queue would let the limit grow by itself.
const WINDOW: Duration = Duration::from_millis(20);
/// The least that the kernel keeps: the size of a TLS record. Also the limit until a window is over.
const LEAST: u64 = 16 * 1024;
/// The most. An upload over loopback, at 800 MiB/s, is as fast with this limit as without one.
const MOST: u64 = 2 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ShortQueue {
    stream: Stream,
    limit: u64,
    /// Bytes written since `since`.
    written: u64,
    since: Instant,
}

impl ShortQueue {
    pub(super) fn new(stream: Stream) -> Self {
        let queue = ShortQueue { stream, limit: LEAST, written: 0, since: clock::now() };
        queue.apply();
        queue
    }

    fn wrote(&mut self, bytes: usize) {
        self.written += bytes as u64;
        let now = clock::now();
        let window = now - self.since;
        if window < WINDOW {
            return;
        }
        let limit = limit(self.written, window);
        (self.written, self.since) = (0, now);
        if limit != self.limit {
            self.limit = limit;
            self.apply();
        }
    }

    fn apply(&self) {
        #[cfg(target_os = "linux")]
        let _ = socket2::SockRef::from(self.stream.tcp()).set_tcp_notsent_lowat(self.limit as u32);
    }
}

/// What a connection that has sent this much in this time sends in [`QUEUE`], as a power of two so that the limit
/// seldom changes.
fn limit(written: u64, window: Duration) -> u64 {
    let in_queue = u128::from(written) * QUEUE.as_micros() / window.as_micros().max(1);
    let limit = u64::try_from(in_queue).unwrap_or(MOST).clamp(LEAST, MOST);
    1 << limit.ilog2()
}

impl AsyncRead for ShortQueue {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for ShortQueue {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            self.wrote(written);
        }
        outcome
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
    use super::*;

    #[test]
    fn the_limit_is_what_is_sent_in_four_milliseconds() {
        let in_a_second = |bytes| limit(bytes, Duration::from_secs(1));
        assert_eq!(in_a_second(0), LEAST);
        assert_eq!(in_a_second(4_000_000), LEAST);
        assert_eq!(in_a_second(100_000_000), 256 * 1024);
        assert_eq!(in_a_second(800_000_000), MOST);
        assert_eq!(in_a_second(u64::MAX), MOST);
    }

    /// A connection at 1 MB/s whose kernel filled its queue at once, at the largest limit.
    #[test]
    fn a_full_queue_does_not_keep_the_limit_up() {
        let mut now = MOST;
        for _ in 0..10 {
            now = limit(now + 20_000, WINDOW);
        }
        assert_eq!(now, LEAST);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test(start_paused = true)]
    async fn the_kernel_keeps_no_more_than_the_limit() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let stream = tokio::net::TcpStream::connect(listener.local_addr().expect("it is bound")).await;
        let mut queue = ShortQueue::new(Stream::Plain(stream.expect("it listens")));
        let kept = |queue: &ShortQueue| socket2::SockRef::from(queue.stream.tcp()).tcp_notsent_lowat().expect("Linux");
        assert_eq!(kept(&queue), 16 * 1024);
        queue.wrote(50_000_000);
        assert_eq!(kept(&queue), 16 * 1024, "the window is not over");
        tokio::time::advance(WINDOW).await;
        queue.wrote(0);
        assert_eq!(kept(&queue), 2 * 1024 * 1024);
        tokio::time::advance(Duration::from_secs(60)).await;
        queue.wrote(100);
        assert_eq!(kept(&queue), 16 * 1024, "an idle connection starts anew");
    }
}
