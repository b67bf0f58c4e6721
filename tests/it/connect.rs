//! CONNECT: a tunnel opens only if the origin accepts the connection, carries every byte, and closes when either side
//! does.

use std::sync::mpsc;

use curtsy::config::{Config, ParentProxy};

use crate::support::{Client, Curtsy, End, Hole, Message, Origin, PATIENCE, Visitor, ms, pause};

fn echo(visitor: &mut Visitor) {
    while let Ok(bytes) = visitor.read_some() {
        visitor.send(bytes);
    }
}

fn tunnel(curtsy: &Curtsy, authority: &str) -> Client {
    let mut client = curtsy.client();
    let response = client.ask(&[&format!("CONNECT {authority} HTTP/1.1"), &format!("Host: {authority}")]);
    assert_eq!(response.status(), 200, "{}", response.head());
    client
}

/// Returns the answer to a CONNECT that must be refused, and asserts that the connection is closed afterwards.
fn refused(curtsy: &Curtsy, authority: &str) -> Message {
    let mut client = curtsy.client();
    let response = client.ask(&[&format!("CONNECT {authority} HTTP/1.1"), "Host: x", "Connection: keep-alive"]);
    client.expect_end();
    response
}

/// S10, S49
#[test]
fn a_tunnel_carries_every_byte_both_ways() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::start());
    let mut client = tunnel(&curtsy, &origin.authority());
    for piece in [&b"\x16\x03\x01"[..], b"GET / HTTP/1.1\r\n\r\n", &[7; 100_000]] {
        client.send(piece);
        assert!(client.read_exactly(piece.len()).unwrap() == piece);
    }
}

/// S49
#[test]
fn the_answer_to_connect_has_no_framing() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::start());
    let response = curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]);
    assert!(!response.has("Content-Length") && !response.has("Transfer-Encoding"), "{}", response.head());
}

/// S10
#[test]
fn a_port_is_a_number_from_1_to_65535() {
    let curtsy = Curtsy::start();
    for port in [
        "",
        ":",
        ":0",
        ":65536",
        ":4294967739",
        ":+443",
        ":0x1bb",
        ":443x",
        ":-1",
        ":44 3",
        ":443:443",
        ":443/",
        ":https",
    ] {
        let response = refused(&curtsy, &format!("127.0.0.1{port}"));
        assert_eq!(response.status(), 400, "{port:?}: {}", response.line());
    }
}

/// S10
#[test]
fn an_authority_without_a_host_is_refused() {
    let curtsy = Curtsy::start();
    for authority in
        [":443", "/", "*", "http://127.0.0.1:443/", "u:p@127.0.0.1:443", "[]:443", "127.0.0.1,127.0.0.2:443"]
    {
        assert_eq!(refused(&curtsy, authority).status(), 400, "{authority}");
    }
}

/// S11
#[test]
fn an_ipv6_address_needs_its_brackets() {
    let (origin, curtsy) = (Origin::on("::1", echo), Curtsy::start());
    let mut client = tunnel(&curtsy, &format!("[::1]:{}", origin.port()));
    client.send("over v6");
    assert_eq!(client.read_exactly(7), Ok(b"over v6".to_vec()));
    assert_eq!(refused(&curtsy, &format!("::1:{}", origin.port())).status(), 400);
}

/// S11
#[test]
fn a_parent_is_given_an_ipv6_address_with_its_brackets() {
    let parent = Origin::answering("HTTP/1.1 200 OK\r\n\r\n");
    let curtsy = Curtsy::with(|config| behind(config, &parent));
    tunnel(&curtsy, "[::1]:443");
    assert_eq!(parent.request().line(), "CONNECT [::1]:443 HTTP/1.1");
}

/// S49, X26
#[test]
fn bytes_sent_ahead_wait_for_the_tunnel_to_be_open() {
    let (sent, received) = mpsc::channel();
    let parent = Origin::scripted(move |visitor| {
        visitor.request_head();
        visitor.patience(ms(150));
        let too_early = visitor.read_some();
        visitor.patience(PATIENCE);
        visitor.send("HTTP/1.1 200 OK\r\n\r\n");
        sent.send((too_early, visitor.read_exactly(5))).unwrap();
    });
    let curtsy = Curtsy::with(|config| behind(config, &parent));
    let mut client = curtsy.client();
    client.send("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\nearly");
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), (Err(End::Silence), Ok(b"early".to_vec())));
}

/// S49
#[test]
fn bytes_sent_ahead_are_delivered() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::start());
    let mut client = curtsy.client();
    client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\nearly", origin.authority()));
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(client.read_exactly(5), Ok(b"early".to_vec()));
}

/// S50, X26
#[test]
fn a_refused_connect_closes_and_what_follows_is_not_read_as_a_request() {
    let (origin, curtsy, hole) = (Origin::hello(), Curtsy::start(), Hole::refusing());
    for authority in ["127.0.0.1:0", "10.0.0.1:443", &hole.authority()] {
        let mut client = curtsy.client();
        client.send(format!(
            "CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\nGET {} HTTP/1.1\r\nHost: x\r\n\r\n",
            origin.url("/smuggled")
        ));
        let response = client.response();
        assert!(response.status() >= 400, "{authority}: {}", response.line());
        assert_eq!(response.value("Connection"), "close", "{authority}");
        client.expect_end();
    }
    origin.expect_untouched();
}

/// S51
#[test]
fn a_tunnel_to_a_closed_port_is_refused_and_not_opened_first() {
    let (curtsy, hole) = (Curtsy::start(), Hole::refusing());
    let response = refused(&curtsy, &hole.authority());
    assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
    assert!(response.value("Proxy-Status").contains("error=connection_refused"));
    assert_eq!(refused(&curtsy, "no-such-name.invalid:443").status(), 502);
}

/// S51
#[test]
fn a_tunnel_that_cannot_be_opened_in_time_is_refused() {
    let (curtsy, hole) = (Curtsy::with(|config| config.upstream.connect_timeout = ms(150)), Hole::silent());
    let response = refused(&curtsy, &hole.authority());
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
    assert!(response.value("Proxy-Status").contains("error=connection_timeout"));
}

/// S52
#[test]
fn a_client_that_is_done_sending_can_still_listen() {
    let origin = Origin::scripted(|visitor| {
        let (question, end) = visitor.read_to_end();
        visitor.send(format!("{end:?} after {}", String::from_utf8_lossy(&question)));
    });
    let curtsy = Curtsy::start();
    let mut client = tunnel(&curtsy, &origin.authority());
    client.send("question");
    client.half_close();
    assert_eq!(client.rest(), b"Fin after question");
}

/// S52
#[test]
fn an_origin_that_is_done_sending_can_still_listen() {
    let (sent, received) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.send("greeting");
        visitor.half_close();
        sent.send(visitor.read_to_end()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = tunnel(&curtsy, &origin.authority());
    assert_eq!(client.rest(), b"greeting");
    client.send("after your end");
    client.half_close();
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), (b"after your end".to_vec(), End::Fin));
}

/// S52
#[test]
fn a_silent_tunnel_is_closed() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| ended.send(visitor.linger()).unwrap());
    let curtsy = Curtsy::with(|config| config.upstream.idle_timeout = ms(200));
    tunnel(&curtsy, &origin.authority()).expect_end();
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
}

/// S52
#[test]
fn a_tunnel_with_traffic_one_way_only_is_not_silent() {
    let origin = Origin::scripted(|visitor| {
        for _ in 0..30 {
            visitor.send("tick");
            pause(ms(100));
        }
    });
    let curtsy = Curtsy::with(|config| config.upstream.idle_timeout = ms(2_000));
    assert_eq!(tunnel(&curtsy, &origin.authority()).rest().len(), 30 * 4);
}

/// S52
#[test]
fn a_tunnel_ends_for_the_origin_when_the_client_is_gone() {
    for leave in [|client: Client| drop(client), Client::reset] {
        let (ended, end) = mpsc::channel();
        let origin = Origin::scripted(move |visitor| ended.send(visitor.linger()).unwrap());
        let curtsy = Curtsy::start();
        leave(tunnel(&curtsy, &origin.authority()));
        assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    }
}

/// S53
#[test]
fn a_connect_with_a_body_is_refused() {
    let (origin, curtsy) = (Origin::scripted(echo), Curtsy::start());
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked"]
    {
        let mut client = curtsy.client();
        client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\nhello", origin.authority()));
        assert_eq!(client.response_head().status(), 400, "{field}");
        client.rest();
    }
    origin.expect_untouched();
}

/// X13
#[test]
fn tunnels_lead_to_the_ports_that_were_allowed() {
    let (origin, other) = (Origin::scripted(echo), Origin::scripted(echo));
    let curtsy = Curtsy::with(|config| config.access.connect_ports = Some(vec![origin.port()]));
    tunnel(&curtsy, &origin.authority());
    let response = refused(&curtsy, &other.authority());
    assert_eq!((response.status(), response.refusal().as_str()), (403, "destination-denied"));
    other.expect_untouched();
}

/// X13
#[test]
fn mail_and_shells_are_no_place_for_a_tunnel() {
    let curtsy = Curtsy::with(|config| config.access.connect_ports = Config::default().access.connect_ports);
    for port in [22, 23, 25, 53, 110, 143, 465, 587, 993, 995, 3306, 5432, 6379, 11211] {
        let response = refused(&curtsy, &format!("127.0.0.1:{port}"));
        assert_eq!((response.status(), response.refusal().as_str()), (403, "destination-denied"), "{port}");
    }
}

/// X25
#[test]
fn every_tunnel_gives_its_place_back() {
    let (origin, hole) = (Origin::scripted(echo), Hole::refusing());
    let curtsy = Curtsy::with(|config| config.access.max_client_connections = 4);
    for _ in 0..12 {
        drop(tunnel_when_there_is_room(&curtsy, &origin.authority()));
        tunnel_when_there_is_room(&curtsy, &origin.authority()).reset();
        let mut client = tunnel_when_there_is_room(&curtsy, &origin.authority());
        client.half_close();
        client.expect_end();
        curtsy.client().send_head(&[&format!("CONNECT {} HTTP/1.1", hole.authority())]);
    }
}

/// X25
#[test]
fn tunnels_count_as_connections() {
    let origin = Origin::scripted(echo);
    let curtsy = Curtsy::with(|config| config.access.max_client_connections = 2);
    let _held = [tunnel(&curtsy, &origin.authority()), tunnel(&curtsy, &origin.authority())];
    let mut third = curtsy.client();
    third.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", origin.authority()));
    third.patience(ms(300));
    assert!(third.read_head().map_or(true, |response| response.status() == 503));
    assert!(crate::support::soon(|| origin.connections() == 2), "{}", origin.connections());
}

/// Opens a tunnel, and tries again while all places are taken: curtsy notices a closed connection a moment later.
fn tunnel_when_there_is_room(curtsy: &Curtsy, authority: &str) -> Client {
    let mut opened = None;
    crate::support::soon(|| {
        let mut client = curtsy.client();
        client.send(format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n\r\n"));
        opened = client.read_head().ok().filter(|response| response.status() == 200).map(|_| client);
        opened.is_some()
    });
    opened.expect("a place is given back")
}

fn behind(config: &mut Config, parent: &Origin) {
    config.upstream.proxy = Some(ParentProxy { host: "127.0.0.1".to_owned(), port: parent.port(), credentials: None });
}
