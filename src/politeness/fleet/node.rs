//! What one node decides: a wish of a lane becomes a claim or a slot, and an answer becomes a window or a time to wait.
//!
//! Promises: the window that a node is given lies within the granted one on the ledger's clock, however uncertain the
//! difference of the clocks is; an answer after which the ledger may have forgotten something grants nothing. There is
//! one of these for each server of the ledger.
//!
//! Times are microseconds of the node's own clock, unless their names say *theirs*.

use super::calls::{Answer, Beat, Claim, HostNews, NotUntil, Ruling, UnusedTurn};
use super::offset::Offset;
use super::slots::{self, Slots};
use super::standing::{Standing, StandingState};
use super::trips::RoundTrips;
use super::{FORGOTTEN_GRANTS, window};

/// A node that has heard nothing for this long asks the server for its name: a server that was replaced was silent for
/// longer.
const NAME_AFTER: u64 = 100_000;
/// How soon a visit asks again while it is not known whether the ledger answers.
const ASK_AGAIN: u64 = 20_000;

#[derive(Clone, Debug)]
pub struct Node {
    offset: Offset,
    standing: Standing,
    trips: RoundTrips,
    /// The server that answered last.
    name: u64,
    /// The ledger may have forgotten what was before this time of its clock.
    doubt: u64,
    heard_at: u64,
    /// How long the node waits for an answer.
    timeout: u64,
    evicted: u64,
}

/// What a lane wants: to start a visit now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    pub delay: u64,
    pub burst: u64,
    /// Until when the lane holds the host.
    pub held: u64,
    pub limit: u64,
    pub track: bool,
    /// Successes that the other nodes do not know of; -1 if the row was broken.
    pub praise: i32,
    /// Whether another visit waits behind this one.
    pub more: bool,
    pub number: u64,
    pub version: u64,
    pub unused: Option<UnusedTurn>,
    pub keep_ms: u64,
    /// The last slot that a start of this node at this host has used.
    pub slot: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Claim it.
    Ask(Claim),
    /// The node is alone and this is its slot: start within the window.
    Start(Window),
    /// Ask again at this time. So many nodes take turns meanwhile.
    Wait { until: u64, others: u64 },
}

/// When a start may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    pub from: u64,
    pub until: u64,
}

/// What an answer means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Go {
        window: Window,
        /// For handing the turn back.
        unused: UnusedTurn,
        /// The next number of this node and when to ask with it.
        next: Option<(u64, u64)>,
        others: u64,
        counted: bool,
    },
    Wait {
        until: u64,
        others: u64,
        told: NotUntil,
    },
    News(HostNews),
    /// Claim again: the answer grants nothing, because the ledger may have forgotten something.
    Again,
}

impl Node {
    pub fn new(slots: Slots, timeout: u64, now: u64) -> Self {
        Node {
            offset: Offset::default(),
            standing: Standing::new(slots, now),
            trips: RoundTrips::default(),
            name: 0,
            doubt: 0,
            heard_at: 0,
            timeout,
            evicted: 0,
        }
    }

    pub fn state(&self) -> StandingState {
        self.standing.state()
    }

    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns how long nine of ten answers take at most.
    pub fn trip(&self) -> u64 {
        self.trips.usual()
    }

    pub fn lead(&self) -> u64 {
        self.trips.lead()
    }

    /// Returns the ledger's time as well as it is known.
    pub fn theirs(&self, local: u64, now: u64) -> u64 {
        self.offset.theirs(local, now)
    }

    /// Returns the local time that a time of the ledger stands for.
    pub fn local(&self, theirs: u64, now: u64) -> u64 {
        theirs.saturating_add_signed(now as i64 - self.offset.theirs(now, now) as i64)
    }

    /// Decides what to do about a wish.
    pub fn plan(&self, wish: &Wish, now: u64) -> Plan {
        match self.standing.state() {
            StandingState::Starting | StandingState::Telling => Plan::Wait { until: now + ASK_AGAIN, others: 0 },
            StandingState::Joined => Plan::Ask(self.claim(wish, now)),
            StandingState::Returning => {
                Plan::Ask(Claim { mine: Some(self.standing.slots()), missing: Vec::new(), ..self.claim(wish, now) })
            }
            StandingState::Alone => self.slot(wish, now),
        }
    }

    fn claim(&self, wish: &Wish, now: u64) -> Claim {
        let window = window(wish.delay).max(self.offset.width(now) + 1_000);
        let theirs = |local: u64| if local > now { self.offset.theirs(local, now) + self.offset.width(now) } else { 0 };
        Claim {
            until: self.offset.theirs(now, now) + self.timeout,
            delay: wish.delay,
            window,
            early: self.trips.early().min(FORGOTTEN_GRANTS.saturating_sub(window)),
            reach: self.trips.reach(window).min(FORGOTTEN_GRANTS / 2),
            number: wish.number,
            more: wish.more,
            version: wish.version,
            doubt: self.doubt,
            keep_ms: wish.keep_ms,
            name: now > self.heard_at + NAME_AFTER,
            unused: wish.unused,
            held: theirs(wish.held),
            // The ledger does not know what a missing node starts in its slots, so nothing is saved up for a burst.
            burst: if self.standing.missing().is_empty() { wish.burst } else { wish.burst.min(1) },
            limit: wish.limit,
            track: wish.track,
            praise: wish.praise,
            mine: None,
            missing: self.standing.missing().to_vec(),
            nodes: self.standing.slots().nodes,
        }
    }

    /// Without the ledger: the next own slot. The clocks drift apart meanwhile, so the best guess counts.
    fn slot(&self, wish: &Wish, now: u64) -> Plan {
        let (delay, slots) = (wish.delay, self.standing.slots());
        let length = slots::length(delay);
        let earliest = now.max(self.standing.quiet_until(delay)).max(wish.slot + delay);
        let theirs = self.offset.theirs(earliest, now);
        let from = self.local(slots.next(theirs.saturating_sub(length / 2), slots::step(delay)), now);
        if from <= now + ASK_AGAIN / 2 {
            return Plan::Start(Window { from: from.max(earliest), until: from + length });
        }
        Plan::Wait { until: from - ASK_AGAIN / 4, others: u64::from(slots.nodes).saturating_sub(1) }
    }

    /// Takes the answer to a claim that went out at `asked`.
    pub fn heard(&mut self, claim: &Claim, answer: Answer, asked: u64, now: u64) -> Verdict {
        // Enough time for another server to take over, and the answer does not say whose it is.
        if answer.name == 0 && now > self.heard_at + NAME_AFTER {
            return Verdict::Again;
        }
        // Another answer may have shown meanwhile that the ledger has forgotten something.
        if !self.listen(asked, answer.now, answer.name, now) || self.doubt > claim.doubt {
            return Verdict::Again;
        }
        match answer.ruling {
            Ruling::TooLate => Verdict::Again,
            Ruling::News(news) => Verdict::News(news),
            Ruling::NotUntil(told) => Verdict::Wait {
                until: self.local(told.at, now).saturating_sub(self.trips.lead()),
                others: told.line,
                told,
            },
            Ruling::Go(go) => {
                let end = go.start + claim.window;
                let at = self.local(go.at, now).saturating_sub(self.trips.lead());
                Verdict::Go {
                    window: Window {
                        from: self.offset.surely_come(go.start, now),
                        until: self.offset.surely_not_passed(end, now),
                    },
                    unused: UnusedTurn { end, before: go.before },
                    next: (go.number > 0).then_some((go.number, at)),
                    others: go.line,
                    counted: go.counted,
                }
            }
        }
    }

    /// Takes the time and the name of an answer. Returns false if the ledger may have forgotten something since.
    fn listen(&mut self, asked: u64, theirs: u64, name: u64, now: u64) -> bool {
        self.trips.took(now.saturating_sub(asked));
        self.heard_at = self.heard_at.max(now);
        let fits = self.offset.heard(asked, now, theirs);
        let is_known = name == 0 || self.name == 0 || name == self.name;
        if name != 0 {
            self.name = name;
        }
        if !(fits && is_known) {
            self.doubt = theirs + FORGOTTEN_GRANTS;
        }
        fits && is_known
    }

    /// Notes that a heartbeat goes out.
    pub fn beats(&mut self, now: u64) {
        self.standing.beats(now);
    }

    /// Takes the answer to a heartbeat. Returns the new state if there is one.
    pub fn beat(&mut self, beat: &Beat, asked: u64, now: u64) -> Option<StandingState> {
        let is_known = self.listen(asked, beat.now, beat.name, now);
        if beat.evicted > self.evicted && self.evicted_is_known() {
            self.doubt = beat.now + FORGOTTEN_GRANTS;
        }
        self.evicted = beat.evicted;
        let state = self.standing.beat(beat, now);
        if !is_known || (state.is_some() && state != Some(StandingState::Joined)) || self.doubt == 0 {
            self.doubt = beat.now + FORGOTTEN_GRANTS;
        }
        state
    }

    fn evicted_is_known(&self) -> bool {
        self.standing.state() != StandingState::Starting
    }

    /// The ledger answered a call that changes nothing: it is back. Returns false if the node is not alone.
    pub fn answers_again(&mut self, theirs: u64, asked: u64, now: u64) -> bool {
        self.listen(asked, theirs, 0, now);
        self.standing.tells(now);
        self.standing.state() == StandingState::Telling
    }

    /// A call failed. Returns whether the node has become alone by it.
    pub fn failed(&mut self, now: u64) -> bool {
        self.standing.failed(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::fleet::calls::Go;

    const NOW: u64 = 50_000_000;

    fn beat(now: u64, name: u64, missing: &[u32]) -> Beat {
        Beat { now, name, nodes: 2, rank: 0, missing: missing.to_vec(), evicted: 0 }
    }

    fn joined(missing: &[u32]) -> Node {
        let mut node = Node::new(Slots { rank: 0, nodes: 2 }, 500_000, NOW - 10_000_000);
        for before in (0..=9).rev() {
            let at = NOW - before * 500_000;
            node.beats(at - 100);
            node.beat(&beat(at, 1, missing), at - 100, at);
        }
        assert_eq!(node.state(), StandingState::Joined);
        node
    }

    fn ask(node: &Node, burst: u64) -> Claim {
        match node.plan(&Wish { delay: 1_000_000, burst, ..Wish::default() }, NOW) {
            Plan::Ask(claim) => claim,
            plan => panic!("{plan:?}"),
        }
    }

    /// Both went to a server that was replaced by an older copy, and the answer to the heartbeat was heard first.
    #[test]
    fn a_grant_counts_for_nothing_if_the_ledger_has_forgotten_something_since_the_claim() {
        for name in [1, 2] {
            let mut node = joined(&[]);
            let claim = ask(&node, 1);
            node.beat(&beat(NOW + 200, name, &[]), NOW, NOW + 300);
            let go = Go { start: NOW + 1_000, before: 0, number: 0, at: 0, line: 0, counted: false };
            let answer = Answer { now: NOW + 250, name, successes: 0, ruling: Ruling::Go(go) };
            let verdict = node.heard(&claim, answer, NOW, NOW + 400);
            assert_eq!(matches!(verdict, Verdict::Go { .. }), name == 1, "{verdict:?}");
        }
    }

    /// It lay in the sockets of a server that hung, and perhaps an older copy took it over.
    #[test]
    fn a_late_answer_without_a_name_is_asked_for_again_with_one() {
        let mut node = joined(&[]);
        let claim = ask(&node, 1);
        assert!(!claim.name, "the server was heard just now");
        let go = Go { start: NOW + 201_000, before: 0, number: 0, at: 0, line: 0, counted: false };
        let answer = Answer { now: NOW + 200_000, name: 0, successes: 0, ruling: Ruling::Go(go) };
        assert_eq!(node.heard(&claim, answer, NOW, NOW + 200_100), Verdict::Again);
        let Plan::Ask(again) = node.plan(&Wish::default(), NOW + 200_100) else { panic!("it is joined") };
        assert!(again.name);
    }

    #[test]
    fn nothing_is_saved_up_for_a_burst_while_a_node_is_missing() {
        assert_eq!(ask(&joined(&[]), 4).burst, 4);
        assert_eq!(ask(&joined(&[1]), 4).burst, 1);
    }
}
