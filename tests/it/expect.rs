//! `Expect: 100-continue` and interim responses.

use std::sync::mpsc;

use crate::support::client::head;
use crate::support::origin::HELLO;
use crate::support::{Curtsy, Origin, PATIENCE, ms, pause, soon};

/// S44
#[test]
fn a_client_that_waits_to_be_asked_is_asked_and_sends() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send(head(&[
        &format!("POST {} HTTP/1.1", origin.url("/")),
        "Host: x",
        "Content-Length: 4",
        "Expect: 100-continue",
    ]));
    assert_eq!(client.response_head().line(), "HTTP/1.1 100 Continue");
    client.send("body");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(origin.request().body, b"body");
}

/// S44
#[test]
fn a_client_that_does_not_wait_is_served_too() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let request =
        head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 4", "Expect: 100-Continue"]);
    client.send(request + "body");
    let mut response = client.response();
    if response.status() == 100 {
        response = client.response();
    }
    assert_eq!(response.text(), "hello");
    assert_eq!(origin.request().body, b"body");
}

/// S44
#[test]
fn a_refusal_does_not_ask_for_the_body() {
    let curtsy = Curtsy::with(|config| config.access.allow_destinations.clear());
    let mut client = curtsy.client();
    let response = client.ask(&[
        "POST http://127.0.0.1:9/ HTTP/1.1",
        "Host: x",
        "Content-Length: 1000000",
        "Expect: 100-continue",
    ]);
    assert_eq!((response.status(), response.refusal().as_str()), (403, "destination-denied"));
}

/// S44
#[test]
fn an_origin_that_refuses_before_the_body_is_heard() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno");
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send_head(&[
        &format!("POST {} HTTP/1.1", origin.url("/")),
        "Host: x",
        "Content-Length: 9",
        "Expect: 100-continue",
    ]);
    let mut response = client.response();
    if response.status() == 100 {
        response = client.response();
    }
    assert_eq!((response.status(), response.text().as_str()), (417, "no"));
}

/// S45
#[test]
fn an_expectation_from_http_1_0_is_ignored() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.0", origin.url("/"));
    client.send(head(&[&line, "Content-Length: 4", "Expect: 100-continue"]) + "body");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(origin.request().body, b"body");
}

/// S45
#[test]
fn other_expectations_fail() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for expectation in ["x", "200-ok", "100-continue, x"] {
        let response = curtsy.ask(&[&origin.get("/"), "Host: x", &format!("Expect: {expectation}")]);
        assert_eq!(response.status(), 417, "{expectation}");
    }
    origin.expect_untouched();
}

/// S46: hyper does not pass 1xx responses on; the final response must arrive unchanged.
#[test]
fn early_hints_do_not_disturb_the_answer() {
    for early in [
        "103 Early Hints\r\nLink: </a.css>",
        "102 Processing",
        "100 Continue",
        "199 Whatever",
        "103 A\r\n\r\nHTTP/1.1 103 B",
    ] {
        let origin = Origin::answering(format!("HTTP/1.1 {early}\r\n\r\n{HELLO}"));
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        for _ in 0..2 {
            let mut response = client.ask(&[&origin.get("/"), "Host: x"]);
            while response.status() / 100 == 1 {
                response = client.response();
            }
            assert_eq!((response.status(), response.text().as_str()), (200, "hello"), "{early}");
            assert!(!response.has("Link"), "what is said early stays apart");
        }
    }
}

/// S46: an origin that sends interim responses without end is given up, however slowly they come.
#[test]
fn an_origin_that_never_comes_to_the_point_is_given_up() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        soon(|| { pause(ms(5)); true } && !visitor.send("HTTP/1.1 102 Processing\r\n\r\n"));
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.patience(PATIENCE / 2);
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).status(), 502);
}

/// S46
#[test]
fn an_http_1_0_client_hears_only_the_answer() {
    let origin = Origin::answering(format!("HTTP/1.1 103 Early Hints\r\n\r\n{HELLO}"));
    let response = Curtsy::start().ask(&[&format!("GET {} HTTP/1.0", origin.url("/"))]);
    assert_eq!((response.status(), response.text().as_str()), (200, "hello"));
}

/// S46: a 101 that the client did not ask for is a protocol error.
#[test]
fn switching_protocols_unasked_is_a_broken_answer() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        ended.send(visitor.linger()).unwrap();
    });
    let response = Curtsy::start().get(&origin.url("/"));
    assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
    end.recv_timeout(PATIENCE).expect("the connection is given up");
}
