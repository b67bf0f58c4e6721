//! Idle connections, kept a short while for the next request to the same place.
//!
//! One pool per worker, so that a connection never moves between runtimes. Connections are kept only briefly
//! (`upstream.keep_alive`), because a connection that the origin closes at the moment of reuse turns a good request
//! into a retry. A host's concurrency limits how many connections come back, so the pool needs no limit for each host,
//! only one for all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use foldhash::quality::RandomState;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use crate::clock;
use crate::politeness::Origin;

/// Connections that one worker keeps. With `keep_alive = 4s` that is enough for 250 hosts a second; each takes a
/// descriptor and about 1 KiB.
const MOST_IDLE: usize = 1024;

/// Where a connection leads. Plain requests through a parent proxy share its connections, whatever their origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Destination {
    /// With the address, if lanes are per address: a connection to another address would belong to another lane.
    Origin(Origin, Option<IpAddr>),
    Parent,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Locked for one look-up, never across an await.
    idle: Mutex<IdleConnections>,
}

#[derive(Debug, Default)]
struct IdleConnections {
    /// In the order in which they came back.
    #[expect(clippy::vec_box, reason = "all callers have it in a box, and taking it out would copy it")]
    places: HashMap<Destination, Vec<Box<Connection>>, RandomState>,
    /// Number of connections in all places.
    count: usize,
}

impl Pool {
    /// Takes the connection that became idle last: its origin is the least likely to close it.
    pub(super) fn take(
        &self,
        place: &Destination,
        keep_alive: Duration,
        generation: u64,
        now: Instant,
    ) -> Option<Box<Connection>> {
        // An empty place stays until the next sweep: most are filled again within a second.
        let newest = {
            let mut idle = self.idle.lock();
            let newest = idle.places.get_mut(place)?.pop()?;
            idle.count -= 1;
            newest
        };
        // A connection that was opened under other rules may lead to a destination that is not allowed now.
        let usable = now.duration_since(newest.idle_since()) < keep_alive && newest.generation() == generation;
        usable.then_some(newest)
    }

    /// Keeps a connection for the next request. `most` is the limit for its place, 0 for none.
    pub(super) fn put(&self, connection: Box<Connection>, most: usize) {
        let mut idle = self.idle.lock();
        if idle.count >= MOST_IDLE {
            idle.make_room();
        }
        let connections = idle.places.entry(connection.place().clone()).or_default();
        if most == 0 || connections.len() < most {
            connections.push(connection);
            idle.count += 1;
        }
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn sweep(&self, keep_alive: Duration) {
        let now = clock::now();
        self.idle.lock().retain(|idle_since| now.duration_since(idle_since) < keep_alive);
    }
}

impl IdleConnections {
    /// Closes the eighth that has been idle for longest. Closes that many at once, so that scanning all of them is
    /// rare.
    fn make_room(&mut self) {
        let mut times: Vec<Instant> =
            self.places.values().flatten().map(|connection| connection.idle_since()).collect();
        let (_, newest_to_go, _) = times.select_nth_unstable(MOST_IDLE / 8);
        let newest_to_go = *newest_to_go;
        self.retain(|idle_since| idle_since > newest_to_go);
    }

    fn retain(&mut self, stays: impl Fn(Instant) -> bool) {
        self.places.retain(|_, connections| {
            connections.retain(|connection| stays(connection.idle_since()));
            !connections.is_empty()
        });
        self.count = self.places.values().map(Vec::len).sum();
    }
}
