//! The links of one worker, by place, and who opens the next one.
//!
//! One at a time opens a link to a place, and the others wait for it: until the handshake is over nobody knows whether
//! the origin speaks HTTP/2, and if it does, one connection is enough for all of them. Where it does not, everybody
//! opens connections of their own, as for plain HTTP.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use super::link::{Link, Seat};
use crate::clock;
use crate::upstream::pool::Place;

/// How long an origin is believed to speak HTTP/1.1 only. A wrong belief costs nothing but the sharing.
const BELIEVE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(in crate::upstream) struct Links {
    /// Held for one look-up, never across an await.
    places: Mutex<HashMap<Place, Vec<Opening>>>,
}

/// The attempt to open a link, and what came of it.
pub(in crate::upstream) type Opening = Arc<OnceCell<Opened>>;

#[derive(Debug)]
pub(in crate::upstream) enum Opened {
    Link(Arc<Link>),
    /// The origin wants HTTP/1.1; until then, it is not asked again.
    Http1(Instant),
    /// There is no connection. Whoever waited for it tries alone, and so learns why.
    Failed,
}

/// The way to a place.
#[derive(Debug)]
pub(in crate::upstream) enum Way {
    Seat(Seat),
    Http1,
    /// To be opened by whoever comes first.
    Opening(Opening),
}

impl Opened {
    pub(in crate::upstream) fn http1() -> Self {
        Opened::Http1(clock::now() + BELIEVE)
    }

    fn way(&self, suits: &impl Fn(&Link) -> bool) -> Option<Way> {
        match self {
            Opened::Link(link) if suits(link) => link.seat().map(Way::Seat),
            Opened::Http1(until) if *until > clock::now() => Some(Way::Http1),
            Opened::Link(_) | Opened::Http1(_) | Opened::Failed => None,
        }
    }

    fn is_done(&self, keep_alive: Duration) -> bool {
        match self {
            Opened::Link(link) => link.is_done(keep_alive),
            Opened::Http1(until) => *until <= clock::now(),
            Opened::Failed => true,
        }
    }
}

impl Links {
    /// A seat on a link that suits, or how to come by one.
    pub(in crate::upstream) fn way(&self, place: &Place, suits: impl Fn(&Link) -> bool) -> Way {
        let mut places = self.places.lock();
        let openings = places.entry(place.clone()).or_default();
        if let Some(way) = openings.iter().filter_map(|opening| opening.get()).find_map(|opened| opened.way(&suits)) {
            return way;
        }
        if let Some(opening) = openings.iter().find(|opening| !opening.initialized()) {
            return Way::Opening(opening.clone());
        }
        let opening = Opening::default();
        openings.push(opening.clone());
        Way::Opening(opening)
    }

    /// Makes a link known that was opened for one request.
    pub(in crate::upstream) fn add(&self, place: &Place, link: Arc<Link>) {
        let opening = Arc::new(OnceCell::new_with(Some(Opened::Link(link))));
        self.places.lock().entry(place.clone()).or_default().push(opening);
    }

    /// The origin wants HTTP/1.1, although it has agreed to HTTP/2. What is on its links stays there.
    pub(in crate::upstream) fn give_up(&self, place: &Place) {
        let opening = Arc::new(OnceCell::new_with(Some(Opened::http1())));
        self.places.lock().insert(place.clone(), vec![opening]);
    }

    /// Closes links that have been without work for too long, and forgets what is of no more use.
    pub(in crate::upstream) fn sweep(&self, keep_alive: Duration) {
        let mut done = Vec::new();
        self.places.lock().retain(|_, openings| {
            let is_done = |opening: &mut Opening| opening.get().is_some_and(|opened| opened.is_done(keep_alive));
            done.extend(openings.extract_if(.., is_done));
            // An attempt that everybody has left will never be over.
            openings.retain(|opening| opening.initialized() || Arc::strong_count(opening) > 1);
            !openings.is_empty()
        });
        // Links take leave when they are dropped: not under the lock.
        drop(done);
    }
}
