//! Quotas: how fast one client may send requests to curtsy, and all clients together (`access.client_rate`,
//! `access.total_rate`).
//!
//! Quotas protect curtsy from its clients; lanes protect hosts. So requests are counted on arrival, before they wait
//! for anything, and a request over a quota spends no turn. governor does the counting: "20/s" is twenty at once, and
//! one more each 50 ms. The state it counts in is our own, because it has to stay bounded, take counts back, and
//! survive a reload.
//!
//! A quota that was changed starts with what was left of the old one. A refused client gets a time that is true for
//! itself; in a quota for all clients, other clients may use up the room first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use governor::RateLimiter;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;

use crate::clock;
use crate::config::{Access, QuotaRate};
use crate::politeness::visit::ClientId;

#[derive(Clone, Debug)]
pub(crate) struct Quotas {
    client: Option<Arc<QuotaLimit>>,
    total: Option<Arc<QuotaLimit>>,
}

/// Why a request is refused, and when to retry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exceeded {
    pub(crate) whose: Whose,
    pub(crate) retry_after: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Client,
    All,
}

/// The key of the quota for all clients, and of the clients that find no room in the quota for each. A client gets this
/// number from the keyed hash once in 2^64 times.
const EVERYONE: ClientId = ClientId(0);

/// Clients counted separately, at some 40 bytes each. A proxy has fewer clients, but one client can invent more names.
const MOST_CLIENTS: usize = 100_000;
/// Looking through all clients takes some milliseconds, which must not become the price of every request.
const BETWEEN_MAKING_ROOM: Duration = Duration::from_secs(1);

impl Quotas {
    /// Builds the quotas that the configuration asks for, if any. Counting continues where it was in `before`.
    pub(crate) fn new(access: &Access, before: Option<&Quotas>) -> Option<Self> {
        let limit = |quota: Option<QuotaRate>, before: Option<&Arc<QuotaLimit>>| {
            let quota = quota?;
            Some(match before {
                Some(before) if before.quota == quota => before.clone(),
                Some(before) => Arc::new(QuotaLimit::after(before, quota)),
                None => Arc::new(QuotaLimit::new(quota, MOST_CLIENTS)),
            })
        };
        let client = limit(access.client_rate, before.and_then(|before| before.client.as_ref()));
        let total = limit(access.total_rate, before.and_then(|before| before.total.as_ref()));
        (client.is_some() || total.is_some()).then_some(Quotas { client, total })
    }

    /// Counts one request. A request that either quota refuses is counted in neither.
    pub(crate) fn take(&self, client: ClientId) -> Result<(), Exceeded> {
        let over = |whose| move |retry_after| Exceeded { whose, retry_after };
        if let Some(limit) = &self.client {
            limit.take(client).map_err(over(Whose::Client))?;
        }
        let Some(total) = &self.total else { return Ok(()) };
        total.take(EVERYONE).map_err(|wait| {
            if let Some(limit) = &self.client {
                limit.give_back(client);
            }
            over(Whose::All)(wait)
        })
    }

    /// Forgets clients that have their full quota again.
    pub(crate) fn sweep(&self) {
        for limit in [&self.client, &self.total].into_iter().flatten() {
            limit.limiter.retain_recent();
        }
    }
}

#[derive(Debug)]
struct QuotaLimit {
    quota: QuotaRate,
    /// The time from which governor counts.
    began: Duration,
    cells: Cells,
    limiter: RateLimiter<ClientId, Cells, Monotonic, NoOpMiddleware<Duration>>,
}

impl QuotaLimit {
    fn new(quota: QuotaRate, most: usize) -> Self {
        QuotaLimit::with(quota, Cells::new(most))
    }

    /// Builds another quota for the same clients: they keep the requests they had left.
    fn after(before: &QuotaLimit, quota: QuotaRate) -> Self {
        let cells = Cells::new(before.cells.0.most);
        let passed = Nanos::from(now().saturating_sub(before.began));
        let [old, new] = [before.quota, quota].map(|quota| u64::from(quota.requests.get()));
        for cell in &before.cells.0.whole_at {
            let used = cell.value().saturating_sub(passed).as_u64().div_ceil(period(before.quota).as_u64()).min(old);
            if used > 0 {
                let used = new - new.min(old - used);
                cells.insert(*cell.key(), Nanos::from(used * period(quota).as_u64()));
            }
        }
        QuotaLimit::with(quota, cells)
    }

    fn with(quota: QuotaRate, cells: Cells) -> Self {
        let rate = governor::Quota::with_period(quota.per / quota.requests.get()).expect("no quota is that large");
        let limiter = RateLimiter::new(rate.allow_burst(quota.requests), cells.clone(), Monotonic);
        QuotaLimit { quota, began: now(), cells, limiter }
    }

    /// Counts a request, or returns how long until there is room for it.
    fn take(&self, client: ClientId) -> Result<(), Duration> {
        if self.cells.wants_room() {
            self.limiter.retain_recent();
        }
        self.limiter.check_key(&client).map_err(|not_until| not_until.wait_time_from(now()))
    }

    fn give_back(&self, client: ClientId) {
        self.cells.give_back(client, period(self.quota));
    }
}

/// The time after which one used request is available again.
fn period(quota: QuotaRate) -> Nanos {
    Nanos::from(quota.per / quota.requests.get())
}

/// A clock that stops when tokio's time does.
#[derive(Clone, Copy, Debug)]
struct Monotonic;

impl governor::clock::Clock for Monotonic {
    type Instant = Duration;

    fn now(&self) -> Duration {
        now()
    }
}

fn now() -> Duration {
    Duration::from_micros(clock::micros())
}

/// One number for each client.
#[derive(Clone, Debug)]
struct Cells(Arc<Counted>);

#[derive(Debug)]
struct Counted {
    /// When a client will have its full quota again, if it sends no more requests.
    whole_at: DashMap<ClientId, Nanos>,
    /// The number of clients. Asking the map for it would lock all its shards.
    count: AtomicUsize,
    most: usize,
    /// When room was last made, in microseconds.
    made_room: AtomicU64,
}

impl Cells {
    fn new(most: usize) -> Self {
        let (whole_at, count, made_room) = (DashMap::new(), AtomicUsize::new(0), AtomicU64::new(0));
        Cells(Arc::new(Counted { whole_at, count, most, made_room }))
    }

    fn insert(&self, client: ClientId, whole_at: Nanos) {
        if self.0.whole_at.insert(client, whole_at).is_none() {
            self.0.count.fetch_add(1, Relaxed);
        }
    }

    fn is_full(&self) -> bool {
        self.len() >= self.0.most
    }

    /// Whether it is worth looking for clients to forget.
    fn wants_room(&self) -> bool {
        if !self.is_full() {
            return false;
        }
        let (made, now) = (self.0.made_room.load(Relaxed), clock::micros());
        let due = Duration::from_micros(now.saturating_sub(made)) >= BETWEEN_MAKING_ROOM;
        due && self.0.made_room.compare_exchange(made, now, Relaxed, Relaxed).is_ok()
    }

    /// Returns the key that a client is counted under. All clients that find no room share one.
    fn stands_for(&self, client: ClientId) -> ClientId {
        if self.is_full() && !self.0.whole_at.contains_key(&client) { EVERYONE } else { client }
    }

    fn give_back(&self, client: ClientId, period: Nanos) {
        if let Some(mut whole_at) = self.0.whole_at.get_mut(&self.stands_for(client)) {
            *whole_at = whole_at.saturating_sub(period);
        }
    }
}

impl StateStore for Cells {
    type Key = ClientId;

    fn measure_and_replace<T, F, E>(&self, client: &ClientId, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        match self.0.whole_at.entry(self.stands_for(*client)) {
            Entry::Occupied(mut cell) => {
                let (outcome, next) = decide(Some(*cell.get()))?;
                cell.insert(next);
                Ok(outcome)
            }
            Entry::Vacant(cell) => {
                let (outcome, next) = decide(None)?;
                cell.insert(next);
                self.0.count.fetch_add(1, Relaxed);
                Ok(outcome)
            }
        }
    }
}

impl ShrinkableKeyedStateStore<ClientId> for Cells {
    fn retain_recent(&self, drop_below: Nanos) {
        self.0.whole_at.retain(|_, whole_at| {
            let keep = *whole_at > drop_below;
            if !keep {
                self.0.count.fetch_sub(1, Relaxed);
            }
            keep
        });
    }

    fn len(&self) -> usize {
        self.0.count.load(Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
#[path = "quotas_tests.rs"]
mod tests;
