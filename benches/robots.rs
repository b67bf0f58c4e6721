//! Measures the cost of robots.txt: reading a file, a verdict, memory, and the same for files meant to hurt.
//!
//! `cargo bench --bench robots` prints one line per figure. Time is processor time of this thread, read from Linux'
//! `/proc`, which other work on the machine disturbs least. There are no thresholds: the reader compares the figures
//! with the targets.

use std::hint::black_box;

use curtsy::politeness::robots::{Agents, MAX_BODY, Rules};

fn main() {
    usual(20, 1);
    usual(200, 5);
    usual(5_000, 20);
    agents();
    for (name, line, path) in hostile() {
        hurt(name, &line, &path);
    }
    hurt_with("random bytes", &random_bytes(MAX_BODY), &format!("/{}", "a".repeat(8_191)));
}

/// Typical files: directories, some wildcards, several groups, the last for the client.
fn usual(rules: usize, groups: usize) {
    let mut body = String::new();
    for group in 0..groups {
        let name = if group + 1 == groups { "*".to_owned() } else { format!("bot{group}") };
        body += &format!("User-agent: {name}\nCrawl-delay: 10\n");
        for n in 0..rules / groups {
            body += &match n % 10 {
                0 => format!("Allow: /section{n}/public/\n"),
                1 => format!("Disallow: /*?sort{n}=\n"),
                2 => format!("Disallow: /*/print{n}/*.html$\n"),
                _ => format!("Disallow: /section{n}/private/\n"),
            };
        }
    }
    let what = format!("{rules} rules in {groups} groups");
    let parsed = Rules::parse(body.as_bytes());
    println!("{what}: {} B kept of {} B", parsed.as_bytes().len(), body.len());
    measure(&format!("{what}, parse"), 20_000 / groups as u64, || {
        black_box(Rules::parse(black_box(body.as_bytes())));
    });
    for (kind, path) in
        [("plain", "/articles/2026/11/how-to-be-polite.html?page=2"), ("escaped", "/caf%C3%A9/a%20b?q=1")]
    {
        let agents = Agents::from_user_agent("FooBot/1.0");
        measure(&format!("{what}, verdict on a path, {kind}"), 100_000, || {
            black_box(parsed.verdict(black_box(&agents), black_box(path)));
        });
    }
}

fn agents() {
    for (name, user_agent) in [
        ("a crawler", "FooBot/1.0 (+https://foo.example)"),
        (
            "a browser",
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
        ),
    ] {
        measure(&format!("the tokens of {name}"), 200_000, || {
            black_box(Agents::from_user_agent(black_box(user_agent)));
        });
    }
}

/// Returns lines to fill a file with, each with a path of 8 KiB that is expensive to compare.
fn hostile() -> Vec<(&'static str, String, String)> {
    let path = |piece: &str| format!("/{}", piece.repeat(8_191 / piece.len()));
    vec![
        ("a star and one letter", "allow:/*b\n".to_owned(), path("a")),
        ("a star and two letters", "allow:/*ba\n".to_owned(), path("a")),
        ("20 stars", format!("disallow:/{}b\n", "*a".repeat(20)), path("a")),
        ("8 stars, pairs", format!("disallow:/{}ab\n", "*aa".repeat(8)), path("a")),
        ("long run", format!("allow:/*{}b\n", "a".repeat(8)), path("a")),
        ("near misses", format!("allow:/*{}b\n", "a".repeat(8)), path("aaaaaaab")),
        ("near misses, longer", format!("allow:/*{}b\n", "a".repeat(40)), path(&format!("{}b", "a".repeat(39)))),
        ("near misses at the end", format!("allow:/*b{}\n", "a".repeat(8)), path("baaaaaaa")),
        ("all the same, interrupted", format!("allow:/*{}\n", "a".repeat(8)), path("aaaaaaab")),
        (
            "all the same, interrupted late",
            format!("allow:/*{}\n", "a".repeat(60)),
            path(&format!("{}b", "a".repeat(59))),
        ),
        (
            "found late, then missed",
            format!("allow:/*{}*/x\n", "a".repeat(8)),
            format!("/x{}{}", "aaaaaaab".repeat(1_022), "a".repeat(9)),
        ),
        ("periodic", "allow:/*abababac\n".to_owned(), path("ababab")),
        ("periodic, all letters there", "allow:/*abababac\n".to_owned(), path("abababcabababbac")),
        ("one line of stars", format!("disallow:/{}b\n", "*a".repeat(8_000)), path("a")),
    ]
}

fn hurt(name: &str, line: &str, path: &str) {
    let mut body = "user-agent:*\n".to_owned();
    body += &line.repeat((MAX_BODY - body.len()) / line.len());
    hurt_with(name, body.as_bytes(), path);
}

fn hurt_with(name: &str, body: &[u8], path: &str) {
    let agents = Agents::from_user_agent("FooBot/1.0");
    let rules = Rules::parse(body);
    println!("hostile, {name}: {} KiB kept of {} KiB", rules.as_bytes().len() >> 10, body.len() >> 10);
    measure(&format!("hostile, {name}, parse"), 10, || {
        black_box(Rules::parse(black_box(body)));
    });
    measure(&format!("hostile, {name}, verdict"), 5, || {
        black_box(rules.verdict(black_box(&agents), black_box(path)));
    });
}

/// Returns bytes of splitmix64, the same in every run.
fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let bits = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (bits ^ (bits >> 27)) as u8
    };
    (0..count).map(|_| next()).collect()
}

fn measure(what: &str, times: u64, mut work: impl FnMut()) {
    let begun = processor_time();
    (0..times).for_each(|_| work());
    println!("{what}: {} ns", (processor_time() - begun) / times);
}

/// Nanoseconds this thread has run.
fn processor_time() -> u64 {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("a number")
}
