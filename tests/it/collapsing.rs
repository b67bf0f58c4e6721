//! Requests for the same URL at the same time: one is sent, and the others share its answer or lose nothing.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use curtsy::config::{Config, Mode, ResponseHeaders};
use serde_json::Value;

use crate::proxy_tls_http2::{connect, get, run};
use crate::support::http2_origin::Call;
use crate::support::proxy_tls::Own;
use crate::support::{Authority, Client, Curtsy, Http2Origin, Message, Origin, Stopwatch, expect_gaps, ms, soon};

const DELAY: Duration = ms(300);

/// An answer that says nothing about caching.
const PLAIN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
const PRIVATE: &str = "HTTP/1.1 200 OK\r\nCache-Control: private\r\nContent-Length: 5\r\n\r\nhello";
const FRESH: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 5\r\n\r\nhello";

/// An origin that answers nothing until it is opened.
struct Shut {
    origin: Origin,
    is_open: Arc<AtomicBool>,
}

impl Shut {
    /// Answers with what `answer` makes of the request.
    fn answering(answer: impl Fn(&Message) -> String + Send + Sync + 'static) -> Self {
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = is_open.clone();
        let origin = Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                soon(|| opened.load(SeqCst));
                visitor.send(answer(&request));
            }
        });
        Shut { origin, is_open }
    }

    fn with(answer: &'static str) -> Self {
        Shut::answering(move |_| answer.to_owned())
    }

    fn open(&self) {
        self.is_open.store(true, SeqCst);
    }

    fn times(&self, watch: Stopwatch) -> Vec<Duration> {
        self.origin.requests(0).iter().map(|request| watch.at(request.at)).collect()
    }
}

fn paced(delay: Duration, change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
        config.responses.headers = ResponseHeaders::Full;
        config.cache.collapse = true;
        config.breaker.failures = 0;
        config.retry.max = 0;
        change(config);
    })
}

/// Sends one request on a new connection, and reads the answer in another thread.
fn ask(curtsy: &Curtsy, line: &str, fields: &[&str]) -> JoinHandle<Message> {
    let mut client = curtsy.client();
    let lines: Vec<String> = std::iter::once(line).chain(fields.iter().copied()).map(str::to_owned).collect();
    thread::spawn(move || client.ask(&lines.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Sends a request that leads, and waits until the origin has it.
fn lead(curtsy: &Curtsy, shut: &Shut, path: &str) -> JoinHandle<Message> {
    let before = shut.origin.count();
    let leader = ask(curtsy, &shut.origin.get(path), &[]);
    assert!(soon(|| shut.origin.count() > before));
    leader
}

fn crowd(curtsy: &Curtsy, shut: &Shut, size: usize) -> Vec<JoinHandle<Message>> {
    (0..size).map(|_| ask(curtsy, &shut.origin.get("/"), &[])).collect()
}

/// Waits until so many requests wait at the host.
fn expect_waiting(curtsy: &Curtsy, count: u64) {
    let lines = ["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"];
    let queued = || serde_json::from_str::<Value>(&curtsy.ask_admin(&lines).text()).expect("JSON")["queued"].as_u64();
    assert!(soon(|| queued() == Some(count)), "{:?} wait, not {count}", queued());
}

fn answers(asked: Vec<JoinHandle<Message>>) -> Vec<Message> {
    asked.into_iter().map(|one| one.join().expect("an answer")).collect()
}

fn collapsed(curtsy: &Curtsy, result: &str) -> u64 {
    curtsy.metric(&format!("curtsy_cache_collapsed_total{{result=\"{result}\"}}"))
}

#[track_caller]
fn expect_hello(answers: &[Message]) {
    for answer in answers {
        assert_eq!((answer.status(), answer.body.as_slice()), (200, &b"hello"[..]), "{}", answer.head());
    }
}

/// Lets this many requests follow one, opens the origin, and returns their answers.
fn follow(curtsy: &Curtsy, shut: &Shut, followers: usize) -> Vec<Message> {
    let leader = lead(curtsy, shut, "/");
    let asked = crowd(curtsy, shut, followers);
    expect_waiting(curtsy, followers as u64);
    shut.open();
    let followed = answers(asked);
    expect_hello(&followed);
    expect_hello(&[leader.join().expect("an answer")]);
    followed
}

/// C38, C48, S82: also for clients on other workers.
#[test]
fn two_hundred_at_once_are_one_visit() {
    for workers in [1, 3] {
        let shut = Shut::with(PLAIN);
        let curtsy = paced(DELAY, |config| config.workers = workers);
        let followed = follow(&curtsy, &shut, 199);
        assert!(followed.iter().all(|answer| answer.value("cache-status").ends_with("; fwd=uri-miss; collapsed")));
        assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (1, 199));
        expect_waiting(&curtsy, 0);
        assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 0);
    }
}

/// A request that comes between the head of an answer and its end shares nothing. When its turn comes, it is answered
/// from what was stored meanwhile, with all that follow it.
#[test]
fn a_request_that_waits_finds_what_is_stored_meanwhile() {
    let is_open = Arc::new(AtomicBool::new(false));
    let opened = is_open.clone();
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            visitor.send(&FRESH[..FRESH.len() - 1]);
            soon(|| opened.load(SeqCst));
            visitor.send(&FRESH[FRESH.len() - 1..]);
        }
    });
    let curtsy = paced(Duration::from_secs(5), |_| ());
    let mut first = curtsy.client();
    first.send_head(&[&origin.get("/"), "Host: x"]);
    first.response_head();
    let later: Vec<_> = (0..3).map(|_| ask(&curtsy, &origin.get("/"), &[])).collect();
    expect_waiting(&curtsy, 3);
    is_open.store(true, SeqCst);
    assert!(soon(|| curtsy.metric("curtsy_cache_objects{tier=\"memory\"}") == 1));
    let later = answers(later);
    expect_hello(&later);
    assert!(later.iter().all(|answer| answer.value("cache-status").contains("; hit; ttl=")), "{}", later[0].head());
    assert_eq!((origin.count(), collapsed(&curtsy, "shared")), (1, 3));
    expect_waiting(&curtsy, 0);
}

/// Collapsing does not depend on pacing.
#[test]
fn requests_to_a_host_that_is_not_paced_share_too() {
    let shut = Shut::with(FRESH);
    let curtsy = Curtsy::with(|config| config.cache.collapse = true);
    let leader = lead(&curtsy, &shut, "/");
    let follower = ask(&curtsy, &shut.origin.get("/"), &[]);
    assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 2));
    shut.open();
    expect_hello(&answers(vec![leader, follower]));
    assert_eq!(shut.origin.count(), 1, "it followed, or came when the answer was stored");
}

/// C39
#[test]
fn a_private_answer_is_for_one_and_the_others_take_their_turns() {
    let (watch, shut) = (Stopwatch::start(), Shut::with(PRIVATE));
    let curtsy = paced(DELAY, |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let followers = crowd(&curtsy, &shut, 5);
    expect_waiting(&curtsy, 5);
    shut.open();
    expect_hello(&answers(followers));
    expect_hello(&[leader.join().expect("an answer")]);
    assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (6, 0));
    expect_gaps(&shut.times(watch), DELAY);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
    assert_eq!(collapsed(&curtsy, "released"), 5);
    // It is known by now, so the next request does not wait for it.
    assert_eq!(curtsy.get(&shut.origin.url("/")).status(), 200);
    assert_eq!(collapsed(&curtsy, "released"), 5);
}

/// C1 to C3: what is for one client is never shared, however it says so.
#[test]
fn answers_for_one_client_are_not_shared() {
    for field in [
        "Cache-Control: no-store",
        "Cache-Control: private=\"x\"",
        "Cache-Control: no-cache",
        "Cache-Control: max-age=0",
        "Set-Cookie: a=1",
        "Vary: *",
        "Pragma: no-cache",
        "Expires: 0",
    ] {
        let shut = Shut::answering(move |_| format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 5\r\n\r\nhello"));
        let curtsy = paced(ms(1), |_| {});
        let leader = lead(&curtsy, &shut, "/");
        let followers = crowd(&curtsy, &shut, 2);
        expect_waiting(&curtsy, 2);
        shut.open();
        expect_hello(&answers(followers));
        expect_hello(&[leader.join().expect("an answer")]);
        assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (3, 0), "{field}");
    }
}

/// Lets three requests follow one whose client leaves before the head comes. They share its answer.
fn lose_the_leader(curtsy: &Curtsy, shut: &Shut) {
    let before = shut.origin.count();
    let mut leader = curtsy.client();
    leader.send_head(&[&shut.origin.get("/")]);
    assert!(soon(|| shut.origin.count() > before));
    let followers = crowd(curtsy, shut, 3);
    expect_waiting(curtsy, 3);
    drop(leader);
    assert!(soon(|| curtsy.metric("curtsy_client_disconnects_total{stage=\"connecting\"}") == 1));
    shut.open();
    expect_hello(&answers(followers));
    assert_eq!((shut.origin.count(), collapsed(curtsy, "shared")), (before + 1, 3));
}

/// C40: the leader's client leaves before the head comes.
#[test]
fn a_leader_that_disconnects_leaves_its_answer_to_the_others() {
    lose_the_leader(&paced(DELAY, |_| {}), &Shut::with(PLAIN));
}

/// C40: what the others share is stored as if the leader were still there.
#[test]
fn the_answer_to_a_leader_that_disconnected_is_stored() {
    let (shut, curtsy) = (Shut::with(FRESH), paced(DELAY, |_| {}));
    lose_the_leader(&curtsy, &shut);
    let later = curtsy.get(&shut.origin.url("/"));
    assert!(later.value("cache-status").contains("; hit; "), "{}", later.head());
    assert_eq!(shut.origin.count(), 1);
}

/// C40: a 304 to a leader that left counts for all who wait for it.
#[test]
fn a_leader_that_disconnects_leaves_its_validation_to_the_others() {
    let (shut, curtsy) = (Shut::answering(validated), paced(DELAY, |_| {}));
    shut.open();
    expect_hello(&[curtsy.get(&shut.origin.url("/"))]);
    shut.is_open.store(false, SeqCst);
    lose_the_leader(&curtsy, &shut);
    assert_eq!(shut.origin.requests(0).iter().filter(|request| request.has("if-none-match")).count(), 1);
}

/// An origin that sends the head and the first part of a body, and the rest when it is opened.
fn in_two_parts(first: usize, rest: usize) -> (Origin, Arc<AtomicBool>, Arc<AtomicBool>) {
    let (begins, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begun, gone_on) = (begins.clone(), goes_on.clone());
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            soon(|| begun.load(SeqCst));
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", first + rest));
            visitor.send(vec![b'x'; first]);
            soon(|| gone_on.load(SeqCst));
            visitor.send(vec![b'y'; rest]);
        }
    });
    (origin, begins, goes_on)
}

/// C40: the leader's client leaves in the middle of the body.
#[test]
fn a_leader_that_disconnects_in_the_body_cuts_off_nobody() {
    let (origin, begins, goes_on) = in_two_parts(10, 10);
    let curtsy = paced(DELAY, |_| {});
    let mut leader = curtsy.client();
    leader.send_head(&[&origin.get("/")]);
    origin.request();
    let follower = ask(&curtsy, &origin.get("/"), &[]);
    expect_waiting(&curtsy, 1);
    begins.store(true, SeqCst);
    assert_eq!(leader.response_head().status(), 200);
    drop(leader);
    assert!(soon(|| curtsy.metric("curtsy_client_disconnects_total{stage=\"response\"}") == 1));
    goes_on.store(true, SeqCst);
    let answer = follower.join().expect("an answer");
    assert_eq!((answer.status(), answer.body.as_slice()), (200, &b"xxxxxxxxxxyyyyyyyyyy"[..]));
    assert_eq!(origin.count(), 1);
}

/// C40: a follower that leaves costs nothing.
#[test]
fn a_follower_that_disconnects_spends_no_turn() {
    let shut = Shut::with(PRIVATE);
    let curtsy = paced(DELAY, |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let mut gone: Vec<Client> = (0..3).map(|_| curtsy.client()).collect();
    gone.iter_mut().for_each(|client| client.send_head(&[&shut.origin.get("/")]));
    expect_waiting(&curtsy, 3);
    drop(gone);
    expect_waiting(&curtsy, 0);
    shut.open();
    expect_hello(&[leader.join().expect("an answer")]);
    assert_eq!(shut.origin.count(), 1);
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 3);
}

/// C41
#[test]
fn failures_are_tried_by_each_in_turn() {
    let (watch, shut) =
        (Stopwatch::start(), Shut::with("HTTP/1.1 500 Oh\r\nCache-Control: private\r\nContent-Length: 0\r\n\r\n"));
    let curtsy = paced(DELAY, |config| config.adaptive.statuses = vec![]);
    let leader = lead(&curtsy, &shut, "/");
    let followers = crowd(&curtsy, &shut, 3);
    expect_waiting(&curtsy, 3);
    shut.open();
    assert!(answers(followers).iter().all(|answer| answer.status() == 500));
    assert_eq!(leader.join().expect("an answer").status(), 500);
    expect_gaps(&shut.times(watch), DELAY);
    assert_eq!((shut.origin.count(), collapsed(&curtsy, "failed_over")), (4, 3));
}

/// C42
#[test]
fn a_follower_waits_no_longer_than_it_is_willing_to() {
    let shut = Shut::with(PLAIN);
    let curtsy = paced(ms(100_000), |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let refused = curtsy.ask(&[&shut.origin.get("/"), "Curtsy-Max-Wait: 1"]);
    assert_eq!((refused.status(), refused.refusal().as_str()), (429, "wait-too-long"));
    shut.open();
    expect_hello(&[leader.join().expect("an answer")]);
    assert_eq!(shut.origin.count(), 1);
}

/// C43
#[test]
fn a_client_that_does_not_read_slows_no_other() {
    const LENGTH: usize = 4 << 20;
    let (origin, begins, goes_on) = in_two_parts(LENGTH, 0);
    goes_on.store(true, SeqCst);
    let curtsy = paced(DELAY, |_| {});
    let leader = ask(&curtsy, &origin.get("/"), &[]);
    origin.request();
    let mut slow = curtsy.client();
    slow.send_head(&[&origin.get("/")]);
    let quick = ask(&curtsy, &origin.get("/"), &[]);
    expect_waiting(&curtsy, 2);
    begins.store(true, SeqCst);
    for reader in [leader, quick] {
        assert_eq!(reader.join().expect("an answer").body.len(), LENGTH);
    }
    assert_eq!(slow.response().body.len(), LENGTH);
    assert_eq!(origin.count(), 1);
}

/// C44
#[test]
fn requests_that_differ_in_what_chooses_the_answer_do_not_share() {
    let vary = "HTTP/1.1 200 OK\r\nVary: Accept-Encoding\r\nContent-Length: 5\r\n\r\nhello";
    for (field, follows) in [
        ("Cookie: a=1", false),
        ("X-Api-Key: 1", false),
        ("Authorization: Basic YTpi", false),
        ("Accept-Encoding: br", false),
        ("Accept-Language: de", true),
        ("User-Agent: other", true),
    ] {
        let shut = Shut::with(vary);
        let curtsy = paced(DELAY, |_| {});
        let leader = lead(&curtsy, &shut, "/");
        let other = ask(&curtsy, &shut.origin.get("/"), &[field]);
        expect_waiting_or_sent(&curtsy, &shut);
        shut.open();
        expect_hello(&answers(vec![leader, other]));
        assert_eq!(shut.origin.count(), if follows { 1 } else { 2 }, "{field}");
    }
}

/// Waits until a second request is in the queue, or has had its turn.
fn expect_waiting_or_sent(curtsy: &Curtsy, shut: &Shut) {
    let lines = ["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"];
    let queued = || serde_json::from_str::<Value>(&curtsy.ask_admin(&lines).text()).expect("JSON")["queued"].as_u64();
    assert!(soon(|| shut.origin.count() == 2 || queued() == Some(1)));
}

/// C45
#[test]
fn a_head_request_follows_a_get() {
    let shut = Shut::with(PLAIN);
    let curtsy = paced(DELAY, |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let head = ask(&curtsy, &format!("HEAD {} HTTP/1.1", shut.origin.url("/")), &[]);
    expect_waiting(&curtsy, 1);
    shut.open();
    let head = head.join().expect("an answer");
    assert_eq!((head.status(), head.value("content-length").as_str(), head.body.len()), (200, "5", 0));
    expect_hello(&[leader.join().expect("an answer")]);
    assert_eq!(shut.origin.count(), 1);
}

/// C45: the answer to a HEAD has no body, so a GET does not wait for it.
#[test]
fn head_requests_share_among_each_other_and_no_get_follows_them() {
    let shut = Shut::answering(|request| {
        let body = if request.head().starts_with("GET") { "hello" } else { "" };
        format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{body}")
    });
    let curtsy = paced(DELAY, |_| {});
    let head = || ask(&curtsy, &format!("HEAD {} HTTP/1.1", shut.origin.url("/")), &[]);
    let mut heads = vec![head()];
    assert!(soon(|| shut.origin.count() == 1));
    heads.extend([head(), head()]);
    expect_waiting(&curtsy, 2);
    let get = ask(&curtsy, &shut.origin.get("/"), &[]);
    assert!(soon(|| shut.origin.count() == 2), "the GET is sent");
    shut.open();
    for head in answers(heads) {
        assert_eq!((head.status(), head.value("content-length").as_str(), head.body.len()), (200, "5", 0));
    }
    expect_hello(&[get.join().expect("an answer")]);
    assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (2, 2));
}

/// C46
#[test]
fn ranges_conditions_and_requests_for_the_newest_answer_do_not_follow() {
    for field in [
        "Range: bytes=0-1",
        "If-None-Match: \"1\"",
        "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT",
        "Cache-Control: no-cache",
        "Cache-Control: max-age=0",
        "Cache-Control: no-store",
        "Pragma: no-cache",
        "Curtsy-Cache: off",
    ] {
        let shut = Shut::with(PLAIN);
        let curtsy = paced(ms(1), |_| {});
        let leader = lead(&curtsy, &shut, "/");
        let other = ask(&curtsy, &shut.origin.get("/"), &[field]);
        assert!(soon(|| shut.origin.count() == 2), "{field}");
        shut.open();
        expect_hello(&answers(vec![leader, other]));
        assert_eq!(collapsed(&curtsy, "shared"), 0, "{field}");
    }
}

/// C47
#[test]
fn followers_do_not_stop_other_urls() {
    let shut = Shut::with(PLAIN);
    let curtsy = paced(DELAY, |config| config.politeness.concurrency = 2);
    let leader = lead(&curtsy, &shut, "/");
    let followers = crowd(&curtsy, &shut, 8);
    expect_waiting(&curtsy, 8);
    let other = ask(&curtsy, &shut.origin.get("/other"), &[]);
    assert!(soon(|| shut.origin.count() == 2), "its turn has come although the followers wait");
    shut.open();
    expect_hello(&answers(followers));
    expect_hello(&answers(vec![leader, other]));
    assert_eq!(shut.origin.count(), 2);
}

/// C49
#[test]
fn an_answer_without_a_lifetime_is_for_those_who_asked_before_its_head_came() {
    let shut = Shut::with(PLAIN);
    let curtsy = paced(ms(1), |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let follower = ask(&curtsy, &shut.origin.get("/"), &[]);
    expect_waiting(&curtsy, 1);
    shut.open();
    expect_hello(&answers(vec![leader, follower]));
    assert_eq!(shut.origin.count(), 1);
    expect_hello(&[curtsy.get(&shut.origin.url("/"))]);
    assert_eq!(shut.origin.count(), 2);
}

/// A shared answer that may be stored is stored, once.
#[test]
fn a_shared_answer_is_stored() {
    let shut = Shut::with(FRESH);
    let curtsy = paced(DELAY, |_| {});
    let leader = lead(&curtsy, &shut, "/");
    let followers = crowd(&curtsy, &shut, 2);
    expect_waiting(&curtsy, 2);
    shut.open();
    expect_hello(&answers(followers));
    expect_hello(&[leader.join().expect("an answer")]);
    let later = curtsy.get(&shut.origin.url("/"));
    expect_hello(std::slice::from_ref(&later));
    assert!(later.value("cache-status").contains("; hit; "), "{}", later.head());
    assert_eq!(shut.origin.count(), 1);
}

/// Answers with a 304, or with an answer that is stale when it arrives.
fn validated(request: &Message) -> String {
    let (status, rest) = match request.has("if-none-match") {
        true => ("304 Not Modified", "\r\n"),
        false => ("200 OK", "Age: 1000\r\nContent-Length: 5\r\n\r\nhello"),
    };
    format!("HTTP/1.1 {status}\r\nETag: \"1\"\r\nCache-Control: max-age=600\r\n{rest}")
}

/// One validation is enough for all who want the same stored answer.
#[test]
fn validations_of_one_stored_answer_are_one_visit() {
    let shut = Shut::answering(validated);
    let curtsy = paced(DELAY, |_| {});
    shut.open();
    expect_hello(&[curtsy.get(&shut.origin.url("/"))]);
    shut.is_open.store(false, SeqCst);
    let followed = follow(&curtsy, &shut, 4);
    assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (2, 4));
    assert!(followed.iter().all(|answer| answer.value("cache-status").contains("; collapsed")));
}

#[test]
fn nothing_is_shared_where_it_is_switched_off() {
    let off: [fn(&mut Config); 3] = [
        |config| config.cache.collapse = false,
        |config| config.politeness.cache = curtsy::config::CacheMode::Off,
        |config| config.politeness.mode = Mode::Report,
    ];
    for change in off {
        let shut = Shut::with(PLAIN);
        let curtsy = paced(ms(1), change);
        let asked = crowd(&curtsy, &shut, 3);
        assert!(soon(|| shut.origin.count() == 3));
        shut.open();
        expect_hello(&answers(asked));
        assert_eq!(collapsed(&curtsy, "shared"), 0);
    }
}

/// C6
#[test]
fn clients_share_nothing_if_each_has_its_own_part_of_the_cache() {
    let shut = Shut::with(PLAIN);
    let curtsy = paced(ms(1), |config| config.cache.partition = curtsy::config::Partition::Client);
    let asked: Vec<_> =
        ["ada", "bob"].map(|name| ask(&curtsy, &shut.origin.get("/"), &[&format!("Curtsy-Client: {name}")])).into();
    assert!(soon(|| shut.origin.count() == 2));
    shut.open();
    expect_hello(&answers(asked));
}

/// C48: followers over HTTP/2, on one connection.
#[test]
fn requests_over_http2_share_too() {
    let (own, shut) = (Own::new(), Shut::with(PLAIN));
    let curtsy = own.curtsy(|config| {
        config.cache.collapse = true;
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
    });
    let leader = lead(&curtsy, &shut, "/");
    thread::scope(|scope| {
        scope.spawn(|| {
            expect_waiting(&curtsy, 20);
            shut.open();
        });
        run(async {
            let send = connect(&own, &curtsy).await;
            let mut streams = tokio::task::JoinSet::new();
            for _ in 0..20 {
                let (send, url) = (send.clone(), shut.origin.url("/"));
                streams.spawn(async move { get(&send, &url).await });
            }
            for (status, _, body) in streams.join_all().await {
                assert_eq!((status.as_u16(), body.as_slice()), (200, &b"hello"[..]));
            }
        });
    });
    expect_hello(&[leader.join().expect("an answer")]);
    assert_eq!((shut.origin.count(), collapsed(&curtsy, "shared")), (1, 20));
}

/// C40: the same over HTTP/2 to the origin.
#[test]
fn a_leader_that_disconnects_leaves_its_stream_to_the_others() {
    let authority = Authority::new();
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let wait = Mutex::new(Some(wait));
    let origin = Http2Origin::new(&authority, move |call: Call| {
        let wait = wait.lock().expect("it is whole").take();
        async move {
            if let Some(wait) = wait {
                let _ = wait.await;
            }
            call.answer(200, "hello");
        }
    });
    let curtsy = paced(DELAY, |config| config.tls.extra_roots = vec![authority.file()]);
    let mut leader = curtsy.client();
    leader.send_head(&[&origin.get("/")]);
    origin.request();
    let follower = ask(&curtsy, &origin.get("/"), &[]);
    expect_waiting(&curtsy, 1);
    drop(leader);
    assert!(soon(|| curtsy.metric("curtsy_client_disconnects_total{stage=\"connecting\"}") == 1));
    go.send(()).expect("the origin waits");
    expect_hello(&[follower.join().expect("an answer")]);
    assert_eq!((origin.arrivals().len(), collapsed(&curtsy, "shared")), (1, 1));
}
