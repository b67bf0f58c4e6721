//! Intercepted tunnels: requests inside are handled like requests in absolute form.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::thread;

use curtsy::config::{AccessLogTarget, HostPattern, Mode, OnUntrusted, ParentProxy, RobotsMode, StateDir};
use rcgen::date_time_ymd;
use rustls::{HandshakeKind, ServerConfig};

use crate::support::client::head;
use crate::support::tls_client::{believing, believing_pem, inside, intercepting, punctual, tunnel};
use crate::support::tls_origin::{HERE, origin, self_signed};
use crate::support::{Authority, Client, Curtsy, HELLO, Message, Origin, Program, Stopwatch, Visitor, ms, soon};

fn hello(visitor: &mut Visitor) {
    while visitor.request().is_some() {
        visitor.send(HELLO);
    }
}

fn with_robots(rules: &'static str) -> impl Fn(&mut Visitor) + Send + Sync {
    move |visitor| {
        while let Some(request) = visitor.request() {
            if request.line().starts_with("GET /robots.txt ") {
                visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len()));
            } else {
                visitor.send(HELLO);
            }
        }
    }
}

fn get(client: &mut Client, host: &str, path: &str) -> Message {
    client.ask(&[&format!("GET {path} HTTP/1.1"), &format!("Host: {host}")])
}

/// Sends one GET inside a new tunnel.
fn ask(curtsy: &Curtsy, origin: &Origin, path: &str) -> Message {
    get(&mut inside(curtsy, "localhost", origin.port()), &local(origin), path)
}

fn local(origin: &Origin) -> String {
    format!("localhost:{}", origin.port())
}

fn name(text: &str) -> HostPattern {
    HostPattern::Name(text.to_owned())
}

#[test]
fn requests_inside_a_tunnel_are_read_and_forwarded() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = inside(&curtsy, "localhost", origin.port());
    for path in ["/a?b", "/c"] {
        let response = get(&mut client, &local(&origin), path);
        assert_eq!((response.status(), response.text().as_str()), (200, "hello"), "{}", response.text());
        assert!(response.value("Via").contains("front-desk"), "{}", response.head());
    }
    let requests = origin.requests(2);
    assert_eq!(requests[0].line(), "GET /a?b HTTP/1.1");
    assert_eq!(requests[0].value("Host"), local(&origin));
    assert_eq!(requests[0].connection, requests[1].connection, "the connection to the origin is used again");
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"https\",outcome=\"forwarded\"}"), 2);
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"tunnel\",outcome=\"forwarded\"}"), 0);
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 0));
    assert!(soon(|| curtsy.metric("curtsy_client_connections") == 0));
}

/// A tunnel hides paths, so a rule for one path is not enforced there. The prediction is what then happens, on every
/// way that a request can take.
#[test]
fn an_explanation_is_about_the_way_that_the_request_takes() {
    let authority = Authority::new();
    let origin = authority.origin(with_robots("User-agent: *\nDisallow: /private\n"));
    let curtsy = intercepting(&authority, |config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.tls.bypass = vec![name("127.0.0.1")];
    });
    let explain = |host: &str, extra: &str| -> serde_json::Value {
        let line = format!("GET /api/v1/explain?url=https://{host}:{}/private/1{extra} HTTP/1.1", origin.port());
        serde_json::from_str(&curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).text()).expect("JSON")
    };
    let read = explain("localhost", "");
    assert_eq!((&read["via"], &read["allowed"]), (&"intercepted".into(), &false.into()), "{read:#}");
    assert_eq!(ask(&curtsy, &origin, "/private/1").status(), 403);

    let hidden = explain("127.0.0.1", "");
    assert_eq!((&hidden["via"], &hidden["verdict"]), (&"tunnel".into(), &"denied".into()), "{hidden:#}");
    assert_eq!((&hidden["allowed"], &hidden["refusal"]), (&true.into(), &serde_json::Value::Null), "{hidden:#}");
    let warning = hidden["warning"].as_str().expect("a warning");
    for part in ["robots.txt line 2 says Disallow: /private", "cannot see paths in a tunnel", "tls.bypass"] {
        assert!(warning.contains(part), "{warning}");
    }
    let mut client = tunnel(&curtsy, &origin.authority());
    let roots = fs::read_to_string(authority.file()).expect("PEM");
    client.seek_tls(&believing_pem(&roots, &[]), HERE[0]).expect("the origin is believed");
    assert_eq!(get(&mut client, &origin.authority(), "/private/1").status(), 200);

    for (via, allowed) in [("plain", false), ("intercepted", false), ("tunnel", true)] {
        let told = explain("127.0.0.1", &format!("&via={via}"));
        assert_eq!((&told["via"], &told["allowed"]), (&via.into(), &allowed.into()), "{told:#}");
    }
    let absolute = format!("GET https://{}/private/1 HTTP/1.1", origin.authority());
    assert_eq!(curtsy.ask(&[&absolute, "Host: x"]).status(), 403);
}

/// PHP clients send absolute URIs inside a tunnel, too.
#[test]
fn the_whole_uri_may_stand_inside() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = inside(&curtsy, "localhost", origin.port());
    let url = format!("https://{}/x", local(&origin));
    let host = format!("Host: {}", local(&origin));
    let response = client.ask(&[&format!("GET {url} HTTP/1.1"), &host, "Proxy-Authorization: Basic bWU6c2VjcmV0"]);
    assert_eq!(response.status(), 200, "{}", response.text());
    let request = origin.request();
    assert_eq!(request.line(), "GET /x HTTP/1.1");
    assert!(!request.has("Proxy-Authorization"), "{}", request.head());
}

#[test]
fn an_address_gets_a_certificate_for_an_address() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = inside(&curtsy, "127.0.0.1", origin.port());
    assert_eq!(get(&mut client, &origin.authority(), "/").status(), 200);
}

/// X23, S56
#[test]
fn another_host_inside_is_misdirected() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = inside(&curtsy, "localhost", origin.port());
    for host in ["127.0.0.1", "localhost", "localhost:1", "other.test"] {
        let response = get(&mut client, host, "/");
        assert_eq!((response.status(), response.refusal().as_str()), (421, "misdirected"), "{host}");
        assert!(response.text().contains(&local(&origin)), "{}", response.text());
    }
    let response = client.ask(&["GET https://other.test/ HTTP/1.1", &format!("Host: {}", local(&origin))]);
    assert_eq!(response.status(), 421, "{}", response.text());
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"misdirected\"}"), 5);
    origin.expect_untouched();
    let response = client.ask(&["CONNECT other.test:443 HTTP/1.1", "Host: other.test:443"]);
    assert_eq!((response.status(), response.refusal().as_str()), (501, "bad-request"));
}

#[test]
fn robots_txt_counts_inside() {
    let authority = Authority::new();
    let origin = authority.origin(with_robots("User-agent: *\nDisallow: /private\n"));
    let curtsy = intercepting(&authority, |config| config.politeness.robots = RobotsMode::Enforce);
    let response = ask(&curtsy, &origin, "/private/x");
    assert_eq!((response.status(), response.refusal().as_str()), (403, "robots-denied"), "{}", response.text());
    assert!(response.reason().ends_with("(curtsy)"), "{}", response.reason());
    assert!(response.text().contains("/private"), "{}", response.text());
    assert_eq!(ask(&curtsy, &origin, "/public").status(), 200);
    assert_eq!(origin.robots_requests(), 1);
}

/// Promise 1: three connections at once share one budget.
#[test]
fn gaps_hold_whatever_the_connections() {
    let authority = Authority::new();
    let (origin, arrivals) = punctual(&authority);
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(400);
    });
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = inside(&curtsy, "localhost", origin.port());
                for _ in 0..2 {
                    assert_eq!(get(&mut client, &local(&origin), "/").status(), 200);
                }
            });
        }
    });
    let times: Vec<_> = arrivals.iter().take(6).collect();
    curtsy.expect_gaps(&times, ms(400));
}

#[test]
fn a_429_inside_is_learned_from() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        let mut first = visitor.number == 0;
        while visitor.request().is_some() {
            let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
            visitor.send(if std::mem::take(&mut first) { busy } else { HELLO });
        }
    });
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(10);
        config.adaptive.step_up = ms(10);
    });
    let watch = Stopwatch::start();
    assert_eq!(ask(&curtsy, &origin, "/").status(), 200, "it is sent again when the host may be visited");
    assert!(watch.elapsed() >= ms(1000), "{:?}", watch.elapsed());
    assert_eq!(origin.requests(2).len(), 2);
}

/// X48
#[test]
fn a_bad_certificate_is_never_laundered() {
    let (authority, stranger) = (Authority::new(), Authority::named("a stranger"));
    let cases: Vec<(Arc<ServerConfig>, &str)> = vec![
        (authority.server_with(&HERE, |params| params.not_after = date_time_ymd(2020, 1, 2)), "expired"),
        (authority.server_with(&["other.test"], |_| ()), "another name"),
        (self_signed(|_| ()).0, "issuer"),
        (stranger.server(), "issuer"),
    ];
    for robots in [RobotsMode::Off, RobotsMode::Enforce] {
        for (server, words) in &cases {
            let origin = origin(server.clone(), hello);
            let curtsy = intercepting(&authority, |config| config.politeness.robots = robots);
            for _ in 0..2 {
                let response = ask(&curtsy, &origin, "/");
                let told = response.text();
                assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{told}");
                assert!(response.value("Proxy-Status").contains("tls_certificate_error"), "{}", response.head());
                assert!(told.contains(words), "{words}: {told}");
            }
            origin.expect_untouched();
        }
    }
}

/// X24: the certificate is for the host of the CONNECT, whatever name the ClientHello has.
#[test]
fn the_hello_chooses_no_other_certificate() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = tunnel(&curtsy, &local(&origin));
    let error = client.seek_tls(&believing(&curtsy, &[]), "other.test").expect_err("it is not for this name");
    assert!(error.contains("not valid for name"), "{error}");
}

/// X46
#[test]
fn no_certificate_is_made_for_what_may_not_be_visited() {
    let authority = Authority::new();
    let curtsy = intercepting(&authority, |config| {
        config.access.allow_destinations = Vec::new();
        config.access.connect_ports = Some(vec![443]);
    });
    for (target, code) in [
        ("127.0.0.1:443", "destination-denied"),
        ("localhost:443", "destination-denied"),
        ("169.254.169.254:443", "destination-denied"),
        ("[::ffff:10.0.0.1]:443", "destination-denied"),
        ("192.0.2.1:8443", "destination-denied"),
        ("no-such-host.invalid:443", "origin-unreachable"),
    ] {
        let mut client = curtsy.client();
        let response = client.ask(&[&format!("CONNECT {target} HTTP/1.1")]);
        assert_eq!(response.refusal(), code, "{target}");
        client.expect_end();
    }
    let denied = intercepting(&authority, |config| config.access.allow = vec!["192.0.2.0/24".parse().unwrap()]);
    assert_eq!(denied.ask(&["CONNECT 127.0.0.1:443 HTTP/1.1"]).refusal(), "client-denied");
}

/// X42
#[test]
fn what_is_not_intercepted_is_a_tunnel() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let through = |curtsy: &Curtsy| {
        let mut client = tunnel(curtsy, &local(&origin));
        let pem = fs::read_to_string(authority.file()).unwrap();
        let believed = client.seek_tls(&believing_pem(&pem, &[]), "localhost");
        believed.map(|()| get(&mut client, &local(&origin), "/").status())
    };
    let bypassing = intercepting(&authority, |config| config.tls.bypass = vec![name("localhost")]);
    assert_eq!(through(&bypassing), Ok(200));
    let other_only = intercepting(&authority, |config| config.tls.only = vec![name("other.test")]);
    assert_eq!(through(&other_only), Ok(200));
    let this_only = intercepting(&authority, |config| config.tls.only = vec![name("localhost")]);
    assert!(through(&this_only).unwrap_err().contains("UnknownIssuer"));
    assert_eq!(ask(&this_only, &origin, "/").status(), 200);
}

#[test]
fn plain_http_inside_a_tunnel_is_read_too() {
    let (origin, curtsy) = (Origin::with_robots(robots("User-agent: *\nDisallow: /private\n")), {
        intercepting(&Authority::new(), |config| config.politeness.robots = RobotsMode::Enforce)
    });
    let mut client = tunnel(&curtsy, &origin.authority());
    assert_eq!(get(&mut client, &origin.authority(), "/private").refusal(), "robots-denied");
    assert_eq!(get(&mut client, &origin.authority(), "/x").text(), "hello");
    assert_eq!(get(&mut client, "other.test", "/x").status(), 421);
}

/// A curtsy with a parent proxy, because tests cannot have an origin on port 80.
fn behind(parent: &Origin) -> Curtsy {
    let parent = ParentProxy { host: "127.0.0.1".to_owned(), port: parent.port(), credentials: None };
    Curtsy::with(|config| config.upstream.proxy = Some(parent))
}

/// Node's fetch, ureq and `curl -p` send plain HTTP through a tunnel.
#[test]
fn plain_http_in_a_tunnel_to_port_80_is_read_without_interception() {
    let parent = Origin::hello();
    let curtsy = behind(&parent);
    let mut client = tunnel(&curtsy, "far.test:80");
    assert_eq!(get(&mut client, "far.test", "/x").text(), "hello");
    assert_eq!(get(&mut client, "other.test", "/x").status(), 421);
    assert_eq!(parent.request().line(), "GET http://far.test/x HTTP/1.1");
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"http\",outcome=\"forwarded\"}"), 1);
}

#[test]
fn tls_to_port_80_stays_a_tunnel_without_interception() {
    let parent = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 200 OK\r\n\r\n");
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let curtsy = behind(&parent);
    let mut client = tunnel(&curtsy, "far.test:80");
    client.send(b"\x16\x03\x01hello");
    assert_eq!(client.read_exactly(8).unwrap(), b"\x16\x03\x01hello");
    assert_eq!(parent.request().line(), "CONNECT far.test:80 HTTP/1.1");
    drop(client);
    let tunnels = "curtsy_requests_total{kind=\"tunnel\",outcome=\"forwarded\"}";
    assert!(soon(|| curtsy.metric(tunnels) == 1));
}

#[test]
fn a_tunnel_that_was_answered_too_early_is_closed() {
    let parent = Origin::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
    let curtsy = behind(&parent);
    let mut client = tunnel(&curtsy, "far.test:80");
    client.send(b"\x16\x03\x01hello");
    client.expect_end();
    assert!(soon(|| curtsy.metric("curtsy_requests_total{kind=\"tunnel\",outcome=\"failed\"}") == 1));
}

/// Bytes that arrive together with CONNECT are not lost when curtsy inspects them.
#[test]
fn a_request_that_comes_with_connect_is_answered() {
    let (origin, curtsy) = (Origin::hello(), intercepting(&Authority::new(), |_| ()));
    let mut client = curtsy.client();
    let authority = origin.authority();
    client.send(
        head(&[&format!("CONNECT {authority} HTTP/1.1"), "Host: x"])
            + &head(&["GET /x HTTP/1.1", &format!("Host: {authority}")]),
    );
    assert_eq!(client.response_head().status(), 200);
    assert_eq!(client.response().text(), "hello");
}

fn robots(rules: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len())
}

#[test]
fn what_is_neither_tls_nor_http_is_a_tunnel() {
    let curtsy = intercepting(&Authority::new(), |_| ());
    let origin = Origin::scripted(|visitor| {
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let mut client = tunnel(&curtsy, &origin.authority());
    for bytes in [&b"\x00\x01\x02"[..], b"GET / HTTP/1.1\r\n\r\n", &[7; 70_000]] {
        client.send(bytes);
        assert!(client.read_exactly(bytes.len()).unwrap() == bytes);
    }
}

#[test]
fn garbage_in_the_place_of_tls_ends_the_tunnel() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let mut client = tunnel(&curtsy, &local(&origin));
    client.send([0x16; 100]);
    client.rest();
    origin.expect_untouched();
    assert_eq!(ask(&curtsy, &origin, "/").status(), 200, "no other client is harmed");
}

/// X33
#[test]
fn a_client_that_stalls_is_given_up() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| config.limits.head_timeout = ms(2_000));
    for bytes in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut client = tunnel(&curtsy, &local(&origin));
        client.send(bytes);
        client.rest();
    }
    let mut client = inside(&curtsy, "localhost", origin.port());
    client.send("GET / HT");
    client.rest();
    assert!(soon(|| curtsy.metric("curtsy_client_connections") == 0));
}

#[test]
fn a_websocket_goes_through_inside() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let curtsy = intercepting(&authority, |_| ());
    let mut client = inside(&curtsy, "localhost", origin.port());
    client.send_head(&[
        "GET /chat HTTP/1.1",
        &format!("Host: {}", local(&origin)),
        "Connection: Upgrade",
        "Upgrade: websocket",
    ]);
    assert_eq!(client.response_head().status(), 101);
    for frame in [&b"\x81\x05hello"[..], &[0xff; 70_000]] {
        client.send(frame);
        assert!(client.read_exactly(frame.len()).unwrap() == frame);
    }
}

#[test]
fn large_bodies_pass_both_ways() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while let Some(request) = visitor.request() {
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
            visitor.send(&request.body);
        }
    });
    let curtsy = intercepting(&authority, |_| ());
    let mut client = inside(&curtsy, "localhost", origin.port());
    let body: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    client.send_head(&[
        "POST /x HTTP/1.1",
        &format!("Host: {}", local(&origin)),
        &format!("Content-Length: {}", body.len()),
    ]);
    client.send(&body);
    let response = client.response();
    assert!(response.whole && response.body == body, "{} bytes", response.body.len());
}

/// X52
#[test]
fn a_session_is_resumed_with_the_same_host_only() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    let config = believing(&curtsy, &["http/1.1"]);
    let handshake = |host: &str| {
        let mut client = tunnel(&curtsy, &format!("{host}:{}", origin.port()));
        client.seek_tls(&config, host).expect("curtsy is believed");
        assert_eq!(get(&mut client, &format!("{host}:{}", origin.port()), "/").status(), 200);
        client.handshake_kind()
    };
    assert_eq!(handshake("localhost"), HandshakeKind::Full);
    assert_eq!(handshake("localhost"), HandshakeKind::Resumed);
    assert_eq!(handshake("127.0.0.1"), HandshakeKind::Full);
}

/// X22
#[test]
fn the_client_that_opened_the_tunnel_is_the_client_inside() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let directory = tempfile::tempdir().unwrap();
    let (log, users) = (directory.path().join("access"), directory.path().join("users"));
    fs::write(&users, format!("ada:{}\n", bcrypt::hash("love", 4).unwrap())).unwrap();
    let curtsy = intercepting(&authority, |config| {
        config.log.access = AccessLogTarget::Path(log.clone());
        config.access.users_file = Some(users);
    });
    let target = local(&origin);
    let connect = format!("CONNECT {target} HTTP/1.1");
    assert_eq!(curtsy.ask(&[&connect]).status(), 407);
    let ca = curtsy.ask_admin(&["GET /ca.pem HTTP/1.1", "Host: localhost", "Connection: close"]).text();
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&connect, "Proxy-Authorization: Basic YWRhOmxvdmU="]).status(), 200);
    client.seek_tls(&believing_pem(&ca, &["http/1.1"]), "localhost").unwrap();
    let response = client.ask(&["GET /x?secret HTTP/1.1", &format!("Host: {target}"), "Curtsy-Client: other"]);
    assert_eq!(response.status(), 200, "{}", response.text());
    drop(client);
    let wanted = format!("\"url\":\"https://{target}/x?…\",\"user\":\"ada\"");
    let lines = || fs::read_to_string(&log).unwrap_or_default();
    assert!(soon(|| lines().contains(&wanted)), "{}", lines());
    assert_eq!(lines().matches("CONNECT").count(), 1, "but for the refused one, what is inside is logged: {}", lines());
}

/// X50
#[test]
fn a_client_that_rejects_us_is_named_with_the_remedy() {
    let curtsy = Program::start("", "[tls]\nintercept = true\n");
    let origin = Origin::hello();
    let mut client = curtsy.client();
    let target = origin.authority();
    client.ask(&[&format!("CONNECT {target} HTTP/1.1"), "User-Agent: python-requests/2.34"]);
    client.seek_tls(&believing_pem("", &[]), "127.0.0.1").expect_err("it trusts no CA");
    assert!(soon(|| curtsy.event("client.untrusting").is_some()), "{:#?}", curtsy.stderr());
    let event = curtsy.event("client.untrusting").unwrap();
    let told = event["msg"].as_str().unwrap();
    assert!(told.contains("REQUESTS_CA_BUNDLE") && told.contains("python-requests/2.34"), "{told}");
    assert_eq!(event["host"], "127.0.0.1");
}

#[test]
fn an_untrusting_client_is_left_alone_if_the_operator_likes() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| config.tls.on_untrusted = OnUntrusted::Tunnel);
    let pem = fs::read_to_string(authority.file()).unwrap();
    let config = believing_pem(&pem, &[]);
    let mut client = tunnel(&curtsy, &local(&origin));
    client.seek_tls(&config, "localhost").expect_err("curtsy is not believed");
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_tls_handshakes_total{result=\"client_untrusted\",side=\"client\"}") == 1));
    let explained = |client: &str| {
        let line = format!("GET /api/v1/explain?url=https://{}/{client} HTTP/1.1", local(&origin));
        curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).text()
    };
    let (own, other) = (explained(""), explained("&client=127.0.0.2"));
    assert!(own.contains("\"via\":\"tunnel\"") && other.contains("\"via\":\"intercepted\""), "{own}\n{other}");
    let mut client = tunnel(&curtsy, &local(&origin));
    client.seek_tls(&config, "localhost").expect("the origin itself");
    assert_eq!(get(&mut client, &local(&origin), "/").status(), 200);
}

/// X43
#[test]
fn the_ca_is_kept_and_its_key_is_never_shown() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    let authority = Authority::new();
    let start = || {
        let (roots, state) = (authority.file(), state.clone());
        Curtsy::with(|config| {
            config.tls.intercept = true;
            config.tls.extra_roots = vec![roots];
            config.state_dir = StateDir::Path(state);
        })
    };
    let curtsy = start();
    let first = curtsy.get("http://curtsy.invalid/ca.pem").text();
    assert_eq!(fs::metadata(state.join("ca.key")).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(state.join("ca.key")).unwrap();
    let secret = key.lines().nth(1).unwrap();
    for path in ["/ca.pem", "/metrics", "/api/v1/config", "/"] {
        let shown = curtsy.ask_admin(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"]).text();
        assert!(!shown.contains(secret) && !shown.contains("PRIVATE"), "{path}: {shown}");
    }
    curtsy.stop();
    let curtsy = start();
    assert_eq!(curtsy.get("http://curtsy.invalid/ca.pem").text(), first, "a restart keeps the CA");
    curtsy.reload(|config| {
        config.tls.intercept = true;
        config.state_dir = StateDir::Path(state.clone());
    });
    assert_eq!(curtsy.get("http://curtsy.invalid/ca.pem").text(), first);
    curtsy.stop();
    fs::set_permissions(state.join("ca.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = Curtsy::start_error(|config| {
        config.tls.intercept = true;
        config.state_dir = StateDir::Path(state.clone());
    });
    assert!(error.contains("chmod 600"), "{error}");
}

/// X54
#[test]
fn the_key_is_in_no_log() {
    let curtsy = Program::start("log.level = \"trace\"", "[tls]\nintercept = true\n");
    let origin = Origin::hello();
    curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]);
    let said = curtsy.stderr().join("\n");
    assert!(said.contains("tls.intercept") && !said.contains("PRIVATE KEY"), "{said}");
}

#[test]
fn the_magic_host_helps_and_is_never_looked_up() {
    let curtsy = intercepting(&Authority::new(), |_| ());
    let page = curtsy.get("http://curtsy.invalid/");
    assert_eq!(page.status(), 200);
    assert!(page.text().contains("NODE_EXTRA_CA_CERTS") && page.text().contains("SHA-256"), "{}", page.text());
    let html = curtsy.ask(&["GET http://curtsy.invalid/ HTTP/1.1", "Accept: text/html"]);
    assert!(html.text().starts_with("<!doctype html>"), "{}", html.text());
    assert!(curtsy.get("http://curtsy.invalid/ca.pem").text().starts_with("-----BEGIN CERTIFICATE"));
    assert_eq!(curtsy.get("http://curtsy.invalid/other").status(), 404);
    assert_eq!(curtsy.ask(&["POST http://curtsy.invalid/ HTTP/1.1", "Content-Length: 0"]).status(), 405);
    let direct = curtsy.ask(&["GET /ca.pem HTTP/1.1", "Host: curtsy.invalid"]);
    assert_eq!(direct.status(), 404, "only through the proxy");
    let admin = curtsy.ask_admin(&["GET /ca.pem HTTP/1.1", "Host: localhost", "Connection: close"]);
    assert_eq!(admin.text(), curtsy.get("http://curtsy.invalid/ca.pem").text());
    let mut client = inside(&curtsy, "curtsy.invalid", 443);
    assert_eq!(get(&mut client, "curtsy.invalid", "/").status(), 200, "a client that sees this trusts the CA");
    let mut client = tunnel(&curtsy, "curtsy.invalid:80");
    assert_eq!(get(&mut client, "curtsy.invalid", "/").status(), 200);
}

/// X42
#[test]
fn without_interception_there_is_no_ca() {
    let curtsy = Curtsy::start();
    assert_eq!(curtsy.get("http://curtsy.invalid/ca.pem").status(), 404);
    assert!(curtsy.get("http://curtsy.invalid/").text().contains("does not intercept"));
    let admin = curtsy.ask_admin(&["GET /ca.pem HTTP/1.1", "Host: localhost", "Connection: close"]);
    assert_eq!(admin.status(), 404);
    assert_eq!(curtsy.ask(&["CONNECT curtsy.invalid:443 HTTP/1.1"]).status(), 502);
}

/// A client that disconnects while its request is queued frees its place at once and takes no turn.
#[test]
fn a_client_that_leaves_while_it_waits_costs_no_turn() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(5_000);
    });
    assert_eq!(ask(&curtsy, &origin, "/first").status(), 200);
    let mut leaving = inside(&curtsy, "localhost", origin.port());
    leaving.send_head(&["GET /left HTTP/1.1", &format!("Host: {}", local(&origin))]);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    drop(leaving);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 0), "its place is free at once");
    assert_eq!(ask(&curtsy, &origin, "/second").status(), 200);
    let lines: Vec<String> = origin.requests(2).iter().map(Message::line).collect();
    assert_eq!(lines, ["GET /first HTTP/1.1", "GET /second HTTP/1.1"]);
}

/// X51
#[test]
fn no_setting_writes_tls_keys_to_a_file() {
    let settings = curtsy::config::schema().to_string().to_ascii_lowercase();
    assert!(settings.contains("intercept"), "{settings}");
    for name in ["keylog", "key_log", "secrets"] {
        assert!(!settings.contains(name), "{name} in {settings}");
    }
}
