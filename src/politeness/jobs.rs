//! Jobs: a named client that only fails is stopped, so that it does not waste the time of the hosts.
//!
//! A client has a name if it is a proxy user or sends `Curtsy-Client`. Clients without a name are never counted,
//! because many programs may share an address. If users do not log in, a name proves nothing, so a job is a name at an
//! address: no client can stop another one by failing in its name.
//!
//! - Failures in a row at one host (no answer, 429, 5xx) stop the job at that host only. Dead hosts say nothing about
//!   the client: failures at twenty different hosts stop nothing.
//! - Hosts in a row that refuse the client (401, 403, 429) stop the job everywhere. Each host counts once.
//! - An answer that is neither a failure nor a refusal resets both counts. A request whose client has disconnected is
//!   not reported.
//! - An operator can stop a name, at every address and every host.
//!
//! Promises: memory is bounded; only jobs that have failed or are stopped are stored. A stopped job is not forgotten to
//! make room for another.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use super::time::Timestamp;

/// How many failures of one client are tolerated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPatience {
    /// This many failures in a row stop a job; 0 = never.
    pub failures: u32,
    /// How long a job stays stopped if its failures stopped it.
    pub cooldown: Duration,
}

impl Default for JobPatience {
    fn default() -> Self {
        // An hour: an operator has looked by then, or will not look at all.
        JobPatience { failures: 20, cooldown: Duration::from_secs(3_600) }
    }
}

/// Why a visit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobFailure {
    Status(u16),
    /// No answer, with the reason in words.
    NoAnswer(&'static str),
}

impl fmt::Display for JobFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobFailure::Status(status) => write!(f, "status {status}"),
            JobFailure::NoAnswer(reason) => f.write_str(reason),
        }
    }
}

/// The stop of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStop {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The failures in a row before the stop. `last` is the last of them.
    pub failures: u32,
    /// `None` if an operator stopped the job.
    pub last: Option<JobFailure>,
    /// Whether the stop holds at one host only.
    pub at_host: bool,
}

impl fmt::Display for JobStop {
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

/// A named client and the host of its request, in one text: `NAME at HOST`, or `NAME@ADDRESS at HOST` if a name proves
/// nothing. Prefixes of the text are the keys of the job everywhere and of the name everywhere.
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
    /// `address` is the address of a client whose name proves nothing.
    pub fn new(name: &str, address: Option<IpAddr>, host: &str) -> Self {
        let name = short(name);
        let client = address.map_or_else(|| name.to_owned(), |address| format!("{name}@{}", address.to_canonical()));
        let (name, end) = (name.len(), client.len());
        JobKey { text: (client + AT_HOST + host).into(), name, client: end }
    }

    pub fn name(&self) -> &str {
        &self.text[..self.name]
    }

    /// Returns the key of a stop that holds everywhere.
    pub fn client(&self) -> &str {
        &self.text[..self.client]
    }

    pub fn host(&self) -> &str {
        &self.text[self.client + AT_HOST.len()..]
    }

    /// Returns the key of a stop that holds at the host only.
    pub fn at_host(&self) -> &str {
        &self.text
    }

    /// Returns the key under which a stop is stored.
    pub fn of(&self, stop: &JobStop) -> &str {
        if stop.at_host { self.at_host() } else { self.client() }
    }
}

/// Splits a key into its name, address and host.
pub fn parts(key: &str) -> (&str, Option<IpAddr>, Option<&str>) {
    // No host has an @ or a space in it, so an address or a name is not mistaken for a host.
    let host = key.rsplit_once(AT_HOST).filter(|(_, host)| !host.contains(['@', ' ']));
    let (client, host) = host.map_or((key, None), |(client, host)| (client, Some(host)));
    match client.rsplit_once('@').and_then(|(name, address)| Some((name, address.parse().ok()?))) {
        Some((name, address)) => (name, Some(address), host),
        None => (client, None, host),
    }
}

/// What is known about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobAccount<'a> {
    /// As in [`JobKey`]; [`parts`] splits it.
    pub key: &'a str,
    /// Failures in a row, up to now.
    pub failures: u32,
    /// When the last visit failed; `None` if none did.
    pub failed: Option<Timestamp>,
    pub stop: Option<JobStop>,
}

#[derive(Debug, Default)]
pub struct Jobs {
    known: HashMap<Box<str>, JobRecord>,
}

#[derive(Debug)]
struct JobRecord {
    failures: u32,
    /// Digests of the hosts that refused it in a row.
    refused_by: Vec<u64>,
    failed: Timestamp,
    stop: Option<JobStop>,
}

/// The most jobs stored. Jobs that fail are few; looking through as many as this takes microseconds.
const MOST: usize = 1_000;
/// The most hosts remembered for one job. A job is stopped after this many refusals at the latest.
const MOST_HOSTS: u32 = 1_000;
/// Clients choose their names, which can be as long as a header. Names that are the same up to this length count as
/// one.
const LONGEST_NAME: usize = 128;

impl Jobs {
    pub fn new() -> Self {
        Jobs::default()
    }

    pub fn may_visit(&self, key: &JobKey, now: Timestamp) -> Result<(), JobStop> {
        if self.known.is_empty() {
            return Ok(());
        }
        // A name may look like the key of another job. Only an operator stops such a name.
        let by_name = self.stop_of(key.name(), now).filter(|stop| stop.last.is_none() || !key.name().contains('@'));
        let stop = by_name.or_else(|| self.stop_of(key.client(), now)).or_else(|| self.stop_of(key.at_host(), now));
        stop.map_or(Ok(()), Err)
    }

    /// Reports an answer of the host. Returns the stop if the answer stops the job.
    pub fn answered(&mut self, key: &JobKey, status: u16, patience: &JobPatience, now: Timestamp) -> Option<JobStop> {
        // 429 and 5xx are failures. A 404 is not: the client looked for something that is not there.
        let fails = status == 429 || status >= 500;
        let refuses = matches!(status, 401 | 403 | 429);
        if !fails {
            self.forgive(key.at_host(), now);
        }
        if !fails && !refuses {
            self.forgive(key.client(), now);
        }
        let last = JobFailure::Status(status);
        let everywhere = refuses.then(|| self.refused(key, last, patience, now)).flatten();
        everywhere.or_else(|| fails.then(|| self.failed(key, last, patience, now)).flatten())
    }

    /// Reports a request to a host that failed. Returns the stop if that stops the job there.
    pub fn failed(
        &mut self,
        key: &JobKey,
        failure: JobFailure,
        patience: &JobPatience,
        now: Timestamp,
    ) -> Option<JobStop> {
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

    /// Counts a host that refused the client. Returns the stop if that stops the job everywhere.
    fn refused(
        &mut self,
        key: &JobKey,
        failure: JobFailure,
        patience: &JobPatience,
        now: Timestamp,
    ) -> Option<JobStop> {
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

    /// Lets stopped jobs go on: the one with this key, and those of this name at any address and any host. Returns
    /// their keys.
    pub fn resume(&mut self, name: &str, now: Timestamp) -> Vec<Box<str>> {
        let belongs = |key: &str| {
            let (owner, address, _) = parts(key);
            key == name || owner == short(name) || address.is_some_and(|address| name == format!("{owner}@{address}"))
        };
        let stopped = |job: &JobRecord| job.stop.is_some_and(|stop| now < stop.until);
        self.known.extract_if(|key, job| stopped(job) && belongs(key)).map(|(key, _)| key).collect()
    }

    /// Stops a name until `until`, at an operator's request. Returns `None` if there is no room to remember it.
    pub fn stop(&mut self, name: &str, until: Timestamp, now: Timestamp) -> Option<JobStop> {
        let job = self.job(short(name), now)?;
        job.stop = Some(JobStop { since: now, until, failures: job.failures, last: None, at_host: false });
        job.stop
    }

    pub fn is_stopped(&self, key: &str, now: Timestamp) -> bool {
        self.stop_of(key, now).is_some()
    }

    /// Remembers a job that was stopped before a restart. Returns false if there is no room for it.
    pub fn remember(&mut self, key: &str, stop: JobStop, now: Timestamp) -> bool {
        let Some(job) = self.job(cut(key, LONGEST_KEY), now) else { return false };
        (job.failures, job.failed, job.stop) = (stop.failures, stop.since, Some(stop));
        true
    }

    /// Returns every job that is stopped or has failed lately.
    pub fn accounts(&self, now: Timestamp) -> impl Iterator<Item = JobAccount<'_>> {
        self.known.iter().map(move |(key, job)| {
            let stop = job.stop.filter(|stop| now < stop.until);
            let cooled_down = job.stop.is_some() && stop.is_none();
            let failures = if cooled_down { 0 } else { job.failures };
            JobAccount { key, failures, failed: (job.failures > 0).then_some(job.failed), stop }
        })
    }

    fn stop_of(&self, key: &str, now: Timestamp) -> Option<JobStop> {
        self.known.get(key)?.stop.filter(|stop| now < stop.until)
    }

    /// Ends a row of failures. A stopped job stays stopped: the request was sent before the stop.
    fn forgive(&mut self, key: &str, now: Timestamp) {
        if !self.known.is_empty() && self.stop_of(key, now).is_none() {
            self.known.remove(key);
        }
    }

    /// Returns the entry of a job that is not stopped. A job that has cooled down has all its tries again.
    fn running(&mut self, key: &str, now: Timestamp) -> Option<&mut JobRecord> {
        let job = self.job(key, now)?;
        match job.stop {
            Some(stop) if now < stop.until => return None,
            Some(_) => *job = JobRecord::new(now),
            None => {}
        }
        Some(job)
    }

    /// Returns the entry of a job; `None` if there is no room for one.
    fn job(&mut self, key: &str, now: Timestamp) -> Option<&mut JobRecord> {
        if !self.known.contains_key(key) {
            if self.known.len() >= MOST {
                self.forget_one(now)?;
            }
            self.known.insert(key.into(), JobRecord::new(now));
        }
        self.known.get_mut(key)
    }

    /// Forgets the job that is not stopped and failed the longest time ago.
    fn forget_one(&mut self, now: Timestamp) -> Option<()> {
        let running = self.known.iter().filter(|(_, job)| job.stop.is_none_or(|stop| now >= stop.until));
        let oldest = running.min_by_key(|(_, job)| job.failed)?.0.clone();
        self.known.remove(&oldest);
        Some(())
    }
}

impl JobRecord {
    fn new(now: Timestamp) -> Self {
        JobRecord { failures: 0, refused_by: Vec::new(), failed: now, stop: None }
    }

    fn stopped(&mut self, last: JobFailure, at_host: bool, patience: &JobPatience, now: Timestamp) -> Option<JobStop> {
        let until = now + patience.cooldown;
        self.refused_by = Vec::new();
        self.stop = Some(JobStop { since: now, until, failures: self.failures, last: Some(last), at_host });
        self.stop
    }
}

/// Hashes a host. The hash need not be keyed: it only distinguishes the hosts of one job.
fn digest(host: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    host.hash(&mut hasher);
    hasher.finish()
}

/// Returns a name as it is stored.
pub fn short(name: &str) -> &str {
    cut(name, LONGEST_NAME)
}

/// A name, an address (45 bytes at most) and a host (255), with the separators between them.
const LONGEST_KEY: usize = LONGEST_NAME + 1 + 45 + AT_HOST.len() + 255;

fn cut(text: &str, longest: usize) -> &str {
    let end = (0..=text.len().min(longest)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    &text[..end]
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
