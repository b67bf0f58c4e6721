//! `curtsy completions`: prints the script with which a shell completes commands and options.

use std::io::{self, Write};

use clap::Args;
use clap_complete::Shell;

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  source <(curtsy completions bash)
  curtsy completions zsh > \"${fpath[1]}/_curtsy\"
  curtsy completions fish > ~/.config/fish/completions/curtsy.fish")]
pub(super) struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, mut command: clap::Command, out: &mut dyn Write) -> io::Result<u8> {
    // Writes into memory first: the generator panics if it cannot write, for example because the reader of a pipe
    // ended.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "curtsy", &mut script);
    out.write_all(&script)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, ValueEnum};

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_shell_gets_a_script_that_knows_the_commands() {
        for &shell in Shell::value_variants() {
            let mut script = Vec::new();
            assert_eq!(run(&CompletionsArgs { shell }, Cli::command(), &mut script).unwrap(), 0);
            let script = String::from_utf8(script).unwrap();
            for word in ["explain", "robots", "--delay", "init"] {
                assert!(script.contains(word.trim_start_matches('-')), "{shell}: no {word}");
            }
        }
    }
}
