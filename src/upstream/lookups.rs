//! Threads that look up names, and the queue in front of them.
//!
//! The system's resolver blocks its thread, for many seconds if a zone's servers are silent. So it has threads of its
//! own, few enough to be harmless, and divided so that dead names of one client leave room for the names of another. A
//! name is looked up once, however many requests wait for it. Password checks and other blocking work never wait here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;

use crate::politeness::HostKey;
use crate::politeness::visit::ClientId;

/// Concurrent look-ups. A crawl of 1 000 hosts looks up 17 names a second (each is kept for a minute), which at 50 ms
/// takes one thread; the rest is for names on which the system's resolver gives up only after 10 s or more.
const THREADS: usize = 64;
/// Threads reserved for names that resolved within the last hour: one in eight.
const KEPT: usize = THREADS / 8;
/// Requests that may wait for names: as many as clients may have connections by default
/// (`access.max_client_connections`).
const MOST_ASKING: usize = 4096;
/// How long a thread waits for the next name before it ends. Long enough for a crawl to reuse it.
const IDLE: Duration = Duration::from_secs(10);

/// Returns the addresses of a name, or the reason why there are none. Blocks.
pub type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

/// The result of a look-up: addresses, or the resolver's error text.
pub(super) type LookedUp = Result<Arc<[IpAddr]>, String>;

/// Receives every result, also if no request waits for it any more.
type KeepFn = dyn Fn(&HostKey, &LookedUp) + Send + Sync;

pub(super) struct Lookups {
    lookup: Arc<Lookup>,
    keep: Box<KeepFn>,
    line: Mutex<LookupLine>,
    /// Wakes idle threads.
    work: Condvar,
}

/// The error that too many requests wait for names already.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LookupsFull;

/// A request that waits for a name. Dropping it removes the name from the queue if no other request wants it.
pub(super) struct NameWait {
    lookups: Arc<Lookups>,
    host: HostKey,
    client: ClientId,
    found: watch::Receiver<Option<LookedUp>>,
}

/// The waiting names and the running look-ups. Decides which name is next, without I/O.
#[derive(Default)]
struct LookupLine {
    names: HashMap<HostKey, PendingName>,
    clients: HashMap<ClientId, ClientShare>,
    /// Clients with waiting names, in the order of their turns.
    turns: VecDeque<ClientId>,
    /// Waiting names that resolved within the last hour, oldest first: they go before all others.
    proven: BTreeMap<u64, HostKey>,
    asking: usize,
    running: usize,
    threads: usize,
    idle: usize,
    /// The last number given to a place in the queue.
    number: u64,
}

/// A name that is waiting or being looked up.
struct PendingName {
    found: watch::Sender<Option<LookedUp>>,
    /// Where the name waits: in the queues of all clients that ask for it. Empty while it is looked up, and for proven
    /// names.
    places: Vec<(ClientId, u64)>,
    proven: Option<u64>,
    /// The client whose share the look-up uses, once it runs.
    running: Option<ClientId>,
}

/// What one client has waiting and running.
#[derive(Default)]
struct ClientShare {
    asking: usize,
    running: usize,
    waiting: BTreeMap<u64, HostKey>,
}

impl Lookups {
    pub(super) fn new(lookup: Arc<Lookup>, keep: impl Fn(&HostKey, &LookedUp) + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Lookups { lookup, keep: Box::new(keep), line: Mutex::default(), work: Condvar::new() })
    }

    /// Puts the name in the queue, or joins the look-up that is under way.
    pub(super) fn ask(
        self: &Arc<Self>,
        host: &HostKey,
        client: ClientId,
        proven: bool,
    ) -> Result<NameWait, LookupsFull> {
        let mut line = self.line.lock();
        let found = line.join(host, client, proven)?;
        self.staff(&mut line);
        drop(line);
        Ok(NameWait { lookups: self.clone(), host: host.clone(), client, found })
    }

    /// Ensures that a thread takes the waiting names, if there may be one more thread.
    fn staff(self: &Arc<Self>, line: &mut LookupLine) {
        if line.turns.is_empty() && line.proven.is_empty() {
            return;
        }
        if line.idle > 0 || line.threads == THREADS {
            self.work.notify_one();
            return;
        }
        let lookups = self.clone();
        match thread::Builder::new().name("lookup".to_owned()).spawn(move || lookups.work()) {
            Ok(_) => line.threads += 1,
            Err(error) if line.threads == 0 => {
                tracing::error!(event = "dns.thread", %error, "no thread to look names up with");
                line.fail_all(&format!("no thread to look it up with: {error}"));
            }
            // The threads that run will take it.
            Err(_) => {}
        }
    }

    fn work(self: Arc<Self>) {
        let mut line = self.line.lock();
        loop {
            if let Some(host) = line.next() {
                self.staff(&mut line);
                drop(line);
                let found = self.look_up(&host);
                (self.keep)(&host, &found);
                line = self.line.lock();
                line.finish(&host, found);
                // One look-up less may leave room for several clients.
                self.work.notify_all();
                continue;
            }
            line.idle += 1;
            let is_over = self.work.wait_for(&mut line, IDLE).timed_out();
            line.idle -= 1;
            if is_over {
                line.threads -= 1;
                // A name that was added at this very moment counted this thread as idle.
                self.staff(&mut line);
                return;
            }
        }
    }

    fn look_up(&self, host: &HostKey) -> LookedUp {
        let looked_up = catch_unwind(AssertUnwindSafe(|| (self.lookup)(host.as_str())));
        match looked_up {
            Ok(Ok(mut ips)) => {
                ips.dedup();
                if ips.is_empty() { Err("no address".to_owned()) } else { Ok(ips.into()) }
            }
            Ok(Err(error)) => Err(resolver_words(&error.to_string())),
            Err(_) => Err("the resolver failed".to_owned()),
        }
    }
}

fn resolver_words(text: &str) -> String {
    text.strip_prefix("failed to lookup address information: ").unwrap_or(text).to_owned()
}

impl NameWait {
    pub(super) async fn found(&mut self) -> LookedUp {
        let found = self.found.wait_for(Option::is_some).await;
        found.ok().and_then(|found| found.clone()).unwrap_or_else(|| Err("the look-up was given up".to_owned()))
    }

    /// Whether a thread looks up the name now.
    pub(super) fn is_running(&self) -> bool {
        self.lookups.line.lock().names.get(&self.host).is_some_and(|name| name.running.is_some())
    }
}

impl Drop for NameWait {
    fn drop(&mut self) {
        self.lookups.line.lock().leave(&self.host, self.client);
    }
}

impl LookupLine {
    /// A client may have as many requests waiting as there are places left: the first client leaves half of them to
    /// others.
    fn join(
        &mut self,
        host: &HostKey,
        client: ClientId,
        proven: bool,
    ) -> Result<watch::Receiver<Option<LookedUp>>, LookupsFull> {
        let share = self.clients.entry(client).or_default();
        if share.asking >= MOST_ASKING - self.asking {
            self.forget_if_done(client);
            return Err(LookupsFull);
        }
        share.asking += 1;
        self.asking += 1;
        self.number += 1;
        let number = self.number;
        let name = self.names.entry(host.clone()).or_insert_with(|| {
            if proven {
                self.proven.insert(number, host.clone());
            }
            let (places, running) = (Vec::new(), None);
            PendingName { found: watch::channel(None).0, places, proven: proven.then_some(number), running }
        });
        let waits_here = || name.places.iter().any(|(each, _)| *each == client);
        if name.running.is_none() && name.proven.is_none() && !waits_here() {
            name.places.push((client, number));
            if share.waiting.is_empty() {
                self.turns.push_back(client);
            }
            share.waiting.insert(number, host.clone());
        }
        Ok(name.found.subscribe())
    }

    /// Returns the next name to look up. Proven names go first. The others go by turns between clients, and a client
    /// may use as many threads as are left: the first client leaves half of them to others, the second a quarter. Of a
    /// client's names the newest goes first: if there are more than can be looked up in time, the oldest are the ones
    /// that would be too late.
    fn next(&mut self) -> Option<HostKey> {
        if self.running >= THREADS {
            return None;
        }
        if let Some((_, host)) = self.proven.pop_first() {
            return self.start(host, CURTSY);
        }
        let left = (THREADS - self.running).saturating_sub(KEPT);
        for _ in 0..self.turns.len() {
            let client = self.turns.pop_front()?;
            let Some(share) = self.clients.get_mut(&client) else { continue };
            if share.running >= left {
                self.turns.push_back(client);
                continue;
            }
            let Some((_, host)) = share.waiting.pop_last() else { continue };
            if !share.waiting.is_empty() {
                self.turns.push_back(client);
            }
            return self.start(host, client);
        }
        None
    }

    fn start(&mut self, host: HostKey, client: ClientId) -> Option<HostKey> {
        let name = self.names.get_mut(&host)?;
        let places = std::mem::take(&mut name.places);
        name.proven = None;
        name.running = Some(client);
        self.running += 1;
        self.clients.entry(client).or_default().running += 1;
        self.clear(&places);
        Some(host)
    }

    fn finish(&mut self, host: &HostKey, found: LookedUp) {
        let Some(name) = self.names.remove(host) else { return };
        if let Some(client) = name.running {
            self.running -= 1;
            if let Some(share) = self.clients.get_mut(&client) {
                share.running -= 1;
            }
            self.forget_if_done(client);
        }
        name.found.send_replace(Some(found));
    }

    /// Removes a request. If it is the last one for its name, removes the name from the queue, unless it is being
    /// looked up.
    fn leave(&mut self, host: &HostKey, client: ClientId) {
        self.asking -= 1;
        if let Some(share) = self.clients.get_mut(&client) {
            share.asking -= 1;
        }
        let is_last = |name: &PendingName| name.running.is_none() && name.found.receiver_count() <= 1;
        if self.names.get(host).is_some_and(is_last)
            && let Some(name) = self.names.remove(host)
        {
            if let Some(number) = name.proven {
                self.proven.remove(&number);
            }
            self.clear(&name.places);
        }
        self.forget_if_done(client);
    }

    fn clear(&mut self, places: &[(ClientId, u64)]) {
        for (client, number) in places {
            if let Some(share) = self.clients.get_mut(client) {
                share.waiting.remove(number);
                if share.waiting.is_empty() {
                    self.turns.retain(|each| each != client);
                }
            }
            self.forget_if_done(*client);
        }
    }

    fn forget_if_done(&mut self, client: ClientId) {
        let is_done = |share: &ClientShare| share.asking == 0 && share.running == 0 && share.waiting.is_empty();
        if self.clients.get(&client).is_some_and(is_done) {
            self.clients.remove(&client);
        }
    }

    fn fail_all(&mut self, why: &str) {
        let waiting: Vec<HostKey> =
            self.names.iter().filter(|(_, name)| name.running.is_none()).map(|(host, _)| host.clone()).collect();
        for host in waiting {
            if let Some(name) = self.names.remove(&host) {
                if let Some(number) = name.proven {
                    self.proven.remove(&number);
                }
                self.clear(&name.places);
                name.found.send_replace(Some(Err(why.to_owned())));
            }
        }
    }
}

/// The client id for look-ups that belong to no client: proven names, and what curtsy itself wants to know.
pub const CURTSY: ClientId = ClientId(0);

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: ClientId = ClientId(1);
    const MALLORY: ClientId = ClientId(2);

    fn host(number: usize) -> HostKey {
        HostKey::parse(&format!("h{number}.test")).unwrap()
    }

    /// Starts every look-up that may run.
    fn run(line: &mut LookupLine) -> Vec<HostKey> {
        std::iter::from_fn(|| line.next()).collect()
    }

    #[test]
    fn each_client_leaves_half_of_what_is_left() {
        let mut line = LookupLine::default();
        let mut waiting = Vec::new();
        for (client, expected) in [(1, 28), (2, 14), (3, 7), (4, 4), (5, 2), (6, 1), (7, 0)] {
            let names = client * 100..client * 100 + 60;
            waiting.extend(names.map(|number| line.join(&host(number), ClientId(client as u64), false).unwrap()));
            assert_eq!(run(&mut line).len(), expected, "client {client}");
        }
        assert_eq!(line.running, THREADS - KEPT);
        waiting.push(line.join(&host(0), ALICE, true).unwrap());
        assert_eq!(run(&mut line), [host(0)], "a name that resolved before finds a thread");
    }

    #[test]
    fn the_newest_name_of_a_client_goes_first_and_clients_take_turns() {
        let mut line = LookupLine::default();
        let wanted = [(1, MALLORY), (2, MALLORY), (3, MALLORY), (4, ALICE), (5, ALICE)];
        let _waiting: Vec<_> =
            wanted.iter().map(|(number, client)| line.join(&host(*number), *client, false).unwrap()).collect();
        assert_eq!(run(&mut line), [3, 5, 2, 4, 1].map(host));
    }

    #[test]
    fn what_is_not_wanted_any_more_leaves_nothing_behind() {
        let mut line = LookupLine::default();
        let one = line.join(&host(1), MALLORY, false).unwrap();
        let other = line.join(&host(1), ALICE, false).unwrap();
        line.leave(&host(1), MALLORY);
        drop(one);
        assert_eq!(run(&mut line), [host(1)], "another client still wants it");
        line.leave(&host(1), ALICE);
        drop(other);
        line.finish(&host(1), Err("no".to_owned()));
        let again = line.join(&host(1), ALICE, true).unwrap();
        line.leave(&host(1), ALICE);
        drop(again);
        assert!(line.names.is_empty() && line.clients.is_empty() && line.turns.is_empty() && line.proven.is_empty());
        assert_eq!((line.asking, line.running), (0, 0));
    }

    #[test]
    fn so_many_may_wait_and_no_client_takes_all_places() {
        let mut line = LookupLine::default();
        let waiting: Vec<_> = (0..MOST_ASKING).map_while(|n| line.join(&host(n), MALLORY, false).ok()).collect();
        assert_eq!(waiting.len(), MOST_ASKING / 2);
        assert!(line.join(&host(0), ALICE, false).is_ok(), "a place for another client");
    }
}
