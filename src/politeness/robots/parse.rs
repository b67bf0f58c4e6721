//! Puts lines into groups (RFC 9309, section 2.2.1).
//!
//! Consecutive User-agent lines share what follows them. A User-agent line after an Allow or Disallow begins a new
//! group, and nothing else does: other records must not interfere (section 2.2.4). A Crawl-delay or Request-rate
//! belongs to the names since the previous delay, because sites write `User-agent: a, Crawl-delay: 1, User-agent: b,
//! Crawl-delay: 5` and mean one delay each.
//!
//! Groups of the same name are not merged here: the matcher uses all of them.

use std::time::Duration;

use super::agent::product_token;
use super::line::{self, Key, RobotsLine};
use super::pattern::Pattern;
use super::stream::{self, Agent, StoredRule};
use super::{ask, canonical};

pub(super) fn parse(body: &[u8]) -> Vec<u8> {
    let mut parser = Parser { stream: vec![stream::VERSION], ..Parser::default() };
    line::lines(body).for_each(|line| parser.take(line));
    parser.end_group();
    parser.stream
}

#[derive(Default)]
struct Parser<'b> {
    stream: Vec<u8>,
    agents: Vec<Agent<'b>>,
    /// Index of the first name that the next delay belongs to.
    undelayed: usize,
    /// Those names have a delay. The next name begins a new run.
    delayed: bool,
    rules: Vec<u8>,
    last_line: u32,
    /// The names are complete; the next one begins a group.
    has_rules: bool,
    octets: Vec<u8>,
}

impl<'b> Parser<'b> {
    fn take(&mut self, line: RobotsLine<'b>) {
        match line.key {
            Key::UserAgent => self.take_name(line.value),
            Key::Allow => self.take_rule(line, true),
            Key::Disallow => self.take_rule(line, false),
            Key::CrawlDelay => self.take_delay(ask::crawl_delay(line.value)),
            Key::RequestRate => self.take_delay(ask::request_rate(line.value)),
            Key::Sitemap | Key::ContentSignal | Key::ContentUsage | Key::VisitTime => {}
        }
    }

    fn take_name(&mut self, value: &'b [u8]) {
        if self.has_rules {
            self.end_group();
        }
        if std::mem::take(&mut self.delayed) {
            self.undelayed = self.agents.len();
        }
        if let Some(token) = group_token(value) {
            self.agents.push(Agent { token, delay: None });
        }
    }

    fn take_rule(&mut self, line: RobotsLine<'b>, allow: bool) {
        self.has_rules = true;
        // Ignores rules before the first User-agent line, and rules with an empty path.
        if self.agents.is_empty() || line.value.is_empty() {
            return;
        }
        self.put_rule(line.number, allow, line.value);
        if allow && let Some(directory) = directory_of_index(line.value) {
            self.put_rule(line.number, allow, &[directory, b"$"].concat());
        }
    }

    fn put_rule(&mut self, line: u32, allow: bool, path: &[u8]) {
        self.octets.clear();
        let anchored = canonical::rule(path, &mut self.octets);
        let pattern = Pattern { octets: &self.octets, anchored };
        stream::put_rule(&mut self.rules, &mut self.last_line, StoredRule { allow, line, pattern });
    }

    fn take_delay(&mut self, delay: Option<Duration>) {
        self.delayed = true;
        for agent in &mut self.agents[self.undelayed..] {
            agent.delay = agent.delay.max(delay);
        }
    }

    fn end_group(&mut self) {
        if !self.agents.is_empty() {
            stream::put_group(&mut self.stream, &self.agents, &self.rules);
        }
        self.agents.clear();
        self.rules.clear();
        (self.undelayed, self.delayed, self.has_rules, self.last_line) = (0, false, false, 0);
    }
}

/// Returns the product token of a User-agent line: empty for `*`, `None` if the line names no client. Text after the
/// product token is a version or a remark.
pub(super) fn group_token(value: &[u8]) -> Option<&[u8]> {
    let token = product_token(value.strip_prefix(b"*").unwrap_or(value));
    let is_any = value.first() == Some(&b'*');
    (is_any == token.is_empty()).then_some(token)
}

/// An Allow rule for a directory's index page allows the directory, too, as in Google's parser.
fn directory_of_index(path: &[u8]) -> Option<&[u8]> {
    let slash = memchr::memrchr(b'/', path)?;
    path[slash..].starts_with(b"/index.htm").then_some(&path[..=slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The groups as text: `names: rules`, one per line.
    fn groups(body: &str) -> Vec<String> {
        let stream = parse(body.as_bytes());
        assert!(stream::is_sound(&stream));
        let show_agent = |agent: Agent<'_>| {
            let token = String::from_utf8_lossy(agent.token).into_owned();
            let name = if token.is_empty() { "*".to_owned() } else { token };
            agent.delay.map_or(name.clone(), |delay| format!("{name}+{}", delay.as_secs_f64()))
        };
        let show_rule =
            |rule: StoredRule<'_>| format!("{}{}{}", rule.line, if rule.allow { "+" } else { "-" }, rule.pattern);
        let show = |group: stream::Group<'_>| {
            let names: Vec<String> = group.agents().map(show_agent).collect();
            let rules: Vec<String> = group.rules().map(show_rule).collect();
            format!("{}: {}", names.join(" "), rules.join(" ")).trim_end().to_owned()
        };
        stream::groups(&stream).map(show).collect()
    }

    #[test]
    fn only_rules_end_a_group() {
        assert_eq!(
            groups("user-agent: a\nuser-agent: B\ndisallow: /x\nallow: /y\n\nallow: /z"),
            ["a b: 3-/x 4+/y 6+/z"]
        );
        assert_eq!(groups("user-agent: a\ndisallow: /\nuser-agent: b\ndisallow: /"), ["a: 2-/", "b: 4-/"]);
        assert_eq!(
            groups("user-agent: a\nsitemap: x\nunknown: y\ncrawl-delay: 2\nuser-agent: *\ndisallow: /"),
            ["a+2 *: 6-/"]
        );
    }

    #[test]
    fn a_group_without_rules_is_a_group() {
        assert_eq!(groups("user-agent: a\ndisallow:\nuser-agent: b"), ["a:", "b:"]);
        assert_eq!(groups(""), [""; 0]);
    }

    #[test]
    fn rules_without_a_client_are_dropped() {
        assert_eq!(groups("disallow: /\ncrawl-delay: 9\nuser-agent: a\nallow: /b"), ["a: 4+/b"]);
        assert_eq!(groups("user-agent: a\nallow: /b\nuser-agent: /!\ndisallow: /"), ["a: 2+/b"]);
    }

    #[test]
    fn names_are_product_tokens() {
        let name = |value: &str| groups(&format!("user-agent: {value}")).pop();
        assert_eq!(name("FooBot/1.0 (+x)").as_deref(), Some("foobot:"));
        assert_eq!(name("foo bar").as_deref(), Some("foo:"));
        assert_eq!(name("*").as_deref(), Some("*:"));
        assert_eq!(name("* all").as_deref(), Some("*:"));
        assert_eq!(name("*<BR>").as_deref(), Some("*:"));
        assert_eq!(name("*bot"), None);
        assert_eq!(name(""), None);
    }

    #[test]
    fn a_delay_belongs_to_the_names_since_the_delay_before() {
        assert_eq!(
            groups("user-agent: a\ncrawl-delay: 1\nuser-agent: b\nuser-agent: c\ncrawl-delay: 5\nuser-agent: d"),
            ["a+1 b+5 c+5 d:"]
        );
        assert_eq!(
            groups("user-agent: a\ncrawl-delay: 1\nrequest-rate: 1/3\ncrawl-delay: 2\ndisallow: /x"),
            ["a+3: 5-/x"]
        );
        assert_eq!(groups("user-agent: a\ndisallow: /\ncrawl-delay: 0.5\nuser-agent: b"), ["a+0.5: 2-/", "b:"]);
    }

    #[test]
    fn an_allowed_index_page_allows_its_directory() {
        assert_eq!(groups("user-agent: a\nallow: /d/index.html"), ["a: 2+/d/index.html 2+/d/$"]);
        assert_eq!(groups("user-agent: a\ndisallow: /d/index.html"), ["a: 2-/d/index.html"]);
    }
}
