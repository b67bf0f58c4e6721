//! `curtsy judge -- COMMAND`: runs a crawler against a synthetic web on loopback and prints how polite it was.
//!
//! The command reaches the web through its proxy variables, or with `--direct` by addresses in the URL. Nothing leaves
//! this machine: the proxy answers for the hosts of the web and for no other.

mod ca;
mod page;
mod report;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use clap::Args;

use self::ca::JudgeCa;
use self::report::{JudgeReport, JudgedRun, count};
use super::admin::AdminTrouble;
use super::config::Streams;
use super::exec::child::ChildProcess;
use super::exec::private::for_one_command;
use super::exec::{NOT_FOUND, NOT_RUNNABLE};
use super::terminal::{TextStyle, printable};
use super::trust::TrustFiles;
use super::variables::{self, Address, WantedProxy};
use crate::app::{Listeners, Running};
use crate::config::{self, Sources, StateDir};
use crate::judge::{ScoreCard, SyntheticWeb, WebAccess, WebRecord, WebServer};
use crate::telemetry;

/// Stands for the URL of the first page in the arguments of the command.
const SEED: &str = "{seed}";
/// How often the progress is shown.
const STEP: Duration = Duration::from_millis(500);
/// The exit code if the score is too low.
const BELOW: u8 = 1;
/// The exit code if there was nothing to judge.
const NOTHING: u8 = 4;

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The command crawls a small synthetic web on this machine, from http://news.test/. It gets there
through http_proxy, which curtsy sets. {seed} in its arguments is replaced by that URL.
Its output goes to stderr.

Exit codes: 0 the score is at least --pass, 1 it is lower, 2 usage, 4 the command made no
request, 126 and 127 if it could not be run. With --with-curtsy the second score counts.

Examples:
  curtsy judge -- wget -r -H --delete-after -nd http://news.test/
  curtsy judge --with-curtsy -- scrapy runspider spider.py
  curtsy judge --direct -- ./crawler {seed}       for programs that ignore proxy variables
  curtsy judge --https --with-curtsy -- wget -r -H --delete-after -nd {seed}
  curtsy judge --again -- ./reader feeds.opml     does the second run ask conditionally?
  curtsy judge --json -- ./crawler | jq .runs[0].score"
)]
pub(super) struct JudgeArgs {
    /// Run the command a second time behind curtsy, with your configuration, and compare
    #[arg(long, conflicts_with = "direct")]
    with_curtsy: bool,
    /// Replace {seed} by a URL with an address, for a command that uses no proxy
    #[arg(long)]
    direct: bool,
    /// Serve the web by HTTPS, with a CA that only the command trusts
    #[arg(long, conflicts_with = "direct")]
    https: bool,
    /// Run the command twice in a row: does the second run ask conditionally?
    #[arg(long)]
    again: bool,
    /// The lowest score for which the exit code is 0
    #[arg(long, value_name = "N", default_value_t = 80, value_parser = clap::value_parser!(u32).range(0..=100))]
    pass: u32,
    /// End the command after this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Which web: the same number gives the same pages and links
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Print the score card as JSON
    #[arg(long)]
    json: bool,
    /// Write the score card as a web page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Discard the output of the command
    #[arg(short, long)]
    quiet: bool,
    /// What to run, with its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl JudgeArgs {
    fn has_seed(&self) -> bool {
        self.command.iter().any(|part| part.to_string_lossy().contains(SEED))
    }
}

pub(super) fn run(args: &JudgeArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let report = match judge(args, sources, streams) {
        Ok(report) => report,
        Err(trouble) => return trouble.tell(streams),
    };
    if let Some(path) = &args.html {
        std::fs::write(path, page::page(&report))
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))?;
    }
    match args.json {
        true => writeln!(streams.out, "{}", serde_json::to_string_pretty(&report).map_err(io::Error::other)?)?,
        false => write!(streams.out, "{}", report.text(TextStyle(paint)))?,
    }
    Ok(if report.passed { 0 } else { BELOW })
}

fn judge(args: &JudgeArgs, sources: &Sources, streams: &mut Streams<'_>) -> Result<JudgeReport, AdminTrouble> {
    if args.direct && !args.has_seed() {
        let text = "--direct needs {seed} in the arguments of the command: the addresses are chosen for each run";
        return Err(AdminTrouble { code: 2, text: text.to_owned() });
    }
    let mut runs = vec![run_once(args, None, streams)?];
    if args.with_curtsy {
        runs.push(run_once(args, Some(sources), streams)?);
    }
    let command = args.command.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    Ok(JudgeReport::new(command, args.seed, args.pass, runs))
}

/// Runs the command against a new web, with `sources` behind a curtsy that has this configuration.
fn run_once(args: &JudgeArgs, sources: Option<&Sources>, streams: &mut Streams<'_>) -> Result<JudgedRun, AdminTrouble> {
    let failed = |error: io::Error| AdminTrouble::failure(format!("the synthetic web cannot be served: {error}"));
    let https = args.https.then(JudgeCa::make).transpose().map_err(failed)?;
    let web = SyntheticWeb::new(args.seed);
    let access = match &https {
        Some(ca) => ca.access(&web),
        None if args.direct => WebAccess::Direct,
        None => WebAccess::Proxy,
    };
    let server = WebServer::start(web, access).map_err(failed)?;
    let web = (server.address(), https.as_ref());
    let curtsy = sources.map(|sources| start_curtsy(sources, web, streams.paint)).transpose()?;
    let proxy = curtsy.as_ref().map_or_else(|| server.address(), Running::proxy_address);
    // The command trusts what it connects to: curtsy, or the web itself.
    let seen = |ca: &JudgeCa| ca.trust(curtsy.as_ref().and_then(Running::ca_pem));
    let trust = https.as_ref().map(seen).transpose().map_err(failed)?;
    let mut ended = (0, false);
    for _ in 0..if args.again { 2 } else { 1 } {
        ended = accompany(args, command(args, &server, proxy, trust.as_ref()), &server, curtsy.is_some())?;
    }
    if let Some(curtsy) = curtsy {
        curtsy.stop();
    }
    let WebRecord { arrivals, tunnels, elsewhere } = server.record();
    if arrivals.is_empty() {
        return Err(nothing(args, tunnels, ended.0));
    }
    let card = ScoreCard::of(server.web(), arrivals);
    let elsewhere = elsewhere.into_iter().collect();
    Ok(JudgedRun { curtsy: sources.is_some(), exit_code: ended.0, timed_out: ended.1, tunnels, elsewhere, card })
}

/// Starts a proxy that sends everything to the synthetic web and stores nothing.
fn start_curtsy(
    sources: &Sources,
    (web, https): (SocketAddr, Option<&JudgeCa>),
    paint: bool,
) -> Result<Running, AdminTrouble> {
    let mut sources = sources.clone();
    sources.overrides.add("judge", "upstream.proxy", &format!("http://{web}"));
    let loaded = config::load(&sources).map_err(|problems| AdminTrouble::failure(problems.paint(paint).to_string()))?;
    let mut config = for_one_command(loaded.config);
    config.state_dir = StateDir::Memory;
    if let Some(ca) = https {
        // As in `curtsy exec`: the command trusts curtsy's CA, and curtsy that of the web.
        config.tls.intercept = true;
        config.tls.extra_roots.push(ca.file());
    }
    config.log.level = "error".to_owned();
    telemetry::start(&config.log, paint);
    let start = || Running::start_private(config.clone(), Listeners::bind(&config)?, None);
    start().map_err(|error| AdminTrouble::failure(error.to_string()))
}

/// Runs the command once and shows the progress. Returns its exit code, and whether its time was over.
fn accompany(
    args: &JudgeArgs,
    mut command: Command,
    server: &WebServer,
    with_curtsy: bool,
) -> Result<(u8, bool), AdminTrouble> {
    let child = ChildProcess::begin(&mut command).map_err(|error| {
        let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
        let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        AdminTrouble { code, text: format!("{program} cannot be run: {error}") }
    })?;
    let (done, ends) = mpsc::channel::<()>();
    let ended = thread::scope(|scope| {
        if io::stderr().is_terminal() {
            scope.spawn(move || show_progress(args, server, with_curtsy, &ends));
        }
        let ended = child.end_within(args.time);
        drop(done);
        ended
    });
    ended.map_err(|error| AdminTrouble::failure(error.to_string()))
}

fn command(args: &JudgeArgs, server: &WebServer, proxy: SocketAddr, trust: Option<&TrustFiles>) -> Command {
    let seed = server.seed();
    let mut parts = args.command.iter().map(|part| match part.to_str() {
        Some(text) => OsString::from(text.replace(SEED, &seed)),
        None => part.clone(),
    });
    let mut command = Command::new(parts.next().unwrap_or_default());
    command.args(parts).stdin(Stdio::null());
    // Standard output is for the score card.
    match args.quiet {
        true => command.stdout(Stdio::null()).stderr(Stdio::null()),
        false => command.stdout(io::stderr()),
    };
    for name in variables::names().filter(|name| name.to_ascii_lowercase().contains("proxy")) {
        command.env_remove(name);
    }
    if !args.direct {
        let address = Address { host: proxy.ip().to_string(), port: proxy.port(), name: None };
        let wanted = WantedProxy { proxy: &address, trust, java: false };
        command.envs(variables::variables(&wanted, |_| None));
    }
    command
}

/// Rewrites one line on the terminal until the command has ended.
fn show_progress(args: &JudgeArgs, server: &WebServer, with_curtsy: bool, ends: &mpsc::Receiver<()>) {
    let (label, mut passed) = (if with_curtsy { " with curtsy" } else { "" }, Duration::ZERO);
    let mut err = io::stderr();
    while ends.recv_timeout(STEP) == Err(mpsc::RecvTimeoutError::Timeout) {
        passed += STEP;
        let (passed, limit) = (passed.as_secs(), args.time.as_secs());
        let requests = count(server.count(), "request");
        let _ = write!(err, "\r\x1b[Kcurtsy judge{label}: {requests}, {passed} s of {limit} s");
        let _ = err.flush();
    }
    let _ = write!(err, "\r\x1b[K");
}

/// Says why there is nothing to judge, and what to try.
fn nothing(args: &JudgeArgs, tunnels: usize, code: u8) -> AdminTrouble {
    let why = match (tunnels, args.direct) {
        (0, false) if args.https => "the command made no request; does it trust the CA of this run?".to_owned(),
        (0, false) if args.has_seed() => {
            "the command made no request through the proxy; if it ignores proxy variables, add --direct".to_owned()
        }
        (0, false) => "the command made no request through the proxy; use {seed} or --direct".to_owned(),
        (0, true) => "the command made no request to the address that {seed} stands for".to_owned(),
        (tunnels, _) => {
            let tunnels = count(tunnels, "tunnel");
            format!("the command asked only for {tunnels}; use http:// URLs, or --https")
        }
    };
    let program = args.command.first().map(|program| printable(&program.to_string_lossy())).unwrap_or_default();
    AdminTrouble { code: NOTHING, text: format!("nothing to judge: {why} ({program} ended with exit code {code})") }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: JudgeArgs,
    }

    fn read(line: &str) -> Result<JudgeArgs, clap::Error> {
        Line::try_parse_from(["judge"].into_iter().chain(line.split(' '))).map(|line| line.args)
    }

    #[test]
    fn the_seed_stands_for_a_name_or_an_address() {
        let url = |line: &str, direct| {
            let args = read(line).unwrap();
            let access = if direct { WebAccess::Direct } else { WebAccess::Proxy };
            let server = WebServer::start(SyntheticWeb::new(args.seed), access).unwrap();
            let command = command(&args, &server, server.address(), None);
            let proxies = command.get_envs().filter(|(name, value)| *name == "http_proxy" && value.is_some()).count();
            (command.get_args().next().unwrap().to_string_lossy().into_owned(), proxies)
        };
        assert_eq!(url("-- curl x={seed}robots.txt", false), ("x=http://news.test/robots.txt".to_owned(), 1));
        let (direct, proxies) = url("--direct -- curl {seed}", true);
        assert!(direct.starts_with("http://127.77.0.1:") && direct.ends_with('/'), "{direct}");
        assert_eq!(proxies, 0);
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        for line in [
            "",
            "--pass 101 -- x",
            "--time soon -- x",
            "--direct --with-curtsy -- x {seed}",
            "--direct --https -- x {seed}",
            "x",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
        assert_eq!(read("--time 1m30s -- x").unwrap().time, Duration::from_secs(90));
    }
}
