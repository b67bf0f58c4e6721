//! Fields of one connection are removed; all other fields arrive unchanged, in both directions.

use crate::support::{Curtsy, Origin};

/// Sends these fields through curtsy and returns the request as the origin got it.
fn forwarded(fields: &[&str]) -> crate::support::Message {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let line = origin.get("/");
    let lines: Vec<&str> = [line.as_str(), "Host: x"].iter().chain(fields).copied().collect();
    assert_eq!(curtsy.ask(&lines).status(), 200);
    origin.request()
}

/// Returns the response as the client got it when the origin answers with these fields.
fn returned(fields: &[&str]) -> crate::support::Message {
    let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n\r\n", fields.join("\r\n")));
    Curtsy::start().get(&origin.url("/"))
}

/// S13
#[test]
fn fields_nominated_by_connection_stay_behind() {
    let fields = ["Connection: X-Foo, close", "connection: x-bar", "X-Foo: 1", "X-Bar: 2", "X-Kept: 3"];
    for message in [forwarded(&fields), returned(&fields)] {
        assert!(!message.has("X-Foo") && !message.has("X-Bar"), "{}", message.head());
        assert_eq!(message.value("X-Kept"), "3");
        assert!(!message.value("Connection").to_ascii_lowercase().contains("x-foo"));
    }
}

/// S14
#[test]
fn fields_of_one_connection_stay_behind() {
    let fields = [
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "TE: gzip",
        "Upgrade: h2c",
        "Proxy-Authorization: Basic dTpw",
        "Proxy-Authentication-Info: x=1",
        "Proxy-Authenticate: Basic",
    ];
    for message in [forwarded(&fields), returned(&fields)] {
        for field in fields {
            let name = field.split(':').next().unwrap();
            assert!(!message.has(name), "{name} in {}", message.head());
        }
    }
}

/// S14: curtsy accepts trailers itself, so it sends `TE: trailers` of its own.
#[test]
fn readiness_for_trailers_is_said_again() {
    let request = forwarded(&["Connection: TE", "TE: gzip;q=0.5, trailers"]);
    assert_eq!((request.value("TE").as_str(), request.value("Connection").as_str()), ("trailers", "TE"));
}

/// S15
#[test]
fn connection_cannot_nominate_away_what_a_request_needs() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let mut client = curtsy.client();
    client.send_head(&[
        &format!("POST {} HTTP/1.1", origin.url("/")),
        "Host: x",
        "Connection: Host, Content-Length, Authorization, Cache-Control, Via, Transfer-Encoding, connection",
        "Authorization: Bearer t",
        "Cache-Control: no-cache",
        "Via: 1.1 first",
        "Content-Length: 4",
    ]);
    client.send("body");
    assert_eq!(client.response().status(), 200);
    let request = origin.request();
    assert_eq!(request.values("Host"), [origin.authority()]);
    assert_eq!(request.body, b"body");
    assert_eq!(
        (request.value("Authorization"), request.value("Cache-Control")),
        ("Bearer t".into(), "no-cache".into())
    );
    assert!(request.value("Via").starts_with("1.1 first, "));
}

/// S15
#[test]
fn odd_connection_fields_do_no_harm() {
    for value in ["connection", "connection, connection", ",,,", "", "close, close", "\"", "x y z", "keep-alive, close"]
    {
        assert_eq!(forwarded(&[&format!("Connection: {value}"), "X-Kept: 1"]).value("X-Kept"), "1", "{value:?}");
    }
}

/// S20, X39
#[test]
fn codings_and_cache_directives_are_not_touched() {
    let request = forwarded(&["Accept-Encoding: br;q=1, gzip", "Cache-Control: no-transform", "Range: bytes=0-4"]);
    assert_eq!(request.values("Accept-Encoding"), ["br;q=1, gzip"]);
    assert_eq!(request.values("Cache-Control"), ["no-transform"]);
    assert_eq!(request.values("Range"), ["bytes=0-4"]);
    let response = returned(&["Content-Encoding: gzip", "Cache-Control: no-transform", "ETag: \"x\"", "Age: 3"]);
    assert_eq!(response.values("Content-Encoding"), ["gzip"]);
    assert_eq!(response.values("ETag"), ["\"x\""]);
    assert_eq!(response.values("Age"), ["3"]);
}

/// S20
#[test]
fn a_request_without_accept_encoding_gets_none() {
    let request = forwarded(&[]);
    for added in
        ["Accept-Encoding", "Accept", "User-Agent", "Connection", "Content-Length", "Transfer-Encoding", "Date"]
    {
        assert!(!request.has(added), "{added} in {}", request.head());
    }
}

/// S21
#[test]
fn the_origin_is_not_told_who_the_client_is() {
    let request = forwarded(&[]);
    for revealing in ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Client-IP"] {
        assert!(!request.has(revealing), "{revealing}");
    }
    assert!(!request.value("Via").contains("127.0.0.1") && !request.value("Via").contains('('));
}

/// S22
#[test]
fn cookies_set_apart_stay_apart() {
    let response = returned(&["Set-Cookie: a=1; Path=/", "X-Between: 1", "Set-Cookie: b=2, c=3"]);
    assert_eq!(response.values("Set-Cookie"), ["a=1; Path=/", "b=2, c=3"]);
}

/// S23
#[test]
fn repeated_fields_keep_their_number_and_order() {
    let fields = ["X-A: 1", "X-B: b", "X-A: 2", "x-a: 2", "X-A:", "X-A: 3"];
    for message in [forwarded(&fields), returned(&fields)] {
        assert_eq!(message.values("X-A"), ["1", "2", "2", "", "3"]);
    }
}

/// S23
#[test]
fn different_fields_keep_their_order() {
    let fields = ["X-1: a", "X-2: b", "Keep-Alive: x", "X-3: c", "Proxy-Connection: y", "X-4: d", "X-5: e"];
    for message in [forwarded(&fields), returned(&fields)] {
        let names: Vec<_> = message.fields().into_iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        let ours: Vec<_> = names.iter().filter(|name| name.starts_with("x-")).collect();
        assert_eq!(ours, ["x-1", "x-2", "x-3", "x-4", "x-5"]);
    }
}

/// S23
#[test]
fn bytes_beyond_ascii_in_a_value_are_not_mangled() {
    let (origin, curtsy) = (
        Origin::answering(b"HTTP/1.1 200 OK\r\nX-Raw: \xe9\xff\r\nContent-Length: 0\r\n\r\n".to_vec()),
        Curtsy::start(),
    );
    let mut client = curtsy.client();
    client.send([origin.get("/").as_bytes(), b"\r\nHost: x\r\nX-Raw: caf\xe9 \x80\r\n\r\n"].concat());
    assert_eq!(client.response().value("X-Raw"), "\u{e9}\u{ff}");
    assert_eq!(origin.request().value("X-Raw"), "caf\u{e9} \u{80}");
}

/// S24
#[test]
fn unusual_status_codes_pass_unchanged() {
    for line in
        ["299 Odd But Fine", "201 Created", "418 I'm a teapot", "499 Gone Away", "530 Frozen", "599 ", "420 Calm"]
    {
        let origin = Origin::answering(format!("HTTP/1.1 {line}\r\nContent-Length: 2\r\n\r\nok"));
        let response = Curtsy::start().get(&origin.url("/"));
        assert_eq!(response.line(), format!("HTTP/1.1 {line}"));
        assert_eq!(response.text(), "ok");
    }
}

/// S24: codes from 600 to 999 are forwarded, because clients treat them as 5xx (RFC 9110, section 15).
#[test]
fn a_status_outside_the_range_is_a_broken_answer() {
    for code in ["099", "000", "1000", "20", "2x0", "-20"] {
        let origin = Origin::answering(format!("HTTP/1.1 {code} X\r\nContent-Length: 2\r\n\r\nok"));
        let response = Curtsy::start().get(&origin.url("/"));
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{code}");
        assert!(response.value("Proxy-Status").contains("error=http_protocol_error"), "{}", response.head());
    }
}

/// X60
#[test]
fn curtsy_fields_never_cross() {
    let request = forwarded(&[
        "Curtsy-Client: news",
        "curtsy-max-wait: 20",
        "Curtsy-Priority: 1",
        "Curtsy: x",
        "Curtsy-Made-Up: 1",
    ]);
    assert!(!request.head().to_ascii_lowercase().contains("curtsy"), "{}", request.head());
    let response = returned(&["Curtsy-Error: robots-denied", "Curtsy: wait=9", "curtsy-forged: 1", "X-Kept: 1"]);
    assert!(
        response.refusal().is_empty() && !response.has("Curtsy-Forged") && response.has("X-Kept"),
        "{}",
        response.head()
    );
    assert!(!response.value("Curtsy").contains("wait=9"));
}

/// X60
#[test]
fn curtsy_fields_do_not_cross_as_trailers_either() {
    let chunks = "0\r\nCurtsy-Client: news\r\nX-Sum: 9\r\n\r\n";
    let announced = "Transfer-Encoding: chunked\r\nTrailer: X-Sum, Curtsy-Client\r\n\r\n";
    let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\n{announced}{chunks}"));
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(format!("POST {} HTTP/1.1\r\nHost: x\r\nTE: trailers\r\n{announced}{chunks}", origin.url("/")));
    for message in [client.response(), origin.request()] {
        assert_eq!(message.trailers.len(), 1, "{:?}", message.trailers);
    }
}

/// S69
#[test]
fn rate_limit_fields_of_an_origin_arrive_unchanged() {
    let fields = [
        ("RateLimit-Policy", "\"burst\";q=100;w=60"),
        ("RateLimit", "\"burst\";r=42;t=30"),
        ("X-RateLimit-Remaining", "42"),
    ];
    let response = returned(&fields.map(|(name, value)| format!("{name}: {value}")).each_ref().map(String::as_str));
    for (name, value) in fields {
        assert_eq!(response.value(name), value, "{}", response.head());
    }
}
