//! The fleet for people: what each node tells about itself, who is there, and how to forget a node.
//!
//! A node writes a card about itself into Redis; the heartbeats say whether it is still there. Nothing here decides
//! about a turn.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::{Value, from_redis_value};

use super::link::{LedgerError, Link, Script};
use super::{FleetLedger, words};
use crate::clock;
use crate::politeness::fleet::standing::StandingState;

static NODES: Script = Script::new(include_str!("scripts/nodes.lua"));
static HOST: Script = Script::new(include_str!("scripts/host.lua"));

/// A card ends this long after it was last written.
const KEEP_CARD: Duration = Duration::from_secs(60);
/// A node that was silent for longer is missing.
const MISSING: Duration = Duration::from_millis(1600);
/// How often a node writes its card.
const WRITE_CARD: Duration = Duration::from_secs(2);
/// Starts are counted over so many cards: at a delay of some seconds, one card counts none or one.
const RATE_OVER: usize = 10;

/// What a node tells about itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCard {
    /// The deployment's name, as in Via.
    pub name: String,
    pub version: String,
    /// joined, alone, returning or starting.
    pub state: String,
    pub starts_per_second: f64,
    /// Requests that wait for a turn.
    pub waiting: u64,
    /// How long Redis takes to answer it.
    pub round_trip: Duration,
    /// A digest of its politeness settings: nodes should have the same.
    pub settings: String,
}

/// A node of the fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRow {
    pub id: String,
    /// How long ago it joined.
    pub joined: Duration,
    /// How long ago it was last heard of.
    pub heard: Duration,
    /// Missing if it has not written one, or not for a minute.
    pub card: Option<NodeCard>,
}

/// A host as the whole fleet sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLine {
    /// How long ago the last start of any node was at the latest.
    pub last_start: Duration,
    /// Appointments that are not served yet: at most one for each node with waiting requests.
    pub nodes_waiting: u64,
    /// How much longer the host is held.
    pub held: Option<Duration>,
    pub paused: bool,
}

impl NodeRow {
    pub fn is_missing(&self) -> bool {
        self.heard > MISSING
    }
}

impl NodeCard {
    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![
            ("name", self.name.clone()),
            ("version", self.version.clone()),
            ("state", self.state.clone()),
            ("starts", format!("{:.3}", self.starts_per_second)),
            ("waiting", self.waiting.to_string()),
            ("trip_us", self.round_trip.as_micros().to_string()),
            ("settings", self.settings.clone()),
        ]
    }

    /// Reads a card. Other programs may write to Redis too, so odd numbers count as 0.
    fn read(mut fields: HashMap<String, String>) -> Option<Self> {
        let number = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
        let finite = |number: Option<f64>| number.filter(|number| (0.0..1e12).contains(number)).unwrap_or(0.0);
        let starts_per_second = finite(number(fields.remove("starts")));
        let waiting = finite(number(fields.remove("waiting"))) as u64;
        let round_trip = Duration::from_micros(finite(number(fields.remove("trip_us"))) as u64);
        let mut text = |name: &str| fields.remove(name).map(|text| text.chars().take(100).collect::<String>());
        Some(NodeCard {
            name: text("name")?,
            version: text("version")?,
            state: text("state")?,
            settings: text("settings").unwrap_or_default(),
            starts_per_second,
            waiting,
            round_trip,
        })
    }
}

/// What a node does, as its other parts know it.
#[derive(Clone, Debug)]
pub struct NodeFigures {
    pub name: String,
    /// Requests started since its own start.
    pub starts: u64,
    pub waiting: usize,
    pub settings: String,
}

/// Returns what a node does now; `None` when it ends.
pub struct FiguresSource(Box<dyn Fn() -> Option<NodeFigures> + Send + Sync>);

impl fmt::Debug for FiguresSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FiguresSource").finish_non_exhaustive()
    }
}

impl FleetLedger {
    pub fn fleet(&self) -> &str {
        &self.name
    }

    /// Sets what this node tells the others about itself. Only the first call has an effect.
    pub fn introduce(&self, figures: impl Fn() -> Option<NodeFigures> + Send + Sync + 'static) {
        let _ = self.about.set(FiguresSource(Box::new(figures)));
    }

    /// Returns the nodes that Redis knows, oldest first.
    pub async fn nodes(&self) -> Result<Vec<NodeRow>, LedgerError> {
        nodes(&self.link, &self.name).await
    }

    /// Removes a node that will not come back. Returns whether it was known.
    pub async fn forget_node(&self, node: &str) -> Result<bool, LedgerError> {
        forget(&self.link, &self.name, node).await
    }

    /// Returns what the whole fleet knows about a host now; `None` if Redis knows nothing of it.
    pub async fn look_at(&self, host: &str) -> Result<Option<HostLine>, LedgerError> {
        let unreadable = || LedgerError::Protocol("a host is in an unknown format".to_owned());
        let key = words::host_key(&self.name, host);
        let answer = self.link.call(&HOST, &[&key], &[]).await?;
        let numbers: [Option<u64>; 6] = from_redis_value(answer).map_err(|_| unreadable())?;
        let [now, last, drawn, served, held, closed] = numbers;
        let now = now.ok_or_else(unreadable)?;
        let ahead = |then: Option<u64>| then.filter(|then| *then > now).map(|then| Duration::from_micros(then - now));
        Ok(last.map(|last| HostLine {
            last_start: Duration::from_micros(now.saturating_sub(last)),
            nodes_waiting: drawn.unwrap_or(0).saturating_sub(served.unwrap_or(0)),
            held: ahead(held),
            paused: ahead(closed).is_some(),
        }))
    }

    /// Returns the least favourable of this node's states, for how long, and why it is alone.
    pub fn standing(&self) -> (StandingState, Duration, Option<String>) {
        let all = self.health();
        let worst = all.iter().max_by_key(|health| match health.state {
            StandingState::Joined => 0,
            StandingState::Returning => 1,
            StandingState::Starting => 2,
            StandingState::Telling => 3,
            StandingState::Alone => 4,
        });
        let starting = (StandingState::Starting, Duration::ZERO, None);
        worst.map_or(starting, |health| (health.state, health.since, health.trouble.clone()))
    }

    /// Returns what this node says about itself. `before` is how many starts there were how long ago.
    pub fn card(&self, before: Option<(u64, Duration)>) -> Option<NodeCard> {
        let figures = (self.about.get()?.0)()?;
        let rate = |(starts, ago): (u64, Duration)| figures.starts.saturating_sub(starts) as f64 / ago.as_secs_f64();
        let trip = self.health().iter().map(|health| health.trip_us).max().unwrap_or(0);
        Some(NodeCard {
            name: figures.name,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            state: self.standing().0.word().to_owned(),
            starts_per_second: before.filter(|(_, ago)| !ago.is_zero()).map_or(0.0, rate),
            waiting: figures.waiting as u64,
            round_trip: Duration::from_micros(trip),
            settings: figures.settings,
        })
    }
}

/// Writes this node's card every other second. Ends with the runtime.
pub(super) async fn keep_card(ledger: Arc<FleetLedger>) {
    let mut counted = VecDeque::new();
    loop {
        tokio::time::sleep(WRITE_CARD).await;
        let now = clock::now();
        let starts = ledger.about.get().and_then(|figures| (figures.0)()).map(|figures| figures.starts);
        let before = counted.front().map(|(starts, then)| (*starts, now - *then));
        let Some(card) = ledger.card(before) else { continue };
        counted.extend(starts.map(|starts| (starts, now)));
        counted.drain(..counted.len().saturating_sub(RATE_OVER));
        // Fails while Redis is away; the next one says the same and more.
        let _ = announce(&ledger.link, &ledger.name, &ledger.id, &card).await;
    }
}

/// Writes a node's card.
pub async fn announce(link: &Link, fleet: &str, node: &str, card: &NodeCard) -> Result<(), LedgerError> {
    let key = card_key(fleet, node);
    let mut command = redis::cmd("HSET");
    command.arg(&key);
    for (name, value) in card.fields() {
        command.arg(name).arg(value);
    }
    link.ask(&key, &command).await?;
    let mut command = redis::cmd("PEXPIRE");
    command.arg(&key).arg(u64::try_from(KEEP_CARD.as_millis()).unwrap_or(u64::MAX));
    link.ask(&key, &command).await.map(drop)
}

/// Returns the nodes of a fleet, oldest first.
pub async fn nodes(link: &Link, fleet: &str) -> Result<Vec<NodeRow>, LedgerError> {
    let unreadable = || LedgerError::Protocol("the list of nodes is in an unknown format".to_owned());
    // Each server keeps its list below the lowest of its buckets, so the server of bucket 0 keeps it there.
    let [nodes, beats, _] = words::node_keys(fleet, 0);
    let answer = link.call(&NODES, &[&nodes, &beats], &[]).await?;
    let words: Vec<String> = from_redis_value(answer).map_err(|_| unreadable())?;
    let (now, words) = words.split_first().ok_or_else(unreadable)?;
    let time = |text: &str| text.parse::<f64>().map(|micros| micros as u64).map_err(|_| unreadable());
    let now = time(now)?;
    let mut rows = Vec::new();
    for row in words.chunks_exact(3) {
        let [joined, heard] =
            [time(&row[1])?, time(&row[2])?].map(|then| Duration::from_micros(now.saturating_sub(then)));
        let card = card(link, fleet, &row[0]).await?;
        rows.push(NodeRow { id: row[0].clone(), joined, heard, card });
    }
    Ok(rows)
}

async fn card(link: &Link, fleet: &str, node: &str) -> Result<Option<NodeCard>, LedgerError> {
    let key = card_key(fleet, node);
    let mut command = redis::cmd("HGETALL");
    command.arg(&key);
    let fields: HashMap<String, String> = from_redis_value(link.ask(&key, &command).await?).unwrap_or_default();
    Ok(NodeCard::read(fields))
}

/// Removes a node from every server, so that the others need not leave its turns to it. Returns whether it was known. A
/// node that is still there joins again with its next heartbeat.
pub async fn forget(link: &Link, fleet: &str, node: &str) -> Result<bool, LedgerError> {
    let mut known = false;
    for bucket in lowest_buckets(link) {
        let [nodes, beats, _] = words::node_keys(fleet, bucket);
        for key in [nodes, beats] {
            let mut command = redis::cmd("ZREM");
            command.arg(&key).arg(node);
            known |= link.ask(&key, &command).await? == Value::Int(1);
        }
    }
    let key = card_key(fleet, node);
    let mut command = redis::cmd("DEL");
    command.arg(&key);
    link.ask(&key, &command).await?;
    Ok(known)
}

/// Returns the lowest bucket of each server.
fn lowest_buckets(link: &Link) -> Vec<u16> {
    let map = link.map();
    let mut seen = Vec::new();
    let is_lowest = |bucket: &u16| {
        let shard = map.of_key(&format!("{{{bucket:03x}}}")).map(|shard| shard.id);
        let is_new = shard.is_some() && !seen.contains(&shard);
        seen.push(shard);
        is_new
    };
    (0..words::BUCKETS).filter(is_lowest).collect()
}

fn card_key(fleet: &str, node: &str) -> String {
    format!("{fleet}:{{fleet}}:n:{node}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_read_as_it_was_written() {
        let card = NodeCard {
            name: "front-desk".to_owned(),
            version: "0.1.0".to_owned(),
            state: "joined".to_owned(),
            starts_per_second: 2.5,
            waiting: 3,
            round_trip: Duration::from_micros(140),
            settings: "abc".to_owned(),
        };
        let fields = |card: &NodeCard| -> HashMap<String, String> {
            card.fields().into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
        };
        assert_eq!(NodeCard::read(fields(&card)), Some(card.clone()));
        let mut odd = fields(&card);
        odd.insert("starts".to_owned(), "NaN".to_owned());
        odd.insert("waiting".to_owned(), "-7".to_owned());
        odd.insert("trip_us".to_owned(), "soon".to_owned());
        let read = NodeCard::read(odd).unwrap();
        assert_eq!((read.starts_per_second, read.waiting, read.round_trip), (0.0, 0, Duration::ZERO));
        assert_eq!(NodeCard::read(HashMap::new()), None);
    }
}
