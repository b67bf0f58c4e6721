//! The job that a request belongs to: a client with a name, whose failures are counted.
//!
//! Only the fate of a request counts: the origin's answer, or no answer. A refusal by curtsy is not a failure of the
//! job, and a client that disconnects reports nothing.

use std::net::IpAddr;

use serde_json::json;

use crate::gate::now;
use crate::politeness::HostKey;
use crate::politeness::jobs::{self, JobKey, JobPatience};
use crate::proxy::answer::failure::{Failure, Refusal};
use crate::proxy::{Settings, Shared};
use crate::upstream::UpstreamError;

/// The job of a named client's request.
pub(crate) struct Job(JobKey);

impl Job {
    /// Begins a request of a client with a name; refused if its job is stopped at this host. Where users do not log in,
    /// a client is its name at its address.
    pub(crate) fn begin(
        shared: &Shared,
        settings: &Settings,
        (name, address): (&str, IpAddr),
        host: &HostKey,
    ) -> Result<Self, Refusal> {
        let address = settings.users.is_none().then_some(address);
        let job = Job(JobKey::new(name, address, host.as_str()));
        job.may_go_on(shared)?;
        Ok(job)
    }

    pub(crate) fn name(&self) -> &str {
        self.0.name()
    }

    /// Whether the job may send another request.
    pub(crate) fn may_go_on(&self, shared: &Shared) -> Result<(), Refusal> {
        let now = now();
        shared.stops.may_visit(&self.0, now).map_err(|stop| Refusal::JobStopped { stop, left: stop.until.since(now) })
    }

    /// Records the origin's answer.
    pub(crate) fn answered(&self, shared: &Shared, settings: &Settings, status: u16) {
        if let Some(stop) = shared.stops.answered(&self.0, status, &patience(settings), now()) {
            tell(shared, &self.0, &stop);
        }
    }

    /// Records that there was no answer. Only failures of the network count.
    pub(crate) fn ended(&self, shared: &Shared, settings: &Settings, failure: &Failure) {
        let Failure::Upstream(error) = failure else { return };
        let failure = jobs::JobFailure::NoAnswer(reason(error));
        if let Some(stop) = shared.stops.failed(&self.0, failure, &patience(settings), now()) {
            tell(shared, &self.0, &stop);
        }
    }
}

fn patience(settings: &Settings) -> JobPatience {
    JobPatience { failures: settings.config.breaker.job_failures, ..JobPatience::default() }
}

fn tell(shared: &Shared, key: &JobKey, stop: &jobs::JobStop) {
    let (failures, why) = (stop.failures, stop.to_string());
    let (client, host) = (key.client(), stop.at_host.then(|| key.host()));
    let for_s = stop.until.since(stop.since).as_secs();
    shared.metrics.lessons.jobs_stopped.inc();
    tracing::warn!(event = "job.stopped", client, host, failures, for_s, why, "a client is stopped: it keeps failing");
    let client = key.name();
    shared.events.tell(
        "job.stopped",
        host,
        || json!({ "client": client, "failures": failures, "held_s": for_s, "why": why }),
    );
}

fn reason(error: &UpstreamError) -> &'static str {
    match error {
        UpstreamError::Dns(_) | UpstreamError::DnsTimeout => NO_ADDRESS,
        UpstreamError::ConnectTimeout | UpstreamError::ResponseTimeout | UpstreamError::WriteTimeout => TIMEOUT,
        UpstreamError::Certificate(_) | UpstreamError::Handshake(_) => TLS,
        _ => BROKEN,
    }
}

const NO_ADDRESS: &str = "no address for the host";
const TIMEOUT: &str = "a timeout";
const TLS: &str = "a TLS failure";
const BROKEN: &str = "a broken connection";
/// All reasons, so that a stored one is recognised after a restart.
pub(crate) const REASONS: [&str; 4] = [NO_ADDRESS, TIMEOUT, TLS, BROKEN];
