//! The pages behind the overview that are not about one host: requests, an explanation, and the keys.

use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use serde_json::Value;

use super::board::TopScreen;
use crate::cli::explain;
use crate::cli::terminal::{TextStyle, printable};

/// Which requests a list holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    OfAllHosts,
    /// Their URLs are shown without the host.
    OfOneHost,
}

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

const KEYS: [(&str, &str); 12] = [
    ("↑ ↓  j k", "choose a host; PgUp, PgDn, Home and End go further"),
    ("Enter", "the chosen host: its delay, starts, queue and requests"),
    ("d", "set its delay until it is reset"),
    ("p", "pause it, or resume it"),
    ("t", "requests as they end, of all hosts"),
    ("e", "explain a URL: may it be fetched, when, and why"),
    ("/", "only hosts with this in their name"),
    ("s", "change the sort order"),
    ("r", "reverse the order"),
    ("?", "this page"),
    ("Esc", "back; on the page of hosts: quit"),
    ("q", "quit"),
];

pub(super) fn draw_explained(frame: &mut Frame<'_>, area: Rect, board: &TopScreen) {
    let told = board.explained.as_ref().map(|told| explain::page(told, TextStyle(false), None));
    draw_text(frame, area, &told.unwrap_or_default());
}

pub(super) fn draw_keys(frame: &mut Frame<'_>, area: Rect) {
    draw_text(frame, area, &KEYS.map(|(key, what)| format!("{key:<10}{what}")).join("\n"));
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, text: &str) {
    let text = Paragraph::new(text.to_owned()).wrap(Wrap { trim: false });
    frame.render_widget(text, area.inner(Margin::new(1, 0)));
}

/// Draws as many requests as fit, the latest first.
pub(super) fn draw_requests<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    listed: Listed,
    requests: impl Iterator<Item = &'a Value>,
) {
    let title = if listed == Listed::OfAllHosts { "REQUESTS" } else { "RECENT" };
    let head = format!("{:<8} {:>6} {:>7} {:>7} {:<13} {title}", "ENDED", "STATUS", "WAITED", "TOOK", "WHY");
    let room = usize::from(area.height.saturating_sub(1));
    let mut lines: Vec<Line<'_>> = requests.take(room).map(|request| line(request, listed)).collect();
    if lines.is_empty() {
        lines.push(Line::styled("no request has ended since top was started", DIM));
    }
    lines.insert(0, Line::styled(head, DIM));
    frame.render_widget(Paragraph::new(lines), area.inner(Margin::new(1, 0)));
}

/// Formats a request that has ended. Short fields come first, so that a narrow screen cuts only the URL.
fn line(request: &Value, listed: Listed) -> Line<'static> {
    let text = |name: &str| request[name].as_str().map(printable);
    let number = |name: &str| request[name].as_u64();
    let span = |name: &str| match number(name) {
        None | Some(0) => "-".to_owned(),
        Some(millis) => format!("{:.1} s", millis as f64 / 1e3),
    };
    let at = text("at").and_then(|at| at.split_once('T').map(|(_, time)| time.chars().take(8).collect::<String>()));
    let status = number("status").map_or_else(|| "-".to_owned(), |status| status.to_string());
    let why = text("error").or_else(|| text("why").filter(|_| number("wait_ms").is_some_and(|millis| millis > 0)));
    let url = text("url").unwrap_or_default();
    let line = format!(
        "{:<8} {status:>6} {:>7} {:>7} {:<13} {} {}",
        at.unwrap_or_default(),
        span("wait_ms"),
        span("took_ms"),
        why.unwrap_or_default(),
        text("method").unwrap_or_default(),
        if listed == Listed::OfOneHost { path(&url) } else { &url },
    );
    Line::styled(line, colour(number("status")))
}

/// Returns a URL without scheme and host.
pub(super) fn path(url: &str) -> &str {
    let after_host = url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|slash| &rest[slash..]));
    after_host.unwrap_or(url)
}

fn colour(status: Option<u64>) -> Style {
    match status {
        Some(100..400) => Style::new(),
        Some(400..500) => Style::new().fg(Color::Yellow),
        Some(_) => Style::new().fg(Color::Red),
        None => Style::new().add_modifier(Modifier::DIM),
    }
}
