//! Kills the process without warning, again and again: the file opens, and nothing older than two seconds is missing.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use super::*;

/// Directories that are tested in parallel, since a late kill takes more than two seconds.
const DIRECTORIES: u64 = 10;
/// Rounds in each directory; `CURTSY_KILL_ROUNDS` asks for more.
const ROUNDS: u64 = 6;
/// The changes that a kill may cost.
const MOST_LOST: Duration = Duration::from_secs(2);
const HOSTS: u64 = 20;

#[test]
fn a_kill_costs_at_most_two_seconds() {
    if let Some(directory) = child::directory() {
        return write_for_ever(&directory);
    }
    let rounds = std::env::var("CURTSY_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    std::thread::scope(|scope| {
        for seed in 0..DIRECTORIES {
            scope.spawn(move || in_one_directory(seed, rounds));
        }
    });
}

fn in_one_directory(seed: u64, rounds: u64) {
    let mut dice = fastrand::Rng::with_seed(seed);
    let directory = tempfile::tempdir().unwrap();
    let mut least = 0;
    for round in 0..rounds {
        // Every other kill is early, to hit the opening and the first writes; the others are late, to have something to
        // lose.
        let lived = if round % 2 == 0 { dice.u64(2_050..2_500) } else { dice.u64(0..300) };
        let promised = live_and_die(directory.path(), Duration::from_millis(lived));
        least = check(directory.path(), least.max(promised));
    }
    assert!(least > 0, "nothing was ever promised");
}

/// Returns the newest generation that was acknowledged long enough before the kill.
fn live_and_die(directory: &Path, lived: Duration) -> u64 {
    let test = "a_kill_costs_at_most_two_seconds";
    let mut child =
        child::command(&[], module_path!(), test, directory).stdout(Stdio::piped()).spawn().expect("the other process");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let reader = std::thread::spawn(move || {
        let numbers = lines.map_while(Result::ok).filter_map(|line| line.parse::<u64>().ok());
        numbers.map(|number| (clock::now(), number)).collect::<Vec<_>>()
    });
    std::thread::sleep(lived);
    let killed = clock::now();
    kill(&mut child);
    let acknowledged = reader.join().expect("the lines");
    let old = acknowledged.iter().filter(|(at, _)| *at + MOST_LOST <= killed);
    old.map(|(_, number)| *number).max().unwrap_or(0)
}

pub(super) fn kill(child: &mut Child) {
    child.kill().expect("it runs");
    child.wait().expect("it is ours");
}

fn write_for_ever(directory: &Path) {
    let (store, opened) = open(directory);
    assert_eq!(opened.set_aside, None);
    let first = 1 + store.host(&key(0)).map_or(0, |record| record.last_sent_us - BASE);
    for generation in first.. {
        for n in 0..HOSTS {
            store.put_host(&key(n), record(generation));
        }
        store.put_robots("https://a.example", robots(&generation.to_string()));
        println!("{generation}");
        let _ = std::io::stdout().flush();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the stored generation, and checks that it is complete and not older than `least`.
fn check(directory: &Path, least: u64) -> u64 {
    let (store, opened) = open(directory);
    assert_eq!(opened.set_aside, None);
    let mut oldest = u64::MAX;
    for n in 0..HOSTS {
        let found = store.host(&key(n));
        let generation = found.map_or(0, |record| record.last_sent_us - BASE);
        assert!(found.is_none_or(|found| found == record(generation)), "{found:?} is mixed from several");
        assert!(generation >= least, "generation {generation} of {}, where {least} was promised", key(n));
        oldest = oldest.min(generation);
    }
    close(&store);
    oldest
}

fn key(n: u64) -> String {
    format!("{n}.example")
}

/// A time that stays recent.
const BASE: u64 = 1 << 60;

/// Every field contains the generation.
fn record(generation: u64) -> HostRecord {
    let small = (generation % 1_000_000) as u32;
    HostRecord {
        learned_ms: small,
        floor_ms: small + 1,
        floor_ttl_ms: small + 2,
        floor_until_us: generation + 3,
        updated_us: BASE + generation + 4,
        last_sent_us: BASE + generation,
        held_until_us: generation + 5,
        paused: false,
        paused_until_us: generation + 6,
        overrides: StoredOverrides { delay_ms: Some(small), burst: None, concurrency: Some(small) },
    }
}
