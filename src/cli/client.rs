//! `curtsy clients` and `curtsy client`: lists, stops and resumes clients, in a running curtsy or in the state
//! directory, which knows only those that are stopped.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin::{AskArgs, Call, segment};
use super::config::Streams;
use super::host::not_kept;
use super::offline;
use super::terminal::{DIM, GAP, TextStyle, about, columns, cut, printable, span, table, table_width};
use crate::admin::clients::{ClientJson, ClientUsage, Clients};
use crate::admin::hosts::size;
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "A client is a proxy user, NAME@ADDRESS if it sends a name without a password, or an address. The
busiest come first. Counts are since curtsy started; it remembers 1000 clients.

  REQUESTS  requests that are over; a tunnel is one
  WAITING   requests that wait now
  LONGEST   the longest time that a request was held
  REFUSED   requests that curtsy refused; the line below says why
  FAILED    requests that their origin did not answer
  HOSTS     number of hosts; the line below has the busiest
  SEEN      how long ago its last request ended

A second table has the named clients that are stopped, or whose last five requests to a host
failed. Failures at one host stop a client at that host only.

Exit codes: 0 ok, 4 no curtsy runs and nothing is kept.

Examples:
  curtsy clients
  curtsy clients --json | jq '.clients[] | select(.stopped)'"
)]
pub(super) struct ClientsArgs {
    /// How many clients to list
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 ok, 1 not possible, 4 no curtsy runs and nothing is kept.

Examples:
  curtsy client spider resume
  curtsy client spider stop --until 2h

stop holds for the name at every address. resume also resumes NAME@ADDRESS and NAME at each host.")]
pub(super) struct ClientArgs {
    /// A proxy user, or what the client says in Curtsy-Client
    name: String,
    #[command(subcommand)]
    deed: ClientAction,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum ClientAction {
    /// Let a stopped client continue
    Resume,
    /// Refuse all requests of the client
    Stop {
        /// When it may continue: a duration such as 30m, or a time such as 2026-11-16T15:00:00Z
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
    },
}

pub(super) fn list(args: &ClientsArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let call = Call::get("/api/v1/clients".to_owned());
    offline::tell_or_do(&args.ask, sources, streams, (&call, &call), |told: &Clients| {
        (page(told, args.limit, TextStyle(paint), columns()), 0)
    })
}

pub(super) fn steer(args: &ClientArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let (deed, body) = match &args.deed {
        ClientAction::Resume => ("resume", json!({})),
        ClientAction::Stop { until: None } => ("stop", json!({})),
        ClientAction::Stop { until: Some(until) } => ("stop", json!({ "until": until })),
    };
    let path = format!("/api/v1/clients/{}/{deed}", segment(&args.name));
    let call = Call { method: "POST", path, body: Some(body) };
    offline::tell_or_do(&args.ask, sources, streams, (&call, &call), |client: &ClientJson| (sentence(client), 0))
}

/// Returns the table of clients, at most `columns` wide if a width is given, and the table of those that fail or are
/// stopped.
fn page(told: &Clients, limit: usize, brush: TextStyle, columns: Option<usize>) -> String {
    let mut users = told.users();
    let (total, mut page) = (users.len(), String::new());
    users.truncate(limit);
    if !users.is_empty() {
        page += &usage_table(&users, brush, columns);
    }
    if users.len() < total {
        page += &format!("{} of {total} clients; --limit {total} shows all\n", users.len());
    }
    let failing: Vec<Vec<String>> = told.failing().map(row).collect();
    if !failing.is_empty() {
        let gap = if page.is_empty() { "" } else { "\n" };
        page += gap;
        page += &table(&["CLIENT", "STATE", "FAILURES", "FOR", "WHY"], &failing, &[2, 3], brush);
    }
    if page.is_empty() { "no client has sent a request yet, and none is stopped\n".to_owned() } else { page }
}

const HEAD: [&str; 8] = ["CLIENT", "REQUESTS", "WAITING", "LONGEST", "REFUSED", "FAILED", "HOSTS", "SEEN"];
/// A shorter name would not be recognizable.
const SHORTEST_NAME: usize = 16;

/// Returns two lines for each client: numbers, and what they are made of.
fn usage_table(users: &[(&ClientJson, &ClientUsage)], brush: TextStyle, columns: Option<usize>) -> String {
    let mut rows: Vec<Vec<String>> = users.iter().map(|(client, usage)| usage_row(client, usage)).collect();
    if let Some(columns) = columns {
        let room = columns.saturating_sub(table_width(&HEAD[1..], &rows.iter().map(|row| &row[1..])) + GAP);
        rows.iter_mut().for_each(|row| row[0] = cut(&row[0], room.max(SHORTEST_NAME)));
    }
    let numbers = table(&HEAD, &rows, &[1, 2, 3, 4, 5, 6, 7], brush);
    let mut lines = numbers.lines();
    let mut page = lines.next().unwrap_or_default().to_owned() + "\n";
    for (line, (_, usage)) in lines.zip(users) {
        let details = format!("  {}", details(usage));
        let details = columns.map_or_else(|| details.clone(), |columns| cut(&details, columns));
        page += &format!("{line}\n{}\n", brush.stroke(DIM, &details));
    }
    page
}

fn usage_row(client: &ClientJson, usage: &ClientUsage) -> Vec<String> {
    let or_dash = |ms: u64| if ms == 0 { "-".to_owned() } else { about(ms as f64 / 1e3) };
    vec![
        if client.named { title(client) } else { printable(&client.name) },
        usage.requests.to_string(),
        usage.waiting.to_string(),
        or_dash(usage.longest_wait_ms),
        usage.refused.to_string(),
        usage.failed.to_string(),
        usage.hosts.to_string(),
        span(usage.idle_s as u64),
    ]
}

/// `Scrapy; news.test 17, docs.test 3; robots-denied 2; waited 34 s in all; 2 gave up; 1.2 MB`.
fn details(usage: &ClientUsage) -> String {
    let listed = |items: &mut dyn Iterator<Item = String>| items.collect::<Vec<_>>().join(", ");
    let mut parts = vec![
        listed(&mut usage.programs.iter().map(|program| printable(program))),
        listed(&mut usage.busiest.iter().map(|busy| format!("{} {}", printable(&busy.host), busy.requests))),
        listed(&mut usage.refusals.iter().map(|(code, count)| format!("{} {count}", printable(code)))),
    ];
    if usage.wait_ms > 0 {
        parts.push(format!("waited {} in all", about(usage.wait_ms as f64 / 1e3)));
    }
    if usage.gave_up > 0 {
        parts.push(format!("{} gave up", usage.gave_up));
    }
    if usage.tunnels > 0 {
        parts.push(format!("{} tunnel{}", usage.tunnels, if usage.tunnels == 1 { "" } else { "s" }));
    }
    parts.push(size(usage.bytes));
    parts.retain(|part| !part.is_empty());
    parts.join("; ")
}

fn row(client: &ClientJson) -> Vec<String> {
    let (state, left, why) = match &client.stopped {
        Some(stopped) => ("stopped", left(stopped.left_s), printable(&stopped.reason)),
        None => ("running", String::new(), String::new()),
    };
    vec![title(client), state.to_owned(), client.failures.to_string(), left, why]
}

/// `spider`, `spider@10.0.0.1` or `spider@10.0.0.1 at example.org`.
fn title(client: &ClientJson) -> String {
    let address = client.address.iter().map(|address| format!("@{address}"));
    let host = client.host.iter().map(|host| format!(" at {host}"));
    printable(&std::iter::once(client.name.clone()).chain(address).chain(host).collect::<String>())
}

fn left(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "ever".to_owned(), |seconds| span(seconds.ceil() as u64))
}

fn sentence(client: &ClientJson) -> String {
    let name = title(client);
    let mut text = match &client.stopped {
        None => format!("{name} may continue\n"),
        Some(stopped) => match stopped.left_s {
            Some(_) => format!("{name} is stopped for {}\n", left(stopped.left_s)),
            None => format!("{name} is stopped until it is resumed: curtsy client {name} resume\n"),
        },
    };
    if let Some(why) = &client.not_kept {
        text.push_str(&format!("not kept: {}\n", not_kept(why)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_stand_in_a_table() {
        let told: Clients = serde_json::from_value(json!({"clients": [
            {"name": "spider\u{1b}", "failures": 20, "last_failure": null, "stopped": {
                "reason": "the last 20 requests failed, the last one with status 503", "since": null,
                "until": "2026-11-16T15:00:00.000Z", "left_s": 3599.2}},
            {"name": "b", "failures": 5, "last_failure": null, "stopped": null},
            {"name": "c", "address": "::1", "host": "h", "failures": 6, "last_failure": null, "stopped": null},
            {"name": "d", "host": "h", "failures": 4, "last_failure": null, "stopped": null},
        ]}))
        .expect("clients");
        let expected = "\
CLIENT        STATE    FAILURES     FOR  WHY
spider\\u{1b}  stopped        20  60 min  the last 20 requests failed, the last one with status 503
b             running         5
c@::1 at h    running         6
";
        assert_eq!(page(&told, 9, TextStyle(false), None), expected);
        let none = page(&Clients { clients: vec![] }, 9, TextStyle(false), None);
        assert_eq!(none, "no client has sent a request yet, and none is stopped\n");
    }

    fn user(name: &str, named: bool, requests: u64) -> serde_json::Value {
        json!({"name": name, "address": "10.0.0.1", "failures": 0, "last_failure": null, "stopped": null, "named": named,
            "usage": {"address": "10.0.0.1", "requests": requests, "tunnels": 1, "waiting": 3, "waited": 9,
                "wait_ms": 240_000, "longest_wait_ms": 23_940, "refused": 2, "refusals": {"robots-denied": 2},
                "failed": 1, "gave_up": 4, "hosts": 3, "busiest": [{"host": "news.test", "requests": 17}],
                "bytes": 1_234_567, "last_seen": null, "idle_s": 4.2, "programs": ["Scrapy"]}})
    }

    #[test]
    fn the_busiest_clients_come_first_and_fit_the_terminal() {
        let long = format!("spider-{}", "x".repeat(200));
        let told = json!({"clients": [user("10.0.0.1", false, 5), user(&long, true, 120), user("c", true, 1)]});
        let told: Clients = serde_json::from_value(told).expect("clients");
        let page = page(&told, 2, TextStyle(false), Some(80));
        let expected = "\
CLIENT                  REQUESTS  WAITING  LONGEST  REFUSED  FAILED  HOSTS  SEEN
spider-xxxxxxxxxxxxxx…       120        3     24 s        2       1      3   4 s
  Scrapy; news.test 17; robots-denied 2; waited 4 min in all; 4 gave up; 1 tunn…
10.0.0.1                       5        3     24 s        2       1      3   4 s
  Scrapy; news.test 17; robots-denied 2; waited 4 min in all; 4 gave up; 1 tunn…
2 of 3 clients; --limit 3 shows all
";
        assert_eq!(page, expected);
    }
}
