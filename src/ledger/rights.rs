//! What curtsy needs from Redis: its version, and the commands that its user must be allowed to call.

use redis::{Value, from_redis_value};

use super::link::{LedgerError, Link, Script};

/// The oldest version of Redis that works. Every Valkey does.
pub const OLDEST_REDIS: (u32, u32) = (6, 2);

/// The rights of an ACL user besides its keys (`~NAME:*`). `tests/it/redis_doctor.rs` runs a server with exactly these.
pub const RIGHTS: &str = "-@all +eval +evalsha +time +info +ping +get +set +del +pexpire +pttl +hget +hmget +hgetall +hset \
    +hdel +hincrby +zadd +zrem +zcard +zrank +zrange +zrangebyscore +zscore +xadd +xrange +cluster|slots";

/// Calls every command of [`RIGHTS`] that scripts use, on keys that end with it. Returns the names of those that are
/// refused.
static TRIAL: Script = Script::new(include_str!("scripts/trial.lua"));

/// Returns the commands that the user may not call.
pub async fn missing(link: &Link, fleet: &str) -> Result<Vec<String>, LedgerError> {
    let keys = ["text", "table", "order", "stream"].map(|kind| format!("{fleet}:{{doctor}}:{kind}"));
    let keys = keys.each_ref().map(String::as_str);
    let refused = link.call(&TRIAL, &keys, &[]).await?;
    let mut missing: Vec<String> =
        from_redis_value(refused).map_err(|_| LedgerError::Protocol("the trial script answered oddly".to_owned()))?;
    for (name, command) in outside(&keys) {
        match link.ask(keys[0], &command).await {
            Err(LedgerError::NoPermission(_)) => missing.push(name.to_owned()),
            other => drop::<Value>(other?),
        }
    }
    missing.sort();
    missing.dedup();
    Ok(missing)
}

/// The commands that are also called without a script.
fn outside(keys: &[&str; 4]) -> Vec<(&'static str, redis::Cmd)> {
    let mut all = vec![("ping", redis::cmd("PING"))];
    let mut add = |name: &'static str, words: &[&str]| {
        let mut command = redis::cmd(name);
        command.arg(words);
        all.push((name, command));
    };
    add("hgetall", &[keys[1]]);
    add("xrange", &[keys[3], "-", "+"]);
    add("del", &[keys[3]]);
    all
}
