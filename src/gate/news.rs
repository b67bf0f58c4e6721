//! What lanes learn, told to people: one line in the log for each change, and the counters.

use super::Gate;
use crate::politeness::HostKey;
use crate::politeness::breaker;
use crate::politeness::lane::Lesson;
use crate::politeness::pace::{self, Cause, What};
use crate::politeness::policy::Delays;
use crate::politeness::time::Timestamp;

impl Gate {
    pub(super) fn tell(&self, host: Option<&HostKey>, lesson: &Lesson, now: Timestamp) {
        let host = host.map_or("(hosts that found no room)", HostKey::as_str);
        if let Some(change) = &lesson.pace {
            self.tell_of_pace(host, change, lesson, now);
        }
        if let Some(change) = &lesson.breaker {
            self.tell_of_breaker(host, change, now);
        }
        let (before, after) = lesson.concurrency;
        if after < before {
            self.metrics.lessons.concurrency_reductions.inc();
        }
    }

    fn tell_of_pace(&self, host: &str, change: &pace::Change, lesson: &Lesson, now: Timestamp) {
        if let Some(hold) = change.hold {
            self.metrics.lessons.hold(match hold.cause {
                Cause::RetryAfter => "retry_after",
                Cause::Quota => "quota",
                Cause::Backoff => "backoff",
            });
        }
        let why = match change.what {
            What::Slowed => "refused",
            What::Probing => "trying a step faster",
            What::Restored => "the faster step was refused",
            What::Proven => "the faster step holds",
            What::Held => "asked to wait",
        };
        let held_s = change.hold.map_or(0.0, |hold| hold.until.since(now).as_secs_f64());
        if change.before == change.learned && change.what == What::Held {
            // Hosts that count down a quota say so with every answer.
            tracing::debug!(event = "host.held", host, held_s, why, "a host is held");
            return;
        }
        self.metrics.lessons.learned_changes.inc();
        tracing::info!(
            event = "delay.learned",
            host,
            delay_s = lesson.delay.as_secs_f64(),
            learned_s = change.learned.as_secs_f64(),
            before_s = change.before.as_secs_f64(),
            held_s,
            streak = change.error_streak,
            concurrency = lesson.concurrency.1,
            why,
            "a host's pace has changed"
        );
    }

    fn tell_of_breaker(&self, host: &str, change: &breaker::Change, now: Timestamp) {
        match change {
            breaker::Change::Opened { until, why } => {
                self.metrics.lessons.breaker_openings.inc();
                let why = match why {
                    breaker::Why::Failures(times) => format!("{times} failures in a row"),
                    breaker::Why::Throttled(times) => format!("{times} refusals in a row at the largest delay"),
                };
                let for_s = until.since(now).as_secs_f64();
                tracing::warn!(event = "breaker.opened", host, for_s, why, "a host is left alone for a while");
            }
            breaker::Change::Closed { since } => {
                let open_s = now.since(*since).as_secs_f64();
                tracing::info!(event = "breaker.closed", host, open_s, "a host answers again");
            }
        }
    }
}

/// robots.txt asks for another delay than before.
pub(super) fn crawl_delay_changed(host: &HostKey, before: &Delays, after: &Delays) {
    tracing::info!(
        event = "delay.robots",
        %host,
        delay_s = after.effective().as_secs_f64(),
        robots_s = after.robots.as_secs_f64(),
        before_s = before.robots.as_secs_f64(),
        why = "robots.txt",
        "a host's delay has changed"
    );
}
