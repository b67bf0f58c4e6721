//! What one client does must not affect a host for other clients.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use curtsy::config::{Config, Mode, RobotsMode};

use crate::support::{Client, Curtsy, HELLO, Hole, Message, Origin, Stopwatch, ms, soon};

/// The address of a second client; the usual client of the tests is at 127.0.0.1.
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

/// X66, promise 5: a closed port opens the breaker of that port only, not of the whole host.
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

/// X66: if only one client's requests fail, another client's request is tried before the origin is refused to all.
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

/// Sends a GET with this client name from this address.
fn named(curtsy: &Curtsy, source: Ipv4Addr, name: &str, url: &str) -> Message {
    ask_from(curtsy, source, &[&format!("GET {url} HTTP/1.1"), "Host: x", &format!("Curtsy-Client: {name}")])
}

/// A curtsy without delay and breaker, so that only failures of clients count.
fn counting() -> Curtsy {
    paced(|config| {
        config.politeness.delay = Duration::ZERO;
        config.breaker.failures = 0;
    })
}

fn failing(ip: &str) -> Origin {
    Origin::on(ip, |visitor| {
        while let Some(request) = visitor.request() {
            let fails = request.line().contains("/fails");
            visitor.send(if fails { "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n" } else { HELLO });
        }
    })
}

/// X65: without passwords a name proves nothing, so failures count for the name together with its address.
#[test]
fn failures_in_the_name_of_another_client_do_not_stop_it() {
    let origin = failing("127.0.0.1");
    let curtsy = counting();
    let refused = (0..25).any(|_| named(&curtsy, MALLORY, "alice", &origin.url("/fails")).status() == 403);
    assert!(refused, "25 failures stop the name at its own address");
    let alice = named(&curtsy, Ipv4Addr::LOCALHOST, "alice", &origin.url("/"));
    assert_eq!(alice.status(), 200, "{}", alice.text());
}

/// Dead hosts do not stop a client: finding them is the task of a link checker.
#[test]
fn dead_hosts_do_not_stop_a_client() {
    let (origin, closed) = (Origin::hello(), Hole::refusing());
    let curtsy = counting();
    for number in 10..35 {
        let url = closed.url().replace("127.0.0.1", &format!("127.0.1.{number}"));
        assert_eq!(named(&curtsy, Ipv4Addr::LOCALHOST, "checker", &url).refusal(), "origin-unreachable");
    }
    let good = named(&curtsy, Ipv4Addr::LOCALHOST, "checker", &origin.url("/"));
    assert_eq!(good.status(), 200, "{}", good.text());
}

#[test]
fn failures_at_one_host_stop_a_client_there_and_nowhere_else() {
    let (bad, good) = (failing("127.0.0.1"), failing("127.0.0.2"));
    let curtsy = counting();
    let ask = |url: String| named(&curtsy, Ipv4Addr::LOCALHOST, "spider", &url);
    for _ in 0..20 {
        assert_eq!(ask(bad.url("/fails")).status(), 500);
    }
    assert_eq!(ask(good.url("/")).status(), 200);
    let stopped = ask(bad.url("/"));
    assert_eq!(stopped.refusal(), "job-stopped");
    assert!(stopped.text().contains("to this host"), "{}", stopped.text());
    assert_eq!(curtsy.get(&bad.url("/")).status(), 200, "a client without a name");
}

/// A client is stopped everywhere if several hosts in a row refuse it.
#[test]
fn a_client_that_every_host_refuses_is_stopped_everywhere() {
    let refuse = |ip: &str| {
        Origin::on(ip, |visitor| {
            while visitor.request().is_some() {
                visitor.send("HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n");
            }
        })
    };
    let (hosts, good) = (["127.0.0.2", "127.0.0.3", "127.0.0.4"].map(refuse), Origin::hello());
    let curtsy = paced(|config| {
        config.politeness.delay = Duration::ZERO;
        config.breaker.job_failures = 3;
    });
    let ask = |url: String| named(&curtsy, Ipv4Addr::LOCALHOST, "spider", &url);
    for _ in 0..9 {
        assert_eq!(ask(hosts[0].url("/")).status(), 403, "one host's refusals are that host's");
    }
    assert_eq!(ask(hosts[1].url("/")).status(), 403);
    assert_eq!(ask(good.url("/")).status(), 200);
    assert!(hosts.iter().all(|host| ask(host.url("/")).status() == 403), "the row began anew");
    assert_eq!(ask(good.url("/")).refusal(), "job-stopped");
}

/// X65: all client names of one address share one share of the queue.
#[test]
fn sixty_names_of_one_address_take_one_share_of_the_line() {
    static OPEN: AtomicBool = AtomicBool::new(false);
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            assert!(soon(|| OPEN.load(Relaxed)));
            visitor.send(HELLO);
        }
    });
    let curtsy = paced(|config| {
        config.politeness.concurrency = 1;
        config.politeness.delay = ms(10);
    });
    let send = |source, name: &str, path| {
        let mut client = Client::connect_from(source, curtsy.address());
        client.send_head(&[&origin.get(path), "Host: x", &format!("Curtsy-Client: {name}")]);
        client
    };
    let _first = send(MALLORY, "first", "/first");
    origin.request();
    let _crowd: Vec<Client> = (0..60).map(|number| send(MALLORY, &format!("name-{number}"), "/crowd")).collect();
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 60));
    let mut alice = send(Ipv4Addr::LOCALHOST, "alice", "/alice");
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 61));
    OPEN.store(true, Relaxed);
    assert_eq!(alice.response().status(), 200);
    let turn = origin.requests(2).iter().position(|request| request.line().contains("/alice")).unwrap();
    assert!(turn <= 3, "alice was served after {turn} others");
}

const GROUPS: &str =
    "User-agent: SlowBot\nCrawl-delay: 60\n\nUser-agent: SteadyBot\nCrawl-delay: 1\n\nUser-agent: *\nDisallow:\n";

/// X66: a Crawl-delay applies only to the requests of its own robots.txt group.
#[test]
fn a_crawl_delay_counts_for_the_requests_of_its_own_group() {
    let robots = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{GROUPS}", GROUPS.len());
    let origin = Origin::with_robots(robots);
    let curtsy = paced(|config| config.politeness.robots = RobotsMode::Enforce);
    let alice = |path: &str| {
        let answer = curtsy.get(&origin.url(path));
        assert_eq!(answer.status(), 200);
        assert!(answer.value("curtsy").contains("delay=0.100"), "{path}: {}", answer.value("curtsy"));
    };
    let as_bot = |path: &str, lines: &[&str]| {
        let request = origin.get(path);
        ask_from(&curtsy, MALLORY, &[&[request.as_str(), "Host: x"], lines].concat())
    };
    alice("/1");
    alice("/2");
    let refused = as_bot("/slow", &["User-Agent: SlowBot", "Curtsy-Max-Wait: 0"]);
    assert_eq!((refused.status(), refused.refusal().as_str()), (429, "wait-too-long"));
    alice("/3");
    let steady = as_bot("/steady", &["User-Agent: SteadyBot"]);
    assert!(steady.value("curtsy").contains("delay=1.000, why=robots"), "{}", steady.value("curtsy"));
    alice("/4");
    let pages: Vec<Message> = origin.requests(6).into_iter().filter(|page| !page.line().contains("robots")).collect();
    let gap = |n: usize| pages[n].at.duration_since(pages[n - 1].at);
    assert_eq!(pages.len(), 5);
    // The audit below is exact; the origin may read a request late.
    assert!(gap(3) >= ms(500), "{:?} before the request of the slower group", gap(3));
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}
