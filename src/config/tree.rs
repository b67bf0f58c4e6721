//! Walks the parsed file and hands each value to the draft, with its place.
//!
//! Continues after every mistake, so that one run finds them all. A TOML syntax error is the exception: the text after
//! it cannot be trusted.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::ConfigSource;
use super::keys::{self, RULES};
use super::load::{Draft, RuleDraft};
use super::problems::{ConfigProblem, FilePosition};
use super::raw::Raw;
use super::suggest::nearest;

type Name<'a> = Spanned<std::borrow::Cow<'a, str>>;
type Node<'a> = Spanned<DeValue<'a>>;

pub(super) fn read(source: &ConfigSource, draft: &mut Draft<'_>) {
    match DeTable::parse(&source.text) {
        Ok(root) => Walk { source, draft }.table("", root.get_ref()),
        Err(error) => {
            let span = error.span().unwrap_or_default();
            let place = source.place(&span);
            let advice = "nothing after this can be read until it is fixed";
            draft.problems.push(ConfigProblem::error(
                format!("not valid TOML: {}", error.message()),
                advice,
                Some(place),
            ));
        }
    }
}

struct Walk<'a, 'd> {
    source: &'a ConfigSource,
    draft: &'a mut Draft<'d>,
}

impl Walk<'_, '_> {
    fn table(&mut self, section: &str, table: &DeTable<'_>) {
        for (name, value) in table.iter() {
            let path =
                if section.is_empty() { name.get_ref().to_string() } else { format!("{section}.{}", name.get_ref()) };
            if path == RULES {
                self.rules(name, value);
            } else if let Some(row) = keys::find(&path) {
                self.draft.put(row, &Raw::node(value), &|span| self.source.place(span));
            } else if keys::sections().iter().any(|known| is_within(known, &path)) {
                self.section(&path, name, value);
            } else {
                self.unknown(section, name, value);
            }
        }
    }

    fn section(&mut self, path: &str, name: &Name<'_>, value: &Node<'_>) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(path, table),
            _ => self.error(
                format!("[{path}] is a section"),
                format!("write [{path}] and its keys below it"),
                name.span(),
            ),
        }
    }

    fn rules(&mut self, name: &Name<'_>, value: &Node<'_>) {
        let DeValue::Array(rules) = value.get_ref() else {
            self.error("a host rule needs two brackets", "write [[host]]", name.span());
            return;
        };
        for (index, rule) in rules.iter().enumerate() {
            match rule.get_ref() {
                DeValue::Table(table) => self.rule(index + 1, rule.span(), table),
                _ => self.error("a host rule is a table", "write [[host]] and its keys below it", rule.span()),
            }
        }
    }

    fn rule(&mut self, number: usize, span: Range<usize>, table: &DeTable<'_>) {
        let mut rule = RuleDraft::new(number, self.source.place(&span));
        for (name, value) in table.iter() {
            match keys::RULE_KEYS.iter().find(|row| row.path == name.get_ref()) {
                Some(row) => rule.put(row, &Raw::node(value), &|span| self.source.place(span)),
                None => {
                    let known = nearest(name.get_ref(), keys::RULE_KEYS.iter().map(|row| row.path));
                    let advice = known.map_or_else(String::new, |known| format!("did you mean `{known}`?"));
                    self.error(format!("unknown key `{}` in [[host]] #{number}", name.get_ref()), advice, name.span());
                }
            }
        }
        self.draft.add_rule(rule);
    }

    fn unknown(&mut self, section: &str, name: &Name<'_>, value: &Node<'_>) {
        let found = name.get_ref().as_ref();
        if Raw::node(value).is_table() {
            let path = if section.is_empty() { found.to_owned() } else { format!("{section}.{found}") };
            let known = nearest(&path, keys::sections().into_iter().chain([RULES]).filter(|known| !known.is_empty()));
            let advice = known.map_or_else(String::new, |known| format!("did you mean [{known}]?"));
            return self.error(format!("unknown section [{path}]"), advice, name.span());
        }
        let message = match section {
            "" => format!("unknown key `{found}`"),
            _ => format!("unknown key `{found}` in [{section}]"),
        };
        self.error(message, advice_for(section, found), name.span());
    }

    fn error(&mut self, message: impl Into<String>, advice: impl Into<String>, span: Range<usize>) {
        self.draft.problems.push(ConfigProblem::error(message, advice, Some(self.source.place(&span))));
    }
}

/// Suggests a key of this section with a similar spelling, or the section that has this key.
fn advice_for(section: &str, name: &str) -> String {
    if let Some(known) = nearest(name, keys::names_in(section)) {
        return format!("did you mean `{known}`?");
    }
    match keys::KEYS.iter().find(|row| keys::name_of(row.path) == name).map(|row| keys::section_of(row.path)) {
        Some("") => format!("`{name}` belongs at the top, before the first [section]"),
        Some(other) => format!("`{name}` belongs in [{other}]"),
        None => String::new(),
    }
}

fn is_within(section: &str, path: &str) -> bool {
    section == path || section.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'))
}

impl ConfigSource {
    fn place(&self, span: &Range<usize>) -> FilePosition {
        let place = FilePosition::in_file(&self.path, &self.text, span);
        if place.text().is_some_and(may_show_a_secret) { place.without_excerpt() } else { place }
    }
}

/// Whether a line assigns to a key that may contain a secret. Looks only at the names, including misspelt ones, because
/// the line may be invalid TOML, or name no key or several keys.
fn may_show_a_secret(line: &str) -> bool {
    let secret = || keys::KEYS.iter().filter(|row| row.may_hide()).map(|row| keys::name_of(row.path));
    line.split('=').any(|before| {
        let name = before.trim_end().trim_end_matches(['"', '\'']).rsplit(|c: char| !c.is_alphanumeric()).next();
        name.is_some_and(|name| nearest(name, secret()).is_some())
    })
}
