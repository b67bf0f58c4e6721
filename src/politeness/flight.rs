//! A flight: requests for the same thing at the same time, of which one is sent and the others share its answer.
//!
//! Every member keeps its own place in the queue of its host. No leader is elected: the first member whose turn comes
//! leads and is sent. A member whose turn comes later steps aside ([`Lane::step_aside`]) until the head of the answer
//! is in. If the answer can be shared, the member leaves the queue and its turn stays unspent. If not, or if the leader
//! fails, the member steps back to the front of the queue; the next one whose turn comes leads.
//!
//! Promises, checked by trying every order of events with a few members (`flight_tests`): one member at most is under
//! way for its flight; a member that is aside is released as soon as no answer is to be expected; a member that asked
//! for the newest answer never shares one that was sent before it came; no GET follows a HEAD; a flight is empty in the
//! end.
//!
//! [`Lane::step_aside`]: super::lane::Lane::step_aside

use std::time::Duration;

use smallvec::SmallVec;

/// How long a member stays aside without an answer. Then it goes on alone: behind a slow origin, a request of its own
/// may be faster. Most answers come within a second; 5 s is also how long a leader may take to connect.
pub const LONGEST_ASIDE: Duration = Duration::from_secs(5);

/// A member of a flight. Numbers are not used twice in a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member(u32);

impl Member {
    /// The member that begins a flight.
    pub const FIRST: Member = Member(0);
}

/// What a request wants of a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Following {
    /// Leads, or shares any answer.
    Any,
    /// Leads, or shares an answer that is asked for after now (`no-cache`).
    Newest,
    /// Shares, but does not lead: a HEAD, whose answer has no body.
    HeadOnly,
}

/// What a member does when its turn is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallReply {
    /// It is sent, and the others share its answer.
    Lead,
    /// It waits until [`Flight::is_released`] with this round.
    StepAside(Round),
    /// It is sent, and shares nothing. It is no longer a member.
    Alone,
}

/// Counts how often members that stepped aside were released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Round(u32);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flight {
    members: SmallVec<[(Member, Following); 2]>,
    leader: Option<Member>,
    /// Whether the leader's request is sent.
    is_sent: bool,
    round: Round,
    next: u32,
}

impl Default for Flight {
    fn default() -> Self {
        Flight { members: SmallVec::new(), leader: None, is_sent: false, round: Round(0), next: 0 }
    }
}

impl Flight {
    /// A flight whose first member is sent already.
    pub fn under_way() -> Self {
        let mut flight = Flight::default();
        flight.join(Following::Any);
        (flight.leader, flight.is_sent) = (Some(Member::FIRST), true);
        flight
    }

    /// Adds a member, or returns `None` if the request cannot use the answer that is under way.
    pub fn join(&mut self, following: Following) -> Option<Member> {
        if self.is_sent && following == Following::Newest {
            return None;
        }
        let member = Member(self.next);
        self.next += 1;
        self.members.push((member, following));
        Some(member)
    }

    /// Reports that the member's turn is near, and returns what it does. It may be the leader, whose turn comes again.
    pub fn called(&mut self, member: Member) -> CallReply {
        let Some(&(_, following)) = self.members.iter().find(|(other, _)| *other == member) else {
            return CallReply::Alone;
        };
        match (self.leader, following) {
            (Some(leader), _) if leader == member => CallReply::Lead,
            (Some(_), _) => CallReply::StepAside(self.round),
            (None, Following::HeadOnly) => {
                self.remove(member);
                CallReply::Alone
            }
            (None, Following::Any | Following::Newest) => {
                self.leader = Some(member);
                CallReply::Lead
            }
        }
    }

    /// Reports that the leader's request is sent.
    pub fn sent(&mut self, member: Member) {
        self.is_sent |= self.leader == Some(member);
    }

    /// Reports that the leader waits for another turn, because it is sent again or its turn was not near after all.
    /// It leads as before if `keeps` is true; otherwise the first member that is called leads.
    pub fn waits_again(&mut self, member: Member, keeps: bool) {
        if self.leader == Some(member) {
            self.release();
            self.leader = self.leader.filter(|_| keeps);
        }
    }

    /// Removes a member: its client disconnected, it goes on alone, or it has failed. If it led, another one may.
    pub fn leave(&mut self, member: Member) {
        self.remove(member);
        if self.leader == Some(member) {
            self.release();
            self.leader = None;
        }
    }

    /// Reports that the head of the leader's answer is in. The flight is over: each member that is left decides
    /// whether it shares the answer, and leaves. Returns whether there is one.
    pub fn landed(&mut self, member: Member) -> bool {
        self.leave(member);
        !self.members.is_empty()
    }

    /// Returns whether a member that stepped aside in this round has to step back.
    pub fn is_released(&self, round: Round) -> bool {
        self.round != round
    }

    /// Returns whether a member is under way.
    pub fn is_led(&self) -> bool {
        self.leader.is_some()
    }

    /// Returns whether this member leads.
    pub fn is_led_by(&self, member: Member) -> bool {
        self.leader == Some(member)
    }

    /// Returns whether another member than this one waits for the answer.
    pub fn has_others(&self, member: Member) -> bool {
        self.members.iter().any(|(other, _)| *other != member)
    }

    pub fn is_member(&self, member: Member) -> bool {
        self.members().any(|other| other == member)
    }

    pub fn members(&self) -> impl Iterator<Item = Member> {
        self.members.iter().map(|(member, _)| *member)
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    fn remove(&mut self, member: Member) {
        self.members.retain(|(other, _)| *other != member);
    }

    fn release(&mut self) {
        self.is_sent = false;
        self.round = Round(self.round.0.wrapping_add(1));
    }
}

#[cfg(test)]
#[path = "flight_tests.rs"]
mod tests;
