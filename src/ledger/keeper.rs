//! The thread `fleet`: keeps the connections to Redis and the heartbeats, and runs errands that no request waits for.
//!
//! Each server has a task of its own, so that one that hangs does not delay the others.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::{sleep, timeout};

use super::errand::Errand;
use super::link::{LedgerError, Script, Shard};
use super::notices::Bookmark;
use super::shard::ShardState;
use super::stays::Stays;
use super::words::{self, BUCKETS};
use super::{FleetLedger, local_now, view};
use crate::politeness::fleet::calls::{Beat, Settlement};
use crate::politeness::fleet::standing::{BEAT, StandingState};

/// Asks for the time, and whether Redis can store anything. Changes nothing that another node reads.
static PROBE: Script = Script::new(
    "redis.call('SET', KEYS[1], '1', 'PX', 1000)\nlocal t = redis.call('TIME')\nreturn {t[1] * 1000000 + t[2]}",
);

/// How often a node that is alone asks whether Redis answers.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The same if only an operator can change something.
const ASK_SELDOM: Duration = Duration::from_secs(5);
/// How often the map of a Cluster is read.
const READ_MAP: Duration = Duration::from_secs(10);
/// How long Redis keeps a host with a counted place.
const KEEP_STAYS_MS: u64 = 90_000;
/// How long the last heartbeat may take when curtsy stops.
const FAREWELL: Duration = Duration::from_millis(300);

/// The thread of a fleet. Stops when dropped.
#[derive(Debug)]
pub struct FleetThread {
    stop: UnboundedSender<Errand>,
    thread: Option<JoinHandle<()>>,
}

impl FleetThread {
    pub fn start(ledger: Arc<FleetLedger>) -> io::Result<Self> {
        let (stop, errands) = mpsc::unbounded_channel();
        let _ = ledger.errands.set(stop.clone());
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let thread = thread::Builder::new().name("fleet".to_owned()).spawn(move || {
            runtime.block_on(keep(&ledger, errands));
        })?;
        Ok(FleetThread { stop, thread: Some(thread) })
    }
}

impl Drop for FleetThread {
    fn drop(&mut self) {
        let _ = self.stop.send(Errand::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn keep(ledger: &Arc<FleetLedger>, mut errands: UnboundedReceiver<Errand>) {
    let mut watched = HashSet::new();
    tokio::spawn(view::keep_card(ledger.clone()));
    let mut stays = Stays::default();
    tokio::spawn(listen(ledger.clone()));
    loop {
        let read = ledger.link.read_map().await;
        if let Err(error) = &read {
            // Until a map is known, all hosts belong to shard 0.
            ledger.shard(0).failed(error);
        }
        for shard in ledger.link.map().shards() {
            if watched.insert(shard.id) {
                tokio::spawn(watch(ledger.clone(), shard.clone()));
            }
        }
        let pause = if read.is_ok() { READ_MAP } else { ASK_AGAIN };
        if timeout(pause, run_errands(ledger, &mut stays, &mut errands)).await.is_ok() {
            break;
        }
    }
    for shard in ledger.link.map().shards() {
        let _ = timeout(FAREWELL, beat(ledger, shard, true)).await;
    }
}

/// Runs errands until curtsy stops, or, in a Cluster, until the map must be read again.
async fn run_errands(ledger: &Arc<FleetLedger>, stays: &mut Stays, errands: &mut UnboundedReceiver<Errand>) {
    loop {
        let wait = stays.next_due().map_or(READ_MAP, |due| Duration::from_micros(due.saturating_sub(local_now())));
        let errand = match timeout(wait, errands.recv()).await {
            Ok(Some(errand)) => errand,
            Ok(None) => return,
            Err(_) => {
                for (host, end) in stays.take_due(local_now()) {
                    let ledger = ledger.clone();
                    tokio::spawn(async move { stay(&ledger, &host, end).await });
                }
                continue;
            }
        };
        match errand {
            Errand::Watch { host, end, due, counted } => stays.watch(host, end, due, counted),
            Errand::Ended { host, end } => {
                if stays.leave(host.clone(), end) {
                    let ledger = ledger.clone();
                    let settled = Settlement { place: end, ..Settlement::default() };
                    tokio::spawn(async move { settle(&ledger, &host, &settled).await });
                }
            }
            Errand::Stop => return,
            Errand::Hurry => {
                let ledger = ledger.clone();
                tokio::spawn(async move { ledger.link.read_map().await });
            }
            Errand::Notice(kind, name, text) => {
                let ledger = ledger.clone();
                tokio::spawn(async move { notice(&ledger, kind, &name, &text).await });
            }
            Errand::Settle(host, settled) => {
                let ledger = ledger.clone();
                tokio::spawn(async move { settle(&ledger, &host, &settled).await });
            }
        }
    }
}

async fn notice(ledger: &FleetLedger, kind: &str, name: &str, text: &str) {
    if let Err(error) = ledger.notice(kind, name, text).await {
        let advice = error.to_string();
        tracing::warn!(event = "fleet.unshared", kind, name, advice, "other nodes are not told");
    }
}

/// Reads what other nodes tell, with every heartbeat.
async fn listen(ledger: Arc<FleetLedger>) {
    let mut mark = Bookmark::default();
    loop {
        // An error is noticed by the heartbeat too.
        let _ = ledger.read_notices(&mut mark).await;
        sleep(Duration::from_micros(BEAT)).await;
    }
}

async fn settle(ledger: &FleetLedger, host: &str, settled: &Settlement) -> Result<(), LedgerError> {
    let key = words::host_key(&ledger.name, host);
    ledger.link.call(&words::SETTLE, &[&key], &words::settle_args(settled)).await.map(drop)
}

/// Counts a request that lasts. If it fails, the node goes alone soon and has fewer places.
async fn stay(ledger: &FleetLedger, host: &str, end: u64) -> Result<(), LedgerError> {
    let key = words::host_key(&ledger.name, host);
    let args = [words::time(None), words::number(end), words::number(KEEP_STAYS_MS)];
    ledger.link.call(&words::STAY, &[&key], &args).await.map(drop)
}

/// Keeps one server for as long as it is in the map.
async fn watch(ledger: Arc<FleetLedger>, shard: Arc<Shard>) {
    let state = ledger.shard(shard.id);
    while ledger.link.map().shards().iter().any(|known| known.id == shard.id) {
        let began = local_now();
        let attempt = look_after(&ledger, &shard, &state).await;
        // The heartbeat of a node that returns may have been noted although it failed: the node keeps quiet after it,
        // so it must not try too often.
        let was_telling = state.state() == StandingState::Telling;
        if let Err(error) = &attempt {
            state.failed(error);
        }
        let is_alone = matches!(state.state(), StandingState::Alone | StandingState::Telling);
        let pause = match attempt {
            Err(LedgerError::WrongPassword | LedgerError::NoPermission(_)) => ASK_SELDOM,
            Err(_) if was_telling => ASK_SELDOM,
            _ if is_alone => ASK_AGAIN,
            _ => Duration::from_micros(BEAT.saturating_sub(local_now() - began)),
        };
        sleep(pause).await;
    }
}

async fn look_after(ledger: &Arc<FleetLedger>, shard: &Shard, state: &ShardState) -> Result<(), LedgerError> {
    ledger.link.connect(shard).await?;
    if state.state() == StandingState::Alone {
        let asked = local_now();
        let key = words::probe_key(&ledger.name, lowest_bucket(ledger, shard), &ledger.id);
        let theirs = words::read_time(ledger.link.call(&PROBE, &[&key], &[]).await?)?;
        if !state.node.lock().answers_again(theirs, asked, local_now()) {
            return Ok(());
        }
        for (host, (sent, keep_ms)) in state.take_alone() {
            settle(ledger, &host, &Settlement { sent, keep_ms, ..Settlement::default() }).await?;
        }
    }
    let (asked, told) = beat(ledger, shard, false).await?;
    let Some(told) = told else { return Ok(()) };
    state.has_evicted(told.evicted);
    let changed = state.node.lock().beat(&told, asked, local_now());
    if let Some(new) = changed {
        state.is_now(new);
    }
    Ok(())
}

/// Sends a heartbeat. Returns when, and the answer; `None` if it came too late.
async fn beat(ledger: &FleetLedger, shard: &Shard, leaves: bool) -> Result<(u64, Option<Beat>), LedgerError> {
    let state = ledger.shard(shard.id);
    let asked = local_now();
    let until = {
        let mut node = state.node.lock();
        node.beats(asked);
        match node.state() {
            StandingState::Starting => super::FOR_EVER,
            _ => node.theirs(asked, asked) + ledger.timeout,
        }
    };
    let [nodes, beats] = words::node_keys(&ledger.name, lowest_bucket(ledger, shard));
    let args = words::beat_args(&ledger.id, until, leaves);
    let value = ledger.link.call(&words::BEAT, &[&nodes, &beats], &args).await?;
    Ok((asked, words::read_beat(value)?))
}

/// Returns the first bucket that a shard answers for: the nodes that it knows are kept there.
fn lowest_bucket(ledger: &FleetLedger, shard: &Shard) -> u16 {
    let map = ledger.link.map();
    let is_there = |bucket: &u16| {
        let [nodes, _] = words::node_keys(&ledger.name, *bucket);
        map.of_key(&nodes).is_some_and(|known| known.id == shard.id)
    };
    (0..BUCKETS).find(is_there).unwrap_or_default()
}
