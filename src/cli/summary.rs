//! Describes the results of a command's requests as text for the user.
//!
//! Every number is the value of a counter. Zeros are left out, except for requests and waiting.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::terminal::{BOLD, TextStyle, cut, printable, table};
use crate::admin::status::RequestsJson;
use crate::app::{CountedHost, TallyRow, TallyWaits};
use crate::config::{Config, Mode, RobotsMode};

/// How many hosts are listed; users do not read longer lists.
const MOST_HOSTS: usize = 10;

/// A command that has ended.
pub(super) struct Ended {
    /// The name of its program.
    pub(super) program: String,
    /// Busiest first.
    pub(super) hosts: Vec<CountedHost>,
    pub(super) tunnels: u64,
    pub(super) began: Instant,
    pub(super) took: Duration,
    /// Whether the command was told to trust a CA, so that curtsy read its tunnels.
    pub(super) intercepts: bool,
    /// Whether it had no other way to the network than the proxy.
    pub(super) isolated: bool,
}

/// Describes the proxy of a command. `is_set_up` says that its CA is the one of `curtsy setup`, `tunnelled` why HTTPS
/// is not decrypted, if the user has not just said so.
pub(super) fn greeting(config: &Config, address: SocketAddr, is_set_up: bool, tunnelled: Option<&str>) -> String {
    let delay = humantime::format_duration(config.politeness.delay);
    let pace = match config.politeness.mode {
        Mode::Enforce => format!("delay {delay}"),
        Mode::Report => format!("delay {delay}, only reported"),
        Mode::Off => "no delay".to_owned(),
    };
    let robots = match config.politeness.robots {
        RobotsMode::Enforce => "robots.txt enforced",
        RobotsMode::Warn => "robots.txt only reported",
        RobotsMode::Off => "robots.txt off",
    };
    let https = match (config.tls.intercept, tunnelled) {
        (true, _) => {
            let which = if config.tls.only.is_empty() { "HTTPS" } else { "HTTPS to the hosts in tls.only" };
            let trusting = if is_set_up { "the CA of `curtsy setup`" } else { "a CA that only this command trusts" };
            format!("\n{which} is decrypted with {trusting}:\n{INSIDE}")
        }
        (false, Some(why)) => format!("\nHTTPS is tunnelled, unread: {why}"),
        (false, None) => String::new(),
    };
    let what = match (config.politeness.mode, config.politeness.robots) {
        (Mode::Report, RobotsMode::Warn) => "only reports".to_owned(),
        _ => format!("{pace}, {robots}"),
    };
    format!("proxy for this command: {address}, {what}{https}")
}

/// What interception is for, and how to do without.
const INSIDE: &str = "robots.txt and 429 count inside it, too; --no-intercept tunnels it";

/// Returns the summary for a command whose requests were delayed and denied as usual.
pub(super) fn closing(ended: &Ended) -> String {
    if ended.hosts.is_empty() {
        return nothing(ended);
    }
    let sum = sum(&ended.hosts);
    let mut parts = vec![format!("{} in {}", visits(&ended.hosts), long(ended.took))];
    parts.extend(not_sent(&sum));
    parts.push(waited(&sum.waits));
    parts.extend(denials(&sum));
    parts.extend(troubles(&sum));
    let mut page = wrapped(&parts, "; ", "");
    for counted in ended.hosts.iter().take(MOST_HOSTS) {
        page.push_str(&of_host(counted));
    }
    page.push_str(&and_more(&ended.hosts));
    page.push_str(&about_addresses(&ended.hosts));
    page.push_str(&about_tunnels(ended, &sum));
    page
}

/// Returns the summary for a command in report mode, where nothing is delayed or denied.
pub(super) fn report(ended: &Ended, brush: TextStyle) -> String {
    if ended.hosts.is_empty() {
        return nothing(ended);
    }
    let sum = sum(&ended.hosts);
    let held = match sum.refused {
        0 => "nothing was held or denied".to_owned(),
        refused => format!("nothing was held; {refused} refused"),
    };
    let mut page = format!("{} in {}; {held}\n", visits(&ended.hosts), long(ended.took));
    page.push_str("what curtsy would have done:\n");
    page.push_str(&report_table(&ended.hosts, brush));
    page.push_str(&and_more(&ended.hosts));
    page.push_str(&rules(&ended.hosts));
    for line in verdict(ended, &sum).lines() {
        page.push_str(&(brush.stroke(BOLD, line) + "\n"));
    }
    page.push_str(&about_addresses(&ended.hosts));
    page.push_str(&about_tunnels(ended, &sum));
    page
}

/// Returns the summary for a command without requests, which is often a sign of a mistake.
fn nothing(ended: &Ended) -> String {
    let hint = match ended.isolated {
        true => "a program that ignores it has no other way out (--isolate)",
        false => "some programs ignore it (--isolate stops them)",
    };
    format!("no request came through the proxy in {}:\nlocalhost never does, and {hint}\n", long(ended.took))
}

/// Returns the summary of a shared curtsy: what it did for all its clients while the command ran.
pub(super) fn meanwhile(requests: &RequestsJson, took: Duration) -> String {
    let RequestsJson { total, denied, rejected, abandoned, failed, waited, .. } = *requests;
    let mut parts = vec![
        format!("in {} that curtsy had {} from all its clients", long(took), counted(total, "request")),
        format!("{waited} had to wait"),
    ];
    let others = [(denied, "denied"), (rejected, "refused"), (abandoned, "gave up"), (failed, "failed")];
    parts.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.join("; ") + "\nmore with `curtsy hosts`"
}

fn sum(hosts: &[CountedHost]) -> TallyRow {
    hosts.iter().fold(TallyRow::default(), |sum, CountedHost { row, .. }| TallyRow {
        visits: sum.visits + row.visits,
        waits: sum.waits.and(row.waits),
        throttled: sum.throttled + row.throttled,
        retried: sum.retried + row.retried,
        forbidden: sum.forbidden + row.forbidden,
        rules: Vec::new(),
        unknown: sum.unknown + row.unknown,
        refused: sum.refused + row.refused,
        not_allowed: sum.not_allowed + row.not_allowed,
        gave_up: sum.gave_up + row.gave_up,
        failed: sum.failed + row.failed,
        cached: sum.cached + row.cached,
        shared: sum.shared + row.shared,
        unchanged: sum.unchanged + row.unchanged,
        blind: sum.blind + row.blind,
        rejection: None,
        would_wait: sum.would_wait.and(row.would_wait),
        would_refuse: sum.would_refuse + row.would_refuse,
        would_end: sum.would_end.max(row.would_end),
    })
}

fn visits(hosts: &[CountedHost]) -> String {
    let visits = hosts.iter().map(|counted| counted.row.visits).sum();
    let visited = hosts.iter().filter(|counted| counted.row.visits > 0).count() as u64;
    format!("{} to {}", counted(visits, "request"), counted(visited, "host"))
}

/// Describes the requests that did not load the site, or little.
fn not_sent(row: &TallyRow) -> Vec<String> {
    let mut parts = Vec::new();
    if row.cached > 0 {
        let were = if row.cached == 1 { "was" } else { "were" };
        let sources = [(row.cached.saturating_sub(row.shared), "from the cache"), (row.shared, "shared")];
        let sources = sources.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        parts.push(format!("{} {were} not sent ({})", row.cached, sources.collect::<Vec<_>>().join(", ")));
    }
    if row.unchanged > 0 {
        parts.push(format!("{} unchanged (304)", row.unchanged));
    }
    parts
}

fn waited(waits: &TallyWaits) -> String {
    if waits.count == 0 {
        return "none had to wait".to_owned();
    }
    format!("waited {} in all (longest {})", long(waits.total), long(waits.longest))
}

fn denials(row: &TallyRow) -> Vec<String> {
    let mut parts = Vec::new();
    if row.forbidden > 0 {
        parts.push(format!("{} denied by robots.txt", row.forbidden));
    }
    if row.unknown > 0 {
        parts.push(format!("{} denied because robots.txt could not be fetched", row.unknown));
    }
    parts
}

fn troubles(row: &TallyRow) -> Vec<String> {
    let mut parts = Vec::new();
    if row.throttled > 0 {
        let again = if row.retried > 0 { format!(" ({} sent again)", row.retried) } else { String::new() };
        parts.push(format!("{} throttled{again}", row.throttled));
    }
    let others = [(row.refused, "refused"), (row.gave_up, "gave up"), (row.failed, "failed")];
    parts.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts
}

fn of_host(counted: &CountedHost) -> String {
    let row = &counted.row;
    let mut parts = vec![counted.host.clone(), self::counted(row.visits, "request")];
    if row.cached > 0 {
        parts.push(format!("{} not sent", row.cached));
    }
    parts.extend(delay(counted).map(|delay| format!("delay {delay}")));
    if row.waits.count > 0 {
        parts.push(format!("waited {}", long(row.waits.total)));
    }
    if let Some(rule) = row.rules.first() {
        let more = if row.rules.len() > 1 { ", …" } else { "" };
        parts.push(format!("{} denied ({}, line {}{more})", row.forbidden, printable(&rule.text), rule.line));
    }
    if row.unknown > 0 {
        parts.push(format!("{} denied without robots.txt", row.unknown));
    }
    parts.extend(troubles(row));
    wrapped(&parts, "  ", "  ")
}

/// The width of a terminal, without the "curtsy: " before each line.
const WIDTH: usize = 80 - "curtsy: ".len();

/// The longest name that leaves room for the numbers of a report.
const LONGEST_NAME: usize = 28;

/// Joins the parts in lines that fit into a terminal. A part is never split; further lines are indented more.
fn wrapped(parts: &[String], separator: &str, indent: &str) -> String {
    let length = |text: &str| text.chars().count();
    let (mut page, mut line) = (String::new(), indent.to_owned());
    for (index, part) in parts.iter().enumerate() {
        let more = if index == 0 { String::new() } else { separator.to_owned() };
        if index > 0 && length(&line) + length(&more) + length(part) > WIDTH {
            page.push_str(&format!("{line}{}\n", more.trim_end()));
            line = format!("{indent}    {part}");
        } else {
            line.push_str(&(more + part));
        }
    }
    page + &line + "\n"
}

fn delay(counted: &CountedHost) -> Option<String> {
    counted.delay.map(|(delay, why)| format!("{} ({why})", long(delay)))
}

fn and_more(hosts: &[CountedHost]) -> String {
    match hosts.len().saturating_sub(MOST_HOSTS) {
        0 => String::new(),
        more => format!("  and {}\n", counted(more as u64, "more host")),
    }
}

/// Says how to allow addresses that requests were refused for. curtsy dials public ones only, unless told otherwise.
fn about_addresses(hosts: &[CountedHost]) -> String {
    let refused = hosts.iter().filter(|counted| counted.row.not_allowed > 0).take(MOST_HOSTS);
    let names: Vec<String> = refused.map(|counted| printable(&counted.host)).collect();
    if names.is_empty() {
        return String::new();
    }
    let are = if names.len() == 1 { "is no public address" } else { "are no public addresses" };
    format!(
        "{} {are}; to allow it:\n  export CURTSY_ACCESS__ALLOW_DESTINATIONS={}\n",
        names.join(", "),
        names.join(",")
    )
}

/// Describes tunnels whose requests curtsy could not see.
fn about_tunnels(ended: &Ended, sum: &TallyRow) -> String {
    let mut page = String::new();
    if ended.tunnels > 0 && !ended.intercepts {
        page.push_str("HTTPS went through tunnels, unread: robots.txt paths and 429 did not count\n");
    }
    page.extend(ended.hosts.iter().filter_map(|counted| about_rejection(ended, counted)).take(MOST_HOSTS));
    if sum.blind > 0 {
        let tunnels = counted(sum.blind, "tunnel");
        page.push_str(&format!(
            "requests inside {tunnels} could not be told apart (HTTP/2 and the like): one visit each\n"
        ));
    }
    page
}

/// Describes what was lost because a client rejected curtsy's certificate for this host.
fn about_rejection(ended: &Ended, counted: &CountedHost) -> Option<String> {
    let (rejection, since) = (counted.row.rejection?, counted.row.visits_since_rejection()?);
    let (host, program) = (&counted.host, rejection.program.unwrap_or(&ended.program));
    let lost = match since {
        0 => String::new(),
        _ => format!("  {} in tunnels, where robots.txt paths and 429 do not count\n", self::counted(since, "request")),
    };
    let then = if since == 0 { "no request came after that" } else { "since then:" };
    let advice = format!("  --bypass {host} tunnels it from the start");
    Some(format!("{host}: {program} rejected curtsy's certificate; {then}\n{lost}{advice}\n"))
}

fn report_table(hosts: &[CountedHost], brush: TextStyle) -> String {
    let mut head = vec!["  HOST", "REQUESTS", "DELAYED", "LONGEST", "DENIED", "REFUSED", "DELAY"];
    let row = |counted: &CountedHost| {
        let row = &counted.row;
        vec![
            format!("  {}", cut(&counted.host, LONGEST_NAME)),
            row.visits.to_string(),
            row.would_wait.count.to_string(),
            long(row.would_wait.longest),
            (row.forbidden + row.unknown).to_string(),
            (row.would_refuse + row.refused).to_string(),
            delay(counted).unwrap_or_default(),
        ]
    };
    let mut rows: Vec<Vec<String>> = hosts.iter().take(MOST_HOSTS).map(row).collect();
    // Long waits are rare, and the column would not fit into a terminal.
    let refused = head.len() - 2;
    if rows.iter().all(|row| row[refused] == "0") {
        head.remove(refused);
        rows.iter_mut().for_each(|row| drop(row.remove(refused)));
    }
    let numbers: Vec<usize> = (1..head.len() - 1).collect();
    table(&head, &rows, &numbers, brush)
}

/// Lists the rules that would have denied requests.
fn rules(hosts: &[CountedHost]) -> String {
    let mut page = String::new();
    for CountedHost { host, row, .. } in hosts.iter().take(MOST_HOSTS) {
        for rule in &row.rules {
            let text = printable(&rule.text);
            page.push_str(&format!("  denied {}: {host}/robots.txt line {}, {text}\n", times(rule.count), rule.line));
        }
        if row.unknown > 0 {
            page.push_str(&format!("  denied {}: {host}/robots.txt could not be fetched\n", times(row.unknown)));
        }
    }
    page
}

/// Describes how long the command would have taken. This is a lower bound: a client that has to wait for a response
/// sends its next request later, never earlier.
fn verdict(ended: &Ended, sum: &TallyRow) -> String {
    let polite = sum.would_end.map_or(ended.took, |end| end.duration_since(ended.began)).max(ended.took);
    let mut page = match sum.would_wait.count {
        0 => "none would have had to wait\n".to_owned(),
        count => format!(
            "{count} of {} would have waited: at least {} instead of {}\n",
            counted(sum.visits, "request"),
            long(polite),
            long(ended.took)
        ),
    };
    if sum.throttled > 0 {
        page.push_str(&format!(
            "{} told to slow down (429, 503): that is what the delay is for\n",
            times(sum.throttled)
        ));
    }
    if sum.would_refuse > 0 {
        page.push_str(&format!(
            "{} would have been refused, because the wait is longer than politeness.max_wait, and told when to retry\n",
            counted(sum.would_refuse, "request")
        ));
    }
    page
}

fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        count => format!("{count} times"),
    }
}

/// Formats a duration for reading, no more exact than is useful.
fn long(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match duration.as_millis() {
        0 => "0 s".to_owned(),
        millis @ 1..=99 => format!("{millis} ms"),
        100..=119_999 => format!("{:.1} s", duration.as_secs_f64()),
        120_000..=7_199_999 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_as_exact_as_it_helps() {
        let told = |millis| long(Duration::from_millis(millis));
        assert_eq!([told(0), told(85), told(1_000), told(119_900)], ["0 s", "85 ms", "1.0 s", "119.9 s"]);
        assert_eq!([told(125_000), told(7_260_000)], ["2 min 5 s", "2 h 1 min"]);
    }

    fn ended(rows: Vec<(&str, TallyRow)>) -> Ended {
        let delay = Some((Duration::from_secs(1), "configured"));
        let counted = |(host, row): (&str, TallyRow)| CountedHost { host: host.to_owned(), row, delay };
        let hosts = rows.into_iter().map(counted).collect();
        let took = Duration::from_millis(1_500);
        let (program, began) = ("python3".to_owned(), crate::clock::now());
        Ended { program, hosts, tunnels: 0, began, took, intercepts: false, isolated: false }
    }

    fn waits(count: u64, millis: u64) -> TallyWaits {
        TallyWaits { count, total: Duration::from_millis(millis), longest: Duration::from_millis(millis / 2) }
    }

    #[test]
    fn the_end_tells_what_was_and_leaves_out_what_was_not() {
        let row =
            TallyRow { visits: 3, waits: waits(2, 2_000), throttled: 1, retried: 1, gave_up: 2, ..TallyRow::default() };
        let mut rows = vec![("a.test", row)];
        rows.extend(std::iter::repeat_n(("b.test", TallyRow { visits: 1, ..TallyRow::default() }), 12));
        let page = closing(&ended(rows));
        let first = "15 requests to 13 hosts in 1.5 s; waited 2.0 s in all (longest 1.0 s);\n    1 throttled (1 sent again); \
                     2 gave up\n";
        assert!(page.starts_with(first), "{page}");
        assert!(page.contains("\n  a.test  3 requests  delay 1.0 s (configured)  waited 2.0 s"), "{page}");
        assert!(page.ends_with("\n  and 3 more hosts\n") && !page.contains("denied"), "{page}");
        assert!(closing(&ended(Vec::new())).starts_with("no request came through the proxy in 1.5 s:\n"));
    }

    #[test]
    fn the_end_tells_what_was_not_sent() {
        let row = TallyRow { visits: 488, cached: 412, shared: 32, unchanged: 96, ..TallyRow::default() };
        let page = closing(&ended(vec![("a.test", row)]));
        let said = "488 requests to 1 host in 1.5 s;
    412 were not sent (380 from the cache, 32 shared);
    96 unchanged (304); none had to wait\n";
        assert!(page.starts_with(said), "{page}");
        assert!(page.contains("a.test  488 requests  412 not sent"), "{page}");
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
        let row = TallyRow { cached: 1, ..TallyRow::default() };
        let page = closing(&ended(vec![("a.test", row)]));
        assert!(page.contains("; 1 was not sent (1 from the cache);\n    none had to wait"), "{page}");
    }

    #[test]
    fn a_long_summary_fits_into_a_terminal() {
        let mut row = TallyRow { visits: 18, waits: waits(17, 16_800), gave_up: 1, ..TallyRow::default() };
        row.forbidden_by(3, || "Disallow: /private/".to_owned());
        let page = closing(&ended(vec![("www.example.com", row)]));
        assert!(page.lines().all(|line| line.len() <= WIDTH), "{page}");
        assert!(page.contains("\n      1 denied (Disallow: /private/, line 3)  1 gave up\n"), "{page}");
        assert_eq!(wrapped(&["x".repeat(100), "y".to_owned()], "; ", ""), format!("{};\n    y\n", "x".repeat(100)));
    }

    #[test]
    fn what_a_rejected_certificate_cost_is_named() {
        let mut pinned = TallyRow { visits: 1, ..TallyRow::default() };
        pinned.rejected_by(None);
        pinned.visits += 12;
        let mut gone = TallyRow::default();
        gone.rejected_by(Some("Chromium"));
        let page = closing(&Ended { intercepts: true, ..ended(vec![("pinned.test", pinned), ("b.test", gone)]) });
        let told = "\
pinned.test: python3 rejected curtsy's certificate; since then:
  12 requests in tunnels, where robots.txt paths and 429 do not count
  --bypass pinned.test tunnels it from the start
b.test: Chromium rejected curtsy's certificate; no request came after that
  --bypass b.test tunnels it from the start
";
        assert!(page.ends_with(told), "{page}");
    }

    #[test]
    fn the_usual_greeting_fits_into_80_columns() {
        let (mut config, address) = (Config::default(), "127.0.0.1:41873".parse().unwrap());
        config.tls.intercept = true;
        let told = greeting(&config, address, false, None);
        assert!(told.lines().all(|line| "curtsy: ".len() + line.chars().count() <= 80), "{told}");
        assert_eq!(told.lines().count(), 3, "two of them about HTTPS");
        (config.politeness.mode, config.politeness.robots) = (Mode::Report, RobotsMode::Warn);
        assert!(
            greeting(&config, address, false, None)
                .starts_with("proxy for this command: 127.0.0.1:41873, only reports\n")
        );
        config.tls.intercept = false;
        assert!(greeting(&config, address, false, Some("x")).ends_with("\nHTTPS is tunnelled, unread: x"));
        assert_eq!(greeting(&config, address, false, None).lines().count(), 1);
    }

    #[test]
    fn a_refused_address_comes_with_the_line_that_allows_it() {
        let row = TallyRow { refused: 2, not_allowed: 2, ..TallyRow::default() };
        let ended = ended(vec![("127.0.0.2", row)]);
        for page in [closing(&ended), report(&ended, TextStyle(false))] {
            assert!(page.contains("2 refused") && !page.contains("nothing was held or denied"), "{page}");
            assert!(
                page.contains("127.0.0.2 is no public address; to allow it:\n  export CURTSY_ACCESS__ALLOW_DESTINATIONS=127.0.0.2\n"),
                "{page}"
            );
        }
    }

    #[test]
    fn an_isolated_command_is_not_told_to_isolate_itself() {
        let told = |isolated| closing(&Ended { isolated, ..ended(Vec::new()) });
        assert!(told(false).ends_with("some programs ignore it (--isolate stops them)\n"));
        assert!(told(true).ends_with("a program that ignores it has no other way out (--isolate)\n"));
    }

    #[test]
    fn a_report_tells_what_would_have_been() {
        let mut row = TallyRow { visits: 4, would_wait: waits(3, 6_000), ..TallyRow::default() };
        row.forbidden_by(2, || "Disallow: /\u{1b}[31mx".to_owned());
        let mut ended = ended(vec![("a.test", row)]);
        ended.hosts[0].row.would_end = Some(ended.began + Duration::from_millis(4_500));
        let page = report(&ended, TextStyle(false));
        assert!(
            page.contains("  HOST    REQUESTS  DELAYED  LONGEST  DENIED  DELAY\n")
                && page.contains("  a.test         4        3    3.0 s       1  1.0 s (configured)\n"),
            "{page}"
        );
        assert!(page.contains("denied once: a.test/robots.txt line 2, Disallow: /\\u{1b}[31mx\n"), "{page}");
        assert!(page.contains("3 of 4 requests would have waited: at least 4.5 s instead of 1.5 s"), "{page}");
        ended.hosts[0].row.would_refuse = 2;
        let page = report(&ended, TextStyle(false));
        assert!(page.contains("DENIED  REFUSED  DELAY") && page.contains("       1        2  1.0 s"), "{page}");
    }
}
