//! The audit: real send times of one host, judged by what the host was owed.
//!
//! It shares no arithmetic with the turns it checks: it looks at the sends themselves, as the origin would. A breach is
//! a value; the caller counts and logs it. The audit must not judge sends that pacing did not decide.

use std::time::Duration;

use smallvec::SmallVec;

use super::time::Timestamp;
use super::turns::Owed;
use super::visit::Purpose;

/// A send that should not have happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// Closer to an earlier send than allowed.
    TooClose {
        gap: Duration,
        least: Duration,
    },
    Held {
        until: Timestamp,
    },
    /// More parts of pages without a turn than allowed since the last turn.
    TooManyParts {
        parts: u32,
        most: u32,
    },
}

#[derive(Debug, Default)]
pub(super) struct Audit {
    /// The latest sends, oldest first.
    sends: SmallVec<[Timestamp; BEYOND_BURST + 1]>,
    /// What the host was owed at the last send with a turn.
    delay: Duration,
    burst: u32,
    /// How many of the sends, counted back from the latest, were owed the same. At most [`MOST`].
    alike: u8,
    /// Whether the latest send was a robots.txt fetch that one page may follow at once.
    after_fetch: bool,
    /// Parts sent without a turn since the last turn that carries some; `None` before there is one.
    parts: Option<u32>,
}

/// Gaps are promised to the millisecond.
const TOLERANCE: Duration = Duration::from_millis(1);
/// Sends remembered beyond a burst.
const BEYOND_BURST: usize = 3;
/// The most sends remembered, however large the burst is: half a kilobyte.
const MOST: usize = 64;

impl Audit {
    /// Judges a send with a turn. A robots.txt fetch is judged like a page. The page that follows the fetch counts as
    /// one start with it, at the time of the page.
    pub(super) fn judge(&mut self, sent: Timestamp, purpose: Purpose, owed: Owed) -> Option<Breach> {
        if purpose == Purpose::AfterRobotsFetch && self.after_fetch {
            self.sends.pop();
            self.alike = self.alike.saturating_sub(1);
        }
        self.after_fetch = purpose == Purpose::RobotsFetch;
        if (owed.delay, owed.burst) != (self.delay, self.burst) {
            self.alike = 0;
        }
        (self.delay, self.burst) = (owed.delay, owed.burst);
        // Any `burst + n` sends span at least `n` delays. With a burst of 1 the latest send counts even if less was
        // owed then; a larger burst can be judged only over sends that were owed the same.
        let burst = self.burst.max(1) as usize;
        let known = usize::from(if burst == 1 { self.alike.max(1) } else { self.alike });
        let mut before = self.sends.iter().rev().take(known).enumerate().skip(burst - 1);
        let too_close = before.find_map(|(back, &earlier)| {
            let gap = sent.since(earlier);
            let gaps = u32::try_from(back + 2 - burst).unwrap_or(u32::MAX);
            let least = owed.delay.saturating_mul(gaps);
            (gap + TOLERANCE < least).then_some(Breach::TooClose { gap, least })
        });
        self.remember(sent);
        held(sent, owed.held_until).or(too_close)
    }

    /// Notes a send outside pacing. Sends before it are not compared with sends after it.
    pub(super) fn note(&mut self, sent: Timestamp) {
        self.alike = 0;
        self.after_fetch = false;
        self.remember(sent);
    }

    /// Notes that the latest send carries parts.
    pub(super) fn turn(&mut self) {
        self.parts = Some(0);
    }

    /// Judges a part that was sent without a turn: no more than `most` follow a turn, and none does while the host is
    /// held.
    pub(super) fn judge_ride(&mut self, sent: Timestamp, (most, held_until): (u32, Timestamp)) -> Option<Breach> {
        let parts = self.parts.map_or(u32::MAX, |parts| parts.saturating_add(1));
        self.parts = self.parts.map(|_| parts);
        held(sent, held_until).or_else(|| (parts > most).then_some(Breach::TooManyParts { parts, most }))
    }

    fn remember(&mut self, sent: Timestamp) {
        let most = (self.burst as usize).saturating_add(BEYOND_BURST).min(MOST);
        while self.sends.len() >= most {
            self.sends.remove(0);
        }
        self.sends.push(sent);
        self.alike = (self.alike + 1).min(self.sends.len() as u8);
    }
}

fn held(sent: Timestamp, until: Timestamp) -> Option<Breach> {
    (sent + TOLERANCE < until).then_some(Breach::Held { until })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn owed(delay: u64, burst: u32) -> Owed {
        Owed { delay: Duration::from_millis(delay), burst, held_until: Timestamp::START }
    }

    fn breaches(owed: Owed, sends: &[u64]) -> Vec<u64> {
        let mut audit = Audit::default();
        sends.iter().copied().filter(|&sent| audit.judge(at(sent), Purpose::Page, owed).is_some()).collect()
    }

    #[test]
    fn a_gap_that_is_too_short_by_more_than_a_millisecond_is_a_breach() {
        assert_eq!(breaches(owed(1_000, 1), &[0, 1_000, 1_999, 2_997, 4_000]), [2_997]);
        let mut audit = Audit::default();
        audit.judge(at(0), Purpose::Page, owed(1_000, 1));
        let (gap, least) = (Duration::from_millis(700), Duration::from_millis(1_000));
        assert_eq!(audit.judge(at(700), Purpose::Page, owed(1_000, 1)), Some(Breach::TooClose { gap, least }));
    }

    #[test]
    fn a_burst_is_no_breach_and_one_more_is() {
        assert_eq!(breaches(owed(1_000, 3), &[0, 0, 0, 1_000, 1_900, 5_000, 5_000]), [1_900]);
        assert_eq!(breaches(owed(1_000, 3), &[0, 0, 0, 0]), [0]);
        let many: Vec<u64> = (0..21).map(|_| 9).collect();
        assert_eq!(breaches(owed(100, 20), &many), [9]);
    }

    #[test]
    fn drift_over_many_sends_is_a_breach_too() {
        assert_eq!(breaches(owed(1_000, 1), &[0, 999, 1_998, 2_997]), [1_998, 2_997]);
    }

    #[test]
    fn no_delay_is_never_too_close() {
        assert!(breaches(owed(0, 1), &[5, 5, 5]).is_empty());
    }

    #[test]
    fn a_send_during_a_hold_is_a_breach() {
        let mut audit = Audit::default();
        let held = Owed { held_until: at(500), ..owed(0, 1) };
        assert_eq!(audit.judge(at(400), Purpose::Page, held), Some(Breach::Held { until: at(500) }));
        assert_eq!(audit.judge(at(500), Purpose::Page, held), None);
    }

    #[test]
    fn a_change_is_judged_from_the_latest_send() {
        let mut audit = Audit::default();
        for sent in [0, 100, 200] {
            assert_eq!(audit.judge(at(sent), Purpose::Page, owed(100, 1)), None);
        }
        assert!(
            audit.judge(at(900), Purpose::Page, owed(1_000, 1)).is_some(),
            "the longer delay counts from the latest send"
        );
        assert_eq!(audit.judge(at(1_900), Purpose::Page, owed(1_000, 1)), None);
        assert_eq!(
            audit.judge(at(1_901), Purpose::Page, owed(1_000, 2)),
            None,
            "a larger burst is judged from here on"
        );
    }

    /// Twenty hosts whose robots.txt redirects to this one, and sixty ports of it: each fetch but the first is a
    /// breach.
    #[test]
    fn robots_fetches_that_keep_no_distance_are_breaches() {
        for (count, apart) in [(20, 1), (60, 0)] {
            let mut audit = Audit::default();
            let sends = (0..count).map(|n| audit.judge(at(n * apart), Purpose::RobotsFetch, owed(1_000, 1)));
            assert_eq!(sends.filter(Option::is_some).count() as u64, count - 1);
        }
    }

    #[test]
    fn one_page_may_follow_a_robots_fetch_at_once() {
        let mut audit = Audit::default();
        let mut judge = |sent, purpose| audit.judge(at(sent), purpose, owed(1_000, 1)).is_some();
        assert!(!judge(0, Purpose::Page));
        assert!(judge(900, Purpose::RobotsFetch), "the fetch keeps its distance");
        assert!(!judge(10_000, Purpose::RobotsFetch));
        assert!(!judge(10_010, Purpose::AfterRobotsFetch));
        assert!(judge(10_020, Purpose::AfterRobotsFetch), "a second page");
        assert!(!judge(20_000, Purpose::RobotsFetch));
        assert!(judge(20_010, Purpose::Page), "a page that did not wait for it");
        assert!(!judge(30_000, Purpose::RobotsFetch));
        assert!(judge(30_010, Purpose::RobotsFetch), "a second fetch");
        assert!(!judge(40_000, Purpose::Page));
        assert!(judge(40_010, Purpose::AfterRobotsFetch), "nothing was fetched");
    }

    #[test]
    fn what_was_not_paced_is_not_judged() {
        let mut audit = Audit::default();
        audit.note(at(0));
        audit.note(at(0));
        assert_eq!(audit.judge(at(1_000), Purpose::Page, owed(1_000, 1)), None);
        assert_eq!(audit.sends.len(), 3);
    }
}
