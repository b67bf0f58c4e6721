//! Rules about the code itself, checked on every test run.
//!
//! They cover which module and which file may use which, what the core must not use, how long functions and files may
//! be, names without meaning, and the language of comments. A rule is a function from a file, or from all of them, to
//! the problems in it. Each has a test that runs it over the tree and one that shows it fail.

#[path = "tidy/cycles.rs"]
mod cycles;
#[path = "tidy/prose.rs"]
mod prose;
#[path = "tidy/rules.rs"]
mod rules;
#[path = "tidy/samples.rs"]
mod samples;
#[path = "tidy/source.rs"]
mod source;

use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use rules::Problem;
use source::Source;

/// The modules of the crate that each module may use besides itself. One line per folder or file in `src`, from the
/// outside inwards. ARCHITECTURE.md has the picture; add an arrow here only on purpose, and remove it with its last
/// use.
const MAY_USE: &[(&str, &str)] = &[
    ("main", "cli"),
    ("lib", ""),
    (
        "cli",
        "admin app cache clock config judge ledger notify politeness programs robots shutdown store telemetry tls upstream",
    ),
    (
        "app",
        "admin cache clock config gate ledger metrics politeness proxy robots shutdown store telemetry timer tls upstream",
    ),
    (
        "admin",
        "cache clock config connections events gate ledger metrics timeout_stream politeness proxy robots shutdown store",
    ),
    ("judge", "clock politeness"),
    (
        "proxy",
        "cache clock config connections events frames gate ledger metrics timeout_stream politeness programs robots shutdown store telemetry tls upstream",
    ),
    ("robots", "clock config gate ledger politeness store upstream"),
    ("cache", "clock politeness store"),
    ("gate", "clock events ledger metrics politeness store timer"),
    ("ledger", "clock config metrics politeness"),
    ("store", "clock config politeness"),
    ("tls", "clock config politeness"),
    ("upstream", "clock config frames metrics timeout_stream politeness"),
    ("telemetry", "clock config"),
    ("shutdown", ""),
    ("notify", ""),
    ("metrics", "clock politeness"),
    ("events", "clock"),
    ("connections", "clock timeout_stream"),
    ("timeout_stream", "clock"),
    ("timer", "clock"),
    ("programs", ""),
    ("frames", ""),
    ("config", "politeness"),
    ("clock", ""),
    ("politeness", ""),
];

/// The only modules that load or watch a configuration. All others get one and know its types.
const READERS_OF_CONFIG: &[&str] = &["app", "cli"];

/// Circles of files that may stay, each with the reason.
const CYCLES: &[(&str, &str)] = &[
    (
        "src/config/check.rs src/config/environment.rs src/config/exposed.rs src/config/load.rs src/config/tree.rs",
        "load.rs runs the steps and owns the draft that each of them fills",
    ),
    ("src/upstream/connection.rs src/upstream/pool.rs", "a connection returns itself to its pool"),
];

/// The most names that may be declared for more than one type. Such a name is clear in its module only.
const REPEATED_TYPES: usize = 40;

/// Every tracked or new text file with its path; reads the folder itself if there is no git.
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

/// The Rust files of the tree, read once for all tests.
fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(read_sources);
    &SOURCES
}

fn read_sources() -> Vec<Source> {
    let tree = tree().into_iter().filter(|(path, _)| path.ends_with(".rs"));
    let sources: Vec<Source> = tree.map(|(path, text)| Source::new(&path, &text)).collect();
    let test_only: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    let is_below = |path: &str, module: &str| {
        let folder = module.trim_end_matches("/mod.rs").trim_end_matches(".rs");
        path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    };
    let marked = sources.into_iter().map(|source| {
        match test_only.iter().any(|module| source.path == *module || is_below(&source.path, module)) {
            true => source.test_only(),
            false => source,
        }
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
    check_sources(rules::file_head);
}

#[test]
fn arrows_never_turn_round() {
    check_sources(rules::arrows);
}

#[test]
fn the_core_only_decides() {
    check_sources(rules::pure_core);
}

#[test]
fn names_say_something() {
    check_sources(rules::names);
}

#[test]
fn nothing_is_left_unfinished() {
    check_sources(rules::unfinished);
}

#[test]
fn functions_and_files_stay_short() {
    check_sources(rules::lengths);
}

#[test]
fn no_file_knows_the_machine_it_was_written_on() {
    assert_none(&tree().iter().flat_map(|(path, text)| rules::machine_paths(path, text)).collect::<Vec<_>>());
}

#[test]
fn comments_fit_the_width() {
    check_sources(rules::wide_comments);
}

#[test]
fn comments_and_pages_use_plain_words() {
    check_sources(|source| prose::plain_words(&source.path, &source.comments));
    let pages = tree().into_iter().filter(|(path, _)| path.ends_with(".md") || path == "config.toml");
    assert_none(&pages.flat_map(|(path, text)| prose::plain_words(&path, &text)).collect::<Vec<_>>());
}

#[test]
fn a_type_name_means_one_type() {
    assert_none(&rules::repeated_types(sources(), REPEATED_TYPES));
}

#[test]
fn files_of_a_folder_do_not_use_each_other_in_a_circle() {
    assert_none(&cycles::cycles(sources(), CYCLES));
}

#[test]
fn every_arrow_is_used() {
    assert_none(&rules::unused_arrows(sources(), MAY_USE));
}

/// Checks that the table has no cycle: removes modules that use no remaining module, until none is left.
#[test]
fn the_table_of_arrows_has_no_circle() {
    let mut left: Vec<_> = MAY_USE.to_vec();
    while !left.is_empty() {
        let names: Vec<&str> = left.iter().map(|(module, _)| *module).collect();
        let before = left.len();
        left.retain(|(_, uses)| uses.split(' ').any(|used| names.contains(&used)));
        assert!(left.len() < before, "a circle among {names:?}");
    }
}
