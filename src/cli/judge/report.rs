//! The score cards of a judgement, as JSON and as text.

use serde::Serialize;

use crate::cli::terminal::{BOLD, DIM, GREEN, RED, TextStyle, YELLOW, printable};
use crate::judge::{ScoreCard, ScoredRule};

#[derive(Clone, Debug, Serialize)]
pub(super) struct JudgeReport {
    pub(super) command: Vec<String>,
    pub(super) seed: u64,
    pub(super) pass: u32,
    pub(super) passed: bool,
    /// One, or a second one behind curtsy.
    pub(super) runs: Vec<JudgedRun>,
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct JudgedRun {
    pub(super) curtsy: bool,
    pub(super) exit_code: u8,
    /// Whether the command was ended because its time was over.
    pub(super) timed_out: bool,
    pub(super) tunnels: usize,
    /// Hosts outside the web that were asked for.
    pub(super) elsewhere: Vec<String>,
    #[serde(flatten)]
    pub(super) card: ScoreCard,
}

impl JudgeReport {
    pub(super) fn new(command: Vec<String>, seed: u64, pass: u32, runs: Vec<JudgedRun>) -> JudgeReport {
        let passed = runs.last().and_then(|run| run.card.score).is_some_and(|score| score >= pass);
        JudgeReport { command, seed, pass, passed, runs }
    }

    pub(super) fn text(&self, brush: TextStyle) -> String {
        let command = self.command.iter().map(|part| printable(part)).collect::<Vec<_>>().join(" ");
        let mut text = brush.stroke(BOLD, &command) + "\n";
        for run in &self.runs {
            text += &format!("{}{}\n", self.label(run), run.summary());
        }
        text.push('\n');
        let first = self.runs.first().map_or(&[][..], |run| &run.card.rules);
        for (number, rule) in first.iter().enumerate() {
            let rules = || self.runs.iter().map(|run| (run, &run.card.rules[number]));
            let points: Vec<String> = rules().map(|(_, rule)| paint(rule, brush)).collect();
            text += &format!("{}  {}  {}\n", points.join(" "), rule.title, brush.stroke(DIM, rule.source));
            for (run, rule) in rules() {
                let indent = " ".repeat(WIDTH * self.runs.len() + self.runs.len() + 1);
                text += &format!("{indent}{}{}\n", self.label(run), printable(&rule.evidence));
            }
        }
        text.push('\n');
        for run in &self.runs {
            text += &format!("{}{}\n", self.label(run), self.verdict(run, brush));
        }
        text
    }

    /// Which run it is, if there are two.
    fn label(&self, run: &JudgedRun) -> &'static str {
        match (self.runs.len(), run.curtsy) {
            (1, _) => "",
            (_, false) => "without curtsy: ",
            (_, true) => "with curtsy:    ",
        }
    }

    fn verdict(&self, run: &JudgedRun, brush: TextStyle) -> String {
        let Some(score) = run.card.score else { return "not judged: the command met no rule".to_owned() };
        let colour = if score >= self.pass { GREEN } else { RED };
        let score = brush.stroke(colour, &format!("score {score} of 100"));
        format!("{score} (judged by rules worth {} of 100 points; {} passes)", run.card.tested, self.pass)
    }
}

impl JudgedRun {
    /// What the client did, in one line or a few.
    pub(super) fn summary(&self) -> String {
        let card = &self.card;
        let (requests, hosts) = (count(card.requests, "request"), count(card.hosts.len(), "host"));
        let ended = match (self.timed_out, self.exit_code) {
            (true, _) => "; ended because its time was over".to_owned(),
            (false, 0) => String::new(),
            (false, code) => format!("; the command failed with exit code {code}"),
        };
        let mut text = format!("{requests} to {hosts} in {:.1} s{ended}", card.seconds);
        let agents: Vec<String> = card.user_agents.iter().map(|agent| printable(agent)).collect();
        text += &format!("; User-Agent {}", agents.join(", "));
        if self.tunnels > 0 {
            text += &format!("; {} refused (--https serves some)", count(self.tunnels, "tunnel"));
        }
        if !self.elsewhere.is_empty() {
            let hosts: Vec<String> = self.elsewhere.iter().map(|host| printable(host)).collect();
            text += &format!("; refused hosts outside the web: {}", hosts.join(", "));
        }
        text
    }
}

/// "1 host", "2 hosts".
pub(super) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// The width of a column of points.
const WIDTH: usize = 8;

/// "7.5/10", or "–" if the rule was not met.
pub(super) fn points(rule: &ScoredRule) -> String {
    rule.earned.map_or_else(|| "–".to_owned(), |earned| format!("{earned}/{}", rule.points))
}

fn paint(rule: &ScoredRule, brush: TextStyle) -> String {
    let colour = match rule.earned {
        None => DIM,
        Some(earned) if earned >= f64::from(rule.points) => GREEN,
        Some(earned) if earned > 0.0 => YELLOW,
        Some(_) => RED,
    };
    brush.stroke(colour, &format!("{:>WIDTH$}", points(rule)))
}
