//! Clients that fail or were stopped, shared by all workers, and what survives a restart.
//!
//! Only stops are stored, not counts of failures: a series of failures that a restart interrupts starts over. Times in
//! a record are bounded, so that a clock that was changed cannot stop a client for longer than an operator could have
//! asked for.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ledger::Ledger;
use crate::politeness::jobs::{self, JobAccount, JobFailure, JobKey, JobPatience, JobStop, Jobs, short};
use crate::politeness::time::Timestamp;
use crate::store::{ImportFate, JobRecord, Skipped, Store};

#[derive(Debug)]
pub struct StoppedClients {
    jobs: Mutex<Jobs>,
    store: Arc<Store>,
    ledger: Ledger,
    /// The clients that the fleet has stopped, as of the last notice.
    shared: Mutex<HashSet<String>>,
}

/// The longest time that an operator may set. A stop without an end lasts until the operator ends it.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl StoppedClients {
    /// Loads the stops that the store had when it was opened.
    pub fn new(store: Arc<Store>, kept: &[(String, JobRecord)], now: Timestamp) -> Self {
        let (jobs, shared) = (Mutex::new(Jobs::new()), Mutex::default());
        let stops = StoppedClients { jobs, store, ledger: Ledger::Local, shared };
        for (client, record) in kept {
            stops.remember(client, record, now);
        }
        stops
    }

    /// Shares stops with the nodes of a fleet.
    #[must_use]
    pub fn with_ledger(mut self, ledger: Ledger) -> Self {
        self.ledger = ledger;
        self
    }

    /// Stores a stop and tells the fleet.
    fn keep(&self, client: &str, record: JobRecord) {
        if let Ledger::Fleet(fleet) = &self.ledger {
            let time = |local| fleet.shared_time(client, local);
            let told = JobRecord { since_us: time(record.since_us), until_us: time(record.until_us), ..record.clone() };
            fleet.announce_stop(client, serde_json::to_string(&told).ok());
        }
        self.store.put_job(client, record);
    }

    /// Takes in which clients the fleet has stopped.
    pub fn hear(&self, stops: &[(String, String)], now: Timestamp) {
        let Ledger::Fleet(fleet) = &self.ledger else { return };
        let names: HashSet<String> = stops.iter().map(|(client, _)| client.clone()).collect();
        let before = std::mem::replace(&mut *self.shared.lock(), names.clone());
        for client in before.difference(&names) {
            self.jobs.lock().resume(client, now).iter().for_each(|key| self.store.delete_job(key));
        }
        for (client, text) in stops {
            let Ok(told) = serde_json::from_str::<JobRecord>(text) else { continue };
            let time = |theirs| fleet.local_time(client, theirs);
            self.import(
                client,
                &JobRecord { since_us: time(told.since_us), until_us: time(told.until_us), ..told },
                now,
            );
        }
    }

    pub(crate) fn may_visit(&self, key: &JobKey, now: Timestamp) -> Result<(), JobStop> {
        self.jobs.lock().may_visit(key, now)
    }

    /// Returns the stop if the answer stops the client.
    pub(crate) fn answered(
        &self,
        key: &JobKey,
        status: u16,
        patience: &JobPatience,
        now: Timestamp,
    ) -> Option<JobStop> {
        let stop = self.jobs.lock().answered(key, status, patience, now)?;
        self.keep(key.of(&stop), record(&stop));
        Some(stop)
    }

    /// Returns the stop if the failure stops the client.
    pub(crate) fn failed(
        &self,
        key: &JobKey,
        failure: JobFailure,
        patience: &JobPatience,
        now: Timestamp,
    ) -> Option<JobStop> {
        let stop = self.jobs.lock().failed(key, failure, patience, now)?;
        self.keep(key.of(&stop), record(&stop));
        Some(stop)
    }

    /// Stops a client by order of the operator. `None` if there is no room to remember it.
    pub fn stop(&self, client: &str, until: Timestamp, now: Timestamp) -> Option<JobStop> {
        let stop = self.jobs.lock().stop(client, until, now)?;
        self.keep(short(client), record(&stop));
        Some(stop)
    }

    /// Ends the stops of a client. Returns whether it was stopped.
    pub fn resume(&self, client: &str, now: Timestamp) -> bool {
        let resumed = self.jobs.lock().resume(client, now);
        resumed.iter().for_each(|key| self.store.delete_job(key));
        if let Ledger::Fleet(fleet) = &self.ledger {
            resumed.iter().for_each(|key| fleet.announce_stop(key, None));
        }
        !resumed.is_empty()
    }

    /// Calls `see` for every client that is stopped or has failed lately.
    pub fn accounts<T>(&self, now: Timestamp, see: impl FnMut(JobAccount<'_>) -> T) -> Vec<T> {
        self.jobs.lock().accounts(now).map(see).collect()
    }

    /// Stops a client as another curtsy's record says, and stores the record.
    pub fn import(&self, client: &str, record: &JobRecord, now: Timestamp) -> ImportFate {
        let known = self.jobs.lock().is_stopped(client, now);
        if stop(client, record, now).until <= now {
            return ImportFate::Skipped(Skipped::TooOld);
        }
        if !self.remember(client, record, now) {
            return ImportFate::Skipped(Skipped::NoRoom);
        }
        self.store.put_job(client, record.clone());
        if known { ImportFate::Replaced } else { ImportFate::New }
    }

    /// Remembers a stored stop. Returns false if its time is over, or if there is no room for it.
    fn remember(&self, client: &str, record: &JobRecord, now: Timestamp) -> bool {
        let stop = stop(client, record, now);
        stop.until > now && self.jobs.lock().remember(client, stop, now)
    }
}

fn record(stop: &JobStop) -> JobRecord {
    JobRecord {
        reason: stop.last.map(|last| last.to_string()).unwrap_or_default(),
        failures: stop.failures,
        since_us: stop.since.as_micros(),
        until_us: if stop.until < Timestamp::NEVER { stop.until.as_micros() } else { 0 },
    }
}

fn stop(key: &str, record: &JobRecord, now: Timestamp) -> JobStop {
    let last = failure(&record.reason);
    let longest = if last.is_some() { JobPatience::default().cooldown } else { LONGEST };
    let until = match record.until_us {
        0 => Timestamp::NEVER,
        until => Timestamp::from_micros(until).min(now + longest),
    };
    let since = Timestamp::from_micros(record.since_us).min(now);
    JobStop { since, until, failures: record.failures, last, at_host: last.is_some() && jobs::parts(key).2.is_some() }
}

fn failure(reason: &str) -> Option<JobFailure> {
    if reason.is_empty() {
        return None;
    }
    let status = reason.strip_prefix("status ").and_then(|status| status.parse().ok());
    let known = super::job::REASONS.into_iter().find(|known| *known == reason);
    Some(status.map_or(JobFailure::NoAnswer(known.unwrap_or("a failure")), JobFailure::Status))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Retention;

    const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);
    const HOUR: Duration = Duration::from_secs(3_600);

    fn stops(kept: &[(String, JobRecord)]) -> StoppedClients {
        StoppedClients::new(Arc::new(Store::memory(Retention::default())), kept, NOW)
    }

    #[test]
    fn a_stop_is_a_record_and_back() {
        let by_itself =
            JobStop { since: NOW, until: NOW + HOUR, failures: 20, last: Some(JobFailure::Status(503)), at_host: true };
        for last in [JobFailure::Status(429), JobFailure::NoAnswer("a timeout"), JobFailure::NoAnswer("a TLS failure")]
        {
            let whole = JobStop { last: Some(last), ..by_itself };
            assert_eq!(stop("a at h.test", &record(&whole), NOW), whole);
            assert_eq!(stop("a", &record(&whole), NOW), JobStop { at_host: false, ..whole });
        }
        let by_people = JobStop { until: Timestamp::NEVER, last: None, failures: 3, at_host: false, ..by_itself };
        assert_eq!(stop("a", &record(&by_people), NOW), by_people);
    }

    #[test]
    fn no_clock_and_no_file_stops_a_client_for_longer_than_anybody_asked() {
        let wild = JobRecord { reason: "?".into(), failures: 1, since_us: u64::MAX, until_us: u64::MAX };
        assert_eq!(stop("a", &wild, NOW).until, NOW + HOUR);
        assert_eq!(stop("a", &wild, NOW).since, NOW);
        let by_people = JobRecord { reason: String::new(), ..wild };
        assert_eq!(stop("a", &by_people, NOW).until, NOW + LONGEST);
    }

    #[test]
    fn a_stored_stop_holds_until_its_time_is_over() {
        let record = |until: Timestamp| JobRecord { until_us: until.as_micros(), ..JobRecord::default() };
        let kept = [
            ("a".to_owned(), record(NOW + HOUR)),
            ("b".to_owned(), record(NOW)),
            ("c".to_owned(), record(Timestamp::START)),
        ];
        let stops = stops(&kept);
        let may = |client| stops.may_visit(&JobKey::new(client, None, "h.test"), NOW + HOUR / 2).is_ok();
        assert_eq!((may("a"), may("b"), may("c")), (false, true, false));
        assert!(stops.resume("c", NOW) && !stops.resume("b", NOW));
    }
}
