//! What happens to a fleet: Redis hangs, dies, forgets or refuses, and nodes stop, die or are cut off.
//!
//! Each fault happens while clients wait at every node. Every request is answered, no two starts come too close, and
//! afterwards the fleet is joined again.

use super::*;
use crate::support::relay::Relay;
use crate::support::{ms, pause};

const DELAY: Duration = ms(250);

/// Runs clients before, during and after a fault.
fn survive(nodes: usize, fault: impl FnOnce(&mut RedisServer, &TestFleet, &Work)) -> TestFleet {
    let mut redis = RedisServer::start();
    let fleet = TestFleet::start(&redis.url(), nodes, DELAY);
    let work = fleet.work(2);
    work.expect_served(4);
    fault(&mut redis, &fleet, &work);
    fleet.expect_states("joined");
    work.expect_served(6);
    work.end();
    fleet.expect_distance();
    fleet
}

#[test]
fn redis_is_killed_and_comes_back_empty() {
    survive(3, |redis, fleet, work| {
        redis.kill();
        fleet.expect_states("alone");
        work.expect_served(6);
        assert!(work.alone.load(Relaxed) > 0, "the Curtsy field does not say that the node is alone");
        restarted(redis);
    });
}

#[test]
fn redis_hangs() {
    survive(3, |redis, fleet, work| {
        redis.stop();
        fleet.expect_states("alone");
        work.expect_served(4);
        redis.go_on();
    });
}

#[test]
fn redis_comes_back_with_an_old_snapshot() {
    survive(2, |redis, fleet, work| {
        redis.save();
        work.expect_served(4);
        redis.kill();
        fleet.expect_states("alone");
        redis.restart();
    });
}

#[test]
fn redis_is_emptied_again_and_again() {
    survive(3, |redis, _, work| {
        for _ in 0..4 {
            redis.run::<()>(&["FLUSHALL"]);
            work.expect_served(2);
        }
    });
}

#[test]
fn the_scripts_are_forgotten() {
    let fleet = survive(3, |redis, _, work| {
        for _ in 0..3 {
            redis.run::<()>(&["SCRIPT", "FLUSH"]);
            work.expect_served(2);
        }
    });
    // On a busy machine a node may find Redis slow; that a script is unknown is no reason to go on alone.
    let causes = fleet.nodes.iter().filter_map(|node| node.event("fleet.alone"));
    causes.for_each(|told| assert_eq!(told["cause"], "slow", "a script is loaded again at once"));
}

/// A Redis that refuses makes nodes go on alone, with the cause in the log.
fn refuses(cause: &str, refuse: &[&[&str]], relent: &[&[&str]]) {
    survive(2, |redis, fleet, work| {
        refuse.iter().for_each(|command| redis.run::<()>(command));
        fleet.expect_states("alone");
        work.expect_served(2);
        for node in &fleet.nodes {
            let told = node.event("fleet.alone").expect("it was logged");
            assert_eq!(told["cause"], cause, "{told}");
        }
        relent.iter().for_each(|command| redis.run::<()>(command));
    });
}

#[test]
fn redis_becomes_a_replica() {
    refuses("readonly", &[&["REPLICAOF", "127.0.0.1", "1"]], &[&["REPLICAOF", "NO", "ONE"]]);
}

#[test]
fn redis_is_full() {
    refuses("out-of-memory", &[&["CONFIG", "SET", "maxmemory", "1"]], &[&["CONFIG", "SET", "maxmemory", "0"]]);
}

#[test]
fn a_right_is_missing() {
    let take: &[&str] = &["ACL", "SETUSER", "default", "-hmget", "-zadd"];
    refuses("no-permission", &[take], &[&["ACL", "SETUSER", "default", "+@all"]]);
}

#[test]
fn the_password_is_wrong() {
    let redis = RedisServer::with(&["--requirepass", "hunter2"]);
    let url = format!("redis://:wrong@127.0.0.1:{}", redis.port());
    let fleet = TestFleet {
        nodes: (0..2).map(|_| start_node(&url, DELAY, "")).collect(),
        origin: Origin::scripted(hello),
        delay: DELAY,
    };
    fleet.expect_states("alone");
    let log = fleet.nodes[0].stderr().join("\n");
    assert!(log.contains("wrong-password") && !log.contains("hunter2") && !log.contains(":wrong@"), "{log}");
    // Eight nodes are assumed, so a node starts every eighth turn.
    let answer = fleet.nodes[0].get(&fleet.origin.url("/"));
    assert!(answer.line().contains(" 200 "), "{}", answer.line());
}

#[test]
fn a_node_is_stopped_for_a_while() {
    survive(3, |_, fleet, work| {
        for _ in 0..3 {
            fleet.nodes[0].signal("STOP");
            pause(ms(700));
            fleet.nodes[0].signal("CONT");
            work.expect_served(2);
        }
    });
}

#[test]
fn a_node_is_killed_while_it_waits_for_its_turn() {
    let redis = RedisServer::start();
    let mut fleet = TestFleet::start(&redis.url(), 3, DELAY);
    let doomed = fleet.nodes.remove(0);
    let work = fleet.work(2);
    let url = fleet.origin.url("/");
    let mut client = doomed.client();
    client.send_head(&[&format!("GET {url} HTTP/1.1"), "Host: ignored.test"]);
    work.expect_served(3);
    doomed.kill();
    work.expect_served(8);
    work.end();
    fleet.expect_distance();
}

#[test]
fn one_node_is_cut_off_from_redis() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let fleet = TestFleet::of(&[relay.url(), redis.url(), redis.url()], DELAY, Origin::scripted(hello));
    let work = fleet.work(2);
    work.expect_served(4);
    relay.cut();
    assert!(within(PATIENT, || has_state(&fleet.nodes[0], "alone")), "{:#?}", fleet.nodes[0].stderr());
    work.expect_served(12);
    assert!(has_state(&fleet.nodes[1], "joined"), "the others go on");
    relay.mend();
    fleet.expect_states("joined");
    work.expect_served(6);
    work.end();
    fleet.expect_distance();
    assert!(fleet.nodes[0].event("fleet.alone").is_some());
}
