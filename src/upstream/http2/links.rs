//! The links of one worker, by place, and the decision which request opens the next one.
//!
//! One request at a time opens a link to a place, and the others wait for it: until the handshake is over it is not
//! known whether the origin speaks HTTP/2, and if it does, one connection is enough for all of them. If it does not,
//! each request opens a connection of its own, as for plain HTTP. If an attempt hangs, another is made every second, so
//! that one lost packet delays no other request. If an attempt fails, it fails for all requests that wait for it, so
//! that they do not dial a broken origin all at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::link::{Link, StreamSlot};
use crate::clock;
use crate::upstream::error::UpstreamError;
use crate::upstream::pool::Destination;

/// How long curtsy assumes that an origin speaks HTTP/1.1 only. A wrong assumption costs only the sharing.
const BELIEVE: Duration = Duration::from_secs(60);

/// How long requests wait for another request's attempt before one of them tries as well. A handshake over three round
/// trips of 300 ms is done by then.
const HANGS_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(in crate::upstream) struct Links {
    /// Locked for one look-up, never across an await.
    places: Mutex<HashMap<Destination, Vec<OpeningLink>>>,
}

/// An attempt to open a link.
#[derive(Clone, Debug)]
pub(in crate::upstream) struct OpeningLink {
    /// The result of the attempt.
    pub(in crate::upstream) opened: Arc<OnceCell<OpenedLink>>,
    /// When the next attempt may be made, if this one is still under way.
    pub(in crate::upstream) hangs_at: Instant,
}

#[derive(Debug)]
pub(in crate::upstream) enum OpenedLink {
    Link(Arc<Link>),
    /// The origin wants HTTP/1.1; until this time HTTP/2 is not tried again.
    Http1(Instant),
    /// There is no connection, for any request that waited for it.
    Failed(UpstreamError),
}

/// How a request gets to a place.
#[derive(Debug)]
pub(in crate::upstream) enum Route {
    Seat(StreamSlot),
    Http1,
    /// The link must be opened; the first request that takes this does it.
    Opening(OpeningLink),
}

impl OpeningLink {
    fn over(opened: OpenedLink) -> Self {
        OpeningLink { opened: Arc::new(OnceCell::new_with(Some(opened))), hangs_at: clock::now() }
    }
}

impl OpenedLink {
    pub(in crate::upstream) fn http1() -> Self {
        OpenedLink::Http1(clock::now() + BELIEVE)
    }

    fn way(&self, suits: &impl Fn(&Link) -> bool) -> Option<Route> {
        match self {
            OpenedLink::Link(link) if suits(link) => link.seat().map(Route::Seat),
            OpenedLink::Http1(until) if *until > clock::now() => Some(Route::Http1),
            OpenedLink::Link(_) | OpenedLink::Http1(_) | OpenedLink::Failed(_) => None,
        }
    }

    fn is_done(&self, keep_alive: Duration) -> bool {
        match self {
            OpenedLink::Link(link) => link.is_done(keep_alive),
            OpenedLink::Http1(until) => *until <= clock::now(),
            OpenedLink::Failed(_) => true,
        }
    }
}

impl Links {
    /// Returns a seat on a link that suits, or how to get one.
    pub(in crate::upstream) fn way(&self, place: &Destination, suits: impl Fn(&Link) -> bool) -> Route {
        let mut places = self.places.lock();
        let openings = places.entry(place.clone()).or_default();
        let mut known = openings.iter().filter_map(|opening| opening.opened.get());
        if let Some(way) = known.find_map(|opened| opened.way(&suits)) {
            return way;
        }
        let now = clock::now();
        let is_under_way = |opening: &&OpeningLink| !opening.opened.initialized() && now < opening.hangs_at;
        if let Some(opening) = openings.iter().find(is_under_way) {
            return Route::Opening(opening.clone());
        }
        let opening = OpeningLink { opened: Arc::default(), hangs_at: now + HANGS_AFTER };
        openings.push(opening.clone());
        Route::Opening(opening)
    }

    /// Adds a link that was opened for one request.
    pub(in crate::upstream) fn add(&self, link: Arc<Link>) {
        let place = link.place().clone();
        self.places.lock().entry(place).or_default().push(OpeningLink::over(OpenedLink::Link(link)));
    }

    /// Whether curtsy assumes that the origin wants HTTP/1.1.
    pub(in crate::upstream) fn wants_http1(&self, place: &Destination) -> bool {
        let is_http1 = |opening: &OpeningLink| matches!(opening.opened.get(), Some(OpenedLink::Http1(until)) if *until > clock::now());
        self.places.lock().get(place).is_some_and(|openings| openings.iter().any(is_http1))
    }

    /// Records that the origin wants HTTP/1.1, although it has agreed to HTTP/2. Requests on its links stay there.
    pub(in crate::upstream) fn give_up(&self, place: &Destination) {
        self.places.lock().insert(place.clone(), vec![OpeningLink::over(OpenedLink::http1())]);
    }

    /// Closes links that have been idle for too long, and forgets what is of no more use.
    pub(in crate::upstream) fn sweep(&self, keep_alive: Duration) {
        let mut done = Vec::new();
        self.places.lock().retain(|_, openings| {
            let is_done =
                |opening: &mut OpeningLink| opening.opened.get().is_some_and(|opened| opened.is_done(keep_alive));
            done.extend(openings.extract_if(.., is_done));
            // An attempt that every request has abandoned will never finish.
            openings.retain(|opening| opening.opened.initialized() || Arc::strong_count(&opening.opened) > 1);
            !openings.is_empty()
        });
        // Links send GOAWAY when they are dropped, so they are dropped after the lock is released.
        drop(done);
    }
}
