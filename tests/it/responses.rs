//! Framing of responses: valid framing is forwarded, ambiguous or broken framing is not.

use crate::support::client::head;
use crate::support::origin::HELLO;
use crate::support::{Curtsy, End, Origin};

/// S25
#[test]
fn answers_without_a_body_have_none_whatever_they_say() {
    let cases = [
        ("HEAD", "200 OK", "Content-Length: 5"),
        ("HEAD", "200 OK", "Transfer-Encoding: chunked"),
        ("HEAD", "404 Not Found", "Content-Length: 99"),
        ("GET", "204 No Content", "X-None: 1"),
        ("GET", "204 No Content", "Content-Length: 5"),
        ("GET", "304 Not Modified", "Content-Length: 5"),
        ("GET", "304 Not Modified", "Transfer-Encoding: chunked"),
    ];
    for (method, status, field) in cases {
        let origin = Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                let bodiless = format!("HTTP/1.1 {status}\r\n{field}\r\n\r\n");
                visitor.send(if request.line().contains("/next") { HELLO } else { &bodiless });
            }
        });
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        let response = client.ask(&[&format!("{method} {} HTTP/1.1", origin.url("/")), "Host: x"]);
        assert_eq!(response.line(), format!("HTTP/1.1 {status}"));
        assert_eq!(client.ask(&[&origin.get("/next"), "Host: x"]).text(), "hello", "after {method} {status} {field}");
    }
}

/// S25
#[test]
fn the_length_a_head_request_asks_for_is_told() {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n");
    let response = Curtsy::start().ask(&[&format!("HEAD {} HTTP/1.1", origin.url("/")), "Host: x"]);
    assert_eq!(response.values("Content-Length"), ["12345"]);
}

/// S27
#[test]
fn an_answer_framed_twice_is_framed_once_and_its_connection_is_not_used_again() {
    let body = "5\r\nhello\r\n0\r\n\r\n";
    for fields in ["Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 3"]
    {
        let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{body}"));
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        for _ in 0..2 {
            let response = client.ask(&[&origin.get("/"), "Host: x"]);
            if response.status() != 502 {
                assert_eq!((response.text().as_str(), response.has("Content-Length")), ("hello", false), "{fields}");
            }
        }
        assert_eq!(origin.connections(), 2, "{fields}");
    }
}

/// S24, S28, S29, S30, S36, X28: the rules for requests apply to responses, too.
#[test]
fn an_answer_that_breaks_the_rules_is_not_passed_on() {
    let cases = [
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A: b\0c\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nno colon here\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX(A: b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\n: b\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nX-A: b\rX-C: d\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/2.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "ICY 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "<html>hello</html>",
        "\x15\x03\x01\0\x02\x02\x46",
    ];
    for bytes in cases {
        let (origin, curtsy) = (Origin::closing(bytes), Curtsy::start());
        let response = curtsy.get(&origin.url("/"));
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{bytes:?}");
        let status = response.value("Proxy-Status");
        let named = ["error=http_protocol_error", "error=http_response_transfer_coding"];
        assert!(named.iter().any(|error| status.contains(error)), "{bytes:?}: {status}");
        assert!(!response.text().contains("hello"), "{bytes:?}");
    }
}

/// Clients treat such codes as 5xx (RFC 9110, section 15). Some origins answer crawlers with 999.
#[test]
fn a_status_beyond_599_is_passed_on() {
    let curtsy = Curtsy::start();
    for line in ["600 Odd", "999 Request denied"] {
        let origin = Origin::answering(format!("HTTP/1.1 {line}\r\nContent-Length: 5\r\n\r\nhello"));
        let response = curtsy.get(&origin.url("/"));
        assert_eq!((response.line().as_str(), response.text().as_str()), (&*format!("HTTP/1.1 {line}"), "hello"));
    }
}

/// S73: a response with too many fields gets the error type for its size, not for a protocol error.
#[test]
fn an_answer_with_very_many_fields_is_too_large() {
    for (count, expected) in [(90, 200), (5_000, 502)] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n", "X: 1\r\n".repeat(count));
        let response = Curtsy::start().get(&Origin::closing(answer).url("/"));
        assert_eq!(response.status(), expected, "{count}");
        let says = response.value("Proxy-Status").contains("error=http_response_header_section_size");
        assert_eq!(says, expected == 502, "{}", response.value("Proxy-Status"));
    }
}

/// S34, S35
#[test]
fn a_sloppy_answer_is_cleaned_or_refused() {
    for field in ["X-A : b", "X-A: b\r\n  folded", "X-A: b\nX-C: d"] {
        let origin = Origin::answering(format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 5\r\n\r\nhello"));
        let response = Curtsy::start().get(&origin.url("/"));
        assert!([200, 502].contains(&response.status()), "{field:?}: {}", response.line());
        let head = response.head();
        assert!(
            !head.contains(" :") && !head.contains("\r\n ") && !head.replace("\r\n", "").contains('\n'),
            "{head:?}"
        );
    }
}

/// S37
#[test]
fn trailers_of_an_answer_arrive_as_trailers_and_forbidden_ones_do_not() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, Content-Length, Set-Cookie\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Sum: 9\r\nContent-Length: 3\r\nSet-Cookie: a=1\r\nCurtsy-Error: x\r\n\r\n",
    );
    let response = Curtsy::start().ask(&[&origin.get("/"), "Host: x", "TE: trailers"]);
    let trailers: Vec<_> = response.trailers.iter().map(|line| line.to_ascii_lowercase()).collect();
    assert_eq!((response.text().as_str(), trailers), ("abc", vec!["x-sum: 9".to_owned()]));
    assert!(!response.has("X-Sum"));
}

/// S37: the RFC allows trailers only for recipients that are known to want them.
#[test]
fn a_client_that_does_not_ask_for_trailers_gets_none() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n",
    );
    let curtsy = Curtsy::start();
    for (fields, expected) in [(&["Host: x"][..], 0), (&["Host: x", "TE: gzip"], 0), (&["Host: x", "TE: trailers"], 1)]
    {
        let response = curtsy.ask(&[&[origin.get("/").as_str()], fields].concat());
        assert_eq!((response.text().as_str(), response.trailers.len()), ("abc", expected), "{fields:?}");
    }
}

/// S37
#[test]
fn an_answer_with_trailers_is_whole_and_its_connection_is_used_again() {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 9\r\n\r\n",
    );
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    for _ in 0..2 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x", "TE: trailers"]).text(), "abc");
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"response\"}"), 0);
}

/// S40
#[test]
fn bytes_after_an_answer_are_not_the_next_answer() {
    let origin = Origin::scripted(|visitor| {
        while visitor.request().is_some() {
            let forged = if visitor.number == 0 { "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged" } else { "" };
            visitor.send(format!("{HELLO}{forged}"));
        }
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    for _ in 0..3 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
    assert!(origin.requests(3)[1..].iter().all(|request| request.connection == 1));
}

/// S41: a response without a length ends with the connection.
#[test]
fn an_answer_without_a_length_lasts_until_the_origin_closes() {
    for version in ["1.0", "1.1"] {
        let origin = Origin::closing(format!("HTTP/{version} 200 OK\r\nX-A: b\r\n\r\nuntil the end"));
        let response = Curtsy::start().get(&origin.url("/"));
        assert_eq!((response.text().as_str(), response.whole), ("until the end", true));
    }
}

/// S37, S41, S76, X28: a broken answer never looks complete to the client.
#[test]
fn a_broken_answer_never_looks_whole() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n0\r\nno colon\r\n\r\n",
    ] {
        let (origin, curtsy) = (Origin::closing(bytes), Curtsy::start());
        let mut client = curtsy.client();
        client.send(head(&[&origin.get("/"), "Host: x", "TE: trailers"]));
        let shown = String::from_utf8_lossy(&client.rest()).into_owned();
        let (head, body) = shown.split_once("\r\n\r\n").unwrap_or_default();
        let looks_whole = body.ends_with("0\r\n\r\n") || body.contains("no colon");
        assert!(head.starts_with("HTTP/1.1 502") || !looks_whole, "{bytes:?} became {shown:?}");
        assert!(!body.to_ascii_lowercase().contains("proxy-status"), "{shown:?}");
    }
}

/// S41
#[test]
fn an_answer_cut_short_is_seen_to_be_cut_short() {
    for bytes in [
        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\nzz\r\n",
    ] {
        let (origin, curtsy) = (Origin::closing(bytes), Curtsy::start());
        let mut client = curtsy.client();
        let response = client.ask(&[&origin.get("/"), "Host: x"]);
        assert_eq!((response.status(), response.whole), (200, false), "{bytes:?}");
        assert_ne!(client.read_to_end().1, End::Silence, "{bytes:?}");
    }
}

/// S41
#[test]
fn an_answer_broken_by_a_reset_is_seen_to_be_broken() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart");
        visitor.end_with_reset();
    });
    let response = Curtsy::start().get(&origin.url("/"));
    assert!(!response.whole || response.status() == 502);
}

/// S37
#[test]
fn a_malformed_trailer_of_an_answer_breaks_it() {
    let origin =
        Origin::closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nno colon\r\n\r\n");
    let response = Curtsy::start().get(&origin.url("/"));
    assert!(!response.whole || response.status() == 502);
    assert!(response.trailers.is_empty());
}

/// S76
#[test]
fn a_broken_answer_gets_no_trailer_that_was_not_announced() {
    let origin = Origin::closing("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n");
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    client.send(head(&[&origin.get("/"), "Host: x", "TE: trailers"]));
    let response = client.response_head();
    let rest = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(response.has("Proxy-Status") || !rest.to_ascii_lowercase().contains("proxy-status"), "{rest}");
}

/// S41: HTTP/1.0 clients see the end of the connection as the end of the answer, so an answer that broke off is reset.
#[test]
fn a_client_of_http_1_0_sees_that_an_answer_broke_off() {
    for (answer, end) in [
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", End::Reset),
        ("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", End::Fin),
        ("Content-Length: 9\r\n\r\nhello", End::Fin),
        ("X: 1\r\n\r\nhello", End::Fin),
    ] {
        let origin = Origin::closing(format!("HTTP/1.1 200 OK\r\n{answer}"));
        let curtsy = Curtsy::start();
        let mut client = curtsy.client();
        client.send_head(&[&format!("GET {} HTTP/1.0", origin.url("/"))]);
        let (came, ended) = client.read_to_end();
        assert!(String::from_utf8_lossy(&came).ends_with("hello"), "{answer:?}");
        assert_eq!(ended, end, "{answer:?}");
    }
}
