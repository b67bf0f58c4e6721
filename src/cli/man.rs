//! `curtsy man`: shows or writes the manual pages, generated from the `--help` texts, so that the two cannot disagree.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use clap::Args;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::config::Streams;

#[derive(Args, Clone, Debug)]
#[command(after_help = "On a terminal, the main page is shown with man(1). Otherwise its source (roff) is printed.

Examples:
  curtsy man
  curtsy man ~/.local/share/man/man1          then: man curtsy, man curtsy-explain")]
pub(super) struct ManArgs {
    /// Write a page for each command into this folder; default: show the main page
    dir: Option<PathBuf>,
}

/// `is_terminal` says whether a person reads the output.
pub(super) fn run(
    args: &ManArgs,
    command: clap::Command,
    is_terminal: bool,
    streams: &mut Streams<'_>,
) -> io::Result<u8> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let Some(folder) = &args.dir else {
        return show(&page(&command)?, is_terminal.then_some("man"), streams);
    };
    match write_pages(&command, folder) {
        Ok(count) => writeln!(streams.out, "wrote {count} pages to {}", folder.display())?,
        Err(error) => {
            writeln!(streams.err, "error: {} cannot be written: {error}", folder.display())?;
            return Ok(1);
        }
    }
    Ok(0)
}

/// Shows a page with `viewer`. Prints its source if there is no viewer, or if the viewer fails.
fn show(page: &[u8], viewer: Option<&str>, streams: &mut Streams<'_>) -> io::Result<u8> {
    if let Some(viewer) = viewer {
        if view(page, viewer).is_ok_and(|status| status.success()) {
            return Ok(0);
        }
        writeln!(
            streams.err,
            "`{viewer} -l -` does not work here, so this is the source of the page; curtsy --help is shorter"
        )?;
    }
    streams.out.write_all(page)?;
    Ok(0)
}

/// Pipes the page into `man -l -`.
fn view(page: &[u8], viewer: &str) -> io::Result<ExitStatus> {
    let mut man = Command::new(viewer).args(["-l", "-"]).stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = man.stdin.take() {
        // A reader who quits early closes the pipe.
        let _ = input.write_all(page);
    }
    man.wait()
}

/// Writes all pages and returns their number.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<usize> {
    fs::create_dir_all(folder)?;
    let mut count = 0;
    for command in with_subcommands(command) {
        fs::write(folder.join(format!("{}.1", name(command))), page(command)?)?;
        count += 1;
    }
    Ok(count)
}

/// Returns the command and all its subcommands, except hidden ones.
fn with_subcommands(command: &clap::Command) -> Vec<&clap::Command> {
    let below = command.get_subcommands().filter(|command| !command.is_hide_set());
    std::iter::once(command).chain(below.flat_map(with_subcommands)).collect()
}

/// Returns the name with those of its parent commands: `curtsy-config-check`.
fn name(command: &clap::Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let is_main = name(command) == "curtsy";
    // The version makes a date unnecessary. The date is a space, because an empty argument would be dropped.
    let man =
        Man::new(command.clone()).date(" ").source(concat!("curtsy ", env!("CARGO_PKG_VERSION"))).manual("curtsy");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::new();
    add_notes(&mut roff, command);
    if is_main {
        add_files(&mut roff);
    } else {
        section(&mut roff, "SEE ALSO", &["curtsy(1)"]);
    }
    roff.to_writer(&mut page)?;
    Ok(page)
}

/// Adds the end of the `--help` text: remarks, then examples, whose lines must not be reflowed.
fn add_notes(roff: &mut Roff, command: &clap::Command) {
    let notes = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    let (remarks, examples) = notes.split_once("Examples:\n").unwrap_or((&notes, ""));
    for (title, text) in [("NOTES", remarks), ("EXAMPLES", examples)] {
        let lines: Vec<&str> = text.trim_end().lines().collect();
        if !lines.is_empty() {
            section(roff, title, &lines);
        }
    }
}

fn add_files(roff: &mut Roff) {
    let lines = [
        "./curtsy.toml, ~/.config/curtsy/config.toml, /etc/curtsy/config.toml",
        "    The configuration: the first that exists, unless --config or CURTSY_CONFIG names one.",
        "    \"curtsy config init -\" prints one with every key and its default.",
        "~/.local/state/curtsy, /var/lib/curtsy",
        "    What survives a restart.",
    ];
    section(roff, "FILES", &lines);
}

fn section(roff: &mut Roff, title: &str, lines: &[&str]) {
    roff.control("SH", [title]).control("nf", []);
    for line in lines {
        roff.text([roman(*line)]);
    }
    roff.control("fi", []);
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    fn man(dir: Option<PathBuf>) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut streams = Streams { out: &mut out, err: &mut err, paint: false };
        let code = run(&ManArgs { dir }, Cli::command(), false, &mut streams).unwrap();
        (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn the_main_page_lists_the_commands_and_keeps_examples_as_they_are() {
        let (code, page, _) = man(None);
        assert_eq!(code, 0);
        for text in [".TH curtsy 1 \" \" \"curtsy 0.", "curtsy\\-explain(1)", ".SH EXAMPLES\n.nf\n", ".SH FILES"] {
            assert!(page.contains(text), "no {text} in\n{page}");
        }
    }

    #[test]
    fn there_is_a_page_for_each_command_but_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man1");
        let (code, said, _) = man(Some(dir.clone()));
        let count = fs::read_dir(&dir).unwrap().count();
        assert!(code == 0 && said.starts_with(&format!("wrote {count} pages to ")), "{said}");
        let page = fs::read_to_string(dir.join("curtsy-config-check.1")).unwrap();
        assert!(page.contains("curtsy config check") && page.contains("SEE ALSO"), "{page}");
        assert!(dir.join("curtsy-man.1").exists());
        assert!(!dir.join(format!("curtsy-{}.1", crate::cli::exec::isolate::INSIDE)).exists());
    }

    /// `true` stands for a viewer that works, `false` and a missing one for those that do not.
    #[test]
    fn the_source_is_printed_only_if_no_viewer_shows_the_page() {
        for (viewer, printed) in
            [(Some("true"), false), (Some("false"), true), (Some("/no/such/man"), true), (None, true)]
        {
            let (mut out, mut err) = (Vec::new(), Vec::new());
            let mut streams = Streams { out: &mut out, err: &mut err, paint: false };
            assert_eq!(show(b".TH x", viewer, &mut streams).unwrap(), 0);
            assert_eq!((out == b".TH x", err.is_empty()), (printed, viewer.is_none() || !printed), "{viewer:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (code, _, said) = man(Some(file.path().to_owned()));
        assert!(code == 1 && said.contains("cannot be written"), "{said}");
    }
}
