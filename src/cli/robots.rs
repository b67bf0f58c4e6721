//! `curtsy robots`: shows what robots.txt says about a URL, and what curtsy does about it.
//!
//! Asks a running curtsy, because it may already know the file and will be the one to decide. If none runs, this
//! command fetches the file with the same code and configuration, and says so.

mod text;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;
use url::form_urlencoded;

use super::admin;
use super::config::Streams;
use super::terminal::printable;
use crate::app;
use crate::config::{self, Config, Sources};
use crate::robots::{Question, Report, ReportVerdict};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 allowed, 3 denied, 4 unknown (robots.txt is unreachable).

Examples:
  curtsy robots http://example.com/page
  curtsy robots example.com --user-agent 'FooBot/1.0'
  curtsy robots http://example.com/ --fresh --json | jq .notes")]
pub(super) struct RobotsArgs {
    /// A URL; a host alone stands for https://HOST/
    #[arg(value_name = "URL|HOST")]
    url: String,
    /// User-Agent of the client, whose rules apply
    #[arg(short = 'A', long, value_name = "UA")]
    user_agent: Option<String>,
    /// Fetch robots.txt again, even if the running curtsy knows it
    #[arg(long)]
    fresh: bool,
    /// Print the API's JSON response
    #[arg(long)]
    json: bool,
    /// Admin listener of the curtsy to ask; default: the configured one
    #[arg(long, value_name = "URL", env = "CURTSY_ADMIN_URL")]
    admin: Option<String>,
}

/// A fetch may first have to wait for its turn: `politeness.max_wait`, plus some time for the fetch.
const PATIENCE: Duration = Duration::from_secs(180);

const USAGE: u8 = 2;

/// Runs the command and returns the exit code. An `Err` means that a stream could not be written. `paint` is for the
/// output, `streams.paint` for problems.
pub(super) fn run(args: &RobotsArgs, sources: &Sources, paint: bool, streams: &mut Streams<'_>) -> io::Result<u8> {
    let question = match Question::parse(&args.url, args.user_agent.as_deref(), args.fresh) {
        Ok(question) => question,
        Err(bad) => {
            writeln!(streams.err, "error: {}: {bad}", printable(&args.url))?;
            return Ok(USAGE);
        }
    };
    let config = match config::load(sources) {
        Ok(loaded) => loaded.config,
        Err(problems) => {
            writeln!(streams.err, "{}", problems.paint(streams.paint))?;
            return Ok(1);
        }
    };
    let (report, source) = match answer(args, config, &question) {
        Ok(answer) => answer,
        Err(problem) => {
            writeln!(streams.err, "error: {}", printable(&problem))?;
            return Ok(1);
        }
    };
    if args.json {
        writeln!(streams.out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        if Question::is_bare(&args.url) {
            writeln!(streams.err, "{} is read as {}", printable(&args.url), question.url())?;
        }
        write!(streams.out, "{}\n{source}\n", text::page(&report, paint))?;
    }
    Ok(match report.verdict {
        ReportVerdict::Allowed => 0,
        ReportVerdict::Denied => 3,
        ReportVerdict::Unknown => 4,
    })
}

/// Returns the report, and a sentence that says where it comes from.
fn answer(args: &RobotsArgs, config: Config, question: &Question) -> Result<(Report, String), String> {
    let address = match &args.admin {
        Some(url) => Some(admin::of_url(url)?),
        None => admin::of_config(&config),
    };
    let Some(address) = address else {
        return alone(config, question, "the admin listener is off, so no curtsy was asked");
    };
    match TcpStream::connect_timeout(&address, admin::CONNECT_PATIENCE) {
        Ok(stream) => {
            let report = ask(&stream, address, config.metrics.token.as_deref(), args)?;
            Ok((report, format!("Answered by the curtsy that runs on {address}.")))
        }
        Err(error) if args.admin.is_some() => Err(format!("no curtsy answers on {address}: {error}")),
        Err(_) => alone(config, question, &format!("no curtsy runs on {address}")),
    }
}

fn alone(config: Config, question: &Question, why: &str) -> Result<(Report, String), String> {
    let report = app::ask_about_robots(config, question).map_err(|error| error.to_string())?;
    Ok((report, format!("Fetched by this command itself: {why}.")))
}

fn ask(stream: &TcpStream, address: SocketAddr, token: Option<&str>, args: &RobotsArgs) -> Result<Report, String> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("url", &args.url);
    if let Some(user_agent) = &args.user_agent {
        query.append_pair("user_agent", user_agent);
    }
    if args.fresh {
        query.append_pair("fresh", "1");
    }
    let answer = admin::get(stream, &format!("/api/v1/robots?{}", query.finish()), token, PATIENCE)
        .map_err(|error| format!("{address}: {error}"))?;
    match answer.status {
        200 => serde_json::from_str(&answer.body)
            .map_err(|error| format!("{address} is not a known version of curtsy: {error}")),
        401 => Err(format!("{address} wants a token; set metrics.token or CURTSY_METRICS__TOKEN")),
        status => Err(format!("{address} answered {status}: {}", answer.body.trim())),
    }
}
