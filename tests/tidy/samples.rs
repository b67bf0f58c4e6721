//! Made-up files that break each rule, because a rule that cannot fail checks nothing.

use crate::rules::{self, LONGEST_FILE, LONGEST_FUNCTION, MACHINE_FOLDERS, MOST_PARAMETERS, Problem};
use crate::source::Source;
use crate::{cycles, prose};

/// The problems that a rule finds in a made-up file, as `line: problem`.
fn check(rule: fn(&Source) -> Vec<Problem>, path: &str, text: &str) -> Vec<String> {
    rule(&Source::new(path, text)).iter().map(|problem| format!("{}: {}", problem.line, problem.what)).collect()
}

#[test]
fn file_head() {
    assert_eq!(check(rules::file_head, "src/a.rs", "//! What it is for.\n"), [""; 0]);
    for bad in ["", "use std::fmt;\n", "// A comment.\n", "//! \nfn f() {}\n", "\n//! Too late.\n"] {
        assert_eq!(check(rules::file_head, "src/a.rs", bad).len(), 1, "{bad:?}");
    }
}

#[test]
fn arrows() {
    let rule = rules::arrows;
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
fn unused_arrows() {
    let unused = |text: &str, uses: &str| -> Vec<String> {
        let problems = rules::unused_arrows(&[Source::new("src/gate/mod.rs", text)], &[("gate", uses)]);
        problems.into_iter().map(|problem| problem.what).collect()
    };
    assert_eq!(unused("use crate::{clock, store::Store};", "clock store"), [""; 0]);
    assert_eq!(unused("", ""), [""; 0]);
    let problem = "`gate` does not use `store`: remove it from MAY_USE";
    assert_eq!(unused("use crate::clock;", "clock store"), [problem]);
    assert_eq!(unused("#[cfg(test)]\nmod tests {\n    use crate::store::Store;\n}", "store"), [problem]);
}

#[test]
fn arrows_hidden_in_braces_and_supers() {
    let rule = rules::arrows;
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
    assert_eq!(check(rules::arrows, "src/gate/mod.rs", text), [""; 0]);
    let after = format!("{text}use crate::proxy::X;\n");
    assert_eq!(check(rules::arrows, "src/gate/mod.rs", &after), ["10: `gate` must not know `proxy`"]);
}

#[test]
fn config_gives_its_types_only() {
    let rule = rules::arrows;
    assert_eq!(check(rule, "src/upstream/mod.rs", "use crate::config::{self, Config};"), [""; 0]);
    assert_eq!(check(rule, "src/app.rs", "use crate::config::load;"), [""; 0]);
    let loads = check(rule, "src/upstream/mod.rs", "use crate::config::load;");
    assert_eq!(loads, ["1: `upstream` may use the types of `config`, not `config::load`"]);
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
        let problems = check(rules::pure_core, "src/politeness/lane.rs", line);
        assert_eq!(problems.len(), 1, "{line}: {problems:?}");
        assert_eq!(check(rules::pure_core, "src/gate/mod.rs", line), [""; 0], "outside the core");
    }
    let good = "//! No tokio here.\nuse std::net::IpAddr;\nuse std::time::Duration;\nfn asynchronous() {}";
    assert_eq!(check(rules::pure_core, "src/politeness/lane.rs", good), [""; 0]);
}

#[test]
fn names() {
    let rule = rules::names;
    assert_eq!(check(rule, "src/proxy/mod.rs", "struct HostKey;\nenum Utility { Helper }\nfn helper() {}"), [""; 0]);
    assert_eq!(check(rule, "src/utils.rs", ""), ["1: `utils`: the word `utils` says nothing"]);
    assert_eq!(
        check(rule, "src/a.rs", "\npub struct LaneManager;"),
        ["2: `LaneManager`: the word `manager` says nothing"]
    );
    assert_eq!(check(rule, "src/a.rs", "type RequestContext = u8;").len(), 1);
    assert_eq!(check(rule, "src/a.rs", "impl Body for A {\n    type Data = u8;\n}"), [""; 0], "named by the trait");
    assert_eq!(check(rule, "src/a.rs", "mod net_helpers {}").len(), 1);
}

#[test]
fn unfinished() {
    let rule = rules::unfinished;
    assert_eq!(check(rule, "src/a.rs", "// todo! later\nconst A: &str = \"todo!\";"), [""; 0]);
    assert_eq!(check(rule, "src/a.rs", "fn f() { todo!() }").len(), 1);
    assert_eq!(check(rule, "src/a.rs", "#[cfg(test)]\nmod t {\n    fn f() { unimplemented!(\"x\") }\n}").len(), 1);
    assert_eq!(check(rule, "tests/it/a.rs", "#[test]\n#[ignore = \"slow\"]\nfn f() {}").len(), 1);
}

#[test]
fn lengths() {
    let rule = rules::lengths;
    let function = |lines: usize| format!("fn long(x: [u8; 2]) -> u8\n{{\n{}}}\n", "    x;\n".repeat(lines - 3));
    assert_eq!(check(rule, "src/a.rs", &function(LONGEST_FUNCTION)), [""; 0]);
    let problem = format!("2: `long` has {} lines; {LONGEST_FUNCTION} at most", LONGEST_FUNCTION + 1);
    assert_eq!(check(rule, "src/a.rs", &format!("\n{}", function(LONGEST_FUNCTION + 1))), [problem]);
    assert_eq!(check(rule, "src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{}}}", function(200))), [""; 0]);
    let file = |lines: usize| "const A: u8 = 1;\n".repeat(lines);
    let problem = format!("1: {} lines without tests; {LONGEST_FILE} at most", LONGEST_FILE + 1);
    assert_eq!(check(rule, "src/a.rs", &file(LONGEST_FILE + 1)), [problem]);
    let tail = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "    const B: u8 = 2;\n".repeat(100));
    assert_eq!(check(rule, "src/a.rs", &(file(LONGEST_FILE) + &tail)), [""; 0]);
}

#[test]
fn parameters() {
    let function = |list: String| format!("fn f<F: Fn(u8, u8) -> u8, const N: usize>({list}) -> (u8, u8) {{}}\n");
    let list = |count: usize| "x: BTreeMap<[u8; N], fn(u8, u8) -> u8>, ".repeat(count);
    let most = function(format!("&mut self, {}", list(MOST_PARAMETERS)));
    assert_eq!(check(rules::lengths, "src/a.rs", &most), [""; 0]);
    let problem = format!("1: `f` has {} parameters; {MOST_PARAMETERS} at most", MOST_PARAMETERS + 1);
    assert_eq!(check(rules::lengths, "src/a.rs", &function(list(MOST_PARAMETERS + 1))), [problem]);
}

#[test]
fn wide_comments() {
    let rule = rules::wide_comments;
    assert_eq!(check(rule, "src/a.rs", &format!("// {}\n", "→".repeat(117))), [""; 0]);
    assert_eq!(check(rule, "src/a.rs", &format!("const A: &str = \"// {}\";\n", "a".repeat(200))), [""; 0]);
    let problem = "2: a comment of 121 columns; 120 at most";
    assert_eq!(check(rule, "src/a.rs", &format!("\n// {}\n", "→".repeat(118))), [problem]);
}

#[test]
fn repeated_types() {
    let types = |text: &str| rules::repeated_types(&[Source::new("src/a.rs", text), Source::new("src/b.rs", text)], 1);
    assert_eq!(types("struct Host;\n#[cfg(test)]\nstruct Test;\n"), []);
    let problems = types("struct Host;\nenum Kind {}\n");
    assert_eq!(problems.len(), 1);
    assert!(problems[0].what.contains("2 names") && problems[0].what.contains("Kind: src/a.rs src/b.rs"));
}

#[test]
fn cycles() {
    let files = |texts: &[(&str, &str)]| -> Vec<Source> {
        texts.iter().map(|(name, text)| Source::new(&format!("src/gate/{name}.rs"), text)).collect()
    };
    let find = |sources: &[Source], allowed: &[(&str, &str)]| -> Vec<String> {
        cycles::cycles(sources, allowed).into_iter().map(|problem| problem.what).collect()
    };
    let none = [
        ("mod", "use a::A;\nuse crate::gate::b;"),
        ("a", "use super::{G, b::B};"),
        ("b", "#[cfg(test)]\nuse super::a::A;"),
        ("b/c", "use super::super::G;\nuse super::B;"),
    ];
    assert_eq!(find(&files(&none), &[]), [""; 0]);
    let circle = files(&[none[1], ("b", ""), ("b/c", "fn f() { crate::gate::a::f() }")]);
    let name = "src/gate/a.rs src/gate/b.rs";
    assert_eq!(find(&circle, &[]), [format!("a circle: {name}")]);
    assert_eq!(find(&circle, &[(name, "")]), [""; 0]);
    assert_eq!(find(&files(&none), &[(name, "")]), [format!("no circle any more, remove it from CYCLES: {name}")]);
}

#[test]
fn plain_words() {
    let check = |text: &str| check(|s| prose::plain_words(&s.path, &s.comments), "src/a.rs", text);
    assert_eq!(check("// Not `nobody`, \"nobody\n// who waits\", to be. It has been\n// told\n"), [""; 0]);
    assert_eq!(check("const NOBODY: &str = \"nobody\";\n// ```\n// nobody\n// ```\n"), [""; 0]);
    assert_eq!(check("fn f() {} // (Nobody).\n"), ["1: `nobody`: say it in plain words"]);
    assert_eq!(check("/// Asks those\n/// who ask.\n"), ["1: `those who`: say it in plain words"]);
    assert_eq!(check("// Has the client told.\n"), ["1: `has * * told`: say it in plain words"]);
    assert_eq!(check("//! Item 12, issue 3\n").len(), 2);
}

#[test]
fn machine_paths() {
    for folder in MACHINE_FOLDERS {
        let problems = rules::machine_paths("README.md", &format!("see\n`{folder}ann/notes`"));
        assert_eq!(problems.len(), 1, "{folder}");
        assert_eq!(problems[0].line, 2);
        assert_eq!(rules::machine_paths("README.md", &format!("`{folder}me/notes`")), []);
        assert_eq!(rules::machine_paths("README.md", &format!("https://example.org{folder}page")), []);
    }
}

#[test]
fn files_of_test_modules_are_tests() {
    let declaring = Source::new("src/config.rs", "#[cfg(test)]\nmod tests;\nmod values;\n");
    assert_eq!(declaring.test_modules(), ["src/config/tests.rs", "src/config/tests/mod.rs"]);
    let declaring = Source::new("src/a/b.rs", "#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod tests;\n");
    assert_eq!(declaring.test_modules(), ["src/a/b_tests.rs"]);
    let declared = Source::new("src/config/tests.rs", "use crate::proxy::X;").test_only();
    assert_eq!(rules::arrows(&declared), []);
}
