//! Tries clients: each requests the probe, over `http://` and `https://`, in the environment that it will have.
//!
//! Up to [`AT_ONCE`] clients run at the same time, each for a few seconds at most. They request a name that exists
//! nowhere, so a client that bypasses the proxy fails to resolve it.

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

/// The time for one try. A busy machine needs two seconds for Python with a large library.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often a running try is checked.
const STEP: Duration = Duration::from_millis(10);

/// A client that can be tried.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipe {
    /// Its name, the same as in the table of programs.
    pub(super) name: &'static str,
    /// The program to look for in `PATH`.
    pub(super) program: &'static str,
    /// The arguments before the URL.
    arguments: &'static [&'static str],
    /// Whether it reads the variables without being told to.
    pub(super) reads_variables: bool,
}

/// The exit code of a try whose library is not installed.
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

/// Each Python library has its own entry, because each has its own way to trust a CA.
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

/// The result of one try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TrialVerdict {
    /// The probe answered.
    Through,
    /// The tunnel reached curtsy, which does not decrypt HTTPS.
    NotRead,
    Untrusted,
    /// The client bypassed the proxy.
    Round,
    /// The proxy requires a user and a password.
    Stranger,
    /// It did not end in time.
    Silent,
    /// Something else, with the client's own message.
    Odd(String),
    /// There is no such library.
    Absent,
}

/// A client that was tried.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) recipe: Recipe,
    pub(super) version: Option<String>,
    pub(super) http: TrialVerdict,
    pub(super) https: TrialVerdict,
}

/// Tries the clients, a few at once. Returns the results in the order of `clients`.
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

/// How many clients are tried at once. More would slow each other down.
const AT_ONCE: usize = 4;

fn both(recipe: &Recipe, path: &Path, env: &Env) -> Tried {
    let one = |url: &str| {
        let mut command = Command::new(path);
        command.args(recipe.arguments).arg(url).env_clear().envs(env).env("GIT_TERMINAL_PROMPT", "0");
        attempt(&mut command)
    };
    let TrialReport { verdict: http, version } = one(HTTP);
    // A client that fails over plain HTTP is not tried over HTTPS.
    let https = if http == TrialVerdict::Through { one(HTTPS).verdict } else { http.clone() };
    Tried { recipe: *recipe, version, http, https }
}

struct TrialReport {
    verdict: TrialVerdict,
    version: Option<String>,
}

fn attempt(command: &mut Command) -> TrialReport {
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return TrialReport { verdict: TrialVerdict::Odd(error.to_string()), version: None },
    };
    let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
    let Some(code) = wait(&mut child) else { return TrialReport { verdict: TrialVerdict::Silent, version: None } };
    let text = |piece: Receiver<String>| piece.recv_timeout(PATIENCE).unwrap_or_default();
    let (out, err) = (text(out), text(err));
    let version = out.lines().find_map(|line| line.strip_prefix("version ")).map(str::to_owned);
    TrialReport { verdict: judge(code, &out, &err), version }
}

/// Reads the output while the client runs, so that the client never blocks on a full pipe. Uses its own thread, because
/// a child process of the client may keep the pipe open.
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

/// Waits for the client. Returns its exit code, or `None` if it had to be killed.
fn wait(child: &mut Child) -> Option<i32> {
    let deadline = clock::now() + PATIENCE;
    while clock::now() < deadline {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.code().unwrap_or(1)),
            Ok(None) => thread::sleep(STEP),
            Err(_) => break,
        }
    }
    // Both fail only if the client has already ended.
    let _ = child.kill();
    let _ = child.wait();
    None
}

/// Judges a try by what the client printed. The messages about certificates and names come from few libraries, and have
/// not changed for years.
fn judge(code: i32, out: &str, err: &str) -> TrialVerdict {
    let has = |words: &[&str]| {
        let said = err.to_ascii_lowercase();
        words.iter().any(|word| said.contains(word))
    };
    match code {
        ABSENT => TrialVerdict::Absent,
        _ if out.contains(MARK) => TrialVerdict::Through,
        // The message of git for an answer that is not a repository.
        _ if has(&["not valid: is this a git repository"]) => TrialVerdict::Through,
        _ if has(&["interception is off", "response 501", "http code 501", "request was cancelled"]) => {
            TrialVerdict::NotRead
        }
        _ if has(&["407"]) => TrialVerdict::Stranger,
        _ if has(&["certificate", "self-signed", "self signed", "unable_to_verify", "unknown ca"]) => {
            TrialVerdict::Untrusted
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
            TrialVerdict::Round
        }
        _ => TrialVerdict::Odd(
            err.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing").to_owned(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_print_is_understood() {
        let answer = r#"{"client":"127.0.0.1","probe":"curtsy"}"#;
        assert_eq!(judge(0, answer, ""), TrialVerdict::Through);
        for (err, verdict) in [
            ("curl: (56) CONNECT tunnel failed, response 501", TrialVerdict::NotRead),
            ("Tunnel connection failed: 501 Routing works, interception is off (curtsy)", TrialVerdict::NotRead),
            ("curl: (60) SSL certificate problem: unable to get local issuer certificate", TrialVerdict::Untrusted),
            ("<urlopen error [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed>", TrialVerdict::Untrusted),
            ("Error: self-signed certificate in certificate chain", TrialVerdict::Untrusted),
            ("fatal: server certificate verification failed. CAfile: none CRLfile: none", TrialVerdict::Untrusted),
            ("curl: (6) Could not resolve host: probe.curtsy.invalid", TrialVerdict::Round),
            ("<urlopen error [Errno -2] Name or service not known>", TrialVerdict::Round),
            ("Error: getaddrinfo ENOTFOUND probe.curtsy.invalid", TrialVerdict::Round),
            ("wget: unable to resolve host address 'probe.curtsy.invalid'", TrialVerdict::Round),
            ("fatal: http://x/info/refs not valid: is this a git repository?", TrialVerdict::Through),
            ("curl: (56) CONNECT tunnel failed, response 407", TrialVerdict::Stranger),
            ("one\nsomething else\n\n", TrialVerdict::Odd("something else".to_owned())),
        ] {
            assert_eq!(judge(1, "", err), verdict, "{err}");
        }
        assert_eq!(judge(ABSENT, "", ""), TrialVerdict::Absent);
    }
}
