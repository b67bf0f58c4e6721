//! Checks that tests cover the numbered statements of docs/statements.md and the promises of docs/promises.md, and that
//! comments cite no other numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Statements that must have a test, whatever the page says: what real attackers try, and how clients are kept apart.
const REQUIRED: [&str; 6] = ["X27", "X49", "X62", "X65", "X66", "X70"];

/// The number of promises.
const PROMISES: usize = 10;

/// A row of one of the two pages.
struct Row {
    number: String,
    text: String,
    /// The files that must cite the number, as paths in the repository. Empty if the page says `none`.
    files: Vec<String>,
}

#[test]
fn every_statement_is_cited_by_its_tests() {
    let rows = rows("docs/statements.md");
    let tested = tested(&rows, numbers);
    for number in REQUIRED {
        assert!(tested.contains(number), "docs/statements.md names no test for {number}");
    }
}

#[test]
fn every_promise_is_cited_by_its_tests() {
    let rows = rows("docs/promises.md");
    let tested = tested(&rows, promises);
    let missing: Vec<usize> = (1..=PROMISES).filter(|number| !tested.contains(&number.to_string())).collect();
    assert!(missing.is_empty(), "docs/promises.md names no test for {missing:?}");
}

#[test]
fn no_comment_cites_an_unknown_number() {
    let known = |page| rows(page).into_iter().map(|row| row.number).collect::<BTreeSet<String>>();
    let (statements, promised) = (known("docs/statements.md"), known("docs/promises.md"));
    for folder in ["src", "tests"] {
        each_source(&root().join(folder), &mut |path, text| {
            for comment in comments(text) {
                let unknown: Vec<String> =
                    numbers(comment).into_iter().filter(|number| !statements.contains(number)).collect();
                assert!(unknown.is_empty(), "{}: docs/statements.md has no {unknown:?}", path.display());
                let unknown: Vec<String> =
                    promises(comment).into_iter().filter(|number| !promised.contains(number)).collect();
                assert!(unknown.is_empty(), "{}: docs/promises.md has no promise {unknown:?}", path.display());
            }
        });
    }
}

/// A row links to the page of deviations if and only if that page has its number.
#[test]
fn every_deviation_is_documented() {
    let page = read("docs/deviations.md");
    for row in rows("docs/statements.md") {
        let is_there = page.contains(&format!("| {}:", row.number));
        let is_linked = row.text.contains("(deviations.md)");
        assert_eq!(is_linked, is_there, "{}: the two pages differ about a deviation", row.number);
    }
}

#[test]
fn numbers_are_found_in_comments() {
    assert_eq!(numbers("S13, X2: why, not X-A, S or 5S"), ["S13", "X2"]);
    assert_eq!(promises("X3, Promises 2, 3 and 11: x 4"), ["2", "3", "11"]);
    assert_eq!(promises("it promises to come"), [""; 0]);
}

/// The parsers of foreign bytes, each with its fuzz target.
const FUZZED: [(&str, &str); 10] = [
    ("chunks", "read_body"),
    ("config", "curtsy::config"),
    ("directives", "curtsy::politeness::reuse"),
    ("host", "HostKey"),
    ("response", "curtsy::upstream::fuzzing"),
    ("robots_match", "curtsy::politeness::robots"),
    ("robots_parse", "curtsy::politeness::robots"),
    ("signals", "curtsy::politeness::signals"),
    ("target", "Target"),
    ("tunnel", "curtsy::proxy::fuzzing"),
];

/// X62: every parser of foreign bytes has a fuzz target.
#[test]
fn every_reader_of_foreign_bytes_is_fuzzed() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml is there");
    for (target, reader) in FUZZED {
        let text = fs::read_to_string(fuzz.join(format!("targets/{target}.rs"))).expect("the target is there");
        assert!(text.contains(reader), "{target} does not show anything to {reader}");
        assert!(manifest.contains(&format!("name = \"{target}\"")), "fuzz/Cargo.toml does not build {target}");
    }
    let targets = fs::read_dir(fuzz.join("targets")).expect("a readable folder").count();
    assert!(targets >= FUZZED.len(), "{targets} targets");
}

/// A test that sleeps until something has happened fails on a busy machine. Use `support/deadline.rs` instead.
#[test]
fn no_test_sleeps_to_wait_for_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in fs::read_dir(folder).expect("the sources are where the tests are") {
        let path = entry.expect("a readable folder").path();
        let text = if path.is_file() { fs::read_to_string(&path).expect("sources are text") } else { String::new() };
        assert!(!text.contains(&["thread::", "sleep("].concat()), "{} sleeps", path.display());
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The rows of a page whose first cell is a number. The other cells are the text and the tests.
fn rows(page: &str) -> Vec<Row> {
    let text = read(page);
    let mut rows = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [number, text, tests] = cells[..] else { continue };
        if number.bytes().any(|byte| byte.is_ascii_digit()) {
            let files: Vec<String> = tests.split('`').skip(1).step_by(2).map(path_of).collect();
            assert!(!files.is_empty() || tests == "none", "{page}: {number} names neither tests nor `none`");
            rows.push(Row { number: number.to_owned(), text: text.to_owned(), files });
        }
    }
    let distinct: BTreeSet<&str> = rows.iter().map(|row| row.number.as_str()).collect();
    assert!(distinct.len() == rows.len() && rows.len() >= PROMISES, "{page} has {} rows", rows.len());
    rows
}

/// A word is a file in `tests/it`, anything else is a path already.
fn path_of(name: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("tests/it/{name}.rs") }
}

/// The numbers with tests. Each file of a row must cite the number of the row.
fn tested(rows: &[Row], cited: fn(&str) -> Vec<String>) -> BTreeSet<String> {
    let mut known: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for row in rows {
        for file in &row.files {
            let found = known.entry(file).or_insert_with(|| {
                let text = read(file);
                // Only Rust has comments that are easy to find; in other files any line may cite a number.
                let lines: Vec<&str> =
                    if file.ends_with(".rs") { comments(&text).collect() } else { text.lines().collect() };
                lines.into_iter().flat_map(cited).collect()
            });
            assert!(found.contains(&row.number), "{file} does not cite {}", row.number);
        }
    }
    rows.iter().filter(|row| !row.files.is_empty()).map(|row| row.number.clone()).collect()
}

/// Calls `see` with every Rust file below a folder.
fn each_source(folder: &Path, see: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).expect("the sources are where the tests are") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            each_source(&path, see);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            see(&path, &fs::read_to_string(&path).expect("sources are text"));
        }
    }
}

/// The lines that are comments, without their slashes.
fn comments(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| line.trim().strip_prefix("//"))
}

/// The numbers of promises in a comment: "Promises 2 and 3: why" cites 2 and 3.
fn promises(comment: &str) -> Vec<String> {
    let comment = comment.to_ascii_lowercase();
    let Some((_, list)) = comment.split_once("promises ").or_else(|| comment.split_once("promise ")) else {
        return Vec::new();
    };
    let words = list.split([' ', ',']).filter(|word| !word.is_empty() && *word != "and");
    let numbers = words.map_while(|word| {
        let digits = word.trim_end_matches([':', '.', ';', ')']);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| (digits.to_owned(), digits.len() < word.len()))
    });
    let mut found = Vec::new();
    for (number, is_last) in numbers {
        found.push(number);
        if is_last {
            break;
        }
    }
    found
}

/// The numbers of statements in a comment.
fn numbers(comment: &str) -> Vec<String> {
    let words = comment.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| is_number(word)).map(str::to_owned).collect()
}

fn is_number(word: &str) -> bool {
    word.strip_prefix(['S', 'X', 'C'])
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
