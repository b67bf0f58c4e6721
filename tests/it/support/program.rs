//! The built program as users run it: arguments, signals, exit code and output.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use tempfile::TempDir;

use super::client::Client;
use super::deadline::soon;
use super::message::Message;

/// A running program; killed when dropped.
pub(crate) struct Program {
    child: Child,
    directory: TempDir,
    stdout: Lines,
    stderr: Lines,
}

/// The lines that the program has printed to a stream so far.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

/// The basic settings of a test: a port that the system chooses, loopback origins, no admin listener, no stored state.
const BASICS: &str = r#"
listen = ["127.0.0.1:0"]
admin = "off"
state_dir = "memory"
name = "front-desk"
politeness.mode = "off"
robots.mode = "off"
"#;

const ACCESS: &str = r#"
[access]
allow_destinations = ["127.0.0.0/8", "::1"]
connect_ports = ["*"]
"#;

impl Program {
    /// Starts with the basic settings and waits until it is ready. `top` goes above the tables, `tables` below them.
    pub(crate) fn start(top: &str, tables: &str) -> Self {
        Self::start_by(curtsy(), top, tables)
    }

    /// Starts curtsy through another command, which runs it with the arguments that are appended.
    pub(crate) fn start_by(mut command: Command, top: &str, tables: &str) -> Self {
        let directory = tempfile::tempdir().expect("a writable temporary directory");
        let program_config = directory.path().join("config.toml");
        std::fs::write(&program_config, settings(top, tables)).expect("a writable temporary directory");
        let program = Self::spawn(command.arg("--config").arg(program_config), directory);
        assert!(soon(|| program.ready().is_some()), "it did not get ready: {:#?}", program.stderr());
        program
    }

    fn spawn(command: &mut Command, directory: TempDir) -> Self {
        let command = command.current_dir(directory.path()).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let stdout = Lines::collect(child.stdout.take().expect("a pipe was asked for"));
        let stderr = Lines::collect(child.stderr.take().expect("a pipe was asked for"));
        Program { child, directory, stdout, stderr }
    }

    /// The address for clients, from the ready line.
    pub(crate) fn address(&self) -> SocketAddr {
        self.addresses()[0]
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.ready().expect("it is ready")
    }

    /// The addresses in the ready line, which is JSON or, if the test says so, text.
    fn ready(&self) -> Option<Vec<SocketAddr>> {
        let addresses = match self.event("ready") {
            Some(ready) => ready["proxy"].as_str()?.to_owned(),
            None => {
                let lines = self.stderr();
                let line = lines.iter().find(|line| line.contains(" ready "))?;
                line.split(' ').find_map(|word| word.strip_prefix("proxy="))?.to_owned()
            }
        };
        addresses.split(',').map(|address| address.parse().ok()).collect()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    pub(crate) fn ask(&self, lines: &[&str]) -> Message {
        self.client().ask(lines)
    }

    pub(crate) fn get(&self, url: &str) -> Message {
        self.ask(&[&format!("GET {url} HTTP/1.1"), "Host: ignored.test"])
    }

    /// Replaces the configuration file, as an editor does.
    pub(crate) fn rewrite(&self, top: &str, tables: &str) {
        let next = self.directory.path().join("next.toml");
        std::fs::write(&next, settings(top, tables)).expect("a writable temporary directory");
        std::fs::rename(next, self.directory.path().join("config.toml")).expect("the same directory");
    }

    pub(crate) fn signal(&self, name: &str) {
        let script = format!("kill -{name} {}", self.child.id());
        assert!(Command::new("sh").args(["-c", &script]).status().expect("a shell").success(), "{script}");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address of the admin listener, if the test configured one.
    pub(crate) fn admin(&self) -> SocketAddr {
        let ready = self.event("ready").expect("it is ready");
        ready["admin"].as_str().and_then(|text| text.parse().ok()).expect("an address")
    }

    /// The current value of one metric, given with its labels.
    pub(crate) fn metric(&self, series: &str) -> u64 {
        let lines = ["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close"];
        let page = Client::connect(self.admin()).ask(&lines).text();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {series} in\n{page}"))
    }

    /// Waits until everything that curtsy has learned is in the state file.
    pub(crate) fn wait_for_disk(&self) {
        let pending = || self.metric("curtsy_store_pending_changes");
        assert!(soon(|| pending() == 0), "{} changes are not written", pending());
    }

    /// Kills the program (SIGKILL).
    pub(crate) fn kill(mut self) {
        self.signal("KILL");
        self.wait();
    }

    /// Stops the program as an operator does (SIGTERM).
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        assert_eq!(self.wait().code(), Some(0), "{:#?}", self.stderr());
    }

    /// Waits for the end of the program.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        let ended = soon(|| {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        assert!(ended, "still running: {:#?}", self.stderr());
        status.expect("it ended")
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// The peak resident memory in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("our own child");
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says how much");
        line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number of KiB")
    }

    /// The first log line about this event, if it has been written.
    pub(crate) fn event(&self, name: &str) -> Option<serde_json::Value> {
        let lines = self.stderr();
        lines
            .iter()
            .filter_map(|line| serde_json::from_str(line).ok())
            .find(|line: &serde_json::Value| line["event"] == name)
    }

    pub(crate) fn stderr(&self) -> Vec<String> {
        self.stderr.now()
    }

    pub(crate) fn stdout(&self) -> Vec<String> {
        self.stdout.now()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Lines {
    fn collect(stream: impl Read + Send + 'static) -> Self {
        let lines = Lines::default();
        let writer = lines.clone();
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                writer.0.lock().expect("no thread has panicked").push(line);
            }
        });
        lines
    }

    /// Whether the stream was read to its end: the reader then drops its handle.
    fn is_whole(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    fn now(&self) -> Vec<String> {
        self.0.lock().expect("no thread has panicked").clone()
    }
}

/// Runs the program to its end with these arguments and returns the exit code and everything it printed.
pub(crate) fn run(arguments: &[&str]) -> (i32, String) {
    let directory = tempfile::tempdir().expect("a writable temporary directory");
    let mut program = Program::spawn(curtsy().args(arguments), directory);
    let code = program.wait().code().expect("it ended by itself");
    // The pipes may be read a moment after the program has ended.
    assert!(soon(|| program.stdout.is_whole() && program.stderr.is_whole()), "another process holds its pipes");
    let mut printed = String::new();
    for line in program.stdout().into_iter().chain(program.stderr()) {
        writeln!(printed, "{line}").expect("a string takes everything");
    }
    (code, printed)
}

/// The program without settings from the environment of the test run.
pub(crate) fn curtsy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_curtsy"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CURTSY_")) {
        command.env_remove(name);
    }
    // What one test stores must not answer another.
    command.env("CURTSY_CACHE__DISK", "0B");
    command
}

/// Lets a command read the offset of the wall clock from this file, by the library of `faketime`.
pub(crate) fn fake_clock(command: &mut Command, shown: &Path) {
    let folders = std::fs::read_dir("/usr/lib").expect("it is there").flatten();
    let mut libraries = folders.map(|entry| entry.path().join("faketime/libfaketime.so.1"));
    let library = libraries.find(|path| path.exists()).expect("faketime is installed, as scripts/test does");
    command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", shown);
    command.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

fn settings(top: &str, tables: &str) -> String {
    // An [access] table of the test replaces ours.
    let access = if tables.contains("[access]") { "" } else { ACCESS };
    format!("{top}\n{}{access}\n{tables}\n", basics_without(top))
}

/// The basic settings except for those that the test gives itself, because TOML permits each key once.
fn basics_without(top: &str) -> String {
    let given: Vec<&str> = top.lines().filter_map(|line| line.split('=').next()).map(str::trim).collect();
    let kept = BASICS.lines().filter(|line| !given.contains(&line.split('=').next().unwrap_or_default().trim()));
    kept.fold(String::new(), |all, line| all + line + "\n")
}
