//! `count = "pages"`: parts of a page ride on its turn. Parts say `Curtsy-Max-Wait: 0`, so one that rides gets its
//! answer and one that would have to wait gets 429: the delay is so long that no test can wait for it.

use curtsy::config::{Config, Counts, HostPattern, HostRule, Mode, RobotsMode};
use serde_json::Value;

use crate::support::program::run;
use crate::support::{Client, Curtsy, HELLO, Message, Origin, Stopwatch, expect_gaps, ms};

const DELAY: std::time::Duration = ms(60_000);
const PAGE: [&str; 2] = ["Sec-Fetch-Dest: document", "Sec-Fetch-Mode: navigate"];
const IMAGE: [&str; 2] = ["Sec-Fetch-Dest: image", "Sec-Fetch-Mode: no-cors"];
const DATA: [&str; 2] = ["Sec-Fetch-Dest: empty", "Sec-Fetch-Mode: cors"];

fn counting(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
        config.politeness.count = Counts::Pages;
        change(config);
    })
}

/// Asks for a URL with these labels, now or never. Returns the status.
fn status(curtsy: &Curtsy, url: &str, labels: &[&str]) -> u16 {
    let line = format!("GET {url} HTTP/1.1");
    let mut lines = vec![line.as_str(), "Host: x", "Curtsy-Max-Wait: 0"];
    lines.extend(labels);
    curtsy.ask(&lines).status()
}

fn api(curtsy: &Curtsy, host: &str) -> Value {
    let line = format!("GET /api/v1/hosts/{host} HTTP/1.1");
    let answer = curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]);
    serde_json::from_str(&answer.text()).expect("JSON")
}

fn expect_parts(curtsy: &Curtsy, rode: u64, took_turns: u64) {
    let count = |result: &str| curtsy.metric(&format!("curtsy_parts_total{{result=\"{result}\"}}"));
    assert_eq!((count("ride"), count("turn")), (rode, took_turns));
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

#[test]
fn parts_ride_on_the_turn_of_their_page_and_pages_do_not() {
    let (curtsy, origin) = (counting(|_| {}), Origin::answering(HELLO.to_owned()));
    assert_eq!(status(&curtsy, &origin.url("/"), &PAGE), 200);
    for number in 0..20 {
        assert_eq!(status(&curtsy, &origin.url(&format!("/{number}.png")), &IMAGE), 200, "{number}");
    }
    assert_eq!(status(&curtsy, &origin.url("/data"), &DATA), 200);
    for label in [&PAGE[..], &[], &["Sec-Fetch-Mode: cors"], &["Sec-Fetch-Dest: empty", "Sec-Purpose: prefetch"]] {
        assert_eq!(status(&curtsy, &origin.url("/2"), label), 429, "{label:?}");
    }
    expect_parts(&curtsy, 21, 0);
    let host = api(&curtsy, "127.0.0.1");
    assert_eq!((&host["count"], &host["parts"]), (&"pages".into(), &21.into()));
    let (code, page) = run(&["host", "127.0.0.1", "--admin", &curtsy.admin().to_string()]);
    assert!(code == 0 && page.contains("count     pages; 21 parts rode on their turns"), "{page}");
}

/// Promise 1: parts may come between, but pages keep their distance.
#[test]
fn pages_are_one_delay_apart_as_the_origin_sees_them() {
    let (curtsy, origin) = (counting(|config| config.politeness.delay = ms(300)), Origin::answering(HELLO.to_owned()));
    let watch = Stopwatch::start();
    for page in 0..3 {
        let line = origin.get(&format!("/page/{page}"));
        assert_eq!(curtsy.ask(&[&line, "Host: x", PAGE[0], PAGE[1]]).status(), 200);
        for part in 0..5 {
            let line = origin.get(&format!("/part/{page}/{part}"));
            assert_eq!(curtsy.ask(&[&line, "Host: x", IMAGE[0], IMAGE[1]]).status(), 200);
        }
    }
    let seen = origin.requests(18);
    let pages = seen.iter().filter(|request| request.line().contains("/page/"));
    let mut times: Vec<_> = pages.map(|request| watch.at(request.at)).collect();
    times.sort();
    expect_gaps(&times, ms(300));
    expect_parts(&curtsy, 15, 0);
}

#[test]
fn a_turn_carries_so_many_parts_and_no_more() {
    let (curtsy, origin) = (counting(|config| config.politeness.page_parts = 5), Origin::answering(HELLO.to_owned()));
    assert_eq!(status(&curtsy, &origin.url("/"), &PAGE), 200);
    let statuses: Vec<u16> = (0..8).map(|n| status(&curtsy, &origin.url(&format!("/{n}")), &IMAGE)).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    expect_parts(&curtsy, 5, 0);
}

/// Many programs copy the header fields of a request from a browser. They open no pages, so they are paced as ever.
#[test]
fn a_client_that_opens_no_page_has_no_parts() {
    let (curtsy, origin) = (counting(|_| {}), Origin::answering(HELLO.to_owned()));
    for labels in [&IMAGE, &DATA] {
        assert_eq!(status(&curtsy, &origin.url("/1"), labels), if labels == &IMAGE { 200 } else { 429 });
        assert_eq!(status(&curtsy, &origin.url("/2"), labels), 429);
    }
    expect_parts(&curtsy, 0, 0);
}

/// The first part at a host that serves no pages takes a turn, and the others ride on it.
#[test]
fn parts_ride_at_other_hosts_too() {
    let curtsy = counting(|_| {});
    let origins = ["127.0.0.2", "127.0.0.3"].map(|ip| {
        Origin::on(ip, |visitor| {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        })
    });
    assert_eq!(status(&curtsy, &origins[0].url("/"), &PAGE), 200);
    for number in 0..5 {
        assert_eq!(status(&curtsy, &origins[1].url(&format!("/{number}.png")), &IMAGE), 200, "{number}");
    }
    assert_eq!(status(&curtsy, &origins[1].url("/"), &PAGE), 429, "a picture took the turn");
    expect_parts(&curtsy, 4, 1);
}

#[test]
fn a_refusal_ends_the_ride() {
    let curtsy = counting(|config| config.retry.max = 0);
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let is_bad = request.line().contains("/bad");
            visitor.send(if is_bad { "HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n" } else { HELLO });
        }
    });
    assert_eq!(status(&curtsy, &origin.url("/"), &PAGE), 200);
    assert_eq!(status(&curtsy, &origin.url("/1.png"), &IMAGE), 200);
    assert_eq!(status(&curtsy, &origin.url("/bad.png"), &IMAGE), 429);
    let refused = curtsy.ask(&[&origin.get("/2.png"), "Host: x", "Curtsy-Max-Wait: 0", IMAGE[0], IMAGE[1]]);
    assert_eq!(refused.status(), 503, "curtsy's own answer: {}", refused.text());
    expect_parts(&curtsy, 2, 0);
}

#[test]
fn robots_txt_applies_to_every_part() {
    let rules = "User-agent: *\nDisallow: /private/\n";
    let rules = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len());
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            visitor.send(if request.line().contains("/robots.txt") { rules.as_str() } else { HELLO });
        }
    });
    let curtsy = counting(|config| config.politeness.robots = RobotsMode::Enforce);
    let page = curtsy.ask(&[&origin.get("/"), "Host: x", PAGE[0], PAGE[1]]);
    assert_eq!(page.status(), 200, "{}", page.text());
    assert_eq!(status(&curtsy, &origin.url("/private/1.png"), &IMAGE), 403);
    assert_eq!(status(&curtsy, &origin.url("/1.png"), &IMAGE), 200);
}

#[test]
fn pages_are_counted_where_a_rule_or_the_api_says_so() {
    let rule = HostRule {
        patterns: vec![HostPattern::Net("127.0.0.2/32".parse().expect("a network"))],
        count: Some(Counts::Pages),
        ..HostRule::default()
    };
    let curtsy = counting(|config| (config.politeness.count, config.host) = (Counts::Requests, vec![rule]));
    let origins = ["127.0.0.2", "127.0.0.3"].map(|ip| {
        Origin::on(ip, |visitor| {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        })
    });
    let load = |origin: &Origin, part: &str| {
        [status(&curtsy, &origin.url("/"), &PAGE), status(&curtsy, &origin.url(part), &IMAGE)]
    };
    assert_eq!(origins.each_ref().map(|origin| load(origin, "/1.png")), [[200, 200], [200, 429]]);
    let change = |body: &str| -> Message {
        let mut client = Client::connect(curtsy.admin());
        let length = body.len();
        client.send(format!(
            "PATCH /api/v1/config HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ));
        client.response()
    };
    let refused = change(r#"{"politeness": {"count": "page", "page_parts": 0}}"#);
    assert_eq!(refused.status(), 400);
    for said in ["write \\\"requests\\\" or \\\"pages\\\"", "`page_parts` cannot be 0: the smallest allowed is 1"] {
        assert!(refused.text().contains(said), "{}", refused.text());
    }
    assert_eq!(change(r#"{"politeness": {"count": "pages"}}"#).status(), 200);
    assert_eq!(api(&curtsy, "127.0.0.3")["count"], "pages");
}
