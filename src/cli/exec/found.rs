//! Finds out whether a curtsy runs that a command may use without being told to.
//!
//! The question must be quick, and its failure must not keep the command from running. Any user of this machine can
//! listen on the port, and the command would trust the CA of what listens there. So the running curtsy must belong to
//! the same user or to root, unless the user has named it.

use std::net::TcpStream;
use std::time::Duration;

use crate::admin::status::Status;
use crate::cli::admin::{self, AskArgs, RunningCurtsy};
use crate::cli::env;
use crate::cli::http::{self, HttpResponse};
use crate::cli::variables::Address;
use crate::config::Sources;

/// How long to wait for each step. A curtsy on this machine answers within milliseconds, unless the machine is very
/// busy.
const PATIENCE: Duration = Duration::from_secs(2);

/// The page that curtsy answers itself, for the clients that it accepts.
const OWN_PAGE: &str = "http://curtsy.invalid/";

/// A curtsy that runs, and whether a command may use it.
#[derive(Debug)]
pub(super) enum RunningOne {
    /// It can be used.
    Usable(env::Found),
    /// It cannot, with the reason as the end of a sentence that begins with its address.
    Unusable(String),
    /// None was found.
    Absent,
}

/// Looks for a running curtsy at the admin listener that is configured or named.
pub(super) fn look(ask: &AskArgs, sources: &Sources) -> RunningOne {
    let Ok(curtsy) = RunningCurtsy::find_within(ask, sources, PATIENCE) else { return RunningOne::Absent };
    let at = curtsy.address;
    let unusable = |why: &str| RunningOne::Unusable(format!("the curtsy on {at} {why}"));
    let Ok(answer) = curtsy.get("/api/v1/status", PATIENCE) else { return RunningOne::Absent };
    if answer.status == 401 {
        return unusable("wants a token (metrics.token)");
    }
    let Ok(status) = serde_json::from_str::<Status>(&answer.body) else { return RunningOne::Absent };
    if status.state != "ready" {
        return unusable(&format!("is {}", status.state));
    }
    if !ask.names_one() && !may_trust(at.port()) {
        return unusable("belongs to another user (--attach uses it)");
    }
    let Ok(found) = env::running(ask, sources, false) else { return RunningOne::Absent };
    match serves(&found) {
        Some(200) => RunningOne::Usable(found),
        Some(407) => unusable("wants a user and a password"),
        Some(_) => unusable("does not accept requests from here"),
        None => unusable("cannot be reached as a proxy"),
    }
}

/// Returns the status with which the proxy answers a request for its own page.
fn serves(found: &env::Found) -> Option<u16> {
    let Address { host, port, .. } = &found.address;
    let stream = TcpStream::connect_timeout(&admin::of_url(&format!("{host}:{port}")).ok()?, PATIENCE).ok()?;
    let request = format!("GET {OWN_PAGE} HTTP/1.0\r\nHost: curtsy.invalid\r\n\r\n");
    http::begin(&stream, PATIENCE, &request).ok()?;
    HttpResponse::read(&stream).ok().map(|response| response.status)
}

/// Whether every listener on this port belongs to this user or to root. Only Linux tells; elsewhere it is not known.
fn may_trust(port: u16) -> bool {
    let mine = rustix::process::geteuid().as_raw();
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap_or_default());
    let owners: Vec<u32> = tables.iter().flat_map(|table| owners(table, port)).collect();
    !owners.is_empty() && owners.iter().all(|owner| [mine, 0].contains(owner))
}

/// Returns the users that listen on this port, from one of the kernel's tables of sockets.
fn owners(table: &str, port: u16) -> Vec<u32> {
    const LISTENS: &str = "0A";
    let owner = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, state, owner) = (fields.get(1)?, fields.get(3)?, fields.get(7)?);
        let (_, at) = local.rsplit_once(':')?;
        (*state == LISTENS && u16::from_str_radix(at, 16) == Ok(port)).then(|| owner.parse().ok())?
    };
    table.lines().filter_map(owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0C39 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 21 1 0 100 0 0 10 0
   1: 00000000:0C39 00000000:0000 0A 00000000:00000000 00:00000000 00000000    33        0 22 1 0 100 0 0 10 0
   2: 0100007F:0C39 0100007F:9C40 01 00000000:00000000 00:00000000 00000000    44        0 23 1 0 20 4 30 10 -1
   3: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 24 1 0 100 0 0 10 0
";

    #[test]
    fn the_owner_of_a_listener_is_read_from_the_kernels_table() {
        assert_eq!(owners(TABLE, 3129), [1000, 33], "connections do not count");
        assert_eq!((owners(TABLE, 22), owners(TABLE, 1)), (vec![0], vec![]));
    }

    #[test]
    fn only_listeners_of_this_user_are_trusted() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(may_trust(port));
        assert!(!may_trust(0), "no socket can listen there");
    }
}
