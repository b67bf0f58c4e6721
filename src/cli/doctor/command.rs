//! Recognizes a command by its name, its first line and its imports. Never runs it.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use url::Url;

use super::variables::Env;

/// A command that the user wants to run behind curtsy.
#[derive(Debug)]
pub(super) struct ProbeCommand {
    pub(super) kind: ProgramKind,
    /// The program that is started, or the interpreter of the script.
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// The text of the script, if the command is one.
    pub(super) script: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    Curl,
    Wget,
    Git,
    /// With the known libraries that it uses.
    Python(Vec<&'static str>),
    Node,
    Java,
    /// Any other program, with its name.
    Other(String),
}

/// Libraries that speak HTTP: the name in imports, and the name in the table of programs.
const LIBRARIES: [(&str, &str); 7] = [
    ("requests", "requests"),
    ("httpx", "httpx"),
    ("aiohttp", "aiohttp"),
    ("urllib", "urllib"),
    ("urllib3", "urllib3"),
    ("scrapy", "Scrapy"),
    ("playwright", "Chromium"),
];

/// A longer file is not a script.
const LONGEST_SCRIPT: u64 = 1 << 20;

impl ProbeCommand {
    /// Recognizes the command; `None` if there is no such program.
    pub(super) fn look(words: &[String], env: &Env) -> Option<Self> {
        let (first, arguments) = words.split_first()?;
        let program = find(first, env)?;
        let name = file_name(&program);
        let known = kind_of(&name);
        if !matches!(known, ProgramKind::Other(_)) || name == "scrapy" {
            return Some(Self::known(known, program, arguments, env));
        }
        // The first line of a script names its interpreter.
        let text = text_of(&program).unwrap_or_default();
        let reader = interpreter(&text).and_then(|reader| find(&reader, env));
        // A shell script starts another program, usually of the same name (chromium is such a script in Debian).
        match reader.map(|reader| (kind_of(&file_name(&reader)), reader)) {
            Some((kind, reader)) if !kind.is_shell() => {
                let kind = kind.with_imports(&text);
                Some(ProbeCommand { kind, program: reader, arguments: arguments.to_vec(), script: Some(text) })
            }
            _ => Some(ProbeCommand { kind: known, program, arguments: arguments.to_vec(), script: None }),
        }
    }

    fn known(kind: ProgramKind, program: PathBuf, arguments: &[String], env: &Env) -> Self {
        let module = arguments.iter().position(|word| word == "-m").and_then(|at| arguments.get(at + 1));
        let is_scrapy = file_name(&program) == "scrapy" || module.is_some_and(|module| module == "scrapy");
        if is_scrapy {
            let own = text_of(&program).as_deref().and_then(interpreter).and_then(|reader| find(&reader, env));
            let program = own.unwrap_or(program);
            return ProbeCommand {
                kind: ProgramKind::Python(vec!["Scrapy"]),
                program,
                arguments: arguments.to_vec(),
                script: None,
            };
        }
        let script = match kind {
            ProgramKind::Python(_) if module.is_none() => {
                arguments.iter().find(|word| !word.starts_with('-')).and_then(|path| text_of(Path::new(path)))
            }
            _ => None,
        };
        let kind = kind.with_imports(script.as_deref().unwrap_or_default());
        ProbeCommand { kind, program, arguments: arguments.to_vec(), script }
    }

    /// Returns the URLs among its arguments.
    pub(super) fn targets(&self) -> Vec<Url> {
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https");
        self.arguments.iter().filter_map(|word| Url::parse(word).ok()).filter(is_web).collect()
    }
}

impl ProgramKind {
    fn is_shell(&self) -> bool {
        matches!(self, ProgramKind::Other(name) if ["sh", "dash", "bash", "zsh", "ksh"].contains(&name.as_str()))
    }

    fn with_imports(self, script: &str) -> Self {
        match self {
            ProgramKind::Python(_) => ProgramKind::Python(libraries(script)),
            other => other,
        }
    }
}

fn kind_of(name: &str) -> ProgramKind {
    match name {
        "curl" => ProgramKind::Curl,
        "wget" => ProgramKind::Wget,
        "git" => ProgramKind::Git,
        "node" | "nodejs" => ProgramKind::Node,
        "java" => ProgramKind::Java,
        name if name == "pypy" || name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.') == "python" => {
            ProgramKind::Python(Vec::new())
        }
        other => ProgramKind::Other(other.to_owned()),
    }
}

/// Returns the known libraries that a script imports.
fn libraries(script: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for line in script.lines().map(str::trim_start) {
        let Some(names) = line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")) else { continue };
        let names = names.split(" import ").next().unwrap_or_default();
        for name in names.split(',').filter_map(|name| name.trim().split([' ', '.', ';']).next()) {
            let known = LIBRARIES.iter().find(|(module, _)| *module == name).map(|(_, library)| *library);
            found.extend(known.filter(|library| !found.contains(library)));
        }
    }
    found
}

/// Returns the interpreter in a first line such as `#!/usr/bin/env python3`.
fn interpreter(script: &str) -> Option<String> {
    let mut words = script.lines().next()?.strip_prefix("#!")?.split_whitespace();
    let first = words.next()?;
    let is_env = Path::new(first).file_name().is_some_and(|name| name == "env");
    let reader = if is_env { words.find(|word| !word.starts_with('-') && !word.contains('='))? } else { first };
    Some(reader.to_owned())
}

fn text_of(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST_SCRIPT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Finds a program as a shell does.
pub(super) fn find(name: &str, env: &Env) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let folders = env.get("PATH").map(String::as_str).unwrap_or_default();
    std::env::split_paths(folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_tell_the_library() {
        let script = "#!/usr/bin/env python3\nimport os, httpx as h\nfrom urllib.request import urlopen\n    import aiohttp\n\
                      # import requests\nimport requests_cache\nfrom scrapy.http import Request\n";
        assert_eq!(libraries(script), ["httpx", "urllib", "aiohttp", "Scrapy"]);
        assert_eq!(libraries("import requests"), ["requests"]);
        assert!(libraries("print('import requests')").is_empty());
    }

    #[test]
    fn a_name_or_a_first_line_tells_the_reader() {
        for (line, reader) in [
            ("#!/usr/bin/env python3\n", Some("python3")),
            ("#!/usr/bin/env -S A=1 node --x\n", Some("node")),
            ("#! /usr/bin/perl -w\n", Some("/usr/bin/perl")),
            ("\u{7f}ELF", None),
        ] {
            assert_eq!(interpreter(line).as_deref(), reader, "{line}");
        }
        assert_eq!(kind_of("python3.11"), ProgramKind::Python(Vec::new()));
        assert_eq!(kind_of("pythonista"), ProgramKind::Other("pythonista".into()));
    }

    #[test]
    fn a_script_is_what_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let [python, script] = ["python3", "crawl"].map(|name| folder.path().join(name));
        std::fs::write(&python, "").unwrap();
        std::fs::write(&script, "#!/usr/bin/env python3\nimport httpx\n").unwrap();
        let env = Env::from([("PATH".to_owned(), folder.path().display().to_string())]);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let by_name = ProbeCommand::look(&words("crawl http://a.test/ -v"), &env).expect("it is there");
        assert_eq!((&by_name.kind, &by_name.program), (&ProgramKind::Python(vec!["httpx"]), &python));
        assert_eq!(by_name.targets().len(), 1);
        let by_reader =
            ProbeCommand::look(&words(&format!("python3 -u {}", script.display())), &env).expect("it is there");
        assert_eq!(by_reader.kind, ProgramKind::Python(vec!["httpx"]));
        assert!(ProbeCommand::look(&words("nothing-like-it"), &env).is_none());
        let [sh, browser] = ["sh", "chromium"].map(|name| folder.path().join(name));
        std::fs::write(&sh, "").unwrap();
        std::fs::write(&browser, "#!/usr/bin/env sh\nexec something\n").unwrap();
        let browser = ProbeCommand::look(&words("chromium http://a.test/"), &env).expect("it is there");
        assert_eq!(browser.kind, ProgramKind::Other("chromium".into()));
    }
}
