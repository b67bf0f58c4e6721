//! The path of a rule, and whether a request's path matches it.
//!
//! Both are in the canonical spelling of `canonical`. Promises: a comparison walks through path and pattern once and
//! never goes back, so no pattern makes it explode, and its cost is counted.

use std::fmt;
use std::ops::Range;

use memchr::{memchr, memrchr};

use super::canonical::{self, ANY};
use super::effort::{Effort, TooComplicated};

/// The path of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<'r> {
    pub(super) octets: &'r [u8],
    /// Must match the whole path (`$`), not only its beginning.
    pub(super) anchored: bool,
}

impl Pattern<'_> {
    /// RFC 9309, section 2.2.2: the rule with the most octets wins. `*` and `$` count.
    pub(super) fn precedence(&self) -> usize {
        canonical::escaped_len(self.octets) + usize::from(self.anchored)
    }

    /// An upper bound of [`Pattern::precedence`] that does not read the octets.
    pub(super) fn most_precedence(&self) -> usize {
        self.octets.len() * 3 + 1
    }

    pub(super) fn matches(&self, path: &[u8], effort: &mut Effort) -> Result<bool, TooComplicated> {
        effort.spend(self.octets.len())?;
        let Some(first) = memchr(ANY, self.octets) else {
            return Ok(path.starts_with(self.octets) && (!self.anchored || path.len() == self.octets.len()));
        };
        let (head, tail) = (&self.octets[..first], &self.octets[first + 1..]);
        if !path.starts_with(head) {
            return Ok(false);
        }
        if !self.anchored {
            return holds_in_order(tail, path, head.len()..path.len(), effort);
        }
        let (middle, last) = memrchr(ANY, tail).map_or((&[][..], tail), |any| (&tail[..any], &tail[any + 1..]));
        let room = path.len().checked_sub(last.len()).filter(|end| *end >= head.len());
        match room {
            Some(end) if path.ends_with(last) => holds_in_order(middle, path, head.len()..end, effort),
            _ => Ok(false),
        }
    }

    /// Whether every path matches: only wildcards, and perhaps the slash that every path begins with.
    pub(super) fn matches_everything(&self) -> bool {
        match self.octets {
            [] => false,
            [b'/'] => !self.anchored,
            [b'/', wild @ ..] | wild => wild.iter().all(|octet| *octet == ANY),
        }
    }

    /// Whether any path can match. Every path begins with a slash.
    pub(super) fn can_match(&self) -> bool {
        matches!(self.octets.first(), Some(&(b'/' | ANY)))
    }
}

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        canonical::write_rule(self.octets, self.anchored, f)
    }
}

/// Whether the pieces between wildcards occur one after the other. Taking the first occurrence of each leaves the most
/// room for the next, so there is never a reason to go back.
fn holds_in_order(
    pieces: &[u8],
    path: &[u8],
    within: Range<usize>,
    effort: &mut Effort,
) -> Result<bool, TooComplicated> {
    let mut start = within.start;
    for piece in pieces.split(|octet| *octet == ANY).filter(|piece| !piece.is_empty()) {
        match effort.find(piece, path, start, within.end)? {
            Some(at) => start = at + piece.len(),
            None => return Ok(false),
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(rule: &str, path: &str) -> bool {
        let mut octets = Vec::new();
        let anchored = canonical::rule(rule.as_bytes(), &mut octets);
        let pattern = Pattern { octets: &octets, anchored };
        pattern.matches(&canonical::target(path), &mut Effort::new()).expect("no test is too complicated")
    }

    #[test]
    fn a_pattern_is_a_beginning() {
        assert!(matches("/fish", "/fish.html"));
        assert!(matches("/fish", "/fish"));
        assert!(!matches("/fish", "/Fish"));
        assert!(!matches("/fish/", "/fish"));
        assert!(!matches("fish", "/fish"));
    }

    #[test]
    fn a_dollar_at_the_end_anchors() {
        assert!(matches("/$", "/"));
        assert!(!matches("/$", "/a"));
        assert!(matches("/*.php$", "/a.php.php"));
        assert!(!matches("/*.php$", "/a.php?b"));
        assert!(matches("/a$b", "/a$bc"));
    }

    #[test]
    fn a_star_is_any_run_even_an_empty_one() {
        assert!(matches("/a*b", "/ab"));
        assert!(matches("/a*b*c", "/a-b-c-d"));
        assert!(!matches("/a*b*c", "/a-c-b"));
        assert!(matches("*m", "/am"));
        assert!(matches("/a*", "/a"));
        assert!(matches("/**", "/"));
        assert!(matches("/*$", "/a"));
    }

    #[test]
    fn an_anchored_end_never_shares_octets_with_what_is_before_it() {
        assert!(!matches("/a*aba*aba$", "/aababa"));
        assert!(matches("/a*aba*aba$", "/aabaaba"));
        assert!(!matches("/aa*aa$", "/aaa"));
        assert!(matches("/*ab*ab$", "/abxabyab"));
    }

    #[test]
    fn what_matches_everything() {
        let everything = |rule: &str| {
            let mut octets = Vec::new();
            let anchored = canonical::rule(rule.as_bytes(), &mut octets);
            Pattern { octets: &octets, anchored }.matches_everything()
        };
        for rule in ["/", "*", "/*", "/**", "*$", "/*$"] {
            assert!(everything(rule), "{rule}");
        }
        for rule in ["/$", "$", "/a", "**/a", "//", "/%2A", "a"] {
            assert!(!everything(rule), "{rule}");
        }
    }
}
