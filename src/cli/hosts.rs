//! `curtsy hosts`: prints the hosts that a running curtsy knows, or all remembered hosts, as a table.

use std::io;

use clap::{Args, ValueEnum};
use url::form_urlencoded;

use super::admin::{AskArgs, Call};
use super::config::Streams;
use super::offline;
use super::terminal::{GAP, TextStyle, columns, cut, printable, span, table, table_width, time};
use crate::admin::hosts::{HostRow, HostsJson};
use crate::config::Sources;

#[derive(Args, Clone, Debug)]
#[command(after_help = "If no curtsy runs, lists the hosts in the state directory.

Exit codes: 0 ok, 4 no curtsy runs and nothing is kept.

Examples:
  curtsy hosts
  curtsy hosts --sort wait --filter example
  curtsy hosts --remembered --sort delay
  curtsy hosts --json | jq '.hosts[] | select(.held_s)'")]
pub(super) struct HostsArgs {
    /// Sort by name, or by the largest value first
    #[arg(long, value_enum, default_value_t = SortArg::Queued)]
    sort: SortArg,
    /// Only hosts with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// How many to list, at most 1000
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    /// How many to skip first
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: usize,
    /// List the hosts in the state file, whether visited lately or not
    #[arg(long)]
    remembered: bool,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum SortArg {
    Host,
    Queued,
    InFlight,
    Delay,
    Wait,
    LastSent,
}

impl SortArg {
    /// Returns the name in the API, which has underscores instead of hyphens.
    pub(super) fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().replace('-', "_"))
    }
}

pub(super) fn run(args: &HostsArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("sort", &args.sort.word()).append_pair("filter", &args.filter);
    query.append_pair("limit", &args.limit.to_string()).append_pair("offset", &args.offset.to_string());
    let path = format!("/api/v1/hosts?{}", query.finish());
    let kept = Call::get(format!("{path}&remembered=true"));
    let call = if args.remembered { kept.clone() } else { Call::get(path) };
    offline::tell_or_do(&args.ask, sources, streams, (&call, &kept), |hosts: &HostsJson| {
        (page(hosts, TextStyle(paint), columns()), 0)
    })
}

/// Returns the table, at most `columns` wide if a width is given: columns are left out and long names are cut.
pub(super) fn page(hosts: &HostsJson, brush: TextStyle, columns: Option<usize>) -> String {
    if hosts.total == 0 {
        return "no hosts: none was visited lately, or none matches\n".to_owned();
    }
    let mut rows: Vec<Vec<String>> = hosts.hosts.iter().map(row).collect();
    let mut kept: Vec<usize> = (0..HEAD.len()).collect();
    if rows.iter().all(|row| row[HELD].is_empty()) {
        kept.retain(|column| *column != HELD);
    }
    if let Some(columns) = columns {
        let room = fit(&mut kept, &rows, columns);
        rows.iter_mut().for_each(|row| row[0] = cut(&row[0], room.max(SHORTEST_NAME)));
    }
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|row| kept.iter().map(|column| row[*column].clone()).collect()).collect();
    let head: Vec<&str> = kept.iter().map(|column| HEAD[*column]).collect();
    let right: Vec<usize> = (0..kept.len()).filter(|place| RIGHT.contains(&kept[*place])).collect();
    let mut page = table(&head, &rows, &right, brush);
    let (first, last) = (hosts.offset + 1, hosts.offset + hosts.hosts.len());
    if hosts.hosts.len() < hosts.total {
        page.push_str(&format!("{first} to {last} of {}; --offset and --limit show others\n", hosts.total));
    }
    if let Some(from) = &hosts.fleet {
        let from = if from == "redis" { "from Redis" } else { "this node alone" };
        page.push_str(&format!("turns are shared with a fleet: {from}; counts are this node's\n"));
    }
    page
}

/// Leaves out columns until names have some room. Returns the room for names.
fn fit(kept: &mut Vec<usize>, rows: &[Vec<String>], columns: usize) -> usize {
    let mut dispensable = [HELD, LAST, IN_FLIGHT].into_iter();
    loop {
        let head: Vec<&str> = kept[1..].iter().map(|column| HEAD[*column]).collect();
        let cells: Vec<Vec<String>> =
            rows.iter().map(|row| kept[1..].iter().map(|column| row[*column].clone()).collect()).collect();
        let room = columns.saturating_sub(table_width(&head, &cells.iter().map(Vec::as_slice)) + GAP);
        match dispensable.next().filter(|_| room < ROOM_FOR_NAMES) {
            Some(column) => kept.retain(|other| *other != column),
            None => return room,
        }
    }
}

pub(super) fn row(row: &HostRow) -> Vec<String> {
    let held = match (row.held_s, &row.hold_cause) {
        (Some(seconds), Some(cause)) => format!("{}, {cause}", span(seconds.ceil() as u64)),
        _ => String::new(),
    };
    vec![
        printable(&row.host),
        row.state.clone(),
        time(row.delay_ms),
        why(row),
        row.queued.to_string(),
        row.in_flight.to_string(),
        row.next_available_s.map_or_else(|| "-".to_owned(), next),
        row.last.last_status.map_or_else(|| "-".to_owned(), |status| status.to_string()),
        held,
    ]
}

/// Returns what a reader should know first: a failure, that curtsy does not pace what is inside tunnels, or what
/// requests wait for.
fn why(row: &HostRow) -> String {
    match (&row.last.last_error, row.unpaced_tunnels) {
        (Some(error), _) => printable(error),
        (None, _) if row.state == "broken" => "breaker open".to_owned(),
        (None, Some(_)) => "tunnels not paced".to_owned(),
        (None, None) => row.why.clone(),
    }
}

pub(super) const HEAD: [&str; 9] = ["HOST", "STATE", "DELAY", "WHY", "QUEUED", "IN FLIGHT", "NEXT", "LAST", "HELD"];
/// The columns that a narrow terminal does without.
pub(super) const IN_FLIGHT: usize = 5;
const LAST: usize = 7;
const HELD: usize = 8;
/// Columns are left out until names have this much room.
const ROOM_FOR_NAMES: usize = 22;
/// A shorter name would not be recognizable.
const SHORTEST_NAME: usize = 16;
/// Columns of numbers.
pub(super) const RIGHT: [usize; 5] = [2, 4, 5, 6, 7];

fn next(seconds: f64) -> String {
    if seconds <= 0.0 { "now".to_owned() } else { format!("{seconds:.1} s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stand_in_a_table() {
        let hosts: HostsJson = serde_json::from_value(serde_json::json!({
            "total": 3, "offset": 0, "limit": 2, "hosts": [
                {"host": "shop.example.net", "state": "held", "delay_ms": 2300, "why": "learned", "queued": 5,
                 "in_flight": 1, "next_available_s": 29.44, "held_s": 29.44, "hold_cause": "retry-after",
                 "error_streak": 1, "last_sent": null, "visits": 9, "last_status": 429},
                {"host": "a.test", "state": "paused", "delay_ms": 1000, "why": "configured", "queued": 0,
                 "in_flight": 0, "next_available_s": null, "held_s": null, "hold_cause": null,
                 "error_streak": 0, "last_sent": null, "visits": 1},
            ],
        }))
        .expect("a page");
        let expected = "\
HOST              STATE   DELAY  WHY         QUEUED  IN FLIGHT    NEXT  LAST  HELD
shop.example.net  held    2.3 s  learned          5          1  29.4 s   429  30 s, retry-after
a.test            paused    1 s  configured       0          0       -     -
1 to 2 of 3; --offset and --limit show others
";
        assert_eq!(page(&hosts, TextStyle(false), None), expected);
    }

    #[test]
    fn a_long_name_is_cut_to_the_width_of_the_terminal() {
        let row = |host: &str, unpaced: Option<u64>| {
            serde_json::json!({"host": host, "state": "idle", "delay_ms": 1000, "why": "configured", "queued": 0,
                "in_flight": 0, "next_available_s": 0.0, "held_s": null, "hold_cause": null, "error_streak": 0,
                "last_sent": null, "visits": 1, "unpaced_tunnels": unpaced})
        };
        let rows = [row(&format!("{}.test", "x".repeat(240)), None), row("a.test", Some(3))];
        let hosts = serde_json::json!({"total": 2, "offset": 0, "limit": 2, "hosts": rows});
        let hosts: HostsJson = serde_json::from_value(hosts).expect("a page");
        for width in [80, 100, 200] {
            let page = page(&hosts, TextStyle(false), Some(width));
            assert!(page.lines().all(|line| line.chars().count() <= width), "{page}");
            assert!(page.contains("xxx…  idle") && page.contains("a.test"), "{page}");
            assert!(page.contains("tunnels not paced") && page.contains("LAST") == (width > 80), "{page}");
        }
    }

    #[test]
    fn a_dead_host_is_told_with_its_error() {
        let dead = serde_json::json!({"host": "dead.test", "state": "unreachable", "delay_ms": 1000, "why": "configured",
            "queued": 0, "in_flight": 0, "next_available_s": 17.2, "held_s": null, "hold_cause": null,
            "error_streak": 0, "last_sent": null, "visits": 0, "last_error": "connection refused"});
        let cells = row(&serde_json::from_value(dead).expect("a row"));
        assert_eq!(cells[1..8], ["unreachable", "1 s", "connection refused", "0", "0", "17.2 s", "-"]);
    }
}
