//! The score cards as one web page that loads nothing, in light and dark.

use super::report::{JudgeReport, JudgedRun, points};

const STYLE: &str = "\
:root { color-scheme: light dark; --ink: #1c1d21; --paper: #fff; --faint: #6b6f7a; --line: #dfe1e6;
  --good: #18794e; --fair: #946800; --bad: #c62a2f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e9ec; --paper: #17181b; --faint: #9a9ea8; --line: #33363d;
    --good: #4cc38a; --fair: #f1a10d; --bad: #ff6369; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
code { overflow-wrap: anywhere; }
.scores { display: flex; gap: 3rem; flex-wrap: wrap; }
.scores > div { flex: 1; min-width: 18rem; }
.score { font-size: 3rem; font-weight: 700; line-height: 1.1; }
.faint { color: var(--faint); }
.good { color: var(--good); } .fair { color: var(--fair); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .5rem .75rem .5rem 0; border-top: 1px solid var(--line); }
td.points { white-space: nowrap; font-variant-numeric: tabular-nums; font-weight: 600; }
";

pub(super) fn page(report: &JudgeReport) -> String {
    let command = escaped(&report.command.join(" "));
    let scores: String = report.runs.iter().map(|run| score(report, run)).collect();
    let heads: String =
        report.runs.iter().map(|run| format!("<th>{}</th><th>Evidence</th>", label(report, run))).collect();
    let rules = report.runs.first().map_or(0, |run| run.card.rules.len());
    let rows: String = (0..rules).map(|number| row(report, number)).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>curtsy judge: {command}</title>\n<style>\n{STYLE}</style></head>\n<body>\n\
         <h1>How polite is this crawler?</h1>\n<p><code>{command}</code></p>\n<div class=\"scores\">\n{scores}</div>\n\
         <table>\n<thead><tr><th>Rule</th>{heads}</tr></thead>\n<tbody>\n{rows}</tbody></table>\n\
         <p class=\"faint\">Made by curtsy judge with web number {}. {} of 100 passes.</p>\n</body></html>\n",
        report.seed, report.pass
    )
}

fn label(report: &JudgeReport, run: &JudgedRun) -> &'static str {
    match (report.runs.len(), run.curtsy) {
        (1, _) => "Points",
        (_, false) => "Without curtsy",
        (_, true) => "With curtsy",
    }
}

fn score(report: &JudgeReport, run: &JudgedRun) -> String {
    let colour = if run.card.score.is_some_and(|score| score >= report.pass) { "good" } else { "bad" };
    let score = run.card.score.map_or_else(|| "–".to_owned(), |score| score.to_string());
    let (label, summary) = (label(report, run), escaped(&run.summary()));
    format!(
        "<div><div>{label}</div><div class=\"score {colour}\">{score}</div>\
         <p class=\"faint\">{summary}<br>Judged by rules worth {} of 100 points.</p></div>\n",
        run.card.tested
    )
}

fn row(report: &JudgeReport, number: usize) -> String {
    let cells = report.runs.iter().map(|run| {
        let rule = &run.card.rules[number];
        let colour = match rule.earned {
            None => "faint",
            Some(earned) if earned >= f64::from(rule.points) => "good",
            Some(earned) if earned > 0.0 => "fair",
            Some(_) => "bad",
        };
        format!("<td class=\"points {colour}\">{}</td><td>{}</td>", points(rule), escaped(&rule.evidence))
    });
    let (rule, cells): (_, String) = (&report.runs[0].card.rules[number], cells.collect());
    format!("<tr><td>{}<br><span class=\"faint\">{}</span></td>{cells}</tr>\n", rule.title, rule.source)
}

/// Foreign text stays text: the command line, and what the client sent.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Arrival, ScoreCard, SyntheticWeb};

    #[test]
    fn what_the_client_sent_stays_text() {
        let arrival = Arrival { path: "/".to_owned(), user_agent: "<script>x".to_owned(), ..Arrival::default() };
        let card = ScoreCard::of(&SyntheticWeb::new(1), vec![arrival]);
        let elsewhere = vec!["<b>.test".to_owned()];
        let run = JudgedRun { curtsy: false, exit_code: 3, timed_out: false, tunnels: 1, elsewhere, card };
        let report = JudgeReport::new(vec!["a".to_owned(), "<i>&".to_owned()], 1, 80, vec![run]);
        let page = page(&report);
        assert!(
            !page.contains("<script>") && !page.contains("<b>.test") && page.contains("a &lt;i&gt;&amp;"),
            "{page}"
        );
        assert!(page.contains("exit code 3") && page.contains("score bad") && !page.contains("src="), "{page}");
    }
}
