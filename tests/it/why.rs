//! The reason for a wait: the response, the API, the command line and the dashboard must all report the same one.

use std::collections::HashMap;
use std::sync::mpsc;
use std::thread;

use curtsy::config::{Config, Mode, RobotsMode};
use curtsy::politeness::pace::Learner;
use curtsy::politeness::policy::{HostPattern, HostRule};
use serde_json::Value;

use crate::support::program::run;
use crate::support::{Client, Curtsy, HELLO, Origin, ms, pause, soon};

const TOO_FAST: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
const COME_BACK: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n";

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
        config.retry.max = 0;
        change(config);
    })
}

/// An origin that answers the first request with `answer` and all others with a page.
fn first(answer: &'static str) -> Origin {
    Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let is_first = visitor.request_count() == 1;
            visitor.send(if is_first { answer } else { HELLO });
        }
    })
}

fn admin(curtsy: &Curtsy, path: &str) -> String {
    curtsy.ask_admin(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"]).text()
}

/// Sends a request that waits in the queue.
fn waiting(curtsy: &Curtsy, origin: &Origin) -> Client {
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/waits"), "Host: x"]);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    client
}

/// Asserts that the API, the dashboard and the command report this reason and delay while a request waits.
fn expect_all_say(curtsy: &Curtsy, origin: &Origin, why: &str, delay_ms: u64) {
    let url = origin.url("/");
    let told: Value = serde_json::from_str(&admin(curtsy, &format!("/api/v1/explain?url={url}"))).expect("JSON");
    assert_eq!((&told["why"], &told["delay_ms"]), (&why.into(), &delay_ms.into()), "{told:#}");
    assert_eq!((&told["known"]["why"], &told["known"]["delay_ms"]), (&why.into(), &delay_ms.into()), "{told:#}");

    let page = admin(curtsy, "/hosts/127.0.0.1");
    let words = match why {
        "robots" => "robots.txt",
        "retry-after" => "Retry-After",
        other => other,
    };
    let seconds = delay_ms as f64 / 1e3;
    for part in [format!("because of: {words}."), format!("<b data-show=\"delay\">{seconds} s</b>")] {
        assert!(page.contains(&part), "no {part} in\n{page}");
    }

    let (code, printed) = run(&["explain", &url, "--admin", &format!("http://{}", curtsy.admin())]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.contains(&format!("s ({why})")), "{printed}");
    assert!(printed.contains(&format!("delay   {seconds} s")), "{printed}");
}

/// Asserts that the answer to the request that waited reports the same.
fn expect_answer_says(client: &mut Client, why: &str, delay_ms: u64) {
    let answer = client.response();
    let said = answer.value("Curtsy");
    let said: HashMap<&str, &str> = said.split(", ").filter_map(|part| part.split_once('=')).collect();
    let delay = format!("{:.3}", delay_ms as f64 / 1e3);
    assert_eq!((said["why"], said["delay"]), (why, delay.as_str()), "{}", answer.head());
    assert_ne!(said["wait"], "0.000");
}

fn expect(curtsy: &Curtsy, origin: &Origin, why: &str, delay_ms: u64) {
    let mut client = waiting(curtsy, origin);
    expect_all_say(curtsy, origin, why, delay_ms);
    expect_answer_says(&mut client, why, delay_ms);
}

fn robots() {
    let rules = "User-agent: *\nCrawl-delay: 5\n";
    let origin = Origin::with_robots(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len()));
    let curtsy = pacing(|config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    expect(&curtsy, &origin, "robots", 5_000);
}

fn retry_after() {
    let (origin, curtsy) = (first(COME_BACK), pacing(|config| config.adaptive.step_up = ms(100)));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    expect(&curtsy, &origin, "retry-after", 200);
}

fn learned() {
    let (origin, curtsy) = (first(TOO_FAST), pacing(|config| config.adaptive.step_up = ms(2_900)));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200, "after a hold");
    expect(&curtsy, &origin, "learned", 3_000);
}

/// One request at a time, and the one before is slow.
fn concurrency() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            if visitor.request_count() == 1 {
                let _ = wait.lock().expect("one visitor at a time").recv();
            }
            visitor.send(HELLO);
        }
    });
    let curtsy = pacing(|config| config.politeness.concurrency = 1);
    let mut slow = curtsy.client();
    slow.send_head(&[&origin.get("/slow"), "Host: x"]);
    origin.request();
    let mut client = waiting(&curtsy, &origin);
    assert!(soon(|| admin(&curtsy, "/api/v1/hosts/127.0.0.1").contains("\"why\":\"concurrency\"")));
    expect_all_say(&curtsy, &origin, "concurrency", 100);
    // A start that is only a little late is not reported as delayed.
    pause(ms(100));
    drop(go_on);
    assert_eq!(slow.response().status(), 200);
    expect_answer_says(&mut client, "concurrency", 100);
}

#[test]
fn the_reason_for_a_wait_is_the_same_everywhere() {
    thread::scope(|scope| {
        for story in [robots, retry_after, learned, concurrency] {
            scope.spawn(story);
        }
    });
}

/// With `auto`, every view says what the measured limit is and why the pace is what it is. A rule chooses the policy.
#[test]
fn a_measured_limit_is_explained_everywhere() {
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            let refuses = visitor.request_count() == 3;
            visitor.send(if refuses { TOO_FAST } else { HELLO });
        }
    });
    let curtsy = pacing(|config| {
        config.politeness.delay = ms(20);
        let patterns = vec![HostPattern::Name("127.0.0.1".to_owned())];
        config.host.push(HostRule { patterns, learner: Some(Learner::Auto), ..HostRule::default() });
    });
    for status in [200, 200, 429, 200] {
        assert_eq!(curtsy.get(&origin.url("/")).status(), status);
    }
    let told: Value = serde_json::from_str(&admin(&curtsy, "/api/v1/hosts/127.0.0.1")).expect("JSON");
    let reason = told["limit"]["reason"].as_str().unwrap_or_else(|| panic!("{told:#}"));
    assert!(reason.starts_with("trying ") && reason.contains(": refused at 2/s "), "{reason}");
    let limit = told["limit"]["per_second"].as_f64().expect("a limit");
    let says = format!("{limit}/s, 50 % sure; trying ");
    assert!(admin(&curtsy, "/hosts/127.0.0.1").contains(&says), "the page says {says}");
    let (_, printed) = run(&["explain", &origin.url("/"), "--admin", &format!("http://{}", curtsy.admin())]);
    assert!(printed.contains(&says), "{printed}");
}
