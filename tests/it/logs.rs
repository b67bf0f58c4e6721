//! Logs: one line per request if configured, safe to show in a terminal, and without secrets.

use serde_json::Value;

use crate::support::{Origin, Program, soon};

const ACCESS_LOG: &str = "[log]\naccess = \"-\"\nformat = \"json\"\n";

/// The lines of the access log, once there are this many.
fn access_lines(program: &Program, count: usize) -> Vec<String> {
    assert!(soon(|| program.stdout().len() >= count), "{:#?}", program.stdout());
    program.stdout()
}

#[test]
fn a_request_is_one_line() {
    let (origin, program) = (Origin::hello(), Program::start("", ACCESS_LOG));
    program.get(&origin.url("/a/page"));
    program.get("http://no-such-name.invalid/");
    program.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]);
    let lines = access_lines(&program, 3);
    assert_eq!(lines.len(), 3);
    let lines: Vec<Value> =
        lines.iter().map(|line| serde_json::from_str(line).expect("one JSON object a line")).collect();
    assert!(lines[0].to_string().contains("/a/page") && lines[0].to_string().contains("200"), "{}", lines[0]);
    assert!(
        lines[1].to_string().contains("no-such-name.invalid") && lines[1].to_string().contains("502"),
        "{}",
        lines[1]
    );
    assert!(lines[2].to_string().contains("CONNECT"), "{}", lines[2]);
}

/// After SIGHUP curtsy writes to a new file and leaves a renamed one alone. Only the owner and the group can read the
/// files.
#[test]
fn the_access_log_can_be_rotated() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().expect("a writable temporary directory");
    let (log, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let lines = |path: &std::path::Path| std::fs::read_to_string(path).map_or(0, |text| text.lines().count());
    let (origin, program) = (Origin::hello(), Program::start("", &format!("[log]\naccess = {log:?}\n")));
    program.get(&origin.url("/1"));
    assert!(soon(|| lines(&log) == 1));
    std::fs::rename(&log, &old).expect("the same folder");
    program.signal("HUP");
    assert!(soon(|| log.exists()), "{:#?}", program.stderr());
    program.get(&origin.url("/2"));
    assert!(soon(|| lines(&log) == 1));
    assert_eq!(lines(&old), 1);
    let mode = std::fs::metadata(&log).expect("it is there").permissions().mode() & 0o777;
    assert_eq!(mode & !0o640, 0, "{mode:o}");
}

/// The access log is off by default.
#[test]
fn without_an_access_log_nothing_is_printed_about_requests() {
    let (origin, mut program) = (Origin::hello(), Program::start("", ""));
    program.get(&origin.url("/a/page"));
    program.signal("TERM");
    program.wait();
    assert!(program.stdout().is_empty());
    assert!(!program.stderr().join("\n").contains("/a/page"));
}

/// The log has a hint for a client that speaks TLS to a plain listener.
#[test]
fn a_client_that_speaks_tls_is_named_with_the_remedy() {
    let program = Program::start("", "");
    let mut client = program.client();
    client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a ClientHello");
    client.rest();
    assert!(soon(|| program.event("client.tls").is_some()));
    let hint = program.event("client.tls").expect("seen above");
    assert!(hint["msg"].as_str().is_some_and(|text| text.contains("http://")), "{hint}");
}

/// X53
#[test]
fn what_a_client_sends_stays_inside_its_string() {
    let (origin, program) = (Origin::hello(), Program::start("", ACCESS_LOG));
    let mut client = program.client();
    let agent = b"User-Agent: a\"b\\ \xff\xe9 {\"status\":1}\tend";
    client.send([origin.get("/%0a%1b[31m\"quoted\"").as_bytes(), b"\r\nHost: x\r\n", agent, b"\r\n\r\n"].concat());
    assert_eq!(client.response().status(), 200);
    program.get("http://a.test\u{1b}[31m/");
    let lines = access_lines(&program, 1);
    for line in lines.iter().chain(&program.stderr()) {
        serde_json::from_str::<Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}

/// X53
#[test]
fn a_line_for_people_is_one_line_too() {
    let (origin, program) = (Origin::hello(), Program::start("", "[log]\naccess = \"-\"\nformat = \"text\"\n"));
    for path in ["/%0aforged", "/\"quoted\"", "/%1b[31m"] {
        program.ask(&[&origin.get(path), "Host: x", "User-Agent: a\tb"]);
    }
    let lines = access_lines(&program, 3);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines.iter().all(|line| line.contains("200") && !line.contains(char::is_control)), "{lines:#?}");
}

/// X54, S7
#[test]
fn secrets_are_not_written_down() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nSet-Cookie: tulip\r\nContent-Length: 0\r\n\r\n");
    let program = Program::start("", &format!("{ACCESS_LOG}level = \"trace\"\n"));
    let secrets = ["Authorization: Bearer tulip", "Proxy-Authorization: Basic tulip", "Cookie: id=tulip"];
    program.ask(&[&origin.get("/page?token=tulip"), "Host: x", secrets[0], secrets[1], secrets[2]]);
    program.ask(&[&format!("GET http://user:tulip@{}/ HTTP/1.1", origin.authority()), "Host: x"]);
    program.ask(&[&format!("CONNECT user:tulip@{} HTTP/1.1", origin.authority()), "Host: x"]);
    let lines = access_lines(&program, 1);
    assert!(lines[0].contains("/page"), "{}", lines[0]);
    for line in lines.iter().chain(&program.stderr()) {
        assert!(!line.contains("tulip"), "{line}");
    }
}

/// X54: by default the names in a query string are redacted, too.
#[test]
fn query_strings_are_kept_only_on_demand() {
    let origin = Origin::hello();
    for (setting, kept) in [("redact", false), ("drop", false), ("keep", true)] {
        let program = Program::start("", &format!("{ACCESS_LOG}query_strings = \"{setting}\"\n"));
        program.get(&origin.url("/page?q=tulip"));
        assert_eq!(access_lines(&program, 1)[0].contains("tulip"), kept, "{setting}");
    }
}

#[test]
fn the_access_log_can_be_a_file() {
    let (origin, directory) = (Origin::hello(), tempfile::tempdir().unwrap());
    let path = directory.path().join("access.log");
    let program = Program::start("", &format!("[log]\naccess = {:?}\n", path.to_str().unwrap()));
    program.get(&origin.url("/a/page"));
    assert!(soon(|| std::fs::read_to_string(&path).is_ok_and(|text| text.contains("/a/page") && text.ends_with('\n'))));
    assert!(program.stdout().is_empty());
}

/// X53: the access log is JSON if stdout is not a terminal.
#[test]
fn the_access_log_is_json_unless_it_goes_to_a_terminal() {
    let (origin, program) = (Origin::hello(), Program::start("", "[log]\naccess = \"-\"\n"));
    program.get(&origin.url("/a/page"));
    let line = access_lines(&program, 1).remove(0);
    serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
}

/// X54: this holds for refusals, at every log level and for every form of request.
#[test]
fn no_level_shows_a_query_string_that_is_to_be_redacted() {
    let origin = Origin::hello();
    let refused =
        ["http://10.1.2.3/x?q=tulip", "ftp://a.test/?q=tulip", "http://no-such-name.invalid/?q=tulip", "/?q=tulip"];
    for (setting, kept) in [("redact", false), ("drop", false), ("keep", true)] {
        let program = Program::start("", &format!("[log]\nlevel = \"trace\"\nquery_strings = \"{setting}\"\n"));
        program.get(&origin.url("/page?q=tulip"));
        refused.iter().for_each(|url| drop(program.get(url)));
        program.ask(&[&format!("POST {} HTTP/1.1", origin.url("/?q=tulip")), "Host: x", "Content-Length: 03"]);
        let told = || program.stderr().iter().filter(|line| line.contains("\"answer\"")).count();
        assert!(soon(|| told() >= 4), "{:#?}", program.stderr());
        let shown: Vec<_> = program.stderr().into_iter().filter(|line| line.contains("tulip")).collect();
        assert_eq!(!shown.is_empty(), kept, "{setting}: {shown:#?}");
    }
}

/// X53: characters that reverse or break lines in some viewers are escaped.
#[test]
fn invisible_marks_are_escaped() {
    let marks =
        ['\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200e}', '\u{61c}', '\u{2028}', '\u{2029}', '\u{feff}'];
    for format in ["text", "json"] {
        let tables =
            format!("[log]\naccess = \"-\"\nformat = \"{format}\"\nlevel = \"debug\"\n[access]\nusers_file = \"\"\n");
        let program = Program::start("", &tables);
        for mark in marks {
            let url = format!("http://10.1.2.3/a{mark}b");
            program.ask(&[&format!("GET {url} HTTP/1.1"), "Host: x"]);
        }
        let lines = access_lines(&program, marks.len());
        for line in lines.iter().chain(&program.stderr()) {
            assert!(!line.contains(|c| marks.contains(&c)), "{format}: {line:?}");
        }
        assert!(lines.iter().any(|line| line.contains("202e")), "{format}: {lines:#?}");
    }
}
