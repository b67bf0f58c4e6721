//! Damaged files: they are set aside and kept, and an empty file is created.

use std::fs;
use std::path::Path;

use super::*;

/// A file as a busy curtsy leaves it, created once.
fn good_file() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = open(directory.path());
    for n in 0..500 {
        store.put_host(&format!("{n}.example"), learned(n));
    }
    for n in 0..8 {
        store.put_robots(&format!("https://{n}.example"), robots(&"Disallow: /x\n".repeat(400)));
    }
    close(&store);
    fs::read(directory.path().join("state.db")).unwrap()
}

fn open_file(bytes: &[u8], directory: &Path) -> (Store, OpenedStore) {
    fs::write(directory.join("state.db"), bytes).unwrap();
    open(directory)
}

/// Checks that curtsy starts with this file, whatever is in it, and works from then on.
fn check_starts(bytes: &[u8]) -> OpenedStore {
    let directory = tempfile::tempdir().unwrap();
    let (store, opened) = open_file(bytes, directory.path());
    if let Some(aside) = &opened.set_aside {
        assert!(aside.path.exists(), "{aside:?}");
        assert_eq!(opened.hosts, 0);
    }
    store.put_host("new.example", learned(1));
    close(&store);
    let (store, again) = open(directory.path());
    assert_eq!(again.set_aside, None);
    assert!(store.host("new.example").is_some());
    opened
}

#[test]
fn garbage_is_set_aside_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let garbage = b"this was never a database ".repeat(1_000);
    let (_, opened) = open_file(&garbage, directory.path());
    let aside = opened.set_aside.unwrap();
    assert!(aside.path.file_name().unwrap().to_str().unwrap().starts_with("state.db.damaged-"), "{aside:?}");
    assert_eq!(fs::read(&aside.path).unwrap(), garbage);
    assert!(opened.new);
}

#[test]
fn two_damaged_files_do_not_overwrite_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let (store, first) = open_file(&[b'a'; 5_000], directory.path());
    close(&store);
    let (_, second) = open_file(&[b'b'; 5_000], directory.path());
    let paths = [first, second].map(|opened| opened.set_aside.unwrap().path);
    assert_ne!(paths[0], paths[1]);
    assert_eq!(fs::read(&paths[0]).unwrap(), [b'a'; 5_000]);
}

#[test]
fn the_log_of_a_damaged_file_is_not_applied_to_the_next() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("state.db-wal"), b"a log").unwrap();
    let (store, opened) = open_file(&[b'a'; 5_000], directory.path());
    let aside = opened.set_aside.unwrap().path;
    assert_eq!(fs::read(format!("{}-wal", aside.display())).unwrap(), b"a log");
    assert_eq!(store.hosts(), 0);
}

#[test]
fn an_empty_file_is_a_new_one() {
    let opened = check_starts(b"");
    assert!(opened.new && opened.set_aside.is_none());
}

#[test]
fn a_file_that_was_cut_off_is_set_aside() {
    let good = good_file();
    for length in [1, 100, 4_096, 5_000, good.len() / 2, good.len() - 4_096] {
        let opened = check_starts(&good[..length]);
        assert!(opened.set_aside.is_some(), "{length} of {} bytes", good.len());
    }
    // The last bytes belong to a robots.txt: like any of its bytes, they may change unnoticed.
    check_starts(&good[..good.len() - 1]);
}

#[test]
fn flipped_bits_never_keep_curtsy_from_starting() {
    let good = good_file();
    let mut dice = fastrand::Rng::with_seed(4);
    let mut noticed = 0;
    for _ in 0..30 {
        let mut bad = good.clone();
        for _ in 0..8 {
            let at = dice.usize(..bad.len());
            bad[at] ^= 1 << dice.u8(..8);
        }
        noticed += usize::from(check_starts(&bad).set_aside.is_some());
    }
    assert!(noticed > 0, "no damage was ever noticed");
}

#[test]
fn a_header_that_asks_for_another_program_is_damage() {
    let good = good_file();
    for byte in [16, 18, 19] {
        let mut bad = good.clone();
        bad[byte] ^= 0x20;
        assert!(check_starts(&bad).set_aside.is_some(), "byte {byte}");
    }
}

#[test]
fn every_page_of_zeros_is_noticed() {
    let good = good_file();
    for page in 0..good.len() / 4_096 {
        // The second page holds the map of pages, which is rebuilt if needed; bodies of robots.txt may be anything.
        let mut bad = good.clone();
        bad[page * 4_096..][..4_096].fill(0);
        let opened = check_starts(&bad);
        let harmless = good[page * 4_096..][..4_096].windows(13).any(|bytes| bytes == b"Disallow: /x\n");
        assert!(opened.set_aside.is_some() || harmless, "page {page}");
    }
}

#[test]
fn another_programs_file_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE letters (text TEXT)").unwrap();
    let (_, opened) = open(directory.path());
    assert_eq!(opened.set_aside.unwrap().why, "some other program's file");
}

#[test]
fn a_newer_file_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    close(&open(directory.path()).0);
    let path = directory.path().join("state.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let error = Store::open(directory.path(), Retention::default()).unwrap_err();
    assert_eq!(error, StoreError::Newer { path: path.clone(), found: 99, known: 2 });
    let text = error.to_string();
    assert!(text.contains("written by a newer curtsy (format 99; this one knows 2). Run that curtsy"), "{text}");
    let version: u32 =
        rusqlite::Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 99);
}
