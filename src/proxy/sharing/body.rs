//! A body that several clients read while it arrives.
//!
//! A task reads the origin's answer ([`SharedBody::fill`]) and keeps what not all readers have read yet. It reads at
//! most [`AHEAD`] beyond the fastest reader, so readers that are all slow do not fill memory. A slow reader slows
//! no other as long as it lags by less than [`MOST_LAG`] and all bodies together keep less than [`MOST_KEPT`]; beyond
//! that the others wait for it, and no reader is cut off. If the last reader leaves, the rest is not fetched.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use crate::upstream::Broken;

/// How far the origin's answer is read beyond the fastest reader: the buffers of a socket, which are as large in
/// practice.
const AHEAD: u64 = 256 * 1024;
/// How far the slowest reader of a body may lag before the others wait for it.
const MOST_LAG: u64 = 8 * 1024 * 1024;
/// What all shared bodies together may keep for slow readers. Beyond it each may keep [`AHEAD`].
const MOST_KEPT: usize = 64 * 1024 * 1024;

/// The body, for the task that fills it and for its readers.
#[derive(Debug)]
pub(crate) struct SharedBody {
    state: Mutex<BodyState>,
    /// What the head announces.
    length: Option<u64>,
    /// What all shared bodies keep, in bytes.
    kept: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct BodyState {
    /// What not all readers have read, and the number of the first of these pieces.
    pieces: VecDeque<Bytes>,
    first: u64,
    /// How much has come.
    came: u64,
    end: Option<BodyEnd>,
    readers: Vec<ReaderState>,
    next_reader: u32,
    filler: Option<Waker>,
}

#[derive(Clone, Debug)]
enum BodyEnd {
    Complete(Option<HeaderMap>),
    Broken(Broken),
}

#[derive(Debug)]
struct ReaderState {
    id: u32,
    /// The number of its next piece, and how much it has read.
    next: u64,
    read: u64,
    waker: Option<Waker>,
}

impl SharedBody {
    /// `body` is only looked at: a body that has no content needs no task.
    pub(crate) fn new(body: &impl HttpBody, kept: Arc<AtomicUsize>) -> Arc<Self> {
        let end = body.is_end_stream().then_some(BodyEnd::Complete(None));
        let state = Mutex::new(BodyState { end, ..BodyState::default() });
        Arc::new(SharedBody { state, length: body.size_hint().exact(), kept })
    }

    /// Adds a reader, which reads from the beginning. Only before the first piece has come.
    pub(crate) fn reader(self: &Arc<Self>) -> BodyReader {
        let mut state = self.state.lock();
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.push(ReaderState { id, next: 0, read: 0, waker: None });
        BodyReader { body: self.clone(), id }
    }

    /// Reads the origin's body for the readers, until it ends or the last of them leaves. Returns whether it broke off.
    pub(crate) async fn fill<B>(&self, mut from: B) -> Option<Broken>
    where
        B: HttpBody<Data = Bytes, Error = Broken> + Unpin,
    {
        if self.state.lock().end.is_some() {
            return None;
        }
        loop {
            let frame = poll_fn(|cx| {
                // Without readers there is nothing to do.
                let is_read = ready!(self.poll_room(cx));
                if is_read { Pin::new(&mut from).poll_frame(cx) } else { Poll::Ready(None) }
            });
            match frame.await {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.push(&data),
                    Err(frame) => return self.finish(BodyEnd::Complete(frame.into_trailers().ok())),
                },
                None => return self.finish(BodyEnd::Complete(None)),
                Some(Err(broken)) => return self.finish(BodyEnd::Broken(broken)),
            }
        }
    }

    /// Ready when there is room for more; says whether there are readers.
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.state.lock();
        let read = || state.readers.iter().map(|reader| reader.read);
        let (Some(fastest), Some(slowest)) = (read().max(), read().min()) else { return Poll::Ready(false) };
        let lag = if self.kept.load(Relaxed) < MOST_KEPT { MOST_LAG } else { AHEAD };
        let has_room = state.came - fastest < AHEAD && state.came - slowest < lag;
        // Also woken when the last reader leaves.
        state.filler = Some(cx.waker().clone());
        if has_room { Poll::Ready(true) } else { Poll::Pending }
    }

    fn push(&self, data: &Bytes) {
        if data.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        if state.readers.is_empty() {
            return;
        }
        self.kept.fetch_add(data.len(), Relaxed);
        state.came += data.len() as u64;
        // Copied, because a slice would keep the connection's buffer alive.
        state.pieces.push_back(Bytes::copy_from_slice(data));
        state.wake_readers();
    }

    fn finish(&self, end: BodyEnd) -> Option<Broken> {
        let broken = if let BodyEnd::Broken(broken) = end { Some(broken) } else { None };
        let mut state = self.state.lock();
        state.end = Some(end);
        state.wake_readers();
        broken
    }

    /// Removes the pieces that all readers have read.
    fn trim(&self, state: &mut BodyState) {
        let needed = state.readers.iter().map(|reader| reader.next).min().unwrap_or(u64::MAX);
        while state.first < needed
            && let Some(piece) = state.pieces.pop_front()
        {
            state.first += 1;
            self.kept.fetch_sub(piece.len(), Relaxed);
        }
        state.filler.take().into_iter().for_each(Waker::wake);
    }
}

impl Drop for SharedBody {
    fn drop(&mut self) {
        let left: usize = self.state.get_mut().pieces.iter().map(Bytes::len).sum();
        self.kept.fetch_sub(left, Relaxed);
    }
}

impl BodyState {
    fn wake_readers(&mut self) {
        self.readers.iter_mut().filter_map(|reader| reader.waker.take()).for_each(Waker::wake);
    }
}

/// One client's view of a shared body. Dropping it lets the others go on without it.
#[derive(Debug)]
pub(crate) struct BodyReader {
    body: Arc<SharedBody>,
    id: u32,
}

impl BodyReader {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let mut state = self.body.state.lock();
        let state = &mut *state;
        let first = state.first;
        let Some(reader) = state.readers.iter_mut().find(|reader| reader.id == self.id) else {
            return Poll::Ready(None);
        };
        if let Some(piece) = state.pieces.get((reader.next - first) as usize) {
            let piece = piece.clone();
            reader.next += 1;
            reader.read += piece.len() as u64;
            self.body.trim(state);
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        match &state.end {
            None => {
                reader.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(BodyEnd::Broken(broken)) => Poll::Ready(Some(Err(*broken))),
            Some(BodyEnd::Complete(trailers)) => {
                let trailers = trailers.clone().map(|trailers| Ok(Frame::trailers(trailers)));
                state.readers.retain(|reader| reader.id != self.id);
                Poll::Ready(trailers)
            }
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let state = self.body.state.lock();
        let Some(reader) = state.readers.iter().find(|reader| reader.id == self.id) else { return true };
        let has_read_all = reader.read == state.came;
        has_read_all && matches!(state.end, Some(BodyEnd::Complete(None)))
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let Some(length) = self.body.length else { return SizeHint::default() };
        let state = self.body.state.lock();
        let read = state.readers.iter().find(|reader| reader.id == self.id).map_or(length, |reader| reader.read);
        SizeHint::with_exact(length.saturating_sub(read))
    }
}

impl Drop for BodyReader {
    fn drop(&mut self) {
        let mut state = self.body.state.lock();
        state.readers.retain(|reader| reader.id != self.id);
        self.body.trim(&mut state);
    }
}

#[cfg(test)]
#[path = "body_tests.rs"]
mod tests;
