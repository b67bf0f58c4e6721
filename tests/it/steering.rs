//! The control API: shows the effective configuration and changes the pacing while curtsy runs.

use std::num::NonZeroU32;
use std::thread;
use std::time::Duration;

use curtsy::config::{Mode, ParentProxy, QuotaRate};
use serde_json::{Value, json};

use crate::support::{Client, Curtsy, HELLO, Message, Origin, Program, ms, soon};

const JSON: &str = "Content-Type: application/json";

fn paced() -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(60_000);
    })
}

fn on(ip: &str) -> Origin {
    Origin::on(ip, |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO.as_bytes());
        }
    })
}

fn patch(curtsy: &Curtsy, body: &str, fields: &[&str]) -> Message {
    let mut client = Client::connect(curtsy.admin());
    let length = format!("Content-Length: {}", body.len());
    let lines = ["PATCH /api/v1/config HTTP/1.1", "Host: localhost", "Connection: close", &length];
    let lines: Vec<&str> = lines.into_iter().chain(fields.iter().copied()).collect();
    client.send(format!("{}\r\n\r\n{body}", lines.join("\r\n")));
    client.response()
}

fn changed(curtsy: &Curtsy, body: &Value) -> Value {
    let response = patch(curtsy, &body.to_string(), &[JSON]);
    assert_eq!(response.status(), 200, "{}", response.text());
    serde_json::from_str(&response.text()).expect("JSON")
}

fn shown(curtsy: &Curtsy) -> Value {
    let response = curtsy.ask_admin(&["GET /api/v1/config HTTP/1.1", "Host: localhost", "Connection: close"]);
    assert_eq!((response.status(), response.value("Content-Type").as_str()), (200, "application/json"));
    serde_json::from_str(&response.text()).expect("JSON")
}

/// Sends a request to this origin and returns the delay that the response reports.
fn delay_of(curtsy: &Curtsy, origin: &Origin) -> String {
    let told = curtsy.get(&origin.url("/")).value("Curtsy");
    told.split(", ").find_map(|part| part.strip_prefix("delay=").map(str::to_owned)).expect("it tells its delay")
}

#[test]
fn other_numbers_count_at_once_and_for_waiting_requests() {
    let (curtsy, origin) = (paced(), Origin::hello());
    curtsy.get(&origin.url("/"));
    let mut waiting = curtsy.client();
    let line = origin.get("/");
    let second = thread::spawn(move || waiting.ask(&[&line, "Host: x"]).status());
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    let answer = changed(&curtsy, &json!({ "politeness": { "rate": "20/s", "concurrency": 2 } }));
    assert_eq!(answer["changed"], json!(["politeness.delay 1m -> 50ms", "politeness.concurrency 4 -> 2"]));
    assert_eq!(answer["apply"], "all");
    assert!(answer["lasts"].as_str().is_some_and(|text| text.contains("reloaded")), "{answer}");
    assert_eq!(second.join().unwrap(), 200);
    assert_eq!(shown(&curtsy)["politeness"]["delay"], "50ms");
}

#[test]
fn hosts_that_are_known_may_keep_their_numbers() {
    let curtsy = paced();
    let [old, new, newer] = ["127.0.7.71", "127.0.7.72", "127.0.7.73"].map(on);
    changed(&curtsy, &json!({ "politeness": { "delay": "1ms" } }));
    assert_eq!(delay_of(&curtsy, &old), "0.001");
    let answer = changed(&curtsy, &json!({ "politeness": { "delay": "2ms", "burst": 5 }, "apply": "new" }));
    assert_eq!(answer["apply"], "new");
    assert_eq!((delay_of(&curtsy, &old), delay_of(&curtsy, &new)), ("0.001".to_owned(), "0.002".to_owned()));
    changed(&curtsy, &json!({ "politeness": { "delay": "3ms" }, "apply": "all" }));
    for origin in [&old, &new, &newer] {
        assert_eq!(delay_of(&curtsy, origin), "0.003");
    }
}

/// Unknown or malformed input gets 400 and changes nothing, not even the valid part of it.
#[test]
fn a_mistake_changes_nothing() {
    let curtsy = paced();
    let before = shown(&curtsy);
    for (body, said) in [
        ("", "EOF"),
        ("{", "EOF"),
        ("[]", "invalid"),
        ("{}", "politeness"),
        (r#"{"politeness": {}}"#, "nothing"),
        (r#"{"politeness": 5}"#, "invalid type"),
        (r#"{"politeness": {"burst": 2, "brust": 5}}"#, "did you mean `burst`?"),
        (r#"{"politeness": {"burst": 2, "delay": 5}}"#, "needs a unit"),
        (r#"{"politeness": {"burst": 2, "concurrency": 0}}"#, "cannot be 0"),
        (r#"{"politeness": {"burst": 2, "delay": null}}"#, "must be"),
        (r#"{"politeness": {"burst": 2, "delay": "1s", "rate": "1/s"}}"#, "two ways to say the same"),
        (r#"{"politeness": {"burst": 2}, "apply": "some"}"#, "unknown variant"),
        (r#"{"politeness": {"burst": 2}, "listen": "0.0.0.0:1"}"#, "unknown field"),
        (r#"{"politeness": {"burst": 2, "key": "ip"}, "apply": "new"}"#, "all hosts together"),
        (r#"{"politeness": {"burst": 2}} {"#, "trailing"),
    ] {
        let response = patch(&curtsy, body, &[JSON]);
        assert_eq!(response.status(), 400, "{body}: {}", response.text());
        assert_eq!(response.value("Content-Type"), "application/problem+json", "{body}");
        let problem: Value = serde_json::from_str(&response.text()).expect("JSON");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(said)), "{body}: {problem}");
    }
    assert_eq!(shown(&curtsy), before);
}

#[test]
fn a_page_of_another_site_changes_nothing() {
    let curtsy = paced();
    let before = shown(&curtsy);
    let body = r#"{"politeness": {"delay": "0s"}}"#;
    for (fields, status) in [
        (&[][..], 415),
        (&["Content-Type: text/plain"], 415),
        (&["Content-Type: application/x-www-form-urlencoded"], 415),
        (&[JSON, "Origin: http://evil.test"], 403),
        (&[JSON, "Origin: null"], 403),
        (&[JSON, "Sec-Fetch-Site: cross-site"], 403),
    ] {
        let response = patch(&curtsy, body, fields);
        assert_eq!(response.status(), status, "{fields:?}");
        assert_eq!(response.value("Content-Type"), "application/problem+json", "{fields:?}");
    }
    assert_eq!(shown(&curtsy), before);
    assert_eq!(patch(&curtsy, body, &["Content-Type: Application/JSON; charset=utf-8"]).status(), 200);
    assert_eq!(patch(&curtsy, body, &[JSON, "Origin: http://localhost"]).status(), 200, "its own page");
}

#[test]
fn the_token_is_asked_for_and_no_secret_is_shown() {
    let curtsy = Curtsy::with(|config| {
        config.metrics.token = Some("tulip".to_owned());
        let credentials = Some(("ada".to_owned(), "lovelace".to_owned()));
        config.upstream.proxy = Some(ParentProxy { host: "parent.test".to_owned(), port: 8080, credentials });
    });
    let get =
        |field: &str| curtsy.ask_admin(&["GET /api/v1/config HTTP/1.1", "Host: localhost", "Connection: close", field]);
    assert_eq!(get("X-None: 1").status(), 401);
    assert_eq!(patch(&curtsy, r#"{"politeness": {"burst": 2}}"#, &[JSON]).status(), 401);
    let text = get("Authorization: Bearer tulip").text();
    assert!(text.contains("parent.test") && !text.contains("tulip") && !text.contains("lovelace"), "{text}");
    let with_token = patch(&curtsy, r#"{"politeness": {"burst": 2}}"#, &[JSON, "Authorization: Bearer tulip"]);
    assert_eq!(with_token.status(), 200);
}

/// A change of the pacing keeps quotas and connections.
#[test]
fn a_change_touches_nothing_but_the_pacing() {
    let curtsy = Curtsy::with(|config| {
        let two = NonZeroU32::new(2).expect("not zero");
        config.access.client_rate = Some(QuotaRate { requests: two, per: Duration::from_secs(3600) });
        config.upstream.keep_alive = ms(20_000);
    });
    let origin = Origin::hello();
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    changed(&curtsy, &json!({ "politeness": { "burst": 2 } }));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    assert_eq!(origin.connections(), 1, "the connection was thrown away");
    assert_eq!(curtsy.get(&origin.url("/")).refusal(), "quota-exceeded", "the quota was forgotten");
}

/// A change by the API lasts until the file is reloaded, and the log reports the reset.
#[test]
fn a_reload_of_the_file_forgets_what_was_set_by_hand() {
    let program = Program::start("admin = \"127.0.0.1:0\"\npoliteness.delay = \"7s\"", "");
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let ask = |lines: &[&str], body: &str| {
        let mut client = Client::connect(admin.parse().expect("an address"));
        let length = format!("Content-Length: {}", body.len());
        let lines: Vec<&str> = lines.iter().copied().chain(["Host: localhost", "Connection: close", &length]).collect();
        client.send(format!("{}\r\n\r\n{body}", lines.join("\r\n")));
        client.response()
    };
    let delay = || {
        let shown: Value = serde_json::from_str(&ask(&["GET /api/v1/config HTTP/1.1"], "").text()).expect("JSON");
        shown["politeness"]["delay"].as_str().expect("a delay").to_owned()
    };
    let body = r#"{"politeness": {"delay": "3s"}}"#;
    assert_eq!(ask(&["PATCH /api/v1/config HTTP/1.1", JSON], body).status(), 200);
    assert_eq!(delay(), "3s");
    program.signal("HUP");
    assert!(soon(|| delay() == "7s"));
    assert!(soon(|| program.event("config.reloaded").is_some()));
    let told = program.event("config.reloaded").expect("it was told").to_string();
    assert!(told.contains("politeness.delay 3s -> 7s"), "{told}");
}
