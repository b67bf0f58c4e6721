//! The process that becomes an isolated command.
//!
//! Has one thread. The user keeps their user id and has no special rights inside, so files that the command writes
//! belong to the user.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use super::super::{NOT_FOUND, NOT_RUNNABLE};
use super::{namespaces, passing};

#[derive(Args, Clone, Debug)]
pub(in crate::cli) struct InsideArgs {
    socket: PathBuf,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Becomes the command. Returns only if the command could not be run.
pub(in crate::cli) fn run(args: &InsideArgs) -> io::Result<u8> {
    let mut stream = UnixStream::connect(&args.socket)?;
    let listener = match namespaces::enter() {
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
