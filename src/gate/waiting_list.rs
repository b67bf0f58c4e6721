//! Waiting visits of all hosts, in order of arrival. The API lists them, and a lane that does not move shows up here.
//!
//! Only visits that have to wait are entered, so a free host costs nothing.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::shared_lane::SharedLane;
use super::{Gate, now};
use crate::politeness::HostKey;
use crate::politeness::time::Timestamp;
use crate::politeness::visit::{ClientId, Visit};

/// Waiting visits, keyed by a growing number.
#[derive(Debug, Default)]
pub(super) struct WaitingList(Mutex<Waiters>);

#[derive(Debug, Default)]
struct Waiters {
    next: u64,
    waiting: BTreeMap<u64, Waiter>,
    clients: WaitingClients,
}

/// Number of waiting visits per client.
#[derive(Debug, Default)]
struct WaitingClients {
    /// Keyed by address. Contains only clients with waiting visits, so it has no more entries than there are waiting
    /// visits.
    visits: HashMap<ClientId, usize>,
    /// `clients[n]` is the number of clients with `n` waiting visits. Gives the largest `n` in one step.
    clients: Vec<usize>,
    most: usize,
}

/// The client of a visit.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitClient {
    pub(super) id: ClientId,
    /// Its address alone.
    peer: ClientId,
}

impl VisitClient {
    pub(super) fn of(visit: &Visit) -> Self {
        VisitClient { id: visit.client, peer: visit.peer }
    }
}

#[derive(Debug)]
struct Waiter {
    lane: Arc<SharedLane>,
    client: VisitClient,
    since: Timestamp,
    expected: Timestamp,
    label: Option<Box<Label>>,
    /// Whether it waits for robots.txt and not for a turn.
    for_robots: bool,
    /// Whether it was reported as waiting.
    told: bool,
}

/// What the API and the log show of a visit. Contains no secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    pub client: String,
    pub method: String,
    pub url: String,
    /// The client's User-Agent, or empty.
    pub agent: String,
}

/// A visit that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub host: HostKey,
    pub label: Option<Label>,
    pub since: Timestamp,
    /// Expected start: as predicted when the visit joined, or later if its host has become slower since.
    pub expected: Timestamp,
}

/// Number of visits that wait at one host, and the arrival time of the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    pub host: HostKey,
    pub waiting: usize,
    pub since: Timestamp,
}

impl WaitingList {
    pub(super) fn enter(
        &self,
        lane: &Arc<SharedLane>,
        client: VisitClient,
        since: Timestamp,
        expected: Timestamp,
    ) -> u64 {
        let (lane, label, for_robots, told) = (lane.clone(), None, false, false);
        let waiter = Waiter { lane, client, since, expected, label, for_robots, told };
        let mut waiters = self.0.lock();
        waiters.clients.enter(client.peer);
        let number = waiters.next;
        waiters.next += 1;
        waiters.waiting.insert(number, waiter);
        number
    }

    pub(super) fn label(&self, number: u64, label: Label) {
        if let Some(waiter) = self.0.lock().waiting.get_mut(&number) {
            waiter.label = Some(Box::new(label));
        }
    }

    /// Marks a visit that waits for robots.txt.
    pub(super) fn waits_for_robots(&self, number: u64) {
        if let Some(waiter) = self.0.lock().waiting.get_mut(&number) {
            waiter.for_robots = true;
        }
    }

    pub(super) fn label_of(&self, number: u64) -> Option<Label> {
        self.0.lock().waiting.get(&number)?.label.as_deref().cloned()
    }

    /// Counts the visits in this lane that arrived before `number`.
    pub(super) fn ahead_of(&self, number: u64, lane: &SharedLane) -> usize {
        let waiters = self.0.lock();
        waiters.waiting.range(..number).filter(|(_, waiter)| std::ptr::eq(&*waiter.lane, lane)).count()
    }

    pub(super) fn leave(&self, number: u64) {
        let mut waiters = self.0.lock();
        let gone = waiters.waiting.remove(&number);
        if let Some(waiter) = &gone {
            waiters.clients.leave(waiter.client.peer);
        }
        drop(waiters);
    }

    /// Whether this client has several visits waiting and no other client has more.
    pub(super) fn has_the_most(&self, peer: ClientId) -> bool {
        let waiters = self.0.lock();
        let visits = waiters.clients.visits.get(&peer).copied().unwrap_or_default();
        visits > 1 && visits >= waiters.clients.most
    }
}

/// A visit that has begun to wait, and was not reported yet.
pub(super) struct NewWait {
    pub(super) waiting: Waiting,
    pub(super) lane: Arc<SharedLane>,
    /// Its position in the queue of its host, in order of arrival, starting at 1.
    pub(super) position: u32,
    pub(super) for_robots: bool,
    /// How many visits of the same client to the same host have begun to wait, besides this one.
    pub(super) more: u32,
}

impl WaitingList {
    /// Returns visits that began to wait before `since` and were not returned before: for each client and host the
    /// first. Returns at most `most`; a later call returns the others.
    pub(super) fn new_waits(&self, since: Timestamp, most: usize) -> Vec<NewWait> {
        let mut waiters = self.0.lock();
        let mut before: HashMap<*const SharedLane, u32> = HashMap::new();
        let mut found: HashMap<(*const SharedLane, ClientId), usize> = HashMap::new();
        let mut waits: Vec<NewWait> = Vec::new();
        for waiter in waiters.waiting.values_mut() {
            let position = before.entry(Arc::as_ptr(&waiter.lane)).or_default();
            *position += 1;
            if waiter.told || waiter.since > since || waiter.label.is_none() {
                continue;
            }
            match found.entry((Arc::as_ptr(&waiter.lane), waiter.client.id)) {
                Entry::Occupied(first) => waits[*first.get()].more += 1,
                Entry::Vacant(_) if waits.len() >= most => continue,
                Entry::Vacant(place) => {
                    place.insert(waits.len());
                    let (lane, for_robots) = (waiter.lane.clone(), waiter.for_robots);
                    waits.push(NewWait {
                        waiting: Waiting::new(waiter),
                        lane,
                        position: *position,
                        for_robots,
                        more: 0,
                    });
                }
            }
            waiter.told = true;
        }
        waits
    }
}

impl WaitingClients {
    fn enter(&mut self, peer: ClientId) {
        let visits = self.visits.entry(peer).or_default();
        *visits += 1;
        let visits = *visits;
        if self.clients.len() <= visits {
            self.clients.resize(visits + 1, 0);
        }
        self.clients[visits - 1] = self.clients[visits - 1].saturating_sub(1);
        self.clients[visits] += 1;
        self.most = self.most.max(visits);
    }

    fn leave(&mut self, peer: ClientId) {
        let Some(visits) = self.visits.get_mut(&peer) else { return };
        let before = *visits;
        *visits -= 1;
        if *visits == 0 {
            self.visits.remove(&peer);
        }
        self.clients[before] -= 1;
        self.clients[before - 1] += 1;
        if before == self.most && self.clients[before] == 0 {
            self.most = before - 1;
        }
        if self.visits.is_empty() {
            *self = WaitingClients::default();
        }
    }
}

impl Gate {
    /// Returns one page of the visits that wait at `host`, or at all hosts, longest wait first, and their total number.
    pub fn queue(&self, host: Option<&HostKey>, offset: usize, limit: usize) -> (usize, Vec<Waiting>) {
        let waiters = self.line.0.lock();
        let wanted = |waiter: &&Waiter| host.is_none_or(|host| waiter.lane.host() == host);
        let total = match host {
            None => waiters.waiting.len(),
            Some(_) => waiters.waiting.values().filter(wanted).count(),
        };
        let mut before: HashMap<*const SharedLane, u32> = HashMap::new();
        let mut page = Vec::new();
        for (index, waiter) in waiters.waiting.values().filter(wanted).take(offset.saturating_add(limit)).enumerate() {
            let ahead = before.entry(Arc::as_ptr(&waiter.lane)).or_default();
            if index >= offset {
                page.push((*ahead, Waiting::new(waiter), waiter.lane.clone()));
            }
            *ahead += 1;
        }
        drop(waiters);
        let now = now();
        (total, page.into_iter().map(|(ahead, waiting, lane)| waiting.settled(ahead, &lane, now)).collect())
    }

    /// Returns the hosts with waiting visits.
    pub fn backlogs(&self) -> Vec<Backlog> {
        let mut hosts: HashMap<HostKey, Backlog> = HashMap::new();
        for waiter in self.line.0.lock().waiting.values() {
            let host = waiter.lane.host();
            match hosts.get_mut(host) {
                Some(backlog) => backlog.waiting += 1,
                None => {
                    let backlog = Backlog { host: host.clone(), waiting: 1, since: waiter.since };
                    hosts.insert(host.clone(), backlog);
                }
            }
        }
        hosts.into_values().collect()
    }

    /// Returns how many visits of each client wait.
    pub fn waiting_by_client(&self) -> HashMap<ClientId, usize> {
        let mut clients = HashMap::new();
        for waiter in self.line.0.lock().waiting.values() {
            *clients.entry(waiter.client.id).or_default() += 1;
        }
        clients
    }

    /// Returns how late the most overdue lane is: the task that keeps that lane's timer does not run. Zero if no lane
    /// is late.
    pub fn overdue(&self) -> Duration {
        let lanes: Vec<Arc<SharedLane>> = {
            let waiters = self.line.0.lock();
            waiters.waiting.values().map(|waiter| waiter.lane.clone()).collect()
        };
        let now = now();
        let late =
            |lane: &Arc<SharedLane>| lane.look(|state| state.alarm_at()).map_or(Duration::ZERO, |at| now.since(at));
        lanes.iter().map(late).max().unwrap_or_default()
    }
}

impl Waiting {
    fn new(waiter: &Waiter) -> Self {
        Waiting {
            host: waiter.lane.host().clone(),
            label: waiter.label.as_deref().cloned(),
            since: waiter.since,
            expected: waiter.expected,
        }
    }

    /// Estimates the start anew: about one delay per earlier visit, counted from the lane's next turn.
    pub(super) fn settled(self, ahead: u32, lane: &SharedLane, now: Timestamp) -> Self {
        let (next, delay) = lane.look(|state| (state.lane.view(now).next_start, state.lane.delays().effective()));
        let then = if next == Timestamp::NEVER { next } else { next + delay.saturating_mul(ahead) };
        Waiting { expected: self.expected.max(then), ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;
    use crate::gate::visit::{Position, Rehearsal};
    use crate::gate::{Bounds, HostPersistence};
    use crate::politeness::policy::{Policy, PolicyBook};
    use crate::store::{Retention, Store};

    const DELAY: Duration = Duration::from_secs(5);

    fn gate() -> Arc<Gate> {
        let book = PolicyBook::from(Policy { delay: DELAY, ..Policy::default() });
        let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
        Arc::new(Gate::new(book, Bounds { most: 9, idle: DELAY }, 99, memories, Arc::default()))
    }

    fn visit(gate: &Gate) -> Visit {
        Visit::new(gate.client("a"), 1)
    }

    fn host(name: &str) -> HostKey {
        HostKey::parse(name).unwrap()
    }

    /// Above half of the bound, the client with the most waiting visits is refused, and no other.
    #[test]
    fn the_client_with_the_most_waiting_is_known() {
        let mut clients = WaitingClients::default();
        let [many, few, one] = [1, 2, 3].map(ClientId);
        [many, many, many, few, few, one].into_iter().for_each(|peer| clients.enter(peer));
        assert_eq!((clients.most, clients.visits.len()), (3, 3));
        clients.leave(many);
        assert_eq!(clients.most, 2);
        clients.leave(many);
        assert_eq!(clients.most, 2, "another one has two");
        [few, few, one].into_iter().for_each(|peer| clients.leave(peer));
        assert_eq!((clients.most, clients.visits.len()), (1, 1));
        clients.leave(many);
        assert_eq!((clients.most, clients.clients.len()), (0, 0), "an empty line keeps no memory");
    }

    /// X35: one client's backlog leaves half of the bound on all lines to other clients.
    #[tokio::test(start_paused = true)]
    async fn a_backlog_of_one_client_shuts_no_other_out() {
        let book = PolicyBook::from(Policy { delay: DELAY, ..Policy::default() });
        let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
        let gate = Arc::new(Gate::new(book, Bounds { most: 9, idle: DELAY }, 10, memories, Arc::default()));
        let (busy, other) = (host("busy.test"), host("other.test"));
        for at in [&busy, &other] {
            gate.join(at, visit(&gate)).unwrap().permit().await.unwrap().sent();
        }
        let mallory = |url| Visit::new(gate.client("mallory"), url);
        let named = |url| Visit { client: gate.client(format!("name {url}")), ..mallory(url) };
        let waiting: Vec<_> = (0..20).map_while(|url| gate.join(&busy, named(url)).ok()).collect();
        assert_eq!(waiting.len(), 5, "half of it, whatever its visits are called");
        let alice: Vec<_> =
            (0..3).map(|url| gate.join(&other, Visit::new(gate.client("alice"), url)).unwrap()).collect();
        assert!(gate.join(&other, mallory(99)).is_err(), "not at another host either");
        drop(waiting);
        assert!(gate.join(&busy, mallory(1)).is_ok());
        drop(alice);
        assert_eq!(gate.queued(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_visit_is_listed_until_it_leaves() {
        let gate = gate();
        let at = host("a.test");
        gate.join(&at, visit(&gate)).unwrap().permit().await.unwrap().sent();
        let label = Some(Label { url: "http://a.test/".to_owned(), ..Label::default() });
        let mut labelled = Rehearsal { label, ..Rehearsal::default() };
        let mut second = Box::pin(gate.visit(&at, visit(&gate), now(), &mut labelled));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let third = gate.join(&at, visit(&gate)).unwrap();
        let (total, waiting) = gate.queue(None, 0, 1);
        assert_eq!((total, waiting.len()), (2, 1));
        assert_eq!(waiting[0].label.as_ref().map(|label| label.url.as_str()), Some("http://a.test/"));
        assert!(waiting[0].expected.since(now()) <= DELAY && waiting[0].expected > now());
        assert_eq!(gate.queue(Some(&host("b.test")), 0, 9), (0, vec![]));
        assert_eq!(gate.backlogs()[0].waiting, 2);
        drop((second, third));
        assert_eq!((gate.queue(None, 0, 9), gate.backlogs()), ((0, vec![]), vec![]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_is_reported_once_and_with_others_of_its_client() {
        let gate = gate();
        let at = host("a.test");
        gate.join(&at, visit(&gate)).unwrap().permit().await.unwrap().sent();
        let places = ["alice", "alice", "bob", "alice"].map(|name| {
            let place = gate.join(&at, Visit::new(gate.client(name), 1)).unwrap();
            let Position::Queued(queued) = place.0 else { panic!("it waits") };
            queued.known_as(Some(Label { client: name.to_owned(), ..Label::default() }), None)
        });
        let told = |most: usize| -> Vec<(String, u32, u32)> {
            let waits = gate.line.new_waits(now() - Duration::from_secs(1), most).into_iter();
            waits.map(|wait| (wait.waiting.label.unwrap().client, wait.position, wait.more)).collect()
        };
        assert_eq!(told(9), [], "they have just come");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(told(1), [("alice".to_owned(), 1, 2)]);
        assert_eq!(told(1), [("bob".to_owned(), 3, 0)]);
        assert_eq!(told(9), []);
        drop(places);
    }

    /// X58: the visit that keeps the timer is not polled, as if its worker hung.
    #[tokio::test(start_paused = true)]
    async fn a_lane_that_does_not_move_is_noticed() {
        let gate = gate();
        let at = host("a.test");
        gate.join(&at, visit(&gate)).unwrap().permit().await.unwrap().sent();
        let stuck = gate.join(&at, visit(&gate)).unwrap();
        tokio::time::advance(DELAY - Duration::from_secs(2)).await;
        assert_eq!(gate.overdue(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(21)).await;
        assert!(gate.overdue() >= Duration::from_secs(19), "{:?}", gate.overdue());
        drop(stuck.permit().await.unwrap());
        assert_eq!(gate.overdue(), Duration::ZERO);
    }
}
