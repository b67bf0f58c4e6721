//! `curtsy exec -- COMMAND`: runs one command, with its own proxy or behind a running one.
//!
//! The proxy runs in this process, on a free port, for as long as the command runs. The command learns about it only
//! through its environment: nothing is injected, and none of the user's files is changed. Signals and the exit code are
//! passed through.

mod attached;
mod bypass;
mod child;
pub(super) mod isolate;
mod parent;
mod private;

use std::ffi::OsString;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use clap::Args;
use tempfile::TempDir;

use self::child::ChildProcess;
use self::isolate::Cage;
use super::PolitenessFlags;
use super::admin::AdminTrouble;
use super::config::Streams;
use super::env::client_name;
use super::variables::Variable;
use crate::config::{ConfigOverrides, Sources};

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exit codes: the command's own; 128 + N if signal N ended it; 126 and 127 if it could not be run.

Examples:
  curtsy exec -- curl http://example.com/
  curtsy exec --delay 5s --as archive -- python crawl.py
  curtsy exec --report -- ./crawler        what would have been delayed and denied?
  curtsy exec --intercept -- npm ci        requests inside HTTPS count one by one
  curtsy exec --isolate -- ./crawler       it cannot bypass the proxy
  curtsy exec --attach -- ./crawler        behind the running curtsy"
)]
pub(super) struct ExecArgs {
    /// Decrypt HTTPS with a CA for this run only, which the command is told to trust
    #[arg(long)]
    intercept: bool,
    /// Delay and deny nothing; report at the end what would have happened
    #[arg(long)]
    report: bool,
    /// Use the curtsy that is already running
    #[arg(long, conflicts_with_all = ["intercept", "report", "delay", "concurrency", "max_wait", "robots", "state_dir"])]
    attach: bool,
    /// Allow the command no network access except the proxy (Linux namespaces)
    #[arg(long, conflicts_with = "attach")]
    isolate: bool,
    /// Name of the client, for fair queues and logs
    #[arg(long = "as", value_name = "NAME", value_parser = client_name)]
    name: Option<String>,
    #[command(flatten)]
    manners: PolitenessFlags,
    /// Set JAVA_TOOL_OPTIONS too; every JVM prints a line about it
    #[arg(long)]
    java: bool,
    /// Print the variables that the command gets
    #[arg(long)]
    print_env: bool,
    /// Let curtsy print only errors
    #[arg(short, long)]
    quiet: bool,
    /// With --attach: admin listener of the curtsy to use; default: the configured one
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
    let done = match args.attach {
        true => attached::run(args, sources, &mut voice),
        false => private::run(args, sources, &mut voice),
    };
    match done {
        Ok(code) => Ok(code),
        Err(ExecFailed::Trouble(trouble)) => trouble.tell(streams),
        Err(ExecFailed::Command(code, text)) => AdminTrouble { code, text }.tell(streams),
        Err(ExecFailed::Io(error)) => Err(error),
    }
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

/// Runs the command with these variables and waits until it ends.
fn obey(
    args: &ExecArgs,
    variables: &[Variable],
    cage: Option<Cage>,
    voice: &mut Voice<'_, '_>,
) -> Result<u8, ExecFailed> {
    if let Some(warning) = bypass::warning(&args.command, args.java, args.intercept, args.isolate) {
        voice.say(&warning)?;
    }
    if args.print_env {
        voice.show(variables)?;
    }
    if let Some(cage) = cage {
        return cage.run(variables);
    }
    let mut command = args.command();
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    let charge = ChildProcess::begin(&mut command).map_err(|error| not_run(args, &error))?;
    Ok(charge.end()?)
}

/// The exit codes that shells use.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

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
