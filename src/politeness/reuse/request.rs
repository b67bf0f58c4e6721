//! A request as the cache sees it, read in one pass over its fields.

use smallvec::SmallVec;

use super::Field;
use super::directives::RequestDirectives;
use super::harmless::{FieldRole, role};

/// What matters about a request. Read once; all but `fields` can be kept without the head.
#[derive(Clone, Debug, Default)]
pub struct CacheRequest<'a> {
    pub is_head: bool,
    /// It goes to the origin as if there were no cache: it has a condition that only the origin can judge, asks for
    /// another protocol, or its client says so.
    pub bypasses: bool,
    pub has_authorization: bool,
    pub has_cookie: bool,
    /// It asks for a part of the answer, or on a condition.
    pub is_conditional: bool,
    pub directives: RequestDirectives,
    /// The fields that are not known to be harmless, by their place in `fields`.
    pub keyed: SmallVec<[u16; 4]>,
    /// All fields, for Vary and conditions.
    pub fields: &'a [Field<'a>],
}

impl<'a> CacheRequest<'a> {
    /// Reads the fields. `unkeyed` are the operator's own harmless ones, in lower case.
    pub fn read(is_head: bool, fields: &'a [Field<'a>], unkeyed: &[String]) -> Self {
        CacheRequest { fields, ..CacheRequest::glance(is_head, fields.iter().copied(), unkeyed) }
    }

    /// The same without keeping the fields: enough for every rule but Vary, Cookie, conditions and unknown fields.
    pub fn glance<'b>(
        is_head: bool,
        fields: impl Iterator<Item = Field<'b>>,
        unkeyed: &[String],
    ) -> CacheRequest<'static> {
        let mut request = CacheRequest { is_head, ..CacheRequest::default() };
        let mut control: SmallVec<[Field<'_>; 2]> = SmallVec::new();
        for (place, (name, value)) in fields.enumerate() {
            match role(name) {
                FieldRole::Harmless => {}
                FieldRole::Authorization => request.has_authorization = true,
                FieldRole::Cookie => request.has_cookie = true,
                FieldRole::Control => control.push((name, value)),
                FieldRole::Condition => request.is_conditional = true,
                FieldRole::ForOrigin => request.bypasses = true,
                FieldRole::Switch => request.bypasses |= value.trim_ascii().eq_ignore_ascii_case(b"off"),
                // `wait` is between the client and curtsy; any other preference may change the answer.
                FieldRole::Preference if only_waits(value) => {}
                _ if unkeyed.iter().any(|unkeyed| unkeyed == name) => {}
                FieldRole::Preference | FieldRole::Unknown => match u16::try_from(place) {
                    Ok(place) => request.keyed.push(place),
                    Err(_) => request.bypasses = true,
                },
            }
        }
        if !control.is_empty() {
            request.directives = RequestDirectives::of(&control);
        }
        request
    }

    /// The same without the fields, as [`CacheRequest::glance`] returns it.
    pub fn without_fields(self) -> CacheRequest<'static> {
        let CacheRequest {
            is_head, bypasses, has_authorization, has_cookie, is_conditional, directives, keyed, ..
        } = self;
        let fields = &[];
        CacheRequest { is_head, bypasses, has_authorization, has_cookie, is_conditional, directives, keyed, fields }
    }

    /// Whether the rules may need the fields to judge an answer whose Vary is empty.
    pub fn needs_fields(&self) -> bool {
        self.is_conditional || self.has_cookie || !self.keyed.is_empty()
    }

    /// The last line of a field.
    pub(super) fn field(&self, name: &str) -> Option<&'a [u8]> {
        self.fields.iter().rfind(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// The names of the fields that are not known to be harmless.
    pub(super) fn keyed_names(&self) -> impl Iterator<Item = &'a str> {
        self.keyed.iter().filter_map(|place| self.fields.get(usize::from(*place))).map(|(name, _)| *name)
    }
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
        assert_eq!(request.keyed[..], [1, 4]);
    }

    #[test]
    fn some_requests_are_for_the_origin_alone() {
        let bypasses = |fields: &[Field<'_>]| CacheRequest::read(false, fields, &[]).bypasses;
        assert!(bypasses(&[("curtsy-cache", b" OFF ")]));
        for name in ["expect", "if-match", "if-unmodified-since", "upgrade"] {
            assert!(bypasses(&[("accept", b"*/*"), (name, b"\"1\"")]), "{name}");
        }
        assert!(!bypasses(&[("curtsy-cache", b"on"), ("if-none-match", b"\"1\"")]));
    }
}
