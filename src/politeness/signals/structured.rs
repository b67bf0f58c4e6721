//! Structured fields (RFC 9651): lists and dictionaries of typed items with parameters, read by the `sfv` crate.
//!
//! Promises: a field with any error in it is ignored as a whole (section 4.2). `tests/structured_fields.rs` runs the
//! cases of the HTTP working group. The work is linear in the length of the field; callers bound that length.

use std::borrow::Cow;

use sfv::{BareItem, FieldType, Parser};

/// Parses all lines of a field as one value, joined as RFC 9651, section 4.2 says.
pub fn parse<'a, T: FieldType>(lines: impl IntoIterator<Item = &'a str>) -> Option<T> {
    let joined = lines.into_iter().map(Cow::Borrowed).reduce(|text, line| Cow::Owned([&text, ", ", &line].concat()))?;
    Parser::new(joined.as_bytes()).parse().ok()
}

/// Returns a non-negative number in thousandths.
pub(super) fn thousandths(item: &BareItem) -> Option<u64> {
    let thousandths = match item {
        BareItem::Integer(whole) => i64::from(*whole).checked_mul(1_000)?,
        BareItem::Decimal(decimal) => i64::from(decimal.as_integer_scaled_1000()),
        _ => return None,
    };
    u64::try_from(thousandths).ok()
}

/// Returns the text of a string or a token.
pub(super) fn text(item: &BareItem) -> Option<&str> {
    match item {
        BareItem::String(string) => Some(string.as_str()),
        BareItem::Token(token) => Some(token.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sfv::{List, ListEntry};

    use super::*;

    fn first(text: &str) -> BareItem {
        match parse::<List>([text]).unwrap().remove(0) {
            ListEntry::Item(item) => item.bare_item,
            ListEntry::InnerList(list) => panic!("{list:?}"),
        }
    }

    #[test]
    fn numbers_are_integers_and_decimals_that_are_not_negative() {
        assert_eq!(thousandths(&first("50")), Some(50_000));
        assert_eq!(thousandths(&first("999999999999999")), Some(999_999_999_999_999_000));
        assert_eq!(thousandths(&first("2.5")), Some(2_500));
        for other in ["-1", "-0.5", "\"50\"", "fifty", "?1", "@50", ":NTA=:"] {
            assert_eq!(thousandths(&first(other)), None, "{other}");
        }
    }

    #[test]
    fn a_name_is_a_string_or_a_token() {
        assert_eq!(text(&first(r#""a\",;b""#)), Some(r#"a",;b"#));
        assert_eq!(text(&first("day")), Some("day"));
        assert_eq!(text(&first("100")), None);
    }

    #[test]
    fn lines_are_one_list() {
        assert_eq!(parse::<List>(["a;r=1", "b"]).unwrap().len(), 2);
        assert_eq!(parse::<List>(["a", "", "b"]), None);
        assert_eq!(parse::<List>([]), None, "no line, no field");
        assert_eq!(parse::<List>([""]), Some(vec![]));
    }
}
