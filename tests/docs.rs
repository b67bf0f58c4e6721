//! The commands in README.md and `docs/` do what the text says.
//!
//! Every block fenced as `sh` is run by bash in an empty folder, with the built program first in the path. In it
//! `http://127.0.0.1:3128` stands for a running curtsy, `127.0.0.1:3129` for its admin listener and
//! `http://example.com` for an origin, all three on loopback ports the system chose, the origin at an address that
//! clients send through a proxy. A line `#=> text` says what the block must print. Blocks fenced as `console` are for
//! readers only: they need the internet, or minutes. `tests/clients/run` runs the blocks of `docs/recipes.md`, which
//! need the clients that they are about.
//!
//! Settings that are named in the text exist, and `docs/defaults.md` has a reason for each number of `config.toml`.
//! Links are checked in `docs/pages.rs`.

#[path = "docs/pages.rs"]
mod pages;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

const PROGRAM: &str = env!("CARGO_BIN_EXE_curtsy");
/// Ends a block that hangs; the slowest takes well under a second.
const LIMIT_SECONDS: &str = "60";

#[derive(Debug, PartialEq)]
struct Block {
    /// File and line of the opening fence.
    place: String,
    script: String,
}

impl Block {
    fn expected(&self) -> impl Iterator<Item = &str> {
        self.script.lines().filter_map(|line| line.strip_prefix("#=> "))
    }
}

/// The `sh` blocks of a Markdown text.
fn blocks(file: &str, text: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fence = None;
    for (number, line) in (1..).zip(text.lines()) {
        match (fence, line.strip_prefix("```")) {
            (None, Some(language)) => {
                fence = Some(language);
                if language == "sh" {
                    found.push(Block { place: format!("{file}:{number}"), script: String::new() });
                }
            }
            (Some(_), Some("")) => fence = None,
            (Some("sh"), _) => {
                let block = found.last_mut().expect("its fence made it");
                block.script.push_str(line);
                block.script.push('\n');
            }
            _ => {}
        }
    }
    found
}

/// A running curtsy that may visit loopback; killed when dropped.
struct Curtsy {
    child: Child,
    proxy: String,
    admin: String,
}

impl Curtsy {
    fn start(folder: &Path) -> Self {
        let mut command = without_settings(PROGRAM);
        command.arg("run").current_dir(folder).env("HOME", folder).stdin(Stdio::null()).stderr(Stdio::piped());
        command.envs([
            ("CURTSY_LISTEN", "127.0.0.1:0"),
            ("CURTSY_ADMIN", "127.0.0.1:0"),
            ("CURTSY_STATE_DIR", "memory"),
            ("CURTSY_LOG__FORMAT", "json"),
            ("CURTSY_ACCESS__ALLOW_DESTINATIONS", "127.0.0.0/8"),
        ]);
        let child = command.stdout(Stdio::null()).spawn().expect("the built program starts");
        let mut curtsy = Curtsy { child, proxy: String::new(), admin: String::new() };
        let stderr = curtsy.child.stderr.take().expect("a pipe was asked for");
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        let mut events = lines.by_ref().filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
        let ready = events.find(|line| line["event"] == "ready").expect("curtsy says that it is ready");
        // A thread must go on reading, or the program blocks when the pipe is full.
        thread::spawn(move || lines.for_each(drop));
        curtsy.proxy = ready["proxy"].as_str().expect("the ready line says where clients connect").to_owned();
        curtsy.admin = ready["admin"].as_str().expect("the ready line says where operators connect").to_owned();
        curtsy
    }
}

impl Drop for Curtsy {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An origin that answers every request with the same page, for as long as the test runs.
fn start_origin() -> String {
    let listener = TcpListener::bind("127.0.0.2:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            thread::spawn(|| answer(connection));
        }
    });
    address.to_string()
}

/// Ignores errors: the client notices that it gets no page.
fn answer(mut connection: TcpStream) {
    let mut head = BufReader::new(&connection).lines().map_while(Result::ok);
    if head.by_ref().any(|line| line.is_empty()) {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n";
        let _ = connection.write_all(page.as_bytes());
    }
}

/// A command without settings from the environment of the test run.
fn without_settings(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars() {
        if name.starts_with("CURTSY_") || name.to_ascii_lowercase().ends_with("_proxy") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a script in `folder` and returns whether it succeeded and what it printed.
fn run(script: &str, folder: &Path, admin: &str) -> (bool, String) {
    let programs = Path::new(PROGRAM).parent().expect("a program is in a folder");
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = without_settings("timeout");
    command.args([LIMIT_SECONDS, "bash", "-euo", "pipefail", "-c", &format!("exec 2>&1\n{script}")]);
    // The text about `curtsy exec` is for a user without a running curtsy.
    let admin = if script.contains("curtsy exec ") { "off" } else { admin };
    command.current_dir(folder).env("HOME", folder).env("PATH", path).env("CURTSY_ADMIN", admin);
    command.env("CURTSY_ACCESS__ALLOW_DESTINATIONS", "127.0.0.0/8");
    let output = command.stdin(Stdio::null()).output().expect("bash and timeout are there");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let ours = pages::pages().into_iter().filter(|page| !page.ends_with("recipes.md"));
    ours.chain(["README.md".into()]).map(|page| root.join(page)).collect()
}

/// `scripts/judge-clients` and `scripts/pictures` store what they measured and recorded beside the pictures of it.
#[test]
fn pictures_are_drawn_from_their_data() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a writable temporary directory");
    for (script, names) in [("judge-clients", &["judge.svg", "judge-gaps.svg"][..]), ("pictures", &["terminal.svg"])] {
        let mut draw = Command::new("python3");
        draw.arg(root.join("scripts").join(script)).arg("--draw").arg(folder.path());
        assert!(draw.status().expect("python3 is there").success());
        for name in names {
            let stored = std::fs::read_to_string(root.join("docs/images").join(name)).expect("a file in docs/images");
            let drawn = std::fs::read_to_string(folder.path().join(name)).expect("the script drew it");
            assert!(stored == drawn, "{name} is out of date: run scripts/{script} --draw docs/images");
        }
    }
}

#[test]
fn every_command_in_the_documentation_works() {
    let home = tempfile::tempdir().expect("a writable temporary folder");
    let origin = start_origin();
    let curtsy = Curtsy::start(home.path());

    let mut failures = Vec::new();
    let mut tried = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).expect("a readable document");
        for block in blocks(&document.file_name().expect("it has a name").to_string_lossy(), &text) {
            tried += 1;
            let script = block.script.replace("127.0.0.1:3128", &curtsy.proxy).replace("127.0.0.1:3129", &curtsy.admin);
            let script = script.replace("http://example.com", &format!("http://{origin}"));
            let folder = tempfile::tempdir().expect("a writable temporary folder");
            let (succeeded, printed) = run(&script, folder.path(), &curtsy.admin);
            let missing: Vec<&str> = block.expected().filter(|text| !printed.contains(text)).collect();
            if !succeeded || !missing.is_empty() {
                failures.push(format!(
                    "{}: succeeded {succeeded}, not printed {missing:?}\n{script}---\n{printed}",
                    block.place
                ));
            }
        }
    }
    assert!(tried > 0, "the documentation has no commands to try");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn only_sh_blocks_are_run() {
    let text = "a\n```sh\none\n#=> two\n```\n```console\n$ three\n```\n```text\n```\n```sh\n```\n";
    let found = blocks("x.md", text);
    assert_eq!(found[0], Block { place: "x.md:2".into(), script: "one\n#=> two\n".into() });
    assert_eq!(found[0].expected().collect::<Vec<_>>(), ["two"]);
    assert_eq!(found[1..], [Block { place: "x.md:11".into(), script: String::new() }]);
}

#[test]
fn a_failing_command_is_noticed() {
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    assert_eq!(run("echo hello", folder.path(), ""), (true, "hello\n".into()));
    assert_eq!(run("echo before\nfalse\necho after", folder.path(), ""), (false, "before\n".into()));
    assert!(!run("false | cat", folder.path(), "").0);
    assert!(!run("echo $not_set", folder.path(), "").0);
}

const CONFIG: &str = include_str!("../config.toml");
const DEFAULTS: &str = include_str!("../docs/defaults.md");

/// Every key of `config.toml` that has a default, such as `politeness.delay`, with its default.
fn settings() -> BTreeMap<String, toml::Value> {
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), toml::Value::Table(CONFIG.parse().expect("config.toml is TOML")))];
    while let Some((path, value)) = left.pop() {
        match value {
            toml::Value::Table(table) => left.extend(table.into_iter().map(|(key, value)| match path.as_str() {
                "" => (key, value),
                section => (format!("{section}.{key}"), value),
            })),
            value => {
                found.insert(path, value);
            }
        }
    }
    found
}

/// The keys that `config.toml` has in comments because they have no default: `politeness.rate` and those of `[[host]]`.
fn settings_without_default() -> BTreeSet<String> {
    let mut section = String::new();
    let mut found = BTreeSet::new();
    for line in CONFIG.lines() {
        let words = line.trim_start_matches("# ");
        if let Some(name) = words.strip_prefix('[') {
            section = name.trim_matches(['[', ']']).to_owned();
        } else if let (true, Some((key, _))) = (line.starts_with("# "), words.split_once(" = ")) {
            found.insert(format!("{section}.{}", key.trim()));
        }
    }
    found
}

/// The texts between backticks, outside of code blocks.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split("```").step_by(2).flat_map(|prose| prose.split('`').skip(1).step_by(2))
}

/// The settings in a text that do not exist, such as `politeness.dealy` and `[[host]] dealy`.
fn unknown_settings(text: &str) -> Vec<String> {
    let known: BTreeSet<String> = settings().into_keys().chain(settings_without_default()).collect();
    let sections: BTreeSet<&str> = known.iter().filter_map(|key| Some(key.rsplit_once('.')?.0)).collect();
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '2');
    let mut unknown = Vec::new();
    for span in code_spans(text) {
        let name = span.replace("[[host]] ", "host.");
        let name = name.split([' ', '=']).next().unwrap_or_default();
        let Some((section, key)) = name.rsplit_once('.') else { continue };
        let names_one = sections.contains(section) && is_word(key) && !["md", "rs", "toml", "txt"].contains(&key);
        if names_one && !known.contains(name) && !sections.contains(name) {
            unknown.push(name.to_owned());
        }
    }
    unknown
}

/// Only these pages and the guides are checked: in others the same words are names of log events.
const ABOUT_SETTINGS: &[(&str, &str)] = &[
    ("defaults.md", DEFAULTS),
    ("migrating.md", include_str!("../docs/migrating.md")),
    ("recipes.md", include_str!("../docs/recipes.md")),
];

#[test]
fn settings_that_the_documentation_names_exist() {
    for (name, text) in ABOUT_SETTINGS {
        assert_eq!(unknown_settings(text), [""; 0], "docs/{name} names settings that do not exist");
    }
    for guide in documents().into_iter().filter(|page| page.parent().is_some_and(|folder| folder.ends_with("guides"))) {
        let text = std::fs::read_to_string(&guide).expect("a readable document");
        assert_eq!(unknown_settings(&text), [""; 0], "{} names settings that do not exist", guide.display());
    }
}

#[test]
fn a_setting_that_does_not_exist_is_noticed() {
    let text = "`politeness.dealy`, `politeness.delay = \"1s\"`, `politeness.rate`, `tls.tunnel.max_lifetime`, `tls.tunel`,\n\
        `[[host]] jitter`, `[[host]] jiter`, `robots.txt`, `example.com`\n```toml\npoliteness.dilay\n```\n";
    assert_eq!(unknown_settings(text), ["politeness.dealy", "tls.tunel", "host.jiter"]);
}

/// A default as `docs/defaults.md` writes it, if it needs a reason: numbers, times and sizes do.
fn number(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::Integer(_) | toml::Value::Float(_) => Some(value.to_string()),
        toml::Value::String(text) => {
            let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
            let units = ["ms", "s", "m", "h", "d", "B", "KiB", "MiB", "GiB"];
            (unit.len() < text.len() && units.contains(&unit)).then(|| text.clone())
        }
        toml::Value::Array(list) if !list.is_empty() => {
            list.iter().map(number).collect::<Option<Vec<_>>>().map(|list| list.join(", "))
        }
        _ => None,
    }
}

#[test]
fn every_number_has_its_reason() {
    let rows = DEFAULTS.lines().filter(|line| line.starts_with("| `"));
    let told: BTreeMap<String, String> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            assert!(cells.len() == 3 && !cells[2].is_empty(), "not a key, a default and a reason: {row}");
            (cells[0].trim_matches('`').to_owned(), cells[1].to_owned())
        })
        .collect();
    let wanted: BTreeMap<String, String> =
        settings().iter().filter_map(|(key, value)| Some((key.clone(), number(value)?))).collect();
    assert!(wanted.len() > 40, "config.toml has more numbers than {}", wanted.len());
    assert_eq!(told, wanted, "docs/defaults.md on the left, config.toml on the right");
}

/// The steps `file::function` in a text that do not exist below `src`.
fn unknown_steps(text: &str) -> Vec<String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let exists = |(file, function): (&str, &str)| {
        let text = std::fs::read_to_string(source.join(file)).unwrap_or_default();
        text.lines().any(|line| {
            let declared = line.split_once("fn ").map_or("", |(_, name)| name);
            declared.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<']))
        })
    };
    let steps = code_spans(text).filter(|span| span.contains(".rs::"));
    steps.filter(|step| !step.split_once("::").is_some_and(exists)).map(str::to_owned).collect()
}

#[test]
fn the_life_of_a_request_names_functions_that_exist() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/life-of-a-request.md");
    let text = std::fs::read_to_string(page).expect("the page");
    assert!(code_spans(&text).filter(|span| span.contains(".rs::")).count() > 30, "the page names its steps");
    assert_eq!(unknown_steps(&text), [""; 0]);
}

/// The most functions, and the most files, that the path of a plain GET may have. Lower them when it gets shorter.
const LONGEST_PATH: (usize, usize) = (60, 35);

/// The number of functions and of files in the table of a plain GET's path.
fn path_length(page: &str) -> (usize, usize) {
    let section = page.split("## Every function of a plain GET").nth(1).unwrap_or_default();
    let rows = section.lines().take_while(|line| !line.starts_with("## ")).filter(|line| line.starts_with("| "));
    let steps: BTreeSet<&str> = rows.flat_map(code_spans).collect();
    let files: BTreeSet<&str> = steps.iter().filter_map(|step| step.split("::").next()).collect();
    (steps.len(), files.len())
}

/// `scripts/request-path` checks that the table is complete.
#[test]
fn the_path_of_a_plain_request_does_not_grow() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/life-of-a-request.md");
    let text = std::fs::read_to_string(page).expect("the page");
    assert_eq!(path_length(&text), LONGEST_PATH);
    let told = format!("{} functions in {} files", LONGEST_PATH.0, LONGEST_PATH.1);
    assert!(text.contains(&told), "the page does not say: {told}");
}

#[test]
fn steps_of_the_path_are_counted_once() {
    let page = "`x.rs::a`\n## Every function of a plain GET\n| a | `x.rs::a`, `x.rs::b` |\n| b | `x.rs::a`, `y.rs::a` |\n\n\
                - `z.rs::a`\n## Next\n| c | `w.rs::a` |\n";
    assert_eq!(path_length(page), (3, 2));
}

#[test]
fn a_step_that_does_not_exist_is_noticed() {
    assert_eq!(
        unknown_steps("`main.rs::main` `main.rs::mai` `nowhere.rs::main`"),
        ["main.rs::mai", "nowhere.rs::main"]
    );
}

const SCHEMA: &str = "docs/curtsy.schema.json";

/// Editors and catalogues of schemas fetch the file, so it must be what the program prints.
#[test]
fn the_published_schema_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(SCHEMA);
    let schema = format!("{:#}\n", curtsy::config::schema());
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &schema).expect("a writable file");
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "{SCHEMA} is not current: run BLESS=1 cargo test --test docs schema");
}
