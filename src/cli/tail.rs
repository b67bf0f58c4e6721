//! `curtsy tail`: prints the events of a running curtsy as they happen.
//!
//! One line per event. If curtsy disconnects, this command waits until it is back, and then prints the events that it
//! missed, as far as curtsy still has them.

mod follow;

use std::io;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use url::form_urlencoded;

pub(super) use self::follow::Feed;
use super::admin::{AskArgs, RunningCurtsy};
use super::config::Streams;
use super::terminal::{DIM, GREEN, RED, TextStyle, YELLOW, about, printable, time};
use crate::config::{AddressSpan, Sources};

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Kinds: request, request.waiting once a request has waited for a second, and about hosts, robots.txt, clients and the configuration host.slowed, host.held,
breaker.opened, robots.fetched, job.stopped, config.reloaded, cache.unwritten and the like. The word before
the dot stands for all of them.

Exit codes: 4 no curtsy runs. Ends when it is interrupted.

Examples:
  curtsy tail
  curtsy tail --host example.com --kind request
  curtsy tail --denied
  curtsy tail --waited 5s --client spider
  curtsy tail --json | jq 'select(.status == 429)'"
)]
pub(super) struct TailArgs {
    /// Only events about this host
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// Only events of this client: a proxy user, or an address
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only events of these kinds; may be given more than once
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// Only requests that curtsy refused
    #[arg(long)]
    denied: bool,
    /// Only requests that were held at least this long, such as 5s
    #[arg(long, value_name = "TIME", value_parser = length_of)]
    waited: Option<Duration>,
    /// Begin with this many of the last events, at most 512
    #[arg(long, value_name = "N", default_value_t = 0)]
    recent: u16,
    #[command(flatten)]
    ask: AskArgs,
}

fn length_of(text: &str) -> Result<Duration, String> {
    text.parse::<AddressSpan>().map(|span| span.0).map_err(|bad| format!("{}; {}", bad.message, bad.advice))
}

/// The time between two tries to reconnect.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) fn run(args: &TailArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let query = args.query();
    let first = RunningCurtsy::find(&args.ask, sources).and_then(|running| Feed::open(&running, &query, None));
    let mut feed = match first {
        Ok(feed) => feed,
        Err(trouble) => return trouble.tell(streams),
    };
    loop {
        while let Some(event) = feed.next() {
            if args.wants(&event) {
                let line = if args.ask.json { event.to_string() } else { line(&event, TextStyle(paint)) };
                writeln!(streams.out, "{line}")?;
                streams.out.flush()?;
            }
        }
        writeln!(streams.err, "curtsy has disconnected; waiting for it")?;
        let last = feed.last();
        feed = loop {
            thread::sleep(PAUSE);
            let found = RunningCurtsy::find(&args.ask, sources).and_then(|running| Feed::open(&running, &query, last));
            if let Ok(feed) = found {
                break feed;
            }
        };
        writeln!(streams.err, "curtsy is back")?;
    }
}

impl TailArgs {
    fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(host) = &self.host {
            query.append_pair("host", host);
        }
        if self.of_requests() {
            query.append_pair("kind", "request");
        } else if !self.kind.is_empty() {
            query.append_pair("kind", &self.kind.join(","));
        }
        if self.recent > 0 {
            query.append_pair("recent", &self.recent.to_string());
        }
        query.finish()
    }

    /// Whether a filter needs fields that only requests have.
    fn of_requests(&self) -> bool {
        self.denied || self.waited.is_some()
    }

    fn wants(&self, event: &Value) -> bool {
        // Status events are for programs that draw them.
        if event["event"] == "status" && !self.kind.iter().any(|kind| kind == "status") {
            return false;
        }
        let waited = || Duration::from_millis(event["wait_ms"].as_u64().unwrap_or(0));
        self.client.as_ref().is_none_or(|client| event["client"] == client.as_str())
            && (!self.denied || event["error"].is_string())
            && self.waited.is_none_or(|least| waited() >= least)
    }
}

fn line(event: &Value, brush: TextStyle) -> String {
    let text = |name: &str| event[name].as_str().map(printable);
    let at = text("at").unwrap_or_default();
    // The user knows the date, so only the time is printed.
    let at = brush.stroke(DIM, at.split_once('T').map_or(at.as_str(), |(_, time)| time));
    let skipped = event["skipped"].as_u64().map(|count| format!(" ({count} like it not shown)")).unwrap_or_default();
    match event["event"].as_str().unwrap_or_default() {
        "request" => format!("{at} {}{skipped}", request(event, brush)),
        "request.waiting" => format!("{at} {}{skipped}", waiting(event, brush)),
        "lost" => brush.stroke(YELLOW, &format!("{} events were too many to show", event["count"])),
        kind => {
            let host = text("host").map(|host| format!(" {host}")).unwrap_or_default();
            format!("{at} {}{host}{}{skipped}", brush.stroke(YELLOW, &printable(kind)), rest(event))
        }
    }
}

/// Formats a request as in the access log.
fn request(event: &Value, brush: TextStyle) -> String {
    let text = |name: &str| event[name].as_str().map_or_else(|| "-".to_owned(), printable);
    let status = event["status"].as_u64().map_or_else(|| "-".to_owned(), |status| status.to_string());
    let colour = match event["status"].as_u64() {
        Some(100..400) => GREEN,
        Some(400..500) => YELLOW,
        _ => RED,
    };
    let mut line = format!("{} {} {} {}", text("client"), text("method"), text("url"), brush.stroke(colour, &status));
    line += &format!(" {}B", event["bytes"].as_u64().unwrap_or(0));
    for (name, label) in [("took_ms", "took"), ("wait_ms", "wait"), ("origin_ms", "origin")] {
        if let Some(millis) = event[name].as_u64().filter(|millis| *millis > 0) {
            line += &format!(" {label}={}", time(millis).replace(' ', ""));
        }
    }
    for name in ["why", "cache", "error"] {
        if event[name].is_string() {
            line += &format!(" {name}={}", text(name));
        }
    }
    if event["complete"] == false {
        line += " cut=true";
        if event["cut_by"].is_string() {
            line += &format!(" cut_by={}", text("cut_by"));
        }
    }
    line
}

/// Formats a request that has begun to wait.
fn waiting(event: &Value, brush: TextStyle) -> String {
    let text = |name: &str| event[name].as_str().map_or_else(|| "-".to_owned(), printable);
    let left = match event["expected_ms"].as_u64() {
        Some(millis) => format!("about {}", about(millis as f64 / 1e3)),
        None => "until it is resumed".to_owned(),
    };
    let more = match event["more"].as_u64() {
        None | Some(0) => String::new(),
        Some(more) => format!(" ({more} more of this client)"),
    };
    let (client, method, url, position) = (text("client"), text("method"), text("url"), &event["position"]);
    let label = brush.stroke(YELLOW, "waiting");
    format!("{client} {method} {url} {label} {left}, position {position}, because {}{more}", reason(event))
}

/// Says what a request waits for.
fn reason(event: &Value) -> String {
    let delay = about(event["delay_ms"].as_u64().unwrap_or(0) as f64 / 1e3);
    match event["why"].as_str().unwrap_or_default() {
        "configured" => format!("the delay is {delay}"),
        "robots" => format!("robots.txt asks for {delay}"),
        "learned" => format!("the learned delay is {delay}"),
        "response-time" => format!("the host answers slowly (delay {delay})"),
        "robots-fetch" => "its robots.txt is being fetched".to_owned(),
        "retry-after" => "the host asked to wait (Retry-After)".to_owned(),
        "quota" => "the quota of the host is used up".to_owned(),
        "backoff" => "the host refused requests".to_owned(),
        "breaker" => "the origin only fails".to_owned(),
        "paused" => "the host is paused".to_owned(),
        "concurrency" => "all places at the host are taken".to_owned(),
        other => printable(other),
    }
}

/// Formats the fields of an event that not all events have.
fn rest(event: &Value) -> String {
    let known = |name: &&String| !["event", "at", "host", "skipped"].contains(&name.as_str());
    let object = event.as_object().into_iter().flatten();
    let told = object.filter(|(name, value)| known(name) && !value.is_null()).map(|(name, value)| match value {
        Value::String(text) => format!(" {name}={}", printable(text)),
        other => format!(" {name}={}", printable(&other.to_string())),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tail: TailArgs,
    }

    fn args(line: &[&str]) -> TailArgs {
        Line::parse_from([&["tail"], line].concat()).tail
    }

    #[test]
    fn filters_are_asked_for_or_kept_to() {
        let request = |client: &str, wait: u64, error: Option<&str>| json!({"event": "request", "client": client, "wait_ms": wait, "error": error});
        let asked = args(&["--denied", "--waited", "5s", "--client", "ada", "--host", "a.test", "--kind", "host"]);
        assert_eq!(asked.query(), "host=a.test&kind=request");
        assert!(asked.wants(&request("ada", 5_000, Some("queue-full"))));
        for other in [request("bob", 5_000, Some("x")), request("ada", 4_999, Some("x")), request("ada", 9_000, None)] {
            assert!(!asked.wants(&other), "{other}");
        }
        assert_eq!(args(&["--kind", "host,job", "--recent", "7"]).query(), "kind=host%2Cjob&recent=7");
        assert!(
            !args(&[]).wants(&json!({"event": "status"}))
                && args(&["--kind", "status"]).wants(&json!({"event": "status"}))
        );
    }

    #[test]
    fn an_event_is_one_harmless_line() {
        let told = |event: Value| line(&event, TextStyle(false));
        let request = json!({"event": "request", "at": "2026-11-16T14:02:12.020Z", "host": "a.test", "client": "ada",
            "method": "GET", "url": "http://a.test/\u{1b}[2J", "status": 200, "bytes": 5123, "took_ms": 4400,
            "wait_ms": 4213, "origin_ms": 182, "why": "robots", "error": null, "complete": true, "skipped": 3});
        let expected = "14:02:12.020Z ada GET http://a.test/\\u{1b}[2J 200 5123B took=4.4s wait=4.213s origin=0.182s why=robots (3 like it not shown)";
        assert_eq!(told(request), expected);
        let held = json!({"event": "host.held", "at": "2026-11-16T14:02:12.020Z", "host": "a.test", "held_s": 30.0, "cause": "retry-after"});
        assert_eq!(told(held), "14:02:12.020Z host.held a.test cause=retry-after held_s=30.0");
        let waiting = json!({"event": "request.waiting", "at": "2026-11-16T14:02:12.020Z", "host": "a.test", "client": "ada",
            "method": "GET", "url": "http://a.test/x", "position": 3, "waited_ms": 1200, "expected_ms": 11_800,
            "delay_ms": 20_000, "why": "robots", "more": 2});
        let expected = "14:02:12.020Z ada GET http://a.test/x waiting about 12 s, position 3, because robots.txt asks for 20 s (2 more of this client)";
        assert_eq!(told(waiting), expected);
        let paused = json!({"event": "request.waiting", "at": "-", "position": 1, "expected_ms": null, "why": "paused", "more": 0});
        assert_eq!(told(paused), "- - - - waiting until it is resumed, position 1, because the host is paused");
        assert_eq!(told(json!({"event": "lost", "host": null, "count": 7})), "7 events were too many to show");
    }
}
