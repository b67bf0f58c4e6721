//! Runs lanes: lets visits in, makes them wait, and gives out permits.
//!
//! Decides nothing. A [`Lane`](crate::politeness::lane::Lane) says what to do next, and the task that holds a visit
//! does it under the lock of that lane, which is never held across an await. There is no task and no timer per host: a
//! visit to a free host needs neither, and only one waiting visit in each lane keeps a timer.

mod busiest;
mod claim;
mod disconnects;
mod follow;
mod in_line;
mod news;
mod permit;
mod persistence;
mod registry;
mod robots_wait;
mod shared_lane;
mod sharing;
mod stored_hosts;
mod view;
mod visit;
mod waiting_list;

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;

use crate::clock;
use crate::events::Events;
use crate::ledger::Ledger;
use crate::metrics::Metrics;
use crate::politeness::policy::{Mode, Policy, PolicyBook};
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, LaneRefusal, OriginId};
use crate::politeness::{HostKey, Origin};
use crate::store::Health;

use self::registry::Registry;
use self::waiting_list::WaitingList;

pub use self::disconnects::DisconnectedVisit;
pub use self::follow::{Follower, Passage};
pub use self::permit::{Account, Permit};
pub use self::persistence::HostPersistence;
pub use self::registry::Bounds;
pub use self::robots_wait::RobotsWait;
pub use self::view::{Census, HostsPage, Listing, NoRoom, Pause, Sort, WantedHost};
pub use self::visit::{Place, Preparation};
pub use self::waiting_list::{Backlog, Label, Waiting};

#[derive(Debug)]
pub struct Gate {
    registry: Registry,
    book: ArcSwap<PolicyBook>,
    /// True if no host is paced.
    off: AtomicBool,
    /// Number of waiting visits of all hosts. `most_waiting` is its limit.
    waiting: AtomicUsize,
    most_waiting: AtomicUsize,
    line: WaitingList,
    /// The callback for clients that disconnect while queued.
    leaving: OnceLock<disconnects::LeavingCallback>,
    /// Random hash key, so that clients cannot choose names that collide.
    key: RandomState,
    /// A faster hash for origins: a collision merges the breakers of two origins of one host, nothing else.
    origin_key: foldhash::quality::RandomState,
    metrics: Arc<Metrics>,
    events: Arc<Events>,
    /// Where turns are kept.
    ledger: Ledger,
}

/// The part of the grace period that is left when the last visit that did not get its turn in time is refused: enough
/// to write some thousand answers, which take 40 µs each.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Which hosts a changed policy applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Apply {
    /// Every host, waiting visits included.
    All,
    /// Hosts that have no lane yet.
    New,
}

impl Gate {
    pub fn new(
        book: PolicyBook,
        bounds: Bounds,
        most_waiting: usize,
        memories: HostPersistence,
        metrics: Arc<Metrics>,
    ) -> Self {
        Gate {
            registry: Registry::new(bounds, memories),
            off: AtomicBool::new(is_off(&book)),
            book: ArcSwap::from_pointee(book),
            waiting: AtomicUsize::new(0),
            most_waiting: AtomicUsize::new(most_waiting),
            line: WaitingList::default(),
            leaving: OnceLock::new(),
            key: RandomState::new(),
            origin_key: foldhash::quality::RandomState::default(),
            metrics,
            events: Arc::default(),
            ledger: Ledger::Local,
        }
    }

    /// Shares turns with the nodes of a fleet.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = ledger;
        self
    }

    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The event log that lanes write to.
    pub fn events(&self) -> &Arc<Events> {
        &self.events
    }

    /// Sets the callback for clients that disconnect while queued. Only the first call has an effect.
    pub fn on_leaving(&self, tell: impl Fn(&DisconnectedVisit<'_>) + Send + Sync + 'static) {
        let _ = self.leaving.set(disconnects::LeavingCallback(Box::new(tell)));
    }

    /// Whether a visit of this peer that has just begun to wait is one too many: too many wait at all hosts together.
    /// Above half of that bound, the client with the most waiting visits is refused too: its backlog at some hosts must
    /// not shut other clients out of theirs.
    fn is_crowded_for(&self, peer: ClientId) -> bool {
        let (waiting, most) = (self.waiting.load(Relaxed), self.most_waiting.load(Relaxed));
        waiting > most || (waiting > most.div_ceil(2) && self.line.has_the_most(peer))
    }

    /// Whether the host is held, so that no visit may start now.
    pub fn is_held(&self, host: &HostKey) -> bool {
        self.registry.held_until(host) > now()
    }

    /// Holds the host: no visit starts before `until`.
    pub fn hold(self: &Arc<Self>, host: &HostKey, until: Timestamp) {
        let now = now();
        let book = self.book.load();
        match self.registry.lane(host, &book, now) {
            Ok(lane) => {
                lane.with(now, |state| {
                    state.lane.hold(until, now);
                    self.registry.keep_news(&lane, state, now);
                });
                self.share(&lane);
            }
            Err(_) => self.registry.hold_without_lane(host, &book, until, now),
        }
    }

    /// Returns the host's policy without the operator's overrides for that host. If the host has a lane, the policy
    /// comes from the lane and not from matching the rules again: there may be thousands of rules.
    pub fn policy(&self, host: &HostKey) -> Policy {
        let book = self.book.load();
        let lane = if book.has_rules() { self.registry.known(host) } else { None };
        lane.map_or_else(|| **book.policy(host.as_str()), |lane| lane.look(|state| **state.lane.unsteered()))
    }

    /// Returns the id of a client, from whatever identifies it: user, name or address.
    pub fn client(&self, who: impl Hash) -> ClientId {
        ClientId(self.key.hash_one(who))
    }

    /// Returns the id of an origin, as visits use it.
    pub fn origin(&self, origin: &Origin) -> OriginId {
        // Half of the hash: two origins of one host share a number with a chance of one in four billion.
        OriginId(self.origin_key.hash_one(origin) as u32)
    }

    /// Applies a new policy book and new bounds. No host gets a fresh burst.
    pub fn change(&self, book: PolicyBook, bounds: Bounds, most_waiting: usize, apply: Apply) {
        self.most_waiting.store(most_waiting, Relaxed);
        // Hosts that keep their old policy may be paced although new hosts are not.
        let off = is_off(&book) && (apply == Apply::All || self.off.load(Relaxed));
        let book = Arc::new(book);
        // Stored first, so that a host that gets its lane meanwhile does not start with the old book.
        self.book.store(book.clone());
        self.registry.change(&book, bounds, apply, now());
        self.off.store(off, Relaxed);
    }

    /// Prepares the end of curtsy after `grace`: visits whose turn comes in time are served, all others are refused
    /// now.
    pub fn drain(&self, grace: Duration) {
        let now = now();
        self.registry.drain(now + grace.saturating_sub(LAST_WORDS.min(grace / 10)), now);
    }

    /// Forgets hosts without a recent visit whose lane owes nothing. The store still knows them.
    pub fn sweep(&self) {
        self.registry.sweep(now());
    }

    /// Saves everything that a restart must know. Call it after the last send.
    pub fn keep_all(&self) {
        self.registry.keep_all(now());
    }

    /// Copies the store's health into the metrics.
    pub fn measure_store(&self) {
        if let Some(Health { pending, failures, lost, written_at_us, .. }) = self.registry.store_health() {
            let age =
                if written_at_us > 0 { now().since(Timestamp::from_micros(written_at_us)) } else { Duration::ZERO };
            self.metrics.store(pending, failures, lost, age);
        }
    }

    /// Copies how this node stands in its fleet into the metrics.
    pub fn measure_fleet(&self) {
        if let Ledger::Fleet(fleet) = &self.ledger {
            self.metrics.fleet(&fleet.figures());
        }
    }

    /// Returns the store's health, or `None` if nothing is stored.
    pub fn store_health(&self) -> Option<Health> {
        self.registry.store_health()
    }

    pub fn hosts(&self) -> usize {
        self.registry.len()
    }

    pub fn queued(&self) -> usize {
        self.waiting.load(Relaxed)
    }
}

/// The refusal if too many visits wait at all hosts together.
fn too_many(expected: Timestamp, now: Timestamp) -> LaneRefusal {
    LaneRefusal::QueueFull { retry_after: Duration::from_secs(expected.since(now).as_secs() + 1) }
}

/// Whether a book paces no host at all.
fn is_off(book: &PolicyBook) -> bool {
    book.general().mode == Mode::Off && !book.has_rules()
}

/// Returns the current time as a lane's timestamp.
pub fn now() -> Timestamp {
    at(clock::now())
}

/// Converts an instant to a lane's timestamp.
pub fn at(moment: Instant) -> Timestamp {
    Timestamp::from_micros(clock::micros_at(moment))
}

#[cfg(test)]
mod wild_tests;

#[cfg(test)]
mod tests {
    use std::future::Future;

    use tokio::time::sleep;

    use super::visit::{Position, Rehearsal};
    use super::*;
    use crate::politeness::policy::{HostPattern, HostRule, LearningPolicy};
    use crate::politeness::signals::{PaceSignal, Signals};
    use crate::politeness::visit::{Visit, VisitOutcome};
    use crate::store::{Retention, Store};

    const DELAY: Duration = Duration::from_secs(1);

    fn gate(policy: Policy) -> Arc<Gate> {
        let book = PolicyBook::from(policy);
        let bounds = Bounds { most: 100, idle: Duration::from_secs(3600) };
        let store = Arc::new(Store::memory(Retention::default()));
        Arc::new(Gate::new(book, bounds, 1000, HostPersistence::new(store, None), Arc::default()))
    }

    fn visit(gate: &Gate, client: &str) -> Visit {
        Visit::new(gate.client(client), 1)
    }

    fn host() -> HostKey {
        HostKey::parse("a.test").unwrap()
    }

    /// Runs a whole visit whose connection takes `opening` to get ready. Returns when it was sent.
    async fn go(gate: Arc<Gate>, client: &'static str, opening: Duration) -> Instant {
        let mut rehearsal = Rehearsal { opening, ..Rehearsal::default() };
        let ((), mut permit) = gate.visit(&host(), visit(&gate, client), now(), &mut rehearsal).await.unwrap();
        permit.sent();
        clock::now()
    }

    #[tokio::test(start_paused = true)]
    async fn a_free_host_costs_no_waiting() {
        let gate = gate(Policy::default());
        let place = gate.join(&host(), visit(&gate, "a")).unwrap();
        assert!(!matches!(place.0, Position::Queued(_)));
        // Ready at the first poll: no task switch, no timer.
        let mut through = std::pin::pin!(place.permit());
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(through.as_mut().poll(&mut cx).is_ready());
    }

    /// Promise 1: the gap counts from the send, not from the grant.
    #[tokio::test(start_paused = true)]
    async fn a_slow_connection_compresses_no_gap() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let slow = Duration::from_millis(300);
        let first = tokio::spawn(go(gate.clone(), "a", slow));
        let second = tokio::spawn(go(gate.clone(), "b", slow));
        let third = tokio::spawn(go(gate.clone(), "c", Duration::ZERO));
        let mut sent = [first.await.unwrap(), second.await.unwrap(), third.await.unwrap()];
        sent.sort();
        assert!(sent[1] - sent[0] >= DELAY && sent[2] - sent[1] >= DELAY, "{sent:?}");
        assert!(sent[2] - sent[0] <= DELAY * 2 + Duration::from_millis(5), "time was lost: {sent:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leaving_visit_hands_the_timer_on_and_spends_no_turn() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let first = go(gate.clone(), "a", Duration::ZERO).await;
        let leaving: Vec<_> = (0..20).map(|_| tokio::spawn(go(gate.clone(), "b", Duration::ZERO))).collect();
        let staying = tokio::spawn(go(gate.clone(), "c", Duration::ZERO));
        sleep(DELAY / 2).await;
        for visit in &leaving {
            visit.abort();
        }
        let last = staying.await.unwrap();
        let gap = last - first;
        assert!(gap >= DELAY && gap < DELAY + Duration::from_millis(5), "{gap:?}");
        assert_eq!(gate.queued(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_is_not_used_is_the_next_ones() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let unused = gate.join(&host(), visit(&gate, "a")).unwrap().permit().await.unwrap();
        let next = tokio::spawn(go(gate.clone(), "b", Duration::ZERO));
        sleep(Duration::from_millis(10)).await;
        assert!(!next.is_finished(), "two hold the turn");
        let before = clock::now();
        drop(unused);
        assert!(next.await.unwrap() - before < Duration::from_millis(5));
    }

    /// Makes a visit to a free host, sent just now.
    async fn sent(gate: &Arc<Gate>, client: &str) -> Permit {
        let mut permit = gate.join(&host(), visit(gate, client)).unwrap().permit().await.unwrap();
        permit.sent();
        permit
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_told_when_it_is_reported() {
        let gate = gate(Policy::default());
        let (mut permit, heard) = (sent(&gate, "a").await, now() + DELAY);
        permit.report(VisitOutcome::Heard(Signals::SERVED), heard);
        let view = gate.view(&host()).unwrap();
        assert_eq!((view.last_success, view.in_flight), (Some(heard), 1));
        permit.leave(heard + DELAY);
        let view = gate.view(&host()).unwrap();
        assert_eq!((view.last_success, view.in_flight), (Some(heard), 0));
    }

    /// A lesson from one visit must not swallow the answer of another.
    #[tokio::test(start_paused = true)]
    async fn an_answer_is_told_although_the_host_has_learned_since_it_was_sent() {
        let gate = gate(Policy { delay: Duration::ZERO, concurrency: 2, ..Policy::steps() });
        let (mut first, mut second) = (sent(&gate, "a").await, sent(&gate, "b").await);
        second.report(VisitOutcome::Heard(Signals { answer: PaceSignal::Throttled, ..Signals::SERVED }), now());
        let heard = now() + DELAY;
        first.report(VisitOutcome::Heard(Signals::SERVED), heard);
        assert!(!gate.view(&host()).unwrap().delays.learned.is_zero());
        first.leave(heard + DELAY);
        let view = gate.view(&host()).unwrap();
        assert_eq!((view.last_success, view.in_flight), (Some(heard), 1));
    }

    /// Before the first refusal `auto` doubles the pace, and nothing has been learned that people must know.
    #[tokio::test(start_paused = true)]
    async fn only_a_learned_delay_that_changes_is_news() {
        let gate = gate(Policy { delay: Duration::from_millis(20), ..Policy::default() });
        let mut listener = gate.events().listen(None);
        let mut hear = async |answer| {
            let mut permit = sent(&gate, "a").await;
            permit.report(VisitOutcome::Heard(Signals { answer, ..Signals::SERVED }), now());
            drop(permit);
            let kinds: Vec<_> = listener.hear().0.iter().map(|event| event.kind).collect();
            (kinds, gate.metrics.lessons.learned_changes.get())
        };
        for _ in 0..20 {
            assert_eq!(hear(PaceSignal::Success).await, (vec![], 0));
        }
        let delay = gate.view(&host()).unwrap().delays.effective();
        assert!(delay <= Duration::from_millis(125), "it did not speed up: {delay:?}");
        hear(PaceSignal::Throttled).await;
        assert_eq!(hear(PaceSignal::Success).await, (vec!["host.slowed"], 1));
    }

    fn at_hand() -> Rehearsal {
        Rehearsal { is_at_hand: true, ..Rehearsal::default() }
    }

    /// A visit whose connection is ready goes through a free host at once. At a busy host it waits like any other.
    #[tokio::test(start_paused = true)]
    async fn a_ready_visit_has_its_turn_at_once_if_the_host_is_free() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let mut through = at_hand();
        let ((), mut first) = gate.visit(&host(), visit(&gate, "a"), now(), &mut through).await.unwrap();
        assert_eq!((through.readied, through.put_back, first.waited()), (0, 0, Duration::ZERO));
        let mut late = at_hand();
        let host = host();
        let other = gate.visit(&host, visit(&gate, "b"), now(), &mut late);
        assert!(tokio::time::timeout(DELAY / 2, other).await.is_err(), "two hold the turn");
        assert_eq!(late.put_back, 1);
        first.sent();
        let (begun, mut next) = (clock::now(), at_hand());
        gate.visit(&host, visit(&gate, "b"), now(), &mut next).await.unwrap().1.sent();
        assert_eq!((next.readied, next.put_back), (1, 1), "the delay is not over");
        assert!(clock::now() - begun >= DELAY);
        // A turn that is not used is given back.
        sleep(DELAY).await;
        drop(gate.visit(&host, visit(&gate, "c"), now(), &mut at_hand()).await.unwrap());
        let mut again = at_hand();
        drop(gate.visit(&host, visit(&gate, "d"), now(), &mut again).await.unwrap());
        assert_eq!(again.put_back, 0);
        assert_eq!(gate.metrics.spacing_violations.get(), 0);
    }

    /// A visit that loses its turn when it is ready gives its connection back, gets ready again and gets another turn.
    #[tokio::test(start_paused = true)]
    async fn a_visit_that_loses_its_turn_gets_ready_again() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let mut first = sent(&gate, "a").await;
        let mut rehearsal = Rehearsal::default();
        let host = host();
        let visiting = gate.visit(&host, visit(&gate, "b"), now(), &mut rehearsal);
        let disturbing = async {
            sleep(DELAY / 2).await;
            gate.registry.known(&host).unwrap().look(|state| state.lose_turns(now()));
            sleep(DELAY / 4).await;
            assert_eq!((gate.queued(), gate.view(&host).unwrap().in_flight), (1, 1));
        };
        let (visited, ()) = tokio::join!(visiting, disturbing);
        let ((), mut permit) = visited.unwrap();
        assert_eq!((rehearsal.readied, rehearsal.put_back), (2, 1));
        assert_eq!((permit.waited(), gate.queued()), (DELAY, 0));
        permit.sent();
        first.report(VisitOutcome::Heard(Signals::SERVED), now());
        assert_eq!(gate.metrics.spacing_violations.get(), 0);
    }

    /// A refused visit has left its lane, and its number may belong to another visit before its task has received the
    /// refusal.
    #[tokio::test(start_paused = true)]
    async fn a_refusal_reaches_its_visit_though_its_number_is_taken() {
        let impatient = Policy { delay: DELAY, max_wait: Duration::from_secs(10), ..Policy::default() };
        let gate = gate(impatient);
        go(gate.clone(), "a", Duration::ZERO).await;
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let gate = gate.clone();
                tokio::spawn(async move { gate.join(&host(), visit(&gate, "b"))?.permit().await.map(drop) })
            })
            .collect();
        tokio::task::yield_now().await;
        let change = |delay| {
            let book = PolicyBook::from(Policy { delay, ..impatient });
            gate.change(book, Bounds { most: 100, idle: DELAY * 3600 }, 1000, Apply::All);
        };
        change(DELAY * 1000);
        change(Duration::ZERO);
        let newcomers: Vec<_> = (0..5).map(|_| gate.join(&host(), visit(&gate, "c")).unwrap()).collect();
        for visit in waiting {
            let heard = tokio::time::timeout(DELAY * 60, visit).await.expect("a visit was not told").unwrap();
            assert!(matches!(heard, Err(LaneRefusal::WaitTooLong { .. })), "{heard:?}");
        }
        for place in newcomers {
            drop(tokio::time::timeout(DELAY * 60, place.permit()).await.expect("a newcomer got no turn").unwrap());
        }
    }

    fn change(gate: &Gate, policy: Policy, apply: Apply) {
        let book = PolicyBook::from(policy);
        gate.change(book, Bounds { most: 100, idle: DELAY * 3600 }, 1000, apply);
    }

    /// Returns the configured delay of the lane with this name.
    fn delay_of(gate: &Arc<Gate>, name: &str) -> Option<Duration> {
        let place = gate.join(&HostKey::parse(name).unwrap(), visit(gate, "a")).unwrap();
        place.account().map(|account| account.delays.configured)
    }

    #[tokio::test(start_paused = true)]
    async fn new_numbers_may_be_for_new_hosts_alone() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        assert_eq!(delay_of(&gate, "old.test"), Some(DELAY));
        change(&gate, Policy { delay: DELAY * 9, ..Policy::default() }, Apply::New);
        assert_eq!((delay_of(&gate, "old.test"), delay_of(&gate, "new.test")), (Some(DELAY), Some(DELAY * 9)));
        change(&gate, Policy { delay: DELAY * 5, ..Policy::default() }, Apply::New);
        assert_eq!((delay_of(&gate, "new.test"), delay_of(&gate, "newer.test")), (Some(DELAY * 9), Some(DELAY * 5)));
        change(&gate, Policy { delay: DELAY * 2, ..Policy::default() }, Apply::All);
        for name in ["old.test", "new.test", "newer.test", "newest.test"] {
            assert_eq!(delay_of(&gate, name), Some(DELAY * 2), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_rule_counts_for_a_host_that_is_known_and_for_one_that_is_not() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let slow = |factor| {
            let patterns = vec![HostPattern::Below("test".to_owned())];
            let rule = HostRule { patterns, delay: Some(DELAY * factor), ..HostRule::default() };
            let book = PolicyBook::new(Policy::default(), vec![rule], LearningPolicy::default());
            gate.change(book, Bounds { most: 100, idle: DELAY * 3600 }, 1000, Apply::All);
        };
        slow(5);
        assert_eq!(gate.policy(&host()).delay, DELAY * 5);
        drop(gate.join(&host(), visit(&gate, "a")).unwrap());
        assert_eq!(gate.policy(&host()).delay, DELAY * 5);
        slow(7);
        assert_eq!(gate.policy(&host()).delay, DELAY * 7, "new numbers count for it, too");
        assert_eq!(gate.policy(&HostKey::parse("b.example").unwrap()).delay, Policy::default().delay);
    }

    /// Turning pacing off for new hosts must not free the hosts that keep their policy.
    #[tokio::test(start_paused = true)]
    async fn a_known_host_stays_paced_when_new_ones_are_not() {
        let gate = gate(Policy { delay: DELAY, ..Policy::default() });
        let off = Policy { mode: Mode::Off, ..Policy::default() };
        let first = go(gate.clone(), "a", Duration::ZERO).await;
        change(&gate, off, Apply::New);
        assert!(go(gate.clone(), "b", Duration::ZERO).await - first >= DELAY);
        change(&gate, off, Apply::All);
        assert_eq!(delay_of(&gate, "a.test"), None, "there is no lane to go through");
        change(&gate, Policy { delay: DELAY, ..Policy::default() }, Apply::New);
        assert_eq!(delay_of(&gate, "b.test"), Some(DELAY));
    }

    #[tokio::test(start_paused = true)]
    async fn a_backlog_uses_all_of_the_allowed_rate() {
        let gate = gate(Policy { delay: Duration::from_millis(50), ..Policy::steps() });
        let first = clock::now();
        let visits: Vec<_> = (0..200).map(|_| tokio::spawn(go(gate.clone(), "a", Duration::ZERO))).collect();
        let mut last = first;
        for visit in visits {
            last = last.max(visit.await.unwrap());
        }
        let ideal = Duration::from_millis(50) * 199;
        let used = ideal.as_secs_f64() / (last - first).as_secs_f64();
        assert!((0.95..=1.0).contains(&used), "{used}");
    }
}
