//! The page of one host: the parts of its delay, when its last requests started, which requests wait, which have ended.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Margin, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::board::TopScreen;
use super::pages::{self, DIM, Listed};
use crate::admin::hosts::TimelineJson;
use crate::admin::queue::WaitingJson;
use crate::cli::host;
use crate::cli::terminal::{TextStyle, cut, printable, span};

/// The width of the labels before the texts, as in [`host::page`].
const LABEL: usize = 12;
/// The spans that a timeline may cover, in seconds.
const SPANS: [u64; 8] = [30, 60, 120, 300, 600, 1_800, 3_600, 14_400];
/// Characters between two starts that are one delay apart, at least: fewer would run together.
const LEAST_GAP: u64 = 3;

pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, board: &TopScreen) {
    let text = lines(board, area.width);
    let waiting = waiting(&board.seen.queue);
    let height = |lines: &[Line<'_>]| u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let parts = [Constraint::Max(height(&text) + 1), Constraint::Max(height(&waiting) + 1), Constraint::Min(2)];
    let [above, middle, below] = Layout::vertical(parts).areas(area);
    for (area, lines) in [(above, text), (middle, waiting)] {
        frame.render_widget(Paragraph::new(lines), area.inner(Margin::new(1, 0)));
    }
    pages::draw_requests(frame, below, Listed::OfOneHost, board.its_requests());
}

/// Draws the chosen host below the list of hosts.
pub(super) fn draw_chosen(frame: &mut Frame<'_>, area: Rect, board: &TopScreen) {
    frame.render_widget(Paragraph::new(lines(board, area.width)), area.inner(Margin::new(1, 0)));
}

/// Describes the chosen host: its name, its starts, and what [`host::page`] says about it.
fn lines(board: &TopScreen, width: u16) -> Vec<Line<'static>> {
    let Some(chosen) = &board.seen.chosen else { return vec![Line::styled("this host is no longer known", DIM)] };
    let width = usize::from(width.saturating_sub(2));
    let page = host::page(chosen, TextStyle(false), Some(width.max(2 * LABEL)));
    // The first line of the page is the name and the state, however long.
    let text = page.lines().skip(1).filter(|line| !line.is_empty()).map(|line| Line::raw(line.to_owned()));
    let name = cut(&printable(&chosen.host), width.saturating_sub(chosen.state.len() + 2));
    let title = Line::styled(format!("{name}  {}", chosen.state), Style::new().add_modifier(Modifier::BOLD));
    let timeline = chosen.timeline.iter().flat_map(|timeline| strip(timeline, chosen.delay_ms, width));
    [title].into_iter().chain(timeline).chain(text).collect()
}

/// Draws starts as strokes and holds as bars, now at the right, above a scale.
fn strip(timeline: &TimelineJson, delay_ms: u64, width: usize) -> Vec<Line<'static>> {
    let columns = width.saturating_sub(LABEL) as u64;
    if columns < 20 || timeline.starts_ms.is_empty() {
        return Vec::new();
    }
    let wanted = delay_ms.saturating_mul(columns) / (1_000 * LEAST_GAP);
    let times = timeline.starts_ms.iter().chain(timeline.holds.iter().map(|hold| &hold.from_ms));
    let oldest = times.fold(0, |oldest, from_now_ms| oldest.min(*from_now_ms)).unsigned_abs() / 1_000;
    // As much as was recorded, as long as strokes stay apart.
    let is_enough = |index: &usize| SPANS[*index] > oldest || SPANS.get(index + 1).is_none_or(|next| *next > wanted);
    let covers = SPANS[(0..SPANS.len()).find(is_enough).unwrap_or(0)];
    let column = |from_now_ms: i64| {
        let ago = from_now_ms.min(0).unsigned_abs();
        let column = ago.checked_mul(columns - 1)? / (covers * 1_000);
        (column < columns).then(|| (columns - 1 - column) as usize)
    };
    let mut marks = vec![' '; columns as usize];
    for hold in &timeline.holds {
        if let Some(end) = column(hold.until_ms) {
            marks[column(hold.from_ms).unwrap_or(0)..=end].fill('▒');
        }
    }
    timeline.starts_ms.iter().filter_map(|start| column(*start)).for_each(|start| marks[start] = '│');
    let marks: String = marks.into_iter().collect();
    let (ago, room) = (format!("{} ago", span(covers)), columns as usize);
    let held = if timeline.holds.is_empty() { "│ start" } else { "│ start  ▒ held" };
    vec![
        Line::raw(format!("  {:<10}{marks}", "starts")),
        Line::styled(format!("{:LABEL$}{ago}{held:^1$}now", "", room - ago.len() - "now".len()), DIM),
    ]
}

/// Returns the waiting requests, the longest wait first, below a head; nothing if none waits.
fn waiting(queue: &[WaitingJson]) -> Vec<Line<'static>> {
    if queue.is_empty() {
        return Vec::new();
    }
    let head = Line::styled(format!("{:<15} {:>7} {:>9}  WAITING", "CLIENT", "WAITED", "STARTS IN"), DIM);
    let seconds = |millis: u64| format!("{:.1} s", millis as f64 / 1e3);
    let line = |one: &WaitingJson| {
        let text = |text: &Option<String>, other: &str| text.as_deref().map_or_else(|| other.to_owned(), printable);
        let url = text(&one.url, "robots.txt");
        Line::raw(format!(
            "{:<15.15} {:>7} {:>9}  {} {}",
            text(&one.client, "curtsy"),
            seconds(one.waited_ms),
            one.expected_ms.map_or_else(|| "-".to_owned(), seconds),
            text(&one.method, ""),
            pages::path(&url),
        ))
    };
    [head].into_iter().chain(queue.iter().map(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::hosts::HoldJson;

    fn drawn(starts_ms: &[i64], holds: &[(i64, i64)], delay_ms: u64, width: usize) -> Vec<String> {
        let hold = |(from_ms, until_ms): &(i64, i64)| HoldJson {
            from_ms: *from_ms,
            until_ms: *until_ms,
            cause: "retry-after".to_owned(),
        };
        let timeline = TimelineJson { starts_ms: starts_ms.to_vec(), holds: holds.iter().map(hold).collect() };
        strip(&timeline, delay_ms, width).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn starts_and_holds_stand_where_they_were() {
        // 31 columns for 30 s: one column for each second, and one for now.
        let strip = drawn(&[-99_000, -30_000, -25_000, -1_000], &[(-24_000, -20_000), (-3_000, 60_000)], 1_000, 43);
        assert_eq!(strip[0], "  starts    │    │▒▒▒▒▒                ▒▒│▒");
        assert_eq!(strip[1], "            30 s ago  │ start  ▒ held   now");
        assert_eq!(drawn(&[0], &[], 1_000, 43)[0].trim_end().chars().last(), Some('│'));
    }

    #[test]
    fn the_span_grows_with_the_delay_and_nothing_breaks() {
        assert!(drawn(&[-400_000], &[], 15_000, 78)[1].contains("5 min ago"));
        assert!(drawn(&[-4_000], &[], 15_000, 78)[1].contains("30 s ago"), "no more than was recorded");
        assert!(drawn(&[], &[], 1_000, 78).is_empty() && drawn(&[-1], &[], 1_000, 30).is_empty());
        for extreme in [i64::MIN, i64::MAX, 0] {
            drawn(&[extreme], &[(extreme, i64::MAX), (i64::MIN, extreme)], u64::MAX, 80);
        }
    }
}
