//! What one client does must not spoil a host for the others.

use std::net::Ipv4Addr;
use std::time::Duration;

use curtsy::config::{Config, Mode};

use crate::support::{Client, Curtsy, HELLO, Hole, Message, Origin, Stopwatch, ms};

/// A client at an address of its own; the tests' usual client is at 127.0.0.1.
const MALLORY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 66);

fn paced(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
        config.retry.max = 0;
        change(config);
    })
}

fn ask_from(curtsy: &Curtsy, source: Ipv4Addr, lines: &[&str]) -> Message {
    Client::connect_from(source, curtsy.address()).ask(lines)
}

/// A GET by mallory.
fn mallory(curtsy: &Curtsy, url: &str) -> Message {
    ask_from(curtsy, MALLORY, &[&format!("GET {url} HTTP/1.1"), "Host: x"])
}

/// X66, promise 5: a closed port is that port's failure. Before, ten requests to it closed the host for everybody at once.
#[test]
fn a_closed_port_closes_no_other_port_of_its_host() {
    let (alice, closed) = (Origin::hello(), Hole::refusing());
    let curtsy = paced(|_| {});
    assert_eq!(curtsy.get(&alice.url("/")).status(), 200);
    let watch = Stopwatch::start();
    for _ in 0..10 {
        assert_eq!(mallory(&curtsy, &closed.url()).refusal(), "origin-unreachable");
    }
    assert!(watch.elapsed() >= ms(800), "ten failures took {:?}: they cost the host nothing", watch.elapsed());
    assert_eq!(mallory(&curtsy, &closed.url()).refusal(), "breaker-open");
    assert_eq!(curtsy.get(&alice.url("/")).status(), 200);
    assert_eq!(curtsy.metric("curtsy_breaker_openings_total"), 1);
}

/// X66: whatever one client makes an origin fail at, another client's request is tried before the origin is given up.
#[test]
fn failures_of_one_client_alone_close_an_origin_for_that_client_alone() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let fails = request.line().contains("/fails");
            visitor.send(if fails { "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n" } else { HELLO });
        }
    });
    let curtsy = paced(|config| {
        config.politeness.delay = Duration::ZERO;
        config.breaker.failures = 3;
    });
    for _ in 0..3 {
        assert_eq!(mallory(&curtsy, &origin.url("/fails")).status(), 500);
    }
    assert_eq!(mallory(&curtsy, &origin.url("/fails")).refusal(), "breaker-open");
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200, "alice has failed at nothing");
    assert_eq!(mallory(&curtsy, &origin.url("/")).status(), 200, "the origin has shown that it is well");
}
