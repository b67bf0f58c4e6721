//! Small value types of the configuration that other parts also use.
//!
//! `texts.rs` defines how each of them is written in the file; the types themselves know nothing about files.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use super::HostPattern;

/// Why a text is not a value: two halves of a message that starts with the name of the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// Follows the key's name: "needs a unit".
    pub message: String,
    /// What to do: "write \"150s\"".
    pub advice: String,
}

impl BadValue {
    pub(super) fn new(message: impl Into<String>, advice: impl Into<String>) -> Self {
        BadValue { message: message.into(), advice: advice.into() }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateDir {
    /// `$XDG_STATE_HOME/curtsy`, `~/.local/state/curtsy`, or `/var/lib/curtsy` for root.
    Auto,
    /// Nothing is stored.
    Memory,
    Path(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLogTarget {
    Off,
    Stdout,
    Path(PathBuf),
}

/// What resolves names to addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResolverChoice {
    /// The resolver that the system is configured to use.
    System,
}

/// "2/s", "30/m", "100/h", or a plain number of requests per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Rate {
    /// Returns the time between two requests at this rate; zero for no limit.
    pub fn delay(self) -> Duration {
        if self.0 > 0.0 { Duration::try_from_secs_f64(1.0 / self.0).unwrap_or(Duration::MAX) } else { Duration::ZERO }
    }
}

/// "20/s", "600/m": this many requests in this time, at once or one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaRate {
    pub requests: NonZeroU32,
    pub per: Duration,
}

/// A duration with its unit, as in the file: "250ms", "1.5s", "1h 30m".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpan(pub Duration);

/// A destination that is allowed although its address is not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Net(IpNet),
    Host(HostPattern),
}
