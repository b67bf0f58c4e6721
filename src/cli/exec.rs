//! `curtsy exec -- COMMAND`: runs one command behind a running curtsy, or with its own proxy if none runs.
//!
//! Its own proxy runs in this process, on a free port, for as long as the command runs. The command learns about the
//! proxy only through its environment: nothing is injected, and none of the user's files is changed. Signals and the
//! exit code are passed through.

mod attached;
mod bypass;
pub(super) mod child;
mod found;
pub(super) mod isolate;
mod name;
mod parent;
pub(super) mod private;
mod roots;
mod status_line;

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use clap::Args;
use tempfile::TempDir;

use self::child::ChildProcess;
use self::found::RunningOne;
use self::isolate::Cage;
use self::status_line::StatusLine;
use super::PolitenessFlags;
use super::admin::{AdminTrouble, AskArgs};
use super::config::Streams;
use super::env::{self, client_name};
use super::variables::Variable;
use crate::app::WaitingHost;
use crate::config::{ConfigOverrides, Sources};

/// Options for a proxy of its own.
const OWN_ONLY: [&str; 13] = [
    "own",
    "intercept",
    "no_intercept",
    "bypass",
    "report",
    "isolate",
    "delay",
    "concurrency",
    "max_wait",
    "robots",
    "state_dir",
    "cache",
    "no_cache",
];

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: the command's own; 128 + N if signal N ended it; 126 and 127 if it could not be run.

Examples:
  curtsy exec -- curl http://example.com/
  curtsy exec --delay 5s --as archive -- python crawl.py
  curtsy exec --report -- ./crawler        what would have been delayed and denied?
  curtsy exec --bypass '*.bank.test' -- …  tunnel HTTPS to these hosts, unread
  curtsy exec --cache .cache -- lychee .   what is stored survives a CI job with this folder
  curtsy exec --isolate -- ./crawler       it cannot bypass the proxy"
)]
pub(super) struct ExecArgs {
    /// Decrypt HTTPS with a CA for this run only (the default), whatever the configuration says
    #[arg(long, conflicts_with = "no_intercept")]
    intercept: bool,
    /// Tunnel HTTPS: paced, but robots.txt paths and 429 inside do not count
    #[arg(long)]
    no_intercept: bool,
    /// Tunnel HTTPS to this host, besides those in tls.bypass; may be given more than once
    #[arg(long, value_name = "PATTERN")]
    bypass: Vec<String>,
    /// Delay and deny nothing; report at the end what would have happened
    #[arg(long)]
    report: bool,
    /// Start a proxy for this command although a curtsy runs: the two share no budget
    #[arg(long)]
    own: bool,
    /// Use the running curtsy, as without this option, but fail if there is none
    #[arg(long, conflicts_with_all = OWN_ONLY)]
    attach: bool,
    /// Allow the command no network access except the proxy (Linux namespaces)
    #[arg(long)]
    isolate: bool,
    /// Name of the client, for fair queues and logs; default: after the command
    #[arg(long = "as", value_name = "NAME", value_parser = client_name)]
    name: Option<String>,
    #[command(flatten)]
    manners: PolitenessFlags,
    /// Folder of stored answers; default: one for all commands of this user
    #[arg(long, value_name = "DIR", conflicts_with = "no_cache")]
    cache: Option<String>,
    /// Store no answers, and use none
    #[arg(long)]
    no_cache: bool,
    /// Set JAVA_TOOL_OPTIONS too; every JVM prints a line about it
    #[arg(long)]
    java: bool,
    /// Print the variables that the command gets
    #[arg(long)]
    print_env: bool,
    /// Let curtsy print only errors
    #[arg(short, long)]
    quiet: bool,
    /// Admin listener of the curtsy to use; default: the configured one
    #[arg(id = "admin_url", long = "admin", value_name = "URL", env = "CURTSY_ADMIN_URL")]
    admin: Option<String>,
    /// What to run, with its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl ExecArgs {
    pub(super) fn add_to(&self, overrides: &mut ConfigOverrides) {
        self.manners.add_to(overrides);
        if self.intercept {
            overrides.add("--intercept", "tls.intercept", "true");
        }
        if self.no_intercept {
            overrides.add("--no-intercept", "tls.intercept", "false");
        }
        if let Some(folder) = &self.cache {
            overrides.add("--cache", "cache.dir", folder);
        }
        if self.no_cache {
            overrides.add("--no-cache", "cache.mode", "off");
        }
    }

    /// Returns the flag that only a proxy of its own can obey.
    fn own_only<'a>(&self, overrides: &'a ConfigOverrides) -> Option<&'a str> {
        // These say where a running curtsy is found, or have no effect here.
        const OTHERS: [&str; 5] = ["--admin", "--listen", "--log-level", "--log-format", "--access-log"];
        let own = [(self.report, "--report"), (self.isolate, "--isolate"), (!self.bypass.is_empty(), "--bypass")];
        let set = overrides.flags().find(|flag| !OTHERS.contains(flag));
        own.iter().find(|(is_set, _)| *is_set).map(|(_, flag)| *flag).or(set)
    }

    /// Returns the name of the client, if it has one.
    fn client(&self) -> Option<String> {
        self.name.clone().or_else(|| name::of_command(&self.command))
    }

    fn command(&self) -> Command {
        let (program, arguments) = self.command.split_first().expect("clap has seen to it that there is one");
        let mut command = Command::new(program);
        command.args(arguments);
        command
    }
}

/// Why the command was not run, or not to its end.
enum ExecFailed {
    /// A failure before the command started.
    Trouble(AdminTrouble),
    /// The command could not be run; with the exit code that shells use for this.
    Command(u8, String),
    Io(io::Error),
}

pub(super) fn run(args: &ExecArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let mut voice = Voice { streams: &mut *streams, quiet: args.quiet };
    match run_behind_one(args, sources, &mut voice) {
        Ok(code) => Ok(code),
        Err(ExecFailed::Trouble(trouble)) => trouble.tell(streams),
        Err(ExecFailed::Command(code, text)) => AdminTrouble { code, text }.tell(streams),
        Err(ExecFailed::Io(error)) => Err(error),
    }
}

/// Runs the command behind the curtsy that runs, if there is one that it may use, or else with a proxy of its own.
fn run_behind_one(args: &ExecArgs, sources: &Sources, voice: &mut Voice<'_, '_>) -> Result<u8, ExecFailed> {
    let ask = AskArgs::of(args.admin.clone());
    if args.attach {
        let found = env::running(&ask, sources, false)?;
        return attached::run(args, sources, found, voice);
    }
    if args.own {
        return private::run(args, sources, voice);
    }
    let beside = "its own proxy, which shares no budget with that one";
    match (found::look(&ask, sources), args.own_only(&sources.overrides)) {
        (RunningOne::Usable(found), None) => return attached::run(args, sources, found, voice),
        (RunningOne::Unusable(why), None) => voice.say(&format!("{why}:\nthis command has {beside}"))?,
        (RunningOne::Usable(_) | RunningOne::Unusable(_), Some(flag)) => {
            voice.say(&format!("a curtsy runs, but {flag} needs a proxy of its own:\nthis command has {beside}"))?;
        }
        (RunningOne::Absent, _) => {
            if let Some(named) = args.admin.as_ref().filter(|_| ask.names_one()) {
                voice.say(&format!("no curtsy runs on {named}: this command has its own proxy"))?;
            }
        }
    }
    private::run(args, sources, voice)
}

/// Prints curtsy's own messages while the command uses the terminal. Each line begins with "curtsy:".
struct Voice<'a, 'b> {
    streams: &'a mut Streams<'b>,
    quiet: bool,
}

impl Voice<'_, '_> {
    fn say(&mut self, text: &str) -> io::Result<()> {
        if !self.quiet {
            for line in text.lines() {
                writeln!(self.streams.err, "curtsy: {line}")?;
            }
        }
        Ok(())
    }

    fn show(&mut self, variables: &[Variable]) -> io::Result<()> {
        for (name, value) in variables {
            writeln!(self.streams.err, "{name}={value}")?;
        }
        Ok(())
    }
}

/// Creates a folder for the files of this run. Other users cannot read it. Dropping it removes it, also in a panic.
fn folder() -> io::Result<TempDir> {
    tempfile::Builder::new().prefix("curtsy-").permissions(Permissions::from_mode(0o700)).tempdir()
}

/// Runs the command with these variables and waits until it ends. `longest_wait` returns the host whose requests have
/// waited longest, for the user.
fn obey(
    args: &ExecArgs,
    variables: &[Variable],
    cage: Option<Cage>,
    longest_wait: impl FnMut() -> Option<WaitingHost> + Send + 'static,
    voice: &mut Voice<'_, '_>,
) -> Result<u8, ExecFailed> {
    if let Some(warning) = bypass::warning(&args.command, args.java, args.isolate) {
        voice.say(&warning)?;
    }
    if args.print_env {
        voice.show(variables)?;
    }
    let _line = (!args.quiet).then(|| StatusLine::start(voice.streams.paint, longest_wait)).transpose()?;
    if let Some(cage) = cage {
        return cage.run(variables);
    }
    let mut command = args.command();
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let charge = ChildProcess::begin(&mut command).map_err(|error| not_run(args, &error))?;
    Ok(charge.end()?)
}

/// The exit codes that shells use.
pub(super) const NOT_RUNNABLE: u8 = 126;
pub(super) const NOT_FOUND: u8 = 127;

fn not_run(args: &ExecArgs, error: &io::Error) -> ExecFailed {
    let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
    let code = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    ExecFailed::Command(code, format!("{program} cannot be run: {error}"))
}

impl From<io::Error> for ExecFailed {
    fn from(error: io::Error) -> Self {
        ExecFailed::Io(error)
    }
}

impl From<AdminTrouble> for ExecFailed {
    fn from(trouble: AdminTrouble) -> Self {
        ExecFailed::Trouble(trouble)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ExecLine {
        #[command(flatten)]
        exec: ExecArgs,
    }

    /// The flag in this line that needs a proxy of its own.
    fn own_only(options: &str) -> Option<String> {
        let line = ["exec"].into_iter().chain(options.split_whitespace()).chain(["--", "true"]);
        let args = ExecLine::parse_from(line).exec;
        let mut overrides = ConfigOverrides::default();
        overrides.add("--admin", "admin", "127.0.0.1:3129");
        args.add_to(&mut overrides);
        args.own_only(&overrides).map(str::to_owned)
    }

    #[test]
    fn options_of_a_proxy_need_one() {
        assert_eq!((own_only(""), own_only("--as x --java --quiet --admin 127.0.0.1:1")), (None, None));
        for options in ["--delay 1s", "--state-dir x", "--no-intercept", "--intercept", "--report", "--isolate"] {
            assert_eq!(own_only(options).as_deref(), options.split(' ').next());
            let both = ["exec", "--attach"].into_iter().chain(options.split(' ')).chain(["--", "true"]);
            assert!(ExecLine::try_parse_from(both).is_err(), "{options}");
        }
        assert_eq!(own_only("--bypass a --bypass b").as_deref(), Some("--bypass"));
    }
}
