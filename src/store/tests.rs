//! The store as a whole: what is put into it is still there after a restart, within its bounds.

pub(crate) mod child;
mod damage;
mod disks;
mod kill;
mod moving;

use std::path::Path;
use std::time::Duration;

use super::*;

/// Longer than any operation takes, so that reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(30);

impl Store {
    fn delete_host(&self, key: &str) {
        self.index.remove(key);
        self.put(Haste::Usual, |batch| batch.put_host(key, None));
    }

    fn delete_robots(&self, origin: &str) {
        self.put(Haste::Usual, |batch| batch.put_robots(origin, None));
    }
}

fn open(directory: &Path) -> (Store, OpenedStore) {
    Store::open(directory, Retention::default()).unwrap()
}

fn close(store: &Store) {
    store.close(PATIENCE).unwrap();
}

/// A host whose delay of this many milliseconds was learned just now.
fn learned(ms: u32) -> HostRecord {
    HostRecord { learned_ms: ms, updated_us: clock::micros(), ..HostRecord::default() }
}

fn robots(text: &str) -> RobotsRecord {
    let now = clock::micros();
    RobotsRecord {
        state: "found".into(),
        body: text.into(),
        etag: Some("\"1\"".into()),
        last_modified: None,
        fetched_us: now,
        fresh_until_us: now + 1_000_000,
        stale_until_us: now + 3_600_000_000,
    }
}

#[tokio::test]
async fn everything_put_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("state");
    let (store, opened) = open(&directory);
    assert_eq!(opened, OpenedStore { new: true, ..OpenedStore::default() });
    let host = HostRecord {
        floor_ms: 2,
        floor_ttl_ms: 3,
        floor_until_us: 4,
        last_sent_us: 6,
        held_until_us: u64::MAX >> 1,
        paused: true,
        paused_until_us: u64::MAX >> 2,
        overrides: StoredOverrides { delay_ms: Some(0), burst: Some(u32::MAX), concurrency: None },
        ..learned(1_500)
    };
    let copy = robots("User-agent: *\nDisallow: /\n\u{0}\u{fffd}");
    let job = JobRecord { reason: "status 503".into(), failures: 20, since_us: 1, until_us: 0 };
    store.put_host("a.example", host);
    store.put_robots("https://a.example", copy.clone());
    store.put_job("spider", job.clone());
    close(&store);

    let (store, opened) = open(&directory);
    assert_eq!(opened, OpenedStore { hosts: 1, jobs: vec![("spider".into(), job)], ..OpenedStore::default() });
    assert_eq!(store.host("a.example"), Some(host));
    assert_eq!(store.robots("https://a.example").await, Some(copy));
    assert_eq!(store.robots("https://b.example").await, None);
}

#[test]
fn whatever_people_set_is_remembered_though_nothing_else_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    let set = |overrides| HostRecord { overrides, ..HostRecord::default() };
    let none = StoredOverrides::default();
    let steered = [
        ("paused.example", HostRecord { paused: true, ..HostRecord::default() }),
        ("for-now.example", HostRecord { paused_until_us: u64::MAX >> 1, ..HostRecord::default() }),
        ("delay.example", set(StoredOverrides { delay_ms: Some(0), ..none })),
        ("burst.example", set(StoredOverrides { burst: Some(0), ..none })),
        ("concurrency.example", set(StoredOverrides { concurrency: Some(0), ..none })),
    ];
    for (key, record) in steered {
        store.put_host(key, record);
    }
    store.put_host("nothing.example", HostRecord::default());
    close(&store);
    let (store, opened) = open(directory.path());
    assert_eq!(opened.hosts, steered.len());
    for (key, record) in steered {
        assert_eq!(store.host(key), Some(record), "{key}");
    }
}

#[tokio::test]
async fn what_is_deleted_stays_away() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().join("state");
    let (store, _) = open(&directory);
    store.put_host("a.example", learned(1));
    store.put_robots("https://a.example", robots(""));
    store.put_job("spider", JobRecord::default());
    store.flush(PATIENCE).unwrap();
    store.delete_host("a.example");
    store.delete_robots("https://a.example");
    store.delete_job("spider");
    assert_eq!(store.host("a.example"), None);
    assert_eq!(store.robots("https://a.example").await, None);
    close(&store);
    let (store, opened) = open(&directory);
    assert_eq!(opened, OpenedStore::default());
    assert_eq!(store.robots("https://a.example").await, None);
}

#[tokio::test]
async fn a_change_is_seen_before_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.put_host("a.example", learned(1));
    store.put_host("a.example", learned(2));
    store.put_robots("https://a.example", robots("new"));
    assert_eq!(store.host("a.example").map(|host| host.learned_ms), Some(2));
    assert_eq!(store.robots("https://a.example").await.map(|copy| copy.body), Some(b"new".to_vec()));
}

#[test]
fn changes_are_written_without_a_waiting_caller() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.put_host("a.example", learned(7));
    let deadline = clock::now() + PATIENCE;
    while store.health().is_none_or(|health| health.written_at_us == 0) {
        assert!(clock::now() < deadline);
        std::thread::yield_now();
    }
    let hosts = Database::reader(&directory.path().join("state.db")).unwrap().hosts_after("", 10).unwrap();
    let seen: Vec<_> = hosts.iter().map(|(key, record)| (key.as_str(), record.learned_ms)).collect();
    assert_eq!(seen, [("a.example", 7)]);
}

#[tokio::test]
async fn a_store_in_memory_remembers_hosts_and_keeps_nothing() {
    let store = Store::memory(Retention::default());
    store.put_host("a.example", learned(1));
    store.put_robots("https://a.example", robots(""));
    assert!(store.host("a.example").is_some());
    assert_eq!(store.robots("https://a.example").await, None);
    assert_eq!((store.health(), store.flush(PATIENCE), store.close(PATIENCE)), (None, Ok(()), Ok(())));
}

#[test]
fn hosts_that_no_longer_matter_are_not_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.put_host("old.example", HostRecord { updated_us: 1, ..learned(1) });
    store.put_host("new.example", learned(1));
    close(&store);
    let (store, opened) = open(directory.path());
    assert_eq!(opened.hosts, 1);
    assert_eq!(store.host("old.example"), None);
}

#[test]
fn a_dropped_store_lets_go_of_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    store.put_host("a.example", learned(1));
    drop(store);
    let deadline = clock::now() + PATIENCE;
    let (_, opened) = loop {
        match Store::open(directory.path(), Retention::default()) {
            Ok(opened) => break opened,
            Err(StoreError::Held { .. }) if clock::now() < deadline => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(opened.hosts, 1, "and wrote what it had");
}

#[test]
fn only_its_owner_may_read_the_file() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let (_store, _) = open(directory.path());
    for file in ["state.db", "state.db-wal", "lock"] {
        let mode = std::fs::metadata(directory.path().join(file)).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file}");
    }
}

/// X43: a directory that curtsy creates is private; one that the operator made wider stays so, and is reported.
#[test]
fn only_its_owner_may_look_into_a_directory_that_curtsy_made() {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/state");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (store, opened) = open(&path);
    assert_eq!((mode(&path), mode(&directory.path().join("deep")), opened.exposed), (0o700, 0o700, None));
    close(&store);
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    assert_eq!((open(&path).1.exposed, mode(&path)), (Some(0o755), 0o755));
}

/// Times in the file are moved with the clock: none that matters is lost, and none becomes longer.
#[tokio::test]
async fn a_clock_that_was_set_moves_every_time() {
    const DAY_US: i64 = 86_400_000_000;
    for (step, killed) in [(DAY_US, false), (-DAY_US, true)] {
        let directory = tempfile::tempdir().unwrap();
        let (store, _) = open(directory.path());
        let now = clock::micros();
        let host = HostRecord { held_until_us: now + 20_000_000, last_sent_us: now, paused_until_us: 0, ..learned(5) };
        let (copy, job) = (robots(""), JobRecord { since_us: now, until_us: 0, ..JobRecord::default() });
        store.put_host("a.example", host);
        store.put_host("far.example", HostRecord { held_until_us: u64::MAX >> 1, ..learned(1) });
        store.put_robots("https://a.example", copy.clone());
        store.put_job("spider", job.clone());
        close(&store);
        // As if the previous process had used a clock that was set by `step` since.
        let lock = directory.path().join("lock");
        let text = std::fs::read_to_string(&lock).unwrap();
        let [word, id, ms] = text.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{text}") };
        let (word, ms) = (if killed { "4711" } else { word }, ms.parse::<i64>().unwrap() - step / 1_000);
        std::fs::write(&lock, format!("{word} {id} {ms}\n")).unwrap();

        let (store, opened) = open(directory.path());
        assert!(opened.unsettled && (opened.clock_step_us - step).abs() < 1_000_000, "{opened:?}");
        let moved = |at: u64| at.saturating_add_signed(opened.clock_step_us);
        let found = store.host("a.example").unwrap();
        assert_eq!((found.held_until_us, found.last_sent_us), (moved(host.held_until_us), moved(host.last_sent_us)));
        assert_eq!((found.updated_us, found.paused_until_us), (moved(host.updated_us), 0));
        let found = store.robots("https://a.example").await.unwrap();
        assert_eq!(found.fresh_until_us, moved(copy.fresh_until_us));
        assert_eq!(opened.jobs, [("spider".to_owned(), JobRecord { since_us: moved(job.since_us), ..job })]);
        close(&store);
        let (_, opened) = open(directory.path());
        assert_eq!((opened.clock_step_us, opened.unsettled), (0, false), "they are moved once");
    }
}
