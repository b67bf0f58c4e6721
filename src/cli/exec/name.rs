//! Names the client after the command: the program, or the script that an interpreter runs.
//!
//! The name only has to be recognised by its user, so a rare option that is misread does no harm.

use std::ffi::OsString;
use std::path::Path;

/// Longer names are cut: they are shown in tables.
const LONGEST: usize = 40;

/// A program that runs another one, and the subcommands with which it does so.
struct Launcher {
    names: &'static [&'static str],
    subcommands: &'static [&'static str],
    /// Options whose value is the next word.
    valued: &'static [&'static str],
}

const LAUNCHERS: [Launcher; 5] = [
    Launcher { names: &["env", "nohup", "setsid", "time"], subcommands: &[], valued: &["-u", "-C"] },
    Launcher { names: &["nice", "stdbuf", "timeout"], subcommands: &[], valued: &["-n", "-s", "-k", "-i", "-o", "-e"] },
    Launcher { names: &["npx", "bunx", "uvx"], subcommands: &[], valued: &["-p", "--package", "--from", "--with"] },
    Launcher { names: &["uv", "pipx", "poetry", "pipenv", "pdm"], subcommands: &["run"], valued: &["-p", "--with"] },
    Launcher { names: &["pnpm", "yarn", "bundle"], subcommands: &["exec", "dlx", "run"], valued: &[] },
];

/// A program that runs a script.
struct Interpreter {
    /// Without version numbers.
    names: &'static [&'static str],
    valued: &'static [&'static str],
    /// Options before code that has no name.
    code: &'static [&'static str],
    /// The option before the name of a module or file to run.
    module: &'static str,
    subcommands: &'static [&'static str],
}

#[rustfmt::skip]
const INTERPRETERS: [Interpreter; 6] = [
    Interpreter { names: &["python", "pypy"], valued: &["-W", "-X"], code: &["-c"], module: "-m", subcommands: &[] },
    Interpreter { names: &["node", "nodejs", "tsx"], valued: &["-r", "--require", "--import", "--loader", "-C"],
        code: &["-e", "-p", "-pe", "--eval", "--print"], module: "", subcommands: &[] },
    Interpreter { names: &["deno", "bun"], valued: &["-c", "--config"], code: &["-e", "eval"], module: "",
        subcommands: &["run"] },
    Interpreter { names: &["sh", "bash", "dash", "zsh", "ksh", "fish"], valued: &["-o", "+o", "--rcfile"],
        code: &["-c", "-ec", "-xc", "-lc", "-ic", "-s"], module: "", subcommands: &[] },
    Interpreter { names: &["ruby", "perl", "php", "lua", "Rscript"], valued: &["-I", "-d"], code: &["-e", "-E", "-r"],
        module: "", subcommands: &[] },
    Interpreter { names: &["java"], valued: &["-cp", "-classpath", "--class-path", "-p"], code: &[], module: "-jar",
        subcommands: &[] },
];

/// Returns the name of the command's client; `None` if no character of it can be part of a name.
pub(super) fn of_command(command: &[OsString]) -> Option<String> {
    let words: Vec<String> = command.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    valid(&of_words(&words.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// Returns the file name of the program, for messages.
pub(super) fn program(command: &[OsString]) -> String {
    command.first().map(|program| file_name(&program.to_string_lossy()).to_owned()).unwrap_or_default()
}

fn of_words(words: &[&str]) -> String {
    let Some((program, rest)) = words.split_first() else { return String::new() };
    let program = file_name(program);
    let unversioned = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if let Some(launcher) = LAUNCHERS.iter().find(|launcher| launcher.names.contains(&program)) {
        return match launcher.launched(rest) {
            [] => program.to_owned(),
            launched => of_words(launched),
        };
    }
    let interpreter = INTERPRETERS.iter().find(|interpreter| interpreter.names.contains(&unversioned));
    interpreter.and_then(|interpreter| interpreter.script(rest)).unwrap_or(program).to_owned()
}

impl Launcher {
    /// Returns the command that the launcher runs.
    fn launched<'a>(&self, mut rest: &'a [&'a str]) -> &'a [&'a str] {
        if !self.subcommands.is_empty() {
            match rest.split_first() {
                Some((first, more)) if self.subcommands.contains(first) => rest = more,
                _ => return &[],
            }
        }
        // `env` sets variables first, and `timeout` has a duration.
        let is_extra = |word: &str| word.contains('=') || word.starts_with(|c: char| c.is_ascii_digit());
        loop {
            rest = match rest {
                [option, _, more @ ..] if self.valued.contains(option) => more,
                [word, more @ ..] if word.starts_with('-') || is_extra(word) => more,
                _ => return rest,
            };
        }
    }
}

impl Interpreter {
    fn script<'a>(&self, mut rest: &[&'a str]) -> Option<&'a str> {
        loop {
            rest = match rest {
                [] | ["-", ..] => return None,
                [option, ..] if self.code.contains(option) => return None,
                [option, module, ..] if !self.module.is_empty() && *option == self.module => {
                    return Some(file_name(module));
                }
                [option, _, more @ ..] if self.valued.contains(option) => more,
                [word, more @ ..] if word.starts_with('-') || self.subcommands.contains(word) => more,
                [script, ..] => return Some(file_name(script)),
            };
        }
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Replaces what cannot be in the name of a client ([`client_name`](crate::cli::env::client_name)).
fn valid(name: &str) -> Option<String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name: String = name.chars().take(LONGEST).map(|c| if plain(c) { c } else { '-' }).collect();
    let name = name.trim_matches(['-', '.']);
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::env::client_name;

    fn named(line: &str) -> Option<String> {
        of_command(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_command_is_named_after_its_program_or_script() {
        for (line, name) in [
            ("curl -sS http://a.test/", "curl"),
            ("/usr/bin/wget -r x", "wget"),
            ("python3 crawl.py", "crawl.py"),
            ("python3.11 -u -W ignore /srv/crawl.py --depth 3", "crawl.py"),
            ("python -m scrapy crawl news", "scrapy"),
            ("python3 -c code", "python3"),
            ("python3 -", "python3"),
            ("python3", "python3"),
            ("node --require ./x.js app.mjs", "app.mjs"),
            ("node -e code", "node"),
            ("deno run --allow-net fetch.ts", "fetch.ts"),
            ("sh -c script", "sh"),
            ("bash -x crawl.sh", "crawl.sh"),
            ("java -cp x -jar nutch.jar", "nutch.jar"),
            ("npx -y crawlee run", "crawlee"),
            ("uv run --with httpx python crawl.py", "crawl.py"),
            ("uv pip install x", "uv"),
            ("poetry run scrapy crawl news", "scrapy"),
            ("env A=b nice -n 5 timeout 60s ./crawl", "crawl"),
            ("env", "env"),
            ("./my crawler", "my"),
        ] {
            assert_eq!(named(line).as_deref(), Some(name), "{line}");
        }
    }

    #[test]
    fn every_name_is_one_that_clients_can_send() {
        assert_eq!(of_command(&["Süß & Co".into()]).as_deref(), Some("S-----Co"));
        assert_eq!((of_command(&["--".into()]), of_command(&["é".into()]), of_command(&[])), (None, None, None));
        let long = of_command(&["x".repeat(300).into()]).unwrap();
        assert!(long.len() == LONGEST && client_name(&long).is_ok());
        assert!(client_name("S-----Co").is_ok());
    }
}
