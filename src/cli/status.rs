//! `curtsy status`: shows whether a running curtsy is healthy, and what it is doing.

use std::io;

use clap::Args;

use super::admin::{self, AskArgs, Call};
use super::config::Streams;
use super::terminal::{BOLD, GREEN, RED, TextStyle, YELLOW, about, columns, labelled, printable, span};
use crate::admin::status::{HostCounts, StateStore, Status, TrafficJson};
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 it accepts requests, 1 it does not, 4 no curtsy runs.

Examples:
  curtsy status
  curtsy status --admin http://10.0.0.7:3129
  curtsy status --json | jq .hosts")]
pub(super) struct StatusArgs {
    #[command(flatten)]
    ask: AskArgs,
}

pub(super) fn run(args: &StatusArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let call = Call::get(PATH.to_owned());
    let page = |status: &Status| (page(status, TextStyle(paint), columns()), u8::from(status.state != READY));
    admin::tell(&args.ask, sources, streams, &call, page)
}

pub(super) const PATH: &str = "/api/v1/status";
const READY: &str = "ready";

fn page(status: &Status, brush: TextStyle, columns: Option<usize>) -> String {
    let state = brush.stroke(if status.state == READY { GREEN } else { YELLOW }, &status.state);
    let name = brush.stroke(BOLD, &printable(&status.name));
    let mut page = format!(
        "{name}  {state} for {}, curtsy {}, mode {}\n\n",
        span(status.uptime_s as u64),
        printable(&status.version),
        status.mode
    );
    let rows = [
        ("proxy", Some(status.listen.join(", "))),
        ("requests", Some(requests(status))),
        ("polite", Some(polite(&status.traffic))),
        ("waiting", Some(waiting(status))),
        ("open", Some(open(status))),
        ("hosts", Some(hosts(&status.hosts))),
        ("paused", paused(&status.hosts)),
        (
            "clients",
            (status.clients_stopped > 0).then(|| format!("{} stopped: curtsy clients", status.clients_stopped)),
        ),
        ("fleet", status.fleet.as_deref().map(printable)),
        ("memory", memory(status)),
        ("state", Some(kept(&status.state_store))),
    ];
    page.push_str(&labelled(rows, 10, brush, columns));
    for problem in problems(status) {
        page.push_str(&format!("  {}{problem}\n", brush.stroke(RED, &format!("{:<10}", "problem"))));
    }
    page
}

fn requests(status: &Status) -> String {
    let counted = &status.requests;
    let kinds = [
        (counted.forwarded, "forwarded"),
        (counted.denied, "denied"),
        (counted.rejected, "rejected"),
        (counted.failed, "failed"),
        (counted.abandoned, "given up by the client"),
    ];
    let told: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(n, word)| format!("{n} {word}")).collect();
    match counted.total {
        0 => "none yet".to_owned(),
        // Requests inside tunnels wait, too, and are not in the total.
        total => {
            let share = percent(counted.waited, total + status.traffic.paced_only);
            format!("{total}: {}; {share} had to wait", told.join(", "))
        }
    }
}

/// Tells how polite the traffic was.
fn polite(traffic: &TrafficJson) -> String {
    let TrafficJson { full, paced_only, unpaced_tunnels, .. } = traffic;
    let tunnels = if *unpaced_tunnels == 1 { "tunnel" } else { "tunnels" };
    format!("{full} fully; {paced_only} in tunnels only paced; {unpaced_tunnels} {tunnels} not paced")
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64)
}

fn waiting(status: &Status) -> String {
    match (status.wait_p50_ms, status.wait_p90_ms) {
        (Some(half), Some(most)) => format!(
            "{} now; in the last five minutes half waited up to {}, nine in ten up to {}",
            status.waiting,
            about(half as f64 / 1e3),
            about(most as f64 / 1e3)
        ),
        _ => format!("{} now", status.waiting),
    }
}

fn open(status: &Status) -> String {
    let plural = |count: i64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let connections = i64::try_from(status.connections).unwrap_or(i64::MAX);
    let requests = plural(status.in_flight, "request");
    format!("{requests}, {}, {}", plural(status.tunnels, "tunnel"), plural(connections, "client connection"))
}

fn hosts(hosts: &HostCounts) -> String {
    let kinds = [
        (hosts.waiting, "with a queue"),
        (hosts.active, "active"),
        (hosts.held, "held"),
        (hosts.broken, "given up on for now"),
        (hosts.unreachable, "unreachable"),
        (hosts.paused, "paused"),
        (hosts.idle, "idle"),
    ];
    let told: Vec<String> =
        kinds.iter().filter(|(count, _)| *count > 0).map(|(n, word)| format!("{n} {word}")).collect();
    if told.is_empty() { "none known".to_owned() } else { format!("{} known: {}", hosts.known, told.join(", ")) }
}

fn paused(hosts: &HostCounts) -> Option<String> {
    let names: Vec<String> = hosts.paused_hosts.iter().take(MOST_NAMES).map(|host| printable(host)).collect();
    let more = hosts.paused.saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!names.is_empty()).then(|| format!("{}{more}", names.join(", ")))
}

/// How many names are shown; `curtsy hosts` lists all.
const MOST_NAMES: usize = 5;

fn memory(status: &Status) -> Option<String> {
    let mega = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let resident = status.memory.resident_bytes?;
    Some(format!("{}, including robots.txt {}", mega(resident), mega(status.memory.robots_bytes)))
}

fn kept(store: &StateStore) -> String {
    match (store.kept, store.last_write_age_s) {
        (false, _) if store.trouble.is_some() => {
            let lost = if store.lost > 0 { format!(", {} are lost", store.lost) } else { String::new() };
            format!("not kept: {} changes wait for the disk{lost}", store.pending)
        }
        (false, _) => "nothing is kept across restarts".to_owned(),
        (true, None) => format!("kept; {} changes wait to be written", store.pending),
        (true, Some(age)) => format!("kept; written {} ago, {} changes since", span(age as u64), store.pending),
    }
}

/// Returns problems that the operator should look at.
fn problems(status: &Status) -> Vec<String> {
    let mut problems = Vec::new();
    if status.spacing_violations > 0 {
        problems.push(format!("{} requests started too early; please report this", status.spacing_violations));
    }
    if status.overdue_s >= 1.0 {
        problems.push(format!("a queued request should have started {:.0} s ago", status.overdue_s));
    }
    if !status.last_reload_successful {
        problems.push("the last change of the configuration could not be applied: curtsy config check".to_owned());
    }
    if let Some(trouble) = &status.state_store.trouble {
        problems.push(format!("the state file cannot be written: {}", printable(trouble)));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_status_reads_like_an_answer() {
        let status: Status = serde_json::from_value(json!({
            "name": "front-desk", "version": "0.1.0", "state": "ready", "started": null, "uptime_s": 7250.5,
            "mode": "enforce", "listen": ["127.0.0.1:3128"],
            "requests": {"total": 12, "forwarded": 9, "denied": 2, "rejected": 0, "abandoned": 1, "failed": 0, "waited": 6},
            "traffic": {"full": 9, "paced_only": 3, "unpaced_tunnels": 1, "intercepts": false},
            "waiting": 4, "in_flight": 1, "connections": 3, "tunnels": 0,
            "hosts": {"known": 3, "paused": 1, "broken": 0, "held": 1, "waiting": 1, "active": 0, "idle": 0,
                      "paused_hosts": ["a.test"]},
            "clients_stopped": 1, "wait_p50_ms": 1100, "wait_p90_ms": 6200, "spacing_violations": 0, "overdue_s": 0.0,
            "memory": {"resident_bytes": 23_456_000, "robots_bytes": 100_000},
            "state_store": {"kept": false, "pending": 2, "failures": 4, "lost": 1, "last_write_age_s": 3.2, "trouble": "disk full"},
            "last_reload_successful": false, "listeners": 0, "notices": [],
        }))
        .expect("a status");
        let expected = "\
front-desk  ready for 2 h, curtsy 0.1.0, mode enforce

  proxy     127.0.0.1:3128
  requests  12: 9 forwarded, 2 denied, 1 given up by the client; 40 % had to wait
  polite    9 fully; 3 in tunnels only paced; 1 tunnel not paced
  waiting   4 now; in the last five minutes half waited up to 1.1 s, nine in ten up to 6.2 s
  open      1 request, 0 tunnels, 3 client connections
  hosts     3 known: 1 with a queue, 1 held, 1 paused
  paused    a.test
  clients   1 stopped: curtsy clients
  memory    23.5 MB, including robots.txt 0.1 MB
  state     not kept: 2 changes wait for the disk, 1 are lost
  problem   the last change of the configuration could not be applied: curtsy config check
  problem   the state file cannot be written: disk full
";
        assert_eq!(page(&status, TextStyle(false), None), expected);
    }
}
