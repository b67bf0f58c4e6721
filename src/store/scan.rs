//! Reads every host with two threads, from both ends at once, until they meet.
//!
//! The middle of the table is not known beforehand, and one of two cores may be busy. So each thread reads the next
//! slice on its side while there is anything between them; a slow core simply reads less. From the slice in which they
//! meet, each thread keeps only the hosts that the other has not read.

use parking_lot::Mutex;

use super::database::{Database, From};
use super::record::HostRecord;

/// Calls `take` once for every host, without what operators set.
pub(super) fn each_host(
    database: &Database,
    other: Database,
    take: impl Fn(&str, &HostRecord) + Sync,
) -> rusqlite::Result<()> {
    let between = Mutex::new(Between::default());
    std::thread::scope(|scope| {
        let (between, take) = (&between, &take);
        let other = scope.spawn(move || read(&other, From::End, between, take));
        let one = read(database, From::Start, between, take);
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        one.and(other)
    })
}

fn read(
    database: &Database,
    from: From,
    between: &Mutex<Between>,
    take: &impl Fn(&str, &HostRecord),
) -> rusqlite::Result<()> {
    let (mut slice, mut reached) = (Slice::default(), None);
    loop {
        slice.clear();
        database.learned_hosts(from, reached.as_deref(), SLICE, |key, record| slice.push(key, record))?;
        reached = slice.last().map(str::to_owned);
        let own = between.lock().narrow(from, &slice, reached.clone());
        (0..own).for_each(|at| take(slice.key(at), &slice.records[at]));
        if own < SLICE {
            return Ok(());
        }
    }
}

/// The range that neither reader has seen.
#[derive(Debug, Default)]
struct Between {
    after: Option<String>,
    before: Option<String>,
}

impl Between {
    /// Records how far a reader has come. Returns how many of the slice's hosts the other reader has not seen; fewer
    /// than all if this was the last slice.
    fn narrow(&mut self, from: From, slice: &Slice, reached: Option<String>) -> usize {
        let (own, other) = match from {
            From::Start => (&mut self.after, &self.before),
            From::End => (&mut self.before, &self.after),
        };
        if reached.is_some() {
            *own = reached;
        }
        match other {
            Some(other) => slice.count_while(|key| from.leads(key, other)),
            None => slice.records.len(),
        }
    }
}

/// Hosts in one buffer: a string for each name would cost more than reading it.
#[derive(Debug, Default)]
struct Slice {
    keys: String,
    /// Where each key ends.
    ends: Vec<usize>,
    records: Vec<HostRecord>,
}

impl Slice {
    fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.records.clear();
    }

    fn push(&mut self, key: &str, record: HostRecord) {
        self.keys.push_str(key);
        self.ends.push(self.keys.len());
        self.records.push(record);
    }

    fn key(&self, at: usize) -> &str {
        let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.keys[start..self.ends[at]]
    }

    fn last(&self) -> Option<&str> {
        self.ends.len().checked_sub(1).map(|at| self.key(at))
    }

    fn count_while(&self, is_so: impl Fn(&str) -> bool) -> usize {
        (0..self.records.len()).find(|at| !is_so(self.key(*at))).unwrap_or(self.records.len())
    }
}

/// As many hosts as fit into a core's cache.
const SLICE: usize = 2_048;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::store::pending::Batch;

    #[test]
    fn every_host_is_read_whichever_side_is_faster() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.db");
        let (mut database, _) = Database::open(&path).unwrap();
        for count in [0, 1, 2, SLICE + 1, 31 * SLICE] {
            let mut batch = Batch::default();
            for n in 0..count {
                let record = HostRecord { learned_ms: n as u32, ..HostRecord::default() };
                assert!(batch.put_host(&format!("{n}.example"), Some(record)));
            }
            database.write(&batch).unwrap();
            let seen = Mutex::new(HashMap::new());
            each_host(&database, Database::reader(&path).unwrap(), |key, record| {
                assert_eq!(seen.lock().insert(key.to_owned(), record.learned_ms), None, "{key} twice");
            })
            .unwrap();
            let seen = seen.into_inner();
            assert_eq!(seen.len(), count);
            assert!((0..count).all(|n| seen[&format!("{n}.example")] == n as u32));
        }
    }
}
