//! `curtsy judge` runs small clients against its synthetic web.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::curtsy;

/// The exit code, standard output and standard error.
struct Judged(i32, String, String);

fn judge(folder: &Path, options: &str, command: &[&str]) -> Judged {
    let mut line: Command = curtsy();
    line.env("HOME", folder).env("XDG_STATE_HOME", folder).env("http_proxy", "http://127.0.0.1:9").current_dir(folder);
    line.stdin(Stdio::null()).arg("judge").args(options.split_whitespace()).arg("--").args(command);
    let output = line.output().expect("the built program starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Judged(output.status.code().expect("it ended by itself"), text(output.stdout), text(output.stderr))
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a writable temporary directory")
}

fn rule<'a>(run: &'a Value, id: &str) -> &'a Value {
    run["rules"].as_array().and_then(|rules| rules.iter().find(|rule| rule["id"] == id)).expect("a rule with this id")
}

/// Fetches the whole sitemap as fast as it can.
const RUDE: &str = "curl -sS {seed}sitemap.txt | while read url; do curl -sS -o page $url; done; echo done";
/// Asks for robots.txt, fetches two pages a second apart, and says who it is.
const POLITE: &str =
    "for page in robots.txt '' amber; do curl -sS -A 'bot/1 (+https://bot.test/)' {seed}$page; sleep 1; done";

#[test]
fn a_rude_client_fails_with_evidence() {
    let folder = folder();
    let Judged(code, out, err) = judge(folder.path(), "--html card.html", &["sh", "-c", RUDE]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(err.contains("done"), "the command's output goes to standard error: {err}");
    for part in ["not asked first at 11 of 11 hosts", "requests to disallowed pages", "(Disallow: ", "to 11 hosts in"] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }
    assert!(out.contains("busy.test: came back after") || out.contains("limits.test: came back after"), "{out}");
    let page = std::fs::read_to_string(folder.path().join("card.html")).expect("the page was written");
    assert!(page.contains("prefers-color-scheme") && page.contains("User-Agent curl/"), "{page}");
    assert!(page.contains("while read url; do curl -sS -o page $url; done") && !page.contains("src="), "{page}");
}

#[test]
fn a_polite_client_passes() {
    let Judged(code, out, err) = judge(folder().path(), "--json --pass 95", &["sh", "-c", POLITE]);
    assert_eq!(code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out).expect("standard output is JSON");
    assert_eq!((&report["passed"], &report["pass"], &report["seed"]), (&true.into(), &95.into(), &1.into()));
    let run = &report["runs"][0];
    assert_eq!((&run["score"], &run["curtsy"], &run["exit_code"]), (&100.into(), &false.into(), &0.into()));
    assert_eq!(run["user_agents"][0], "bot/1 (+https://bot.test/)");
    assert_eq!(rule(run, "robots-first")["earned"], 10.0);
    assert!(rule(run, "crawl-delay")["earned"].is_null(), "it never met docs.test");
    assert!(run["hosts"][0]["arrivals"][2].as_f64().expect("a time") >= 2.0, "{run}");
}

/// By HTTPS the same counts: curl trusts the CA of the run, and with curtsy between them curtsy's.
#[test]
fn https_is_judged_without_and_with_curtsy() {
    let urls = "for page in '' drafts/1 report.pdf; do curl -sS -w '%{scheme}' {seed}$page; done";
    let Judged(_, out, err) = judge(folder().path(), "--json --https --with-curtsy --pass 0", &["sh", "-c", urls]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
    assert!(err.matches("HTTPS").count() >= 6, "three requests in each of two runs: {err}");
    let [without, with] = [0, 1].map(|run| &report["runs"][run]);
    assert_eq!((&without["tunnels"], &with["tunnels"]), (&0.into(), &0.into()), "{out}");
    let requests = |run: &Value| run["hosts"][0]["arrivals"].as_array().map(Vec::len);
    assert_eq!((requests(without), requests(with)), (Some(3), Some(2)), "robots.txt and one page with curtsy: {out}");
}

/// The same client with curtsy: robots.txt is obeyed and requests are a second apart.
#[test]
fn curtsy_makes_the_same_client_polite() {
    let urls = "for page in '' amber drafts/1 report.pdf; do curl -sS {seed}$page; done";
    let Judged(code, out, err) = judge(folder().path(), "--json --with-curtsy --quiet", &["sh", "-c", urls]);
    assert_eq!(code, 0, "{out}{err}");
    let report: Value = serde_json::from_str(&out).expect("standard output is JSON");
    let (without, with) = (&report["runs"][0], &report["runs"][1]);
    assert_eq!((&without["curtsy"], &with["curtsy"]), (&false.into(), &true.into()));
    for (id, points) in [("robots-first", 10.0), ("robots-rules", 20.0), ("pace", 10.0)] {
        assert_eq!(rule(with, id)["earned"], points, "{with}");
        assert!(rule(without, id)["earned"].as_f64().expect("it was met") < points, "{without}");
    }
}

#[test]
fn a_client_without_proxy_gets_addresses() {
    let script = "test -z \"$http_proxy\" && curl -sS {seed}robots.txt && curl -sS {seed}";
    let Judged(code, out, err) = judge(folder().path(), "--direct --json --pass 0", &["sh", "-c", script]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(err.contains("Sitemap: http://127.77.0.1:") && err.contains("<a href=\"http://127.77.0.2:"), "{err}");
    let Judged(code, _, err) = judge(folder().path(), "--direct", &["curl", "http://news.test/"]);
    assert!(code == 2 && err.contains("--direct needs {seed}"), "{err}");
}

#[test]
fn a_second_run_shows_whether_validators_are_kept() {
    let fetch = "curl -sS --etag-compare tag --etag-save tag http://feed.test/feed.xml";
    let folder = folder();
    std::fs::write(folder.path().join("tag"), "").expect("a writable temporary directory");
    let Judged(_, out, err) = judge(folder.path(), "--again --json", &["sh", "-c", fetch]);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}{err}"));
    assert_eq!(rule(&report["runs"][0], "revalidation")["earned"], 5.0, "{out}");
}

#[test]
fn commands_that_cannot_be_judged_say_why() {
    let folder = folder();
    let Judged(code, _, err) = judge(folder.path(), "", &["./no-such-program"]);
    assert!(code == 127 && err.contains("./no-such-program cannot be run"), "{code} {err}");
    let Judged(code, _, err) = judge(folder.path(), "", &["sh", "-c", "exit 3"]);
    assert!(code == 4 && err.contains("made no request through the proxy; use {seed} or --direct"), "{code} {err}");
    assert!(err.contains("exit code 3"), "{err}");
    let Judged(code, _, err) = judge(folder.path(), "", &["echo", "{seed}"]);
    assert!(code == 4 && err.starts_with("http://news.test/\n") && err.contains("add --direct"), "{code} {err}");
    let Judged(code, _, err) = judge(folder.path(), "", &["curl", "-sS", "https://news.test/"]);
    assert!(code == 4 && err.contains("1 tunnel; use http:// URLs, or --https"), "{code} {err}");
    let Judged(code, _, err) = judge(folder.path(), "--time soon", &["true"]);
    assert!(code == 2 && err.contains("--time"), "{code} {err}");
}

/// Some clients open a tunnel even for plain HTTP.
#[test]
fn plain_http_inside_a_tunnel_is_judged() {
    let command = ["curl", "-sS", "--proxytunnel", "{seed}robots.txt", "{seed}"];
    let Judged(code, out, err) = judge(folder().path(), "--json --pass 0", &command);
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("no JSON: {out}{err}"));
    let run = &report["runs"][0];
    assert_eq!((code, &run["requests"], &run["tunnels"]), (0, &2.into(), &0.into()), "{out}{err}");
    assert_eq!(rule(run, "robots-first")["earned"], 10.0);
}

/// The command ignores SIGTERM, so it is killed.
#[test]
fn a_command_that_never_ends_is_ended() {
    let script = "trap '' TERM; curl -sS {seed}; curl -sS http://elsewhere.test/; while :; do sleep 0.1; done";
    let Judged(code, out, err) = judge(folder().path(), "--time 1s", &["sh", "-c", script]);
    assert_eq!(code, 1, "{out}{err}");
    assert!(out.contains("ended because its time was over"), "{out}");
    assert!(out.contains("refused hosts outside the web: elsewhere.test"), "{out}");
}
