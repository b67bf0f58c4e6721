//! One spelling for paths, so that a rule and a request with the same meaning have the same octets.
//!
//! Percent-escapes are decoded wherever that cannot change the meaning (RFC 9309, section 2.2.2; RFC 3986, section
//! 6.2.2): `%7e` is `~`, `%C3%A4` is the two octets of `ä`. A reserved character keeps its escape, upper-case, because
//! `/a%2Fb` and `/a/b` are different resources. `*` and `$` are special in rules only; written as `%2A` and `%24` they
//! are ordinary characters there, so the wildcard gets an octet of its own, [`ANY`].
//!
//! Promises: a rule never grows, so what a host makes curtsy store is bounded by what it sent. Lengths are those of the
//! escaped text, because the longest match is defined on that. Octets outside ASCII are stored as they are: a third of
//! the size.

use std::borrow::Cow;
use std::fmt;

/// A wildcard: any run of octets. A NUL cannot be in a rule (it ends the line) and stays escaped in a path.
pub(super) const ANY: u8 = 0;

/// A percent sign that starts no escape, however it was written. A real line feed stays escaped.
const PERCENT: u8 = b'\n';

/// Returns the path and query of a request in canonical spelling. Borrowed if they already are, as nearly every path
/// is.
pub(super) fn target(path_and_query: &str) -> Cow<'_, [u8]> {
    let text = path_and_query.as_bytes();
    let text = memchr::memchr(b'#', text).map_or(text, |fragment| &text[..fragment]);
    if text.first() == Some(&b'/') && memchr::memchr3(b'%', ANY, PERCENT, text).is_none() {
        return Cow::Borrowed(text);
    }
    let mut octets = Vec::with_capacity(text.len() + 1);
    if text.first() != Some(&b'/') {
        octets.push(b'/');
    }
    unescape(text, &mut octets, |octet| octet);
    Cow::Owned(octets)
}

/// Appends a rule's path to `octets` and returns whether it is anchored at the end. Only the last `$` is an anchor.
pub(super) fn rule(value: &[u8], octets: &mut Vec<u8>) -> bool {
    let (path, anchored) = value.strip_suffix(b"$").map_or((value, false), |path| (path, true));
    unescape(path, octets, |octet| if octet == b'*' { ANY } else { octet });
    anchored
}

/// `special` maps an octet that was not escaped.
fn unescape(text: &[u8], octets: &mut Vec<u8>, special: fn(u8) -> u8) {
    let mut rest = text;
    while let [octet, tail @ ..] = rest {
        rest = tail;
        match (*octet, tail) {
            (b'%', [high, low, behind @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                rest = behind;
                push_escaped(hex(*high) << 4 | hex(*low), octets);
            }
            (b'%', _) => octets.push(PERCENT),
            (ANY | PERCENT, _) => push_escaped(*octet, octets),
            (other, _) => octets.push(special(other)),
        }
    }
}

fn push_escaped(octet: u8, octets: &mut Vec<u8>) {
    match octet {
        b'%' => octets.push(PERCENT),
        ANY | PERCENT => push_hex(octet, octets),
        _ if is_reserved(octet) => push_hex(octet, octets),
        _ => octets.push(octet),
    }
}

fn push_hex(octet: u8, octets: &mut Vec<u8>) {
    octets.extend([b'%', HEX[usize::from(octet >> 4)], HEX[usize::from(octet & 15)]]);
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";

/// Only called with a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

/// RFC 3986's reserved characters, except those that no path may contain unescaped (`[`, `]`) and those with a meaning
/// in robots.txt (`*`, `$`): for these, escaped and unescaped are the same.
fn is_reserved(octet: u8) -> bool {
    matches!(octet, b':' | b'/' | b'?' | b'#' | b'@' | b'!' | b'&' | b'\'' | b'(' | b')' | b'+' | b',' | b';' | b'=')
}

/// Whether the octet may appear unescaped in a path or query (RFC 3986, sections 3.3 and 3.4).
fn is_plain(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || matches!(octet, b'-' | b'.' | b'_' | b'~' | b'*' | b'$') || is_reserved(octet)
}

/// The length of the octets as escaped text.
pub(super) fn escaped_len(octets: &[u8]) -> usize {
    let one = |octet: &u8| matches!(*octet, ANY | b'%') || is_plain(*octet);
    octets.iter().map(|octet| if one(octet) { 1 } else { 3 }).sum()
}

/// Writes a rule's path as it could appear in a robots.txt: ASCII, without control characters, with the same meaning.
pub(super) fn write_rule(octets: &[u8], anchored: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let literal_end = !anchored && octets.last() == Some(&b'$');
    let body = if literal_end { &octets[..octets.len() - 1] } else { octets };
    for octet in body {
        match *octet {
            ANY => f.write_str("*")?,
            PERCENT => f.write_str("%25")?,
            b'*' => f.write_str("%2A")?,
            plain if plain == b'%' || is_plain(plain) => write!(f, "{}", char::from(plain))?,
            other => write!(f, "%{other:02X}")?,
        }
    }
    f.write_str(if literal_end { "%24" } else { "" })?;
    f.write_str(if anchored { "$" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Shown(Vec<u8>, bool);

    impl fmt::Display for Shown {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write_rule(&self.0, self.1, f)
        }
    }

    fn read(value: &str) -> Shown {
        let mut octets = Vec::new();
        let anchored = rule(value.as_bytes(), &mut octets);
        Shown(octets, anchored)
    }

    fn same(rule: &str, path: &str) -> bool {
        read(rule).0 == target(path).as_ref()
    }

    #[test]
    fn one_spelling_for_what_means_the_same() {
        assert!(same("/%7Ejoe", "/~joe"));
        assert!(same("/~joe", "/%7ejoe"));
        assert!(same("/ä", "/%C3%a4"));
        assert!(same("/%62%61%7A", "/baz"));
        assert!(same("/a b", "/a%20b"));
        assert!(same("/a<b", "/a%3Cb"));
        assert!(same("/a[1]", "/a%5B1%5d"));
        assert!(same("/100%", "/100%25"));
        assert!(same("/a%2fb", "/a%2Fb"));
        assert!(same("/%2A%24x", "/*$x"));
    }

    #[test]
    fn a_reserved_character_keeps_its_escape() {
        assert!(!same("/a%2Fb", "/a/b"));
        assert!(!same("/a%3Fb", "/a?b"));
        assert!(!same("/a%26b", "/a&b"));
        assert!(!same("/%2541", "/A"));
        assert!(!same("/%252F", "/%2F"));
    }

    #[test]
    fn a_target_is_copied_only_if_it_must_change() {
        assert!(matches!(target("/a/b?c=d"), Cow::Borrowed(b"/a/b?c=d")));
        assert!(matches!(target("/a/b#c%"), Cow::Borrowed(b"/a/b")));
        assert_eq!(target("?x").as_ref(), b"/?x");
        assert_eq!(target("").as_ref(), b"/");
        assert_eq!(target("/%00%0a\0\n").as_ref(), b"/%00%0A%00%0A");
    }

    #[test]
    fn a_rule_reads_the_same_when_it_is_written_out() {
        for (value, text) in [
            ("/a*b$", "/a*b$"),
            ("/%2a%24", "/%2A%24"),
            ("/$$", "/$$"),
            ("/a$b", "/a$b"),
            ("/ä %", "/%C3%A4%20%25"),
            ("/%2f%41%00", "/%2FA%00"),
        ] {
            let shown = read(value);
            assert_eq!(shown.to_string(), text);
            let again = read(text);
            assert_eq!((again.0, again.1), (shown.0, shown.1), "{value}");
        }
    }

    #[test]
    fn length_is_that_of_the_escaped_text() {
        assert_eq!(escaped_len(&read("/a*b").0), 4);
        assert_eq!(escaped_len(&read("/ä").0), 7);
        assert_eq!(escaped_len(&read("/%2F").0), 4);
        assert_eq!(escaped_len(&read("/%25").0), 4);
        assert_eq!(escaped_len(&read("/%41").0), 2);
    }
}
