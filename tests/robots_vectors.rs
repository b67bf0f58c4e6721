//! Runs every case in `tests/data/robots`: verdicts and delays from the test suites of crawler-commons and Protego,
//! from the examples of RFC 9309 and from edge cases of our own.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use curtsy::politeness::robots::{Agents, Rules};
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    source: String,
    name: String,
    robots: String,
    /// The body, if it is not UTF-8.
    robots_b64: Option<String>,
    ua: String,
    /// The URL and its expected verdict, in a case about a verdict.
    url: Option<String>,
    allowed: Option<bool>,
    /// The expected delay, in a case about a delay; neither field if no delay is expected.
    crawl_delay: Option<f64>,
    /// The expected rate: this many requests in this many seconds.
    request_rate: Option<(f64, f64)>,
}

impl Case {
    fn rules(&self) -> Rules {
        let rules = match &self.robots_b64 {
            Some(body) => Rules::parse(&BASE64.decode(body).expect("a body in base64")),
            None => Rules::parse(self.robots.as_bytes()),
        };
        assert_eq!(Rules::from_stored(rules.as_bytes()).as_ref(), Some(&rules), "{}: {}", self.source, self.name);
        rules
    }

    /// The result of curtsy if it differs from the expected one.
    fn difference(&self) -> Option<String> {
        let (rules, agents) = (self.rules(), Agents::from_user_agent(&self.ua));
        let (answer, agrees) = match &self.url {
            Some(url) => {
                let verdict = rules.verdict(&agents, path_and_query(url));
                (format!("{url} {verdict:?}"), Some(verdict.allowed) == self.allowed)
            }
            None => {
                let seconds = self.crawl_delay.or(self.request_rate.map(|(requests, seconds)| seconds / requests));
                let delay = rules.delay(&agents);
                (format!("{delay:?}"), delay == seconds.map(Duration::from_secs_f64))
            }
        };
        (!agrees).then(|| format!("{}: {}: {}: {answer}", self.source, self.name, self.ua))
    }
}

/// The path and query that a client would send for the URL.
fn path_and_query(url: &str) -> &str {
    let Some((_, rest)) = url.split_once("://") else { return url };
    rest.find(['/', '?', '#']).map_or("/", |start| &rest[start..])
}

fn check(json: &str, count: usize) {
    let cases: Vec<Case> = serde_json::from_str(json).expect("cases");
    assert_eq!(cases.len(), count);
    let differences: Vec<String> = cases.iter().filter_map(Case::difference).collect();
    assert!(differences.is_empty(), "{} of {}\n{}", differences.len(), cases.len(), differences.join("\n"));
}

#[test]
fn every_verdict_is_the_expected_one() {
    check(include_str!("data/robots/vectors.json"), 808);
}

#[test]
fn every_delay_is_the_expected_one() {
    check(include_str!("data/robots/delays.json"), 50);
}
