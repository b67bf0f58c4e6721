//! Bodies are forwarded byte for byte, as they arrive, and no faster than the slower side reads them.

use std::sync::mpsc;
use std::time::Duration;

use crate::support::client::head;
use crate::support::origin::HELLO;
use crate::support::{Curtsy, End, Origin, PATIENCE, Program, Stopwatch, ms, pause};

/// Pseudo-random bytes of every value, including CR, LF and NUL, so that a framing error cannot go unnoticed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(length)
    .collect()
}

/// Bodies are byte-exact in both directions, with Content-Length and chunked.
#[test]
fn a_body_arrives_byte_for_byte() {
    for length in [0, 1, 100, 65_536, 1_000_000] {
        let origin = Origin::scripted(|visitor| {
            while let Some(request) = visitor.request() {
                let framing = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len());
                visitor.send([framing.as_bytes(), &request.body].concat());
            }
        });
        let (curtsy, body) = (Curtsy::start(), noise(length));
        let mut client = curtsy.client();
        let line = format!("PUT {} HTTP/1.1", origin.url("/"));
        client.send(head(&[&line, "Host: x", &format!("Content-Length: {length}")]));
        client.send(&body);
        assert!(client.response().body == body, "{length} bytes, counted");
        client.send(head(&[&line, "Host: x", "Transfer-Encoding: chunked"]));
        client.send(chunked(&body));
        assert!(client.response().body == body, "{length} bytes, chunked");
    }
}

#[test]
fn a_chunked_answer_arrives_byte_for_byte() {
    let body = noise(1_000_000);
    let answer = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(), chunked(&body)].concat();
    let (origin, curtsy) = (Origin::answering(answer), Curtsy::start());
    let response = curtsy.get(&origin.url("/"));
    assert!(response.whole && response.body == body);
}

#[test]
fn the_framing_of_a_request_is_kept() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send(head(&[&line, "Host: x", "Content-Length: 3"]) + "abc");
    client.response();
    client.send(head(&[&line, "Host: x", "Transfer-Encoding: chunked"]) + "3\r\nabc\r\n0\r\n\r\n");
    client.response();
    client.ask(&[&line, "Host: x", "Content-Length: 0"]);
    let framing = origin
        .requests(3)
        .into_iter()
        .map(|request| (request.value("Content-Length"), request.value("Transfer-Encoding")));
    assert_eq!(
        framing.collect::<Vec<_>>(),
        [("3", ""), ("", "chunked"), ("0", "")].map(|(a, b)| (a.to_owned(), b.to_owned()))
    );
}

/// curtsy forwards the first part of a body before the rest has arrived.
#[test]
fn a_request_body_streams() {
    let (sent, received) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request_head();
        sent.send(visitor.read_exactly(5)).unwrap();
        visitor.read_exactly(5).unwrap();
        visitor.send(HELLO);
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 10"]) + "first");
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), Ok(b"first".to_vec()));
    client.send("later");
    assert_eq!(client.response().text(), "hello");
}

/// S86
#[test]
fn an_answer_streams() {
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n",
        );
        waits.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        visitor.send("5\r\nlater\r\n0\r\n\r\n");
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    assert_eq!(client.read_exactly(10), Ok(b"5\r\nfirst\r\n".to_vec()));
    go_on.send(()).unwrap();
    assert_eq!(client.read_exactly(15), Ok(b"5\r\nlater\r\n0\r\n\r\n".to_vec()));
}

/// Backpressure: the origin offers far more than the sockets hold, and a client that does not read stops it.
#[test]
fn a_client_that_does_not_read_stops_the_origin() {
    const OFFERED: usize = 200_000_000;
    let (written, count) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.patience(ms(400));
        visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {OFFERED}\r\n\r\n"));
        let piece = vec![b'x'; 1_000_000];
        written.send((0..OFFERED / piece.len()).take_while(|_| visitor.send(&piece)).count()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.small_window();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    let megabytes = count.recv_timeout(PATIENCE).unwrap();
    assert!(megabytes < 50, "the origin could write {megabytes} MB although the peer does not read");
}

/// Backpressure in the other direction.
#[test]
fn an_origin_that_does_not_read_stops_the_client() {
    let origin = Origin::scripted(|visitor| {
        visitor.small_window();
        visitor.request_head();
        pause(PATIENCE);
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.patience(ms(400));
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 200000000"]));
    let piece = vec![b'x'; 1_000_000];
    let megabytes = (0..200).take_while(|_| client.send(&piece)).count();
    assert!(megabytes < 50, "the client could write {megabytes} MB although the peer does not read");
}

#[test]
fn a_slow_reader_gets_every_byte() {
    let body = noise(4_000_000);
    let answer =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(), body.clone()].concat();
    let (origin, curtsy) = (Origin::answering(answer), Curtsy::start());
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    let mut received = Vec::new();
    while received.len() < body.len() {
        received.extend(client.read_some().unwrap());
        pause(ms(1));
    }
    assert!(received == body);
}

/// It never pauses for long, so it has not stalled, however much the sockets hold. It takes longer than the limit in
/// all.
#[test]
fn a_reader_that_takes_its_time_is_no_staller() {
    const LENGTH: usize = 5_000_000;
    const STALL: Duration = Duration::from_secs(3);
    let origin = Origin::answering(
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes(), noise(LENGTH)].concat(),
    );
    let curtsy = Curtsy::with(|config| config.limits.client_stall = STALL);
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    let (watch, mut received) = (Stopwatch::start(), 0);
    while received < LENGTH {
        match client.read_some() {
            Ok(bytes) => received += bytes.len(),
            Err(end) => panic!("{end:?} after {received} bytes"),
        }
        pause(ms(20));
    }
    assert!(watch.elapsed() > STALL, "{:?}: too fast to show anything", watch.elapsed());
}

/// X35: bodies are streamed, not stored.
#[test]
fn a_body_of_any_length_takes_little_memory() {
    const PIECES: usize = 200;
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PIECES * 1_000_000));
            let piece = vec![b'x'; 1_000_000];
            (0..PIECES).for_each(|_| assert!(visitor.send(&piece)));
        }
    });
    let program = Program::start("", "");
    program.get("ftp://a.test/");
    let idle = program.peak_memory();
    let mut client = program.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    let mut received = 0;
    while received < PIECES * 1_000_000 {
        received += client.read_some().unwrap().len();
    }
    let grown = program.peak_memory() - idle;
    assert!(grown < 8 * 1024, "{grown} KiB more than idle");
}

/// S39
#[test]
fn an_origin_that_answers_early_is_not_asked_again_on_that_connection() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send(HELLO);
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let mut early = curtsy.client();
    early.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/early")), "Host: x", "Content-Length: 100"]) + "part");
    assert_eq!(early.response().text(), "hello");
    assert_eq!(curtsy.get(&origin.url("/next")).text(), "hello");
    assert_eq!(origin.requests(2)[1].connection, 1);
}

/// S38, S39
#[test]
fn the_rest_of_an_unread_body_is_not_a_request() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send(HELLO);
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let rest = head(&[&origin.get("/smuggled"), "Host: x"]);
    let length = format!("Content-Length: {}", 4 + rest.len());
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", &length]) + "part");
    assert_eq!(client.response().text(), "hello");
    client.send(rest);
    client.half_close();
    client.rest();
    assert_eq!(origin.count(), 1);
}

/// Time in which the client does not read does not count towards `upstream.idle_timeout`.
#[test]
fn a_pause_of_the_reader_is_not_a_stall_of_the_origin() {
    let body = noise(8_000_000);
    let answer =
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(), body.clone()].concat();
    let (origin, curtsy) = (Origin::answering(answer), Curtsy::with(|config| config.upstream.idle_timeout = ms(2_000)));
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    let mut received = client.read_exactly(1_000_000).unwrap();
    pause(ms(3_000));
    received.extend(client.read_exactly(body.len() - received.len()).unwrap());
    assert!(received == body);
}

#[test]
fn a_get_may_have_a_body() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send(head(&[&origin.get("/"), "Host: x", "Content-Length: 5"]) + "query");
    assert_eq!(client.response().status(), 200);
    assert_eq!(origin.request().body, b"query");
}

/// S39
#[test]
fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbulk");
        visitor.linger();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 1000000"]) + "part");
    let response = client.response();
    assert_eq!((response.status(), response.text().as_str()), (413, "bulk"));
}

/// X37: when a client disconnects, curtsy closes the connection to the origin at once.
#[test]
fn a_client_that_leaves_takes_its_request_along() {
    for leave in [|client: crate::support::Client| drop(client), crate::support::Client::reset] {
        let (ended, end) = mpsc::channel();
        let origin = Origin::scripted(move |visitor| {
            visitor.request();
            ended.send(visitor.linger()).unwrap();
        });
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        client.send_head(&[&origin.get("/"), "Host: x"]);
        origin.request();
        leave(client);
        assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    }
}

/// X37: a client that closes its sending side counts as disconnected. It must keep that side open until it has the
/// answer.
#[test]
fn a_client_that_closes_its_end_has_left() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    client.half_close();
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    client.rest();
}

/// X37
#[test]
fn a_client_that_leaves_in_the_middle_of_an_answer_ends_it() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\npart");
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.response_head();
    drop(client);
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
}

/// The origin never sees a complete request if the client broke off the body.
#[test]
fn a_body_cut_short_by_the_client_never_looks_whole() {
    for (field, part) in [("Content-Length: 100", "part"), ("Transfer-Encoding: chunked", "4\r\npart\r\n")] {
        let (sent, received) = mpsc::channel();
        let origin =
            Origin::scripted(move |visitor| sent.send(visitor.request().map(|request| request.whole)).unwrap());
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", field]) + part);
        assert!(crate::support::soon(|| origin.bytes().ends_with(b"part") || origin.bytes().ends_with(b"part\r\n")));
        drop(client);
        assert_eq!(received.recv_timeout(PATIENCE).unwrap(), Some(false), "{field}");
    }
}

/// An upload may take longer than `upstream.response_timeout`, which starts when the upload is complete.
#[test]
fn the_time_for_an_answer_begins_when_the_request_is_sent() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.upstream.response_timeout = ms(2_000)));
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 300"]));
    for _ in 0..30 {
        pause(ms(100));
        client.send([b'x'; 10]);
    }
    assert_eq!(client.response().status(), 200);
}

/// S73: an origin that neither reads nor answers is given up like one that does not answer.
#[test]
fn an_origin_that_takes_no_more_of_a_body_is_given_up() {
    let origin = Origin::scripted(|visitor| {
        visitor.small_window();
        visitor.request_head();
        pause(PATIENCE);
    });
    let curtsy = Curtsy::with(|config| config.upstream.idle_timeout = ms(200));
    let mut client = curtsy.client();
    client.patience(ms(100));
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 200000000"]));
    let piece = vec![b'x'; 1_000_000];
    while client.send(&piece) {}
    client.patience(PATIENCE / 2);
    let response = client.response_head();
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
    assert!(response.value("Proxy-Status").contains("error=connection_write_timeout"), "{}", response.head());
}

/// S39: while the upload goes on, a pause in the response is not a timeout.
#[test]
fn an_answer_that_began_early_may_wait_for_the_end_of_the_request() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n");
        assert!(visitor.read_exactly(300).is_ok());
        visitor.send("done");
    });
    let curtsy = Curtsy::with(|config| config.upstream.idle_timeout = ms(2_000));
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 300"]));
    for _ in 0..30 {
        pause(ms(100));
        client.send([b'x'; 10]);
    }
    let response = client.response();
    assert_eq!((response.whole, response.text().as_str()), (true, "done"));
}

/// S39: a client that reads the response need not send the rest of its request.
#[test]
fn a_client_that_listens_instead_of_sending_has_not_stalled() {
    let origin = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 30\r\n\r\n");
        for _ in 0..30 {
            pause(ms(100));
            visitor.send("x");
        }
    });
    let curtsy = Curtsy::with(|config| config.limits.client_stall = ms(2_000));
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 100"]) + "part");
    let response = client.response();
    assert_eq!((response.whole, response.text().as_str()), (true, "x".repeat(30).as_str()));
}

/// S39: an exchange in which neither side sends anything is cut off.
#[test]
fn an_exchange_in_which_nothing_moves_is_cut() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart");
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::with(|config| {
        config.upstream.idle_timeout = ms(2_000);
        config.limits.client_stall = ms(2_000);
    });
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 100"]) + "part");
    let response = client.response();
    assert_eq!((response.whole, response.text().as_str()), (false, "part"));
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
}

fn chunked(body: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(10_000) {
        wire.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
        wire.extend(chunk);
        wire.extend(b"\r\n");
    }
    wire.extend(b"0\r\n\r\n");
    wire
}
