//! `curtsy host`: shows and controls one host, in a running curtsy or in the state directory.

use std::io;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use super::admin::{AskArgs, Call, segment};
use super::config::Streams;
use super::offline;
use super::terminal::{BOLD, GREEN, RED, TextStyle, YELLOW, about, columns, labelled, printable, span, time};
use crate::admin::hosts::{DelayJson, ForgottenJson, HostFleet, HostJson, LimitJson, UnpacedTunnels};
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "What is set here lasts until it is reset.
Nothing here makes curtsy faster than a host asks for: the largest of the configured, the learned
and the robots.txt delay applies.

If no curtsy runs, this shows and changes the state directory, with effect from the next start on.

Exit codes: 0 ok, 1 not possible, 4 no curtsy runs and nothing is kept.

Examples:
  curtsy host example.com
  curtsy host example.com set --delay 5s --concurrency 1
  curtsy host example.com set --delay default
  curtsy host example.com pause --until 30m
  curtsy host example.com resume
  curtsy host example.com forget")]
pub(super) struct HostArgs {
    /// The host, without scheme and port
    host: String,
    #[command(subcommand)]
    deed: Option<HostAction>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum HostAction {
    /// Show what is known about it (the default)
    Show,
    /// Override numbers of the configuration; "default" resets one
    Set(Box<Numbers>),
    /// Send no requests to it
    Pause {
        /// When the pause ends: a duration such as 30m, or a time such as 2026-11-16T15:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
    /// End a pause; a hold that the host asked for stays
    Resume,
    /// Forget what was learned about it and set for it
    Forget,
}

#[derive(Args, Clone, Debug)]
#[group(required = true, multiple = true)]
struct Numbers {
    /// Time between two requests, such as 2s
    #[arg(long, value_name = "TIME", conflicts_with = "rate")]
    delay: Option<String>,
    /// The same as a rate, such as 30/m
    #[arg(long, value_name = "RATE")]
    rate: Option<String>,
    /// Requests that may start at once after a quiet time
    #[arg(long, value_name = "N")]
    burst: Option<String>,
    /// Requests in flight
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
}

const USAGE: u8 = 2;

pub(super) fn run(args: &HostArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let path = format!("/api/v1/hosts/{}", segment(&args.host));
    let brush = TextStyle(paint);
    let body = match args.deed.as_ref().unwrap_or(&HostAction::Show) {
        HostAction::Show => None,
        HostAction::Forget => {
            let call = Call { method: "DELETE", path, body: None };
            let page = |told: &ForgottenJson| (forgotten(told, brush), 0);
            return offline::tell_or_do(&args.ask, sources, streams, (&call, &call), page);
        }
        HostAction::Set(numbers) => match numbers.body() {
            Ok(body) => Some(body),
            Err(problem) => {
                writeln!(streams.err, "error: {problem}")?;
                return Ok(USAGE);
            }
        },
        HostAction::Pause { until: None } => Some(json!({ "paused": true })),
        HostAction::Pause { until: Some(until) } => Some(json!({ "paused": true, "until": until })),
        HostAction::Resume => Some(json!({ "paused": false })),
    };
    let method = if body.is_some() { "PATCH" } else { "GET" };
    let call = Call { method, path, body };
    offline::tell_or_do(&args.ask, sources, streams, (&call, &call), |host: &HostJson| {
        (page(host, brush, columns()), 0)
    })
}

impl Numbers {
    fn body(&self) -> Result<Value, String> {
        let mut body = Map::new();
        for (name, text) in [("delay", &self.delay), ("rate", &self.rate)] {
            if let Some(text) = text {
                body.insert(name.to_owned(), if text == "default" { Value::Null } else { json!(text) });
            }
        }
        for (name, text) in [("burst", &self.burst), ("concurrency", &self.concurrency)] {
            let Some(text) = text else { continue };
            let number = text.parse::<u32>().map(|number| json!(number));
            let value = if text == "default" { Ok(Value::Null) } else { number };
            let value = value.map_err(|_| format!("--{name} is a number or \"default\", not {}", printable(text)))?;
            body.insert(name.to_owned(), value);
        }
        Ok(Value::Object(body))
    }
}

pub(super) fn page(host: &HostJson, brush: TextStyle, columns: Option<usize>) -> String {
    let state = match host.state.as_str() {
        calm @ ("idle" | "active" | "waiting") => brush.stroke(GREEN, calm),
        dead @ ("unreachable" | "broken") => brush.stroke(RED, dead),
        other => brush.stroke(YELLOW, other),
    };
    let mut page = format!("{}  {state}\n\n", brush.stroke(BOLD, &printable(&host.host)));
    let rows = [
        ("delay", Some(delay(&host.delay, host.delay_ms))),
        ("learning", learning(host)),
        ("limit", host.limit.as_ref().map(limit)),
        ("held", held(host)),
        ("paused", host.paused.then(|| paused(host))),
        ("failing", failing(host)),
        ("next", Some(next(host))),
        ("queue", Some(format!("{} waiting, {} in flight of {}", host.queued, host.in_flight, concurrency(host)))),
        ("burst", (host.burst > 1).then(|| format!("{} of {} left", host.burst_left, host.burst))),
        ("count", (host.count == "pages").then(|| format!("pages; {} parts rode on their turns", host.parts))),
        ("breaker", breaker(host)),
        ("traffic", traffic(host)),
        ("saved", host.saved.map(|saved| format!("{} (from the cache)", saved.text()))),
        ("tunnels", host.unpaced_tunnels.as_ref().map(unpaced)),
        ("set", set(host)),
        ("last", last(host)),
        ("fleet", host.fleet.as_ref().map(fleet)),
        ("not kept", host.not_kept.as_deref().map(not_kept)),
        ("mode", (host.mode != "enforce").then(|| format!("{}: none of this is enforced", host.mode))),
    ];
    page.push_str(&labelled(rows, 10, brush, columns));
    page
}

/// Describes what all nodes of a fleet know about the host.
pub(super) fn fleet(fleet: &HostFleet) -> String {
    if fleet.from != "redis" {
        return format!("{}: Redis does not answer; other nodes are not counted here", printable(&fleet.from));
    }
    let last = fleet.last_start_s.map(|seconds| format!("last start of any node {} ago", span(seconds as u64)));
    let waiting = fleet.nodes_waiting.map(|nodes| format!("{nodes} nodes wait"));
    let held = fleet.held_s.map(|seconds| format!("held for {}", span(seconds.ceil() as u64)));
    let paused = fleet.paused.filter(|paused| *paused).map(|_| "paused".to_owned());
    let known: Vec<String> = [last, waiting, held, paused].into_iter().flatten().collect();
    format!("from Redis: {}", if known.is_empty() { "no node was there lately".to_owned() } else { known.join(", ") })
}

/// Describes the delay and its parts. The largest part applies, and is marked.
pub(super) fn delay(delay: &DelayJson, effective_ms: u64) -> String {
    let parts = [
        ("configured", delay.configured_ms, "configured"),
        ("robots.txt", delay.robots_ms, "robots"),
        ("learned", delay.learned_ms, "learned"),
        ("response time", delay.response_ms, "response-time"),
    ];
    let parts = parts.iter().filter(|(_, millis, why)| *millis > 0 || *why == "configured");
    let parts: Vec<String> = parts
        .map(|(name, millis, why)| {
            let mark = if *why == delay.why { " <-" } else { "" };
            format!("{name} {}{mark}", time(*millis))
        })
        .collect();
    match parts.len() {
        1 => format!("{}, as configured or set", time(effective_ms)),
        _ => format!("{} = the largest of {}", time(effective_ms), parts.join(", ")),
    }
}

fn learning(host: &HostJson) -> Option<String> {
    let mut parts = Vec::new();
    if host.error_streak > 0 {
        parts.push(format!("refused {} in a row", times(host.error_streak)));
    }
    if host.success_streak > 0 {
        parts.push(format!("served {} in a row", times(host.success_streak)));
    }
    if host.probing {
        parts.push("this delay is on trial".to_owned());
    }
    parts.extend(host.floor_ms.map(|floor| format!("not below {} for now", time(floor))));
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(super) fn limit(limit: &LimitJson) -> String {
    printable(&limit.text())
}

fn times(number: u16) -> String {
    if number == 1 { "once".to_owned() } else { format!("{number} times") }
}

fn held(host: &HostJson) -> Option<String> {
    let seconds = about(host.held_s?);
    let cause = match host.hold_cause.as_deref() {
        Some("retry-after") => "the host asked for it (Retry-After)",
        Some("quota") => "the host's quota is used up",
        Some("backoff") => "it refused the last requests",
        _ => "its robots.txt was refused, or the hold is remembered",
    };
    Some(format!("for {seconds}, until {}: {cause}", host.held_until.as_deref().unwrap_or("?")))
}

fn paused(host: &HostJson) -> String {
    match &host.paused_until {
        Some(until) => format!("until {until}"),
        None => format!("until it is resumed: curtsy host {} resume", printable(&host.host)),
    }
}

fn failing(host: &HostJson) -> Option<String> {
    let error = printable(host.last.last_error.as_deref()?);
    Some(format!("{error}, since {}", host.last.failing_since.as_deref().unwrap_or("?")))
}

fn next(host: &HostJson) -> String {
    let refuses = matches!(host.state.as_str(), "unreachable" | "broken");
    match host.next_available_s {
        None => "unknown".to_owned(),
        Some(seconds) if seconds <= 0.0 && refuses => "the next request tries the host again".to_owned(),
        Some(seconds) if refuses => format!("tried again in {}; until then requests are refused", about(seconds)),
        Some(seconds) if seconds <= 0.0 => "a request could start now".to_owned(),
        Some(seconds) => format!("a request could start in {}", about(seconds)),
    }
}

/// Tells how polite the visits were: fully, or in tunnels only paced.
fn traffic(host: &HostJson) -> Option<String> {
    let tunnelled = host.last.tunnelled.min(host.visits);
    let full = host.visits - tunnelled;
    Some(match (full, tunnelled) {
        (0, 0) => return None,
        (1, 0) => "1 request, fully polite".to_owned(),
        (full, 0) => format!("{full} requests, fully polite"),
        (full, tunnelled) => {
            format!("{full} fully polite, {tunnelled} in tunnels: paced only (no robots.txt paths, no 429)")
        }
    })
}

fn concurrency(host: &HostJson) -> String {
    let concurrency = host.concurrency;
    if concurrency.effective == concurrency.configured {
        return concurrency.effective.to_string();
    }
    format!("{} (instead of {}, while curtsy is careful)", concurrency.effective, concurrency.configured)
}

fn breaker(host: &HostJson) -> Option<String> {
    let origins = host.breaker.origins.iter().map(|at| {
        let (origin, failures) = (printable(&at.origin), at.failures);
        match (at.state.as_str(), &at.until) {
            ("closed", _) => format!("{origin} closed, after {failures} failed in a row"),
            (_, Some(until)) => format!("{origin} open until {until}, after {failures} failed in a row"),
            _ => format!("{origin} half-open: one request at a time is on trial"),
        }
    });
    let origins: Vec<String> = origins.collect();
    (!origins.is_empty()).then(|| origins.join("; "))
}

fn set(host: &HostJson) -> Option<String> {
    let overrides = host.overrides;
    let mut parts = Vec::new();
    parts.extend(overrides.delay_ms.map(|delay| format!("delay {}", time(delay))));
    parts.extend(overrides.burst.map(|burst| format!("burst {burst}")));
    parts.extend(overrides.concurrency.map(|concurrency| format!("concurrency {concurrency}")));
    (!parts.is_empty()).then(|| format!("{} (by an operator, until reset)", parts.join(", ")))
}

fn last(host: &HostJson) -> Option<String> {
    let sent = host.last_sent.as_ref().map(|at| format!("sent {at}"));
    let served = host.last_success.as_ref().map(|at| format!("served {at}"));
    let status = host.last.last_status.map(|status| format!("status {status}"));
    let parts: Vec<String> = sent.into_iter().chain(served).chain(status).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

pub(super) fn unpaced(tunnels: &UnpacedTunnels) -> String {
    let what = match tunnels.reason.as_str() {
        "http2" => "HTTP/2, which is paced with --intercept only",
        "websocket" => "WebSocket",
        "off" => "tls.tunnel.pace_requests is off",
        _ => "not HTTP over TLS",
    };
    let were = if tunnels.count == 1 { "tunnel was" } else { "tunnels were" };
    format!("{} {were} not paced inside in the last hour: {what}", tunnels.count)
}

/// Describes a change that is not yet on disk.
pub(super) fn not_kept(why: &str) -> String {
    format!("{}; curtsy keeps trying, and a restart before that forgets this change", printable(why))
}

fn forgotten(told: &ForgottenJson, brush: TextStyle) -> String {
    let what = |word: &str| match word {
        "learned" => "what was learned",
        _ => "what was set",
    };
    let gone: Vec<&str> = told.forgotten.iter().map(|word| what(word)).collect();
    let gone = if gone.is_empty() { "nothing: there was nothing to forget".to_owned() } else { gone.join(" and ") };
    let mut text = format!("forgot {gone}\n");
    for kept in &told.kept {
        text.push_str(&format!("kept   {}\n", printable(kept)));
    }
    format!("{text}\n{}", page(&told.host, brush, columns()))
}
