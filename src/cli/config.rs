//! `curtsy config`: check, show, init, schema.
//!
//! Each command writes to the given streams and returns an exit code: 0, or 1 if something is wrong. Nothing here
//! decides what is wrong with a configuration.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use crate::config::{self, Loaded, Problems, Sources};

#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  curtsy config init                  write a documented curtsy.toml here
  curtsy config check                 find mistakes in the file that would be used
  curtsy config show --origin         the values in effect, and where they come from
")]
pub struct ConfigArgs {
    #[command(subcommand)]
    pub command: ConfigCommand,
}

#[derive(Clone, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Find mistakes in the configuration
    Check(CheckArgs),
    /// Print the effective configuration
    Show(ShowArgs),
    /// Write a documented configuration file
    Init(InitArgs),
    /// Print the JSON Schema of the file, for editors
    #[command(after_long_help = "Examples:
  curtsy config schema > curtsy.schema.json
  (then, in the first line of the file:  #:schema ./curtsy.schema.json)
")]
    Schema,
}

#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  curtsy config check
  curtsy --config /etc/curtsy/config.toml config check --strict
  curtsy config check --json | jq '.problems[] | .message'
")]
pub struct CheckArgs {
    /// Fail on warnings too
    #[arg(long)]
    pub strict: bool,
    /// Report as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Secrets are shown as ***.

Examples:
  curtsy config show
  CURTSY_UPSTREAM__KEEP_ALIVE=2s curtsy config show --origin
  curtsy config show --json | jq .upstream
")]
pub struct ShowArgs {
    /// Show where each value comes from
    #[arg(long)]
    pub origin: bool,
    /// Print JSON instead of TOML
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
#[command(after_long_help = "Examples:
  curtsy config init
  curtsy config init /etc/curtsy/config.toml
")]
pub struct InitArgs {
    /// Where to write; - for stdout
    #[arg(default_value = "curtsy.toml")]
    pub path: PathBuf,
    /// Replace the file if it exists
    #[arg(long)]
    pub force: bool,
}

/// Where a command writes, and whether errors may be coloured.
#[expect(missing_debug_implementations, reason = "streams have nothing to show")]
pub struct Streams<'a> {
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub paint: bool,
}

/// Runs the command and returns the exit code. An `Err` means that a stream could not be written.
pub fn run(args: &ConfigArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    match &args.command {
        ConfigCommand::Check(args) => check(args, sources, streams),
        ConfigCommand::Show(args) => show(args, sources, streams),
        ConfigCommand::Init(args) => init(args, streams),
        ConfigCommand::Schema => {
            writeln!(streams.out, "{:#}", config::schema())?;
            Ok(0)
        }
    }
}

fn check(args: &CheckArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let (problems, path) = match config::load(sources) {
        Ok(loaded) => (Problems::new(loaded.warnings), loaded.path),
        Err(problems) => (problems, None),
    };
    let failed = problems.errors() > 0 || (args.strict && problems.warnings() > 0);
    if args.json {
        writeln!(streams.out, "{:#}", problems.to_json())?;
    } else if problems.iter().next().is_some() {
        writeln!(streams.err, "{}", problems.paint(streams.paint))?;
    } else {
        let what =
            path.map_or_else(|| "no configuration file; the defaults".to_owned(), |path| path.display().to_string());
        writeln!(streams.out, "{what}: ok")?;
    }
    Ok(u8::from(failed))
}

fn show(args: &ShowArgs, sources: &Sources, streams: &mut Streams<'_>) -> io::Result<u8> {
    let loaded = match config::load(sources) {
        Ok(loaded) => loaded,
        Err(problems) => {
            writeln!(streams.err, "{}", problems.paint(streams.paint))?;
            return Ok(1);
        }
    };
    if args.json {
        writeln!(streams.out, "{:#}", config::show_json(&loaded, args.origin))?;
    } else {
        write!(streams.out, "{}\n\n{}", heading(&loaded), config::show(&loaded, args.origin))?;
    }
    Ok(0)
}

fn heading(loaded: &Loaded) -> String {
    match &loaded.path {
        Some(path) => format!("# {}", path.display()),
        None => "# no configuration file".to_owned(),
    }
}

fn init(args: &InitArgs, streams: &mut Streams<'_>) -> io::Result<u8> {
    if args.path == Path::new("-") {
        streams.out.write_all(config::starter().as_bytes())?;
        return Ok(0);
    }
    let path = args.path.display();
    match write_template(&args.path, args.force) {
        Ok(()) => {
            writeln!(streams.out, "wrote {path}; every key is there with its default, as a comment")?;
            Ok(0)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            writeln!(streams.err, "error: {path} exists; --force replaces it")?;
            Ok(1)
        }
        Err(error) => {
            writeln!(streams.err, "error: {path} cannot be written: {error}")?;
            Ok(1)
        }
    }
}

fn write_template(path: &Path, force: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    // `create_new` checks and creates in one step, so that no file that appears in between is overwritten.
    let options = if force { options.create(true).truncate(true) } else { options.create_new(true) };
    options.open(path)?.write_all(config::starter().as_bytes())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config::FileChoice;

    #[derive(Parser)]
    struct Curtsy {
        #[command(flatten)]
        config: ConfigArgs,
    }

    /// Returns the exit code, stdout and stderr.
    fn curtsy(line: &str, file: FileChoice) -> (u8, String, String) {
        let args = Curtsy::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}")).config;
        let sources = Sources { file, ..Sources::default() };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams { out: &mut out, err: &mut err, paint: false };
        let code = run(&args, &sources, &mut streams).expect("memory can be written to");
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    fn file(dir: &tempfile::TempDir, text: &str) -> FileChoice {
        let path = dir.path().join("curtsy.toml");
        std::fs::write(&path, text).unwrap();
        FileChoice::Path(path)
    }

    const WARNING: &str = "access.allow_destinations = '*'";

    #[test]
    fn the_command_line_is_sound() {
        <Curtsy as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn check_fails_on_errors_and_when_strict_on_warnings() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(curtsy("curtsy check", FileChoice::Nothing).0, 0);
        let (code, _, err) = curtsy("curtsy check", file(&dir, WARNING));
        assert!(code == 0 && err.ends_with("1 warning.\n"), "{err}");
        assert_eq!(curtsy("curtsy check --strict", file(&dir, WARNING)).0, 1);
        let (code, out, err) = curtsy("curtsy check", file(&dir, "workers = 'x'"));
        assert!(code == 1 && out.is_empty() && err.ends_with("1 error.\n"), "{err}");
    }

    #[test]
    fn check_can_speak_json() {
        let dir = tempfile::tempdir().unwrap();
        let (code, out, err) = curtsy("curtsy check --json", file(&dir, "workers = 'x'"));
        let report: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!((code, report["errors"].as_u64(), err.as_str()), (1, Some(1), ""));
        assert_eq!(report["problems"][0]["line"], 1);
    }

    #[test]
    fn show_prints_what_counts() {
        let dir = tempfile::tempdir().unwrap();
        let (code, out, _) = curtsy("curtsy show --origin", file(&dir, "workers = 3"));
        assert_eq!(code, 0);
        assert!(out.lines().any(|line| line.starts_with("workers = 3") && line.ends_with("# curtsy.toml:1")), "{out}");
        let (_, out, _) = curtsy("curtsy show --json", file(&dir, "workers = 3"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&out).expect("JSON")["workers"], 3);
        assert_eq!(curtsy("curtsy show", file(&dir, "workers = 'x'")).0, 1);
    }

    #[test]
    fn init_does_not_overwrite_unless_forced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new.toml");
        let line = format!("curtsy init {}", path.display());
        assert_eq!(curtsy(&line, FileChoice::Nothing).0, 0);
        std::fs::write(&path, "mine").unwrap();
        let (code, _, err) = curtsy(&line, FileChoice::Nothing);
        assert!(code == 1 && err.contains("--force"), "{err}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
        assert_eq!(curtsy(&format!("{line} --force"), FileChoice::Nothing).0, 0);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), config::starter());
        assert_eq!(curtsy("curtsy init -", FileChoice::Nothing).1, config::starter());
    }

    #[test]
    fn schema_is_json() {
        let (_, out, _) = curtsy("curtsy schema", FileChoice::Nothing);
        assert!(serde_json::from_str::<serde_json::Value>(&out).expect("JSON")["properties"]["log"].is_object());
    }
}
