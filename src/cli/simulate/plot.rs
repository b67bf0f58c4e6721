//! Draws the pace over time: as text for the terminal, and as shapes for an SVG or a PNG.
//!
//! The SVG is written by hand: it is a frame, a few lines and some dots, which takes fewer lines than configuring a
//! plotting library would, and adds no dependency.

use std::fmt::Write;

use super::Simulated;
use crate::politeness::lab::trial::{TrialResult, TrialSettings};

/// Columns and rows of the picture in the terminal.
const TEXT: (usize, usize) = (72, 8);
/// The SVG's size, and the frame inside it.
const SIZE: (f64, f64) = (656.0, 276.0);
const FRAME: (f64, f64, f64, f64) = (64.0, 28.0, 624.0, 228.0);
const COLOURS: [&str; 4] = ["#c0392b", "#2471a3", "#7f8c8d", "#b7950b"];

/// The highest pace that is drawn: a little above the limit, because the beginning is often far above it.
fn top(results: &[&TrialResult]) -> f64 {
    let limit = results.iter().flat_map(|result| &result.limits).fold(0.0_f64, |most, limit| most.max(*limit));
    (2.0 * limit).max(0.01)
}

/// The mean of the pace in force between two times.
fn pace(result: &TrialResult, from: f64, to: f64) -> f64 {
    let first = result.paces.partition_point(|(at, _)| *at <= from).saturating_sub(1);
    let (mut sum, mut at) = (0.0, from);
    for (number, (_, rate)) in result.paces.iter().enumerate().skip(first) {
        let until = result.paces.get(number + 1).map_or(to, |(next, _)| next.clamp(from, to));
        sum += rate * (until - at).max(0.0);
        at = until.max(at);
        if at >= to {
            break;
        }
    }
    sum / (to - from)
}

fn refused(result: &TrialResult, from: f64, to: f64) -> usize {
    let count = |time: f64| result.refused_at.partition_point(|at| *at < time);
    count(to) - count(from)
}

/// The pace as columns, and below them a mark where the host refused.
pub(super) fn text(one: &Simulated, settings: &TrialSettings) -> String {
    let result = &one.result;
    let (columns, rows) = TEXT;
    let step = settings.seconds / columns as f64;
    let spans: Vec<(f64, f64)> = (0..columns).map(|n| (n as f64 * step, (n + 1) as f64 * step)).collect();
    let top = top(&[result]);
    let limit = result.limits.last().copied().unwrap_or(0.0);
    let heights: Vec<usize> = spans.iter().map(|(from, to)| eighths(pace(result, *from, *to) / top, rows)).collect();
    let mut picture = format!("{}: pace up to {top:.3}/s, limit {limit:.3}/s\n", one.policy.word());
    for row in (0..rows).rev() {
        let bar = |height: &usize| [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'][height.saturating_sub(8 * row).min(8)];
        let edge = if row == rows / 2 { '─' } else { '│' };
        let _ = writeln!(picture, "  {edge}{}", heights.iter().map(bar).collect::<String>());
    }
    let marks = spans.iter().map(|(from, to)| if refused(result, *from, *to) > 0 { 'x' } else { ' ' });
    let _ = writeln!(picture, "   {}  x = refused", marks.collect::<String>());
    picture
}

fn eighths(share: f64, rows: usize) -> usize {
    (share.clamp(0.0, 1.0) * 8.0 * rows as f64).round() as usize
}

/// A picture: its size, and what is drawn on white.
pub(super) struct Picture {
    pub(super) size: (f64, f64),
    pub(super) shapes: Vec<Shape>,
}

pub(super) enum Shape {
    Line {
        points: Vec<(f64, f64)>,
        dashed: bool,
        colour: &'static str,
    },
    Dot {
        at: (f64, f64),
        colour: &'static str,
    },
    /// `anchor` is the share of the text that is left of its place.
    Text {
        at: (f64, f64),
        anchor: f64,
        text: String,
        colour: &'static str,
    },
}

impl Shape {
    pub(super) fn colour(&self) -> &'static str {
        match self {
            Shape::Line { colour, .. } | Shape::Dot { colour, .. } | Shape::Text { colour, .. } => colour,
        }
    }
}

/// Draws the limit, and the pace and the refusals of each policy.
pub(super) fn picture(server: &str, settings: &TrialSettings, simulated: &[Simulated]) -> Picture {
    let results: Vec<&TrialResult> = simulated.iter().map(|one| &one.result).collect();
    let (top, seconds) = (top(&results), settings.seconds);
    let (left, above, right, below) = FRAME;
    let x = |at: f64| left + (right - left) * at / seconds;
    let y = |rate: f64| below - (below - above) * (rate / top).clamp(0.0, 1.0);
    let mut shapes = frame(server, top, seconds);
    if let Some(result) = results.first() {
        let limits = result.limits.iter().enumerate().map(|(second, limit)| (second as f64, *limit));
        let points = steps(limits, seconds).iter().map(|(at, rate)| (x(*at), y(*rate))).collect();
        shapes.push(Shape::Line { points, dashed: true, colour: "#2ecc71" });
    }
    for (number, one) in simulated.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = steps(one.result.paces.iter().copied(), seconds);
        let points = points.iter().map(|(at, rate)| (x(*at), y(*rate))).collect();
        shapes.push(Shape::Line { points, dashed: false, colour });
        let mut dots: Vec<i64> = one.result.refused_at.iter().map(|at| x(*at).round() as i64).collect();
        dots.dedup();
        let height = below + 20.0 + 4.0 * number as f64;
        shapes.extend(dots.iter().map(|dot| Shape::Dot { at: (*dot as f64, height), colour }));
        let at = (right - 60.0 * (simulated.len() - number) as f64, 16.0);
        shapes.push(Shape::Text { at, anchor: 0.0, text: one.policy.word().to_owned(), colour });
    }
    Picture { size: SIZE, shapes }
}

/// The axes, their numbers, the title and the legend.
fn frame(server: &str, top: f64, seconds: f64) -> Vec<Shape> {
    let (left, above, right, below) = FRAME;
    let text = |at, anchor, text| Shape::Text { at, anchor, text, colour: "#000000" };
    let axes = vec![(left, above), (left, below), (right, below)];
    let legend = "dashes: the limit; dots: refused".to_owned();
    let mut shapes = vec![
        text((left, 16.0), 0.0, server.to_owned()),
        Shape::Line { points: axes, dashed: false, colour: "#555555" },
        Shape::Text { at: (left, SIZE.1 - 3.0), anchor: 0.0, text: legend, colour: "#555555" },
    ];
    for share in [0.0, 0.5, 1.0] {
        let height = below - (below - above) * share + 4.0;
        shapes.push(text((left - 4.0, height), 1.0, format!("{:.2}/s", top * share)));
        let at = (left + (right - left) * share, below + 14.0);
        shapes.push(text(at, 0.5, format!("{:.0} min", seconds * share / 60.0)));
    }
    shapes
}

pub(super) fn svg(picture: &Picture) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
        picture.size.0, picture.size.1,
    );
    for shape in &picture.shapes {
        let _ = match shape {
            Shape::Line { points, dashed, colour } => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
                let dashes = if *dashed { " stroke-dasharray=\"4 3\"" } else { "" };
                let points = points.join(" ");
                writeln!(svg, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\"{dashes}/>")
            }
            Shape::Dot { at: (x, y), colour } => {
                writeln!(svg, "<circle cx=\"{x}\" cy=\"{y}\" r=\"1.5\" fill=\"{colour}\"/>")
            }
            Shape::Text { at: (x, y), anchor, text, colour } => {
                let anchor = ["start", "middle", "end"][(2.0 * anchor) as usize];
                let text = escaped(text);
                writeln!(
                    svg,
                    "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{text}</text>"
                )
            }
        };
    }
    svg + "</svg>\n"
}

/// The corners of a line that changes in steps.
fn steps(values: impl Iterator<Item = (f64, f64)>, end: f64) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (at, value) in values {
        match points.last() {
            Some((_, last)) if *last == value => {}
            Some((_, last)) => points.extend([(at, *last), (at, value)]),
            None => points.push((at, value)),
        }
    }
    points.extend(points.last().map(|(_, last)| (end, *last)));
    points
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
