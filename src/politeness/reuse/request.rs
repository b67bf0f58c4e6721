//! A request as the cache sees it, read in one pass over its fields.

use smallvec::SmallVec;

use super::Field;
use super::directives::RequestDirectives;
use super::harmless::is_harmless;

/// What matters about a request.
#[derive(Clone, Debug, Default)]
pub struct CacheRequest<'a> {
    pub is_head: bool,
    pub directives: RequestDirectives,
    pub has_authorization: bool,
    pub has_cookie: bool,
    pub conditions: Conditions<'a>,
    /// All fields, for Vary.
    pub fields: &'a [Field<'a>],
    /// The fields that are not known to be harmless.
    pub keyed: SmallVec<[Field<'a>; 2]>,
}

/// What a request asks for instead of the whole answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conditions<'a> {
    /// If-None-Match has at least one line; all are in the fields.
    pub if_none_match: bool,
    pub if_modified_since: Option<&'a [u8]>,
    pub range: Option<&'a [u8]>,
    pub if_range: Option<&'a [u8]>,
}

impl Conditions<'_> {
    pub fn are_none(&self) -> bool {
        *self == Conditions::default()
    }
}

impl<'a> CacheRequest<'a> {
    /// Reads the fields. `unkeyed` are the operator's own harmless ones, in lower case.
    pub fn read(is_head: bool, fields: &'a [Field<'a>], unkeyed: &[String]) -> Self {
        let mut request = CacheRequest { is_head, fields, ..CacheRequest::default() };
        let mut is_controlled = false;
        for &(name, value) in fields {
            match name {
                "authorization" => request.has_authorization = true,
                "cookie" => request.has_cookie = true,
                "cache-control" | "pragma" => is_controlled = true,
                "if-none-match" => request.conditions.if_none_match = true,
                "if-modified-since" => request.conditions.if_modified_since = Some(value),
                "range" => request.conditions.range = Some(value),
                "if-range" => request.conditions.if_range = Some(value),
                // `wait` is between the client and curtsy; any other preference may change the answer.
                "prefer" if only_waits(value) => {}
                _ if is_harmless(name) || unkeyed.iter().any(|unkeyed| unkeyed == name) => {}
                _ => request.keyed.push((name, value)),
            }
        }
        if is_controlled {
            request.directives = RequestDirectives::of(fields);
        }
        request
    }
}

/// Whether a request must go to the origin as if there were no cache: it has a condition that only the origin can
/// judge, or asks for another protocol.
pub fn bypasses(fields: &[Field<'_>]) -> bool {
    let only_for_origins = ["expect", "if-match", "if-unmodified-since", "upgrade"];
    fields.iter().any(|(name, value)| {
        only_for_origins.contains(name) || (*name == "curtsy-cache" && value.trim_ascii().eq_ignore_ascii_case(b"off"))
    })
}

fn only_waits(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').all(|item| item.trim_ascii().starts_with(b"wait"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// C5
    #[test]
    fn a_field_that_is_not_listed_is_part_of_the_key() {
        let fields: &[Field<'_>] = &[
            ("host", b"a"),
            ("x-api-key", b"1"),
            ("prefer", b"wait=5"),
            ("x-trace", b"2"),
            ("prefer", b"return=minimal"),
        ];
        let request = CacheRequest::read(false, fields, &["x-trace".to_owned()]);
        assert_eq!(request.keyed[..], [fields[1], fields[4]]);
    }

    #[test]
    fn some_requests_are_for_the_origin_alone() {
        assert!(bypasses(&[("curtsy-cache", b" OFF ")]));
        assert!(bypasses(&[("if-match", b"\"1\"")]));
        assert!(!bypasses(&[("curtsy-cache", b"on"), ("if-none-match", b"\"1\"")]));
    }
}
