//! The process that becomes an isolated command.
//!
//! Has one thread. The user keeps their user id and has no special rights inside, so files that the command writes
//! belong to the user.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;
use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::super::{NOT_FOUND, NOT_RUNNABLE};
use super::{loopback, passing};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct InsideArgs {
    socket: PathBuf,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Why the namespaces could not be created.
enum Missing {
    Namespaces(io::Error),
    Mapping(io::Error),
    Loopback(io::Error),
}

/// Becomes the command. Returns only if the command could not be run.
pub(in crate::cli) fn run(args: &InsideArgs) -> io::Result<u8> {
    let mut stream = UnixStream::connect(&args.socket)?;
    let listener = match enter() {
        Ok(listener) => listener,
        Err(missing) => {
            write!(stream, "{missing}")?;
            return Ok(1);
        }
    };
    passing::send(&stream, &listener)?;
    drop(listener);
    let mut told = String::new();
    stream.read_to_string(&mut told)?;
    // If the final zero byte is missing, the process that started us has ended: do not run the command.
    let Some(variables) = told.strip_suffix('\0') else { return Ok(1) };
    let variables = variables.split_terminator('\0').filter_map(|pair| pair.split_once('='));
    let (program, arguments) = args.command.split_first().expect("clap has seen to it that there is one");
    let error = Command::new(program).args(arguments).envs(variables).exec();
    write!(stream, "{} cannot be run: {error}", program.to_string_lossy())?;
    Ok(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
}

/// Enters the new namespaces, and listens there.
fn enter() -> Result<TcpListener, Missing> {
    let (user, group) = (getuid().as_raw(), getgid().as_raw());
    unshare(UnshareFlags::NEWUSER | UnshareFlags::NEWNET).map_err(|error| Missing::Namespaces(error.into()))?;
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("{user} {user} 1")),
        ("/proc/self/gid_map", format!("{group} {group} 1")),
    ];
    for (path, text) in maps {
        std::fs::write(path, text).map_err(Missing::Mapping)?;
    }
    loopback::raise().map_err(Missing::Loopback)?;
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Missing::Loopback)
}

#[expect(deprecated, reason = "its successor is unsafe for the sake of file descriptors, which stay shared here")]
fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    rustix::thread::unshare(flags)
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, error) = match self {
            Missing::Namespaces(error) => ("a user and a network namespace", error),
            Missing::Mapping(error) => ("to be the same user in a namespace", error),
            Missing::Loopback(error) => ("a network of its own in a namespace", error),
        };
        write!(f, "--isolate needs {what}, and this system does not permit that: {error}\n{REMEDY}")
    }
}

const REMEDY: &str = "  help: Debian: sysctl kernel.unprivileged_userns_clone=1
        Ubuntu 24.04: sysctl kernel.apparmor_restrict_unprivileged_userns=0
        everywhere: sysctl user.max_user_namespaces must not be 0
        in a container: --security-opt seccomp=unconfined, or an internal network whose only way out is curtsy
        without --isolate the command is asked, but not forced, to use the proxy";
