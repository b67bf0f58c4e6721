//! What each client has asked for: the newest [`MOST`] clients, with counters that people read.
//!
//! A client is a proxy user, a name at an address, or an address. Memory is bounded: when there are too many clients,
//! those that have not asked for the longest time are forgotten together with their counters. A request locks the table
//! once, when it ends; the first one of a connection and one that waits lock it once more.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use fnv::{FnvBuildHasher, FnvHashMap};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::tally::TallyWaits;
use super::{RequestKind, RequestOutcome};
use crate::clock;
use crate::politeness::HostKey;
use crate::politeness::jobs::short;
use crate::politeness::visit::ClientId;

/// More clients than a person reads about; at most about 7 MB.
const MOST: usize = 1_000;
/// How many are forgotten at once, so that making room is rare although it looks at all of them.
const FORGOTTEN_AT_ONCE: usize = MOST / 8;
/// The hosts that are counted one by one for each client. The least busy one makes room for a new one.
const MOST_HOSTS: usize = 64;
/// The User-Agent values that are recognised for each client: programs that share an address.
const MOST_AGENTS: usize = 8;
/// Bytes of a User-Agent that are compared.
const LONGEST_AGENT: usize = 200;

#[derive(Debug, Default)]
pub struct ClientTable(Mutex<FnvHashMap<ClientId, ClientRow>>);

/// The client of a connection, as one of its requests shows it.
#[derive(Clone, Copy, Debug)]
pub struct ClientIdentity<'a> {
    pub id: ClientId,
    /// A proxy user, or what the client calls itself.
    pub name: Option<&'a str>,
    /// Whether the name was proved by a password. If not, the same name at another address is another client.
    pub logs_in: bool,
    pub address: IpAddr,
    pub agent: &'a [u8],
}

/// How a request of a client ended.
#[derive(Clone, Copy, Debug)]
pub struct ClientEnding<'a> {
    pub host: Option<&'a HostKey>,
    pub kind: RequestKind,
    pub outcome: RequestOutcome,
    /// A Curtsy-Error code, if curtsy answered.
    pub code: Option<&'static str>,
    /// Bytes of the response that were handed on.
    pub bytes: u64,
    pub now: Instant,
}

/// What is known about a client.
#[derive(Clone, Debug)]
pub struct ClientRow {
    pub name: Option<Box<str>>,
    pub logs_in: bool,
    /// The address of its last request.
    pub address: IpAddr,
    /// The programs that it uses, by their User-Agent, in the order they were met.
    agents: Vec<(Box<[u8]>, String)>,
    /// Requests that are over, tunnels included.
    pub requests: u64,
    pub tunnels: u64,
    /// How long requests were held, those inside tunnels included.
    pub waits: TallyWaits,
    /// Requests that curtsy refused, by code.
    pub refusals: Vec<(&'static str, u64)>,
    /// Requests that their origin did not answer, or not completely.
    pub failed: u64,
    /// Requests that the client did not wait for.
    pub gave_up: u64,
    pub bytes: u64,
    pub seen: Instant,
    hosts: HostCounter,
}

impl ClientTable {
    /// Notes a client that sends requests. `program` names the program with this User-Agent.
    pub fn meet(&self, who: &ClientIdentity<'_>, program: impl FnOnce(&[u8]) -> String) {
        let mut rows = self.0.lock();
        if rows.len() >= MOST && !rows.contains_key(&who.id) {
            forget_some(&mut rows);
        }
        let row = rows.entry(who.id).or_insert_with(|| ClientRow::new(who));
        row.address = who.address;
        row.uses(who.agent, program);
    }

    /// Notes how long a request of this client was held.
    pub fn waited(&self, id: ClientId, wait: Duration) {
        if let Some(row) = self.0.lock().get_mut(&id) {
            row.waits.add(wait);
        }
    }

    /// Counts a request. Returns false if the client has been forgotten, so that it must be met again.
    pub fn ended(&self, id: ClientId, ending: &ClientEnding<'_>) -> bool {
        let mut rows = self.0.lock();
        let row = rows.get_mut(&id);
        let is_known = row.is_some();
        row.into_iter().for_each(|row| row.ended(ending));
        is_known
    }

    /// Returns all clients, in no order.
    pub fn rows(&self) -> Vec<(ClientId, ClientRow)> {
        let mut rows: Vec<(ClientId, ClientRow)> = self.0.lock().iter().map(|(id, row)| (*id, row.clone())).collect();
        rows.iter_mut().for_each(|(_, row)| row.hosts.settle());
        rows
    }
}

/// Forgets the clients that have not asked for the longest time.
fn forget_some(rows: &mut FnvHashMap<ClientId, ClientRow>) {
    let mut seen: Vec<Instant> = rows.values().map(|row| row.seen).collect();
    let (_, last, _) = seen.select_nth_unstable(FORGOTTEN_AT_ONCE.min(rows.len() - 1));
    let last = *last;
    rows.retain(|_, row| row.seen > last);
}

impl ClientRow {
    fn new(who: &ClientIdentity<'_>) -> Self {
        ClientRow {
            name: who.name.map(|name| short(name).into()),
            logs_in: who.logs_in,
            address: who.address,
            agents: Vec::new(),
            requests: 0,
            tunnels: 0,
            waits: TallyWaits::default(),
            refusals: Vec::new(),
            failed: 0,
            gave_up: 0,
            bytes: 0,
            seen: clock::now(),
            hosts: HostCounter::default(),
        }
    }

    fn uses(&mut self, agent: &[u8], program: impl FnOnce(&[u8]) -> String) {
        let agent = &agent[..agent.len().min(LONGEST_AGENT)];
        if agent.is_empty()
            || self.agents.iter().any(|(known, _)| **known == *agent)
            || self.agents.len() >= MOST_AGENTS
        {
            return;
        }
        self.agents.push((agent.into(), program(agent)));
    }

    fn ended(&mut self, ending: &ClientEnding<'_>) {
        self.requests += 1;
        self.tunnels += u64::from(ending.kind == RequestKind::Tunnel);
        self.bytes += ending.bytes;
        self.seen = ending.now;
        if let Some(host) = ending.host {
            self.hosts.count(host);
        }
        match ending.outcome {
            RequestOutcome::Forwarded | RequestOutcome::Cached => {}
            RequestOutcome::Denied | RequestOutcome::Rejected => {
                ending.code.into_iter().for_each(|code| self.refused(code));
            }
            RequestOutcome::Abandoned => self.gave_up += 1,
            RequestOutcome::Failed | RequestOutcome::Truncated => self.failed += 1,
        }
    }

    fn refused(&mut self, code: &'static str) {
        match self.refusals.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => self.refusals.push((code, 1)),
        }
    }

    /// Returns the programs, each once.
    pub fn programs(&self) -> Vec<&str> {
        let mut programs: Vec<&str> = Vec::new();
        for (_, program) in &self.agents {
            if !programs.contains(&program.as_str()) {
                programs.push(program);
            }
        }
        programs
    }

    /// Returns about how many hosts the client has asked for: exact up to [`MOST_HOSTS`], then within a few percent.
    pub fn hosts(&self) -> u64 {
        self.hosts.distinct()
    }

    /// Returns the hosts that it asks for most, and how often, busiest first.
    pub fn busiest(&self, most: usize) -> Vec<(&HostKey, u64)> {
        let mut hosts: Vec<(&HostKey, u64)> = self.hosts.counts.iter().map(|(host, count)| (host, *count)).collect();
        hosts.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.as_str().cmp(b.0.as_str())));
        hosts.truncate(most);
        hosts
    }
}

/// The hosts of one client, in bounded memory.
#[derive(Clone, Debug, Default)]
struct HostCounter {
    /// The host of the last requests, and how many of them are not in `counts` yet. Most clients ask for the same host
    /// many times in a row, which costs them no look-up.
    last: Option<(HostKey, u64)>,
    /// If it is full, a new host takes the place and the count of the least busy one. So the count of a busy host is
    /// never too low ("space saving", Metwally, Agrawal and El Abbadi, 2005).
    counts: HashMap<HostKey, u64, FnvBuildHasher>,
    /// A bit for each hash value that was met. Only if there are more hosts than `counts` has room for.
    met: Option<Box<[u64; WORDS]>>,
}

/// 4 096 bits: the estimate is within about 3 % up to 10 000 hosts.
const WORDS: usize = 64;
const BITS: usize = WORDS * 64;

impl HostCounter {
    fn count(&mut self, host: &HostKey) {
        match &mut self.last {
            Some((last, more)) if last == host => *more += 1,
            last => {
                let before = last.replace((host.clone(), 1));
                before.into_iter().for_each(|(host, more)| self.add(&host, more));
            }
        }
    }

    /// Brings `counts` up to date.
    fn settle(&mut self) {
        self.last.take().into_iter().for_each(|(host, more)| self.add(&host, more));
    }

    fn add(&mut self, host: &HostKey, more: u64) {
        if let Some(met) = &mut self.met {
            mark(met, host);
        }
        if let Some(count) = self.counts.get_mut(host) {
            *count += more;
            return;
        }
        let mut count = 0;
        if self.counts.len() >= MOST_HOSTS {
            let counts = &self.counts;
            let met = self.met.get_or_insert_with(|| {
                let mut met = Box::new([0; WORDS]);
                counts.keys().for_each(|known| mark(&mut met, known));
                met
            });
            mark(met, host);
            let least = self.counts.iter().min_by_key(|(_, count)| **count).map(|(host, count)| (host.clone(), *count));
            if let Some((host, least)) = least {
                self.counts.remove(&host);
                count = least;
            }
        }
        self.counts.insert(host.clone(), count + more);
    }

    /// Estimates the number of hosts by the share of bits that are still zero ("linear counting", Whang, Vander-Zanden
    /// and Taylor, 1990).
    fn distinct(&self) -> u64 {
        let known = self.counts.len() as u64;
        let Some(met) = &self.met else { return known };
        let zeros = met.iter().map(|word| word.count_zeros()).sum::<u32>().max(1);
        let bits = BITS as f64;
        known.max((bits * (bits / f64::from(zeros)).ln()).round() as u64)
    }
}

fn mark(met: &mut [u64; WORDS], host: &HostKey) {
    use std::hash::BuildHasher;
    // The high half: the low bits of this hash are not well mixed.
    let hash = (FnvBuildHasher::default().hash_one(host) >> 32) as usize % BITS;
    met[hash / 64] |= 1 << (hash % 64);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::time::advance;

    use super::*;

    fn who(number: u64, agent: &str) -> ClientIdentity<'_> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        ClientIdentity { id: ClientId(number), name: Some("spider"), logs_in: false, address, agent: agent.as_bytes() }
    }

    fn host(number: usize) -> HostKey {
        HostKey::parse(&format!("h{number}.test")).unwrap()
    }

    fn ending(outcome: RequestOutcome, code: Option<&'static str>) -> ClientEnding<'static> {
        ClientEnding { host: None, kind: RequestKind::Http, outcome, code, bytes: 10, now: clock::now() }
    }

    fn ask(table: &ClientTable, host: &HostKey) {
        table.ended(ClientId(1), &ClientEnding { host: Some(host), ..ending(RequestOutcome::Forwarded, None) });
    }

    fn text(agent: &[u8]) -> String {
        String::from_utf8_lossy(agent).into_owned()
    }

    fn only(table: &ClientTable) -> ClientRow {
        table.rows().remove(0).1
    }

    #[tokio::test]
    async fn each_request_counts_under_one_heading() {
        let table = ClientTable::default();
        let me = who(1, "curl/8");
        assert!(!table.ended(me.id, &ending(RequestOutcome::Forwarded, None)), "it is not known yet");
        table.meet(&me, text);
        table.meet(&who(1, "Wget/1"), |_| "curl/8".to_owned());
        [1, 1, 2, 1, 1, 1].into_iter().for_each(|number| ask(&table, &host(number)));
        table.waited(me.id, Duration::from_secs(3));
        table.waited(me.id, Duration::from_secs(1));
        table.waited(ClientId(9), Duration::from_secs(9));
        for code in ["robots-denied", "queue-full", "robots-denied"] {
            table.ended(me.id, &ending(RequestOutcome::Denied, Some(code)));
        }
        table.ended(me.id, &ending(RequestOutcome::Failed, Some("origin-unreachable")));
        table.ended(me.id, &ending(RequestOutcome::Abandoned, None));
        table.ended(me.id, &ClientEnding { kind: RequestKind::Tunnel, ..ending(RequestOutcome::Forwarded, None) });
        let row = only(&table);
        assert_eq!((row.requests, row.tunnels, row.failed, row.gave_up, row.bytes), (12, 1, 1, 1, 120));
        assert_eq!(row.refusals, [("robots-denied", 2), ("queue-full", 1)]);
        assert_eq!((row.waits.count, row.waits.total.as_secs(), row.waits.longest.as_secs()), (2, 4, 3));
        assert_eq!((row.hosts(), row.busiest(1)), (2, vec![(&host(1), 5)]));
        assert_eq!(row.programs(), ["curl/8"], "each program once");
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_stopped_asking_are_forgotten_first() {
        let table = ClientTable::default();
        for number in 0..MOST as u64 {
            table.meet(&who(number, ""), text);
            advance(Duration::from_millis(1)).await;
        }
        table.ended(ClientId(0), &ending(RequestOutcome::Forwarded, None));
        for number in 0..10_000 {
            table.meet(&who(1_000_000 + number, ""), text);
            advance(Duration::from_millis(1)).await;
            table.ended(ClientId(0), &ending(RequestOutcome::Forwarded, None));
            assert!(table.0.lock().len() <= MOST);
        }
        let rows = table.rows();
        assert!(rows.len() >= MOST - FORGOTTEN_AT_ONCE - 1, "{}", rows.len());
        let has = |id| rows.iter().any(|(known, _)| *known == ClientId(id));
        assert!(has(0) && has(1_009_999) && !has(1));
    }

    #[tokio::test]
    async fn hosts_and_programs_are_bounded_and_the_busy_ones_stay() {
        let table = ClientTable::default();
        for number in 0..10_000 {
            let agent = format!("bot-{number}");
            table.meet(&who(1, &agent), text);
            ask(&table, &host(number));
            ask(&table, &host(20_000));
        }
        let row = only(&table);
        assert_eq!((row.hosts.counts.len(), row.programs().len()), (MOST_HOSTS, MOST_AGENTS));
        assert_eq!(row.busiest(1), [(&host(20_000), 10_000)]);
        assert!((9_500..10_500).contains(&row.hosts()), "{}", row.hosts());
    }

    #[tokio::test]
    async fn a_few_hosts_are_counted_exactly() {
        let table = ClientTable::default();
        table.meet(&who(1, ""), text);
        for number in 0..3 * MOST_HOSTS {
            ask(&table, &host(number % MOST_HOSTS));
        }
        assert_eq!(only(&table).hosts(), MOST_HOSTS as u64);
    }
}
