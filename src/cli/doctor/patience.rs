//! Finds clients that give up before their turn comes: compares their timeouts with how long a request may wait, and
//! how long requests wait now.

use std::time::Duration;

use super::command::{ProbeCommand, ProgramKind};
use super::finding::Finding;
use crate::programs::{self, Program};

const ABOUT: &str = "timeouts";

/// How long a request may have to wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProgramWaits {
    pub(super) most: Duration,
    /// The longest wait of a queued request, past and expected together; `None` if unknown.
    pub(super) now: Option<Duration>,
    /// Whether curtsy reads requests in tunnels, so that CONNECT does not wait.
    pub(super) intercepts: bool,
}

impl ProgramWaits {
    /// Checks programs with their default timeouts.
    pub(super) fn check(&self, names: &[&str]) -> Vec<Finding> {
        let known: Vec<&Program> = names.iter().filter_map(|name| programs::named(name)).collect();
        let mut findings: Vec<Finding> = known.iter().filter_map(|program| self.look(program)).collect();
        if findings.is_empty() && !known.is_empty() {
            let names: Vec<&str> = known.iter().map(|program| program.name).collect();
            let text = format!("{}: by default longer than a request is held ({})", names.join(", "), self.words());
            findings.push(Finding::ok(ABOUT, format!("timeouts of {text}")));
        }
        findings
    }

    /// Checks one command, whose arguments or script may set other timeouts.
    pub(super) fn check_command(&self, command: &ProbeCommand, names: &[&str]) -> Vec<Finding> {
        if let Some((option, seconds)) = option(command) {
            return vec![self.own(&option, seconds, names.first().copied().unwrap_or_default())];
        }
        let says = command.script.as_deref().is_some_and(|script| script.contains("timeout"));
        if says {
            let text = format!(
                "the script sets timeouts itself; they must be longer than a request is held ({})",
                self.words()
            );
            return vec![Finding::ok(ABOUT, text)];
        }
        self.check(names)
    }

    fn look(&self, program: &Program) -> Option<Finding> {
        let waits = program.gives_up;
        let seconds =
            if self.intercepts { waits.plain.into_iter().chain(waits.inside).min() } else { waits.soonest() }?;
        let text = format!("{} gives up after {seconds} s by default, and a request {}", program.name, self.held());
        self.is_too_short(f64::from(seconds)).then(|| Finding::warn(ABOUT, text, program.longer_than(self.most)))
    }

    /// Returns the finding for a timeout among the command's arguments.
    fn own(&self, option: &str, seconds: f64, name: &str) -> Finding {
        if !self.is_too_short(seconds) {
            return Finding::ok(ABOUT, format!("{option} is longer than a request is held ({})", self.words()));
        }
        let text = format!("{option}: it gives up after {seconds} s, and a request {}", self.held());
        let fix =
            programs::named(name).map_or_else(|| "a longer timeout".to_owned(), |known| known.longer_than(self.most));
        Finding::warn(ABOUT, text, fix)
    }

    fn is_too_short(&self, seconds: f64) -> bool {
        seconds < self.most.as_secs_f64()
    }

    fn held(&self) -> String {
        format!("may be held {}", self.words())
    }

    fn words(&self) -> String {
        let most = format!("up to {} s", self.most.as_secs_f64());
        match self.now {
            Some(now) if !now.is_zero() => format!("{most}; in the queue now up to {:.0} s", now.as_secs_f64().ceil()),
            _ => most,
        }
    }
}

/// Returns a timeout among the arguments: how it is written, and its seconds.
fn option(command: &ProbeCommand) -> Option<(String, f64)> {
    let names: &[&str] = match command.kind {
        ProgramKind::Curl => &["-m", "--max-time", "--connect-timeout"],
        ProgramKind::Wget => &["-T", "--timeout", "--read-timeout"],
        _ => return None,
    };
    let mut words = command.arguments.iter().peekable();
    while let Some(word) = words.next() {
        for name in names {
            let value = match word.strip_prefix(name) {
                Some("") => words.peek().map(|value| value.as_str()),
                Some(rest) if name.starts_with("--") => rest.strip_prefix('='),
                rest => rest,
            };
            if let Some(seconds) = value.and_then(|value| value.parse::<f64>().ok()) {
                return Some((format!("{name} {seconds}"), seconds));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::finding::Level;

    const WAITS: ProgramWaits =
        ProgramWaits { most: Duration::from_secs(150), now: Some(Duration::from_secs(12)), intercepts: false };

    fn command(kind: ProgramKind, line: &str, script: Option<&str>) -> ProbeCommand {
        let arguments = line.split(' ').map(str::to_owned).collect();
        ProbeCommand { kind, program: "x".into(), arguments, script: script.map(str::to_owned) }
    }

    #[test]
    fn a_program_that_gives_up_too_soon_gets_the_setting_to_change() {
        let found = WAITS.check(&["curl", "httpx", "Go"]);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].text.contains("httpx gives up after 5 s") && found[0].text.contains("in the queue now up to 12 s")
        );
        assert_eq!(found[0].fix.as_deref(), Some("httpx.Client(timeout=180)"));
        assert!(found[1].text.starts_with("Go gives up after 60 s"));
        let read = ProgramWaits { intercepts: true, ..WAITS }.check(&["curl", "Go"]);
        assert_eq!((read.len(), read[0].level), (1, Level::Ok), "CONNECT is answered at once there");
    }

    #[test]
    fn arguments_and_scripts_count_more_than_defaults() {
        for (kind, line, expected) in [
            (ProgramKind::Curl, "-sS -m 3 http://a.test/", Some(3.0)),
            (ProgramKind::Curl, "-m3", Some(3.0)),
            (ProgramKind::Curl, "--max-time 0.5", Some(0.5)),
            (ProgramKind::Wget, "--timeout=7 x", Some(7.0)),
            (ProgramKind::Wget, "-q http://a.test/", None),
            (ProgramKind::Node, "-m 3", None),
        ] {
            assert_eq!(option(&command(kind, line, None)).map(|(_, seconds)| seconds), expected, "{line}");
        }
        let short = WAITS.check_command(&command(ProgramKind::Curl, "-m 3", None), &["curl"]);
        assert!(
            short[0].level == Level::Warn && short[0].fix.as_deref().is_some_and(|fix| fix.contains("--max-time 180"))
        );
        let long = WAITS.check_command(&command(ProgramKind::Curl, "-m 300", None), &["curl"]);
        assert_eq!(long[0].level, Level::Ok);
        let script = Some("httpx.get(url, timeout=300)");
        let told = WAITS.check_command(&command(ProgramKind::Python(vec!["httpx"]), "x.py", script), &["httpx"]);
        assert_eq!(told[0].level, Level::Ok);
    }
}
