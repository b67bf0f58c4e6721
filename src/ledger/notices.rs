//! What all nodes hear of at once, besides what claims carry: hosts that an operator changed, stopped clients, and
//! copies of robots.txt.
//!
//! A node that waits, or whose host is paused, does not claim, so it would not hear that the host was resumed. It reads
//! the notices with every heartbeat instead.

use std::fmt;
use std::time::Duration;

use redis::{Value, from_redis_value};
use tokio::time::sleep;

use super::errand::Errand;
use super::link::{Arg, LedgerError, Script};
use super::{FleetLedger, words};
use crate::politeness::fleet::standing::StandingState;

static NOTICE: Script = Script::new(include_str!("scripts/notice.lua"));
static NOTICES: Script = Script::new(include_str!("scripts/notices.lua"));
static ROBOTS: Script = Script::new(include_str!("scripts/robots.lua"));
static ROBOTS_PUT: Script = Script::new(include_str!("scripts/robots_put.lua"));

/// How often a node asks for a copy that another node fetches, with doubling pauses: 12.75 s together.
const LOOKS: u32 = 8;
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// Something that happened at another node, or at this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetNotice {
    /// An operator changed this host.
    Host(String),
    /// All clients that are stopped, each with its stop as text.
    Stops(Vec<(String, String)>),
    /// This node has joined the fleet, or is back.
    Joined,
}

/// The callback for notices.
pub(super) struct NoticeCallback(pub(super) Box<dyn Fn(FleetNotice) + Send + Sync>);

impl fmt::Debug for NoticeCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoticeCallback")
    }
}

/// Where a node goes on reading.
#[derive(Debug, Default)]
pub(super) struct Bookmark {
    last: String,
    stops: String,
}

impl FleetLedger {
    /// Sets the callback for notices. Only the first call has an effect.
    pub fn on_notice(&self, hear: impl Fn(FleetNotice) + Send + Sync + 'static) {
        let _ = self.hear.set(NoticeCallback(Box::new(hear)));
    }

    /// Passes a notice on to the callback.
    pub(super) fn hear(&self, notice: FleetNotice) {
        if let Some(NoticeCallback(hear)) = self.hear.get() {
            hear(notice);
        }
    }

    /// Tells all nodes that an operator changed a host.
    pub fn announce_host(&self, host: &str) {
        self.send(Errand::Notice("host", host.to_owned(), String::new()));
    }

    /// Tells all nodes that a client is stopped, or with `None` that it may go on.
    pub fn announce_stop(&self, client: &str, stop: Option<String>) {
        let kind = if stop.is_some() { "stop" } else { "resume" };
        self.send(Errand::Notice(kind, client.to_owned(), stop.unwrap_or_default()));
    }

    fn notice_keys(&self) -> [String; 2] {
        ["news", "stops"].map(|kind| format!("{}:{{fleet}}:{kind}", self.name))
    }

    pub(super) async fn notice(&self, kind: &str, name: &str, text: &str) -> Result<(), LedgerError> {
        let [news, stops] = self.notice_keys();
        let args = [Arg::Text(kind), Arg::Text(name), Arg::Text(text)];
        self.link.call(&NOTICE, &[&news, &stops], &args).await.map(drop)
    }

    /// Reads what was told since the last call, and passes it on.
    pub(super) async fn read_notices(&self, mark: &mut Bookmark) -> Result<(), LedgerError> {
        let [news, stops] = self.notice_keys();
        let args = [Arg::Text(&mark.last), Arg::Text(&mark.stops)];
        let value = self.link.call(&NOTICES, &[&news, &stops], &args).await?;
        let unreadable = |_| LedgerError::Protocol("notices in an unknown format".to_owned());
        let (last, version, mut hosts, told): (String, String, Vec<String>, Vec<String>) =
            from_redis_value(value).map_err(unreadable)?;
        hosts.sort_unstable();
        hosts.dedup();
        hosts.into_iter().for_each(|host| self.hear(FleetNotice::Host(host)));
        if version != mark.stops && version != "0" {
            let pairs = told.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone()));
            self.hear(FleetNotice::Stops(pairs.filter(|(client, _)| client != ":version").collect()));
        }
        *mark = Bookmark { last, stops: version };
        Ok(())
    }

    /// Returns the fleet's copy of an origin's robots.txt; `None` if this node must fetch it. Waits a while for another
    /// node that fetches it.
    pub async fn robots_copy(&self, origin: &str) -> Option<String> {
        let [copy, fetching] = self.robots_keys(origin);
        for look in 0..LOOKS {
            if self.shard_of(&copy).state() != StandingState::Joined {
                return None;
            }
            match self.link.call(&ROBOTS, &[&copy, &fetching], &[Arg::Text(&self.id)]).await.ok()? {
                Value::BulkString(text) => return String::from_utf8(text).ok(),
                Value::Int(0) => sleep(FIRST_PAUSE * 2_u32.pow(look)).await,
                _ => return None,
            }
        }
        None
    }

    /// Keeps a copy for the fleet, or with `None` lets another node fetch it.
    pub async fn put_robots(&self, origin: &str, text: Option<&str>, fresh: Duration) {
        let [copy, fetching] = self.robots_keys(origin);
        let fresh_ms = u64::try_from(fresh.as_millis()).unwrap_or(u64::MAX);
        let args = [Arg::Text(text.unwrap_or("")), words::number(fresh_ms)];
        // If it fails, each node fetches the file itself.
        let _ = self.link.call(&ROBOTS_PUT, &[&copy, &fetching], &args).await;
    }

    fn robots_keys(&self, origin: &str) -> [String; 2] {
        let bucket = words::bucket(origin);
        ["r", "f"].map(|kind| format!("{}:{{{bucket:03x}}}:{kind}:{origin}", self.name))
    }
}
