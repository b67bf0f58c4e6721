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
use super::notices::{Bookmark, FleetNotice};
use super::shard::ShardState;
use super::words;
use super::{FleetLedger, local_now, view};
use crate::politeness::fleet::calls::{Beat, Settlement};
use crate::politeness::fleet::standing::{BEAT, StandingState};

/// Asks for the time and the layout, and whether Redis can store anything. Changes nothing that another node reads.
static PROBE: Script = Script::new(include_str!("scripts/probe.lua"));

/// How often a node that is alone asks whether Redis answers.
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// The same if only an operator can change something.
const ASK_SELDOM: Duration = Duration::from_secs(5);
/// How often the map of a Cluster is read.
const READ_MAP: Duration = Duration::from_secs(10);
/// How often a notice is repeated that Redis did not take.
const ANNOUNCE_AGAIN: Duration = Duration::from_secs(1);
/// How long the keeper waits for an errand if no request is due, in microseconds.
const LOOK: u64 = 10_000_000;
/// How long Redis keeps a host with a counted place.
const KEEP_STAYS_MS: u64 = 90_000;
/// How long the last heartbeat may take when curtsy stops.
const FAREWELL: Duration = Duration::from_millis(300);

/// Something that all nodes must hear: its kind, the host or client, and a text.
type Notice = (&'static str, String, String);

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
    let (notices, announced) = mpsc::unbounded_channel();
    tokio::spawn(announce(ledger.clone(), announced));
    tokio::spawn(listen(ledger.clone()));
    loop {
        let read = ledger.link.read_map().await;
        if let Err(error) = &read {
            // Until a map is known, all hosts belong to shard 0.
            ledger.failed(&ledger.shard(0), error);
        }
        for shard in ledger.link.map().shards() {
            if watched.insert(shard.id) {
                tokio::spawn(watch(ledger.clone(), shard.clone()));
            }
        }
        let pause = if read.is_ok() { READ_MAP } else { ASK_AGAIN };
        if timeout(pause, run_errands(ledger, &mut errands, &notices)).await.is_ok() {
            break;
        }
    }
    for shard in ledger.link.map().shards() {
        let _ = timeout(FAREWELL, beat(ledger, shard, true)).await;
    }
}

/// Runs errands until curtsy stops, or, in a Cluster, until the map must be read again.
async fn run_errands(
    ledger: &Arc<FleetLedger>,
    errands: &mut UnboundedReceiver<Errand>,
    notices: &UnboundedSender<Notice>,
) {
    loop {
        let now = local_now();
        let wait = Duration::from_micros(ledger.stays.lock().look_again(now + LOOK).saturating_sub(now));
        let errand = match timeout(wait, errands.recv()).await {
            Ok(Some(errand)) => errand,
            Ok(None) => return,
            Err(_) => {
                for (host, end) in ledger.stays.lock().take_due(local_now()) {
                    let ledger = ledger.clone();
                    tokio::spawn(async move { stay(&ledger, &host, end).await });
                }
                continue;
            }
        };
        match errand {
            Errand::Stop => return,
            Errand::Look => {}
            Errand::Hurry => {
                let ledger = ledger.clone();
                tokio::spawn(async move { ledger.link.read_map().await });
            }
            Errand::Notice(kind, name, text) => {
                // It fails only when the runtime ends.
                let _ = notices.send((kind, name, text));
            }
            Errand::Settle(host, settled) => {
                let ledger = ledger.clone();
                tokio::spawn(async move { settle(&ledger, &host, &settled).await });
            }
        }
    }
}

/// Tells all nodes one thing after the other. While Redis does not answer, the first waits, so that a client that was
/// stopped and resumed meanwhile is resumed in the end.
async fn announce(ledger: Arc<FleetLedger>, mut notices: UnboundedReceiver<Notice>) {
    while let Some((kind, name, text)) = notices.recv().await {
        let mut is_late = false;
        while let Err(error) = ledger.notice(kind, &name, &text).await {
            if !std::mem::replace(&mut is_late, true) {
                let advice = error.to_string();
                tracing::warn!(event = "fleet.unshared", kind, name, advice, "other nodes are told when Redis is back");
            }
            sleep(ANNOUNCE_AGAIN).await;
        }
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
            ledger.failed(&state, error);
        }
        let is_alone = matches!(state.state(), StandingState::Alone | StandingState::Telling);
        let pause = match attempt {
            Err(LedgerError::WrongPassword | LedgerError::NoPermission(_) | LedgerError::Layout(_)) => ASK_SELDOM,
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
        let bucket = lowest_bucket(ledger, shard);
        let (key, [.., layout]) =
            (words::probe_key(&ledger.name, bucket, &ledger.id), words::node_keys(&ledger.name, bucket));
        let theirs = words::read_probe(ledger.link.call(&PROBE, &[&key, &layout], &[]).await?)?;
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
        ledger.count_alone();
        if new == StandingState::Joined {
            ledger.hear(FleetNotice::Joined);
        }
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
    let [nodes, beats, layout] = words::node_keys(&ledger.name, lowest_bucket(ledger, shard));
    let args = words::beat_args(&ledger.id, until, leaves);
    let value = ledger.link.call(&words::BEAT, &[&nodes, &beats, &layout], &args).await?;
    Ok((asked, words::read_beat(value)?))
}

fn lowest_bucket(ledger: &FleetLedger, shard: &Shard) -> u16 {
    words::lowest_bucket(&ledger.name, &ledger.link.map(), shard)
}
