//! The options of the benchmark, and the cases that follow from them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

/// How much of the allowed rate a backlog uses. Without --hosts and --delay: 1000 hosts at 1 s and at 50 ms.
#[derive(Debug, Parser)]
#[command(name = "backlog")]
pub(crate) struct Options {
    /// Hosts that always have a waiting request
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    hosts: u32,
    /// The delay between two starts at one host, in whole milliseconds; may be given more than once
    #[arg(long, default_values = ["1s", "50ms"], value_parser = delay)]
    delay: Vec<Duration>,
    /// How long to measure each case, after it has settled
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// Client connections for each host
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,
    /// The program to measure
    #[arg(long, value_name = "PATH", default_value = env!("CARGO_BIN_EXE_curtsy"))]
    pub(crate) curtsy: PathBuf,
    /// A setting of curtsy, such as workers=1; may be given more than once
    #[arg(long = "set", value_name = "KEY=TOML", value_parser = setting)]
    changes: Vec<(String, String)>,
    /// One JSON object per case
    #[arg(long)]
    pub(crate) json: bool,
    /// Passed by cargo to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

/// A number of hosts with a backlog, measured for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) hosts: usize,
    pub(crate) delay: Duration,
    pub(crate) connections_each: usize,
    pub(crate) measured: Duration,
}

impl Options {
    pub(crate) fn read() -> Self {
        Self::parse()
    }

    pub(crate) fn cases(&self) -> impl Iterator<Item = Case> {
        self.delay.iter().map(|&delay| Case {
            hosts: self.hosts as usize,
            delay,
            connections_each: self.connections as usize,
            measured: Duration::from_secs(self.seconds),
        })
    }

    /// The configuration of curtsy: no waiting request is refused; everything else has its default.
    pub(crate) fn settings(&self, case: &Case) -> String {
        let delay = format!("\"{}ms\"", case.delay.as_millis());
        let everybody = case.connections().to_string();
        let connections = (case.connections() + 100).to_string();
        let mut settings = BTreeMap::from([
            ("listen", "[\"127.0.0.1:0\"]"),
            ("admin", "\"127.0.0.1:0\""),
            ("state_dir", "\"memory\""),
            ("cache.mode", "\"off\""),
            ("politeness.delay", &delay),
            // A pace that is learned would begin slower than the delay.
            ("adaptive.policy", "\"off\""),
            ("politeness.max_queue", &everybody),
            ("politeness.max_queue_total", &everybody),
            ("access.allow_destinations", "[\"127.0.0.0/8\"]"),
            ("access.max_client_connections", &connections),
            // A log line of this module says where curtsy listens.
            ("log.level", "\"curtsy::cli=info,warn\""),
        ]);
        settings.extend(self.changes.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        settings.iter().map(|(key, value)| format!("{key} = {value}\n")).collect()
    }
}

impl Case {
    pub(crate) fn connections(&self) -> usize {
        self.hosts * self.connections_each
    }
}

fn delay(text: &str) -> Result<Duration, String> {
    let delay = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    let whole = Duration::from_millis(delay.as_millis() as u64);
    if whole == delay && !delay.is_zero() { Ok(delay) } else { Err("not a number of whole milliseconds".to_owned()) }
}

fn setting(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("not KEY=TOML")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}
