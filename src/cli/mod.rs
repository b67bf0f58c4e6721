//! The command line: one file per command.

mod admin;
mod ca;
mod cache;
mod client;
mod completions;
pub mod config;
mod docs;
mod doctor;
mod env;
mod exec;
mod explain;
mod fleet;
mod health;
mod help;
mod host;
mod hosts;
mod http;
mod judge;
mod man;
mod node;
mod offline;
mod reload;
mod robots;
mod run;
mod setup;
mod simulate;
mod state;
mod status;
mod stores;
mod summary;
mod tail;
mod terminal;
mod top;
mod transfer;
mod trust;
mod variables;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::config::{ConfigOverrides, Sources};

/// A forward proxy that is polite to every host
#[derive(Debug, Parser)]
#[command(name = "curtsy", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    /// The configuration file
    #[arg(short, long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(flatten)]
    settings: CliSettings,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "Examples:
  curtsy                                        start the proxy on 127.0.0.1:3128
  curl -x http://127.0.0.1:3128 http://example.com/
  curtsy exec -- wget -r http://example.com/    a command with its own proxy
  curtsy robots http://example.com/page         may this be fetched, and how often?
  curtsy top                                    which requests wait for which host, live
  curtsy tail --denied                          what is refused, and why
  curtsy state export state.jsonl               everything that survives a restart
  curtsy explain http://example.com/page        when would it start, and why then?
  curtsy doctor -- python3 crawl.py             why does it not get through?
  curtsy config init                            write a documented curtsy.toml";

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the proxy (the default)
    Run(Box<run::RunArgs>),
    /// Run a command behind curtsy
    Exec(Box<exec::ExecArgs>),
    /// Become an isolated command (internal)
    #[command(name = exec::isolate::INSIDE, hide = true)]
    Inside(exec::isolate::inside::InsideArgs),
    /// Print the variables that send clients to the proxy
    Env(env::EnvArgs),
    /// Make this machine ready for HTTPS interception, or undo that
    Setup(setup::SetupArgs),
    /// Check, show and write configuration
    Config(config::ConfigArgs),
    /// Make the running curtsy read its configuration again
    Reload(reload::ReloadArgs),
    /// Show robots.txt as curtsy reads it, and what it means for a URL
    Robots(robots::RobotsArgs),
    /// Show whether a URL may be fetched, when, and why
    Explain(explain::ExplainArgs),
    /// Exit 0 if URLs may be fetched, 3 if one may not
    Check(explain::ExplainCheckArgs),
    /// Show whether a curtsy runs, and what it is doing
    Status(status::StatusArgs),
    /// Watch hosts in the terminal
    Top(top::TopArgs),
    /// Follow requests and events of hosts
    Tail(tail::TailArgs),
    /// List hosts: those visited lately, or all that are remembered
    Hosts(hosts::HostsArgs),
    /// Show one host, set its pace, pause it, forget what was learned
    Host(host::HostArgs),
    /// List clients, what they asked for, and which are stopped
    Clients(client::ClientsArgs),
    /// Stop a client, or resume it
    Client(client::ClientArgs),
    /// List the curtsys that share one budget, or forget one
    Fleet(fleet::FleetArgs),
    /// Export and import what survives a restart
    State(state::StateArgs),
    /// Show, forget and verify stored answers
    Cache(cache::CacheArgs),
    /// Show, export, trust and replace the local CA for interception
    Ca(ca::CaArgs),
    /// Show what each policy of learning would do to a host, in virtual time
    Simulate(simulate::SimulateArgs),
    /// Find out why a client does not get through
    Doctor(doctor::DoctorArgs),
    /// Find out how polite a crawler is
    Judge(judge::JudgeArgs),
    /// Exit 0 if a running curtsy accepts requests (for HEALTHCHECK)
    Health(health::HealthArgs),
    /// Print the script that completes commands and options in a shell
    Completions(completions::CompletionsArgs),
    /// Say where the documentation is
    Docs(docs::DocsArgs),
    /// Show the manual, or write its pages into a folder
    Man(man::ManArgs),
}

/// The settings that have a flag; each flag replaces a key of the file.
#[derive(Args, Clone, Debug, Default)]
struct CliSettings {
    /// Where clients connect; may be given more than once
    #[arg(long, value_name = "ADDR")]
    listen: Vec<String>,
    /// Health and metrics; "off" for none
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    #[command(flatten)]
    manners: PolitenessFlags,
    /// Decrypt HTTPS with the local CA (see `curtsy ca`), so that curtsy sees paths and responses
    #[arg(long)]
    intercept: bool,
    /// Never decrypt this host; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    bypass: Vec<String>,
    /// Log level: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL")]
    log_level: Option<String>,
    /// Log format: auto, text or json
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<String>,
    /// One line per request: "off", "-" for stdout, or a file
    #[arg(long, value_name = "FILE")]
    access_log: Option<String>,
}

/// The settings that `curtsy exec` has flags for, too.
#[derive(Args, Clone, Debug, Default)]
struct PolitenessFlags {
    /// Where to store what survives a restart; "memory" stores nothing
    #[arg(long, value_name = "DIR")]
    state_dir: Option<String>,
    /// Time between two requests to one host
    #[arg(long, value_name = "TIME")]
    delay: Option<String>,
    /// Requests in flight to one host
    #[arg(long, value_name = "N")]
    concurrency: Option<String>,
    /// Longest time a request is held
    #[arg(long, value_name = "TIME")]
    max_wait: Option<String>,
    /// robots.txt: enforce, warn or off
    #[arg(long, value_name = "MODE")]
    robots: Option<String>,
}

impl PolitenessFlags {
    fn add_to(&self, overrides: &mut ConfigOverrides) {
        put(
            overrides,
            &[
                ("--state-dir", "state_dir", &self.state_dir),
                ("--delay", "politeness.delay", &self.delay),
                ("--concurrency", "politeness.concurrency", &self.concurrency),
                ("--max-wait", "politeness.max_wait", &self.max_wait),
                ("--robots", "robots.mode", &self.robots),
            ],
        );
    }
}

/// Adds flags that were given. Each entry is the flag, its key and its value.
fn put(overrides: &mut ConfigOverrides, given: &[(&str, &str, &Option<String>)]) {
    for (flag, path, value) in given {
        if let Some(value) = value {
            overrides.add(flag, path, value);
        }
    }
}

impl CliSettings {
    fn add_to(&self, overrides: &mut ConfigOverrides) {
        for address in &self.listen {
            overrides.add("--listen", "listen", address);
        }
        for pattern in &self.bypass {
            overrides.add("--bypass", "tls.bypass", pattern);
        }
        if self.intercept {
            overrides.add("--intercept", "tls.intercept", "true");
        }
        self.manners.add_to(overrides);
        // Users may pass a URL here: other commands print the admin listener as a URL, and accept one.
        let admin = self.admin.as_deref().map(|admin| admin::without_scheme(admin).to_owned());
        put(
            overrides,
            &[
                ("--admin", "admin", &admin),
                ("--log-level", "log.level", &self.log_level),
                ("--log-format", "log.format", &self.log_format),
                ("--access-log", "log.access", &self.access_log),
            ],
        );
    }
}

/// Runs the command line. Exit codes: 0 ok, 1 failure, 2 usage, 3 denied, 4 unknown, or no curtsy runs.
pub fn main() -> ExitCode {
    let matches = help::grouped(Cli::command()).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut overrides = ConfigOverrides::default();
    cli.settings.add_to(&mut overrides);
    if let Some(Command::Run(args)) = &cli.command {
        args.settings.add_to(&mut overrides);
    }
    if let Some(Command::Exec(args)) = &cli.command {
        args.add_to(&mut overrides);
    }
    let sources = Sources::of_process(cli.config, overrides);
    let (mut out, mut err) = (io::stdout(), io::stderr());
    let paint = paints(cli.color, err.is_terminal());
    let paint_page = paints(cli.color, out.is_terminal());
    let mut streams = config::Streams { out: &mut out, err: &mut err, paint };
    let result = match &cli.command {
        None => run::run(&run::RunArgs::default(), &sources, paint),
        Some(Command::Run(args)) => run::run(args, &sources, paint),
        Some(Command::Exec(args)) => exec::run(args, &sources, &mut streams),
        Some(Command::Inside(args)) => exec::isolate::inside::run(args),
        Some(Command::Env(args)) => env::run(args, &sources, &mut streams),
        Some(Command::Setup(args)) => setup::run(args, &sources, &mut streams),
        Some(Command::Config(args)) => config::run(args, &sources, &mut streams),
        Some(Command::Reload(args)) => reload::run(args, &sources, &mut streams),
        Some(Command::Robots(args)) => robots::run(args, &sources, paint_page, &mut streams),
        Some(Command::Explain(args)) => explain::explain(args, &sources, paint_page, &mut streams),
        Some(Command::Check(args)) => explain::check(args, &sources, paint_page, &mut streams),
        Some(Command::Status(args)) => status::run(args, &sources, paint_page, &mut streams),
        Some(Command::Top(args)) => top::run(args, &sources, io::stdout().is_terminal(), &mut streams),
        Some(Command::Tail(args)) => tail::run(args, &sources, paint_page, &mut streams),
        Some(Command::Hosts(args)) => hosts::run(args, &sources, paint_page, &mut streams),
        Some(Command::Host(args)) => host::run(args, &sources, paint_page, &mut streams),
        Some(Command::Clients(args)) => client::list(args, &sources, paint_page, &mut streams),
        Some(Command::Client(args)) => client::steer(args, &sources, &mut streams),
        Some(Command::Fleet(args)) => fleet::run(args, &sources, paint_page, &mut streams),
        Some(Command::State(args)) => state::run(args, &sources, &mut streams),
        Some(Command::Cache(args)) => cache::run(args, &sources, &mut streams),
        Some(Command::Ca(args)) => ca::run(args, &sources, &mut streams),
        Some(Command::Simulate(args)) => simulate::run(args, &sources, &mut streams),
        Some(Command::Doctor(args)) => doctor::run(args, &sources, paint_page, &mut streams),
        Some(Command::Judge(args)) => judge::run(args, &sources, paint_page, &mut streams),
        Some(Command::Health(args)) => health::run(args, &sources, streams.err),
        Some(Command::Completions(args)) => completions::run(args, Cli::command(), streams.out),
        Some(Command::Docs(_)) => docs::run(&mut streams),
        Some(Command::Man(args)) => man::run(args, Cli::command(), io::stdout().is_terminal(), &mut streams),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        // It is no failure if the reader of a pipe, such as `head`, ends early.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn paints(choice: ColorChoice, terminal: bool) -> bool {
    match choice {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        help::grouped(Cli::command()).debug_assert();
    }

    /// An option of a command must not have the id of an option before the command with another type: clap panics.
    #[test]
    fn the_ca_of_another_directory_can_be_named() {
        let line = ["curtsy", "ca", "export", "--state-dir", "/var/lib/curtsy"];
        assert!(matches!(Cli::parse_from(line).command, Some(Command::Ca(_))));
    }

    #[test]
    fn flags_mean_the_same_before_and_behind_run() {
        for line in [["curtsy", "--delay", "2s", "run"], ["curtsy", "run", "--delay", "2s"]] {
            let cli = Cli::parse_from(line);
            let Some(Command::Run(run)) = cli.command else { panic!("run expected") };
            assert_eq!(cli.settings.manners.delay.or(run.settings.manners.delay).as_deref(), Some("2s"));
        }
    }
}
