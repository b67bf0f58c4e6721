//! Pacing as the origin sees it. Delays are short, so that a test takes about a second.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, HostPattern, HostRule, Key, Mode, ResponseHeaders};

use crate::support::{
    Client, Curtsy, HELLO, Hole, Message, Origin, ROOM, Stopwatch, Visitor, expect_gaps, ms, pause, soon,
};

const DELAY: Duration = ms(250);

/// An origin that notes when each request came.
struct Guestbook {
    origin: Origin,
    arrivals: Arrivals,
}

type Arrivals = Arc<Mutex<Vec<(Duration, String)>>>;

impl Guestbook {
    fn open(watch: Stopwatch) -> Self {
        Guestbook::on("127.0.0.1", watch, Duration::ZERO)
    }

    /// An origin at this address that takes `thinking` to answer.
    fn on(ip: &str, watch: Stopwatch, thinking: Duration) -> Self {
        let arrivals = Arrivals::default();
        Guestbook { origin: Origin::on(ip, noting(arrivals.clone(), watch, thinking)), arrivals }
    }

    /// An origin behind a hole, whose connections have hung until now.
    fn behind(hole: Hole, watch: Stopwatch) -> Self {
        let arrivals = Arrivals::default();
        Guestbook { origin: hole.open(noting(arrivals.clone(), watch, Duration::ZERO)), arrivals }
    }

    /// The notes in the order of arrival; threads may have noted them in another order.
    fn notes(&self) -> Vec<(Duration, String)> {
        let mut notes = self.arrivals.lock().expect("no test thread has panicked").clone();
        notes.sort();
        notes
    }

    fn times(&self) -> Vec<Duration> {
        self.notes().into_iter().map(|(time, _)| time).collect()
    }

    fn lines(&self) -> Vec<String> {
        self.notes().into_iter().map(|(_, line)| line).collect()
    }

    #[track_caller]
    fn expect_gaps(&self, least: Duration) {
        expect_gaps(&self.times(), least);
    }
}

fn noting(book: Arrivals, watch: Stopwatch, thinking: Duration) -> impl Fn(&mut Visitor) + Send + Sync {
    move |visitor| {
        while let Some(request) = visitor.request() {
            book.lock().expect("no test thread has panicked").push((watch.at(request.at), request.line()));
            pause(thinking);
            visitor.send(HELLO.as_bytes());
        }
    }
}

fn paced(delay: Duration, change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
        change(config);
    })
}

/// Sends one request on a new connection from a new thread.
fn visit(curtsy: &Curtsy, url: String, fields: &'static [&'static str]) -> thread::JoinHandle<Message> {
    let mut client = curtsy.client();
    thread::spawn(move || {
        let line = format!("GET {url} HTTP/1.1");
        let lines: Vec<&str> = std::iter::once(line.as_str()).chain(fields.iter().copied()).collect();
        client.ask(&lines)
    })
}

fn expect_no_violation(curtsy: &Curtsy) {
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

#[test]
fn first_request_is_not_delayed() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(60_000), |_| {}));
    let book = Guestbook::open(watch);
    let asked = watch.elapsed();
    assert_eq!(curtsy.get(&book.origin.url("/")).status(), 200);
    assert!(book.times()[0] - asked < ms(30_000));
}

#[test]
fn second_within_the_interval_waits_and_after_it_does_not() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let book = Guestbook::open(watch);
    curtsy.get(&book.origin.url("/1"));
    curtsy.get(&book.origin.url("/2"));
    book.expect_gaps(DELAY);
    pause(DELAY * 2);
    let now_or_never = curtsy.ask(&[&book.origin.get("/3"), "Host: x", "Curtsy-Max-Wait: 0"]);
    assert_eq!(now_or_never.status(), 200, "{}", now_or_never.text());
    expect_no_violation(&curtsy);
}

/// Requests that arrive at 0, 0.5 and 1.2 delays start at 0, 1 and 2 delays at the earliest. `turns_tests.rs` checks
/// with a simulated clock that they start no later.
#[test]
fn starts_keep_the_grid_of_the_first() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let book = Guestbook::open(watch);
    let first = visit(&curtsy, book.origin.url("/"), &[]);
    pause(DELAY / 2);
    let second = visit(&curtsy, book.origin.url("/"), &[]);
    pause(DELAY * 7 / 10);
    let third = visit(&curtsy, book.origin.url("/"), &[]);
    for visit in [first, second, third] {
        assert_eq!(visit.join().unwrap().status(), 200);
    }
    let times = book.times();
    assert!(times[2] - times[0] + ROOM >= DELAY * 2, "{times:?}");
    book.expect_gaps(DELAY);
}

#[test]
fn five_at_once_start_one_delay_apart() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let book = Guestbook::open(watch);
    let visits: Vec<_> = (0..5).map(|n| visit(&curtsy, book.origin.url(&format!("/{n}")), &[])).collect();
    for visit in visits {
        assert_eq!(visit.join().unwrap().status(), 200);
    }
    expect_no_violation(&curtsy);
    book.expect_gaps(DELAY);
    let times = book.times();
    assert!(times[4] - times[0] < DELAY * 4 + ms(10_000), "the line lost time: {times:?}");
}

#[test]
fn different_hosts_do_not_wait_for_each_other() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(60_000), |_| {}));
    let books: Vec<_> = (1..=8).map(|n| Guestbook::on(&format!("127.0.7.{n}"), watch, Duration::ZERO)).collect();
    let asked = watch.elapsed();
    let visits: Vec<_> = books.iter().map(|book| visit(&curtsy, book.origin.url("/"), &[])).collect();
    for visit in visits {
        assert_eq!(visit.join().unwrap().status(), 200);
    }
    assert!(watch.elapsed() - asked < ms(30_000));
}

/// X67: spellings of one host share one budget.
#[test]
fn another_spelling_is_no_other_host() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let book = Guestbook::open(watch);
    let port = book.origin.port();
    for host in ["127.0.0.1", "127.1", "0x7f000001", "2130706433"] {
        assert_eq!(curtsy.get(&format!("http://{host}:{port}/")).status(), 200, "{host}");
    }
    book.expect_gaps(DELAY);
}

#[test]
fn fifty_clients_share_one_pace() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(40), |_| {}));
    let book = Guestbook::open(watch);
    let visits: Vec<_> = (0..50).map(|n| visit(&curtsy, book.origin.url(&format!("/{n}")), &[])).collect();
    for visit in visits {
        assert_eq!(visit.join().unwrap().status(), 200);
    }
    let times = book.times();
    assert!(times[49] - times[0] + ROOM >= ms(40) * 49, "too fast: {:?}", times[49] - times[0]);
    expect_no_violation(&curtsy);
}

#[test]
fn the_rule_of_a_host_beats_the_general_one() {
    let (watch, pattern) = (Stopwatch::start(), HostPattern::Name("127.0.7.20".to_owned()));
    let rule = HostRule { patterns: vec![pattern], delay: Some(DELAY), ..HostRule::default() };
    let curtsy = paced(ms(60_000), |config| config.host = vec![rule]);
    let book = Guestbook::on("127.0.7.20", watch, Duration::ZERO);
    curtsy.get(&book.origin.url("/1"));
    assert_eq!(curtsy.get(&book.origin.url("/2")).status(), 200);
    book.expect_gaps(DELAY);
}

#[test]
fn zero_turns_spacing_off() {
    let (watch, curtsy) = (Stopwatch::start(), paced(Duration::ZERO, |_| {}));
    let book = Guestbook::open(watch);
    for _ in 0..20 {
        curtsy.get(&book.origin.url("/"));
    }
    assert_eq!(book.times().len(), 20);
    assert!(watch.elapsed() < ms(15_000));
}

/// X41: the refusal comes at once, and a client that returns after Retry-After gets in.
#[test]
fn a_request_that_would_wait_too_long_is_told_when_to_come_back() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(1500), |_| {}));
    let book = Guestbook::open(watch);
    curtsy.get(&book.origin.url("/"));
    let refusal = curtsy.ask(&[&book.origin.get("/"), "Host: x", "Curtsy-Max-Wait: 0"]);
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (429, "wait-too-long"));
    assert!(refusal.text().contains("politeness.max_wait is "), "{}", refusal.text());
    let seconds: u64 = refusal.value("Retry-After").parse().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    pause(Duration::from_secs(seconds));
    let answer = curtsy.ask(&[&book.origin.get("/"), "Host: x", "Curtsy-Max-Wait: 0"]);
    assert_eq!(answer.status(), 200);
    book.expect_gaps(ms(1500));
}

/// S79
#[test]
fn prefer_wait_bounds_the_wait_too() {
    let curtsy = paced(ms(60_000), |_| {});
    let origin = Origin::hello();
    curtsy.get(&origin.url("/"));
    assert_eq!(curtsy.ask(&[&origin.get("/"), "Host: x", "Prefer: wait=2"]).refusal(), "wait-too-long");
}

/// S70
#[test]
fn a_refusal_says_when_to_come_back_and_nothing_about_quotas() {
    let curtsy = paced(ms(60_000), |_| {});
    let origin = Origin::hello();
    curtsy.get(&origin.url("/"));
    let refusal = curtsy.ask(&[&origin.get("/"), "Host: x", "Prefer: wait=2"]);
    assert!(refusal.value("Retry-After").parse::<u64>().is_ok_and(|seconds| seconds > 50), "{}", refusal.head());
    assert!(!refusal.head().to_ascii_lowercase().contains("ratelimit"), "{}", refusal.head());
}

/// X41
#[test]
fn a_full_queue_refuses_the_next() {
    let curtsy = paced(ms(3000), |config| config.politeness.max_queue = 2);
    let origin = Origin::hello();
    curtsy.get(&origin.url("/"));
    let line = origin.get("/");
    let mut waiting: Vec<Client> = (0..4).map(|_| curtsy.client()).collect();
    for client in &mut waiting {
        client.send_head(&[&line, "Host: x"]);
    }
    assert!(soon(|| curtsy.ask(&[&line, "Host: x"]).refusal() == "queue-full"));
}

/// A client that disconnects leaves the queue at once and spends no turn.
#[test]
fn a_hundred_clients_that_leave_delay_no_other() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(5_000), |config| config.politeness.max_wait = ms(3_600_000)));
    let book = Guestbook::open(watch);
    curtsy.get(&book.origin.url("/first"));
    let line = book.origin.get("/ghost");
    let ghosts: Vec<Client> = (0..100)
        .map(|_| {
            let mut client = curtsy.client();
            client.send_head(&[&line, "Host: x"]);
            client
        })
        .collect();
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 100));
    drop(ghosts);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 0));
    assert_eq!(curtsy.get(&book.origin.url("/last")).status(), 200);
    let times = book.times();
    assert_eq!(times.len(), 2, "a ghost was sent: {:?}", book.lines());
    assert!(times[1] - times[0] < ms(20_000), "{times:?}");
}

/// X65: the backlog of one client does not delay another client.
#[test]
fn the_line_is_fair_between_clients() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let book = Guestbook::open(watch);
    curtsy.get(&book.origin.url("/first"));
    let line = book.origin.get("/crowd");
    let mut crowd: Vec<Client> = (0..20).map(|_| curtsy.client()).collect();
    for client in &mut crowd {
        client.send_head(&[&line, "Host: x", "Curtsy-Client: crowd"]);
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") >= 18));
    let single = visit(&curtsy, book.origin.url("/single"), &["Curtsy-Client: single"]);
    assert_eq!(single.join().unwrap().status(), 200);
    // After the requests that were already called (as many as may be in flight), clients take alternate turns.
    let rank = book.lines().iter().position(|line| line.contains("/single")).unwrap();
    assert!(rank <= 9, "served as number {rank}");
}

/// At most two are in flight, although the delay would allow more.
#[test]
fn no_more_than_concurrency_are_in_flight() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(1), |config| config.politeness.concurrency = 2));
    let book = Guestbook::on("127.0.0.1", watch, ms(400));
    let visits: Vec<_> = (0..6).map(|_| visit(&curtsy, book.origin.url("/"), &[])).collect();
    for visit in visits {
        assert_eq!(visit.join().unwrap().status(), 200);
    }
    let times = book.times();
    assert!(times[2] - times[0] + ROOM >= ms(400), "{times:?}");
    assert!(times[4] - times[2] + ROOM >= ms(400), "{times:?}");
}

#[test]
fn report_mode_forwards_at_once_and_tells_what_it_would_have_done() {
    let curtsy = paced(ms(60_000), |config| config.politeness.mode = Mode::Report);
    let (watch, origin) = (Stopwatch::start(), Origin::hello());
    let told: Vec<String> = (0..3).map(|_| curtsy.get(&origin.url("/")).value("Curtsy")).collect();
    let took = watch.elapsed();
    assert!(took < ms(30_000));
    let would_wait = |told: &String| {
        let seconds = told.rsplit_once("would-wait=").and_then(|(_, seconds)| seconds.parse().ok());
        Duration::from_secs_f64(seconds.unwrap_or_else(|| panic!("{told}")))
    };
    let would: Vec<Duration> = told.iter().map(would_wait).collect();
    assert_eq!(would[0], ms(0), "{told:?}");
    for (visit, turn) in [(1, ms(60_000)), (2, ms(120_000))] {
        // Rounded down to milliseconds.
        assert!(would[visit] <= turn && would[visit] + took + ms(1) >= turn, "{told:?} in {took:?}");
    }
    assert_eq!(curtsy.metric("curtsy_would_wait_seconds_count"), 3);
    assert_eq!(curtsy.metric("curtsy_requests_would_wait_total"), 2);
}

/// Three requests for one place: the second would have waited for the first, the third for both.
#[test]
fn report_mode_counts_waiting_for_a_place() {
    let curtsy = paced(Duration::ZERO, |config| {
        config.politeness.mode = Mode::Report;
        config.politeness.concurrency = 1;
    });
    let book = Guestbook::on("127.0.7.30", Stopwatch::start(), ms(3_000));
    // One after the other, so that they are sent in the order of arrival.
    let come = |number: usize| {
        let visit = visit(&curtsy, book.origin.url("/"), &[]);
        assert!(soon(|| book.times().len() == number));
        visit
    };
    let visits: Vec<_> = (1..=3).map(come).collect();
    let mut told: Vec<f64> = visits
        .into_iter()
        .map(|visit| {
            let told = visit.join().unwrap().value("Curtsy");
            told.split("would-wait=").nth(1).and_then(|wait| wait.parse().ok()).unwrap_or_else(|| panic!("{told}"))
        })
        .collect();
    told.sort_by(f64::total_cmp);
    let times = book.times();
    assert!(times[2] - times[0] < ms(2_500), "not forwarded at once: {times:?}");
    assert!(told[0] < 0.5 && (1.5..5.5).contains(&told[1]) && (4.5..10.0).contains(&told[2]), "{told:?}");
    assert_eq!(curtsy.metric("curtsy_requests_would_wait_total"), 2);
}

/// Response fields say how long the request waited and why, unless they are turned off.
#[test]
fn a_response_tells_of_its_wait() {
    let curtsy = paced(ms(1100), |_| {});
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nServer-Timing: db\r\nContent-Length: 0\r\n\r\n");
    let first = curtsy.get(&origin.url("/"));
    assert!(first.value("Curtsy").starts_with("wait=0.0"), "{}", first.value("Curtsy"));
    assert!(!first.has("Proxy-Status"));
    let second = curtsy.get(&origin.url("/"));
    let told = second.value("Curtsy");
    assert!(told.starts_with("wait=1.0") || told.starts_with("wait=1.1"), "{told}");
    assert!(told.contains("delay=1.100, why=configured, queue=0"), "{told}");
    assert_eq!(second.values("Server-Timing")[0], "db");
    assert!(second.values("Server-Timing")[1].starts_with("curtsy-wait;dur=1"));
    assert!(second.value("Proxy-Status").contains("waited 1."));
    curtsy.reload(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = Duration::ZERO;
        config.responses.headers = ResponseHeaders::Errors;
    });
    assert!(!curtsy.get(&origin.url("/")).has("Curtsy"));
}

/// A reload applies to requests that already wait.
#[test]
fn a_shorter_delay_frees_waiting_requests() {
    let (watch, curtsy) = (Stopwatch::start(), paced(ms(60_000), |_| {}));
    let book = Guestbook::open(watch);
    curtsy.get(&book.origin.url("/"));
    let second = visit(&curtsy, book.origin.url("/"), &[]);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    curtsy.reload(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
    });
    assert_eq!(second.join().unwrap().status(), 200);
    book.expect_gaps(DELAY);
}

/// A CONNECT waits for its turn before it gets its 200.
#[test]
fn tunnels_take_turns() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |_| {}));
    let origin = Origin::hello();
    let line = format!("CONNECT {} HTTP/1.1", origin.authority());
    let mut granted = Vec::new();
    let mut tunnels = Vec::new();
    for _ in 0..3 {
        let mut client = curtsy.client();
        client.send_head(&[&line, "Host: x"]);
        assert_eq!(client.response_head().status(), 200);
        granted.push(watch.at(client.arrived()));
        tunnels.push(client);
    }
    expect_gaps(&granted, DELAY);
}

/// A request that is sent again on a new connection is a second request start.
#[test]
fn a_resend_waits_its_turn() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |config| config.upstream.keep_alive = ms(20_000)));
    let arrivals: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let book = arrivals.clone();
    let origin = Origin::scripted(move |visitor| {
        // The first connection answers once and closes on the second request; the others answer.
        let mut left = if book.lock().expect("no test thread has panicked").is_empty() { 1 } else { 10 };
        while let Some(request) = visitor.request() {
            book.lock().expect("no test thread has panicked").push(watch.at(request.at));
            if left == 0 {
                return;
            }
            left -= 1;
            visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        }
    });
    assert_eq!(curtsy.get(&origin.url("/1")).status(), 200);
    assert_eq!(curtsy.get(&origin.url("/2")).status(), 200);
    let times = arrivals.lock().expect("no test thread has panicked").clone();
    assert_eq!(times.len(), 3);
    expect_gaps(&times, DELAY);
    expect_no_violation(&curtsy);
}

/// X35: `max_queue_total` bounds the queues of all hosts together, and one client address may have half of it.
#[test]
fn all_hosts_together_have_a_bound() {
    let curtsy = paced(ms(5000), |config| {
        config.politeness.max_queue = 2;
        config.pacing.max_queue_total = 4;
    });
    let origins: Vec<_> = (1..=4).map(|n| Guestbook::on(&format!("127.0.8.{n}"), Stopwatch::start(), ms(0))).collect();
    let mut clients: Vec<Client> = Vec::new();
    for book in &origins {
        curtsy.get(&book.origin.url("/"));
    }
    for book in &origins[..2] {
        let mut client = curtsy.client();
        client.send_head(&[&book.origin.get("/"), "Host: x"]);
        clients.push(client);
    }
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 2));
    assert_eq!(curtsy.ask(&[&origins[3].origin.get("/"), "Host: x"]).refusal(), "queue-full");
}

/// X67: with `key = "ip"` hosts on one address share its budget.
#[test]
fn hosts_on_one_address_can_share_a_budget() {
    let (watch, curtsy) = (Stopwatch::start(), paced(DELAY, |config| config.pacing.key = Key::Ip));
    let book = Guestbook::open(watch);
    let port = book.origin.port();
    for host in ["127.0.0.1", "localhost", "127.0.0.1"] {
        assert_eq!(curtsy.get(&format!("http://{host}:{port}/")).status(), 200, "{host}");
    }
    book.expect_gaps(DELAY);
}

/// Idle hosts are removed from memory, but not before their delay is over.
#[test]
fn idle_hosts_are_forgotten() {
    let curtsy = paced(ms(700), |config| {
        config.hosts.idle = ms(50);
        config.hosts.sweep = ms(50);
    });
    let origin = Origin::hello();
    curtsy.get(&origin.url("/"));
    assert_eq!(curtsy.metric("curtsy_hosts"), 1);
    let (watch, book) = (Stopwatch::start(), Guestbook::on("127.0.8.20", Stopwatch::start(), ms(0)));
    curtsy.get(&book.origin.url("/1"));
    curtsy.get(&book.origin.url("/2"));
    book.expect_gaps(ms(700));
    assert!(watch.elapsed() >= ms(600));
    assert!(soon(|| curtsy.metric("curtsy_hosts") == 0));
}

/// Promise 5, X35, X36: if more than `hosts.max` hosts are visited within a delay, further hosts are refused with a
/// Retry-After. After that they get lanes of their own.
#[test]
fn a_full_registry_refuses_until_a_host_can_be_forgotten() {
    let delay = Duration::from_secs(3);
    let (watch, curtsy) = (Stopwatch::start(), paced(delay, |config| config.hosts.max = 2));
    let books: Vec<_> = (1..=4).map(|n| Guestbook::on(&format!("127.0.8.{}", 30 + n), watch, ms(0))).collect();
    for book in &books[..2] {
        assert_eq!(curtsy.get(&book.origin.url("/")).status(), 200);
    }
    let refusal = curtsy.get(&books[2].origin.url("/"));
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (503, "hosts-full"));
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"hosts_full\"}"), 1);
    let seconds: u64 = refusal.value("Retry-After").parse().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    let first = books[0].times()[0];
    pause((first + delay + ms(200)).saturating_sub(watch.elapsed()).max(Duration::from_secs(seconds)));
    // Each has its own lane, so they do not wait for each other.
    let (asked, others) = (watch.elapsed(), &books[2..]);
    for book in others {
        let answer = curtsy.get(&book.origin.url("/"));
        assert_eq!(answer.status(), 200);
        assert!(answer.value("Curtsy").starts_with("wait=0.000"), "{}", answer.value("Curtsy"));
    }
    assert!(asked < others[0].times()[0]);
    assert_eq!(curtsy.metric("curtsy_hosts"), 2);
    expect_no_violation(&curtsy);
}

/// Promise 1: the gap counts from the send. Here three TCP handshakes hang and then complete at the same time.
#[test]
fn handshakes_that_hang_compress_no_gap() {
    let (watch, hole, delay) = (Stopwatch::start(), Hole::silent(), ms(500));
    let curtsy = paced(delay, |_| ());
    let visits: Vec<_> = (0..3).map(|_| visit(&curtsy, hole.url(), &[])).collect();
    // All three are connecting before the hole opens.
    assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 3));
    pause(ms(300));
    let book = Guestbook::behind(hole, watch);
    for visit in visits {
        assert_eq!(visit.join().expect("an answer").status(), 200);
    }
    assert_eq!(book.times().len(), 3);
    assert!(book.times()[0] > ms(300), "the first handshake did not hang: {:?}", book.times());
    book.expect_gaps(delay);
    expect_no_violation(&curtsy);
}
