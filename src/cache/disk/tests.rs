//! Stores, restarts, damages, fills and kills.

mod damage;
mod disks;
mod eviction;
mod kill;
mod large;

use std::path::Path;

use http::{HeaderMap, HeaderValue, StatusCode};

use super::*;
use crate::cache::EntryTerms;
use crate::politeness::reuse::policy::{CacheTime, ReusePolicy};
use crate::politeness::reuse::selecting::Selecting;
use crate::politeness::time::Timestamp;
use crate::politeness::{HostKey, Origin, Scheme};
use crate::store::tests::child;

const LIMIT: u64 = 64 * 1024 * 1024;
/// Longer than a busy machine needs for what a test waits for.
const PATIENT: Duration = Duration::from_secs(60);

fn key(path: &str) -> CacheKey {
    key_of("example.com", path)
}

fn key_of(host: &str, path: &str) -> CacheKey {
    let origin = Origin { scheme: Scheme::Http, host: HostKey::parse(host).unwrap(), port: 80 };
    CacheKeyRef::new(&origin, path, "").to_key()
}

fn terms() -> EntryTerms {
    let received = CacheTime::both(Timestamp::from_micros(1_795_000_000_000_000));
    let policy = ReusePolicy { received, lifetime: 60, ..ReusePolicy::default() };
    EntryTerms { policy, address: Some("127.0.0.1".parse().unwrap()), ..EntryTerms::default() }
}

fn entry(body: &[u8]) -> Arc<Entry> {
    let mut headers = HeaderMap::new();
    headers.insert("etag", HeaderValue::from_static("\"1\""));
    headers.insert("content-type", HeaderValue::from_static("text/html"));
    Arc::new(Entry::new(StatusCode::OK, &headers, body, terms()))
}

fn tier(directory: &Path) -> DiskTier {
    tier_of(directory, LIMIT)
}

/// A tier that has read its catalogue.
fn tier_of(directory: &Path, limit: u64) -> DiskTier {
    let tier = DiskTier::start(directory, limit).unwrap();
    wait_for(|| tier.status().is_loaded || tier.status().trouble.is_some());
    tier
}

fn wait_for(mut done: impl FnMut() -> bool) {
    let deadline = clock::now() + PATIENT;
    while !done() {
        assert!(clock::now() < deadline, "it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the writer has done everything that was queued.
fn settle(tier: &DiskTier) {
    let (answer, answered) = oneshot::channel();
    assert!(tier.shared.queue.push(DiskJob::Flush(answer)));
    answered.blocking_recv().unwrap();
}

fn close(tier: &DiskTier) {
    assert!(tier.close(PATIENT));
}

/// Reads without a deadline, so that a slow machine does not make it a miss.
fn read(tier: &DiskTier, key: &CacheKey) -> Option<Entry> {
    let key = key.borrowed();
    let copies = tier
        .find(&key)
        .into_iter()
        .filter_map(|place| reader::copy(&tier.shared, &mut None, place, (&url(&key), key.partition)));
    copies.into_iter().next()
}

fn whole(tier: &DiskTier, key: &CacheKey) -> Option<Entry> {
    read(tier, key).inspect(|entry| assert!(entry.large().is_none(), "it is large"))
}

fn body(tier: &DiskTier, key: &CacheKey) -> Option<Vec<u8>> {
    whole(tier, key).map(|entry| entry.body().concat())
}

#[test]
fn an_answer_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    first.put(key("/a"), entry(b"hello"));
    settle(&first);
    for restarted in [false, true] {
        if restarted {
            close(&first);
        }
        let second = if restarted { Some(tier(directory.path())) } else { None };
        let tier = second.as_ref().unwrap_or(&first);
        let found = whole(tier, &key("/a")).unwrap();
        assert_eq!(found.terms, terms());
        assert_eq!((found.status(), found.field("etag")), (StatusCode::OK, Some(&b"\"1\""[..])));
        assert_eq!(found.body().concat(), b"hello");
        assert!(read(tier, &key("/b")).is_none());
        assert_eq!(tier.status().objects, 1);
    }
}

#[tokio::test]
async fn requests_read_through_a_thread() {
    let directory = tempfile::tempdir().unwrap();
    let tier = DiskTier::start(directory.path(), LIMIT).unwrap();
    tier.put(key("/a"), entry(b"hello"));
    assert!(tier.flush().await);
    let key = key("/a");
    loop {
        let place = tier.find(&key.borrowed())[0];
        // A busy machine may make it late, and a late copy is a miss.
        if let Some(entry) = tier.read(&key.borrowed(), place).await {
            assert_eq!(entry.body().concat(), b"hello");
            break;
        }
        assert!(tier.status().counts.late > 0);
    }
}

#[test]
fn variants_and_partitions_are_kept_apart() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier(directory.path());
    let variant = |values: &[u8]| {
        let selecting = Selecting { vary: "accept".into(), values: values.into() };
        let terms = EntryTerms { selecting, ..terms() };
        Arc::new(Entry::new(StatusCode::OK, &HeaderMap::new(), values, terms))
    };
    for values in [&b"accept: a\n"[..], b"accept: b\n", b"accept: a\n"] {
        tier.put(key("/"), variant(values));
    }
    let mine = CacheKeyRef::new(&key("/").origin, "/", "mine").to_key();
    tier.put(mine.clone(), entry(b"mine"));
    settle(&tier);
    assert_eq!((tier.find(&key("/").borrowed()).len(), tier.status().objects), (2, 3));
    assert_eq!(body(&tier, &key("/")).unwrap(), b"accept: a\n", "the newest is first");
    assert_eq!(body(&tier, &mine).unwrap(), b"mine");
    tier.forget_like(&key("/").borrowed(), &variant(b"accept: a\n"));
    assert_eq!(body(&tier, &key("/")).unwrap(), b"accept: b\n");
}

#[test]
fn a_validation_replaces_the_head_and_keeps_the_body() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    let old = entry(b"hello");
    first.put(key("/a"), old.clone());
    settle(&first);
    let mut headers = old.headers();
    headers.insert("x-new", HeaderValue::from_static("yes"));
    let mut newer = terms();
    newer.policy.lifetime = 3_600;
    first.refresh(key("/a"), Arc::new(old.refreshed(&headers, newer.clone())));
    settle(&first);
    let is_new = |tier: &DiskTier| {
        let found = whole(tier, &key("/a")).unwrap();
        assert_eq!((found.field("x-new"), &found.terms), (Some(&b"yes"[..]), &newer));
        assert_eq!(found.body().concat(), b"hello");
    };
    is_new(&first);
    close(&first);
    let second = tier(directory.path());
    is_new(&second);
    assert_eq!(second.status().objects, 1, "it was not stored twice");
}

#[test]
fn what_is_forgotten_stays_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    first.put(key("/a"), entry(b"a"));
    first.put(key("/b"), entry(b"b"));
    settle(&first);
    assert_eq!(first.forget(&key("/a").borrowed()), 1);
    assert!(read(&first, &key("/a")).is_none());
    // Before the writer has seen it, or after: in both cases it must not come back.
    first.put(key("/c"), entry(b"c"));
    first.forget(&key("/c").borrowed());
    first.put(key("/d"), entry(b"old"));
    first.forget(&key("/d").borrowed());
    first.put(key("/d"), entry(b"new"));
    settle(&first);
    for restarted in [false, true] {
        if restarted {
            close(&first);
        }
        let second = if restarted { Some(tier(directory.path())) } else { None };
        let tier = second.as_ref().unwrap_or(&first);
        let found = ["/a", "/b", "/c", "/d"].map(|path| body(tier, &key(path)));
        assert_eq!(found, [None, Some(b"b".to_vec()), None, Some(b"new".to_vec())]);
    }
}

#[test]
fn people_forget_a_url_a_host_or_everything() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    for host in ["a.example", "b.example"] {
        for path in ["/1", "/2", "/3"] {
            first.put(key_of(host, path), entry(b"x"));
        }
    }
    let purge = |tier: &DiskTier, what| {
        let (answer, answered) = oneshot::channel();
        assert!(tier.shared.queue.push(DiskJob::Purge(what, answer)));
        answered.blocking_recv().unwrap()
    };
    assert_eq!(purge(&first, Purge::Url("http://a.example/1".to_owned())), 1);
    assert_eq!(purge(&first, Purge::Host("b.example".to_owned())), 3);
    close(&first);
    let second = tier(directory.path());
    assert_eq!(second.status().objects, 2);
    assert_eq!(purge(&second, Purge::All), 2);
    assert!(files::segments(directory.path()).unwrap().is_empty(), "the bytes are gone");
    assert!(read(&second, &key_of("a.example", "/2")).is_none());
    second.put(key("/"), entry(b"again"));
    settle(&second);
    assert_eq!(body(&second, &key("/")).unwrap(), b"again");
}

/// C18: times of a process with another clock cannot be compared.
#[test]
fn after_the_clock_was_set_every_answer_is_doubtful_once() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    first.put(key("/a"), entry(b"a"));
    first.put(key("/b"), entry(b"b"));
    close(&first);
    let Some((id, at)) = clock::boot() else { return };
    let day_before = at.as_millis() - 24 * 3600 * 1000;
    std::fs::write(directory.path().join(files::LOCK), format!("settled {id} {day_before}\n")).unwrap();
    let is_doubtful = |tier: &DiskTier, path: &str| whole(tier, &key(path)).unwrap().terms.policy.flags.doubtful;
    let second = tier(directory.path());
    assert!(is_doubtful(&second, "/a") && is_doubtful(&second, "/b"));
    second.refresh(key("/a"), entry(b"a"));
    close(&second);
    let third = tier(directory.path());
    assert!(!is_doubtful(&third, "/a") && is_doubtful(&third, "/b"), "a restart settles nothing");
}

#[test]
fn what_is_larger_than_the_queue_is_skipped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier(directory.path());
    tier.put(key("/a"), entry(&vec![0; 33 * 1024 * 1024]));
    settle(&tier);
    assert_eq!((tier.status().objects, tier.status().counts.skipped), (0, 1));
}

/// C57: what is written to disk, counted by the kernel, compared with head and body of what is stored.
#[test]
fn little_more_is_written_than_what_is_stored() {
    for (size, count, most) in [(1_024, 20_000_u64, 1.5), (64 * 1_024, 800, 1.02)] {
        let directory = tempfile::tempdir().unwrap();
        let (shared, _start) = DiskShared::new(directory.path(), 1 << 30, DiskListener::new(|_| ())).unwrap();
        let folder = open::open(directory.path(), 1 << 30, &shared.index).unwrap();
        let mut writer = writer::DiskWriter::new(shared, folder);
        let mut headers = HeaderMap::new();
        for (name, value) in USUAL_FIELDS {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        let entry = Arc::new(Entry::new(StatusCode::OK, &headers, &vec![b'x'; size], terms()));
        let (payload, before) = (entry.head().len() as u64 + entry.length(), written_by_this_thread());
        for number in 1..=count {
            writer.job(number, DiskJob::Put(key(&format!("/catalogue/page-{number}.html")), entry.clone()));
            // As often as once a second, where a busy host is crawled.
            if number % 1_000 == 0 {
                writer.commit().unwrap();
            }
        }
        let ratio = (written_by_this_thread() - before) as f64 / (count * payload) as f64;
        println!("{size} bytes: written {ratio:.3} times");
        assert!(ratio <= most, "{size} bytes: {ratio}");
    }
}

const USUAL_FIELDS: &[(&str, &str)] = &[
    ("date", "Wed, 18 Nov 2026 09:55:43 GMT"),
    ("server", "nginx"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-length", "1024"),
    ("last-modified", "Tue, 17 Nov 2026 09:55:43 GMT"),
    ("etag", "\"5f3c6a2b-400\""),
    ("cache-control", "public, max-age=3600"),
    ("vary", "Accept-Encoding"),
    ("accept-ranges", "bytes"),
];

fn written_by_this_thread() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/io").unwrap();
    text.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap().parse().unwrap()
}
