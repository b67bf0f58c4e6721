//! What happens to hosts and lanes while visits wait: holds, pauses, new numbers, eviction, restarts.

use std::time::Duration;

use super::Flaw;
use super::oracle::{BrokenPromise, Oracle, Promise, broken};
use super::pages::SimPages;
use super::world::{SimEvent, SimHost, SimStage, SimTold, World};
use crate::politeness::lane::Lane;
use crate::politeness::pace::Learner;
use crate::politeness::policy::{Counts, Mode, Policy};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::Visit;

impl World {
    /// Returns a random policy for a host; the caller sets the order.
    pub(super) fn policy(&mut self) -> Policy {
        let delays = [0, 20, 100, 333, 1_000, 1_000, 1_000, 2_500, 7_000];
        let delay = delays[self.dice.below(delays.len() as u64) as usize];
        let waits = [2, 20, 150, 150];
        let queues = [0, 3, 20, 1_000, 1_000];
        Policy {
            mode: if self.dice.chance(6) { Mode::Report } else { Mode::Enforce },
            delay: Duration::from_millis(delay),
            count: if self.dice.chance(50) { Counts::Pages } else { Counts::Requests },
            page_parts: 1 + self.dice.below(8) as u32,
            burst: if self.dice.chance(50) { 1 } else { 1 + self.dice.below(5) as u32 },
            concurrency: 1 + self.dice.below(5) as u32,
            jitter: if self.dice.chance(25) { 0.3 } else { 0.0 },
            delay_factor: if self.dice.chance(15) { 1.5 } else { 0.0 },
            max_wait: Duration::from_secs(waits[self.dice.below(4) as usize]),
            max_queue: queues[self.dice.below(5) as usize],
            learner: Learner::Steps,
            // As much as robots.txt asks for here, so that lanes are forgotten for good after a few seconds.
            max_crawl_delay: Duration::from_secs(8),
            ..Policy::default()
        }
    }

    pub(super) fn disturb(&mut self, host: usize) -> Result<(), BrokenPromise> {
        if !self.open() {
            return Ok(());
        }
        self.foresee_nothing(host);
        match self.dice.below(9) {
            0 | 1 => self.hold(host),
            2 => self.forget_learned(host)?,
            3 => self.pause(host),
            4 => self.change(host),
            5 => self.ask_by_robots(host),
            6 => self.learn(host),
            7 => self.drain(host),
            _ => self.restart(host)?,
        }
        self.say(|| format!("    host {host} now: {:?}", self.hosts[host].oracle));
        let calm = self.dice.up_to(Duration::from_secs(25));
        self.after(Duration::from_secs(1) + calm, SimEvent::Disturb(host));
        self.steps(host)
    }

    /// From here on, times that were told before need not be true.
    pub(super) fn foresee_nothing(&mut self, host: usize) {
        self.hosts[host].told.values_mut().for_each(|told| told.disturbed = true);
        self.guests.values_mut().filter(|guest| guest.host == host).for_each(|guest| guest.disturbed = true);
    }

    fn hold(&mut self, host: usize) {
        let until = self.now + self.dice.up_to(Duration::from_secs(12));
        self.hosts[host].oracle.hold(until, self.now);
        self.hosts[host].lane.hold(until, self.now);
    }

    /// An operator lets curtsy forget what the host taught. What the host asked for stays.
    pub(super) fn forget_learned(&mut self, host: usize) -> Result<(), BrokenPromise> {
        let (now, at) = (self.now, &mut self.hosts[host]);
        let forgotten = at.lane.forget(now);
        let learned = at.lane.delays().learned;
        if at.oracle.teaches && !learned.is_zero() {
            return broken(Promise::Learning, format!("{forgotten:?}, and {learned:?} stays"));
        }
        at.oracle.change(now, |oracle| (oracle.learned, oracle.response) = (learned, Duration::ZERO));
        at.origins = Default::default();
        at.forgot = now;
        Ok(())
    }

    fn pause(&mut self, host: usize) {
        self.hosts[host].oracle.paused = true;
        self.hosts[host].pages.end();
        self.hosts[host].lane.pause();
        let rest = self.dice.up_to(Duration::from_secs(6));
        self.after(rest, SimEvent::Resume(host));
    }

    pub(super) fn resume(&mut self, host: usize) -> Result<(), BrokenPromise> {
        self.hosts[host].oracle.paused = false;
        self.hosts[host].pages.end();
        self.hosts[host].lane.resume();
        self.steps(host)
    }

    fn change(&mut self, host: usize) {
        let now = self.now;
        let order = self.hosts[host].oracle.policy.order;
        let policy = Policy { order, ..self.policy() };
        if self.flawed(Flaw::StartsAfreshOnChange) && self.hosts[host].by_ticket.is_empty() {
            self.hosts[host].fresh_lane(Lane::new(policy, 1), now);
        }
        let at = &mut self.hosts[host];
        at.most_waiting = at.most_waiting.max(at.oracle.policy.max_queue);
        at.most_places = at.most_places.max(policy.concurrency as usize);
        at.pages.ever |= policy.count == Counts::Pages;
        at.lane.change(policy, now);
        at.oracle.change(now, |oracle| {
            if policy.delay_factor != oracle.policy.delay_factor {
                oracle.response = Duration::ZERO;
            }
            oracle.policy = policy;
        });
        let unbound = at.oracle.policy.mode != Mode::Enforce;
        self.guests.values_mut().filter(|guest| guest.host == host && unbound).for_each(|guest| {
            // Told to start or not: without pacing, the wait of a visit has no limit.
            guest.limit = Duration::MAX;
        });
    }

    /// Changes what robots.txt asks of the visits that come from now on.
    fn ask_by_robots(&mut self, host: usize) {
        self.hosts[host].asked = self.asked();
    }

    /// Returns what robots.txt asks of this visit: of one client in six more than of the others.
    pub(super) fn crawl_delay(&mut self, host: usize, visit: &Visit) -> Duration {
        let at = &mut self.hosts[host];
        let asked = at.asked + if visit.client.0 == 0 { at.asked_of_few } else { Duration::ZERO };
        at.oracle.mixed |= asked != at.oracle.robots;
        asked
    }

    /// Returns the latest time by which the next visit must have started, whichever waiting visit it is.
    pub(super) fn free_at(&self, host: usize, now: Timestamp) -> Timestamp {
        self.asking_most(host).free_at(now).max(self.hosts[host].elsewhere)
    }

    /// Returns how many visits may be in flight, whichever waiting visit is next.
    pub(super) fn least_concurrency(&self, host: usize) -> usize {
        self.concurrency_range(host).0
    }

    /// Returns how many visits may be in flight, depending on which waiting visit is next: the fewest and the most.
    pub(super) fn concurrency_range(&self, host: usize) -> (usize, usize) {
        let mut oracle = self.hosts[host].oracle.clone();
        let here = self.guests.values().filter(|guest| guest.host == host);
        let limit = |robots| {
            oracle.robots = robots;
            oracle.concurrency()
        };
        let usual = self.hosts[host].oracle.concurrency();
        let limits = here.map(|guest| guest.visit.crawl_delay).map(limit);
        limits.fold((usual, usual), |(least, most), limit| (least.min(limit), most.max(limit)))
    }

    /// Returns what the host is owed by the visit with the longest crawl delay.
    pub(super) fn asking_most(&self, host: usize) -> Oracle {
        let waits = |stage| matches!(stage, SimStage::Waiting | SimStage::Preparing | SimStage::Ready);
        let here = self.guests.values().filter(|guest| guest.host == host && waits(guest.stage));
        let robots = here.map(|guest| guest.visit.crawl_delay).max();
        let mut oracle = self.hosts[host].oracle.clone();
        oracle.robots = robots.unwrap_or(oracle.robots).max(oracle.robots);
        oracle
    }

    fn learn(&mut self, host: usize) {
        // A host that teaches does so by its answers.
        if self.hosts[host].oracle.teaches {
            return;
        }
        let delay = self.asked();
        self.hosts[host].oracle.change(self.now, |oracle| oracle.learned = delay);
        self.hosts[host].lane.set_learned_delay(delay, self.now);
    }

    fn asked(&mut self) -> Duration {
        if self.dice.chance(50) { Duration::ZERO } else { Duration::from_millis(self.dice.below(4_000)) }
    }

    /// curtsy is told to stop.
    fn drain(&mut self, host: usize) {
        let end = self.now + self.dice.up_to(Duration::from_secs(15));
        self.hosts[host].lane.drain(end, self.now);
        // If it was told before, the earlier end counts.
        let end = self.hosts[host].drain_end.map_or(end, |before| before.min(end));
        self.hosts[host].drain_end = Some(end);
        self.after(end.since(self.now) + Duration::from_millis(500), SimEvent::Stopped(host));
    }

    /// The grace period is over. A lane other than the one that was told to stop belongs to the next process.
    pub(super) fn stopped(&mut self, host: usize) -> Result<(), BrokenPromise> {
        match self.hosts[host].drain_end {
            Some(end) if end < self.now => self.restart(host),
            _ => Ok(()),
        }
    }

    /// curtsy ends with all visits in it, and starts again with what it has saved.
    fn restart(&mut self, host: usize) -> Result<(), BrokenPromise> {
        let here: Vec<u64> = self.hosts[host].by_ticket.values().copied().collect();
        for id in here {
            self.forget(id);
        }
        let lane = self.remembered(host);
        self.hosts[host].oracle.restart(self.now);
        self.hosts[host].fresh_lane(lane, self.now);
        self.check_learned(host)
    }

    /// The registry forgets lanes that owe nothing: here at once, without letting them idle first.
    pub(super) fn sweep(&mut self, host: usize) -> Result<(), BrokenPromise> {
        if !self.open() {
            return Ok(());
        }
        let careless = self.flawed(Flaw::ForgetsWithoutAsking) && self.hosts[host].by_ticket.is_empty();
        if careless || !self.hosts[host].lane.owes(self.now) {
            self.tally.forgotten += 1;
            self.forget_lane(host)?;
        }
        let rest = self.dice.up_to(Duration::from_secs(4));
        self.after(rest, SimEvent::Sweep(host));
        Ok(())
    }
}

impl World {
    fn forget_lane(&mut self, host: usize) -> Result<(), BrokenPromise> {
        if self.hosts[host].lane.is_memorable(self.now) && !self.flawed(Flaw::ForgetsWithoutAsking) {
            // The gate saves it, so the next lane starts from it.
            return self.restart(host);
        }
        self.hosts[host].oracle.forgotten(self.now);
        let seed = self.dice.next();
        let policy = self.hosts[host].oracle.policy;
        self.hosts[host].fresh_lane(Lane::new(policy, seed), self.now);
        Ok(())
    }
}

impl SimHost {
    pub(super) fn new(policy: Policy, teaches: bool, seed: u64) -> Self {
        SimHost {
            lane: Lane::new(policy, seed),
            most_waiting: policy.max_queue,
            most_places: policy.concurrency as usize,
            oracle: Oracle::new(policy, teaches),
            slowed: Timestamp::START,
            forgot: Timestamp::START,
            elsewhere: Timestamp::START,
            origins: Default::default(),
            pages: SimPages::new(policy.count == Counts::Pages),
            charged: Timestamp::START,
            asked: Duration::ZERO,
            asked_of_few: Duration::ZERO,
            by_ticket: std::collections::HashMap::new(),
            keeper: None,
            told: std::collections::BTreeMap::new(),
            just_told: Vec::new(),
            overtaken: std::collections::BTreeMap::new(),
            drain_end: None,
        }
    }

    /// Replaces the lane. What robots.txt asks is kept elsewhere and given to the new lane, and so is what was learned
    /// if the world sets it and not the host. Everything else must be in the new lane already.
    fn fresh_lane(&mut self, lane: Lane, now: Timestamp) {
        self.lane = lane;
        self.lane.set_robots_delay(self.oracle.robots, now);
        if !self.oracle.teaches {
            self.lane.set_learned_delay(self.oracle.learned, now);
        }
        self.oracle.change(now, |oracle| oracle.response = Duration::ZERO);
        if self.oracle.paused {
            self.lane.pause();
        }
        self.elsewhere = Timestamp::START;
        self.origins = Default::default();
        self.pages.end();
        self.charged = Timestamp::START;
        self.told.clear();
        self.just_told.clear();
        self.overtaken.clear();
        self.keeper = None;
        self.drain_end = None;
    }

    /// Returns what this visit was told, if it comes back in time.
    pub(super) fn take_told(&mut self, visit: &Visit, now: Timestamp) -> Option<SimTold> {
        let told = self.told.remove(&(visit.client.0, visit.url))?;
        (told.due <= now && now < told.due + Duration::from_secs(60)).then_some(told)
    }
}
