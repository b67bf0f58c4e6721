//! The job a request belongs to: a client with a name, whose failures are counted.
//!
//! Only what became of a request counts: its origin's answer, or none. What curtsy refuses is not the job's failure, and
//! a client that leaves reports nothing.

use serde_json::json;

use super::failure::{Failure, Refusal};
use super::{Settings, Shared};
use crate::gate::now;
use crate::politeness::jobs::{self, Patience};
use crate::upstream::UpstreamError;

/// A named client's request; of a client without a name, nothing.
pub(super) struct Job(Option<Box<str>>);

impl Job {
    pub(super) fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }

    /// Whether the job may go on.
    pub(super) fn begin(shared: &Shared, name: Option<&str>) -> Result<Self, Refusal> {
        let Some(name) = name else { return Ok(Job(None)) };
        let now = now();
        shared.stops.may_visit(Some(name), now).map_err(|stop| {
            let left = stop.until.since(now);
            Refusal::JobStopped { stop, left }
        })?;
        Ok(Job(Some(name.into())))
    }

    /// Whether the job may go on with another request.
    pub(super) fn may_go_on(&self, shared: &Shared) -> Result<(), Refusal> {
        Job::begin(shared, self.0.as_deref()).map(drop)
    }

    /// The origin answered.
    pub(super) fn answered(&self, shared: &Shared, settings: &Settings, status: u16) {
        if self.0.is_none() {
            return;
        }
        // What was refused or broke is a failure; what was not found was looked for.
        if status == 429 || status >= 500 {
            self.failed(shared, settings, jobs::Failure::Status(status));
        } else {
            shared.stops.succeeded(self.0.as_deref(), now());
        }
    }

    /// There was no answer.
    pub(super) fn ended(&self, shared: &Shared, settings: &Settings, failure: &Failure) {
        if let Failure::Upstream(error) = failure {
            self.failed(shared, settings, jobs::Failure::NoAnswer(reason(error)));
        }
    }

    fn failed(&self, shared: &Shared, settings: &Settings, failure: jobs::Failure) {
        let Some(name) = self.0.as_deref() else { return };
        let patience = Patience { failures: settings.config.breaker.job_failures, ..Patience::default() };
        let now = now();
        let stop = shared.stops.failed(name, failure, &patience, now);
        if let Some(jobs::Stop { failures, until, last: Some(last), .. }) = stop {
            shared.metrics.lessons.jobs_stopped.inc();
            let for_s = until.since(now).as_secs();
            tracing::warn!(
                event = "job.stopped", client = name, failures, %last, for_s,
                "a client is stopped: all it did lately has failed"
            );
            shared.events.tell("job.stopped", None, || {
                json!({ "client": name, "failures": failures, "held_s": for_s, "why": format!("the last one with {last}") })
            });
        }
    }
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
/// All of them, to be known again after a restart.
pub(super) const REASONS: [&str; 4] = [NO_ADDRESS, TIMEOUT, TLS, BROKEN];
