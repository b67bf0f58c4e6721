//! What a lane remembers of its last visits, for people. Decides nothing.

use super::Lane;
use crate::politeness::fault::HostReply;
use crate::politeness::time::Timestamp;

/// How the host's last visits went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recent {
    /// What came back last.
    pub reply: Option<HostReply>,
    /// Since when visits get no answer; `None` if the last one did.
    pub failing_since: Option<Timestamp>,
    /// Until when requests are refused because robots.txt cannot be fetched; in the past if they are not.
    pub refused_until: Timestamp,
    /// Visits through tunnels that curtsy does not look into, modulo 2^32.
    pub tunnelled: u32,
}

impl Default for Recent {
    fn default() -> Self {
        Recent { reply: None, failing_since: None, refused_until: Timestamp::START, tunnelled: 0 }
    }
}

impl Recent {
    /// Whether no connection to the host could be opened the last time.
    pub fn is_unreachable(&self) -> bool {
        self.reply.is_some_and(|reply| reply.no_connection().is_some())
    }
}

impl Lane {
    /// Notes what came back from the host.
    pub fn note_reply(&mut self, reply: HostReply, now: Timestamp) {
        let since = self.recent.failing_since.unwrap_or(now);
        self.recent.failing_since = reply.fault().map(|_| since);
        self.recent.reply = Some(reply);
    }

    /// Notes that a tunnel to the host was opened. What it answers inside stays unknown.
    pub fn note_opened(&mut self) {
        if self.recent.failing_since.take().is_some() {
            self.recent.reply = None;
        }
    }

    /// Notes until when requests are refused without trying the host.
    pub fn note_refused(&mut self, until: Timestamp) {
        self.recent.refused_until = until;
    }

    /// Counts a visit through a tunnel.
    pub fn note_tunnelled(&mut self) {
        self.recent.tunnelled = self.recent.tunnelled.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::fault::OriginFault;
    use crate::politeness::lane::Condition;
    use crate::politeness::policy::Policy;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_host_is_unreachable_until_it_answers() {
        let mut lane = Lane::new(Policy::default(), 1);
        assert_eq!(lane.view(at(0)).condition(), Condition::Idle);
        lane.note_reply(HostReply::Fault(OriginFault::Refused), at(10));
        lane.note_reply(HostReply::Fault(OriginFault::ConnectTimeout), at(20));
        assert_eq!(
            (lane.view(at(30)).condition(), lane.condition(at(30)).0),
            (Condition::Unreachable, Condition::Unreachable)
        );
        assert_eq!(lane.recent.failing_since, Some(at(10)));
        lane.note_reply(HostReply::Status(404), at(40));
        assert_eq!((lane.view(at(50)).condition(), lane.recent.failing_since), (Condition::Idle, None));
        lane.note_reply(HostReply::Fault(OriginFault::Closed), at(60));
        assert_eq!(lane.view(at(70)).condition(), Condition::Idle, "it could be reached");
        lane.note_opened();
        assert_eq!(lane.recent, Recent::default());
    }
}
