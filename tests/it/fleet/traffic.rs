//! All kinds of requests through several nodes: tunnels, HTTP/2, retries, jitter.

use super::*;
use crate::support::{Authority, Http2Origin, expect_gaps_on_shared, ms};
use crate::tunnels::{self, Guestbook};

fn nodes(redis: &RedisServer, count: usize, delay: Duration, more: &str) -> Vec<Program> {
    let nodes: Vec<Program> = (0..count).map(|_| start_node_with(&redis.url(), delay, more, "")).collect();
    for node in &nodes {
        assert!(within(PATIENT, || has_state(node, "joined")), "{:#?}", node.stderr());
    }
    nodes
}

/// Requests inside TLS tunnels of three nodes, separated by their records.
#[test]
fn tunnels_of_several_nodes() {
    let redis = RedisServer::start();
    let nodes = nodes(&redis, 3, tunnels::DELAY, "");
    let book = Guestbook::open();
    thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| {
                let mut client = node.client();
                let line = format!("CONNECT {} HTTP/1.1", book.origin.authority());
                let answer = client.ask(&[&line, "Host: x"]);
                assert_eq!(answer.status(), 200, "{}", answer.head());
                let mut client = tunnels::handshake(client, &["http/1.1"]);
                (0..4).for_each(|_| drop(tunnels::request(&mut client).expect("an answer")));
            });
        }
    });
    book.expect_gaps(12);
}

#[test]
fn http2_of_several_nodes() {
    let redis = RedisServer::start();
    let authority = Authority::new();
    let roots = format!("tls.extra_roots = [\"{}\"]", authority.file().display());
    let delay = ms(200);
    let nodes = nodes(&redis, 3, delay, &roots);
    let origin = Http2Origin::hello(&authority);
    let mut work = Work::default();
    work.ask(&nodes, 2, &origin.url("/"));
    work.expect_served(18);
    work.end();
    let arrivals = origin.arrivals();
    assert!(origin.connections() >= 3 && arrivals.len() >= 18, "{} on {}", arrivals.len(), origin.connections());
    expect_gaps_on_shared(&arrivals, delay);
}

/// Every third request is refused. curtsy asks again by itself, and each retry takes a turn of the fleet.
#[test]
fn retries_of_several_nodes() {
    let redis = RedisServer::start();
    let delay = ms(100);
    let nodes = nodes(&redis, 3, delay, "adaptive.policy = \"off\"\nretry.budget = 1.0\n");
    let count = AtomicU64::new(0);
    let busy = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let is_busy = count.fetch_add(1, Relaxed) % 3 == 2;
            visitor.send(if is_busy { busy.as_bytes() } else { HELLO.as_bytes() });
        }
    });
    let fleet = TestFleet { nodes, origin, delay };
    let work = fleet.work(2);
    work.expect_served(16);
    work.end();
    fleet.expect_distance();
    let retries: u64 = fleet.nodes.iter().map(|node| node.metric("curtsy_retries_total")).sum();
    assert!(retries > 0, "nothing was retried");
}

/// Jitter lengthens gaps by half the delay on average here; it never shortens one.
#[test]
fn jitter_of_several_nodes() {
    let redis = RedisServer::start();
    let delay = ms(100);
    let nodes = nodes(&redis, 3, delay, "politeness.jitter = 1.0");
    let fleet = TestFleet { nodes, origin: Origin::scripted(hello), delay };
    let work = fleet.work(2);
    work.expect_served(40);
    work.end();
    fleet.expect_distance();
    // The mean of 40 numbers between 0 and 1 is below 0.2 once in a billion runs.
    let times = fleet.times();
    let mean = (times[times.len() - 1] - times[0]) / (times.len() as u32 - 1);
    assert!(mean >= delay.mul_f64(1.2), "no jitter: {mean:?} between starts");
}
