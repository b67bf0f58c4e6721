//! The API and the commands that show and change what curtsy knows about hosts and clients.

use std::thread;

use curtsy::config::{Config, Mode, RobotsMode};
use serde_json::{Value, json};

use crate::support::program::run;
use crate::support::{Client, Curtsy, HELLO, Hole, Message, Origin, Stopwatch, ms, soon};

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
        change(config);
    })
}

fn refusing(fields: &'static str) -> Origin {
    Origin::answering(format!("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n{fields}\r\n"))
}

/// Makes a call with a JSON body.
fn call(curtsy: &Curtsy, line: &str, body: &str) -> Message {
    call_with(curtsy, line, "Content-Type: application/json", body)
}

fn call_with(curtsy: &Curtsy, line: &str, field: &str, body: &str) -> Message {
    let mut client = Client::connect(curtsy.admin());
    let length = body.len();
    client.send(format!("{line} HTTP/1.1\r\nHost: localhost\r\n{field}\r\nContent-Length: {length}\r\n\r\n{body}"));
    client.response()
}

fn get(curtsy: &Curtsy, path: &str) -> Value {
    let answer = curtsy.ask_admin(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"]);
    json_of(&answer)
}

fn json_of(answer: &Message) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

/// Runs a command against this curtsy and returns its exit code and output.
fn command(curtsy: &Curtsy, arguments: &[&str]) -> (i32, String) {
    run(&[arguments, &["--admin", &format!("http://{}", curtsy.admin())]].concat())
}

fn assert_says(printed: &str, expected: &[&str]) {
    for text in expected {
        assert!(printed.contains(text), "no {text:?} in\n{printed}");
    }
}

#[test]
fn a_host_is_shown_with_what_decides_about_it() {
    let origin = refusing("Retry-After: 30\r\n");
    let curtsy = pacing(|config| config.retry.max = 0);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    let host = get(&curtsy, "/api/v1/hosts/127.0.0.1");
    for (field, expected) in [
        ("host", json!("127.0.0.1")),
        ("state", json!("held")),
        ("mode", json!("enforce")),
        ("delay_ms", json!(1100)),
        (
            "delay",
            json!({"configured_ms": 100, "robots_ms": 0, "learned_ms": 1100, "response_ms": 0, "why": "learned"}),
        ),
        ("floor_ms", json!(null)),
        ("error_streak", json!(1)),
        ("success_streak", json!(0)),
        ("hold_cause", json!("retry-after")),
        ("last_success", json!(null)),
        ("queued", json!(0)),
        ("in_flight", json!(0)),
        ("concurrency", json!({"effective": 4, "configured": 4})),
        ("breaker", json!({"state": "closed", "failures": 0, "until": null, "origins": []})),
        ("paused", json!(false)),
        ("overrides", json!({"delay_ms": null, "burst": null, "concurrency": null})),
    ] {
        assert_eq!(host[field], expected, "{field} in {host:#}");
    }
    let held = host["held_s"].as_f64().expect("seconds");
    assert!((25.0..=30.0).contains(&held), "{held}");
    assert!(host["held_until"].as_str().is_some_and(|at| at.ends_with('Z')), "{host:#}");
    assert!(host["last_sent"].is_string() && host["next_available"] == host["held_until"], "{host:#}");

    let (code, printed) = command(&curtsy, &["host", "127.0.0.1"]);
    assert_eq!(code, 0, "{printed}");
    let learned = "1.1 s = the largest of configured 0.1 s, learned 1.1 s <-";
    assert_says(&printed, &["127.0.0.1  held", learned, "the host asked for it (Retry-After)", "refused once"]);
    let (code, printed) = command(&curtsy, &["host", "nobody.test"]);
    assert!(code == 1 && printed.contains("nobody.test has not been visited lately"), "{printed}");
}

#[test]
fn hosts_are_listed_sorted_and_filtered() {
    let (one, two) = (
        Origin::hello(),
        Origin::on("127.0.0.2", |visitor| {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        }),
    );
    let curtsy = pacing(|_| ());
    for origin in [&one, &two] {
        assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    }
    json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.2", r#"{"delay": "3s"}"#));
    let names = |query: &str| -> Vec<String> {
        let list = get(&curtsy, &format!("/api/v1/hosts?{query}"));
        let rows = list["hosts"].as_array().expect("rows");
        rows.iter().map(|row| row["host"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(names(""), ["127.0.0.1", "127.0.0.2"]);
    assert_eq!(names("sort=delay"), ["127.0.0.2", "127.0.0.1"]);
    assert_eq!(names("filter=0.2"), ["127.0.0.2"]);
    assert_eq!(
        (names("limit=1&offset=1"), get(&curtsy, "/api/v1/hosts?limit=1")["total"].clone()),
        (vec!["127.0.0.2".to_owned()], json!(2))
    );
    let (code, printed) = command(&curtsy, &["hosts", "--sort", "delay"]);
    assert_eq!(code, 0);
    let lines: Vec<&str> = printed.lines().collect();
    assert!(lines[0].starts_with("HOST       STATE  DELAY  WHY"), "{printed}");
    assert!(lines[1].starts_with("127.0.0.2  idle     3 s  configured"), "{printed}");
    let (_, printed) = command(&curtsy, &["hosts", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&printed).expect("JSON")["total"], 2);
}

/// An override takes effect at once, also for waiting requests, and survives a reload.
#[test]
fn a_delay_that_is_set_counts_until_it_is_taken_back() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    let set = json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.1", r#"{"rate": "2/s", "concurrency": 1}"#));
    assert_eq!((&set["delay_ms"], &set["concurrency"]["effective"]), (&json!(500), &json!(1)));
    curtsy.reload(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(10);
    });
    let watch = Stopwatch::start();
    for _ in 0..2 {
        assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    }
    assert!(watch.elapsed() >= ms(490), "{:?}", watch.elapsed());
    let (code, printed) = command(&curtsy, &["host", "127.0.0.1", "set", "--delay", "default"]);
    assert_eq!(code, 0, "{printed}");
    assert_says(&printed, &["0.01 s, as configured or set", "set       concurrency 1 (by an operator"]);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

#[test]
fn a_paused_host_is_not_visited_until_it_is_resumed() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    let (code, printed) = command(&curtsy, &["host", "127.0.0.1", "pause"]);
    assert_eq!(code, 0, "{printed}");
    assert_says(&printed, &["paused", "until it is resumed: curtsy host 127.0.0.1 resume"]);
    let refused = curtsy.get(&origin.url("/"));
    assert_eq!((refused.status(), refused.refusal().as_str()), (503, "host-cooling"));
    let (code, _) = command(&curtsy, &["host", "127.0.0.1", "resume"]);
    assert_eq!((code, curtsy.get(&origin.url("/")).status()), (0, 200));

    json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.1", r#"{"paused": true, "until": "700ms"}"#));
    let watch = Stopwatch::start();
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200, "a patient client waits");
    assert!(watch.elapsed() >= ms(600), "{:?}", watch.elapsed());
}

/// Promise 7, X36
#[test]
fn forgetting_a_host_ends_no_hold() {
    let origin = refusing("Retry-After: 30\r\n");
    let curtsy = pacing(|config| config.retry.max = 0);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.1", r#"{"delay": "7s"}"#));
    let told = json_of(&call(&curtsy, "DELETE /api/v1/hosts/127.0.0.1", ""));
    assert_eq!(told["forgotten"], json!(["learned", "overrides"]));
    assert!(told["kept"].to_string().contains("the hold, which the host asked for"), "{told:#}");
    assert_eq!((&told["host"]["delay_ms"], &told["host"]["hold_cause"]), (&json!(100), &json!("retry-after")));
    let hurried = curtsy.ask(&[&origin.get("/"), "Curtsy-Max-Wait: 5"]);
    assert_eq!((hurried.status(), hurried.refusal().as_str()), (503, "host-cooling"));
    assert_eq!(origin.count(), 1);
    let (code, printed) = command(&curtsy, &["host", "127.0.0.1", "forget"]);
    assert_eq!(code, 0);
    assert_says(&printed, &["there was nothing to forget", "kept   the hold"]);
}

/// X57: nothing changes without a JSON content type, from other sites, with a wrong method, or without the token.
#[test]
fn what_is_wrong_changes_nothing() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let before = get(&curtsy, "/api/v1/hosts/127.0.0.1")["overrides"].clone();
    let (path, good) = ("PATCH /api/v1/hosts/127.0.0.1", r#"{"delay": "9s"}"#);
    let json_type = "Content-Type: application/json";
    for (line, field, body, status) in [
        (path, "Content-Type: text/plain", good, 415),
        (path, "X-None: 1", good, 415),
        ("DELETE /api/v1/hosts/127.0.0.1", "X-None: 1", "", 415),
        ("POST /api/v1/clients/a/stop", "X-None: 1", "", 415),
        (path, "Content-Type: application/json\r\nOrigin: http://evil.test", good, 403),
        (path, "Content-Type: application/json\r\nSec-Fetch-Site: cross-site", good, 403),
        (path, json_type, r#"{"delay": "9s", "burst": 0}"#, 400),
        (path, json_type, r#"{"delay": "9s", "dealy": "9s"}"#, 400),
        (path, json_type, "delay=9s", 400),
        ("PATCH /api/v1/hosts/a..b", json_type, good, 400),
        ("DELETE /api/v1/hosts/nobody.test", json_type, "", 404),
        ("POST /api/v1/clients/nobody/resume", json_type, "{}", 404),
        ("POST /api/v1/clients/nobody/stop", json_type, r#"{"until": "yesterday"}"#, 400),
        ("POST /api/v1/hosts/127.0.0.1", json_type, good, 405),
    ] {
        let answer = call_with(&curtsy, line, field, body);
        assert_eq!(answer.status(), status, "{line} {field} {body}: {}", answer.text());
        if status != 405 {
            assert_eq!(answer.value("content-type"), "application/problem+json", "{line} {field} {body}");
        }
    }
    for query in ["limit=0", "sort=size", "x=1"] {
        let line = format!("GET /api/v1/hosts?{query} HTTP/1.1");
        assert_eq!(curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).status(), 400, "{query}");
    }
    assert_eq!(get(&curtsy, "/api/v1/hosts/127.0.0.1")["overrides"], before);
    assert_eq!(failing(&curtsy), Vec::<Value>::new());

    let guarded = Curtsy::with(|config| config.metrics.token = Some("tulip".to_owned()));
    assert_eq!(call(&guarded, path, good).status(), 401);
    let with_token = "Content-Type: application/json\r\nAuthorization: Bearer tulip";
    assert_eq!(call_with(&guarded, path, with_token, good).status(), 200);
}

/// The clients that fail or are stopped.
fn failing(curtsy: &Curtsy) -> Vec<Value> {
    let clients = get(curtsy, "/api/v1/clients")["clients"].as_array().expect("a list").clone();
    clients.into_iter().filter(|client| client["failures"] != 0 || !client["stopped"].is_null()).collect()
}

/// A stopped client is refused until the API or a command resumes it.
#[test]
fn a_job_is_stopped_by_failures_or_people_and_let_go_on_by_people() {
    let (hole, well) = (Hole::refusing(), Origin::hello());
    let curtsy = Curtsy::with(|config| config.breaker.job_failures = 2);
    let ask = |url: &str, name: &str| curtsy.ask(&[&format!("GET {url} HTTP/1.1"), &format!("Curtsy-Client: {name}")]);
    ask(&hole.url(), "spider");
    assert_eq!(failing(&curtsy)[0]["failures"], 1);
    ask(&hole.url(), "spider");
    assert_eq!(ask(&well.url("/"), "spider").refusal(), "job-stopped");
    let client = failing(&curtsy).remove(0);
    assert_eq!((&client["name"], &client["failures"]), (&json!("spider"), &json!(2)));
    assert_eq!((&client["address"], &client["host"]), (&json!("127.0.0.1"), &json!("127.0.0.1")));
    assert!(client["stopped"]["reason"].to_string().contains("the last 2 requests to this host failed"), "{client:#}");
    assert!(client["stopped"]["left_s"].as_f64().is_some_and(|left| left > 3_500.0), "{client:#}");
    let (code, printed) = command(&curtsy, &["clients"]);
    assert!(
        code == 0 && printed.contains("spider@127.0.0.1 at 127.0.0.1  stopped         2  60 min  the last 2 requests"),
        "{printed}"
    );
    let (code, printed) = command(&curtsy, &["client", "spider", "resume"]);
    assert_eq!((code, printed.as_str()), (0, "spider may continue\n"));
    assert_eq!(ask(&well.url("/"), "spider").status(), 200);
    assert_eq!(command(&curtsy, &["client", "spider", "resume"]).0, 1, "it is not stopped");

    let (code, printed) = command(&curtsy, &["client", "a b/c", "stop"]);
    assert!(code == 0 && printed.contains("a b/c is stopped until it is resumed"), "{printed}");
    let refused = ask(&well.url("/"), "a b/c");
    assert_eq!((refused.status(), refused.refusal().as_str()), (403, "job-stopped"));
    assert!(refused.text().contains("the operator of this proxy has stopped this client"), "{}", refused.text());
    assert!(!refused.has("retry-after"), "the end is not known");
    let tunnel = curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", well.authority()), "Curtsy-Client: a b/c"]);
    assert_eq!(tunnel.status(), 403);
    json_of(&call(&curtsy, "POST /api/v1/clients/a%20b%2Fc/stop", r#"{"until": "1h"}"#));
    assert_eq!(ask(&well.url("/"), "a b/c").value("retry-after"), "3600");
}

/// The commands name the address that they tried.
#[test]
fn without_a_running_curtsy_the_commands_say_so() {
    let nobody = Hole::refusing().url();
    for arguments in [
        vec!["hosts"],
        vec!["host", "a.test"],
        vec!["host", "a.test", "pause"],
        vec!["clients"],
        vec!["client", "a", "stop"],
    ] {
        let (code, printed) = run(&[&arguments[..], &["--admin", &nobody]].concat());
        assert!(code == 4 && printed.contains("no curtsy runs on 127.0.0.1:"), "{arguments:?}: {code} {printed}");
    }
    assert_eq!(run(&["host", "a.test", "set"]).0, 2);
    assert_eq!(run(&["host", "a.test", "set", "--burst", "many", "--admin", &nobody]).0, 2);
}

/// Changing a host's settings while requests wait breaks no gap.
#[test]
fn steering_under_load_breaks_no_promise() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| config.politeness.delay = ms(20));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(curtsy.get(&origin.url("/")).status(), 200)));
        }
        for body in [
            r#"{"delay": "5ms", "burst": 1}"#,
            r#"{"delay": "30ms"}"#,
            r#"{"paused": true, "until": "100ms"}"#,
            r#"{"paused": false}"#,
            r#"{"concurrency": 1}"#,
            r#"{"delay": null, "concurrency": null}"#,
        ] {
            json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.1", body));
            json_of(&call(&curtsy, "DELETE /api/v1/hosts/127.0.0.1", ""));
        }
    });
    assert_eq!((origin.count(), curtsy.metric("curtsy_spacing_violations_total")), (80, 0));
}

const RULES: &str = "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n";

fn with_rules() -> Origin {
    Origin::with_robots(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{RULES}", RULES.len()))
}

fn explain(curtsy: &Curtsy, url: &str) -> Value {
    get(curtsy, &format!("/api/v1/explain?url={url}"))
}

/// The explanation, what then happens, and the fields of the response agree.
#[test]
fn a_url_is_explained_before_it_is_asked_for() {
    let origin = with_rules();
    let curtsy = pacing(|config| config.politeness.robots = RobotsMode::Enforce);
    let told = explain(&curtsy, &origin.url("/page"));
    assert_eq!(
        (&told["allowed"], &told["verdict"], &told["reason"]),
        (&json!(true), &json!("allowed"), &json!("no-rule"))
    );
    assert_eq!(
        (&told["delay_ms"], &told["delay"]["why"], &told["wait_ms"]),
        (&json!(2000), &json!("robots"), &json!(0))
    );
    assert_eq!((origin.count(), origin.robots_requests()), (1, 1), "only robots.txt was fetched");
    let since = Stopwatch::start();
    assert_eq!(curtsy.get(&origin.url("/page")).status(), 200);

    let told = explain(&curtsy, &origin.url("/page"));
    let wait = told["wait_ms"].as_u64().expect("a wait");
    // The wait is in whole milliseconds.
    assert!(wait <= 2_000 && ms(wait + 1) + since.elapsed() >= ms(2_000), "{told:#}");
    assert_eq!(told["known"]["delay_ms"], 2000);
    let watch = Stopwatch::start();
    let answer = curtsy.get(&origin.url("/page"));
    assert!(watch.elapsed() + ms(100) >= ms(wait) && watch.elapsed() <= ms(wait) + ms(10_000), "{:?}", watch.elapsed());
    assert!(answer.value("curtsy").contains("delay=2.000, why=robots"), "{}", answer.head());

    let denied = explain(&curtsy, &origin.url("/private/x"));
    assert_eq!((&denied["allowed"], &denied["refusal"]), (&json!(false), &json!("robots-denied")));
    assert_eq!(denied["rule"], json!({"line": 2, "rule": "Disallow: /private/"}));
    assert_eq!((denied["wait_ms"].clone(), curtsy.get(&origin.url("/private/x")).status()), (json!(null), 403));
    let private = explain(&curtsy, "http://10.0.0.1/");
    assert_eq!((&private["allowed"], &private["refusal"]), (&json!(false), &json!("destination-denied")));

    json_of(&call(&curtsy, "PATCH /api/v1/hosts/127.0.0.1", r#"{"paused": true}"#));
    let paused = explain(&curtsy, &origin.url("/page"));
    assert_eq!(
        (&paused["allowed"], &paused["refusal"], &paused["wait_ms"]),
        (&json!(true), &json!("host-cooling"), &json!(null))
    );
    assert_eq!(curtsy.metric("curtsy_queued_requests"), 0, "asking takes no place in the line");
}

/// Programs on one machine are one client. What is predicted for it counts its own requests that wait; what is
/// predicted for another client does not.
#[test]
fn a_wait_is_predicted_for_the_client_that_asks() {
    let (origin, curtsy) = (Origin::hello(), pacing(|config| config.politeness.delay = ms(2_000)));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut waiting: Vec<Client> = (0..4).map(|_| curtsy.client()).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.send_head(&[&origin.get(&format!("/{number}")), "Host: x"]);
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 4));
    let page = origin.url("/page");
    let wait = |extra: &str| {
        let told = explain(&curtsy, &format!("{page}{extra}"));
        (told["client"].as_str().expect("a client").to_owned(), told["wait_ms"].as_u64().expect("a wait"))
    };
    let ((other, soonest), (own, behind_all)) = (wait("&client=other"), wait(""));
    assert_eq!((own.as_str(), other.as_str()), ("127.0.0.1", "other"));
    // Four turns, two seconds each, are before its own next request; before the other client's at most one.
    assert!(behind_all >= soonest + 3_000 && soonest <= 4_000, "{behind_all} {soonest}");
    let since = Stopwatch::start();
    let mut named = curtsy.client();
    named.send_head(&[&origin.get("/named"), "Host: x", "Curtsy-Client: other"]);
    assert_eq!(named.response().status(), 200);
    assert!(since.elapsed() + ms(200) >= ms(soonest), "{:?} {soonest}", since.elapsed());
    let (code, printed) = command(&curtsy, &["explain", &page, "--as", "someone@127.0.0.9"]);
    assert_eq!(code, 0, "{printed}");
    assert_says(&printed, &["client  someone"]);
}

#[test]
fn many_urls_are_checked_at_once() {
    let (origin, silent) = (with_rules(), Hole::silent());
    let curtsy = pacing(|config| config.politeness.robots = RobotsMode::Enforce);
    let mut urls: Vec<String> = (0..400).map(|number| origin.url(&format!("/page/{number}"))).collect();
    urls.push(origin.url("/private/x"));
    urls.push(silent.url());
    let checked = json_of(&call(&curtsy, "POST /api/v1/check", &json!({ "urls": urls }).to_string()));
    let checked = checked["urls"].as_array().expect("an answer for each");
    assert_eq!((checked.len(), origin.count()), (402, 1));
    for (url, told) in urls.iter().zip(&checked[..400]) {
        assert_eq!((&told["url"], &told["allowed"], &told["delay_ms"]), (&json!(url), &json!(true), &json!(2000)));
    }
    assert_eq!((&checked[400]["allowed"], &checked[400]["rule"]["line"]), (&json!(false), &json!(2)));
    assert_eq!(
        (&checked[401]["allowed"], &checked[401]["verdict"]),
        (&json!(null), &json!("unknown")),
        "{}",
        checked[401]
    );
    let too_many = json!({ "urls": vec!["http://a.test/"; 1_001] }).to_string();
    for body in [&too_many, r#"{"urls": []}"#, r#"{"urls": ["ftp://a.test/"]}"#, r#"{"url": "http://a.test/"}"#] {
        let answer = call(&curtsy, "POST /api/v1/check", body);
        assert_eq!((answer.status(), answer.value("content-type").as_str()), (400, "application/problem+json"));
    }
}

#[test]
fn the_commands_explain_and_check() {
    let origin = with_rules();
    let curtsy = pacing(|config| config.politeness.robots = RobotsMode::Enforce);
    let (page, private) = (origin.url("/page"), origin.url("/private/x"));
    let (code, printed) = command(&curtsy, &["explain", &page]);
    assert_eq!(code, 0, "{printed}");
    let delay = "2 s = the largest of configured 0.1 s, robots.txt 2 s <-";
    assert_says(&printed, &[&format!("allowed  {page}"), "no rule of robots.txt", "it would start now", delay]);
    let (code, printed) = command(&curtsy, &["explain", &private]);
    assert_eq!(code, 3);
    assert_says(&printed, &["DENIED ", "robots.txt line 2, group *: Disallow: /private/"]);

    assert_eq!(command(&curtsy, &["check", &page]).0, 0);
    let (code, printed) = command(&curtsy, &["check", &page, &private]);
    assert_eq!((code, printed.lines().count()), (3, 2), "{printed}");
    assert_eq!(command(&curtsy, &["check", "ftp://a.test/"]).0, 2);
    let (code, printed) = command(&curtsy, &["check", &page, "--json"]);
    assert_eq!(
        (code, &serde_json::from_str::<Value>(&printed).expect("JSON")["urls"][0]["allowed"]),
        (0, &json!(true))
    );
    assert_eq!(run(&["explain", &page, "--admin", &Hole::refusing().url()]).0, 4);
    assert_eq!(run(&["check", &page, "--admin", &Hole::refusing().url()]).0, 4);
}

/// The API, the dashboard and the command show how much of a burst is left.
#[test]
fn what_is_left_of_a_burst_is_shown() {
    let (origin, curtsy) = (
        Origin::hello(),
        Curtsy::with(|config| {
            config.politeness.mode = curtsy::config::Mode::Enforce;
            config.politeness.delay = ms(60_000);
            config.politeness.burst = 3;
        }),
    );
    curtsy.get(&origin.url("/"));
    let told = curtsy.ask_admin(&["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"]);
    let host: serde_json::Value = serde_json::from_str(&told.text()).expect("JSON");
    assert_eq!((&host["burst"], &host["burst_left"]), (&3.into(), &2.into()), "{host}");
    let page = curtsy.ask_admin(&["GET /hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"]).text();
    assert!(page.contains("data-show=\"burst_left\">2<"), "{page}");
    let admin = format!("http://{}", curtsy.admin());
    let (code, printed) = run(&["host", "127.0.0.1", "--admin", &admin]);
    assert!(code == 0 && printed.contains("2 of 3 left"), "{printed}");
}
