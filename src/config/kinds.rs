//! The kinds of value that a key can have: how each is read, written and described to an editor.
//!
//! Kinds are small and combine: a list of ports is `list(count(1, 65535))`. Reading reports every wrong item of a list,
//! not only the first. Writing leaves secrets out.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::raw::{Complaint, Raw};
use super::units;
use super::values::BadValue;

pub(super) type Read<T> = Result<T, Vec<Complaint>>;

pub(super) trait KeyKind: Send + Sync + 'static {
    type Value: Clone + PartialEq + 'static;

    fn read(&self, raw: &Raw<'_>) -> Read<Self::Value>;

    /// Returns the value as it is written in the file, secrets as `***`; `None` if there is nothing to write.
    fn write(&self, value: &Self::Value) -> Option<Json>;

    /// Returns the JSON Schema of the value in the file.
    fn schema(&self) -> Json;

    /// Whether the file may write it in brackets.
    fn is_list(&self) -> bool {
        false
    }

    /// Whether texts of this kind may contain a secret, so that they must not be shown.
    fn may_hide(&self) -> bool {
        false
    }

    /// Whether this value contains a secret.
    fn hides(&self, _value: &Self::Value) -> bool {
        false
    }
}

/// `true` or `false`.
pub(super) struct Flag;

impl KeyKind for Flag {
    type Value = bool;

    fn read(&self, raw: &Raw<'_>) -> Read<bool> {
        Ok(raw.boolean().ok_or_else(|| raw.not("true or false", "write true or false"))?)
    }

    fn write(&self, value: &bool) -> Option<Json> {
        Some(json!(value))
    }

    fn schema(&self) -> Json {
        json!({ "type": "boolean" })
    }
}

/// A whole number.
pub(super) struct Count<T>(RangeInclusive<T>);

pub(super) fn count<T>(least: T, most: T) -> Count<T> {
    Count(least..=most)
}

impl<T> KeyKind for Count<T>
where
    T: TryFrom<i128> + PartialOrd + Copy + Display + serde::Serialize + Send + Sync + 'static,
{
    type Value = T;

    fn read(&self, raw: &Raw<'_>) -> Read<T> {
        let advice = format!("write a number from {} to {}", self.0.start(), self.0.end());
        let number = raw.integer().ok_or_else(|| raw.not("a whole number", advice))?;
        let fits = T::try_from(number).ok().filter(|number| self.0.contains(number));
        Ok(fits.ok_or_else(|| out_of_range(raw, &number, self.0.start(), self.0.end()))?)
    }

    fn write(&self, value: &T) -> Option<Json> {
        Some(json!(value))
    }

    fn schema(&self) -> Json {
        json!({ "type": "integer", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// A number with a fraction.
pub(super) struct NumberKind(RangeInclusive<f64>);

pub(super) fn number(least: f64, most: f64) -> NumberKind {
    NumberKind(least..=most)
}

impl KeyKind for NumberKind {
    type Value = f64;

    fn read(&self, raw: &Raw<'_>) -> Read<f64> {
        let advice = format!("write a number from {} to {}", self.0.start(), self.0.end());
        let number = raw.integer().map(|number| number as f64);
        let number = number.or_else(|| raw.number().and_then(|number| number.parse().ok()));
        let number = number.ok_or_else(|| raw.not("a number", advice))?;
        let fits = Some(number).filter(|number| self.0.contains(number));
        Ok(fits.ok_or_else(|| out_of_range(raw, &number, self.0.start(), self.0.end()))?)
    }

    fn write(&self, value: &f64) -> Option<Json> {
        Some(json!(value))
    }

    fn schema(&self) -> Json {
        json!({ "type": "number", "minimum": self.0.start(), "maximum": self.0.end() })
    }
}

/// A duration with its unit.
pub(super) struct SpanKind(RangeInclusive<Duration>);

pub(super) fn span(least: Duration, most: Duration) -> SpanKind {
    SpanKind(least..=most)
}

impl KeyKind for SpanKind {
    type Value = Duration;

    fn read(&self, raw: &Raw<'_>) -> Read<Duration> {
        if let Some(number) = raw.number() {
            return Err(raw.because(units::needs_time_unit(number)).into());
        }
        let text = raw.text().ok_or_else(|| raw.not("a duration", r#"write a duration such as "5s""#))?;
        let duration = units::read_duration(text).map_err(|bad| raw.because(bad))?;
        if self.0.contains(&duration) {
            return Ok(duration);
        }
        let [value, least, most] = [duration, *self.0.start(), *self.0.end()].map(units::write_duration);
        Err(out_of_range(raw, &value, &least, &most).into())
    }

    fn write(&self, value: &Duration) -> Option<Json> {
        Some(json!(units::write_duration(*value)))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": r"^\s*([0-9.]+\s*(ms|s|m|h|d)\s*)+$" })
    }
}

/// A number of bytes with its unit.
pub(super) struct Size(pub(super) RangeInclusive<usize>);

impl KeyKind for Size {
    type Value = usize;

    fn read(&self, raw: &Raw<'_>) -> Read<usize> {
        if let Some(number) = raw.number() {
            return Err(raw.because(units::needs_size_unit(number)).into());
        }
        let text = raw.text().ok_or_else(|| raw.not("a size", r#"write a size such as "64KiB""#))?;
        let size = units::read_size(text).map_err(|bad| raw.because(bad))?;
        if self.0.contains(&size) {
            return Ok(size);
        }
        let [value, least, most] = [size, *self.0.start(), *self.0.end()].map(units::write_size);
        Err(out_of_range(raw, &value, &least, &most).into())
    }

    fn write(&self, value: &usize) -> Option<Json> {
        Some(json!(units::write_size(*value)))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string", "pattern": r"^\s*[0-9.]+\s*([KMGkmg][iI]?)?[Bb]\s*$" })
    }
}

/// A rate that sets a delay. Never written: the delay is written instead.
pub(super) struct PerTime(pub(super) RangeInclusive<Duration>);

impl KeyKind for PerTime {
    type Value = Duration;

    fn read(&self, raw: &Raw<'_>) -> Read<Duration> {
        let advice = r#"write a rate such as "2/s" or "30/m""#;
        let text = raw.text().or_else(|| raw.number()).ok_or_else(|| raw.not("a rate", advice))?;
        let delay = units::read_rate(text).map_err(|bad| raw.because(bad))?.delay();
        let fits = Some(delay).filter(|delay| self.0.contains(delay));
        let [least, most] = [self.0.start(), self.0.end()].map(|delay| units::write_duration(*delay));
        Ok(fits.ok_or_else(|| {
            raw.wrong("is out of range", format!("it must come to a delay from {least} to {most} between requests"))
        })?)
    }

    fn write(&self, _value: &Duration) -> Option<Json> {
        None
    }

    fn schema(&self) -> Json {
        json!({ "type": ["string", "number"] })
    }
}

/// One of a few words.
pub(super) struct ChoiceKind<T: 'static>(pub(super) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq + Send + Sync + 'static> KeyKind for ChoiceKind<T> {
    type Value = T;

    fn read(&self, raw: &Raw<'_>) -> Read<T> {
        let words: Vec<String> = self.0.iter().map(|(word, _)| format!("{word:?}")).collect();
        let advice = format!("write {}", super::suggest::or(&words));
        let text = raw.text().ok_or_else(|| raw.not("a word", advice.as_str()))?;
        let found = self.0.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        Ok(found.ok_or_else(|| raw.wrong(format!("cannot be {text:?}"), advice))?)
    }

    fn write(&self, value: &T) -> Option<Json> {
        self.0.iter().find(|(_, candidate)| candidate == value).map(|(word, _)| json!(word))
    }

    fn schema(&self) -> Json {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({ "enum": words })
    }
}

/// A text that is read and written by two functions.
pub(super) struct Text<T> {
    read: fn(&str) -> Result<T, BadValue>,
    write: fn(&T) -> String,
    hides: Option<fn(&T) -> bool>,
}

pub(super) fn text<T>(read: fn(&str) -> Result<T, BadValue>, write: fn(&T) -> String) -> Text<T> {
    Text { read, write, hides: None }
}

impl<T> Text<T> {
    /// Marks a text that may contain a secret. `hides` decides whether a given value does.
    pub(super) fn secret(self, hides: fn(&T) -> bool) -> Self {
        Text { hides: Some(hides), ..self }
    }
}

impl<T: Clone + PartialEq + 'static> KeyKind for Text<T> {
    type Value = T;

    fn read(&self, raw: &Raw<'_>) -> Read<T> {
        let text = raw.text().ok_or_else(|| raw.not("a string", "write it in quotes"))?;
        Ok((self.read)(text).map_err(|bad| raw.because(bad))?)
    }

    fn write(&self, value: &T) -> Option<Json> {
        Some(json!((self.write)(value)))
    }

    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }

    fn may_hide(&self) -> bool {
        self.hides.is_some()
    }

    fn hides(&self, value: &T) -> bool {
        self.hides.is_some_and(|hides| hides(value))
    }
}

/// Several values; one alone needs no brackets.
pub(super) struct List<K> {
    item: K,
    /// The word that stands for the empty list.
    empty: Option<&'static str>,
    /// The message for an empty list, if the list must not be empty.
    never_empty: Option<&'static str>,
}

pub(super) fn list<K>(item: K) -> List<K> {
    List { item, empty: None, never_empty: None }
}

impl<K> List<K> {
    pub(super) fn or_word(self, word: &'static str) -> Self {
        List { empty: Some(word), ..self }
    }

    pub(super) fn never_empty(self, why: &'static str) -> Self {
        List { never_empty: Some(why), ..self }
    }
}

impl<K: KeyKind> KeyKind for List<K> {
    type Value = Vec<K::Value>;

    fn read(&self, raw: &Raw<'_>) -> Read<Self::Value> {
        if self.empty.is_some() && raw.text() == self.empty {
            return Ok(Vec::new());
        }
        let items = raw.items();
        if let (true, Some(why)) = (items.is_empty(), self.never_empty) {
            return Err(raw.wrong("is empty", why).into());
        }
        let mut values = Vec::with_capacity(items.len());
        let mut complaints = Vec::new();
        for item in &items {
            match self.item.read(item) {
                Ok(value) => values.push(value),
                Err(more) => complaints.extend(more),
            }
        }
        if complaints.is_empty() { Ok(values) } else { Err(complaints) }
    }

    fn write(&self, values: &Self::Value) -> Option<Json> {
        match self.empty {
            Some(word) if values.is_empty() => Some(json!(word)),
            _ => Some(values.iter().filter_map(|value| self.item.write(value)).collect()),
        }
    }

    fn schema(&self) -> Json {
        let item = self.item.schema();
        let mut forms = vec![json!({ "type": "array", "items": item.clone() }), item];
        forms.extend(self.empty.map(|word| json!({ "const": word })));
        json!({ "anyOf": forms })
    }

    fn is_list(&self) -> bool {
        true
    }

    fn may_hide(&self) -> bool {
        self.item.may_hide()
    }

    fn hides(&self, values: &Self::Value) -> bool {
        values.iter().any(|value| self.item.hides(value))
    }
}

/// A value, or a word that stands for having none.
pub(super) struct OrNone<K> {
    word: &'static str,
    value: K,
}

pub(super) fn or_none<K>(word: &'static str, value: K) -> OrNone<K> {
    OrNone { word, value }
}

impl<K: KeyKind> KeyKind for OrNone<K> {
    type Value = Option<K::Value>;

    fn read(&self, raw: &Raw<'_>) -> Read<Self::Value> {
        let items = if self.value.is_list() { raw.items() } else { Vec::new() };
        let alone = if let [item] = items.as_slice() { item.text() } else { raw.text() };
        if alone == Some(self.word) { Ok(None) } else { self.value.read(raw).map(Some) }
    }

    fn write(&self, value: &Self::Value) -> Option<Json> {
        value.as_ref().map_or_else(|| Some(json!(self.word)), |value| self.value.write(value))
    }

    fn schema(&self) -> Json {
        let words = if self.value.is_list() { json!([self.word, [self.word]]) } else { json!([self.word]) };
        json!({ "anyOf": [{ "enum": words }, self.value.schema()] })
    }

    fn may_hide(&self) -> bool {
        self.value.may_hide()
    }

    fn hides(&self, value: &Self::Value) -> bool {
        value.as_ref().is_some_and(|value| self.value.hides(value))
    }
}

/// A setting of a `[[host]]` rule; if it is not set, the general setting applies.
pub(super) struct Given<K>(pub(super) K);

impl<K: KeyKind> KeyKind for Given<K> {
    type Value = Option<K::Value>;

    fn read(&self, raw: &Raw<'_>) -> Read<Self::Value> {
        self.0.read(raw).map(Some)
    }

    fn write(&self, value: &Self::Value) -> Option<Json> {
        value.as_ref().and_then(|value| self.0.write(value))
    }

    fn schema(&self) -> Json {
        self.0.schema()
    }
}

fn out_of_range(raw: &Raw<'_>, value: &dyn Display, least: &dyn Display, most: &dyn Display) -> Complaint {
    raw.wrong(format!("cannot be {value}"), format!("the smallest allowed is {least}, the largest {most}"))
}
