//! Visits that follow a flight, in virtual time.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::*;
use crate::clock;
use crate::gate::visit::Rehearsal;
use crate::gate::{Bounds, HostPersistence, now};
use crate::metrics::GaugeSources;
use crate::politeness::flight::{Flight, Following, Member};
use crate::politeness::policy::{Policy, PolicyBook};
use crate::store::{Retention, Store};

const DELAY: Duration = Duration::from_secs(1);

/// A flight whose answer may be shared or not.
#[derive(Default)]
struct Sky {
    flight: Mutex<(Flight, Option<bool>)>,
    news: Notify,
    is_stored: AtomicBool,
}

struct Wing {
    sky: Arc<Sky>,
    member: Member,
}

impl Sky {
    fn join(self: &Arc<Self>) -> Wing {
        let member = self.flight.lock().0.join(Following::Any).expect("not sent");
        Wing { sky: self.clone(), member }
    }
}

impl Wing {
    fn land(&self, is_shared: bool) {
        let mut flight = self.sky.flight.lock();
        flight.1 = Some(is_shared);
        flight.0.landed(self.member);
        drop(flight);
        self.sky.news.notify_waiters();
    }

    async fn until<T>(&self, found: impl Fn(&(Flight, Option<bool>)) -> Option<T>) -> T {
        loop {
            let mut news = std::pin::pin!(self.sky.news.notified());
            news.as_mut().enable();
            if let Some(found) = found(&self.sky.flight.lock()) {
                return found;
            }
            news.await;
        }
    }
}

impl Follower for Wing {
    type Shared = ();

    fn is_led(&self) -> bool {
        self.sky.flight.lock().0.is_led()
    }

    fn called(&self) -> CallReply {
        let mut flight = self.sky.flight.lock();
        if flight.1.is_some() { CallReply::Alone } else { flight.0.called(self.member) }
    }

    fn waits_again(&self) {
        self.sky.flight.lock().0.waits_again(self.member, false);
        self.sky.news.notify_waiters();
    }

    fn leave(&self) {
        self.sky.flight.lock().0.leave(self.member);
        self.sky.news.notify_waiters();
    }

    fn stored_meanwhile(&self) -> Option<()> {
        self.sky.is_stored.load(Relaxed).then_some(())
    }

    async fn shared(&self) {
        self.until(|flight| (flight.1 == Some(true)).then_some(())).await;
    }

    async fn released(&self, round: Round) {
        self.until(|flight| flight.0.is_released(round).then_some(())).await;
    }
}

impl Drop for Wing {
    fn drop(&mut self) {
        self.leave();
    }
}

fn gate(policy: Policy) -> Arc<Gate> {
    let bounds = Bounds { most: 100, idle: Duration::from_secs(3600) };
    let store = Arc::new(Store::memory(Retention::default()));
    Arc::new(Gate::new(PolicyBook::from(policy), bounds, 1000, HostPersistence::new(store, None), Arc::default()))
}

fn policy() -> Policy {
    Policy { delay: DELAY, ..Policy::default() }
}

fn host() -> HostKey {
    HostKey::parse("a.test").unwrap()
}

/// What happened to a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    SentAt(Instant),
    Shared,
    Refused,
}

struct Asking {
    gate: Arc<Gate>,
    sky: Arc<Sky>,
    /// How long the origin takes, and whether its answer may be shared.
    answer: (Duration, bool),
    max_wait: Option<Duration>,
    sent: Arc<AtomicUsize>,
}

impl Asking {
    fn new(policy: Policy, answer: (Duration, bool)) -> Self {
        Asking { gate: gate(policy), sky: Arc::default(), answer, max_wait: None, sent: Arc::default() }
    }

    /// Sends one request as one of the clients.
    fn go(&self, client: usize) -> tokio::task::JoinHandle<Fate> {
        let (gate, wing, sent) = (self.gate.clone(), self.sky.join(), self.sent.clone());
        let (took, is_shared) = self.answer;
        let visit = Visit { max_wait: self.max_wait, ..Visit::new(gate.client(client), 1) };
        tokio::spawn(async move {
            let mut rehearsal = Rehearsal { is_at_hand: true, ..Rehearsal::default() };
            match gate.follow(&host(), visit, now(), &mut rehearsal, &wing).await {
                Ok(Passage::Turn((), mut permit)) => {
                    let at = clock::now();
                    permit.sent();
                    sent.fetch_add(1, Relaxed);
                    wing.sky.flight.lock().0.sent(wing.member);
                    sleep(took).await;
                    if wing.sky.flight.lock().0.is_led_by(wing.member) {
                        wing.land(is_shared);
                    }
                    Fate::SentAt(at)
                }
                Ok(Passage::Shared(())) => Fate::Shared,
                Err(_) => Fate::Refused,
            }
        })
    }

    async fn all(&self, clients: usize) -> Vec<Fate> {
        let asked: Vec<_> = (0..clients).map(|client| self.go(client)).collect();
        let mut fates = Vec::new();
        for one in asked {
            fates.push(one.await.unwrap());
        }
        fates
    }
}

fn sent(fates: &[Fate]) -> Vec<Instant> {
    let sent = fates.iter().filter_map(|fate| match fate {
        Fate::SentAt(at) => Some(*at),
        Fate::Shared | Fate::Refused => None,
    });
    sent.collect()
}

/// C38
#[tokio::test(start_paused = true)]
async fn a_thousand_at_once_are_one_visit() {
    for delay in [Duration::ZERO, DELAY, DELAY * 20] {
        let asking = Asking::new(Policy { delay, ..policy() }, (DELAY / 3, true));
        let fates = asking.all(1000).await;
        assert_eq!(sent(&fates).len(), 1, "at a delay of {delay:?}");
        assert!(fates.iter().all(|fate| *fate != Fate::Refused), "at a delay of {delay:?}");
        let view = asking.gate.view(&host()).unwrap();
        assert_eq!((asking.gate.queued(), view.queued, view.in_flight), (0, 0, 0));
        let metrics = asking.gate.metrics.render(&GaugeSources::default());
        assert!(metrics.contains("curtsy_client_disconnects_total{stage=\"queued\"} 0"), "no client disconnected");
    }
}

/// What is stored while a request waits answers it, and the next visit gets its turn.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_stored_meanwhile_costs_no_turn() {
    let first = Asking::new(policy(), (Duration::ZERO, true));
    let another = || Asking { gate: first.gate.clone(), ..Asking::new(policy(), (Duration::ZERO, true)) };
    let (waiting, behind) = (another(), another());
    let begun = sent(&first.all(1).await)[0];
    let (waits, comes_next) = (waiting.go(1), behind.go(2));
    sleep(DELAY * 2 / 3).await;
    waiting.sky.is_stored.store(true, Relaxed);
    assert_eq!((waits.await.unwrap(), comes_next.await.unwrap()), (Fate::Shared, Fate::SentAt(begun + DELAY)));
    assert_eq!(first.gate.queued(), 0);
}

/// C39
#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_shared_costs_followers_nothing() {
    let asking = Asking::new(policy(), (DELAY / 3, false));
    let begun = clock::now();
    let sent = sent(&asking.all(10).await);
    let due: Vec<Duration> = (0..10).map(|turn| DELAY * turn).collect();
    let late = |(at, due): (&Instant, &Duration)| (*at - begun).saturating_sub(*due);
    assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= DELAY), "{sent:?}");
    let latest = sent.iter().zip(&due).map(late).max().unwrap();
    assert!(sent.len() == 10 && latest < Duration::from_millis(20), "late by {latest:?}");
}

/// C39: a slow answer delays followers by no more than it took, and by no more than the longest time aside.
#[tokio::test(start_paused = true)]
async fn followers_of_a_slow_answer_go_on_alone() {
    for (took, latest) in [(DELAY * 3, DELAY * 3), (DELAY * 60, LONGEST_ASIDE)] {
        let asking = Asking::new(policy(), (took, false));
        let begun = clock::now();
        let sent = sent(&asking.all(4).await);
        assert!(sent.windows(2).all(|pair| pair[1] - pair[0] >= DELAY), "{sent:?}");
        assert!(sent[1] - begun <= latest + Duration::from_millis(20), "{:?}", sent[1] - begun);
    }
}

/// C40, C41: the leader leaves before it is sent, in the middle, or fails; the next one leads.
#[tokio::test(start_paused = true)]
async fn the_next_leads_if_the_leader_leaves() {
    let asking = Asking::new(policy(), (DELAY * 2, true));
    let first = asking.go(1);
    sleep(DELAY / 10).await;
    let others: Vec<_> = (2..6).map(|client| asking.go(client)).collect();
    sleep(DELAY / 10).await;
    first.abort();
    let mut fates = Vec::new();
    for other in others {
        fates.push(other.await.unwrap());
    }
    assert_eq!((sent(&fates).len(), asking.sent.load(Relaxed)), (1, 2), "{fates:?}");
    assert!(matches!(fates[0], Fate::SentAt(_)), "{fates:?}");
}

/// C42
#[tokio::test(start_paused = true)]
async fn an_impatient_follower_is_refused_on_time() {
    let mut asking = Asking::new(Policy { delay: DELAY * 10, ..policy() }, (DELAY * 4, true));
    let first = asking.go(1);
    sleep(DELAY / 10).await;
    asking.max_wait = Some(DELAY);
    let (hurried, begun) = (asking.go(2), clock::now());
    assert_eq!(hurried.await.unwrap(), Fate::Refused);
    assert!(clock::now() - begun <= DELAY + Duration::from_millis(20));
    asking.max_wait = Some(DELAY * 6);
    assert_eq!(asking.go(3).await.unwrap(), Fate::Shared, "there is no turn for it, but the answer comes in time");
    first.await.unwrap();
}

/// C47
#[tokio::test(start_paused = true)]
async fn followers_do_not_stop_other_urls() {
    let asking = Asking::new(policy(), (DELAY * 4, true));
    let begun = clock::now();
    let followers: Vec<_> = (0..9).map(|client| asking.go(client)).collect();
    sleep(DELAY / 10).await;
    let (other, mut rehearsal) = (Visit::new(asking.gate.client("b"), 2), Rehearsal::default());
    let ((), mut permit) = asking.gate.visit(&host(), other, now(), &mut rehearsal).await.unwrap();
    permit.sent();
    let waited = clock::now() - begun;
    assert!(waited >= DELAY && waited < DELAY + Duration::from_millis(20), "{waited:?}");
    for follower in followers {
        assert_ne!(follower.await.unwrap(), Fate::Refused);
    }
    assert_eq!(asking.sent.load(Relaxed), 1);
}

/// A host that is not paced shares answers too.
#[tokio::test(start_paused = true)]
async fn a_gate_that_paces_nothing_shares_answers() {
    let asking = Asking::new(Policy { mode: Mode::Off, ..policy() }, (DELAY, true));
    assert_eq!(sent(&asking.all(50).await).len(), 1);
}

/// C37: in report mode every request is sent.
#[tokio::test(start_paused = true)]
async fn report_mode_shares_nothing() {
    let asking = Asking::new(Policy { mode: Mode::Report, ..policy() }, (DELAY, true));
    assert_eq!(sent(&asking.all(5).await).len(), 5);
}
