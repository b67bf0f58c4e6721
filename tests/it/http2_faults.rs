//! Origins that agree to HTTP/2 and then close, refuse or misbehave: their clients get an answer in time, and no other
//! client is affected.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::http2::trusting;
use crate::support::client::head;
use crate::support::http2_origin::{
    CONTINUATION, Call, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, OK, PING, SETTINGS, frame, frames, goaway,
    mute, next_of, next_request, page, reset, speaking,
};
use crate::support::tls_origin::https;
use crate::support::{
    Authority, Client, HELLO, Http2Origin, Message, Origin, PATIENCE, Stopwatch, Visitor, expect_gaps, ms,
};

const REFUSED_STREAM: u32 = 7;
const INTERNAL_ERROR: u32 = 2;
const HTTP_1_1_REQUIRED: u32 = 13;

/// Answers every request on this connection.
fn hello(visitor: &mut Visitor) {
    while let Some(stream) = next_request(visitor) {
        visitor.send(page(stream));
    }
}

fn get(client: &mut Client, origin: &Origin) -> Message {
    client.ask(&[&format!("GET {} HTTP/1.1", https(origin, "/")), "Host: x"])
}

fn post(client: &mut Client, origin: &Origin) -> Message {
    client.send(head(&[&format!("POST {} HTTP/1.1", https(origin, "/")), "Host: x", "Content-Length: 4"]) + "body");
    client.response()
}

/// An origin that plays `fault` for the second request on its first connection and answers all others.
fn second_gets(authority: &Authority, fault: impl Fn(&mut Visitor, u32) + Send + Sync + 'static) -> Origin {
    frames(authority, move |visitor| {
        if visitor.number > 0 {
            return hello(visitor);
        }
        if let Some(stream) = next_request(visitor) {
            visitor.send(page(stream));
        }
        if let Some(stream) = next_request(visitor) {
            fault(visitor, stream);
            visitor.linger();
        }
    })
}

/// S60
#[test]
fn what_the_origin_has_not_looked_at_is_sent_again_whatever_it_is() {
    let authority = Authority::new();
    let farewell = |visitor: &mut Visitor, _| _ = visitor.send(goaway(1));
    let refusal = |visitor: &mut Visitor, stream| _ = visitor.send(reset(stream, REFUSED_STREAM));
    for origin in [second_gets(&authority, farewell), second_gets(&authority, refusal)] {
        let curtsy = trusting(&authority, |_| ());
        let mut client = curtsy.client();
        assert_eq!(get(&mut client, &origin).text(), "hello");
        assert_eq!(get(&mut client, &origin).text(), "hello");
    }
    // A body that has been sent already cannot be sent again.
    let origin = second_gets(&authority, |visitor, _| _ = visitor.send(goaway(1)));
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    assert_eq!(get(&mut client, &origin).text(), "hello");
    assert_eq!(post(&mut client, &origin).status(), 502);
}

/// S60, promise 6: an origin that sends GOAWAY after every few answers costs no request and does not open the breaker.
#[test]
fn an_origin_that_takes_leave_often_serves_everybody() {
    let authority = Authority::new();
    for (answers, delay) in [(1, 0), (2, 0), (3, 0), (5, 0), (1, 20), (2, 20), (3, 20), (5, 20)] {
        let origin = frames(&authority, move |visitor| {
            let mut last = 0;
            for _ in 0..answers {
                let Some(stream) = next_request(visitor) else { return };
                visitor.send(page(stream));
                last = stream;
            }
            visitor.send(goaway(last));
            visitor.linger();
        });
        let curtsy = trusting(&authority, |config| {
            config.politeness.mode = curtsy::config::Mode::Enforce;
            config.politeness.delay = ms(delay);
            config.breaker.failures = 2;
        });
        let mut clients: Vec<Client> = (0..30).map(|_| curtsy.client()).collect();
        let line = format!("GET {} HTTP/1.1", https(&origin, "/"));
        clients.iter_mut().for_each(|client| client.send_head(&[&line, "Host: x"]));
        let served = clients.iter_mut().map(|client| client.response().text()).filter(|text| text == "hello").count();
        assert_eq!(served, 30, "with a farewell after {answers} answers and {delay} ms between requests");
        assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
    }
}

/// Promise 1: sending a request again is a request start like any other.
#[test]
fn what_is_sent_again_takes_a_turn() {
    let (authority, watch, delay) = (Authority::new(), Stopwatch::start(), ms(300));
    let (started, starts) = mpsc::channel();
    let origin = frames(&authority, move |visitor| {
        while let Some(stream) = next_request(visitor) {
            started.send(watch.at(visitor.arrived())).unwrap();
            let is_second = visitor.number == 0 && stream > 1;
            visitor.send(if is_second { reset(stream, REFUSED_STREAM) } else { page(stream) });
        }
    });
    let curtsy = trusting(&authority, |config| {
        config.politeness.mode = curtsy::config::Mode::Enforce;
        config.politeness.delay = delay;
    });
    let mut client = curtsy.client();
    assert_eq!(get(&mut client, &origin).text(), "hello");
    assert_eq!(get(&mut client, &origin).text(), "hello");
    let times: Vec<_> = starts.try_iter().collect();
    assert_eq!(times.len(), 3);
    expect_gaps(&times, delay);
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// A kept connection that died is handled as with HTTP/1.1.
#[test]
fn a_kept_connection_that_died_is_replaced_for_what_may_be_repeated() {
    let authority = Authority::new();
    for says_so in [true, false] {
        let origin = frames(&authority, move |visitor| {
            if visitor.number > 0 {
                return hello(visitor);
            }
            let stream = next_request(visitor).expect("the first request");
            visitor.send(page(stream));
            next_request(visitor);
            if !says_so {
                visitor.end_with_reset();
            }
        });
        let curtsy = trusting(&authority, |_| ());
        let mut client = curtsy.client();
        assert_eq!(get(&mut client, &origin).text(), "hello");
        assert_eq!(get(&mut client, &origin).text(), "hello");
        assert_eq!(origin.connections(), 2);
    }
}

#[test]
fn what_the_origin_has_dealt_with_is_not_sent_again() {
    let authority = Authority::new();
    let origin = second_gets(&authority, |visitor, stream| _ = visitor.send(reset(stream, INTERNAL_ERROR)));
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    assert_eq!(get(&mut client, &origin).text(), "hello");
    let response = get(&mut client, &origin);
    assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
    assert!(response.value("Proxy-Status").contains("connection_terminated"), "{}", response.head());
    assert_eq!(origin.connections(), 1);
}

#[test]
fn an_origin_may_want_http1_after_all() {
    let authority = Authority::new();
    let server = [speaking(&authority.server(), &["h2"]), speaking(&authority.server(), &["http/1.1"])];
    let origin = Origin::scripted(move |visitor| {
        let is_first = visitor.number == 0;
        if !visitor.start_tls(&server[usize::from(!is_first)]) {
            return;
        }
        if !is_first {
            while visitor.request().is_some() {
                visitor.send(HELLO);
            }
        } else if visitor.read_exactly(24).is_ok() {
            visitor.send(frame(SETTINGS, 0, 0, b""));
            if let Some(stream) = next_request(visitor) {
                visitor.send(reset(stream, HTTP_1_1_REQUIRED));
                visitor.linger();
            }
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    assert_eq!(get(&mut client, &origin).text(), "hello");
    assert_eq!(get(&mut client, &origin).text(), "hello");
    assert_eq!(origin.connections(), 2);
}

/// S41
#[test]
fn a_body_that_breaks_off_is_not_completed() {
    let authority = Authority::new();
    let endings: [fn(&mut Visitor, u32); 4] = [
        |visitor, stream| _ = visitor.send(reset(stream, INTERNAL_ERROR)),
        |visitor, _| visitor.close_notify(),
        |visitor, _| visitor.end_with_reset(),
        // DATA for a stream that was never opened.
        |visitor, _| _ = visitor.send(frame(DATA, 0, 99, b"x")),
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        let origin = frames(&authority, move |visitor| {
            let Some(stream) = next_request(visitor) else { return };
            visitor.send(frame(HEADERS, END_HEADERS, stream, OK));
            visitor.send(frame(DATA, 0, stream, b"hel"));
            ending(visitor, stream);
            if number != 2 {
                visitor.linger();
            }
        });
        let curtsy = trusting(&authority, |_| ());
        let response = curtsy.get(&https(&origin, "/"));
        assert_eq!((response.status(), response.whole), (200, false), "ending {number}");
        assert_eq!(origin.connections(), 1);
    }
}

/// After GOAWAY curtsy reads the pending answers and uses a new connection for further requests.
#[test]
fn goaway_lets_what_was_begun_end() {
    let authority = Authority::new();
    let origin = frames(&authority, |visitor| {
        let Some(stream) = next_request(visitor) else { return };
        if visitor.number == 0 {
            visitor.send(frame(HEADERS, END_HEADERS, stream, OK));
            visitor.send(goaway(stream));
            visitor.send(frame(DATA, 0, stream, b"hel"));
            visitor.send(frame(DATA, END_STREAM, stream, b"lo"));
            visitor.linger();
        } else {
            visitor.send(page(stream));
            hello(visitor);
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    for _ in 0..3 {
        assert_eq!(get(&mut client, &origin).text(), "hello");
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_connection_without_work_ends_with_a_word() {
    let authority = Authority::new();
    let (ended, end) = mpsc::channel();
    let origin = frames(&authority, move |visitor| {
        if let Some(stream) = next_request(visitor) {
            visitor.send(page(stream));
            ended.send(next_of(visitor, GOAWAY).is_some()).unwrap();
        }
    });
    let curtsy = trusting(&authority, |config| config.upstream.keep_alive = ms(100));
    assert_eq!(curtsy.get(&https(&origin, "/")).text(), "hello");
    assert!(end.recv_timeout(PATIENCE).unwrap());
}

/// If the request that opens the connection is abandoned, the requests that wait for that connection still succeed.
#[test]
fn the_one_that_opens_the_connection_may_leave() {
    let authority = Authority::new();
    let server = speaking(&authority.server(), &["h2"]);
    let origin = Origin::scripted(move |visitor| {
        if visitor.number == 0 {
            visitor.linger();
        } else if visitor.start_tls(&server) && visitor.read_exactly(24).is_ok() {
            visitor.send(frame(SETTINGS, 0, 0, b""));
            hello(visitor);
        }
    });
    let curtsy = trusting(&authority, |_| ());
    let line = format!("GET {} HTTP/1.1", https(&origin, "/"));
    let (mut opener, mut other) = (curtsy.client(), curtsy.client());
    opener.send_head(&[&line, "Host: x"]);
    assert!(crate::support::soon(|| origin.connections() == 1));
    other.send_head(&[&line, "Host: x"]);
    assert!(crate::support::soon(|| curtsy.metric("curtsy_inflight_requests") == 2));
    assert_eq!(origin.connections(), 1, "the second waits for the first");
    opener.reset();
    assert_eq!(other.response().text(), "hello");
}

/// A failed attempt fails for all requests that waited for it, so that they do not all dial the origin at once.
#[test]
fn an_origin_that_hangs_is_not_dialled_by_all_that_waited() {
    let authority = Authority::new();
    let origin = Origin::scripted(|visitor| _ = visitor.linger());
    let curtsy = trusting(&authority, |config| config.upstream.connect_timeout = ms(700));
    let line = format!("GET {} HTTP/1.1", https(&origin, "/"));
    let mut clients: Vec<Client> = (0..6).map(|_| curtsy.client()).collect();
    clients.iter_mut().for_each(|client| client.send_head(&[&line, "Host: x"]));
    let statuses: Vec<u16> = clients.iter_mut().map(|client| client.response().status()).collect();
    assert_eq!((statuses, origin.connections()), (vec![504; 6], 1));
}

/// One connection that hangs holds up no other request for longer than a second.
#[test]
fn a_connection_that_hangs_is_not_waited_for_by_all() {
    let authority = Authority::new();
    let server = speaking(&authority.server(), &["h2"]);
    let origin = Origin::scripted(move |visitor| {
        if visitor.number == 0 {
            visitor.linger();
        } else if visitor.start_tls(&server) && visitor.read_exactly(24).is_ok() {
            visitor.send(frame(SETTINGS, 0, 0, b""));
            hello(visitor);
        }
    });
    let curtsy = trusting(&authority, |config| config.upstream.connect_timeout = PATIENCE * 2);
    let line = format!("GET {} HTTP/1.1", https(&origin, "/"));
    let mut opener = curtsy.client();
    opener.send_head(&[&line, "Host: x"]);
    assert!(crate::support::soon(|| origin.connections() == 1));
    let mut others: Vec<Client> = (0..5).map(|_| curtsy.client()).collect();
    others.iter_mut().for_each(|client| client.send_head(&[&line, "Host: x"]));
    others.iter_mut().for_each(|client| assert_eq!(client.response().text(), "hello"));
    assert_eq!(origin.connections(), 2, "one of them tries for all");
}

/// A request does not wait for the failures of other requests one after the other.
#[test]
fn an_origin_that_hangs_costs_everybody_the_same_time() {
    let authority = Authority::new();
    let origin = Origin::scripted(|visitor| _ = visitor.linger());
    let curtsy = trusting(&authority, |config| config.upstream.connect_timeout = ms(2_000));
    let watch = Stopwatch::start();
    let asking = |_| {
        let (mut client, line) = (curtsy.client(), format!("GET {} HTTP/1.1", https(&origin, "/")));
        thread::spawn(move || client.ask(&[&line, "Host: x"]).status())
    };
    let asking: Vec<_> = (0..10).map(asking).collect();
    for each in asking {
        assert_eq!(each.join().unwrap(), 504);
    }
    assert!(watch.elapsed() < ms(15_000), "{:?}", watch.elapsed());
}

fn misled(misbehave: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Message {
    misled_for(PATIENCE, misbehave)
}

/// Returns the answer to one GET to an origin that misbehaves, while another origin is visited. The origins may take
/// this long for anything.
fn misled_for(time: Duration, misbehave: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Message {
    let authority = Authority::new();
    let (bad, good) = (mute(&authority, misbehave), Http2Origin::hello(&authority));
    let curtsy = trusting(&authority, |config| {
        config.upstream.connect_timeout = time;
        config.upstream.response_timeout = time;
        config.upstream.idle_timeout = time;
        config.limits.head_size = 16 * 1024;
    });
    let mut client = curtsy.client();
    client.send_head(&[&format!("GET {} HTTP/1.1", https(&bad, "/")), "Host: x"]);
    for _ in 0..3 {
        assert_eq!(curtsy.get(&good.url("/")).text(), "hello");
    }
    client.response()
}

/// Sends these bytes again and again until the connection is closed.
fn flood(visitor: &mut Visitor, bytes: &[u8]) {
    visitor.patience(ms(300));
    let many = bytes.repeat(64);
    for _ in 0..10_000 {
        if !visitor.send(&many) {
            return;
        }
    }
    panic!("curtsy takes this for ever");
}

/// X32
#[test]
fn what_is_not_http2_is_told_as_such() {
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 100], &frame(PING, 0, 0, b"12345678")] {
        let garbage = garbage.to_vec();
        let response = misled(move |visitor| {
            visitor.send(&garbage);
            visitor.linger();
        });
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
        assert!(response.value("Proxy-Status").contains("http_protocol_error"), "{}", response.head());
    }
    let silent = misled_for(ms(3_000), |visitor| _ = visitor.linger());
    assert_eq!((silent.status(), silent.refusal().as_str()), (504, "origin-timeout"));
    assert_eq!(misled(|_| ()).status(), 502);
}

fn after_the_request(then: impl Fn(&mut Visitor, u32) + Send + Sync + 'static) -> Message {
    misled(move |visitor| {
        if visitor.read_exactly(24).is_ok() {
            visitor.send(frame(SETTINGS, 0, 0, b""));
            if let Some(stream) = next_request(visitor) {
                then(visitor, stream);
            }
        }
    })
}

/// X32
#[test]
fn heads_that_never_end_are_cut_off() {
    // A literal field of 100 bytes, not put into the table.
    let field = [&[0x00, 0x01, b'x', 100][..], &[b'y'; 100]].concat();
    let bomb = after_the_request(move |visitor, stream| {
        let fields = [OK, &field.repeat(150)].concat();
        visitor.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields));
        visitor.linger();
    });
    assert_eq!(bomb.status(), 502);
    let packed = after_the_request(|visitor, stream| {
        // One field of 4000 bytes is put into the table and then named a thousand times.
        let field = [&[0x40, 0x01, b'x', 0x7f, 0xa1, 0x1e][..], &[b'y'; 4000]].concat();
        visitor.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &[OK, &field, &[0xbe; 1000]].concat()));
        visitor.linger();
    });
    assert_eq!(packed.status(), 502);
    assert!(bomb.text().contains("longer than limits.head_size"), "{}", bomb.text());
    let endless = after_the_request(|visitor, stream| {
        visitor.send(frame(HEADERS, 0, stream, OK));
        flood(visitor, &frame(CONTINUATION, 0, stream, b""));
    });
    assert_eq!(endless.status(), 502);
    let large = after_the_request(|visitor, stream| {
        visitor.send(frame(HEADERS, 0, stream, OK));
        let field = [&[0x00, 0x01, b'x', 100][..], &[b'y'; 100]].concat();
        flood(visitor, &frame(CONTINUATION, 0, stream, &field));
    });
    assert_eq!(large.status(), 502);
    let interim = after_the_request(|visitor, stream| {
        // `:status: 103`
        flood(visitor, &frame(HEADERS, END_HEADERS, stream, &[0x08, 0x03, b'1', b'0', b'3']));
    });
    assert_eq!(interim.status(), 502);
}

/// X32, X38
#[test]
fn an_origin_that_only_talks_is_cut_off() {
    let talks: [fn(u32) -> Vec<u8>; 5] = [
        |_| frame(PING, 0, 0, b"12345678"),
        |_| frame(SETTINGS, 0, 0, b""),
        |_| frame(0x42, 0, 0, b"nobody knows this"),
        |_| frame(2, 0, 99, &[0; 5]),
        |stream| frame(8, 0, stream, &1u32.to_be_bytes()),
    ];
    for (number, talk) in talks.into_iter().enumerate() {
        let response = after_the_request(move |visitor, stream| flood(visitor, &talk(stream)));
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "flood {number}");
    }
    let empty = after_the_request(|visitor, stream| {
        visitor.send(frame(HEADERS, END_HEADERS, stream, OK));
        flood(visitor, &frame(DATA, 0, stream, b""));
    });
    assert!(!empty.whole);
}

#[test]
fn statuses_that_http2_does_not_have_are_refused() {
    for status in [b"101", b"099"] {
        let response = after_the_request(move |visitor, stream| {
            let fields = [&[0x08, 0x03][..], status].concat();
            visitor.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields));
            visitor.linger();
        });
        assert_eq!(response.status(), 502, "{}", String::from_utf8_lossy(status));
    }
}

/// RFC 9110, section 15: a client treats them as 5xx.
#[test]
fn statuses_beyond_599_are_passed_on() {
    for status in [b"600", b"999"] {
        let response = after_the_request(move |visitor, stream| {
            let fields = [&[0x08, 0x03][..], status].concat();
            visitor.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields));
            visitor.linger();
        });
        assert_eq!(response.status().to_string().as_bytes(), status);
    }
}

/// S54, S57: the same violations in responses.
#[test]
fn heads_that_could_be_read_in_two_ways_are_refused() {
    let field = |name: &[u8], value: &[u8]| [&[0x00, name.len() as u8][..], name, &[value.len() as u8], value].concat();
    let fields = [
        field(b"content-length", b"+5"),
        [field(b"content-length", b"5"), field(b"content-length", b"6")].concat(),
        field(b"transfer-encoding", b"chunked"),
        field(b"connection", b"close"),
        field(b"X-Upper", b"1"),
        field(b"x", b"a\r\nb: c"),
        field(b"content-length", b"9"),
    ];
    for (number, fields) in fields.into_iter().enumerate() {
        let response = after_the_request(move |visitor, stream| {
            visitor.send(frame(HEADERS, END_HEADERS, stream, &[OK, &fields].concat()));
            visitor.send(frame(DATA, END_STREAM, stream, b"hello"));
            visitor.linger();
        });
        assert!(response.status() == 502 || !response.whole, "case {number}: {}", response.head());
    }
}

/// Timeouts apply to a request, not to the connection that it shares.
#[test]
fn a_silent_stream_is_given_up_and_the_next_request_goes_another_way() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |mut call: Call| async move {
        match call.head.uri.path() {
            "/silent" => std::future::pending::<()>().await,
            "/stalls" => {
                let mut stream = call.begin(200, &[("content-length", "9")], false);
                stream.send_data("some".into(), false).unwrap();
                std::future::pending::<()>().await;
            }
            _ => call.answer(200, "hello"),
        }
    });
    let curtsy = trusting(&authority, |config| {
        config.upstream.response_timeout = ms(2_000);
        config.upstream.idle_timeout = ms(2_000);
    });
    let mut client = curtsy.client();
    let mut ask = |path| client.ask(&[&origin.get(path), "Host: x"]);
    assert_eq!(ask("/").text(), "hello");
    assert_eq!(ask("/silent").status(), 504);
    assert_eq!(ask("/").text(), "hello");
    assert_eq!(origin.connections(), 2);
    let stalled = ask("/stalls");
    assert_eq!((stalled.status(), stalled.whole), (200, false));
}

/// The origin never opens its flow-control window.
#[test]
fn an_upload_that_is_not_taken_is_given_up() {
    let authority = Authority::new();
    let origin = Http2Origin::with(
        &authority,
        |builder| _ = builder.initial_window_size(0),
        |call: Call| async move {
            if call.head.method == "GET" {
                return call.answer(200, "hello");
            }
            std::future::pending::<()>().await;
            drop(call);
        },
    );
    let curtsy = trusting(&authority, |config| config.upstream.idle_timeout = ms(2_000));
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 100"]));
    client.send([b'x'; 100]);
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    let response = client.response();
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
    assert!(response.value("Proxy-Status").contains("connection_write_timeout"), "{}", response.head());
}

/// Promise 1: a request head that is stuck would be sent long after its turn, so curtsy uses another connection.
#[test]
fn a_connection_that_is_clogged_takes_no_request() {
    let authority = Authority::new();
    let (end, ended) = mpsc::channel::<()>();
    let ended = std::sync::Mutex::new(ended);
    let origin = mute(&authority, move |visitor| {
        if visitor.read_exactly(24).is_err() {
            return;
        }
        // The largest possible windows, so that only TCP holds anything back.
        visitor.send(frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
        visitor.send(frame(8, 0, 0, &0x7000_0000_u32.to_be_bytes()));
        if visitor.number > 0 {
            return hello(visitor);
        }
        visitor.small_window();
        next_request(visitor);
        // Reads no more and keeps the connection open until the test is over.
        let _ = ended.lock().unwrap().recv();
    });
    let curtsy = trusting(&authority, |config| config.upstream.idle_timeout = PATIENCE * 2);
    let mut upload = curtsy.client();
    upload.patience(ms(700));
    upload.send(head(&[&format!("POST {} HTTP/1.1", https(&origin, "/")), "Host: x", "Content-Length: 100000000"]));
    let piece = vec![0; 64 * 1024];
    let sent = (0..1500).take_while(|_| upload.send(&piece)).count() * piece.len();
    assert!(sent < 50_000_000, "{sent} bytes were taken for an origin that takes nothing");
    // Within the client's patience, which is half of curtsy's timeout for the clogged connection.
    assert_eq!(get(&mut curtsy.client(), &origin).text(), "hello");
    assert_eq!(origin.connections(), 2);
    drop(end);
}

/// A slow origin slows its client down: curtsy buffers a bounded part of an upload.
#[test]
fn an_upload_waits_for_the_origin() {
    let authority = Authority::new();
    let origin = Http2Origin::new(&authority, |call: Call| async move {
        std::future::pending::<()>().await;
        drop(call);
    });
    let curtsy = trusting(&authority, |_| ());
    let mut client = curtsy.client();
    client.patience(ms(500));
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 100000000"]));
    let piece = vec![0; 64 * 1024];
    let sent = (0..1000).take_while(|_| client.send(&piece)).count() * piece.len();
    assert!(sent < 16_000_000, "curtsy took {sent} bytes for an origin that takes nothing");
}
