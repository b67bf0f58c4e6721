//! The page that a browser shows at the proxy's own address. It says what curtsy is, and no more.

use crate::support::{Curtsy, Origin};

/// S3
#[test]
fn a_person_gets_a_page() {
    let response = Curtsy::start().ask(&["GET / HTTP/1.1", "Host: localhost", "Accept: text/html,*/*;q=0.8"]);
    assert_eq!(response.status(), 200);
    assert!(response.value("Content-Type").starts_with("text/html"), "{}", response.head());
    assert!(response.text().contains("curtsy") && response.text().to_ascii_lowercase().contains("<!doctype html>"));
}

/// S3
#[test]
fn a_program_gets_text() {
    let response = Curtsy::start().ask(&["GET / HTTP/1.1", "Host: localhost"]);
    assert!(response.value("Content-Type").starts_with("text/plain"), "{}", response.head());
    assert!(response.text().contains("curtsy") && !response.text().contains('<'), "{}", response.text());
}

/// S3, S85
#[test]
fn other_paths_are_not_found() {
    let curtsy = Curtsy::start();
    for path in ["/x", "/robots.txt", "/metrics", "/api/v1/hosts", "/healthz", "/proxy.pac", "/..", "/%2e", "/?x"] {
        let response = curtsy.ask(&[&format!("GET {path} HTTP/1.1"), "Host: localhost"]);
        let expected: &[u16] = if path == "/?x" { &[200, 404] } else { &[404] };
        assert!(expected.contains(&response.status()), "{path}: {}", response.line());
    }
}

/// S3
#[test]
fn other_methods_are_not_served() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    for method in ["POST", "PUT", "DELETE", "PROPFIND"] {
        let response = curtsy.ask(&[
            &format!("{method} / HTTP/1.1"),
            &format!("Host: {}", origin.authority()),
            "Content-Length: 0",
        ]);
        assert!([400, 404, 405].contains(&response.status()), "{method}: {}", response.line());
    }
    origin.expect_untouched();
}

/// S3
#[test]
fn head_is_get_without_the_body() {
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    assert_eq!(client.ask(&["HEAD / HTTP/1.1", "Host: localhost"]).status(), 200);
    assert_eq!(client.ask(&["GET / HTTP/1.1", "Host: localhost"]).status(), 200);
}

/// S3: the page is subject to `access.allow`, too.
#[test]
fn the_page_is_for_clients_too() {
    let curtsy = Curtsy::with(|config| config.access.allow = vec!["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(curtsy.ask(&["GET / HTTP/1.1", "Host: localhost"]).refusal(), "client-denied");
}

/// X30
#[test]
fn the_page_does_not_repeat_what_it_was_asked() {
    let response = Curtsy::start().ask(&[
        "GET / HTTP/1.1",
        "Host: tulip.test",
        "Accept: text/html",
        "Cookie: tulip",
        "User-Agent: tulip",
    ]);
    assert!(!(response.head() + &response.text()).contains("tulip"));
    assert_eq!(response.value("X-Content-Type-Options"), "nosniff");
}
