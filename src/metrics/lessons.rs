//! Counters for learning: what hosts signalled, and what curtsy did about it.

use prometheus::{IntCounter, Registry};

use super::register::{count, counter, labelled};

/// What hosts signalled, and what curtsy did about it.
#[derive(Debug)]
pub struct LearningMetrics {
    throttled: Vec<(&'static str, IntCounter)>,
    holds: Vec<(&'static str, IntCounter)>,
    pub learned_changes: IntCounter,
    pub concurrency_reductions: IntCounter,
    pub breaker_openings: IntCounter,
    pub retries: IntCounter,
    pub jobs_stopped: IntCounter,
}

const THROTTLES: [&str; 3] = ["429", "503", "other"];
const HOLDS: [&str; 3] = ["retry_after", "quota", "backoff"];

impl LearningMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let counter = |name, help| counter(registry, name, help);
        let labelled = |name, help, label, values| labelled(registry, name, help, label, values);
        LearningMetrics {
            throttled: labelled(
                "curtsy_throttled_total",
                "Answers of origins that say \"too fast\".",
                "status",
                &THROTTLES,
            ),
            holds: labelled("curtsy_holds_total", "Times a host was held, by cause.", "cause", &HOLDS),
            learned_changes: counter("curtsy_learned_delay_changes_total", "Changes of a learned delay."),
            concurrency_reductions: counter(
                "curtsy_concurrency_reductions_total",
                "Times a host was given fewer requests at once than configured.",
            ),
            breaker_openings: counter("curtsy_breaker_openings_total", "Times an origin was given up for a while."),
            retries: counter("curtsy_retries_total", "Requests sent again after a refusal."),
            jobs_stopped: counter("curtsy_jobs_stopped_total", "Named clients stopped because all they did failed."),
        }
    }

    /// Counts a response that says "too fast".
    pub fn throttle(&self, status: u16) {
        let label = match status {
            429 => "429",
            503 => "503",
            _ => "other",
        };
        count(&self.throttled, label);
    }

    pub fn hold(&self, cause: &str) {
        count(&self.holds, cause);
    }
}
