//! Kills the process without warning, again and again: what is found afterwards is true.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use super::*;

/// `CURTSY_KILL_ROUNDS` asks for more.
const ROUNDS: u64 = 10;

/// C51
#[test]
fn after_a_kill_nothing_untrue_is_found() {
    let test = "after_a_kill_nothing_untrue_is_found";
    if let Some(directory) = child::directory() {
        return write_for_ever(&directory);
    }
    let rounds = std::env::var("CURTSY_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    let directory = tempfile::tempdir().unwrap();
    let mut dice = fastrand::Rng::with_seed(7);
    let (mut found, mut lines) = (0, 0);
    for _ in 0..rounds {
        let mut child = child::command(&[], module_path!(), test, directory.path());
        let mut child = child.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // Kills after some progress, not after some time: it works on a busy machine too.
        let progress = dice.usize(1..40);
        lines += output.by_ref().filter(|line| line.starts_with("stored")).take(progress).count();
        child.kill().unwrap();
        child.wait().unwrap();
        found += check(directory.path());
    }
    assert!(lines > 0 && found > 0, "nothing was ever stored: {lines}, {found}");
}

/// Small and large answers; each says which it is.
fn content(n: u64) -> Vec<u8> {
    let size = if n.is_multiple_of(50) { 1_500_000 } else { 100 + (n * 7_919 % 20_000) as usize };
    format!("{n:016}").into_bytes().into_iter().cycle().take(size).collect()
}

const PATHS: u64 = 500;

fn write_for_ever(directory: &Path) {
    let tier = tier_of(directory, 16 * 1024 * 1024);
    for n in 1_u64.. {
        tier.put(key(&format!("/{}", n % PATHS)), entry(&content(n % PATHS)));
        if n % 100 == 0 {
            // Some of these wait for the catalogue, so that kills fall before, into and after transactions.
            if n % 300 == 0 {
                settle(&tier);
            }
            println!("stored {n}");
        }
    }
}

/// Returns how many answers are found.
fn check(directory: &Path) -> usize {
    let tier = tier_of(directory, 16 * 1024 * 1024);
    assert_eq!(tier.status().trouble, None);
    let mut found = 0;
    for n in 0..PATHS {
        let content = content(n);
        match read(&tier, &key(&format!("/{n}"))) {
            Some(entry) if entry.large().is_some() => assert_eq!(entry.length(), content.len() as u64, "torn: {n}"),
            Some(entry) => assert!(entry.body().concat() == content, "torn: {n}"),
            None => continue,
        }
        found += 1;
    }
    // A kill leaves whole bytes and whole rows behind, in this order.
    assert_eq!(tier.status().counts.damaged, 0);
    close(&tier);
    found
}
