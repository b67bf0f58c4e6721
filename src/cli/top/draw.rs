//! Draws the board: figures above, hosts in the middle, the chosen host and the keys below; or another page.
//!
//! Everything fits in 80 × 24. A smaller screen leaves out the chosen host first, then columns from the right. A larger
//! screen also shows the chosen host's requests.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table, TableState};

use super::board::{TopPage, TopScreen};
use super::host_page;
use super::pages::{self, DIM, Listed};
use super::watch::TopSeen;
use crate::cli::hosts::{self, HEAD, IN_FLIGHT, RIGHT};
use crate::cli::terminal::{cut, printable, span};

/// Lines of the chosen host, and the screen height that has room for them.
const CHOSEN_LINES: u16 = 10;
const ROOMY: u16 = 22;
/// Lines of its requests, and the screen height that has room for them.
const REQUEST_LINES: u16 = 7;
const ROOMIER: u16 = 34;
/// The screen width that has room for names and all numbers.
const WIDE: u16 = 100;
pub(super) const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

pub(super) fn draw(frame: &mut Frame<'_>, board: &mut TopScreen) {
    let parts = [Constraint::Length(3), Constraint::Min(2), Constraint::Length(1)];
    let [above, middle, keys] = Layout::vertical(parts).areas(frame.area());
    draw_figures(frame, above, board);
    match board.page {
        TopPage::Hosts => draw_overview(frame, middle, board),
        TopPage::Host => host_page::draw(frame, middle, board),
        TopPage::Requests => pages::draw_requests(frame, middle, Listed::OfAllHosts, board.requests.iter()),
        TopPage::Explained => pages::draw_explained(frame, middle, board),
        TopPage::Keys => pages::draw_keys(frame, middle),
    }
    let bottom = match &board.refused {
        Some(why) => Paragraph::new(printable(why)).style(ALARM),
        None => Paragraph::new(printable(&board.keys())).style(DIM),
    };
    frame.render_widget(bottom, keys);
}

fn draw_overview(frame: &mut Frame<'_>, area: Rect, board: &mut TopScreen) {
    let height = frame.area().height;
    let lines = |lines: u16, least: u16| if height >= least && board.seen.chosen.is_some() { lines } else { 0 };
    let (chosen_lines, request_lines) = (lines(CHOSEN_LINES, ROOMY), lines(REQUEST_LINES, ROOMIER));
    let parts = [Constraint::Min(2), Constraint::Length(chosen_lines), Constraint::Length(request_lines)];
    let [hosts, chosen, requests] = Layout::vertical(parts).areas(area);
    draw_hosts(frame, hosts, board);
    if chosen_lines > 0 {
        host_page::draw_chosen(frame, chosen, board);
    }
    if request_lines > 0 {
        pages::draw_requests(frame, requests, Listed::OfOneHost, board.its_requests());
    }
}

fn draw_figures(frame: &mut Frame<'_>, area: Rect, board: &TopScreen) {
    let mut text = Text::raw(figures(&board.seen, board.rate));
    if let Some(trouble) = &board.trouble {
        text.lines[0] = Line::styled(printable(trouble), ALARM);
    }
    frame.render_widget(Paragraph::new(text), area);
}

/// Returns two lines about all hosts together.
pub(super) fn figures(seen: &TopSeen, rate: Option<f64>) -> String {
    let status = &seen.status;
    let shown = |count: usize| if count < seen.hosts.total { format!(" ({count} shown)") } else { String::new() };
    let wait =
        status.wait_p90_ms.map_or_else(String::new, |millis| format!("   wait p90 {:.1} s", millis as f64 / 1e3));
    let rate = rate.map_or_else(String::new, |rate| format!("{rate:.1} req/s   "));
    let unpaced = match status.traffic.unpaced_tunnels {
        0 => String::new(),
        1 => "   1 tunnel not paced".to_owned(),
        count => format!("   {count} tunnels not paced"),
    };
    let gave_up = status.requests.abandoned as f64 * 100.0 / status.requests.total.max(1) as f64;
    format!(
        "{}  {} for {}   {} hosts{}{unpaced}\n{rate}queued {}   in flight {}{wait}   gave up {gave_up:.1} %",
        printable(&status.name),
        status.state,
        span(status.uptime_s as u64),
        seen.hosts.total,
        shown(seen.hosts.hosts.len()),
        status.waiting,
        status.in_flight.saturating_sub_unsigned(status.waiting as u64).max(0),
    )
}

fn draw_hosts(frame: &mut Frame<'_>, area: Rect, board: &mut TopScreen) {
    if board.rows().is_empty() {
        let text = "no hosts: none was visited lately, or none matches";
        return frame.render_widget(Paragraph::new(text).style(DIM), area);
    }
    let columns = columns(area.width);
    let name_width = usize::from(columns[0].1);
    let pick = |mut cells: Vec<String>| {
        cells[0] = cut(&cells[0], name_width);
        Row::new(columns.iter().map(|(column, _)| {
            let line = Line::raw(std::mem::take(&mut cells[*column]));
            Cell::from(if RIGHT.contains(column) { line.right_aligned() } else { line })
        }))
    };
    let rows: Vec<Row<'_>> = board.rows().iter().map(|row| pick(hosts::row(row)).style(colour(&row.state))).collect();
    let mut state = TableState::new().with_offset(board.offset).with_selected(board.chosen());
    let stale = if board.trouble.is_some() { DIM } else { Style::new() };
    let head = pick(HEAD.map(str::to_owned).to_vec()).style(DIM);
    let table = Table::new(rows, columns.iter().map(|(_, width)| Constraint::Length(*width)))
        .header(head)
        .row_highlight_style(Modifier::REVERSED)
        .style(stale);
    frame.render_stateful_widget(table, area, &mut state);
    board.offset = state.offset();
}

/// Returns as many columns as fit, each with its width. The name takes the remaining width.
fn columns(width: u16) -> Vec<(usize, u16)> {
    const WIDTHS: [u16; 9] = [22, 11, 7, 18, 6, 9, 7, 4, 18];
    // Whether the host is busy is in the state already.
    let all = (0..WIDTHS.len()).filter(|column| *column != IN_FLIGHT || width >= WIDE);
    let mut used = 0;
    let fits = all.take_while(|column| {
        used += WIDTHS[*column] + 1;
        used <= width + 1 || *column < 2
    });
    let mut columns: Vec<(usize, u16)> = fits.map(|column| (column, WIDTHS[column])).collect();
    let others: u16 = columns[1..].iter().map(|(_, width)| width + 1).sum();
    columns[0].1 = width.saturating_sub(others).max(WIDTHS[0]);
    columns
}

fn colour(state: &str) -> Style {
    match state {
        "paused" | "broken" | "unreachable" => Style::new().fg(Color::Red),
        "held" => Style::new().fg(Color::Yellow),
        "waiting" | "active" => Style::new().fg(Color::Green),
        _ => Style::new(),
    }
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
