//! No spelling of a request evades robots.txt, and explanations of a URL match what happens to a request for it.

use curtsy::config::{Config, RobotsMode};
use serde_json::{Value, json};

use crate::support::{Curtsy, Origin};

const FILE: &str = "User-agent: *\nDisallow: /private/\nDisallow: /*/hidden$\nAllow: /private/open\n";

fn obedient(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.robots = RobotsMode::Enforce;
        change(config);
    })
}

fn site() -> Origin {
    Origin::with_robots(format!("HTTP/1.1 200 X\r\nContent-Length: {}\r\n\r\n{FILE}", FILE.len()))
}

/// Promise 4: spellings that common servers read as /private/page.
const EVASIONS: &[&str] = &[
    "/public/../private/page",
    "/./private/page",
    "/public/%2e%2e/private/page",
    "/public/.%2E/private/page",
    "/%2e/private/page",
    "/..%2fprivate/page",
    "//private/page",
    "/public//../private/page",
    "/private%2fpage",
    "/private%2Fpage",
    "/private%5cpage",
    "/public/..%5cprivate/page",
    "/private//page",
    "/%70rivate/page",
    "/private/x/../page?q=/../../public",
    "/private/../private/page",
];

/// Paths of other pages and of the page that is allowed.
const HARMLESS: &[&str] = &[
    "/public/page",
    "/public/../page",
    "/private",
    "/privateer/page",
    "/page?next=/private/page",
    "/page?next=/../private/page",
    "/private/open",
    "/a%2fb",
    "//a//b",
    "/..",
    "/x/%2e%2e",
];

#[test]
fn no_spelling_of_a_path_gets_past_the_rules() {
    let (site, curtsy) = (site(), obedient(|_| ()));
    for path in EVASIONS {
        let answer = curtsy.ask(&[&site.get(path), "Host: x"]);
        assert_eq!((answer.status(), answer.refusal().as_str()), (403, "robots-denied"), "{path}");
    }
    for path in HARMLESS {
        let answer = curtsy.ask(&[&site.get(path), "Host: x"]);
        assert_eq!(answer.status(), 200, "{path}: {}", answer.text());
        let asked = site.requests(0).pop().expect("a request").line();
        assert_eq!(asked, format!("GET {path} HTTP/1.1"), "what is sent stays as it came");
    }
}

#[test]
fn no_spelling_of_a_method_gets_past_the_rules() {
    let (site, curtsy) = (site(), obedient(|_| ()));
    for method in ["GET", "get", "Get", "hEAD", "Head"] {
        let line = site.get("/private/page").replace("GET", method);
        let refusal = curtsy.client().ask(&[&line, "Host: x", "Connection: close"]);
        assert_eq!(refusal.status(), 403, "{method}");
    }
    let line = site.get("/private/page").replace("GET", "post");
    assert_eq!(curtsy.ask(&[&line, "Host: x", "Content-Length: 0"]).status(), 200);
}

fn explain(curtsy: &Curtsy, url: &str) -> Value {
    let query = url.replace('%', "%25").replace('&', "%26").replace('\\', "%5C");
    let line = format!("GET /api/v1/explain?url={query} HTTP/1.1");
    let answer = curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]);
    serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{url}: {error}: {}", answer.text()))
}

/// `explain`, `check` and `curtsy robots` judge a URL like a request for it.
#[test]
fn what_is_explained_is_what_happens() {
    let (site, curtsy) = (site(), obedient(|_| ()));
    for path in EVASIONS.iter().chain(HARMLESS).chain(&["/a/hidden", "/a/hidden?b", "/a\\hidden", "/a%00/hidden"]) {
        let happens = curtsy.ask(&[&site.get(path), "Host: x"]).status();
        let told = explain(&curtsy, &site.url(path));
        let expected = if happens == 403 { json!(false) } else { json!(true) };
        assert_eq!(told["allowed"], expected, "{path} is answered {happens}: {told:#}");
        assert_eq!(told["url"], json!(site.url(path)), "told as it was asked");
        let line = format!("GET /api/v1/robots?url={} HTTP/1.1", site.url(path).replace('%', "%25"));
        let report = curtsy.ask_admin(&[&line, "Host: localhost", "Connection: close"]).text();
        assert_eq!(report.contains("\"refused\":true"), happens == 403, "{path}: {report}");
    }
}
