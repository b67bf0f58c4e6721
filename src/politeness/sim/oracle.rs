//! What a host is owed, computed a second time from the promises alone: in floating point, from the world's events,
//! without asking the lane. Each method that finds a broken promise returns which one.

use std::time::Duration;

use crate::politeness::policy::{Mode, Policy};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::Purpose;

/// Which promise was broken, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BrokenPromise {
    pub(super) promise: Promise,
    pub(super) story: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// 1 and 2: two starts are never closer than the effective delay; a burst is a burst.
    Spacing,
    /// 3: no visit starts while the host is held or paused.
    Hold,
    /// No more visits in flight than allowed, and no more long transfers besides.
    Concurrency,
    /// No client has more than its share of the places while another waits.
    Share,
    /// 5 and 6: a visit that can start does start; time is not lost.
    Idle,
    /// 6: every visit gets an answer, and in time.
    Answer,
    /// Fair between clients, first come first served within a client, retries and returning visits first.
    Order,
    /// A client that comes back when told gets in; different clients are told different seconds.
    RetryAfter,
    /// 8: what waits is bounded, and what is over leaves nothing behind.
    Bounds,
    /// 2: a refusal slows down, once; a success never does; what was learned is kept.
    Learning,
    /// 5: an origin that fails is given up alone, is tried one visit at a time, and its failures cost turns.
    Origin,
    /// Parts of pages start without a turn only on a turn of their client, so many on each, and never while held.
    Rides,
    /// The run-time audit agrees.
    Audit,
}

#[derive(Clone, Debug)]
pub(super) struct Oracle {
    pub(super) policy: Policy,
    pub(super) robots: Duration,
    pub(super) learned: Duration,
    pub(super) response: Duration,
    pub(super) paused: bool,
    pub(super) held_until: Timestamp,
    /// The part of the hold that the host asked for. It outlives the lane.
    asked_until: Timestamp,
    /// Whether its answers say what it thinks of the pace.
    pub(super) teaches: bool,
    last_send: Option<Timestamp>,
    /// If the last send was a fetch of robots.txt, the send before it.
    before_fetch: Option<Option<Timestamp>>,
    tokens: f64,
    counted: Timestamp,
    sparing: bool,
    /// Its visits have different crawl delays, so that the lane may count tokens by another delay than that of the last
    /// visit.
    pub(super) mixed: bool,
}

/// What applied when a visit was told, or told again, that it may start.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitTerms {
    delay: Duration,
    burst: u32,
    held_until: Timestamp,
    enforced: bool,
}

impl VisitTerms {
    pub(super) fn enforced(&self) -> bool {
        self.enforced
    }

    /// The turn was confirmed under these terms.
    pub(super) fn renew(&mut self, terms: VisitTerms) {
        *self = VisitTerms { enforced: self.enforced && terms.enforced, ..terms };
    }
}

impl Oracle {
    pub(super) fn new(policy: Policy, teaches: bool) -> Self {
        Oracle {
            tokens: f64::from(policy.burst),
            policy,
            robots: Duration::ZERO,
            learned: Duration::ZERO,
            response: Duration::ZERO,
            paused: false,
            held_until: Timestamp::START,
            asked_until: Timestamp::START,
            teaches,
            last_send: None,
            before_fetch: None,
            counted: Timestamp::START,
            sparing: false,
            mixed: false,
        }
    }

    pub(super) fn delay(&self) -> Duration {
        [self.policy.delay, self.robots, self.learned, self.response].into_iter().max().unwrap()
    }

    pub(super) fn burst(&self) -> u32 {
        let slowed = !self.robots.is_zero() || !self.learned.is_zero() || self.response > self.policy.delay;
        if slowed { 1 } else { self.policy.burst }
    }

    pub(super) fn terms(&self) -> VisitTerms {
        let enforced = self.policy.mode == Mode::Enforce;
        VisitTerms { delay: self.delay(), burst: self.burst(), held_until: self.held_until, enforced }
    }

    /// Makes a change to the delay or the burst: counts tokens before it, and limits them after it.
    pub(super) fn change(&mut self, now: Timestamp, change: impl FnOnce(&mut Oracle)) {
        self.count(now);
        // Without spacing nothing is saved up, but nothing forbids it either.
        self.sparing |= self.delay().is_zero();
        change(self);
        self.tokens = self.tokens.min(f64::from(self.burst()));
    }

    pub(super) fn hold(&mut self, until: Timestamp, now: Timestamp) {
        if until > now {
            self.asked_until = self.asked_until.max(until);
        }
        self.stand_back(until, now);
    }

    /// A hold on curtsy's own decision, which a restart may forget.
    pub(super) fn stand_back(&mut self, until: Timestamp, now: Timestamp) {
        self.count(now);
        if until > now {
            self.held_until = self.held_until.max(until);
            self.tokens = self.tokens.min(1.0);
        }
    }

    /// A response head came after this long.
    pub(super) fn answered(&mut self, took: Duration, now: Timestamp) {
        self.change(now, |oracle| {
            let response = took.mul_f64(oracle.policy.delay_factor);
            oracle.response = response.min(Duration::from_secs(30));
        });
    }

    /// A request head reached the origin. Returns whether it was a page that followed its robots.txt out of turn: one
    /// page may, if it keeps its distance from the send before the fetch.
    pub(super) fn send(&mut self, terms: VisitTerms, purpose: Purpose, now: Timestamp) -> Result<bool, BrokenPromise> {
        self.count(now);
        self.counted = now;
        let latest = self.last_send.replace(now);
        let fetched = self.before_fetch.take().filter(|_| purpose == Purpose::AfterRobotsFetch);
        let last = fetched.unwrap_or(latest);
        if purpose == Purpose::RobotsFetch {
            self.before_fetch = Some(latest);
        }
        let tokens = self.tokens;
        self.tokens = if self.delay().is_zero() { 0.0 } else { (tokens - 1.0).max(0.0) };
        if !terms.enforced || self.policy.mode != Mode::Enforce {
            return Ok(false);
        }
        if now < terms.held_until {
            return broken(Promise::Hold, format!("sent at {now:?}, held until {:?}", terms.held_until));
        }
        let gap = last.map_or(Duration::MAX, |last| now.since(last));
        if terms.burst <= 1 && gap < terms.delay {
            return broken(Promise::Spacing, format!("gap {gap:?} at {now:?}, owed {:?}", terms.delay));
        }
        // A visit that was told to start may still do so if a change or a hold has emptied the bucket since.
        let unchanged = !self.mixed && terms.held_until == self.held_until;
        let unchanged = unchanged && (terms.burst, terms.delay) == (self.burst(), self.delay());
        let saved = tokens >= 1.0 - EPSILON || fetched.is_some();
        if unchanged && terms.burst > 1 && !terms.delay.is_zero() && !saved {
            return broken(Promise::Spacing, format!("sent at {now:?} with {tokens} tokens"));
        }
        Ok(fetched.is_some() && latest.is_some_and(|latest| now.since(latest) < terms.delay))
    }

    /// A part reached the origin without a turn.
    pub(super) fn send_part(&self, terms: VisitTerms, now: Timestamp) -> Result<(), BrokenPromise> {
        if terms.enforced && now < terms.held_until {
            return broken(Promise::Hold, format!("a part sent at {now:?}, held until {:?}", terms.held_until));
        }
        Ok(())
    }

    /// Returns the delay with all the jitter it can have.
    pub(super) fn longest_gap(&self) -> Duration {
        self.delay() + self.delay().mul_f64(self.policy.jitter)
    }

    /// Returns the latest time by which a ready visit must have started, if there is a place and no turn is unsent.
    pub(super) fn free_at(&self, now: Timestamp) -> Timestamp {
        let (delay, longest) = (self.delay(), self.longest_gap());
        let held = self.held_until.max(now);
        if delay.is_zero() {
            return held;
        }
        if self.burst() <= 1 {
            return held.max(self.last_send.map_or(Timestamp::START, |last| last + longest));
        }
        let missing = (1.0 + EPSILON - self.tokens_at(held)).max(0.0);
        held + delay.mul_f64(missing * (1.0 + self.policy.jitter) + self.policy.jitter)
    }

    /// After a restart tokens may have come back at the configured rate, until robots.txt and what was learned are
    /// known again. There may also be fewer tokens, because only the last send is known, so time may be lost.
    pub(super) fn restart(&mut self, now: Timestamp) {
        self.count(now);
        self.held_until = self.held_until.min(self.asked_until);
        let (robots, learned, tokens) = (self.robots, self.learned, self.tokens);
        (self.robots, self.learned, self.response) = Default::default();
        self.before_fetch = None;
        if let Some(last) = self.last_send {
            self.tokens = 0.0;
            self.counted = last;
        }
        self.change(now, |oracle| (oracle.robots, oracle.learned) = (robots, learned));
        self.tokens = self.tokens.max(tokens);
        self.sparing = true;
    }

    /// The lane was forgotten: a host that was quiet for long enough is as good as new.
    pub(super) fn forgotten(&mut self, now: Timestamp) {
        self.count(now);
        let quiet = now.since(self.last_send.unwrap_or_default().max(self.held_until));
        let rested = quiet >= self.delay() * self.policy.burst;
        self.response = Duration::ZERO;
        if rested {
            self.tokens = f64::from(self.policy.burst);
            (self.last_send, self.held_until) = (None, Timestamp::START);
        }
        self.sparing = false;
    }

    /// Whether the lane may know of fewer tokens than there are.
    pub(super) fn sparing(&self) -> bool {
        // Some crawl delays leave the burst as it is and some do not, so the lane may count tokens where the oracle
        // does not.
        (self.burst() > 1 && self.sparing) || (self.policy.burst > 1 && self.mixed)
    }

    fn count(&mut self, now: Timestamp) {
        if self.delay().is_zero() {
            return;
        }
        self.tokens = self.tokens_at(now);
        self.counted = now;
    }

    fn tokens_at(&self, at: Timestamp) -> f64 {
        let delay = self.delay().as_secs_f64();
        let refill = |from: Timestamp, to: Timestamp| to.since(from).as_secs_f64() / delay;
        if delay == 0.0 {
            return f64::from(self.burst());
        }
        let in_hold = self.held_until.max(self.counted).min(at);
        let mut tokens = self.tokens;
        if in_hold > self.counted {
            tokens = (tokens + refill(self.counted, in_hold)).min(1.0);
        }
        (tokens + refill(in_hold, at)).min(f64::from(self.burst()))
    }
}

const EPSILON: f64 = 1e-4;

pub(super) fn broken<T>(promise: Promise, story: String) -> Result<T, BrokenPromise> {
    Err(BrokenPromise { promise, story })
}
