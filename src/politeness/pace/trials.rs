//! Trials: measures how well the pace does against hosts whose limit it does not know.
//!
//! One host, one client that always wants the next page, a virtual clock, dice. Checked on every send: never before a
//! hold ends, never closer than the delay, never more in flight than allowed. Measured: the share of what the host
//! would have served that was fetched, and how often the host refused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dice::Dice;
use super::servers::{
    Both, Crowded, FixedWindow, GcraServer, Moody, PenaltyBox, Server, ServerLimit, ServerSays, SlidingLog,
    TokenBucket, unit,
};
use super::*;
use crate::politeness::signals::{self, SignalFields, SignalPolicy};

/// Where the virtual clock begins.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);

struct Trial {
    server: Server,
    dice: Dice,
    pace: Pace,
    learning: Learning,
    base: Duration,
    concurrency: u32,
    seconds: f64,
    events: BinaryHeap<Reverse<(Timestamp, usize)>>,
    what: Vec<TrialEvent>,
    /// The next time to look without an event.
    alarm: Timestamp,
    last_sent: Option<Timestamp>,
    in_flight: u32,
    score: Score,
}

#[derive(Clone, Copy)]
enum TrialEvent {
    Wake,
    Arrival(Epoch),
    Answer(Epoch, Signals),
}

#[derive(Default)]
struct Score {
    sent: u32,
    served: u32,
    refused: u32,
    /// When the first request was served, in seconds.
    first_served: Option<f64>,
}

impl Trial {
    fn new(limit: impl ServerLimit + 'static, says: ServerSays, seed: u64) -> Self {
        Trial {
            server: Server { limit: Box::new(limit), says, work: 0.15 },
            dice: Dice(seed),
            pace: Pace::new(),
            learning: Learning::default(),
            base: Duration::from_millis(50),
            concurrency: 8,
            seconds: 3600.0,
            events: BinaryHeap::new(),
            what: Vec::new(),
            alarm: Timestamp::NEVER,
            last_sent: None,
            in_flight: 0,
            score: Score::default(),
        }
    }

    fn run(mut self) -> Self {
        self.wake(BEGIN);
        while let Some(Reverse((now, number))) = self.events.pop() {
            if since_begin(now) > self.seconds {
                break;
            }
            match self.what[number] {
                TrialEvent::Arrival(epoch) => {
                    self.arrive(epoch, now);
                    continue;
                }
                TrialEvent::Answer(epoch, signals) => self.hear(epoch, signals, now),
                TrialEvent::Wake if now == self.alarm => self.alarm = Timestamp::NEVER,
                TrialEvent::Wake => continue,
            }
            self.send_or_sleep(now);
        }
        self
    }

    fn plan(&mut self, at: Timestamp, event: TrialEvent) {
        self.events.push(Reverse((at, self.what.len())));
        self.what.push(event);
    }

    fn send_or_sleep(&mut self, now: Timestamp) {
        let allowed = self.pace.concurrency(self.concurrency, self.base, &self.learning, now);
        assert!((1..=self.concurrency).contains(&allowed));
        if self.in_flight >= allowed {
            return;
        }
        let delay = self.pace.delay(self.base, &self.learning, now).max(self.base);
        let spaced = self.last_sent.map_or(BEGIN, |last| last + delay);
        let ready = spaced.max(self.pace.held_until());
        if ready > now {
            self.wake(ready);
            return;
        }
        self.in_flight += 1;
        self.score.sent += 1;
        self.last_sent = Some(now);
        let epoch = self.pace.sent(now);
        let arrival = now + self.network();
        self.plan(arrival, TrialEvent::Arrival(epoch));
        self.wake(now + self.base);
    }

    fn wake(&mut self, at: Timestamp) {
        self.alarm = at;
        self.plan(at, TrialEvent::Wake);
    }

    fn arrive(&mut self, epoch: Epoch, now: Timestamp) {
        let at = since_begin(now);
        let reply = self.server.answer(at, &mut self.dice);
        if reply.status == 200 {
            self.score.served += 1;
            self.score.first_served.get_or_insert(at);
        } else {
            self.score.refused += 1;
        }
        let answered = now + Duration::from_secs_f64(reply.after) + self.network();
        let fields = SignalFields::of(reply.field.as_ref().map(|(name, value)| (*name, value.as_bytes())));
        let signals = signals::read(reply.status, &fields, &SignalPolicy::default(), answered);
        self.plan(answered, TrialEvent::Answer(epoch, signals));
    }

    fn hear(&mut self, epoch: Epoch, signals: Signals, now: Timestamp) {
        self.in_flight -= 1;
        let heard = PaceReport { epoch, signals, in_flight: self.in_flight };
        self.pace.heard(heard, self.base, &self.learning, now);
    }

    fn network(&mut self) -> Duration {
        Duration::from_secs_f64(0.005 + 0.02 * unit(&mut self.dice))
    }

    /// Requests served, in percent of what the host would have served at the configured delay.
    fn goodput(&self) -> f64 {
        let fastest = 1.0 / self.base.as_secs_f64();
        let seconds = 0..self.seconds as u32;
        let limit: f64 = seconds.map(|second| self.server.limit.rate(second.into()).min(fastest)).sum();
        let most = (limit + self.server.limit.burst()).min(self.seconds * fastest);
        100.0 * f64::from(self.score.served) / most
    }

    fn refusals(&self) -> f64 {
        1000.0 * f64::from(self.score.refused) / f64::from(self.score.sent)
    }
}

fn since_begin(now: Timestamp) -> f64 {
    now.since(BEGIN).as_secs_f64()
}

/// A name, and a trial with this seed.
type Scenario = (&'static str, fn(u64) -> Trial);

fn fixed(quota: u32, seconds: f64, says: ServerSays, seed: u64) -> Trial {
    Trial::new(FixedWindow::new(quota, seconds, &mut Dice(seed ^ 0x5eed)), says, seed)
}

fn bucket(rate: f64, size: f64, says: ServerSays, seed: u64) -> Trial {
    Trial::new(TokenBucket::new(rate, size), says, seed)
}

impl Trial {
    fn lasting(self, seconds: f64) -> Self {
        Trial { seconds, ..self }
    }

    fn at_one_second(self) -> Self {
        Trial { base: Duration::from_secs(1), ..self }
    }

    fn at_five_millis(self) -> Self {
        Trial { base: Duration::from_millis(5), concurrency: 64, ..self }
    }
}

const LIMITERS: &[Scenario] = &[
    ("window 45/min", |seed| fixed(45, 60.0, ServerSays::Nothing, seed)),
    ("window 45/min, Retry-After", |seed| fixed(45, 60.0, ServerSays::Wait, seed)),
    ("window 450/min", |seed| fixed(450, 60.0, ServerSays::Nothing, seed).lasting(1800.0)),
    ("window 3/min", |seed| fixed(3, 60.0, ServerSays::Nothing, seed).lasting(14_400.0)),
    ("log 45/min", |seed| Trial::new(SlidingLog::new(45, 60.0, false), ServerSays::Nothing, seed)),
    ("log 45/min, refusals count", |seed| Trial::new(SlidingLog::new(45, 60.0, true), ServerSays::Nothing, seed)),
    ("bucket 0.75/s, 10", |seed| bucket(0.75, 10.0, ServerSays::Nothing, seed)),
    ("bucket 0.75/s, 100", |seed| bucket(0.75, 100.0, ServerSays::Nothing, seed)),
    ("bucket 5/s, 50", |seed| bucket(5.0, 50.0, ServerSays::Nothing, seed).lasting(1800.0)),
    ("bucket 0.2/s, 5", |seed| bucket(0.2, 5.0, ServerSays::Nothing, seed).lasting(7200.0)),
    ("bucket 0.05/s, 1", |seed| bucket(0.05, 1.0, ServerSays::Nothing, seed).lasting(14_400.0)),
    ("bucket 0.75/s, 10, Retry-After", |seed| bucket(0.75, 10.0, ServerSays::Wait, seed)),
    ("GCRA 2/s, 1", |seed| Trial::new(GcraServer::new(2.0, 1.0), ServerSays::Nothing, seed)),
    ("GCRA 10/s, 3", |seed| Trial::new(GcraServer::new(10.0, 3.0), ServerSays::Nothing, seed).lasting(1800.0)),
    ("4 at a time", |seed| {
        let mut trial = Trial::new(Crowded::new(4, 0.3), ServerSays::Nothing, seed).lasting(1200.0);
        trial.server.work = 0.3;
        trial
    }),
    ("5/s and 100/min", |seed| {
        Trial::new(Both(SlidingLog::new(5, 1.0, false), SlidingLog::new(100, 60.0, false)), ServerSays::Nothing, seed)
    }),
    ("ban of 60 s", |seed| Trial::new(PenaltyBox::new(0.75, 10.0, 60.0), ServerSays::Nothing, seed)),
    ("ban of 60 s, Retry-After", |seed| Trial::new(PenaltyBox::new(0.75, 10.0, 60.0), ServerSays::Wait, seed)),
    ("window 1000/h", |seed| fixed(1000, 3600.0, ServerSays::Nothing, seed).lasting(28_800.0)),
    ("window 1000/h, Retry-After", |seed| fixed(1000, 3600.0, ServerSays::Wait, seed).lasting(28_800.0)),
    ("window 45/min, Retry-After too short", |seed| fixed(45, 60.0, ServerSays::Always(1), seed)),
    ("window 45/min, Retry-After too long", |seed| fixed(45, 60.0, ServerSays::Always(600), seed).lasting(7200.0)),
    ("window 45/min, Retry-After zero", |seed| fixed(45, 60.0, ServerSays::Always(0), seed)),
    ("window 45/min, told", |seed| fixed(45, 60.0, ServerSays::Left, seed)),
    ("bucket 5/s, 20, told", |seed| bucket(5.0, 20.0, ServerSays::Left, seed).lasting(1800.0)),
    ("window 45/min, told four times as much", |seed| fixed(45, 60.0, ServerSays::LeftAnd(135), seed)),
    ("bucket 1.5/s, 10, shared", |seed| Trial::new(TokenBucket::shared(1.5, 10.0, 0.75), ServerSays::Nothing, seed)),
    ("bucket 4, 1, 4/s", |seed| {
        let plan = vec![(0.0, 4.0), (2400.0, 1.0), (4800.0, 4.0)];
        Trial::new(TokenBucket::changing(plan, 10.0), ServerSays::Nothing, seed).lasting(9600.0)
    }),
    ("window 60, 240, 60/min", |seed| {
        let plan = vec![(0.0, 60.0), (2400.0, 240.0), (6000.0, 60.0)];
        let window = FixedWindow::changing(plan, 60.0, &mut Dice(seed ^ 0x5eed));
        Trial::new(window, ServerSays::Nothing, seed).lasting(8400.0)
    }),
    ("1 s: window 30/min", |seed| fixed(30, 60.0, ServerSays::Nothing, seed).at_one_second()),
    ("1 s: window 3/min", |seed| fixed(3, 60.0, ServerSays::Nothing, seed).at_one_second().lasting(14_400.0)),
    ("1 s: bucket 0.25/s, 5", |seed| bucket(0.25, 5.0, ServerSays::Nothing, seed).at_one_second().lasting(7200.0)),
    ("1 s: ban of 60 s", |seed| {
        Trial::new(PenaltyBox::new(0.5, 5.0, 60.0), ServerSays::Nothing, seed).at_one_second().lasting(7200.0)
    }),
    ("1 s: bucket 0.8, 0.2, 0.8/s", |seed| {
        let plan = vec![(0.0, 0.8), (3600.0, 0.2), (9600.0, 0.8)];
        Trial::new(TokenBucket::changing(plan, 5.0), ServerSays::Nothing, seed).at_one_second().lasting(14_400.0)
    }),
    ("5 ms: bucket 100/s, 100", |seed| bucket(100.0, 100.0, ServerSays::Nothing, seed).at_five_millis().lasting(600.0)),
    ("5 ms: window 3000/min", |seed| fixed(3000, 60.0, ServerSays::Nothing, seed).at_five_millis().lasting(900.0)),
];

const SEEDS: u64 = 3;

#[test]
fn unknown_limits_are_used_well_and_rarely_hit() {
    let (mut goodput, mut refusals) = (0.0, 0.0);
    for (name, make) in LIMITERS {
        let (mut good, mut refused) = (0.0, 0.0);
        for seed in 1..=SEEDS {
            let trial = make(seed).run();
            good += trial.goodput() / SEEDS as f64;
            refused += trial.refusals() / SEEDS as f64;
        }
        println!("{name:40} {good:6.1} %  {refused:6.1} refused of 1000");
        goodput += good / LIMITERS.len() as f64;
        refusals += refused / LIMITERS.len() as f64;
    }
    println!("{:40} {goodput:6.1} %  {refusals:6.1} refused of 1000", "mean");
    assert!(goodput >= 60.0, "{goodput}");
    assert!(refusals <= 25.0, "{refusals}");
}

#[test]
fn a_host_that_tells_the_truth_never_refuses() {
    let told: [Scenario; 6] = [
        ("window 45/min", |seed| fixed(45, 60.0, ServerSays::Left, seed)),
        ("window 3/min", |seed| fixed(3, 60.0, ServerSays::Left, seed).at_one_second()),
        ("window 1000/h", |seed| fixed(1000, 3600.0, ServerSays::Left, seed).lasting(14_400.0)),
        ("window 10/s", |seed| fixed(10, 1.0, ServerSays::Left, seed).lasting(600.0)),
        ("bucket 5/s, 20", |seed| bucket(5.0, 20.0, ServerSays::Left, seed).lasting(1800.0)),
        ("bucket 0.75/s, 10", |seed| bucket(0.75, 10.0, ServerSays::Left, seed)),
    ];
    for (name, make) in told {
        for seed in 1..=SEEDS {
            let trial = make(seed).run();
            println!("{name:40} {:6.1} %  {} refused", trial.goodput(), trial.score.refused);
            assert_eq!(trial.score.refused, 0, "{name}, seed {seed}");
            assert!(trial.goodput() >= 60.0, "{name}, seed {seed}: {}", trial.goodput());
        }
    }
}

#[test]
fn a_ban_that_every_request_renews_is_left_within_four_minutes() {
    // At smaller delays the windows begin shorter, and a longer ban takes one more doubling.
    for (ban, base, most) in [(60.0, 1_000, 240.0), (90.0, 1_000, 240.0), (60.0, 50, 240.0), (90.0, 50, 360.0)] {
        let trial = Trial::new(PenaltyBox::shut(ban), ServerSays::Nothing, 1);
        let trial = Trial { base: Duration::from_millis(base), ..trial }.run();
        let left = trial.score.first_served.expect("it is left");
        assert!(left <= most, "{ban} s ban at {base} ms: {left}");
    }
}

#[test]
fn where_there_is_no_limit_nothing_is_lost() {
    let trial = bucket(100.0, 100.0, ServerSays::Nothing, 1).lasting(600.0).run();
    assert_eq!(trial.score.refused, 0);
    assert!(trial.goodput() > 99.0, "{}", trial.goodput());
}

#[test]
fn refusals_by_mood_do_not_close_a_host() {
    let trial = Trial::new(Moody, ServerSays::Nothing, 1).at_one_second().run();
    assert!(trial.goodput() > 40.0, "{}", trial.goodput());
}
