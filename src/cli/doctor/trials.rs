//! Clients tried: each asks for the probe, over `http://` and `https://`, in the environment that it will have.
//!
//! All are run side by side, each for a few seconds at most. They are told to ask for one name that no other machine has;
//! whoever goes round the proxy finds that out by looking it up.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;

use super::probe::{HTTP, HTTPS, MARK};
use super::variables::Env;
use crate::clock;

/// For one try; a busy machine needs two for Python with a large library.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a try is looked at.
const STEP: Duration = Duration::from_millis(10);

/// A client that can be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// As people call it, and as the table of programs has it.
    pub(super) name: &'static str,
    /// What is looked for in the path.
    pub(super) program: &'static str,
    /// Before the URL.
    arguments: &'static [&'static str],
    /// Whether it reads the variables without being told to.
    pub(super) reads_variables: bool,
}

/// Of a library that is not installed.
const ABSENT: i32 = 77;

const URLLIB: &str = "import sys, urllib.request
print('version', sys.version.split()[0])
print(urllib.request.urlopen(sys.argv[1], timeout=4).read().decode())";

const REQUESTS: &str = "import sys
try: import requests
except ImportError: sys.exit(77)
print('version', requests.__version__)
print(requests.get(sys.argv[1], timeout=4).text)";

const HTTPX: &str = "import sys
try: import httpx
except ImportError: sys.exit(77)
print('version', httpx.__version__)
print(httpx.get(sys.argv[1], timeout=4).text)";

const AIOHTTP: &str = "import sys
try: import aiohttp
except ImportError: sys.exit(77)
import asyncio
print('version', aiohttp.__version__)
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get(sys.argv[1], timeout=aiohttp.ClientTimeout(total=4)) as response:
            print(await response.text())
asyncio.run(main())";

const FETCH: &str = "console.log('version', process.version.slice(1))
fetch(process.argv[1]).then(r => r.text()).then(console.log, e => { console.error(String(e.cause ?? e)); process.exit(1) })";

const GIT: [&str; 5] = ["-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=4", "ls-remote"];

/// Python's libraries are told apart, because each has its own way to trust a CA.
pub(super) const RECIPES: [Recipe; 8] = [
    Recipe { name: "curl", program: "curl", arguments: &["-sS", "--max-time", "4"], reads_variables: true },
    Recipe { name: "wget", program: "wget", arguments: &["-nv", "-O-", "-T4", "-t1"], reads_variables: true },
    Recipe { name: "git", program: "git", arguments: &GIT, reads_variables: true },
    Recipe { name: "urllib", program: "python3", arguments: &["-c", URLLIB], reads_variables: true },
    Recipe { name: "requests", program: "python3", arguments: &["-c", REQUESTS], reads_variables: true },
    Recipe { name: "httpx", program: "python3", arguments: &["-c", HTTPX], reads_variables: true },
    Recipe { name: "aiohttp", program: "python3", arguments: &["-c", AIOHTTP], reads_variables: true },
    Recipe { name: "node", program: "node", arguments: &["-e", FETCH], reads_variables: false },
];

/// What became of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The probe answered.
    Through,
    /// The tunnel came to curtsy, which does not read HTTPS.
    NotRead,
    Untrusted,
    /// It went round the proxy.
    Round,
    /// The proxy wants a user and a password.
    Stranger,
    /// It did not end in time.
    Silent,
    /// Something else, in its own words.
    Odd(String),
    /// There is no such library.
    Absent,
}

/// A client that was tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) recipe: Recipe,
    pub(super) version: Option<String>,
    pub(super) http: Verdict,
    pub(super) https: Verdict,
}

/// Tries a few at once. Answers in the order in which they were given.
pub(super) fn run(clients: &[(Recipe, PathBuf)], env: &Env) -> Vec<Tried> {
    let (next, tried) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let number = next.fetch_add(1, Relaxed)
                    && let Some((recipe, path)) = clients.get(number)
                {
                    let told = both(recipe, path, env);
                    tried.lock().insert(number, told);
                }
            });
        }
    });
    tried.into_inner().into_values().collect()
}

/// Side by side, but not so many that they take each other's time.
const AT_ONCE: usize = 4;

fn both(recipe: &Recipe, path: &Path, env: &Env) -> Tried {
    let one = |url: &str| {
        let mut command = Command::new(path);
        command.args(recipe.arguments).arg(url).env_clear().envs(env).env("GIT_TERMINAL_PROMPT", "0");
        attempt(&mut command)
    };
    let Told { verdict: http, version } = one(HTTP);
    // Who does not come through in the open has no need to try it under TLS.
    let https = if http == Verdict::Through { one(HTTPS).verdict } else { http.clone() };
    Tried { recipe: *recipe, version, http, https }
}

struct Told {
    verdict: Verdict,
    version: Option<String>,
}

fn attempt(command: &mut Command) -> Told {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return Told { verdict: Verdict::Odd(error.to_string()), version: None },
    };
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let Some(code) = wait(&mut child) else { return Told { verdict: Verdict::Silent, version: None } };
    let text = |piece: Receiver<String>| piece.recv_timeout(PATIENCE).unwrap_or_default();
    let (out, err) = (text(out), text(err));
    let version = out.lines().find_map(|line| line.strip_prefix("version ")).map(str::to_owned);
    Told { verdict: judge(code, &out, &err), version }
}

/// Read while it runs, so that it never waits for a reader; in a thread of its own, because a child of a child may hold
/// on to it.
fn collect(stream: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = stream.map(|stream| stream.take(MOST_OUTPUT).read_to_end(&mut bytes));
        let _ = read.map(|_| tell.send(String::from_utf8_lossy(&bytes).into_owned()));
    });
    told
}

const MOST_OUTPUT: u64 = 64 * 1024;

/// The exit code, or none if it had to be ended.
fn wait(child: &mut Child) -> Option<i32> {
    let deadline = clock::now() + PATIENCE;
    while clock::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.code().unwrap_or(1)),
            Ok(None) => thread::sleep(STEP),
            Err(_) => break,
        }
    }
    // Both fail only if it has ended already.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// By what a client printed. Errors of certificates and of names are worded by few libraries, and have been for long.
fn judge(code: i32, out: &str, err: &str) -> Verdict {
    let has = |words: &[&str]| {
        let said = err.to_ascii_lowercase();
        words.iter().any(|word| said.contains(word))
    };
    match code {
        ABSENT => Verdict::Absent,
        _ if out.contains(MARK) => Verdict::Through,
        // What git says of an answer that is no repository.
        _ if has(&["not valid: is this a git repository"]) => Verdict::Through,
        _ if has(&["interception is off", "response 501", "http code 501", "request was cancelled"]) => {
            Verdict::NotRead
        }
        _ if has(&["407"]) => Verdict::Stranger,
        _ if has(&["certificate", "self-signed", "self signed", "unable_to_verify", "unknown ca"]) => {
            Verdict::Untrusted
        }
        _ if has(&[
            "resolve",
            "name or service not known",
            "name resolution",
            "enotfound",
            "eai_again",
            "nodename nor servname",
            "no address associated",
        ]) =>
        {
            Verdict::Round
        }
        _ => {
            Verdict::Odd(err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_print_is_understood() {
        let answer = r#"{"client":"127.0.0.1","probe":"curtsy"}"#;
        assert_eq!(judge(0, answer, ""), Verdict::Through);
        for (err, verdict) in [
            ("curl: (56) CONNECT tunnel failed, response 501", Verdict::NotRead),
            ("Tunnel connection failed: 501 Routing works, interception is off (curtsy)", Verdict::NotRead),
            ("curl: (60) SSL certificate problem: unable to get local issuer certificate", Verdict::Untrusted),
            ("<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed>", Verdict::Untrusted),
            ("Error: self-signed certificate in certificate chain", Verdict::Untrusted),
            ("fatal: server certificate verification failed. CAfile: none CRLfile: none", Verdict::Untrusted),
            ("curl: (6) Could not resolve host: probe.curtsy.invalid", Verdict::Round),
            ("<urlopen error [Errno -2] Name or service not known>", Verdict::Round),
            ("Error: getaddrinfo ENOTFOUND probe.curtsy.invalid", Verdict::Round),
            ("wget: unable to resolve host address 'probe.curtsy.invalid'", Verdict::Round),
            ("fatal: http://x/info/refs not valid: is this a git repository?", Verdict::Through),
            ("curl: (56) CONNECT tunnel failed, response 407", Verdict::Stranger),
            ("one\nsomething else\n\n", Verdict::Odd("something else".to_owned())),
        ] {
            assert_eq!(judge(1, "", err), verdict, "{err}");
        }
        assert_eq!(judge(ABSENT, "", ""), Verdict::Absent);
    }
}
