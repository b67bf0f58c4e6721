//! The header fields of a request or a response, as the rules read them; and a copy of a request's fields that outlives
//! its read buffer.

use bytes::Bytes;
use http::HeaderMap;
use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};
use smallvec::SmallVec;

use crate::politeness::reuse::Field;

/// A request with more bytes of fields has nothing to do with the cache. It may wait for hours, and its copy would not
/// count as a large head that waits. Browsers send a few KiB with all their cookies.
const MOST_KEPT: usize = 8 * 1024;

/// As many fields as most messages have.
const USUAL_FIELDS: usize = 24;

pub(crate) type FieldList<'a> = SmallVec<[Field<'a>; USUAL_FIELDS]>;

/// Returns the fields as pairs.
pub(crate) fn list(headers: &HeaderMap) -> FieldList<'_> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
}

/// The fields of a request that waits for its answer. One allocation, without secrets that no rule needs.
#[derive(Clone, Debug)]
pub(crate) struct KeptRequest {
    pub(crate) is_head: bool,
    /// Length of name and value, name, value; and so on.
    text: Bytes,
}

impl KeptRequest {
    /// Copies the fields; `None` if they are too large.
    pub(super) fn new(is_head: bool, headers: &HeaderMap) -> Option<Self> {
        let size = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 8).sum();
        if size > MOST_KEPT {
            return None;
        }
        let mut text = Vec::with_capacity(size);
        for (name, value) in headers {
            // That there is a password matters; the password does not.
            let secret = *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION;
            let value = if secret { &[] } else { value.as_bytes() };
            let name = name.as_str().as_bytes();
            text.extend_from_slice(&(name.len() as u32).to_le_bytes());
            text.extend_from_slice(&(value.len() as u32).to_le_bytes());
            text.extend_from_slice(name);
            text.extend_from_slice(value);
        }
        Some(KeptRequest { is_head, text: text.into() })
    }

    pub(crate) fn fields(&self) -> FieldList<'_> {
        let mut rest = &self.text[..];
        std::iter::from_fn(|| {
            let (lengths, behind) = rest.split_first_chunk::<8>()?;
            let [a, b, c, d, e, f, g, h] = *lengths;
            let (name, value) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
            let (name, behind) = behind.split_at_checked(name as usize)?;
            let (value, behind) = behind.split_at_checked(value as usize)?;
            rest = behind;
            Some((str::from_utf8(name).ok()?, value))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn fields_are_kept_in_order_and_passwords_are_not() {
        let mut headers = HeaderMap::new();
        headers.append("accept", HeaderValue::from_static("*/*"));
        headers.append("authorization", HeaderValue::from_static("secret"));
        headers.append("accept", HeaderValue::from_static("text/html"));
        headers.append("empty", HeaderValue::from_static(""));
        let kept = KeptRequest::new(false, &headers).expect("a small head");
        let fields: &[Field<'_>] =
            &[("accept", b"*/*"), ("accept", b"text/html"), ("authorization", b""), ("empty", b"")];
        assert_eq!(kept.fields()[..], *fields);
        headers.append("x-a", HeaderValue::from_str(&"a".repeat(MOST_KEPT)).expect("a value"));
        assert!(KeptRequest::new(false, &headers).is_none(), "too large");
    }
}
