//! The state directory as operators use it: shown and changed, exported and imported, with and without a running
//! curtsy.
//!
//! Offline, the commands get a configuration whose admin listener is off.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use curtsy::clock;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::{curtsy, run};
use crate::support::{Client, HELLO, Message, Origin, Program, soon};

const HEAD: &str = "{\"kind\":\"curtsy-state\",\"version\":1}\n";
const DAY_US: u64 = 86_400_000_000;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a writable temporary directory")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// Runs a command on a state directory without asking a running curtsy.
fn offline(state: &Path, arguments: &[&str]) -> (i32, String) {
    run(&[&["--state-dir", text(state), "--admin", "off"], arguments].concat())
}

fn start(state: &Path, settings: &str) -> Program {
    let top =
        format!("state_dir = {:?}\nadmin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\n{settings}", text(state));
    Program::start(&top, "")
}

/// Runs a command against a running curtsy.
fn online(program: &Program, arguments: &[&str]) -> (i32, String) {
    run(&[arguments, &["--admin", &format!("http://{}", program.admin())]].concat())
}

fn host(program: &Program, name: &str) -> Value {
    let line = format!("GET /api/v1/hosts/{name} HTTP/1.1");
    let answer = Client::connect(program.admin()).ask(&[&line, "Host: localhost", "Connection: close"]);
    assert_eq!(answer.status(), 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).expect("JSON")
}

fn says(printed: &str, expected: &[&str]) {
    for text in expected {
        assert!(printed.contains(text), "no {text:?} in\n{printed}");
    }
}

fn line(key: &str, record: &Value) -> String {
    format!("{}\n", json!({"kind": "host", "key": key, "record": record}))
}

/// Writes an export file with these lines after the first.
fn export_of(directory: &Path, lines: &str) -> String {
    let path = directory.join("lines.jsonl");
    std::fs::write(&path, format!("{HEAD}{lines}")).expect("a writable temporary directory");
    text(&path).to_owned()
}

#[test]
fn a_host_is_steered_without_a_running_curtsy() {
    let state = directory();
    let (code, printed) = offline(state.path(), &["hosts"]);
    assert_eq!(code, 4, "{printed}");
    says(&printed, &["nothing is kept in"]);
    let (code, printed) = offline(state.path(), &["host", "a.test", "set", "--delay", "7s"]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["7 s, as configured or set", "offline: no curtsy runs", text(state.path())]);
    assert_eq!(offline(state.path(), &["host", "a.test", "pause", "--until", "2h"]).0, 0);
    assert_eq!(offline(state.path(), &["host", "b.test", "pause"]).0, 0);
    assert_eq!(offline(state.path(), &["host", "c.test", "set", "--delay", "a while"]).0, 1);
    let (code, printed) = offline(state.path(), &["hosts"]);
    assert_eq!(code, 0);
    says(&printed, &["a.test  paused", "b.test  paused"]);
    assert!(!printed.contains("c.test"), "{printed}");

    let program = start(state.path(), "");
    assert_eq!(program.event("state.opened").expect("it is open")["unsettled"], false, "nothing was missing");
    let kept = host(&program, "a.test");
    assert_eq!((&kept["delay_ms"], &kept["paused"]), (&json!(7_000), &json!(true)));
    assert!(kept["paused_until"].is_string() && host(&program, "b.test")["paused_until"].is_null());
    program.stop();

    let (code, printed) = offline(state.path(), &["host", "a.test", "forget"]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["forgot what was set", "kept   the pause"]);
    assert_eq!(offline(state.path(), &["host", "a.test", "resume"]).0, 0);
    assert_eq!(offline(state.path(), &["host", "a.test"]).0, 1, "nothing is known of it any more");
}

/// After a kill the time of the last send is unknown, and running commands meanwhile does not change that.
#[test]
fn looking_does_not_make_a_kill_a_clean_end() {
    let state = directory();
    start(state.path(), "").kill();
    assert_eq!(offline(state.path(), &["host", "a.test", "pause"]).0, 0);
    assert_eq!(offline(state.path(), &["hosts"]).0, 0);
    let program = start(state.path(), "");
    assert_eq!(program.event("state.opened").expect("it is open")["unsettled"], true);
    assert_eq!(host(&program, "a.test")["paused"], true);
}

#[test]
fn a_directory_in_use_is_named_with_its_process() {
    let state = directory();
    let program = start(state.path(), "");
    for arguments in [&["hosts"][..], &["host", "a.test", "pause"], &["state", "export"], &["clients"]] {
        let (code, printed) = offline(state.path(), arguments);
        assert_eq!(code, 1, "{printed}");
        says(&printed, &[&format!("is in use by process {}", program.id()), "--admin"]);
    }
}

/// State can be exported from one curtsy and imported into another, whether they run or not.
#[test]
fn state_moves_from_one_curtsy_to_another() {
    let (here, there, files) = (directory(), directory(), directory());
    let origin = Origin::answering("HTTP/1.1 429 Too Many Requests\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n");
    let program = start(here.path(), "retry.max = 0\nrobots.mode = \"enforce\"\nbreaker.job_failures = 1");
    let asked = format!("GET {} HTTP/1.1", origin.url("/"));
    let refused = program.ask(&[&asked, "Host: ignored.test", "Curtsy-Client: spider"]);
    assert!(refused.status() >= 429, "{}", refused.head());
    assert_eq!(online(&program, &["host", "a.test", "set", "--delay", "9s"]).0, 0);
    assert_eq!(online(&program, &["client", "bot", "stop"]).0, 0);
    let path = text(&files.path().join("out.jsonl")).to_owned();
    let (code, printed) = online(&program, &["state", "export", &path]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["exported 2 hosts, 1 robots.txt copies, "]);
    program.stop();
    let exported = std::fs::read_to_string(&path).expect("it was written");
    let (code, printed) = offline(here.path(), &["state", "export"]);
    assert_eq!(code, 0);
    says(&printed, &["\"key\":\"a.test\"", "\"client\":\"bot\"", "exported 2 hosts"]);
    assert!(exported.starts_with(HEAD) && printed.starts_with(HEAD));

    let (code, printed) = offline(there.path(), &["state", "import", &path]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["hosts       2 new, 0 replaced\n", "robots.txt  1 new"]);
    let program = start(there.path(), "");
    assert_eq!(program.get(&origin.url("/")).value("Curtsy-Error"), "host-cooling", "the hold came along");
    assert_eq!(host(&program, "a.test")["delay_ms"], 9_000);
    says(&online(&program, &["clients"]).1, &["bot", "stopped"]);
    let (code, printed) = online(&program, &["state", "import", &path]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["hosts       0 new, 2 replaced\n"]);
}

/// An import takes effect at once, also for hosts that are in memory.
#[test]
fn an_import_counts_at_once() {
    let (state, files) = (directory(), directory());
    let program = start(state.path(), "politeness.delay = \"10ms\"\nadaptive.policy = \"steps\"");
    let origin = Origin::hello();
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    let now = clock::micros();
    let lines = line("127.0.0.1", &json!({"learned_ms": 8_000, "updated_us": now - 15 * DAY_US}))
        + &line("old.test", &json!({"learned_ms": 8_000, "updated_us": now - 30 * DAY_US}))
        + &line("paused.test", &json!({"paused": true}))
        + "{\"kind\":\"job\",\"client\":\"bot\",\"record\":{}}\n";
    let (code, printed) = online(&program, &["state", "import", &export_of(files.path(), &lines)]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["hosts       1 new, 1 replaced, 1 skipped (too old to change anything)\n", "clients     1 new"]);
    assert_eq!(host(&program, "127.0.0.1")["delay"]["learned_ms"], 2_000, "and what is old has faded");
    assert_eq!(host(&program, "paused.test")["paused"], true);
    let asked = format!("GET {} HTTP/1.1", origin.url("/"));
    let refused = program.ask(&[&asked, "Host: ignored.test", "Curtsy-Client: bot"]);
    assert_eq!(refused.value("Curtsy-Error"), "job-stopped");
    assert_eq!(online(&program, &["host", "127.0.0.1", "forget"]).0, 0);
    assert_eq!(host(&program, "127.0.0.1")["delay"]["learned_ms"], 0);
}

#[test]
fn a_bad_line_is_named_and_changes_nothing() {
    let (state, files) = (directory(), directory());
    let good = line("a.test", &json!({"paused": true}));
    let many = good.repeat(20_000);
    let path = export_of(files.path(), &format!("{good}{{\"kind\":\"host\"}}\n{many}"));
    let expected = ["line 3 is not understood", "Nothing was imported"];
    let (code, printed) = offline(state.path(), &["state", "import", &path]);
    assert_eq!(code, 1, "{printed}");
    says(&printed, &expected);
    let program = start(state.path(), "");
    let (code, printed) = online(&program, &["state", "import", &path]);
    assert_eq!(code, 1, "{printed}");
    says(&printed, &expected);
    assert_eq!(online(&program, &["host", "a.test"]).0, 1);
    // An import whose sender disconnects halfway is dropped.
    let mut client = Client::connect(program.admin());
    let fields = "Host: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: 1000";
    client.send(format!("POST /api/v1/state HTTP/1.1\r\n{fields}\r\n\r\n{HEAD}{good}"));
    drop(client);
    assert_eq!(online(&program, &["host", "a.test"]).0, 1);
}

/// Export and import need the token, and an import needs its content type and no foreign origin.
#[test]
fn only_the_operator_exports_and_imports() {
    let state = directory();
    let program = start(state.path(), "metrics.token = \"secret\"");
    let post = |fields: &str| -> Message {
        let mut client = Client::connect(program.admin());
        let length = HEAD.len();
        client.send(format!(
            "POST /api/v1/state HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{fields}\r\n{HEAD}"
        ));
        client.response()
    };
    let (token, kind) = ("Authorization: Bearer secret\r\n", "Content-Type: application/x-ndjson\r\n");
    assert_eq!(post(&format!("{token}{kind}")).status(), 200);
    assert_eq!(post(kind).status(), 401);
    assert_eq!(post(&format!("{token}Content-Type: text/plain\r\n")).status(), 415);
    assert_eq!(post(&format!("{token}{kind}Origin: http://evil.test\r\n")).status(), 403);
    assert_eq!(post(&format!("{token}{kind}Sec-Fetch-Site: cross-site\r\n")).status(), 403);
    let export = |fields: &[&str]| {
        let lines = [&["GET /api/v1/state HTTP/1.1", "Host: localhost"], fields].concat();
        Client::connect(program.admin()).ask(&lines)
    };
    assert_eq!(export(&[]).status(), 401);
    let all = export(&["Authorization: Bearer secret"]);
    assert_eq!((all.status(), all.value("Content-Type").as_str()), (200, "application/x-ndjson"));
    assert_eq!(export(&["Authorization: Bearer secret", "Origin: http://evil.test"]).status(), 403);
}

#[test]
fn an_import_can_come_through_a_pipe() {
    let state = directory();
    let mut command = curtsy();
    command.args(["--state-dir", text(state.path()), "--admin", "off", "state", "import", "-", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(format!("{HEAD}{}", line("a.test", &json!({"paused": true}))).as_bytes()).expect("it reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &told["hosts"]["new"]), (Some(0), &json!(1)));
}

#[test]
fn a_curtsy_that_keeps_nothing_says_so() {
    let program = Program::start("admin = \"127.0.0.1:0\"", "");
    for arguments in [&["state", "export"][..], &["hosts", "--remembered"]] {
        let (code, printed) = online(&program, arguments);
        assert!(code == 1 && printed.contains("nothing is kept"), "{code} {printed}");
    }
}

/// `state.hosts` and `state.robots` bound the file.
#[test]
fn what_is_kept_stays_within_its_bounds() {
    let (state, files) = (directory(), directory());
    let program = start(state.path(), "state.hosts = 100\nstate.robots = \"1MiB\"");
    let now = clock::micros();
    let mut lines = String::new();
    for n in 0..1_000 {
        lines += &line(&format!("h{n}.test"), &json!({"learned_ms": 1_000, "updated_us": now - 1_000 + n}));
    }
    for n in 0..30 {
        let record = json!({"state": "none", "etag": "x".repeat(100_000), "fetched_us": now - 100 + n,
            "fresh_until_us": now + DAY_US, "stale_until_us": now + DAY_US});
        lines += &format!("{}\n", json!({"kind": "robots", "origin": format!("http://h{n}.test"), "record": record}));
    }
    let (code, printed) = online(&program, &["state", "import", &export_of(files.path(), &lines)]);
    assert_eq!(code, 0, "{printed}");
    says(&printed, &["hosts       1000 new", "robots.txt  30 new"]);
    let mut kept = (0, 0);
    let bounded = soon(|| {
        let exported = online(&program, &["state", "export"]).1;
        let count = |begin: &str| exported.lines().filter(|line| line.starts_with(begin)).count();
        kept = (count("{\"kind\":\"host\""), count("{\"kind\":\"robots\""));
        kept.0 <= 100 && kept.1 <= 10
    });
    assert!(bounded && kept.0 >= 80 && kept.1 >= 8, "{kept:?}");
    assert_eq!(online(&program, &["host", "h999.test"]).0, 0, "the newest stay");
    program.stop();
    let size = std::fs::metadata(state.path().join("state.db")).expect("the file").len();
    assert!(size < 3 << 20, "{size} bytes: it is not compacted");
}

/// A stopped client and a paused host stay so after a kill, and a pause keeps its end.
#[test]
fn what_people_ended_stays_ended() {
    let state = directory();
    let origin = Origin::answering(HELLO);
    let program = start(state.path(), "");
    assert_eq!(online(&program, &["client", "bot", "stop", "--until", "1h"]).0, 0);
    assert_eq!(online(&program, &["host", "127.0.0.1", "pause", "--until", "1h"]).0, 0);
    let until = host(&program, "127.0.0.1")["paused_until"].clone();
    program.wait_for_disk();
    program.kill();
    let program = start(state.path(), "");
    let asked = format!("GET {} HTTP/1.1", origin.url("/"));
    let refused = program.ask(&[&asked, "Host: ignored.test", "Curtsy-Client: bot"]);
    assert_eq!(refused.value("Curtsy-Error"), "job-stopped");
    assert_eq!(program.get(&origin.url("/")).value("Curtsy-Error"), "host-cooling");
    assert_eq!(host(&program, "127.0.0.1")["paused_until"], until);
    assert_eq!(online(&program, &["client", "bot", "resume"]).0, 0);
    assert_eq!(online(&program, &["host", "127.0.0.1", "resume"]).0, 0);
    program.stop();
    let program = start(state.path(), "");
    assert_eq!(program.ask(&[&asked, "Host: ignored.test", "Curtsy-Client: bot"]).status(), 200);
}

/// Promise 10: curtsy uses what it learned before, stores nothing new, and says so.
#[test]
fn a_disk_that_can_only_be_read_is_read() {
    let (state, files) = (directory(), directory());
    let now = clock::micros();
    let lines =
        line("a.test", &json!({"learned_ms": 8_000, "updated_us": now})) + &line("b.test", &json!({"paused": true}));
    assert_eq!(offline(state.path(), &["state", "import", &export_of(files.path(), &lines)]).0, 0);
    // A kill leaves a write-ahead log beside the file.
    for killed in [false, true] {
        if killed {
            let program = start(state.path(), "");
            assert_eq!(online(&program, &["host", "c.test", "pause"]).0, 0);
            program.wait_for_disk();
            program.kill();
        }
        let Some(command) = read_only(state.path()) else { return };
        let top =
            format!("state_dir = {:?}\nadmin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"", text(state.path()));
        let program = Program::start_by(command, &top, "");
        let said = program.event("state.unusable").expect("it says so");
        says(said["msg"].as_str().expect("text"), &["it cannot be written", "what was learned before counts"]);
        assert_eq!(host(&program, "a.test")["delay"]["learned_ms"], 8_000);
        assert_eq!(host(&program, "b.test")["paused"], true);
        if killed {
            assert_eq!(host(&program, "c.test")["paused"], true, "what is in the log counts");
        }
        assert_eq!(online(&program, &["host", "b.test", "resume"]).0, 0);
        assert!(program.metric("curtsy_store_write_failures_total") > 0);
        program.stop();
    }
    assert_eq!(host(&start(state.path(), ""), "b.test")["paused"], true, "nothing was kept");
}

/// Runs curtsy where this directory is mounted read-only, even for root. Returns `None` if the system does not permit
/// such a mount.
fn read_only(state: &Path) -> Option<Command> {
    let apart = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--map-root-user", "sh", "-c", script, env!("CARGO_BIN_EXE_curtsy")]);
        command
    };
    let state = text(state);
    let mount = format!("mount --bind '{state}' '{state}' && mount -o remount,bind,ro '{state}'");
    if !apart(&mount).output().is_ok_and(|output| output.status.success()) {
        eprintln!("not run: this system gives a test no disk of its own");
        return None;
    }
    Some(apart(&format!("{mount} && exec \"$0\" \"$@\"")))
}

/// With a full disk no request is lost and none is sent early. When there is space again, everything is written.
#[test]
fn a_disk_that_becomes_full_costs_nothing_but_the_writing() {
    let state = directory();
    // An ignored signal stays ignored after `exec`; otherwise SIGXFSZ would end the program.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_curtsy")]);
    let top = format!(
        "state_dir = {:?}\nadmin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\npoliteness.delay = \"100ms\"",
        text(state.path())
    );
    let program = Program::start_by(command, &top, "");
    let limit = |soft: &str| {
        let id = program.id().to_string();
        let done = Command::new("prlimit").args(["--pid", &id, &format!("--fsize={soft}:unlimited")]).status();
        assert!(done.expect("prlimit").success());
    };
    let origin = Origin::hello();
    limit("0");
    assert_eq!(online(&program, &["host", "a.test", "pause"]).0, 0);
    let begun = crate::support::Stopwatch::start();
    for _ in 0..10 {
        assert_eq!(program.get(&origin.url("/")).status(), 200);
    }
    assert!(begun.elapsed() >= crate::support::ms(890), "{:?}", begun.elapsed());
    assert!(soon(|| program.event("state.unwritten").is_some()), "it does not say so");
    assert!(program.metric("curtsy_store_write_failures_total") > 0);
    assert!(program.metric("curtsy_store_pending_changes") > 0);
    assert_eq!(host(&program, "a.test")["paused"], true, "memory goes on");
    limit("unlimited");
    assert!(soon(|| program.event("state.recovered").is_some()), "it does not notice that there is space again");
    program.stop();
    let (_, printed) = offline(state.path(), &["host", "a.test"]);
    says(&printed, &["a.test  paused"]);
}

/// Promises 7 and 10: a start on a full disk is handled like a disk that becomes full later.
#[test]
fn a_start_on_a_full_disk_keeps_everything_once_there_is_space() {
    let state = directory();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -S -f 0; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_curtsy")]);
    let top = format!("state_dir = {:?}\nadmin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"", text(state.path()));
    let program = Program::start_by(command, &top, "");
    let said = program.event("state.unusable").expect("it says so");
    says(said["msg"].as_str().expect("text"), &["cannot keep state in", "curtsy keeps trying"]);
    let store = || -> Value {
        let lines = ["GET /api/v1/status HTTP/1.1", "Host: localhost", "Connection: close"];
        let status: Value = serde_json::from_str(&Client::connect(program.admin()).ask(&lines).text()).expect("JSON");
        status["state_store"].clone()
    };
    for arguments in [&["host", "a.test", "pause"][..], &["client", "bot", "stop"]] {
        let (code, printed) = online(&program, arguments);
        assert_eq!(code, 0, "{printed}");
        says(&printed, &["not kept", "curtsy keeps trying, and a restart before that forgets this change"]);
    }
    let before = store();
    assert_eq!((&before["kept"], &before["pending"], &before["lost"]), (&json!(false), &json!(2), &json!(0)));
    assert!(before["trouble"].is_string(), "{before}");
    says(&online(&program, &["status"]).1, &["not kept: 2 changes wait for the disk"]);

    let id = program.id().to_string();
    assert!(Command::new("prlimit").args(["--pid", &id, "--fsize=unlimited"]).status().expect("prlimit").success());
    // curtsy tries again after 1, 2, 4 and 8 s, which may be longer than one `PATIENCE`.
    let recovered = || soon(|| program.event("state.recovered").is_some());
    assert!(recovered() || recovered(), "it does not notice that there is space again");
    let after = store();
    assert_eq!((&after["kept"], &after["pending"], &after["trouble"]), (&json!(true), &json!(0), &json!(null)));
    let (_, printed) = online(&program, &["host", "b.test", "pause"]);
    assert!(!printed.contains("not kept"), "{printed}");
    assert!(soon(|| store()["pending"] == 0), "it is not written");
    program.kill();
    let program = start(state.path(), "");
    assert_eq!(
        (&host(&program, "a.test")["paused"], &host(&program, "b.test")["paused"]),
        (&json!(true), &json!(true))
    );
    says(&online(&program, &["clients"]).1, &["bot", "stopped"]);
}
