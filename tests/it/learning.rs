//! Learning: an origin's refusals set the pace for all clients, and retries hide them from the client.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, Mode, RobotsMode};
use curtsy::politeness::pace::Learner;

use crate::support::{Curtsy, HELLO, Hole, Message, Origin, Stopwatch, Visitor, ms, soon};

/// An origin whose answer depends on the number of the request, counted from 0.
struct Moody {
    origin: Origin,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl Moody {
    fn with(mood: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        Moody::on("127.0.0.1", mood)
    }

    fn on(ip: &str, mood: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        let times: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let (watch, noted, count) = (Stopwatch::start(), times.clone(), AtomicUsize::new(0));
        let origin = Origin::on(ip, move |visitor: &mut Visitor| {
            while let Some(request) = visitor.request() {
                let number = count.fetch_add(1, Ordering::Relaxed);
                noted.lock().expect("no test thread has panicked").push(watch.at(request.at));
                visitor.send(mood(number).as_bytes());
            }
        });
        Moody { origin, times }
    }

    fn times(&self) -> Vec<Duration> {
        let mut times = self.times.lock().expect("no test thread has panicked").clone();
        times.sort();
        times
    }
}

fn refusal(fields: &str) -> String {
    format!("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n{fields}\r\n")
}

/// Learns in steps of 200 ms, so that a test takes a second.
fn learning(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
        config.adaptive.step_up = ms(200);
        config.adaptive.step_down = ms(200);
        change(config);
    })
}

fn delay(answer: &Message) -> f64 {
    let field = answer.value("curtsy");
    let text = field.split("delay=").nth(1).and_then(|rest| rest.split(',').next()).expect("a delay");
    text.parse().expect("a number")
}

/// A status that some hosts send only to crawlers counts like 429 if the operator configures it.
#[test]
fn a_status_beyond_599_can_mean_too_fast() {
    let odd = "HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\n\r\n";
    let moody = Moody::with(move |number| if number == 0 { odd.to_owned() } else { HELLO.to_owned() });
    let curtsy = learning(|config| {
        config.adaptive.statuses.push(999);
        config.retry.statuses.push(999);
    });
    let answer = curtsy.get(&moody.origin.url("/page"));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    assert_eq!(curtsy.metric("curtsy_throttled_total{status=\"other\"}"), 1);
    assert!((delay(&curtsy.get(&moody.origin.url("/page"))) - 0.3).abs() < 0.001);
}

/// Without such a setting the status counts as a failure of the host, as a 5xx does.
#[test]
fn a_status_beyond_599_opens_the_breaker() {
    let moody = Moody::with(|_| "HTTP/1.1 999 Request denied\r\nContent-Length: 0\r\n\r\n".to_owned());
    let curtsy = learning(|config| config.breaker.failures = 2);
    let statuses: Vec<u16> = (0..3).map(|_| curtsy.get(&moody.origin.url("/")).status()).collect();
    assert_eq!(statuses, [999, 999, 503]);
}

#[test]
fn a_refusal_is_tried_again_and_the_client_does_not_notice() {
    let moody = Moody::with(|number| if number == 0 { refusal("") } else { HELLO.to_owned() });
    let curtsy = learning(|_| ());
    let answer = curtsy.get(&moody.origin.url("/page"));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    assert!(answer.value("curtsy").contains("attempts=2"), "{}", answer.value("curtsy"));
    let times = moody.times();
    assert!(times[1] - times[0] >= ms(290), "the second try came too early: {times:?}");
    assert_eq!(curtsy.metric("curtsy_retries_total"), 1);
    assert_eq!(curtsy.metric("curtsy_throttled_total{status=\"429\"}"), 1);
    let next = curtsy.get(&moody.origin.url("/page"));
    assert!((delay(&next) - 0.3).abs() < 0.001 && next.value("curtsy").contains("why=learned"), "{}", next.head());
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// S65
#[test]
fn after_three_retries_the_refusal_is_the_clients() {
    let moody = Moody::with(|_| refusal("Retry-After: 1\r\nX-Own: yes\r\n"));
    let curtsy = learning(|config| config.adaptive.step_up = ms(1));
    let answer = curtsy.get(&moody.origin.url("/page"));
    assert_eq!((answer.status(), answer.value("retry-after").as_str()), (429, "1"));
    assert_eq!(answer.value("x-own"), "yes");
    assert_eq!(moody.times().len(), 4);
    assert!(!answer.has("curtsy-error"), "it is the origin's answer");
}

/// S65
#[test]
fn retry_after_holds_the_host_for_everyone() {
    let moody = Moody::with(|number| if number == 0 { refusal("Retry-After: 1\r\n") } else { HELLO.to_owned() });
    let curtsy = learning(|_| ());
    assert_eq!(curtsy.get(&moody.origin.url("/page")).status(), 200);
    let times = moody.times();
    assert!(times[1] - times[0] >= ms(950), "{times:?}");
    assert_eq!(curtsy.metric("curtsy_holds_total{cause=\"retry_after\"}"), 1);
}

/// S65: if a request cannot be sent again, or not in time, the client gets the origin's answer.
#[test]
fn what_cannot_be_tried_again_passes_through() {
    let moody = Moody::with(|_| refusal("Retry-After: 30\r\n"));
    let curtsy = learning(|_| ());
    let post = moody.origin.get("/page").replace("GET", "POST");
    let posted = curtsy.ask(&[&post, "Content-Length: 0"]);
    assert_eq!((posted.status(), posted.value("retry-after").as_str()), (429, "30"));

    let other = Moody::on("127.0.0.2", |_| refusal("Retry-After: 30\r\n"));
    let impatient = curtsy.ask(&[&other.origin.get("/page"), "Curtsy-Max-Wait: 5"]);
    assert_eq!((impatient.status(), impatient.value("retry-after").as_str()), (429, "30"));
    assert_eq!((moody.times().len(), other.times().len()), (1, 1));
}

/// Twenty refusals of one burst count as one event.
#[test]
fn a_burst_of_refusals_raises_the_delay_once() {
    let arrived = AtomicUsize::new(0);
    let moody = Moody::with(move |number| {
        // None is answered before all twenty have arrived.
        arrived.fetch_add(1, Ordering::Relaxed);
        assert!(soon(|| arrived.load(Ordering::Relaxed) >= 20));
        if number < 20 { refusal("") } else { HELLO.to_owned() }
    });
    let curtsy = learning(|config| {
        config.politeness.delay = Duration::ZERO;
        config.politeness.concurrency = 20;
        config.retry.max = 0;
    });
    let url = moody.origin.url("/page");
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let (mut client, line) = (curtsy.client(), format!("GET {url} HTTP/1.1"));
            thread::spawn(move || client.ask(&[&line]).status())
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("an answer"), 429);
    }
    let next = curtsy.get(&url);
    assert!((delay(&next) - 0.2).abs() < 0.001, "{}", next.value("curtsy"));
}

#[test]
fn successes_lead_back_to_a_faster_pace() {
    let moody = Moody::with(|number| if number == 0 { refusal("") } else { HELLO.to_owned() });
    let curtsy = learning(|config| {
        config.politeness.delay = ms(10);
        config.adaptive.step_up = ms(100);
        config.adaptive.step_down = ms(100);
        config.adaptive.successes = 3;
    });
    let url = moody.origin.url("/page");
    for _ in 0..8 {
        assert_eq!(curtsy.get(&url).status(), 200);
    }
    let last = curtsy.get(&url);
    assert!((delay(&last) - 0.01).abs() < 0.001, "{}", last.value("curtsy"));
}

/// S66
#[test]
fn a_quota_is_kept_before_anybody_is_refused() {
    let moody = Moody::with(|number| {
        let left = 3_usize.saturating_sub(number + 1);
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nRateLimit: \"q\";r={left};t=1\r\n\r\n")
    });
    let curtsy = learning(|config| config.politeness.delay = Duration::ZERO);
    let watch = Stopwatch::start();
    for _ in 0..3 {
        assert_eq!(curtsy.get(&moody.origin.url("/page")).status(), 200);
    }
    assert!(watch.elapsed() >= ms(500), "three of three in {:?}", watch.elapsed());
    let fourth = curtsy.get(&moody.origin.url("/page"));
    assert_eq!(fourth.status(), 200, "{}", fourth.text());
    assert!(watch.elapsed() >= ms(1_000), "the fourth of three in {:?}", watch.elapsed());
}

/// S72
#[test]
fn a_forbidden_page_teaches_nothing_but_a_forbidden_page_with_a_limit_does() {
    let forbidden = Moody::with(|_| "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_owned());
    let curtsy = learning(|_| ());
    assert_eq!(curtsy.get(&forbidden.origin.url("/")).status(), 403);
    assert_eq!(curtsy.metric("curtsy_learned_delay_changes_total"), 0);
    let spent = "X-RateLimit-Remaining: 0\r\nX-RateLimit-Reset: 1\r\n";
    let limited = Moody::with(move |_| format!("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n{spent}\r\n"));
    assert_eq!(curtsy.get(&limited.origin.url("/")).status(), 403);
    assert_eq!(curtsy.metric("curtsy_throttled_total{status=\"other\"}"), 1);
}

/// Where 403 turns out to mean "too fast", the client sees the first few and none of the later ones.
#[test]
fn a_refusal_in_disguise_is_tried_again_once_it_is_known() {
    let forbidden = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
    let is_refused = |number: usize| (12..18).contains(&number) || number == 22;
    let moody = Moody::with(move |n| if is_refused(n) { forbidden.to_owned() } else { HELLO.to_owned() });
    let curtsy = learning(|config| config.politeness.learner = Learner::Auto);
    let statuses: Vec<u16> = (0..24).map(|_| curtsy.get(&moody.origin.url("/page")).status()).collect();
    let seen = |status| statuses.iter().filter(|seen| **seen == status).count();
    assert_eq!((seen(200), seen(403), moody.times().len()), (19, 5, 26), "{statuses:?}");
    assert_eq!(curtsy.metric("curtsy_retries_total"), 2);
}

#[test]
fn a_host_that_only_fails_is_left_alone() {
    let hole = Hole::refusing();
    let curtsy = learning(|config| {
        config.politeness.delay = Duration::ZERO;
        config.breaker.failures = 3;
    });
    for _ in 0..3 {
        assert_eq!(curtsy.get(&hole.url()).refusal(), "origin-unreachable");
    }
    let refused = curtsy.get(&hole.url());
    assert_eq!((refused.status(), refused.refusal().as_str()), (503, "breaker-open"));
    let seconds: u64 = refused.value("retry-after").parse().expect("seconds");
    assert!((28..=32).contains(&seconds), "{seconds}");
    assert_eq!(curtsy.metric("curtsy_breaker_openings_total"), 1);
}

#[test]
fn a_broken_host_is_tried_and_closes_the_breaker_when_it_is_well() {
    let ill = |_: usize| "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned();
    let moody = Moody::with(move |number| if number < 3 { ill(number) } else { HELLO.to_owned() });
    let curtsy = learning(|config| {
        config.politeness.delay = Duration::ZERO;
        config.breaker.failures = 3;
        config.breaker.cooldown = ms(3_000);
    });
    let url = moody.origin.url("/");
    for _ in 0..3 {
        assert_eq!(curtsy.get(&url).status(), 500);
    }
    assert_eq!(curtsy.get(&url).refusal(), "breaker-open");
    assert!(soon(|| curtsy.get(&url).status() == 200), "it is never tried again");
    assert_eq!(curtsy.get(&url).status(), 200);
}

#[test]
fn a_job_whose_requests_all_fail_is_stopped() {
    let hole = Hole::refusing();
    let well = Origin::hello();
    let curtsy = learning(|config| {
        config.politeness.mode = Mode::Off;
        config.breaker.job_failures = 3;
    });
    let ask = |url: &str, name: &str| curtsy.ask(&[&format!("GET {url} HTTP/1.1"), &format!("Curtsy-Client: {name}")]);
    // A success in between resets the count.
    for url in [hole.url(), hole.url(), well.url("/"), hole.url(), hole.url(), hole.url()] {
        assert_ne!(ask(&url, "spider").refusal(), "job-stopped");
    }
    let stopped = ask(&well.url("/"), "spider");
    assert_eq!((stopped.status(), stopped.refusal().as_str()), (403, "job-stopped"));
    assert!(stopped.text().contains("the last 3 requests to this host failed"), "{}", stopped.text());
    assert_eq!(ask(&well.url("/"), "other").status(), 200);
    assert_eq!(curtsy.get(&well.url("/")).status(), 200, "a client without a name is no job");
    assert_eq!(curtsy.metric("curtsy_jobs_stopped_total"), 1);
}

/// Tunnels count, too, and a host without an address is a failure even if its robots.txt would be fetched first.
#[test]
fn a_job_is_stopped_for_tunnels_too() {
    let well = Origin::hello();
    let curtsy = Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.breaker.job_failures = 3;
    });
    let name = "Curtsy-Client: spider";
    assert_eq!(curtsy.ask(&["GET http://no-such-name.invalid/ HTTP/1.1", name]).refusal(), "origin-unreachable");
    for _ in 0..2 {
        let line = "CONNECT no-such-name.invalid:443 HTTP/1.1";
        assert_eq!(curtsy.ask(&[line, "Host: x", name]).refusal(), "origin-unreachable");
    }
    for line in ["GET http://no-such-name.invalid/ HTTP/1.1", "CONNECT no-such-name.invalid:443 HTTP/1.1"] {
        assert_eq!(curtsy.ask(&[line, "Host: x", name]).refusal(), "job-stopped");
    }
    let tunnel = format!("CONNECT {} HTTP/1.1", well.authority());
    // This host speaks no TLS, so no connection for its robots.txt gets ready.
    assert_eq!(curtsy.ask(&[&tunnel, "Host: x", name]).refusal(), "origin-timeout", "another host");
}

/// A safe method may have a body; curtsy keeps a body of up to 64 KiB for a retry.
#[test]
fn a_small_body_of_a_safe_method_is_sent_again() {
    let moody = Moody::with(|number| if number == 0 { refusal("") } else { HELLO.to_owned() });
    let curtsy = learning(|_| ());
    let mut client = curtsy.client();
    let query = "what is it?";
    let length = format!("Content-Length: {}", query.len());
    client.send_head(&[&moody.origin.get("/search"), &length]);
    client.send(query);
    assert_eq!(client.response().status(), 200);
    for request in moody.origin.requests(2) {
        assert_eq!((request.line().as_str(), request.text().as_str()), ("GET /search HTTP/1.1", query));
    }
    // Too large to keep: the body is streamed, and the client gets the refusal.
    let large = Moody::on("127.0.0.2", |_| refusal("X-Own: yes\r\n"));
    let mut client = curtsy.client();
    client.send_head(&[&large.origin.get("/search"), "Content-Length: 65537"]);
    client.send("x".repeat(65_537));
    let answer = client.response();
    assert_eq!((answer.status(), answer.value("x-own").as_str(), large.times().len()), (429, "yes", 1));
}
