//! Properties that always hold, whatever hosts answer and whenever: hundreds of random runs on a virtual clock.
//!
//! Each run has its own settings, sends whenever it may, and gets answers in any order, late, with fields that make
//! sense and fields that do not. The properties are checked at every step against accounts kept here.

use super::*;
use crate::politeness::lab::Dice;
use crate::politeness::policy::Delays;
use crate::politeness::signals::{self, SignalFields, SignalPolicy};

const WORLDS: u64 = 200;
const STEPS: u32 = 800;

#[derive(Clone, Copy)]
struct Flight {
    epoch: Epoch,
    sent: Timestamp,
    /// How often the delay had been raised when the request was sent.
    raises: u32,
}

struct PaceWorld {
    dice: Dice,
    pace: Pace,
    learning: Learning,
    listening: SignalPolicy,
    base: Duration,
    configured: u32,
    now: Timestamp,
    last_sent: Timestamp,
    flights: Vec<Flight>,
    raises: u32,
    /// The learned delay when the current probe began.
    probed_from: Option<Duration>,
    /// The latest moment that a refusal asked for.
    asked: Timestamp,
    /// Every send and every pace, to compare with a second run.
    story: Vec<(Timestamp, Duration, Timestamp)>,
}

impl PaceWorld {
    /// A world in which the pace follows this policy.
    fn of(learner: Learner, seed: u64) -> Self {
        let mut dice = Dice(seed);
        let pick = |dice: &mut Dice, of: &[u64]| Duration::from_millis(of[dice.below(of.len() as u64) as usize]);
        let learning = Learning {
            learner,
            step_up: pick(&mut dice, &[1_000, 1_000, 250, 7_000]),
            step_down: pick(&mut dice, &[1_000, 1_000, 250, 7_000]),
            successes: [20, 20, 3, 1][dice.below(4) as usize],
            max_delay: pick(&mut dice, &[60_000, 60_000, 5_000]),
            longest_window: pick(&mut dice, &[900_000, 10_000]),
            floor_life: pick(&mut dice, &[600_000, 5_000]),
            ..Learning::default()
        };
        let base = pick(&mut dice, &[0, 5, 50, 1_000, 10_000, 100_000]);
        let now = Timestamp::from_millis(1_790_000_000_000);
        let mut pace = Pace::new();
        pace.follow(&learning, now);
        PaceWorld {
            pace,
            learning,
            listening: SignalPolicy::default(),
            base,
            configured: 1 + dice.below(30) as u32,
            now,
            last_sent: Timestamp::START,
            flights: Vec::new(),
            raises: 0,
            probed_from: None,
            asked: Timestamp::START,
            story: Vec::new(),
            dice,
        }
    }

    fn run(mut self) -> Self {
        let mood = self.dice.below(100);
        for _ in 0..STEPS {
            self.send();
            self.let_time_pass();
            if !self.flights.is_empty() && self.dice.chance(60) {
                self.answer(mood);
            }
            if self.dice.chance(1) {
                self.base = Duration::from_millis(self.dice.below(20_000));
            }
            self.check();
            self.story.push((self.now, self.delay(), self.pace.held_until()));
        }
        self
    }

    fn delay(&self) -> Duration {
        self.pace.delay(self.base, &self.learning, self.now)
    }

    fn load(&self) -> PaceLoad {
        PaceLoad { in_flight: self.flights.len() as u32, places: self.configured }
    }

    /// The delay that a lane would keep.
    fn in_force(&self) -> Duration {
        Delays { configured: self.base, learned: self.delay(), ..Delays::default() }.effective()
    }

    fn longest(&self) -> Duration {
        self.learning.max_delay.max(self.base)
    }

    /// When the next request may be sent as far as time is concerned.
    fn ready(&self) -> Timestamp {
        (self.last_sent + self.in_force()).max(self.pace.held_until())
    }

    fn send(&mut self) {
        let allowed = self.pace.concurrency(self.configured, self.base, &self.learning, self.now);
        if (self.flights.len() as u32) < allowed && self.ready() <= self.now {
            assert!(self.now >= self.asked, "P2: nothing is sent before the time that was asked for");
            let epoch = self.pace.sent(self.load(), self.base, &self.learning, self.now);
            self.flights.push(Flight { epoch, sent: self.now, raises: self.raises });
            self.last_sent = self.now;
            let tries_one = self.learning.learner != Learner::Auto || self.pace.error_streak() == 0;
            assert!(tries_one || self.flights.len() == 1, "P15: more than a canary while the host refuses");
        }
    }

    fn let_time_pass(&mut self) {
        let next = self.ready();
        if next > self.now && self.dice.chance(50) {
            self.now = next;
        } else {
            let longest = [Duration::from_millis(50), Duration::from_secs(20)][self.dice.below(2) as usize];
            self.now = self.now + self.dice.up_to(longest);
        }
    }

    fn signals(&mut self, mood: u64) -> Signals {
        let status = match self.dice.below(100) {
            roll if roll < mood => 200,
            roll if roll < mood + (100 - mood) / 2 => 429,
            _ => [200, 403, 404, 429, 500, 503][self.dice.below(6) as usize],
        };
        let wild = ["10000000000", "-1", "0", "0.25", "3", "120", "7200", "soon", "1790000100", "9e9", ""];
        let mut word = || wild[self.dice.below(wild.len() as u64) as usize];
        let (wait, quota) = (word(), format!("\"a\";r={};t={}", word(), word()));
        let mut header: Vec<(&str, &[u8])> = Vec::new();
        if self.dice.chance(20) {
            header.push(("retry-after", wait.as_bytes()));
        }
        if self.dice.chance(10) {
            header.push(("ratelimit", quota.as_bytes()));
        }
        signals::read(status, &SignalFields::of(header), &self.listening, self.now)
    }

    fn answer(&mut self, mood: u64) {
        let flight = self.flights.swap_remove(self.dice.below(self.flights.len() as u64) as usize);
        let signals = self.signals(mood);
        if let Some(wait) = signals.retry_after {
            self.asked = self.asked.max(self.now + wait);
        }
        let (learned, held) = (self.effective(), self.pace.held_until());
        let live_floor = self.pace.floor(self.now);
        self.probed_from = self.probed_from.map(|worked| worked.min(self.longest()));
        let took = self.now.since(flight.sent);
        let heard = PaceReport { epoch: flight.epoch, signals, load: self.load(), took };
        let change = self.pace.heard(heard, self.base, &self.learning, self.now);
        assert!(self.pace.held_until() >= held, "P1: a hold is not cut short");
        if self.learning.learner == Learner::Auto {
            self.check_auto(signals.answer, flight, change);
            return;
        }
        assert!(self.pace.learned() <= self.longest(), "P7: learned too much");
        assert_eq!(change.and_then(|change| change.hold).is_some(), self.pace.held_until() > held);
        match signals.answer {
            PaceSignal::Success => self.check_success(learned, live_floor, change),
            PaceSignal::Throttled => self.check_refusal(learned, flight, change),
            PaceSignal::Neutral | PaceSignal::Suspect | PaceSignal::Failed => {
                assert_eq!(self.effective(), learned, "nothing learned");
            }
        }
    }

    fn check_auto(&mut self, answer: PaceSignal, flight: Flight, change: Option<Change>) {
        let told = self.pace.allowance.interval(self.longest(), self.now).is_some();
        assert!(told || self.delay() <= self.longest(), "P16: slower than may be learned");
        let change = change.filter(|change| change.what != What::Held);
        if answer == PaceSignal::Throttled {
            if flight.raises < self.raises {
                assert_eq!(change, None, "P10: a burst was counted twice");
            } else {
                let change = change.expect("a refusal of what left after the last one counts");
                assert_eq!(change.before, change.learned, "P8: a refusal changes the pace when the host reopens");
                self.raises += 1;
            }
        }
        if matches!(answer, PaceSignal::Failed | PaceSignal::Neutral) {
            assert_eq!(change, None, "nothing learned");
        }
    }

    /// The learned delay or the base, whichever is larger.
    fn effective(&self) -> Duration {
        self.pace.learned().min(self.longest()).max(self.base)
    }

    fn check_success(&mut self, before: Duration, floor: Option<Duration>, change: Option<Change>) {
        assert!(self.effective() <= before, "P8: a success slowed down");
        let Some(change) = change.filter(|change| change.what != What::Held) else { return };
        self.probed_from = (change.what == What::Probing).then_some(change.before);
        if change.what == What::Probing {
            let lowest = self.base.max(floor.unwrap_or_default());
            assert!(change.learned >= lowest, "P11: probed below the floor or base");
            assert!(before - self.effective() <= self.learning.step_down, "one step at a time");
        }
    }

    fn check_refusal(&mut self, before: Duration, flight: Flight, change: Option<Change>) {
        let after = self.effective();
        assert!(after >= before, "P8: a refusal sped up");
        let change = change.filter(|change| change.what != What::Held);
        if flight.raises < self.raises {
            assert_eq!((after, change), (before, None), "P10: a burst was counted twice");
            return;
        }
        let change = change.expect("a refusal of what left at the present delay counts");
        self.raises += 1;
        if let (What::Restored, Some(worked)) = (change.what, self.probed_from) {
            assert_eq!(change.learned, worked, "P12: the delay that worked is restored exactly");
            assert_eq!(self.pace.floor(self.now), Some(worked));
        } else {
            let refused = before.max(self.probed_from.unwrap_or_default());
            assert!(after <= refused + self.learning.step_up, "P9: more than a step");
            assert!(after >= (refused + self.learning.step_up).min(self.longest()), "a refusal slows down");
        }
        self.probed_from = None;
    }

    fn check(&self) {
        assert!(self.in_force() >= self.base, "P5");
        let (windows, waits) = (self.learning.longest_window, self.listening.retry_after_max);
        let gap = self.ready().since(self.now.max(self.last_sent));
        assert!(gap <= waits + windows + self.longest(), "P6: {gap:?} until the next send");
        let allowed = self.pace.concurrency(self.configured, self.base, &self.learning, self.now);
        assert!((1..=self.configured).contains(&allowed), "P4");
    }
}

/// P1, P2, P4 to P12.
#[test]
fn no_answer_makes_the_pace_break_its_promises() {
    for seed in 0..WORLDS {
        for learner in [Learner::Steps, Learner::Auto] {
            let world = PaceWorld::of(learner, seed).run();
            assert!(world.story.len() == STEPS as usize, "seed {seed}");
        }
    }
}

/// P3: the pace may only add to the base delay of a lane.
#[test]
fn sends_are_never_closer_than_the_base_delay() {
    for seed in 0..2 * WORLDS {
        let mut world = PaceWorld::of([Learner::Steps, Learner::Auto][(seed % 2) as usize], seed);
        let mood = world.dice.below(100);
        let mut before = world.last_sent;
        for _ in 0..STEPS {
            world.send();
            if world.last_sent != before {
                assert!(world.last_sent.since(before) >= world.base, "seed {seed}");
                before = world.last_sent;
            }
            world.let_time_pass();
            if !world.flights.is_empty() {
                world.answer(mood);
            }
        }
    }
}

/// P13.
#[test]
fn a_burst_of_refusals_teaches_what_one_teaches() {
    for seed in 0..2 * WORLDS {
        let mut world = PaceWorld::of([Learner::Steps, Learner::Auto][(seed % 2) as usize], seed).run();
        let load = world.load();
        let send = |world: &mut PaceWorld| world.pace.sent(load, world.base, &world.learning, world.now);
        let burst: Vec<Epoch> = (0..=world.dice.below(30)).map(|_| send(&mut world)).collect();
        let refused = Signals { answer: PaceSignal::Throttled, ..Signals::FAILED };
        let mut once = world.pace.clone();
        let tell = |pace: &mut Pace, epoch| {
            let heard = PaceReport { epoch, signals: refused, load, took: Duration::ZERO };
            pace.heard(heard, world.base, &world.learning, world.now)
        };
        tell(&mut once, burst[0]);
        for epoch in &burst {
            tell(&mut world.pace, *epoch);
        }
        let known = |pace: &Pace| (pace.learned(), pace.floor(world.now), pace.held_until(), pace.error_streak());
        assert_eq!(known(&world.pace), known(&once), "seed {seed}");
    }
}

/// P14.
#[test]
fn concurrency_falls_with_the_delay_and_comes_back_with_it() {
    let learning = Learning::steps();
    let base = Duration::from_secs(1);
    let now = Timestamp::from_millis(1_790_000_000_000);
    let allowed = |millis: u64| {
        let memory = PaceMemory { learned: Duration::from_millis(millis), updated: now, ..PaceMemory::default() };
        Pace::remembering(&memory, &learning, now).concurrency(8, base, &learning, now)
    };
    let mut before = 8;
    for millis in (0..70_000).step_by(100) {
        let now = allowed(millis);
        assert!(now <= before && now >= 1, "{millis}");
        before = now;
    }
    assert_eq!((allowed(0), allowed(1_000), allowed(60_000)), (8, 8, 1));
}

/// P17.
#[test]
fn what_is_remembered_behaves_the_same_every_time() {
    for seed in 0..2 * WORLDS {
        let learner = [Learner::Steps, Learner::Auto][(seed % 2) as usize];
        let world = PaceWorld::of(learner, seed).run();
        let Some(memory) = world.pace.memory(world.now) else { continue };
        let again = || {
            let mut world = PaceWorld::of(learner, seed ^ 0xa9a1);
            world.pace = Pace::remembering(&memory, &world.learning, world.now);
            world.run().story
        };
        assert!(again() == again(), "seed {seed}");
        let pace = Pace::remembering(&memory, &world.learning, world.now);
        let learned = memory.learned.min(world.learning.max_delay);
        let off = pace.learned().abs_diff(learned);
        assert!(off <= Duration::from_millis(1), "seed {seed}: {:?} instead of {learned:?}", pace.learned());
    }
}

/// P18.
#[test]
fn the_same_answers_at_the_same_times_lead_to_the_same_pace() {
    for seed in 0..WORLDS / 4 {
        for learner in [Learner::Steps, Learner::Auto] {
            assert!(
                PaceWorld::of(learner, seed).run().story == PaceWorld::of(learner, seed).run().story,
                "seed {seed}"
            );
        }
    }
}

#[test]
fn epochs_may_wrap() {
    let learning = Learning::steps();
    let now = Timestamp::from_millis(1_790_000_000_000);
    let mut pace = Pace { state: PaceState::Steps(Steps::at_epoch(u32::MAX - 2)), ..Pace::new() };
    let load = PaceLoad { in_flight: 0, places: 8 };
    let tell = |pace: &mut Pace, epoch| {
        let signals = Signals { answer: PaceSignal::Throttled, ..Signals::FAILED };
        let heard = PaceReport { epoch, signals, load, took: Duration::ZERO };
        pace.heard(heard, Duration::ZERO, &learning, now)
    };
    for learned in 1..=8 {
        let mut send = || pace.sent(load, Duration::ZERO, &learning, now);
        let (first, late) = (send(), send());
        assert!(tell(&mut pace, first).is_some());
        assert_eq!(tell(&mut pace, late).map(|change| change.what), None);
        assert_eq!(pace.learned(), Duration::from_secs(learned));
    }
}
