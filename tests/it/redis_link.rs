//! The link to Redis against real servers: one, with TLS, behind a Sentinel, in a Cluster, and when they fail.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use curtsy::config::{self, RedisUrl};
use curtsy::ledger::link::{Arg, LedgerError, Link, Script, Shard};
use curtsy::ledger::view::{self, NodeCard};
use curtsy::upstream::Trust;
use redis::{FromRedisValue, Value};
use tokio::task::JoinSet;

use crate::support::deadline::PATIENCE;
use crate::support::redis::RedisServer;
use crate::support::redis_sets::{RedisCluster, SentinelSet};
use crate::support::relay::Relay;
use crate::support::{Authority, Hole, ms, soon};

/// Stores its argument and returns it with what was there before.
static SWAP: Script =
    Script::new("local old = redis.call('GET', KEYS[1])\nredis.call('SET', KEYS[1], ARGV[1])\nreturn {old, ARGV[1]}");

/// Long enough that a busy machine answers in time, for tests in which Redis does answer.
const LONG: Duration = PATIENCE;

fn link(urls: &[String], timeout: Duration) -> Link {
    trusting(urls, timeout, &config::Config::default().tls)
}

fn trusting(urls: &[String], timeout: Duration, tls: &config::Tls) -> Link {
    let urls: Vec<_> = urls.iter().map(|url| RedisUrl::read(url).expect("a sound URL")).collect();
    let connector = Trust::load(tls).expect("roots").without_alpn();
    Link::new(&urls, connector, timeout).expect("there is a URL")
}

/// A link to one server, connected.
async fn connected(url: String, timeout: Duration) -> Link {
    let link = link(&[url], timeout);
    join(&link).await.expect("it answers");
    link
}

async fn join(link: &Link) -> Result<(), LedgerError> {
    link.read_map().await?;
    for shard in link.map().shards() {
        link.connect(shard).await?;
    }
    Ok(())
}

async fn swap(link: &Link, key: &str, new: &str) -> Result<(Option<String>, String), LedgerError> {
    let answer = link.call(&SWAP, &[key], &[Arg::Text(new)]).await?;
    Ok(FromRedisValue::from_redis_value(answer).expect("two texts"))
}

/// Repeats until it succeeds, reconnecting as the owner of a link does.
async fn swap_at_last(link: &Link, key: &str, new: &str) -> (Option<String>, String) {
    let attempts = async {
        loop {
            let joined = join(link).await;
            match swap(link, key, new).await {
                Ok(answer) => return answer,
                Err(error) => drop((joined, error)),
            }
            tokio::time::sleep(ms(20)).await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, attempts).await.expect("it succeeds at last")
}

fn only(link: &Link) -> Arc<Shard> {
    link.map().shards()[0].clone()
}

#[tokio::test]
async fn a_script_is_loaded_when_redis_does_not_know_it() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), LONG).await;
    assert_eq!(swap(&link, "a", "1").await, Ok((None, "1".to_owned())));
    assert_eq!((redis.calls("evalsha"), redis.calls("eval")), (1, 1));
    assert_eq!(swap(&link, "a", "2").await, Ok((Some("1".to_owned()), "2".to_owned())));
    assert_eq!((redis.calls("evalsha"), redis.calls("eval")), (2, 1));
    redis.run::<()>(&["SCRIPT", "FLUSH"]);
    assert_eq!(swap(&link, "a", "3").await, Ok((Some("2".to_owned()), "3".to_owned())));
    assert_eq!((redis.calls("evalsha"), redis.calls("eval")), (3, 2));
}

#[tokio::test]
async fn calls_share_one_connection() {
    let redis = RedisServer::start();
    let link = Arc::new(connected(redis.url(), LONG).await);
    let before = redis.info("total_connections_received");
    let mut calls = JoinSet::new();
    for number in 0..200 {
        let link = link.clone();
        calls.spawn(async move { swap(&link, &format!("k{number}"), "x").await });
    }
    for call in calls.join_all().await {
        assert_eq!(call, Ok((None, "x".to_owned())));
    }
    let more: u64 = redis.info("total_connections_received").parse().expect("a number");
    // Each question of the test is a connection too.
    assert_eq!(more, before.parse::<u64>().expect("a number") + 1);
}

#[tokio::test]
async fn without_a_connection_a_call_fails_at_once() {
    let hole = Hole::refusing();
    let link = link(&[format!("redis://:hunter2@{}", hole.authority())], LONG);
    assert!(matches!(swap(&link, "a", "1").await, Err(LedgerError::Away(_))));
    let error = link.connect(&only(&link)).await.expect_err("nothing listens");
    assert!(matches!(error, LedgerError::Away(_)), "{error:?}");
    assert!(error.to_string().contains("refused") && !error.to_string().contains("hunter2"), "{error}");
    assert!(!format!("{link:?}").contains("hunter2"));
}

#[tokio::test]
async fn a_server_that_does_not_accept_is_given_up() {
    let hole = Hole::silent();
    let link = link(&[format!("redis://{}", hole.authority())], ms(100));
    let error = link.connect(&only(&link)).await.expect_err("nothing accepts");
    assert_eq!(error.word(), "away", "{error}");
}

#[tokio::test]
async fn a_stopped_server_is_slow_and_its_connection_dropped() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), ms(500)).await;
    swap_at_last(&link, "a", "1").await;
    redis.stop();
    // The first call may find its connection dropped already, by a deadline that the machine missed before the stop.
    join(&link).await.ok();
    assert!(matches!(swap(&link, "a", "2").await, Err(LedgerError::Slow | LedgerError::Away(_))));
    assert!(!only(&link).is_connected(), "a late answer would be taken for that of the next call");
    assert_eq!(swap(&link, "a", "3").await.map_err(|error| error.word()), Err("away"));
    redis.go_on();
    assert_eq!(swap_at_last(&link, "a", "4").await.1, "4");
}

#[tokio::test]
async fn a_slow_wire_ends_in_slow() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let link = connected(relay.url(), ms(500)).await;
    relay.slow(PATIENCE);
    assert_eq!(swap(&link, "a", "1").await, Err(LedgerError::Slow));
    assert!(!only(&link).is_connected());
    relay.cut();
    relay.mend();
    assert_eq!(swap_at_last(&link, "a", "2").await.1, "2");
}

#[tokio::test]
async fn a_cut_wire_and_a_killed_server_are_away() {
    let mut redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let link = connected(relay.url(), LONG).await;
    relay.cut();
    assert_eq!(swap(&link, "a", "1").await.map_err(|error| error.word()), Err("away"));
    assert!(join(&link).await.is_err() || swap(&link, "a", "1").await.is_err());
    relay.mend();
    swap_at_last(&link, "a", "2").await;
    redis.save();
    swap_at_last(&link, "a", "3").await;
    redis.kill();
    assert_eq!(swap(&link, "a", "4").await.map_err(|error| error.word()), Err("away"));
    redis.restart();
    assert_eq!(swap_at_last(&link, "a", "5").await, (Some("2".to_owned()), "5".to_owned()), "the snapshot is older");
    redis.restart_empty();
    assert_eq!(swap_at_last(&link, "a", "6").await, (None, "6".to_owned()));
}

#[tokio::test]
async fn a_password_is_needed_or_wrong() {
    let redis = RedisServer::with(&["--requirepass", "hunter2"]);
    assert_eq!(swap(&connected(redis.url(), LONG).await, "a", "1").await, Ok((None, "1".to_owned())));
    let without = link(&[format!("redis://127.0.0.1:{}", redis.port())], LONG);
    join(&without).await.expect("it is asked for with the first command");
    assert_eq!(swap(&without, "a", "2").await, Err(LedgerError::WrongPassword));
    assert!(!only(&without).is_connected());
    for login in [":swordfish", "crawler:hunter2"] {
        let wrong = link(&[format!("redis://{login}@127.0.0.1:{}", redis.port())], LONG);
        let error = join(&wrong).await.expect_err("the login is wrong");
        assert_eq!(error, LedgerError::WrongPassword);
        assert!(!error.to_string().contains("swordfish") && !error.to_string().contains("hunter2"));
    }
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let redis = RedisServer::start();
    let rights = ["on", ">secret", "~*", "-@all", "+evalsha", "+eval", "+get"];
    redis.run::<()>(&[&["ACL", "SETUSER", "clerk"], &rights[..]].concat());
    redis.run::<()>(&["ACL", "SETUSER", "guest", "on", ">secret", "~*", "-@all", "+ping"]);
    let port = redis.port();
    let clerk = connected(format!("redis://clerk:secret@127.0.0.1:{port}"), LONG).await;
    let guest = connected(format!("redis://guest:secret@127.0.0.1:{port}"), LONG).await;
    let inside = swap(&clerk, "a", "1").await.expect_err("SET is not allowed");
    assert!(
        matches!(&inside, LedgerError::NoPermission(told) if told.contains("can't run this command")),
        "{inside:?}"
    );
    let outside = swap(&guest, "a", "1").await.expect_err("EVALSHA is not allowed");
    assert!(matches!(&outside, LedgerError::NoPermission(told) if told.contains("evalsha")), "{outside:?}");
    redis.run::<()>(&["ACL", "SETUSER", "clerk", "+set"]);
    assert_eq!(swap(&clerk, "a", "1").await, Ok((None, "1".to_owned())), "the same connection has the new right");
}

#[tokio::test]
async fn a_full_server_and_a_replica_refuse_to_write() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), LONG).await;
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(swap(&link, "a", "1").await, Err(LedgerError::OutOfMemory));
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    swap_at_last(&link, "a", "1").await;

    let master = RedisServer::start();
    redis.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    assert_eq!(swap(&link, "a", "2").await, Err(LedgerError::Readonly));
    assert!(!only(&link).is_connected(), "the next connection may lead to the master");
    redis.run::<()>(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(swap_at_last(&link, "a", "3").await.1, "3");
}

#[tokio::test]
async fn a_busy_or_failing_server_is_unready() {
    let redis = RedisServer::with(&["--min-replicas-to-write", "1"]);
    let link = connected(redis.url(), LONG).await;
    let error = swap(&link, "a", "1").await.expect_err("there is no replica");
    assert!(matches!(&error, LedgerError::Unready(told) if told.starts_with("NOREPLICAS")), "{error:?}");
    redis.run::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    assert_eq!(swap(&link, "a", "1").await, Ok((None, "1".to_owned())), "the connection is kept");
}

#[tokio::test]
async fn other_errors_and_other_protocols_are_told() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), LONG).await;
    redis.run::<()>(&["LPUSH", "list", "x"]);
    let error = swap(&link, "list", "1").await.expect_err("GET of a list");
    assert!(matches!(&error, LedgerError::Protocol(told) if told.contains("WRONGTYPE")), "{error:?}");

    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has free ports");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        let (mut visitor, _) = listener.accept().expect("a visitor");
        visitor.read_exact(&mut [0; 4]).expect("a command");
        visitor.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("it listens");
    });
    let stranger = connected(format!("redis://{address}"), LONG).await;
    let error = swap(&stranger, "a", "1").await.expect_err("this is not Redis");
    assert!(matches!(error, LedgerError::Protocol(_)), "{error:?}");
}

#[tokio::test]
async fn tls_is_verified_by_curtsys_own_roots() {
    let authority = Authority::new();
    let redis = RedisServer::tls(&authority);
    let urls = [format!("rediss://localhost:{}", redis.port())];
    let mut tls = config::Config::default().tls;
    let stranger = trusting(&urls, LONG, &tls);
    let error = join(&stranger).await.expect_err("an unknown authority");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");
    tls.extra_roots = vec![authority.file()];
    let known = trusting(&urls, LONG, &tls);
    join(&known).await.expect("it is trusted");
    assert_eq!(swap(&known, "a", "1").await, Ok((None, "1".to_owned())));
    let plain = link(&[format!("redis://localhost:{}", redis.port())], LONG);
    assert!(join(&plain).await.is_err() || swap(&plain, "a", "1").await.is_err());
}

#[tokio::test]
async fn a_database_is_chosen() {
    let redis = RedisServer::start();
    let link = connected(format!("{}/3", redis.url()), LONG).await;
    swap_at_last(&link, "a", "1").await;
    assert!(redis.run::<String>(&["INFO", "keyspace"]).contains("db3:keys=1"));
}

#[tokio::test]
async fn a_sentinel_names_the_master_before_and_after_a_failover() {
    let mut set = SentinelSet::start();
    let link = connected(set.url(), LONG).await;
    assert_eq!(swap(&link, "a", "1").await, Ok((None, "1".to_owned())));
    assert_eq!(set.master.run::<String>(&["GET", "a"]), "1");
    let copied = || set.replica.run::<Option<String>>(&["GET", "a"]).as_deref() == Some("1");
    assert!(soon(copied), "the replica has the key");
    set.fail_over();
    assert_eq!(swap_at_last(&link, "a", "2").await, (Some("1".to_owned()), "2".to_owned()));
    assert_eq!(set.replica.run::<String>(&["GET", "a"]), "2");
}

#[tokio::test]
async fn a_sentinel_that_is_gone_or_knows_no_such_master() {
    let set = SentinelSet::start();
    let hole = Hole::refusing();
    let gone = format!("redis+sentinel://{}/mymaster", hole.authority());
    let link_by_second = link(&[gone.clone(), set.url()], LONG);
    join(&link_by_second).await.expect("the second Sentinel answers");
    assert_eq!(join(&link(&[gone], LONG)).await.expect_err("none answers").word(), "away");
    let other = set.url().replace("mymaster", "yourmaster");
    let error = join(&link(&[other], LONG)).await.expect_err("there is no such master");
    assert!(error.to_string().contains("no master named \"yourmaster\""), "{error}");
}

#[tokio::test]
async fn a_cluster_is_asked_where_the_key_is() {
    let cluster = RedisCluster::start();
    let link = link(&cluster.urls()[..2], LONG);
    join(&link).await.expect("it is whole");
    assert_eq!(link.map().shards().len(), 3, "the third master was found");
    for bucket in 0..64 {
        let key = format!("curtsy:{{{bucket:03x}}}:h:example.com");
        assert_eq!(swap(&link, &key, "1").await, Ok((None, "1".to_owned())));
    }
    let keys = |server: &RedisServer| server.run::<u64>(&["DBSIZE"]);
    let counts: Vec<u64> = cluster.servers.iter().map(keys).collect();
    assert_eq!(counts.iter().sum::<u64>(), 64);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(cluster.servers.iter().all(|server| server.info("unexpected_error_replies") == "0"), "no redirection");
}

#[tokio::test]
async fn one_address_of_a_cluster_is_not_enough() {
    let cluster = RedisCluster::start();
    let link = connected(cluster.servers[0].url(), LONG).await;
    // Slot 12182, which is the third server's.
    let error = swap(&link, "foo", "1").await.expect_err("another server has this key");
    assert!(error.to_string().contains("name two or more of its servers"), "{error}");
}

#[tokio::test]
async fn a_slot_that_moves_is_followed() {
    let cluster = RedisCluster::start();
    let link = link(&cluster.urls(), LONG);
    join(&link).await.expect("it is whole");
    let slot = 12_182;
    swap(&link, "{foo}old", "1").await.expect("the third server has it");
    cluster.begin_move(slot, 2, 0);
    assert_eq!(swap(&link, "{foo}new", "2").await, Ok((None, "2".to_owned())), "ASK leads to the first server");
    assert_eq!(swap(&link, "{foo}old", "2").await, Ok((Some("1".to_owned()), "2".to_owned())), "still at the third");
    let to = cluster.servers[0].port().to_string();
    cluster.servers[2].run::<()>(&["MIGRATE", "127.0.0.1", &to, "{foo}old", "0", "5000"]);
    cluster.end_move(slot, 0);
    assert_eq!(swap(&link, "{foo}old", "3").await, Ok((Some("2".to_owned()), "3".to_owned())), "MOVED is followed");
    assert_eq!(swap(&link, "{foo}new", "4").await, Ok((Some("2".to_owned()), "4".to_owned())));
}

#[tokio::test]
async fn a_cluster_fails_over_one_shard_at_a_time() {
    let mut cluster = RedisCluster::with_replicas();
    let link = link(&cluster.urls(), ms(2000));
    join(&link).await.expect("it is whole");
    let before = link.map();
    assert_eq!(swap(&link, "foo", "1").await, Ok((None, "1".to_owned())));
    assert_eq!(swap(&link, "bar", "1").await, Ok((None, "1".to_owned())));
    let lost = before.of_key("foo").expect("a shard").id;
    cluster.servers[2].kill();
    assert_eq!(swap(&link, "foo", "2").await.map_err(|error| error.word()), Err("away"));
    assert_eq!(swap(&link, "bar", "2").await.map(|answer| answer.1), Ok("2".to_owned()), "the others answer meanwhile");
    assert_eq!(swap_at_last(&link, "foo", "3").await.1, "3");
    assert_ne!(link.map().of_key("foo").expect("a shard").id, lost, "another server is another shard");
    let kept = |key| link.map().of_key(key).expect("a shard").id == before.of_key(key).expect("a shard").id;
    assert!(kept("bar"));
}

#[tokio::test]
async fn a_plain_command_is_answered() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), LONG).await;
    assert_eq!(link.ask("", &redis::cmd("PING")).await, Ok(Value::SimpleString("PONG".to_owned())));
    assert!(link.ask_shard(&only(&link), &redis::cmd("TIME")).await.is_ok());
}

#[tokio::test]
async fn nodes_are_listed_with_what_they_tell() {
    let redis = RedisServer::start();
    let link = connected(redis.url(), LONG).await;
    assert_eq!(view::nodes(&link, "shop").await, Ok(Vec::new()));
    let [seconds, micros]: [u64; 2] = redis.run::<Vec<u64>>(&["TIME"]).try_into().expect("two numbers");
    let ago = |age_s: u64| (seconds * 1_000_000 + micros - age_s * 1_000_000).to_string();
    for (node, joined, heard) in [("a", 100, 0), ("b", 50, 30)] {
        redis.run::<()>(&["ZADD", "shop:{000}:nodes", &ago(joined), node]);
        redis.run::<()>(&["ZADD", "shop:{000}:beats", &ago(heard), node]);
    }
    let card = NodeCard { name: "desk".to_owned(), state: "joined".to_owned(), waiting: 7, ..NodeCard::default() };
    view::announce(&link, "shop", "a", &card).await.expect("it answers");
    let nodes = view::nodes(&link, "shop").await.expect("it answers");
    let told: Vec<_> = nodes.iter().map(|node| (node.id.as_str(), node.joined.as_secs() >= 50, &node.card)).collect();
    assert_eq!(told, [("a", true, &Some(card)), ("b", true, &None)]);
    assert!(nodes[1].is_missing());
    assert!(redis.run::<i64>(&["PTTL", "shop:{fleet}:n:a"]) > 0, "the card of a dead node ends");
    assert_eq!(view::forget(&link, "shop", "b").await, Ok(true));
    assert_eq!(view::forget(&link, "shop", "b").await, Ok(false));
    assert_eq!(view::nodes(&link, "shop").await.expect("it answers").len(), 1);
}

#[tokio::test]
async fn a_node_is_forgotten_by_every_server_of_a_cluster() {
    let cluster = RedisCluster::start();
    let link = link(&cluster.urls(), LONG);
    join(&link).await.expect("it is whole");
    // The lowest bucket of each server, found by asking the servers themselves.
    let mut seen = Vec::new();
    for bucket in 0..1024 {
        let key = format!("shop:{{{bucket:03x}}}:nodes");
        let place = link.map().of_key(&key).expect("a shard").id;
        if !seen.contains(&place) {
            seen.push(place);
            for name in [key.clone(), key.replace("nodes", "beats")] {
                let mut command = redis::cmd("ZADD");
                command.arg(&name).arg(1).arg("a");
                link.ask(&name, &command).await.expect("it answers");
            }
        }
    }
    assert_eq!(seen.len(), 3);
    assert_eq!(view::forget(&link, "shop", "a").await, Ok(true));
    assert!(cluster.servers.iter().all(|server| server.run::<u64>(&["DBSIZE"]) == 0));
}
