//! Files and catalogues that are not as they were written: a doubtful copy is a miss, and never a wrong body.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::store::StoreFault;

fn filled(directory: &Path) -> usize {
    let tier = tier(directory);
    for n in 0..OBJECTS {
        tier.put(key(&format!("/{n}")), entry(&content(n)));
    }
    close(&tier);
    OBJECTS
}

const OBJECTS: usize = 20;

fn content(n: usize) -> Vec<u8> {
    format!("content of {n} ").repeat(n + 1).into_bytes()
}

/// Checks that every body is right or missing, and returns how many there are.
fn right(tier: &DiskTier) -> usize {
    let found = (0..OBJECTS).filter_map(|n| body(tier, &key(&format!("/{n}"))).map(|body| (n, body)));
    found.inspect(|(n, body)| assert_eq!(*body, content(*n), "a wrong body for {n}")).count()
}

/// C53
#[test]
fn flipped_bits_are_found() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let segment = directory.path().join("000001.warc");
    let good = fs::read(&segment).unwrap();
    let mut dice = fastrand::Rng::with_seed(1);
    for _ in 0..40 {
        let mut bad = good.clone();
        let at = dice.usize(..bad.len());
        bad[at] ^= 1 << dice.u8(..8);
        fs::write(&segment, &bad).unwrap();
        let tier = tier(directory.path());
        let (found, damaged) = (right(&tier), tier.status().counts.damaged);
        assert!(found >= OBJECTS - 1, "one bit cost {} answers", OBJECTS - found);
        assert_eq!(OBJECTS - found, damaged as usize);
        close(&tier);
        // The next round begins with everything.
        fs::remove_dir_all(directory.path()).unwrap();
        filled(directory.path());
    }
}

#[test]
fn a_segment_that_was_cut_costs_what_was_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let segment = directory.path().join("000001.warc");
    let half = segment.metadata().unwrap().len() / 2;
    fs::File::options().write(true).open(&segment).unwrap().set_len(half).unwrap();
    let tier = tier(directory.path());
    let found = right(&tier);
    assert!(found > 0 && found < OBJECTS, "{found}");
    assert_eq!(tier.status().objects, found as u64);
    tier.put(key("/new"), entry(b"new"));
    settle(&tier);
    assert_eq!((body(&tier, &key("/new")).unwrap(), right(&tier)), (b"new".to_vec(), found));
}

/// Bytes behind the last row are from a process that was killed before it catalogued them.
#[test]
fn bytes_that_are_not_in_the_catalogue_are_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let segment = directory.path().join("000001.warc");
    let good = fs::read(&segment).unwrap();
    fs::write(&segment, [&good[..], b"WARC/1.1\r\ntorn"].concat()).unwrap();
    fs::write(directory.path().join("000007.warc"), "nobody knows me").unwrap();
    fs::write(directory.path().join("large/000008.warc"), "nor me").unwrap();
    let tier = tier(directory.path());
    assert_eq!((right(&tier), fs::read(&segment).unwrap()), (OBJECTS, good));
    assert_eq!(files::segments(directory.path()).unwrap().len(), 1);
    tier.put(key("/new"), entry(b"new"));
    settle(&tier);
    assert_eq!((right(&tier), body(&tier, &key("/new")).unwrap()), (OBJECTS, b"new".to_vec()));
}

#[test]
fn a_segment_that_is_gone_is_a_miss() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    fs::remove_file(directory.path().join("000001.warc")).unwrap();
    let tier = tier(directory.path());
    assert_eq!((right(&tier), tier.status().objects), (0, 0));
}

/// The catalogue says that a URL is where another one is.
#[test]
fn a_row_that_points_to_another_url_is_a_miss() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let rows = rusqlite::Connection::open(directory.path().join("cache.db")).unwrap();
    let swap = "UPDATE entry SET (offset, length, head_length) = (SELECT offset, length, head_length FROM entry
                WHERE url LIKE '%/3') WHERE url LIKE '%/5'";
    assert_eq!(rows.execute(swap, []).unwrap(), 1);
    let shifted = "UPDATE entry SET offset = offset + 1 WHERE url LIKE '%/7'";
    assert_eq!(rows.execute(shifted, []).unwrap(), 1);
    drop(rows);
    assert_eq!(right(&tier(directory.path())), OBJECTS - 2);
}

#[test]
fn a_damaged_catalogue_is_begun_anew() {
    for broken in ["no catalogue at all, but long enough to look like one".repeat(100).into_bytes(), vec![0; 8192]] {
        let directory = tempfile::tempdir().unwrap();
        filled(directory.path());
        fs::write(directory.path().join("cache.db"), broken).unwrap();
        let tier = tier(directory.path());
        assert_eq!((right(&tier), tier.status().trouble), (0, None));
        assert!(files::segments(directory.path()).unwrap().is_empty());
        tier.put(key("/0"), entry(&content(0)));
        settle(&tier);
        assert_eq!(right(&tier), 1);
    }
}

#[test]
fn the_catalogue_of_a_newer_curtsy_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    filled(directory.path());
    let path = directory.path().join("cache.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let tier = tier(directory.path());
    assert_eq!(tier.status().trouble, Some(DiskTrouble::Newer));
    tier.put(key("/new"), entry(b"new"));
    assert_eq!((right(&tier), tier.status().counts.skipped), (0, 1));
    close(&tier);
    assert_eq!(files::segments(directory.path()).unwrap().len(), 1, "its answers are kept");
}

/// C54
#[test]
fn a_second_curtsy_goes_without_the_folder() {
    let directory = tempfile::tempdir().unwrap();
    let first = tier(directory.path());
    first.put(key("/a"), entry(b"a"));
    settle(&first);
    let second = tier(directory.path());
    let trouble = second.status().trouble.unwrap();
    assert_eq!(trouble, DiskTrouble::Held(Some(std::process::id())));
    assert!(trouble.to_string().contains("another curtsy uses the folder (process"), "{trouble}");
    second.put(key("/b"), entry(b"b"));
    assert!(read(&second, &key("/a")).is_none() && second.status().counts.skipped == 1);
    close(&second);
    assert_eq!(body(&first, &key("/a")).unwrap(), b"a", "the first is not disturbed");
}

#[test]
fn archives_of_the_user_are_not_used_as_a_cache() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("000001.warc"), "mine").unwrap();
    let tier = tier(directory.path());
    assert!(matches!(tier.status().trouble, Some(DiskTrouble::Failed(StoreFault::Other(_)))));
    close(&tier);
    assert_eq!(fs::read(directory.path().join("000001.warc")).unwrap(), b"mine");
}

/// C55
#[test]
fn other_users_can_read_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let directory = parent.path().join("cache");
    let tier = tier(&directory);
    tier.put(key("/a"), entry(b"a"));
    tier.put(key("/large"), entry(&vec![0; 2 * 1024 * 1024]));
    settle(&tier);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&directory), mode(&directory.join("large"))), (0o700, 0o700));
    let in_folder =
        |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let all = [in_folder(&directory), in_folder(&directory.join("large"))].concat();
    let files: Vec<_> = all.iter().filter(|path| path.is_file()).collect();
    assert!(files.len() >= 5, "{files:?}");
    for file in files {
        assert_eq!(mode(file), 0o600, "{}", file.display());
    }
}
