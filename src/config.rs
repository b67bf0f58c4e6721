//! The checked configuration, which every other part receives.
//!
//! A value of [`Config`] has passed every check, so its users need no checks of their own. [`load`] builds it from the
//! defaults, the file, `CURTSY_*` variables and flags, in that order, and reports all problems at once. A new key needs
//! a field here, its default in `defaults.rs`, a row in `keys.rs` and a line in `config.toml`.
//!
//! What the politeness core has a type for is stored in that type. So a new number for each host is a field of
//! [`Policy`] and [`HostRule`] with its default there, two rows in `keys.rs` and two lines in `config.toml`.

mod amend;
mod check;
mod defaults;
mod differences;
mod environment;
mod exposed;
mod file;
mod keys;
mod kinds;
mod load;
mod problems;
mod raw;
mod redis_url;
mod schema;
mod show;
mod suggest;
#[cfg(test)]
mod tests;
mod texts;
mod tree;
mod units;
mod values;
mod watch;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

use crate::politeness::HostKey;
use crate::politeness::policy::Policy;
use crate::politeness::retries::RetryPolicy;

pub use self::amend::repace;
pub use self::differences::{KeyChange, differences};
pub use self::file::{FileChoice, user_file};
pub use self::load::{ConfigOverrides, Loaded, Sources, ValueSources, load, parse};
pub use self::problems::{ConfigProblem, FilePosition, Problems, Severity, ValueSource};
pub use self::redis_url::{RedisKind, RedisUrl, redis_mismatch};
pub use self::schema::schema;
pub use self::show::{running_json, show, show_json};
pub use self::values::{
    AccessLogTarget, AddressSpan, BadValue, Destination, Listen, QuotaRate, Rate, ResolverChoice, StateDir,
};
pub use self::watch::ConfigWatch;
pub use crate::politeness::policy::{CacheMode, Counts, HostPattern, HostRule, Mode, Order, RobotsMode};

/// The documented file: every key with its default.
pub const TEMPLATE: &str = include_str!("../config.toml");

/// Returns the documented file with every key as a comment, for users to start from. A key that is not set follows
/// `profile` and the defaults of later versions.
pub fn starter() -> String {
    let mut lines = TEMPLATE.lines();
    lines.next();
    let first = "# The configuration of curtsy: every key with its default. Remove the # before what you change.";
    std::iter::once(first.to_owned()).chain(lines.map(commented)).map(|line| line + "\n").collect()
}

/// Makes a comment of a line that sets a key, with its description in the same column.
fn commented(line: &str) -> String {
    let sets_a_key = line.starts_with(|c: char| c.is_ascii_lowercase());
    match line.split_once("  # ") {
        _ if !sets_a_key => line.to_owned(),
        Some((setting, description)) => format!("# {} # {description}", setting.strip_suffix(' ').unwrap_or(setting)),
        None => format!("# {line}"),
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Where clients connect. Needs a restart.
    pub listen: Vec<Listen>,
    /// Health, metrics, API and dashboard; `None` = off. Needs a restart.
    pub admin: Option<SocketAddr>,
    /// What survives a restart. Needs a restart.
    pub state_dir: StateDir,
    /// What Via and Proxy-Status call this deployment; `None` = `curtsy-` and six hex digits. Needs a restart.
    pub name: Option<String>,
    /// Accept loops, each with its own single-threaded runtime; 0 = one per core. Needs a restart.
    pub workers: usize,
    /// Reload the file when it changes.
    pub watch: bool,
    /// On SIGTERM: how long requests in flight, and those whose turn comes in time, may take to finish.
    pub shutdown_grace: Duration,
    /// The policy of hosts that match no rule: most of `[politeness]`, and `mode` and `max_crawl_delay` of `[robots]`.
    pub politeness: Policy,
    pub pacing: Pacing,
    pub hosts: Hosts,
    pub state: State,
    pub adaptive: Adaptive,
    pub retry: RetryPolicy,
    pub breaker: Breaker,
    pub robots: Robots,
    pub cache: CacheStorage,
    pub tls: Tls,
    pub upstream: Upstream,
    pub access: Access,
    pub limits: Limits,
    pub responses: Responses,
    pub log: Log,
    pub metrics: Metrics,
    pub fleet: Fleet,
    /// `[[host]]` rules, first match wins.
    pub host: Vec<HostRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Host,
    Domain,
    Ip,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    Conservative,
    Standard,
    Aggressive,
}

/// The keys of `[politeness]` that concern all hosts together.
#[derive(Clone, Debug, PartialEq)]
pub struct Pacing {
    pub key: Key,
    /// Sets delay and burst if they are not set themselves.
    pub profile: Option<Profile>,
    pub max_queue_total: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    pub max: usize,
    pub idle: Duration,
    pub sweep: Duration,
}

/// How much is kept on disk. Needs a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    pub hosts: usize,
    /// Bytes.
    pub robots: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Adaptive {
    pub step_up: Duration,
    pub step_down: Duration,
    pub successes: u32,
    pub max_delay: Duration,
    pub statuses: Vec<u16>,
    /// Statuses that `auto` learns from if they come only above a pace.
    pub suspects: Vec<u16>,
    pub concurrency_step: Duration,
    pub retry_after_max: Duration,
    pub ratelimit_fields: bool,
    pub remember: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Breaker {
    pub failures: u32,
    pub cooldown: Duration,
    pub throttled: u32,
    pub job_failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnreachable {
    Deny,
    Allow,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Robots {
    /// Product tokens to match; empty = taken from each request's User-Agent.
    pub user_agent: Vec<String>,
    pub crawl_delay: bool,
    pub cache_ttl: Duration,
    pub cache_size: usize,
    pub fetch_timeout: Duration,
    pub on_unreachable: OnUnreachable,
    pub takes_turn: bool,
    pub apply_to: Vec<String>,
    pub exempt_user_agents: Vec<String>,
}

/// The keys of `[cache]` that concern all hosts together.
#[derive(Clone, Debug, PartialEq)]
pub struct CacheStorage {
    /// Bytes. Needs a restart.
    pub memory: usize,
    /// Bytes; 0 = nothing on disk. Needs a restart.
    pub disk: usize,
    /// `None` = the cache folder of the user. Needs a restart.
    pub dir: Option<PathBuf>,
    /// Bytes. A larger body is passed on and not stored.
    pub max_object: usize,
    /// Whether requests for the same URL at the same time share one answer.
    pub collapse: bool,
    /// An answer without a lifetime counts as fresh for this share of its age.
    pub heuristic: f64,
    pub partition: Partition,
    /// Request fields that never change an answer, in lower case.
    pub unkeyed: Vec<String>,
}

/// Who shares stored answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// All clients.
    Shared,
    /// Each client has its own.
    Client,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUntrusted {
    Error,
    Tunnel,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tls {
    pub intercept: bool,
    pub only: Vec<HostPattern>,
    pub bypass: Vec<HostPattern>,
    pub on_untrusted: OnUntrusted,
    pub http2_clients: bool,
    /// Where clients speak TLS to the proxy itself.
    pub listen: Vec<Listen>,
    /// Set if and only if `listen` is not empty; the same is true of the key.
    pub listen_cert: Option<PathBuf>,
    pub listen_key: Option<PathBuf>,
    pub extra_roots: Vec<PathBuf>,
    /// "1.2" or "1.3".
    pub min_version: String,
    pub ca_cert: Option<PathBuf>,
    pub ca_key: Option<PathBuf>,
    pub tunnel: Tunnel,
}

/// What happens to tunnels with HTTP/2 inside, whose requests cannot be paced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http2Tunnels {
    Allow,
    Refuse,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Tunnel {
    pub pace_requests: bool,
    pub http2: Http2Tunnels,
    pub max_lifetime: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    pub connect_timeout: Duration,
    pub dns_timeout: Duration,
    /// From sending the request to the end of the response head.
    pub response_timeout: Duration,
    /// Longest silence in the middle of a response or a tunnel.
    pub idle_timeout: Duration,
    /// How long an unused connection is kept for the next request. Short: if the origin closes the connection at the
    /// moment when a request is sent, that request needs a retry. Apache and Node close after 5 s.
    pub keep_alive: Duration,
    /// Unused connections that each worker keeps for one host; 0 for as many as were in use.
    pub pool_per_host: usize,
    /// Whether `https://` origins are offered HTTP/2.
    pub http2: bool,
    /// A parent proxy; `None` = connect to the origin directly.
    pub proxy: Option<ParentProxy>,
    /// Source address of connections to origins.
    pub bind: Option<std::net::IpAddr>,
    pub resolver: ResolverChoice,
    pub via: bool,
}

#[derive(Clone, PartialEq, Eq)]
pub struct ParentProxy {
    pub host: String,
    pub port: u16,
    /// User and password. Left out of every `Debug` and of `curtsy config show`.
    pub credentials: Option<(String, String)>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Access {
    /// The networks that may use the proxy.
    pub allow: Vec<IpNet>,
    /// htpasswd, bcrypt or argon2; `None` = no passwords.
    pub users_file: Option<PathBuf>,
    /// Destinations allowed although they are private, loopback, link-local or metadata addresses.
    pub allow_destinations: Vec<Destination>,
    /// `None` = any port.
    pub connect_ports: Option<Vec<u16>>,
    pub max_client_connections: usize,
    /// Names of the admin listener, besides its addresses and localhost.
    pub admin_hosts: Vec<HostKey>,
    /// Request rate limit of one client across all hosts; `None` = no limit.
    pub client_rate: Option<QuotaRate>,
    /// The same for all clients together.
    pub total_rate: Option<QuotaRate>,
}

/// How much memory one client connection may use, and how long it may stay idle.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes of a request or response head.
    pub head_size: usize,
    /// From the first byte of a head to its last.
    pub head_timeout: Duration,
    /// How long a client connection may wait for its next request.
    pub client_idle: Duration,
    /// How long a client may neither send the next byte of a body nor accept the next byte of a response.
    pub client_stall: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseHeaders {
    Full,
    Errors,
    Off,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Responses {
    pub headers: ResponseHeaders,
    pub reason_phrases: bool,
    pub contact: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    Auto,
    Text,
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueryStrings {
    Keep,
    Redact,
    Drop,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// A level, or `target=level` pairs separated by commas.
    pub level: String,
    pub format: LogFormat,
    pub access: AccessLogTarget,
    pub query_strings: QueryStrings,
}

#[derive(Clone, PartialEq)]
pub struct Metrics {
    pub hosts: usize,
    /// Bearer token of the admin listener. Left out of every `Debug`.
    pub token: Option<String>,
}

/// Several curtsys that share every host's budget. Needs a restart.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// Empty = no fleet; several = a Cluster, or Sentinels.
    pub redis: Vec<RedisUrl>,
    /// Begins every key in Redis, so that fleets can share one server.
    pub name: String,
    /// How long Redis may owe an answer before this node goes on alone.
    pub timeout: Duration,
    /// How many nodes to assume at a start without Redis; 0 = as many as were seen last, or eight.
    pub nodes: u32,
}

impl std::fmt::Debug for ParentProxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
