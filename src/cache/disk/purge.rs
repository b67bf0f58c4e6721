//! Which stored responses people want to forget, or to see.

/// A choice of stored responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purge {
    All,
    /// Every URL of a host, with any scheme and port.
    Host(String),
    /// One URL, for every partition.
    Url(String),
}

impl Purge {
    pub fn matches(&self, url: &str) -> bool {
        match self {
            Purge::All => true,
            Purge::Host(host) => host_of(url) == host,
            Purge::Url(wanted) => url == wanted,
        }
    }
}

/// Returns the host in a URL as the cache writes it.
pub(super) fn host_of(url: &str) -> &str {
    let after = url.split_once("://").map_or(url, |(_, after)| after);
    let authority = after.split(['/', '?']).next().unwrap_or(after);
    match authority.rfind(':') {
        // The last colon inside brackets is part of an IPv6 address.
        Some(at) if !authority[at..].contains(']') => &authority[..at],
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_urls() {
        for (url, host) in [
            ("http://example.com/a:b", "example.com"),
            ("https://example.com:8443/", "example.com"),
            ("http://[::1]/", "[::1]"),
            ("http://[::1]:81/x", "[::1]"),
            ("http://127.0.0.1:8080?x", "127.0.0.1"),
        ] {
            assert_eq!(host_of(url), host);
        }
        assert!(!Purge::Host("example.com".to_owned()).matches("http://www.example.com/"));
    }
}
