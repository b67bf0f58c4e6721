//! The first bytes of a client decide how a tunnel is handled: plain HTTP requests are handled as requests on any port;
//! what curtsy cannot read is tunnelled unchanged.

use curtsy::config::{Mode, OnUnreachable, RobotsMode};

use crate::support::tls_client::{believing, intercepting, tunnel};
use crate::support::{Authority, Curtsy, Origin, Stopwatch, Visitor, ms, soon};
use crate::tunnels::{DELAY, host, pacing};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Promise 1: plain HTTP in a tunnel to any port is paced, request by request.
#[test]
fn plain_requests_in_a_tunnel_keep_their_distance() {
    let (origin, curtsy, watch) = (Origin::hello(), pacing(|_| ()), Stopwatch::start());
    let mut client = tunnel(&curtsy, &origin.authority());
    for number in 0..3 {
        let response = client.ask(&[&format!("GET /{number} HTTP/1.1"), &format!("Host: {}", origin.authority())]);
        assert_eq!((response.status(), response.text().as_str()), (200, "hello"));
    }
    let times: Vec<_> = origin.requests(3).iter().map(|request| watch.at(request.at)).collect();
    curtsy.expect_gaps(&times, DELAY);
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"http\",outcome=\"forwarded\"}"), 3);
}

/// Promise 4: plain HTTP in a tunnel is judged by robots.txt, however its bytes are split.
#[test]
fn plain_requests_in_a_tunnel_are_judged_by_robots_txt() {
    let rules = "User-agent: *\nDisallow: /private/\n";
    let robots = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len());
    let origin = Origin::with_robots(robots);
    let curtsy = Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.robots.on_unreachable = OnUnreachable::Allow;
        // curtsy first asks for the robots.txt under https://, and the origin does not speak TLS.
        config.upstream.connect_timeout = ms(2_000);
    });
    for pieces in [&["GET /private/page HTTP/1.1\r\nHost: "][..], &["G", "ET ", "/private/page HTTP/1.1\r\nHost: "]] {
        let mut client = tunnel(&curtsy, &origin.authority());
        pieces.iter().for_each(|piece| assert!(client.send(piece)));
        client.send(format!("{}\r\n\r\n", origin.authority()));
        assert_eq!(client.response().refusal(), "robots-denied");
    }
    assert!(!String::from_utf8_lossy(&origin.bytes()).contains("private"), "it reached the origin");
}

fn echo(visitor: &mut Visitor) {
    while let Ok(bytes) = visitor.read_some() {
        visitor.send(bytes);
    }
}

/// HTTP/2 without TLS is tunnelled, takes one turn, and is counted.
#[test]
fn http2_in_the_clear_is_tunnelled_as_http2() {
    let authority = Authority::new();
    let origin = Origin::scripted(echo);
    let intercepts = intercepting(&authority, |config| config.politeness.mode = Mode::Enforce);
    for curtsy in [intercepts, pacing(|_| ())] {
        let mut client = tunnel(&curtsy, &origin.authority());
        client.send(PREFACE);
        assert_eq!(client.read_exactly(PREFACE.len()).expect("an echo"), PREFACE);
        assert_eq!(curtsy.metric("curtsy_tunnel_pacing_total{mode=\"http2\"}"), 1);
        assert_eq!(host(&curtsy)["in_flight"], 1, "it has a place");
    }
}

/// Bytes of other protocols are not requests.
#[test]
fn other_words_pass_as_they_are() {
    let authority = Authority::new();
    let (origin, curtsy) = (Origin::scripted(echo), intercepting(&authority, |_| ()));
    for words in [&b"SSH-2.0-OpenSSH_9.2 Debian\r\n"[..], b"ping", b"\0\x01\x02"] {
        let mut client = tunnel(&curtsy, &origin.authority());
        client.send(words);
        assert_eq!(client.read_exactly(words.len()).expect("an echo"), words);
    }
}

/// The client gets the greeting of an origin that speaks first, although curtsy intercepts.
#[test]
fn an_origin_may_speak_first() {
    let authority = Authority::new();
    let origin = Origin::scripted(|visitor| {
        visitor.send("220 mail.test\r\n");
        echo(visitor);
    });
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
    });
    for _ in 0..2 {
        let mut client = tunnel(&curtsy, &origin.authority());
        assert_eq!(client.read_exactly(15).expect("a greeting"), b"220 mail.test\r\n");
        client.send("GET me / if you can\r\n");
        assert_eq!(client.read_exactly(21).expect("an echo"), b"GET me / if you can\r\n");
    }
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// A client that is silent at first is intercepted, too.
#[test]
fn a_client_that_is_silent_at_first_is_intercepted_when_it_speaks() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while visitor.request().is_some() {
            visitor.send(crate::support::HELLO);
        }
    });
    let curtsy = intercepting(&authority, |_| ());
    let mut client = tunnel(&curtsy, &format!("localhost:{}", origin.port()));
    assert!(soon(|| origin.connections() == 1), "curtsy looks whether the origin speaks first");
    client.seek_tls(&believing(&curtsy, &["http/1.1"]), "localhost").expect("curtsy is believed");
    assert_eq!(client.ask(&["GET / HTTP/1.1", &format!("Host: localhost:{}", origin.port())]).text(), "hello");
}
