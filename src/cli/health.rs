//! `curtsy health`: does a running curtsy accept requests? For container health checks: needs no shell and no curl.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use clap::Args;

use super::admin;
use crate::config::{self, Sources};

#[derive(Args, Clone, Debug)]
#[command(after_help = "Exit codes: 0 ready, 1 not ready, 4 no answer.

Examples:
  curtsy health
  curtsy health --url http://127.0.0.1:3129")]
pub(super) struct HealthArgs {
    /// Admin listener of the curtsy to check; default: the configured one
    #[arg(long, visible_alias = "admin", value_name = "URL", env = "CURTSY_ADMIN_URL")]
    url: Option<String>,
}

/// Health checks run every few seconds and time out after about three.
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
