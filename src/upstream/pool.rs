//! Connections without work, kept a short while for the next request to the same place.
//!
//! One pool per worker, so that a connection never moves between runtimes. Kept short (`upstream.keep_alive`), because
//! a connection that the origin closes at the moment of reuse turns a good request into a retry.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use crate::clock;
use crate::politeness::Origin;

/// Where a connection leads. Plain requests through a parent proxy share its connections, whatever their origin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Origin(Origin),
    Parent,
}

#[derive(Debug, Default)]
pub(super) struct Pool {
    /// Held for one look-up, never across an await.
    #[expect(clippy::vec_box, reason = "everybody has it in a box, and taking it out would copy it")]
    idle: Mutex<HashMap<Place, Vec<Box<Connection>>>>,
}

impl Pool {
    /// The connection that went idle last: the least likely to be closed by its origin.
    pub(super) fn take(
        &self,
        place: &Place,
        keep_alive: Duration,
        generation: u64,
        now: Instant,
    ) -> Option<Box<Connection>> {
        // An empty place stays until the next sweep: most are filled again within a second.
        let newest = self.idle.lock().get_mut(place)?.pop()?;
        // One that was opened under other rules about destinations may lead where nobody may go now.
        let usable = now.duration_since(newest.idle_since()) < keep_alive && newest.generation() == generation;
        usable.then_some(newest)
    }

    /// Keeps a connection for the next request.
    pub(super) fn put(&self, connection: Box<Connection>, most: usize) {
        let mut idle = self.idle.lock();
        let connections = idle.entry(connection.place().clone()).or_default();
        if connections.len() < most {
            connections.push(connection);
        }
    }

    /// Closes what has been idle for too long.
    pub(super) fn sweep(&self, keep_alive: Duration) {
        let now = clock::now();
        self.idle.lock().retain(|_, connections| {
            connections.retain(|idle| now.duration_since(idle.idle_since()) < keep_alive);
            !connections.is_empty()
        });
    }
}
