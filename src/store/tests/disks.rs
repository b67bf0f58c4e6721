//! Two processes on one directory, and disks that are full, limited or read-only.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use super::kill::kill;
use super::*;

#[test]
fn a_second_process_learns_which_process_holds_the_directory() {
    if let Some(directory) = child::directory() {
        let _store = open(&directory);
        println!("opened");
        loop {
            std::thread::park();
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "a_second_process_learns_which_process_holds_the_directory";
    let mut child = child::command(&[], module_path!(), test, directory.path()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("opened")), "it ended early");
    let error = Store::open(directory.path(), Retention::default()).unwrap_err();
    assert_eq!(error, StoreError::Held { directory: directory.path().to_owned(), pid: Some(child.id()) });
    assert!(error.to_string().contains(&format!("in use by process {}", child.id())), "{error}");
    kill(&mut child);
    open(directory.path());
}

/// Works for every user: the operating system refuses to let files grow.
#[test]
fn a_disk_that_takes_no_more_costs_nothing_but_the_writing() {
    if let Some(directory) = child::directory() {
        let (_, hard) = rlimit::Resource::FSIZE.get().unwrap();
        let limit = |soft| rlimit::Resource::FSIZE.set(soft, hard).unwrap();
        return squeeze_and_relieve(&directory, || limit(0), || limit(hard));
    }
    let directory = tempfile::tempdir().unwrap();
    // An ignored signal stays ignored in the program that follows; otherwise it would end that program.
    let wrapper = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
    let test = "a_disk_that_takes_no_more_costs_nothing_but_the_writing";
    child::assert_passed(&child::command(&wrapper, module_path!(), test, directory.path()).output().unwrap());
}

#[test]
fn a_full_disk_is_named_and_costs_nothing_but_the_writing() {
    if let Some(directory) = child::directory() {
        let ballast = directory.join("ballast");
        let fill = || {
            let mut file = fs::File::create(&ballast).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
        };
        fill();
        let error = Store::open(&directory, Retention::default()).unwrap_err();
        assert!(matches!(&error, StoreError::Unusable { cause: StoreFault::Full, .. }), "{error:?}");
        assert!(error.to_string().contains("the disk is full. Free some space"), "{error}");
        fs::remove_file(&ballast).unwrap();
        return squeeze_and_relieve(&directory, fill, || fs::remove_file(&ballast).unwrap());
    }
    let directory = tempfile::tempdir().unwrap();
    let test = "a_full_disk_is_named_and_costs_nothing_but_the_writing";
    child::on_own_disk("size=2m", module_path!(), test, directory.path());
}

/// Promises 7 and 10: a start on a full disk is like a disk that fills later. What is learned meanwhile is saved as
/// soon as there is space, and what was stored before is not forgotten.
#[test]
fn a_start_on_a_full_disk_keeps_everything_once_there_is_space() {
    if let Some(directory) = child::directory() {
        for known in [false, true] {
            let state = directory.join(if known { "known" } else { "new" });
            if known {
                let (store, _) = open(&state);
                store.put_host("before.example", learned(7));
                close(&store);
            }
            let ballast = directory.join("ballast");
            let mut file = fs::File::create(&ballast).unwrap();
            while file.write_all(&[0; 4096]).is_ok() {}
            drop(file);
            let (store, opened) = Store::open_anyway(&state, Retention::default()).unwrap();
            let trouble = opened.trouble.expect("the disk is full").to_string();
            assert!(trouble.contains("the disk is full. Free some space"), "{trouble}");
            assert_eq!((opened.hosts, opened.unsettled), (usize::from(known), true));
            store.put_host("a.example", learned(2));
            let health = store.health().unwrap();
            assert_eq!((health.trouble, health.pending, health.lost), (Some(StoreFault::Full), 1, 0));
            assert!(store.flush(Duration::from_millis(100)).is_err());
            assert!(
                matches!(Store::open(&state, Retention::default()), Err(StoreError::Held { .. })),
                "another curtsy would write between"
            );
            fs::remove_file(&ballast).unwrap();
            store.flush(PATIENCE).unwrap();
            let health = store.health().unwrap();
            assert_eq!((health.trouble, health.pending, health.lost), (None, 0, 0));
            close(&store);
            let (store, opened) = open(&state);
            assert_eq!((opened.hosts, opened.unsettled), (1 + usize::from(known), false));
            assert_eq!(store.host("a.example").map(|host| host.learned_ms), Some(2));
            // Waits for the writer: the files that it deletes would make room on the next full disk.
            close(&store);
        }
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    child::on_own_disk(
        "size=2m",
        module_path!(),
        "a_start_on_a_full_disk_keeps_everything_once_there_is_space",
        directory.path(),
    );
}

/// The same for a directory that cannot be created at start because a file has its name.
#[tokio::test]
async fn a_directory_that_can_be_used_later_is_used_then() {
    let directory = tempfile::tempdir().unwrap();
    let (wanted, aside) = (directory.path().join("state"), directory.path().join("aside"));
    let (store, _) = open(&wanted);
    store.put_host("before.example", learned(7));
    store.put_host("both.example", learned(7));
    store.put_robots("https://before.example", robots("User-agent: *"));
    close(&store);
    fs::rename(&wanted, &aside).unwrap();
    fs::write(&wanted, "").unwrap();
    let (store, opened) = Store::open_anyway(&wanted, Retention::default()).unwrap();
    assert!(opened.unread && opened.unsettled && opened.trouble.is_some(), "{opened:?}");
    store.put_host("both.example", learned(3));
    fs::remove_file(&wanted).unwrap();
    fs::rename(&aside, &wanted).unwrap();
    store.flush(PATIENCE).unwrap();
    let ms = |store: &Store, key: &str| store.host(key).map(|host| host.learned_ms);
    assert_eq!((ms(&store, "before.example"), ms(&store, "both.example")), (Some(7), Some(3)));
    assert!(store.robots("https://before.example").await.is_some());
    close(&store);
    let (store, _) = open(&wanted);
    assert_eq!((ms(&store, "before.example"), ms(&store, "both.example")), (Some(7), Some(3)));
}

fn squeeze_and_relieve(directory: &Path, squeeze: impl FnOnce(), relieve: impl FnOnce()) {
    let (store, _) = open(directory);
    store.put_host("before.example", learned(1));
    store.flush(PATIENCE).unwrap();
    squeeze();
    for n in 0..HOSTS {
        store.put_host(&format!("{n}.example"), learned(1 + n));
    }
    let deadline = clock::now() + PATIENCE;
    let health = loop {
        let unsaved = store.flush(Duration::from_millis(100)).unwrap_err();
        assert_eq!(unsaved.changes, HOSTS as usize);
        let health = store.health().unwrap();
        if health.failures >= 3 {
            break health;
        }
        assert!(clock::now() < deadline, "it does not try again: {health:?}");
    };
    assert!(health.trouble.is_some(), "{health:?}");
    assert_eq!((health.pending, health.lost), (HOSTS as usize, 0));
    assert_eq!(store.host("999.example").map(|host| host.learned_ms), Some(1_000), "memory goes on");
    relieve();
    store.flush(PATIENCE).unwrap();
    let health = store.health().unwrap();
    assert_eq!((health.trouble, health.pending), (None, 0));
    close(&store);
    assert_eq!(open(directory).1.hosts, 1 + HOSTS as usize);
}

/// More than SQLite can write without growing a file.
const HOSTS: u32 = 1_000;

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let refused = |directory: &Path| {
        let error = Store::open(directory, Retention::default()).unwrap_err();
        assert!(matches!(&error, StoreError::Unusable { cause: StoreFault::ReadOnly, .. }), "{error:?}");
        assert!(error.to_string().contains("it cannot be written. Give this user the right to"), "{error}");
    };
    if let Some(directory) = child::directory() {
        return refused(&directory);
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let binds_us = fs::write(directory.path().join("probe"), "").is_err();
    if binds_us {
        return refused(directory.path());
    }
    // root may write everywhere, but not on a read-only disk.
    child::on_own_disk("ro", module_path!(), "a_directory_that_cannot_be_written_is_named", directory.path());
}
