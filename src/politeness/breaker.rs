//! A breaker: an origin that only fails is left alone for a while, then tried with one request at a time.
//!
//! Closed, it counts failures in a row. Enough of them open it: no request starts until the cooldown has passed. Then
//! one request at a time is a trial. If it is served, the breaker closes; if it fails, the breaker opens again for
//! twice as long; if the answer is "too fast", the origin is alive but wants fewer requests, so the breaker cools down
//! once more.
//!
//! A breaker belongs to an origin and not to a host, because a client chooses the port: failures at a closed port, or
//! of a broken service beside a good one, say nothing about the others. The same holds for status 500 and timeouts,
//! which only the server behind that port can cause. If a whole host is down, each of its origins finds that out.
//!
//! A client also chooses what to ask for, so one client alone must not close an origin to the others:
//! - If all failures in the row are one client's, the first request of any other client is a trial at once.
//! - After a cooldown the trial belongs to the client that was refused first and did not fail the last trial.
//!   [`HEIR_WAIT`] after the time that client was told, any client may have it.
//!
//! Promises: answers to requests that began before the breaker opened change nothing; while nothing fails, the breaker
//! costs a comparison.

use std::time::Duration;

use super::signals::PaceSignal;
use super::time::Timestamp;
use super::visit::{ClientId, Ticket};

/// How long a trial is kept for the client that was told to come back for it. Retry loops add a second or two of
/// jitter; a client that never returns costs the others no more than this.
pub const HEIR_WAIT: Duration = Duration::from_secs(5);

/// How many failures are tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tolerance {
    /// This many failures in a row open the breaker; 0 = never.
    pub failures: u16,
    /// Doubles each time a probe fails.
    pub cooldown: Duration,
    pub longest_cooldown: Duration,
    /// This many refusals in a row at the largest delay open it, too; 0 = never.
    pub throttled: u16,
}

impl Default for Tolerance {
    fn default() -> Self {
        let (cooldown, longest_cooldown) = (Duration::from_secs(30), Duration::from_secs(600));
        Tolerance { failures: 10, cooldown, longest_cooldown, throttled: 0 }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Breaker {
    failures: u16,
    throttled: u16,
    blame: Blame,
    open: Option<Open>,
    /// The request that is on trial.
    trial: Option<Ticket>,
    /// The client that the next trial is kept for.
    heir: Option<Heir>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    since: Timestamp,
    until: Timestamp,
    cooldown: Duration,
    why: Why,
    /// The client whose trial failed last.
    failed: Option<ClientId>,
}

/// Which clients the failures in a row belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Blame {
    #[default]
    Nobody,
    One(ClientId),
    /// Several names at one address, which may be one client.
    OneOwner(u32),
    Several,
}

#[derive(Clone, Copy, Debug)]
struct Heir {
    client: ClientId,
    due: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// This many failures in a row.
    Failures(u16),
    /// This many refusals in a row at the largest delay.
    Throttled(u16),
}

/// No request starts before this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotUntil {
    pub time: Timestamp,
    pub why: Why,
}

/// What a breaker decides about a request that wants to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ruling {
    Free,
    /// The request may begin, and decides whether the breaker closes.
    Trial,
    Refused(NotUntil),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerChange {
    Opened { until: Timestamp, why: Why },
    Closed { since: Timestamp },
}

/// What became of a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitEnding {
    pub ticket: Ticket,
    pub client: ClientId,
    /// When the visit was called to make its connection ready, or was sent.
    pub began: Timestamp,
    pub answer: PaceSignal,
    /// A refusal that counted although the delay could not grow any more.
    pub at_limit: bool,
}

impl Blame {
    /// Returns whether all failures belong to one other client, or to one other address under several names.
    fn clears(self, client: ClientId) -> bool {
        match self {
            Blame::One(failed) => failed != client,
            Blame::OneOwner(owner) => owner != client.owner(),
            Blame::Nobody | Blame::Several => false,
        }
    }
}

impl Breaker {
    pub fn new() -> Self {
        Breaker::default()
    }

    /// Returns the ruling for a request of this client that wants to begin now.
    pub fn ruling(&self, client: ClientId, now: Timestamp) -> Ruling {
        let Some(Open { until, why, .. }) = self.open else { return Ruling::Free };
        let refused = |time: Timestamp| Ruling::Refused(NotUntil { time, why });
        match (self.blame, self.heir) {
            _ if self.trial.is_some() => refused(until.max(now)),
            (blame, _) if blame.clears(client) && matches!(why, Why::Failures(_)) => Ruling::Trial,
            _ if now < until => refused(until),
            (_, Some(heir)) if heir.client != client && now < heir.due + HEIR_WAIT => refused(heir.due + HEIR_WAIT),
            _ => Ruling::Trial,
        }
    }

    /// Makes this request the trial, until it has ended or left.
    pub fn begin_trial(&mut self, ticket: Ticket) {
        self.trial = Some(ticket);
    }

    /// Notes that a client was refused and told to come back at `due`.
    pub fn told(&mut self, client: ClientId, due: Timestamp) {
        let Some(open) = self.open else { return };
        if self.heir.is_none() && open.failed != Some(client) && self.blame != Blame::One(client) {
            self.heir = Some(Heir { client, due });
        }
    }

    /// Notes that the request has left, with or without an answer.
    pub fn left(&mut self, ticket: Ticket) {
        self.trial.take_if(|trial| *trial == ticket);
    }

    /// Returns until when requests are refused, and why. `None` if a request might be a trial now.
    pub fn refusal(&self, now: Timestamp) -> Option<NotUntil> {
        let Open { until, why, .. } = self.open?;
        (now < until).then_some(NotUntil { time: until, why })
    }

    /// Whether requests are refused or on trial.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// When it opened, if it is open.
    pub fn open_since(&self) -> Option<Timestamp> {
        self.open.map(|open| open.since)
    }

    pub fn heard(&mut self, ending: VisitEnding, tolerance: &Tolerance, now: Timestamp) -> Option<BreakerChange> {
        let is_trial = self.trial.take_if(|trial| *trial == ending.ticket).is_some();
        match self.open {
            None => self.count(ending, tolerance, now),
            Some(open) if is_trial || ending.began >= open.until => self.probed(open, ending, tolerance, now),
            Some(_) => None,
        }
    }

    /// Closes the breaker and forgets all failures, for example because an operator says so.
    pub fn close(&mut self) {
        *self = Breaker::new();
    }

    /// Returns whether the breaker is as if nothing had ever failed.
    pub fn is_well(&self) -> bool {
        self.open.is_none() && self.failures == 0 && self.throttled == 0
    }

    /// Returns the failures in a row up to now.
    pub fn failures(&self) -> u16 {
        self.failures
    }

    /// Counts failures again that a response had ended: its body has broken off, so they count as if it had not come.
    pub fn take_back(&mut self, failures: u16) {
        if self.open.is_none() {
            self.failures = self.failures.saturating_add(failures);
        }
    }

    fn count(&mut self, ending: VisitEnding, tolerance: &Tolerance, now: Timestamp) -> Option<BreakerChange> {
        match ending.answer {
            PaceSignal::Failed => self.fail(ending.client),
            // The origin answers.
            PaceSignal::Success | PaceSignal::Neutral | PaceSignal::Suspect => self.close(),
            PaceSignal::Throttled => {
                (self.failures, self.blame) = (0, Blame::Nobody);
                self.throttled = self.throttled.saturating_add(ending.at_limit.into());
            }
        }
        let open = Open { since: now, until: now, cooldown: tolerance.cooldown, why: Why::Failures(0), failed: None };
        if tolerance.failures > 0 && self.failures >= tolerance.failures {
            Some(self.open(Open { why: Why::Failures(self.failures), ..open }, now))
        } else if tolerance.throttled > 0 && self.throttled >= tolerance.throttled {
            // By then, holds have long been longer than the first cooldown.
            let (why, cooldown) = (Why::Throttled(self.throttled), tolerance.longest_cooldown);
            Some(self.open(Open { why, cooldown, ..open }, now))
        } else {
            None
        }
    }

    fn fail(&mut self, client: ClientId) {
        self.failures = self.failures.saturating_add(1);
        self.blame = match self.blame {
            Blame::Nobody => Blame::One(client),
            Blame::One(other) if other == client => Blame::One(client),
            Blame::One(other) if other.owner() == client.owner() => Blame::OneOwner(client.owner()),
            Blame::OneOwner(owner) if owner == client.owner() => Blame::OneOwner(owner),
            Blame::One(_) | Blame::OneOwner(_) | Blame::Several => Blame::Several,
        };
    }

    fn probed(
        &mut self,
        open: Open,
        ending: VisitEnding,
        tolerance: &Tolerance,
        now: Timestamp,
    ) -> Option<BreakerChange> {
        match ending.answer {
            PaceSignal::Success | PaceSignal::Neutral | PaceSignal::Suspect => {
                self.close();
                Some(BreakerChange::Closed { since: open.since })
            }
            PaceSignal::Failed => {
                self.fail(ending.client);
                let longer = open.cooldown.saturating_mul(2).min(tolerance.longest_cooldown).max(open.cooldown);
                let (why, failed) = (Why::Failures(self.failures), Some(ending.client));
                Some(self.open(Open { cooldown: longer, why, failed, ..open }, now))
            }
            PaceSignal::Throttled => Some(self.open(open, now)),
        }
    }

    fn open(&mut self, open: Open, now: Timestamp) -> BreakerChange {
        let (until, why) = (now + open.cooldown, open.why);
        self.open = Some(Open { until, ..open });
        self.heir = None;
        BreakerChange::Opened { until, why }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    const ALICE: ClientId = ClientId(1);
    const MALLORY: ClientId = ClientId(2);
    const TICKET: Ticket = Ticket { number: 0, generation: 0 };

    fn ending(client: ClientId, answer: PaceSignal, began: Timestamp) -> VisitEnding {
        VisitEnding { ticket: TICKET, client, began, answer, at_limit: false }
    }

    /// Makes a visit of a client that begins and ends at once.
    fn visit_of(client: ClientId, breaker: &mut Breaker, answer: PaceSignal, now: Timestamp) -> Option<BreakerChange> {
        match breaker.ruling(client, now) {
            Ruling::Free => {}
            Ruling::Trial => breaker.begin_trial(TICKET),
            Ruling::Refused(until) => panic!("refused: {until:?}"),
        }
        breaker.heard(ending(client, answer, now), &Tolerance::default(), now)
    }

    fn visit(breaker: &mut Breaker, answer: PaceSignal, now: Timestamp) -> Option<BreakerChange> {
        visit_of(ALICE, breaker, answer, now)
    }

    fn is_refused(breaker: &Breaker, client: ClientId, now: Timestamp) -> bool {
        matches!(breaker.ruling(client, now), Ruling::Refused(_))
    }

    /// X66: what one client asks for must not close an origin to another.
    #[test]
    fn failures_of_one_client_are_tried_by_another_at_once() {
        let mut breaker = opened(at(0));
        assert!(is_refused(&breaker, ALICE, at(1)));
        assert_eq!(breaker.ruling(MALLORY, at(1)), Ruling::Trial);
        breaker.begin_trial(TICKET);
        assert!(is_refused(&breaker, ClientId(3), at(1)), "one at a time");
        breaker.left(TICKET);
        assert_eq!(
            visit_of(MALLORY, &mut breaker, PaceSignal::Success, at(1)),
            Some(BreakerChange::Closed { since: at(0) })
        );
        // If that one fails as well, the origin is given up for all clients.
        let mut breaker = opened(at(0));
        visit_of(MALLORY, &mut breaker, PaceSignal::Failed, at(1));
        assert!([ALICE, MALLORY, ClientId(3)].into_iter().all(|client| is_refused(&breaker, client, at(60))));
    }

    /// X66: several names at one address do not count as several clients.
    #[test]
    fn failures_of_one_address_under_many_names_are_tried_by_another_address() {
        let mut breaker = opened(at(0));
        visit_of(MALLORY, &mut breaker, PaceSignal::Failed, at(1));
        assert!(is_refused(&breaker, ClientId(3), at(1)), "another name of the same address");
        assert_eq!(breaker.ruling(ClientId(1 << 32), at(1)), Ruling::Trial);
    }

    /// X66: a client that keeps failing gets no trial while another client waits for one.
    #[test]
    fn the_trial_is_for_the_client_that_was_refused_first_and_not_for_the_one_that_failed() {
        let mut breaker = opened(at(0));
        visit_of(MALLORY, &mut breaker, PaceSignal::Failed, at(0));
        breaker.told(MALLORY, at(60));
        assert_eq!(breaker.ruling(MALLORY, at(60)), Ruling::Trial, "no other client waits");
        breaker.told(ALICE, at(62));
        breaker.told(ClientId(3), at(63));
        assert!(is_refused(&breaker, MALLORY, at(60)) && is_refused(&breaker, ClientId(3), at(63)));
        assert_eq!(breaker.ruling(ALICE, at(60)), Ruling::Trial);
        assert_eq!(breaker.ruling(MALLORY, at(62) + HEIR_WAIT), Ruling::Trial, "it is kept for a moment only");
    }

    fn opened(now: Timestamp) -> Breaker {
        let mut breaker = Breaker::new();
        for _ in 0..10 {
            visit(&mut breaker, PaceSignal::Failed, now);
        }
        breaker
    }

    fn until(breaker: &Breaker, now: Timestamp) -> Option<Timestamp> {
        breaker.refusal(now).map(|refusal| refusal.time)
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let mut breaker = Breaker::new();
        for _ in 0..9 {
            assert_eq!(visit(&mut breaker, PaceSignal::Failed, at(0)), None);
        }
        let why = Why::Failures(10);
        assert_eq!(visit(&mut breaker, PaceSignal::Failed, at(1)), Some(BreakerChange::Opened { until: at(31), why }));
        assert_eq!(breaker.refusal(at(30)), Some(NotUntil { time: at(31), why }));
    }

    #[test]
    fn any_answer_ends_the_row() {
        for answer in [PaceSignal::Success, PaceSignal::Neutral, PaceSignal::Throttled] {
            let mut breaker = Breaker::new();
            for _ in 0..100 {
                for _ in 0..9 {
                    visit(&mut breaker, PaceSignal::Failed, at(0));
                }
                assert_eq!(visit(&mut breaker, answer, at(0)), None, "{answer:?}");
                assert_eq!(breaker.failures(), 0);
            }
        }
    }

    #[test]
    fn after_the_cooldown_one_that_is_served_closes_it() {
        let mut breaker = opened(at(0));
        assert_eq!(until(&breaker, at(29)), Some(at(30)));
        assert_eq!(until(&breaker, at(30)), None);
        assert!(breaker.is_open(), "on trial");
        assert_eq!(visit(&mut breaker, PaceSignal::Success, at(32)), Some(BreakerChange::Closed { since: at(0) }));
        assert!(!breaker.is_open());
        assert_eq!(breaker.failures(), 0);
    }

    #[test]
    fn a_failed_probe_doubles_the_cooldown_up_to_the_longest() {
        let mut breaker = opened(at(0));
        let mut now = until(&breaker, at(0)).unwrap();
        let mut cooldowns = Vec::new();
        for _ in 0..7 {
            visit(&mut breaker, PaceSignal::Failed, now);
            cooldowns.push(until(&breaker, now).unwrap().since(now).as_secs());
            now = until(&breaker, now).unwrap();
        }
        assert_eq!(cooldowns, [60, 120, 240, 480, 600, 600, 600]);
        visit(&mut breaker, PaceSignal::Success, now);
        for _ in 0..10 {
            visit(&mut breaker, PaceSignal::Failed, now);
        }
        assert_eq!(until(&breaker, now), Some(now + Duration::from_secs(30)), "closed, it starts anew");
    }

    #[test]
    fn a_probe_that_is_told_too_fast_does_not_close_it() {
        let mut breaker = opened(at(0));
        let change = visit(&mut breaker, PaceSignal::Throttled, at(30));
        assert_eq!(change, Some(BreakerChange::Opened { until: at(60), why: Why::Failures(10) }));
        assert!(breaker.refusal(at(59)).is_some());
        visit(&mut breaker, PaceSignal::Failed, at(60));
        assert_eq!(until(&breaker, at(60)), Some(at(120)), "nor does it count as a failure");
    }

    #[test]
    fn what_left_before_it_opened_changes_nothing() {
        let mut breaker = opened(at(0));
        for answer in [PaceSignal::Success, PaceSignal::Failed, PaceSignal::Throttled] {
            assert_eq!(breaker.heard(ending(ALICE, answer, at(0)), &Tolerance::default(), at(40)), None);
        }
        assert_eq!(until(&breaker, at(5)), Some(at(30)));
    }

    #[test]
    fn giving_up_on_a_host_that_only_refuses_is_optional() {
        let refused = VisitEnding { at_limit: true, ..ending(ALICE, PaceSignal::Throttled, at(0)) };
        let mut breaker = Breaker::new();
        for _ in 0..1_000 {
            assert_eq!(breaker.heard(refused, &Tolerance::default(), at(0)), None);
        }
        let tolerance = Tolerance { throttled: 20, ..Tolerance::default() };
        let mut breaker = Breaker::new();
        for _ in 0..19 {
            assert_eq!(breaker.heard(refused, &tolerance, at(0)), None);
            assert_eq!(breaker.heard(VisitEnding { at_limit: false, ..refused }, &tolerance, at(0)), None);
        }
        let change = breaker.heard(refused, &tolerance, at(0));
        assert_eq!(change, Some(BreakerChange::Opened { until: at(600), why: Why::Throttled(20) }));
    }

    #[test]
    fn it_can_be_off_and_be_closed_by_hand() {
        let off = Tolerance { failures: 0, ..Tolerance::default() };
        let mut breaker = Breaker::new();
        for _ in 0..100 {
            assert_eq!(breaker.heard(ending(ALICE, PaceSignal::Failed, at(0)), &off, at(0)), None);
        }
        let mut breaker = opened(at(0));
        breaker.close();
        assert_eq!(breaker.refusal(at(0)), None);
    }
}
