//! The request target decides which origin a request is for. It is parsed strictly and forwarded unchanged.

use curtsy::config::{Destination, HostPattern};

use crate::support::{Curtsy, Origin};

/// S1
#[test]
fn the_target_decides_and_the_host_field_does_not() {
    let (meant, other) = (Origin::on("127.0.0.2", hello), Origin::on("127.0.0.3", hello));
    let curtsy = Curtsy::start();
    let response = curtsy.ask(&[&meant.get("/x"), &format!("Host: {}", other.authority())]);
    assert_eq!(response.text(), "hello");
    assert_eq!(meant.request().line(), "GET /x HTTP/1.1");
    assert_eq!(meant.request().values("Host"), [meant.authority()]);
    other.expect_untouched();
}

/// S2
#[test]
fn a_target_with_an_authority_needs_no_host_field() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    assert_eq!(curtsy.ask(&[&origin.get("/")]).status(), 200);
    assert_eq!(origin.request().values("Host"), [origin.authority()]);
}

/// S2
#[test]
fn an_ambiguous_host_field_is_refused() {
    for host in ["Host: a.test\r\nHost: b.test", "Host: a.test\r\nHost: a.test", "Host: a.test, b.test", "Host: a b"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        assert_eq!(curtsy.ask(&[&origin.get("/"), host]).status(), 400, "{host}");
        origin.expect_untouched();
    }
}

/// S3
#[test]
fn a_path_alone_is_never_proxied_by_the_host_field() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for target in ["/", "/x", "//x/y"] {
        let response = curtsy.ask(&[&format!("GET {target} HTTP/1.1"), &format!("Host: {}", origin.authority())]);
        assert_ne!(response.text(), "hello");
        assert!([200, 400, 404, 421].contains(&response.status()), "{target}: {}", response.line());
    }
    origin.expect_untouched();
}

/// S4: the URI type reads an empty path as `/`, so curtsy cannot tell the two apart (docs/deviations.md).
#[test]
fn options_without_a_path_reaches_the_server() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    curtsy.ask(&[&format!("OPTIONS http://{} HTTP/1.1", origin.authority())]);
    curtsy.ask(&[&format!("OPTIONS http://{}/ HTTP/1.1", origin.authority())]);
    let requests = origin.requests(2);
    assert!(["OPTIONS * HTTP/1.1", "OPTIONS / HTTP/1.1"].contains(&requests[0].line().as_str()));
    assert_eq!(requests[1].line(), "OPTIONS / HTTP/1.1");
}

/// S5
#[test]
fn path_and_query_arrive_byte_for_byte() {
    let paths = [
        "/a%2Fb",
        "/%2e%2e/x",
        "/../x",
        "/./x",
        "/a//b",
        "//x",
        "/;p=1;q",
        "/?a=b&&",
        "/?",
        "/?q=%00%zz",
        "/%7Euser",
        "/a:b@c",
        "/(x)'!*",
        "/?u=http://b.test/?x=1",
        "/?a=[1]{2}|3",
        "/caf%C3%A9",
    ];
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for path in paths {
        assert_eq!(curtsy.get(&origin.url(path)).status(), 200, "{path}");
        let last = origin.requests(1).pop().unwrap();
        assert_eq!(last.line(), format!("GET {path} HTTP/1.1"));
    }
}

/// S5
#[test]
fn an_empty_path_becomes_a_slash() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    curtsy.get(&origin.url(""));
    curtsy.get(&origin.url("?a=b"));
    let lines: Vec<_> = origin.requests(2).iter().map(|request| request.line()).collect();
    assert_eq!(lines, ["GET / HTTP/1.1", "GET /?a=b HTTP/1.1"]);
}

/// S6
#[test]
fn the_scheme_may_be_in_capitals() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    assert_eq!(curtsy.get(&format!("HTTP://{}/x", origin.authority())).text(), "hello");
    assert_eq!(origin.request().line(), "GET /x HTTP/1.1");
}

/// S6
#[test]
fn other_schemes_are_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for scheme in ["ftp", "gopher", "ws", "file", "javascript", "h2c"] {
        let response = curtsy.get(&format!("{scheme}://{}/", origin.authority()));
        assert_eq!((response.status(), response.refusal().as_str()), (400, "bad-request"), "{scheme}");
    }
    origin.expect_untouched();
}

/// S7
#[test]
fn credentials_in_the_target_are_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for userinfo in ["u:p", "u", "", ":", "u:p@x"] {
        let response = curtsy.get(&format!("http://{userinfo}@{}/", origin.authority()));
        assert_eq!(response.status(), 400, "{userinfo}");
        assert!(!response.text().contains("u:p"));
    }
    origin.expect_untouched();
}

/// S8
#[test]
fn a_fragment_never_reaches_the_origin() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let response = curtsy.get(&origin.url("/x#part"));
    assert!([200, 400].contains(&response.status()), "{}", response.line());
    assert!(!origin.bytes().contains(&b'#'));
}

/// S8
#[test]
fn a_target_with_whitespace_or_control_characters_is_refused() {
    for path in ["/a b", "/a\tb", "/a\x0bb", "/a\0b", "/a\x7fb", "/a\x1b[31m", " /x"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let mut client = curtsy.client();
        client.send_head(&[&origin.get(path), "Host: x"]);
        assert_eq!(client.response().status(), 400, "{path:?}");
        client.expect_end();
        origin.expect_untouched();
    }
}

/// S9
#[test]
fn what_is_too_long_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.limits.head_size = 16 * 1024));
    let long = "x".repeat(20_000);
    let target = curtsy.get(&origin.url(&format!("/{long}")));
    assert!([414, 431].contains(&target.status()), "{}", target.line());
    assert_eq!(curtsy.ask(&[&origin.get("/"), &format!("X-Long: {long}")]).status(), 431);
    origin.expect_untouched();
}

/// S9
#[test]
fn a_long_line_below_the_limit_goes_through() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    let path = format!("/{}", "x".repeat(30_000));
    assert_eq!(curtsy.get(&origin.url(&path)).status(), 200);
    assert_eq!(origin.request().line(), format!("GET {path} HTTP/1.1"));
}

/// S9
#[test]
fn every_method_is_passed_on() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND", "QUERY", "PURGE", "X-OWN.METHOD"] {
        let response = curtsy.ask(&[&format!("{method} {} HTTP/1.1", origin.url("/m")), "Content-Length: 0"]);
        assert_eq!(response.status(), 200, "{method}");
        assert_eq!(origin.requests(1).pop().unwrap().line(), format!("{method} /m HTTP/1.1"));
    }
}

/// S9
#[test]
fn a_method_that_is_no_token_is_refused() {
    for method in ["GE(T", "G\"T", "G@T", "G\u{e9}T"] {
        let (origin, curtsy) = (Origin::hello(), Curtsy::start());
        let response = curtsy.ask(&[&format!("{method} {} HTTP/1.1", origin.url("/"))]);
        assert!([400, 501].contains(&response.status()), "{method}: {}", response.line());
        origin.expect_untouched();
    }
}

/// S12
#[test]
fn a_name_is_the_same_host_in_capitals_and_with_a_dot() {
    let origin = Origin::hello();
    let curtsy = Curtsy::with(|config| {
        config.access.allow_destinations = vec![Destination::Host(HostPattern::Name("localhost".to_owned()))];
    });
    for host in ["localhost", "LOCALHOST", "LocalHost.", "localhost."] {
        let response = curtsy.get(&format!("http://{host}:{}/", origin.port()));
        assert_eq!(response.status(), 200, "{host}: {}", response.text());
    }
    assert_eq!(curtsy.get(&origin.url("/")).refusal(), "destination-denied", "the rule names a host, not its address");
}

/// S12
#[test]
fn one_host_has_one_spelling_at_the_origin() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for host in ["localhost", "LOCALHOST", "LocalHost."] {
        curtsy.get(&format!("http://{host}:{}/", origin.port()));
    }
    for request in origin.requests(3) {
        assert_eq!(request.value("Host"), format!("localhost:{}", origin.port()));
    }
    assert_eq!(origin.connections(), 1, "one host shares one pool");
}

fn hello(visitor: &mut crate::support::Visitor) {
    while visitor.request().is_some() {
        visitor.send(crate::support::origin::HELLO);
    }
}

/// S2: HTTP/1.1 requires a Host field, whatever the target is (RFC 9112, section 3.2).
#[test]
fn a_request_without_a_host_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for line in [origin.get("/"), "GET / HTTP/1.1".to_owned(), format!("CONNECT {} HTTP/1.1", origin.authority())] {
        let mut client = curtsy.client();
        client.send(format!("{line}\r\nAccept: */*\r\n\r\n"));
        let response = client.response_head();
        assert_eq!((response.status(), response.refusal().as_str()), (400, "bad-request"), "{line}");
    }
    origin.expect_untouched();
    // HTTP/1.0 does not require it.
    assert_eq!(curtsy.ask(&[&format!("GET {} HTTP/1.0", origin.url("/"))]).status(), 200);
}

/// Deviation: hyper's parser knows only 1.0 and 1.1, so a later minor version is not read as 1.1 (RFC 9110, section
/// 2.5).
#[test]
fn a_version_that_is_not_spoken_is_refused() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for (version, status) in [("HTTP/1.2", 400), ("HTTP/2.0", 505), ("HTTP/3.0", 505)] {
        let mut client = curtsy.client();
        client.send(format!("GET {} {version}\r\nHost: x\r\n\r\n", origin.url("/")));
        assert_eq!(client.response_head().status(), status, "{version}");
    }
    origin.expect_untouched();
}

/// S36: `PRI` begins an HTTP/2 connection and is not a method of HTTP/1.1 (RFC 9113, section 3.4).
#[test]
fn the_preface_of_http2_is_no_request() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for line in [format!("PRI {} HTTP/1.1", origin.url("/")), "PRI * HTTP/1.1".to_owned(), "PRI * HTTP/2.0".to_owned()]
    {
        let mut client = curtsy.client();
        client.send(format!("{line}\r\nHost: x\r\n\r\nSM\r\n\r\n"));
        assert!([400, 505].contains(&client.response_head().status()), "{line}");
        client.rest();
    }
    origin.expect_untouched();
}
