//! A value before it is interpreted: a node of the parsed file, or a text from a variable or a flag.
//!
//! Both have the same interface, so that one piece of code reads a key wherever its value comes from. Spans are bytes
//! of the file, or of the text.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::values::BadValue;

#[derive(Clone, Debug)]
pub(super) struct Raw<'a> {
    form: ValueForm<'a>,
    pub(super) span: Range<usize>,
}

#[derive(Clone, Copy, Debug)]
enum ValueForm<'a> {
    Node(&'a DeValue<'a>),
    Text(&'a str),
}

/// What is wrong with a value, and with which part of it.
#[derive(Clone, Debug)]
pub(super) struct Complaint {
    pub(super) bad: BadValue,
    pub(super) span: Range<usize>,
}

impl<'a> Raw<'a> {
    pub(super) fn node(node: &'a Spanned<DeValue<'a>>) -> Self {
        Raw { form: ValueForm::Node(node.get_ref()), span: node.span() }
    }

    pub(super) fn typed(text: &'a str) -> Self {
        Raw { form: ValueForm::Text(text), span: 0..text.len() }
    }

    pub(super) fn text(&self) -> Option<&'a str> {
        match self.form {
            ValueForm::Node(node) => node.as_str(),
            ValueForm::Text(text) => Some(text),
        }
    }

    /// Returns the number as it is written, if the value is a number.
    pub(super) fn number(&self) -> Option<&'a str> {
        match self.form {
            ValueForm::Node(DeValue::Integer(number)) => Some(number.as_str()),
            ValueForm::Node(DeValue::Float(number)) => Some(number.as_str()),
            ValueForm::Node(_) => None,
            ValueForm::Text(text) => Some(text.trim()).filter(|text| text.parse::<f64>().is_ok()),
        }
    }

    pub(super) fn integer(&self) -> Option<i128> {
        match self.form {
            ValueForm::Node(DeValue::Integer(number)) => i128::from_str_radix(number.as_str(), number.radix()).ok(),
            ValueForm::Node(_) => None,
            ValueForm::Text(text) => text.trim().parse().ok(),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self.form {
            ValueForm::Node(node) => node.as_bool(),
            ValueForm::Text(text) => text.trim().parse().ok(),
        }
    }

    /// Returns the values of a list; a single value is a list of one, and a text is split at its commas.
    pub(super) fn items(&self) -> Vec<Raw<'a>> {
        match self.form {
            ValueForm::Node(DeValue::Array(items)) => items.iter().map(Raw::node).collect(),
            ValueForm::Node(_) => vec![self.clone()],
            ValueForm::Text(text) => split(text),
        }
    }

    pub(super) fn is_table(&self) -> bool {
        matches!(self.form, ValueForm::Node(DeValue::Table(_)))
    }

    pub(super) fn wrong(&self, message: impl Into<String>, advice: impl Into<String>) -> Complaint {
        self.because(BadValue::new(message, advice))
    }

    pub(super) fn because(&self, bad: BadValue) -> Complaint {
        Complaint { bad, span: self.span.clone() }
    }

    /// Returns the complaint about a value of the wrong type.
    pub(super) fn not(&self, wanted: &str, advice: impl Into<String>) -> Complaint {
        let found = match self.form {
            ValueForm::Node(DeValue::String(_)) => "a string".to_owned(),
            ValueForm::Node(DeValue::Integer(_) | DeValue::Float(_)) => "a number".to_owned(),
            ValueForm::Node(DeValue::Boolean(_)) => "true or false".to_owned(),
            ValueForm::Node(DeValue::Datetime(_)) => "a date".to_owned(),
            ValueForm::Node(DeValue::Array(_)) => "a list".to_owned(),
            ValueForm::Node(DeValue::Table(_)) => "a table".to_owned(),
            ValueForm::Text(text) => format!("{text:?}"),
        };
        self.wrong(format!("must be {wanted}, not {found}"), advice)
    }
}

impl From<Complaint> for Vec<Complaint> {
    fn from(complaint: Complaint) -> Self {
        vec![complaint]
    }
}

fn split(text: &str) -> Vec<Raw<'_>> {
    let mut start = 0;
    let mut items = Vec::new();
    for part in text.split(',') {
        let trimmed = part.trim();
        let at = start + (part.len() - part.trim_start().len());
        if !trimmed.is_empty() {
            items.push(Raw { form: ValueForm::Text(trimmed), span: at..at + trimmed.len() });
        }
        start += part.len() + 1;
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_split_at_its_commas() {
        let items = split(" a,, bc ,");
        let items: Vec<_> = items.iter().map(|item| (item.text().unwrap(), item.span.clone())).collect();
        assert_eq!(items, [("a", 1..2), ("bc", 5..7)]);
    }
}
