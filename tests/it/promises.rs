//! Hard cases of the promises (docs/promises.md) that no other module covers: hosts and clients that misbehave.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, Mode, StateDir};

use crate::support::{Client, Curtsy, HELLO, Hole, Origin, Stopwatch, Visitor, expect_gaps, ms, soon};

const DELAY: Duration = ms(250);

fn paced(delay: Duration, change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
        change(config);
    })
}

/// Answers the n-th request with the n-th of `answers`, then always with the last one, and notes when each came.
fn noting(
    times: Arc<Mutex<Vec<Duration>>>,
    watch: Stopwatch,
    answers: &'static [&'static str],
) -> impl Fn(&mut Visitor) {
    let count = AtomicUsize::new(0);
    move |visitor| {
        while let Some(request) = visitor.request() {
            times.lock().expect("no test thread has panicked").push(watch.at(request.at));
            visitor.send(answers[count.fetch_add(1, Relaxed).min(answers.len() - 1)]);
        }
    }
}

fn sorted(times: &Mutex<Vec<Duration>>) -> Vec<Duration> {
    let mut times = times.lock().expect("no test thread has panicked").clone();
    times.sort();
    times
}

/// Promise 2, X64: nothing that an origin or a client sends makes curtsy faster than configured.
#[test]
fn nothing_from_outside_makes_it_faster() {
    const EAGER: &str = "HTTP/1.1 200 OK\r\nRetry-After: 0\r\nRateLimit: \"default\";r=100000;t=1\r\n\
        RateLimit-Policy: \"default\";q=100000;w=1\r\nX-RateLimit-Remaining: 100000\r\nX-RateLimit-Reset: 1\r\n\
        Curtsy: delay=0\r\nCrawl-Delay: 0\r\nContent-Length: 5\r\n\r\nhello";
    let (watch, times) = (Stopwatch::start(), Arc::default());
    let origin = Origin::scripted(noting(Arc::clone(&times), watch, &[EAGER]));
    let curtsy = paced(DELAY, |config| config.politeness.concurrency = 9);
    let fields: [&[&str]; 5] = [
        &["Priority: u=0", "Curtsy-Priority: 1"],
        &["Curtsy-Delay: 0", "Curtsy-Rate: 1000/s"],
        &["Curtsy-Max-Wait: 100000", "Prefer: wait=100000"],
        &["Curtsy-Client: a", "X-Forwarded-For: 10.0.0.1"],
        &["Curtsy-Client: b", "Retry-After: 0"],
    ];
    let line = origin.get("/");
    let mut clients: Vec<Client> = Vec::new();
    for own in fields {
        let mut client = curtsy.client();
        client.send_head(&[&[line.as_str(), "Host: x"], own].concat());
        clients.push(client);
    }
    for client in &mut clients {
        assert_eq!(client.response().status(), 200);
    }
    curtsy.expect_gaps(&sorted(&times), DELAY);
}

/// Promise 3, S65: no request of any client starts while the host is held.
#[test]
fn no_request_starts_while_the_host_is_held() {
    const HELD: &str = "HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n";
    let (watch, times) = (Stopwatch::start(), Arc::default());
    let origin = Origin::scripted(noting(Arc::clone(&times), watch, &[HELD, HELLO]));
    let curtsy = paced(ms(20), |config| config.retry.max = 0);
    let line = origin.get("/");
    let mut clients: Vec<Client> = (0..4).map(|_| curtsy.client()).collect();
    clients[0].send_head(&[&line, "Host: x"]);
    assert_eq!(clients[0].response().status(), 503);
    let held = watch.at(clients[0].arrived());
    for client in &mut clients[1..] {
        client.send_head(&[&line, "Host: x", "Priority: u=0"]);
    }
    for client in &mut clients[1..] {
        assert_eq!(client.response().status(), 200);
    }
    let times = sorted(&times);
    // The hold counts from when curtsy read the answer, a moment before the client read it.
    assert!(times[1] + ms(100) >= held + Duration::from_secs(2), "held at {held:?}: {times:?}");
    curtsy.expect_gaps(&times[1..], ms(20));
}

/// Promise 5: full places, hanging connections, a closed port and a long queue at other hosts do not delay this host.
#[test]
fn hosts_that_do_their_worst_slow_no_other() {
    let silent = Origin::on("127.0.9.1", |visitor| while visitor.read_some().is_ok() {});
    let hole = Hole::silent();
    let closed = Origin::on("127.0.9.3", |_| ()).url("/");
    let good = Origin::on("127.0.9.4", |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO);
        }
    });
    let curtsy = paced(ms(1), |config| config.politeness.concurrency = 2);
    let mut stuck = Vec::new();
    for url in [silent.url("/"), hole.url(), closed] {
        for _ in 0..10 {
            let mut client = curtsy.client();
            client.send_head(&[&format!("GET {url} HTTP/1.1"), "Host: x"]);
            stuck.push(client);
        }
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") >= 8), "the others do not wait");
    for number in 1..=20 {
        assert_eq!(curtsy.get(&good.url("/")).status(), 200);
        assert_eq!(good.count(), number);
    }
    assert!(silent.connections() <= 4, "all others wait");
}

/// Promise 6: every request gets an answer, whatever the host does and however many requests there are.
#[test]
fn everyone_gets_an_answer() {
    let silent = Origin::on("127.0.9.11", |visitor| while visitor.read_some().is_ok() {});
    let rude = Origin::on("127.0.9.12", |visitor| {
        visitor.request_head();
    });
    let curtsy = paced(ms(100), |config| {
        config.politeness.concurrency = 1;
        config.politeness.max_wait = ms(800);
        config.politeness.max_queue = 6;
        config.upstream.response_timeout = ms(500);
    });
    let asked = |origin: &Origin, number: usize| {
        let (mut client, line) = (curtsy.client(), origin.get(&format!("/{number}")));
        client.send_head(&[&line, "Host: x"]);
        client
    };
    let mut clients: Vec<Client> = (0..30).map(|n| asked(if n % 2 == 0 { &silent } else { &rude }, n)).collect();
    let mut answers: Vec<(u16, String)> = Vec::new();
    for client in &mut clients {
        let answer = client.response();
        answers.push((answer.status(), answer.refusal()));
    }
    assert!(answers.iter().all(|(status, code)| [429, 502, 503, 504].contains(status) && !code.is_empty()));
    assert!(answers.iter().any(|(_, code)| code == "queue-full"), "{answers:?}");
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 0 && curtsy.metric("curtsy_inflight_requests") == 0));
}

/// Promise 8, X35: the numbers of hosts and of waiting requests are bounded, whatever clients ask for.
#[test]
fn what_is_kept_is_bounded() {
    let origin = Origin::hello();
    let curtsy = paced(ms(5_000), |config| {
        config.hosts.max = 3;
        config.politeness.max_queue = 4;
        config.pacing.max_queue_total = 6;
    });
    let mut clients: Vec<Client> = Vec::new();
    for number in 0..60 {
        let mut client = curtsy.client();
        let line = format!("GET http://127.0.10.{}:{}/ HTTP/1.1", 1 + number % 10, origin.port());
        client.send_head(&[&line, "Host: x", &format!("Curtsy-Client: c{number}")]);
        clients.push(client);
        assert!(curtsy.metric("curtsy_hosts") <= 3 && curtsy.metric("curtsy_queued_requests") <= 6);
    }
    assert_eq!(curtsy.metric("curtsy_hosts"), 3);
    assert!(curtsy.metric("curtsy_rejections_total{reason=\"hosts_full\"}") > 0);
    assert!(curtsy.metric("curtsy_rejections_total{reason=\"queue_full\"}") > 0);
    drop(clients);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 0));
}

/// Promise 9: no request waits for a state file that is locked.
#[test]
fn a_disk_that_does_not_answer_delays_no_request() {
    const LEARNED: &str = "HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n";
    let state = tempfile::tempdir().expect("a directory of its own");
    let times: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let origin = Origin::scripted(noting(times.clone(), Stopwatch::start(), &[HELLO, LEARNED, HELLO]));
    let curtsy = paced(ms(10), |config| {
        config.state_dir = StateDir::Path(state.path().to_owned());
        config.retry.max = 0;
    });
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let database = rusqlite::Connection::open(state.path().join("state.db")).expect("the state file is there");
    database.busy_timeout(Duration::from_secs(5)).expect("a sound setting");
    database.execute_batch("BEGIN IMMEDIATE").expect("no other writer");
    // curtsy has to write what it learns here, which it cannot before the end of the test.
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    for _ in 0..3 {
        assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    }
    expect_gaps(&sorted(&times), ms(10));
    database.execute_batch("ROLLBACK").expect("the transaction is open");
    thread::yield_now();
}
