//! Answers conditions and ranges from a stored whole (RFC 9110, sections 13 and 14).

use super::directives::items;
use super::policy::CacheTime;
use super::request::CacheRequest;
use crate::politeness::signals::strict_date;
use crate::politeness::time::Timestamp;

/// The stored answer, as conditions see it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Representation<'a> {
    pub status: u16,
    pub etag: Option<&'a [u8]>,
    pub last_modified: Option<&'a [u8]>,
    /// The length of the body.
    pub length: u64,
}

/// What the client gets of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Portion {
    Whole,
    NotModified,
    /// From the first to the last byte, inclusive.
    Range(u64, u64),
    /// 416: the range begins behind the end.
    OutOfRange,
}

/// Decides what a client gets of a stored answer.
pub fn portion(request: &CacheRequest<'_>, stored: &Representation<'_>, now: CacheTime) -> Portion {
    if !request.is_conditional || stored.status != 200 {
        return Portion::Whole;
    }
    if is_not_modified(request, stored, now.wall) {
        return Portion::NotModified;
    }
    match request.field("range") {
        Some(range) if !request.is_head && applies(request.field("if-range"), stored, now.wall) => {
            read_range(range, stored.length)
        }
        _ => Portion::Whole,
    }
}

/// If-None-Match counts before If-Modified-Since.
fn is_not_modified(request: &CacheRequest<'_>, stored: &Representation<'_>, now: Timestamp) -> bool {
    let mut lines = request.fields.iter().filter(|(name, _)| *name == "if-none-match").peekable();
    if lines.peek().is_some() {
        return lines.any(|(_, line)| items(line).any(|tag| tag == b"*" || same(Some(tag), stored.etag)));
    }
    let date = |value: Option<&[u8]>| str::from_utf8(value?).ok().and_then(|text| strict_date(text, now));
    match (date(request.field("if-modified-since")), date(stored.last_modified)) {
        (Some(since), Some(modified)) => modified <= since,
        _ => false,
    }
}

/// Compares entity tags weakly: `W/"1"` and `"1"` are the same.
pub fn same(one: Option<&[u8]>, other: Option<&[u8]>) -> bool {
    fn opaque(tag: &[u8]) -> &[u8] {
        let tag = tag.trim_ascii();
        tag.strip_prefix(b"W/").unwrap_or(tag)
    }
    matches!((one, other), (Some(one), Some(other)) if opaque(one) == opaque(other))
}

/// If-Range needs a strong validator: an ETag that is not weak, or the very date.
fn applies(if_range: Option<&[u8]>, stored: &Representation<'_>, now: Timestamp) -> bool {
    let Some(given) = if_range.map(<[u8]>::trim_ascii) else { return true };
    if given.starts_with(b"\"") || given.starts_with(b"W/") {
        return !given.starts_with(b"W/") && stored.etag.map(<[u8]>::trim_ascii) == Some(given);
    }
    let date = |value: &[u8]| str::from_utf8(value).ok().and_then(|text| strict_date(text, now));
    matches!((date(given), stored.last_modified.and_then(date)), (Some(one), Some(other)) if one == other)
}

/// One range of bytes. Several ranges, other units and what cannot be read get the whole.
fn read_range(range: &[u8], length: u64) -> Portion {
    let Some((unit, set)) = range.split_at_checked(6) else { return Portion::Whole };
    let Ok(set) = str::from_utf8(set) else { return Portion::Whole };
    let Some((first, last)) = set.trim().split_once('-') else { return Portion::Whole };
    if !unit.eq_ignore_ascii_case(b"bytes=") || set.contains(',') {
        return Portion::Whole;
    }
    let number = |text: &str| {
        let plain = !text.is_empty() && text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    match (number(first), number(last)) {
        (None, Some(0)) if first.is_empty() => Portion::OutOfRange,
        (None, Some(_)) if first.is_empty() && length == 0 => Portion::OutOfRange,
        (None, Some(count)) if first.is_empty() => Portion::Range(length.saturating_sub(count), length - 1),
        (Some(first), Some(last)) if first > last => Portion::Whole,
        (Some(first), Some(_)) if first >= length => Portion::OutOfRange,
        (Some(first), None) if last.is_empty() && first >= length => Portion::OutOfRange,
        (Some(first), Some(last)) => Portion::Range(first, last.min(length - 1)),
        (Some(first), None) if last.is_empty() => Portion::Range(first, length - 1),
        _ => Portion::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::politeness::reuse::Field;

    const DATE: &[u8] = b"Sun, 06 Nov 1994 08:49:37 GMT";

    fn get(fields: &[Field<'_>]) -> Portion {
        let stored = Representation { status: 200, etag: Some(b"\"1\""), last_modified: Some(DATE), length: 10 };
        portion(
            &CacheRequest::read(false, fields, &[]),
            &stored,
            CacheTime::both(Timestamp::from_millis(1_790_000_000_000)),
        )
    }

    /// C22
    #[test]
    fn conditions_are_judged_by_the_stored_validators() {
        assert_eq!(get(&[("if-none-match", b"W/\"1\"")]), Portion::NotModified);
        assert_eq!(get(&[("if-none-match", b"\"0\""), ("if-none-match", b"\"2\", \"1\"")]), Portion::NotModified);
        assert_eq!(get(&[("if-none-match", b"*")]), Portion::NotModified);
        assert_eq!(get(&[("if-none-match", b"\"2\""), ("if-modified-since", DATE)]), Portion::Whole);
        assert_eq!(get(&[("if-modified-since", DATE)]), Portion::NotModified);
        assert_eq!(get(&[("if-modified-since", b"Sun, 06 Nov 1994 08:49:36 GMT")]), Portion::Whole);
        assert_eq!(get(&[("if-modified-since", b"yesterday")]), Portion::Whole);
        assert_eq!(get(&[("if-none-match", b"1")]), Portion::Whole);
    }

    #[test]
    fn a_range_is_cut_out_of_the_whole() {
        let range = |text: &str| get(&[("range", text.as_bytes())]);
        assert_eq!(range("bytes=0-3"), Portion::Range(0, 3));
        assert_eq!(range("bytes=5-"), Portion::Range(5, 9));
        assert_eq!(range("bytes=5-99"), Portion::Range(5, 9));
        assert_eq!(range("bytes=-3"), Portion::Range(7, 9));
        assert_eq!(range("bytes=-99"), Portion::Range(0, 9));
        for behind in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(range(behind), Portion::OutOfRange, "{behind}");
        }
        for odd in ["bytes=3-1", "bytes=0-1,3-4", "lines=0-1", "bytes=", "bytes=-", "bytes=a-b", "b", "bytes=1-x"] {
            assert_eq!(range(odd), Portion::Whole, "{odd}");
        }
        assert_eq!(range("bytes=99999999999999999999-"), Portion::Whole);
    }

    #[test]
    fn if_range_needs_a_strong_validator() {
        let ranged = |if_range: &[u8]| get(&[("range", b"bytes=0-3"), ("if-range", if_range)]);
        assert_eq!(ranged(b"\"1\""), Portion::Range(0, 3));
        assert_eq!(ranged(DATE), Portion::Range(0, 3));
        for other in [&b"W/\"1\""[..], b"\"2\"", b"Sun, 06 Nov 1994 08:49:38 GMT", b"x"] {
            assert_eq!(ranged(other), Portion::Whole);
        }
    }
}
