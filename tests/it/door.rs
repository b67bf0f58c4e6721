//! Access to the admin listener: which host names, origins and tokens it accepts, and that the proxy does not lead to
//! it.

use std::net::SocketAddr;

use curtsy::app::{Listeners, Running};
use curtsy::politeness::HostKey;

use crate::support::curtsy::config;
use crate::support::{Client, Curtsy, Message};

/// One path of each kind that the admin listener serves.
const PATHS: [&str; 15] = [
    "/",
    "/hosts/a.test",
    "/clients",
    "/assets/style.css",
    "/assets/app.js",
    "/metrics",
    "/api/v1/status",
    "/api/v1/hosts",
    "/api/v1/queue",
    "/api/v1/cache",
    "/api/v1/cache/entries",
    "/api/v1/events",
    "/api/v1/config",
    "/api/v1/explain?url=http://a.test/",
    "/api/v1/openapi.json",
];

fn ask(admin: SocketAddr, line: &str, fields: &[&str]) -> Message {
    let lines: Vec<&str> = [line].into_iter().chain(fields.iter().copied()).chain(["Connection: close"]).collect();
    let mut client = Client::connect(admin);
    client.send_head(&lines);
    client.response_head()
}

fn get(curtsy: &Curtsy, path: &str, fields: &[&str]) -> Message {
    ask(curtsy.admin(), &format!("GET {path} HTTP/1.1"), fields)
}

/// X57: a request for another host name is refused on every path, because that name may have been rebound.
#[test]
fn a_strange_name_is_let_in_nowhere() {
    let curtsy = Curtsy::start();
    for path in PATHS.into_iter().chain(["/healthz", "/readyz", "/nothing"]) {
        assert_eq!(get(&curtsy, path, &["Host: evil.test"]).status(), 421, "{path}");
        assert_eq!(get(&curtsy, path, &["Host: 10.0.0.1:80"]).status(), 421, "{path}");
    }
    assert_eq!(ask(curtsy.admin(), "POST /login HTTP/1.1", &["Host: evil.test", "Content-Length: 0"]).status(), 421);
}

/// X57: the operator can list names of the listener, and change the list by a reload.
#[test]
fn a_listed_name_is_let_in() {
    let curtsy = Curtsy::with(|config| config.access.admin_hosts = vec![HostKey::parse("curtsy.test").unwrap()]);
    let status = |host: &str| get(&curtsy, "/api/v1/status", &[&format!("Host: {host}")]).status();
    assert_eq!((status("Curtsy.test:3129"), status("a.curtsy.test"), status("evil.test")), (200, 421, 421));
    curtsy.reload(|config| config.access.admin_hosts = Vec::new());
    assert_eq!((status("curtsy.test"), status("localhost")), (421, 200));
}

/// X57: a page of another site gets nothing, but a user may follow a link from there to a page.
#[test]
fn a_page_of_another_site_is_let_in_nowhere() {
    let curtsy = Curtsy::start();
    let host = format!("Host: {}", curtsy.admin());
    for path in PATHS.into_iter().chain(["/healthz"]) {
        for field in
            ["Origin: http://evil.test", "Origin: null", "Origin: http://localhost:1", "Sec-Fetch-Site: cross-site"]
        {
            assert_eq!(get(&curtsy, path, &[&host, field]).status(), 403, "{path} {field}");
        }
        let frame = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"];
        assert_eq!(get(&curtsy, path, &[&[host.as_str()], &frame[..]].concat()).status(), 403, "{path} in a frame");
        let same = format!("Origin: http://{}", curtsy.admin());
        assert_ne!(get(&curtsy, path, &[&host, &same, "Sec-Fetch-Site: same-origin"]).status(), 403, "{path}");
    }
    let link = ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"];
    let follow = |path: &str| get(&curtsy, path, &[&[host.as_str()], &link[..]].concat()).status();
    assert_eq!((follow("/"), follow("/api/v1/explain?url=http://a.test/")), (200, 403));
}

/// X57, X58: no GET changes anything, and paths that only show something accept no other method.
#[test]
fn nothing_is_changed_by_get() {
    let curtsy = Curtsy::start();
    for path in ["/api/v1/reload", "/api/v1/check", "/api/v1/clients/a/stop", "/api/v1/clients/a/resume", "/login"] {
        assert_eq!(get(&curtsy, path, &["Host: localhost"]).status(), 405, "{path}");
    }
    for path in ["/metrics", "/healthz", "/readyz", "/", "/api/v1/status"] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let fields = ["Host: localhost", "Content-Type: application/json", "Content-Length: 0"];
            let answer = ask(curtsy.admin(), &format!("{method} {path} HTTP/1.1"), &fields);
            assert_eq!(answer.status(), 405, "{method} {path}");
        }
    }
}

/// X56: the proxy does not lead to the admin listener, whatever the form of the request.
#[test]
fn there_is_no_way_through_the_proxy() {
    let curtsy = Curtsy::start();
    let port = curtsy.admin().port();
    for name in ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]", "2130706433"] {
        let plain = curtsy.ask(&[&format!("GET http://{name}:{port}/api/v1/status HTTP/1.1"), "Host: x"]);
        assert!(plain.status() >= 400 && !plain.refusal().is_empty(), "{name}: {}", plain.head());
        let tunnel = curtsy.ask(&[&format!("CONNECT {name}:{port} HTTP/1.1")]);
        assert!(tunnel.status() >= 400 && !tunnel.refusal().is_empty(), "{name}: {}", tunnel.head());
    }
    let own = curtsy.ask(&["GET /api/v1/status HTTP/1.1", &format!("Host: {}", curtsy.admin())]);
    assert_eq!(own.status(), 404, "the proxy's own page is all there is");
}

/// X57: if a token is set, nothing is shown without it. A browser sends it once and gets a session cookie.
#[test]
fn a_token_opens_the_door_for_a_browser() {
    let curtsy = Curtsy::with(|config| config.metrics.token = Some("tulip".to_owned()));
    let host = "Host: localhost";
    for path in PATHS.into_iter().filter(|path| !path.starts_with("/assets/")) {
        assert_eq!(get(&curtsy, path, &[host]).status(), 401, "{path}");
        assert_eq!(get(&curtsy, path, &[host, "Authorization: Bearer rose"]).status(), 401, "{path}");
        assert_eq!(get(&curtsy, path, &[host, "Cookie: curtsy-session="]).status(), 401, "{path}");
        assert_eq!(get(&curtsy, path, &[host, "Cookie: curtsy-session=tulip"]).status(), 401, "{path}");
        assert_ne!(get(&curtsy, path, &[host, "Authorization: Bearer tulip"]).status(), 401, "{path}");
    }
    assert_eq!(get(&curtsy, "/healthz", &[host]).status(), 200);
    assert_eq!(get(&curtsy, "/?token=rose", &[host]).status(), 401);
    let form = |token: &str| {
        let mut client = Client::connect(curtsy.admin());
        let body = format!("token={token}");
        client.send(format!("POST /login HTTP/1.1\r\n{host}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        client.response()
    };
    assert_eq!(form("rose").status(), 401);
    for answer in [get(&curtsy, "/?token=tulip", &[host]), form("tulip")] {
        assert_eq!((answer.status(), answer.value("location").as_str()), (303, "/"));
        let cookie = answer.value("set-cookie");
        assert!(
            cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains("tulip"),
            "{cookie}"
        );
        let cookie = format!("Cookie: other=1; {}", cookie.split(';').next().expect("a pair"));
        assert_eq!(get(&curtsy, "/api/v1/status", &[host, &cookie]).status(), 200);
        assert_eq!(get(&curtsy, "/api/v1/status", &[host, &cookie, "Origin: http://evil.test"]).status(), 403);
    }
}

/// The security headers forbid a browser to load anything from elsewhere or to show the page in a frame.
#[test]
fn every_answer_says_what_a_browser_may_do_with_it() {
    let curtsy = Curtsy::start();
    for path in PATHS.into_iter().chain(["/nothing"]) {
        let answer = get(&curtsy, path, &["Host: localhost"]);
        let policy = answer.value("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"), "{path}");
        assert_eq!(answer.value("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(answer.value("x-frame-options"), "DENY", "{path}");
    }
}

/// `/readyz` fails while curtsy has no proxy listener.
#[test]
fn without_a_listener_it_is_not_ready() {
    let config = config();
    let admin = Listeners::bind(&config).expect("loopback has free ports").admin;
    let running = Running::start(config, Listeners { proxy: Vec::new(), tls: Vec::new(), admin })
        .expect("these settings are sound");
    let admin = running.admin_address().expect("it has an admin listener");
    assert_eq!(ask(admin, "GET /readyz HTTP/1.1", &["Host: localhost"]).status(), 503);
    assert_eq!(ask(admin, "GET /healthz HTTP/1.1", &["Host: localhost"]).status(), 200, "it is alive all the same");
    running.stop();
}
