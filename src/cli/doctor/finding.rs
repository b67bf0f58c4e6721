//! Findings: one line each, and for each problem a line with a fix to paste.

use serde_json::{Value, json};

use crate::cli::terminal::{DIM, GREEN, RED, TextStyle, YELLOW, harmless};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Ok,
    /// Works, or may work, but not for every client or not for long.
    Warn,
    /// Does not work.
    Fail,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) level: Level,
    /// What was checked, in one word. Scripts rely on these words: add new ones, never rename one.
    pub(super) about: &'static str,
    pub(super) text: String,
    pub(super) fix: Option<String>,
}

impl Finding {
    pub(super) fn ok(about: &'static str, text: impl Into<String>) -> Self {
        Finding { level: Level::Ok, about, text: text.into(), fix: None }
    }

    pub(super) fn warn(about: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { level: Level::Warn, about, text: text.into(), fix: Some(fix.into()) }
    }

    pub(super) fn fail(about: &'static str, text: impl Into<String>, fix: impl Into<String>) -> Self {
        Finding { level: Level::Fail, about, text: text.into(), fix: Some(fix.into()) }
    }

    fn line(&self, brush: TextStyle) -> String {
        let level = match self.level {
            Level::Ok => brush.stroke(GREEN, "ok  "),
            Level::Warn => brush.stroke(YELLOW, "warn"),
            Level::Fail => brush.stroke(RED, "fail"),
        };
        let mut line = format!(" {level}  {}\n", harmless(&self.text));
        if let Some(fix) = &self.fix {
            line += &format!("       {} {}\n", brush.stroke(DIM, "fix:"), harmless(fix));
        }
        line
    }

    fn json(&self) -> Value {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "fail",
        };
        json!({ "level": level, "about": self.about, "text": self.text, "fix": self.fix })
    }
}

pub(super) fn count(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

pub(super) fn page(findings: &[Finding], brush: TextStyle) -> String {
    let lines: String = findings.iter().map(|finding| finding.line(brush)).collect();
    let some = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let (failures, warnings) = (count(findings, Level::Fail), count(findings, Level::Warn));
    match (failures, warnings) {
        (0, 0) => format!("{lines} all is well\n"),
        (0, warnings) => format!("{lines} {}\n", some(warnings, "warning")),
        (failures, 0) => format!("{lines} {}\n", some(failures, "failure")),
        (failures, warnings) => format!("{lines} {}, {}\n", some(failures, "failure"), some(warnings, "warning")),
    }
}

pub(super) fn json(findings: &[Finding]) -> Value {
    json!({
        "failures": count(findings, Level::Fail),
        "warnings": count(findings, Level::Warn),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_stand_in_a_column_with_what_to_paste() {
        let found = [
            Finding::ok("proxy", "it answers"),
            Finding::warn("timeouts", "httpx gives up after 5 s", "httpx.Client(timeout=180)"),
            Finding::fail("client", "it is \u{1b}[31mnot trusted", "export X=y"),
        ];
        let expected = "\
\x20ok    it answers
 warn  httpx gives up after 5 s
       fix: httpx.Client(timeout=180)
 fail  it is \\u{1b}[31mnot trusted
       fix: export X=y
 1 failure, 1 warning
";
        assert_eq!(page(&found, TextStyle(false)), expected);
        assert_eq!(page(&found[..1], TextStyle(false)), " ok    it answers\n all is well\n");
        assert_eq!(json(&found)["findings"][2]["level"], "fail");
    }
}
