//! The way to Redis is slow or cut for all nodes, and Redis' clock is set.

use super::*;
use crate::support::relay::Relay;
use crate::support::{ms, pause};

const DELAY: Duration = ms(250);

/// Nodes that reach Redis through one network.
fn behind(relay: &Relay, nodes: usize) -> TestFleet {
    TestFleet::start(&relay.url(), nodes, DELAY)
}

#[test]
fn the_network_is_cut_for_all() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let fleet = behind(&relay, 3);
    let work = fleet.work(2);
    work.expect_served(4);
    for _ in 0..2 {
        relay.cut();
        fleet.expect_states("alone");
        work.expect_served(4);
        relay.mend();
        fleet.expect_states("joined");
        work.expect_served(4);
    }
    work.end();
    fleet.expect_distance();
}

/// Answers that take long count as no answer.
#[test]
fn the_network_is_too_slow() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let fleet = behind(&relay, 3);
    let work = fleet.work(2);
    work.expect_served(4);
    relay.slow(Duration::from_secs(2));
    fleet.expect_states("alone");
    work.expect_served(4);
    for node in &fleet.nodes {
        let told = node.event("fleet.alone").expect("logged");
        assert_eq!(told["cause"], "slow", "{told}");
    }
    // What is under way comes late, and grants nothing.
    relay.mend();
    fleet.expect_states("joined");
    work.expect_served(6);
    work.end();
    fleet.expect_distance();
}

/// A Redis in another building: 12 ms there and back, then 40 ms.
#[test]
fn redis_is_far_away() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    let fleet = behind(&relay, 3);
    let work = fleet.work(2);
    for one_way in [6, 20] {
        relay.slow(ms(one_way));
        work.expect_served(12);
    }
    work.end();
    fleet.expect_distance();
}

/// One node is near, the other is far: neither comes too early, and neither starves.
#[test]
fn one_node_is_far_from_redis() {
    let redis = RedisServer::start();
    let relay = Relay::to(redis.port());
    relay.slow(ms(10));
    let fleet = TestFleet::of(&[redis.url(), relay.url()], DELAY, Origin::scripted(hello));
    let work = fleet.work(2);
    work.expect_served(20);
    work.end();
    fleet.expect_distance();
    let starts: Vec<u64> = fleet.nodes.iter().map(|node| node.metric("curtsy_fleet_claims_total")).collect();
    assert!(starts.iter().all(|starts| *starts > 2), "{starts:?}");
}

/// The clock of Redis decides about turns. After it was set, a host waits one delay, once.
#[test]
fn the_clock_of_redis_is_set() {
    let redis = RedisServer::with_clock();
    let time = || redis.run::<Vec<u64>>(&["TIME"])[0];
    let before = time();
    redis.set_clock(3600);
    assert!(soon(|| time() >= before + 3600), "faketime has no effect");
    let fleet = TestFleet::start(&redis.url(), 3, DELAY);
    let work = fleet.work(2);
    work.expect_served(4);
    for offset in [3601, 3599, 3620, 3500, 7200, -86_400, 0] {
        redis.set_clock(offset);
        work.expect_served(4);
    }
    fleet.expect_states("joined");
    work.end();
    fleet.expect_distance();
    let late: u64 = fleet.nodes.iter().map(|node| node.metric("curtsy_spacing_violations_total")).sum();
    assert_eq!(late, 0, "curtsy's own audit");
}

/// The clock is set while Redis hangs, so that no answer shows the moment.
#[test]
fn the_clock_of_redis_is_set_while_it_hangs() {
    let redis = RedisServer::with_clock();
    let fleet = TestFleet::start(&redis.url(), 2, DELAY);
    let work = fleet.work(2);
    for offset in [5, -5, 0] {
        work.expect_served(4);
        redis.stop();
        redis.set_clock(offset);
        pause(ms(150));
        redis.go_on();
        work.expect_served(4);
    }
    fleet.expect_states("joined");
    work.end();
    fleet.expect_distance();
}
