//! What the nodes of a fleet share about the pace of a host: all that decides it, so that the fleet learns as one
//! curtsy would.
//!
//! A trial is part of the record, so that all nodes are on trial together and the first refusal ends it for all. So are
//! epochs: a refusal of a request that was sent before the last raise, by whichever node, counts already. Nodes' clocks
//! differ, so a time is written as what is left of it.
//!
//! Promises: whatever a record says, the resulting pace is within bounds. Epochs never go back.

use std::time::Duration;

use super::steps::{Floor, LONGEST_FLOOR_LIFE, Steps, before, millis, span};
use super::{Learner, Learning, Pace, PaceState};
use crate::politeness::time::Timestamp;

/// Delays are milliseconds; zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PaceRecord {
    pub learned: u32,
    pub floor: u32,
    pub floor_life_s: u32,
    pub floor_left_s: u32,
    /// The delay that worked, while a lower one is on trial.
    pub probed_from: u32,
    pub epoch: u32,
    /// The epoch that the last raise began.
    pub raised: u32,
    pub errors: u16,
    pub quota: Option<QuotaRecord>,
    pub limit: Option<LimitRecord>,
}

/// A quota that the host announces.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaRecord {
    pub left: u32,
    /// Milliseconds between two requests.
    pub every: u32,
    pub reset_left_ms: u32,
    pub doubt_left_s: u32,
}

/// What `auto` has measured. Rates are requests in a thousand seconds; zero if there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitRecord {
    pub phase: u8,
    pub rate: u32,
    pub limit: u32,
    pub refused_rate: u32,
    pub refused_left_s: u32,
    pub bans: u8,
    pub confirmed: u16,
    pub next_left_s: u32,
    /// Refusals in a row of requests that were sent one at a time; zero if the host does not refuse.
    pub canaries: u8,
    pub refused_ago_ms: u32,
}

impl Pace {
    /// Returns what the fleet must know, if anything was learned.
    pub fn record(&self, now: Timestamp) -> Option<PaceRecord> {
        let quota = self.allowance.record(now);
        let record = match &self.state {
            PaceState::Steps(steps) => steps.record(now),
            PaceState::Auto(auto) => auto.record(now),
        };
        (record.is_some() || quota.is_some()).then(|| PaceRecord { quota, ..record.unwrap_or_default() })
    }

    /// Replaces what was learned here by what the fleet has learned. The hold stays.
    pub fn take_in(&mut self, record: &PaceRecord, learning: &Learning, now: Timestamp) {
        let most = millis(learning.max_delay);
        let within = |delay: u32| delay.min(most);
        let life_s = record.floor_life_s.min(LONGEST_FLOOR_LIFE);
        let record = PaceRecord {
            learned: within(record.learned),
            floor: within(record.floor),
            floor_life_s: life_s,
            floor_left_s: record.floor_left_s.min(life_s),
            probed_from: within(record.probed_from),
            ..*record
        };
        match (&mut self.state, learning.learner) {
            (PaceState::Auto(auto), Learner::Auto) => auto.take_in(&record, now),
            (PaceState::Steps(steps), _) => steps.take_in(&record, now),
            (PaceState::Auto(_), _) => {}
        }
        if let Some(quota) = &record.quota {
            self.allowance.take_in(quota, now);
        }
    }

    /// Returns the interval of the quota that the host announces, in milliseconds; zero if there is none.
    pub fn quota_interval(&self, now: Timestamp) -> u32 {
        self.allowance.record(now).map_or(0, |quota| quota.every)
    }

    /// Returns how many successes there were since the last call, for the other nodes; -1 if the row was broken.
    pub fn take_praise(&mut self) -> i32 {
        match &mut self.state {
            PaceState::Steps(steps) => steps.take_praise(),
            PaceState::Auto(_) => 0,
        }
    }

    /// Takes the successes in a row of all nodes.
    pub fn praised(&mut self, successes: u64) {
        if let PaceState::Steps(steps) = &mut self.state {
            steps.praised(u16::try_from(successes).unwrap_or(u16::MAX));
        }
    }
}

impl PaceRecord {
    /// Returns the floor as it counts now.
    pub(super) fn floor(&self, now: Timestamp) -> Floor {
        let until = now + Duration::from_secs(self.floor_left_s.into());
        Floor { delay: self.floor, life_s: self.floor_life_s, until }
    }

    /// Returns the delay that is known to work.
    pub(super) fn safe_delay(&self) -> Duration {
        span(self.learned.max(self.probed_from))
    }

    /// Whether a node that has learned this knows of a refusal that is not part of the other record, or of a longer
    /// delay.
    pub fn outweighs(&self, other: &PaceRecord) -> bool {
        before(other.raised, self.raised) || self.safe_delay() > other.safe_delay()
    }
}

impl Steps {
    fn record(&self, now: Timestamp) -> Option<PaceRecord> {
        let floor = self.floor();
        (!self.safe().is_zero()).then(|| PaceRecord {
            learned: millis(self.learned()),
            floor: floor.delay,
            floor_life_s: floor.life_s,
            floor_left_s: u32::try_from(floor.until.since(now).as_secs()).unwrap_or(u32::MAX),
            probed_from: if self.probing() { millis(self.safe()) } else { 0 },
            epoch: self.epoch(),
            raised: self.raised(),
            errors: self.errors(),
            ..PaceRecord::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::pace::{PaceLoad, PaceReport, What};
    use crate::politeness::signals::{PaceSignal, Quota, Signals};

    const BASE: Duration = Duration::from_secs(1);
    const LOAD: PaceLoad = PaceLoad { in_flight: 0, places: 4 };

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn report(epoch: super::super::Epoch, answer: PaceSignal) -> PaceReport {
        let signals = Signals { answer, ..Signals::SERVED };
        PaceReport { epoch, signals, load: LOAD, took: Duration::ZERO }
    }

    fn told(pace: &Pace, now: Timestamp) -> PaceRecord {
        pace.record(now).expect("something was learned")
    }

    #[test]
    fn refusals_of_one_burst_raise_the_delay_once_whoever_hears_them() {
        let learning = Learning::steps();
        let (mut first, mut second) = (Pace::new(), Pace::new());
        let sent = [first.sent(LOAD, BASE, &learning, at(0)), second.sent(LOAD, BASE, &learning, at(1))];
        let later = second.sent(LOAD, BASE, &learning, at(2));
        first.heard(report(sent[0], PaceSignal::Throttled), BASE, &learning, at(3));
        second.take_in(&told(&first, at(3)), &learning, at(3));
        for epoch in [sent[1], later] {
            assert_eq!(second.heard(report(epoch, PaceSignal::Throttled), BASE, &learning, at(3)), None);
        }
        assert_eq!(second.learned(), Duration::from_secs(2));
        let after = second.sent(LOAD, BASE, &learning, at(5));
        assert!(second.heard(report(after, PaceSignal::Throttled), BASE, &learning, at(5)).is_some());
        assert_eq!(second.learned(), Duration::from_secs(3));
    }

    #[test]
    fn successes_of_all_nodes_start_a_trial_and_a_refusal_at_any_ends_it() {
        let learning = Learning::steps();
        let (mut first, mut second) = (Pace::new(), Pace::new());
        let sent = first.sent(LOAD, BASE, &learning, at(0));
        first.heard(report(sent, PaceSignal::Throttled), BASE, &learning, at(0));
        second.take_in(&told(&first, at(0)), &learning, at(0));
        let serve = |pace: &mut Pace, now| {
            let sent = pace.sent(LOAD, BASE, &learning, now);
            pace.heard(report(sent, PaceSignal::Success), BASE, &learning, now)
        };
        let mut all = 0;
        for round in 0..9 {
            for pace in [&mut first, &mut second] {
                assert_eq!(serve(pace, at(10 + round)), None);
                all += pace.take_praise();
                pace.praised(u64::try_from(all).unwrap());
            }
        }
        assert_eq!((all, first.success_streak(), second.success_streak()), (18, 17, 18));
        assert_eq!(serve(&mut second, at(30)), None);
        assert_eq!(serve(&mut second, at(31)).unwrap().what, What::Probing, "twenty in all");
        first.take_in(&told(&second, at(31)), &learning, at(31));
        assert!(first.probing() && first.learned() == BASE);
        let sent = first.sent(LOAD, BASE, &learning, at(32));
        let change = first.heard(report(sent, PaceSignal::Throttled), BASE, &learning, at(33)).unwrap();
        assert_eq!((change.what, change.learned), (What::Restored, Duration::from_secs(2)));
        second.take_in(&told(&first, at(33)), &learning, at(33));
        assert_eq!((second.probing(), second.floor(at(33))), (false, Some(Duration::from_secs(2))));
    }

    #[test]
    fn a_row_that_is_broken_at_one_node_is_broken_for_all() {
        let learning = Learning::steps();
        let mut pace = Pace::new();
        for answer in [PaceSignal::Throttled, PaceSignal::Success, PaceSignal::Failed, PaceSignal::Success] {
            let sent = pace.sent(LOAD, BASE, &learning, at(0));
            pace.heard(report(sent, answer), BASE, &learning, at(0));
        }
        assert_eq!((pace.take_praise(), pace.take_praise()), (-1, 0));
    }

    #[test]
    fn a_quota_slows_the_nodes_that_have_not_heard_it() {
        let learning = Learning::steps();
        let (mut first, mut second) = (Pace::new(), Pace::new());
        let sent = first.sent(LOAD, BASE, &learning, at(0));
        let quota = Some(Quota { remaining: 10, reset: Duration::from_secs(60) });
        let signals = Signals { quota, ..Signals::SERVED };
        first.heard(PaceReport { signals, ..report(sent, PaceSignal::Success) }, BASE, &learning, at(0));
        second.take_in(&told(&first, at(0)), &learning, at(0));
        assert_eq!(second.delay(BASE, &learning, at(0)), first.delay(BASE, &learning, at(0)));
        assert!(second.delay(BASE, &learning, at(0)) > Duration::from_secs(5));
        assert_eq!(first.quota_interval(at(0)), second.quota_interval(at(0)));
        assert_eq!(second.quota_interval(at(4_000)), 0, "it is over");
    }

    #[test]
    fn auto_goes_on_where_another_node_was() {
        let learning = Learning { learner: Learner::Auto, ..Learning::default() };
        let base = Duration::from_millis(10);
        let (mut first, mut second) = (Pace::new(), Pace::new());
        [&mut first, &mut second].into_iter().for_each(|pace| pace.follow(&learning, at(0)));
        let answer = |pace: &mut Pace, answer, millis| {
            let now = Timestamp::from_millis(millis);
            let sent = pace.sent(LOAD, base, &learning, now);
            pace.heard(report(sent, answer), base, &learning, now)
        };
        for n in 0..20 {
            answer(&mut first, PaceSignal::Success, 1_000 + n * 300);
        }
        answer(&mut first, PaceSignal::Throttled, 8_000);
        second.take_in(&told(&first, at(8)), &learning, at(8));
        assert_eq!(second.concurrency(4, base, &learning, at(8)), 1, "one request at a time while it refuses");
        answer(&mut first, PaceSignal::Success, 12_000);
        second.take_in(&told(&first, at(12)), &learning, at(12));
        let (one, other) = (first.limit().unwrap(), second.limit().unwrap());
        assert_eq!((one.stage, one.limit.unwrap().as_millis()), (other.stage, other.limit.unwrap().as_millis()));
        assert_eq!(first.delay(base, &learning, at(12)).as_millis(), second.delay(base, &learning, at(12)).as_millis());
    }

    #[test]
    fn no_record_can_ask_for_the_impossible() {
        let learning = Learning::steps();
        let wild = PaceRecord {
            learned: u32::MAX,
            floor: u32::MAX,
            floor_life_s: u32::MAX,
            floor_left_s: u32::MAX,
            probed_from: u32::MAX,
            quota: Some(QuotaRecord { left: 0, every: u32::MAX, reset_left_ms: u32::MAX, doubt_left_s: u32::MAX }),
            limit: Some(LimitRecord {
                phase: 9,
                rate: 0,
                limit: u32::MAX,
                next_left_s: u32::MAX,
                ..Default::default()
            }),
            ..PaceRecord::default()
        };
        for learner in [Learner::Steps, Learner::Auto, Learner::Off] {
            let learning = Learning { learner, ..learning };
            let mut pace = Pace::new();
            pace.follow(&learning, at(0));
            pace.take_in(&wild, &learning, at(0));
            assert!(pace.delay(BASE, &learning, at(0)) <= Duration::from_secs(3_700), "{learner:?}");
            assert!(pace.delay(BASE, &learning, at(8_000)) <= learning.max_delay, "{learner:?}");
        }
    }
}
