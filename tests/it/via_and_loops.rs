//! Via, and how curtsy detects loops.

use std::net::{IpAddr, UdpSocket};

use crate::support::{Curtsy, Message, NAME, Origin};

/// S16
#[test]
fn via_is_appended_on_the_way_there_and_back() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nVia: 1.0 near, 1.1 far\r\nContent-Length: 0\r\n\r\n");
    let response = Curtsy::start().ask(&[&origin.get("/"), "Via: 1.0 fred", "Via: 1.1 p.example (x)"]);
    assert_eq!(response.value("Via"), format!("1.0 near, 1.1 far, 1.1 {NAME}"));
    assert_eq!(origin.request().value("Via"), format!("1.0 fred, 1.1 p.example (x), 1.1 {NAME}"));
}

/// S16
#[test]
fn via_names_the_version_that_was_received() {
    let origin = Origin::closing("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n");
    let response = Curtsy::start().ask(&[&format!("GET {} HTTP/1.0", origin.url("/"))]);
    assert_eq!(response.value("Via"), format!("1.0 {NAME}"));
    assert_eq!(origin.request().value("Via"), format!("1.0 {NAME}"));
}

/// S16
#[test]
fn via_can_be_left_out() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.upstream.via = false));
    curtsy.ask(&[&origin.get("/"), "Via: 1.0 fred"]);
    assert_eq!(origin.request().value("Via"), "1.0 fred");
}

/// S17
#[test]
fn the_name_given_by_default_tells_nothing() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.name = None));
    curtsy.get(&origin.url("/"));
    let via = origin.request().value("Via");
    let digits = via.strip_prefix("1.1 curtsy-").unwrap_or_else(|| panic!("{via}"));
    assert!(digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()), "{via}");
}

/// S17
#[test]
fn a_name_is_compared_whole() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for via in [format!("1.1 x{NAME}"), format!("1.1 {NAME}x"), format!("1.1 a ({NAME})"), format!("{NAME} other")] {
        assert_eq!(curtsy.ask(&[&origin.get("/"), &format!("Via: {via}")]).status(), 200, "{via}");
    }
}

/// S18
#[test]
fn a_request_that_has_been_here_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for via in [format!("1.1 {NAME}"), format!("1.0 a, 1.1 {NAME} (x), 1.1 b"), format!("HTTP/1.1 {NAME}")] {
        expect_loop(&curtsy.ask(&[&origin.get("/"), &format!("Via: {via}")]));
    }
    origin.expect_untouched();
}

/// S18, X12
#[test]
fn a_visit_to_curtsy_itself_is_refused() {
    let curtsy = Curtsy::start();
    let (port, admin) = (curtsy.address().port(), curtsy.admin().port());
    for host in ["127.0.0.1", "localhost", "LOCALHOST.", "[::ffff:127.0.0.1]"] {
        expect_loop(&curtsy.get(&format!("http://{host}:{port}/")));
        expect_loop(&curtsy.get(&format!("http://{host}:{admin}/")));
        expect_loop(&curtsy.ask(&[&format!("CONNECT {host}:{admin} HTTP/1.1")]));
    }
}

/// X12
#[test]
fn a_listener_on_every_address_is_found_at_each() {
    let curtsy = Curtsy::on("0.0.0.0:0", |_| ());
    expect_loop(&curtsy.get(&format!("http://127.0.0.9:{}/", curtsy.address().port())));
}

/// An address of this machine that is not loopback, or `None` without a network. Sends no packet.
fn outward_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("198.51.100.1:80").ok()?;
    socket.local_addr().ok().map(|address| address.ip()).filter(|ip| !ip.is_loopback())
}

/// X12, X56: curtsy's own listeners stay unreachable whatever `upstream.bind` is.
#[test]
fn curtsy_knows_itself_whatever_address_it_visits_from() {
    let Some(ip) = outward_address() else { return };
    for bind in [None, Some(IpAddr::from([127, 0, 0, 5])), Some(ip)] {
        let curtsy = Curtsy::on("0.0.0.0:0", |config| {
            config.admin = Some("0.0.0.0:0".parse().unwrap());
            config.access.allow_destinations.push(curtsy::config::Destination::Net(ip.into()));
            config.upstream.bind = bind;
        });
        for port in [curtsy.address().port(), curtsy.admin().port()] {
            expect_loop(&curtsy.get(&format!("http://{ip}:{port}/healthz")));
            expect_loop(&curtsy.ask(&[&format!("CONNECT {ip}:{port} HTTP/1.1")]));
        }
    }
}

/// S19
#[test]
fn max_forwards_zero_is_answered_here() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for method in ["TRACE", "OPTIONS"] {
        let response = curtsy.ask(&[&format!("{method} {} HTTP/1.1", origin.url("/x")), "Max-Forwards: 0"]);
        assert_eq!(response.status() / 100, 2, "{method}: {}", response.line());
    }
    origin.expect_untouched();
}

/// S19
#[test]
fn a_trace_answered_here_shows_the_request_without_its_secrets() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let secrets = ["Authorization: Bearer tulip", "Cookie: id=tulip", "Proxy-Authorization: Basic tulip"];
    let response = curtsy.ask(&[
        &format!("TRACE {} HTTP/1.1", origin.url("/x")),
        "Max-Forwards: 0",
        "X-Shown: yes",
        secrets[0],
        secrets[1],
        secrets[2],
    ]);
    assert_eq!((response.status(), response.value("Content-Type").as_str()), (200, "message/http"));
    assert!(response.text().starts_with("TRACE ") && response.text().to_ascii_lowercase().contains("x-shown: yes"));
    assert!(!response.text().contains("tulip"), "{}", response.text());
}

/// S19
#[test]
fn max_forwards_counts_down_for_trace_and_options_only() {
    for (method, sent, arrives) in
        [("TRACE", "5", "4"), ("OPTIONS", "1", "0"), ("GET", "5", "5"), ("GET", "0", "0"), ("GET", "x", "x")]
    {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        curtsy.ask(&[&format!("{method} {} HTTP/1.1", origin.url("/")), &format!("Max-Forwards: {sent}")]);
        assert_eq!(origin.request().value("Max-Forwards"), arrives, "{method} {sent}");
    }
}

/// S19
#[test]
fn max_forwards_that_is_no_number_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for value in ["x", "-1", "+1", "1.5", "", "1, 2"] {
        let response = curtsy.ask(&[&format!("TRACE {} HTTP/1.1", origin.url("/")), &format!("Max-Forwards: {value}")]);
        assert_eq!(response.status(), 400, "{value:?}");
    }
    origin.expect_untouched();
}

fn expect_loop(response: &Message) {
    assert_eq!((response.status(), response.refusal().as_str()), (502, "loop"), "{}", response.head());
    let status = response.value("Proxy-Status");
    assert!(status.starts_with(NAME) && status.contains("error=proxy_loop_detected"), "{status}");
}
