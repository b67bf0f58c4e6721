//! What one node learns or is told binds all.

use super::*;
use crate::support::{Message, ms, pause};

#[test]
fn a_retry_after_heard_by_one_node_holds_the_others() {
    let redis = RedisServer::start();
    let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n";
    let is_free = AtomicBool::new(false);
    let refusing = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            let is_refused = request.line().contains("/busy") && !is_free.swap(true, Relaxed);
            visitor.send(if is_refused { answer.as_bytes() } else { HELLO.as_bytes() });
        }
    });
    let fleet = TestFleet::of(&[redis.url(), redis.url()], ms(100), refusing);
    fleet.nodes[1].get(&fleet.origin.url("/before"));
    // curtsy asks again by itself when the hold is over.
    let mut client = fleet.nodes[0].client();
    client.send_head(&[&format!("GET {} HTTP/1.1", fleet.origin.url("/busy")), "Host: ignored.test"]);
    let hash = |field: &str| redis.try_run::<Option<String>>(&["EVAL", &reading(field), "0"]).ok().flatten();
    assert!(soon(|| hash("h").is_some()), "the hold is not in Redis");
    fleet.nodes[1].get(&fleet.origin.url("/after"));
    assert!(client.response().line().contains(" 200 "));
    let requests = fleet.origin.requests(fleet.origin.count());
    let at = |path: &str| requests.iter().find(|request| request.line().contains(path)).expect(path).at;
    assert!(at("/after") - at("/busy") + ROOM >= Duration::from_secs(3), "{:?}", at("/after") - at("/busy"));
}

/// Sends an order to the API of a node.
fn order(node: &Program, line: &str, body: &str) -> Message {
    let length = format!("Content-Length: {}", body.len());
    let mut client = Client::connect(node.admin());
    client.send_head(&[line, "Host: localhost", "Content-Type: application/json", "Connection: close", &length]);
    client.send(body.as_bytes());
    client.response()
}

const HOST: &str = "PATCH /api/v1/hosts/127.0.0.1 HTTP/1.1";

#[test]
fn a_delay_set_at_one_node_binds_all() {
    let redis = RedisServer::start();
    let fleet = TestFleet::start(&redis.url(), 2, ms(50));
    let url = fleet.origin.url("/");
    fleet.nodes.iter().for_each(|node| assert_eq!(node.get(&url).status(), 200));
    assert_eq!(order(&fleet.nodes[0], HOST, r#"{"delay": "700ms"}"#).status(), 200);
    assert!(soon(|| redis.try_run::<Option<String>>(&["EVAL", &reading("o"), "0"]).ok().flatten().is_some()));
    let before = fleet.origin.count();
    (0..3).for_each(|_| drop(fleet.nodes[1].get(&url)));
    let times = fleet.times();
    for pair in times[before..].windows(2) {
        assert!(pair[1] - pair[0] + ROOM >= ms(700), "{times:?}");
    }
}

/// A node whose host is paused claims nothing, so it must hear of the resumption in another way.
#[test]
fn a_host_paused_at_one_node_can_be_resumed_at_another() {
    let redis = RedisServer::start();
    let fleet = TestFleet::start(&redis.url(), 2, ms(0));
    let url = fleet.origin.url("/");
    fleet.nodes.iter().for_each(|node| assert_eq!(node.get(&url).status(), 200));
    assert_eq!(order(&fleet.nodes[0], HOST, r#"{"paused": true}"#).status(), 200);
    assert!(soon(|| fleet.nodes[1].get(&url).status() != 200), "the other node goes on");
    assert_eq!(order(&fleet.nodes[1], HOST, r#"{"paused": false}"#).status(), 200);
    for node in &fleet.nodes {
        assert!(soon(|| node.get(&url).status() == 200), "still paused: {:#?}", node.stderr());
    }
}

#[test]
fn a_client_stopped_at_one_node_is_stopped_at_all() {
    let redis = RedisServer::start();
    let fleet = TestFleet::start(&redis.url(), 2, ms(50));
    let line = format!("GET {} HTTP/1.1", fleet.origin.url("/"));
    // spider, without a password.
    let ask = || fleet.nodes[1].ask(&[&line, "Host: ignored.test", "Proxy-Authorization: Basic c3BpZGVyOg=="]).status();
    assert_eq!(ask(), 200);
    assert!(order(&fleet.nodes[0], "POST /api/v1/clients/spider/stop HTTP/1.1", "").status() < 300);
    assert!(soon(|| ask() == 403), "it goes on: {:#?}", fleet.nodes[0].stderr());
    assert!(order(&fleet.nodes[0], "POST /api/v1/clients/spider/resume HTTP/1.1", "").status() < 300);
    assert!(soon(|| ask() == 200), "it is still stopped");
}

#[test]
fn one_node_fetches_robots_txt_for_all() {
    let redis = RedisServer::start();
    let origin =
        Origin::with_robots("HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\nUser-agent: *\nDisallow: /private\n");
    let nodes: Vec<Program> =
        (0..3).map(|_| start_node_with(&redis.url(), ms(50), "robots.mode = \"enforce\"", "")).collect();
    let fleet = TestFleet { nodes, origin, delay: ms(50) };
    fleet.expect_states("joined");
    for node in &fleet.nodes {
        assert_eq!(node.get(&fleet.origin.url("/private")).status(), 403);
        assert_eq!(node.get(&fleet.origin.url("/public")).status(), 200);
    }
    assert_eq!(fleet.origin.robots_requests(), 1);
}

/// Two nodes, two places, and answers that take far longer than the delay.
#[test]
fn places_are_shared() {
    let redis = RedisServer::start();
    let (now, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (in_flight, highest) = (now.clone(), most.clone());
    let slow = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            highest.fetch_max(in_flight.fetch_add(1, Relaxed) + 1, Relaxed);
            pause(ms(1_200));
            in_flight.fetch_sub(1, Relaxed);
            visitor.send(HELLO.as_bytes());
        }
    });
    let more = "politeness.concurrency = 2";
    let nodes: Vec<Program> = (0..2).map(|_| start_node_with(&redis.url(), ms(400), more, "")).collect();
    let fleet = TestFleet { nodes, origin: slow, delay: ms(400) };
    fleet.expect_states("joined");
    let work = fleet.work(4);
    work.expect_served(10);
    work.end();
    fleet.expect_distance();
    assert!(most.load(Relaxed) <= 2, "{} requests in flight", most.load(Relaxed));
}
