//! The folder stays within its limit, and keeps what is used.

use super::*;

const SMALL_LIMIT: u64 = 4 * 1024 * 1024;

fn size(directory: &Path) -> u64 {
    let files = |folder: &Path| {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
        entries.filter(|file| file.is_file()).map(|file| file.len()).sum::<u64>()
    };
    files(directory) + files(&directory.join("large"))
}

/// C56
#[test]
fn the_limit_holds_and_what_was_read_stays() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier_of(directory.path(), SMALL_LIMIT);
    let hot = key("/hot");
    tier.put(hot.clone(), entry(b"hot"));
    tier.put(key("/cold"), entry(b"cold"));
    for n in 0..4_000_u32 {
        tier.put(key(&format!("/{n}")), entry(&vec![n as u8; 4_000]));
        if n % 100 == 0 {
            settle(&tier);
            assert!(body(&tier, &hot).is_some(), "what is used was evicted after {n}");
            let size = size(directory.path());
            assert!(size <= SMALL_LIMIT + SMALL_LIMIT / 10, "{size} bytes after {n}");
            assert!(tier.status().bytes <= SMALL_LIMIT + SMALL_LIMIT / 10);
        }
    }
    settle(&tier);
    assert!(body(&tier, &key("/cold")).is_none());
    let status = tier.status();
    assert!(status.counts.evicted > 2_000, "{status:?}");
    assert_eq!(status.objects + status.counts.evicted, 4_002);
    close(&tier);
    let tier = tier_of(directory.path(), SMALL_LIMIT);
    assert_eq!((body(&tier, &hot).unwrap(), tier.status().objects), (b"hot".to_vec(), status.objects));
}

/// C56: what is used in memory is never read from disk, and must be there after a restart all the same.
#[test]
fn what_is_used_in_memory_stays_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let cache = crate::cache::Cache::with_disk(64 << 20, Some(tier_of(directory.path(), SMALL_LIMIT)));
    let disk = cache.disk.as_ref().unwrap();
    for (path, is_used) in [("/hot", true), ("/cold", false)] {
        let entry = entry(path.as_bytes());
        cache.store(&key(path), entry.clone(), Default::default()).unwrap();
        if is_used {
            entry.count_hit();
        }
    }
    for n in 0..4_000_u32 {
        disk.put(key(&format!("/{n}")), entry(&vec![n as u8; 4_000]));
        if n % 100 == 0 {
            settle(disk);
        }
    }
    settle(disk);
    assert_eq!(disk.find(&key("/hot").borrowed()).len(), 1);
    assert!(disk.find(&key("/cold").borrowed()).is_empty(), "it was not used");
}

#[test]
fn a_lower_limit_holds_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    for n in 0..100_u32 {
        first.put(key(&format!("/{n}")), entry(&vec![n as u8; 400_000]));
        settle(&first);
    }
    close(&first);
    assert!(size(directory.path()) > 8 * SMALL_LIMIT);
    let second = tier_of(directory.path(), SMALL_LIMIT);
    assert!(second.status().bytes <= SMALL_LIMIT);
    assert!(size(directory.path()) <= SMALL_LIMIT + SMALL_LIMIT / 10);
}

#[test]
fn a_large_answer_that_was_read_outlives_newer_ones() {
    let directory = tempfile::tempdir().unwrap();
    let limit = 16 * 1024 * 1024;
    let tier = tier_of(directory.path(), limit);
    let large = |n: u8| entry(&vec![n; 2 * 1024 * 1024]);
    let hot = key("/hot");
    tier.put(hot.clone(), large(255));
    for n in 0..20_u8 {
        tier.put(key(&format!("/{n}")), large(n));
        settle(&tier);
        assert!(read(&tier, &hot).is_some_and(|entry| entry.large().is_some()), "evicted after {n}");
        assert!(size(directory.path()) <= limit + limit / 10);
    }
    assert!(read(&tier, &key("/0")).is_none());
}

#[test]
fn a_segment_without_answers_is_deleted_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let tier = tier_of(directory.path(), SMALL_LIMIT);
    for n in 0..300_u32 {
        tier.put(key(&format!("/{n}")), entry(&vec![1; 4_000]));
    }
    settle(&tier);
    let before = files::segments(directory.path()).unwrap().len();
    for n in 0..300_u32 {
        tier.forget(&key(&format!("/{n}")).borrowed());
    }
    settle(&tier);
    let after = files::segments(directory.path()).unwrap().len();
    assert!(before > 1 && after <= 1, "{before} segments, then {after}");
}
