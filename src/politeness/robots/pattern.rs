//! A rule's path, and whether a request's path falls under it.
//!
//! Both are in the one spelling of `canonical`. Promises: a match takes time linear in the path for each wildcard-free
//! piece of the pattern and never goes back, so no pattern makes it explode; nothing is allocated.

use std::fmt;

use memchr::{memchr, memmem, memrchr};

use super::canonical::{self, ANY};

/// The path of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern<'r> {
    pub(super) octets: &'r [u8],
    /// It must match to the end (`$`), not only the beginning.
    pub(super) anchored: bool,
}

impl Pattern<'_> {
    /// RFC 9309, section 2.2.2: the rule with the most octets wins. `*` and `$` count.
    pub(super) fn precedence(&self) -> usize {
        canonical::escaped_len(self.octets) + usize::from(self.anchored)
    }

    /// At least [`Pattern::precedence`], without a look at the octets.
    pub(super) fn most_precedence(&self) -> usize {
        self.octets.len() * 3 + 1
    }

    pub(super) fn matches(&self, path: &[u8]) -> bool {
        let Some(first) = memchr(ANY, self.octets) else {
            return path.starts_with(self.octets) && (!self.anchored || path.len() == self.octets.len());
        };
        let (head, tail) = (&self.octets[..first], &self.octets[first + 1..]);
        let Some(rest) = path.strip_prefix(head) else { return false };
        if !self.anchored {
            return holds_in_order(rest, tail);
        }
        let (middle, end) = memrchr(ANY, tail).map_or((&[][..], tail), |last| (&tail[..last], &tail[last + 1..]));
        rest.strip_suffix(end).is_some_and(|rest| holds_in_order(rest, middle))
    }

    /// Whether no path can escape it: nothing but wildcards, and perhaps the slash that every path begins with.
    pub(super) fn matches_everything(&self) -> bool {
        match self.octets {
            [] => false,
            [b'/'] => !self.anchored,
            [b'/', wild @ ..] | wild => wild.iter().all(|octet| *octet == ANY),
        }
    }

    /// Whether any path at all can match: each begins with a slash.
    pub(super) fn can_match(&self) -> bool {
        matches!(self.octets.first(), Some(&(b'/' | ANY)))
    }
}

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        canonical::write_rule(self.octets, self.anchored, f)
    }
}

/// Whether the pieces between wildcards come one after the other. Taking the first place for each leaves the most room
/// for the next, so there is never a reason to go back.
fn holds_in_order(mut path: &[u8], pieces: &[u8]) -> bool {
    for piece in pieces.split(|octet| *octet == ANY).filter(|piece| !piece.is_empty()) {
        let found = if let [octet] = piece { memchr(*octet, path) } else { memmem::find(path, piece) };
        match found {
            Some(at) => path = &path[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(rule: &str, path: &str) -> bool {
        let mut octets = Vec::new();
        let anchored = canonical::rule(rule.as_bytes(), &mut octets);
        Pattern { octets: &octets, anchored }.matches(&canonical::target(path))
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
