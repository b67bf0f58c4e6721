//! Keeps the file within its bounds, a slice at a time.
//!
//! Hosts on disk follow the index: a host that is not in memory (too old, or no room) is deleted from the file. So
//! there is one rule about what is worth keeping, and nothing stays on disk that would never be looked up.

use std::time::Duration;

use super::database::Database;
use super::index::Index;
use super::retention::Retention;

/// The progress of a round through all records. Cheap checks run in every slice; those that read all rows run only once
/// a round.
#[derive(Debug, Default)]
pub(super) struct Tidy {
    next_round_us: u64,
    /// The last host looked at; None when the hosts are done.
    after: Option<Box<str>>,
    /// There may be more robots.txt copies that are of no use.
    stale: bool,
}

impl Tidy {
    /// Does a slice of the work; returns how long to wait before the next.
    pub(super) fn slice(
        &mut self,
        database: &mut Database,
        index: &Index,
        keep: &Retention,
        now_us: u64,
    ) -> rusqlite::Result<Duration> {
        if now_us >= self.next_round_us || is_crowded(index, keep) {
            self.next_round_us = now_us + EVERY.as_micros() as u64;
            (self.after, self.stale) = (Some("".into()), true);
            index.take_evicted();
            index.retain(|record| keep.matters(record, now_us));
            database.prune_jobs(keep.jobs, now_us)?;
        }
        if let Some(after) = self.after.take() {
            self.after = follow(database, index, &after)?;
        }
        if self.stale {
            self.stale = database.prune_stale_robots(now_us, ROBOTS)?;
        }
        let more_robots = database.prune_oldest_robots(keep.robots_bytes, ROBOTS)?;
        let more_pages = database.shrink(PAGES)?;
        let more = self.after.is_some() || self.stale || more_robots || more_pages;
        Ok(if more { SOON } else { Duration::from_micros(self.next_round_us - now_us) })
    }
}

/// Whether so many hosts were dropped from memory that a round is worth while.
pub(super) fn is_crowded(index: &Index, keep: &Retention) -> bool {
    index.evicted() > keep.hosts / 8
}

/// Deletes those of the next hosts after this one that are no longer in memory; returns where to continue.
fn follow(database: &mut Database, index: &Index, after: &str) -> rusqlite::Result<Option<Box<str>>> {
    let keys = database.host_keys(after, HOSTS)?;
    let gone: Vec<&str> = keys.iter().map(|key| &**key).filter(|key| !index.contains(key)).collect();
    if !gone.is_empty() {
        database.transaction(|writer| gone.iter().try_for_each(|key| writer.host(key, None)))?;
    }
    Ok(if keys.len() == HOSTS { keys.into_iter().next_back() } else { None })
}

/// Delay after a start, when other work is more important.
pub(super) const FIRST: Duration = Duration::from_secs(5);
/// In ten minutes nothing grows much without being noticed at once.
pub(super) const EVERY: Duration = Duration::from_secs(600);
/// Time between two slices, so that writes get in between and the disk is not busy all the time.
pub(super) const SOON: Duration = Duration::from_millis(20);

// Sizes of a slice, each well under 100 ms.
const HOSTS: usize = 10_000;
const ROBOTS: usize = 500;
const PAGES: u32 = 1_024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::pending::Batch;
    use crate::store::record::{HostRecord, JobRecord, RobotsRecord};

    const NOW: u64 = 1_000_000_000;

    struct Bench {
        directory: tempfile::TempDir,
        database: Database,
        index: Index,
        keep: Retention,
    }

    impl Bench {
        fn new(keep: Retention) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (database, _) = Database::open(&directory.path().join("state.db")).unwrap();
            Bench { directory, database, index: Index::new(keep.hosts), keep }
        }

        fn put(&mut self, key: &str, record: HostRecord) {
            self.index.put(key, &record, NOW);
            self.write(|batch| batch.put_host(key, Some(record)));
        }

        fn write(&mut self, change: impl FnOnce(&mut Batch) -> bool) {
            let mut batch = Batch::default();
            assert!(change(&mut batch));
            self.database.write(&batch).unwrap();
        }

        /// Tidies slice by slice, to the end.
        fn tidy(&mut self) {
            let mut tidy = Tidy::default();
            while tidy.slice(&mut self.database, &self.index, &self.keep, NOW).unwrap() == SOON {}
        }

        fn hosts(&self) -> Vec<String> {
            let keys = self.database.host_keys("", 1_000_000).unwrap();
            keys.into_iter().map(String::from).collect()
        }

        fn megabytes(&self) -> u64 {
            self.database.settle().unwrap();
            self.directory.path().join("state.db").metadata().unwrap().len() >> 20
        }
    }

    fn learned(updated_us: u64) -> HostRecord {
        HostRecord { learned_ms: 1, updated_us, ..HostRecord::default() }
    }

    fn copy(bytes: usize, fetched_us: u64, stale_until_us: u64) -> Option<RobotsRecord> {
        Some(RobotsRecord { body: vec![b'x'; bytes], fetched_us, stale_until_us, ..RobotsRecord::default() })
    }

    #[test]
    fn what_no_longer_matters_goes_from_memory_and_disk() {
        let mut bench = Bench::new(Retention { remember: Duration::from_secs(10), ..Retention::default() });
        bench.put("old.example", learned(NOW - 10_000_000));
        bench.put("young.example", learned(NOW - 9_999_999));
        bench.tidy();
        assert_eq!(bench.hosts(), ["young.example"]);
        assert_eq!(bench.index.len(), 1);
    }

    #[test]
    fn hosts_on_disk_are_no_more_than_in_memory() {
        let mut bench = Bench::new(Retention { hosts: 80, ..Retention::default() });
        for n in 0..200 {
            bench.put(&format!("{n}.example"), learned(NOW + n));
        }
        assert_eq!(bench.hosts().len(), 200);
        bench.tidy();
        assert!((60..=80).contains(&bench.hosts().len()), "{}", bench.hosts().len());
        assert!(bench.hosts().iter().all(|key| bench.index.contains(key)));
        assert!(bench.hosts().contains(&"199.example".to_owned()));
    }

    #[test]
    fn a_round_goes_through_all_slices() {
        let mut bench = Bench::new(Retention::default());
        let count = 2 * HOSTS + 1;
        bench.write(|batch| (0..count).all(|n| batch.put_host(&format!("{n}.example"), Some(learned(1)))));
        bench.tidy();
        assert_eq!(bench.hosts().len(), 0, "none of them is in memory");
    }

    #[test]
    fn between_rounds_only_the_cheap_things_are_looked_at() {
        let mut bench = Bench::new(Retention { robots_bytes: 1 << 20, ..Retention::default() });
        let mut tidy = Tidy::default();
        let mut slice =
            |bench: &mut Bench, now| tidy.slice(&mut bench.database, &bench.index, &bench.keep, now).unwrap();
        assert_eq!(slice(&mut bench, NOW), EVERY);
        bench.write(|batch| batch.put_host("forgotten.example", Some(learned(1))));
        bench.write(|batch| (0..20).all(|n| batch.put_robots(&n.to_string(), copy(100_000, n, u64::MAX))));
        while slice(&mut bench, NOW + 1_000_000) == SOON {}
        assert_eq!(bench.database.robots("0").unwrap(), None);
        assert_eq!(bench.hosts().len(), 1);
        assert_eq!(slice(&mut bench, NOW + 600_000_000), EVERY);
        assert_eq!(bench.hosts().len(), 0);
    }

    #[test]
    fn robots_copies_stay_within_their_bytes_and_the_oldest_go() {
        let mut bench = Bench::new(Retention { robots_bytes: 1 << 20, ..Retention::default() });
        for n in 0..20 {
            bench.write(|batch| batch.put_robots(&format!("https://{n}.example"), copy(100_000, n, u64::MAX)));
        }
        bench.tidy();
        let there = |n: u64| bench.database.robots(&format!("https://{n}.example")).unwrap().is_some();
        assert!((0..10).all(|n| !there(n)), "the oldest go");
        assert!((11..20).all(there), "nine fit, with room for a little more");
    }

    #[test]
    fn robots_copies_that_are_of_no_use_go() {
        let mut bench = Bench::new(Retention::default());
        bench.write(|batch| batch.put_robots("https://old.example", copy(1, 1, NOW)));
        bench.write(|batch| batch.put_robots("https://young.example", copy(1, 1, NOW + 1)));
        bench.tidy();
        assert_eq!(bench.database.robots("https://old.example").unwrap(), None);
        assert!(bench.database.robots("https://young.example").unwrap().is_some());
    }

    #[test]
    fn jobs_that_are_over_or_too_many_go() {
        let mut bench = Bench::new(Retention { jobs: 2, ..Retention::default() });
        for (client, since_us, until_us) in [("over", 9, NOW), ("a", 1, 0), ("b", 2, 0), ("c", 3, NOW + 1)] {
            let record = JobRecord { since_us, until_us, ..JobRecord::default() };
            bench.write(|batch| batch.put_job(client, Some(record)));
        }
        bench.tidy();
        let clients: Vec<String> = bench.database.jobs(10).unwrap().into_iter().map(|(client, _)| client).collect();
        assert_eq!(clients, ["c", "b"]);
    }

    #[test]
    fn the_file_shrinks_again() {
        let mut bench = Bench::new(Retention { robots_bytes: 1 << 20, ..Retention::default() });
        bench.write(|batch| {
            (0..100).all(|n| batch.put_robots(&format!("https://{n}.example"), copy(150_000, n, u64::MAX)))
        });
        assert!(bench.megabytes() >= 14);
        bench.tidy();
        assert!(bench.megabytes() <= 3, "{}", bench.megabytes());
    }
}
