//! `curtsy doctor --redis`: whether a Redis is fit for a fleet. Asks for version, role, eviction, memory, rights and
//! round trip. Writes only keys that it deletes again.

use std::time::Duration;

use redis::{Value, from_redis_value};

use super::finding::{Finding, Level};
use crate::clock;
use crate::config::{self, Config, RedisUrl, Sources};
use crate::ledger::link::{LedgerError, Link, Shard};
use crate::ledger::rights::{self, OLDEST_REDIS, RIGHTS};
use crate::ledger::words;
use crate::upstream::Trust;

/// How many round trips are measured.
const TRIPS: usize = 100;
/// From here on clients notice the round trip that a free host costs.
const SLOW: Duration = Duration::from_millis(10);
/// From here on a turn cannot be claimed ahead by as much as the round trip takes, so a node stays alone.
const TOO_SLOW: Duration = Duration::from_millis(70);
/// From this share of `maxmemory` on there is a warning.
const NEARLY_FULL: f64 = 0.8;
/// How long a server may take to answer here. Longer than `fleet.timeout`, to tell slow from dead.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks the Redis at these URLs, or the configured one if there is none. The error is for people.
pub(super) fn examine(urls: &[String], sources: &Sources) -> Result<Vec<Finding>, String> {
    let config = config::load(sources).map_err(|problems| problems.to_string())?.config;
    let urls = read(urls, &config)?;
    let trust = Trust::load(&config.tls).map_err(|error| error.to_string())?;
    let link = Link::new(&urls, trust.without_alpn(), PATIENCE).ok_or("no Redis is named")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    Ok(runtime.block_on(look(&link, &config.fleet.name)))
}

fn read(urls: &[String], config: &Config) -> Result<Vec<RedisUrl>, String> {
    let given: Vec<&str> = urls.iter().map(String::as_str).filter(|url| !url.is_empty()).collect();
    if given.is_empty() && config.fleet.redis.is_empty() {
        return Err("no Redis is named: write --redis redis://host:6379, or set fleet.redis".to_owned());
    }
    if given.is_empty() {
        return Ok(config.fleet.redis.clone());
    }
    let read = |url: &&str| RedisUrl::read(url).map_err(|bad| format!("--redis {}: {}", bad.message, bad.advice));
    let urls: Vec<RedisUrl> = given.iter().map(read).collect::<Result<_, _>>()?;
    match config::redis_mismatch(&urls) {
        Some(bad) => Err(format!("--redis {}: {}", bad.message, bad.advice)),
        None => Ok(urls),
    }
}

async fn look(link: &Link, fleet: &str) -> Vec<Finding> {
    if let Err(error) = link.read_map().await {
        return vec![unreachable(&error)];
    }
    let map = link.map();
    let mut findings = Vec::new();
    for shard in map.shards() {
        match look_at(link, shard).await {
            Ok(found) => findings.extend(found),
            Err(error) => findings.push(unreachable(&error)),
        }
        findings.extend(layout(link, shard, fleet).await.err().map(|error| unreachable(&error)));
    }
    if !findings.iter().any(|finding| finding.about == "redis" && finding.level == Level::Fail) {
        findings.push(may(link, fleet).await);
    }
    findings
}

/// Checks one server.
async fn look_at(link: &Link, shard: &Shard) -> Result<Vec<Finding>, LedgerError> {
    link.connect(shard).await?;
    let name = shard.address().map_or_else(|| "the master".to_owned(), ToString::to_string);
    let mut command = redis::cmd("INFO");
    command.arg("all");
    let info = match link.ask_shard(shard, &command).await {
        Ok(info) => ServerFacts::read(info),
        Err(LedgerError::NoPermission(_)) => {
            let text = format!("{name} answers, but its user may not call INFO: version and eviction are unknown");
            let mut found = vec![Finding::warn("redis", text, "ACL SETUSER curtsy +info")];
            found.extend(trips(link, shard, &name).await);
            return Ok(found);
        }
        Err(error) => return Err(error),
    };
    let mut found = vec![info.server(&name, link.is_cluster()), info.eviction(&name)];
    found.extend(info.memory(&name));
    found.extend(trips(link, shard, &name).await);
    Ok(found)
}

/// Checks that the nodes at this server, if there are any, store the same as this version. Other errors are found by
/// the other checks.
async fn layout(link: &Link, shard: &Shard, fleet: &str) -> Result<(), LedgerError> {
    let [.., key] = words::node_keys(fleet, words::lowest_bucket(fleet, &link.map(), shard));
    let mut command = redis::cmd("GET");
    command.arg(&key);
    let Ok(answer) = link.ask_shard(shard, &command).await else { return Ok(()) };
    words::read_layout(answer)
}

/// Measures round trips.
async fn trips(link: &Link, shard: &Shard, name: &str) -> Option<Finding> {
    let mut took = Vec::with_capacity(TRIPS);
    for _ in 0..TRIPS {
        let start = clock::now();
        match link.ask_shard(shard, &redis::cmd("PING")).await {
            Ok(_) | Err(LedgerError::NoPermission(_)) => took.push(clock::now() - start),
            Err(error) => return Some(unreachable(&error)),
        }
    }
    took.sort();
    let (half, most) = (took[TRIPS / 2], took[TRIPS * 97 / 100]);
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let text = format!("{name}: a round trip takes {} (half of them), {} (97 of 100)", ms(half), ms(most));
    Some(if most > TOO_SLOW {
        let fix = "run Redis in the same place as the nodes; further away a node stays alone";
        Finding::fail("latency", text, fix)
    } else if half > SLOW {
        Finding::warn("latency", text, "run Redis nearer: every request to a free host waits that long")
    } else {
        Finding::ok("latency", text)
    })
}

/// Checks the user's rights.
async fn may(link: &Link, fleet: &str) -> Finding {
    let fix = || format!("ACL SETUSER curtsy on >PASSWORD ~{fleet}:* {RIGHTS}");
    match rights::missing(link, fleet).await {
        Ok(missing) if missing.is_empty() => {
            Finding::ok("rights", format!("its user has every right that a fleet needs, on keys below {fleet}:"))
        }
        Ok(missing) => Finding::fail("rights", format!("its user may not call {}", missing.join(", ")), fix()),
        Err(LedgerError::NoPermission(told)) => {
            Finding::fail("rights", format!("its user lacks a right: {told}"), fix())
        }
        Err(error) => unreachable(&error),
    }
}

fn unreachable(error: &LedgerError) -> Finding {
    let fix = match error {
        LedgerError::Away(_) | LedgerError::Slow => "check host, port, firewall, and rediss:// for TLS",
        LedgerError::WrongPassword => {
            "write redis://USER:PASSWORD@host:6379; percent-encode what is not a letter or digit"
        }
        LedgerError::Readonly => "name the master, or its Sentinels with redis+sentinel://host:26379/mymaster",
        LedgerError::OutOfMemory => "CONFIG SET maxmemory, or a larger machine",
        LedgerError::NoPermission(_) => "see the rights in docs/scaling.md",
        LedgerError::Layout(_) => "run the same version on all nodes, or give this fleet a fleet.name of its own",
        LedgerError::Unready(_) | LedgerError::Protocol(_) => "look into the log of Redis",
    };
    Finding::fail("redis", error.to_string(), fix)
}

/// The answer to INFO.
struct ServerFacts(String);

impl ServerFacts {
    fn read(answer: Value) -> Self {
        ServerFacts(from_redis_value(answer).unwrap_or_default())
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
    }

    fn number(&self, name: &str) -> f64 {
        self.field(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    }

    fn server(&self, name: &str, in_cluster: bool) -> Finding {
        let valkey = self.field("valkey_version");
        let version = valkey.or_else(|| self.field("redis_version")).unwrap_or("of an unknown version");
        let product = if valkey.is_some() { "Valkey" } else { "Redis" };
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let is_old = valkey.is_none() && (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < OLDEST_REDIS;
        let text = format!("{name} is {product} {version}");
        if is_old {
            return Finding::fail("redis", format!("{text}; curtsy needs 6.2"), "install a newer Redis, or Valkey");
        }
        if self.field("role") == Some("slave") {
            let fix = "name the master, or its Sentinels with redis+sentinel://host:26379/mymaster";
            return Finding::fail("redis", format!("{text}, and a replica: it cannot be written to"), fix);
        }
        if self.field("redis_mode") == Some("cluster") && !in_cluster {
            let text = format!("{text} and part of a Cluster, but only one URL is given");
            return Finding::fail("redis", text, "name two or more of its servers: --redis URL --redis URL");
        }
        Finding::ok("redis", text)
    }

    fn eviction(&self, name: &str) -> Finding {
        let policy = self.field("maxmemory_policy").unwrap_or("unknown");
        if policy == "noeviction" {
            return Finding::ok("eviction", format!("{name} evicts nothing"));
        }
        let text =
            format!("{name} may evict keys ({policy}): a host whose key is evicted is visited a delay too early");
        let fix = "CONFIG SET maxmemory-policy noeviction    (and in redis.conf)";
        if self.number("maxmemory") > 0.0 || self.number("evicted_keys") > 0.0 {
            Finding::fail("eviction", text, fix)
        } else {
            Finding::warn("eviction", format!("{text}, once maxmemory is set"), fix)
        }
    }

    fn memory(&self, name: &str) -> Option<Finding> {
        let (used, most) = (self.number("used_memory"), self.number("maxmemory"));
        let text = format!("{name} uses {:.0} % of its maxmemory", 100.0 * used / most);
        (most > 0.0 && used > NEARLY_FULL * most)
            .then(|| Finding::warn("memory", text, "raise maxmemory: a full Redis refuses, and nodes go on alone"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> ServerFacts {
        ServerFacts(text.replace('\n', "\r\n"))
    }

    #[test]
    fn versions_and_roles_are_judged() {
        let level = |text: &str, in_cluster| info(text).server("a:1", in_cluster).level;
        assert_eq!(level("redis_version:6.0.16\nrole:master", false), Level::Fail);
        assert_eq!(level("redis_version:6.2.0\nrole:master", false), Level::Ok);
        assert_eq!(level("redis_version:10.0.1\nrole:master", false), Level::Ok);
        assert_eq!(level("redis_version:7.2.4\nvalkey_version:8.0.1\nrole:master", false), Level::Ok);
        assert_eq!(level("redis_version:7.0.15\nrole:slave", false), Level::Fail);
        assert_eq!(level("redis_version:7.0.15\nredis_mode:cluster", false), Level::Fail);
        assert_eq!(level("redis_version:7.0.15\nredis_mode:cluster", true), Level::Ok);
    }

    #[test]
    fn eviction_and_memory_are_judged() {
        let level = |text: &str| info(text).eviction("a:1").level;
        assert_eq!(level("maxmemory_policy:noeviction\nmaxmemory:5"), Level::Ok);
        assert_eq!(level("maxmemory_policy:allkeys-lru\nmaxmemory:5"), Level::Fail);
        assert_eq!(level("maxmemory_policy:volatile-lru\nmaxmemory:0"), Level::Warn);
        assert!(info("used_memory:9\nmaxmemory:10").memory("a:1").is_some());
        assert!(info("used_memory:7\nmaxmemory:10").memory("a:1").is_none());
        assert!(info("used_memory:7\nmaxmemory:0").memory("a:1").is_none());
    }
}
