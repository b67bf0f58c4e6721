//! Reports what lanes learn: one log line for each change, and the counters.

use std::time::Duration;

use serde_json::json;

use super::view::{Pause, WantedHost};
use super::waiting_list::{Label, NewWait};
use super::{Gate, now};
use crate::events::WAITING;
use crate::politeness::breaker;
use crate::politeness::lane::{LaneLesson, View};
use crate::politeness::pace::{self, Cause, What};
use crate::politeness::policy::Delays;
use crate::politeness::time::{Timestamp, millis};
use crate::politeness::{HostKey, Origin};

impl Gate {
    pub(super) fn tell(&self, host: &HostKey, origin: Option<&Origin>, lesson: &LaneLesson, now: Timestamp) {
        let host = host.as_str();
        if let Some(change) = &lesson.pace {
            self.tell_of_pace(host, change, lesson, now);
        }
        if let Some(change) = &lesson.breaker {
            let origin = origin.map(Origin::to_string).unwrap_or_default();
            self.tell_of_breaker(host, &origin, change, now);
        }
        let (before, after) = lesson.concurrency;
        if after < before {
            self.metrics.lessons.concurrency_reductions.inc();
        }
    }

    fn tell_of_pace(&self, host: &str, change: &pace::Change, lesson: &LaneLesson, now: Timestamp) {
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
        if change.before == change.learned {
            if change.hold.is_some() {
                // Hosts that count down a quota ask for this with every answer.
                tracing::debug!(event = "host.held", host, held_s, why, "a host is held");
            }
            if held_s >= NOTABLE {
                self.events.tell("host.held", Some(host), || json!({ "held_s": held_s, "why": why }));
            }
            return;
        }
        self.metrics.lessons.learned_changes.inc();
        tracing::info!(
            event = "delay.learned",
            host,
            delay_ms = millis(lesson.delay),
            learned_ms = millis(change.learned),
            before_ms = millis(change.before),
            held_s,
            streak = change.error_streak,
            concurrency = lesson.concurrency.1,
            why,
            "a host's pace has changed"
        );
        let kind = if change.learned > change.before { "host.slowed" } else { "host.recovered" };
        self.events.tell(kind, Some(host), || {
            json!({
                "delay_ms": millis(lesson.delay),
                "learned_ms": millis(change.learned),
                "before_ms": millis(change.before),
                "held_s": held_s,
                "why": why,
            })
        });
    }

    fn tell_of_breaker(&self, host: &str, origin: &str, change: &breaker::BreakerChange, now: Timestamp) {
        match change {
            breaker::BreakerChange::Opened { until, why } => {
                self.metrics.lessons.breaker_openings.inc();
                let why = match why {
                    breaker::Why::Failures(times) => format!("{times} failures in a row"),
                    breaker::Why::Throttled(times) => format!("{times} refusals in a row at the largest delay"),
                };
                let for_s = until.since(now).as_secs_f64();
                tracing::warn!(
                    event = "breaker.opened",
                    host,
                    origin,
                    for_s,
                    why,
                    "an origin is left alone for a while"
                );
                self.events.tell(
                    "breaker.opened",
                    Some(host),
                    || json!({ "origin": origin, "held_s": for_s, "why": why }),
                );
            }
            breaker::BreakerChange::Closed { since } => {
                let open_s = now.since(*since).as_secs_f64();
                tracing::info!(event = "breaker.closed", host, origin, open_s, "an origin answers again");
                self.events.tell(
                    "breaker.closed",
                    Some(host),
                    || json!({ "origin": origin, "why": "it answers again" }),
                );
            }
        }
    }

    /// Reports visits that have waited for [`NOTABLE_WAIT`], each once. Call it from time to time while there are
    /// listeners.
    pub fn tell_of_waits(&self) {
        let now = now();
        for NewWait { waiting, lane, position, for_robots, more } in self.line.new_waits(now - NOTABLE_WAIT, MOST_WAITS)
        {
            let waiting = waiting.settled(position - 1, &lane, now);
            let (delays, why) = lane.look(|state| {
                let view = state.lane.view(now);
                (view.delays, if for_robots { "robots-fetch" } else { view.why() })
            });
            self.events.tell(WAITING, Some(waiting.host.as_str()), || {
                let Label { client, method, url, .. } = waiting.label.unwrap_or_default();
                let expected = (waiting.expected < Timestamp::NEVER).then(|| millis(waiting.expected.since(now)));
                json!({
                    "client": client,
                    "method": method,
                    "url": url,
                    "position": position,
                    "waited_ms": millis(now.since(waiting.since)),
                    "expected_ms": expected,
                    "delay_ms": millis(delays.effective()),
                    "why": why,
                    "more": more,
                })
            });
        }
    }

    /// Reports that the operator has changed a host.
    pub(super) fn tell_of_steering(&self, host: &HostKey, wanted: &WantedHost, view: &View) {
        let kind = match wanted.pause {
            Some(Pause::UntilResumed | Pause::Until(_)) => "host.paused",
            Some(Pause::Over) => "host.resumed",
            None => "host.steered",
        };
        let left = view.paused_until.filter(|until| *until < Timestamp::NEVER).map(|until| until.since(now()));
        self.events.tell(kind, Some(host.as_str()), || {
            let held_s = left.map(|left| left.as_secs_f64());
            json!({ "delay_ms": millis(view.delays.effective()), "held_s": held_s, "why": "by hand" })
        });
    }

    /// Reports that robots.txt asks for another delay than before.
    pub(super) fn tell_of_crawl_delay(&self, host: &HostKey, before: &Delays, after: &Delays) {
        let (delay_ms, before_ms) = (millis(after.effective()), millis(before.effective()));
        tracing::info!(
            event = "delay.robots",
            %host,
            delay_ms,
            robots_ms = millis(after.robots),
            before_ms,
            why = "robots.txt",
            "a host's delay has changed"
        );
        let kind = if after.effective() < before.effective() { "host.recovered" } else { "host.slowed" };
        self.events.tell(
            kind,
            Some(host.as_str()),
            || json!({ "delay_ms": delay_ms, "before_ms": before_ms, "held_s": 0.0, "why": "robots.txt" }),
        );
    }
}

/// Shorter waits are what pacing is about; only longer ones make a person wonder.
const NOTABLE_WAIT: Duration = Duration::from_secs(1);
/// Waits reported at once. The others are reported a second later.
const MOST_WAITS: usize = 50;

/// Seconds. Shorter holds are not reported as events: hosts that count down a quota ask for them often.
const NOTABLE: f64 = 2.0;
