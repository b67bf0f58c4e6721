//! `curtsy robots` and the API behind it, which explain a robots.txt to people.

use std::process::Output;

use curtsy::config::{Config, RobotsMode};
use serde_json::Value;
use tempfile::TempDir;

use crate::support::program::curtsy;
use crate::support::{Curtsy, Hole, Message, Origin};

const FILE: &str = "# hello
User-agent: FooBot
Disallow: /foo
Crawl-delay: 120
Content-Signal: search=yes, ai-train=no

User-agent: *
Disallow: /private/
Allow: /private/door
Request-rate: 1/5

Sitemap: http://example.com/a\x1b[31m.xml
Visit-time: 0600-0845
";

fn file(text: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len())
}

/// A folder with the configuration of a curtsy that does not run.
fn alone(more: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    let text = format!("admin = 'off'\n{more}\n[access]\nallow_destinations = ['127.0.0.0/8']\n");
    std::fs::write(folder.path().join("curtsy.toml"), text).expect("a writable temporary folder");
    folder
}

/// Runs `curtsy robots` and returns its exit code, stdout and stderr.
fn robots(folder: &TempDir, arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        curtsy().arg("robots").args(arguments).current_dir(folder).output().expect("the built program runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("it ended by itself"), text(stdout), text(stderr))
}

/// The same with a running curtsy.
fn robots_of(curtsy: &Curtsy, arguments: &[&str]) -> (i32, String, String) {
    let admin = format!("http://{}", curtsy.admin());
    robots(&alone(""), &[&["--admin", &admin], arguments].concat())
}

fn obedient(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        change(config);
    })
}

fn api(curtsy: &Curtsy, query: &str) -> Message {
    curtsy.ask_admin(&[&format!("GET /api/v1/robots?{query} HTTP/1.1"), "Host: localhost", "Connection: close"])
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn assert_lines(page: &str, expected: &[&str]) {
    for line in expected {
        assert!(page.lines().any(|each| each.trim() == *line), "no line {line:?} in\n{page}");
    }
}

#[test]
fn it_says_whether_and_why_without_a_proxy() {
    let origin = Origin::with_robots(file(FILE));
    let (code, page, _) = robots(&alone(""), &[&origin.url("/private/x")]);
    assert_eq!(code, 3, "{page}");
    let source = format!("file    {}", origin.url("/robots.txt"));
    let headline = format!("DENIED  {}", origin.url("/private/x"));
    assert_lines(
        &page,
        &[
            &headline,
            "why     line 8, group * (all clients): Disallow: /private/",
            "delay   5 s between requests (line 10, Request-rate: 1/5)",
            "curtsy  refuses it with 403",
            &source,
            "rules       8 | Disallow: /private/  <- decides",
            "9 | Allow: /private/door",
            "line 13, Visit-time: 0600-0845",
            "Fetched by this command itself: the admin listener is off, so no curtsy was asked.",
        ],
    );
    assert!(page.contains(&format!("200, {} bytes, fetched just now", FILE.len())), "{page}");
    let (code, page, _) = robots(&alone(""), &[&origin.url("/private/door")]);
    assert_eq!((code, &page[..9]), (0, "allowed  "), "{page}");
    assert_eq!(origin.count(), origin.robots_requests(), "a page was fetched");
}

#[test]
fn it_shows_the_group_of_the_agent_and_what_becomes_of_its_delay() {
    let origin = Origin::with_robots(file(FILE));
    let (code, page, _) = robots(&alone(""), &[&origin.url("/foo"), "--user-agent", "FooBot/1.0"]);
    assert_eq!(code, 3);
    assert_lines(
        &page,
        &[
            "why     line 3, group foobot: Disallow: /foo",
            "agent   foobot",
            "delay   120 s between requests (line 4, Crawl-delay: 120); robots.max_crawl_delay cuts it to 60 s",
            "also    line 5, Content-Signal: search=yes, ai-train=no",
        ],
    );
    assert_eq!(origin.request().value("user-agent"), "FooBot/1.0");
    let named = alone("robots.user_agent = 'FooBot'");
    assert_lines(&robots(&named, &[&origin.url("/foo")]).1, &["agent   foobot (robots.user_agent)"]);
    let exempting = alone("robots.exempt_user_agents = 'foobot'");
    let page = robots(&exempting, &[&origin.url("/foo"), "-A", "FooBot"]).1;
    assert_lines(&page, &["curtsy  lets it through: this client is exempt (robots.exempt_user_agents)"]);
}

/// X53: control characters of a robots.txt do not reach the terminal.
#[test]
fn what_a_file_says_is_escaped() {
    let origin = Origin::with_robots(file(FILE));
    let (_, page, _) = robots(&alone(""), &[&origin.url("/")]);
    assert!(page.contains("a\\u{1b}[31m.xml") && !page.contains('\x1b'), "{page}");
    let (_, page, _) = robots(&alone(""), &[&origin.url("/"), "--color", "always"]);
    assert!(page.starts_with("\x1b[1;32mallowed\x1b[0m"), "{page:?}");
}

#[test]
fn redirects_are_told() {
    let end = Origin::with_robots(file(FILE));
    let to = end.url("/robots.txt");
    let begin = Origin::answering(format!("HTTP/1.1 301 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
    let (code, page, _) = robots(&alone(""), &[&begin.url("/private/x")]);
    assert_eq!(code, 3);
    assert_lines(&page, &[&format!("file    {to}"), &format!("via {}", begin.url("/robots.txt"))]);
}

#[test]
fn the_exit_code_tells_what_is_wrong() {
    let missing = Origin::answering("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
    let ill = Origin::answering("HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n");
    let nobody = Hole::refusing().url();
    for (arguments, code, said) in [
        (vec![missing.url("/")], 0, "there is no robots.txt, so nothing is forbidden"),
        (vec![missing.url("/robots.txt")], 0, "robots.txt itself may always be fetched"),
        (vec![ill.url("/")], 4, "robots.txt cannot be fetched: the host answered 503"),
        (vec![nobody.clone()], 4, "robots.txt cannot be fetched: connection refused"),
        (vec!["http://10.0.0.1/".to_owned()], 4, "10.0.0.1"),
        (vec!["ftp://a.test/".to_owned()], 2, "only http:// and https://"),
        (vec!["http://me:secret@a.test/".to_owned()], 2, "credentials"),
        (vec![], 2, "Usage"),
        (vec![missing.url("/"), "--admin".to_owned(), nobody.clone()], 1, "no curtsy answers"),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (got, out, err) = robots(&alone(""), &arguments);
        assert!(got == code && (out + &err).contains(said), "{arguments:?}: {got}");
    }
    assert_eq!(robots(&alone("workers = 'x'"), &[&missing.url("/")]).0, 1);
}

/// The address guard applies to the command, too.
#[test]
fn the_command_goes_nowhere_where_the_proxy_would_not() {
    let origin = Origin::with_robots(file(FILE));
    let folder = tempfile::tempdir().expect("a writable temporary folder");
    std::fs::write(folder.path().join("curtsy.toml"), "admin = 'off'").expect("a writable temporary folder");
    assert_eq!(robots(&folder, &[&origin.url("/")]).0, 4);
    origin.expect_untouched();
}

#[test]
fn a_bare_host_is_taken_for_https() {
    let hole = Hole::refusing();
    let (code, page, said) = robots(&alone(""), &[&hole.authority()]);
    assert_eq!(code, 4);
    assert!(page.starts_with(&format!("UNKNOWN  https://{}/", hole.authority())), "{page}");
    assert!(said.contains("is read as https://"), "{said}");
}

#[test]
fn a_running_proxy_tells_what_it_knows() {
    let origin = Origin::with_robots(file(FILE));
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&origin.url("/private/x")).status(), 403);
    let (code, page, _) = robots_of(&curtsy, &[&origin.url("/private/x")]);
    assert_eq!((code, origin.robots_requests()), (3, 1), "{page}");
    let told = format!("Answered by the curtsy that runs on {}.", curtsy.admin());
    let expected = ["rules       8 | Disallow: /private/  <- decides", "delay   5 s between requests", &told];
    assert_lines(&page, &expected);
    assert!(page.contains("--fresh fetches the file again"), "{page}");
    let (_, page, _) = robots_of(&curtsy, &[&origin.url("/private/x"), "--fresh"]);
    assert_lines(&page, &["line 13, Visit-time: 0600-0845"]);
    assert_eq!(origin.robots_requests(), 2);
}

#[test]
fn what_the_api_had_to_fetch_the_proxy_knows() {
    let origin = Origin::with_robots(file(FILE));
    let curtsy = obedient(|_| ());
    let report = json(&api(&curtsy, &format!("url={}&user_agent=FooBot%2F1", origin.url("/foo"))).text());
    assert_eq!((&report["verdict"], &report["file"]["fetched"]), (&"denied".into(), &true.into()), "{report}");
    assert_eq!(curtsy.get(&origin.url("/private/")).status(), 403);
    assert_eq!(origin.robots_requests(), 1);
    assert_eq!(curtsy.metric("curtsy_robots_fetches_total{result=\"ok\"}"), 1);
}

#[test]
fn json_is_what_the_api_says() {
    let origin = Origin::with_robots(file(FILE));
    let curtsy = obedient(|_| ());
    let url = origin.url("/private/x");
    curtsy.get(&url);
    let (code, printed, said) = robots_of(&curtsy, &[&url, "--json"]);
    let response = api(&curtsy, &format!("url={url}"));
    assert_eq!((code, said.as_str(), response.value("content-type").as_str()), (3, "", "application/json"));
    let (mut printed, mut told) = (json(&printed), json(&response.text()));
    for report in [&mut printed, &mut told] {
        // A second may have passed between the two.
        assert!(report["file"]["age_s"].take().is_u64() && report["file"]["fresh_s"].take().is_u64());
    }
    assert_eq!(printed, told);
    let expected = json(
        r#"{"verdict": "denied", "reason": "rule", "rule": {"line": 8, "rule": "Disallow: /private/"}, "group": "*",
            "agents": [], "agents_from": "user-agent", "exempt": false, "mode": "enforce", "refused": true,
            "everything_denied": false, "trouble": null, "notes": null,
            "delay": {"asked_ms": 5000, "obeyed_ms": 5000, "capped": false, "configured_ms": 1000}}"#,
    );
    for (name, value) in expected.as_object().expect("an object") {
        assert_eq!(&told[name], value, "{name}");
    }
    assert_eq!(told["rules"].as_array().map(Vec::len), Some(2));
}

#[test]
fn the_api_tells_of_trouble_and_the_last_good_copy() {
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            let well = visitor.request_count() == 1;
            visitor.send(if well { file(FILE) } else { "HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n".to_owned() });
        }
    });
    let curtsy = obedient(|_| ());
    let query = format!("url={}", origin.url("/private/x"));
    assert_eq!(json(&api(&curtsy, &query).text())["trouble"], Value::Null);
    let report = json(&api(&curtsy, &format!("{query}&fresh=1")).text());
    assert_eq!((&report["verdict"], &report["file"]["status"]), (&"denied".into(), &503.into()), "{report}");
    assert_eq!((&report["trouble"]["times"], &report["trouble"]["throttled"]), (&1.into(), &false.into()), "{report}");
    let (code, page, _) = robots_of(&curtsy, &[&origin.url("/private/x")]);
    assert_eq!(code, 3);
    assert!(page.contains("unreachable since (1 try), so this is the last good copy"), "{page}");
}

#[test]
fn bad_questions_are_problems() {
    let curtsy = Curtsy::start();
    for query in ["", "url=", "url=ftp%3A%2F%2Fa.test", "url=a.test&host=b", "url=a.test&fresh=yes", "url=a.test&url=b"]
    {
        let response = api(&curtsy, query);
        assert_eq!((response.status(), response.value("content-type").as_str()), (400, "application/problem+json"));
        assert_eq!(json(&response.text())["status"], 400, "{query}");
    }
}

/// X57: refuses another host name, a page of another site, and a request without the token.
#[test]
fn the_api_is_not_for_everybody() {
    let origin = Origin::with_robots(file(FILE));
    let curtsy = Curtsy::with(|config| config.metrics.token = Some("tulip".to_owned()));
    let line = format!("GET /api/v1/robots?url={} HTTP/1.1", origin.url("/"));
    let ask = |fields: &[&str]| curtsy.ask_admin(&[&[line.as_str(), "Connection: close"], fields].concat()).status();
    let token = "Authorization: Bearer tulip";
    assert_eq!(ask(&["Host: evil.test", token]), 421);
    assert_eq!(ask(&["Host: localhost"]), 401);
    assert_eq!(ask(&["Host: localhost", token, "Origin: http://evil.test"]), 403);
    assert_eq!(ask(&["Host: localhost", token, "Sec-Fetch-Site: cross-site"]), 403);
    origin.expect_untouched();
    assert_eq!(ask(&["Host: localhost", token]), 200);
    let (code, _, said) = robots_of(&curtsy, &[&origin.url("/")]);
    assert!(code == 1 && said.contains("wants a token"), "{said}");
    let admin = format!("http://{}", curtsy.admin());
    let url = origin.url("/");
    let knowing = alone("metrics.token = 'tulip'");
    assert_eq!(robots(&knowing, &["--admin", &admin, &url]).0, 0);
}

#[test]
fn where_robots_are_off_the_file_is_shown_and_not_obeyed() {
    let origin = Origin::with_robots(file(FILE));
    let curtsy = Curtsy::start();
    let (code, page, _) = robots_of(&curtsy, &[&origin.url("/private/x")]);
    assert_eq!(code, 3);
    assert_lines(&page, &["curtsy  does not look at robots.txt of this host (mode off)"]);
    assert_eq!(curtsy.get(&origin.url("/private/x")).status(), 200);
}
