//! The link to Redis: one server, one behind Sentinels, or a Cluster.
//!
//! The owner of the link calls [`Link::connect`] and [`Link::read_map`] from time to time. A call does not wait for a
//! connection: without one it fails at once. Each thread that calls gets a connection of its own beside that of the
//! owner, so that a call wakes no other thread; if one of them fails, all of that server are dropped. Every await has a
//! deadline; a connection that misses one is dropped, so that no late answer arrives on it.

mod dial;
mod error;
mod pipelined;
mod resp;
mod shards;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use redis::{Cmd, Value, from_redis_value};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tokio_rustls::TlsConnector;

pub use self::dial::RedisAddress;
pub use self::error::LedgerError;
pub use self::shards::{Shard, ShardMap};

use self::dial::{Dialer, Live};
use self::error::Refused;
use crate::clock;
use crate::config::{RedisKind, RedisUrl};
use crate::metrics::Metrics;

/// How long a slot that is being moved is left alone before the second try.
const MOVING: Duration = Duration::from_millis(20);

/// A Lua script. Redis knows it by the digest of its text.
#[derive(Debug)]
pub struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

/// An argument of a script.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    Number(i64),
    Text(&'a str),
}

/// All connections to the Redis of a fleet.
#[derive(Debug)]
pub struct Link {
    servers: Servers,
    dialer: Arc<Dialer>,
    timeout: Duration,
    map: ArcSwap<ShardMap>,
    /// Counts the calls.
    metrics: Option<Arc<Metrics>>,
    /// Held while a task reads the map, so that only one does.
    reading: Mutex<()>,
}

#[derive(Debug)]
enum Servers {
    One,
    Sentinel { sentinels: Vec<RedisAddress>, master: String },
    Cluster(Vec<RedisAddress>),
}

impl Script {
    pub const fn new(text: &'static str) -> Self {
        Script { text, digest: OnceLock::new() }
    }

    fn digest(&self) -> &str {
        self.digest.get_or_init(|| {
            let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, self.text.as_bytes());
            digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
        })
    }
}

impl Link {
    /// Creates a link without connections; None without a URL. `urls` come from a checked configuration, so all have
    /// the same kind and login.
    pub fn new(urls: &[RedisUrl], tls: TlsConnector, timeout: Duration) -> Option<Self> {
        let first = urls.first()?;
        let mut addresses = urls.iter().map(|url| RedisAddress { host: url.host.clone(), port: url.port });
        let (servers, map) = match &first.kind {
            RedisKind::Sentinel { master } => {
                let servers = Servers::Sentinel { sentinels: addresses.collect(), master: master.clone() };
                (servers, ShardMap::one(None))
            }
            RedisKind::Server if urls.len() > 1 => (Servers::Cluster(addresses.collect()), ShardMap::default()),
            RedisKind::Server => (Servers::One, ShardMap::one(addresses.next())),
        };
        let (dialer, reading) = (Arc::new(Dialer::new(first, tls)), Mutex::default());
        Some(Link { servers, dialer, timeout, map: ArcSwap::from_pointee(map), metrics: None, reading })
    }

    /// Counts every call in these metrics.
    #[must_use]
    pub fn counted_in(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    pub fn is_cluster(&self) -> bool {
        matches!(self.servers, Servers::Cluster(_))
    }

    /// Returns the shards as of the last [`Link::read_map`].
    pub fn map(&self) -> Arc<ShardMap> {
        self.map.load_full()
    }

    /// Connects to this shard unless there is a connection. Behind Sentinels, asks them first who the master is.
    pub async fn connect(&self, shard: &Shard) -> Result<(), LedgerError> {
        self.connect_until(shard, clock::now() + self.timeout).await
    }

    async fn connect_until(&self, shard: &Shard, deadline: Instant) -> Result<(), LedgerError> {
        let _alone = shard.connecting.lock().await;
        if shard.is_connected() {
            return Ok(());
        }
        let asked;
        let address = match (&shard.address, &self.servers) {
            (Some(address), _) => address,
            (None, Servers::Sentinel { sentinels, master }) => {
                asked = self.master(sentinels, master, deadline).await?;
                &asked
            }
            (None, _) => return Err(LedgerError::Away("no address is known".into())),
        };
        shard.live.set(self.dialer.open(address, deadline).await?);
        Ok(())
    }

    /// Asks the Sentinels one after the other where the master is. Each gets its part of the time.
    async fn master(
        &self,
        sentinels: &[RedisAddress],
        name: &str,
        deadline: Instant,
    ) -> Result<RedisAddress, LedgerError> {
        let mut why = LedgerError::Away("no Sentinel is named".into());
        for (tried, sentinel) in sentinels.iter().enumerate() {
            let left = deadline.saturating_duration_since(clock::now());
            let share = left / u32::try_from(sentinels.len() - tried + 1).unwrap_or(u32::MAX);
            match self.master_by(sentinel, name, clock::now() + share).await {
                Ok(Some(address)) => return Ok(address),
                Ok(None) => why = LedgerError::Away(format!("{sentinel} knows no master named {name:?}").into()),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn master_by(
        &self,
        at: &RedisAddress,
        name: &str,
        deadline: Instant,
    ) -> Result<Option<RedisAddress>, LedgerError> {
        let mut command = redis::cmd("SENTINEL");
        command.arg("get-master-addr-by-name").arg(name);
        let live = self.dialer.open_without_login(at, deadline).await?;
        let answer = match live.ask(&command, deadline).await {
            Err(Refused::Final(LedgerError::WrongPassword)) => {
                self.dialer.open(at, deadline).await?.ask(&command, deadline).await
            }
            other => other,
        };
        let address: Option<(String, u16)> = from_redis_value(answer?)
            .map_err(|_| LedgerError::Protocol("a Sentinel names a master without an address".to_owned()))?;
        Ok(address.map(|(host, port)| RedisAddress { host, port }))
    }

    /// Reads which server answers for which slot. Without Cluster there is nothing to read. To be called before the
    /// first [`Link::connect`], every few seconds, and after errors.
    pub async fn read_map(&self) -> Result<(), LedgerError> {
        self.read_map_until(clock::now() + self.timeout).await
    }

    async fn read_map_until(&self, deadline: Instant) -> Result<(), LedgerError> {
        let Servers::Cluster(seeds) = &self.servers else { return Ok(()) };
        let before = self.map();
        let _alone = self.reading.lock().await;
        if !Arc::ptr_eq(&before, &self.map()) {
            return Ok(());
        }
        let mut command = redis::cmd("CLUSTER");
        command.arg("SLOTS");
        let mut why = LedgerError::Away("no server of the Cluster is named".into());
        let known = before.shards().iter().filter_map(|shard| Some((shard.address.as_ref()?, shard.live.get())));
        let connected = known.clone().filter(|(_, live)| live.is_some());
        // A server that hangs must not use up the time of the others.
        let candidates: Vec<(&RedisAddress, Option<Arc<Live>>)> = connected
            .chain(seeds.iter().map(|seed| (seed, None)))
            .chain(known.filter(|(_, live)| live.is_none()))
            .collect();
        for (tried, (address, live)) in candidates.iter().enumerate() {
            let left = deadline.saturating_duration_since(clock::now());
            let share = clock::now() + left / u32::try_from(candidates.len() - tried).unwrap_or(u32::MAX).min(3);
            match self.slots_by(address, live.clone(), &command, share).await {
                Ok(answer) => {
                    self.map.store(Arc::new(before.next(answer, address)?));
                    return Ok(());
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    async fn slots_by(
        &self,
        address: &RedisAddress,
        live: Option<Arc<Live>>,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, LedgerError> {
        match live {
            Some(live) => Ok(live.ask(command, deadline).await?),
            None => Ok(self.dialer.open(address, deadline).await?.ask(command, deadline).await?),
        }
    }

    /// Runs a script on the shard of its first key, by its digest, and by its text if Redis does not know it yet.
    pub async fn call(&self, script: &Script, keys: &[&str], args: &[Arg<'_>]) -> Result<Value, LedgerError> {
        let began = clock::now();
        let answer = self.call_until(script, keys, args, began + self.timeout).await;
        if let Some(metrics) = &self.metrics {
            match &answer {
                Ok(_) => metrics.redis_answered(clock::now() - began),
                Err(error) => metrics.redis_failed(error.word()),
            }
        }
        answer
    }

    async fn call_until(
        &self,
        script: &Script,
        keys: &[&str],
        args: &[Arg<'_>],
        deadline: Instant,
    ) -> Result<Value, LedgerError> {
        let key = keys.first().copied().unwrap_or_default();
        let by_digest = |into: &mut Vec<u8>| resp::write_script(into, ("EVALSHA", script.digest()), keys, args);
        match self.ask_until(key, by_digest, deadline).await {
            Err(Refused::NoScript) => {
                let by_text = |into: &mut Vec<u8>| resp::write_script(into, ("EVAL", script.text), keys, args);
                Ok(self.ask_until(key, by_text, deadline).await?)
            }
            other => Ok(other?),
        }
    }

    /// Sends a single command to the shard of this key.
    pub async fn ask(&self, key: &str, command: &Cmd) -> Result<Value, LedgerError> {
        Ok(self.ask_until(key, packed(command), clock::now() + self.timeout).await?)
    }

    /// Sends a command to this shard, whatever its keys are.
    pub async fn ask_shard(&self, shard: &Shard, command: &Cmd) -> Result<Value, LedgerError> {
        Ok(self.exchange(shard, packed(command), clock::now() + self.timeout).await?)
    }

    /// Sends what `write` writes, and follows one redirection of a Cluster.
    async fn ask_until(&self, key: &str, write: impl Fn(&mut Vec<u8>), deadline: Instant) -> Result<Value, Refused> {
        let shard = self.shard_of(key)?;
        match self.exchange(&shard, &write, deadline).await {
            Err(Refused::Moved) if self.is_cluster() => {
                self.read_map_until(deadline).await?;
                let shard = self.shard_of(key)?;
                self.connect_until(&shard, deadline).await?;
                self.exchange(&shard, &write, deadline).await
            }
            Err(Refused::Moved) => {
                let told = "it is part of a Cluster: name two or more of its servers in fleet.redis";
                Err(LedgerError::Protocol(told.to_owned()).into())
            }
            Err(Refused::Ask(to)) => self.ask_importing(&to, &shard, &write, deadline).await,
            Err(Refused::TryAgain) => {
                sleep(MOVING).await;
                self.exchange(&shard, &write, deadline).await
            }
            other => other,
        }
    }

    async fn ask_importing(
        &self,
        to: &str,
        from: &Shard,
        write: impl Fn(&mut Vec<u8>),
        deadline: Instant,
    ) -> Result<Value, Refused> {
        let unreadable = || LedgerError::Protocol("ASK without an address".to_owned());
        let mut address = RedisAddress::read(to).ok_or_else(unreadable)?;
        if address.host.is_empty() {
            address.host = from.address.as_ref().ok_or_else(unreadable)?.host.clone();
        }
        let known = self.map().at(&address).and_then(|shard| shard.live.get());
        match known {
            Some(live) => live.ask_importing(write, deadline).await,
            None => self.dialer.open(&address, deadline).await?.ask_importing(write, deadline).await,
        }
    }

    /// Sends what `write` writes to a shard, on this thread's connection. Drops the connections to the shard if this
    /// one cannot be used any more.
    async fn exchange(&self, shard: &Shard, write: impl Fn(&mut Vec<u8>), deadline: Instant) -> Result<Value, Refused> {
        let first = shard.live.get().ok_or_else(|| LedgerError::Away("there is no connection".into()))?;
        let answer = self.dialer.beside(&first, self.timeout).send(write, deadline).await;
        if let Err(Refused::Final(error)) = &answer
            && error.ends_connection()
        {
            shard.live.drop_if(&first);
        }
        answer
    }

    fn shard_of(&self, key: &str) -> Result<Arc<Shard>, LedgerError> {
        let map = self.map.load();
        map.of_key(key).cloned().ok_or_else(|| LedgerError::Away("no server answers for this slot".into()))
    }
}

fn packed(command: &Cmd) -> impl Fn(&mut Vec<u8>) {
    let bytes = command.get_packed_command();
    move |into: &mut Vec<u8>| into.extend_from_slice(&bytes)
}
