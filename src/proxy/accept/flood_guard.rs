//! A client's HTTP/2 connection, which ends if the client sends too many frames that ask for nothing: each frame is
//! work for curtsy, so an attacker sends many of them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::frames::{Chatter, Follower, PREFACE};

#[derive(Debug)]
pub(crate) struct FloodGuard<S> {
    stream: S,
    inward: Follower,
    outward: Follower,
    chatter: Chatter,
}

impl<S> FloodGuard<S> {
    pub(crate) fn new(stream: S) -> Self {
        FloodGuard { stream, inward: Follower::new(PREFACE), outward: Follower::new(0), chatter: Chatter::default() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FloodGuard<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let outcome = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.inward.follow(&buf.filled()[before..], |frame| this.chatter.read(frame));
        if this.chatter.is_too_much() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "too many frames that say nothing")));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FloodGuard<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let outcome = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let Poll::Ready(Ok(written)) = outcome {
            this.outward.follow(&buf[..written], |frame| this.chatter.wrote(frame));
        }
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
