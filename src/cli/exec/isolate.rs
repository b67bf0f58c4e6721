//! `--isolate`: a command for which the proxy is the only way out.
//!
//! A namespace can only be left behind by a process with one thread, and this one has many. So curtsy starts itself once
//! more, as [`inside`]: that process makes the namespaces, listens in them, and hands the listener over by a socket in the
//! file system, which knows no network namespaces. The proxy out here accepts from it, so what is sent in there comes out
//! here, and nothing else does. Then that process becomes the command.

pub(in crate::cli) mod inside;
mod loopback;
mod passing;

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::time::Duration;

use super::charge::Charge;
use super::{Failed, NOT_FOUND, NOT_RUNNABLE, folder};
use crate::cli::admin::Trouble;
use crate::cli::variables::Variable;
use crate::clock;

/// The command that stands for the process inside.
pub(in crate::cli) const INSIDE: &str = "exec-inside";

/// A process that only has to say where it is.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// The process inside, which waits to become the command. If it hears nothing more from us it ends.
pub(super) struct Cage {
    pub(super) listener: TcpListener,
    charge: Charge,
    stream: UnixStream,
}

impl Cage {
    pub(super) fn open(command: &[OsString]) -> Result<Self, Failed> {
        let folder = folder()?;
        let path = folder.path().join("socket");
        let socket = UnixListener::bind(&path)?;
        let mut own = Command::new(std::env::current_exe()?);
        own.arg(INSIDE).arg(&path).arg("--").args(command);
        let charge = Charge::begin(&mut own)?;
        let stream = accept(&socket)?;
        match passing::receive(&stream)? {
            Ok(listener) => Ok(Cage { listener, charge, stream }),
            Err(why) => Err(Trouble::failure(why).into()),
        }
    }

    /// Has it become the command, with these variables, and waits for its end.
    pub(super) fn run(mut self, variables: &[Variable]) -> Result<u8, Failed> {
        for (name, value) in variables {
            write!(self.stream, "{name}={value}\0")?;
        }
        self.stream.write_all(b"\0")?;
        self.stream.shutdown(Shutdown::Write)?;
        // Ends when the socket is closed by becoming another program.
        let mut why = String::new();
        self.stream.read_to_string(&mut why)?;
        let code = self.charge.end()?;
        match why.is_empty() {
            true => Ok(code),
            false => Err(Failed::Command(if code == NOT_FOUND { NOT_FOUND } else { NOT_RUNNABLE }, why)),
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
