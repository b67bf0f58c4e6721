//! Disks that are full, read-only or hang: forwarding is not harmed, and storing goes on when they work again.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::*;
use crate::store::StoreFault;

/// C52. Needs a disk of its own; [`files_that_cannot_grow_are_written_again_when_they_can`] tells the same story on
/// every system.
#[test]
fn a_full_disk_is_reported_and_used_again_when_there_is_room() {
    let test = "a_full_disk_is_reported_and_used_again_when_there_is_room";
    let Some(directory) = child::directory() else {
        let directory = tempfile::tempdir().unwrap();
        return child::on_own_disk("size=4m", module_path!(), test, directory.path());
    };
    let ballast = directory.join("ballast");
    let fill = || {
        let mut file = fs::File::create(&ballast).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    };
    let trouble = fail_and_recover(&directory.join("cache"), fill, || fs::remove_file(&ballast).unwrap());
    assert_eq!(trouble, DiskTrouble::Failed(StoreFault::Full));
}

/// C52
#[test]
fn no_space_means_that_the_disk_is_full() {
    let error = fs::File::options().write(true).open("/dev/full").unwrap().write_all(b"x").unwrap_err();
    assert_eq!(open::io_trouble(&error), DiskTrouble::Failed(StoreFault::Full));
}

/// C52. Works for every user: the operating system refuses to let files grow.
#[test]
fn files_that_cannot_grow_are_written_again_when_they_can() {
    let Some(directory) = without_the_signal("files_that_cannot_grow_are_written_again_when_they_can") else { return };
    let (_, hard) = rlimit::Resource::FSIZE.get().unwrap();
    let limit = |bytes| rlimit::Resource::FSIZE.set(bytes, hard).unwrap();
    fail_and_recover(&directory, || limit(300_000), || limit(hard));
}

/// Stores answers on a disk that `fill` makes useless and `free` makes good again. Returns the trouble in between.
fn fail_and_recover(directory: &Path, fill: impl Fn(), free: impl Fn()) -> DiskTrouble {
    let news = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let heard = news.clone();
    let listener = DiskListener::new(move |news| heard.lock().push((news.kind, news.why.is_some())));
    let tier = DiskTier::start_with(directory, LIMIT, listener).unwrap();
    wait_for(|| tier.status().is_loaded);
    tier.put(key("/before"), entry(b"before"));
    settle(&tier);
    fill();
    tier.put(key("/large"), entry(&vec![b'x'; 700 * 1024]));
    wait_for(|| tier.status().trouble.is_some());
    let trouble = tier.status().trouble.unwrap();
    assert!(body(&tier, &key("/large")).is_none());
    tier.put(key("/skipped"), entry(b"x"));
    assert!(tier.status().counts.skipped + tier.status().counts.write_failures >= 2);
    free();
    wait_for(|| {
        tier.put(key("/after"), entry(b"after"));
        tier.status().trouble.is_none()
    });
    settle(&tier);
    assert_eq!(body(&tier, &key("/after")).unwrap(), b"after");
    close(&tier);
    assert_eq!(body(&super::tier(directory), &key("/after")).unwrap(), b"after");
    assert_eq!(*news.lock(), [("cache.unwritten", true), ("cache.recovered", false)]);
    trouble
}

/// Runs the test again in a process that ignores the signal for files that are too large. Returns the directory to work
/// in, if this is that process.
fn without_the_signal(test: &str) -> Option<std::path::PathBuf> {
    child::directory().or_else(|| {
        let directory = tempfile::tempdir().unwrap();
        // An ignored signal stays ignored in the program that follows; otherwise it would end that program.
        let wrapper = ["sh", "-c", "trap '' XFSZ; exec \"$0\" \"$@\""];
        let output = child::command(&wrapper, module_path!(), test, directory.path()).output().unwrap();
        child::assert_passed(&output);
        None
    })
}

#[test]
fn files_that_cannot_grow_never_hold_a_torn_answer() {
    let Some(directory) = without_the_signal("files_that_cannot_grow_never_hold_a_torn_answer") else { return };
    let (_, hard) = rlimit::Resource::FSIZE.get().unwrap();
    let first = tier(&directory);
    let content = |n: u32| vec![n as u8; 100_000];
    rlimit::Resource::FSIZE.set(1_000_000, hard).unwrap();
    for n in 0..20 {
        first.put(key(&format!("/{n}")), entry(&content(n)));
    }
    wait_for(|| first.status().trouble.is_some());
    rlimit::Resource::FSIZE.set(hard, hard).unwrap();
    close(&first);
    let second = tier(&directory);
    for n in 0..20 {
        assert!(body(&second, &key(&format!("/{n}"))).is_none_or(|body| body == content(n)));
    }
    assert_eq!(second.status().counts.damaged, 0, "a failed write leaves nothing behind");
}

#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    let test = "a_folder_that_cannot_be_written_is_reported";
    let refused = |directory: &Path| {
        let tier = tier(directory);
        assert_eq!(tier.status().trouble, Some(DiskTrouble::Failed(StoreFault::ReadOnly)));
        tier.put(key("/a"), entry(b"a"));
        assert!(read(&tier, &key("/a")).is_none());
        assert_eq!(tier.status().counts.skipped, 1);
        close(&tier);
    };
    if let Some(directory) = child::directory() {
        return refused(&directory);
    }
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o500)).unwrap();
    if fs::write(directory.path().join("probe"), "").is_err() {
        return refused(directory.path());
    }
    // root may write everywhere, but not on a read-only disk.
    child::on_own_disk("ro", module_path!(), test, directory.path());
}

/// Opening a pipe that no process writes to never ends, as with a broken network disk.
#[tokio::test(start_paused = true)]
async fn a_disk_that_hangs_makes_a_miss_after_a_quarter_of_a_second() {
    let directory = tempfile::tempdir().unwrap();
    let tier = DiskTier::start(directory.path(), LIMIT).unwrap();
    tier.put(key("/a"), entry(b"a"));
    let shared = tier.shared.clone();
    let settled = tokio::task::spawn_blocking(move || {
        let (answer, answered) = oneshot::channel();
        assert!(shared.queue.push(DiskJob::Flush(answer)));
        answered.blocking_recv().unwrap();
    });
    settled.await.unwrap();
    let segment = directory.path().join("000001.warc");
    fs::remove_file(&segment).unwrap();
    assert!(Command::new("mkfifo").arg(&segment).status().unwrap().success());
    let key = key("/a");
    let place = tier.find(&key.borrowed())[0];
    for late in 1..=3 {
        let asked = clock::now();
        assert!(tier.read(&key.borrowed(), place).await.is_none());
        assert_eq!(clock::now() - asked, PATIENCE);
        assert_eq!(tier.status().counts.late, late);
    }
    // Lets the threads go on, so that the test can end.
    let _ = fs::File::options().read(true).write(true).open(&segment);
}
