//! Writes variables in the syntax of each shell or file format.
//!
//! Every value arrives unchanged, whatever it contains: it is quoted for shells, and refused if a format cannot express
//! it.

use clap::ValueEnum;
use serde_json::{Map, Value};

use crate::cli::variables::{ACTIVE, Address, Variable};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum EnvFormat {
    /// bash, zsh, dash
    Sh,
    Fish,
    /// `.env`
    Dotenv,
    /// `docker run --env-file`
    Docker,
    /// `.envrc`
    Direnv,
    Json,
}

impl EnvFormat {
    /// Returns the lines that set the variables. `names`: all variables that could be set; a shell saves their old
    /// values first.
    pub(super) fn set(self, all: &[Variable], names: &[&str]) -> Result<String, String> {
        let lines =
            |line: fn(&str, &str) -> String| all.iter().map(|(name, value)| line(name, value)).collect::<String>();
        Ok(match self {
            EnvFormat::Sh => sh_remember(names) + &lines(sh_export),
            EnvFormat::Direnv => lines(sh_export),
            EnvFormat::Fish => fish_remember(names) + &lines(|name, value| format!("set -gx {name} {}\n", fish(value))),
            EnvFormat::Dotenv => all.iter().map(|(name, value)| dotenv(name, value)).collect::<Result<_, _>>()?,
            EnvFormat::Docker => all.iter().map(|(name, value)| docker(name, value)).collect::<Result<_, _>>()?,
            EnvFormat::Json => {
                let object = all.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
                format!("{:#}\n", Value::Object(object.collect::<Map<_, _>>()))
            }
        })
    }

    pub(super) fn take_back(self, names: &[&str]) -> Result<String, String> {
        match self {
            EnvFormat::Sh => Ok(sh_restore(names)),
            EnvFormat::Fish => Ok(fish_restore(names)),
            EnvFormat::Direnv => Err("direnv unsets variables by itself: remove the lines from .envrc".to_owned()),
            EnvFormat::Dotenv | EnvFormat::Docker => {
                Err("a file cannot unset variables: remove the lines from it".to_owned())
            }
            EnvFormat::Json => {
                let object = names.iter().map(|name| ((*name).to_owned(), Value::Null));
                Ok(format!("{:#}\n", Value::Object(object.collect::<Map<_, _>>())))
            }
        }
    }

    /// Returns a note for the user about this format, if there is one.
    pub(super) fn note(self, address: &Address) -> Option<&'static str> {
        (self == EnvFormat::Docker && address.is_here()).then_some(
            "in a container 127.0.0.1 is the container: use `docker run --network host`, or name the proxy as the \
             container sees it with --proxy",
        )
    }
}

fn sh(value: &str) -> String {
    format!("'{}'", value.replace('\'', r"'\''"))
}

fn sh_export(name: &str, value: &str) -> String {
    format!("export {name}={}\n", sh(value))
}

/// Returns code that saves the old values. It saves them only the first time: the second time the values are ours.
fn sh_remember(names: &[&str]) -> String {
    format!(
        "if [ -z \"${{CURTSY_OLD-}}\" ]; then\n  \
           for curtsy_name in {}; do\n    \
             eval \"if [ \\\"\\${{$curtsy_name+x}}\\\" ]; then export CURTSY_OLD_$curtsy_name=\\\"\\$$curtsy_name\\\"; \
             fi\"\n  \
           done\n  \
           unset curtsy_name\n  \
           export CURTSY_OLD=1\n\
         fi\n",
        names.join(" ")
    )
}

/// Returns code that restores the old values. It changes nothing if our variables are not set.
fn sh_restore(names: &[&str]) -> String {
    format!(
        "if [ -n \"${{{ACTIVE}-}}\" ]; then\n  \
           for curtsy_name in {}; do\n    \
             eval \"if [ \\\"\\${{CURTSY_OLD_$curtsy_name+x}}\\\" ]; then \
             export $curtsy_name=\\\"\\$CURTSY_OLD_$curtsy_name\\\"; else unset $curtsy_name; fi; \
             unset CURTSY_OLD_$curtsy_name\"\n  \
           done\n  \
           unset curtsy_name CURTSY_OLD\n\
         fi\n",
        names.join(" ")
    )
}

/// Quotes for fish, which knows two escapes in single quotes.
fn fish(value: &str) -> String {
    format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"))
}

fn fish_remember(names: &[&str]) -> String {
    format!(
        "if not set -q CURTSY_OLD\n  \
           for curtsy_name in {}\n    \
             if set -q $curtsy_name; set -gx CURTSY_OLD_$curtsy_name $$curtsy_name; end\n  \
           end\n  \
           set -gx CURTSY_OLD 1\n\
         end\n",
        names.join(" ")
    )
}

fn fish_restore(names: &[&str]) -> String {
    format!(
        "if set -q {ACTIVE}\n  \
           for curtsy_name in {}\n    \
             set -l curtsy_old CURTSY_OLD_$curtsy_name\n    \
             if set -q $curtsy_old; set -gx $curtsy_name $$curtsy_old; set -e $curtsy_old; \
             else; set -e $curtsy_name; end\n  \
           end\n  \
           set -e CURTSY_OLD\n\
         end\n",
        names.join(" ")
    )
}

/// Writes a line without quotes if none are needed, else with single quotes, which every reader takes literally.
fn dotenv(name: &str, value: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@,=+%[]".contains(c);
    if value.contains(['\n', '\r', '\'']) {
        return Err(unwritable(name, value, "a .env file that every program reads alike"));
    }
    let plain = !value.is_empty() && value.chars().all(plain);
    Ok(if plain { format!("{name}={value}\n") } else { format!("{name}='{value}'\n") })
}

/// Writes a line without quotes: docker takes the value literally, including quotes.
fn docker(name: &str, value: &str) -> Result<String, String> {
    if value.contains(['\n', '\r']) {
        return Err(unwritable(name, value, "a file for docker run --env-file"));
    }
    Ok(format!("{name}={value}\n"))
}

fn unwritable(name: &str, value: &str, place: &str) -> String {
    let what = if value.contains('\'') { "a quote" } else { "a line break" };
    format!("{name} has {what} in it, which cannot be written to {place}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_for_their_reader() {
        let all = [("A", r"it's a \ $b".to_owned())];
        assert_eq!(EnvFormat::Direnv.set(&all, &["A"]).unwrap(), "export A='it'\\''s a \\ $b'\n");
        assert!(EnvFormat::Fish.set(&all, &["A"]).unwrap().ends_with("set -gx A 'it\\'s a \\\\ $b'\n"));
        assert_eq!(EnvFormat::Docker.set(&all, &["A"]).unwrap(), "A=it's a \\ $b\n");
        assert_eq!(EnvFormat::Json.set(&all, &["A"]).unwrap(), "{\n  \"A\": \"it's a \\\\ $b\"\n}\n");
        assert_eq!(EnvFormat::Dotenv.set(&[("A", "a b#".to_owned())], &["A"]).unwrap(), "A='a b#'\n");
        assert_eq!(EnvFormat::Dotenv.set(&[("A", "http://a:1".to_owned())], &["A"]).unwrap(), "A=http://a:1\n");
    }

    #[test]
    fn what_a_file_cannot_hold_is_refused() {
        assert!(EnvFormat::Dotenv.set(&[("A", "it's".to_owned())], &[]).unwrap_err().contains("a quote"));
        assert!(EnvFormat::Docker.set(&[("A", "a\nB=1".to_owned())], &[]).unwrap_err().contains("a line break"));
        assert!(EnvFormat::Docker.take_back(&["A"]).is_err() && EnvFormat::Direnv.take_back(&["A"]).is_err());
    }
}
