//! Where one request ends and the next begins: ambiguous framing is refused, and no request is smuggled past curtsy.
//!
//! A request for `/smuggled` follows every case on the same connection. If curtsy and the origin disagreed about the
//! end of the first request, the origin would see that request.

use crate::support::client::head;
use crate::support::{Curtsy, End, Origin};

const FOLLOW_UP: &str = "GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

/// The answers that arrived before curtsy closed the connection.
struct Answers {
    /// 0 if curtsy closed the connection without an answer.
    first: u16,
    /// Whether the follow-up was answered as a request.
    second: bool,
    end: End,
}

/// Sends a POST with these fields and this body, then the follow-up.
fn post(origin: &Origin, curtsy: &Curtsy, version: &str, fields: &str, body: &str) -> Answers {
    let mut client = curtsy.client();
    client.send(format!("POST {} HTTP/{version}\r\nHost: x\r\n{fields}\r\n\r\n{body}{FOLLOW_UP}", origin.url("/")));
    let first = client.read_head().map_or(0, |response| response.status());
    let (rest, end) = client.read_to_end();
    Answers { first, second: String::from_utf8_lossy(&rest).contains("HTTP/1.1"), end }
}

/// Asserts that the request is refused, the connection is closed, and the origin gets nothing.
fn check_refused(version: &str, fields: &str, body: &str) {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let answers = post(&origin, &curtsy, version, fields, body);
    assert!([400, 501].contains(&answers.first), "{fields:?} got {}", answers.first);
    assert!(!answers.second && answers.end != End::Silence, "{fields:?} left the connection open");
    origin.expect_untouched();
}

/// Asserts that the request is refused, or forwarded with exactly these framing fields and this body and nothing after
/// it.
fn check_normalised(fields: &str, body: &str, framing: (&str, &str), arrives: &str) {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    if post(&origin, &curtsy, "1.1", fields, body).first == 200 {
        let request = origin.request();
        assert_eq!(
            (request.value("Content-Length"), request.value("Transfer-Encoding")),
            (framing.0.into(), framing.1.into())
        );
        assert_eq!(request.text(), arrives, "{fields:?}");
    }
    assert!(!String::from_utf8_lossy(&origin.bytes()).contains("smuggled"), "{fields:?}");
}

/// S26
#[test]
fn two_ways_to_frame_a_body_are_one_too_many() {
    for fields in [
        "Content-Length: 6\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 6",
        "Transfer-Encoding: chunked\r\nContent-Length: 0",
        "transfer-encoding:chunked\r\nCONTENT-LENGTH:6",
    ] {
        check_normalised(fields, "0\r\n\r\n", ("", "chunked"), "");
    }
}

/// S26
#[test]
fn a_connection_with_two_framings_is_closed() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send(head(&[&line, "Host: x", "Content-Length: 5", "Transfer-Encoding: chunked"]) + "0\r\n\r\n");
    assert!([200, 400].contains(&client.response().status()));
    client.expect_end();
}

/// S28
#[test]
fn a_content_length_is_a_plain_number() {
    for value in ["+3", "-1", "0x3", "3,4", "", "3 3", "3.0", "abc", "３", "99999999999999999999999", "3;q=1", "\"3\""]
    {
        check_refused("1.1", &format!("Content-Length: {value}"), "abc");
    }
    check_refused("1.1", "Content-Length: 3\r\nContent-Length: 4", "abcd");
    check_refused("1.1", "Content-Length: 4\r\nX-Between: 1\r\nContent-Length: 3", "abcd");
}

/// S28
#[test]
fn a_content_length_said_twice_arrives_once() {
    check_normalised("Content-Length: 3, 3", "abc", ("3", ""), "abc");
    check_normalised("Content-Length: 3\r\nContent-Length: 3", "abc", ("3", ""), "abc");
}

/// S29
#[test]
fn a_transfer_coding_other_than_chunked_is_refused() {
    for value in [
        "xchunked",
        "chunked, identity",
        "chunked,chunked",
        "chunked\r\nTransfer-Encoding: chunked",
        "identity",
        "gzip",
        "gzip, chunked",
        "chun\u{212a}ed",
        "\"chunked\"",
        "chunked;q=1",
        "chunked\r\nTransfer-Encoding: identity",
        ", chunked,x",
        "chunked chunked",
    ] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let fields = format!("Transfer-Encoding: {value}");
        let first = post(&origin, &curtsy, "1.1", &fields, "0\r\n\r\n").first;
        assert!([400, 501].contains(&first), "{value:?} got {first}");
        origin.expect_untouched();
    }
}

/// S29
#[test]
fn chunked_is_known_in_any_case() {
    for value in ["Chunked", "CHUNKED", " chunked ", "\tchunked"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let answers = post(&origin, &curtsy, "1.1", &format!("Transfer-Encoding: {value}"), "3\r\nabc\r\n0\r\n\r\n");
        assert_eq!(answers.first, 200, "{value:?}");
        assert_eq!(origin.request().text(), "abc", "{value:?}");
    }
}

/// S30
#[test]
fn http_1_0_has_no_chunks() {
    check_refused("1.0", "Transfer-Encoding: chunked", "3\r\nabc\r\n0\r\n\r\n");
    check_refused("1.0", "Transfer-Encoding: chunked\r\nConnection: keep-alive", "0\r\n\r\n");
}

/// S31
#[test]
fn an_http_1_0_request_without_a_length_has_no_body() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let answers = post(&origin, &curtsy, "1.0", "X-Old: 1", "never a body ");
    assert_eq!((answers.first, answers.second), (200, false));
    assert!(origin.request().body.is_empty());
    assert!(!String::from_utf8_lossy(&origin.bytes()).contains("never a body"));
}

/// Sends malformed chunks and asserts that the origin never sees a complete request.
fn check_broken_chunks(chunks: &str) {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let answers = post(&origin, &curtsy, "1.1", "Transfer-Encoding: chunked", chunks);
    assert!(answers.first == 0 || answers.first >= 400, "{chunks:?} got {}", answers.first);
    assert!(!answers.second && answers.end != End::Silence, "{chunks:?} left the connection open");
    let seen = String::from_utf8_lossy(&origin.bytes()).into_owned();
    assert!(!seen.contains("smuggled") && !seen.contains("\r\n0\r\n"), "{chunks:?} arrived as {seen:?}");
}

/// S32
#[test]
fn a_chunk_size_is_plain_hexadecimal() {
    for size in ["FFFFFFFFFFFFFFFFF", "", "0x3", "+3", "-3", " 3", "3 3", "g", "3,3", "００3"] {
        check_broken_chunks(&format!("{size}\r\nabc\r\n0\r\n\r\n"));
    }
    check_broken_chunks("3\r\nabcd\r\n0\r\n\r\n");
    check_broken_chunks("3\r\nab\r\n0\r\n\r\n");
    check_broken_chunks("3\r\nabc0\r\n\r\n");
}

/// S32: a huge but valid chunk size is accepted, and the request never becomes complete.
#[test]
fn a_chunk_that_cannot_end_does_not_end() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send(
        head(&[&line, "Host: x", "Transfer-Encoding: chunked"]) + "7fffffffffffffff\r\nabc\r\n0\r\n\r\n" + FOLLOW_UP,
    );
    client.half_close();
    client.rest();
    assert!(origin.requests(0).iter().all(|request| !request.whole));
}

/// S33
#[test]
fn chunk_extensions_are_ignored() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let chunks = "3;name=value;other=\"quoted\"\r\nabc\r\n0;last\r\n\r\n";
    assert_eq!(post(&origin, &curtsy, "1.1", "Transfer-Encoding: chunked", chunks).first, 200);
    assert_eq!(origin.request().text(), "abc");
    assert!(!String::from_utf8_lossy(&origin.bytes()).contains("quoted"));
}

/// S33
#[test]
fn chunk_extensions_are_bounded_and_hold_no_line_breaks() {
    check_broken_chunks("3;a=\"x\ny\"\r\nabc\r\n0\r\n\r\n");
    check_broken_chunks("3;a\nabc\r\n0\r\n\r\n");
    check_broken_chunks(&format!("3;{}\r\nabc\r\n0\r\n\r\n", "x".repeat(70_000)));
    check_broken_chunks(&format!("{}0\r\n\r\n", "1;xxxxxxxxxxxxxxxxxxxxxxxx\r\na\r\n".repeat(5_000)));
}

/// S34
#[test]
fn a_bare_carriage_return_is_refused() {
    check_refused("1.1", "X-A: b\rContent-Length: 3", "abc");
    check_refused("1.1", "X-A: b\r\rContent-Length: 3", "abc");
    check_refused("1.1", "X-A\r: b", "");
}

/// S34
#[test]
fn a_bare_line_feed_never_reaches_the_origin() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send(format!("GET {} HTTP/1.1\nHost: x\nConnection: close\n\n", origin.url("/")));
    assert!(!client.rest().is_empty());
    let seen = String::from_utf8_lossy(&origin.bytes()).replace("\r\n", "");
    assert!(!seen.contains('\n'), "{seen:?}");
}

/// S35
#[test]
fn space_around_a_field_name_is_refused() {
    for fields in [
        "X-A : b",
        "Content-Length : 3",
        "Transfer-Encoding\t: chunked",
        "X-A: b\r\n c",
        "X-A: b\r\n\tContent-Length: 3",
    ] {
        check_refused("1.1", fields, "abc");
    }
}

/// S36
#[test]
fn a_field_name_is_a_token_and_a_value_has_no_control_characters() {
    for fields in [
        "X-A: b\0c",
        "X-A: b\x01c",
        "X-A: \x7f",
        "X(A: b",
        "X\"A: b",
        ": b",
        "no colon here",
        "X\u{e9}: b",
        "X-A\0: b",
        "X[A]: b",
    ] {
        check_refused("1.1", fields, "");
    }
}

/// S84
#[test]
fn a_line_of_the_proxy_protocol_is_no_request() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    let line = origin.get("/");
    client.send(format!("PROXY TCP4 192.0.2.1 127.0.0.1 4000 3128\r\n{line}\r\nHost: x\r\n\r\n"));
    assert_eq!(client.response_head().status(), 400);
    client.rest();
    origin.expect_untouched();
}

/// S36
#[test]
fn the_first_field_must_not_be_indented() {
    for indented in [" X-A: b", "\tX-A: b", " Content-Length: 3", " \r\nX-A: b"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let mut client = curtsy.client();
        client.send(format!("GET {} HTTP/1.1\r\n{indented}\r\nHost: x\r\n\r\n", origin.url("/")));
        assert_eq!(client.response_head().status(), 400, "{indented:?}");
        client.rest();
        origin.expect_untouched();
    }
}

/// S36
#[test]
fn what_is_not_http_is_refused() {
    for bytes in [
        "\x16\x03\x01\x02\0\x01\0\x01\x7c\x03\x03 some client hello",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH-2.0-x\r\n\r\n",
        "GET\r\n\r\n",
        "GET http://a.test/\r\n\r\n",
        "GET http://a.test/ HTTP/9.9\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        client.send(bytes);
        client.half_close();
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4") || answer.starts_with("HTTP/1.1 5"),
            "{bytes:?} got {answer}"
        );
    }
}

/// S37
#[test]
fn a_malformed_trailer_is_never_forwarded() {
    for trailer in ["no colon", "X-A : b", " X-A: b", "X-A: b\0", "X\u{e9}: b", "X-A: b\rX-C: d"] {
        check_broken_chunks(&format!("3\r\nabc\r\n0\r\n{trailer}\r\n\r\n"));
    }
}

/// S37
#[test]
fn trailers_arrive_as_trailers_and_forbidden_ones_do_not() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let trailers = "X-Sum: 9\r\nHost: evil\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\nAuthorization: b\r\nCookie: c\r\nCurtsy-Client: d";
    let fields = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Host, Content-Length, Authorization, Cookie";
    let body = format!("3\r\nabc\r\n0\r\n{trailers}\r\n\r\n");
    assert_eq!(post(&origin, &curtsy, "1.1", fields, &body).first, 200);
    let request = origin.request();
    let arrived: Vec<_> = request.trailers.iter().map(|line| line.to_ascii_lowercase()).collect();
    assert_eq!(arrived, ["x-sum: 9"]);
    assert_eq!(request.values("Host"), [origin.authority()]);
    assert!(!request.has("X-Sum") && !request.has("Authorization"));
}

/// S38
#[test]
fn the_body_of_a_refused_request_is_never_read_as_a_request() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let inside = head(&[&origin.get("/smuggled"), "Host: x"]);
    let mut client = curtsy.client();
    client.send(head(&["POST ftp://a.test/ HTTP/1.1", "Host: x", &format!("Content-Length: {}", inside.len())]));
    assert_eq!(client.response().status(), 400);
    client.send(&inside);
    client.half_close();
    client.rest();
    origin.expect_untouched();
}

/// S38
#[test]
fn the_connection_of_a_refused_upload_is_closed_or_clean() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send(head(&["POST ftp://a.test/ HTTP/1.1", "Host: x", "Content-Length: 300000"]));
    assert_eq!(client.response().status(), 400);
    if client.send([b'x'; 300_000]) {
        client.send_head(&[&origin.get("/next"), "Host: x"]);
        match client.read_head() {
            Ok(response) => assert_eq!(response.status(), 200),
            Err(end) => assert_ne!(end, End::Silence),
        }
    }
}

/// S42
#[test]
fn requests_in_a_row_are_answered_in_order() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            let line = request.line();
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len()));
        }
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send((0..5).map(|n| head(&[&origin.get(&format!("/{n}")), "Host: x"])).collect::<String>());
    for n in 0..5 {
        assert_eq!(client.response().text(), format!("GET /{n} HTTP/1.1"));
    }
}

/// S43
#[test]
fn an_http_1_0_client_is_answered_and_left() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for connection in ["X-None: 1", "Connection: keep-alive", "Proxy-Connection: keep-alive"] {
        let mut client = curtsy.client();
        let response = client.ask(&[&format!("GET {} HTTP/1.0", origin.url("/")), connection]);
        assert!(response.text() == "hello" && response.value("Connection").starts_with("close"), "{}", response.head());
        client.expect_end();
    }
}

/// S43
#[test]
fn an_http_1_0_client_gets_no_chunks() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    let response = Curtsy::start().ask(&[&format!("GET {} HTTP/1.0", origin.url("/"))]);
    assert!(!response.has("Transfer-Encoding"), "{}", response.head());
    assert_eq!(response.text(), "abc");
}

/// S43
#[test]
fn a_client_that_asks_for_close_gets_it() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for field in ["Connection: close", "Connection: X-Foo, Close", "connection: CLOSE"] {
        let mut client = curtsy.client();
        let response = client.ask(&[&origin.get("/"), "Host: x", field]);
        assert_eq!(response.value("Connection"), "close", "{field}");
        client.expect_end();
    }
}

/// S43
#[test]
fn a_client_connection_serves_many_requests() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    for _ in 0..10 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
    assert_eq!((origin.count(), origin.connections()), (10, 1));
}

/// S43: curtsy does not reuse the connection of an HTTP/1.0 origin.
#[test]
fn an_http_1_0_origin_is_asked_once_a_connection() {
    let (origin, curtsy) = (Origin::answering("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"), Curtsy::start());
    let mut client = curtsy.client();
    for _ in 0..2 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "ok");
    }
    assert_eq!(origin.connections(), 2);
}

/// S43
#[test]
fn an_origin_that_asks_for_close_is_not_asked_again_on_that_connection() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    for _ in 0..3 {
        let response = client.ask(&[&origin.get("/"), "Host: x"]);
        assert_eq!((response.text().as_str(), response.value("Connection").as_str()), ("ok", ""));
    }
    assert_eq!(origin.connections(), 3);
}

/// S28
#[test]
fn a_padded_content_length_arrives_plain() {
    check_normalised("Content-Length: 010", "0123456789", ("10", ""), "0123456789");
}

/// S29: curtsy closes a connection with an unknown transfer coding, because it cannot tell where the body ends.
#[test]
fn a_connection_with_a_strange_transfer_coding_is_closed() {
    for value in ["chunked,chunked", "chunked\r\nTransfer-Encoding: chunked", "gzip, chunked"] {
        check_refused("1.1", &format!("Transfer-Encoding: {value}"), "0\r\n\r\n");
    }
}

/// S43
#[test]
fn an_http_1_0_client_that_wants_to_stay_is_told_plainly() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let line = format!("GET {} HTTP/1.0", origin.url("/"));
    assert_eq!(curtsy.ask(&[&line, "Connection: keep-alive"]).values("Connection"), ["close"]);
}
