//! Text for terminals: colours, readable times, tables, and escaping of foreign text.

use std::io::IsTerminal;

use crate::telemetry::{misleads, wrapped};

/// The most characters of foreign text in a line.
const LONGEST_TEXT: usize = 120;

pub(super) const BOLD: &str = "1";
pub(super) const RED: &str = "1;31";
pub(super) const GREEN: &str = "1;32";
pub(super) const YELLOW: &str = "1;33";
pub(super) const DIM: &str = "2";

pub(super) fn time(millis: u64) -> String {
    format!("{} s", millis as f64 / 1e3)
}

/// Formats a time with useful precision: tenths below 10 s, whole seconds below two minutes, and [`span`] above. Rounds
/// up, because a wait must not be shown shorter than it is.
pub(super) fn about(seconds: f64) -> String {
    // Adding 0 makes a negative zero positive.
    let tenths = (seconds * 10.0 - 1e-6).ceil().max(0.0) + 0.0;
    if tenths < 100.0 { format!("{} s", tenths / 10.0) } else { span((seconds - 1e-6).ceil() as u64) }
}

/// Formats a time in one unit.
pub(super) fn span(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Escapes foreign text so that it cannot control the terminal or reverse the reading direction, and cuts long text.
pub(super) fn printable(text: &str) -> String {
    match text.char_indices().nth(LONGEST_TEXT) {
        Some((end, _)) => harmless(&text[..end]) + "…",
        None => harmless(text),
    }
}

/// Escapes the same way without cutting.
pub(super) fn harmless(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if misleads(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown
}

#[derive(Clone, Copy)]
pub(super) struct TextStyle(pub(super) bool);

impl TextStyle {
    pub(super) fn stroke(self, colour: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Returns the width of the terminal; `None` if standard output is not a terminal, where nothing is cut.
pub(super) fn columns() -> Option<usize> {
    let size = std::io::stdout().is_terminal().then(ratatui::crossterm::terminal::size)?;
    size.ok().map(|(columns, _)| usize::from(columns))
}

/// Cuts a text to at most `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Formats rows with a label each, and leaves out those without a text. Long texts are wrapped if a width is given.
pub(super) fn labelled<const N: usize>(
    rows: [(&str, Option<String>); N],
    label_width: usize,
    brush: TextStyle,
    columns: Option<usize>,
) -> String {
    let rows = rows.into_iter().filter_map(|(label, text)| Some((label, text?)));
    let line = |(label, text): (&str, String)| {
        let text = columns.map_or_else(|| text.clone(), |columns| wrapped(&text, label_width + 2, columns));
        format!("  {}{text}\n", brush.stroke(DIM, &format!("{label:<label_width$}")))
    };
    rows.map(line).collect()
}

/// Characters between two columns of a table.
pub(super) const GAP: usize = 2;

/// Returns the width of a table with these rows.
pub(super) fn table_width<'a>(head: &[&str], rows: &(impl Iterator<Item = &'a [String]> + Clone)) -> usize {
    let length = |text: &str| text.chars().count();
    let widest = |(column, name): (usize, &&str)| {
        rows.clone().map(|row| length(&row[column])).chain([length(name)]).max().unwrap_or(0) + GAP
    };
    head.iter().enumerate().map(widest).sum::<usize>().saturating_sub(GAP)
}

/// Formats a table. Each column is as wide as its content; the last one is not padded. The columns in `right` are
/// right-aligned, for numbers.
pub(super) fn table(head: &[&str], rows: &[Vec<String>], right: &[usize], brush: TextStyle) -> String {
    let length = |text: &str| text.chars().count();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| length(&row[column]));
        cells.chain([length(head[column])]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.enumerate().map(|(column, cell)| {
            let space = " ".repeat(widths[column] - length(cell));
            if right.contains(&column) { format!("{space}{cell}") } else { format!("{cell}{space}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut page = brush.stroke(DIM, &line(&mut head.iter().copied())) + "\n";
    for row in rows {
        page += &line(&mut row.iter().map(String::as_str));
        page.push('\n');
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_commands_no_terminal() {
        assert_eq!(printable("a\x1b[31mb\u{202e}c\n\u{9b}\u{e9}"), "a\\u{1b}[31mb\\u{202e}c\\u{a}\\u{9b}\u{e9}");
        assert_eq!(printable(&"x".repeat(200)).chars().count(), LONGEST_TEXT + 1);
    }

    #[test]
    fn times_are_told_in_one_unit() {
        let told: Vec<String> = [0, 119, 120, 7_199, 7_200, 172_800].into_iter().map(span).collect();
        assert_eq!((time(3_929), time(1_000), time(0)), ("3.929 s".into(), "1 s".into(), "0 s".into()));
        assert_eq!(told, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
        let rounded: Vec<String> =
            [0.0, 1.0, 0.96, 6.2, 9.91, 9.99, 17.878, 51.6, 600.1].into_iter().map(about).collect();
        assert_eq!(rounded, ["0 s", "1 s", "1 s", "6.2 s", "10 s", "10 s", "18 s", "52 s", "10 min"]);
    }

    #[test]
    fn a_table_has_straight_columns() {
        let rows = [vec!["a.test".into(), "12".into(), "x".into()], vec!["b".into(), "3".into(), String::new()]];
        let text = table(&["HOST", "N", "WHY"], &rows, &[1], TextStyle(false));
        assert_eq!(text, "HOST     N  WHY\na.test  12  x\nb        3\n");
    }
}
