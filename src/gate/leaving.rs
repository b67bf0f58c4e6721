//! A visit whose client left while it waited, for whoever wants to tell people.
//!
//! Nothing is looked up before it is asked for: when a crawler ends, thousands may leave at once.

use std::fmt;
use std::time::Duration;

use super::line::{Label, Line};
use super::shared_lane::SharedLane;
use crate::politeness::HostKey;

#[derive(Debug)]
pub struct Leaving<'a> {
    pub(super) line: &'a Line,
    pub(super) lane: &'a SharedLane,
    /// Its number among the waiting of all hosts.
    pub(super) number: u64,
    /// Since it joined.
    pub(super) after: Duration,
}

impl Leaving<'_> {
    pub fn host(&self) -> &HostKey {
        self.lane.host()
    }

    pub fn after(&self) -> Duration {
        self.after
    }

    /// What people know it by.
    pub fn label(&self) -> Option<Label> {
        self.line.label_of(self.number)
    }

    /// 1 is the first in line.
    pub fn position(&self) -> usize {
        self.line.ahead_of(self.number, self.lane) + 1
    }

    /// How long visits to its host may wait.
    pub fn max_wait(&self) -> Duration {
        self.lane.look(|state| state.lane.policy().max_wait)
    }
}

/// Who is told.
pub(super) struct Listener(pub(super) Box<dyn Fn(&Leaving<'_>) + Send + Sync>);

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}
