//! The rules: each is a function from a file to the problems in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Function, Source, line_of, word, words_at};
use crate::{MAY_USE, READERS_OF_CONFIG};

/// Words that must not appear in the core, which only decides.
const NOT_IN_CORE: &[&str] = &["tokio", "hyper", "axum", "async", "await", "tracing", "serde", "fastrand", "println"];

/// The same for the standard library: no sockets, no files, no clocks, no threads, no environment.
const NOT_IN_CORE_STD: &[&str] = &[
    "env",
    "fs",
    "io",
    "net::TcpListener",
    "net::TcpStream",
    "net::ToSocketAddrs",
    "net::UdpSocket",
    "os",
    "process",
    "thread",
    "time::Instant",
    "time::SystemTime",
];

/// Words in names that say nothing about the thing.
const EMPTY_WORDS: &[&str] =
    &["common", "context", "data", "helper", "info", "internal", "manager", "processor", "service", "util"];

/// The longest permitted function in lines. A longer one does more than one thing.
pub(crate) const LONGEST_FUNCTION: usize = 60;
/// The longest permitted file in lines, without tests. A longer one has more than one topic.
pub(crate) const LONGEST_FILE: usize = 450;
/// The most parameters that a function may have, without `self`. More of them belong into a struct.
pub(crate) const MOST_PARAMETERS: usize = 6;
/// The widest comment line in columns: rustfmt, which keeps code to this width, leaves comments alone.
const WIDEST_COMMENT: usize = 120;

/// Folders that exist on one developer's machine only. Written in halves, so that this file passes its own rule.
pub(crate) const MACHINE_FOLDERS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

#[derive(Debug, PartialEq)]
pub(crate) struct Problem {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Problem {
    fn new(source: &Source, line: usize, what: String) -> Self {
        Problem { file: source.path.clone(), line, what }
    }
}

pub(crate) fn file_head(source: &Source) -> Vec<Problem> {
    let head = source.text.lines().next().and_then(|line| line.strip_prefix("//! "));
    match head {
        Some(words) if !words.trim().is_empty() => Vec::new(),
        _ => vec![Problem::new(source, 1, "the file does not open with a `//!` line that says what it is for".into())],
    }
}

pub(crate) fn arrows(source: &Source) -> Vec<Problem> {
    let Some(me) = top_module(&source.path) else { return Vec::new() };
    let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == me) else {
        return vec![Problem::new(source, 1, format!("`{me}` has no line in MAY_USE of tests/tidy.rs"))];
    };
    let mut problems = Vec::new();
    for (line, path) in crate_paths(source) {
        let other = path[0].as_str();
        let is_module = MAY_USE.iter().any(|(module, _)| *module == other);
        if other != me && !allowed.split(' ').any(|module| module == other) {
            let what = if is_module {
                format!("`{me}` must not know `{other}`")
            } else {
                format!("`crate::{other}` is no module of MAY_USE")
            };
            problems.push(Problem::new(source, line, what));
        }
        let function =
            path.get(1).is_some_and(|name| name.starts_with(|c: char| c.is_ascii_lowercase()) && name != "self");
        if other == "config" && me != "config" && function && !READERS_OF_CONFIG.contains(&me) {
            problems.push(Problem::new(
                source,
                line,
                format!("`{me}` may use the types of `config`, not `{}`", path.join("::")),
            ));
        }
    }
    problems
}

/// Finds arrows of the table that no shipped code uses: a permission that nothing needs is granted by accident. Unlike
/// the other rules it looks at all files together.
pub(crate) fn unused_arrows(sources: &[Source], table: &[(&str, &str)]) -> Vec<Problem> {
    let mut used = BTreeSet::new();
    for source in sources {
        let Some(me) = top_module(&source.path) else { continue };
        used.extend(crate_paths(source).into_iter().map(|(_, mut path)| (me, path.swap_remove(0))));
    }
    let arrows =
        table.iter().flat_map(|(me, uses)| uses.split_terminator(' ').map(move |other| (*me, other.to_owned())));
    let unused = arrows.filter(|arrow| !used.contains(arrow));
    let problem = |(me, other)| format!("`{me}` does not use `{other}`: remove it from MAY_USE");
    unused.map(|arrow| Problem { file: "tests/tidy.rs".to_owned(), line: 1, what: problem(arrow) }).collect()
}

/// Paths as seen from the root of the crate, written with `crate::`, with `curtsy::` (from the binary) or with
/// `super::`.
pub(crate) fn crate_paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let root = if source.path == "src/main.rs" { "curtsy" } else { "crate" };
    let mut paths = source.paths_from(root);
    let module = source.module();
    for (line, path) in source.paths_from("super") {
        let ups = 1 + path.iter().take_while(|segment| *segment == "super").count();
        if let Some(depth) = module.len().checked_sub(ups) {
            let above = module[..depth].iter().map(|segment| (*segment).to_owned());
            paths.push((line, above.chain(path[ups - 1..].iter().cloned()).collect()));
        }
    }
    paths.retain(|(_, path)| path.first().is_some_and(|first| first.starts_with(|c: char| c.is_ascii_lowercase())));
    paths
}

pub(crate) fn pure_core(source: &Source) -> Vec<Problem> {
    if top_module(&source.path) != Some("politeness") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for word in NOT_IN_CORE {
        let lines = words_at(&source.product, word).map(|at| line_of(&source.product, at));
        problems.extend(lines.map(|line| Problem::new(source, line, format!("`{word}` has no place in the core"))));
    }
    for (line, path) in source.paths_from("std") {
        let path = path.join("::");
        if NOT_IN_CORE_STD.iter().any(|banned| path == *banned || path.starts_with(&format!("{banned}::"))) {
            problems.push(Problem::new(source, line, format!("`std::{path}` has no place in the core")));
        }
    }
    problems
}

pub(crate) fn names(source: &Source) -> Vec<Problem> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let file = source.path.trim_start_matches("src/").trim_end_matches(".rs");
    let files = file.split('/').map(|name| (1, name));
    let mut problems = Vec::new();
    for (line, name) in files.chain(source.declared_names()) {
        if let Some(word) = words_of(name).into_iter().find(|word| EMPTY_WORDS.contains(&word.trim_end_matches('s'))) {
            problems.push(Problem::new(source, line, format!("`{name}`: the word `{word}` says nothing")));
        }
    }
    problems
}

pub(crate) fn unfinished(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for banned in ["#[ignore", "todo!", "unimplemented!"] {
        let lines = source.code.match_indices(banned).map(|(at, _)| line_of(&source.code, at));
        problems.extend(lines.map(|line| Problem::new(source, line, format!("`{banned}`: finish it or leave it out"))));
    }
    problems
}

pub(crate) fn lengths(source: &Source) -> Vec<Problem> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for Function { name, line, lines, parameters } in source.functions() {
        for (count, unit, most) in [(lines, "lines", LONGEST_FUNCTION), (parameters, "parameters", MOST_PARAMETERS)] {
            if count > most {
                problems.push(Problem::new(source, line, format!("`{name}` has {count} {unit}; {most} at most")));
            }
        }
    }
    let lines = source.product_lines();
    if lines > LONGEST_FILE {
        problems.push(Problem::new(source, 1, format!("{lines} lines without tests; {LONGEST_FILE} at most")));
    }
    problems
}

pub(crate) fn wide_comments(source: &Source) -> Vec<Problem> {
    let comments = source.text.lines().zip(source.comments.lines()).zip(1..);
    let wide = comments.filter(|((_, comment), _)| !comment.trim().is_empty());
    let wide = wide.map(|((line, _), number)| (number, line.chars().count()));
    let what = |width| format!("a comment of {width} columns; {WIDEST_COMMENT} at most");
    wide.filter(|(_, width)| *width > WIDEST_COMMENT).map(|(at, width)| Problem::new(source, at, what(width))).collect()
}

/// Finds names that more than one type has, and accepts `most` of them. Looks at all files together.
pub(crate) fn repeated_types(sources: &[Source], most: usize) -> Vec<Problem> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for source in sources.iter().filter(|source| source.path.starts_with("src/")) {
        for (_, name) in source.types() {
            files.entry(name).or_default().push(&source.path);
        }
    }
    files.retain(|_, files| files.len() > 1);
    if files.len() <= most {
        return Vec::new();
    }
    let list: Vec<String> = files.iter().map(|(name, files)| format!("\n{name}: {}", files.join(" "))).collect();
    let what = format!("{} names of more than one type; {most} at most{}", files.len(), list.concat());
    vec![Problem { file: "src".to_owned(), line: 1, what }]
}

/// Applies to every tracked text file, not only Rust. Examples use the folder of a user called `me`.
pub(crate) fn machine_paths(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for folder in MACHINE_FOLDERS {
        for (at, _) in text.match_indices(folder) {
            // `https://example.org/work/` and `src/work/` are no machine paths: a character precedes the slash.
            let before = text[..at].chars().next_back();
            let part_of_longer = before.is_some_and(|c| c.is_alphanumeric() || "._-}~*".contains(c));
            let nobodys = word(&text[at + folder.len()..]) == "me";
            if !part_of_longer && !nobodys {
                let what = format!("`{folder}…` exists on one machine only");
                problems.push(Problem { file: path.to_owned(), line: line_of(text, at), what });
            }
        }
    }
    problems
}

/// `proxy` for `src/proxy/target.rs` and for `src/proxy.rs`.
fn top_module(path: &str) -> Option<&str> {
    path.strip_prefix("src/")?.split(['/', '.']).next()
}

/// `HostKey` and `host_key` are both `host`, `key`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for c in name.chars() {
        if c == '_' || c.is_uppercase() {
            words.push(String::new());
        }
        if let (Some(word), true) = (words.last_mut(), c != '_') {
            word.extend(c.to_lowercase());
        }
    }
    words
}
