//! What must always hold, checked at the moment it could break.

use std::time::Duration;

use super::oracle::{BrokenPromise, Promise, broken};
use super::world::{SimHost, SimStage, SimTold, SimVisit, World};
use crate::politeness::lane::LEAD;
use crate::politeness::policy::{Mode, Order};
use crate::politeness::queue::Rank;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{Alarm, ClientId, LaneRefusal, PagePart, Purpose, Visit};

/// The lane counts whole microseconds, and millionths of a token: 7 us at the longest delay here.
const ROUNDING: Duration = Duration::from_micros(10);

/// An admitted visit may have to wait a little longer than it is willing to.
fn with_slip(limit: Duration) -> Duration {
    limit.saturating_add(limit / 16)
}

impl World {
    fn at_host(&self, host: usize) -> impl Iterator<Item = &SimVisit> {
        self.guests.values().filter(move |guest| guest.host == host)
    }

    fn in_stage(&self, host: usize, stage: SimStage) -> impl Iterator<Item = &SimVisit> {
        self.at_host(host).filter(move |guest| guest.stage == stage)
    }

    pub(super) fn in_flight(&self, host: usize) -> usize {
        self.at_host(host).filter(|guest| matches!(guest.stage, SimStage::Told | SimStage::Sent)).count()
    }

    /// Long transfers, wherever they have their places.
    fn long(&self, host: usize) -> usize {
        self.at_host(host).filter(|guest| guest.long_from <= self.now).count()
    }

    /// Returns the fewest and the most ordinary places that a client may have: the lane does not report where its long
    /// transfers are.
    fn holds(&self, host: usize, client: ClientId) -> (usize, usize) {
        let guests = self.at_host(host).filter(|guest| guest.visit.client == client && guest.stage.has_place());
        guests.fold((0, 0), |(least, most), guest| (least + usize::from(guest.long_from > self.now), most + 1))
    }

    pub(super) fn enforced(&self, host: usize) -> bool {
        self.hosts[host].oracle.policy.mode == Mode::Enforce
    }

    /// A visit is told to start.
    pub(super) fn check_start(&self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        let guest = &self.guests[&id];
        let oracle = &self.hosts[host].oracle;
        if guest.stage != SimStage::Ready {
            return broken(Promise::Order, format!("a visit that is {:?} was told to start", guest.stage));
        }
        if !self.enforced(host) {
            return Ok(());
        }
        if oracle.paused || self.now < oracle.held_until {
            return broken(Promise::Hold, format!("a start at {:?}, held until {:?}", self.now, oracle.held_until));
        }
        let (in_flight, long) = (self.in_flight(host), self.long(host));
        if in_flight - long.min(self.hosts[host].most_places) >= oracle.concurrency() {
            return broken(Promise::Concurrency, format!("a start beside {in_flight} in flight, {long} of them long"));
        }
        self.check_patience(guest)
    }

    /// No visit waits longer than it is willing to.
    fn check_patience(&self, guest: &SimVisit) -> Result<(), BrokenPromise> {
        let waited = self.now.since(guest.joined).saturating_sub(guest.prepared_for);
        if waited > with_slip(guest.limit).saturating_add(ROUNDING) {
            return broken(Promise::Answer, format!("waited {waited:?}, willing to wait {:?}", guest.limit));
        }
        Ok(())
    }

    /// Whatever the lane says, no visit that waits for the host is past its patience, or past the end of curtsy.
    pub(super) fn check_nobody_is_forgotten(&self) -> Result<(), BrokenPromise> {
        let mut waiting =
            self.guests.values().filter(|guest| matches!(guest.stage, SimStage::Waiting | SimStage::Ready));
        waiting.try_for_each(|guest| {
            let end = self.hosts[guest.host].drain_end.filter(|_| self.enforced(guest.host));
            if end.is_some_and(|end| self.now > end + ROUNDING) {
                return broken(Promise::Answer, format!("{:?} waits at {:?}, after the end", guest.visit, self.now));
            }
            self.check_patience(guest)
        })
    }

    pub(super) fn check_refusal(&self, host: usize, id: u64, refusal: LaneRefusal) -> Result<(), BrokenPromise> {
        let guest = &self.guests[&id];
        if self.check_broken(host, &guest.visit, refusal)? {
            return self.check_patience(guest);
        }
        let oracle = &self.hosts[host].oracle;
        let taken = self.at_host(host).filter(|guest| guest.stage.has_place()).count();
        let crowded = taken >= self.least_concurrency(host);
        let missed_its_turn = guest.prepared_for > LEAD;
        if let LaneRefusal::ShuttingDown { .. } = refusal {
            return self.check_drained(host, guest);
        }
        if guest.returning && !guest.disturbed && !crowded && !missed_its_turn {
            return broken(Promise::RetryAfter, format!("{refusal:?} for a visit that came when told"));
        }
        if matches!(guest.stage, SimStage::Told | SimStage::Sent) {
            return broken(Promise::Answer, "refused after it was told to start".to_owned());
        }
        let gives_up = guest.joined + guest.limit.saturating_add(guest.prepared_for);
        let free = self.free_at(host, self.now);
        if !guest.disturbed && !guest.returning && !oracle.sparing() && gives_up > free + ROUNDING {
            return broken(Promise::Answer, format!("refused at {:?}, would wait until {gives_up:?}", self.now));
        }
        self.check_patience(guest)
    }

    /// A visit is refused because curtsy stops: it must have been waiting, and it must not be certain that its turn
    /// would come in time.
    fn check_drained(&self, host: usize, guest: &SimVisit) -> Result<(), BrokenPromise> {
        let Some(end) = self.hosts[host].drain_end else {
            return broken(Promise::Answer, "curtsy does not stop".to_owned());
        };
        if matches!(guest.stage, SimStage::Told | SimStage::Sent) {
            return broken(Promise::Answer, "refused after it was told to start".to_owned());
        }
        // With a place for every visit, each waits for the gaps of the others at most.
        let (others, most) = (self.at_host(host).count() - 1, self.asking_most(host));
        let has_place = others < self.least_concurrency(host);
        let gaps = most.longest_gap().saturating_mul(u32::try_from(others).unwrap_or(u32::MAX));
        let free = self.free_at(host, self.now) + gaps;
        let kept = self.hosts[host].lane.places_kept();
        // A lane that was created again may know of fewer tokens than there are. How long a returning visit may wait,
        // the lane alone knows.
        let oracle = &self.hosts[host].oracle;
        let excused = oracle.paused || oracle.sparing() || guest.returning;
        // The lane prolongs no deadline by the time that a ledger takes.
        let gives_up = guest.joined + guest.limit;
        if has_place && !excused && free + kept + ROUNDING < end && free + ROUNDING < gives_up {
            return broken(
                Promise::Answer,
                format!("refused at {:?} although free at {free:?}, end {end:?}", self.now),
            );
        }
        Ok(())
    }

    /// A visit that was told to come back now is not refused again.
    pub(super) fn check_return(
        &self,
        host: usize,
        visit: &Visit,
        told: Option<SimTold>,
        refusal: LaneRefusal,
    ) -> Result<(), BrokenPromise> {
        if self.check_broken(host, visit, refusal)? {
            return Ok(());
        }
        let oracle = &self.hosts[host].oracle;
        let closed = oracle.paused || oracle.held_until > self.now;
        let stops = self.hosts[host].drain_end.is_some();
        match told {
            Some(told) if !told.disturbed && !closed && !stops => {
                broken(Promise::RetryAfter, format!("told {:?}, came at {:?}: {refusal:?}", told.due, self.now))
            }
            _ => Ok(()),
        }
    }

    /// Two visits refused within a second are told different seconds.
    pub(super) fn check_told(&mut self, host: usize, visit: &Visit, told: Duration) -> Result<(), BrokenPromise> {
        let now = self.now;
        let key = (visit.client.0, visit.url);
        let recent = &mut self.hosts[host].just_told;
        recent.retain(|&(at, _, _)| now.since(at) < Duration::from_secs(1));
        if told.subsec_nanos() != 0 || told.is_zero() {
            return broken(Promise::RetryAfter, format!("told {told:?}"));
        }
        if recent.iter().any(|&(_, other, whom)| other == told && whom != key) {
            return broken(Promise::RetryAfter, format!("two visits were told {told:?}"));
        }
        recent.push((now, told, key));
        Ok(())
    }

    /// A visit is called: no visit that should go before it is left waiting.
    pub(super) fn check_order(&mut self, host: usize, id: u64) -> Result<(), BrokenPromise> {
        // While curtsy stops, the order is the one in which turns were promised.
        if self.hosts[host].drain_end.is_some() {
            return Ok(());
        }
        let order = self.hosts[host].oracle.policy.order;
        if self.long(host) >= self.least_concurrency(host) {
            // A client that fills all places for long transfers may be passed over.
            self.hosts[host].overtaken.clear();
            return Ok(());
        }
        let part_waits = self.in_stage(host, SimStage::Waiting).any(|guest| guest.visit.part != PagePart::No);
        if self.hosts[host].pages.ever && part_waits {
            // A part joins the queue when it has lost its ride, not when it comes.
            self.hosts[host].overtaken.clear();
            return Ok(());
        }
        self.check_stepped_back(host, id)?;
        let chosen = &self.guests[&id];
        let better = self.in_stage(host, SimStage::Waiting).find(|guest| {
            let same_line = match order {
                Order::Fair => guest.visit.client == chosen.visit.client,
                Order::Fifo => true,
            };
            let place = |guest: &SimVisit| match order {
                Order::Fair => (guest.visit.urgency, guest.joined),
                Order::Fifo => (0, guest.joined),
            };
            let newcomers = guest.rank() == Rank::Newcomer && chosen.rank() == Rank::Newcomer;
            guest.rank() < chosen.rank() || (newcomers && same_line && place(guest) < place(chosen))
        });
        if let Some(better) = better {
            return broken(Promise::Order, format!("{:?} went before {:?}", chosen.visit, better.visit));
        }
        let (least, most) = self.concurrency_range(host);
        if least != most {
            // How many places are shared depends on the crawl delay of the visit that is next.
            self.hosts[host].overtaken.clear();
            return Ok(());
        }
        let chosen = &self.guests[&id];
        if chosen.rank() == Rank::Newcomer && order == Order::Fair {
            let client = chosen.visit.client;
            self.check_share(host, client)?;
            return self.check_fairness(host, client);
        }
        Ok(())
    }

    /// While clients with less than their share of the places wait, no client that has its share is called.
    fn check_share(&self, host: usize, called: ClientId) -> Result<(), BrokenPromise> {
        let (limit, share) = (self.hosts[host].oracle.concurrency(), self.share(host));
        if !self.enforced(host) || limit == 1 || self.holds(host, called).0 < share || self.long(host) >= limit {
            return Ok(());
        }
        let newcomers = self.in_stage(host, SimStage::Waiting).filter(|guest| guest.rank() == Rank::Newcomer);
        match newcomers.map(|guest| guest.visit.client).find(|&client| self.holds(host, client).1 < share) {
            Some(client) => broken(Promise::Share, format!("{called:?} has {share} or more places, {client:?} fewer")),
            None => Ok(()),
        }
    }

    fn share(&self, host: usize) -> usize {
        let newcomers = self.in_stage(host, SimStage::Waiting).filter(|guest| guest.rank() == Rank::Newcomer);
        let mut clients: Vec<u64> = newcomers.map(|guest| guest.visit.client.0).collect();
        clients.sort_unstable();
        clients.dedup();
        self.hosts[host].oracle.concurrency().div_ceil(clients.len().max(1))
    }

    /// While a client waits and has less than its share of the places, no other client of its owner is called twice,
    /// and no other owner is.
    fn check_fairness(&mut self, host: usize, called: ClientId) -> Result<(), BrokenPromise> {
        let share = self.share(host);
        let has_less = |client: u64| self.holds(host, ClientId(client)).1 < share;
        let newcomers = self.in_stage(host, SimStage::Waiting).filter(|guest| guest.rank() == Rank::Newcomer);
        let mut waiting: Vec<u64> = newcomers.map(|guest| guest.visit.client.0).collect();
        waiting.sort_unstable();
        waiting.dedup();
        let is_shared = self.hosts[host].oracle.concurrency() > 1 && self.enforced(host);
        let all_full = self.long(host) >= self.hosts[host].oracle.concurrency();
        waiting.retain(|&client| !is_shared || (has_less(client) && !all_full));
        let mut rivals: Vec<(u64, u64)> = waiting.iter().map(|&client| rivals(ClientId(client), called)).collect();
        rivals.sort_unstable();
        rivals.dedup();
        let owners = waiting.iter().map(|&client| owner(ClientId(client)));
        let waiting: Vec<u64> = owners.chain(waiting.iter().copied()).collect();
        let overtaken = &mut self.hosts[host].overtaken;
        // A client that was passed over because it has its share waits for the next round.
        overtaken.retain(|&(one, _), _| one != called.0 && one != owner(called) && waiting.contains(&one));
        for (one, other) in rivals.into_iter().filter(|(one, other)| one != other) {
            let times = overtaken.entry((one, other)).or_insert(0);
            *times += 1;
            if *times > 1 {
                return broken(Promise::Order, format!("{other:#x} was called {times} times before {one:#x}"));
            }
        }
        Ok(())
    }

    /// A client with no visit waiting starts afresh.
    pub(super) fn line_may_be_over(&mut self, host: usize, client: ClientId) {
        let newcomers = self.in_stage(host, SimStage::Waiting).filter(|guest| guest.rank() == Rank::Newcomer);
        let mut left: Vec<u64> = vec![client.0, owner(client)];
        for guest in newcomers {
            left.retain(|&one| one != guest.visit.client.0 && one != owner(guest.visit.client));
        }
        self.hosts[host].overtaken.retain(|(waiting, _), _| !left.contains(waiting));
    }

    /// The lane says to wait: then no visit can start, and the alarm is not too late for any visit.
    pub(super) fn check_wait(&self, host: usize, alarm: Option<Alarm>) -> Result<(), BrokenPromise> {
        let at = alarm.map_or(Timestamp::NEVER, |alarm| alarm.at);
        if at <= self.now {
            return broken(Promise::Answer, format!("told to wait at {:?} until {at:?}", self.now));
        }
        if !self.enforced(host) {
            let idle = self.at_host(host).any(|guest| matches!(guest.stage, SimStage::Waiting | SimStage::Ready));
            return if idle { broken(Promise::Idle, "waiting without pacing".to_owned()) } else { Ok(()) };
        }
        let mut standing = [0_usize; SimStage::COUNT];
        for guest in self.at_host(host) {
            standing[guest.stage as usize] += 1;
            let waits = matches!(guest.stage, SimStage::Waiting | SimStage::Ready);
            if waits && self.hosts[host].drain_end.is_some_and(|end| at > end + ROUNDING) {
                return broken(Promise::Answer, format!("alarm at {at:?}, after the end of curtsy"));
            }
            let patience = with_slip(guest.limit).saturating_add(guest.prepared_for).saturating_add(ROUNDING);
            if matches!(guest.stage, SimStage::Waiting | SimStage::Ready) && at > guest.joined + patience {
                return broken(Promise::Answer, format!("alarm at {at:?}, {:?} gives up before", guest.visit));
            }
        }
        let [waiting, preparing, ready, told, sent, _aside] = standing;
        let oracle = &self.hosts[host].oracle;
        let (places, long) = (self.least_concurrency(host), self.long(host));
        let excused = oracle.paused || told > 0 || oracle.sparing() || long >= places;
        if excused {
            return Ok(());
        }
        if sent - long >= places {
            if places < self.concurrency_range(host).1 {
                // How many places there are depends on the crawl delay of the visit that is next.
                return Ok(());
            }
            let next_long = self.at_host(host).map(|guest| guest.long_from).filter(|&long| long > self.now).min();
            let late = waiting + ready > 0 && next_long.is_some_and(|long| long + ROUNDING < at);
            return if late {
                broken(Promise::Idle, format!("{next_long:?} frees a place, alarm at {at:?}"))
            } else {
                Ok(())
            };
        }
        self.check_parts_wait(host, places)?;
        let free = self.free_at(host, self.now);
        let somebody_could = ready > 0 || (waiting > 0 && preparing == 0);
        if somebody_could && (free + ROUNDING < at || free <= self.now) {
            return broken(Promise::Idle, format!("at {:?}: free at {free:?}, alarm at {at:?}", self.now));
        }
        Ok(())
    }

    pub(super) fn check_bounds(&self, host: usize) -> Result<(), BrokenPromise> {
        let oracle = &self.hosts[host].oracle;
        // Fetches of robots.txt do not count in the bound: the requests that wait for them do.
        let counts = |guest: &&SimVisit| guest.rank() == Rank::Newcomer && guest.visit.purpose != Purpose::RobotsFetch;
        let newcomers = self.in_stage(host, SimStage::Waiting).filter(counts);
        let (waiting, most) = (newcomers.count(), oracle.policy.max_queue);
        let lowered = self.hosts[host].most_waiting.max(most);
        if self.enforced(host) && waiting > lowered + 1 {
            return broken(Promise::Bounds, format!("{waiting} wait, {lowered} may"));
        }
        Ok(())
    }

    /// At the end of the world.
    pub(super) fn check_nothing_is_left(&self) -> Result<(), BrokenPromise> {
        if let Some(guest) = self.guests.values().next() {
            return broken(Promise::Answer, format!("{:?} was never answered ({:?})", guest.visit, guest.stage));
        }
        for SimHost { lane, .. } in &self.hosts {
            let a_day_later = self.now + Duration::from_secs(86_400);
            if lane.queued() + lane.in_flight() > 0 || lane.owes(a_day_later) {
                return broken(Promise::Bounds, format!("left in the lane: {lane:?}"));
            }
        }
        Ok(())
    }
}

/// The number of an owner, which no client has.
fn owner(client: ClientId) -> u64 {
    u64::from(client.owner()) | 1 << 63
}

/// Compares a waiting client with the one that is called: returns the clients if one owner has both, else their owners.
fn rivals(waiting: ClientId, called: ClientId) -> (u64, u64) {
    if waiting.owner() == called.owner() { (waiting.0, called.0) } else { (owner(waiting), owner(called)) }
}
