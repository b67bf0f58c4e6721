//! Decides how later answers change what is stored: 304, HEAD, and methods that change something (RFC 9111, sections
//! 4.3.4, 4.3.5 and 4.4).

use url::Url;

use super::conditions::same;
use crate::politeness::{HostKey, Origin, Scheme};

/// Whether a 304 to our conditions is about the stored answer: it has the same entity tag, or none.
pub fn confirms(stored_etag: Option<&[u8]>, etag: Option<&[u8]>) -> bool {
    etag.is_none() || same(stored_etag, etag)
}

/// Whether a field of the stored answer stays although a 304 has one of the same name: it describes the stored body.
pub fn describes_the_body(name: &str) -> bool {
    matches!(name, "content-length" | "content-encoding" | "content-range" | "transfer-encoding")
}

/// What a HEAD answer and a stored GET answer are compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadFields<'a> {
    pub status: u16,
    pub etag: Option<&'a [u8]>,
    pub last_modified: Option<&'a [u8]>,
    pub length: Option<u64>,
}

/// Whether the answer to a HEAD is about the stored answer to a GET: what both say is the same.
pub fn agrees(stored: &HeadFields<'_>, head: &HeadFields<'_>) -> bool {
    let unequal = |stored: Option<&[u8]>, new: Option<&[u8]>| new.is_some() && new != stored;
    stored.status == head.status
        && !unequal(stored.etag, head.etag)
        && !unequal(stored.last_modified, head.last_modified)
        && (head.length.is_none() || head.length == stored.length)
}

/// Whether an answer to a method that is not safe makes stored answers for its URL invalid.
pub fn invalidates(status: u16) -> bool {
    (200..400).contains(&status)
}

/// The path and query that a Location or Content-Location names, if it is at the same origin. No other origin's copies
/// can be removed this way.
pub fn also_invalid(origin: &Origin, path: &str, location: &[u8]) -> Option<String> {
    let location = str::from_utf8(location).ok()?;
    let base = Url::parse(&format!("{origin}{path}")).ok()?;
    let target = base.join(location).ok()?;
    let scheme = match target.scheme() {
        "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    let host = HostKey::parse(target.host_str()?).ok()?;
    let named = Origin { scheme, host, port: target.port_or_known_default()? };
    let query = target.query().map(|query| format!("?{query}")).unwrap_or_default();
    (named == *origin).then(|| format!("{}{query}", target.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C24
    #[test]
    fn a_304_about_another_answer_confirms_nothing() {
        assert!(confirms(Some(b"\"1\""), None));
        assert!(confirms(Some(b"\"1\""), Some(b"W/\"1\"")));
        assert!(!confirms(Some(b"\"1\""), Some(b"\"2\"")));
        assert!(!confirms(None, Some(b"\"2\"")));
    }

    /// C26
    #[test]
    fn a_head_answer_confirms_or_contradicts() {
        let stored = HeadFields { status: 200, etag: Some(b"\"1\""), last_modified: None, length: Some(5) };
        assert!(agrees(&stored, &stored));
        assert!(agrees(&stored, &HeadFields { etag: None, length: None, ..stored }));
        assert!(!agrees(&stored, &HeadFields { length: Some(6), ..stored }));
        assert!(!agrees(&stored, &HeadFields { etag: Some(b"\"2\""), ..stored }));
        assert!(!agrees(&stored, &HeadFields { status: 404, ..stored }));
    }

    /// C27
    #[test]
    fn only_urls_of_the_same_origin_become_invalid() {
        let origin = Origin { scheme: Scheme::Http, host: HostKey::parse("a.test").unwrap(), port: 81 };
        let named = |location: &str| also_invalid(&origin, "/x/y?z", location.as_bytes());
        assert_eq!(named("/b?c=1"), Some("/b?c=1".to_owned()));
        assert_eq!(named("w"), Some("/x/w".to_owned()));
        assert_eq!(named("http://A.test:81/b"), Some("/b".to_owned()));
        for other in ["http://b.test:81/b", "http://a.test/b", "https://a.test:81/b", "//b.test/", "ftp://a.test:81/"] {
            assert_eq!(named(other), None, "{other}");
        }
        assert!(invalidates(201) && invalidates(302) && !invalidates(404) && !invalidates(500));
    }
}
