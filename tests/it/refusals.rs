//! Refusals: all have the same shape, say why, and have a body in the format that the client accepts.

use curtsy::config::ResponseHeaders;
use serde_json::Value;

use crate::support::client::head;
use crate::support::{Curtsy, Hole, Message, NAME, Origin, ms};

/// Asserts what holds for every refusal.
fn check_shape(response: &Message) {
    let (line, head) = (response.line(), response.head());
    assert!(response.reason().ends_with("(curtsy)") && line.is_ascii() && response.reason().len() <= 60, "{line}");
    assert!(response.value("Proxy-Status").starts_with(&format!("{NAME};")), "{head}");
    assert!(response.value("Cache-Control").contains("no-store"), "{head}");
    assert_eq!(response.value("X-Content-Type-Options"), "nosniff", "{head}");
    assert!(response.text().starts_with("curtsy: "), "{}", response.text());
    assert!(response.value("Content-Type").starts_with("text/plain"), "{head}");
}

fn check(response: &Message, status: u16, code: &str, error: &str) {
    assert_eq!((response.status(), response.refusal().as_str()), (status, code), "{}", response.head());
    assert!(response.value("Proxy-Status").contains(&format!("error={error}")), "{}", response.value("Proxy-Status"));
    check_shape(response);
}

/// S73, S74
#[test]
fn a_request_that_is_wrong() {
    let curtsy = Curtsy::start();
    check(&curtsy.get("gopher://a.test/"), 400, "bad-request", "http_request_error");
    check(&curtsy.get("http://u:p@a.test/"), 400, "bad-request", "http_request_error");
    check(&curtsy.ask(&["CONNECT a.test:0 HTTP/1.1"]), 400, "bad-request", "http_request_error");
}

/// S73
#[test]
fn a_destination_that_is_denied() {
    let curtsy = Curtsy::with(|config| config.access.allow_destinations.clear());
    check(&curtsy.get("http://10.0.0.1/"), 403, "destination-denied", "destination_ip_prohibited");
}

/// S73
#[test]
fn a_client_that_is_denied() {
    let curtsy = Curtsy::with(|config| config.access.allow = vec!["10.0.0.0/8".parse().unwrap()]);
    check(&curtsy.get("http://a.test/"), 403, "client-denied", "http_request_denied");
}

/// S73
#[test]
fn an_origin_that_is_not_there() {
    let curtsy = Curtsy::start();
    check(&curtsy.get(&Hole::refusing().url()), 502, "origin-unreachable", "connection_refused");
    check(&curtsy.get("http://no-such-name.invalid/"), 502, "origin-unreachable", "dns_error");
}

/// S73
#[test]
fn an_origin_that_does_not_answer_the_door() {
    let (curtsy, hole) = (Curtsy::with(|config| config.upstream.connect_timeout = ms(150)), Hole::silent());
    check(&curtsy.get(&hole.url()), 504, "origin-timeout", "connection_timeout");
}

/// S73
#[test]
fn an_origin_that_does_not_answer_the_question() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.linger();
    });
    let curtsy = Curtsy::with(|config| config.upstream.response_timeout = ms(150));
    check(&curtsy.get(&origin.url("/")), 504, "origin-timeout", "http_response_timeout");
}

/// S73
#[test]
fn an_origin_that_hangs_up() {
    for reset in [false, true] {
        let origin = Origin::scripted(move |visitor| {
            visitor.request();
            if reset {
                visitor.end_with_reset();
            }
        });
        check(&Curtsy::start().get(&origin.url("/")), 502, "origin-unreachable", "connection_terminated");
    }
}

/// S73
#[test]
fn an_origin_that_hangs_up_during_an_upload() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.end_with_reset();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 1000"]) + "part");
    check(&client.response(), 502, "origin-unreachable", "connection_terminated");
}

/// S73
#[test]
fn an_origin_that_talks_nonsense() {
    let origin = Origin::closing("220 mail.example ESMTP\r\n\r\n");
    check(&Curtsy::start().get(&origin.url("/")), 502, "origin-unreachable", "http_protocol_error");
}

/// S73
#[test]
fn an_origin_that_talks_too_much() {
    let origin = Origin::closing(format!("HTTP/1.1 200 OK\r\nX-Long: {}\r\n\r\n", "x".repeat(40_000)));
    let curtsy = Curtsy::with(|config| config.limits.head_size = 16 * 1024);
    check(&curtsy.get(&origin.url("/")), 502, "origin-unreachable", "http_response_header_section_size");
}

/// S73
#[test]
fn a_loop() {
    check(
        &Curtsy::start().ask(&["GET http://a.test/ HTTP/1.1", &format!("Via: 1.1 {NAME}")]),
        502,
        "loop",
        "proxy_loop_detected",
    );
}

/// S75
#[test]
fn the_name_in_proxy_status_is_the_deployments() {
    let curtsy = Curtsy::with(|config| config.name = Some("north-wing".to_owned()));
    assert!(curtsy.get("ftp://a.test/").value("Proxy-Status").starts_with("north-wing;"));
}

/// S75
#[test]
fn what_others_said_in_proxy_status_stays_in_front() {
    let origin = Origin::answering(
        "HTTP/1.1 502 Bad Gateway\r\nProxy-Status: near; error=dns_timeout\r\nContent-Length: 0\r\n\r\n",
    );
    let response = Curtsy::start().get(&origin.url("/"));
    assert_eq!(response.status(), 502);
    assert!(response.value("Proxy-Status").starts_with("near; error=dns_timeout"), "{}", response.head());
    assert!(response.refusal().is_empty(), "it is the origin's answer, not ours");
}

/// S75
#[test]
fn a_refusal_names_no_address_it_was_not_given() {
    let hole = Hole::refusing();
    let response = Curtsy::start().get(&hole.url().replace("127.0.0.1", "localhost"));
    assert_eq!(response.status(), 502);
    assert!(!response.head().contains("next-hop") && !response.head().contains("127.0.0.1"), "{}", response.head());
}

/// S75
#[test]
fn forwarded_answers_can_be_left_bare() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.responses.headers = ResponseHeaders::Off));
    let response = curtsy.get(&origin.url("/"));
    for field in ["Proxy-Status", "Server-Timing", "Curtsy", "Curtsy-Error"] {
        assert!(!response.has(field), "{}", response.head());
    }
}

/// S77
#[test]
fn a_program_gets_a_problem() {
    for accept in ["application/json", "application/problem+json"] {
        let response =
            Curtsy::start().ask(&[&format!("GET {} HTTP/1.1", Hole::refusing().url()), &format!("Accept: {accept}")]);
        assert_eq!(response.value("Content-Type"), "application/problem+json", "{accept}");
        let problem: Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!((problem["status"].as_u64(), problem["host"].as_str()), (Some(502), Some("127.0.0.1")), "{problem}");
        assert!(problem["type"].as_str().unwrap().ends_with("origin-unreachable"), "{problem}");
        for key in ["title", "detail", "instance"] {
            assert!(problem[key].as_str().is_some_and(|text| !text.is_empty()), "{key} in {problem}");
        }
    }
}

/// S77
#[test]
fn a_browser_gets_a_page_that_needs_nothing_else() {
    let accept = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,image/webp,*/*;q=0.8";
    let response = Curtsy::start().ask(&["GET ftp://a.test/ HTTP/1.1", accept]);
    assert!(response.value("Content-Type").starts_with("text/html"), "{}", response.head());
    let page = response.text().to_ascii_lowercase();
    assert!(
        page.contains("<!doctype html>")
            && !page.contains("src=")
            && !page.contains("<link")
            && !page.contains("@import")
    );
}

/// S77
#[test]
fn everybody_else_gets_text() {
    for accept in [
        "Accept: */*",
        "Accept: image/png",
        "Accept:",
        "X-None: 1",
        "Accept: text/plain, text/html;q=0.5",
        "Accept: ;;;q=x",
    ] {
        check_shape(&Curtsy::start().ask(&["GET ftp://a.test/ HTTP/1.1", accept]));
    }
}

/// S77: a refused HEAD gets the same head as a GET, without the body.
#[test]
fn a_refused_head_request_has_no_body() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let response = client.ask(&["HEAD ftp://a.test/ HTTP/1.1", "Host: x"]);
    assert_eq!((response.status(), response.refusal().as_str()), (400, "bad-request"));
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
}

/// S78
#[test]
fn one_clients_refusal_tells_nothing_about_another() {
    let curtsy = Curtsy::start();
    curtsy.ask(&["GET http://no-such-name.invalid/tulip HTTP/1.1", "Cookie: tulip", "User-Agent: tulip"]);
    let response = curtsy.get("http://no-such-name.invalid/rose");
    assert!(!(response.head() + &response.text()).contains("tulip"));
}

/// X30
#[test]
fn a_refusal_shows_no_field_of_the_request() {
    for accept in ["text/html", "application/problem+json", "text/plain"] {
        let response = Curtsy::start().ask(&[
            "GET http://no-such-name.invalid/ HTTP/1.1",
            "Authorization: Bearer tulip",
            "Proxy-Authorization: Basic tulip",
            "Cookie: tulip",
            "X-Api-Key: tulip",
            "User-Agent: <script>tulip</script>",
            &format!("Accept: {accept}, x/tulip;q=0.1"),
        ]);
        assert_eq!(response.status(), 502);
        assert!(!(response.head() + &response.text()).contains("tulip"), "{}", response.text());
    }
}

/// X30
#[test]
fn what_a_refusal_quotes_is_escaped() {
    let path = "/\"onload='alert(1)'&lt;x{}";
    let url = format!("http://no-such-name.invalid{path}");
    let page = Curtsy::start().ask(&[&format!("GET {url} HTTP/1.1"), "Accept: text/html"]).text();
    assert!(!page.contains("\"onload") && !page.contains("'alert"), "{page}");
    let problem = Curtsy::start().ask(&[&format!("GET {url} HTTP/1.1"), "Accept: application/json"]);
    serde_json::from_slice::<Value>(&problem.body).expect("quotes do not break it");
}

/// X30
#[test]
fn a_script_in_a_target_is_never_sent_back_as_a_script() {
    for target in [
        "http://a.test/<script>alert(1)</script>",
        "http://<script>alert(1)</script>/",
        "x<script>:alert(1)",
        "/<script>alert(1)</script>",
    ] {
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        client.send(head(&[&format!("GET {target} HTTP/1.1"), "Host: x", "Accept: text/html", "Connection: close"]));
        assert!(!String::from_utf8_lossy(&client.rest()).contains("<script"), "{target}");
    }
}

/// X31
#[test]
fn nothing_a_client_sends_becomes_a_field_of_the_answer() {
    for path in ["/%0d%0aSet-Cookie:%20a=b", "/\"; error=x; x=\"", "/%22%0aX-Injected:1", "/\\\""] {
        let response = Curtsy::start().get(&format!("http://no-such-name.invalid{path}"));
        assert!(!response.has("Set-Cookie") && !response.has("X-Injected"), "{}", response.head());
        let quotes = response.value("Proxy-Status").replace("\\\"", "").matches('"').count();
        assert!(quotes.is_multiple_of(2) && !response.value("Proxy-Status").contains("error=x"), "{}", response.head());
    }
}

/// S78: a refused request does not close the client's connection.
#[test]
fn a_refusal_leaves_the_connection_usable() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    for _ in 0..3 {
        assert_eq!(client.ask(&["GET ftp://a.test/ HTTP/1.1", "Host: x"]).status(), 400);
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
}

/// S79
#[test]
fn a_preference_about_waiting_is_forwarded_and_ours_is_not() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    curtsy.ask(&[&origin.get("/"), "Prefer: wait=10, respond-async", "Curtsy-Max-Wait: 10"]);
    assert_eq!(origin.request().values("Prefer"), ["wait=10, respond-async"]);
    assert!(!origin.request().has("Curtsy-Max-Wait"));
}

/// S77
#[test]
fn a_program_that_can_read_pages_too_gets_what_it_prefers() {
    let accept = "Accept: text/html;q=0.1, application/problem+json";
    let response = Curtsy::start().ask(&["GET ftp://a.test/ HTTP/1.1", accept]);
    assert_eq!(response.value("Content-Type"), "application/problem+json");
}
