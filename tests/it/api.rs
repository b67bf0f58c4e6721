//! The API as a whole: its OpenAPI document, status, queue and reload.

use curtsy::config::{Config, Mode, RobotsMode};
use serde_json::{Value, json};

use crate::support::program::run;
use crate::support::schema::{document, problems};
use crate::support::{Client, Curtsy, Message, Origin, Program, ms, soon};

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(5_000);
        change(config);
    })
}

/// One call: "PATCH /api/v1/hosts/a.test" and a body, which may be empty.
fn call(admin: std::net::SocketAddr, line: &str, body: &str) -> Message {
    let mut client = Client::connect(admin);
    let (length, json) = (body.len(), "Content-Type: application/json");
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{json}\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    client.response()
}

fn json_of(answer: &Message) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|error| panic!("{error}: {}", answer.text()))
}

fn get(curtsy: &Curtsy, path: &str) -> Value {
    let answer = call(curtsy.admin(), &format!("GET {path}"), "");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    json_of(&answer)
}

/// `("/api/v1/hosts/{host}", ["get", "patch", "delete"])` from the table of routes in the code.
fn routes() -> Vec<(String, Vec<String>)> {
    let code = include_str!("../../src/admin/mod.rs");
    let lines = code.lines().filter_map(|line| line.trim().strip_prefix(".route(\"/api/"));
    let route = |line: &str| {
        let (path, handlers) = line.split_once("\", ").expect("a path and its handlers");
        let methods = ["get", "post", "patch", "delete", "put"].into_iter();
        let methods = methods.filter(|method| handlers.contains(&format!("{method}("))).map(str::to_owned);
        (format!("/api/{path}"), methods.collect())
    };
    lines.map(route).collect()
}

#[test]
fn every_route_is_in_the_document_and_every_path_in_the_document_is_a_route() {
    let document = document();
    let documented = document["paths"].as_object().expect("paths");
    let routes = routes();
    assert!(routes.len() > 10, "the table of routes was not found");
    for (path, methods) in &routes {
        let written: Vec<&String> =
            documented.get(path).and_then(Value::as_object).into_iter().flatten().map(|(m, _)| m).collect();
        assert_eq!(written.len(), methods.len(), "{path}: the document has {written:?}, the code {methods:?}");
        assert!(methods.iter().all(|method| written.contains(&method)), "{path}: {written:?} and {methods:?}");
    }
    for path in documented.keys() {
        assert!(routes.iter().any(|(route, _)| route == path), "{path} is in the document only");
    }
    let curtsy = Curtsy::start();
    assert_eq!(get(&curtsy, "/api/v1/openapi.json"), document);
}

/// The schema that the document gives for an answer to this call.
fn schema<'a>(document: &'a Value, path: &str, method: &str, status: u16) -> &'a Value {
    let mut response = &document["paths"][path][method]["responses"][status.to_string()];
    if let Some(named) = response["$ref"].as_str() {
        response = document.pointer(named.trim_start_matches('#')).expect("it names a response");
    }
    let content = response["content"].as_object().unwrap_or_else(|| panic!("{method} {path} knows no {status}"));
    &content.values().next().expect("one media type")["schema"]
}

/// Successful answers and errors both match their schemas in the document.
#[test]
fn answers_are_as_the_document_says() {
    let rules = "User-agent: *\nDisallow: /private/\nCrawl-delay: 1\n";
    let origin = Origin::with_robots(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len()));
    let curtsy = pacing(|config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let document = document();
    let page = origin.url("/private/x");
    let mut waiting = curtsy.client();
    waiting.send_head(&[&origin.get("/waits"), "Host: x"]);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    let check = json!({ "urls": [page] }).to_string();
    let calls: Vec<(&str, &str, String, &str, u16)> = vec![
        ("/api/v1/status", "get", "/api/v1/status".into(), "", 200),
        ("/api/v1/history", "get", "/api/v1/history".into(), "", 200),
        ("/api/v1/queue", "get", "/api/v1/queue?host=127.0.0.1&limit=5".into(), "", 200),
        ("/api/v1/queue", "get", "/api/v1/queue?limit=0".into(), "", 400),
        ("/api/v1/events", "get", "/api/v1/events?recent=x".into(), "", 400),
        ("/api/v1/cache", "get", "/api/v1/cache".into(), "", 200),
        ("/api/v1/cache", "delete", "/api/v1/cache".into(), "", 400),
        ("/api/v1/cache", "delete", "/api/v1/cache?host=a.test".into(), "", 200),
        ("/api/v1/cache/entries", "get", "/api/v1/cache/entries?sort=size&host=127.0.0.1".into(), "", 200),
        ("/api/v1/cache/entries", "get", "/api/v1/cache/entries?sort=colour".into(), "", 400),
        ("/api/v1/cache/entry", "get", "/api/v1/cache/entry?url=http://a.test/".into(), "", 200),
        ("/api/v1/cache/entry", "get", "/api/v1/cache/entry?url=no".into(), "", 400),
        ("/api/v1/hosts", "get", "/api/v1/hosts?sort=wait&order=reverse".into(), "", 200),
        ("/api/v1/hosts", "get", "/api/v1/hosts?state=well".into(), "", 400),
        ("/api/v1/hosts/{host}", "get", "/api/v1/hosts/127.0.0.1".into(), "", 200),
        ("/api/v1/hosts/{host}", "get", "/api/v1/hosts/nobody.test".into(), "", 404),
        ("/api/v1/hosts/{host}", "patch", "/api/v1/hosts/127.0.0.1".into(), r#"{"burst": 2}"#, 200),
        ("/api/v1/hosts/{host}", "patch", "/api/v1/hosts/127.0.0.1".into(), r#"{"burst": 0}"#, 400),
        ("/api/v1/hosts/{host}/history", "get", "/api/v1/hosts/127.0.0.1/history".into(), "", 200),
        ("/api/v1/hosts/{host}/history", "get", "/api/v1/hosts/nobody.test/history".into(), "", 404),
        ("/api/v1/clients/{name}/stop", "post", "/api/v1/clients/spider/stop".into(), r#"{"until": "2h"}"#, 200),
        ("/api/v1/clients", "get", "/api/v1/clients".into(), "", 200),
        ("/api/v1/clients/{name}/resume", "post", "/api/v1/clients/spider/resume".into(), "{}", 200),
        ("/api/v1/clients/{name}/resume", "post", "/api/v1/clients/spider/resume".into(), "{}", 404),
        ("/api/v1/explain", "get", format!("/api/v1/explain?url={page}"), "", 200),
        ("/api/v1/explain", "get", "/api/v1/explain".into(), "", 400),
        ("/api/v1/check", "post", "/api/v1/check".into(), &check, 200),
        ("/api/v1/robots", "get", format!("/api/v1/robots?url={page}"), "", 200),
        ("/api/v1/config", "get", "/api/v1/config".into(), "", 200),
        ("/api/v1/config", "patch", "/api/v1/config".into(), r#"{"politeness": {"burst": 2}}"#, 200),
        ("/api/v1/config", "patch", "/api/v1/config".into(), r#"{"politeness": {"burst": 0}}"#, 400),
        ("/api/v1/reload", "post", "/api/v1/reload".into(), "{}", 503),
        ("/api/v1/state", "post", "/api/v1/state".into(), "", 409),
        ("/api/v1/hosts/{host}", "delete", "/api/v1/hosts/127.0.0.1".into(), "", 200),
    ];
    for (path, method, line, body, status) in calls {
        let answer = call(curtsy.admin(), &format!("{} {line}", method.to_uppercase()), body);
        assert_eq!(answer.status(), status, "{method} {line}: {}", answer.text());
        let wrong = problems(&document, schema(&document, path, method, status), &json_of(&answer));
        assert!(wrong.is_empty(), "{method} {line}: {wrong:#?}\n{}", answer.text());
    }
}

#[test]
fn the_queue_is_listed_without_secrets() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut waiting = [curtsy.client(), curtsy.client()];
    waiting[0].send_head(&[&origin.get("/a?key=secret"), "Host: x", "Curtsy-Client: spider", "Authorization: secret"]);
    assert!(soon(|| get(&curtsy, "/api/v1/queue")["total"] == 1));
    waiting[1].send_head(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]);
    assert!(soon(|| get(&curtsy, "/api/v1/queue")["total"] == 2));

    let queue = get(&curtsy, "/api/v1/queue");
    assert!(!queue.to_string().contains("secret"), "{queue:#}");
    let [first, second] = [&queue["waiting"][0], &queue["waiting"][1]];
    assert_eq!((&first["host"], &first["client"]), (&json!("127.0.0.1"), &json!("spider")));
    assert_eq!((&first["method"], &first["url"]), (&json!("GET"), &json!(origin.url("/a?…"))));
    assert_eq!((&second["client"], &second["method"]), (&json!("127.0.0.1"), &json!("CONNECT")));
    let expected = |waiting: &Value| waiting["expected_ms"].as_u64().expect("it is foreseen");
    assert!((1..=5_000).contains(&expected(first)) && expected(second) > expected(first), "{queue:#}");
    let page = get(&curtsy, "/api/v1/queue?limit=1&offset=1");
    assert_eq!((&page["total"], page["waiting"].as_array().map(Vec::len)), (&json!(2), Some(1)));
    assert_eq!(page["waiting"][0]["method"], "CONNECT");
    assert_eq!(get(&curtsy, "/api/v1/queue?host=b.test")["total"], 0);

    let status = get(&curtsy, "/api/v1/status");
    assert_eq!(
        (&status["waiting"], &status["hosts"]["waiting"], &status["state"]),
        (&json!(2), &json!(1), &json!("ready"))
    );
    assert_eq!((&status["name"], &status["spacing_violations"]), (&json!("front-desk"), &json!(0)));
    drop(waiting);
    assert!(soon(|| get(&curtsy, "/api/v1/queue")["total"] == 0), "a client that leaves is removed at once");
}

#[test]
fn the_status_counts_what_became_of_requests_and_what_is_paused() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| config.politeness.delay = ms(0));
    curtsy.get(&origin.url("/"));
    curtsy.get("http://10.0.0.1/");
    assert_eq!(call(curtsy.admin(), "PATCH /api/v1/hosts/a.test", r#"{"paused": true}"#).status(), 200);
    assert!(soon(|| get(&curtsy, "/api/v1/status")["requests"]["total"] == 2));
    let status = get(&curtsy, "/api/v1/status");
    assert_eq!((&status["requests"]["forwarded"], &status["requests"]["denied"]), (&json!(1), &json!(1)));
    assert!(soon(|| get(&curtsy, "/api/v1/status")["hosts"]["paused_hosts"] == json!(["a.test"])));
    assert_eq!(get(&curtsy, "/api/v1/hosts?state=paused")["total"], 1);
    assert!(status["memory"]["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 1 << 20), "{status:#}");
    assert_eq!(status["state_store"]["kept"], false);
}

/// A reload applies the whole file or nothing of it.
#[test]
fn a_reload_is_asked_for_by_the_api() {
    let program = Program::start("admin = \"127.0.0.1:0\"\nwatch = false", "");
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").parse();
    let admin = admin.expect("an address");
    let unchanged = call(admin, "POST /api/v1/reload", "");
    assert_eq!((unchanged.status(), json_of(&unchanged)), (200, json!({"changed": []})), "{}", unchanged.text());
    program.rewrite("admin = \"127.0.0.1:0\"\nwatch = false\npoliteness.burst = 7", "");
    let changed = call(admin, "POST /api/v1/reload", "{}");
    assert_eq!(changed.status(), 200, "{}", changed.text());
    assert!(json_of(&changed)["changed"][0].as_str().is_some_and(|text| text.contains("burst")), "{}", changed.text());
    program.rewrite("admin = \"127.0.0.1:0\"\nwatch = false\npoliteness.burst = 'many'", "");
    let refused = call(admin, "POST /api/v1/reload", "");
    assert_eq!((refused.status(), &json_of(&refused)["title"]), (409, &json!("Not reloaded")));
    assert!(refused.text().contains("burst"), "{}", refused.text());
    assert_eq!(json_of(&call(admin, "GET /api/v1/status", ""))["last_reload_successful"], false);
    assert_eq!(call(admin, "POST /api/v1/reload", r#"{"file": "x"}"#).status(), 400);
}

#[test]
fn a_reload_is_asked_for_by_the_command() {
    let program = Program::start("admin = \"127.0.0.1:0\"\nwatch = false", "");
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let reload = || run(&["reload", "--admin", &admin]);
    assert_eq!(reload(), (0, "reloaded; nothing changed\n".to_owned()));
    program.rewrite("admin = \"127.0.0.1:0\"\nwatch = false\npoliteness.burst = 7", "");
    assert_eq!(reload(), (0, "reloaded:\n  politeness.burst 1 -> 7\n".to_owned()));
    program.rewrite("admin = \"127.0.0.1:0\"\nwatch = false\npoliteness.burst = 'many'", "");
    let (code, printed) = reload();
    assert!(code == 1 && printed.contains("burst") && printed.contains("was not changed"), "{code} {printed}");
    drop(program);
    assert_eq!(reload().0, 4);
}

/// The data of a host's chart exists as soon as a request waits for that host.
#[test]
fn a_host_with_a_waiting_request_is_followed() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut waiting = curtsy.client();
    waiting.send_head(&[&origin.get("/a"), "Host: x"]);
    let history = || get(&curtsy, "/api/v1/hosts/127.0.0.1/history");
    assert!(soon(|| !history()["delay_ms"].as_array().expect("a list").is_empty()), "{:#}", history());
    let told = history();
    assert_eq!((&told["step_s"], &told["delay_ms"][0]), (&json!(5), &json!(5000)));
    let all = get(&curtsy, "/api/v1/history");
    assert_eq!(all["requests"].as_array().map(Vec::len), all["waiting"].as_array().map(Vec::len));
}

/// A method that a path does not have gets 405, whatever is sent with it. Calls that change something need
/// `Content-Type: application/json`, or they get 415.
#[test]
fn unknown_methods_are_told_before_wrong_types() {
    let curtsy = Curtsy::start();
    let ask =
        |line: &str| curtsy.ask_admin(&[line, "Host: localhost", "Connection: close", "Content-Length: 0"]).status();
    for path in ["/api/v1/hosts/a.test", "/api/v1/config", "/api/v1/reload", "/api/v1/status"] {
        assert_eq!(ask(&format!("PUT {path} HTTP/1.1")), 405, "{path}");
    }
    assert_eq!(ask("POST /api/v1/status HTTP/1.1"), 405);
    let document = document();
    for (method, path) in
        [("delete", "/api/v1/hosts/{host}"), ("post", "/api/v1/reload"), ("post", "/api/v1/clients/{name}/resume")]
    {
        let line =
            format!("{} {} HTTP/1.1", method.to_ascii_uppercase(), path.replace("{host}", "a").replace("{name}", "a"));
        assert_eq!(ask(&line), 415, "{line}");
        let body = &document["paths"][path][method]["requestBody"];
        assert!(body["required"] == true && !body["content"]["application/json"].is_null(), "{path}: {body}");
    }
}
