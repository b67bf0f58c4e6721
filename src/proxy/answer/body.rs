//! The body of a response to a client: an origin's body passing through, or a few bytes of curtsy's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use crate::cache::Pieces;
use crate::cache::disk::LargeBody;
use crate::politeness::reuse::storing::NotStored;
use crate::proxy::cached::StoreTap;
use crate::proxy::request::client_request::InFlight;
use crate::proxy::robots::capture::RobotsCapture;
use crate::proxy::sharing::body::BodyReader;
use crate::upstream::{Broken, Reply};

#[derive(Debug)]
pub(crate) struct Body {
    content: Content,
    /// Ends when the body ends, or when the client disconnects in the middle of it.
    in_flight: Option<Box<InFlight>>,
    /// Few answers are read along.
    readers: Option<Box<BodyReaders>>,
    /// An error of the origin, held back for one poll.
    broken: Option<Broken>,
}

/// What reads an answer along while it passes to the client.
#[derive(Debug, Default)]
struct BodyReaders {
    /// If it is a robots.txt.
    lesson: Option<Box<RobotsCapture>>,
    /// If it may be stored.
    store: Option<StoreTap>,
}

#[derive(Debug)]
enum Content {
    Own(Bytes),
    Passing(Reply),
    /// The rest of a stored answer, and its length.
    Stored(smallvec::IntoIter<[Bytes; 1]>, u64),
    /// A stored answer that is read from disk in pieces.
    OnDisk(LargeBody),
    /// An origin's body that several clients read; whether this one's request was the one that was sent.
    Shared(BodyReader, bool),
}

impl Body {
    pub(crate) fn passing(reply: Reply) -> Self {
        Body::of(Content::Passing(reply))
    }

    /// A body from the cache.
    pub(crate) fn stored(pieces: Pieces) -> Self {
        let length = pieces.iter().map(|piece| piece.len() as u64).sum();
        Body::of(Content::Stored(pieces.into_iter(), length))
    }

    /// A body that is read from disk in pieces.
    pub(crate) fn on_disk(body: LargeBody) -> Self {
        Body::of(Content::OnDisk(body))
    }

    fn of(content: Content) -> Self {
        Body { content, in_flight: None, readers: None, broken: None }
    }

    pub(crate) fn storing(mut self, store: Option<StoreTap>) -> Self {
        if store.is_some() {
            self.readers.get_or_insert_default().store = store;
        }
        self
    }

    /// A body that several clients read. `leads` says that this client's request was the one that was sent.
    pub(crate) fn shared(reader: BodyReader, leads: bool) -> Self {
        Body::of(Content::Shared(reader, leads))
    }

    pub(crate) fn teaching(mut self, lesson: Option<Box<RobotsCapture>>) -> Self {
        if lesson.is_some() {
            self.readers.get_or_insert_default().lesson = lesson;
        }
        self
    }

    /// Ties the end of the request to the end of this body.
    pub(crate) fn keeping(mut self, in_flight: Box<InFlight>) -> Self {
        self.in_flight = Some(in_flight);
        if self.is_end_stream() {
            self.finished();
        }
        self
    }

    /// Counts a piece that goes to the client, and lets others read along.
    fn came(&mut self, frame: &Frame<Bytes>) {
        if let (Some(in_flight), Some(bytes)) = (&mut self.in_flight, frame.data_ref()) {
            match &self.content {
                Content::Own(_) => in_flight.said(bytes.len()),
                Content::Passing(_) | Content::Shared(_, true) => in_flight.passed(bytes.len()),
                Content::Stored(..) | Content::OnDisk(_) | Content::Shared(_, false) => {
                    in_flight.served(bytes.len());
                }
            }
        }
        if let Some(readers) = &mut self.readers {
            readers.read(frame);
        }
    }

    fn finished(&mut self) {
        if let Some(readers) = self.readers.take() {
            readers.end();
        }
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.completed();
        }
    }
}

impl BodyReaders {
    fn read(&mut self, frame: &Frame<Bytes>) {
        if let Some(store) = &mut self.store {
            match frame.data_ref() {
                Some(bytes) => store.read(bytes),
                None => store.give_up(NotStored::Undelimited),
            }
        }
        if let (Some(lesson), Some(bytes)) = (&mut self.lesson, frame.data_ref()) {
            lesson.read(bytes);
        }
    }

    fn end(self) {
        if let Some(lesson) = self.lesson {
            (*lesson).end();
        }
        if let Some(mut store) = self.store {
            store.end();
        }
    }
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match self {
            Content::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Passing(reply) => Pin::new(reply).poll_frame(cx),
            Content::Stored(pieces, left) => Poll::Ready(pieces.find(|piece| !piece.is_empty()).map(|piece| {
                *left -= piece.len() as u64;
                Ok(Frame::data(piece))
            })),
            Content::OnDisk(body) => body.poll_piece(cx).map(|piece| piece.map(from_disk)),
            Content::Shared(reader, _) => reader.poll_frame(cx),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Body::of(Content::Own(bytes))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        if let Some(error) = this.broken.take() {
            return Poll::Ready(Some(Err(error)));
        }
        if let Some(in_flight) = &this.in_flight {
            in_flight.taken();
        }
        let frame = this.content.poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(frame))) => {
                this.came(frame);
                if this.is_end_stream() {
                    this.finished();
                }
            }
            Poll::Ready(None) => this.finished(),
            Poll::Ready(Some(Err(error))) => {
                this.readers = None;
                if let Some(in_flight) = &mut this.in_flight {
                    in_flight.truncated(*error);
                }
            }
            Poll::Pending => {}
        }
        match frame {
            // When a body fails, hyper drops what it has not written yet. It writes before it polls again, so holding
            // the error back for one poll lets the client see the head and the bytes that came, and then the cut.
            Poll::Ready(Some(Err(error))) => {
                this.broken = Some(error);
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            frame => frame,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Own(bytes) => bytes.is_empty(),
            Content::Passing(reply) => reply.is_end_stream(),
            Content::Stored(_, left) => *left == 0,
            Content::OnDisk(body) => body.left() == 0,
            Content::Shared(reader, _) => reader.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Passing(reply) => reply.size_hint(),
            Content::Stored(_, left) => SizeHint::with_exact(*left),
            Content::OnDisk(body) => SizeHint::with_exact(body.left()),
            Content::Shared(reader, _) => reader.size_hint(),
        }
    }
}

/// A disk that fails in the middle of a body is like an origin that does: the client sees that the body is cut off.
fn from_disk(piece: std::io::Result<Bytes>) -> Result<Frame<Bytes>, Broken> {
    match piece {
        Ok(piece) => Ok(Frame::data(piece)),
        Err(error) => {
            tracing::warn!(event = "cache.unread", %error, "cannot read the rest of a stored answer from disk");
            Err(Broken::Truncated)
        }
    }
}
