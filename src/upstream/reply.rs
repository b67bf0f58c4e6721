//! A response body, and the connection on which it arrives.
//!
//! The connection goes back to the pool when the body is complete, and is closed when the body is dropped before that.
//! Bytes are passed on as they arrive, never stored and never decompressed.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::body::without_forbidden_trailers;
use super::chunked::{Chunks, Piece};
use super::connection::Connection;
use super::head::Framing;
use super::http2;
use super::pool::Pool;

#[derive(Debug)]
pub struct Reply {
    source: BodySource,
    /// The address of the origin; `None` if a parent proxy is in between.
    peer: Option<IpAddr>,
    is_delimited: bool,
}

#[derive(Debug)]
enum BodySource {
    Own(Coming),
    Shared(http2::StreamReply),
}

/// A body on a connection of its own.
#[derive(Debug)]
struct Coming {
    left: Left,
    lease: Option<Lease>,
}

#[derive(Debug)]
enum Left {
    Length(u64),
    Chunks(Chunks),
    UntilClose,
}

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) connection: Box<Connection>,
    pub(super) pool: Arc<Pool>,
    pub(super) pool_per_host: usize,
    pub(super) keep_alive: bool,
}

/// Why a body was cut off. The client's connection is then closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    Truncated,
    Malformed,
    TimedOut,
    Reset,
}

impl Reply {
    pub(super) fn new(framing: Framing, lease: Lease) -> Self {
        let (peer, is_delimited) = (lease.connection.peer(), matches!(framing, Framing::Length(_) | Framing::Chunked));
        let left = match framing {
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked | Framing::ChunkedDespiteLength => Left::Chunks(Chunks::new()),
            Framing::UntilClose => Left::UntilClose,
        };
        let mut coming = Coming { left, lease: Some(lease) };
        if coming.is_over() {
            coming.give_back();
        }
        Reply { source: BodySource::Own(coming), peer, is_delimited }
    }

    pub(super) fn shared(reply: http2::StreamReply, peer: Option<IpAddr>) -> Self {
        Reply { source: BodySource::Shared(reply), peer, is_delimited: true }
    }

    /// The address that the body comes from; `None` if a parent proxy is in between.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether the end of the body is certain: it has a length or is chunked, not both, or came over HTTP/2.
    pub fn is_delimited(&self) -> bool {
        self.is_delimited
    }
}

impl Coming {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame<Bytes>>, Broken>> {
        let Some(lease) = &mut self.lease else { return Poll::Ready(Ok(None)) };
        lease.connection.push(cx);
        loop {
            let buffer = lease.connection.buffer();
            match &mut self.left {
                Left::Length(0) => return Poll::Ready(Ok(None)),
                Left::Length(left) if !buffer.is_empty() => {
                    let now = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                    *left -= now as u64;
                    return Poll::Ready(Ok(Some(Frame::data(buffer.split_to(now).freeze()))));
                }
                Left::UntilClose if !buffer.is_empty() => {
                    return Poll::Ready(Ok(Some(Frame::data(buffer.split().freeze()))));
                }
                Left::Length(_) | Left::UntilClose => {}
                Left::Chunks(chunks) => match chunks.next(buffer).map_err(|_| Broken::Malformed)? {
                    Piece::Content(content) => return Poll::Ready(Ok(Some(Frame::data(content)))),
                    Piece::Trailers(trailers) => return Poll::Ready(Ok(Some(Frame::trailers(trailers)))),
                    Piece::End => return Poll::Ready(Ok(None)),
                    Piece::Hungry => {}
                },
            }
            match ready!(lease.connection.poll_fill(cx)) {
                Ok(0) if matches!(self.left, Left::UntilClose) => return Poll::Ready(Ok(None)),
                Ok(0) => return Poll::Ready(Err(Broken::Truncated)),
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Broken::by(&error))),
            }
        }
    }

    fn give_back(&mut self) {
        if let Some(Lease { mut connection, pool, pool_per_host, keep_alive }) = self.lease.take()
            && keep_alive
            && connection.has_sent_all()
            && connection.rest()
        {
            pool.put(connection, pool_per_host);
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let next = ready!(self.poll_next(cx));
        if next.is_err() {
            self.lease = None;
        } else if matches!(next, Ok(None)) || self.is_over() {
            self.give_back();
        }
        Poll::Ready(next.transpose())
    }

    fn is_over(&self) -> bool {
        match &self.left {
            Left::Length(left) => *left == 0,
            // hyper polls for nothing after trailers.
            Left::Chunks(chunks) => chunks.is_over(),
            Left::UntilClose => false,
        }
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = match &mut self.get_mut().source {
            BodySource::Own(coming) => coming.poll_frame(cx),
            BodySource::Shared(reply) => Pin::new(reply).poll_frame(cx),
        };
        frame.map(|frame| frame.map(|frame| frame.map(without_forbidden_trailers)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Own(coming) => coming.is_over(),
            BodySource::Shared(reply) => reply.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Own(Coming { left: Left::Length(length), .. }) => SizeHint::with_exact(*length),
            BodySource::Own(_) => SizeHint::default(),
            BodySource::Shared(reply) => reply.size_hint(),
        }
    }
}

impl Broken {
    fn by(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::TimedOut => Broken::TimedOut,
            // TLS that ends without a close_notify: anyone on the network path could have caused this end (RFC 9112,
            // section 9.8).
            io::ErrorKind::UnexpectedEof => Broken::Truncated,
            _ => Broken::Reset,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::Truncated => "the origin closed in the middle of the body",
            Broken::Malformed => "the body is malformed",
            Broken::TimedOut => "the origin stalled in the middle of the body",
            Broken::Reset => "the connection broke in the middle of the body",
        })
    }
}

impl std::error::Error for Broken {}
