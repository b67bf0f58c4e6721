//! The header fields of a request or a response, as the rules read them; and what is kept of a request while it waits.

use http::HeaderMap;
use smallvec::SmallVec;

use crate::politeness::reuse::Field;
use crate::politeness::reuse::request::CacheRequest;
use crate::politeness::reuse::selecting::{Selecting, has_none};

/// A request with more bytes of fields has nothing to do with the cache. It may wait for hours, and its copy would not
/// count as a large head that waits. Browsers send a few KiB with all their cookies.
const MOST_KEPT: usize = 8 * 1024;

/// The fields of most requests fit into this.
const USUAL_SIZE: usize = 256;

/// As many fields as most messages have.
const USUAL_FIELDS: usize = 24;

pub(crate) type FieldList<'a> = SmallVec<[Field<'a>; USUAL_FIELDS]>;

/// The fields as pairs.
pub(super) fn pairs(headers: &HeaderMap) -> impl Iterator<Item = Field<'_>> {
    headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))
}

/// The same as a list.
pub(crate) fn list(headers: &HeaderMap) -> FieldList<'_> {
    pairs(headers).collect()
}

/// A request that waits for its answer: what the rules have read, and a copy of its fields that outlives the read
/// buffer. One allocation, without secrets that no rule needs.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    /// Everything but the fields.
    pub(crate) asked: CacheRequest<'static>,
    /// Length of name and value, name, value; and so on.
    text: Vec<u8>,
}

impl KeptRequest {
    /// Copies the fields; `None` if they are too large.
    pub(super) fn new(asked: CacheRequest<'_>, headers: &HeaderMap) -> Option<Self> {
        let mut text = Vec::with_capacity(USUAL_SIZE);
        for (name, value) in pairs(headers) {
            if text.len() + name.len() + value.len() > MOST_KEPT {
                return None;
            }
            // That there is a password matters; the password does not.
            let value = if matches!(name, "authorization" | "proxy-authorization") { &[] } else { value };
            let ([a, b], [c, d]) = ((name.len() as u16).to_le_bytes(), (value.len() as u16).to_le_bytes());
            text.extend_from_slice(&[a, b, c, d]);
            text.extend_from_slice(name.as_bytes());
            text.extend_from_slice(value);
        }
        Some(KeptRequest { asked: asked.without_fields(), text })
    }

    /// Gives the rules the request with its fields.
    pub(crate) fn with_fields<T>(&self, read: impl FnOnce(&CacheRequest<'_>) -> T) -> T {
        read(&CacheRequest { fields: &self.fields(), ..self.asked.clone() })
    }

    /// The selecting fields of an answer to this request. The fields are unpacked only if one of them selects.
    pub(crate) fn selecting(&self, vary: String, ignores_cookie: bool) -> Selecting {
        match has_none(&self.asked, &vary, ignores_cookie) {
            true => Selecting::default(),
            false => self.with_fields(|asked| Selecting::of(asked, vary, ignores_cookie)),
        }
    }

    fn fields(&self) -> FieldList<'_> {
        let mut rest = &self.text[..];
        std::iter::from_fn(|| {
            let (lengths, behind) = rest.split_first_chunk::<4>()?;
            let [a, b, c, d] = *lengths;
            let (name, behind) = behind.split_at_checked(u16::from_le_bytes([a, b]).into())?;
            let (value, behind) = behind.split_at_checked(u16::from_le_bytes([c, d]).into())?;
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
        let keep = |headers: &HeaderMap| KeptRequest::new(CacheRequest::glance(false, pairs(headers), &[]), headers);
        let kept = keep(&headers).expect("a small head");
        let fields: &[Field<'_>] =
            &[("accept", b"*/*"), ("accept", b"text/html"), ("authorization", b""), ("empty", b"")];
        kept.with_fields(|asked| {
            assert_eq!(*asked.fields, *fields);
            assert!(asked.has_authorization && asked.keyed[..] == [3]);
        });
        headers.append("x-a", HeaderValue::from_str(&"a".repeat(MOST_KEPT)).expect("a value"));
        assert!(keep(&headers).is_none(), "too large");
    }
}
