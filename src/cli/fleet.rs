//! `curtsy fleet`: lists the curtsys that share every host's budget, and forgets one that will not come back.

use std::io;

use clap::{Args, Subcommand};
use serde_json::json;

use super::admin::{self, AskArgs, Call, segment};
use super::config::Streams;
use super::terminal::{DIM, TextStyle, YELLOW, columns, cut, printable, span, table, table_width};
use crate::admin::fleet::{FleetJson, FleetNode};
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "  STATE    joined, alone (it goes on without Redis, more slowly), returning, starting, or
           missing: silent for 1.6 s. A missing node's turns are left to it for a minute
  LAG      how long Redis takes to answer it, at most, nine times out of ten
  SHARE    its part of all starts of the fleet
  STARTS   requests that it starts per second
  WAITING  requests that wait there for a turn

Exit codes: 0 ok, 1 this curtsy is alone or has no fleet, 4 no curtsy runs.

Examples:
  curtsy fleet
  curtsy fleet forget crawler-7
  curtsy fleet --json | jq '.nodes[] | select(.state != \"joined\")'")]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    deed: Option<FleetAction>,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum FleetAction {
    /// Remove a node that was killed and will not come back, so that the others need not leave its turns to it
    Forget {
        /// Its name or id
        node: String,
    },
}

pub(super) fn run(args: &FleetArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let call = match &args.deed {
        None => Call::get(PATH.to_owned()),
        Some(FleetAction::Forget { node }) => {
            Call { method: "DELETE", path: format!("{PATH}/{}", segment(node)), body: Some(json!({})) }
        }
    };
    admin::tell(&args.ask, sources, streams, &call, |fleet: &FleetJson| {
        (page(fleet, TextStyle(paint), columns()), u8::from(fleet.from != "redis"))
    })
}

const PATH: &str = "/api/v1/fleet";
const HEAD: [&str; 8] = ["NODE", "NAME", "STATE", "LAG", "SHARE", "STARTS", "WAITING", "JOINED"];

/// Names of nodes are not cut below this.
const SHORTEST_NAME: usize = 10;

/// Returns the table, at most `columns` wide if a width is given: long names are cut.
fn page(fleet: &FleetJson, brush: TextStyle, columns: Option<usize>) -> String {
    let Some(name) = &fleet.name else {
        return "this curtsy belongs to no fleet (fleet.redis is not set)\n".to_owned();
    };
    let mut rows: Vec<Vec<String>> = fleet.nodes.iter().map(row).collect();
    if let Some(columns) = columns {
        let over = table_width(&HEAD, &rows.iter().map(Vec::as_slice)).saturating_sub(columns);
        let widest = rows.iter().map(|row| row[1].chars().count()).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row[1] = cut(&row[1], widest.saturating_sub(over).max(SHORTEST_NAME)));
    }
    let mut page = table(&HEAD, &rows, &[3, 4, 5, 6, 7], brush);
    let source = format!("fleet {}, {}\n", printable(name), from(fleet));
    page += &brush.stroke(if fleet.from == "redis" { DIM } else { YELLOW }, &source);
    let settings: Vec<&String> = fleet.nodes.iter().filter_map(|node| node.settings.as_ref()).collect();
    if settings.windows(2).any(|pair| pair[0] != pair[1]) {
        page += &brush.stroke(YELLOW, "the nodes have different politeness settings; each keeps to its own delays\n");
    }
    page
}

fn from(fleet: &FleetJson) -> String {
    match (fleet.from.as_str(), &fleet.trouble) {
        ("redis", _) => "from Redis".to_owned(),
        (from, Some(trouble)) => {
            let since = fleet.since_s.map_or_else(String::new, |seconds| format!(" for {}", span(seconds as u64)));
            format!("{}{since}:\n  {}", printable(from), printable(trouble))
        }
        (from, None) => printable(from),
    }
}

fn row(node: &FleetNode) -> Vec<String> {
    let unknown = || "-".to_owned();
    let mark = if node.this { " *" } else { "" };
    vec![
        format!("{}{mark}", printable(&node.id)),
        node.name.as_deref().map_or_else(unknown, printable),
        printable(&node.state),
        node.lag_ms.map_or_else(unknown, |lag| format!("{lag:.1} ms")),
        node.share.map_or_else(unknown, |share| format!("{:.0} %", share * 100.0)),
        node.starts_per_s.map_or_else(unknown, |starts| format!("{starts:.1}/s")),
        node.waiting.map_or_else(unknown, |waiting| waiting.to_string()),
        node.joined_s.map_or_else(unknown, |seconds| span(seconds as u64)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(id: &str, settings: &str) -> FleetNode {
        FleetNode {
            id: id.to_owned(),
            name: Some("desk".to_owned()),
            version: None,
            state: "joined".to_owned(),
            this: id == "a",
            joined_s: Some(61.0),
            heard_ms: Some(100),
            lag_ms: Some(0.31),
            starts_per_s: Some(2.0),
            share: Some(0.5),
            waiting: Some(3),
            settings: Some(settings.to_owned()),
        }
    }

    #[test]
    fn nodes_stand_in_a_table() {
        let mut fleet = FleetJson {
            from: "redis".to_owned(),
            name: Some("shop".to_owned()),
            node: Some("a".to_owned()),
            state: Some("joined".to_owned()),
            since_s: Some(61.0),
            trouble: None,
            nodes: vec![node("a", "1"), node("b", "1")],
        };
        let text = page(&fleet, TextStyle(false), None);
        assert!(text.contains("a *") && text.contains("0.3 ms") && text.contains("50 %"), "{text}");
        assert!(text.ends_with("fleet shop, from Redis\n"), "{text}");
        fleet.nodes[0].name = Some("crawler-7f9c8d6b5d-x2x9q-in-a-far-away-place".to_owned());
        let narrow = page(&fleet, TextStyle(false), Some(70));
        assert!(narrow.lines().all(|line| line.chars().count() <= 70) && narrow.contains("crawler-7f"), "{narrow}");
        fleet.nodes[1] = node("b", "2");
        assert!(page(&fleet, TextStyle(false), None).contains("different politeness settings"));
        fleet.from = "this node alone".to_owned();
        fleet.trouble = Some("Redis cannot be reached".to_owned());
        assert!(page(&fleet, TextStyle(false), None).contains("this node alone for 61 s:\n  Redis cannot be reached"));
        fleet.name = None;
        assert!(page(&fleet, TextStyle(false), None).contains("no fleet"));
    }
}
