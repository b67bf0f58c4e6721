//! How people see a request while it waits and after it is over: the client, and a URL with nothing secret in it.
//!
//! Query strings carry keys and sessions, so they are left out, whatever the log shows. Long URLs are cut, because
//! labels are kept in memory and must be small.

use std::borrow::Cow;
use std::net::IpAddr;

use http::HeaderMap;
use http::header::USER_AGENT;
use http::request::Parts;

use crate::gate::Label;
use crate::politeness::{HostKey, Origin};
use crate::programs;
use crate::upstream::Message;

/// The client of a request, as people know it.
#[derive(Clone, Copy)]
pub(crate) struct ClientName<'a> {
    /// A proxy user, or what the client calls itself.
    pub(crate) name: Option<&'a str>,
    pub(crate) address: IpAddr,
}

impl ClientName<'_> {
    pub(crate) fn text(self) -> String {
        self.name.map_or_else(|| self.address.to_string(), |name| cut(name, LONGEST_NAME).into_owned())
    }
}

const LONGEST_URL: usize = 512;
const LONGEST_NAME: usize = 100;
const LONGEST_AGENT: usize = 200;
const LONGEST_PROGRAM: usize = 40;

/// Returns the label of a request that waits to be sent.
pub(crate) fn of(who: ClientName<'_>, origin: &Origin, message: &Message) -> Label {
    let (method, target) = message.line();
    // A parent proxy is sent the whole URL.
    let url = if target.starts_with('/') { format!("{origin}{target}") } else { target.to_owned() };
    let agent = cut(message.user_agent(), LONGEST_AGENT).into_owned();
    Label { client: who.text(), method: method.to_owned(), url: without_query(&url).into_owned(), agent }
}

/// Returns the label of a request that waits for robots.txt.
pub(crate) fn of_head(who: ClientName<'_>, origin: &Origin, parts: &Parts) -> Label {
    let url = format!("{origin}{}", parts.uri.path_and_query().map_or("/", |path| path.as_str()));
    let method = parts.method.as_str().to_owned();
    Label { client: who.text(), method, url: without_query(&url).into_owned(), agent: agent(&parts.headers) }
}

/// Returns the label of a tunnel that waits to be opened.
pub(crate) fn of_tunnel(who: ClientName<'_>, host: &HostKey, port: u16, headers: &HeaderMap) -> Label {
    let (method, url) = ("CONNECT".to_owned(), format!("{host}:{port}"));
    Label { client: who.text(), method, url, agent: agent(headers) }
}

fn agent(headers: &HeaderMap) -> String {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    cut(agent, LONGEST_AGENT).into_owned()
}

/// Returns the name of the program that sends this User-Agent, or the first word of it.
pub(crate) fn program(agent: &[u8]) -> String {
    let agent = String::from_utf8_lossy(agent);
    match programs::of_user_agent(&agent) {
        Some(program) => program.name.to_owned(),
        None => cut(agent.split(['/', ' ']).next().unwrap_or_default(), LONGEST_PROGRAM).into_owned(),
    }
}

/// Returns a URL that may be shown.
pub(crate) fn without_query(url: &str) -> Cow<'_, str> {
    match url.split_once('?') {
        Some((path, _)) => Cow::Owned(format!("{}?…", cut(path, LONGEST_URL))),
        None => cut(url, LONGEST_URL),
    }
}

fn cut(text: &str, longest: usize) -> Cow<'_, str> {
    match text.char_indices().nth(longest) {
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_known_by_its_user_agent() {
        assert_eq!(program(b"python-requests/2.34"), "requests");
        assert_eq!(program(b"FooBot/1.0 (+https://example.org)"), "FooBot");
        assert_eq!(program("é".repeat(99).as_bytes()).chars().count(), LONGEST_PROGRAM + 1);
    }

    #[test]
    fn what_is_shown_is_short_and_has_no_query() {
        assert_eq!(without_query("http://a.test/x?token=secret#y"), "http://a.test/x?…");
        assert_eq!(without_query("http://a.test/x"), "http://a.test/x");
        let long = format!("http://a.test/{}?q", "é".repeat(5_000));
        assert_eq!(without_query(&long).chars().count(), LONGEST_URL + 3);
    }
}
