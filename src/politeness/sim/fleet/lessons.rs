//! Several nodes learn the pace of one host that refuses requests which come too soon: together they must learn what
//! one curtsy would.
//!
//! Answers take a while, so that refusals of one burst are heard by several nodes. Nodes learn of each other only by
//! their claims. [`LessonFlaw`] makes them do something wrong: each flaw must be caught.

use std::time::Duration;

use super::super::seeds;
use super::HOST;
use crate::politeness::fleet::appointment::Appointment;
use crate::politeness::fleet::calls::{Claim, Ruling, Told};
use crate::politeness::fleet::shared::Shared;
use crate::politeness::lab::Dice;
use crate::politeness::pace::{Epoch, Learning, Pace, PaceLoad, PaceRecord, PaceReport, What};
use crate::politeness::signals::{PaceSignal, Quota, Signals};
use crate::politeness::time::Timestamp;

const BASE: Duration = Duration::from_secs(1);
const LOAD: PaceLoad = PaceLoad { in_flight: 0, places: 8 };
const END: u64 = 5_000_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LessonFlaw {
    /// A node that takes a record in judges older answers as if they were new.
    ForgetsEpochs,
    /// A node counts only its own successes.
    CountsAlone,
    /// The record does not say that a delay is on trial.
    HidesTrials,
    /// A node overwrites what others have learned since.
    IgnoresVersions,
    /// A node keeps to itself what a host says about its quota.
    HidesQuotas,
}

struct LessonNode {
    pace: Pace,
    appointment: Appointment,
}

struct OnItsWay {
    node: usize,
    epoch: Epoch,
    is_refused: bool,
    quota: Option<Quota>,
}

struct LessonWorld {
    dice: Dice,
    flaw: Option<LessonFlaw>,
    learning: Learning,
    shared: Shared,
    /// The records that were told; the ledger keeps their places in this list.
    records: Vec<PaceRecord>,
    nodes: Vec<LessonNode>,
    /// Answers by the time at which they arrive.
    answers: Vec<(u64, OnItsWay)>,
    now: u64,
    last: u64,
    /// Requests that follow each other sooner are refused; none, after half of the time.
    limit: u64,
    /// So many requests a minute are allowed; 0 = the host tells no quota.
    quota: u32,
    /// When a node heard of the quota first.
    told_at: u64,
    starts: Vec<u64>,
    /// How often the fleet has made its delay longer.
    raises: u32,
    relearned: Option<usize>,
}

impl LessonWorld {
    fn new(seed: u64, flaw: Option<LessonFlaw>) -> Self {
        let mut dice = Dice(seed ^ 0x1e55_0f1e);
        let count = 2 + dice.below(7) as usize;
        let is_told = dice.chance(25);
        LessonWorld {
            flaw,
            learning: Learning::default(),
            shared: Shared::named(1),
            records: Vec::new(),
            nodes: (0..count).map(|_| LessonNode { pace: Pace::new(), appointment: Appointment::default() }).collect(),
            answers: Vec::new(),
            // A whole minute.
            now: 1_020_000_000,
            last: 0,
            limit: if is_told { 0 } else { 1_100_000 + dice.below(3_000_000) },
            quota: if is_told { 10 } else { 0 },
            told_at: 0,
            starts: Vec::new(),
            raises: 0,
            relearned: None,
            dice,
        }
    }

    fn stamp(&self) -> Timestamp {
        Timestamp::from_micros(self.now)
    }

    fn flawed(&self, flaw: LessonFlaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn run(mut self) -> Result<(), String> {
        while self.now < END {
            let node = self.dice.below(self.nodes.len() as u64) as usize;
            self.start(node);
            while let Some(next) = (0..self.answers.len()).min_by_key(|index| self.answers[*index].0) {
                if self.answers[next].0 > self.now {
                    break;
                }
                let (_, answer) = self.answers.swap_remove(next);
                self.hear(&answer)?;
            }
        }
        self.judge()
    }

    fn start(&mut self, node: usize) {
        loop {
            let now = self.stamp();
            let alone = self.flawed(LessonFlaw::CountsAlone);
            let LessonNode { pace, appointment } = &mut self.nodes[node];
            let praise = pace.take_praise();
            let claim = Claim {
                until: u64::MAX,
                delay: pace.delay(BASE, &self.learning, now).max(BASE).as_micros() as u64,
                window: 1_000,
                early: u64::MAX,
                held: pace.held_until().as_micros(),
                version: appointment.version,
                praise: if appointment.version > 0 && !alone { praise } else { 0 },
                ..Claim::default()
            };
            let answer = self.shared.claim(HOST, &claim, self.now);
            match answer.ruling {
                Ruling::News(news) => {
                    appointment.version = news.version;
                    self.take_in(node, &news.record);
                }
                Ruling::Go(go) => {
                    if answer.successes > 0 {
                        pace.praised(answer.successes);
                    }
                    self.now = go.start;
                    let epoch = pace.sent(LOAD, BASE, &self.learning, Timestamp::from_micros(go.start));
                    return self.send(node, epoch);
                }
                other => unreachable!("{other:?}"),
            }
        }
    }

    fn take_in(&mut self, node: usize, record: &str) {
        let now = self.stamp();
        let LessonNode { pace, appointment } = &mut self.nodes[node];
        let Some(record) = record.parse().ok().and_then(|index: usize| self.records.get(index)) else {
            return pace.forget();
        };
        appointment.quota = record.quota.map_or(0, |quota| quota.every);
        if self.flaw == Some(LessonFlaw::ForgetsEpochs) {
            *pace = Pace::new();
            pace.take_in(&PaceRecord { epoch: 0, raised: 0, ..*record }, &self.learning, now);
        } else {
            pace.take_in(record, &self.learning, now);
        }
    }

    /// The host judges a request, and its answer takes a while.
    fn send(&mut self, node: usize, epoch: Epoch) {
        let gap = self.now - std::mem::replace(&mut self.last, self.now);
        let is_refused = self.now < END / 2 && gap < self.limit;
        let minute = 60_000_000;
        let spent = self.starts.iter().rev().take_while(|start| **start >= self.now - self.now % minute).count();
        let reset = Duration::from_micros(minute - self.now % minute);
        let remaining = self.quota.saturating_sub(1 + spent as u32);
        let quota = (self.quota > 0).then_some(Quota { remaining, reset });
        self.starts.push(self.now);
        let took = 50_000 + self.dice.below(4_000_000);
        self.answers.push((self.now + took, OnItsWay { node, epoch, is_refused, quota }));
    }

    fn hear(&mut self, answer: &OnItsWay) -> Result<(), String> {
        let OnItsWay { node, epoch, is_refused, quota } = *answer;
        let (now, hides) = (self.stamp(), self.flawed(LessonFlaw::HidesQuotas));
        let signal = if is_refused { PaceSignal::Throttled } else { PaceSignal::Success };
        let signals = Signals { answer: signal, quota, ..Signals::SERVED };
        let report = PaceReport { epoch, signals, load: LOAD, took: Duration::from_secs(1) };
        let LessonNode { pace, appointment } = &mut self.nodes[node];
        let change = pace.heard(report, BASE, &self.learning, now);
        let is_news = appointment.hears_quota(pace.quota_interval(now)) && !hides;
        if quota.is_some() && self.told_at == 0 {
            self.told_at = self.now;
        }
        let learned = pace.learned();
        let is_raise = change.is_some_and(|change| matches!(change.what, What::Slowed | What::Restored));
        if (change.is_some() || is_news) && self.tell(node) && is_raise {
            self.raises += 1;
        }
        if self.now > END / 2 && learned.is_zero() && self.relearned.is_none() && self.quota == 0 {
            self.relearned = Some(self.starts.len());
        }
        let most = Duration::from_micros(self.limit) + self.learning.step_up;
        if learned > most { Err(format!("{learned:?} learned at {}, {most:?} are enough", self.now)) } else { Ok(()) }
    }

    /// Tells the ledger what a node has learned, as `gate/sharing.rs` does. Returns whether it was news.
    fn tell(&mut self, node: usize) -> bool {
        for _ in 0..2 {
            let now = self.stamp();
            let LessonNode { pace, appointment } = &mut self.nodes[node];
            let mut mine = pace.record(now);
            match self.flaw {
                Some(LessonFlaw::HidesTrials) => mine.iter_mut().for_each(|mine| mine.probed_from = 0),
                Some(LessonFlaw::HidesQuotas) => mine.iter_mut().for_each(|mine| mine.quota = None),
                _ => {}
            }
            let record = mine.map(|mine| {
                self.records.push(mine);
                (self.records.len() - 1).to_string()
            });
            let record = record.or_else(|| Some("none".to_owned()));
            let told = Told { version: appointment.version, held: pace.held_until().as_micros(), record, keep_ms: 0 };
            let (fits, news) = self.shared.tell(HOST, &told);
            let theirs = news.record.parse().ok().and_then(|index: usize| self.records.get(index)).copied();
            let outweighs = mine.is_some_and(|mine| mine.outweighs(&theirs.unwrap_or_default()));
            appointment.version = news.version;
            if fits {
                return true;
            }
            if !outweighs && self.flaw != Some(LessonFlaw::IgnoresVersions) {
                self.take_in(node, &news.record);
                return false;
            }
        }
        false
    }

    fn judge(&self) -> Result<(), String> {
        if self.quota > 0 {
            // Nine are left for a minute, so one is due every six seconds and a half.
            let after = |start: &&u64| (self.told_at..self.told_at + 12_000_000).contains(*start);
            let soon = self.starts.iter().filter(after).count();
            return if soon > 4 { Err(format!("{soon} starts after the quota was told")) } else { Ok(()) };
        }
        // One for each second, and one for each trial: the first, after ten minutes, and after twenty.
        if self.raises > 4 + 3 {
            return Err(format!("{} raises", self.raises));
        }
        let first = self.starts.iter().filter(|start| **start < END / 2).count();
        let floor = self.starts.iter().filter(|start| **start < END / 2 + 1_200_000_000).count();
        match self.relearned {
            None => Err("the old delay was not found again".to_owned()),
            Some(start) if start > floor + 120 => Err(format!("found after {} of {floor} starts", start - first)),
            Some(_) => Ok(()),
        }
    }
}

#[test]
fn a_fleet_learns_as_one() {
    for seed in seeds(60) {
        if let Err(broken) = LessonWorld::new(seed, None).run() {
            panic!("seed {seed}: {broken}");
        }
    }
}

#[test]
fn every_flaw_of_learning_together_is_caught() {
    for flaw in [
        LessonFlaw::ForgetsEpochs,
        LessonFlaw::CountsAlone,
        LessonFlaw::HidesTrials,
        LessonFlaw::IgnoresVersions,
        LessonFlaw::HidesQuotas,
    ] {
        let caught = (0..60).any(|seed| LessonWorld::new(seed, Some(flaw)).run().is_err());
        assert!(caught, "{flaw:?} is not noticed");
    }
}
