//! Why Redis gave no answer, in the few kinds that curtsy treats differently.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use redis::ServerError;

/// How much of a server's own text is kept.
const LONGEST: usize = 200;

/// Why a call to Redis failed. No variant quotes a URL or an argument, so none can contain a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LedgerError {
    /// No connection: refused, reset, an unknown name, a failed TLS handshake, or no server for this slot.
    Away(Cow<'static, str>),
    /// No answer within `fleet.timeout`.
    Slow,
    /// The server answers, but cannot serve: LOADING, MASTERDOWN, CLUSTERDOWN, BUSY, MISCONF, NOREPLICAS.
    Unready(String),
    /// The server is a replica.
    Readonly,
    /// The server has reached `maxmemory` and may not evict.
    OutOfMemory,
    WrongPassword,
    /// The user lacks a right; the server's text names it.
    NoPermission(String),
    /// Nodes of another version of curtsy use the same keys, with this layout.
    Layout(u64),
    /// Any other error of the server, or an answer that curtsy cannot read.
    Protocol(String),
}

impl LedgerError {
    /// Returns the kind as one word, for the log and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            LedgerError::Away(_) => "away",
            LedgerError::Slow => "slow",
            LedgerError::Unready(_) => "unready",
            LedgerError::Readonly => "readonly",
            LedgerError::OutOfMemory => "out-of-memory",
            LedgerError::WrongPassword => "wrong-password",
            LedgerError::NoPermission(_) => "no-permission",
            LedgerError::Layout(_) => "layout",
            LedgerError::Protocol(_) => "protocol",
        }
    }

    /// Whether a new connection may help, because it may lead to another server or to another standing at it.
    pub(super) fn ends_connection(&self) -> bool {
        matches!(self, LedgerError::Away(_) | LedgerError::Slow | LedgerError::Readonly | LedgerError::WrongPassword)
    }
}

impl fmt::Display for LedgerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LedgerError::Away(why) => write!(f, "Redis cannot be reached: {why}"),
            LedgerError::Slow => f.write_str("Redis did not answer within fleet.timeout"),
            LedgerError::Unready(told) => write!(f, "Redis cannot serve now: {told}"),
            LedgerError::Readonly => {
                f.write_str("this Redis is a read-only replica; fleet.redis must lead to its master")
            }
            LedgerError::OutOfMemory => f.write_str("Redis is full: raise its maxmemory"),
            LedgerError::WrongPassword => f.write_str("Redis refuses the user or password in fleet.redis"),
            LedgerError::NoPermission(told) => write!(f, "the Redis user lacks a right: {told}"),
            LedgerError::Layout(theirs) => write!(
                f,
                "another version of curtsy uses this fleet.name: its keys have layout {theirs}, which this version \
                 does not know. Run one version, or set another fleet.name"
            ),
            LedgerError::Protocol(told) => write!(f, "Redis gave an answer that curtsy cannot use: {told}"),
        }
    }
}

impl Error for LedgerError {}

/// What [`Link`](super::Link) does about an answer that is an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The script is not loaded: send its text.
    NoScript,
    /// The slot has another master: read the map again.
    Moved,
    /// The slot is being moved: ask this server, once.
    Ask(String),
    /// The slot is being moved, and its keys are apart: ask again in a moment.
    TryAgain,
    Final(LedgerError),
}

impl From<LedgerError> for Refused {
    fn from(error: LedgerError) -> Self {
        Refused::Final(error)
    }
}

impl From<Refused> for LedgerError {
    /// Names a redirection that led to another one.
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Final(error) => error,
            Refused::NoScript => LedgerError::Protocol("NOSCRIPT although the script was sent".to_owned()),
            Refused::Moved | Refused::Ask(_) | Refused::TryAgain => {
                LedgerError::Unready("the Cluster is moving the slots of this host".to_owned())
            }
        }
    }
}

/// Sorts an error that the server answered.
pub(super) fn refused(error: &ServerError) -> Refused {
    let details = error.details().unwrap_or_default();
    let told = || format!("{} {details}", error.code()).chars().take(LONGEST).collect::<String>();
    Refused::Final(match error.code() {
        "NOSCRIPT" => return Refused::NoScript,
        "MOVED" => return Refused::Moved,
        "ASK" => return Refused::Ask(details.split_ascii_whitespace().nth(1).unwrap_or_default().to_owned()),
        "TRYAGAIN" => return Refused::TryAgain,
        "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "BUSY" | "MISCONF" | "NOREPLICAS" => LedgerError::Unready(told()),
        "READONLY" => LedgerError::Readonly,
        "OOM" => LedgerError::OutOfMemory,
        "NOAUTH" | "WRONGPASS" => LedgerError::WrongPassword,
        "NOPERM" => LedgerError::NoPermission(told()),
        // A script may be called, but a command inside it may not (Redis 7, Redis 6.2).
        _ if details.contains("ACL failure in script") || details.contains("can't run this command") => {
            LedgerError::NoPermission(told())
        }
        _ => LedgerError::Protocol(told()),
    })
}
