//! The fleet's ledger: turns and lessons that several curtsys share through Redis.
//!
//! [`Ledger::Local`] is a curtsy without a fleet: its lanes decide alone, and nothing here is called. In a fleet the
//! gate claims every start here, in the one place where a turn is taken. `politeness::fleet` decides; this module asks
//! Redis and obeys. `words` are the scripts' arguments and answers, `shard` is how this node stands to one server,
//! `record` writes what a host taught, `notices` are what all nodes hear of at once, `keeper` is the thread that keeps
//! connections and heartbeats.

mod errand;
mod keeper;
pub mod link;
mod notices;
pub mod record;
pub mod rights;
mod shard;
mod stays;
pub mod view;
pub mod words;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio_rustls::TlsConnector;

use self::errand::Errand;
use self::link::{LedgerError, Link};
use self::notices::NoticeCallback;
use self::shard::ShardState;
use self::stays::Stays;
use self::view::FiguresSource;
use crate::clock;
use crate::config::Fleet;
use crate::metrics::{FleetFigures, Metrics};
use crate::politeness::fleet::calls::{Claim, HostNews, Settlement, Steered, Told, UnusedTurn};
use crate::politeness::fleet::node::{Plan, Verdict, Window, Wish};
use crate::politeness::fleet::slots::Slots;
use crate::politeness::fleet::standing::StandingState;

pub use self::keeper::FleetThread;
pub use self::notices::FleetNotice;

/// Nodes that are assumed if no other number is known.
const ASSUMED_NODES: u32 = 8;
/// A claim is repeated so often at once if its answers grant nothing. Then it waits a moment.
const MOST_TRIES: usize = 4;

/// Where turns are kept.
#[derive(Clone, Debug, Default)]
pub enum Ledger {
    /// In the lanes of this process alone.
    #[default]
    Local,
    /// In Redis, shared with other nodes.
    Fleet(Arc<FleetLedger>),
}

/// The ledger of a fleet, as one node sees it.
#[derive(Debug)]
pub struct FleetLedger {
    link: Link,
    /// Begins every key.
    name: String,
    /// Names this node.
    id: String,
    /// How long an answer may take, in microseconds.
    timeout: u64,
    assumed: Slots,
    shards: Mutex<HashMap<usize, Arc<ShardState>>>,
    /// How many servers this node is alone at.
    alone_at: AtomicUsize,
    errands: OnceLock<UnboundedSender<Errand>>,
    stays: Mutex<Stays>,
    /// What this node tells people about itself.
    about: OnceLock<FiguresSource>,
    hear: OnceLock<NoticeCallback>,
    counts: FleetCounts,
}

/// What a node has done, for metrics.
#[derive(Debug, Default)]
pub struct FleetCounts {
    pub claims: AtomicU64,
    pub refused: AtomicU64,
    pub alone: AtomicU64,
    pub late: AtomicU64,
}

/// What became of a claim.
#[derive(Debug)]
pub enum Claimed {
    Go(Granted),
    Wait {
        until: u64,
        others: u32,
        number: u64,
        /// The successes in a row of all nodes; 0 if the claim added none.
        successes: u64,
    },
    /// The node must first learn this about the host.
    News(HostNews),
}

/// A start that was granted.
#[derive(Clone, Copy, Debug)]
pub struct Granted {
    pub window: Window,
    /// For handing the turn back. `None` if the node is alone.
    pub turn: Option<UnusedTurn>,
    /// The node's next number and when to ask with it.
    pub next: Option<(u64, u64)>,
    pub others: u32,
    /// The successes in a row of all nodes; 0 if the claim added none.
    pub successes: u64,
    /// The request is counted among those in flight, by the end of its window.
    pub counted: bool,
    /// Starts may come in bursts. Then a turn that is not used is lost, because Redis cannot tell how many tokens there
    /// would be.
    pub is_burst: bool,
    /// How long the start takes a place without being counted, in microseconds; 0 = places are not limited.
    pub place_for: u64,
    pub keep_ms: u64,
}

/// How a node stands, for people.
#[derive(Clone, Debug)]
pub struct FleetHealth {
    pub state: StandingState,
    /// How long it has been in this state.
    pub since: Duration,
    pub nodes: u32,
    pub missing: usize,
    /// How long most answers of the server take at most.
    pub trip_us: u64,
    pub trouble: Option<String>,
}

impl FleetLedger {
    /// Creates the ledger; `None` without a fleet. Nothing is asked before [`FleetThread::start`].
    pub fn new(fleet: &Fleet, tls: TlsConnector, metrics: Arc<Metrics>) -> Option<Self> {
        let link = Link::new(&fleet.redis, tls, fleet.timeout)?.counted_in(metrics);
        let random = RandomState::new().hash_one(clock::micros());
        let nodes = if fleet.nodes > 0 { fleet.nodes } else { ASSUMED_NODES };
        Some(FleetLedger {
            link,
            name: fleet.name.clone(),
            id: format!("{:012x}", random >> 16),
            timeout: u64::try_from(fleet.timeout.as_micros()).unwrap_or(u64::MAX),
            assumed: Slots { rank: (random % u64::from(nodes)) as u32, nodes },
            shards: Mutex::default(),
            alone_at: AtomicUsize::new(0),
            errands: OnceLock::new(),
            stays: Mutex::default(),
            about: OnceLock::new(),
            hear: OnceLock::new(),
            counts: FleetCounts::default(),
        })
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    fn shard(&self, id: usize) -> Arc<ShardState> {
        let new = || Arc::new(ShardState::new(self.assumed, self.timeout));
        self.shards.lock().entry(id).or_insert_with(new).clone()
    }

    /// Returns the state of the shard that answers for a key. A key that no shard answers for belongs to shard 0 while
    /// no map was read.
    fn shard_of(&self, key: &str) -> Arc<ShardState> {
        let id = self.link.map().of_key(key).map_or(0, |shard| shard.id);
        self.shard(id)
    }

    /// Claims a start at a host.
    pub async fn claim(&self, host: &str, wish: &Wish) -> Claimed {
        let key = words::host_key(&self.name, host);
        let shard = self.shard_of(&key);
        let mut wish = wish.clone();
        for _ in 0..MOST_TRIES {
            let now = local_now();
            let plan = shard.node.lock().plan(&wish, now);
            let claim = match plan {
                Plan::Ask(claim) => claim,
                Plan::Start(window) => return self.alone(window, &wish),
                Plan::Wait { until, others } => {
                    return Claimed::Wait { until, others: small(others), number: wish.number, successes: 0 };
                }
            };
            self.counts.claims.fetch_add(1, Relaxed);
            match self.ask(&key, host, &shard, &claim, now).await {
                Ok((Verdict::Again, _)) => {}
                Ok((verdict, successes)) => return self.claimed(verdict, successes, &wish),
                Err(error) => {
                    self.failed(&shard, &error);
                    self.hurry();
                }
            }
            // The answer to it may be lost, so it may be handed back already.
            wish.unused = None;
        }
        Claimed::Wait { until: local_now() + self.timeout / 4, others: 0, number: wish.number, successes: 0 }
    }

    async fn ask(
        &self,
        key: &str,
        host: &str,
        shard: &ShardState,
        claim: &Claim,
        asked: u64,
    ) -> Result<(Verdict, u64), LedgerError> {
        let era = words::era_key(&self.name, host);
        let value = self.link.call(&words::CLAIM, &[key, &era], &words::claim_args(claim, None)).await?;
        let answer = words::read_answer(value)?;
        let successes = answer.successes;
        Ok((shard.node.lock().heard(claim, answer, asked, local_now()), successes))
    }

    fn alone(&self, window: Window, wish: &Wish) -> Claimed {
        self.counts.alone.fetch_add(1, Relaxed);
        Claimed::Go(Granted {
            window,
            turn: None,
            next: None,
            others: 0,
            successes: 0,
            counted: false,
            is_burst: wish.burst > 1,
            place_for: 0,
            keep_ms: wish.keep_ms,
        })
    }

    fn claimed(&self, verdict: Verdict, successes: u64, wish: &Wish) -> Claimed {
        match verdict {
            Verdict::Go { window, unused, next, others, counted } => Claimed::Go(Granted {
                window,
                turn: Some(unused),
                next,
                others: small(others),
                successes,
                counted,
                is_burst: wish.burst > 1,
                place_for: wish.limit * wish.delay,
                keep_ms: wish.keep_ms,
            }),
            Verdict::Wait { until, others, told } => {
                self.counts.refused.fetch_add(1, Relaxed);
                Claimed::Wait { until, others: small(others), number: told.number, successes }
            }
            Verdict::News(news) => Claimed::News(news),
            Verdict::Again => Claimed::Wait { until: local_now(), others: 0, number: wish.number, successes },
        }
    }

    /// Returns how many nodes the places of a host must be divided between: 1 if Redis counts them. Without spacing no
    /// start is claimed, so none is counted.
    pub fn sharers(&self, host: &str, is_spaced: bool) -> u32 {
        if is_spaced && self.alone_at.load(Relaxed) == 0 {
            return 1;
        }
        let shard = self.shard_of(&words::host_key(&self.name, host));
        let node = shard.node.lock();
        let counts = is_spaced && matches!(node.state(), StandingState::Joined | StandingState::Returning);
        if counts { 1 } else { node.standing().slots().nodes }
    }

    /// Notes that a call failed.
    fn failed(&self, shard: &ShardState, error: &LedgerError) {
        shard.failed(error);
        self.count_alone();
    }

    /// Counts the servers that this node cannot reach.
    fn count_alone(&self) {
        let is_alone = |shard: &Arc<ShardState>| shard.state().word() == "alone";
        let alone = self.shards.lock().values().filter(|shard| is_alone(shard)).count();
        self.alone_at.store(alone, Relaxed);
    }

    /// Reports a start, without waiting for Redis.
    pub fn settle(&self, host: &str, settled: Settlement) {
        self.send(Errand::Settle(host.to_owned(), settled));
    }

    /// Tells the fleet what a host taught. Returns what the fleet knows now, and whether the record was taken; `None`
    /// if this node is alone.
    pub async fn tell(&self, host: &str, mut told: Told) -> Option<(bool, HostNews)> {
        let key = words::host_key(&self.name, host);
        let shard = self.shard_of(&key);
        if shard.state() != StandingState::Joined {
            return None;
        }
        told.held = self.theirs(&shard, told.held);
        let value = match self.link.call(&words::TELL, &[&key], &words::tell_args(&told)).await {
            Ok(value) => value,
            Err(error) => {
                self.failed(&shard, &error);
                return None;
            }
        };
        words::read_told(value).ok().map(|(fits, news)| (fits, self.localised(&shard, news)))
    }

    /// Tells the fleet what an operator changed about a host. Returns the new version.
    pub async fn steer(&self, host: &str, mut steered: Steered) -> Result<u64, LedgerError> {
        let key = words::host_key(&self.name, host);
        let shard = self.shard_of(&key);
        steered.closed = steered.closed.map(|until| self.theirs(&shard, until));
        match self.link.call(&words::STEER, &[&key], &words::steer_args(&steered, None)).await? {
            redis::Value::Int(version) => Ok(u64::try_from(version).unwrap_or_default()),
            _ => Err(LedgerError::Protocol("steer answered in an unknown format".to_owned())),
        }
    }

    /// Converts a local time to the clock that all nodes share, for a text about this host or client.
    pub fn shared_time(&self, name: &str, local: u64) -> u64 {
        self.theirs(&self.shard_of(&words::host_key(&self.name, name)), local)
    }

    /// Converts a time of the clock that all nodes share to the local clock.
    pub fn local_time(&self, name: &str, theirs: u64) -> u64 {
        let shard = self.shard_of(&words::host_key(&self.name, name));
        if theirs == 0 || theirs >= FOR_EVER { theirs } else { shard.node.lock().local(theirs, local_now()) }
    }

    /// Converts the times of news to the local clock.
    pub fn local_news(&self, host: &str, news: HostNews) -> HostNews {
        let shard = self.shard_of(&words::host_key(&self.name, host));
        self.localised(&shard, news)
    }

    fn localised(&self, shard: &ShardState, news: HostNews) -> HostNews {
        let now = local_now();
        let node = shard.node.lock();
        let local = |theirs: u64| if theirs == 0 || theirs >= FOR_EVER { theirs } else { node.local(theirs, now) };
        HostNews { held: local(news.held), closed: local(news.closed), ..news }
    }

    fn theirs(&self, shard: &ShardState, local: u64) -> u64 {
        let now = local_now();
        if local == 0 || local >= FOR_EVER { local } else { shard.node.lock().theirs(local, now) }
    }

    /// Returns how this node stands to each server of the map. One that was replaced does not count.
    pub fn health(&self) -> Vec<FleetHealth> {
        let map = self.link.map();
        let shards: Vec<_> = map.shards().iter().map(|shard| self.shard(shard.id)).collect();
        let health = |shard: &Arc<ShardState>| {
            let trouble = shard.trouble().map(|error| error.to_string());
            let node = shard.node.lock();
            let standing = node.standing();
            FleetHealth {
                state: standing.state(),
                since: Duration::from_micros(local_now().saturating_sub(standing.since())),
                nodes: standing.slots().nodes,
                missing: standing.missing().len(),
                trip_us: node.trip(),
                trouble,
            }
        };
        shards.iter().map(health).collect()
    }

    /// Returns how this node stands and what it has done, for metrics.
    pub fn figures(&self) -> FleetFigures {
        let (health, counts) = (self.health(), &self.counts);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        FleetFigures {
            joined: health.iter().filter(|shard| shard.state == StandingState::Joined).count(),
            alone: health.iter().filter(|shard| shard.state.word() == "alone").count(),
            nodes: health.iter().map(|shard| shard.nodes).max().unwrap_or_default(),
            missing: health.iter().map(|shard| shard.missing).max().unwrap_or_default(),
            claims: count(&counts.claims),
            refused: count(&counts.refused),
            alone_starts: count(&counts.alone),
            late: count(&counts.late),
        }
    }

    fn send(&self, errand: Errand) {
        if let Some(errands) = self.errands.get() {
            // It fails only when curtsy ends.
            let _ = errands.send(errand);
        }
    }

    /// Asks the keeper to look at the servers now.
    fn hurry(&self) {
        self.send(Errand::Hurry);
    }
}

/// A pause without an end, in Redis.
pub const FOR_EVER: u64 = 9_000_000_000_000_000;

fn small(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Returns the local time in microseconds, as lanes use it.
fn local_now() -> u64 {
    clock::micros_at(clock::now())
}
