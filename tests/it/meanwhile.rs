//! Events between a decision and the send: a hold, a dead connection, a client that does not wait any longer.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, Mode, RobotsMode};

use crate::support::tls_origin::https;
use crate::support::{Authority, Curtsy, HELLO, Message, Origin, Stopwatch, Visitor, ms, soon};

const MISSING: &str = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// A record of request lines and their arrival times, shared by several origins.
#[derive(Clone)]
struct Diary {
    watch: Stopwatch,
    lines: Arc<Mutex<Vec<(String, Duration)>>>,
}

impl Diary {
    fn start() -> Self {
        Diary { watch: Stopwatch::start(), lines: Arc::default() }
    }

    fn note(&self, request: &Message) {
        self.write(&request.line(), self.watch.at(request.at));
    }

    fn write(&self, line: &str, at: Duration) {
        self.lines.lock().expect("no test thread has panicked").push((line.to_owned(), at));
    }

    fn when(&self, beginning: &str) -> Duration {
        let lines = self.lines.lock().expect("no test thread has panicked");
        let found = lines.iter().find(|(line, _)| line.starts_with(beginning));
        found.unwrap_or_else(|| panic!("no {beginning} in {lines:?}")).1
    }

    fn wait_for(&self, line: &str) {
        assert!(soon(|| self.count(line) > 0), "{line} never came");
    }

    fn count(&self, beginning: &str) -> usize {
        let lines = self.lines.lock().expect("no test thread has panicked");
        lines.iter().filter(|(line, _)| line.starts_with(beginning)).count()
    }
}

fn paced(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(50);
        config.upstream.keep_alive = ms(20_000);
        change(config);
    })
}

/// An origin without a robots.txt that answers every page with `Retry-After: 2`, after another origin is "opening".
fn cross(diary: &Diary) -> Origin {
    let diary = diary.clone();
    Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            if request.line().starts_with("GET /robots.txt ") {
                visitor.send(MISSING.as_bytes());
                continue;
            }
            diary.write("asked", diary.watch.at(request.at));
            diary.wait_for("opening");
            diary.write("refused", diary.watch.elapsed());
            visitor.send(b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 0\r\n\r\n");
        }
    })
}

/// A TLS origin whose connections from number `slow` on stay "opening" until the host is "held".
fn slow_to_open(
    diary: &Diary,
    authority: &Authority,
    slow: usize,
    script: impl Fn(&mut Visitor) + Send + Sync + 'static,
) -> Origin {
    let (diary, server) = (diary.clone(), authority.server());
    Origin::scripted(move |visitor| {
        if visitor.number >= slow {
            diary.write("opening", diary.watch.elapsed());
            diary.wait_for("held");
        }
        if visitor.start_tls(&server) {
            script(visitor);
        }
    })
}

/// Sends a request to the cross origin, which has received it when this returns. The host is "held" once curtsy has
/// forwarded the answer.
fn refused(curtsy: &Curtsy, cross: &Origin, diary: &Diary) -> thread::JoinHandle<u16> {
    let (mut client, line, notes) = (curtsy.client(), cross.get("/"), diary.clone());
    let other = thread::spawn(move || {
        let status = client.ask(&[&line]).status();
        notes.write("held", notes.watch.elapsed());
        status
    });
    diary.wait_for("asked");
    other
}

/// A request gives its turn up while its dead connection is replaced, because the host may be held meanwhile.
#[test]
fn a_request_whose_connection_had_died_is_not_sent_into_a_hold() {
    let (diary, authority) = (Diary::start(), Authority::new());
    let curtsy = paced(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.retry.max = 0;
    });
    let cross = cross(&diary);
    let notes = diary.clone();
    // Answers once on each connection and then closes it without a `Connection: close`.
    let origin = slow_to_open(&diary, &authority, 1, move |visitor| {
        if let Some(request) = visitor.request() {
            notes.note(&request);
            visitor.send(HELLO.as_bytes());
        }
    });
    assert_eq!(curtsy.get(&https(&origin, "/1")).status(), 200);
    let other = refused(&curtsy, &cross, &diary);
    assert_eq!(curtsy.get(&https(&origin, "/2")).status(), 200);
    assert_eq!(other.join().expect("an answer"), 429);
    let gap = diary.when("GET /2 ").saturating_sub(diary.when("refused"));
    assert!(gap >= ms(1_990), "sent {gap:?} after \"not for 2 s\"");
}

#[test]
fn robots_txt_is_not_fetched_from_a_host_that_is_held_meanwhile() {
    let (diary, authority) = (Diary::start(), Authority::new());
    let curtsy = paced(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.politeness.robots = RobotsMode::Enforce;
        config.retry.max = 0;
    });
    let cross = cross(&diary);
    let notes = diary.clone();
    let origin = slow_to_open(&diary, &authority, 0, move |visitor| {
        while let Some(request) = visitor.request() {
            notes.note(&request);
            visitor.send(MISSING.as_bytes());
        }
    });
    let other = refused(&curtsy, &cross, &diary);
    assert_eq!(curtsy.get(&https(&origin, "/")).status(), 404);
    assert_eq!(other.join().expect("an answer"), 429);
    let gap = diary.when("GET /robots.txt ").saturating_sub(diary.when("refused"));
    assert!(gap >= ms(1_990), "sent {gap:?} after \"not for 2 s\"");
}

/// A kept connection that the origin closes is not a failed fetch of robots.txt.
#[test]
fn robots_txt_does_not_fail_with_an_old_connection() {
    // Each connection answers one request; the second is read and not answered.
    let origin = Origin::scripted(|visitor| {
        if visitor.request().is_some() {
            visitor.send(HELLO.as_bytes());
            visitor.request();
        }
    });
    let curtsy = Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.upstream.keep_alive = ms(20_000);
    });
    assert_eq!(curtsy.get(&origin.url("/robots.txt")).status(), 200, "which forbids nothing, and teaches nothing");
    let page = curtsy.get(&origin.url("/page"));
    assert_eq!(page.status(), 200, "{}", page.text());
}

/// The waits before the first send and before the resend count together.
#[test]
fn a_resend_waits_no_longer_than_the_client_does() {
    let diary = Diary::start();
    let notes = diary.clone();
    let origin = Origin::scripted(move |visitor| {
        for answers in [true, false] {
            let Some(request) = visitor.request() else { return };
            notes.note(&request);
            if answers {
                visitor.send(HELLO.as_bytes());
            }
        }
    });
    let curtsy = paced(|config| config.politeness.delay = ms(700));
    assert_eq!(curtsy.get(&origin.url("/1")).status(), 200);
    let refused = curtsy.ask(&[&origin.get("/2"), "Curtsy-Max-Wait: 1"]);
    assert_eq!(refused.refusal(), "wait-too-long", "{}", refused.head());
    assert_eq!(diary.count("GET /2 "), 1);
}

/// A fetch of robots.txt that fails does not close the breaker.
#[test]
fn a_robots_txt_that_fails_closes_no_breaker() {
    let broken = |robots: &'static str| {
        Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                let is_robots = request.line().starts_with("GET /robots.txt ");
                visitor.send(if is_robots { robots } else { OOPS }.as_bytes());
            }
        })
    };
    const OOPS: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";
    let (one, other) = (broken(MISSING), broken(OOPS));
    let curtsy = paced(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        config.robots.takes_turn = true;
        config.breaker.failures = 3;
        config.breaker.cooldown = ms(3_000);
    });
    for _ in 0..3 {
        assert_eq!(curtsy.get(&one.url("/")).status(), 500);
    }
    assert_eq!(curtsy.get(&one.url("/")).refusal(), "breaker-open");
    // The first answer that is not `breaker-open`.
    let tried = |origin: &Origin| {
        let mut answer = curtsy.get(&origin.url("/"));
        assert!(soon(|| answer.refusal() != "breaker-open" || {
            answer = curtsy.get(&origin.url("/"));
            false
        }));
        answer
    };
    assert_eq!(tried(&other).refusal(), "robots-unreachable");
    // That was another origin: the trial of the first origin comes now, and fails.
    assert_eq!(tried(&one).status(), 500);
    assert_eq!(curtsy.get(&one.url("/")).refusal(), "breaker-open");
}
