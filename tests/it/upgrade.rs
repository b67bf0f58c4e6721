//! WebSockets over plain HTTP are forwarded; other upgrades are removed from the request.

use std::sync::mpsc;

use crate::support::client::head;
use crate::support::origin::HELLO;
use crate::support::{Client, Curtsy, End, Origin, PATIENCE, Visitor, ms};

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

fn echo(visitor: &mut Visitor) {
    visitor.request_head();
    visitor.send(SWITCHING);
    while let Ok(bytes) = visitor.read_some() {
        visitor.send(bytes);
    }
}

fn handshake(origin: &Origin) -> String {
    head(&[
        &origin.get("/chat"),
        "Host: x",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: k",
        "Sec-WebSocket-Version: 13",
    ])
}

fn upgraded(origin: &Origin, curtsy: &Curtsy) -> Client {
    let mut client = curtsy.client();
    client.send(handshake(origin));
    let response = client.response_head();
    assert_eq!(response.status(), 101, "{}", response.head());
    client
}

/// S47
#[test]
fn a_websocket_goes_through() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::start());
    let mut client = curtsy.client();
    client.send(handshake(&origin));
    let response = client.response_head();
    assert_eq!((response.status(), response.value("Sec-WebSocket-Accept").as_str()), (101, "y"));
    assert_eq!(
        (response.value("Upgrade").as_str(), response.value("Connection").to_ascii_lowercase().as_str()),
        ("websocket", "upgrade")
    );
    for frame in [&b"\x81\x05hello"[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 70_000]] {
        client.send(frame);
        assert!(client.read_exactly(frame.len()).unwrap() == frame);
    }
    let request = origin.request();
    assert_eq!((request.value("Upgrade").as_str(), request.value("Sec-WebSocket-Key").as_str()), ("websocket", "k"));
    assert_eq!(request.value("Connection").to_ascii_lowercase(), "upgrade");
}

/// S47
#[test]
fn bytes_after_the_handshake_wait_for_the_101() {
    let (sent, received) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request_head();
        visitor.patience(ms(150));
        let too_early = visitor.read_some();
        visitor.patience(PATIENCE);
        visitor.send(SWITCHING);
        sent.send((too_early, visitor.read_exactly(5))).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(handshake(&origin) + "early");
    assert_eq!(client.response_head().status(), 101);
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), (Err(End::Silence), Ok(b"early".to_vec())));
}

/// S47
#[test]
fn an_ordinary_answer_to_a_handshake_is_an_ordinary_answer() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send(handshake(&origin) + &head(&[&origin.get("/next"), "Host: x"]));
    assert_eq!(client.response().text(), "hello");
    assert_eq!(client.response().text(), "hello");
    assert_eq!(origin.requests(2)[1].line(), "GET /next HTTP/1.1");
}

/// S47
#[test]
fn other_protocols_are_not_offered_to_the_origin() {
    for upgrade in ["foo", "TLS/1.0", "HTTP/2.0", "IRC/6.9", "websocket2"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let response =
            curtsy.ask(&[&origin.get("/"), "Host: x", "Connection: Upgrade", &format!("Upgrade: {upgrade}")]);
        assert_eq!(response.text(), "hello", "{upgrade}");
        assert!(!origin.request().has("Upgrade") && !origin.request().has("Connection"), "{}", origin.request().head());
    }
}

/// S47
#[test]
fn an_upgrade_without_its_connection_option_or_from_http_1_0_is_none() {
    for lines in [["1.1", "X-None: 1"], ["1.0", "Connection: Upgrade"]] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        curtsy.ask(&[&format!("GET {} HTTP/{}", origin.url("/"), lines[0]), "Host: x", lines[1], "Upgrade: websocket"]);
        assert!(!origin.request().has("Upgrade"), "{lines:?}");
    }
}

/// S48
#[test]
fn h2c_is_left_out() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let response = curtsy.ask(&[
        &origin.get("/"),
        "Host: x",
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAMAAABkAAQAAP__",
    ]);
    assert_eq!(response.text(), "hello");
    curtsy.ask(&[&origin.get("/"), "Host: x", "HTTP2-Settings: AAMAAABkAAQAAP__", "Upgrade: h2c"]);
    for request in origin.requests(2) {
        assert!(!request.has("Upgrade") && !request.has("HTTP2-Settings"), "{}", request.head());
    }
}

/// S52
#[test]
fn the_end_of_a_websocket_reaches_the_other_side() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request_head();
        visitor.send(SWITCHING);
        if visitor.read_exactly(3) == Ok(b"bye".to_vec()) {
            return;
        }
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut said = upgraded(&origin, &curtsy);
    said.send("bye");
    said.half_close();
    said.expect_end();
    let mut left = upgraded(&origin, &curtsy);
    left.send("out");
    drop(left);
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
}

/// S52
#[test]
fn a_silent_websocket_is_closed() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::with(|config| config.upstream.idle_timeout = ms(200)));
    upgraded(&origin, &curtsy).expect_end();
}

/// S47: the first bytes of the new protocol may arrive together with the 101.
#[test]
fn bytes_behind_the_101_are_delivered() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send(format!("{SWITCHING}first frame"));
        visitor.linger();
    });
    assert_eq!(upgraded(&origin, &Curtsy::start()).read_exactly(11), Ok(b"first frame".to_vec()));
}

/// S47: a handshake that curtsy refuses gets an ordinary refusal.
#[test]
fn a_handshake_with_a_denied_host_is_refused() {
    let (origin, curtsy) = (Origin::answering(HELLO), Curtsy::with(|config| config.access.allow_destinations.clear()));
    let mut client = curtsy.client();
    client.send(handshake(&origin));
    assert_eq!(client.response().refusal(), "destination-denied");
    origin.expect_untouched();
}

/// S47
#[test]
fn an_origin_that_switches_to_something_else_has_failed() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(handshake(&origin));
    let response = client.response();
    assert_eq!(response.status(), 502, "{}", response.head());
    assert!(response.value("Proxy-Status").contains("error=http_upgrade_failed"), "{}", response.head());
}

/// S47: the rest of a request body must not become the first bytes of the new protocol.
#[test]
fn an_origin_that_switches_in_the_middle_of_a_request_has_failed() {
    let origin = Origin::scripted(echo);
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(handshake(&origin).replace("Host: x", "Host: x\r\nContent-Length: 10") + "part");
    let response = client.response();
    assert_eq!(response.status(), 502, "{}", response.head());
}
