//! Changes that are not on disk yet: the latest for each key, up to a bound.

use std::collections::HashMap;

use super::record::{HostRecord, JobRecord, RobotsRecord};

/// Changes by key; `None` = delete the record.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) hosts: HashMap<Box<str>, Option<HostRecord>>,
    pub(super) robots: HashMap<Box<str>, Option<RobotsRecord>>,
    pub(super) jobs: HashMap<Box<str>, Option<JobRecord>>,
    /// Total bytes of the robots.txt copies.
    bytes: usize,
}

impl Batch {
    /// Returns false if there was no room.
    pub(super) fn put_host(&mut self, key: &str, record: Option<HostRecord>) -> bool {
        put(&mut self.hosts, key, record, MOST_HOSTS)
    }

    pub(super) fn put_job(&mut self, client: &str, record: Option<JobRecord>) -> bool {
        put(&mut self.jobs, client, record, MOST_JOBS)
    }

    pub(super) fn put_robots(&mut self, origin: &str, record: Option<RobotsRecord>) -> bool {
        let before = self.robots.get(origin).map_or(0, |slot| size(slot.as_ref()));
        let bytes = self.bytes - before + size(record.as_ref());
        let fits = bytes <= MOST_ROBOTS_BYTES && put(&mut self.robots, origin, record, MOST_ROBOTS);
        if fits {
            self.bytes = bytes;
        }
        fits
    }

    /// Takes back what could not be written; newer changes win. Returns how many found no room.
    pub(super) fn put_back(&mut self, older: Batch) -> usize {
        let mut lost = 0;
        for (key, record) in older.hosts {
            lost += usize::from(!self.hosts.contains_key(&key) && !self.put_host(&key, record));
        }
        for (origin, record) in older.robots {
            lost += usize::from(!self.robots.contains_key(&origin) && !self.put_robots(&origin, record));
        }
        for (client, record) in older.jobs {
            lost += usize::from(!self.jobs.contains_key(&client) && !self.put_job(&client, record));
        }
        lost
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn len(&self) -> usize {
        self.hosts.len() + self.robots.len() + self.jobs.len()
    }
}

fn put<T>(map: &mut HashMap<Box<str>, Option<T>>, key: &str, record: Option<T>, most: usize) -> bool {
    if let Some(slot) = map.get_mut(key) {
        *slot = record;
        return true;
    }
    let fits = map.len() < most;
    if fits {
        map.insert(key.into(), record);
    }
    fits
}

fn size(record: Option<&RobotsRecord>) -> usize {
    record.map_or(0, RobotsRecord::size)
}

// While the disk works, one second's changes wait here, some hundreds at curtsy's usual pace. While it does not, the
// limits amount to about 10 + 16 + 1 MB.
const MOST_HOSTS: usize = 65_536;
const MOST_ROBOTS: usize = 4_096;
const MOST_ROBOTS_BYTES: usize = 16 << 20;
const MOST_JOBS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(ms: u32) -> Option<HostRecord> {
        Some(HostRecord { learned_ms: ms, ..HostRecord::default() })
    }

    fn robots(bytes: usize) -> Option<RobotsRecord> {
        Some(RobotsRecord { body: vec![0; bytes], ..RobotsRecord::default() })
    }

    #[test]
    fn the_last_word_counts() {
        let mut batch = Batch::default();
        assert!(batch.put_host("a", learned(1)) && batch.put_host("a", learned(2)) && batch.put_host("b", None));
        assert_eq!((batch.len(), batch.hosts["a"], batch.hosts["b"]), (2, learned(2), None));
    }

    #[test]
    fn what_failed_comes_back_under_what_is_newer() {
        let mut older = Batch::default();
        older.put_host("a", learned(1));
        older.put_host("b", learned(1));
        older.put_robots("r", robots(10));
        older.put_job("j", None);
        let mut newer = Batch::default();
        newer.put_host("a", learned(2));
        assert_eq!(newer.put_back(older), 0);
        assert_eq!((newer.hosts["a"], newer.hosts["b"]), (learned(2), learned(1)));
        assert_eq!((newer.robots.len(), newer.jobs.len()), (1, 1));
    }

    #[test]
    fn every_kind_has_a_bound() {
        let mut batch = Batch::default();
        assert!((0..MOST_HOSTS).all(|n| batch.put_host(&n.to_string(), learned(1))));
        assert!(!batch.put_host("one more", learned(1)));
        assert!(batch.put_host("0", learned(2)), "a key that is there has room");
        assert!((0..MOST_JOBS).all(|n| batch.put_job(&n.to_string(), None)));
        assert!(!batch.put_job("one more", None));
        assert!((0..MOST_ROBOTS).all(|n| batch.put_robots(&n.to_string(), None)));
        assert!(!batch.put_robots("one more", None));
        let mut other = Batch::default();
        other.put_host("left over", learned(1));
        assert_eq!(batch.put_back(other), 1);
    }

    #[test]
    fn robots_are_counted_in_bytes_too() {
        let mut batch = Batch::default();
        assert!(batch.put_robots("a", robots(MOST_ROBOTS_BYTES - 1_000)));
        assert!(!batch.put_robots("b", robots(1_000)));
        assert!(batch.put_robots("a", robots(10)), "replacing gives the old bytes back");
        assert!(batch.put_robots("b", robots(1_000)));
        assert!(!batch.put_robots("b", robots(MOST_ROBOTS_BYTES)), "growing takes room too");
    }
}
