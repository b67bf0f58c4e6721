//! Which server answers for a key.
//!
//! Without Cluster there is one shard for all keys. In a Cluster each master is a shard; the hash tag of a key, the
//! part in braces, decides its slot.

use std::sync::Arc;

use redis::{Value, from_redis_value};
use tokio::sync::Mutex;

use super::dial::{RedisAddress, Slot};
use super::error::LedgerError;

/// How many slots a Cluster has.
const SLOTS: usize = 16_384;

/// One Redis server that answers for some of the keys.
#[derive(Debug)]
pub struct Shard {
    /// Never given to another server during the life of the link.
    pub id: usize,
    /// Where it listens; `None` behind Sentinels, which are asked at every connect.
    pub(super) address: Option<RedisAddress>,
    pub(super) live: Slot,
    /// Held while a task connects, so that only one does.
    pub(super) connecting: Mutex<()>,
}

impl Shard {
    pub(super) fn new(id: usize, address: Option<RedisAddress>) -> Arc<Self> {
        Arc::new(Shard { id, address, live: Slot::default(), connecting: Mutex::default() })
    }

    pub fn address(&self) -> Option<&RedisAddress> {
        self.address.as_ref()
    }

    /// Whether there is a connection. It may break at any moment.
    pub fn is_connected(&self) -> bool {
        self.live.get().is_some()
    }
}

/// All shards, and who answers for which slot.
#[derive(Debug, Default)]
pub struct ShardMap {
    shards: Vec<Arc<Shard>>,
    /// Places in `shards` by slot; empty if one shard answers for all.
    slots: Vec<Option<u16>>,
    /// The id for the next server that is seen for the first time.
    next_id: usize,
}

impl ShardMap {
    /// Returns the map of a single server.
    pub(super) fn one(address: Option<RedisAddress>) -> Self {
        ShardMap { shards: vec![Shard::new(0, address)], slots: Vec::new(), next_id: 1 }
    }

    pub fn shards(&self) -> &[Arc<Shard>] {
        &self.shards
    }

    /// Returns the shard that answers for this key.
    pub fn of_key(&self, key: &str) -> Option<&Arc<Shard>> {
        if self.slots.is_empty() {
            return self.shards.first();
        }
        self.shards.get(usize::from((*self.slots.get(slot(key))?)?))
    }

    pub(super) fn at(&self, address: &RedisAddress) -> Option<&Arc<Shard>> {
        self.shards.iter().find(|shard| shard.address.as_ref() == Some(address))
    }

    /// Returns the map that CLUSTER SLOTS describes. A server that is in both keeps its shard and its connection.
    /// `asked` is the server that was asked: it leaves its own address out if it does not know it.
    pub(super) fn next(&self, answer: Value, asked: &RedisAddress) -> Result<Self, LedgerError> {
        let unreadable = || LedgerError::Protocol("CLUSTER SLOTS in an unknown format".to_owned());
        let ranges: Vec<Vec<Value>> = from_redis_value(answer).map_err(|_| unreadable())?;
        let mut map = ShardMap { shards: Vec::new(), slots: vec![None; SLOTS], next_id: self.next_id };
        for range in ranges {
            let [Value::Int(first), Value::Int(last), master, ..] = &range[..] else { return Err(unreadable()) };
            let Value::Array(master) = master else { return Err(unreadable()) };
            let [host, Value::Int(port), ..] = &master[..] else { return Err(unreadable()) };
            let host: Option<String> = from_redis_value(host.clone()).map_err(|_| unreadable())?;
            let host = host.filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.host.clone());
            let address = RedisAddress { host, port: u16::try_from(*port).map_err(|_| unreadable())? };
            let place = map.place_of(address, self);
            let span = usize::try_from(*first).ok().zip(usize::try_from(*last).ok());
            let (first, last) = span.filter(|(first, last)| first <= last && *last < SLOTS).ok_or_else(unreadable)?;
            map.slots[first..=last].fill(u16::try_from(place).ok());
        }
        Ok(map)
    }

    fn place_of(&mut self, address: RedisAddress, before: &ShardMap) -> usize {
        if let Some(place) = self.shards.iter().position(|shard| shard.address.as_ref() == Some(&address)) {
            return place;
        }
        let shard = before.at(&address).cloned().unwrap_or_else(|| {
            self.next_id += 1;
            Shard::new(self.next_id - 1, Some(address))
        });
        self.shards.push(shard);
        self.shards.len() - 1
    }
}

/// Returns the slot of a key: of its hash tag, if it has one.
fn slot(key: &str) -> usize {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    usize::from(crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key))) % SLOTS
}

/// CRC-16/XMODEM, by which a Cluster spreads keys.
fn crc16(text: &str) -> u16 {
    text.bytes().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let master = Value::Array(vec![Value::BulkString(host.into()), Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    fn asked() -> RedisAddress {
        RedisAddress { host: "seed".to_owned(), port: 7000 }
    }

    #[test]
    fn slots_are_those_of_redis() {
        // The check value of CRC-16/XMODEM, and slots that `CLUSTER KEYSLOT` gave.
        assert_eq!(crc16("123456789"), 0x31c3);
        for (key, expected) in [("foo", 12_182), ("a{foo}b", 12_182), ("{}foo", 9_500), ("curtsy:{3fa}:era", 510)] {
            assert_eq!(slot(key), expected, "{key}");
        }
    }

    #[test]
    fn a_server_that_stays_keeps_its_shard() {
        let slots = [range(0, 8191, "a", 1), range(8192, 16_383, "b", 1)];
        let first = ShardMap::default().next(Value::Array(slots.to_vec()), &asked()).unwrap();
        let slots = [range(0, 8191, "c", 1), range(8192, 12_000, "b", 1), range(12_001, 16_383, "", 9)];
        let second = first.next(Value::Array(slots.to_vec()), &asked()).unwrap();
        let ids = |map: &ShardMap| map.shards.iter().map(|shard| shard.id).collect::<Vec<_>>();
        assert_eq!((ids(&first), ids(&second)), (vec![0, 1], vec![2, 1, 3]));
        assert!(Arc::ptr_eq(first.of_key("{}foo").unwrap(), second.of_key("{}foo").unwrap()));
        assert_eq!(second.of_key("foo").unwrap().address, Some(RedisAddress { host: "seed".to_owned(), port: 9 }));
    }

    #[test]
    fn a_slot_without_a_master_has_no_shard() {
        let map = ShardMap::default().next(Value::Array(vec![range(0, 100, "a", 1)]), &asked()).unwrap();
        assert!(map.of_key("foo").is_none());
    }

    #[test]
    fn an_odd_answer_is_refused() {
        for odd in [
            Value::Okay,
            Value::Array(vec![Value::Okay]),
            Value::Array(vec![range(5, 2, "a", 1)]),
            Value::Array(vec![range(0, 99_999, "a", 1)]),
            Value::Array(vec![range(0, 1, "a", 99_999)]),
        ] {
            assert!(matches!(ShardMap::default().next(odd, &asked()), Err(LedgerError::Protocol(_))));
        }
    }
}
