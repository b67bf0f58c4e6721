//! Splits a robots.txt into lines and reads those with a known key.
//!
//! Promises: any bytes can be read, and each byte is looked at once; a line that is too long is cut, a file that is too
//! long ends at a line. The accepted keys, misspellings included, are those of Google's parser: sites test their files
//! against it.

use memchr::{memchr, memchr2, memrchr2};

/// How much of a file is read: the least that RFC 9309, section 2.5, asks for. The fetcher should read one byte more,
/// so that a cut file can be told from one that ends here.
pub const MAX_BODY: usize = 500 * 1024;

/// How much of a line is read: Google's limit, eight times the longest URL of an old browser.
const MAX_LINE: usize = 2083 * 8 - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    UserAgent,
    Allow,
    Disallow,
    CrawlDelay,
    RequestRate,
    Sitemap,
    ContentSignal,
    ContentUsage,
    VisitTime,
}

/// The beginnings of keys, in lower case.
const SPELLINGS: &[(&[u8], Key)] = &[
    (b"user-agent", Key::UserAgent),
    (b"useragent", Key::UserAgent),
    (b"user agent", Key::UserAgent),
    (b"allow", Key::Allow),
    (b"disallow", Key::Disallow),
    (b"dissallow", Key::Disallow),
    (b"dissalow", Key::Disallow),
    (b"disalow", Key::Disallow),
    (b"diasllow", Key::Disallow),
    (b"disallaw", Key::Disallow),
    (b"crawl-delay", Key::CrawlDelay),
    (b"crawldelay", Key::CrawlDelay),
    (b"crawl delay", Key::CrawlDelay),
    (b"request-rate", Key::RequestRate),
    (b"requestrate", Key::RequestRate),
    (b"request rate", Key::RequestRate),
    (b"sitemap", Key::Sitemap),
    (b"site-map", Key::Sitemap),
    (b"content-signal", Key::ContentSignal),
    (b"content-usage", Key::ContentUsage),
    (b"visit-time", Key::VisitTime),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RobotsLine<'b> {
    /// Starts at 1.
    pub(super) number: u32,
    pub(super) key: Key,
    pub(super) value: &'b [u8],
}

/// Returns the lines with a known key.
pub(super) fn lines(body: &[u8]) -> impl Iterator<Item = RobotsLine<'_>> {
    let mut rest = without_bom(within_limit(body));
    let mut number = 0;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            let line = take_line(&mut rest);
            number += 1;
            if let Some((key, value)) = read(line) {
                return Some(RobotsLine { number, key, value });
            }
        }
        None
    })
}

/// Cuts a long file after its last whole line, because half a line could mean anything.
fn within_limit(body: &[u8]) -> &[u8] {
    let Some((head, _)) = body.split_at_checked(MAX_BODY).filter(|(_, tail)| !tail.is_empty()) else { return body };
    memrchr2(b'\n', b'\r', head).map_or(head, |end| &head[..end])
}

/// Removes the byte order mark of UTF-8, or the beginning of one.
fn without_bom(body: &[u8]) -> &[u8] {
    let same = body.iter().zip(b"\xEF\xBB\xBF").take_while(|(byte, mark)| byte == mark).count();
    &body[same..]
}

/// Lines end at LF, CR or both.
fn take_line<'b>(rest: &mut &'b [u8]) -> &'b [u8] {
    let end = memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
    let (line, behind) = rest.split_at(end);
    *rest = match behind {
        [b'\r', b'\n', next @ ..] | [_, next @ ..] => next,
        [] => behind,
    };
    &line[..line.len().min(MAX_LINE)]
}

fn read(line: &[u8]) -> Option<(Key, &[u8])> {
    let line = memchr2(b'#', 0, line).map_or(line, |end| &line[..end]).trim_ascii();
    if let Some(colon) = memchr(b':', line) {
        return Some((spelt(&line[..colon])?.0, line[colon + 1..].trim_ascii()));
    }
    let (key, behind) = spelt(line)?;
    let separated = behind.first().is_some_and(u8::is_ascii_whitespace);
    let value = behind.trim_ascii_start();
    // Without a colon, `allow us to explain` would be a rule. So only one word may follow, unless the key itself
    // contains a space.
    let one_word = !value.iter().any(u8::is_ascii_whitespace);
    let spaced_key = memchr(b' ', &line[..line.len() - behind.len()]).is_some();
    (separated && (one_word || spaced_key)).then_some((key, value))
}

/// Returns the key that the text begins with, and the text after it.
fn spelt(text: &[u8]) -> Option<(Key, &[u8])> {
    SPELLINGS.iter().find_map(|(spelling, key)| {
        let (start, behind) = text.split_at_checked(spelling.len())?;
        start.eq_ignore_ascii_case(spelling).then_some((*key, behind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(body: &[u8]) -> Vec<(u32, Key, String)> {
        lines(body).map(|line| (line.number, line.key, String::from_utf8_lossy(line.value).into_owned())).collect()
    }

    fn read_one(line: &str) -> Option<(Key, String)> {
        read_all(line.as_bytes()).pop().map(|(_, key, value)| (key, value))
    }

    #[test]
    fn lines_are_counted_whatever_ends_them() {
        let expected = vec![(1, Key::Allow, "/a".to_owned()), (3, Key::Disallow, "/b".to_owned())];
        for body in ["allow:/a\n\ndisallow:/b", "allow:/a\r\rdisallow:/b\r", "allow:/a\r\n\r\ndisallow:/b\r\n"] {
            assert_eq!(read_all(body.as_bytes()), expected, "{body:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped_even_half() {
        for mark in [&b"\xEF\xBB\xBF"[..], b"\xEF\xBB", b"\xEF"] {
            assert_eq!(read_all(&[mark, b"allow:/"].concat()).len(), 1, "{mark:?}");
        }
        assert_eq!(read_all(b"\xEF\x11\xBFallow:/").len(), 0);
        assert_eq!(read_all(b"\n\xEF\xBB\xBFallow:/").len(), 0);
    }

    #[test]
    fn spaces_comments_and_nuls_are_no_part_of_a_value() {
        for line in ["Allow: /a", " \tALLOW \t:\t/a\x0c ", "allow:/a#b", "allow:/a # b", "allow:/a\0b", "allow /a"] {
            assert_eq!(read_one(line), Some((Key::Allow, "/a".to_owned())), "{line:?}");
        }
        assert_eq!(read_one("allow: /a b"), Some((Key::Allow, "/a b".to_owned())));
        assert_eq!(read_one("allow:"), Some((Key::Allow, String::new())));
    }

    #[test]
    fn without_a_colon_there_must_be_one_word() {
        assert_eq!(read_one("disallow /a"), Some((Key::Disallow, "/a".to_owned())));
        for line in ["disallow /a b", "disallow", "disallow/a", "allow us to explain", "#allow: /"] {
            assert_eq!(read_one(line), None, "{line:?}");
        }
        assert_eq!(read_one("user agent harry potter"), Some((Key::UserAgent, "harry potter".to_owned())));
        assert_eq!(read_one("request rate 1/10s 1820-1940"), Some((Key::RequestRate, "1/10s 1820-1940".to_owned())));
    }

    #[test]
    fn usual_misspellings_are_understood() {
        for key in ["Disallow", "dissallow", "DISSALOW", "disalow", "diasllow", "disallaw", "disallowed"] {
            assert_eq!(read_one(&format!("{key}: /")), Some((Key::Disallow, "/".to_owned())), "{key}");
        }
        for key in ["useragent", "user agent", "User-Agents"] {
            assert_eq!(read_one(&format!("{key}: a")), Some((Key::UserAgent, "a".to_owned())), "{key}");
        }
        assert_eq!(read_one("noindex: /"), None);
    }

    #[test]
    fn a_line_too_long_is_cut() {
        let long = [&b"allow:"[..], &[b'a'; MAX_LINE], b"\nallow:/b"].concat();
        let lines: Vec<RobotsLine<'_>> = lines(&long).collect();
        assert_eq!(lines[0].value.len(), MAX_LINE - "allow:".len());
        assert_eq!((lines[1].number, lines[1].value), (2, &b"/b"[..]));
    }

    #[test]
    fn a_file_too_long_ends_at_a_line() {
        let line = b"allow: /private-paths\n";
        let body = line.repeat(MAX_BODY / line.len() + 2);
        let whole = MAX_BODY / line.len();
        assert_eq!(lines(&body).count(), whole);
        assert!(lines(&body).all(|line| line.value == b"/private-paths"));
        assert_eq!(lines(&body[..MAX_BODY]).count(), whole + 1, "a file of just the size is whole");
    }
}
