//! Writes a report on robots.txt as text: the verdict first, then the reason, then the rest.
//!
//! Escapes everything that comes from the origin, so that it cannot control the terminal.

use crate::cli::terminal::{BOLD, DIM, GREEN, RED, TextStyle, YELLOW, printable, span, time};
use crate::robots::{AgentsFrom, Reason, Report, ReportMode, ReportNote, ReportVerdict, RuleLine, TroubleReport};

/// How many rules are shown; the deciding rule is always among them.
const MOST_RULES: usize = 12;
const MOST_NOTES: usize = 20;

pub(super) fn page(report: &Report, paint: bool) -> String {
    let brush = TextStyle(paint);
    let verdict = match report.verdict {
        ReportVerdict::Allowed => brush.stroke(GREEN, "allowed"),
        ReportVerdict::Denied => brush.stroke(RED, "DENIED"),
        ReportVerdict::Unknown => brush.stroke(YELLOW, "UNKNOWN"),
    };
    let mut page = format!("{verdict}  {}\n\n", brush.stroke(BOLD, &printable(&report.url)));
    let rows = [
        ("why", vec![why(report)]),
        ("agent", vec![agent(report)]),
        ("delay", vec![delay(report)]),
        ("curtsy", curtsy(report)),
        ("file", file(report)),
        ("rules", rules(report, brush)),
        ("also", also(report, brush)),
    ];
    for (label, lines) in rows {
        for (number, line) in lines.iter().enumerate() {
            let label = if number == 0 { brush.stroke(DIM, &format!("{label:<8}")) } else { " ".repeat(8) };
            page.push_str(&format!("  {label}{line}\n"));
        }
    }
    page
}

fn why(report: &Report) -> String {
    let group = group(report);
    match (report.reason, &report.rule) {
        (Reason::Rule, Some(rule)) => format!("line {}, {group}: {}", rule.line, printable(&rule.rule)),
        (Reason::Rule | Reason::NoRule, _) => format!("no rule matches this path, {group}"),
        (Reason::NoGroup, _) => "robots.txt has no group for this client".to_owned(),
        (Reason::NoFile, _) => "there is no robots.txt, so nothing is forbidden".to_owned(),
        (Reason::TooComplicated, _) => {
            format!("the file is too complicated to judge this path by, {group}: it takes too many comparisons")
        }
        (Reason::RobotsTxt, _) => "robots.txt itself may always be fetched".to_owned(),
        (Reason::Throttled, _) => format!("the host answers 429 to requests for robots.txt{}", again(report)),
        (Reason::Unreachable, _) => {
            let known = report.trouble.as_ref().and_then(TroubleReport::cause);
            let why = report.file.error.as_deref().map(printable).or(known).map(|why| format!(": {why}"));
            format!("robots.txt cannot be fetched{}{}", why.unwrap_or_default(), again(report))
        }
    }
}

fn again(report: &Report) -> String {
    let again = |trouble: &TroubleReport| format!("; worth another try in {}", span(trouble.retry_after_s));
    report.trouble.as_ref().map_or_else(String::new, again)
}

fn group(report: &Report) -> String {
    match report.group.as_deref() {
        None => "no group".to_owned(),
        Some("*") => "group * (all clients)".to_owned(),
        Some(name) => format!("group {}", printable(name)),
    }
}

fn agent(report: &Report) -> String {
    let names: Vec<String> = report.agents.iter().map(|name| printable(name)).collect();
    let names = names.join(", ");
    match (report.agents_from, names.is_empty()) {
        (AgentsFrom::Configuration, _) => format!("{names} (robots.user_agent)"),
        (AgentsFrom::UserAgent, true) => "none; --user-agent names one".to_owned(),
        (AgentsFrom::UserAgent, false) => names,
    }
}

fn delay(report: &Report) -> String {
    let configured = time(report.delay.configured_ms);
    let Some(asked) = report.delay.asked_ms else {
        let asked = if report.file.exists.is_none() { "not known" } else { "none asked for" };
        return format!("{asked}; {configured} is configured");
    };
    let is_delay = |note: &&ReportNote| matches!(note.key.as_str(), "Crawl-delay" | "Request-rate");
    let lines: Vec<String> = report.notes.iter().flatten().filter(is_delay).map(said).collect();
    let lines = if lines.is_empty() { String::new() } else { format!(" ({})", lines.join("; ")) };
    let outcome = if report.delay.capped {
        format!("; robots.max_crawl_delay cuts it to {}", time(report.delay.obeyed_ms))
    } else if report.delay.obeyed_ms == 0 && asked > 0 {
        "; not obeyed by configuration".to_owned()
    } else if report.delay.obeyed_ms <= report.delay.configured_ms {
        format!("; {configured} is configured")
    } else {
        String::new()
    };
    format!("{} between requests{lines}{outcome}", time(asked))
}

/// Describes what curtsy does with a request.
fn curtsy(report: &Report) -> Vec<String> {
    let first = match (report.verdict, report.mode) {
        (_, ReportMode::Off) => "does not look at robots.txt of this host (mode off)",
        _ if report.exempt => "lets it through: this client is exempt (robots.exempt_user_agents)",
        (ReportVerdict::Allowed, _) => "lets it through",
        (ReportVerdict::Denied, _) if report.refused => "refuses it with 403",
        (ReportVerdict::Unknown, _) if report.refused => "refuses it with 503 until that is known",
        (_, ReportMode::Warn) => "lets it through and reports it (mode warn)",
        _ => "lets it through, as configured",
    };
    let mut lines = vec![first.to_owned()];
    if report.everything_denied {
        lines.push("also tunnels (CONNECT), because everything is forbidden".to_owned());
    } else if report.verdict == ReportVerdict::Denied && report.url.starts_with("https:") {
        lines.push("but not in a tunnel (CONNECT): its paths are invisible".to_owned());
    }
    lines
}

fn file(report: &Report) -> Vec<String> {
    let file = &report.file;
    let mut parts = Vec::new();
    parts.extend(file.status.map(|status| status.to_string()));
    parts.extend(match (file.cut, file.size_bytes) {
        (true, _) => Some("more than 500 KiB; only the first 500 are read".to_owned()),
        (false, Some(1)) => Some("1 byte".to_owned()),
        (false, size) => size.map(|size| format!("{size} bytes")),
    });
    parts.extend(match (file.exists, file.fetched, file.age_s) {
        (None, ..) => None,
        (_, _, Some(0)) | (_, true, None) => Some("fetched just now".to_owned()),
        (_, _, Some(age)) => Some(format!("fetched {} ago", span(age))),
        (_, false, None) => Some("fetched some time ago".to_owned()),
    });
    parts.extend(file.fresh_s.map(|fresh| match fresh {
        0 => "due to be fetched again".to_owned(),
        fresh => format!("good for {}", span(fresh)),
    }));
    let mut lines = vec![printable(&file.url)];
    lines.extend(file.redirects.iter().map(|url| format!("via {}", printable(url))));
    if !parts.is_empty() {
        lines.push(parts.join(", "));
    }
    if let (Some(trouble), Some(_)) = (&report.trouble, file.exists) {
        let kind = if trouble.throttled { "throttled" } else { "unreachable" };
        let tries = if trouble.times == 1 { "1 try".to_owned() } else { format!("{} tries", trouble.times) };
        lines.push(format!("{kind} since ({tries}), so this is the last good copy{}", again(report)));
    }
    lines
}

fn rules(report: &Report, brush: TextStyle) -> Vec<String> {
    let decides = |line: &RuleLine| report.rule.as_ref() == Some(line);
    let place = report.rules.iter().position(decides).unwrap_or_default();
    // Some rules before the deciding one, and the rest after it.
    let first = place.saturating_sub(MOST_RULES / 2).min(report.rules.len().saturating_sub(MOST_RULES));
    let shown = report.rules.iter().skip(first).take(MOST_RULES);
    let mut lines: Vec<String> = Vec::new();
    if first > 0 {
        lines.push(format!("  … {first} before"));
    }
    lines.extend(shown.map(|line| {
        let text = format!("{:>5} | {}", line.line, printable(&line.rule));
        if decides(line) { brush.stroke(BOLD, &format!("{text}  <- decides")) } else { text }
    }));
    let left = report.rules.len().saturating_sub(first + MOST_RULES);
    if left > 0 {
        lines.push(format!("  … {left} more; --json has all"));
    }
    lines
}

/// Lists the lines that are shown but not enforced.
fn also(report: &Report, brush: TextStyle) -> Vec<String> {
    let Some(notes) = &report.notes else {
        let hint = "sitemaps and signals are not kept; --fresh fetches the file again";
        return if report.file.exists == Some(true) { vec![brush.stroke(DIM, hint)] } else { Vec::new() };
    };
    let told = notes.iter().filter(|note| !matches!(note.key.as_str(), "Crawl-delay" | "Request-rate"));
    let mut lines: Vec<String> = told.map(said).collect();
    if lines.len() > MOST_NOTES {
        let left = lines.len() - MOST_NOTES;
        lines.truncate(MOST_NOTES);
        lines.push(format!("… {left} more; --json has all"));
    }
    if !lines.is_empty() {
        lines.push(brush.stroke(DIM, "(shown, not enforced)"));
    }
    lines
}

fn said(note: &ReportNote) -> String {
    format!("line {}, {}: {}", note.line, note.key, printable(&note.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report with this many rules; rule number `decisive` decides.
    fn of_rules(count: usize, decisive: usize) -> Report {
        let rules: Vec<_> = (1..=count).map(|line| serde_json::json!({"line": line, "rule": "Allow: /"})).collect();
        let report = serde_json::json!({
            "url": "http://a.test/", "verdict": "allowed", "reason": "rule", "rule": rules[decisive - 1], "group": "*",
            "agents": [], "agents_from": "user-agent", "exempt": false, "mode": "enforce", "refused": false,
            "everything_denied": false, "rules": rules, "trouble": null, "notes": null,
            "delay": {"asked_ms": null, "obeyed_ms": 0, "capped": false, "configured_ms": 1000},
            "file": {
                "url": "http://a.test/robots.txt", "redirects": [], "exists": true, "fetched": false, "status": null,
                "size_bytes": null, "cut": false, "age_s": 60, "fresh_s": 0, "error": null,
            },
        });
        serde_json::from_value(report).expect("a report")
    }

    #[test]
    fn of_many_rules_those_around_the_one_that_decides_are_shown() {
        for (count, decisive, before, after) in
            [(5, 5, 0, 0), (12, 1, 0, 0), (40, 1, 0, 28), (40, 30, 23, 5), (40, 40, 28, 0)]
        {
            let lines = rules(&of_rules(count, decisive), TextStyle(false));
            let decides = format!("{decisive:>5} | Allow: /  <- decides");
            assert!(lines.contains(&decides), "{count}, {decisive}: {lines:#?}");
            let shown = lines.iter().filter(|line| line.contains(" | ")).count();
            assert_eq!(before + shown + after, count, "{count}, {decisive}: {lines:#?}");
            assert_eq!(before > 0, lines[0] == format!("  … {before} before"), "{lines:#?}");
        }
    }
}
