//! What nodes ask the ledger and what it answers.

use super::slots::Slots;

/// What a node asks for when it claims a start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The claim is void after this time, because the node has given up waiting.
    pub until: u64,
    pub delay: u64,
    pub window: u64,
    /// How far ahead the start may be granted.
    pub early: u64,
    /// How far ahead the start must be at least.
    pub reach: u64,
    /// The node's number in the line; 0 = it has none.
    pub number: u64,
    /// Another visit waits behind this one, so that the node wants its next number too.
    pub more: bool,
    /// The version of what the node knows about the host.
    pub version: u64,
    /// The ledger may have forgotten starts before this time.
    pub doubt: u64,
    /// How long the host must be remembered, in milliseconds.
    pub keep_ms: u64,
    /// Whether the answer must name the server.
    pub name: bool,
    /// A turn that is handed back unused.
    pub unused: Option<UnusedTurn>,
    /// Until when the node knows the host to be held.
    pub held: u64,
    /// 0 and 1 mean that there is no burst.
    pub burst: u64,
    /// The most requests in flight; 0 = they are not limited.
    pub limit: u64,
    /// Whether the start must be counted among the requests in flight.
    pub track: bool,
    /// Answers that the node has heard since its last claim and that may let the pace rise; -1 if the row of successes
    /// is broken.
    pub praise: i32,
    /// The node's own slots, if it may start only at them.
    pub mine: Option<Slots>,
    /// The ranks of missing nodes, and how many nodes there are: their slots are left to them.
    pub missing: Vec<u32>,
    pub nodes: u32,
}

/// A granted turn that was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnusedTurn {
    /// The end of its window.
    pub end: u64,
    /// The last start before it.
    pub before: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The ledger's time.
    pub now: u64,
    /// The server that answers, if it was asked for its name.
    pub name: u64,
    /// The successes in a row of all nodes, if the claim has added some.
    pub successes: u64,
    pub ruling: Ruling,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// The node had given up before the claim arrived.
    TooLate,
    /// The node must first learn what the ledger knows about the host.
    News(HostNews),
    NotUntil(NotUntil),
    Go(Go),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUntil {
    pub at: u64,
    pub number: u64,
    /// Other numbers that wait.
    pub line: u64,
    pub why: Obstacle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    Delay,
    Hold,
    Pause,
    Places,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Go {
    /// The window is from here to `start + window`.
    pub start: u64,
    /// The last start before this one, for handing the turn back.
    pub before: u64,
    /// The node's next number and when it is expected to come up; 0 = none.
    pub number: u64,
    pub at: u64,
    pub line: u64,
    /// Whether the request is counted among those in flight.
    pub counted: bool,
}

/// What the ledger knows about a host besides its starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostNews {
    pub version: u64,
    pub held: u64,
    /// The end of an operator's pause.
    pub closed: u64,
    /// What the host taught, as text.
    pub record: String,
    /// What an operator set, as text.
    pub overrides: String,
}

/// What a node reports about a start, without waiting for an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settlement {
    pub unused: Option<UnusedTurn>,
    /// A number that the node no longer needs.
    pub number: u64,
    /// A start that was sent late or without a claim.
    pub sent: u64,
    /// The end of the window of a request that is no longer in flight.
    pub place: u64,
    pub keep_ms: u64,
}

/// What a node or an operator tells about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// The version that the node knew when it learned this.
    pub version: u64,
    pub held: u64,
    pub record: Option<String>,
    pub keep_ms: u64,
}

/// What an operator changes about a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steered {
    pub overrides: Option<String>,
    pub closed: Option<u64>,
    pub lift: bool,
    pub forget: bool,
}

/// What a node learns from its heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    pub now: u64,
    pub name: u64,
    pub nodes: u32,
    pub rank: u32,
    pub missing: Vec<u32>,
    /// Keys that the server has evicted so far.
    pub evicted: u64,
}
