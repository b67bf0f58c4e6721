//! One HTTP/2 connection to an origin, shared by the requests on it.
//!
//! A request writes its head itself, in the poll in which it is sent, so that it starts when its turn is claimed and
//! not when another task gets round to it. A task of the connection does everything else: frames arrive for several
//! requests, and no request may have to wait for another's client.
//!
//! The link is the connection: dropping the last handle sends GOAWAY, closes the connection and ends its task.

use std::fmt;
use std::future::{Future, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use http::Request;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::fault;
use super::short_queue::ShortQueue;
use super::witness::{Witness, WitnessRecord};
use crate::clock;
use crate::timeout_stream::{Deadline, TimeoutStream};
use crate::upstream::Terms;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool::Destination;
use crate::upstream::stream::Stream;

/// Concurrent requests on one connection; more open another. Four are in flight to a host unless the operator allows
/// more.
const MOST_SEATS: usize = 16;
/// How much an origin may send of one response before its client reads it. At a round trip of 50 ms this gives 5 MB/s.
const STREAM_WINDOW: u32 = 256 * 1024;
/// The same for a whole connection: enough for each seat, so that a slow client delays no request but its own.
const LINK_WINDOW: u32 = STREAM_WINDOW * MOST_SEATS as u32;
/// How much of an upload is buffered before the origin accepts it.
pub(super) const MOST_UNSENT: usize = 64 * 1024;
/// A connection on which the origin sent something this recently is as good as a new one.
const FRESH: Duration = Duration::from_secs(1);

type Wire = Witness<TimeoutStream<ShortQueue>>;

pub(in crate::upstream) struct Link {
    /// Locked for one poll, never across an await.
    core: Mutex<Core>,
    record: Arc<Mutex<WitnessRecord>>,
    place: Destination,
    /// The address of the origin; `None` if a parent proxy is in between.
    peer: Option<IpAddr>,
    /// Generation of the rules by which the guard judged the address.
    generation: u64,
    taken: AtomicUsize,
    idle_since: Mutex<Instant>,
    /// The origin has owed a response for too long: no other request uses this link.
    doubtful: AtomicBool,
    /// Whether a request on this link has had a response.
    answered: AtomicBool,
}

struct Core {
    /// Both are set until the connection is over.
    sender: Option<SendRequest<Bytes>>,
    connection: Option<Connection<Wire, Bytes>>,
    /// The waker of the task that reads and writes.
    driver: Waker,
}

/// A request's place on a link.
#[derive(Debug)]
pub(in crate::upstream) struct StreamSlot {
    link: Arc<Link>,
}

/// A stream on the link.
pub(super) type Begun = (ResponseFuture, SendStream<Bytes>);

impl Link {
    /// Starts HTTP/2 on a stream for which it was agreed. Resolves when the origin has sent its settings, which include
    /// how many concurrent requests it accepts.
    pub(in crate::upstream) async fn open(
        stream: Stream,
        place: Destination,
        terms: Terms<'_>,
    ) -> Result<Arc<Self>, UpstreamError> {
        let idle = terms.config.idle_timeout;
        let peer = if terms.config.proxy.is_none() { stream.peer() } else { None };
        let (wire, record) =
            Witness::new(TimeoutStream::new(ShortQueue::new(stream), Arc::new(Deadline::none()), idle, idle));
        let handshake = settings(terms.head_size).handshake(wire).await;
        let (sender, mut connection) = handshake.map_err(|error| fault::of_connection(&error, &record.lock()))?;
        poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(Err(UpstreamError::Closed)),
            Poll::Ready(Err(error)) => Poll::Ready(Err(fault::of_connection(&error, &record.lock()))),
            Poll::Pending if record.lock().settled => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let core = Core { sender: Some(sender), connection: Some(connection), driver: Waker::noop().clone() };
        let link = Arc::new(Link {
            core: Mutex::new(core),
            record,
            place,
            peer,
            generation: terms.generation,
            taken: AtomicUsize::new(0),
            idle_since: Mutex::new(clock::now()),
            doubtful: AtomicBool::new(false),
            answered: AtomicBool::new(false),
        });
        tokio::spawn(Driver(Arc::downgrade(&link)));
        Ok(link)
    }

    /// Returns a seat for one more request; None if the origin accepts no more on this link.
    pub(in crate::upstream) fn seat(self: &Arc<Self>) -> Option<StreamSlot> {
        let most = self.core.lock().sender.as_ref()?.current_max_send_streams().min(MOST_SEATS);
        if !self.is_open() || self.taken.load(Relaxed) >= most {
            return None;
        }
        self.taken.fetch_add(1, Relaxed);
        Some(StreamSlot { link: self.clone() })
    }

    pub(in crate::upstream) fn place(&self) -> &Destination {
        &self.place
    }

    pub(in crate::upstream) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Whether requests under these rules may use this link, if they get a seat.
    pub(in crate::upstream) fn suits(&self, generation: u64, fresh: bool) -> bool {
        let is_fresh = || clock::now().duration_since(self.record.lock().heard) < FRESH;
        self.generation == generation && self.is_open() && (!fresh || is_fresh())
    }

    fn is_open(&self) -> bool {
        let record = self.record.lock();
        let willing = record.last_stream.is_none() && record.cut.is_none() && !record.blocked;
        willing && !self.doubtful.load(Relaxed)
    }

    /// Whether the link has been idle for this long, or its connection is over.
    pub(in crate::upstream) fn is_done(&self, keep_alive: Duration) -> bool {
        let is_over = self.core.lock().connection.is_none();
        let is_idle = || self.taken.load(Relaxed) == 0;
        is_over || (is_idle() && clock::now().duration_since(*self.idle_since.lock()) >= keep_alive)
    }

    /// Whether the link has had a response before, so that its end may be that of a connection that was kept too long.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.load(Relaxed)
    }

    pub(super) fn note_answer(&self) {
        self.answered.store(true, Relaxed);
    }

    pub(super) fn doubt(&self) {
        self.doubtful.store(true, Relaxed);
    }

    pub(super) fn record(&self) -> parking_lot::MutexGuard<'_, WitnessRecord> {
        self.record.lock()
    }

    /// Begins a request and writes as much of its head as the origin accepts at once. Returns None if the link is not
    /// usable any more; then nothing was written.
    pub(super) fn begin(&self, request: Request<()>, is_whole: bool) -> Option<Begun> {
        let mut core = self.core.lock();
        // The connection may have ended, or be about to: reading what has arrived shows it.
        core.drive();
        if !self.is_open() {
            return None;
        }
        let begun = core.sender.as_mut()?.send_request(request, is_whole).ok()?;
        core.drive();
        Some(begun)
    }

    /// Ends the connection at once, with all requests on it.
    pub(super) fn cut(&self) {
        let mut core = self.core.lock();
        core.sender = None;
        let connection = core.connection.take();
        // Dropping the connection notifies its streams, which may access the link: so the lock is released first.
        drop(core);
        drop(connection);
    }
}

/// The settings that curtsy sends to an origin.
fn settings(head_size: usize) -> Builder {
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(LINK_WINDOW)
        .max_header_list_size(u32::try_from(head_size).unwrap_or(u32::MAX))
        .max_send_buffer_size(MOST_UNSENT);
    builder
}

impl Core {
    /// Reads and writes as much as possible; returns true when the connection is over. Further events wake the link's
    /// task, whichever task called this.
    fn drive(&mut self) -> bool {
        let Some(connection) = &mut self.connection else { return true };
        let is_over = Pin::new(connection).poll(&mut Context::from_waker(&self.driver)).is_ready();
        if is_over {
            self.connection = None;
            self.sender = None;
        }
        is_over
    }
}

/// Sends GOAWAY as HTTP/2 requires (RFC 9113, section 6.8), as far as possible without waiting.
impl Drop for Link {
    fn drop(&mut self) {
        let core = self.core.get_mut();
        core.sender = None;
        core.drive();
        core.driver.wake_by_ref();
    }
}

/// The task of a link; ends with the link.
struct Driver(Weak<Link>);

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(link) = self.0.upgrade() else { return Poll::Ready(()) };
        let mut core = link.core.lock();
        core.driver.clone_from(cx.waker());
        if core.drive() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl StreamSlot {
    pub(in crate::upstream) fn place(&self) -> Destination {
        self.link.place.clone()
    }

    pub(in crate::upstream) fn link(&self) -> &Arc<Link> {
        &self.link
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        *self.link.idle_since.lock() = clock::now();
        self.link.taken.fetch_sub(1, Relaxed);
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("taken", &self.taken).finish_non_exhaustive()
    }
}
