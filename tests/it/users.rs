//! Proxy users: a request without a valid password gets 407, and the password is never forwarded.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tempfile::NamedTempFile;

use crate::support::{Curtsy, Message, Origin, Program, soon};

/// A proxy with the user `ada`, and its users file.
fn with_users() -> (Curtsy, NamedTempFile) {
    let mut file = NamedTempFile::new().expect("a writable temporary directory");
    // The least work bcrypt allows: the tests are not about its strength.
    let hash = bcrypt::hash("love:lace", 4).expect("a password bcrypt takes");
    writeln!(file, "# proxy users\nada:{hash}").expect("a writable temporary directory");
    let path = file.path().to_owned();
    (Curtsy::with(|config| config.access.users_file = Some(path)), file)
}

fn basic(user: &str, password: &str) -> String {
    format!("Proxy-Authorization: Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn expect_407(response: &Message, what: &str) {
    assert_eq!((response.status(), response.refusal().as_str()), (407, "auth-required"), "{what}: {}", response.head());
    assert!(response.value("Proxy-Authenticate").starts_with("Basic realm=\""), "{}", response.head());
    assert!(response.value("Proxy-Status").contains("error=http_request_denied"), "{}", response.head());
}

/// S80
#[test]
fn a_user_gets_through_and_the_password_stays_behind() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let response =
        curtsy.ask(&[&origin.get("/"), "Host: x", &basic("ada", "love:lace"), "Authorization: Bearer for-the-origin"]);
    assert_eq!(response.text(), "hello");
    let request = origin.request();
    assert!(!request.has("Proxy-Authorization"));
    assert_eq!(request.value("Authorization"), "Bearer for-the-origin");
}

/// S80
#[test]
fn without_a_password_nothing_is_done() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    expect_407(&curtsy.get(&origin.url("/")), "none");
    expect_407(&curtsy.ask(&[&origin.get("/"), &basic("ada", "wrong")]), "wrong password");
    expect_407(&curtsy.ask(&[&origin.get("/"), &basic("bob", "love:lace")]), "wrong user");
    expect_407(&curtsy.ask(&[&origin.get("/"), &basic("", "")]), "empty");
    origin.expect_untouched();
}

/// S80: curtsy does not accept its password in Authorization, which is for the origin.
#[test]
fn the_origins_password_is_not_ours() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let field = basic("ada", "love:lace").replace("Proxy-", "");
    expect_407(&curtsy.ask(&[&origin.get("/"), &field]), "the wrong field");
}

/// X20
#[test]
fn malformed_credentials_are_wrong_credentials() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let long = format!("Basic {}", "A".repeat(20_000));
    for value in [
        "Basic",
        "Basic ",
        "Basic !!!",
        "Basic \"",
        "\"",
        "Bearer abc",
        "Basic YQ",
        "Basic YWRh",
        "Basic YWRhOmxvdmU6bGFjZQ== x",
        "Digest username=\"ada\"",
        "Basic Og==",
        "Basic /w==",
        "Basic AAAA",
        ",",
        &long,
    ] {
        expect_407(&curtsy.ask(&[&origin.get("/"), &format!("Proxy-Authorization: {value}")]), value);
    }
    let twice = [basic("ada", "love:lace"), basic("bob", "x")];
    expect_407(&curtsy.ask(&[&origin.get("/"), &twice[1], &twice[0]]), "two of them");
    origin.expect_untouched();
}

/// S80: RFC 9110 compares scheme names without case.
#[test]
fn the_scheme_may_be_written_small() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let field = basic("ada", "love:lace").replace("Basic", "basic");
    assert_eq!(curtsy.ask(&[&origin.get("/"), &field]).text(), "hello");
}

/// S50, S80
#[test]
fn a_tunnel_needs_the_password_too_and_closes_without() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let line = format!("CONNECT {} HTTP/1.1", origin.authority());
    let mut client = curtsy.client();
    expect_407(&client.ask(&[&line, "Host: x", "Connection: keep-alive"]), "no password");
    client.expect_end();
    assert_eq!(origin.connections(), 0);
    assert_eq!(curtsy.ask(&[&line, &basic("ada", "love:lace")]).status(), 200);
}

/// S80
#[test]
fn the_password_counts_for_one_request() {
    let ((curtsy, _file), origin) = (with_users(), Origin::hello());
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x", &basic("ada", "love:lace")]).text(), "hello");
    expect_407(&client.ask(&[&origin.get("/"), "Host: x"]), "the same connection");
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x", &basic("ada", "love:lace")]).text(), "hello");
}

/// S80: 407 is for authentication only, so that browsers do not ask for a password in vain.
#[test]
fn policy_is_never_407() {
    let origin = Origin::hello();
    let curtsy = Curtsy::with(|config| config.access.allow = vec!["10.0.0.0/8".parse().unwrap()]);
    assert_eq!(curtsy.get(&origin.url("/")).status(), 403);
    assert_eq!(curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority())]).status(), 403);
}

/// S80
#[test]
fn without_users_a_password_is_ignored_and_still_stays_behind() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    assert_eq!(curtsy.ask(&[&origin.get("/"), &basic("any", "body")]).text(), "hello");
    assert!(!origin.request().has("Proxy-Authorization"));
}

/// S80: curtsy removes an origin's challenge for the proxy's password.
#[test]
fn an_origins_407_does_not_carry_its_challenge() {
    let origin = Origin::answering(
        "HTTP/1.1 407 Give It To Me\r\nProxy-Authenticate: Basic realm=\"evil\"\r\nContent-Length: 0\r\n\r\n",
    );
    let response = Curtsy::start().get(&origin.url("/"));
    assert!(!response.has("Proxy-Authenticate"), "{}", response.head());
}

/// X20: curtsy warns at start about hashes that are quick to guess.
#[test]
fn weak_hashes_are_named_at_start() {
    let mut file = NamedTempFile::new().expect("a writable temporary directory");
    let hash = bcrypt::hash("love:lace", 5).expect("a password bcrypt takes");
    writeln!(file, "ada:{hash}").expect("a writable temporary directory");
    let access = format!("[access]\nusers_file = {:?}\n", file.path().to_str().unwrap());
    let program = Program::start("", &access);
    assert!(soon(|| program.event("users.weak").is_some()), "{:#?}", program.stderr());
    let warning = program.event("users.weak").expect("seen above");
    assert!(warning["msg"].as_str().is_some_and(|text| text.contains("htpasswd")), "{warning}");
    assert!(!warning.to_string().contains(&hash), "{warning}");
}
