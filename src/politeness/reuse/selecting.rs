//! Decides which requests a stored answer is for: the selecting fields (RFC 9111, section 4.1).
//!
//! Selecting fields are those that Vary names, Cookie unless the answer is explicitly shareable, and every request
//! field that is not known to be harmless. The last rule goes beyond the RFC: a field that no one has listed may be a
//! key of an API, or a trick to poison the cache (`X-Forwarded-Host`).

use super::directives::items;
use super::request::CacheRequest;

/// The selecting fields of a stored answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selecting {
    /// The names in Vary: lower-case, sorted, separated by commas.
    pub vary: Box<str>,
    /// The selecting fields of the request that was answered, in their normal form: lines of `name: value`, sorted.
    pub values: Box<[u8]>,
}

impl Selecting {
    /// The selecting fields of an answer to this request. `vary` as [`vary_names`] returns it.
    pub fn of(request: &CacheRequest<'_>, vary: String, ignores_cookie: bool) -> Self {
        let values = match has_none(request, &vary, ignores_cookie) {
            true => Vec::new(),
            false => values(request, &vary, ignores_cookie),
        };
        Selecting { vary: vary.into(), values: values.into() }
    }

    /// Whether the answer is for this request.
    pub fn matches(&self, request: &CacheRequest<'_>, ignores_cookie: bool) -> bool {
        match has_none(request, &self.vary, ignores_cookie) {
            // The usual case, which allocates nothing.
            true => self.values.is_empty(),
            false => *values(request, &self.vary, ignores_cookie) == *self.values,
        }
    }
}

/// Whether no field of the request selects an answer. Then its fields are not needed.
pub fn has_none(request: &CacheRequest<'_>, vary: &str, ignores_cookie: bool) -> bool {
    vary.is_empty() && request.keyed.is_empty() && (ignores_cookie || !request.has_cookie)
}

/// The names in the Vary fields of a response, in their normal form; `None` if one is `*`, which no request matches.
pub fn vary_names<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Option<String> {
    let mut names = Vec::new();
    for item in lines.flat_map(items) {
        if item == b"*" {
            return None;
        }
        names.push(String::from_utf8_lossy(item).to_ascii_lowercase());
    }
    names.sort_unstable();
    names.dedup();
    Some(names.join(","))
}

fn values(request: &CacheRequest<'_>, vary: &str, ignores_cookie: bool) -> Vec<u8> {
    let mut names: Vec<&str> = vary.split(',').filter(|name| !name.is_empty()).collect();
    names.extend(request.keyed_names());
    if !ignores_cookie {
        names.push("cookie");
    }
    names.sort_unstable();
    names.dedup();
    let mut text = Vec::new();
    for name in names {
        let mut lines = request.fields.iter().filter(|(given, _)| *given == name).peekable();
        // An absent field differs from an empty one.
        if lines.peek().is_some() {
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(&normal(name, lines.map(|(_, value)| *value)));
            text.push(b'\n');
        }
    }
    text
}

/// The value of a field in a form in which two that mean the same are equal.
fn normal<'a>(name: &str, lines: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    match name {
        "accept-encoding" => {
            let all: Vec<u8> = lines.collect::<Vec<_>>().join(&b',').to_ascii_lowercase();
            let mut codings: Vec<Vec<u8>> =
                items(&all).filter(|coding| !is_refused(coding)).map(without_blanks).collect();
            codings.sort_unstable();
            codings.dedup();
            codings.join(&b',')
        }
        "accept-language" | "accept-charset" => {
            let all: Vec<u8> = lines.collect::<Vec<_>>().join(&b',').to_ascii_lowercase();
            items(&all).map(without_blanks).collect::<Vec<_>>().join(&b',')
        }
        // Cookies are compared to the byte.
        "cookie" => lines.collect::<Vec<_>>().join(&b"; "[..]),
        _ => lines.flat_map(items).collect::<Vec<_>>().join(&b','),
    }
}

fn without_blanks(text: &[u8]) -> Vec<u8> {
    text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
}

/// `gzip;q=0`
fn is_refused(coding: &[u8]) -> bool {
    let Some(at) = coding.iter().position(|byte| *byte == b';') else { return false };
    let weight = without_blanks(&coding[at + 1..]);
    weight.strip_prefix(b"q=").is_some_and(|q| q.iter().all(|byte| matches!(byte, b'0' | b'.')) && !q.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::reuse::Field;

    /// Whether an answer to the first request, with this Vary, is for the second.
    fn shares(vary: &str, stored: &[Field<'_>], asked: &[Field<'_>]) -> bool {
        let read = |fields| CacheRequest::read(false, fields, &[]);
        let names = vary_names([vary.as_bytes()].into_iter()).unwrap();
        Selecting::of(&read(stored), names, false).matches(&read(asked), false)
    }

    #[test]
    fn a_named_field_must_agree() {
        assert!(shares("Accept-Language", &[("accept-language", b"de")], &[("accept-language", b"DE")]));
        assert!(!shares("Accept-Language", &[("accept-language", b"de")], &[("accept-language", b"en")]));
        assert!(!shares("Accept-Language", &[("accept-language", b"de")], &[]));
        assert!(!shares("Accept-Language", &[("accept-language", b"")], &[]), "absent is not empty");
        assert!(shares("X, Y", &[("x", b"1"), ("y", b"2")], &[("y", b"2"), ("x", b"1")]));
        assert!(shares(
            "accept-encoding",
            &[("accept-encoding", b"gzip, br")],
            &[("accept-encoding", b"BR,gzip,x;q=0")]
        ));
        assert!(shares("foo", &[("foo", b"1, 2")], &[("foo", b"1"), ("foo", b"2")]));
        assert!(shares("", &[("accept", b"text/html")], &[("accept", b"*/*")]));
    }

    /// C4, C5
    #[test]
    fn cookies_and_unknown_fields_must_agree_without_vary() {
        assert!(!shares("", &[("cookie", b"a=1")], &[]));
        assert!(!shares("", &[], &[("cookie", b"a=1")]));
        assert!(!shares("", &[("cookie", b"a=1")], &[("cookie", b"a=2")]));
        assert!(shares("", &[("cookie", b"a=1")], &[("cookie", b"a=1")]));
        assert!(!shares("", &[], &[("x-forwarded-host", b"evil")]));
        assert!(!shares("", &[("x-api-key", b"1")], &[("x-api-key", b"2")]));
    }

    #[test]
    fn a_shareable_answer_ignores_cookies() {
        let (with, without) = ([("cookie", &b"a=1"[..])], []);
        let read = |fields| CacheRequest::read(false, fields, &[]);
        let selecting = Selecting::of(&read(&with), String::new(), true);
        assert!(selecting.matches(&read(&without), true));
    }

    /// C9
    #[test]
    fn a_star_anywhere_matches_nothing() {
        for lines in [&["*"][..], &[", *"], &["Foo, *"], &["Foo", "*"]] {
            assert_eq!(vary_names(lines.iter().map(|line| line.as_bytes())), None, "{lines:?}");
        }
        assert_eq!(vary_names([&b"B, a"[..], b"A"].into_iter()).unwrap(), "a,b");
    }
}
