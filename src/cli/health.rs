//! `curtsy health`: is a running curtsy taking requests? Made for container health checks: no shell, no curl needed.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;

use super::admin;
use crate::config::{self, Sources};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 ready, 1 not ready, 4 nobody answers.

Examples:
  curtsy health
  curtsy health --url http://127.0.0.1:3129")]
pub(super) struct HealthArgs {
    /// The admin listener of the curtsy in question; else the configured one
    #[arg(long, visible_alias = "admin", value_name = "URL", env = "CURTSY_ADMIN_URL")]
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
        return admin::of_url(url);
    }
    let loaded = config::load(sources).map_err(|problems| problems.to_string())?;
    Ok(admin::of_config(&loaded.config).ok_or("the admin listener is off; there is nothing to ask")?)
}

fn ask(address: SocketAddr) -> io::Result<u16> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    Ok(admin::get(&stream, "/readyz", None, PATIENCE)?.status)
}
