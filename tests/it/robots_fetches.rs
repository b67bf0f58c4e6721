//! Fetches of robots.txt are spaced, wherever redirects lead and however many ports a host has.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, Mode, RobotsMode};

use crate::support::{Curtsy, HELLO, Message, Origin, gaps, ms, soon};

const DELAY: Duration = ms(250);

fn paced(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
        change(config);
    })
}

fn moved(to: &str) -> String {
    format!("HTTP/1.1 302 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

/// Separate hosts whose robots.txt all redirect to this URL.
fn misleading(count: u8, to: &str) -> Vec<Origin> {
    let to = Arc::new(moved(to));
    let one = |number| {
        let to = to.clone();
        Origin::on(&format!("127.0.0.{}", 100 + number), move |visitor| {
            while let Some(request) = visitor.request() {
                let is_robots = request.line().starts_with("GET /robots.txt ");
                visitor.send(if is_robots { to.as_bytes() } else { HELLO.as_bytes() });
            }
        })
    };
    (0..count).map(one).collect()
}

/// Requests a page of every origin at the same time.
fn crawl(curtsy: &Curtsy, origins: &[Origin]) -> Vec<Message> {
    let clients: Vec<_> = origins
        .iter()
        .map(|origin| {
            let (mut client, line) = (curtsy.client(), origin.get("/page"));
            thread::spawn(move || client.ask(&[&line]))
        })
        .collect();
    clients.into_iter().map(|client| client.join().expect("an answer")).collect()
}

/// The arrival times of requests, counted from the first one.
fn times<'a>(requests: impl IntoIterator<Item = &'a Message>) -> Vec<Duration> {
    let mut moments: Vec<_> = requests.into_iter().map(|request| request.at).collect();
    moments.sort_unstable();
    moments.iter().map(|moment| *moment - moments[0]).collect()
}

/// Promise 1: a host that other hosts redirect to is paced like any other.
#[test]
fn hosts_that_redirect_robots_txt_to_another_do_not_make_curtsy_rude_to_it() {
    let victim = Origin::answering("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
    let hosts = misleading(8, &victim.url("/robots.txt"));
    let curtsy = paced(|_| ());
    let answers = crawl(&curtsy, &hosts);
    assert!(answers.iter().all(|answer| answer.status() == 200), "{:?}", answers[0].text());
    let seen = victim.requests(8);
    curtsy.expect_gaps(&times(&seen), DELAY);
}

/// Further redirects within the victim take a turn for each hop.
#[test]
fn every_hop_of_a_redirect_is_spaced() {
    let victim = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let next = match request.line().split(' ').nth(1) {
                Some("/robots.txt") => "/a/robots.txt",
                Some("/a/robots.txt") => "/b/robots.txt",
                _ => "/robots.txt",
            };
            visitor.send(moved(next).as_bytes());
        }
    });
    let hosts = misleading(3, &victim.url("/robots.txt"));
    let curtsy = paced(|_| ());
    crawl(&curtsy, &hosts);
    curtsy.expect_gaps(&times(&victim.requests(9)), DELAY);
}

/// curtsy does not follow a redirect to a page of another host, because the robots.txt there may forbid that page.
#[test]
fn a_redirect_to_a_page_of_another_host_is_not_followed() {
    let victim = Origin::hello();
    let hosts = misleading(2, &victim.url("/expensive-search?q=robots.txt"));
    let curtsy = paced(|_| ());
    let answers = crawl(&curtsy, &hosts);
    assert!(answers.iter().all(|answer| answer.status() == 200));
    victim.expect_untouched();
    assert_eq!(curtsy.metric("curtsy_robots_fetches_total{result=\"invalid\"}"), 2);
}

/// Promise 1: if a host has many origins, only one page may follow a fetch of robots.txt without a delay.
#[test]
fn the_ports_of_one_host_share_its_spacing_when_their_robots_txt_are_fetched() {
    let ports: Vec<Origin> =
        (0..6).map(|_| Origin::with_robots("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n")).collect();
    let curtsy = paced(|_| ());
    let answers = crawl(&curtsy, &ports);
    assert!(answers.iter().all(|answer| answer.status() == 200));
    let seen: Vec<Message> = ports.iter().flat_map(|port| port.requests(2)).collect();
    let fetches = times(seen.iter().filter(|request| request.line().contains("/robots.txt")));
    curtsy.expect_gaps(&fetches, DELAY);
    let short = gaps(&times(&seen)).into_iter().filter(|gap| *gap + ms(1) < DELAY).count();
    assert!(short <= 1, "{:?}", gaps(&times(&seen)));
}

/// The first request to a host waits for robots.txt and for nothing else.
#[test]
fn the_first_page_follows_its_robots_txt_at_once_and_the_second_does_not() {
    let origin = Origin::with_robots("HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n");
    let curtsy = paced(|config| config.politeness.delay = ms(2_000));
    for page in ["/1", "/2"] {
        assert_eq!(curtsy.get(&origin.url(page)).status(), 200);
    }
    let gaps = gaps(&times(&origin.requests(3)));
    assert!(gaps[0] < ms(2_000) && gaps[1] + ms(1) >= ms(2_000), "{gaps:?}");
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// Promise 8: a request that waits for robots.txt counts in the queue.
#[test]
fn a_request_that_waits_for_robots_txt_counts_in_the_queue() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.linger();
    });
    let curtsy = paced(|config| {
        config.politeness.max_queue = 5;
        config.robots.fetch_timeout = ms(60_000);
    });
    let mut clients: Vec<_> = (0..5).map(|_| curtsy.client()).collect();
    for client in &mut clients {
        client.send_head(&[&origin.get("/page"), "Host: x"]);
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 5));
    let refusal = curtsy.get(&origin.url("/page"));
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (429, "queue-full"));
    assert!(refusal.value("retry-after").parse::<u64>().is_ok_and(|seconds| seconds >= 1));
    let other = Origin::on("127.0.0.9", |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO.as_bytes());
        }
    });
    assert_eq!(curtsy.get(&other.url("/page")).status(), 200, "another host has a line of its own");
    clients.into_iter().for_each(crate::support::Client::reset);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 0), "a client that leaves frees its place");
}

/// The same for the limit on all hosts together.
#[test]
fn a_request_that_waits_for_robots_txt_counts_in_the_total() {
    let silent = |number: u8| {
        Origin::on(&format!("127.0.0.{}", 60 + number), |visitor| {
            visitor.request();
            visitor.linger();
        })
    };
    let origins: Vec<Origin> = (0..4).map(silent).collect();
    let curtsy = paced(|config| {
        // One address may have half of these.
        config.pacing.max_queue_total = 6;
        config.robots.fetch_timeout = ms(60_000);
    });
    let mut clients: Vec<_> = (0..3).map(|_| curtsy.client()).collect();
    for (client, origin) in clients.iter_mut().zip(&origins) {
        client.send_head(&[&origin.get("/page"), "Host: x"]);
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 3));
    assert_eq!(curtsy.get(&origins[3].url("/page")).refusal(), "queue-full");
}

const SLOW: &str = "HTTP/1.1 200 X\r\nContent-Length: 30\r\n\r\nUser-agent: *\nCrawl-delay: 0.8\n";

/// Promise 2: the Crawl-delay applies to methods that the rules of robots.txt do not apply to.
#[test]
fn crawl_delay_counts_for_a_host_that_gets_nothing_but_posts() {
    let origin = Origin::with_robots(SLOW);
    let curtsy = paced(|config| config.politeness.delay = ms(10));
    for _ in 0..3 {
        let line = origin.get("/form").replace("GET", "POST");
        assert_eq!(curtsy.ask(&[&line, "Host: x", "Content-Length: 0"]).status(), 200);
    }
    let seen = origin.requests(4);
    curtsy.expect_gaps(&times(seen.iter().filter(|request| request.line().starts_with("POST"))), ms(800));
}
