//! robots.txt: fetched once for each origin, obeyed, and without any effect that makes curtsy less polite.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Config, Destination, HostPattern, HostRule, Mode, OnUnreachable, RobotsMode};

use serde_json::Value;

use crate::support::{Authority, Curtsy, HELLO, Hole, Message, Origin, ROOM, Stopwatch, Visitor, ms, pause, soon};

/// An origin with pages and a robots.txt that can change.
struct Site {
    origin: Origin,
    file: Arc<File>,
}

struct File {
    status: AtomicU16,
    text: Mutex<String>,
    fields: Mutex<String>,
    fetches: AtomicUsize,
    slowness: Mutex<Duration>,
}

impl Site {
    fn with(text: &str) -> Self {
        let file = File::new(text);
        let served = file.clone();
        let origin = Origin::scripted(move |visitor| served.serve(visitor));
        Site { origin, file }
    }

    /// The same over TLS.
    fn secure(text: &str, authority: &Authority) -> Self {
        let file = File::new(text);
        let served = file.clone();
        let origin = authority.origin(move |visitor| served.serve(visitor));
        Site { origin, file }
    }

    fn answering(status: u16) -> Self {
        let site = Site::with("");
        site.file.status.store(status, Ordering::Relaxed);
        site
    }

    fn fetches(&self) -> usize {
        self.file.fetches.load(Ordering::Relaxed)
    }

    /// The number of requests for anything but robots.txt.
    fn pages(&self) -> usize {
        self.origin.count() - self.fetches()
    }
}

impl File {
    fn new(text: &str) -> Arc<Self> {
        Arc::new(File {
            status: AtomicU16::new(200),
            text: Mutex::new(text.to_owned()),
            fields: Mutex::default(),
            fetches: AtomicUsize::new(0),
            slowness: Mutex::default(),
        })
    }

    fn serve(&self, visitor: &mut Visitor) {
        while let Some(request) = visitor.request() {
            if request.line().starts_with("GET /robots.txt ") {
                self.fetches.fetch_add(1, Ordering::Relaxed);
                pause(*self.slowness.lock().expect("no test thread has panicked"));
                visitor.send(self.response().as_bytes());
            } else {
                visitor.send(HELLO.as_bytes());
            }
        }
    }

    fn response(&self) -> String {
        let status = self.status.load(Ordering::Relaxed);
        let text = self.text.lock().expect("no test thread has panicked");
        let fields = self.fields.lock().expect("no test thread has panicked");
        format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n{fields}\r\n{text}", text.len())
    }
}

fn obedient(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        change(config);
    })
}

fn ask(curtsy: &Curtsy, site: &Site, path: &str, user_agent: &str) -> Message {
    curtsy.ask(&[&site.origin.get(path), &format!("User-Agent: {user_agent}")])
}

#[test]
fn a_disallowed_page_is_refused_with_the_rule_and_its_line() {
    let site = Site::with("# hello\nUser-agent: *\nDisallow: /private/\nAllow: /private/door\n");
    let curtsy = obedient(|_| ());
    let refusal = curtsy.get(&site.origin.url("/private/x?y"));
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (403, "robots-denied"));
    assert_eq!(refusal.reason(), "Denied by robots.txt (curtsy)");
    let told = "robots.txt of 127.0.0.1, line 3, group \"*\": Disallow: /private/";
    assert!(refusal.text().contains(told), "{}", refusal.text());
    assert_eq!(site.pages(), 0, "a page was fetched that robots.txt forbids");
    assert_eq!(curtsy.get(&site.origin.url("/private/door")).status(), 200);
    assert_eq!(curtsy.get(&site.origin.url("/public")).status(), 200);
    assert_eq!((site.fetches(), site.pages()), (1, 2));
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"robots_denied\"}"), 1);
    assert_eq!(curtsy.metric("curtsy_robots_fetches_total{result=\"ok\"}"), 1);
}

/// S88: with the defaults, robots.txt is obeyed, 429 and 503 slow the host down, and the User-Agent is the client's.
#[test]
fn the_defaults_keep_the_best_practices_for_crawlers() {
    for status in [429, 503] {
        let origin = Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                visitor.send(match request.line().split(' ').nth(1) {
                    Some("/robots.txt") => RULES.to_owned(),
                    Some("/busy") => format!("HTTP/1.1 {status} Busy\r\nContent-Length: 0\r\n\r\n"),
                    _ => HELLO.to_owned(),
                });
            }
        });
        let curtsy = Curtsy::with(|config| {
            let defaults = Config::default();
            (config.politeness, config.cache) = (defaults.politeness, defaults.cache);
        });
        let ask = |method: &str, path: &str| {
            let line = origin.get(path).replacen("GET", method, 1);
            curtsy.ask(&[&line, "Host: x", "User-Agent: Goodbot/2.1 (+https://goodbot.example/)", "Content-Length: 0"])
        };
        assert_eq!(ask("GET", "/private/1").refusal(), "robots-denied");
        assert_eq!(ask("GET", "/").text(), "hello");
        // A method that curtsy does not send again.
        assert_eq!(ask("POST", "/busy").status(), status);
        let host = curtsy.ask_admin(&["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost"]).text();
        let host: Value = serde_json::from_str(&host).expect("JSON");
        assert_eq!(host["state"], "held", "{status}: {host:#}");
        let seen = origin.requests(3);
        let lines: Vec<String> = seen.iter().map(Message::line).collect();
        assert_eq!(lines, ["GET /robots.txt HTTP/1.1", "GET / HTTP/1.1", "POST /busy HTTP/1.1"]);
        assert!(seen[1..].iter().all(|page| page.value("user-agent") == "Goodbot/2.1 (+https://goodbot.example/)"));
    }
}

const RULES: &str = "HTTP/1.1 200 OK\r\nContent-Length: 32\r\n\r\nUser-agent: *\nDisallow: /private";

/// S87
#[test]
fn each_client_is_judged_by_its_own_group() {
    let site = Site::with("User-agent: FooBot\nDisallow: /foo\n\nUser-agent: *\nDisallow: /others\n");
    let curtsy = obedient(|_| ());
    assert_eq!(ask(&curtsy, &site, "/foo", "FooBot/1.0").status(), 403);
    assert_eq!(ask(&curtsy, &site, "/others", "FooBot/1.0").status(), 200);
    assert_eq!(ask(&curtsy, &site, "/foo", "Mozilla/5.0 (X11; Linux x86_64) Firefox/1").status(), 200);
    assert_eq!(ask(&curtsy, &site, "/others", "Mozilla/5.0 (X11; Linux x86_64) Firefox/1").status(), 403);
    assert_eq!(curtsy.get(&site.origin.url("/others")).status(), 403);
}

#[test]
fn the_operator_can_name_the_agents() {
    let site = Site::with("User-agent: training-bot\nDisallow: /\n");
    let curtsy = obedient(|config| config.robots.user_agent = vec!["mybot".into(), "training-bot".into()]);
    assert_eq!(ask(&curtsy, &site, "/", "curl/8").status(), 403);
    let exempting = obedient(|config| config.robots.exempt_user_agents = vec!["Curl".into()]);
    assert_eq!(ask(&exempting, &site, "/", "curl/8").status(), 200);
}

/// X39
#[test]
fn the_fetch_shows_the_clients_name_and_nothing_else_of_it() {
    let site = Site::with("");
    let curtsy = obedient(|_| ());
    let secret = ["Cookie: a=b", "Authorization: Basic dTpw", "User-Agent: FooBot/1.0"];
    curtsy.ask(&[&[site.origin.get("/page").as_str()], secret.as_slice()].concat());
    let fetch = &site.origin.requests(2)[0];
    assert_eq!(fetch.line(), "GET /robots.txt HTTP/1.1");
    assert_eq!(fetch.value("user-agent"), "FooBot/1.0");
    assert_eq!(fetch.value("host"), site.origin.authority());
    assert_eq!(fetch.value("accept-encoding"), "identity");
    assert!(!fetch.has("cookie") && !fetch.has("authorization"), "{}", fetch.head());
}

/// S82, S87
#[test]
fn fifty_first_requests_at_once_make_one_fetch() {
    let site = Site::with("User-agent: *\nDisallow: /x\n");
    *site.file.slowness.lock().expect("no other user") = ms(200);
    let curtsy = obedient(|_| ());
    let url = site.origin.url("/page");
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let (mut client, line) = (curtsy.client(), format!("GET {url} HTTP/1.1"));
            thread::spawn(move || client.ask(&[&line]).status())
        })
        .collect();
    for client in clients {
        assert_eq!(client.join().expect("an answer"), 200);
    }
    assert_eq!((site.fetches(), site.pages()), (1, 50));
}

/// S83
#[test]
fn a_client_that_leaves_does_not_cancel_the_fetch() {
    let site = Site::with("User-agent: *\nDisallow: /x\n");
    *site.file.slowness.lock().expect("no other user") = ms(300);
    let curtsy = obedient(|_| ());
    let mut client = curtsy.client();
    client.send_head(&[&site.origin.get("/page")]);
    assert!(soon(|| site.fetches() == 1));
    client.reset();
    assert!(soon(|| curtsy.metric("curtsy_robots_fetches_total{result=\"ok\"}") == 1));
    assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200);
    assert_eq!(site.fetches(), 1);
}

/// S87: what the status of a robots.txt means (RFC 9309, section 2.3.1).
#[test]
fn what_an_answer_other_than_a_file_means() {
    for missing in [404, 410, 400, 401, 403, 418, 451] {
        let site = Site::answering(missing);
        let curtsy = obedient(|_| ());
        assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200, "{missing}");
    }
    for trouble in [500, 502, 503, 504, 429] {
        let site = Site::answering(trouble);
        let curtsy = obedient(|_| ());
        let refusal = curtsy.get(&site.origin.url("/page"));
        assert_eq!((refusal.status(), refusal.refusal().as_str()), (503, "robots-unreachable"), "{trouble}");
        let seconds: u64 = refusal.value("retry-after").parse().expect("seconds");
        assert!((20..=3600).contains(&seconds), "{trouble}: {seconds}");
        assert_eq!(curtsy.get(&site.origin.url("/other")).status(), 503, "{trouble}");
        assert_eq!((site.fetches(), site.pages()), (1, 0), "{trouble}");
    }
}

#[test]
fn a_host_that_throttles_robots_txt_is_left_alone() {
    let site = Site::answering(429);
    *site.file.fields.lock().expect("no other user") = "Retry-After: 120\r\n".to_owned();
    let curtsy = obedient(|config| config.politeness.mode = Mode::Enforce);
    let refusal = curtsy.get(&site.origin.url("/page"));
    assert_eq!((refusal.status(), refusal.value("retry-after").as_str()), (503, "120"));
    // This holds for methods that robots.txt does not apply to, too.
    let refusal = curtsy.ask(&[&site.origin.get("/page").replace("GET", "DELETE"), "Curtsy-Max-Wait: 1"]);
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (503, "host-cooling"));
}

/// S87, X39
#[test]
fn no_answer_and_half_an_answer_are_no_leave() {
    let cut = Origin::scripted(|visitor| {
        visitor.request();
        visitor.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent: *\n");
    });
    let zipped = Origin::answering("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc");
    let silent = Origin::scripted(|visitor| {
        visitor.linger();
    });
    let curtsy = obedient(|config| config.robots.fetch_timeout = ms(300));
    for origin in [&cut, &zipped, &silent] {
        assert_eq!(curtsy.get(&origin.url("/page")).refusal(), "robots-unreachable");
    }
    assert_eq!(curtsy.metric("curtsy_robots_fetches_total{result=\"unreachable\"}"), 3);
}

#[test]
fn unreachable_can_mean_go_on_if_the_operator_says_so() {
    let site = Site::answering(503);
    let curtsy = obedient(|config| config.robots.on_unreachable = OnUnreachable::Allow);
    let answer = curtsy.get(&site.origin.url("/page"));
    assert_eq!((answer.status(), answer.value("curtsy").as_str()), (200, "robots=unknown"));
}

/// S87
#[test]
fn redirects_are_followed_and_the_rules_are_the_first_hosts() {
    let end = Site::with("User-agent: *\nDisallow: /x\n");
    let last = end.origin.url("/robots.txt");
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            let line = request.line();
            let to = match line.split(' ').nth(1) {
                Some("/robots.txt") => "/a/robots.txt".to_owned(),
                Some("/a/robots.txt") => last.clone(),
                _ => {
                    visitor.send(HELLO.as_bytes());
                    continue;
                }
            };
            visitor.send(format!("HTTP/1.1 301 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes());
        }
    });
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&origin.url("/x")).status(), 403);
    assert_eq!(curtsy.get(&origin.url("/y")).status(), 200);
    assert_eq!((end.fetches(), end.pages()), (1, 0));
}

#[test]
fn redirects_that_lead_nowhere_mean_there_is_no_file() {
    let circle = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            if request.line().contains("robots") {
                visitor.send(b"HTTP/1.1 302 X\r\nLocation: /robots.txt\r\nContent-Length: 0\r\n\r\n");
            } else {
                visitor.send(HELLO.as_bytes());
            }
        }
    });
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&circle.url("/page")).status(), 200);
    assert_eq!(curtsy.metric("curtsy_robots_fetches_total{result=\"invalid\"}"), 1);
}

/// X16: every hop is checked, so a redirect cannot lead to an address that clients may not reach.
#[test]
fn a_redirect_to_a_forbidden_address_is_not_followed() {
    let inner = Origin::on("127.0.0.2", |visitor| {
        while visitor.request().is_some() {
            visitor.send(HELLO.as_bytes());
        }
    });
    let to = inner.url("/robots.txt");
    let origin = Origin::answering(format!("HTTP/1.1 302 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"));
    let curtsy = obedient(|config| {
        config.access.allow_destinations = vec![Destination::Net("127.0.0.1/32".parse().expect("a network"))];
    });
    assert_eq!(curtsy.get(&origin.url("/page")).refusal(), "robots-unreachable");
    inner.expect_untouched();
}

#[test]
fn an_origin_that_falls_ill_keeps_its_last_good_copy() {
    let site = Site::with("User-agent: *\nDisallow: /x\n");
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200);
    site.file.status.store(503, Ordering::Relaxed);
    assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200);
    assert_eq!(curtsy.get(&site.origin.url("/x")).status(), 403);
}

/// X63
#[test]
fn crawl_delay_slows_the_host_for_everyone_and_is_capped() {
    let watch = Stopwatch::start();
    let site = Site::with("User-agent: *\nCrawl-delay: 0.4\n");
    let curtsy = obedient(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(10);
    });
    let first = curtsy.get(&site.origin.url("/1"));
    assert!(first.value("curtsy").contains("delay=0.400, why=robots"), "{}", first.value("curtsy"));
    for n in 2..4 {
        curtsy.get(&site.origin.url(&format!("/{n}")));
    }
    assert!(watch.elapsed() >= ms(800), "{:?}", watch.elapsed());
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);

    let capping = obedient(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.max_crawl_delay = ms(100);
    });
    let answer = capping.get(&site.origin.url("/1"));
    assert!(answer.value("curtsy").contains("delay=1.000, why=configured"), "{}", answer.value("curtsy"));
    assert_eq!(capping.metric("curtsy_crawl_delays_capped_total"), 1);
}

/// S87
#[test]
fn the_fetch_takes_a_turn_only_if_it_is_told_to() {
    let gap = |takes_turn| {
        let site = Site::with("");
        let curtsy = obedient(|config| {
            config.politeness.mode = Mode::Enforce;
            config.politeness.delay = ms(3_000);
            config.robots.takes_turn = takes_turn;
        });
        assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200);
        let requests = site.origin.requests(2);
        requests[1].at - requests[0].at
    };
    assert!(gap(true) + ROOM >= ms(3_000));
    assert!(gap(false) < ms(3_000));
}

#[test]
fn warn_lets_through_and_says_so_and_off_does_not_fetch() {
    let site = Site::with("User-agent: *\nDisallow: /\n");
    let curtsy = obedient(|config| config.politeness.robots = RobotsMode::Warn);
    let answer = curtsy.get(&site.origin.url("/page"));
    assert_eq!((answer.status(), answer.value("curtsy").as_str()), (200, "robots=denied;line=2"));
    assert_eq!(curtsy.metric("curtsy_robots_warned_total"), 1);

    let elsewhere = HostRule {
        patterns: vec![HostPattern::Net("127.0.0.0/8".parse().expect("a network"))],
        robots: Some(RobotsMode::Off),
        ..HostRule::default()
    };
    let curtsy = obedient(|config| config.host = vec![elsewhere]);
    assert_eq!(curtsy.get(&site.origin.url("/page")).status(), 200);
    assert_eq!(site.fetches(), 1);
}

#[test]
fn robots_txt_itself_and_other_methods_are_not_judged() {
    let site = Site::with("User-agent: *\nDisallow: /\n");
    let curtsy = obedient(|_| ());
    let file = curtsy.get(&site.origin.url("/robots.txt"));
    assert_eq!((file.status(), file.text().as_str()), (200, "User-agent: *\nDisallow: /\n"));
    let posted = curtsy.ask(&[&site.origin.get("/form").replace("GET", "POST"), "Content-Length: 0"]);
    assert_eq!(posted.status(), 200);
    assert_eq!(ask(&curtsy, &site, "/form", "x").status(), 403);
}

/// If the page itself is denied or unreachable, the answer says that, not `robots-unreachable`.
#[test]
fn a_destination_that_is_denied_is_not_called_unreachable() {
    let curtsy = obedient(|_| ());
    assert_eq!(curtsy.get("http://10.0.0.1/").refusal(), "destination-denied");
    assert_eq!(curtsy.get("http://nowhere.invalid/").refusal(), "origin-unreachable");
}

/// Paths inside a tunnel are not visible, so curtsy can only refuse the tunnel if robots.txt forbids the whole host.
#[test]
fn a_tunnel_is_refused_where_everything_is_and_slowed_where_the_host_asks_for_it() {
    let authority = Authority::new();
    let closed = Site::secure("User-agent: *\nDisallow: /\nAllow: /robots.txt\n", &authority);
    let open = Site::secure("User-agent: *\nDisallow: /private\nCrawl-delay: 0.5\n", &authority);
    let curtsy = obedient(|config| {
        config.tls.extra_roots = vec![authority.file()];
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(1);
    });
    let tunnel = |site: &Site| curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", site.origin.authority())]);
    let refusal = tunnel(&closed);
    assert_eq!((refusal.status(), refusal.refusal().as_str()), (403, "robots-denied"));
    assert!(refusal.text().contains("line 2"), "{}", refusal.text());
    let watch = Stopwatch::start();
    assert_eq!(tunnel(&open).status(), 200);
    assert_eq!(tunnel(&open).status(), 200);
    assert!(watch.elapsed() >= ms(500), "{:?}", watch.elapsed());
    assert_eq!((closed.fetches(), open.fetches()), (1, 1));
}

#[test]
fn a_redirect_to_https_is_followed() {
    let authority = Authority::new();
    let end = Site::secure("User-agent: *\nDisallow: /x\n", &authority);
    let to = format!("https://{}/robots.txt", end.origin.authority());
    let plain = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            if request.line().contains("robots") {
                visitor.send(format!("HTTP/1.1 308 X\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n").as_bytes());
            } else {
                visitor.send(HELLO.as_bytes());
            }
        }
    });
    let curtsy = obedient(|config| config.tls.extra_roots = vec![authority.file()]);
    assert_eq!(curtsy.get(&plain.url("/x")).status(), 403);
    assert_eq!(curtsy.get(&plain.url("/y")).status(), 200);
}

/// A host that refuses connections gets the answer that it would get without robots.txt. No page is tried meanwhile,
/// and every view calls the host unreachable.
#[test]
fn a_dead_host_is_called_dead() {
    let dead = Hole::refusing();
    let curtsy = obedient(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(10);
    });
    for attempt in 1..=2 {
        let answer = curtsy.ask(&[&format!("GET {} HTTP/1.1", dead.url()), "Host: x"]);
        assert_eq!((answer.status(), answer.value("Curtsy-Error")), (502, "origin-unreachable".to_owned()));
        assert!(answer.value("Proxy-Status").contains("error=connection_refused"), "{}", answer.head());
        assert!(answer.text().contains("connection refused"), "{}", answer.text());
        assert!(answer.value("Retry-After").parse::<u64>().expect("seconds") > 0);
        let tries = curtsy.metric("curtsy_robots_fetches_total{result=\"unreachable\"}");
        assert_eq!(tries, 1, "attempt {attempt} does not connect again");
    }
    let admin = |path: &str| -> Value {
        let line = format!("GET {path} HTTP/1.1");
        serde_json::from_str(&curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).text()).expect("JSON")
    };
    let told = admin(&format!("/api/v1/explain?url={}", dead.url()));
    assert_eq!((&told["allowed"], &told["refusal"]), (&Value::Null, &"origin-unreachable".into()), "{told:#}");
    assert!(told["trouble"].as_str().is_some_and(|text| text.contains("connection refused")), "{told:#}");
    let host = admin("/api/v1/hosts/127.0.0.1");
    assert_eq!((&host["state"], &host["last_error"]), (&"unreachable".into(), &"connection refused".into()));
    assert!(host["failing_since"].is_string() && host["next_available_s"].as_f64() > Some(1.0), "{host:#}");
    assert_eq!(admin("/api/v1/hosts?state=unreachable")["total"], 1);
    assert_eq!(admin("/api/v1/status")["hosts"]["unreachable"], 1);
    assert_eq!(curtsy.metric("curtsy_origin_errors_total{kind=\"connect\"}"), 2);

    let failing = Site::answering(500);
    let answer = curtsy.get(&failing.origin.url("/"));
    assert_eq!((answer.status(), answer.value("Curtsy-Error")), (503, "robots-unreachable".to_owned()));
    assert!(answer.text().contains("the host answered 500"), "{}", answer.text());
    assert_eq!(failing.pages(), 0);
    let host = admin("/api/v1/hosts/127.0.0.1");
    assert_eq!((&host["state"], &host["last_status"]), (&"idle".into(), &500.into()), "it answers: {host:#}");
}
