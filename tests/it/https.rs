//! `GET https://…` in absolute form: curtsy does TLS for the client, and everything else is as for `http://`.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use curtsy::config::{Mode, ParentProxy};
use rcgen::{BasicConstraints, IsCa, date_time_ymd};
use rustls::{HandshakeKind, ServerConfig};

use crate::support::client::head;
use crate::support::tls_origin::{HERE, asking_for_certificates, https, old, origin, self_signed};
use crate::support::{Authority, Curtsy, End, HELLO, Message, Origin, PATIENCE, Stopwatch, Visitor, ms, pause, soon};

fn trusting(authority: &Authority) -> Curtsy {
    let roots = vec![authority.file()];
    Curtsy::with(|config| config.tls.extra_roots = roots)
}

/// Answers every request on a connection that stays open.
fn hello(visitor: &mut Visitor) {
    while visitor.request().is_some() {
        visitor.send(HELLO);
    }
}

/// Returns the answer to one GET for a server that must not be trusted, and asserts that no request reached it.
fn refused(server: Arc<ServerConfig>, authority: &Authority) -> Message {
    let (origin, curtsy) = (origin(server, hello), trusting(authority));
    let response = curtsy.get(&https(&origin, "/"));
    assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{}", response.text());
    assert_eq!(curtsy.metric("curtsy_origin_errors_total{kind=\"tls\"}"), 1);
    origin.expect_untouched();
    response
}

fn expect_bad_certificate(server: Arc<ServerConfig>, authority: &Authority, words: &str) {
    let response = refused(server, authority);
    let status = response.value("Proxy-Status");
    assert!(status.contains("error=tls_certificate_error"), "{status}");
    assert!(response.text().contains(words), "{}", response.text());
}

/// Requests are paced and judged in full without a local CA.
#[test]
fn a_url_with_https_is_fetched_over_tls() {
    let authority = Authority::new();
    let (asked, asked_for) = mpsc::channel();
    let origin = authority.origin(move |visitor| {
        asked.send(visitor.server_name()).unwrap();
        hello(visitor);
    });
    let curtsy = trusting(&authority);
    let response = curtsy.get(&format!("https://localhost:{}/a?b", origin.port()));
    assert_eq!((response.status(), response.text().as_str()), (200, "hello"), "{}", response.text());
    assert!(response.has("Via"));
    let request = origin.request();
    assert_eq!(request.line(), "GET /a?b HTTP/1.1");
    assert_eq!(request.value("Host"), format!("localhost:{}", origin.port()));
    assert!(request.has("Via"), "{}", request.head());
    assert_eq!(asked_for.recv_timeout(PATIENCE).unwrap().as_deref(), Some("localhost"));
}

#[test]
fn an_address_is_verified_as_an_address() {
    let authority = Authority::new();
    let named = origin(authority.server_with(&["localhost"], |_| ()), hello);
    let curtsy = trusting(&authority);
    assert_eq!(curtsy.get(&https(&authority.origin(hello), "/")).text(), "hello");
    assert_eq!(curtsy.get(&https(&named, "/")).status(), 502);
}

#[test]
fn tls_1_2_is_spoken_unless_forbidden() {
    let authority = Authority::new();
    let origin = origin(old(&authority.server()), hello);
    assert_eq!(trusting(&authority).get(&https(&origin, "/")).text(), "hello");
    let strict = Curtsy::with(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.tls.min_version = "1.3".to_owned();
    });
    let response = strict.get(&https(&origin, "/"));
    assert!(response.value("Proxy-Status").contains("error=tls_alert_received"), "{}", response.head());
    assert!(response.text().contains("another version of TLS"), "{}", response.text());
}

/// X49: a certificate that is expired, for another host, self-signed or of an unknown issuer is refused. Revocation is
/// not checked, as SECURITY.md says: rustls uses neither OCSP nor a revocation list unless it is given one.
#[test]
fn a_certificate_that_proves_nothing_is_refused_in_plain_words() {
    let (authority, stranger, imposter) = (Authority::new(), Authority::named("a stranger"), Authority::new());
    let expired = authority.server_with(&HERE, |params| params.not_after = date_time_ymd(2020, 2, 29));
    expect_bad_certificate(expired, &authority, "expired on 2020-02-29");
    let early = authority.server_with(&HERE, |params| params.not_before = date_time_ymd(2999, 1, 1));
    expect_bad_certificate(early, &authority, "is not valid yet");
    let other = authority.server_with(&["other.test"], |_| ());
    expect_bad_certificate(other, &authority, "is for another name");
    expect_bad_certificate(stranger.server(), &authority, "tls] extra_roots = [");
    expect_bad_certificate(imposter.server(), &authority, "was not signed by the issuer that it names");
    expect_bad_certificate(self_signed(|_| ()).0, &authority, "issued by an authority that curtsy does not trust");
    let (issuers, _) = self_signed(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    expect_bad_certificate(issuers, &authority, "is an issuer's, not a server's");
}

/// X49: the certificate names a revocation list, which curtsy does not fetch. SECURITY.md says so.
#[test]
fn a_revoked_certificate_is_documented_as_not_noticed() {
    let (authority, asked) = (Authority::new(), Origin::hello());
    let points_to_revocations = |params: &mut rcgen::CertificateParams| {
        let uris = vec![asked.url("/revoked.crl")];
        params.crl_distribution_points = vec![rcgen::CrlDistributionPoint { uris }];
    };
    let origin = origin(authority.server_with(&HERE, points_to_revocations), hello);
    assert_eq!(trusting(&authority).get(&https(&origin, "/")).text(), "hello");
    assert_eq!(asked.connections(), 0);
    let security = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/SECURITY.md")).unwrap();
    assert!(security.contains("A revoked certificate"), "SECURITY.md says nothing about revocation");
}

/// In TLS 1.3 this alert arrives when the handshake is already complete for the client.
#[test]
fn a_server_that_wants_a_certificate_of_ours_is_told_as_such() {
    let authority = Authority::new();
    let server = asking_for_certificates(&authority.server(), &authority);
    let origin = Origin::scripted(move |visitor| {
        assert!(!visitor.start_tls(&server));
        visitor.linger();
    });
    let response = trusting(&authority).get(&https(&origin, "/"));
    assert!(response.value("Proxy-Status").contains("error=tls_alert_received"), "{}", response.head());
    assert!(response.text().contains("it wants a certificate of the client"), "{}", response.text());
}

#[test]
fn a_server_that_vouches_for_itself_can_be_trusted() {
    let (server, certificate) = self_signed(|_| ());
    let origin = origin(server, hello);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), certificate).unwrap();
    let curtsy = Curtsy::with(|config| config.tls.extra_roots = vec![file.path().to_owned()]);
    assert_eq!(curtsy.get(&https(&origin, "/")).text(), "hello");
}

#[test]
fn what_is_not_tls_is_told_as_such() {
    let gone = Origin::scripted(|_| ());
    let plain = Origin::scripted(|visitor| {
        visitor.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    for (origin, words) in [(&plain, "does not speak TLS"), (&gone, "closed during the TLS handshake")] {
        let response = curtsy.get(&https(origin, "/"));
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
        assert!(response.value("Proxy-Status").contains("error=tls_protocol_error"), "{}", response.head());
        assert!(response.text().contains(words), "{}", response.text());
    }
}

/// `upstream.connect_timeout` includes the TLS handshake.
#[test]
fn a_handshake_that_hangs_is_given_up() {
    let origin = Origin::scripted(|visitor| {
        visitor.linger();
    });
    let curtsy = Curtsy::with(|config| config.upstream.connect_timeout = ms(200));
    let response = curtsy.get(&https(&origin, "/"));
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
}

/// Promise 1: the gap counts from the send, and the handshake is done before the turn is claimed.
#[test]
fn slow_handshakes_compress_no_gap() {
    let (authority, watch, delay) = (Authority::new(), Stopwatch::start(), ms(400));
    let arrivals = Arc::new(Mutex::new(Vec::<Duration>::new()));
    let (server, book) = (authority.server(), arrivals.clone());
    let origin = Origin::scripted(move |visitor| {
        // Only the first is slow. If it claimed its turn before the handshake, the second would arrive right after it.
        if visitor.number == 0 {
            pause(ms(300));
        }
        if visitor.start_tls(&server) && visitor.request().is_some() {
            book.lock().unwrap().push(watch.at(visitor.arrived()));
            visitor.send(HELLO);
        }
    });
    let curtsy = Curtsy::with(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
    });
    let visits: Vec<_> = (0..3)
        .map(|_| {
            let (mut client, line) = (curtsy.client(), format!("GET {} HTTP/1.1", https(&origin, "/")));
            thread::spawn(move || client.ask(&[&line, "Host: x"]))
        })
        .collect();
    for visit in visits {
        assert_eq!(visit.join().unwrap().text(), "hello");
    }
    let times = arrivals.lock().unwrap();
    assert_eq!(times.len(), 3);
    curtsy.expect_gaps(&times, delay);
}

/// X67: `http` and `https` of one host share one budget.
#[test]
fn http_and_https_of_one_host_share_its_pace() {
    let (authority, plain, delay) = (Authority::new(), Origin::hello(), ms(300));
    let secure = authority.origin(hello);
    let curtsy = Curtsy::with(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
    });
    let watch = Stopwatch::start();
    assert_eq!(curtsy.get(&plain.url("/")).text(), "hello");
    assert_eq!(curtsy.get(&https(&secure, "/")).text(), "hello");
    assert!(watch.elapsed() >= delay, "{:?}", watch.elapsed());
}

/// A TLS record without application data does not make curtsy discard a kept connection.
#[test]
fn a_connection_is_kept_although_tls_speaks_on_it() {
    let authority = Authority::new();
    let ((answered, is_answered), (spoke, has_spoken)) = (mpsc::channel::<()>(), mpsc::channel());
    let is_answered = Mutex::new(is_answered);
    let origin = authority.origin(move |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO);
            // Only after curtsy has read the answer, or it would read this record together with the answer.
            is_answered.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            visitor.send_new_keys();
            spoke.send(()).unwrap();
        }
    });
    let curtsy = trusting(&authority);
    let mut client = curtsy.client();
    for _ in 0..4 {
        assert_eq!(client.ask(&[&format!("GET {} HTTP/1.1", https(&origin, "/")), "Host: x"]).text(), "hello");
        answered.send(()).unwrap();
        has_spoken.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!((origin.count(), origin.connections()), (4, 1));
}

/// `http` and `https` on one port are two origins with separate connections.
#[test]
fn a_plain_connection_is_not_taken_for_a_secure_one() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.upstream.connect_timeout = ms(2_000)));
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    assert_ne!(client.ask(&[&format!("GET {} HTTP/1.1", https(&origin, "/")), "Host: x"]).status(), 200);
    assert_eq!(origin.count(), 1);
}

#[test]
fn the_next_connection_resumes_the_session() {
    let authority = Authority::new();
    let (kind, kinds) = mpsc::channel();
    let origin = authority.origin(move |visitor| {
        kind.send(visitor.handshake_kind()).unwrap();
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    });
    let curtsy = trusting(&authority);
    let handshake = || {
        assert_eq!(curtsy.get(&https(&origin, "/")).text(), "hello");
        kinds.recv_timeout(PATIENCE).unwrap()
    };
    assert_eq!([handshake(), handshake()], [HandshakeKind::Full, HandshakeKind::Resumed]);
}

#[test]
fn a_connection_the_origin_closed_meanwhile_costs_nothing() {
    for says_so in [true, false] {
        let authority = Authority::new();
        let (closed, closes) = mpsc::channel();
        let origin = authority.origin(move |visitor| {
            visitor.request();
            visitor.send(HELLO);
            if says_so {
                visitor.close_notify();
            } else {
                visitor.half_close();
            }
            closed.send(()).unwrap();
            visitor.linger();
        });
        let curtsy = trusting(&authority);
        let mut client = curtsy.client();
        for _ in 0..3 {
            assert_eq!(client.ask(&[&format!("GET {} HTTP/1.1", https(&origin, "/")), "Host: x"]).text(), "hello");
            closes.recv_timeout(PATIENCE).unwrap();
        }
        assert_eq!((origin.count(), origin.connections()), (3, 3), "said so: {says_so}");
        let sent = String::from_utf8(origin.bytes()).unwrap().matches("GET ").count();
        assert_eq!(sent, 3, "nothing is sent on a connection that is known to be closed");
    }
}

/// A safe request is sent again once, as without TLS.
#[test]
fn a_kept_connection_that_died_is_replaced_once() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        visitor.request();
        visitor.send(HELLO);
        if visitor.number == 0 {
            visitor.request();
        } else {
            hello(visitor);
        }
    });
    let curtsy = trusting(&authority);
    let mut client = curtsy.client();
    for path in ["/first", "/second"] {
        assert_eq!(client.ask(&[&format!("GET {} HTTP/1.1", https(&origin, path)), "Host: x"]).text(), "hello");
    }
    let seconds = origin.requests(3);
    assert_eq!([seconds[1].connection, seconds[2].connection], [0, 1]);
}

/// curtsy closes an idle connection with a TLS close_notify.
#[test]
fn a_connection_without_work_ends_with_a_word() {
    let authority = Authority::new();
    let (ended, end) = mpsc::channel();
    let origin = authority.origin(move |visitor| {
        visitor.request();
        visitor.send(HELLO);
        ended.send(visitor.linger()).unwrap();
    });
    let roots = vec![authority.file()];
    let curtsy = Curtsy::with(|config| {
        config.tls.extra_roots = roots;
        config.upstream.keep_alive = ms(100);
    });
    assert_eq!(curtsy.get(&https(&origin, "/")).text(), "hello");
    assert_eq!(end.recv_timeout(PATIENCE).unwrap(), End::Fin);
}

#[test]
fn large_bodies_pass_both_ways() {
    const SIZE: usize = 5_000_000;
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        let Some(request) = visitor.request() else { return };
        visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
        visitor.send(&request.body);
    });
    let curtsy = trusting(&authority);
    let body: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", https(&origin, "/"));
    client.send(head(&[&line, "Host: x", &format!("Content-Length: {SIZE}")]));
    client.send(&body);
    let response = client.response();
    assert_eq!(response.status(), 200);
    assert!(response.body == body, "{} bytes came back", response.body.len());
}

/// An end without close_notify may be an attacker's, so it does not complete a body (RFC 9112, section 9.8).
#[test]
fn a_body_cut_short_is_seen_to_be() {
    for (length, says_so, whole) in [
        ("Content-Length: 10", true, false),
        ("Content-Length: 10", false, false),
        ("X: y", true, true),
        ("X: y", false, false),
    ] {
        let authority = Authority::new();
        let origin = authority.origin(move |visitor| {
            visitor.request();
            visitor.send(format!("HTTP/1.1 200 OK\r\n{length}\r\n\r\nhello"));
            if says_so {
                visitor.close_notify();
            }
        });
        let response = trusting(&authority).get(&https(&origin, "/"));
        assert_eq!((response.status(), response.whole), (200, whole), "{length}, said so: {says_so}");
    }
}

#[test]
fn a_websocket_goes_through_tls() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        let said = visitor.read_exactly(4).unwrap();
        visitor.send(said);
        visitor.close_notify();
    });
    let curtsy = trusting(&authority);
    let mut client = curtsy.client();
    let line = format!("GET {} HTTP/1.1", https(&origin, "/chat"));
    client.send_head(&[&line, "Host: x", "Connection: Upgrade", "Upgrade: websocket"]);
    assert_eq!(client.response_head().status(), 101);
    client.send("ping");
    assert_eq!(client.read_exactly(4), Ok(b"ping".to_vec()));
    client.expect_end();
}

/// curtsy asks a parent proxy for a tunnel and does TLS inside it.
#[test]
fn a_parent_proxy_is_asked_for_a_tunnel() {
    let authority = Authority::new();
    let server = authority.server_with(&["example.org"], |_| ());
    let parent = Origin::scripted(move |visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 200 Connection established\r\n\r\n");
        if visitor.start_tls(&server) {
            hello(visitor);
        }
    });
    let curtsy = Curtsy::with(|config| {
        config.tls.extra_roots = vec![authority.file()];
        let credentials = Some(("u".to_owned(), "p".to_owned()));
        config.upstream.proxy = Some(ParentProxy { host: "127.0.0.1".to_owned(), port: parent.port(), credentials });
    });
    let mut client = curtsy.client();
    for _ in 0..2 {
        assert_eq!(client.ask(&["GET https://Example.ORG:443/a HTTP/1.1", "Host: x"]).text(), "hello");
    }
    let requests = parent.requests(3);
    assert_eq!(requests[0].line(), "CONNECT example.org:443 HTTP/1.1");
    assert_eq!(requests[0].value("Proxy-Authorization"), "Basic dTpw");
    assert_eq!((requests[1].line().as_str(), requests[1].value("Host").as_str()), ("GET /a HTTP/1.1", "example.org"));
    assert!(!requests[1].has("Proxy-Authorization"), "{}", requests[1].head());
    assert_eq!(parent.connections(), 1);
}

#[test]
fn the_guard_judges_https_too() {
    let origin = Origin::hello();
    let curtsy = Curtsy::with(|config| config.access.allow_destinations.clear());
    assert_eq!(curtsy.get(&https(&origin, "/")).refusal(), "destination-denied");
    origin.expect_untouched();
}

/// Roots are read at start and on reload. Connections that were made under other roots are not reused.
#[test]
fn a_reload_changes_whom_curtsy_believes() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), Curtsy::start());
    let mut client = curtsy.client();
    let mut status = || client.ask(&[&format!("GET {} HTTP/1.1", https(&origin, "/")), "Host: x"]).status();
    assert_eq!(status(), 502);
    curtsy.reload(|config| config.tls.extra_roots = vec![authority.file()]);
    assert_eq!(status(), 200);
    curtsy.reload(|_| ());
    assert_eq!(status(), 502);
    assert!(soon(|| origin.count() == 1));
}

#[test]
fn a_root_that_cannot_be_read_stops_the_start() {
    let error = Curtsy::start_error(|config| config.tls.extra_roots = vec!["/nowhere/our-ca.pem".into()]);
    assert!(error.contains("/nowhere/our-ca.pem") && error.contains("tls.extra_roots"), "{error}");
}
