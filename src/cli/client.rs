//! `curtsy clients` and `curtsy client`: lists, stops and resumes clients, in a running curtsy or in the state
//! directory. The list has only clients that fail or were stopped.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin::{AskArgs, Call, segment};
use super::config::Streams;
use super::host::not_kept;
use super::offline;
use super::terminal::{TextStyle, printable, span, table};
use crate::admin::clients::{ClientJson, Clients};
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Lists only clients that have a name (a proxy user, or Curtsy-Client) and fail or are stopped.
If users do not log in, failures are counted for a name at an address, NAME@ADDRESS. Failures at
one host stop a client at that host only.

Exit codes: 0 ok, 4 no curtsy runs and nothing is kept.

Examples:
  curtsy clients
  curtsy clients --json | jq '.clients[] | select(.stopped)'")]
pub(super) struct ClientsArgs {
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
    offline::tell_or_do(&args.ask, sources, streams, (&call, &call), |told: &Clients| (page(told, TextStyle(paint)), 0))
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

fn page(told: &Clients, brush: TextStyle) -> String {
    if told.clients.is_empty() {
        return "no client fails or is stopped\n".to_owned();
    }
    let rows: Vec<Vec<String>> = told.clients.iter().map(row).collect();
    table(&["CLIENT", "STATE", "FAILURES", "FOR", "WHY"], &rows, &[2, 3], brush)
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
            {"name": "b", "failures": 3, "last_failure": null, "stopped": null},
            {"name": "c", "address": "::1", "host": "h", "failures": 4, "last_failure": null, "stopped": null},
        ]}))
        .expect("clients");
        let expected = "\
CLIENT        STATE    FAILURES     FOR  WHY
spider\\u{1b}  stopped        20  60 min  the last 20 requests failed, the last one with status 503
b             running         3
c@::1 at h    running         4
";
        assert_eq!(page(&told, TextStyle(false)), expected);
    }
}
