//! The admin listener: health, readiness and counters.

use std::thread;

use crate::support::program::run;
use crate::support::{Client, Curtsy, End, Hole, Origin, Program, ms, soon};

/// X58
#[test]
fn it_says_that_it_is_well() {
    let curtsy = Curtsy::start();
    for path in ["/healthz", "/readyz"] {
        let response = curtsy.ask_admin(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"]);
        assert_eq!(response.status(), 200, "{path}");
    }
}

/// `curtsy health` is meant for container health checks.
#[test]
fn the_health_command_agrees() {
    let program = Program::start("admin = \"127.0.0.1:0\"", "");
    let admin = program.event("ready").unwrap()["admin"].as_str().unwrap().to_owned();
    assert_eq!(run(&["health", "--url", &format!("http://{admin}")]).0, 0);
    assert_eq!(run(&["health", "--url", &Hole::refusing().url()]).0, 4);
}

#[test]
fn every_answer_is_counted_once_by_what_became_of_it() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    curtsy.get(&origin.url("/"));
    curtsy.get("ftp://a.test/");
    curtsy.get("http://10.0.0.1/");
    curtsy.get(&Hole::refusing().url());
    assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 0));
    for (series, count) in [
        ("curtsy_requests_total{kind=\"http\",outcome=\"forwarded\"}", 1),
        ("curtsy_requests_total{kind=\"http\",outcome=\"denied\"}", 1),
        ("curtsy_requests_total{kind=\"http\",outcome=\"rejected\"}", 1),
        ("curtsy_requests_total{kind=\"http\",outcome=\"failed\"}", 1),
        ("curtsy_rejections_total{reason=\"bad_request\"}", 1),
        ("curtsy_rejections_total{reason=\"destination_denied\"}", 1),
        ("curtsy_rejections_total{reason=\"origin_unreachable\"}", 1),
        ("curtsy_responses_total{code=\"200\"}", 1),
    ] {
        assert_eq!(curtsy.metric(series), count, "{series}");
    }
}

/// X37
#[test]
fn a_client_that_left_is_counted_as_one() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_requests_total{kind=\"http\",outcome=\"abandoned\"}") == 1));
    assert_eq!(curtsy.metric("curtsy_inflight_requests"), 0);
}

/// X37: a client may also disconnect while curtsy is still connecting to the origin.
#[test]
fn a_client_that_leaves_while_curtsy_is_connecting_is_gone_at_once() {
    let (curtsy, hole) = (Curtsy::start(), Hole::silent());
    for line in [format!("GET {} HTTP/1.1", hole.url()), format!("CONNECT {} HTTP/1.1", hole.authority())] {
        let mut client = curtsy.client();
        client.send_head(&[&line, "Host: x"]);
        assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 1), "{line}");
        drop(client);
        assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 0), "{line}");
    }
}

/// X25, X35: gauges of connections, tunnels and requests fall back to 0 when these end.
#[test]
fn nothing_stays_counted_that_is_gone() {
    let origin = Origin::scripted(|visitor| assert_ne!(visitor.linger(), End::Silence));
    let curtsy = Curtsy::start();
    let connect = format!("CONNECT {} HTTP/1.1", origin.authority());
    let mut tunnels = [curtsy.client(), curtsy.client()];
    tunnels.iter_mut().for_each(|tunnel| assert_eq!(tunnel.ask(&[&connect]).status(), 200));
    assert!(soon(|| curtsy.metric("curtsy_tunnels") == 2));
    let [left, reset] = tunnels;
    drop(left);
    Client::reset(reset);
    for gauge in ["curtsy_tunnels", "curtsy_client_connections", "curtsy_inflight_requests"] {
        assert!(soon(|| curtsy.metric(gauge) == 0), "{gauge} is {}", curtsy.metric(gauge));
    }
}

/// X35, X37: clients of every kind at once; many disconnect before they are answered.
#[test]
fn a_storm_leaves_nothing_behind() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let framing = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
            visitor.send([framing.as_bytes(), &request.body].concat());
        }
    });
    let curtsy = Curtsy::with(|config| config.workers = 2);
    thread::scope(|scope| {
        for seed in 0..24 {
            let (origin, curtsy) = (&origin, &curtsy);
            scope.spawn(move || (0..20).for_each(|round| misbehave(seed + round, origin, curtsy)));
        }
    });
    for gauge in ["curtsy_tunnels", "curtsy_client_connections", "curtsy_inflight_requests"] {
        assert!(soon(|| curtsy.metric(gauge) == 0), "{gauge} is {}", curtsy.metric(gauge));
    }
}

/// One client of the storm; `kind` says which.
fn misbehave(kind: usize, origin: &Origin, curtsy: &Curtsy) {
    let mut client = curtsy.client();
    let post = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 50000\r\n\r\n", origin.url("/"));
    match kind % 7 {
        0 => client.send_head(&[&origin.get("/"), "Host: x"]),
        1 => assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).status(), 200),
        2 => drop(client.send(&post)),
        3 => drop(client.send(post + &"x".repeat(20_000))),
        4 => {
            client.send(post + &"x".repeat(50_000));
            assert_eq!(client.response().body.len(), 50_000);
            assert_eq!(client.ask(&["GET ftp://a.test/ HTTP/1.1", "Host: x"]).status(), 400);
        }
        5 => assert_eq!(client.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]).status(), 200),
        _ => {
            client.send(post + &"x".repeat(50_000));
            client.response_head();
            client.reset();
        }
    }
}

/// A request for another host name is refused: a web page may have rebound its name to this address.
#[test]
fn a_strange_host_is_turned_away() {
    let curtsy = Curtsy::start();
    for host in ["evil.test", "localhost.evil.test", "10.0.0.1"] {
        let response = curtsy.ask_admin(&["GET /metrics HTTP/1.1", &format!("Host: {host}"), "Connection: close"]);
        assert_eq!(response.status(), 421, "{host}");
    }
}

#[test]
fn metrics_can_be_kept_behind_a_token() {
    let curtsy = Curtsy::with(|config| config.metrics.token = Some("tulip".to_owned()));
    let ask = |field: &str| {
        curtsy.ask_admin(&["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close", field]).status()
    };
    assert_eq!(
        [ask("X-None: 1"), ask("Authorization: Bearer rose"), ask("Authorization: Bearer tulip")],
        [401, 401, 200]
    );
}

/// X33, X58: incomplete requests do not keep the admin listener from answering complete ones, not even if all come
/// from one address.
#[test]
fn half_requests_do_not_end_the_admin_listener() {
    let curtsy = Curtsy::with(|config| config.metrics.token = Some("tulip".to_owned()));
    let half = |text: &str| {
        let mut client = Client::connect(curtsy.admin());
        client.send(text);
        client
    };
    let mut held: Vec<_> = (0..300).map(|_| half("GET /healthz HTTP/1.1\r\nHost: local")).collect();
    for round in 0..20 {
        let mut probe = Client::connect(curtsy.admin());
        probe.patience(ms(4_000));
        probe.send_head(&["GET /healthz HTTP/1.1", "Host: localhost"]);
        let response = probe.read_head().unwrap_or_else(|end| panic!("no answer, but {end:?}, in round {round}"));
        assert_eq!(response.status(), 200);
        held.extend((0..20).map(|_| half("G")));
    }
}
