//! The event stream of the API (server-sent events).

use curtsy::config::{Config, Mode};
use serde_json::{Value, json};

use crate::support::schema::{document, problems};
use crate::support::{Client, Curtsy, Hole, Origin, ms, soon};

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(0);
        change(config);
    })
}

/// A client of the event stream.
struct Follower {
    client: Client,
    unread: String,
}

impl Follower {
    fn start(curtsy: &Curtsy, query: &str, field: &str) -> Self {
        let mut client = Client::connect(curtsy.admin());
        // HTTP/1.0, because its responses are never chunked.
        client.send_head(&[&format!("GET /api/v1/events{query} HTTP/1.0"), "Host: localhost", field]);
        let head = client.response_head();
        assert_eq!((head.status(), head.value("content-type").as_str()), (200, "text/event-stream"), "{}", head.head());
        let mut follower = Follower { client, unread: String::new() };
        assert_eq!(follower.block(), "retry: 2000");
        follower
    }

    /// The next lines up to an empty one.
    fn block(&mut self) -> String {
        loop {
            if let Some((block, rest)) = self.unread.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.unread = rest;
                return block;
            }
            let bytes = self.client.read_some().expect("the stream goes on");
            self.unread.push_str(&String::from_utf8(bytes).expect("events are text"));
        }
    }

    /// The next event of this kind, with its number if it has one.
    fn next(&mut self, kind: &str) -> (Option<u64>, Value) {
        loop {
            let block = self.block();
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            let Some(event) = field("data: ") else { continue };
            let event: Value = serde_json::from_str(&event).expect("an event is JSON");
            let schema = &document()["components"]["schemas"]["Event"];
            assert_eq!(problems(&document(), schema, &event), Vec::<String>::new(), "{event:#}");
            if event["event"] == kind {
                return (field("id: ").map(|id| id.parse().expect("a number")), event);
            }
        }
    }
}

/// X54: events contain no secrets.
#[test]
fn requests_are_told_when_they_are_over() {
    let origin = Origin::hello();
    let curtsy = pacing(|_| ());
    let mut follower = Follower::start(&curtsy, "", "X-None: 1");
    let lines = [&origin.get("/a?key=secret"), "Host: x", "Authorization: secret", "Cookie: secret=1"];
    assert_eq!(curtsy.ask(&lines).status(), 200);
    let (_, told) = follower.next("request");
    assert_eq!((&told["host"], &told["url"]), (&json!("127.0.0.1"), &json!(origin.url("/a?…"))));
    assert_eq!((&told["status"], &told["method"], &told["client"]), (&json!(200), &json!("GET"), &json!("127.0.0.1")));
    assert_eq!((&told["why"], &told["error"], &told["complete"]), (&json!("configured"), &json!(null), &json!(true)));
    assert!(!told.to_string().contains("secret"), "{told:#}");
    assert_eq!(curtsy.get("http://10.0.0.1/").status(), 403);
    assert_eq!(follower.next("request").1["error"], "destination-denied");
    let (_, status) = follower.next("status");
    assert!(status["requests"]["total"].as_u64().is_some_and(|total| total >= 1), "{status:#}");
}

#[test]
fn what_becomes_of_hosts_and_clients_is_told() {
    let origin = Origin::answering("HTTP/1.1 429 Slow\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n");
    let curtsy = pacing(|config| {
        config.retry.max = 0;
        config.breaker.job_failures = 1;
    });
    assert_eq!(curtsy.get(&origin.url("/")).status(), 429);
    // Events from before the first listener are kept.
    let mut follower = Follower::start(&curtsy, "?recent=9", "X-None: 1");
    let (_, slowed) = follower.next("host.slowed");
    assert_eq!((&slowed["host"], &slowed["delay_ms"]), (&json!("127.0.0.1"), &json!(1000)));
    assert!(slowed["held_s"].as_f64().is_some_and(|held| held > 28.0), "{slowed:#}");
    let steer = |body: &str| {
        let mut client = Client::connect(curtsy.admin());
        let fields = "Host: localhost\r\nContent-Type: application/json";
        let length = body.len();
        client
            .send(format!("PATCH /api/v1/hosts/a.test HTTP/1.1\r\n{fields}\r\nContent-Length: {length}\r\n\r\n{body}"));
        assert_eq!(client.response().status(), 200);
    };
    steer(r#"{"paused": true, "until": "1h"}"#);
    assert!(follower.next("host.paused").1["held_s"].as_f64().is_some_and(|held| held > 3_000.0));
    steer(r#"{"paused": false}"#);
    assert_eq!(follower.next("host.resumed").1["host"], "a.test");
    steer(r#"{"delay": "3s"}"#);
    assert_eq!(follower.next("host.steered").1["delay_ms"], 3000);
    // Not the host that is held; its port is closed.
    let nobody = Hole::refusing().url().replace("127.0.0.1", "127.0.0.2");
    curtsy.ask(&[&format!("GET {nobody} HTTP/1.1"), "Host: x", "Curtsy-Client: spider"]);
    assert_eq!(follower.next("job.stopped").1["client"], "spider");
    curtsy.reload(|config| config.politeness.burst = 9);
    assert!(follower.next("config.reloaded").1["changed"].to_string().contains("burst"));
}

/// A request that has waited for a second is reported while it waits, once.
#[test]
fn waiting_requests_are_told_while_they_wait() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| {
        config.politeness.delay = ms(300_000);
        config.politeness.max_wait = ms(3_000_000);
    });
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut follower = Follower::start(&curtsy, "?kind=request.waiting", "X-None: 1");
    let wait = |name: &str, path: &str| {
        let mut client = curtsy.client();
        client.send_head(&[&origin.get(path), "Host: x", &format!("Curtsy-Client: {name}")]);
        client
    };
    let spider = wait("spider", "/a?key=secret");
    let (_, told) = follower.next("request.waiting");
    assert_eq!((&told["host"], &told["client"]), (&json!("127.0.0.1"), &json!("spider")));
    assert_eq!((&told["method"], &told["url"]), (&json!("GET"), &json!(origin.url("/a?…"))));
    assert_eq!(
        (&told["position"], &told["why"], &told["delay_ms"]),
        (&json!(1), &json!("configured"), &json!(300_000))
    );
    let number = |field: &str| told[field].as_u64().expect("a number");
    assert!(number("waited_ms") >= 1_000 && number("expected_ms") <= 300_000, "{told:#}");
    let beetle = wait("beetle", "/b");
    let (_, told) = follower.next("request.waiting");
    assert_eq!((&told["client"], &told["position"]), (&json!("beetle"), &json!(2)), "the first is not told again");
    drop((spider, beetle));
}

#[test]
fn a_listener_that_reconnects_resumes_where_it_was() {
    let curtsy = pacing(|_| ());
    let mut follower = Follower::start(&curtsy, "?kind=request", "X-None: 1");
    for number in 0..3 {
        curtsy.get(&format!("http://10.0.0.{number}/"));
    }
    let (id, first) = follower.next("request");
    assert_eq!(first["url"], "http://10.0.0.0/");
    drop(follower);
    curtsy.get("http://10.0.0.3/");
    let last = format!("Last-Event-ID: {}", id.expect("requests have numbers"));
    let mut again = Follower::start(&curtsy, "?kind=request", &last);
    for number in 1..4 {
        assert_eq!(again.next("request").1["url"], format!("http://10.0.0.{number}/"));
    }
}

/// The number of listeners is bounded, and a listener that disconnects frees its place.
#[test]
fn only_so_many_may_follow() {
    let curtsy = pacing(|_| ());
    let mut followers: Vec<Follower> = (0..32).map(|_| Follower::start(&curtsy, "", "X-None: 1")).collect();
    let ask = || curtsy.ask_admin(&["GET /api/v1/events HTTP/1.0", "Host: localhost"]);
    assert_eq!(ask().status(), 503);
    followers.truncate(1);
    assert!(soon(|| {
        let mut client = Client::connect(curtsy.admin());
        client.send_head(&["GET /api/v1/events HTTP/1.0", "Host: localhost"]);
        client.response_head().status() == 200
    }));
}

/// A stop does not wait for listeners.
#[test]
fn a_stop_ends_the_stream() {
    let curtsy = pacing(|_| ());
    let mut follower = Follower::start(&curtsy, "", "X-None: 1");
    curtsy.stop();
    follower.client.rest();
}
