//! Jobs: a named client whose visits all fail is stopped, so that it wastes nobody's time.
//!
//! A client has a name when it is a proxy user or gives one with `Curtsy-Client`; who has none is never tracked, because
//! an address may be many. So many failures in a row stop a job until it is resumed or has cooled down; a success before
//! that begins the row anew. A visit whose client has gone counts for nothing, so nobody reports it.
//!
//! Promises: bounded memory; only jobs with a failure behind them are known. A job that is stopped is not forgotten to
//! make room for another.

use std::collections::HashMap;
use std::fmt;
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
}

/// What is known of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account<'a> {
    pub name: &'a str,
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
    failed: Timestamp,
    stop: Option<Stop>,
}

/// Jobs that fail are few; looking through as many as this takes microseconds.
const MOST: usize = 1_000;
/// Clients choose their names, and those can be as long as a header. Beyond this they are all the same.
const LONGEST_NAME: usize = 128;

impl Jobs {
    pub fn new() -> Self {
        Jobs::default()
    }

    pub fn may_visit(&self, client: Option<&str>, now: Timestamp) -> Result<(), Stop> {
        match client.and_then(|name| self.known.get(short(name))?.stop) {
            Some(stop) if now < stop.until => Err(stop),
            _ => Ok(()),
        }
    }

    /// A visit failed. Says so if that stops the job.
    pub fn failed(
        &mut self,
        client: Option<&str>,
        failure: Failure,
        patience: &Patience,
        now: Timestamp,
    ) -> Option<Stop> {
        if patience.failures == 0 {
            return None;
        }
        let job = self.job(short(client?), now)?;
        if job.stop.is_some_and(|stop| now < stop.until) {
            return None;
        }
        if job.stop.take().is_some() {
            job.failures = 0;
        }
        job.failures = job.failures.saturating_add(1);
        job.failed = now;
        if job.failures < patience.failures {
            return None;
        }
        job.stop =
            Some(Stop { since: now, until: now + patience.cooldown, failures: job.failures, last: Some(failure) });
        job.stop
    }

    /// A visit succeeded. A job that is stopped stays so: this one had left before.
    pub fn succeeded(&mut self, client: Option<&str>, now: Timestamp) {
        if self.known.is_empty() || self.may_visit(client, now).is_err() {
            return;
        }
        if let Some(name) = client {
            self.known.remove(short(name));
        }
    }

    /// Lets a stopped job go on. Whether it was stopped.
    pub fn resume(&mut self, client: &str, now: Timestamp) -> bool {
        let stopped = self.may_visit(Some(client), now).is_err();
        if stopped {
            self.known.remove(short(client));
        }
        stopped
    }

    /// People stop a job, until then. `None` if there is no room to remember it.
    pub fn stop(&mut self, client: &str, until: Timestamp, now: Timestamp) -> Option<Stop> {
        let job = self.job(short(client), now)?;
        job.stop = Some(Stop { since: now, until, failures: job.failures, last: None });
        job.stop
    }

    /// A job that was stopped before a restart. False if there is no room to remember it.
    pub fn remember(&mut self, client: &str, stop: Stop, now: Timestamp) -> bool {
        let Some(job) = self.job(short(client), now) else { return false };
        (job.failures, job.failed, job.stop) = (stop.failures, stop.since, Some(stop));
        true
    }

    /// Every job that is stopped or has failed lately.
    pub fn accounts(&self, now: Timestamp) -> impl Iterator<Item = Account<'_>> {
        self.known.iter().map(move |(name, job)| {
            let stop = job.stop.filter(|stop| now < stop.until);
            let cooled_down = job.stop.is_some() && stop.is_none();
            let failures = if cooled_down { 0 } else { job.failures };
            Account { name, failures, failed: (job.failures > 0).then_some(job.failed), stop }
        })
    }

    /// The account of a client; none if there is no room for one.
    fn job(&mut self, name: &str, now: Timestamp) -> Option<&mut Job> {
        if !self.known.contains_key(name) {
            if self.known.len() >= MOST {
                self.forget_one(now)?;
            }
            self.known.insert(name.into(), Job { failures: 0, failed: now, stop: None });
        }
        self.known.get_mut(name)
    }

    /// The one that is not stopped and failed the longest time ago.
    fn forget_one(&mut self, now: Timestamp) -> Option<()> {
        let running = self.known.iter().filter(|(_, job)| job.stop.is_none_or(|stop| now >= stop.until));
        let oldest = running.min_by_key(|(_, job)| job.failed)?.0.clone();
        self.known.remove(&oldest);
        Some(())
    }
}

/// A name as it is kept.
pub fn short(name: &str) -> &str {
    let end = (0..=name.len().min(LONGEST_NAME)).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: Failure = Failure::Status(500);
    const A: Option<&str> = Some("a");

    const fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + seconds * 1_000)
    }

    fn fail(jobs: &mut Jobs, client: Option<&str>, times: u32, now: Timestamp) -> Option<Stop> {
        (0..times).filter_map(|_| jobs.failed(client, ERROR, &Patience::default(), now)).last()
    }

    fn stopped(jobs: &Jobs, now: Timestamp) -> Vec<(&str, Stop)> {
        jobs.accounts(now).filter_map(|account| Some((account.name, account.stop?))).collect()
    }

    #[test]
    fn twenty_failures_in_a_row_stop_a_job_and_the_reason_is_kept() {
        let mut jobs = Jobs::new();
        assert_eq!(fail(&mut jobs, A, 19, at(0)), None);
        assert_eq!(jobs.may_visit(A, at(0)), Ok(()));
        let last = Failure::NoAnswer("connection refused");
        let stop = jobs.failed(A, last, &Patience::default(), at(9)).unwrap();
        assert_eq!(stop, Stop { since: at(9), until: at(3_609), failures: 20, last: Some(last) });
        assert_eq!(jobs.may_visit(A, at(10)), Err(stop));
        assert_eq!(stopped(&jobs, at(10)), [("a", stop)]);
        assert_eq!((last.to_string(), ERROR.to_string()), ("connection refused".into(), "status 500".into()));
        assert_eq!(jobs.may_visit(Some("b"), at(10)), Ok(()), "another job");
    }

    #[test]
    fn a_success_begins_the_row_anew() {
        let mut jobs = Jobs::new();
        for _ in 0..10 {
            assert_eq!(fail(&mut jobs, A, 19, at(0)), None);
            jobs.succeeded(A, at(0));
        }
        assert!(jobs.known.is_empty());
    }

    #[test]
    fn it_stays_stopped_until_it_is_resumed_or_has_cooled_down() {
        let mut jobs = Jobs::new();
        fail(&mut jobs, A, 20, at(0));
        jobs.succeeded(A, at(1));
        assert_eq!(fail(&mut jobs, A, 100, at(2)), None, "what was on its way neither prolongs it");
        assert!(jobs.may_visit(A, at(3)).is_err(), "nor ends it");
        assert!(jobs.resume("a", at(3)));
        assert!(!jobs.resume("a", at(3)));
        assert_eq!(jobs.may_visit(A, at(3)), Ok(()));

        fail(&mut jobs, A, 20, at(10));
        assert!(jobs.may_visit(A, at(3_609)).is_err());
        assert_eq!(jobs.may_visit(A, at(3_610)), Ok(()));
        assert_eq!(stopped(&jobs, at(3_610)).len(), 0);
        assert_eq!(fail(&mut jobs, A, 19, at(3_610)), None, "it has all its tries again");
        assert!(fail(&mut jobs, A, 1, at(3_610)).is_some());
    }

    #[test]
    fn people_stop_a_job_and_let_it_go_on() {
        let mut jobs = Jobs::new();
        fail(&mut jobs, A, 3, at(0));
        let stop = jobs.stop("a", Timestamp::NEVER, at(1)).unwrap();
        assert_eq!(stop, Stop { since: at(1), until: Timestamp::NEVER, failures: 3, last: None });
        assert_eq!(jobs.may_visit(A, at(1_000_000)), Err(stop));
        let account = Account { name: "a", failures: 3, failed: Some(at(0)), stop: Some(stop) };
        assert_eq!(jobs.accounts(at(2)).collect::<Vec<_>>(), [account]);
        assert!(jobs.resume("a", at(2)) && jobs.accounts(at(2)).next().is_none());

        jobs.stop("b", at(10), at(2)).unwrap();
        assert_eq!((jobs.may_visit(Some("b"), at(9)).is_err(), jobs.may_visit(Some("b"), at(10))), (true, Ok(())));
    }

    #[test]
    fn who_has_no_name_is_never_stopped() {
        let mut jobs = Jobs::new();
        assert_eq!(fail(&mut jobs, None, 100, at(0)), None);
        jobs.succeeded(None, at(0));
        assert_eq!(jobs.may_visit(None, at(0)), Ok(()));
        assert!(jobs.known.is_empty());
    }

    #[test]
    fn it_can_be_off() {
        let mut jobs = Jobs::new();
        let off = Patience { failures: 0, ..Patience::default() };
        assert!((0..100).all(|_| jobs.failed(A, ERROR, &off, at(0)).is_none()));
    }

    #[test]
    fn no_number_of_names_takes_more_memory_or_frees_a_stopped_job() {
        let mut jobs = Jobs::new();
        fail(&mut jobs, A, 20, at(0));
        for number in 0..2 * MOST {
            let name = format!("{number}{}", "é".repeat(10_000));
            fail(&mut jobs, Some(&name), 1, at(1 + number as u64));
        }
        assert_eq!(jobs.known.len(), MOST);
        assert!(jobs.known.keys().all(|name| name.len() <= LONGEST_NAME));
        assert!(jobs.may_visit(A, at(5)).is_err());
    }

    #[test]
    fn where_all_are_stopped_nobody_else_is_tracked() {
        let mut jobs = Jobs::new();
        for number in 0..=MOST {
            fail(&mut jobs, Some(&number.to_string()), 20, at(0));
        }
        assert_eq!(stopped(&jobs, at(0)).len(), MOST);
        assert_eq!(jobs.may_visit(Some(&MOST.to_string()), at(0)), Ok(()));
    }
}
