//! A visit whose client disconnected while queued, as the callback of [`Gate::on_leaving`](super::Gate::on_leaving)
//! sees it.
//!
//! Every field is looked up only when the callback reads it: when a crawler ends, thousands of clients may disconnect
//! at once.

use std::fmt;
use std::time::Duration;

use super::shared_lane::SharedLane;
use super::waiting_list::{Label, WaitingList};
use crate::politeness::HostKey;

#[derive(Debug)]
pub struct DisconnectedVisit<'a> {
    pub(super) line: &'a WaitingList,
    pub(super) lane: &'a SharedLane,
    /// The visit's number in the line of all hosts.
    pub(super) number: u64,
    /// Time since the visit joined.
    pub(super) after: Duration,
}

impl DisconnectedVisit<'_> {
    pub fn host(&self) -> &HostKey {
        self.lane.host()
    }

    pub fn after(&self) -> Duration {
        self.after
    }

    /// The label that the API and the log show.
    pub fn label(&self) -> Option<Label> {
        self.line.label_of(self.number)
    }

    /// The visit's position in the queue of its host, starting at 1.
    pub fn position(&self) -> usize {
        self.line.ahead_of(self.number, self.lane) + 1
    }

    /// How long visits to its host may wait.
    pub fn max_wait(&self) -> Duration {
        self.lane.look(|state| state.lane.policy().max_wait)
    }
}

/// The callback for disconnected clients.
pub(super) struct LeavingCallback(pub(super) Box<dyn Fn(&DisconnectedVisit<'_>) + Send + Sync>);

impl fmt::Debug for LeavingCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
