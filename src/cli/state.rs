//! `curtsy state`: exports everything that survives a restart as JSON lines, and imports it into another curtsy.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::admin::{AdminTrouble, AskArgs, RunningCurtsy};
use super::config::Streams;
use super::offline;
use crate::app::Offline;
use crate::config::Sources;
use crate::store::{ImportTally, Imported, LineCount, LinesError};

#[derive(Args, Clone, Debug)]
#[command(
    after_help = "The state: hosts with what was learned and set for them, robots.txt copies, and stopped clients.
A curtsy that runs on the state directory is asked; otherwise the directory itself is opened.

Exit codes: 0 ok, 1 not possible, 4 nothing is kept.

Examples:
  curtsy state export state.jsonl
  curtsy state export - | grep '\"kind\":\"host\"' | jq -r .key
  curtsy state import state.jsonl
  ssh old-machine curtsy state export - | curtsy state import -"
)]
pub(super) struct StateArgs {
    #[command(subcommand)]
    deed: StateAction,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Clone, Debug, Subcommand)]
enum StateAction {
    /// Write everything that is kept, one JSON object per line
    Export {
        /// File to write; "-" is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Import what another curtsy exported. Entries of the same name are replaced, but no hold is
    /// shortened and no send forgotten
    Import {
        /// File to read; "-" is standard input
        file: PathBuf,
    },
}

pub(super) fn run(args: &StateArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let done = match &args.deed {
        StateAction::Export { file } => export(args, file, sources, streams),
        StateAction::Import { file } => import(args, file, sources, streams),
    };
    match done {
        Ok(()) => Ok(0),
        Err(StateFailure::Trouble(trouble)) => trouble.tell(streams),
        Err(StateFailure::Stream(error)) => Err(error),
    }
}

/// Why the command failed.
enum StateFailure {
    Trouble(AdminTrouble),
    Stream(io::Error),
}

fn export(args: &StateArgs, file: &Path, sources: &Sources, streams: &mut Streams<'_>) -> Result<(), StateFailure> {
    let mut target = StateTarget::open(file, streams.out)?;
    let (count, state) = match open(args, sources, false)? {
        OpenedState::Online(running) => (running.export(&mut target)?, None),
        OpenedState::Offline(state) => (state.export(&mut target)?, Some(state)),
    };
    target.finish()?;
    if let Some(state) = state {
        offline::close(state, streams)?;
    }
    let LineCount { hosts, robots, jobs } = count;
    writeln!(streams.err, "exported {hosts} hosts, {robots} robots.txt copies, {jobs} stopped clients")?;
    Ok(())
}

fn import(args: &StateArgs, file: &Path, sources: &Sources, streams: &mut Streams<'_>) -> Result<(), StateFailure> {
    let from: Box<dyn Read> =
        if is_stream(file) { Box::new(io::stdin()) } else { Box::new(named(file, |path| File::open(path))?) };
    let imported = match open(args, sources, true)? {
        OpenedState::Online(running) => running.import(from)?,
        OpenedState::Offline(state) => {
            let imported = state.import(BufReader::new(from));
            offline::close(state, streams)?;
            imported?
        }
    };
    if args.ask.json {
        writeln!(streams.out, "{:#}", serde_json::json!(imported))?;
    } else {
        write!(streams.out, "{}", page(&imported))?;
    }
    Ok(())
}

enum OpenedState {
    Online(RunningCurtsy),
    Offline(Offline),
}

/// Opens the curtsy that the user named, else the state directory, else the curtsy that runs on that directory.
fn open(args: &StateArgs, sources: &Sources, changes: bool) -> Result<OpenedState, AdminTrouble> {
    if args.ask.names_one() {
        return RunningCurtsy::find(&args.ask, sources).map(OpenedState::Online);
    }
    match offline::open(sources, changes) {
        Ok(state) => Ok(OpenedState::Offline(state)),
        Err(error) if error.is_held() => {
            let running = RunningCurtsy::find(&args.ask, sources).map_err(|absent| offline::trouble(error, &absent));
            running.map(OpenedState::Online)
        }
        Err(error) => Err(offline::trouble(error, &AdminTrouble::nobody("no curtsy runs on the state directory"))),
    }
}

fn is_stream(file: &Path) -> bool {
    file == Path::new("-")
}

fn named<T>(file: &Path, work: impl FnOnce(&Path) -> io::Result<T>) -> Result<T, AdminTrouble> {
    work(file).map_err(|error| AdminTrouble::failure(format!("{}: {error}", file.display())))
}

/// Where an export goes. A file gets its final name only when it is complete: half an export looks like a whole one.
enum StateTarget<'a> {
    Stream(&'a mut dyn Write),
    File { to: BufWriter<File>, unfinished: PathBuf, name: PathBuf },
}

impl<'a> StateTarget<'a> {
    /// Opens the target. Only the user can read the file: other users must not see which hosts are visited.
    fn open(file: &Path, out: &'a mut dyn Write) -> Result<Self, AdminTrouble> {
        if is_stream(file) {
            return Ok(StateTarget::Stream(out));
        }
        let mut unfinished = OsString::from(file);
        unfinished.push(".unfinished");
        let unfinished = PathBuf::from(unfinished);
        let to = named(&unfinished, |path| {
            OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(path)
        })?;
        Ok(StateTarget::File { to: BufWriter::new(to), unfinished, name: file.to_owned() })
    }

    fn finish(self) -> io::Result<()> {
        match self {
            StateTarget::Stream(out) => out.flush(),
            StateTarget::File { mut to, unfinished, name } => {
                to.flush()?;
                fs::rename(unfinished, name)
            }
        }
    }
}

impl Write for StateTarget<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            StateTarget::Stream(out) => out.write(bytes),
            StateTarget::File { to, .. } => to.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            StateTarget::Stream(out) => out.flush(),
            StateTarget::File { to, .. } => to.flush(),
        }
    }
}

fn page(imported: &Imported) -> String {
    let kinds = [("hosts", imported.hosts), ("robots.txt", imported.robots), ("clients", imported.jobs)];
    kinds.map(|(kind, tally)| format!("{kind:<10}  {}\n", words(&tally))).concat()
}

/// Describes what was imported and replaced, and what was skipped and why.
fn words(tally: &ImportTally) -> String {
    let skipped = [
        (tally.too_old, "too old to change anything"),
        (tally.newer_here, "what is known here is newer"),
        (tally.unusable, "of no use here"),
        (tally.no_room, "no room for more"),
    ];
    let mut text = format!("{} new, {} replaced", tally.new, tally.replaced);
    for (number, why) in skipped {
        if number > 0 {
            text += &format!(", {number} skipped ({why})");
        }
    }
    text
}

impl From<AdminTrouble> for StateFailure {
    fn from(trouble: AdminTrouble) -> Self {
        StateFailure::Trouble(trouble)
    }
}

impl From<io::Error> for StateFailure {
    fn from(error: io::Error) -> Self {
        StateFailure::Stream(error)
    }
}

impl From<LinesError> for StateFailure {
    fn from(error: LinesError) -> Self {
        match error {
            LinesError::Stream(error) => StateFailure::Stream(error),
            error => StateFailure::Trouble(AdminTrouble::failure(error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_told_with_its_reasons() {
        let hosts = ImportTally { new: 3, replaced: 1, too_old: 2, no_room: 1, ..ImportTally::default() };
        let expected = "\
hosts       3 new, 1 replaced, 2 skipped (too old to change anything), 1 skipped (no room for more)
robots.txt  0 new, 0 replaced
clients     0 new, 0 replaced
";
        assert_eq!(page(&Imported { hosts, ..Imported::default() }), expected);
    }
}
