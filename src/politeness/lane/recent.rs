//! What a lane remembers of its last visits, for people: how they went, when they started, and when the host was held.
//! It decides one thing: `auto` begins to measure when there is a timeline, that is from a host's second start on.
//!
//! Memory of a timeline: nothing before a host's second start, at most about 800 bytes afterwards, and nothing again
//! once the host has been quiet for [`QUIET`].

use std::collections::VecDeque;
use std::time::Duration;

use super::{Held, Lane};
use crate::politeness::fault::HostReply;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::Purpose;

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

/// One minute at the default delay.
const MOST_STARTS: usize = 60;
/// Holds are rarer than starts: at most one for each refusal.
const MOST_HOLDS: usize = 8;
/// A timeline that ended this long ago explains nothing that happens now.
const QUIET: Duration = Duration::from_secs(900);

/// The latest starts and holds of a host, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// When requests were sent, except robots.txt fetches and parts of pages, which need not keep the delay.
    pub starts: VecDeque<Timestamp>,
    pub holds: VecDeque<HoldSpan>,
}

/// A time during which a host was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldSpan {
    pub from: Timestamp,
    pub until: Timestamp,
    pub cause: Held,
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

    /// Notes that a page is about to be sent. Keeps nothing for the first one: most hosts have no second.
    pub(super) fn note_start(&mut self, purpose: Purpose, now: Timestamp) {
        let before = self.last_sent().filter(|_| purpose == Purpose::Page);
        if before.is_some() || self.timeline.is_some() {
            let starts = &mut self.timeline.get_or_insert_default().starts;
            starts.extend(before.filter(|_| starts.is_empty()));
            push(starts, now, MOST_STARTS);
        }
    }

    /// Notes a hold that has just begun or grown.
    pub(super) fn note_hold(&mut self, cause: Held, until: Timestamp, now: Timestamp) {
        if until <= now {
            return;
        }
        let holds = &mut self.timeline.get_or_insert_default().holds;
        match holds.back_mut() {
            Some(last) if last.until >= until => {}
            Some(last) if last.until > now && last.cause == cause => last.until = until,
            _ => push(holds, HoldSpan { from: now, until, cause }, MOST_HOLDS),
        }
    }

    pub(super) fn forget_old_timeline(&mut self, now: Timestamp) {
        let is_old = |last: Timestamp| now.since(last) > QUIET;
        if self.last_sent().is_none_or(is_old) && is_old(self.held_until()) {
            self.timeline = None;
        }
    }

    /// Returns the latest starts and holds, with a hold that was remembered from an earlier process.
    pub fn timeline(&self, now: Timestamp) -> Timeline {
        let mut timeline = self.timeline.as_deref().cloned().unwrap_or_default();
        if timeline.starts.is_empty() {
            timeline.starts.extend(self.last_sent());
        }
        let until = self.held_until();
        if until > now && timeline.holds.back().is_none_or(|last| last.until < until) {
            timeline.holds.push_back(HoldSpan { from: now, until, cause: self.turns.bars().held_by });
        }
        timeline
    }
}

fn push<T>(kept: &mut VecDeque<T>, new: T, most: usize) {
    if kept.len() == most {
        kept.pop_front();
    }
    kept.push_back(new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::fault::OriginFault;
    use crate::politeness::lane::Condition;
    use crate::politeness::pace::Cause;
    use crate::politeness::policy::Policy;
    use crate::politeness::visit::{ClientId, Visit};

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn visit(lane: &mut Lane, now: Timestamp) {
        let ticket = lane.walk_through(&Visit::new(ClientId(1), 1), now).expect("a free lane");
        lane.sent(ticket, now);
        lane.leave(ticket, now);
    }

    #[test]
    fn the_latest_starts_are_kept() {
        let mut lane = Lane::new(Policy::default(), 1);
        visit(&mut lane, at(10));
        assert_eq!((lane.timeline(at(10)).starts, lane.timeline.is_none()), (VecDeque::from([at(10)]), true));
        (11..100).for_each(|second| visit(&mut lane, at(second)));
        let starts = lane.timeline(at(100)).starts;
        assert_eq!((starts.len(), starts[0], starts[59]), (MOST_STARTS, at(40), at(99)));
        lane.give_back_room(at(99) + QUIET);
        assert!(lane.timeline.is_some(), "it may still be looked at");
        lane.give_back_room(at(100) + QUIET);
        assert_eq!((lane.timeline.is_none(), lane.timeline(at(1000)).starts.len()), (true, 1));
    }

    #[test]
    fn a_page_that_follows_its_robots_fetch_is_a_first_start() {
        let mut lane = Lane::new(Policy::default(), 1);
        for purpose in [Purpose::RobotsFetch, Purpose::AfterRobotsFetch] {
            let visit = Visit { purpose, ..Visit::new(ClientId(1), 1) };
            let ticket = lane.walk_through(&visit, at(10)).expect("a free lane");
            lane.sent(ticket, at(10));
            lane.leave(ticket, at(10));
        }
        assert!(lane.timeline.is_none());
        visit(&mut lane, at(20));
        assert_eq!(lane.timeline(at(20)).starts, [at(10), at(20)]);
    }

    #[test]
    fn holds_grow_and_are_bounded() {
        let mut lane = Lane::new(Policy::default(), 1);
        let held = |cause| Held::Pace(cause);
        lane.hold_for(held(Cause::RetryAfter), at(30), at(10));
        lane.hold_for(held(Cause::RetryAfter), at(40), at(20));
        lane.hold_for(held(Cause::Backoff), at(35), at(21));
        let span = |from, until, cause| HoldSpan { from: at(from), until: at(until), cause: held(cause) };
        assert_eq!(lane.timeline(at(22)).holds, [span(10, 40, Cause::RetryAfter)]);
        lane.hold_for(held(Cause::Backoff), at(50), at(30));
        assert_eq!(lane.timeline(at(31)).holds.back(), Some(&span(30, 50, Cause::Backoff)));
        (1..30).for_each(|round| lane.hold(at(round * 100 + 5), at(round * 100)));
        assert_eq!(lane.timeline(at(9_000)).holds.len(), MOST_HOLDS);
    }

    #[test]
    fn a_remembered_hold_is_shown() {
        let mut lane = Lane::new(Policy::default(), 1);
        lane.hold(at(60), at(0));
        lane.timeline = None;
        assert_eq!(lane.timeline(at(50)).holds, [HoldSpan { from: at(50), until: at(60), cause: Held::Other }]);
        assert_eq!(lane.timeline(at(70)), Timeline::default());
    }

    const fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_host_is_unreachable_until_it_answers() {
        let mut lane = Lane::new(Policy::default(), 1);
        assert_eq!(lane.view(ms(0)).condition(), Condition::Idle);
        lane.note_reply(HostReply::Fault(OriginFault::Refused), ms(10));
        lane.note_reply(HostReply::Fault(OriginFault::ConnectTimeout), ms(20));
        assert_eq!(
            (lane.view(ms(30)).condition(), lane.condition(ms(30)).0),
            (Condition::Unreachable, Condition::Unreachable)
        );
        assert_eq!(lane.recent.failing_since, Some(ms(10)));
        lane.note_reply(HostReply::Status(404), ms(40));
        assert_eq!((lane.view(ms(50)).condition(), lane.recent.failing_since), (Condition::Idle, None));
        lane.note_reply(HostReply::Fault(OriginFault::Closed), ms(60));
        assert_eq!(lane.view(ms(70)).condition(), Condition::Idle, "it could be reached");
        lane.note_opened();
        assert_eq!(lane.recent, Recent::default());
    }
}
