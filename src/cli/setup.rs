//! `curtsy setup`: brings this machine from nothing to HTTPS interception, and back with `--undo`.
//!
//! Makes the local CA, makes the programs of this machine trust it, and turns interception on for this user. Prints one
//! line for each thing. Never asks for a password and never becomes root: it prints the command for what needs root.
//! Files that the user wrote are never changed.

mod interception;
mod record;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use rustls::pki_types::CertificateDer;

use self::record::TrustRecord;
use super::config::Streams;
use super::stores::{self, Machine, NamedCa, StoreKind, StoreOutcome, TrustGoal};
use super::trust::TrustFiles;
use crate::config::{self, Config, Loaded, Sources};
use crate::store;
use crate::tls::{Ca, Files, OpenedCa};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 if nothing is left to do, 1 if something is; the lines say what.

Examples:
  curtsy setup --dry-run             what would be done?
  curtsy setup                       as yourself; it prints the sudo command for what needs root
  curtsy setup --only firefox        after you made a new profile
  curtsy setup --undo                remove the CA everywhere, and turn interception off")]
pub(super) struct SetupArgs {
    /// Remove the CA from every store, and turn interception off
    #[arg(long)]
    undo: bool,
    /// With --undo: also remove the CAs of other curtsys, or of one whose state directory is gone
    #[arg(long, requires = "undo")]
    all: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Only these parts, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PART")]
    only: Vec<SetupPart>,
    /// Directory of the CA; default: as configured
    // It needs its own id: before the command, `--state-dir` is a setting.
    #[arg(id = "setup_state_dir", long = "state-dir", value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SetupPart {
    /// The system's trusted CAs (needs root)
    System,
    /// Chromium, Chrome, Brave, Edge
    Chromium,
    /// Every profile of Firefox
    Firefox,
    /// The trust stores of installed JDKs (most need root)
    Java,
    /// The files that the variables of `curtsy env` name
    Variables,
    /// `tls.intercept` in the configuration
    Intercept,
}

/// Returns the files of the CA that `curtsy setup` has put into the stores of this machine, if it has.
pub(super) fn trusted_ca(config: &Config) -> Option<Files> {
    let state = store::directory(&config.state_dir);
    let files = Files::of(&config.tls, state.as_deref())?;
    let is_trusted = !TrustRecord::in_folder(state.as_deref()).read().is_empty();
    (is_trusted && files.certificate().exists()).then_some(files)
}

/// What all parts need to know.
struct SetupPlan<'a> {
    args: &'a SetupArgs,
    sources: &'a Sources,
    loaded: &'a Loaded,
    machine: Machine,
    state: Option<PathBuf>,
    files: Files,
    record: TrustRecord,
}

/// Runs the command and returns the exit code. An `Err` means that the terminal could not be written.
pub(super) fn run(args: &SetupArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let loaded = match config::load(sources) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(streams.err, "{}", problems.paint(streams.paint))?;
            return Ok(1);
        }
    };
    let plan = match SetupPlan::new(args, sources, &loaded, Machine::of(&sources.env)) {
        Ok(plan) => plan,
        Err(why) => return refuse(&why, streams),
    };
    let (line, cas) = match plan.ca() {
        Ok(ca) => ca,
        Err(why) => return refuse(&why, streams),
    };
    plan.say("CA", &line, streams)?;
    plan.perform(&cas, streams)
}

fn refuse(why: &str, streams: &mut Streams<'_>) -> io::Result<u8> {
    writeln!(streams.err, "error: {why}")?;
    Ok(1)
}

impl<'a> SetupPlan<'a> {
    fn new(args: &'a SetupArgs, sources: &'a Sources, loaded: &'a Loaded, machine: Machine) -> Result<Self, String> {
        if let (Some(user), None) = (&machine.sudo_user, &args.state_dir) {
            return Err(format!(
                "this runs as root, whose CA and browsers are not those of {user}; run `curtsy setup` without sudo: \
                 it prints the command for what needs root"
            ));
        }
        let state = args.state_dir.clone().or_else(|| store::directory(&loaded.config.state_dir));
        let state = state.map(|state| std::path::absolute(&state).unwrap_or(state));
        let files = Files::of(&loaded.config.tls, state.as_deref()).ok_or(
            "with state_dir = \"memory\" every start makes another CA, which no store can keep up with; choose a \
             directory, or use `curtsy exec --intercept`, which needs no setup",
        )?;
        let record = TrustRecord::in_folder(state.as_deref());
        Ok(SetupPlan { args, sources, loaded, machine, state, files, record })
    }

    /// Returns a line about the CA, and its certificates. Makes the CA if there is none.
    fn ca(&self) -> Result<(String, Vec<CertificateDer<'static>>), String> {
        let path = self.files.certificate();
        let shown = path.display();
        if !path.exists() && self.args.undo {
            return Ok((format!("none in {shown}; what was trusted before is removed"), Vec::new()));
        }
        if !path.exists() && self.args.dry_run {
            // Any CA does: no store has it yet.
            return Ok((format!("would be made in {shown}"), vec![Ca::make().certificate().clone()]));
        }
        if !path.exists() && self.is_foreign(path) {
            return Err(format!(
                "there is no CA in {shown} yet; the owner of that folder makes it, by `curtsy setup` or by starting curtsy \
                 with tls.intercept"
            ));
        }
        let opened = if path.exists() { Ok(OpenedCa::Read) } else { self.files.open().map(|(_, opened)| opened) };
        let read = opened.and_then(|opened| Ok((opened, self.files.certificates()?)));
        let (opened, certificates) = match read {
            Ok(read) => read,
            Err(error) if self.args.undo => return Ok((format!("{error}; what was recorded is removed"), Vec::new())),
            Err(error) => return Err(error.to_string()),
        };
        let line = match (opened, self.args.undo) {
            (OpenedCa::Made, _) => format!("made in {shown}"),
            (OpenedCa::Read, false) => format!("already in {shown}"),
            (OpenedCa::Read, true) if self.is_in_state(path) => {
                format!("stays in {shown}; delete it if no other machine trusts it")
            }
            (OpenedCa::Read, true) => format!("stays in {shown}"),
        };
        Ok((line, certificates))
    }

    /// Whether curtsy keeps this file itself; else the operator does.
    fn is_in_state(&self, path: &Path) -> bool {
        self.state.as_ref().is_some_and(|state| path.starts_with(state))
    }

    /// Whether the folder of this file belongs to another user, so that this one must not create files there.
    fn is_foreign(&self, path: &Path) -> bool {
        let existing = path.ancestors().skip(1).find(|folder| folder.exists());
        let owner = existing.and_then(|folder| fs::metadata(folder).ok()).map(|folder| folder.uid());
        self.machine.is_root() && owner.is_some_and(|owner| owner != 0)
    }

    /// Performs all parts, prints a line for each, and returns the exit code.
    fn perform(&self, certificates: &[CertificateDer<'static>], streams: &mut Streams<'_>) -> io::Result<u8> {
        let cas: Vec<NamedCa> = certificates.iter().filter_map(NamedCa::of).collect();
        let names: BTreeSet<String> = cas.iter().map(|ca| ca.name.clone()).collect();
        let known: BTreeSet<String> = self.record.read().union(&names).cloned().collect();
        // Recorded before the first store changes, so that `--undo` finds everything after an interruption.
        let recorded = if self.args.dry_run { Ok(()) } else { self.record.write(&known) };
        if let Err(error) = recorded {
            return refuse(&format!("cannot record which CAs are trusted: {error}"), streams);
        }
        let wanted = if self.args.undo { Vec::new() } else { cas };
        let goal = TrustGoal { wanted, known, every: self.args.all, dry_run: self.args.dry_run };
        let (mut for_root, mut left) = (Vec::new(), false);
        for &part in SetupPart::value_variants().iter().filter(|part| self.is_asked(**part)) {
            for outcome in self.settle(part, &goal) {
                self.say(part.name(), &outcome.to_string(), streams)?;
                match outcome {
                    StoreOutcome::Settled(_) => {}
                    StoreOutcome::NeedsRoot(_) => for_root.push(part),
                    StoreOutcome::Left(_) => left = true,
                }
            }
        }
        let finished = !left && for_root.is_empty();
        if finished && !self.args.dry_run && self.args.only.is_empty() {
            let kept = if self.args.undo { BTreeSet::new() } else { names };
            // An old name in it is harmless.
            let _ = self.record.write(&kept);
        }
        self.advise(&for_root, streams)?;
        Ok(u8::from(!finished))
    }

    /// Prints a line, with `~` for the home directory.
    fn say(&self, part: &str, text: &str, streams: &mut Streams<'_>) -> io::Result<()> {
        let home = self.sources.env.get("HOME").filter(|home| home.len() > 1).map(|home| format!("{home}/"));
        let text = home.map_or_else(|| text.to_owned(), |home| text.replace(&home, "~/"));
        writeln!(streams.out, "{part:<11}{text}")
    }

    fn is_asked(&self, part: SetupPart) -> bool {
        self.args.only.is_empty() || self.args.only.contains(&part)
    }

    fn settle(&self, part: SetupPart, goal: &TrustGoal) -> Vec<StoreOutcome> {
        let store = |kind| stores::settle(kind, &self.machine, goal);
        match part {
            SetupPart::System => store(StoreKind::System),
            SetupPart::Chromium => store(StoreKind::Chromium),
            SetupPart::Firefox => store(StoreKind::Firefox),
            SetupPart::Java => store(StoreKind::Java),
            SetupPart::Variables | SetupPart::Intercept => vec![match self.machine.foreign_home() {
                Some(why) => StoreOutcome::Settled(format!("skipped: {why}")),
                None if part == SetupPart::Variables => self.variables(goal),
                None => interception::settle(self.loaded, &self.sources.env, self.args.undo, self.args.dry_run),
            }],
        }
    }

    /// Writes or removes the files that the variables of `curtsy env` name.
    fn variables(&self, goal: &TrustGoal) -> StoreOutcome {
        let Some(folder) = self.state.as_ref().map(|state| state.join("trust")) else {
            return StoreOutcome::Settled("skipped: state_dir is \"memory\"".to_owned());
        };
        let (shown, would) = (folder.display(), if self.args.dry_run { "would be " } else { "" });
        if self.args.undo && !folder.exists() {
            return StoreOutcome::Settled(format!("no files in {shown}"));
        }
        let done = match (self.args.dry_run, self.args.undo) {
            (true, _) => Ok(()),
            (false, true) => fs::remove_dir_all(&folder),
            (false, false) => {
                let pem: String = goal.wanted.iter().map(|ca| ca.pem.as_str()).collect();
                TrustFiles::write(&folder, &pem, |name| self.sources.env.get(name).cloned()).map(drop)
            }
        };
        match done {
            Ok(()) if self.args.undo => StoreOutcome::Settled(format!("files {would}removed: {shown}")),
            Ok(()) => StoreOutcome::Settled(format!("files for curl, wget, git, Python, Node … {would}in {shown}")),
            Err(error) => StoreOutcome::Left(format!("{shown}: {error}")),
        }
    }

    /// Prints what the user has to type next.
    fn advise(&self, for_root: &[SetupPart], streams: &mut Streams<'_>) -> io::Result<()> {
        if !for_root.is_empty() {
            writeln!(streams.out, "\nFor what needs root:\n  {}", self.root_command(for_root))?;
        }
        if self.args.dry_run || self.machine.foreign_home().is_some() {
            return Ok(());
        }
        if self.args.undo {
            return writeln!(
                streams.out,
                "\nNext: in shells that have its variables, eval \"$(curtsy env --unset)\"; restart curtsy and browsers"
            );
        }
        writeln!(
            streams.out,
            "\nNext:\n  curtsy                                start the proxy, or restart it; restart browsers too\n  \
             eval \"$(curtsy env)\"                  in the shell of your programs\n  \
             curl -sS https://curtsy.invalid/      answers if the proxy is used and its CA is trusted"
        )
    }

    /// Returns the command that does the parts that need root. It names everything that differs for root.
    fn root_command(&self, parts: &[SetupPart]) -> String {
        let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("curtsy"));
        let mut names: Vec<&str> = parts.iter().map(|part| part.name()).collect();
        names.dedup();
        let mut command = format!("sudo {} setup --only {}", quoted(&program), names.join(","));
        for (given, flag) in [(self.args.undo, " --undo"), (self.args.all, " --all")] {
            command.push_str(if given { flag } else { "" });
        }
        if let Some(state) = &self.state {
            command.push_str(&format!(" --state-dir {}", quoted(state)));
        }
        // The operator's own CA is named in the configuration.
        if let (Some(file), false) = (&self.loaded.path, self.is_in_state(self.files.certificate())) {
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            command.push_str(&format!(" --config {}", quoted(&file)));
        }
        command
    }
}

impl SetupPart {
    fn name(self) -> &'static str {
        match self {
            SetupPart::System => "system",
            SetupPart::Chromium => "chromium",
            SetupPart::Firefox => "firefox",
            SetupPart::Java => "java",
            SetupPart::Variables => "variables",
            SetupPart::Intercept => "intercept",
        }
    }
}

/// Quotes a path for a shell, if it needs quotes.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::FileChoice;

    /// Returns the command for root of a user with this state directory, or why nothing is done.
    fn command_for_root(state_dir: Option<&str>, sudo_user: Option<&str>) -> Result<String, String> {
        let state_dir = state_dir.map(PathBuf::from);
        let args = SetupArgs { undo: true, all: false, dry_run: false, only: Vec::new(), state_dir };
        let sources = Sources { file: FileChoice::Nothing, ..Sources::default() };
        let loaded = config::load(&sources).unwrap();
        let mut machine = Machine::of(&sources.env);
        machine.sudo_user = sudo_user.map(str::to_owned);
        let plan = SetupPlan::new(&args, &sources, &loaded, machine)?;
        Ok(plan.root_command(&[SetupPart::System, SetupPart::Java, SetupPart::Java]))
    }

    #[test]
    fn the_command_for_root_names_the_directory_of_the_user() {
        let command = command_for_root(Some("/state of ada"), None).unwrap();
        assert!(command.starts_with("sudo /"), "{command}");
        assert!(command.ends_with(" setup --only system,java --undo --state-dir '/state of ada'"), "{command}");
    }

    #[test]
    fn sudo_without_a_directory_is_refused() {
        let why = command_for_root(None, Some("ada")).unwrap_err();
        assert!(why.contains("not those of ada") && why.contains("without sudo"), "{why}");
        assert!(command_for_root(Some("/state"), Some("ada")).is_ok());
    }
}
