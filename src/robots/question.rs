//! A question about robots.txt from the operator: this URL, for that client.
//!
//! A URL is read as a client would send it: escaped, without fragment, and with its path as spelled, dot segments
//! included, because some clients send it so. A bare host means its front page over HTTPS.

use std::fmt;

use http::HeaderValue;
use url::{Position, Url};

use crate::politeness::{BadHost, HostKey, Origin, Scheme};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub origin: Origin,
    /// With the query.
    pub path: String,
    /// The client's User-Agent; `None` if it sends none.
    pub user_agent: Option<HeaderValue>,
    /// Whether to fetch the file even if it is known.
    pub anew: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadQuestion {
    Url(url::ParseError),
    Scheme,
    Host(BadHost),
    Credentials,
    UserAgent,
}

impl Question {
    pub fn parse(text: &str, user_agent: Option<&str>, anew: bool) -> Result<Question, BadQuestion> {
        let text = with_scheme(text);
        let url = Url::parse(&text).map_err(BadQuestion::Url)?;
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            _ => return Err(BadQuestion::Scheme),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadQuestion::Credentials);
        }
        let host = HostKey::parse(url.host_str().unwrap_or_default()).map_err(BadQuestion::Host)?;
        let port = url.port().unwrap_or(scheme.default_port());
        let path = spelled_path(&text).unwrap_or_else(|| url[Position::BeforePath..Position::AfterQuery].to_owned());
        let user_agent = user_agent.filter(|text| !text.is_empty()).map(HeaderValue::from_str).transpose();
        let user_agent = user_agent.map_err(|_| BadQuestion::UserAgent)?;
        Ok(Question { origin: Origin { scheme, host, port }, path, user_agent, anew })
    }

    /// Whether the text is a host without a scheme, not a URL.
    pub fn is_bare(text: &str) -> bool {
        !text.contains("://")
    }

    pub fn url(&self) -> String {
        format!("{}{}", self.origin, self.path)
    }
}

/// Path and query as spelled, with characters escaped that no request may contain; `None` if the URL has none.
fn spelled_path(text: &str) -> Option<String> {
    let (_, rest) = text.trim().split_once("://")?;
    let start = rest.find(['/', '?', '#', '\\']).filter(|start| rest[*start..].starts_with('/'))?;
    let path = rest[start..].split('#').next().unwrap_or_default();
    let mut spelled = String::with_capacity(path.len());
    for octet in path.bytes().filter(|octet| !matches!(octet, b'\t' | b'\n' | b'\r')) {
        match octet {
            b'!' | b'#'..=b';' | b'=' | b'?'..=b'_' | b'a'..=b'z' | b'|' | b'~' => spelled.push(char::from(octet)),
            _ => spelled += &format!("%{octet:02X}"),
        }
    }
    Some(spelled)
}

fn with_scheme(text: &str) -> String {
    if Question::is_bare(text) { format!("https://{text}") } else { text.to_owned() }
}

impl fmt::Display for BadQuestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadQuestion::Url(error) => write!(f, "that is not a URL: {error}"),
            BadQuestion::Scheme => f.write_str("only http:// and https:// have a robots.txt"),
            BadQuestion::Host(error) => error.fmt(f),
            BadQuestion::Credentials => f.write_str("the URL has credentials; leave them out"),
            BadQuestion::UserAgent => f.write_str("the User-Agent has characters that no field may have"),
        }
    }
}

impl std::error::Error for BadQuestion {}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> Result<String, BadQuestion> {
        Question::parse(text, None, false).map(|question| question.url())
    }

    #[test]
    fn a_url_is_read_as_a_client_sends_it() {
        for (text, expected) in [
            ("http://A.test:80/a b/../\u{e9}?q#f", "http://a.test/a%20b/../%C3%A9?q"),
            ("http://a.test/x/%2e%2e//b\\c?d\"e", "http://a.test/x/%2e%2e//b\\c?d%22e"),
            ("http://a.test?q", "http://a.test/?q"),
            ("https://[::1]:8443", "https://[::1]:8443/"),
            ("HTTP://a.test./x", "http://a.test/x"),
        ] {
            assert_eq!(url(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_bare_host_is_its_front_page_over_https() {
        assert_eq!(url("a.test").as_deref(), Ok("https://a.test/"));
        assert_eq!(url("a.test:8080/x").as_deref(), Ok("https://a.test:8080/x"));
    }

    #[test]
    fn what_has_no_robots_txt_is_refused() {
        assert_eq!(url("ftp://a.test/"), Err(BadQuestion::Scheme));
        assert_eq!(url("http://me:secret@a.test/"), Err(BadQuestion::Credentials));
        for text in ["", "http://", "http://a b/", "http://a.test:99999/"] {
            assert!(url(text).is_err(), "{text}");
        }
        assert_eq!(Question::parse("a.test", Some("a\nb"), false), Err(BadQuestion::UserAgent));
    }
}
