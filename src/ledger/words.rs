//! The words that nodes and Redis exchange: keys, the arguments of the scripts, and their answers.

use redis::Value;

use super::link::{Arg, LedgerError, Script, Shard, ShardMap};
use crate::politeness::fleet::calls::{
    Answer, Beat, Claim, Go, HostNews, NotUntil, Obstacle, Ruling, Settlement, Steered, Told,
};
use crate::politeness::fleet::slots;

pub static CLAIM: Script = Script::new(include_str!("scripts/claim.lua"));
pub static SETTLE: Script = Script::new(include_str!("scripts/settle.lua"));
pub static STAY: Script = Script::new(include_str!("scripts/stay.lua"));
pub static TELL: Script = Script::new(include_str!("scripts/tell.lua"));
pub static STEER: Script = Script::new(include_str!("scripts/steer.lua"));
pub static BEAT: Script = Script::new(include_str!("scripts/beat.lua"));

/// Hosts are spread over this many hash tags, so that a Cluster can spread them over its servers.
pub const BUCKETS: u16 = 1024;

/// Returns the bucket of a host: FNV-1a, 64 bits (Fowler, Noll, Vo).
pub fn bucket(host: &str) -> u16 {
    let hash = host
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    (hash % u64::from(BUCKETS)) as u16
}

pub fn host_key(fleet: &str, host: &str) -> String {
    format!("{fleet}:{{{:03x}}}:h:{host}", bucket(host))
}

pub fn era_key(fleet: &str, host: &str) -> String {
    format!("{fleet}:{{{:03x}}}:era", bucket(host))
}

/// The version of the keys and their contents. Nodes with different ones must not share a server, or each would read
/// what it does not understand. Raise it with every change that older nodes cannot read.
pub const LAYOUT: u64 = 1;

/// Returns the keys that the shard with this bucket has for its nodes: who is there, their heartbeats, and the layout.
pub fn node_keys(fleet: &str, bucket: u16) -> [String; 3] {
    ["nodes", "beats", "layout"].map(|kind| format!("{fleet}:{{{bucket:03x}}}:{kind}"))
}

/// Returns the first bucket that a shard answers for: the nodes that it knows are kept there.
pub fn lowest_bucket(fleet: &str, map: &ShardMap, shard: &Shard) -> u16 {
    let is_there = |bucket: &u16| {
        let [nodes, ..] = node_keys(fleet, *bucket);
        map.of_key(&nodes).is_some_and(|known| known.id == shard.id)
    };
    (0..BUCKETS).find(is_there).unwrap_or_default()
}

/// Returns the key by which a node tries whether the shard with this bucket can store anything.
pub fn probe_key(fleet: &str, bucket: u16, node: &str) -> String {
    format!("{fleet}:{{{bucket:03x}}}:probe:{node}")
}

/// The time of a call: Redis' own, except in tests.
pub fn time(now: Option<u64>) -> Arg<'static> {
    now.map_or(Arg::Text(""), number)
}

pub fn number(number: u64) -> Arg<'static> {
    Arg::Number(i64::try_from(number).unwrap_or(i64::MAX))
}

/// Returns the arguments of a claim. What is usual is left off at the end: reading it costs Redis time.
pub fn claim_args(claim: &Claim, now: Option<u64>) -> Vec<Arg<'static>> {
    let mut args = Vec::with_capacity(USUAL_ARGS);
    args.push(time(now));
    args.extend([claim.until, claim.delay, claim.window, claim.early, claim.reach, claim.number].map(number));
    let (more, name, track) = (u64::from(claim.more), u64::from(claim.name), u64::from(claim.track));
    args.extend([more, claim.version, claim.doubt, claim.keep_ms, name, claim.limit, track].map(number));
    let unused = claim.unused.map_or((0, 0), |unused| (unused.end, unused.before));
    let is_placed = claim.mine.is_some() || !claim.missing.is_empty();
    let is_usual = unused.0 == 0 && claim.held == 0 && claim.burst <= 1 && claim.praise == 0 && !is_placed;
    if is_usual {
        return args;
    }
    args.extend([claim.held, unused.0, unused.1, claim.burst].map(number));
    args.push(Arg::Number(claim.praise.into()));
    if !is_placed {
        return args;
    }
    let step = slots::step(claim.delay);
    match claim.mine {
        Some(mine) => args.extend([mine.phase(step), mine.round(step), step].map(number)),
        None => {
            args.extend([Arg::Number(-1), number(u64::from(claim.nodes) * step), number(step)]);
            args.extend(claim.missing.iter().map(|rank| number(u64::from(*rank) * step)));
        }
    }
    args
}

/// How many arguments a usual claim has.
const USUAL_ARGS: usize = 14;

pub fn settle_args(settled: &Settlement) -> [Arg<'static>; 6] {
    let unused = settled.unused.map_or((0, 0), |unused| (unused.end, unused.before));
    [unused.0, unused.1, settled.number, settled.sent, settled.place, settled.keep_ms].map(number)
}

pub fn tell_args(told: &Told) -> [Arg<'_>; 4] {
    [number(told.version), number(told.held), Arg::Text(told.record.as_deref().unwrap_or("")), number(told.keep_ms)]
}

pub fn steer_args(steered: &Steered, now: Option<u64>) -> [Arg<'_>; 5] {
    let flag = |on: bool| number(u64::from(on));
    let closed = steered.closed.map_or(Arg::Number(-1), number);
    [
        time(now),
        Arg::Text(steered.overrides.as_deref().unwrap_or("-")),
        closed,
        flag(steered.lift),
        flag(steered.forget),
    ]
}

pub fn beat_args(node: &str, until: u64, leaves: bool) -> [Arg<'_>; 5] {
    [Arg::Text(""), number(until), Arg::Text(node), number(u64::from(leaves)), number(LAYOUT)]
}

/// Reads the time that a probe tells. An error if nodes with another layout are there.
pub fn read_probe(value: Value) -> Result<u64, LedgerError> {
    let mut items = Items::of(value)?;
    let (now, layout) = (items.number()?, items.number()?);
    if layout == 0 || layout == LAYOUT { Ok(now) } else { Err(LedgerError::Layout(layout)) }
}

/// Reads the layout that is stored. An error if it is not this version's.
pub fn read_layout(value: Value) -> Result<(), LedgerError> {
    let text: Option<String> = redis::from_redis_value(value).map_err(|_| unreadable())?;
    let layout = text.map(|text| text.parse().unwrap_or(0));
    layout.filter(|layout| *layout != LAYOUT).map_or(Ok(()), |layout| Err(LedgerError::Layout(layout)))
}

/// Reads the answer to a claim.
pub fn read_answer(value: Value) -> Result<Answer, LedgerError> {
    let mut items = Items::of(value)?;
    let (kind, now, name) = (items.number()?, items.number()?, items.number()?);
    let successes = if kind > 1 { items.number()? } else { 0 };
    let ruling = match kind {
        0 => Ruling::TooLate,
        1 => Ruling::News(items.news()?),
        2 => {
            let (at, number, line) = (items.number()?, items.number()?, items.number()?);
            let why = match items.number()? {
                0 => Obstacle::Delay,
                1 => Obstacle::Hold,
                2 => Obstacle::Pause,
                _ => Obstacle::Places,
            };
            Ruling::NotUntil(NotUntil { at, number, line, why })
        }
        3 => Ruling::Go(Go {
            start: items.number()?,
            before: items.number()?,
            number: items.number()?,
            at: items.number()?,
            line: items.number()?,
            counted: items.number()? == 1,
        }),
        _ => return Err(unreadable()),
    };
    Ok(Answer { now, name, successes, ruling })
}

/// Reads the answer to a heartbeat; `None` if it came too late. An error if nodes with another layout are there.
pub fn read_beat(value: Value) -> Result<Option<Beat>, LedgerError> {
    let mut items = Items::of(value)?;
    let now = items.number()?;
    if items.is_empty() {
        return Ok(None);
    }
    if items.0.len() == 1 {
        return Err(LedgerError::Layout(items.number()?));
    }
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (name, nodes, rank) = (items.number()?, small(items.number()?), small(items.number()?));
    let evicted = items.number()?;
    let mut missing = Vec::new();
    while !items.is_empty() {
        missing.push(small(items.number()?));
    }
    missing.sort_unstable();
    Ok(Some(Beat { now, name, nodes, rank, missing, evicted }))
}

/// Reads the answer to `tell`: whether the versions agree, and what is known now.
pub fn read_told(value: Value) -> Result<(bool, HostNews), LedgerError> {
    let mut items = Items::of(value)?;
    Ok((items.number()? == 1, items.news()?))
}

struct Items(std::vec::IntoIter<Value>);

impl Items {
    fn of(value: Value) -> Result<Self, LedgerError> {
        match value {
            Value::Array(items) => Ok(Items(items.into_iter())),
            _ => Err(unreadable()),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    fn number(&mut self) -> Result<u64, LedgerError> {
        match self.0.next() {
            Some(Value::Int(number)) => u64::try_from(number).map_err(|_| unreadable()),
            _ => Err(unreadable()),
        }
    }

    fn text(&mut self) -> Result<String, LedgerError> {
        match self.0.next() {
            Some(Value::BulkString(text)) => String::from_utf8(text).map_err(|_| unreadable()),
            Some(Value::SimpleString(text)) => Ok(text),
            _ => Err(unreadable()),
        }
    }

    fn news(&mut self) -> Result<HostNews, LedgerError> {
        let (version, held, closed) = (self.number()?, self.number()?, self.number()?);
        Ok(HostNews { version, held, closed, record: self.text()?, overrides: self.text()? })
    }
}

fn unreadable() -> LedgerError {
    LedgerError::Protocol("a script answered in an unknown format".to_owned())
}
