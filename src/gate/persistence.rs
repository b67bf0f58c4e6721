//! Translates between the store's host records and the memory of lanes.
//!
//! Reads the store when a lane is made. Writes to it when a lane has learned something or is forgotten, so a request
//! that teaches nothing causes no write. A send alone is not written: the time of the last send is saved when its lane
//! is forgotten and when curtsy stops. If the previous process could not save it, every host counts as visited just
//! before this process started.

use std::sync::Arc;
use std::time::Duration;

use crate::politeness::HostKey;
use crate::politeness::lane::{HostMemory, Lane};
use crate::politeness::pace;
use crate::politeness::policy::{self, PolicyBook};
use crate::politeness::time::Timestamp;
use crate::store::{Health, HostRecord, Store, StoredOverrides};

#[derive(Debug)]
pub struct HostPersistence {
    store: Arc<Store>,
    /// Sends before this time may be missing from the store.
    unknown_before: Option<Timestamp>,
}

impl HostPersistence {
    /// `unknown_before`: the start of this process, if the store may lack sends of the process before it.
    pub fn new(store: Arc<Store>, unknown_before: Option<Timestamp>) -> Self {
        HostPersistence { store, unknown_before }
    }

    pub(super) fn lane(&self, host: &HostKey, book: &PolicyBook, now: Timestamp) -> Lane {
        let record = self.record(host);
        let mut memory = memory(&record);
        memory.last_sent = memory.last_sent.max(self.unknown_before);
        let usual = book.policy(host.as_str()).clone();
        let mut lane = Lane::remembering(usual, &memory, &book.schooling, fastrand::u64(..), now);
        let overrides = overrides(record.overrides);
        if overrides != policy::Overrides::default() {
            lane.steer(overrides, now);
            lane.take_unsaved();
        }
        lane
    }

    /// Returns what the store knows of a host that has no lane.
    pub(super) fn of(&self, host: &HostKey) -> HostMemory {
        memory(&self.record(host))
    }

    /// Whether the operator has set something for this host.
    pub(super) fn is_steered(&self, host: &HostKey, now: Timestamp) -> bool {
        self.record(host).is_steered(now.as_micros())
    }

    /// Saves what is new since the last save.
    pub(super) fn keep_news(&self, host: &HostKey, lane: &mut Lane, now: Timestamp) {
        if lane.take_unsaved() {
            self.keep(host, lane, now);
        }
    }

    /// Saves everything, before a lane is forgotten.
    pub(super) fn keep_all(&self, host: &HostKey, lane: &mut Lane, now: Timestamp) {
        if lane.take_unsaved() || lane.is_memorable(now) {
            self.keep(host, lane, now);
        }
    }

    /// Whether the store knows anything about this host that can change a decision.
    pub(super) fn knows(&self, host: &HostKey) -> bool {
        self.store.host(host.as_str()).is_some_and(|record| self.store.matters(&record))
    }

    /// Saves what another curtsy knew of a host that has no lane. Never allows an earlier start: the later of two sends
    /// and the longer of two holds count.
    pub(super) fn import(&self, host: &HostKey, record: &HostRecord) {
        let before = self.record(host);
        let last_sent_us = record.last_sent_us.max(before.last_sent_us);
        let held_until_us = record.held_until_us.max(before.held_until_us);
        self.store.put_host(host.as_str(), HostRecord { last_sent_us, held_until_us, ..*record });
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn health(&self) -> Option<Health> {
        self.store.health()
    }

    fn keep(&self, host: &HostKey, lane: &Lane, now: Timestamp) {
        let overrides = kept(lane.overrides());
        self.store.put_host(host.as_str(), HostRecord { overrides, ..record(&lane.memory(now)) });
    }

    fn record(&self, host: &HostKey) -> HostRecord {
        self.store.host(host.as_str()).unwrap_or_default()
    }
}

pub(super) fn memory(record: &HostRecord) -> HostMemory {
    let time = |micros| (micros > 0).then_some(Timestamp::from_micros(micros));
    let millis = |ms: u32| Duration::from_millis(ms.into());
    let pace = pace::PaceMemory {
        learned: millis(record.learned_ms),
        floor: millis(record.floor_ms),
        floor_life: millis(record.floor_ttl_ms),
        floor_until: Timestamp::from_micros(record.floor_until_us),
        updated: Timestamp::from_micros(record.updated_us),
    };
    HostMemory {
        last_sent: time(record.last_sent_us),
        held_until: time(record.held_until_us),
        pace: (record.learned_ms > 0).then_some(pace),
        paused_until: if record.paused { Some(Timestamp::NEVER) } else { time(record.paused_until_us) },
    }
}

fn record(memory: &HostMemory) -> HostRecord {
    let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    let micros = |time: Option<Timestamp>| time.map_or(0, Timestamp::as_micros);
    let pace = memory.pace.unwrap_or_default();
    HostRecord {
        learned_ms: millis(pace.learned),
        floor_ms: millis(pace.floor),
        floor_ttl_ms: millis(pace.floor_life),
        floor_until_us: pace.floor_until.as_micros(),
        updated_us: pace.updated.as_micros(),
        last_sent_us: micros(memory.last_sent),
        held_until_us: micros(memory.held_until),
        paused: memory.paused_until == Some(Timestamp::NEVER),
        paused_until_us: micros(memory.paused_until.filter(|until| *until < Timestamp::NEVER)),
        overrides: StoredOverrides::default(),
    }
}

pub(super) fn overrides(kept: StoredOverrides) -> policy::Overrides {
    let StoredOverrides { delay_ms, burst, concurrency } = kept;
    policy::Overrides { delay: delay_ms.map(|ms| Duration::from_millis(ms.into())), burst, concurrency }
}

fn kept(set: policy::Overrides) -> StoredOverrides {
    let policy::Overrides { delay, burst, concurrency } = set;
    let millis = |span: Duration| u32::try_from(span.as_millis()).unwrap_or(u32::MAX);
    StoredOverrides { delay_ms: delay.map(millis), burst, concurrency }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_a_memory_and_back() {
        let record_of_all = HostRecord {
            learned_ms: 2_500,
            floor_ms: 2_000,
            floor_ttl_ms: 600_000,
            floor_until_us: 4,
            updated_us: 5,
            last_sent_us: 6,
            held_until_us: 7,
            paused: true,
            paused_until_us: 0,
            overrides: StoredOverrides::default(),
        };
        let for_now = HostRecord { paused: false, paused_until_us: 8, ..record_of_all };
        assert_eq!(record(&memory(&for_now)), for_now);
        assert_eq!(record(&memory(&record_of_all)), record_of_all);
        assert_eq!(memory(&HostRecord::default()), HostMemory::default());
        assert_eq!(record(&HostMemory::default()), HostRecord::default());
    }

    #[test]
    fn what_people_set_is_kept() {
        let set = StoredOverrides { delay_ms: Some(7_000), burst: None, concurrency: Some(2) };
        assert_eq!(kept(overrides(set)), set);
    }
}
