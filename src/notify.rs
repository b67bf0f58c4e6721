//! Reports curtsy's state to the supervisor that started it: systemd with `Type=notify`, or any other that sets
//! `NOTIFY_SOCKET` (see sd_notify(3)).
//!
//! Without the variable nothing is sent. A message that cannot be sent is not worth failing for: the supervisor has a
//! time limit. There is no watchdog: a heartbeat from here would say nothing about the workers, which `/healthz`
//! checks.

use std::ffi::OsStr;
use std::io;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The supervisor, if it asked for notifications.
#[derive(Debug)]
pub struct Supervisor(Option<SocketAddr>);

impl Supervisor {
    pub fn of_process() -> Self {
        Supervisor(std::env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name)))
    }

    /// Reports that requests are accepted; also the end of a reload.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// Reports that a reload begins. `ready` follows, whether the reload succeeds or not.
    pub fn reloading(&self) {
        self.tell("RELOADING=1");
    }

    /// Reports that curtsy stops. Requests in flight may finish.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, state: &str) {
        let Some(address) = &self.0 else { return };
        if let Err(error) = send(state, address) {
            tracing::warn!(event = "notify.failed", "cannot send {state} to NOTIFY_SOCKET: {error}");
        }
    }
}

/// Reads a path, or an abstract name (without a file) that starts with `@`. Other kinds (vsock) are for whole machines.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        #[cfg(target_os = "linux")]
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

fn send(state: &str, address: &SocketAddr) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // Nothing waits for a supervisor that does not read.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 64];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_path_is_told_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor(address(path.as_os_str()));
        supervisor.ready();
        supervisor.reloading();
        supervisor.stopping();
        assert_eq!([heard(&socket), heard(&socket), heard(&socket)], ["READY=1", "RELOADING=1", "STOPPING=1"]);
    }

    #[test]
    fn a_name_without_a_file_is_told_too() {
        let name = format!("curtsy-notify-{}", std::process::id());
        let socket = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        Supervisor(address(OsStr::new(&format!("@{name}")))).ready();
        assert_eq!(heard(&socket), "READY=1");
    }

    #[test]
    fn nothing_is_sent_without_a_socket() {
        for name in ["", "notify", "vsock:2:9"] {
            assert!(address(OsStr::new(name)).is_none(), "{name}");
        }
        Supervisor(None).ready();
    }

    #[test]
    fn a_supervisor_that_is_gone_stops_nothing() {
        let folder = tempfile::tempdir().unwrap();
        Supervisor(address(folder.path().join("gone").as_os_str())).stopping();
    }
}
