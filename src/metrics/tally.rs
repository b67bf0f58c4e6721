//! What happened to requests, host by host and for every host: for one command and its summary.
//!
//! Prometheus gets the busiest hosts only, for the life of the process. This is a short list for people, kept in memory
//! and bounded: hosts beyond [`MOST`] share a row. Nothing is counted before [`Tally::begin`].

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use super::{A_MOMENT, RequestOutcome};

/// More hosts than a person reads about.
const MOST: usize = 10_000;
/// The name of the row for hosts beyond that.
pub const OTHERS: &str = "other hosts";
/// Rules of one robots.txt that are counted separately.
const MOST_RULES: usize = 8;

#[derive(Debug, Default)]
pub struct Tally(OnceLock<Mutex<HashMap<Box<str>, TallyRow>>>);

/// What happened to the requests for one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TallyRow {
    /// Requests that had their turn, including those sent again.
    pub visits: u64,
    /// How long they were held before their turn.
    pub waits: TallyWaits,
    /// Responses that say "too fast".
    pub throttled: u64,
    /// Requests sent again after such a response.
    pub retried: u64,
    /// Requests that robots.txt forbids: refused, or in report mode let through.
    pub forbidden: u64,
    /// The rules that forbid them, in the order they were met.
    pub rules: Vec<TallyRule>,
    /// Requests whose robots.txt could not be fetched: refused, or in report mode let through.
    pub unknown: u64,
    /// Requests that curtsy refused for any other reason, including those that would have waited too long.
    pub refused: u64,
    /// Clients that disconnected before their response.
    pub gave_up: u64,
    /// Requests that the host did not answer.
    pub failed: u64,
    /// Requests that were answered from the cache and not sent.
    pub cached: u64,
    /// Those among them that shared the answer to another client's request.
    pub shared: u64,
    /// Requests that their origin answered with "not modified": the body came from the cache.
    pub unchanged: u64,
    /// Tunnels whose requests curtsy cannot separate: each counts as one visit, whatever happened inside.
    pub blind: u64,
    /// A client that rejected curtsy's certificate for this host.
    pub rejection: Option<TallyRejection>,
    /// In report mode: how long requests would have been held.
    pub would_wait: TallyWaits,
    /// In report mode: requests that would have been refused, because their wait is longer than allowed.
    pub would_refuse: u64,
    /// In report mode: when the last request would have had its response.
    pub would_end: Option<tokio::time::Instant>,
}

/// A client that rejects curtsy's certificate, so that curtsy cannot read its HTTPS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TallyRejection {
    /// The program, if it is known.
    pub program: Option<&'static str>,
    /// The visits before the first rejection. Later ones went through tunnels.
    pub visits_before: u64,
}

/// How long some requests were held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyWaits {
    /// Requests that had to wait.
    pub count: u64,
    pub total: Duration,
    pub longest: Duration,
}

/// A rule of robots.txt that forbids something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TallyRule {
    pub line: u32,
    /// As in the file, in canonical spelling.
    pub text: String,
    pub count: u64,
}

impl Tally {
    /// Starts counting.
    pub fn begin(&self) {
        self.0.get_or_init(Mutex::default);
    }

    pub fn is_kept(&self) -> bool {
        self.0.get().is_some()
    }

    /// Counts something for a host, if counting has started.
    pub fn count(&self, host: &str, count: impl FnOnce(&mut TallyRow)) {
        let Some(rows) = self.0.get() else { return };
        let mut rows = rows.lock();
        let host = if rows.len() < MOST || rows.contains_key(host) { host } else { OTHERS };
        match rows.get_mut(host) {
            Some(row) => count(row),
            None => count(rows.entry(host.into()).or_default()),
        }
    }

    /// Returns all hosts, the busiest first.
    pub fn rows(&self) -> Vec<(String, TallyRow)> {
        let Some(rows) = self.0.get() else { return Vec::new() };
        let rows = rows.lock();
        let mut rows: Vec<(String, TallyRow)> =
            rows.iter().map(|(host, row)| (host.to_string(), row.clone())).collect();
        rows.sort_unstable_by(|a, b| b.1.asked().cmp(&a.1.asked()).then_with(|| a.0.cmp(&b.0)));
        rows
    }
}

impl TallyRow {
    /// Returns the visits since a client rejected curtsy's certificate; `None` if none did.
    pub fn visits_since_rejection(&self) -> Option<u64> {
        self.rejection.map(|rejection| self.visits - rejection.visits_before)
    }

    /// Returns the number of requests that were meant for the host.
    fn asked(&self) -> u64 {
        self.visits + self.forbidden + self.unknown + self.refused
    }

    pub fn visited(&mut self, waited: Duration) {
        self.visits += 1;
        self.waits.add(waited);
    }

    /// Notes the first rejection of curtsy's certificate.
    pub fn rejected_by(&mut self, program: Option<&'static str>) {
        self.rejection.get_or_insert(TallyRejection { program, visits_before: self.visits });
    }

    pub fn forbidden_by(&mut self, line: u32, text: impl FnOnce() -> String) {
        self.forbidden += 1;
        if let Some(rule) = self.rules.iter_mut().find(|rule| rule.line == line) {
            rule.count += 1;
        } else if self.rules.len() < MOST_RULES {
            self.rules.push(TallyRule { line, text: text(), count: 1 });
        }
    }

    /// Counts the end of a request. Refusals by robots.txt are counted elsewhere, with their rule.
    pub fn ended(&mut self, outcome: RequestOutcome, code: Option<&str>) {
        match outcome {
            RequestOutcome::Forwarded => {}
            RequestOutcome::Cached => self.cached += 1,
            RequestOutcome::Denied | RequestOutcome::Rejected => {
                let by_robots = matches!(code, Some("robots-denied" | "robots-unreachable"));
                self.refused += u64::from(!by_robots);
            }
            RequestOutcome::Abandoned => self.gave_up += 1,
            RequestOutcome::Failed | RequestOutcome::Truncated => self.failed += 1,
        }
    }
}

impl TallyWaits {
    pub fn add(&mut self, wait: Duration) {
        self.count += u64::from(wait >= A_MOMENT);
        self.total += wait;
        self.longest = self.longest.max(wait);
    }

    #[must_use]
    pub fn and(self, other: TallyWaits) -> TallyWaits {
        TallyWaits {
            count: self.count + other.count,
            total: self.total + other.total,
            longest: self.longest.max(other.longest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_counted_before_the_start() {
        let tally = Tally::default();
        tally.count("a.test", |row| row.visits += 1);
        assert!(!tally.is_kept() && tally.rows().is_empty());
        tally.begin();
        tally.count("a.test", |row| row.visited(Duration::from_millis(1_500)));
        tally.count("a.test", |row| row.visited(Duration::from_micros(9)));
        tally.begin();
        let rows = tally.rows();
        let waits =
            TallyWaits { count: 1, total: Duration::from_micros(1_500_009), longest: Duration::from_millis(1_500) };
        assert_eq!((rows.len(), rows[0].1.visits, rows[0].1.waits), (1, 2, waits));
    }

    #[test]
    fn the_busiest_come_first_and_too_many_share_a_row() {
        let tally = Tally::default();
        tally.begin();
        for host in 0..MOST + 5 {
            tally.count(&format!("h{host}.test"), |row| row.visits += 1);
        }
        tally.count("h7.test", |row| row.visits += 9);
        let rows = tally.rows();
        assert_eq!((rows.len(), rows[0].0.as_str(), rows[1].0.as_str()), (MOST + 1, "h7.test", OTHERS));
        assert_eq!(rows[1].1.visits, 5);
    }

    #[test]
    fn the_first_rejection_counts() {
        let mut row = TallyRow { visits: 2, ..TallyRow::default() };
        assert_eq!(row.visits_since_rejection(), None);
        row.rejected_by(Some("curl"));
        row.visits += 3;
        row.rejected_by(None);
        assert_eq!((row.visits_since_rejection(), row.rejection.unwrap().program), (Some(3), Some("curl")));
    }

    #[test]
    fn a_request_is_counted_under_one_heading() {
        let mut row = TallyRow::default();
        row.forbidden_by(3, || "Disallow: /x".to_owned());
        row.ended(RequestOutcome::Denied, Some("robots-denied"));
        row.ended(RequestOutcome::Denied, Some("wait-too-long"));
        row.ended(RequestOutcome::Abandoned, None);
        row.ended(RequestOutcome::Failed, Some("origin-unreachable"));
        row.ended(RequestOutcome::Forwarded, None);
        assert_eq!((row.forbidden, row.refused, row.gave_up, row.failed), (1, 1, 1, 1));
        (4..40).for_each(|line| row.forbidden_by(line, String::new));
        row.forbidden_by(3, String::new);
        assert_eq!((row.forbidden, row.rules.len(), row.rules[0].count), (38, MOST_RULES, 2));
    }
}
