//! The curtsy that is measured: its own process, which ends when this value is dropped.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Starting usually takes a tenth of a second.
const START_LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Proxy {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
    _folder: TempDir,
}

impl Proxy {
    /// Starts `program` and waits until it says where it listens. Its later output is printed as it comes.
    pub(crate) fn start(program: &Path, settings: &str) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("curtsy.toml");
        fs::write(&file, settings)?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CURTSY_")) {
            command.env_remove(name);
        }
        command.arg("--config").arg(&file).args(["run", "--log-format", "json"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| explained(program, &error.to_string()))?;
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut proxy = Proxy { child, address: nowhere, admin: nowhere, _folder: folder };
        let stderr = proxy.child.stderr.take().expect("a pipe was asked for");
        (proxy.address, proxy.admin) = announced(stderr).map_err(|said| explained(program, &said))?;
        Ok(proxy)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of violations that curtsy's own audit has found so far.
    pub(crate) async fn spacing_violations(&self) -> io::Result<u64> {
        let mut stream = TcpStream::connect(self.admin).await?;
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.admin);
        stream.write_all(head.as_bytes()).await?;
        let mut page = String::new();
        stream.read_to_string(&mut page).await?;
        let value = page.lines().find_map(|line| line.strip_prefix("curtsy_spacing_violations_total "));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| io::Error::other("no spacing violations in /metrics"))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the addresses of the ready line, or everything that was printed instead. A separate thread goes on reading:
/// otherwise curtsy would block when the pipe is full.
fn announced(stderr: ChildStderr) -> Result<(SocketAddr, SocketAddr), String> {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr).lines().map_while(Result::ok);
        // The receiver was dropped if this took too long.
        let _ = tell.send(first_words(&mut lines));
        lines.for_each(|line| eprintln!("curtsy: {line}"));
    });
    told.recv_timeout(START_LIMIT).unwrap_or_else(|_| Err(format!("it is not ready after {START_LIMIT:?}")))
}

fn first_words(lines: &mut impl Iterator<Item = String>) -> Result<(SocketAddr, SocketAddr), String> {
    let mut said = "it ended after saying:".to_owned();
    for line in lines {
        if let Some(addresses) = ready(&line) {
            return Ok(addresses);
        }
        said.push('\n');
        said.push_str(&line);
    }
    Err(said)
}

fn ready(line: &str) -> Option<(SocketAddr, SocketAddr)> {
    let line: Value = serde_json::from_str(line).ok()?;
    let address = |key: &str| line[key].as_str()?.parse().ok();
    if line["event"] == "ready" { Some((address("proxy")?, address("admin")?)) } else { None }
}

fn explained(program: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} does not start: {why}", program.display()))
}
