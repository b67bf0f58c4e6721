//! Every statement that must hold is named by a test that checks it.

use std::collections::BTreeSet;
use std::fs;
use std::ops::RangeInclusive;
use std::path::Path;

/// The statements of this part of the work. Not among them: interception (X22–X24), the image (X18), HTTP/2 (S54–S62)
/// and what origins say about time (S63–S72).
const REQUIRED: [(char, &[RangeInclusive<u32>]); 2] = [
    ('S', &[1..=53, 73..=80]),
    ('X', &[1..=17, 19..=21, 25..=27, 30..=31, 33..=35, 37..=37, 40..=40, 53..=60, 65..=65, 70..=70]),
];

/// Statements that need a resolver, a hundred thousand hosts or a worker that hangs, and the unit tests that check them.
const ELSEWHERE: [(&str, &str, &str); 7] = [
    ("X2", "src/upstream/guard.rs", "fn one_private_address_spoils_the_set"),
    ("X14", "src/upstream/resolve_tests.rs", "fn localhost_has_an_address_and_is_remembered"),
    ("X15", "src/upstream/resolve_tests.rs", "fn a_full_cache_forgets_instead_of_failing"),
    ("X55", "src/gate/busiest.rs", "fn a_hundred_thousand_hosts_have_no_more_series_than_a_hundred"),
    ("X58", "src/admin/health.rs", "fn a_line_that_does_not_move_is_told"),
    ("X58", "src/gate/line.rs", "gate.overdue() >= Duration::from_secs(19)"),
    ("X59", "src/config/exposed.rs", "fn a_file_that_everybody_can_read_is_told_with_its_mode"),
];

/// Statements that hold in part only, because of what hyper and its types can do; docs/deviations.md says more.
const DEVIATIONS: [(&str, &str); 6] = [
    ("S4", "an empty path is read as /, so OPTIONS without a path cannot become OPTIONS *"),
    ("S8", "a fragment is dropped instead of refused"),
    ("S23", "fields of one name are written together, so the order between names may change"),
    ("S26", "a request framed twice is read by its chunks instead of refused"),
    ("S34", "a bare line feed ends a line of a head, but not of a chunked body"),
    ("S46", "answers before the answer (103) are not passed on"),
];

#[test]
fn every_deviation_is_documented() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/deviations.md"));
    let text = text.expect("docs/deviations.md is there");
    for (number, reason) in DEVIATIONS {
        assert!(text.contains(&format!("{number}:")), "docs/deviations.md does not say of {number}: {reason}");
    }
}

/// What curtsy promises, as tests name it: "Promise 3: …".
const PROMISES: RangeInclusive<u32> = 1..=10;

#[test]
fn every_promise_is_named_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut named = BTreeSet::new();
    for folder in ["tests/it", "src"] {
        each_comment(&root.join(folder), &mut |comment| named.extend(promises(comment)));
    }
    let missing: Vec<u32> = PROMISES.filter(|number| !named.contains(number)).collect();
    assert!(missing.is_empty(), "no test names promise {missing:?}");
    assert_eq!(promises("Promises 2, 3 and 11: x 4"), [2, 3, 11]);
}

#[test]
fn every_statement_is_named_by_a_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = named_below(&root.join("tests/it"));
    let missing: Vec<String> = required()
        .filter(|number| !named.contains(number) && !ELSEWHERE.iter().any(|(elsewhere, ..)| elsewhere == number))
        .collect();
    assert!(missing.is_empty(), "no test names {missing:?}");
    for (number, file, test) in ELSEWHERE {
        let text = fs::read_to_string(root.join(file)).expect("the file is there");
        assert!(text.contains(test), "{number} is checked by no `{test}` in {file}");
    }
}

/// What reads foreign bytes, and the fuzz target that shows it any of them.
const FUZZED: [(&str, &str); 9] = [
    ("chunks", "read_body"),
    ("config", "curtsy::config"),
    ("host", "HostKey"),
    ("response", "curtsy::upstream::fuzzing"),
    ("robots_match", "curtsy::politeness::robots"),
    ("robots_parse", "curtsy::politeness::robots"),
    ("signals", "curtsy::politeness::signals"),
    ("target", "Target"),
    ("tunnel", "curtsy::proxy::fuzzing"),
];

/// X62: no reader of foreign bytes panics, whatever it is given.
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

/// A test that sleeps until something has happened fails on a busy machine; `support/deadline.rs` has what to use instead.
#[test]
fn no_test_sleeps_to_wait_for_something() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    for entry in fs::read_dir(folder).expect("the sources are where the tests are") {
        let path = entry.expect("a readable folder").path();
        let text = if path.is_file() { fs::read_to_string(&path).expect("sources are text") } else { String::new() };
        assert!(!text.contains(&["thread::", "sleep("].concat()), "{} sleeps", path.display());
    }
}

fn required() -> impl Iterator<Item = String> {
    REQUIRED
        .into_iter()
        .flat_map(|(letter, ranges)| ranges.iter().cloned().flatten().map(move |number| format!("{letter}{number}")))
}

/// The statement numbers in the doc comments of every file below a folder.
fn named_below(folder: &Path) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    each_comment(folder, &mut |comment| named.extend(numbers(comment)));
    named
}

/// Shows every line of a doc comment in every file below a folder.
fn each_comment(folder: &Path, see: &mut impl FnMut(&str)) {
    for entry in fs::read_dir(folder).expect("the sources are where the tests are") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            each_comment(&path, see);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("sources are text");
            text.lines().filter_map(|line| line.trim().strip_prefix("/// ")).for_each(&mut *see);
        }
    }
}

/// `Promises 2 and 3: why` names 2 and 3.
fn promises(comment: &str) -> Vec<u32> {
    let comment = comment.to_ascii_lowercase();
    let Some((_, list)) = comment.split_once("promises ").or_else(|| comment.split_once("promise ")) else {
        return Vec::new();
    };
    let words = list.split([' ', ',']).filter(|word| !word.is_empty() && *word != "and");
    let numbers = words.map_while(|word| {
        let digits = word.trim_end_matches([':', '.', ';']);
        digits.parse().ok().map(|number: u32| (number, digits.len() < word.len()))
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

/// `S13, X2: why` names S13 and X2.
fn numbers(comment: &str) -> impl Iterator<Item = String> {
    let words = comment.split(|character: char| !character.is_ascii_alphanumeric());
    words.filter(|word| is_number(word)).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

fn is_number(word: &str) -> bool {
    word.strip_prefix(['S', 'X'])
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
