//! Small value types of the configuration that other parts use too.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    Tcp(SocketAddr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateDir {
    /// `$XDG_STATE_HOME/curtsy`, `~/.local/state/curtsy`, or `/var/lib/curtsy` for root.
    Auto,
    /// Nothing is kept.
    Memory,
    Path(PathBuf),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessLog {
    Off,
    Stdout,
    Path(PathBuf),
}

/// "2/s", "30/m", "100/h", or a plain number of requests a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl Rate {
    /// The time between two requests at this rate; zero for no limit.
    pub fn delay(self) -> Duration {
        if self.0 > 0.0 { Duration::from_secs_f64(1.0 / self.0) } else { Duration::ZERO }
    }
}

/// Which hosts a setting is meant for: a name, `*.example.org`, `*`, or a network of IP literals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    Any,
    /// Lower-case, no trailing dot.
    Name(String),
    /// Every name below this one, but not the name itself. Lower-case, without the `*.`.
    Below(String),
    Net(IpNet),
}

/// A destination allowed although its address is not public.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Net(IpNet),
    Host(HostPattern),
}

impl HostPattern {
    /// `host` is lower-case and has no trailing dot; an IP literal comes without brackets.
    pub fn matches(&self, host: &str) -> bool {
        match self {
            HostPattern::Any => true,
            HostPattern::Name(name) => name == host,
            HostPattern::Below(suffix) => host
                .strip_suffix(suffix.as_str())
                .and_then(|rest| rest.strip_suffix('.'))
                .is_some_and(|rest| !rest.is_empty()),
            HostPattern::Net(net) => host.parse::<IpAddr>().is_ok_and(|ip| net.contains(&ip)),
        }
    }
}
