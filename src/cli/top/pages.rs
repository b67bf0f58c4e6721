//! The pages behind the overview: one host, requests, an explanation, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};
use serde_json::Value;

use super::board::{TopPage, TopScreen};
use crate::cli::terminal::{TextStyle, printable};
use crate::cli::{explain, host};

/// The height of the part above the requests on the page of a host, if long lines have to wrap.
const MOST_HOST_LINES: u16 = 12;
/// The screen width at which lines need not wrap.
const WIDE: u16 = 80;

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);

const KEYS: [(&str, &str); 12] = [
    ("↑ ↓  j k", "choose a host; PgUp, PgDn, Home and End go further"),
    ("Enter", "the chosen host: the parts of its delay, and its requests"),
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

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, board: &TopScreen, page: TopPage) {
    match page {
        TopPage::Hosts | TopPage::Host => {
            let lines = u16::try_from(chosen(board).lines().count()).unwrap_or(MOST_HOST_LINES);
            let lines = if area.width >= WIDE { lines + 1 } else { MOST_HOST_LINES };
            let [above, below] = Layout::vertical([Constraint::Max(lines), Constraint::Min(2)]).areas(area);
            draw_chosen(frame, above, board);
            draw_requests(frame, below, "RECENT", board.its_requests());
        }
        TopPage::Requests => draw_requests(frame, area, "REQUESTS", board.requests.iter()),
        TopPage::Explained => {
            let told =
                board.explained.as_ref().map(|told| explain::page(told, TextStyle(false), None)).unwrap_or_default();
            draw_text(frame, area, &told);
        }
        TopPage::Keys => {
            let lines = KEYS.map(|(key, what)| format!("{key:<10}{what}")).join("\n");
            draw_text(frame, area, &lines);
        }
    }
}

/// Draws the chosen host in full.
pub(super) fn draw_chosen(frame: &mut Frame<'_>, area: Rect, board: &TopScreen) {
    draw_text(frame, area, &chosen(board));
}

fn chosen(board: &TopScreen) -> String {
    let text = match &board.seen.chosen {
        Some(chosen) => host::page(chosen, TextStyle(false), None),
        None => "this host is no longer known".to_owned(),
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
    lines.join("\n")
}

fn draw_text(frame: &mut Frame<'_>, area: Rect, text: &str) {
    let text = Paragraph::new(text.to_owned()).wrap(Wrap { trim: false });
    frame.render_widget(text, area.inner(Margin::new(1, 0)));
}

/// Draws as many requests as fit, the latest first.
pub(super) fn draw_requests<'a>(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    requests: impl Iterator<Item = &'a Value>,
) {
    let head = format!("{:<8} {:>6} {:>7} {:>7} {:<13} {title}", "ENDED", "STATUS", "WAITED", "TOOK", "WHY");
    let room = usize::from(area.height.saturating_sub(1));
    let mut lines: Vec<Line<'_>> = requests.take(room).map(line).collect();
    if lines.is_empty() {
        lines.push(Line::styled("no request has ended yet", DIM));
    }
    lines.insert(0, Line::styled(head, DIM));
    frame.render_widget(Paragraph::new(lines), area.inner(Margin::new(1, 0)));
}

/// Formats a request that has ended. Short fields come first, so that a narrow screen cuts only the URL.
fn line(request: &Value) -> Line<'static> {
    let text = |name: &str| request[name].as_str().map(printable);
    let number = |name: &str| request[name].as_u64();
    let span = |name: &str| match number(name) {
        None | Some(0) => "-".to_owned(),
        Some(millis) => format!("{:.1} s", millis as f64 / 1e3),
    };
    let at = text("at").and_then(|at| at.split_once('T').map(|(_, time)| time.chars().take(8).collect::<String>()));
    let status = number("status").map_or_else(|| "-".to_owned(), |status| status.to_string());
    let why = text("error").or_else(|| text("why").filter(|_| number("wait_ms").is_some_and(|millis| millis > 0)));
    let line = format!(
        "{:<8} {status:>6} {:>7} {:>7} {:<13} {} {}",
        at.unwrap_or_default(),
        span("wait_ms"),
        span("took_ms"),
        why.unwrap_or_default(),
        text("method").unwrap_or_default(),
        text("url").unwrap_or_default(),
    );
    Line::styled(line, colour(number("status")))
}

fn colour(status: Option<u64>) -> Style {
    match status {
        Some(100..400) => Style::new(),
        Some(400..500) => Style::new().fg(Color::Yellow),
        Some(_) => Style::new().fg(Color::Red),
        None => Style::new().add_modifier(Modifier::DIM),
    }
}
