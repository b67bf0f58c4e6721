//! Clients that speak TLS to the proxy itself, with HTTP/1.1 inside, as curl does for `https_proxy=https://…`.

use std::fs;
use std::process::{Command, Output};

use rustls::HandshakeKind;

use crate::support::http2_origin::{PING, SETTINGS, frame};
use crate::support::proxy_tls::Own;
use crate::support::{Authority, Client, Curtsy, End, HELLO, Origin, Program, Visitor, ms, soon};

const HTTP1: &[&str] = &["http/1.1"];

fn hello(visitor: &mut Visitor) {
    while visitor.request().is_some() {
        visitor.send(HELLO);
    }
}

fn curl(own: &Own, curtsy: &Curtsy, arguments: &[&str]) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "10", "--proxy"]);
    curl.arg(format!("https://localhost:{}", curtsy.tls_address().port())).arg("--proxy-cacert").arg(own.roots());
    curl.args(arguments).output().expect("curl is installed")
}

fn told(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_goes_through_by_https() {
    let (own, authority, plain) = (Own::new(), Authority::new(), Origin::hello());
    let secure = authority.origin(hello);
    let curtsy = own.curtsy(|_| ());
    assert_eq!(told(&curl(&own, &curtsy, &[&plain.url("/")])), "hello");
    // TLS in a tunnel in TLS.
    let roots = authority.file();
    let url = format!("https://localhost:{}/", secure.port());
    assert_eq!(told(&curl(&own, &curtsy, &["--cacert", roots.to_str().unwrap(), &url])), "hello");
    assert!(soon(|| curtsy.metric("curtsy_requests_total{kind=\"tunnel\",outcome=\"forwarded\"}") == 1));
}

/// A client that does not trust the proxy's certificate does not use the proxy.
#[test]
fn the_proxy_shows_its_own_certificate() {
    let (own, stranger, origin) = (Own::new(), Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let output = curl(&stranger, &curtsy, &[&origin.url("/")]);
    assert!(!output.status.success());
    origin.expect_untouched();
}

#[test]
fn everything_is_as_on_a_plain_listener() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let mut client = own.client(&curtsy, HTTP1);
    for _ in 0..3 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
    assert_eq!(client.ask(&["GET / HTTP/1.1", "Host: x"]).status(), 200);
    let loops = client.ask(&[&format!("GET https://{}/ HTTP/1.1", curtsy.tls_address()), "Host: x"]);
    assert_eq!(loops.refusal(), "loop", "{}", loops.head());
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello", "the plain listener is there as well");
}

#[test]
fn a_tunnel_is_half_closed_both_ways() {
    let own = Own::new();
    let origin = Origin::scripted(|visitor| {
        let (asked, end) = visitor.read_to_end();
        assert_eq!((&asked[..], end), (&b"question"[..], End::Fin));
        visitor.send("answer");
    });
    let curtsy = own.curtsy(|_| ());
    let mut client = own.client(&curtsy, HTTP1);
    let authority = origin.authority();
    assert_eq!(client.ask(&[&format!("CONNECT {authority} HTTP/1.1"), &format!("Host: {authority}")]).status(), 200);
    client.send("question");
    client.half_close();
    assert_eq!(client.rest(), b"answer");
}

/// The next handshake uses the new certificate; an unusable certificate changes nothing.
#[test]
fn the_certificate_is_replaced_while_it_runs() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let mut early = own.client(&curtsy, HTTP1);
    let before = early.peer_certificate();
    own.renew();
    curtsy.reload(|config| own.set(config));
    let renewed = own.client(&curtsy, HTTP1).peer_certificate();
    assert_ne!(renewed, before);
    fs::write(own.key(), "no key").unwrap();
    let error = curtsy.try_reload(|config| own.set(config)).unwrap_err();
    assert!(error.contains("has no key in it"), "{error}");
    assert_eq!(own.client(&curtsy, HTTP1).peer_certificate(), renewed);
    assert_eq!(early.ask(&[&origin.get("/"), "Host: x"]).text(), "hello", "open connections stay open");
}

/// curtsy notices a renewed file by itself, because the programs that renew certificates do not know curtsy.
#[test]
fn a_renewed_file_is_noticed() {
    let own = Own::new();
    let tables = format!(
        "[tls]\nlisten = '127.0.0.1:0'\nlisten_cert = {:?}\nlisten_key = {:?}\n",
        own.cert().display().to_string(),
        own.key().display().to_string()
    );
    let program = Program::start("", &tables);
    let ready = program.event("ready").expect("it is ready");
    let address = ready["tls"].as_str().and_then(|url| url.strip_prefix("https://")).expect("an address").to_owned();
    let shown = || {
        let mut client = Client::connect(address.parse().expect("an address"));
        client.seek_tls(&own.believing(HTTP1), "localhost").expect("curtsy is believed");
        client.peer_certificate()
    };
    let before = shown();
    fs::write(own.cert(), "half a certif").unwrap();
    assert!(soon(|| program.stderr().iter().any(|line| line.contains("tls.listen_cert has no certificate"))));
    assert_eq!(shown(), before);
    own.renew();
    assert!(soon(|| shown() != before));
}

#[test]
fn without_a_sound_certificate_it_does_not_start() {
    let own = Own::new();
    fs::write(own.key(), Authority::new().certificate().1).unwrap();
    let error = Curtsy::start_error(|config| own.set(config));
    assert!(error.contains("is not the key of tls.listen_cert"), "{error}");
    fs::remove_file(own.cert()).unwrap();
    let error = Curtsy::start_error(|config| own.set(config));
    assert!(error.contains("cannot read") && error.contains("cert.pem"), "{error}");
}

#[test]
fn sessions_are_resumed() {
    let own = Own::new();
    let (curtsy, origin, config) = (own.curtsy(|_| ()), Origin::hello(), own.believing(HTTP1));
    let mut kinds = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(curtsy.tls_address());
        client.seek_tls(&config, "localhost").unwrap();
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
        kinds.push(client.handshake_kind());
    }
    assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed]);
}

/// Plain HTTP on the TLS port gets a 400; anything else is disconnected.
#[test]
fn a_client_that_does_not_speak_tls_is_told_or_disconnected() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|config| config.limits.head_timeout = ms(2_000));
    let mut plain = Client::connect(curtsy.tls_address());
    let response = plain.ask(&[&origin.get("/"), "Host: x"]);
    assert_eq!((response.status(), response.reason().as_str()), (400, "This port speaks TLS (curtsy)"));
    for garbage in [&b"\x16\x03\x01\xff\xff garbage"[..], b"\x16", b"", &[0x16; 5000]] {
        let mut client = Client::connect(curtsy.tls_address());
        client.send(garbage);
        let (_, end) = client.read_to_end();
        assert_ne!(end, End::Silence, "{garbage:?}");
    }
    assert!(curtsy.tls_address() != curtsy.address());
    // The plain listener does not speak HTTP/2.
    let mut bold = curtsy.client();
    bold.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_ne!(bold.read_to_end().1, End::Silence);
    origin.expect_untouched();
}

/// X33
#[test]
fn a_thousand_that_stall_in_the_handshake_harm_no_other_client() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|config| config.limits.head_timeout = ms(3000));
    let mut stalled: Vec<_> = (0..1000)
        .map(|_| {
            let mut client = Client::connect(curtsy.tls_address());
            client.send(b"\x16\x03\x01\x02\x00\x01");
            client
        })
        .collect();
    for _ in 0..5 {
        assert_eq!(own.client(&curtsy, HTTP1).ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
    for client in &mut stalled {
        assert_ne!(client.read_to_end().1, End::Silence);
    }
    assert!(soon(|| curtsy.metric("curtsy_client_connections") == 0));
}

/// X35
#[test]
fn connections_under_tls_count_as_any_other() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|config| config.access.max_client_connections = 1);
    let mut first = own.client(&curtsy, HTTP1);
    assert_eq!(first.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    let mut second = Client::connect(curtsy.tls_address());
    assert!(second.seek_tls(&own.believing(HTTP1), "localhost").is_err());
}

/// X53: frames that a peer sends write no lines into the log at its default level.
#[test]
fn frames_of_a_peer_are_no_log_lines() {
    let own = Own::new();
    let tables = format!(
        "[tls]\nlisten = '127.0.0.1:0'\nlisten_cert = {:?}\nlisten_key = {:?}\n",
        own.cert().display().to_string(),
        own.key().display().to_string()
    );
    let program = Program::start("", &tables);
    let ready = program.event("ready").expect("it is ready");
    let address = ready["tls"].as_str().and_then(|url| url.strip_prefix("https://")).expect("an address").to_owned();
    let before = program.stderr().len();
    for _ in 0..3 {
        let mut client = Client::connect(address.parse().expect("an address"));
        client.seek_tls(&own.believing(&["h2"]), "localhost").expect("curtsy is believed");
        client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        client.send(frame(SETTINGS, 0, 0, b""));
        let acks: Vec<u8> = (0..200).flat_map(|_| frame(PING, 1, 0, b"12345678")).collect();
        client.send(acks);
        // A ping after all of these, so its answer comes after they were read.
        client.send(frame(PING, 0, 0, b"answer!!"));
        let mut came = Vec::new();
        while !came.windows(8).any(|bytes| bytes == b"answer!!") {
            match client.read_some() {
                Ok(bytes) => came.extend(bytes),
                Err(end) => panic!("{end:?} after {} bytes", came.len()),
            }
        }
    }
    let lines = program.stderr();
    assert!(lines.len() <= before + 3, "{} lines, such as {}", lines.len() - before, lines[before]);
}
