//! The cache: answers that are old. They are validated in a turn, given stale where that is allowed, or removed.

use std::sync::{Arc, Barrier};

use curtsy::config::{Config, Mode};

use crate::cache::{get, page, site};
use crate::support::{Curtsy, Hole, Message, Origin, Visitor, ms, soon};

const UNCHANGED: &str = "HTTP/1.1 304 Not Modified\r\n\r\n";

fn curtsy(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.retry.max = 0;
        change(config);
    })
}

/// An origin with one page, already stale when it comes, that answers 304 to its own ETag.
fn validating(fields: &'static str, update: &'static str) -> Origin {
    site(move |request, _| match request.value("if-none-match").contains("\"1\"") {
        true => format!("HTTP/1.1 304 Not Modified\r\nETag: \"1\"\r\n{update}\r\n"),
        false => page(&format!("ETag: \"1\"\r\nAge: 100\r\n{fields}"), "body"),
    })
}

/// C21, C23
#[test]
fn a_stale_answer_is_validated_and_updated() {
    let origin = validating(
        "Cache-Control: max-age=60\r\nX-A: 1\r\n",
        "Cache-Control: max-age=600\r\nX-A: 2\r\nContent-Length: 99\r\n",
    );
    let curtsy = curtsy(|_| {});
    let first = get(&curtsy, &origin.url("/"), &[]);
    assert!(first.value("cache-status").ends_with("; fwd=uri-miss; stored"), "{}", first.head());
    let second = get(&curtsy, &origin.url("/"), &[]);
    assert_eq!((second.text().as_str(), second.value("x-a").as_str()), ("body", "2"));
    assert_eq!(second.value("content-length"), "4");
    assert!(second.value("cache-status").ends_with("; fwd=stale; fwd-status=304; stored"), "{}", second.head());
    let third = get(&curtsy, &origin.url("/"), &[]);
    assert!(
        third.value("cache-status").contains("; hit; ttl=600")
            || third.value("cache-status").contains("; hit; ttl=599")
    );
    assert_eq!(third.value("x-a"), "2");
    let requests = origin.requests(2);
    assert!(!requests[0].has("if-none-match"));
    assert_eq!(requests[1].value("if-none-match"), "\"1\"");
}

/// C22: a client's validators are judged by what is stored, and the origin gets ours.
#[test]
fn the_origin_is_asked_with_our_validators_and_not_the_clients() {
    let origin = validating("Cache-Control: max-age=60\r\n", "");
    let curtsy = curtsy(|_| {});
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/"), &["If-None-Match: \"invented\""]).text(), "body");
    assert_eq!(origin.requests(2)[1].value("if-none-match"), "\"1\"");
    assert_eq!(get(&curtsy, &origin.url("/"), &["If-None-Match: W/\"1\""]).status(), 304);
}

#[test]
fn a_changed_answer_replaces_the_old_one() {
    let origin = site(|_, number| {
        page(
            &format!("ETag: \"{number}\"\r\nCache-Control: max-age=60\r\nAge: {}\r\n", 100 / number),
            &number.to_string(),
        )
    });
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1");
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "2");
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "2");
    assert_eq!(curtsy.metric("curtsy_cache_requests_total{result=\"changed\"}"), 1);
}

/// C24, C25: a 304 about another answer is asked again, in a second turn.
#[test]
fn a_304_with_another_etag_is_asked_again_in_its_turn() {
    let origin = site(|request, _| match request.has("if-none-match") {
        true => "HTTP/1.1 304 Not Modified\r\nETag: \"2\"\r\n\r\n".to_owned(),
        false => page("ETag: \"1\"\r\nCache-Control: max-age=60\r\nAge: 100\r\n", "body"),
    });
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
    });
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "body");
    let requests = origin.requests(3);
    assert!(requests[1].has("if-none-match") && !requests[2].has("if-none-match"));
    let start = requests[0].at;
    let times: Vec<_> = requests.iter().map(|request| request.at - start).collect();
    curtsy.expect_gaps(&times, ms(100));
}

/// A 304 to conditions that are not ours is passed on.
#[test]
fn a_304_without_a_stored_answer_is_passed_on() {
    let origin = Origin::answering(UNCHANGED);
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &["If-None-Match: \"1\""]).status(), 304);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).status(), 304);
    assert_eq!(curtsy.metric("curtsy_cache_objects{tier=\"memory\"}"), 0);
}

/// C25: a 429 to a validation holds the host.
#[test]
fn a_validation_teaches_the_pace() {
    let origin = site(|request, _| match request.has("if-none-match") {
        true => "HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n".to_owned(),
        false => page("ETag: \"1\"\r\nCache-Control: max-age=60, must-revalidate\r\nAge: 100\r\n", "body"),
    });
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(1);
        config.politeness.max_wait = ms(10);
    });
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).status(), 429);
    // C33: must-revalidate forbids a stale copy, so the refusal goes out.
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).refusal(), "host-cooling");
}

/// C33
#[test]
fn a_stale_copy_is_given_while_the_host_is_held() {
    let origin = site(|request, _| match request.line().contains("/hold") {
        true => "HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n".to_owned(),
        false => page("ETag: \"1\"\r\nCache-Control: max-age=60\r\nAge: 100\r\n", "body"),
    });
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(1);
        config.politeness.max_wait = ms(10);
    });
    get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(get(&curtsy, &origin.url("/hold"), &[]).status(), 429);
    let stale = get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(stale.text(), "body");
    assert!(stale.value("cache-status").contains("; hit; ttl=-4"), "{}", stale.head());
    assert!(stale.value("cache-status").ends_with("; detail=host-cooling"), "{}", stale.head());
    assert!(stale.value("curtsy").starts_with("stale=4") && stale.value("curtsy").ends_with("why=host-cooling"));
    for wish in ["no-cache", "max-age=1000"] {
        assert_eq!(get(&curtsy, &origin.url("/"), &[&format!("Cache-Control: {wish}")]).refusal(), "host-cooling");
    }
    assert_eq!(get(&curtsy, &origin.url("/other"), &[]).refusal(), "host-cooling");
    assert_eq!(curtsy.metric("curtsy_cache_requests_total{result=\"stale\"}"), 1);
}

/// C34: an error of the site is not hidden, unless it said so.
#[test]
fn an_error_of_the_site_is_passed_on_unless_it_allows_stale_copies() {
    let answers = |allowed: &'static str| {
        site(move |_, number| match number {
            1 => page(&format!("ETag: \"1\"\r\nCache-Control: max-age=60{allowed}\r\nAge: 100\r\n"), "body"),
            _ => "HTTP/1.1 503 Down\r\nContent-Length: 4\r\n\r\ndown".to_owned(),
        })
    };
    let (plain, lenient, curtsy) = (answers(""), answers(", stale-if-error=1000"), curtsy(|_| {}));
    for origin in [&plain, &lenient] {
        assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "body");
    }
    assert_eq!(get(&curtsy, &plain.url("/"), &[]).text(), "down");
    let stale = get(&curtsy, &lenient.url("/"), &[]);
    assert_eq!(stale.text(), "body");
    assert!(stale.value("cache-status").ends_with("; detail=stale-if-error"), "{}", stale.head());
}

#[test]
fn a_site_that_cannot_be_reached_is_no_reason_for_a_stale_copy() {
    let origin = Origin::scripted(|visitor: &mut Visitor| {
        if visitor.request().is_some_and(|request| !request.has("if-none-match")) {
            visitor.send(
                page("ETag: \"1\"\r\nCache-Control: max-age=60\r\nAge: 100\r\nConnection: close\r\n", "body")
                    .as_bytes(),
            );
        }
    });
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "body");
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).refusal(), "origin-unreachable");
    assert_eq!(get(&curtsy, &Hole::refusing().url(), &[]).refusal(), "origin-unreachable");
}

/// C35: the client gets the old answer at once, and the next one the new answer.
#[test]
fn an_answer_is_refreshed_in_the_background() {
    let origin = site(|request, number| match request.has("if-none-match") {
        true => page("ETag: \"2\"\r\nCache-Control: max-age=60\r\n", "new"),
        false => page(
            "ETag: \"1\"\r\nCache-Control: max-age=60, stale-while-revalidate=900\r\nAge: 100\r\n",
            &number.to_string(),
        ),
    });
    let curtsy = curtsy(|_| {});
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1");
    let stale = get(&curtsy, &origin.url("/"), &[]);
    assert_eq!(stale.text(), "1");
    assert!(stale.value("cache-status").ends_with("; detail=stale-while-revalidate"), "{}", stale.head());
    assert!(soon(|| get(&curtsy, &origin.url("/"), &[]).text() == "new"));
    assert_eq!(origin.count(), 2);
}

/// C35: a refresh never takes the turn of a client.
#[test]
fn a_background_refresh_is_left_out_if_the_host_is_not_free() {
    let origin = Origin::answering(page(
        "ETag: \"1\"\r\nCache-Control: max-age=60, stale-while-revalidate=900\r\nAge: 100\r\n",
        "x",
    ));
    let curtsy = curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100_000);
    });
    for _ in 0..20 {
        assert_eq!(get(&curtsy, &origin.url("/"), &["Curtsy-Max-Wait: 0"]).text(), "x");
    }
    assert_eq!(origin.count(), 1);
}

/// C26
#[test]
fn a_head_is_answered_from_a_get_and_refreshes_or_removes_it() {
    let origin = site(|request, number| match request.line().starts_with("HEAD") {
        true if request.value("x-n") == "same" => {
            "HTTP/1.1 200 OK\r\nETag: \"1\"\r\nContent-Length: 4\r\nCache-Control: max-age=600\r\n\r\n".to_owned()
        }
        true => "HTTP/1.1 200 OK\r\nETag: \"9\"\r\nContent-Length: 9\r\nCache-Control: max-age=600\r\n\r\n".to_owned(),
        false => page("ETag: \"1\"\r\nCache-Control: max-age=60\r\n", &format!("n={number} ")),
    });
    let curtsy = curtsy(|config| config.cache.unkeyed = vec!["x-n".to_owned()]);
    let head = |fields: &[&str]| {
        let line = format!("HEAD {} HTTP/1.1", origin.url("/"));
        let mut client = curtsy.client();
        client.send_head(&[&[line.as_str(), "Host: x"], fields].concat());
        client.response_head()
    };
    get(&curtsy, &origin.url("/"), &[]);
    let hit = head(&[]);
    assert!(hit.value("cache-status").contains("hit") && hit.value("content-length") == "4", "{}", hit.head());
    head(&["X-N: same", "Cache-Control: no-cache"]);
    let status = get(&curtsy, &origin.url("/"), &[]).value("cache-status");
    assert!(["ttl=600", "ttl=599"].iter().any(|ttl| status.contains(ttl)), "not refreshed: {status}");
    head(&["X-N: other", "Cache-Control: no-cache"]);
    assert!(get(&curtsy, &origin.url("/"), &[]).value("cache-status").contains("fwd="), "removed");
}

/// C27
#[test]
fn a_method_that_changes_something_makes_copies_invalid() {
    let origin = site(|request, number| match request.line().split(' ').next() {
        Some("GET") => page("Cache-Control: max-age=60\r\n", &number.to_string()),
        _ if request.line().contains("/fails") => "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n".to_owned(),
        _ => "HTTP/1.1 201 Made\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n".to_owned(),
    });
    let other = Origin::answering(page("Cache-Control: max-age=60\r\n", "x"));
    let curtsy = curtsy(|_| {});
    let ask = |method: &str, path: &str| {
        curtsy.ask(&[&format!("{method} {} HTTP/1.1", origin.url(path)), "Host: x", "Content-Length: 0"])
    };
    let hits = |path: &str| get(&curtsy, &origin.url(path), &[]).value("cache-status").contains("hit");
    for method in ["POST", "DELETE", "FOO"] {
        for path in ["/a", "/b", "/c", "/fails"] {
            get(&curtsy, &origin.url(path), &[]);
            assert!(hits(path), "{path}");
        }
        ask(method, "/a");
        ask(method, "/fails");
        assert!(!hits("/a") && !hits("/b") && hits("/c") && hits("/fails"), "{method}");
    }
    get(&curtsy, &other.url("/"), &[]);
    let outside = format!("HTTP/1.1 201 Made\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n", other.url("/"));
    let rogue = Origin::answering(outside);
    curtsy.ask(&[&format!("POST {} HTTP/1.1", rogue.url("/")), "Host: x", "Content-Length: 0"]);
    assert!(get(&curtsy, &other.url("/"), &[]).value("cache-status").contains("hit"), "another origin's");
}

/// C27: an answer that was asked for before the change is not stored after it, wherever the change meets it: before its
/// head, in its body, or while a copy is validated.
#[test]
fn an_answer_from_before_a_change_is_not_stored_after_it() {
    let (go, gone) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let paces = (go.clone(), gone.clone());
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            let waits = |word: &str| {
                if request.value("x-wait") == word {
                    paces.0.wait();
                    paces.1.wait();
                }
            };
            if !request.line().starts_with("GET ") {
                visitor.send(b"HTTP/1.1 204 Done\r\n\r\n");
                continue;
            }
            waits("head");
            if request.has("if-none-match") {
                visitor.send(b"HTTP/1.1 304 Same\r\nETag: \"1\"\r\n\r\n");
                continue;
            }
            visitor.send(b"HTTP/1.1 200 OK\r\nETag: \"1\"\r\nCache-Control: max-age=60\r\nContent-Length: 2\r\n\r\na");
            waits("body");
            visitor.send(b"b");
        }
    });
    let curtsy = curtsy(|config| config.cache.unkeyed = vec!["x-wait".to_owned()]);
    for (path, wait, is_stored_before) in [("/1", "head", false), ("/2", "body", false), ("/3", "head", true)] {
        if is_stored_before {
            get(&curtsy, &origin.url(path), &[]);
        }
        let mut client = curtsy.client();
        let line = format!("GET {} HTTP/1.1", origin.url(path));
        client.send_head(&[&line, &format!("X-Wait: {wait}"), "Cache-Control: no-cache"]);
        go.wait();
        let line = format!("POST {} HTTP/1.1", origin.url(path));
        assert_eq!(curtsy.ask(&[&line, "Content-Length: 0"]).status(), 204);
        gone.wait();
        assert_eq!(client.response().text(), "ab");
        let again = get(&curtsy, &origin.url(path), &[]).value("cache-status");
        assert!(again.contains("fwd=uri-miss"), "{path}: {again}");
    }
    assert_eq!(curtsy.metric("curtsy_cache_not_stored_total{reason=\"invalidated\"}"), 3);
}

#[test]
fn min_refresh_spares_a_feed() {
    let origin = site(|_, number| page("ETag: \"1\"\r\nCache-Control: no-cache\r\nAge: 100\r\n", &number.to_string()));
    let curtsy = curtsy(|config| config.politeness.min_refresh = ms(1_800_000));
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "1");
    let spared = get(&curtsy, &origin.url("/"), &["Cache-Control: no-cache"]);
    assert_eq!(spared.text(), "1");
    assert!(spared.value("cache-status").ends_with("; detail=min-refresh"), "{}", spared.head());
    curtsy.reload(|config| config.politeness.min_refresh = ms(50_000));
    assert_eq!(get(&curtsy, &origin.url("/"), &[]).text(), "2");
}

/// C16, C17
#[test]
fn an_age_is_passed_on_and_grows() {
    let age = |fields: &'static str| {
        let origin = Origin::answering(page(&format!("Cache-Control: max-age=9999999999\r\n{fields}"), "x"));
        let curtsy = curtsy(|_| {});
        get(&curtsy, &origin.url("/"), &[]);
        get(&curtsy, &origin.url("/"), &[]).value("age").parse::<u64>().unwrap()
    };
    assert!((100..160).contains(&age("Age: 100\r\n")));
    assert!(age("Age: -7\r\n") < 60 && age("Age: 7.5\r\n") < 60 && age("") < 60);
    let origin = Origin::answering(page("Cache-Control: max-age=60\r\nAge: 18446744073709551615\r\n", "x"));
    let curtsy = curtsy(|_| {});
    get(&curtsy, &origin.url("/"), &[]);
    assert!(get(&curtsy, &origin.url("/"), &[]).value("cache-status").contains("fwd=stale"));
}

/// C59
#[test]
fn cache_status_parses_and_is_true() {
    let origin = validating("Cache-Control: max-age=60\r\n", "");
    let curtsy = curtsy(|_| {});
    let answers: Vec<Message> = vec![
        get(&curtsy, &origin.url("/"), &[]),
        get(&curtsy, &origin.url("/"), &[]),
        get(&curtsy, &origin.url("/"), &["Cache-Control: max-stale"]),
        get(&curtsy, &origin.url("/"), &["Cache-Control: no-cache"]),
        get(&curtsy, &origin.url("/"), &["X-Other: 1"]),
        get(&curtsy, &origin.url("/"), &["Curtsy-Cache: off"]),
        curtsy.ask(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 0"]),
    ];
    let told: Vec<String> = answers.iter().map(|answer| answer.value("cache-status")).collect();
    let ends = [
        "fwd=uri-miss; stored",
        "fwd=stale; fwd-status=304; stored",
        "",
        "fwd=request; fwd-status=304; stored",
        "fwd=vary-miss; stored",
        "fwd=bypass",
        "fwd=method",
    ];
    for (told, end) in told.iter().zip(ends) {
        assert!(told.starts_with("front-desk; ") && told.ends_with(end), "{told} {end}");
        assert!(sfv::Parser::new(told).parse::<sfv::List>().is_ok(), "{told}");
    }
    assert!(told[2].contains("; hit; ttl="), "{}", told[2]);
}
