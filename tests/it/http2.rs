//! HTTP/2 to origins that select it: nothing changes for the client, and requests share a connection.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use curtsy::config::{Config, Mode, RobotsMode};
use http::HeaderMap;
use tokio::sync::Barrier;

use crate::support::client::head;
use crate::support::http2_origin::{Call, pour, speaking};
use crate::support::tls_origin::{https, origin};
use crate::support::{
    Authority, Client, Curtsy, HELLO, Http2Origin, Message, PATIENCE, expect_gaps_on_shared, expect_gaps_since_start,
    ms, pause, soon,
};

pub(crate) fn trusting(authority: &Authority, change: impl FnOnce(&mut Config)) -> Curtsy {
    let roots = vec![authority.file()];
    Curtsy::with(|config| {
        config.tls.extra_roots = roots;
        change(config);
    })
}

/// Sends the request from `count` clients at once and returns the answers in the order of the clients.
fn ask_together(curtsy: &Curtsy, line: &str, count: usize) -> Vec<Message> {
    let asking = |_| {
        let (mut client, line) = (curtsy.client(), line.to_owned());
        thread::spawn(move || client.ask(&[&line, "Host: x"]))
    };
    let asking: Vec<_> = (0..count).map(asking).collect();
    asking.into_iter().map(|thread| thread.join().expect("the client got an answer")).collect()
}

fn ask(client: &mut Client, origin: &Http2Origin, path: &str) -> Message {
    client.ask(&[&origin.get(path), "Host: x"])
}

/// S16
#[test]
fn a_request_is_said_in_http2_and_its_answer_in_http1() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        let fields = [("set-cookie", "a=1"), ("set-cookie", "b=2"), ("x-case", "Kept"), ("curtsy-x", "1")];
        let mut stream = call.begin(200, &fields, false);
        stream.send_data("hello".into(), true).unwrap();
    });
    let curtsy = trusting(&authority, |_| ());
    let response = curtsy.client().ask(&[
        &origin.get("/a%2F?b=c&&d"),
        "Host: other.test",
        "Connection: X-Hop, keep-alive",
        "X-Hop: 1",
        "Keep-Alive: 5",
        "Cookie: s=1",
        "X-Twice: 1",
        "X-Twice: 2",
        "TE: trailers, gzip",
    ]);
    assert_eq!((response.line().as_str(), response.text().as_str()), ("HTTP/1.1 200 OK", "hello"));
    assert_eq!(response.values("Set-Cookie"), ["a=1", "b=2"]);
    assert_eq!((response.value("X-Case").as_str(), response.value("Via").as_str()), ("Kept", "2 front-desk"));
    assert!(!response.has("Curtsy-X"));
    let request = origin.request();
    assert_eq!(request.head.uri.to_string(), origin.url("/a%2F?b=c&&d"));
    assert_eq!(request.head.uri.authority().unwrap().as_str(), origin.authority());
    for name in ["host", "connection", "x-hop", "keep-alive"] {
        assert!(!request.head.headers.contains_key(name), "{name} in {:?}", request.head.headers);
    }
    assert_eq!((request.value("te").as_str(), request.value("x-twice").as_str()), ("trailers", "1, 2"));
    assert_eq!((request.value("cookie").as_str(), request.value("via").as_str()), ("s=1", "1.1 front-desk"));
}

/// S61: requests wait for one handshake and then use the connection at the same time.
#[test]
fn requests_share_a_connection_and_do_not_wait_for_each_other() {
    const CLIENTS: usize = 8;
    let (authority, together) = (Authority::new(), Arc::new(Barrier::new(CLIENTS)));
    let origin = Http2Origin::new(&authority, move |call| {
        let together = together.clone();
        async move {
            together.wait().await;
            call.answer(200, "hello");
        }
    });
    let curtsy = trusting(&authority, |_| ());
    for response in ask_together(&curtsy, &origin.get("/"), CLIENTS) {
        assert_eq!(response.text(), "hello");
    }
    assert_eq!((origin.arrivals().len(), origin.connections()), (CLIENTS, 1));
}

#[test]
fn a_connection_that_is_full_is_joined_by_another() {
    let (authority, together) = (Authority::new(), Arc::new(Barrier::new(6)));
    let origin = Http2Origin::with(
        &authority,
        |builder| _ = builder.max_concurrent_streams(2),
        move |call| {
            let together = together.clone();
            async move {
                together.wait().await;
                call.answer(200, "hello");
            }
        },
    );
    let curtsy = trusting(&authority, |_| ());
    for response in ask_together(&curtsy, &origin.get("/"), 6) {
        assert_eq!(response.text(), "hello");
    }
    assert_eq!(origin.connections(), 3);
}

/// Promise 1: measured at the origin and by curtsy's own audit.
#[test]
fn twenty_in_line_keep_their_distance_on_one_connection() {
    const DELAY: Duration = ms(200);
    let authority = Authority::new();
    let origin = Http2Origin::hello(&authority);
    let curtsy = trusting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
    });
    for response in ask_together(&curtsy, &origin.get("/"), 20) {
        assert_eq!(response.text(), "hello", "{}", response.head());
    }
    let arrivals = origin.arrivals();
    assert_eq!((arrivals.len(), origin.connections()), (20, 1));
    expect_gaps_on_shared(&arrivals, DELAY);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// Promise 1: while a request head is not sent yet, the next turn is not given.
#[test]
fn an_upload_that_fills_the_connection_compresses_no_gap() {
    const DELAY: Duration = ms(300);
    let authority = Authority::new();
    let origin = Http2Origin::with(
        &authority,
        |builder| _ = builder.initial_window_size(8 << 20).initial_connection_window_size(64 << 20),
        |mut call: Call| async move {
            let (body, _) = call.read().await;
            call.answer(200, body.len().to_string());
        },
    );
    let curtsy = trusting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
    });
    let upload = |path: &str| {
        let mut client = curtsy.client();
        client.send(head(&[&format!("POST {} HTTP/1.1", origin.url(path)), "Host: x", "Content-Length: 6000000"]));
        // If the head came together with its body, its time would be that of the body.
        assert!(soon(|| origin.arrivals().iter().any(|arrival| arrival.head.uri.path() == path)), "{path}");
        client.send(vec![0; 6_000_000]);
        assert_eq!(client.response().text(), "6000000");
    };
    thread::scope(|scope| {
        for path in ["/1", "/2", "/3", "/4"] {
            scope.spawn(move || upload(path));
        }
    });
    let arrivals = origin.arrivals();
    assert_eq!(arrivals.len(), 4);
    expect_gaps_since_start(&arrivals, DELAY);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

#[test]
fn http1_is_spoken_where_the_operator_or_the_origin_wants_it() {
    let authority = Authority::new();
    let offers = [&["h2", "http/1.1"][..], &["http/1.1"], &[]];
    for (offer, http2) in offers.into_iter().zip([false, true, true]) {
        let origin = origin(speaking(&authority.server(), offer), |visitor| {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        });
        let curtsy = trusting(&authority, |config| config.upstream.http2 = http2);
        for _ in 0..2 {
            assert_eq!(curtsy.get(&https(&origin, "/")).text(), "hello", "{offer:?}");
        }
        assert_eq!(origin.request().line(), "GET / HTTP/1.1");
    }
}

/// S58: only HTTP/1.1 has upgrades, so curtsy offers no other protocol for a WebSocket.
#[test]
fn a_websocket_goes_over_http1_beside_http2() {
    let authority = Authority::new();
    let origin = origin(speaking(&authority.server(), &["h2", "http/1.1"]), |visitor| {
        if visitor.request_head().is_some() {
            visitor.send("HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            while let Ok(bytes) = visitor.read_some() {
                visitor.send(bytes);
            }
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    let line = format!("GET {} HTTP/1.1", https(&origin, "/"));
    client.send_head(&[&line, "Host: x", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: k"]);
    assert_eq!(client.response_head().status(), 101);
    client.send("ping");
    assert_eq!(client.read_exactly(4).unwrap(), b"ping");
}

#[test]
fn large_bodies_pass_both_ways() {
    const SIZE: usize = 5_000_000;
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        let (body, _) = call.read().await;
        let mut stream = call.begin(200, &[], false);
        pour(&mut stream, body.into(), true).await;
    });
    let curtsy = trusting(&authority, |_| ());
    let body: Vec<u8> = (0..SIZE).map(|n| (n % 251) as u8).collect();
    for length in [format!("Content-Length: {SIZE}"), "Transfer-Encoding: chunked".to_owned()] {
        let mut client = curtsy.client();
        client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", &length]));
        if length.starts_with('T') {
            client.send(format!("{SIZE:x}\r\n"));
            client.send(&body);
            client.send("\r\n0\r\n\r\n");
        } else {
            client.send(&body);
        }
        let response = client.response();
        assert_eq!(response.status(), 200, "{}", response.text());
        assert!(response.body == body, "{length}: {} bytes came back", response.body.len());
    }
}

#[test]
fn trailers_pass_both_ways() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        let (_, trailers) = call.read().await;
        let mut stream = call.begin(200, &[("trailer", "x-sum")], false);
        stream.send_data("hello".into(), false).unwrap();
        let mut answer = HeaderMap::new();
        answer.insert("x-sum", trailers["x-sum"].clone());
        answer.insert("content-length", "1".parse().unwrap());
        stream.send_trailers(answer).unwrap();
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send(head(&[&line, "Host: x", "TE: trailers", "Transfer-Encoding: chunked", "Trailer: X-Sum"]));
    client.send("2\r\nab\r\n0\r\nX-Sum: 7\r\nHost: forged\r\n\r\n");
    let response = client.response();
    assert_eq!(response.text(), "hello");
    assert_eq!(response.trailers, ["x-sum: 7"]);
}

/// S25
#[test]
fn some_responses_have_no_body() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        match call.head.uri.path() {
            "/head" => _ = call.begin(200, &[("content-length", "5")], true),
            "/304" => _ = call.begin(304, &[("etag", "\"x\"")], true),
            "/204" => _ = call.begin(204, &[], true),
            _ => call.answer(200, ""),
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    let response = client.ask(&[&format!("HEAD {} HTTP/1.1", origin.url("/head")), "Host: x"]);
    assert_eq!((response.status(), response.value("Content-Length").as_str()), (200, "5"));
    for (path, status) in [("/304", 304), ("/204", 204), ("/empty", 200)] {
        let response = ask(&mut client, &origin, path);
        assert_eq!((response.status(), response.body.len()), (status, 0), "{path}");
    }
    assert_eq!(origin.connections(), 1);
}

/// S46
#[test]
fn interim_responses_do_not_disturb_the_final_one() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        for _ in 0..3 {
            let early = http::Response::builder().status(103).header("link", "</x>").body(()).unwrap();
            call.respond.send_informational(early).unwrap();
        }
        call.answer(200, "hello");
    });
    let curtsy = trusting(&authority, |_| ());
    let response = curtsy.get(&origin.url("/"));
    assert_eq!((response.status(), response.text().as_str()), (200, "hello"));
    assert!(!response.has("Link"));
}

/// S44
#[test]
fn a_client_that_waits_for_100_is_asked_for_its_body() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        let (body, _) = call.read().await;
        call.answer(200, body);
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send(head(&[&line, "Host: x", "Expect: 100-continue", "Content-Length: 4"]));
    assert_eq!(client.response_head().status(), 100);
    client.send("body");
    assert_eq!(client.response().text(), "body");
    assert!(!origin.request().head.headers.contains_key("expect"));
}

/// Backpressure reaches the origin, and only on the slow stream.
#[test]
fn a_client_that_does_not_read_slows_its_origin_and_no_other_client() {
    let (authority, poured) = (Authority::new(), Arc::new(AtomicUsize::new(0)));
    let count = poured.clone();
    let origin = Http2Origin::new(&authority, move |mut call: Call| {
        let count = count.clone();
        async move {
            if call.head.uri.path() != "/endless" {
                return call.answer(200, "hello");
            }
            let mut stream = call.begin(200, &[], false);
            while pour(&mut stream, Bytes::from_static(&[b'x'; 16384]), false).await {
                count.fetch_add(16384, Ordering::Relaxed);
            }
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut slow: Vec<_> = (0..6).map(|_| curtsy.client()).collect();
    for client in &mut slow {
        client.small_window();
        client.send_head(&[&origin.get("/endless"), "Host: x"]);
    }
    // Waits until nothing moves for a while. A machine that stalls for so long lets less through, not more.
    let mut before = usize::MAX;
    assert!(soon(|| {
        pause(ms(200));
        let now = poured.load(Ordering::Relaxed);
        std::mem::replace(&mut before, now) == now && now > 0
    }));
    assert!(before < 6 * 2_000_000, "{before} bytes for clients that read nothing");
    assert_eq!(curtsy.get(&origin.url("/quick")).text(), "hello");
    assert_eq!(origin.connections(), 1);
}

/// curtsy cancels the stream and keeps the connection.
#[test]
fn a_client_that_leaves_takes_only_its_stream_with_it() {
    let authority = Authority::new();
    let (reset, resets) = mpsc::channel();
    let origin = Http2Origin::new(&authority, move |mut call: Call| {
        let reset = reset.clone();
        async move {
            let mut stream = match call.head.uri.path() {
                "/head" => {
                    let reason = std::future::poll_fn(|cx| call.respond.poll_reset(cx)).await;
                    return reset.send(reason.unwrap()).unwrap();
                }
                "/body" => call.begin(200, &[], false),
                _ => return call.answer(200, "hello"),
            };
            stream.send_data("some".into(), false).unwrap();
            reset.send(std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap()).unwrap();
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/head"), "Host: x"]);
    origin.request();
    drop(client);
    assert_eq!(resets.recv_timeout(PATIENCE).unwrap(), h2::Reason::CANCEL);
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/body"), "Host: x"]);
    assert_eq!(client.response_head().status(), 200);
    drop(client);
    assert_eq!(resets.recv_timeout(PATIENCE).unwrap(), h2::Reason::CANCEL);
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_answer_before_the_end_of_the_upload_reaches_the_client() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |call: Call| async move { call.answer(413, "too much") });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 1000000"]));
    let response = client.response();
    assert_eq!((response.status(), response.text().as_str()), (413, "too much"));
}

/// curtsy fetches robots.txt on the connection that the page then uses.
#[test]
fn robots_txt_comes_over_the_same_connection() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |call: Call| async move {
        match call.head.uri.path() {
            "/robots.txt" => call.answer(200, "User-agent: *\nDisallow: /private"),
            _ => call.answer(200, "hello"),
        }
    });
    let curtsy = trusting(&authority, |config| config.politeness.robots = RobotsMode::Enforce);
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert_eq!(curtsy.get(&origin.url("/private")).refusal(), "robots-denied");
    assert_eq!((origin.arrivals().len(), origin.connections()), (2, 1));
}

/// An unused connection is closed after `upstream.keep_alive`, as with HTTP/1.1.
#[test]
fn a_connection_without_work_is_closed() {
    let authority = Authority::new();
    let origin = Http2Origin::hello(&authority);
    let curtsy = trusting(&authority, |config| config.upstream.keep_alive = ms(100));
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert!(soon(|| origin.open_connections() == 0), "it is never closed");
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert_eq!(origin.connections(), 2);
}

/// The new rules may forbid the address of an old connection.
#[test]
fn a_connection_of_before_a_reload_is_not_used_again() {
    let authority = Authority::new();
    let origin = Http2Origin::hello(&authority);
    let curtsy = trusting(&authority, |_| ());
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    let roots = vec![authority.file()];
    curtsy.reload(|config| config.tls.extra_roots = roots);
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert_eq!(origin.connections(), 2);
}
