//! Measures the cost of the store: a million hosts on disk and in memory, and a second's changes.
//!
//! `cargo bench --bench store` prints one line per figure; another number of hosts can be given as an argument. Disk
//! times are real times, printed with the processor time of the thread; memory times are processor times. Memory is the
//! growth of the process. Both are read from Linux' `/proc`. The file is in the page cache: a cold disk adds its own
//! reading time. There are no thresholds: the reader compares the figures with the targets.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use curtsy::clock;
use curtsy::store::{HostRecord, Retention, RobotsRecord, Store};

const PATIENCE: Duration = Duration::from_secs(60);

/// Each part runs in its own process, so that it cannot reuse memory of the part before.
fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let hosts = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number of hosts"));
    let keep = Retention { hosts, ..Retention::default() };
    if let (Some(part), Some(directory)) = (arguments.next(), arguments.next()) {
        let directory = Path::new(&directory);
        match part.as_str() {
            "fill" => fill(directory, keep, hosts),
            "work" => work(directory, keep, hosts),
            _ => tight(directory, hosts),
        }
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    for part in ["fill", "work", "tight"] {
        let program = std::env::current_exe().expect("a program");
        let done = Command::new(program).arg(hosts.to_string()).arg(part).arg(directory.path()).status();
        assert!(done.expect("a process").success(), "{part} failed");
    }
}

fn work(directory: &Path, keep: Retention, hosts: usize) {
    println!("file with {hosts} hosts: {:.1} MB", size_of_file(directory));
    let before = resident();
    let store = timed("open", || Store::open(directory, keep)).expect("the store that was filled").0;
    println!("memory: {:.1} MB for {} hosts", (resident() - before) as f64 / 1e6, store.hosts());
    let names: Vec<String> = (0..200_000).map(|n| name(n * 7_919 % hosts)).collect();
    each("host(), known", 1_000_000, |n| {
        black_box(store.host(&names[n % names.len()]));
    });
    each("put_host(), 1 000 hosts in turn", 1_000_000, |n| store.put_host(&names[n % 1_000], record(n)));
    flushes(&store, hosts);
    robots(&store);
    timed("close", || store.close(PATIENCE)).expect("everything written");
}

fn fill(directory: &Path, keep: Retention, hosts: usize) {
    let store = Store::open(directory, keep).expect("a new store").0;
    timed("fill, 50 000 hosts a write", || {
        for n in 0..hosts {
            store.put_host(&name(n), record(n));
            if n % 50_000 == 49_999 {
                store.flush(PATIENCE).expect("written");
            }
        }
        store.close(PATIENCE).expect("written");
    });
}

fn flushes(store: &Store, hosts: usize) {
    for round in 0..3 {
        for n in 0..1_000 {
            store.put_host(&name((n * 7_919 + round) % hosts), record(n + round));
        }
        timed("flush of 1 000 changed hosts", || store.flush(PATIENCE)).expect("written");
    }
}

fn robots(store: &Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for n in 0..1_000 {
        let body = vec![b'x'; 1_200];
        let stale_until_us = u64::MAX;
        store.put_robots(
            &format!("https://{}", name(n)),
            RobotsRecord { body, stale_until_us, ..RobotsRecord::default() },
        );
    }
    timed("flush of 1 000 robots.txt copies", || store.flush(PATIENCE)).expect("written");
    timed("10 000 robots.txt copies from disk, one after the other", || {
        for n in 0..10_000 {
            let found = runtime.block_on(store.robots(&format!("https://{}", name(n % 1_000))));
            assert!(found.is_some());
        }
    });
}

/// A file with ten times as many hosts as may be kept.
fn tight(directory: &Path, hosts: usize) {
    let before = resident();
    let keep = Retention { hosts: hosts / 10, ..Retention::default() };
    let store = timed("open, a tenth of them kept", || Store::open(directory, keep)).expect("the same store").0;
    println!("memory: {:.1} MB for {} hosts", (resident() - before) as f64 / 1e6, store.hosts());
    store.close(PATIENCE).expect("nothing to write");
}

/// Returns a name of typical length.
fn name(n: usize) -> String {
    let mixed = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
    format!("www.{mixed:010x}{n:x}.example")
}

/// Returns a record with everything learned.
fn record(n: usize) -> HostRecord {
    let now = clock::micros();
    HostRecord {
        learned_ms: 1_000 + (n % 60_000) as u32,
        floor_ms: 1_500,
        floor_ttl_ms: 600_000,
        floor_until_us: now + 600_000_000,
        updated_us: now,
        last_sent_us: now,
        ..HostRecord::default()
    }
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let (begun, processor) = (clock::now(), processor_time());
    let result = work();
    let processor = (processor_time() - processor) as f64 / 1e6;
    println!("{what}: {:.1} ms, of which this thread ran {processor:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    result
}

fn each(what: &str, count: usize, mut work: impl FnMut(usize)) {
    let begun = processor_time();
    for n in 0..count {
        work(n);
    }
    println!("{what}: {} ns each", (processor_time() - begun) / count as u64);
}

/// Nanoseconds this thread has run.
fn processor_time() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}

fn size_of_file(directory: &Path) -> f64 {
    let file = std::fs::metadata(directory.join("state.db")).expect("the file");
    file.len() as f64 / 1e6
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = text.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("resident pages");
    pages * 4096
}
