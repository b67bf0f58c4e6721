//! Problems of a configuration, and how they are reported to users and editors.
//!
//! A problem carries its own excerpt, so a report can be printed long after the file has changed. Nothing here reads a
//! file or decides what is wrong. A line with a secret must never become an excerpt: the code that creates the
//! [`FilePosition`] is responsible for that.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Error,
    Warning,
}

/// One thing to fix (an error) or to think about (a warning).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    pub severity: Severity,
    /// What is wrong, as a sentence without a full stop.
    pub message: String,
    /// What to do about it; may be empty.
    pub advice: String,
    pub place: Option<FilePosition>,
}

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePosition {
    pub origin: ValueSource,
    pub(super) excerpt: Option<Excerpt>,
}

/// Where a value comes from, in order of precedence, the weakest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueSource {
    /// Line and column count from one; the column counts characters.
    File {
        path: PathBuf,
        line: usize,
        column: usize,
    },
    Env(String),
    Flag(String),
    /// A request to the running curtsy.
    Request,
}

/// One line of source and the range of characters to mark in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excerpt {
    text: String,
    marked: Range<usize>,
}

/// A report: errors first, each group in the order of the places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems {
    list: Vec<ConfigProblem>,
    ending: String,
    painted: bool,
}

impl Problems {
    pub fn new(mut list: Vec<ConfigProblem>) -> Self {
        list.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        Problems { list, ending: String::new(), painted: false }
    }

    /// Turns colours on or off.
    #[must_use]
    pub fn paint(mut self, painted: bool) -> Self {
        self.painted = painted;
        self
    }

    /// Sets the sentence after the counts, such as "The running configuration was not changed."
    #[must_use]
    pub fn ending(mut self, sentence: &str) -> Self {
        sentence.clone_into(&mut self.ending);
        self
    }

    pub fn iter(&self) -> std::slice::Iter<'_, ConfigProblem> {
        self.list.iter()
    }

    pub fn errors(&self) -> usize {
        self.iter().filter(|problem| problem.severity == Severity::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.list.len() - self.errors()
    }

    /// Returns the report as JSON, for editors and scripts.
    pub fn to_json(&self) -> Json {
        let problems: Vec<Json> = self.iter().map(ConfigProblem::to_json).collect();
        json!({ "errors": self.errors(), "warnings": self.warnings(), "problems": problems })
    }

    fn counts(&self) -> String {
        let parts = [(self.errors(), "error"), (self.warnings(), "warning")];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}{}", if *count == 1 { "" } else { "s" }))
            .collect();
        if parts.is_empty() { "no problems".to_owned() } else { parts.join(", ") }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brush = ProblemStyle(self.painted);
        for problem in self.iter() {
            problem.print(f, brush)?;
            writeln!(f)?;
        }
        let ending = if self.ending.is_empty() { String::new() } else { format!(" {}", self.ending) };
        write!(f, "{}.{ending}", self.counts())
    }
}

impl std::error::Error for Problems {}

impl ConfigProblem {
    pub(super) fn error(message: impl Into<String>, advice: impl Into<String>, place: Option<FilePosition>) -> Self {
        ConfigProblem { severity: Severity::Error, message: message.into(), advice: advice.into(), place }
    }

    pub(super) fn warning(message: impl Into<String>, advice: impl Into<String>, place: Option<FilePosition>) -> Self {
        ConfigProblem { severity: Severity::Warning, ..ConfigProblem::error(message, advice, place) }
    }

    fn sort_key(&self) -> (Severity, Option<&ValueSource>) {
        (self.severity, self.place.as_ref().map(|place| &place.origin))
    }

    fn print(&self, f: &mut fmt::Formatter<'_>, brush: ProblemStyle) -> fmt::Result {
        let (word, colour) = match self.severity {
            Severity::Error => ("error", ProblemStyle::RED),
            Severity::Warning => ("warning", ProblemStyle::YELLOW),
        };
        writeln!(
            f,
            "{}{}",
            brush.stroke(colour, word),
            brush.stroke(ProblemStyle::BOLD, &format!(": {}", self.message))
        )?;
        let gutter = self.place.as_ref().map_or(0, FilePosition::gutter);
        if let Some(place) = &self.place {
            writeln!(f, "{:gutter$}{} {}", "", brush.stroke(ProblemStyle::BLUE, "-->"), place.origin)?;
            if let Some(excerpt) = &place.excerpt {
                return self.print_excerpt(f, brush, colour, &place.line_number(), excerpt);
            }
        }
        if self.advice.is_empty() {
            return Ok(());
        }
        writeln!(f, "{:gutter$} {} {}", "", brush.stroke(ProblemStyle::BLUE, "="), self.advice)
    }

    fn print_excerpt(
        &self,
        f: &mut fmt::Formatter<'_>,
        brush: ProblemStyle,
        colour: &str,
        number: &str,
        excerpt: &Excerpt,
    ) -> fmt::Result {
        let gutter = number.len();
        let bar = brush.stroke(ProblemStyle::BLUE, &format!("{:gutter$} |", ""));
        let numbered_bar = brush.stroke(ProblemStyle::BLUE, &format!("{number} |"));
        let mark = brush.stroke(colour, format!("{} {}", excerpt.carets(), self.advice).trim_end());
        writeln!(f, "{bar}\n{numbered_bar} {}\n{bar} {}{mark}", excerpt.text.trim_end(), excerpt.indent())
    }

    fn to_json(&self) -> Json {
        let mut object = json!({
            "severity": if self.severity == Severity::Error { "error" } else { "warning" },
            "message": self.message,
        });
        if !self.advice.is_empty() {
            object["advice"] = json!(self.advice);
        }
        let Some(place) = &self.place else { return object };
        match &place.origin {
            ValueSource::File { path, line, column } => {
                object["file"] = json!(path.display().to_string());
                object["line"] = json!(line);
                object["column"] = json!(column);
                object["end_column"] = json!(column + place.excerpt.as_ref().map_or(1, Excerpt::width));
            }
            ValueSource::Env(name) => object["variable"] = json!(name),
            ValueSource::Flag(name) => object["flag"] = json!(name),
            ValueSource::Request => {}
        }
        object
    }
}

impl FilePosition {
    /// Returns the part of `text`, the content of the file at `path`, that `span` (in bytes) covers.
    pub(super) fn in_file(path: &std::path::Path, text: &str, span: &Range<usize>) -> Self {
        let start = floor(text, span.start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let column = text[line_start..start].chars().count();
        let width = text[start..floor(text, span.end).max(start)].chars().count();
        let origin = ValueSource::File {
            path: path.to_owned(),
            line: text[..line_start].matches('\n').count() + 1,
            column: column + 1,
        };
        FilePosition { origin, excerpt: Some(Excerpt::new(line, column..column + width)) }
    }

    pub(super) fn in_variable(name: &str, value: &str, span: &Range<usize>) -> Self {
        FilePosition::typed(ValueSource::Env(name.to_owned()), &format!("{name}="), value, span)
    }

    pub(super) fn in_flag(flag: &str, value: &str, span: &Range<usize>) -> Self {
        FilePosition::typed(ValueSource::Flag(flag.to_owned()), &format!("{flag} "), value, span)
    }

    pub(super) fn in_request() -> Self {
        FilePosition { origin: ValueSource::Request, excerpt: None }
    }

    /// Returns the line that the report shows.
    pub(super) fn text(&self) -> Option<&str> {
        self.excerpt.as_ref().map(|excerpt| excerpt.text.as_str())
    }

    /// Returns the same place without the text that was found there.
    #[must_use]
    pub(super) fn without_excerpt(mut self) -> Self {
        self.excerpt = None;
        self
    }

    fn typed(origin: ValueSource, prefix: &str, value: &str, span: &Range<usize>) -> Self {
        let chars_before = |at: usize| prefix.chars().count() + value[..floor(value, at)].chars().count();
        let marked = chars_before(span.start)..chars_before(span.end);
        FilePosition { origin, excerpt: Some(Excerpt::new(&format!("{prefix}{value}"), marked)) }
    }

    fn line_number(&self) -> String {
        match &self.origin {
            ValueSource::File { line, .. } => line.to_string(),
            ValueSource::Env(_) | ValueSource::Flag(_) | ValueSource::Request => " ".to_owned(),
        }
    }

    fn gutter(&self) -> usize {
        self.line_number().len()
    }
}

impl fmt::Display for ValueSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueSource::File { path, line, column } => write!(f, "{}:{line}:{column}", path.display()),
            ValueSource::Env(name) => write!(f, "env {name}"),
            ValueSource::Flag(flag) => f.write_str(flag),
            ValueSource::Request => f.write_str("the request"),
        }
    }
}

impl Excerpt {
    /// Replaces control characters, so that the content of a file cannot control the terminal.
    fn new(line: &str, marked: Range<usize>) -> Self {
        let printable = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
        let text: String = line.trim_end_matches('\r').chars().map(printable).collect();
        let length = text.chars().count();
        let start = marked.start.min(length);
        Excerpt { marked: start..marked.end.clamp(start, length), text }
    }

    fn width(&self) -> usize {
        self.marked.len().max(1)
    }

    fn carets(&self) -> String {
        "^".repeat(self.width())
    }

    /// Keeps tabs, so that the carets are under the marked text, however wide a tab is.
    fn indent(&self) -> String {
        self.text.chars().take(self.marked.start).map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
    }
}

/// Returns the nearest character boundary at or before `at`: spans from other code may not be on one.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[derive(Clone, Copy)]
struct ProblemStyle(bool);

impl ProblemStyle {
    const BOLD: &str = "1";
    const RED: &str = "1;31";
    const YELLOW: &str = "1;33";
    const BLUE: &str = "1;34";

    fn stroke(self, colour: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, span: Range<usize>) -> FilePosition {
        FilePosition::in_file("a.toml".as_ref(), text, &span)
    }

    #[test]
    fn an_error_shows_its_line_with_carets() {
        let problem =
            ConfigProblem::error("unknown key `delya`", "did you mean `delay`?", Some(at("a = 1\ndelya = 2\n", 6..11)));
        let report = Problems::new(vec![problem]).ending("Nothing was changed.").to_string();
        let expected = "\
error: unknown key `delya`
 --> a.toml:2:1
  |
2 | delya = 2
  | ^^^^^ did you mean `delay`?

1 error. Nothing was changed.";
        assert_eq!(report, expected);
    }

    #[test]
    fn carets_stand_right_after_tabs_and_wide_letters() {
        let place = at("\tä = 5\n", 5..6);
        assert_eq!(place.origin.to_string(), "a.toml:1:5");
        let excerpt = place.excerpt.expect("an excerpt");
        assert_eq!((excerpt.indent().as_str(), excerpt.carets().as_str()), ("\t   ", "^"));
    }

    #[test]
    fn a_span_off_the_text_or_inside_a_letter_is_harmless() {
        assert_eq!(at("ä", 1..99).origin.to_string(), "a.toml:1:1");
        assert_eq!(at("", 7..9).origin.to_string(), "a.toml:1:1");
    }

    #[test]
    fn control_characters_are_not_printed() {
        let problem = ConfigProblem::error("bad", "", Some(at("x = \x1b[31m\r\n", 4..5)));
        let report = Problems::new(vec![problem]).to_string();
        assert!(!report.contains(['\x1b', '\r']), "{report:?}");
    }

    #[test]
    fn colours_come_only_when_asked_for() {
        let problems = Problems::new(vec![ConfigProblem::warning("w", "", None)]);
        assert!(!problems.to_string().contains('\x1b'));
        assert!(problems.paint(true).to_string().contains("\x1b[1;33mwarning"));
    }

    #[test]
    fn errors_come_before_warnings_and_files_before_variables() {
        let list = vec![
            ConfigProblem::warning("d", "", Some(at("a\nb\n", 0..1))),
            ConfigProblem::error("c", "", Some(FilePosition::in_flag("--x", "1", &(0..1)))),
            ConfigProblem::error("b", "", Some(at("a\nb\n", 2..3))),
            ConfigProblem::error("a", "", Some(at("a\nb\n", 0..1))),
        ];
        let order: Vec<String> = Problems::new(list).iter().map(|problem| problem.message.clone()).collect();
        assert_eq!(order, ["a", "b", "c", "d"]);
    }
}
