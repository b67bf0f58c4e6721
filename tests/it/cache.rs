//! The cache: what is stored, who gets it, and what a request can say about it.
//!
//! Answers get old by their `Age` field, so that no test waits.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use curtsy::config::{CacheMode, Config, Key, Mode, Partition, ResponseHeaders, RobotsMode};

use crate::support::{Curtsy, Message, Origin, Visitor, ms, soon};

/// An origin that answers by the request and its number, counted from 1.
pub(crate) fn site(answer: impl Fn(&Message, usize) -> String + Send + Sync + 'static) -> Origin {
    let count = AtomicUsize::new(0);
    Origin::scripted(move |visitor: &mut Visitor| {
        while let Some(request) = visitor.request() {
            let number = count.fetch_add(1, Relaxed) + 1;
            visitor.send(answer(&request, number).as_bytes());
        }
    })
}

/// A 200 with these field lines and this body.
pub(crate) fn page(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n{fields}\r\n{body}", body.len())
}

/// An origin whose answers say who asked, in which request.
fn marked(fields: &'static str) -> Origin {
    site(move |request, number| page(fields, &format!("{number} for {}", request.value("x-who"))))
}

/// `x-who` marks a request and is no part of the key.
fn curtsy(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.cache.unkeyed = vec!["x-who".to_owned()];
        change(config);
    })
}

pub(crate) fn get(curtsy: &Curtsy, url: &str, fields: &[&str]) -> Message {
    let line = format!("GET {url} HTTP/1.1");
    curtsy.ask(&[&[line.as_str(), "Host: ignored.test"], fields].concat())
}

/// What the second of two requests gets.
#[track_caller]
fn second(origin: &Origin, first: &[&str], second: &[&str]) -> Message {
    let curtsy = curtsy(|_| {});
    let answer = get(&curtsy, &origin.url("/"), &[&["X-Who: A"], first].concat());
    assert_eq!(answer.status(), 200, "{}", answer.head());
    get(&curtsy, &origin.url("/"), &[&["X-Who: B"], second].concat())
}

#[track_caller]
fn shared(fields: &'static str, first: &[&str], other: &[&str]) {
    let answer = second(&marked(fields), first, other);
    assert_eq!(answer.text(), "1 for A", "{fields} {first:?} {other:?}");
    assert!(answer.value("cache-status").contains("; hit; ttl="), "{}", answer.head());
    assert!(answer.has("age"), "{}", answer.head());
}

#[track_caller]
fn not_shared(fields: &'static str, first: &[&str], other: &[&str]) {
    assert_eq!(second(&marked(fields), first, other).text(), "2 for B", "{fields} {first:?} {other:?}");
}

#[test]
fn a_fresh_answer_is_given_again_without_a_visit() {
    shared("Cache-Control: max-age=60\r\n", &[], &[]);
    not_shared("X: 1\r\n", &[], &[]);
    not_shared("Cache-Control: max-age=60\r\nAge: 61\r\n", &[], &[]);
}

/// C1, S81
#[test]
fn an_answer_to_a_password_is_for_its_sender_alone() {
    let password = &["Authorization: Basic YTpi"];
    not_shared("Cache-Control: max-age=60\r\n", password, &[]);
    not_shared("Cache-Control: max-age=60\r\n", &[], password);
    for fields in ["public, max-age=60", "s-maxage=60", "must-revalidate, max-age=60"] {
        let fields: &'static str = Box::leak(format!("Cache-Control: {fields}\r\n").into_boxed_str());
        shared(fields, password, &[]);
    }
}

/// C2, C3, C9
#[test]
fn what_is_meant_for_one_client_reaches_no_other() {
    not_shared("Cache-Control: public, max-age=60\r\nSet-Cookie: a=1\r\n", &[], &[]);
    not_shared("Cache-Control: private, max-age=60\r\n", &[], &[]);
    not_shared("Cache-Control: max-age=60\r\nCache-Control: PRIVATE=\"x\"\r\n", &[], &[]);
    not_shared("Cache-Control: no-store, max-age=60\r\n", &[], &[]);
    not_shared("Cache-Control: max-age=60\r\nVary: Foo, *\r\n", &[], &[]);
}

/// C4
#[test]
fn a_cookie_is_part_of_the_key_unless_the_answer_is_public() {
    not_shared("Cache-Control: max-age=60\r\n", &["Cookie: a=1"], &[]);
    not_shared("Cache-Control: max-age=60\r\n", &["Cookie: a=1"], &["Cookie: a=2"]);
    shared("Cache-Control: max-age=60\r\n", &["Cookie: a=1"], &["Cookie: a=1"]);
    shared("Cache-Control: max-age=60, public\r\n", &["Cookie: a=1"], &["Cookie: a=2"]);
}

/// C5, X29
#[test]
fn a_field_that_is_not_known_to_be_harmless_is_part_of_the_key() {
    let fields = "Cache-Control: max-age=60\r\n";
    not_shared(fields, &["X-Forwarded-Host: evil.test"], &[]);
    not_shared(fields, &["X-Api-Key: 1"], &["X-Api-Key: 2"]);
    shared(fields, &["X-Api-Key: 1"], &["X-Api-Key: 1"]);
    shared(fields, &["User-Agent: a", "Accept: text/html"], &["User-Agent: b", "Accept: */*"]);
}

/// A head that is used often is kept ready. It must say what the first one said.
#[test]
fn all_hits_have_the_same_head() {
    let own = "Cache-Status: origin; hit\r\n";
    for (headers, added) in [(ResponseHeaders::Full, ""), (ResponseHeaders::Full, own), (ResponseHeaders::Off, "")] {
        let origin = site(move |_, _| page(&format!("Cache-Control: max-age=60\r\nETag: \"1\"\r\n{added}"), "body"));
        let curtsy = curtsy(|config| config.responses.headers = headers);
        get(&curtsy, &origin.url("/"), &[]);
        let hits: Vec<Message> = (0..5).map(|_| get(&curtsy, &origin.url("/"), &[])).collect();
        let fields = |hit: &Message| -> Vec<(String, String)> {
            let without_times = |value: String| value.split("ttl=").next().unwrap_or_default().to_owned();
            let fields = hit.fields().into_iter();
            fields.filter(|(name, _)| name != "age").map(|(name, value)| (name, without_times(value))).collect()
        };
        for hit in &hits {
            assert_eq!((fields(hit), hit.values("age").len()), (fields(&hits[0]), 1));
            let told =
                [added.lines(), if headers == ResponseHeaders::Full { "x" } else { "" }.lines()].map(Iterator::count);
            assert_eq!(hit.values("cache-status").len(), told.iter().sum::<usize>(), "{}", hit.head());
        }
        let part = get(&curtsy, &origin.url("/"), &["Range: bytes=0-0"]);
        assert_eq!((part.status(), part.text().as_str(), part.has("age")), (206, "b", true));
        let same = get(&curtsy, &origin.url("/"), &["If-None-Match: \"1\""]);
        assert_eq!((same.status(), same.text().as_str(), same.values("age").len()), (304, "", 1));
        assert_eq!(origin.count(), 1);
    }
}

/// C6
#[test]
fn a_partition_by_client_shares_nothing() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|config| config.cache.partition = Partition::Client);
    let ask = |source: [u8; 4], name: &str| {
        let (line, name) = (format!("GET {} HTTP/1.1", origin.url("/")), format!("Curtsy-Client: {name}"));
        curtsy.client_from(source).ask(&[&line, "Host: x", &name]).text()
    };
    assert_eq!(ask([127, 0, 0, 1], ""), "1 for ");
    assert_eq!(ask([127, 0, 0, 2], ""), "2 for ");
    assert_eq!(ask([127, 0, 0, 1], "ada"), "3 for ");
    assert_eq!(ask([127, 0, 0, 1], ""), "1 for ");
    assert_eq!(ask([127, 0, 0, 1], "ada"), "3 for ");
}

/// C7, X29: the key is the target, whatever the Host field says.
#[test]
fn the_key_is_the_target() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|_| {});
    let ask = |path: &str, host: &str| {
        curtsy.ask(&[&format!("GET {} HTTP/1.1", origin.url(path)), &format!("Host: {host}")]).text()
    };
    assert_eq!(ask("/", "poison.test"), "1 for ");
    assert_eq!(ask("/", "other.test"), "1 for ");
    assert_eq!(ask("/?", "x"), "2 for ");
    assert_eq!(ask("/%61", "x"), "3 for ");
    assert_eq!(ask("/a", "x"), "4 for ");
}

/// C8
#[test]
fn a_request_with_a_body_is_for_the_origin() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1 for ");
    let mut client = curtsy.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx", origin.url("/")).as_bytes());
    assert_eq!(client.response().text(), "2 for ");
    for field in ["Curtsy-Cache: off", "If-Match: \"1\"", "Expect: 100-continue"] {
        let answer = get(&curtsy, &origin.url("/"), &[field]);
        assert!(answer.value("cache-status").ends_with("; fwd=bypass"), "{field}: {}", answer.head());
    }
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1 for ");
}

/// C10
#[test]
fn a_429_is_never_stored() {
    let origin = site(|_, number| {
        format!("HTTP/1.1 429 Slow\r\nCache-Control: public, max-age=60\r\nContent-Length: 1\r\n\r\n{number}")
    });
    let curtsy = curtsy(|config| config.retry.max = 0);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1");
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "2");
}

/// C11
#[test]
fn a_body_whose_end_is_not_certain_is_not_stored() {
    let fields = "Cache-Control: max-age=60\r\n";
    let chunked = "Transfer-Encoding: chunked\r\n";
    let until_close = Origin::closing(format!("HTTP/1.1 200 OK\r\n{fields}\r\nbody"));
    let both =
        Origin::closing(format!("HTTP/1.1 200 OK\r\n{fields}{chunked}Content-Length: 3\r\n\r\n1\r\na\r\n0\r\n\r\n"));
    let trailers = Origin::answering(format!("HTTP/1.1 200 OK\r\n{fields}{chunked}\r\n1\r\na\r\n0\r\nX: 1\r\n\r\n"));
    let sound = Origin::answering(format!("HTTP/1.1 200 OK\r\n{fields}{chunked}\r\n1\r\na\r\n0\r\n\r\n"));
    let curtsy = curtsy(|_| {});
    for (origin, visits) in [(&until_close, 2), (&both, 2), (&trailers, 2), (&sound, 1)] {
        let first = get(&curtsy, &origin.url("/"), &[]);
        assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), first.text());
        assert_eq!(origin.count(), visits, "{}", first.head());
    }
    assert_eq!(curtsy.metric("curtsy_cache_not_stored_total{reason=\"undelimited\"}"), 6);
}

/// C12
#[test]
fn a_body_that_breaks_off_is_never_served() {
    let whole = "0123456789";
    for end in 0..whole.len() {
        let cut =
            format!("HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n{}", &whole[..end]);
        let origin = Origin::closing(cut);
        let curtsy = curtsy(|_| {});
        assert!(!get(&curtsy, &origin.url("/"), &[]).whole);
        assert!(!get(&curtsy, &origin.url("/"), &[]).whole);
        assert_eq!(origin.count(), 2, "{end}");
        assert_eq!(curtsy.metric("curtsy_cache_objects{tier=\"memory\"}"), 0);
    }
}

/// A client that leaves in the middle of a body leaves nothing behind.
#[test]
fn a_body_whose_client_left_is_not_stored() {
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            visitor.send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 10\r\n\r\n01234");
            visitor.linger();
        }
    });
    let curtsy = curtsy(|_| {});
    let mut client = curtsy.client();
    client.send_head(&[&format!("GET {} HTTP/1.1", origin.url("/")), "Host: x"]);
    client.response_head();
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_cache_not_stored_total{reason=\"incomplete\"}") == 1));
    assert_eq!(curtsy.metric("curtsy_cache_objects{tier=\"memory\"}"), 0);
}

/// C14: an endless Vary is bounded.
#[test]
fn a_url_has_sixteen_variants_at_most() {
    let origin = site(|request, _| {
        page("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", &request.value("accept-language"))
    });
    let curtsy = curtsy(|_| {});
    let ask = |number: usize| {
        let answer = get(&curtsy, &origin.url("/"), &[&format!("Accept-Language: l{number}")]);
        assert_eq!(answer.text(), format!("l{number}"));
        answer.value("cache-status")
    };
    (0..40).for_each(|number| assert!(ask(number).contains("fwd="), "{number}"));
    assert!(ask(39).contains("hit") && ask(24).contains("hit"));
    assert!(ask(0).contains("fwd=vary-miss; stored"));
}

/// ETag bombs and heads that lie are stored as they are, or not at all.
#[test]
fn a_large_head_counts_against_the_memory() {
    let bomb = "x".repeat(40_000);
    let origin = site(move |_, _| page(&format!("Cache-Control: max-age=60\r\nETag: \"{bomb}\"\r\n"), "a"));
    let curtsy = curtsy(|config| config.cache.memory = 1 << 20);
    for number in 0..100 {
        assert_eq!(get(&curtsy, &origin.url(&format!("/{number}")), &[]).text(), "a");
    }
    assert!(curtsy.metric("curtsy_cache_bytes{tier=\"memory\"}") <= 1 << 20);
    assert!(curtsy.metric("curtsy_cache_evictions_total{tier=\"memory\"}") > 0);
}

/// C58: a body that outgrows the limit is passed on whole and not stored.
#[test]
fn a_huge_body_is_passed_on_and_not_stored() {
    let body = "x".repeat(300_000);
    let chunked = format!(
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let (known, unknown) =
        (Origin::answering(page("Cache-Control: max-age=60\r\n", &body)), Origin::answering(chunked));
    let curtsy = curtsy(|config| config.cache.max_object = 100_000);
    for origin in [&known, &unknown] {
        assert_eq!(get(&curtsy, &origin.url("/"), &[]).body.len(), 300_000);
        assert_eq!(get(&curtsy, &origin.url("/"), &[]).body.len(), 300_000);
        assert_eq!(origin.count(), 2);
    }
    assert_eq!(curtsy.metric("curtsy_cache_not_stored_total{reason=\"too-large\"}"), 4);
}

/// A body in pieces comes back whole, and ranges are cut from it.
#[test]
fn a_long_body_comes_back_as_it_was() {
    let body: String = (0..60_000).map(|number| format!("{number:05}")).collect();
    let origin = Origin::answering(page("Cache-Control: max-age=60\r\n", &body));
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), body);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), body);
    let part = get(&curtsy, &origin.url("/"), &["Range: bytes=65530-131080"]);
    assert_eq!((part.status(), part.text()), (206, body[65_530..=131_080].to_owned()));
    assert_eq!(part.value("content-range"), format!("bytes 65530-131080/{}", body.len()));
    assert_eq!(get(&curtsy, &origin.url("/"), &["Range: bytes=999999-"]).status(), 416);
    assert_eq!(origin.count(), 1);
}

/// C36
#[test]
fn only_if_cached_sends_nothing() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|_| {});
    let answer = get(&curtsy, &origin.url("/"), &["Cache-Control: only-if-cached"]);
    assert_eq!((answer.status(), answer.refusal().as_str()), (504, "not-cached"));
    origin.expect_untouched();
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/"), &["Cache-Control: only-if-cached"]).text(), "1 for ");
}

/// C37
#[test]
fn report_mode_serves_nothing_and_counts_what_it_would() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|config| config.politeness.mode = Mode::Report);
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "2 for ");
    assert_eq!(curtsy.metric("curtsy_cache_requests_total{result=\"would_hit\"}"), 1);
}

#[test]
fn the_cache_can_be_off_for_all_or_for_one_host() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|config| config.politeness.cache = CacheMode::Off);
    get(&curtsy, &origin.url("/"), &[]);
    let answer = get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(answer.text(), "2 for ");
    assert!(!answer.has("cache-status") && !answer.has("age"));
}

/// C28: a hit takes no turn, and a copy is given while a turn would be far away.
#[test]
fn a_hit_takes_no_turn() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100_000);
    });
    get(&curtsy, &origin.url("/"), &[]);
    let host = || curtsy.ask_admin(&["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"]);
    let before: serde_json::Value = serde_json::from_str(&host().text()).unwrap();
    for _ in 0..50 {
        let answer = get(&curtsy, &origin.url("/"), &["Curtsy-Max-Wait: 0"]);
        assert_eq!(answer.text(), "1 for ");
        assert!(!answer.has("curtsy"), "a hit did not go through the lane: {}", answer.head());
    }
    let after: serde_json::Value = serde_json::from_str(&host().text()).unwrap();
    for key in ["requests", "delay", "queued", "in_flight", "successes"] {
        assert_eq!(before[key], after[key], "{key}");
    }
    assert_eq!((origin.count(), origin.connections()), (1, 1));
    assert_eq!(get(&curtsy, &origin.url("/other"), &["Curtsy-Max-Wait: 0"]).refusal(), "wait-too-long");
}

/// C30
#[test]
fn a_copy_is_not_served_where_robots_txt_denies() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let robots = page("", "User-agent: bad\nDisallow: /\n");
            let answer =
                if request.line().contains("robots.txt") { robots } else { page("Cache-Control: max-age=60\r\n", "x") };
            visitor.send(answer.as_bytes());
        }
    });
    let curtsy = curtsy(|config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(get(&curtsy, &origin.url("/"), &["User-Agent: good"]).status(), 200);
    assert_eq!(get(&curtsy, &origin.url("/"), &["User-Agent: bad"]).refusal(), "robots-denied");
    assert!(get(&curtsy, &origin.url("/"), &["User-Agent: good"]).value("cache-status").contains("hit"));
    assert_eq!(origin.count(), 2, "robots.txt and the page, once each");
}

/// C31
#[test]
fn a_copy_is_not_served_while_robots_txt_is_unknown() {
    let origin = site(|request, _| match request.line().contains("robots.txt") {
        true => "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned(),
        false => page("Cache-Control: max-age=60\r\n", "x"),
    });
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).status(), 200);
    curtsy.reload(|config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).refusal(), "robots-unreachable");
}

/// C63
#[test]
fn the_address_of_a_copy_is_judged_anew_after_a_reload() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).status(), 200);
    curtsy.reload(|config| config.access.allow_destinations = Vec::new());
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).refusal(), "destination-denied");
}

/// C64
#[test]
fn hits_and_refusals_work_over_http_1_0() {
    let origin = site(|_, _| page("Cache-Control: max-age=60\r\nETag: \"1\"\r\n", "body"));
    let curtsy = curtsy(|_| {});
    let ask = |fields: &[&str]| {
        let line = format!("GET {} HTTP/1.0", origin.url("/"));
        curtsy.ask(&[&[line.as_str(), "Host: x"], fields].concat())
    };
    assert_eq!(ask(&["Cache-Control: only-if-cached"]).status(), 504);
    assert_eq!(ask(&[]).text(), "body");
    let hit = ask(&[]);
    assert_eq!((hit.text().as_str(), hit.value("connection").as_str()), ("body", "close"));
    assert_eq!(ask(&["If-None-Match: \"1\""]).status(), 304);
    assert_eq!(origin.count(), 1);
}

/// C29: hits in between change nothing about the time of a waiting request.
#[test]
fn hits_do_not_delay_a_waiting_request() {
    let origin = marked("Cache-Control: max-age=60\r\n");
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(300);
    });
    get(&curtsy, &origin.url("/a"), &[]);
    let mut waiting = curtsy.client();
    waiting.send_head(&[&format!("GET {} HTTP/1.1", origin.url("/b")), "Host: x"]);
    let mut client = curtsy.client();
    let line = format!("GET {} HTTP/1.1", origin.url("/a"));
    while origin.count() < 2 {
        assert_eq!(client.ask(&[&line, "Host: x"]).text(), "1 for ");
    }
    assert_eq!(waiting.response().text(), "2 for ");
    let requests = origin.requests(2);
    curtsy.expect_gaps(&[ms(0), requests[1].at - requests[0].at], ms(300));
    assert_eq!(curtsy.metric("curtsy_queue_wait_seconds_count"), 2, "hits wait for nothing");
}

/// C32
#[test]
fn hits_do_not_fetch_robots_txt_again() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let robots = request.line().contains("robots.txt");
            visitor.send(page("Cache-Control: max-age=60\r\n", if robots { "" } else { "x" }).as_bytes());
        }
    });
    let curtsy = curtsy(|config| config.politeness.robots = RobotsMode::Enforce);
    for _ in 0..20 {
        assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "x");
    }
    assert_eq!(origin.count(), 2, "robots.txt and the page, once each");
}

/// C61
#[test]
fn explain_foresees_what_the_cache_does() {
    let origin = marked("Cache-Control: max-age=600\r\nETag: \"1\"\r\n");
    let old = marked("Cache-Control: max-age=60\r\nETag: \"1\"\r\nAge: 100\r\n");
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100_000);
        config.politeness.max_wait = ms(0);
    });
    let explain = |url: &str| -> serde_json::Value {
        let line = format!("GET /api/v1/explain?url={url} HTTP/1.1");
        serde_json::from_str(&curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).text()).unwrap()
    };
    assert_eq!(explain(&origin.url("/"))["cache"]["state"], "miss");
    get(&curtsy, &origin.url("/"), &[]);
    let told = explain(&origin.url("/"));
    assert_eq!(told["cache"]["state"], "fresh", "{told}");
    assert!(
        told["cache"]["ttl_s"].as_i64().unwrap() > 500 && told["wait_ms"] == 0 && told["refusal"].is_null(),
        "{told}"
    );
    assert!(get(&curtsy, &origin.url("/"), &[]).value("cache-status").contains("hit"));
    assert_eq!(explain(&origin.url("/other"))["refusal"], "wait-too-long");
    curtsy.reload(|config| config.politeness.mode = Mode::Off);
    get(&curtsy, &old.url("/"), &[]);
    let told = explain(&old.url("/"));
    assert_eq!(told["cache"]["state"], "validate", "{told}");
    assert!(told["cache"]["ttl_s"].as_i64().unwrap() <= -40);
}

/// What the cache saves is counted where the turn would have been taken.
#[test]
fn savings_count_for_the_budget_that_they_spare() {
    for (key, budget) in [(Key::Host, "www.example.test"), (Key::Domain, "example.test"), (Key::Ip, "127.0.0.1")] {
        let origin = site(|_, _| page("Cache-Control: max-age=60\r\n", "hello"));
        let curtsy = Curtsy::resolving(
            |_| Ok(vec![std::net::IpAddr::from([127, 0, 0, 1])]),
            |config| {
                config.politeness.mode = Mode::Enforce;
                config.politeness.delay = ms(1);
                config.pacing.key = key;
            },
        );
        for _ in 0..3 {
            assert_eq!(curtsy.get(&format!("http://www.example.test:{}/", origin.port())).body, b"hello");
        }
        assert_eq!(origin.count(), 1);
        for name in ["www.example.test", budget] {
            let lines = [&*format!("GET /api/v1/hosts/{name} HTTP/1.1"), "Host: localhost", "Connection: close"];
            let host = || serde_json::from_str::<serde_json::Value>(&curtsy.ask_admin(&lines).text()).expect("JSON");
            let wanted = serde_json::json!({ "requests": 2, "bytes": 10 });
            assert!(soon(|| host()["saved"] == wanted), "{key:?} {name}: {}", host());
        }
        let series = format!("curtsy_host_saved_requests_total{{host=\"{budget}\"}}");
        assert_eq!(curtsy.metric(&series), 2, "{series}");
    }
}
