//! Structured fields (RFC 9651), as far as rate limits need them: a list of items with parameters.
//!
//! Promises: bounded work and memory; a list with any error in it is no list, as RFC 9651, 4.2 asks. Values are given as
//! written, without their quotes; what they mean is the reader's business.

/// One member of a list: `"default";r=50;t=30`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    pub(super) item: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Member<'a> {
    /// The last one of this name counts (RFC 9651, 4.2.3.2).
    pub(super) fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Ten times the longest seen; an origin that needs more will be learned by its refusals.
const LONGEST: usize = 2_048;
const MOST: usize = 16;

pub(super) fn list(text: &str) -> Option<Vec<Member<'_>>> {
    if text.len() > LONGEST {
        return None;
    }
    let mut rest = text.trim_ascii();
    let mut members = Vec::new();
    while !rest.is_empty() {
        let (member, after) = member(rest)?;
        members.push(member);
        let after = after.trim_ascii_start();
        rest = match after.strip_prefix(',') {
            Some(next) => Some(next.trim_ascii_start()).filter(|next| !next.is_empty())?,
            None if after.is_empty() => after,
            None => return None,
        };
        if members.len() > MOST {
            return None;
        }
    }
    Some(members)
}

fn member(text: &str) -> Option<(Member<'_>, &str)> {
    let (item, mut rest) = value(text)?;
    let mut parameters = Vec::new();
    while let Some(next) = rest.strip_prefix(';') {
        let next = next.trim_ascii_start();
        let (key, after) = next.split_at(next.find(|c: char| !is_key(c)).unwrap_or(next.len()));
        let (value, after) = match after.strip_prefix('=') {
            Some(after) => value(after)?,
            None => ("?1", after),
        };
        if key.is_empty() || parameters.len() >= MOST {
            return None;
        }
        parameters.push((key, value));
        rest = after;
    }
    Some((Member { item, parameters }, rest))
}

/// A string without its quotes, or any other bare item as written.
fn value(text: &str) -> Option<(&str, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let (bare, rest) = text.split_at(text.find([' ', '\t', ',', ';', '"']).unwrap_or(text.len()));
        return (!bare.is_empty() && bare.bytes().all(|byte| byte.is_ascii_graphic())).then_some((bare, rest));
    };
    let mut escaped = false;
    for (at, byte) in quoted.bytes().enumerate() {
        match byte {
            b'"' if !escaped => return Some((&quoted[..at], &quoted[at + 1..])),
            0x20..0x7f => escaped = byte == b'\\' && !escaped,
            _ => return None,
        }
    }
    None
}

fn is_key(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '-' | '.' | '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_items_with_parameters() {
        let members = list(r#" "a b";r=50; t=30 , day;q=1000;w=86400;qu="content-bytes";x ,100;w=60"#).unwrap();
        assert_eq!(members.iter().map(|member| member.item).collect::<Vec<_>>(), ["a b", "day", "100"]);
        assert_eq!((members[0].parameter("r"), members[0].parameter("t")), (Some("50"), Some("30")));
        assert_eq!((members[1].parameter("qu"), members[1].parameter("x")), (Some("content-bytes"), Some("?1")));
        assert_eq!((members[2].parameter("w"), members[2].parameter("q")), (Some("60"), None));
    }

    #[test]
    fn the_last_of_a_name_counts() {
        assert_eq!(list("a;r=1;r=2").unwrap()[0].parameter("r"), Some("2"));
    }

    #[test]
    fn a_quote_may_be_escaped_and_hide_what_separates() {
        let members = list(r#""a\",;b";r=1"#).unwrap();
        assert_eq!((members.len(), members[0].item), (1, r#"a\",;b"#));
    }

    #[test]
    fn an_error_anywhere_spoils_the_list() {
        for text in
            ["a,", ",a", "a,,b", "a b", "\"a", "a;", "a;=1", "a;R=1", "a;r=", "\"a\"b", "a;r=1 2", "a;r=\"\u{e9}\""]
        {
            assert_eq!(list(text), None, "{text:?}");
        }
        assert_eq!(list(""), Some(vec![]));
    }

    #[test]
    fn what_is_too_long_is_no_list() {
        assert!(list(&vec!["a"; MOST].join(",")).is_some());
        assert_eq!(list(&vec!["a"; MOST + 1].join(",")), None);
        assert!(list(&format!("a{}", ";p".repeat(MOST))).is_some());
        assert_eq!(list(&format!("a{}", ";p".repeat(MOST + 1))), None);
        assert_eq!(list(&"a".repeat(LONGEST + 1)), None);
    }
}
