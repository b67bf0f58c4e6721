//! A host as the API returns it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::saved::SavedJson;
use crate::admin::time::{millis, moment, seconds};
use crate::politeness::HostKey;
use crate::politeness::fault::HostReply;
use crate::politeness::lane::{self, FailingOrigin, HoldSpan, Recent, Timeline, View};
use crate::politeness::pace::{LimitStage, LimitView};
use crate::politeness::policy::{self, Delays};
use crate::politeness::time::Timestamp;

/// One page of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostsJson {
    /// Number of hosts on all pages.
    pub total: usize,
    pub offset: usize,
    pub limit: usize,
    pub hosts: Vec<HostRow>,
    /// In a fleet: where turns are kept now, `redis` or `this node alone`.
    #[serde(default)]
    pub fleet: Option<String>,
}

/// A host in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostRow {
    pub host: String,
    pub state: String,
    pub delay_ms: u64,
    /// What requests wait for: a hold, a pause, `concurrency`, or the largest part of the delay.
    pub why: String,
    pub queued: usize,
    pub in_flight: usize,
    /// Visits since curtsy has known the host.
    pub visits: u32,
    /// When the next visit can start; none if that depends on an operator.
    pub next_available_s: Option<f64>,
    pub held_s: Option<f64>,
    pub hold_cause: Option<String>,
    pub error_streak: u16,
    pub last_sent: Option<String>,
    #[serde(flatten)]
    pub last: LastReply,
    /// Tunnels of the last hour in which requests were not paced; left out if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unpaced_tunnels: Option<u64>,
}

/// What came back from the host last, and which of its visits curtsy cannot look into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LastReply {
    /// None before the first answer, and if the last request got none.
    #[serde(default)]
    pub last_status: Option<u16>,
    /// Why the last request got no answer, for people.
    #[serde(default)]
    pub last_error: Option<String>,
    /// Since when requests get no answer.
    #[serde(default)]
    pub failing_since: Option<String>,
    /// Visits through tunnels, of `visits`: only paced.
    #[serde(default)]
    pub tunnelled: u32,
}

/// A host in full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostJson {
    pub host: String,
    /// paused, broken, held, unreachable, waiting, active or idle: the first that applies.
    pub state: String,
    pub mode: String,
    /// What takes a turn: requests or pages.
    #[serde(default)]
    pub count: String,
    /// Parts of pages that started without a turn since curtsy has known the host.
    #[serde(default)]
    pub parts: u32,
    pub delay_ms: u64,
    pub delay: DelayJson,
    /// What requests wait for: a hold, a pause, `concurrency`, or the largest part of the delay.
    pub why: String,
    pub floor_ms: Option<u64>,
    /// A lower delay is being tried.
    pub probing: bool,
    pub error_streak: u16,
    pub success_streak: u16,
    pub held_until: Option<String>,
    pub held_s: Option<f64>,
    pub hold_cause: Option<String>,
    pub next_available: Option<String>,
    pub next_available_s: Option<f64>,
    pub last_sent: Option<String>,
    pub last_success: Option<String>,
    #[serde(flatten)]
    pub last: LastReply,
    pub queued: usize,
    pub in_flight: usize,
    /// WebSockets, and bodies that take long: they have a limit of their own, as high as `concurrency`.
    pub long_transfers: usize,
    /// Visits since curtsy has known the host.
    pub visits: u32,
    pub concurrency: Concurrency,
    pub burst: u32,
    /// Requests of the burst that could start now.
    pub burst_left: u32,
    pub breaker: BreakerJson,
    pub paused: bool,
    /// None if there is no pause, or if only an operator can end it.
    pub paused_until: Option<String>,
    pub overrides: OverridesJson,
    /// How many retries the host's retry budget allows now; none while it has needed none.
    pub retries_left: Option<u32>,
    /// What `adaptive.policy = "auto"` knows about the host's limit.
    #[serde(default)]
    pub limit: Option<LimitJson>,
    /// In a fleet: what all nodes together know. Only in `GET /api/v1/hosts/{host}` and `/api/v1/explain`.
    #[serde(default)]
    pub fleet: Option<HostFleet>,
    /// What the cache saved. Only in `GET /api/v1/hosts/{host}` and `/api/v1/explain`.
    #[serde(default)]
    pub saved: Option<SavedJson>,
    /// Tunnels of the last hour whose requests could not be separated. Only in `GET /api/v1/hosts/{host}`.
    pub unpaced_tunnels: Option<UnpacedTunnels>,
    /// The latest starts and holds. Only in `GET /api/v1/hosts/{host}`.
    #[serde(default)]
    pub timeline: Option<TimelineJson>,
    /// In responses to changes: why the change is not on disk yet. A restart before it is written forgets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostFleet {
    /// `redis`, or `this node alone`: then the rest is unknown.
    pub from: String,
    /// How long ago any node last started a request.
    pub last_start_s: Option<f64>,
    /// Nodes with waiting requests.
    pub nodes_waiting: Option<u64>,
    pub held_s: Option<f64>,
    pub paused: Option<bool>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UnpacedTunnels {
    pub count: u64,
    /// The reason of the latest: http2, websocket or other.
    pub reason: String,
}

/// Times in milliseconds from now; the past is negative.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineJson {
    /// When the latest requests started, oldest first. Parts of pages are left out.
    pub starts_ms: Vec<i64>,
    pub holds: Vec<HoldJson>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldJson {
    pub from_ms: i64,
    pub until_ms: i64,
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitJson {
    /// Requests that the host allows, as far as measured; none before the first refusal.
    pub per_second: Option<f64>,
    /// From 0 to 1: it grows each time a probe finds the limit unchanged.
    pub confidence: f64,
    /// Why the pace is what it is.
    pub reason: String,
}

/// The parts of a delay. The largest part counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DelayJson {
    pub configured_ms: u64,
    pub robots_ms: u64,
    pub learned_ms: u64,
    pub response_ms: u64,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Concurrency {
    pub effective: usize,
    pub configured: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BreakerJson {
    /// closed, open or half-open.
    pub state: String,
    /// Failures in a row.
    pub failures: u16,
    pub until: Option<String>,
    /// The origins of the host that have failed lately. The fields above are those of the worst origin.
    #[serde(default)]
    pub origins: Vec<OriginBreaker>,
}

/// The breaker of one origin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OriginBreaker {
    pub origin: String,
    pub state: String,
    pub failures: u16,
    pub until: Option<String>,
}

/// What an operator set; everything else comes from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverridesJson {
    pub delay_ms: Option<u64>,
    pub burst: Option<u32>,
    pub concurrency: Option<u32>,
}

/// The response to `DELETE`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForgottenJson {
    pub host: HostJson,
    /// learned, overrides.
    pub forgotten: Vec<String>,
    /// What was not forgotten, each with its reason.
    pub kept: Vec<String>,
}

impl HostRow {
    pub(crate) fn new(host: &HostKey, view: &View, now: Timestamp) -> HostRow {
        HostRow {
            host: host.to_string(),
            state: view.condition().word().to_owned(),
            delay_ms: millis(view.delays.effective()),
            why: view.why().to_owned(),
            queued: view.queued,
            in_flight: view.in_flight,
            visits: view.visits,
            next_available_s: next(view, now),
            held_s: view.held.map(|(until, _)| seconds(until.since(now))),
            hold_cause: view.held.map(|(_, held)| held.word().to_owned()),
            error_streak: view.error_streak,
            last_sent: view.last_sent.and_then(moment),
            last: LastReply::new(&view.recent),
            unpaced_tunnels: None,
        }
    }
}

impl HostJson {
    pub(crate) fn new(host: &HostKey, view: &View, now: Timestamp) -> HostJson {
        let (effective, configured) = view.concurrency;
        HostJson {
            host: host.to_string(),
            state: view.condition().word().to_owned(),
            mode: view.mode.word().to_owned(),
            count: view.count.word().to_owned(),
            parts: view.parts,
            delay_ms: millis(view.delays.effective()),
            delay: DelayJson::new(&view.delays),
            why: view.why().to_owned(),
            floor_ms: view.floor.map(millis),
            probing: view.probing,
            error_streak: view.error_streak,
            success_streak: view.success_streak,
            held_until: view.held.and_then(|(until, _)| moment(until)),
            held_s: view.held.map(|(until, _)| seconds(until.since(now))),
            hold_cause: view.held.map(|(_, held)| held.word().to_owned()),
            next_available: moment(starts(view)),
            next_available_s: next(view, now),
            last_sent: view.last_sent.and_then(moment),
            last_success: view.last_success.and_then(moment),
            last: LastReply::new(&view.recent),
            queued: view.queued,
            in_flight: view.in_flight,
            long_transfers: view.long_transfers,
            visits: view.visits,
            concurrency: Concurrency { effective, configured },
            burst: view.burst,
            burst_left: view.burst_left,
            breaker: BreakerJson::new(view),
            paused: view.paused_until.is_some(),
            paused_until: view.paused_until.and_then(moment),
            overrides: OverridesJson::new(&view.overrides),
            retries_left: view.retries_left,
            limit: view.limit.map(|limit| LimitJson::new(&limit, view.delays.effective(), now)),
            fleet: None,
            saved: None,
            unpaced_tunnels: None,
            timeline: None,
            not_kept: None,
        }
    }
}

impl TimelineJson {
    pub(crate) fn new(timeline: &Timeline, now: Timestamp) -> TimelineJson {
        let from_now = |at: Timestamp| match at > now {
            true => i64::try_from(millis(at.since(now))).unwrap_or(i64::MAX),
            false => i64::try_from(millis(now.since(at))).map_or(i64::MIN, |ago| -ago),
        };
        let hold = |hold: &HoldSpan| HoldJson {
            from_ms: from_now(hold.from),
            until_ms: from_now(hold.until),
            cause: hold.cause.word().to_owned(),
        };
        TimelineJson {
            starts_ms: timeline.starts.iter().map(|start| from_now(*start)).collect(),
            holds: timeline.holds.iter().map(hold).collect(),
        }
    }
}

impl LastReply {
    fn new(recent: &Recent) -> LastReply {
        let Recent { reply, failing_since, tunnelled, .. } = *recent;
        LastReply {
            last_status: reply.and_then(HostReply::status),
            last_error: reply.and_then(HostReply::fault).map(|fault| fault.text().to_owned()),
            failing_since: failing_since.and_then(moment),
            tunnelled,
        }
    }
}

impl LimitJson {
    fn new(view: &LimitView, delay: Duration, now: Timestamp) -> LimitJson {
        let pace = format!("{}/s", per_second(delay.max(view.pace)));
        let doing = match view.stage {
            LimitStage::Starting => format!("speeding up at {pace}: not refused yet"),
            LimitStage::Refused => "one request at a time".to_owned(),
            LimitStage::Trying => format!("trying {pace}"),
            LimitStage::Holding => format!("staying at {pace}"),
            LimitStage::Slow => format!("slowed to {pace}: answers have become slow"),
        };
        let refused = view.refused.map(|(delay, at)| {
            let ago = now.since(at).as_secs();
            let ago = if ago < 120 { format!("{ago} s") } else { format!("{} min", ago / 60) };
            format!("refused at {}/s {ago} ago", per_second(delay))
        });
        LimitJson {
            per_second: view.limit.map(per_second),
            confidence: view.limit.map_or(0.0, |_| 1.0 - 0.5_f64.powi(i32::from(view.confirmed.min(6)) + 1)),
            reason: [Some(doing), refused].into_iter().flatten().collect::<Vec<_>>().join(": "),
        }
    }

    /// Says it in one line; the same as in `dashboard/web/host.js`.
    pub fn text(&self) -> String {
        let measured = self.per_second.map(|rate| format!("{rate}/s, {:.0} % sure; ", 100.0 * self.confidence));
        measured.unwrap_or_default() + &self.reason
    }
}

/// Requests per second at this delay, to three digits.
fn per_second(delay: Duration) -> f64 {
    let rate = 1.0 / delay.as_secs_f64().max(1e-6);
    let digits = 10_f64.powi(2 - rate.log10().floor() as i32);
    (rate * digits).round() / digits
}

impl UnpacedTunnels {
    pub(crate) fn new((reason, count): (&str, u64)) -> UnpacedTunnels {
        UnpacedTunnels { count, reason: reason.to_owned() }
    }
}

impl DelayJson {
    pub(crate) fn new(delays: &Delays) -> DelayJson {
        DelayJson {
            configured_ms: millis(delays.configured),
            robots_ms: millis(delays.robots),
            learned_ms: millis(delays.learned),
            response_ms: millis(delays.response),
            why: delays.why().to_owned(),
        }
    }
}

impl BreakerJson {
    fn new(view: &View) -> BreakerJson {
        let (state, until) = breaker(view.breaker);
        let origins = view.failing.iter().map(OriginBreaker::new).collect();
        BreakerJson { state, failures: view.failures, until, origins }
    }
}

impl OriginBreaker {
    fn new(failing: &FailingOrigin) -> OriginBreaker {
        let (state, until) = breaker(failing.breaker);
        OriginBreaker { origin: failing.origin.to_string(), state, failures: failing.failures, until }
    }
}

/// Returns the state of the breaker, and until when it is open.
fn breaker(breaker: lane::BreakerView) -> (String, Option<String>) {
    let (state, until) = match breaker {
        lane::BreakerView::Closed => ("closed", None),
        lane::BreakerView::Open(refusal) => ("open", moment(refusal.time)),
        lane::BreakerView::Trial => ("half-open", None),
    };
    (state.to_owned(), until)
}

impl OverridesJson {
    fn new(overrides: &policy::Overrides) -> OverridesJson {
        let policy::Overrides { delay, burst, concurrency } = *overrides;
        OverridesJson { delay_ms: delay.map(millis), burst, concurrency }
    }
}

fn next(view: &View, now: Timestamp) -> Option<f64> {
    let starts = starts(view);
    (starts < Timestamp::NEVER).then(|| seconds(starts.since(now)))
}

/// When the next visit can start. Until then the breaker of a broken host refuses visits, and so does curtsy while it
/// knows that a host is unreachable.
fn starts(view: &View) -> Timestamp {
    match view.breaker {
        lane::BreakerView::Open(refusal) if view.is_broken => view.next_start.max(refusal.time),
        _ if view.recent.is_unreachable() => view.next_start.max(view.recent.refused_until),
        _ => view.next_start,
    }
}
