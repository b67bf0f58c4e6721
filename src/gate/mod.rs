//! Runs lanes: lets visits in, has them wait, and gives out permits.
//!
//! Decides nothing. A [`Lane`](crate::politeness::lane::Lane) says what next, and whoever holds a visit obeys, under the
//! lock of that lane, which is never held across an await. There is no task and no timer for a host: a visit to a free
//! host goes through without either, and of those who wait only one in each lane keeps a timer.

mod place;
mod registry;
mod shared_lane;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::clock;
use crate::metrics::Metrics;
use crate::politeness::HostKey;
use crate::politeness::policy::{Mode, PolicyBook};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Refusal, Visit};

use self::registry::Registry;

pub use self::place::{Account, Permit, Place};
pub use self::registry::Bounds;

#[derive(Debug)]
pub struct Gate {
    registry: Registry,
    book: ArcSwap<PolicyBook>,
    /// Visits that wait, of all hosts, and how many may.
    waiting: Arc<AtomicUsize>,
    most_waiting: AtomicUsize,
    /// Keeps clients from choosing names and URLs that collide.
    key: RandomState,
    metrics: Arc<Metrics>,
}

impl Gate {
    pub fn new(book: PolicyBook, bounds: Bounds, most_waiting: usize, metrics: Arc<Metrics>) -> Self {
        Gate {
            registry: Registry::new(bounds),
            book: ArcSwap::from_pointee(book),
            waiting: Arc::default(),
            most_waiting: AtomicUsize::new(most_waiting),
            key: RandomState::new(),
            metrics,
        }
    }

    /// Takes a place in the host's line, or hears at once why not.
    pub fn join(&self, host: &HostKey, visit: Visit) -> Result<Place, Refusal> {
        let book = self.book.load();
        if book.general.mode == Mode::Off && book.rules.is_empty() {
            return Ok(Place::free());
        }
        let now = now();
        let lane = self.registry.lane(host, &book, now);
        drop(book);
        let place = Place::join(lane, visit, self.waiting.clone(), self.metrics.clone(), now)?;
        match place.waits_until() {
            Some(expected) if self.waiting.load(Relaxed) > self.most_waiting.load(Relaxed) => {
                let seconds = expected.since(now).as_secs() + 1;
                Err(Refusal::QueueFull { retry_after: Duration::from_secs(seconds) })
            }
            _ => Ok(place),
        }
    }

    /// A client by whatever tells it apart: user, name or address.
    pub fn client(&self, who: impl Hash) -> ClientId {
        ClientId(self.key.hash_one(who))
    }

    pub fn url(&self, path: &str) -> u64 {
        self.key.hash_one(path)
    }

    /// New numbers for every host, waiting visits included. Grants nobody a fresh burst.
    pub fn change(&self, book: PolicyBook, bounds: Bounds, most_waiting: usize) {
        self.most_waiting.store(most_waiting, Relaxed);
        self.registry.change(&book, bounds, now());
        self.book.store(Arc::new(book));
    }

    /// Forgets hosts that nobody has visited for a while and nothing is owed to.
    pub fn sweep(&self) {
        self.registry.sweep(now());
    }

    pub fn hosts(&self) -> usize {
        self.registry.len()
    }

    pub fn queued(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

fn now() -> Timestamp {
    Timestamp::from_micros(clock::micros())
}
