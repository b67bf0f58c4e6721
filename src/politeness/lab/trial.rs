//! A trial: one host with a limit that the lane does not know, one client that always wants the next page.
//!
//! The client sends a refused request again as the proxy does: up to three times, if the host's budget allows it. The
//! result is what the host served, compared with what it would have served at its limit, and how often it refused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Dice;
use super::policies::{Rival, TrialPolicy};
use super::servers::{Server, ServerReply};
use crate::politeness::lane::{HostMemory, Lane};
use crate::politeness::pace::Learning;
use crate::politeness::policy::{LearningPolicy, Overrides, Policy};
use crate::politeness::retries::may_retry;
use crate::politeness::signals::{self, PaceSignal, SignalFields, SignalPolicy, Signals};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Step, Ticket, Visit, VisitOutcome};

/// Where the virtual clock begins.
const BEGIN: Timestamp = Timestamp::from_millis(1_790_000_000_000);
/// Longer than any trial: clients here have patience.
const PATIENCE: Duration = Duration::from_secs(10_000_000);

/// The settings of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialSettings {
    pub policy: TrialPolicy,
    pub learning: Learning,
    pub base: Duration,
    pub concurrency: u32,
    pub seconds: f64,
    /// If the client does not always want the next page: the mean time between bursts, and their mean size.
    pub bursts: Option<(f64, f64)>,
    pub seed: u64,
}

impl TrialSettings {
    pub fn new(policy: TrialPolicy, seed: u64) -> Self {
        let (base, learning) = (Duration::from_millis(50), Learning::default());
        TrialSettings { policy, learning, base, concurrency: 8, seconds: 3600.0, bursts: None, seed }
    }
}

/// What a trial measured. Times are seconds since its beginning.
#[derive(Debug, Default)]
pub struct TrialResult {
    pub sent: u32,
    /// Requests that the client saw refused, after all retries.
    pub failed: u32,
    pub wanted: u32,
    pub served_at: Vec<f64>,
    pub refused_at: Vec<f64>,
    /// The pace in force, in requests per second, each time that it changed.
    pub paces: Vec<(f64, f64)>,
    /// The limit of the host or of the settings, second by second.
    pub limits: Vec<f64>,
    burst: f64,
    fastest: f64,
}

#[derive(Debug)]
pub struct Trial {
    settings: TrialSettings,
    server: Server,
    dice: Dice,
    lane: Lane,
    schooling: LearningPolicy,
    listening: SignalPolicy,
    events: BinaryHeap<Reverse<(Timestamp, usize)>>,
    what: Vec<TrialEvent>,
    alarm: Timestamp,
    /// How often the request of each visit in the lane was sent, and its page, by the visit's number.
    tries: Vec<(u32, u32)>,
    rival: Option<Rival>,
    result: TrialResult,
}

#[derive(Clone, Copy, Debug)]
enum TrialEvent {
    Wake,
    Wanted,
    /// With the time at which the request was sent.
    Arrival(Ticket, Timestamp),
    Answer(Ticket, (u16, Timestamp), Signals),
}

impl Trial {
    pub fn new(server: Server, settings: TrialSettings) -> Self {
        let TrialSettings { policy, learning, base, concurrency, .. } = settings;
        let schooling = LearningPolicy { learning, ..LearningPolicy::default() };
        let learner = policy.learner();
        let lane_policy = Policy { learner, delay: base, concurrency, max_wait: PATIENCE, ..Policy::default() };
        Trial {
            lane: Lane::remembering(lane_policy, &HostMemory::default(), &schooling, settings.seed, BEGIN),
            server,
            dice: Dice(settings.seed),
            schooling,
            listening: SignalPolicy::default(),
            events: BinaryHeap::new(),
            what: Vec::new(),
            alarm: Timestamp::NEVER,
            tries: Vec::new(),
            rival: Rival::of(policy, base, BEGIN),
            result: TrialResult::default(),
            settings,
        }
    }

    pub fn run(mut self) -> TrialResult {
        self.want_bursts();
        self.drive(BEGIN);
        while let Some(Reverse((now, number))) = self.events.pop() {
            if since_begin(now) > self.settings.seconds {
                break;
            }
            match self.what[number] {
                TrialEvent::Arrival(ticket, sent) => {
                    self.arrive(ticket, sent, now);
                    continue;
                }
                TrialEvent::Answer(ticket, answer, signals) => self.hear(ticket, answer, signals, now),
                TrialEvent::Wanted => self.want(now),
                TrialEvent::Wake if now == self.alarm => self.alarm = Timestamp::NEVER,
                TrialEvent::Wake => continue,
            }
            self.drive(now);
        }
        self.close()
    }

    fn want_bursts(&mut self) {
        let Some((every, size)) = self.settings.bursts else { return };
        let mut at = self.dice.gap(1.0 / every);
        while at < self.settings.seconds {
            for _ in 0..1 + self.dice.gap(1.0 / size) as u32 {
                self.plan(BEGIN + Duration::from_secs_f64(at), TrialEvent::Wanted);
            }
            at += self.dice.gap(1.0 / every);
        }
    }

    fn plan(&mut self, at: Timestamp, event: TrialEvent) {
        self.events.push(Reverse((at, self.what.len())));
        self.what.push(event);
    }

    fn want(&mut self, now: Timestamp) {
        self.result.wanted += 1;
        self.join(Visit::new(ClientId(1), 0), (1, self.result.wanted), now);
    }

    fn join(&mut self, visit: Visit, tries: (u32, u32), now: Timestamp) {
        let Ok(joined) = self.lane.join(visit, now) else {
            self.result.failed += 1;
            return;
        };
        let number = joined.ticket.number();
        self.tries.resize(self.tries.len().max(number + 1), (0, 0));
        self.tries[number] = tries;
    }

    /// Carries out the lane's steps until it waits.
    fn drive(&mut self, now: Timestamp) {
        loop {
            if self.settings.bursts.is_none() && self.lane.queued() == 0 {
                self.want(now);
            }
            match self.lane.next_step(now) {
                Step::Prepare(ticket) => {
                    self.lane.ready(ticket, now);
                }
                Step::Start(ticket) => self.send(ticket, now),
                Step::Refuse(..) => self.result.failed += 1,
                Step::Wait(alarm) => {
                    let at = alarm.map_or(Timestamp::NEVER, |alarm| alarm.at);
                    if at < Timestamp::NEVER && at != self.alarm {
                        self.alarm = at;
                        self.plan(at, TrialEvent::Wake);
                    }
                    break;
                }
            }
        }
        let rate = 1.0 / self.lane.delays().effective().as_secs_f64().max(1e-6);
        if self.result.paces.last().is_none_or(|(_, last)| *last != rate) {
            self.result.paces.push((since_begin(now), rate));
        }
    }

    fn send(&mut self, ticket: Ticket, now: Timestamp) {
        self.lane.sent(ticket, now);
        self.result.sent += 1;
        let arrival = now + self.network();
        self.plan(arrival, TrialEvent::Arrival(ticket, now));
    }

    fn arrive(&mut self, ticket: Ticket, sent: Timestamp, now: Timestamp) {
        let at = since_begin(now);
        let ServerReply { status, field, after, served } =
            self.server.answer(at, self.tries[ticket.number()].1, &mut self.dice);
        if served { &mut self.result.served_at } else { &mut self.result.refused_at }.push(at);
        let answered = now + Duration::from_secs_f64(after) + self.network();
        let fields = SignalFields::of(field.as_ref().map(|(name, value)| (*name, value.as_bytes())));
        let signals = signals::read(status, &fields, &self.listening, answered);
        self.plan(answered, TrialEvent::Answer(ticket, (status, sent), signals));
    }

    fn hear(&mut self, ticket: Ticket, (status, sent): (u16, Timestamp), signals: Signals, now: Timestamp) {
        let outcome = VisitOutcome::Heard(signals);
        if !self.lane.takes_for_granted(ticket, outcome, now) {
            self.lane.report(ticket, outcome, &self.schooling, now);
        }
        self.lane.leave(ticket, now);
        self.follow_rival(signals.answer, now.since(sent), now);
        let (tries, page) = self.tries[ticket.number()];
        if status == self.server.refusal && signals.answer != PaceSignal::Success {
            let disguised = || self.lane.refuses_in_disguise();
            let again = may_retry(tries, status, disguised, &self.schooling.retrying);
            if again && self.lane.may_retry(&self.schooling, now) {
                self.join(Visit { retry: true, ..Visit::new(ClientId(1), 0) }, (tries + 1, page), now);
            } else {
                self.result.failed += 1;
            }
        }
    }

    /// Lets a rival choose the delay.
    fn follow_rival(&mut self, answer: PaceSignal, took: Duration, now: Timestamp) {
        let Some(rival) = &mut self.rival else { return };
        let (delay, hold) = rival.heard(answer, took, self.settings.base, now);
        if let Some(hold) = hold {
            self.lane.hold(now + hold, now);
        }
        self.lane.steer(Overrides { delay: Some(delay), ..Overrides::default() }, now);
    }

    fn network(&mut self) -> Duration {
        Duration::from_secs_f64(self.server.jitter * (0.25 + self.dice.unit()))
    }

    fn close(mut self) -> TrialResult {
        let fastest = 1.0 / self.settings.base.as_secs_f64().max(1e-3);
        let seconds = 0..self.settings.seconds as u32;
        self.result.limits = seconds.map(|second| self.server.limit.rate(second.into()).min(fastest)).collect();
        (self.result.burst, self.result.fastest) = (self.server.limit.burst(), fastest);
        self.result
    }
}

impl TrialResult {
    /// Requests served, in percent of what the host would have served at the configured delay; of what was asked for,
    /// if the client did not always want more.
    pub fn goodput(&self) -> f64 {
        let most = (self.limits.iter().sum::<f64>() + self.burst).min(self.limits.len() as f64 * self.fastest);
        100.0 * self.served_at.len() as f64 / most
    }

    pub fn refused_per_1000(&self) -> f64 {
        1000.0 * self.refused_at.len() as f64 / f64::from(self.sent.max(1))
    }

    pub fn failed_per_1000(&self) -> f64 {
        let served = self.served_at.len() as f64;
        1000.0 * f64::from(self.failed) / (served + f64::from(self.failed)).max(1.0)
    }

    /// How long it took from `from` on until the host was used at 90 % of its limit, over the 5 minutes or 60 requests
    /// that followed. `None` if it never was before `to`.
    pub fn time_to_90(&self, from: f64, to: f64) -> Option<f64> {
        let limit = *self.limits.get(((from + to) / 2.0) as usize)?;
        let span = 300.0_f64.max(60.0 / limit).min((to - from) / 2.0);
        let step = (span / 240.0).max(0.5);
        let served = |from: f64, to: f64| {
            self.served_at.partition_point(|at| *at <= to) - self.served_at.partition_point(|at| *at < from)
        };
        let starts = (0..).map(|number| from + f64::from(number) * step).take_while(|start| start + span <= to);
        let mut good = starts.filter(|start| served(*start, start + span) as f64 >= 0.9 * limit * span - 1.0);
        good.next().map(|start| start - from)
    }
}

fn since_begin(now: Timestamp) -> f64 {
    now.since(BEGIN).as_secs_f64()
}
