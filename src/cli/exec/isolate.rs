//! `--isolate`: runs a command that can reach the network only through the proxy.
//!
//! Only a process with one thread can enter a new user namespace, and this process has many. So curtsy starts itself
//! again, as [`inside`]: that process creates the namespaces, listens in them, and passes the listener back through a
//! Unix socket in the file system, which works across network namespaces. The proxy outside accepts connections from
//! that listener, so requests from inside reach the proxy, and nothing else gets out. Then that process becomes the
//! command.

pub(in crate::cli) mod inside;
#[cfg(target_os = "linux")]
mod loopback;
#[cfg(target_os = "linux")]
mod namespaces;
mod passing;

#[cfg(not(target_os = "linux"))]
mod namespaces {
    pub(super) fn enter() -> Result<std::net::TcpListener, &'static str> {
        Err("--isolate needs the namespaces of Linux
  help: without --isolate the command is asked, but not forced, to use the proxy")
    }
}

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use super::child::ChildProcess;
use super::{ExecFailed, NOT_FOUND, NOT_RUNNABLE, folder};
use crate::cli::admin::AdminTrouble;
use crate::cli::variables::Variable;
use crate::clock;

/// The hidden subcommand that runs the process inside.
pub(in crate::cli) const INSIDE: &str = "exec-inside";

/// How long to wait until the process inside connects. It has little to do before that.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// The process inside, which waits to become the command. It ends if we end first.
pub(super) struct Cage {
    pub(super) listener: TcpListener,
    charge: ChildProcess,
    stream: UnixStream,
}

impl Cage {
    pub(super) fn open(command: &[OsString]) -> Result<Self, ExecFailed> {
        let folder = folder()?;
        let path = folder.path().join("socket");
        let socket = UnixListener::bind(&path)?;
        let mut own = Command::new(std::env::current_exe()?);
        own.arg(INSIDE).arg(&path).arg("--").args(command);
        let charge = ChildProcess::begin(&mut own)?;
        let stream = accept(&socket)?;
        match passing::receive(&stream)? {
            Ok(listener) => Ok(Cage { listener, charge, stream }),
            Err(why) => Err(AdminTrouble::failure(why).into()),
        }
    }

    /// Makes the process become the command, with these variables, and waits until the command ends.
    pub(super) fn run(mut self, variables: &[Variable]) -> Result<u8, ExecFailed> {
        for (name, value) in variables {
            write!(self.stream, "{name}={value}\0")?;
        }
        self.stream.write_all(b"\0")?;
        self.stream.shutdown(Shutdown::Write)?;
        // The read ends when `exec` closes the socket.
        let mut why = String::new();
        self.stream.read_to_string(&mut why)?;
        let code = self.charge.end()?;
        match why.is_empty() {
            true => Ok(code),
            false => Err(ExecFailed::Command(if code == NOT_FOUND { NOT_FOUND } else { NOT_RUNNABLE }, why)),
        }
    }
}

fn accept(socket: &UnixListener) -> io::Result<UnixStream> {
    socket.set_nonblocking(true)?;
    let until = clock::now() + PATIENCE;
    loop {
        match socket.accept() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && clock::now() < until => {
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error),
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
        }
    }
}
