//! How a node stands to the ledger: joined, alone, or on its way back.
//!
//! ```text
//!           first heartbeat                     a call failed
//! starting ────────────────► joined ───────────────────────────► alone ◄── the first call failed
//!                              ▲                                   │ the ledger answers again
//!                              └── 2 s of heartbeats ── returning ◄┴─ telling
//! ```
//! Joined, claims decide. Alone, the node's slots decide, once the others have noticed that it is missing. Telling, it
//! starts nothing and reports what it has started alone. Returning, a start needs a claim and a slot, because other
//! nodes may still be alone.
//!
//! Times are microseconds of the node's own clock.

use super::FORGOTTEN_GRANTS;
use super::calls::Beat;
use super::slots::Slots;

/// How often a node reports that it is there.
pub const BEAT: u64 = 500_000;
/// How long after its last heartbeat a node that is alone keeps quiet: until the ledger calls it missing (1.6 s) and
/// the others have heard of it with their next heartbeat.
pub const QUIET: u64 = 2_200_000;
/// How long a node keeps to its slots after its return.
const RETURN: u64 = 2_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandingState {
    Starting,
    Joined,
    Alone,
    Telling,
    Returning,
}

impl StandingState {
    pub fn word(self) -> &'static str {
        match self {
            StandingState::Starting => "starting",
            StandingState::Joined => "joined",
            StandingState::Alone | StandingState::Telling => "alone",
            StandingState::Returning => "returning",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Standing {
    state: StandingState,
    /// When the state began.
    since: u64,
    /// When the last heartbeat went out that the ledger may have noted.
    last_beat: u64,
    /// The slots while alone or returning: those of the last heartbeat before.
    slots: Slots,
    missing: Vec<u32>,
}

impl Standing {
    /// The standing of a node that has not asked yet. `slots` are those that it keeps to if the ledger does not answer.
    pub fn new(slots: Slots, now: u64) -> Self {
        Standing { state: StandingState::Starting, since: now, last_beat: now, slots, missing: Vec::new() }
    }

    pub fn state(&self) -> StandingState {
        self.state
    }

    pub fn since(&self) -> u64 {
        self.since
    }

    pub fn slots(&self) -> Slots {
        self.slots
    }

    /// The ranks of nodes whose slots must be left to them.
    pub fn missing(&self) -> &[u32] {
        &self.missing
    }

    /// Notes that a heartbeat goes out.
    pub fn beats(&mut self, now: u64) {
        self.last_beat = now;
    }

    /// A call failed. Returns whether the node has become alone by it.
    pub fn failed(&mut self, now: u64) -> bool {
        if self.state == StandingState::Alone {
            return false;
        }
        let is_new = self.state != StandingState::Telling;
        (self.state, self.since) = (StandingState::Alone, now);
        is_new
    }

    /// The ledger answers again: nothing starts until it knows what was started alone.
    pub fn tells(&mut self, now: u64) {
        if self.state == StandingState::Alone {
            (self.state, self.since) = (StandingState::Telling, now);
        }
    }

    /// A heartbeat was answered. Returns the new state if there is one.
    pub fn beat(&mut self, beat: &Beat, now: u64) -> Option<StandingState> {
        let next = match self.state {
            StandingState::Starting | StandingState::Joined => StandingState::Joined,
            StandingState::Telling => StandingState::Returning,
            StandingState::Returning if now >= self.since + RETURN => StandingState::Joined,
            state => state,
        };
        if next == StandingState::Joined {
            self.slots = Slots { rank: beat.rank, nodes: beat.nodes.max(1) };
            self.missing.clone_from(&beat.missing);
        }
        if next == self.state {
            return None;
        }
        (self.state, self.since) = (next, now);
        Some(next)
    }

    /// Returns the time before which a node that is alone starts nothing: the others have noticed by then, and what was
    /// granted to them is sent and a delay ago.
    pub fn quiet_until(&self, delay: u64) -> u64 {
        (self.last_beat + QUIET).max(self.since) + FORGOTTEN_GRANTS + delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(nodes: u32, rank: u32) -> Beat {
        Beat { nodes, rank, ..Beat::default() }
    }

    #[test]
    fn a_node_goes_alone_at_the_first_failure_and_comes_back_by_steps() {
        let mut standing = Standing::new(Slots { rank: 0, nodes: 8 }, 0);
        assert_eq!(standing.beat(&beat(4, 2), 10), Some(StandingState::Joined));
        assert_eq!(standing.slots(), Slots { rank: 2, nodes: 4 });
        standing.beats(1_000_000);
        assert!(standing.failed(1_500_000));
        assert!(!standing.failed(1_600_000), "alone already");
        assert_eq!(standing.quiet_until(400_000), 3_700_000, "a delay after the last start that others were granted");
        assert_eq!(standing.quiet_until(5_000_000), 8_300_000);
        assert_eq!(standing.beat(&beat(1, 0), 1_700_000), None, "it has not told what it started");
        standing.tells(4_000_000);
        assert_eq!(standing.beat(&beat(1, 0), 4_100_000), Some(StandingState::Returning));
        assert_eq!(standing.beat(&beat(2, 1), 6_000_000), None);
        assert_eq!(standing.slots(), Slots { rank: 2, nodes: 4 }, "until all are back, the old slots count");
        assert_eq!(standing.beat(&beat(4, 1), 6_100_000), Some(StandingState::Joined));
        assert_eq!(standing.slots(), Slots { rank: 1, nodes: 4 });
    }

    #[test]
    fn a_return_that_fails_is_quiet_again() {
        let mut standing = Standing::new(Slots { rank: 0, nodes: 2 }, 0);
        assert!(standing.failed(500_000));
        standing.tells(1_000_000);
        standing.beats(1_000_000);
        assert!(!standing.failed(1_500_000), "it was alone all the time");
        assert_eq!((standing.state(), standing.quiet_until(0)), (StandingState::Alone, 3_300_000));
    }
}
