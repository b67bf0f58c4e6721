//! The user and network namespaces of an isolated command.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};

use rustix::io::Errno;
use rustix::process::{getgid, getuid};
use rustix::thread::UnshareFlags;

use super::loopback;

/// Why the namespaces could not be created.
pub(super) enum Missing {
    Namespaces(io::Error),
    Mapping(io::Error),
    Loopback(io::Error),
}

/// Enters the new namespaces, and listens there.
pub(super) fn enter() -> Result<TcpListener, Missing> {
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
