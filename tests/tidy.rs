//! Rules about the code itself, checked on every run of the tests.
//!
//! Who may call whom, what the core may not know, how long things may get, which names say nothing. A rule is a
//! function from a file to the problems in it; each has a test that runs it over the tree and one that shows it fail.

#[path = "tidy/source.rs"]
mod source;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use source::{Source, line_of, words_at};

/// Which modules of the crate each module may name, itself aside. One line per folder or file in `src`, from the door
/// inwards: the picture is in ARCHITECTURE.md, and an arrow is only ever added here on purpose.
const MAY_USE: &[(&str, &[&str])] = &[
    ("main", &["cli"]),
    ("lib", &[]),
    ("cli", &["app", "clock", "config"]),
    (
        "app",
        &[
            "admin",
            "clock",
            "config",
            "gate",
            "ledger",
            "metrics",
            "politeness",
            "proxy",
            "shutdown",
            "store",
            "telemetry",
            "tls",
            "upstream",
        ],
    ),
    ("admin", &["clock", "config", "gate", "metrics", "politeness"]),
    ("proxy", &["clock", "config", "gate", "metrics", "politeness", "telemetry", "tls", "upstream"]),
    ("gate", &["clock", "config", "ledger", "metrics", "politeness", "store", "upstream"]),
    ("ledger", &["clock", "config", "metrics", "politeness"]),
    ("store", &["clock", "config", "metrics", "politeness"]),
    ("tls", &["clock", "config", "metrics", "politeness"]),
    ("upstream", &["clock", "config", "metrics", "politeness"]),
    ("telemetry", &["clock", "config"]),
    ("shutdown", &["clock"]),
    ("metrics", &["clock", "politeness"]),
    ("config", &[]),
    ("clock", &["politeness"]),
    ("politeness", &[]),
];

/// Only these load or watch a configuration; everyone else is given one and knows its types.
const READERS_OF_CONFIG: &[&str] = &["app", "cli"];

/// Words that must not appear in the core: it decides, and does nothing else.
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

/// Names of drawers, not of things.
const EMPTY_WORDS: &[&str] =
    &["common", "context", "data", "helper", "info", "internal", "manager", "processor", "service", "util"];

/// Past this, a function tells more than one story.
const LONGEST_FUNCTION: usize = 80;
/// Past this, a file has more than one topic. Tests do not count.
const LONGEST_FILE: usize = 500;

/// Folders that only exist on somebody's machine. In halves, so that this file passes its own rule.
const MACHINE_FOLDERS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

#[derive(Debug, PartialEq)]
struct Problem {
    file: String,
    line: usize,
    what: String,
}

impl Problem {
    fn new(source: &Source, line: usize, what: String) -> Self {
        Problem { file: source.path.clone(), line, what }
    }
}

fn file_head(source: &Source) -> Vec<Problem> {
    let head = source.text.lines().next().and_then(|line| line.strip_prefix("//! "));
    match head {
        Some(words) if !words.trim().is_empty() => Vec::new(),
        _ => vec![Problem::new(source, 1, "the file does not open with a `//!` line that says what it is for".into())],
    }
}

fn arrows(source: &Source) -> Vec<Problem> {
    let Some(me) = top_module(&source.path) else { return Vec::new() };
    let Some((_, allowed)) = MAY_USE.iter().find(|(module, _)| *module == me) else {
        return vec![Problem::new(source, 1, format!("`{me}` has no line in MAY_USE of tests/tidy.rs"))];
    };
    let mut problems = Vec::new();
    for (line, path) in crate_paths(source) {
        let other = path[0].as_str();
        let is_module = MAY_USE.iter().any(|(module, _)| *module == other);
        if other != me && !allowed.contains(&other) {
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

/// Paths from the root of the crate, however they are written: `crate::`, `curtsy::` (from the binary), or enough
/// `super::` to climb there.
fn crate_paths(source: &Source) -> Vec<(usize, Vec<String>)> {
    let root = if source.path == "src/main.rs" { "curtsy" } else { "crate" };
    let mut paths = source.paths_from(root);
    let depth = source.module().len();
    for (line, path) in source.paths_from("super") {
        let ups = 1 + path.iter().take_while(|segment| *segment == "super").count();
        if ups == depth {
            paths.push((line, path[ups - 1..].to_vec()));
        }
    }
    paths.retain(|(_, path)| path.first().is_some_and(|first| first.starts_with(|c: char| c.is_ascii_lowercase())));
    paths
}

fn pure_core(source: &Source) -> Vec<Problem> {
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

fn names(source: &Source) -> Vec<Problem> {
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

fn unfinished(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for banned in ["#[ignore", "todo!", "unimplemented!"] {
        let lines = source.code.match_indices(banned).map(|(at, _)| line_of(&source.code, at));
        problems.extend(lines.map(|line| Problem::new(source, line, format!("`{banned}`: finish it or leave it out"))));
    }
    problems
}

fn lengths(source: &Source) -> Vec<Problem> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (name, line, lines) in source.functions() {
        if lines > LONGEST_FUNCTION {
            problems.push(Problem::new(
                source,
                line,
                format!("`{name}` has {lines} lines; {LONGEST_FUNCTION} at most"),
            ));
        }
    }
    let lines = source.product_lines();
    if lines > LONGEST_FILE {
        problems.push(Problem::new(source, 1, format!("{lines} lines without tests; {LONGEST_FILE} at most")));
    }
    problems
}

/// A rule for every tracked text file, not only Rust.
fn machine_paths(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for folder in MACHINE_FOLDERS {
        for (at, _) in text.match_indices(folder) {
            // `https://example.org/work/` and `src/work/` are no machine paths: something stands before the slash.
            let part_of_longer =
                text[..at].chars().next_back().is_some_and(|c| c.is_alphanumeric() || "._-}~*".contains(c));
            if !part_of_longer {
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

/// Every tracked or new file that is text, with its path; from the folder itself where there is no git.
fn tree() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let listing = ["ls-files", "--cached", "--others", "--exclude-standard", "-z"];
    let paths = match Command::new("git").arg("-C").arg(root).args(listing).output() {
        Ok(output) if output.status.success() => {
            let listing = String::from_utf8(output.stdout).expect("git lists paths of this tree, which are ASCII");
            listing.split_terminator('\0').map(str::to_owned).collect()
        }
        _ => walk(root, ""),
    };
    let text = |path: String| std::fs::read_to_string(root.join(&path)).ok().map(|text| (path, text));
    paths.into_iter().filter_map(text).collect()
}

fn walk(root: &Path, folder: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root.join(folder)).expect("a folder of the tree") {
        let entry = entry.expect("an entry of a folder of the tree");
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        match entry.file_type().expect("the type of an entry") {
            kind if kind.is_dir() && name != "target" && name != ".git" => paths.extend(walk(root, &path)),
            kind if kind.is_file() => paths.push(path),
            _ => {}
        }
    }
    paths
}

fn sources() -> Vec<Source> {
    let tree = tree().into_iter().filter(|(path, _)| path.ends_with(".rs"));
    let sources: Vec<Source> = tree.map(|(path, text)| Source::new(&path, &text)).collect();
    let test_only: BTreeSet<String> = sources.iter().flat_map(Source::test_modules).collect();
    let marked = sources.into_iter().map(|source| match test_only.contains(&source.path) {
        true => source.test_only(),
        false => source,
    });
    marked.collect()
}

fn assert_none(problems: &[Problem]) {
    let list: Vec<String> = problems.iter().map(|p| format!("{}:{}: {}", p.file, p.line, p.what)).collect();
    assert!(list.is_empty(), "{} problem(s)\n{}", list.len(), list.join("\n"));
}

fn check_sources(rule: fn(&Source) -> Vec<Problem>) {
    let sources = sources();
    assert!(sources.iter().any(|source| source.path == "src/main.rs"), "the tree was not found");
    assert_none(&sources.iter().flat_map(rule).collect::<Vec<_>>());
}

#[test]
fn every_file_says_what_it_is_for() {
    check_sources(file_head);
}

#[test]
fn arrows_never_turn_round() {
    check_sources(arrows);
}

#[test]
fn the_core_only_decides() {
    check_sources(pure_core);
}

#[test]
fn names_say_something() {
    check_sources(names);
}

#[test]
fn nothing_is_left_unfinished() {
    check_sources(unfinished);
}

#[test]
fn functions_and_files_stay_short() {
    check_sources(lengths);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    assert_none(&tree().iter().flat_map(|(path, text)| machine_paths(path, text)).collect::<Vec<_>>());
}

/// The table may not hold a circle: take away modules that use nothing left, until none is left.
#[test]
fn the_table_of_arrows_has_no_circle() {
    let mut left: Vec<_> = MAY_USE.to_vec();
    while !left.is_empty() {
        let names: Vec<&str> = left.iter().map(|(module, _)| *module).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.iter().any(|used| names.contains(used)));
        assert!(left.len() < before, "a circle among {names:?}");
    }
}

mod each_rule_can_fail {
    use super::*;

    /// What a rule says about a made-up file, as `line: problem`.
    fn check(rule: fn(&Source) -> Vec<Problem>, path: &str, text: &str) -> Vec<String> {
        rule(&Source::new(path, text)).iter().map(|problem| format!("{}: {}", problem.line, problem.what)).collect()
    }

    #[test]
    fn file_head() {
        assert_eq!(check(super::file_head, "src/a.rs", "//! What it is for.\n"), [""; 0]);
        for bad in ["", "use std::fmt;\n", "// A comment.\n", "//! \nfn f() {}\n", "\n//! Too late.\n"] {
            assert_eq!(check(super::file_head, "src/a.rs", bad).len(), 1, "{bad:?}");
        }
    }

    #[test]
    fn arrows() {
        let rule = super::arrows;
        assert_eq!(check(rule, "src/proxy/mod.rs", "use crate::gate::Gate;"), [""; 0]);
        assert_eq!(check(rule, "src/gate/mod.rs", "use crate::proxy::Proxy;"), ["1: `gate` must not know `proxy`"]);
        assert_eq!(
            check(rule, "src/gate/mod.rs", "fn f() {\n    crate::admin::f();\n}"),
            ["2: `gate` must not know `admin`"]
        );
        assert_eq!(check(rule, "src/newcomer.rs", ""), ["1: `newcomer` has no line in MAY_USE of tests/tidy.rs"]);
        assert_eq!(
            check(rule, "src/gate/mod.rs", "use crate::nowhere::X;"),
            ["1: `crate::nowhere` is no module of MAY_USE"]
        );
        assert_eq!(check(rule, "src/main.rs", "use curtsy::{app, cli};"), ["1: `main` must not know `app`"]);
    }

    #[test]
    fn arrows_hidden_in_braces_and_supers() {
        let rule = super::arrows;
        let braces = "use crate::{\n    clock::{self, Clock},\n    admin::{Views as V, x::Y},\n    metrics,\n};";
        assert_eq!(check(rule, "src/gate/wait.rs", braces).len(), 2);
        assert_eq!(check(rule, "src/gate/wait.rs", "use super::super::proxy::X;"), ["1: `gate` must not know `proxy`"]);
        assert_eq!(check(rule, "src/gate.rs", "use super::proxy::X;"), ["1: `gate` must not know `proxy`"]);
        assert_eq!(check(rule, "src/gate/mod.rs", "use super::proxy::X;"), ["1: `gate` must not know `proxy`"]);
        assert_eq!(check(rule, "src/gate/wait.rs", "use super::proxy::X;"), [""; 0]);
    }

    #[test]
    fn arrows_in_comments_literals_and_tests_do_not_count() {
        let text = concat!(
            "//! See [`crate::proxy`].\n/* crate::proxy /* nested */ crate::proxy */\n",
            "const A: &str = \"\\\" crate::proxy\";\nconst B: &str = r#\"\" crate::proxy\"#;\n",
            "fn f<'a>(x: &'a str) -> char { '\"' }\n",
            "#[cfg(test)]\nmod tests {\n    use crate::proxy::X;\n}\n",
        );
        assert_eq!(check(super::arrows, "src/gate/mod.rs", text), [""; 0]);
        let after = format!("{text}use crate::proxy::X;\n");
        assert_eq!(check(super::arrows, "src/gate/mod.rs", &after), ["10: `gate` must not know `proxy`"]);
    }

    #[test]
    fn config_gives_its_types_only() {
        let rule = super::arrows;
        assert_eq!(check(rule, "src/gate/mod.rs", "use crate::config::{self, Config};"), [""; 0]);
        assert_eq!(check(rule, "src/app.rs", "use crate::config::load;"), [""; 0]);
        let loads = check(rule, "src/gate/mod.rs", "use crate::config::load;");
        assert_eq!(loads, ["1: `gate` may use the types of `config`, not `config::load`"]);
    }

    #[test]
    fn pure_core() {
        let bad = [
            "use tokio::time;",
            "async fn f() {}",
            "use std::net::TcpStream;",
            "use std::{fmt, fs};",
            "use std::time::{Duration, Instant};",
            "fn f() { std::time::SystemTime::now(); }",
            "tracing::info!(x);",
            "#[derive(serde::Serialize)]",
            "use hyper::Uri;",
        ];
        for line in bad {
            let problems = check(super::pure_core, "src/politeness/lane.rs", line);
            assert_eq!(problems.len(), 1, "{line}: {problems:?}");
            assert_eq!(check(super::pure_core, "src/gate/mod.rs", line), [""; 0], "outside the core");
        }
        let good = "//! No tokio here.\nuse std::net::IpAddr;\nuse std::time::Duration;\nfn asynchronous() {}";
        assert_eq!(check(super::pure_core, "src/politeness/lane.rs", good), [""; 0]);
    }

    #[test]
    fn names() {
        let rule = super::names;
        assert_eq!(
            check(rule, "src/proxy/mod.rs", "struct HostKey;\nenum Utility { Helper }\nfn helper() {}"),
            [""; 0]
        );
        assert_eq!(check(rule, "src/utils.rs", ""), ["1: `utils`: the word `utils` says nothing"]);
        assert_eq!(
            check(rule, "src/a.rs", "\npub struct LaneManager;"),
            ["2: `LaneManager`: the word `manager` says nothing"]
        );
        assert_eq!(check(rule, "src/a.rs", "type RequestContext = u8;").len(), 1);
        assert_eq!(check(rule, "src/a.rs", "mod net_helpers {}").len(), 1);
    }

    #[test]
    fn unfinished() {
        let rule = super::unfinished;
        assert_eq!(check(rule, "src/a.rs", "// todo! later\nconst A: &str = \"todo!\";"), [""; 0]);
        assert_eq!(check(rule, "src/a.rs", "fn f() { todo!() }").len(), 1);
        assert_eq!(check(rule, "src/a.rs", "#[cfg(test)]\nmod t {\n    fn f() { unimplemented!(\"x\") }\n}").len(), 1);
        assert_eq!(check(rule, "tests/it/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}").len(), 1);
    }

    #[test]
    fn lengths() {
        let rule = super::lengths;
        let function = |lines: usize| format!("fn long(x: [u8; 2]) -> u8\n{{\n{}}}\n", "    x;\n".repeat(lines - 3));
        assert_eq!(check(rule, "src/a.rs", &function(80)), [""; 0]);
        assert_eq!(check(rule, "src/a.rs", &format!("\n{}", function(81))), ["2: `long` has 81 lines; 80 at most"]);
        assert_eq!(check(rule, "src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}", function(200))), [""; 0]);
        assert_eq!(
            check(rule, "src/a.rs", &"const A: u8 = 1;\n".repeat(501)),
            ["1: 501 lines without tests; 500 at most"]
        );
        let tail = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const B: u8 = 2;\n".repeat(100));
        assert_eq!(check(rule, "src/a.rs", &("const A: u8 = 1;\n".repeat(500) + &tail)), [""; 0]);
    }

    #[test]
    fn machine_paths() {
        for folder in MACHINE_FOLDERS {
            let problems = super::machine_paths("README.md", &format!("see\n`{folder}me/notes`"));
            assert_eq!(problems.len(), 1, "{folder}");
            assert_eq!(problems[0].line, 2);
            assert_eq!(super::machine_paths("README.md", &format!("https://example.org{folder}page")), []);
        }
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let declaring = Source::new("src/config.rs", "#[cfg(test)]\nmod tests;\nmod values;\n");
        assert_eq!(declaring.test_modules(), ["src/config/tests.rs", "src/config/tests/mod.rs"]);
        let declared = Source::new("src/config/tests.rs", "use crate::proxy::X;").test_only();
        assert_eq!(super::arrows(&declared), []);
    }
}
