//! Jobs: a named client that only fails is stopped, so that it does not waste the time of the hosts.
//!
//! A client has a name if it is a proxy user or sends `Curtsy-Client`. Clients without a name are never counted, because
//! many programs may share an address. Where users do not log in, a name proves nothing, so a job is a name at an
//! address: no client can stop another one by failing in its name.
//!
//! - Failures in a row at one host (no answer, 429, 5xx) stop the job at that host only. Dead hosts say nothing about the
//!   client: twenty different ones stop nothing.
//! - Hosts in a row that refuse the client (401, 403, 429) stop the job everywhere. Each host counts once.
//! - An answer that is neither begins both counts anew. A request whose client has left is not reported.
//! - People stop a name, at every address and every host.
//!
//! Promises: bounded memory; only jobs with a failure behind them are known. A job that is stopped is not forgotten to
//! make room for another.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use super::time::Timestamp;

/// How much failure is borne from one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// So many failures in a row stop a job; 0 = never.
    pub failures: u32,
    /// How long a job stays stopped by itself.
    pub cooldown: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        // An hour: somebody has looked by then, or nobody will.
        Patience { failures: 20, cooldown: Duration::from_secs(3_600) }
    }
}

/// Why a visit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Status(u16),
    /// No answer, with the reason in words.
    NoAnswer(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Status(status) => write!(f, "status {status}"),
            Failure::NoAnswer(reason) => f.write_str(reason),
        }
    }
}

/// A job is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    pub since: Timestamp,
    pub until: Timestamp,
    /// So many in a row, the last one like this.
    pub failures: u32,
    /// None if people stopped it.
    pub last: Option<Failure>,
    /// Whether it holds at one host only.
    pub at_host: bool,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failures = self.failures;
        match self.last {
            None => f.write_str("stopped by the operator"),
            Some(last) if self.at_host => {
                write!(f, "the last {failures} requests to this host failed, the last one with {last}")
            }
            Some(last) => write!(f, "{failures} hosts in a row refused this client, the last one with {last}"),
        }
    }
}

/// A named client and the host of its request, in one text: `NAME at HOST`, or `NAME@ADDRESS at HOST` where a name proves
/// nothing. The beginnings of the text are the keys of the job everywhere and of the name everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobKey {
    text: Box<str>,
    /// Where the name ends.
    name: usize,
    /// Where the client ends: its name and address.
    client: usize,
}

const AT_HOST: &str = " at ";

impl JobKey {
    /// `address` is that of a client whose name proves nothing.
    pub fn new(name: &str, address: Option<IpAddr>, host: &str) -> Self {
        let name = short(name);
        let client = address.map_or_else(|| name.to_owned(), |address| format!("{name}@{}", address.to_canonical()));
        let (name, end) = (name.len(), client.len());
        JobKey { text: (client + AT_HOST + host).into(), name, client: end }
    }

    pub fn name(&self) -> &str {
        &self.text[..self.name]
    }

    /// The key of a stop that holds everywhere.
    pub fn client(&self) -> &str {
        &self.text[..self.client]
    }

    pub fn host(&self) -> &str {
        &self.text[self.client + AT_HOST.len()..]
    }

    /// The key of a stop that holds at the host only.
    pub fn at_host(&self) -> &str {
        &self.text
    }

    /// The key that a stop is kept under.
    pub fn of(&self, stop: &Stop) -> &str {
        if stop.at_host { self.at_host() } else { self.client() }
    }
}

/// The name, address and host of a key.
pub fn parts(key: &str) -> (&str, Option<IpAddr>, Option<&str>) {
    // No host has an @ or a space in it, so an address or a name is not taken for one.
    let host = key.rsplit_once(AT_HOST).filter(|(_, host)| !host.contains(['@', ' ']));
    let (client, host) = host.map_or((key, None), |(client, host)| (client, Some(host)));
    match client.rsplit_once('@').and_then(|(name, address)| Some((name, address.parse().ok()?))) {
        Some((name, address)) => (name, Some(address), host),
        None => (client, None, host),
    }
}

/// What is known of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    /// As in [`JobKey`]; [`parts`] takes it apart.
    pub key: &'a str,
    /// In a row, up to now.
    pub failures: u32,
    /// When the last visit failed; none if none did.
    pub failed: Option<Timestamp>,
    pub stop: Option<Stop>,
}

#[derive(Debug, Default)]
pub struct Jobs {
    known: HashMap<Box<str>, Job>,
}

#[derive(Debug)]
struct Job {
    failures: u32,
    /// Digests of the hosts that refused it in a row.
    refused_by: Vec<u64>,
    failed: Timestamp,
    stop: Option<Stop>,
}

/// Jobs that fail are few; looking through as many as this takes microseconds.
const MOST: usize = 1_000;
/// Hosts remembered of one job. More than this many refusals are not asked for before it is stopped.
const MOST_HOSTS: u32 = 1_000;
/// Clients choose their names, and those can be as long as a header. Beyond this they are all the same.
const LONGEST_NAME: usize = 128;

impl Jobs {
    pub fn new() -> Self {
        Jobs::default()
    }

    pub fn may_visit(&self, key: &JobKey, now: Timestamp) -> Result<(), Stop> {
        if self.known.is_empty() {
            return Ok(());
        }
        // A name may look like the key of another job. Only people stop such a name.
        let by_name = self.stop_of(key.name(), now).filter(|stop| stop.last.is_none() || !key.name().contains('@'));
        let stop = by_name.or_else(|| self.stop_of(key.client(), now)).or_else(|| self.stop_of(key.at_host(), now));
        stop.map_or(Ok(()), Err)
    }

    /// The host answered. Returns the stop if the answer stops the job.
    pub fn answered(&mut self, key: &JobKey, status: u16, patience: &Patience, now: Timestamp) -> Option<Stop> {
        // What was refused or broke is a failure; what was not found was looked for.
        let fails = status == 429 || status >= 500;
        let refuses = matches!(status, 401 | 403 | 429);
        if !fails {
            self.forgive(key.at_host(), now);
        }
        if !fails && !refuses {
            self.forgive(key.client(), now);
        }
        let last = Failure::Status(status);
        let everywhere = refuses.then(|| self.refused(key, last, patience, now)).flatten();
        everywhere.or_else(|| fails.then(|| self.failed(key, last, patience, now)).flatten())
    }

    /// A request to a host failed. Returns the stop if that stops the job there.
    pub fn failed(&mut self, key: &JobKey, failure: Failure, patience: &Patience, now: Timestamp) -> Option<Stop> {
        if patience.failures == 0 {
            return None;
        }
        let job = self.running(key.at_host(), now)?;
        job.failures = job.failures.saturating_add(1);
        job.failed = now;
        if job.failures < patience.failures {
            return None;
        }
        job.stopped(failure, true, patience, now)
    }

    /// A host refused the client. Returns the stop if that stops the job everywhere.
    fn refused(&mut self, key: &JobKey, failure: Failure, patience: &Patience, now: Timestamp) -> Option<Stop> {
        if patience.failures == 0 {
            return None;
        }
        let job = self.running(key.client(), now)?;
        job.failed = now;
        let host = digest(key.host());
        if job.refused_by.contains(&host) {
            return None;
        }
        job.refused_by.push(host);
        job.failures = job.refused_by.len() as u32;
        if job.failures < patience.failures.min(MOST_HOSTS) {
            return None;
        }
        job.stopped(failure, false, patience, now)
    }

    /// Lets stopped jobs go on: the one of this key, and of this name at any address and any host. Returns their keys.
    pub fn resume(&mut self, name: &str, now: Timestamp) -> Vec<Box<str>> {
        let belongs = |key: &str| {
            let (owner, address, _) = parts(key);
            key == name || owner == short(name) || address.is_some_and(|address| name == format!("{owner}@{address}"))
        };
        let stopped = |job: &Job| job.stop.is_some_and(|stop| now < stop.until);
        self.known.extract_if(|key, job| stopped(job) && belongs(key)).map(|(key, _)| key).collect()
    }

    /// People stop a name, until then. `None` if there is no room to remember it.
    pub fn stop(&mut self, name: &str, until: Timestamp, now: Timestamp) -> Option<Stop> {
        let job = self.job(short(name), now)?;
        job.stop = Some(Stop { since: now, until, failures: job.failures, last: None, at_host: false });
        job.stop
    }

    pub fn is_stopped(&self, key: &str, now: Timestamp) -> bool {
        self.stop_of(key, now).is_some()
    }

    /// A job that was stopped before a restart. False if there is no room to remember it.
    pub fn remember(&mut self, key: &str, stop: Stop, now: Timestamp) -> bool {
        let Some(job) = self.job(cut(key, LONGEST_KEY), now) else { return false };
        (job.failures, job.failed, job.stop) = (stop.failures, stop.since, Some(stop));
        true
    }

    /// Every job that is stopped or has failed lately.
    pub fn accounts(&self, now: Timestamp) -> impl Iterator<Item = Account<'_>> {
        self.known.iter().map(move |(key, job)| {
            let stop = job.stop.filter(|stop| now < stop.until);
            let cooled_down = job.stop.is_some() && stop.is_none();
            let failures = if cooled_down { 0 } else { job.failures };
            Account { key, failures, failed: (job.failures > 0).then_some(job.failed), stop }
        })
    }

    fn stop_of(&self, key: &str, now: Timestamp) -> Option<Stop> {
        self.known.get(key)?.stop.filter(|stop| now < stop.until)
    }

    /// A row of failures is over. A job that is stopped stays so: the request was sent before the stop.
    fn forgive(&mut self, key: &str, now: Timestamp) {
        if !self.known.is_empty() && self.stop_of(key, now).is_none() {
            self.known.remove(key);
        }
    }

    /// The account of a job that is not stopped. One that has cooled down has all its tries again.
    fn running(&mut self, key: &str, now: Timestamp) -> Option<&mut Job> {
        let job = self.job(key, now)?;
        match job.stop {
            Some(stop) if now < stop.until => return None,
            Some(_) => *job = Job::new(now),
            None => {}
        }
        Some(job)
    }

    /// The account of a job; none if there is no room for one.
    fn job(&mut self, key: &str, now: Timestamp) -> Option<&mut Job> {
        if !self.known.contains_key(key) {
            if self.known.len() >= MOST {
                self.forget_one(now)?;
            }
            self.known.insert(key.into(), Job::new(now));
        }
        self.known.get_mut(key)
    }

    /// The one that is not stopped and failed the longest time ago.
    fn forget_one(&mut self, now: Timestamp) -> Option<()> {
        let running = self.known.iter().filter(|(_, job)| job.stop.is_none_or(|stop| now >= stop.until));
        let oldest = running.min_by_key(|(_, job)| job.failed)?.0.clone();
        self.known.remove(&oldest);
        Some(())
    }
}

impl Job {
    fn new(now: Timestamp) -> Self {
        Job { failures: 0, refused_by: Vec::new(), failed: now, stop: None }
    }

    fn stopped(&mut self, last: Failure, at_host: bool, patience: &Patience, now: Timestamp) -> Option<Stop> {
        let until = now + patience.cooldown;
        self.refused_by = Vec::new();
        self.stop = Some(Stop { since: now, until, failures: self.failures, last: Some(last), at_host });
        self.stop
    }
}

/// Need not be keyed: only the hosts of one job are told apart by it.
fn digest(host: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    hasher.finish()
}

/// A name as it is kept.
pub fn short(name: &str) -> &str {
    cut(name, LONGEST_NAME)
}

/// A name, an address (45 bytes at most) and a host (255), with what stands between them.
const LONGEST_KEY: usize = LONGEST_NAME + 1 + 45 + AT_HOST.len() + 255;

fn cut(text: &str, longest: usize) -> &str {
    let end = (0..=text.len().min(longest)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
