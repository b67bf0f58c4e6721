//! `curtsy health`: is a running curtsy taking requests? Made for container health checks: no shell, no curl needed.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use clap::Args;

use crate::config::{self, Sources};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 ready, 1 not ready, 4 nobody answers.

Examples:
  curtsy health
  curtsy health --url http://127.0.0.1:3129")]
pub(super) struct HealthArgs {
    /// The admin listener of the curtsy in question; else the configured one
    #[arg(long, value_name = "URL", env = "CURTSY_ADMIN_URL")]
    url: Option<String>,
}

/// Health checks run every few seconds and are given about three.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) fn run(args: &HealthArgs, sources: &Sources, err: &mut dyn Write) -> io::Result<u8> {
    let address = match address(args, sources) {
        Ok(address) => address,
        Err(problem) => {
            let label = if problem.starts_with("error: ") { "" } else { "error: " };
            writeln!(err, "{label}{problem}")?;
            return Ok(1);
        }
    };
    match ask(address) {
        Ok(200) => Ok(0),
        Ok(status) => {
            writeln!(err, "not ready: {address} answered {status}")?;
            Ok(1)
        }
        Err(error) => {
            writeln!(err, "no curtsy answers on {address}: {error}")?;
            Ok(4)
        }
    }
}

fn address(args: &HealthArgs, sources: &Sources) -> Result<SocketAddr, String> {
    if let Some(url) = &args.url {
        let rest = url.strip_prefix("http://").ok_or("the URL must begin with http://")?;
        let authority = rest.split('/').next().unwrap_or_default();
        let found = authority.to_socket_addrs().map_err(|error| format!("{authority}: {error}"))?.next();
        return found.ok_or_else(|| format!("{authority} has no address"));
    }
    let loaded = config::load(sources).map_err(|problems| problems.to_string())?;
    let mut address = loaded.config.admin.ok_or("the admin listener is off; there is nothing to ask")?;
    if address.ip().is_unspecified() {
        let loopback = if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        address.set_ip(loopback);
    }
    Ok(address)
}

fn ask(address: SocketAddr) -> io::Result<u16> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET /readyz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut head = [0; 12];
    stream.read_exact(&mut head)?;
    let status = head.strip_prefix(b"HTTP/1.1 ").and_then(|code| std::str::from_utf8(code).ok()?.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "that is not curtsy"))
}
