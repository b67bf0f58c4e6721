//! `curtsy fleet`, its API, `/readyz` and the metrics of a fleet, with two real nodes and a real Redis.

use serde_json::Value;

use crate::support::program::run;
use crate::support::redis::RedisServer;
use crate::support::schema::{document, problems};
use crate::support::{Client, Message, Origin, Program, soon};

fn node(redis: &RedisServer, name: &str) -> Program {
    let top = format!("admin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\nname = \"{name}\"\n");
    Program::start(&top, &format!("[fleet]\nredis = \"{}\"\n", redis.url()))
}

fn ask(node: &Program, line: &str) -> Message {
    let lines = [&format!("{line} HTTP/1.1"), "Host: localhost", "Connection: close", "Content-Type: application/json"];
    Client::connect(node.admin()).ask(&lines)
}

fn fleet(node: &Program) -> Value {
    let answer = ask(node, "GET /api/v1/fleet");
    assert_eq!(answer.status(), 200, "{}", answer.text());
    let told = serde_json::from_slice(&answer.body).expect("JSON");
    let document = document();
    let schema = &document["components"]["schemas"]["Fleet"];
    assert_eq!(problems(&document, schema, &told), Vec::<String>::new(), "{told:#}");
    told
}

/// "front joined, back missing": the nodes with a name, in its order.
fn states(told: &Value) -> String {
    let nodes = told["nodes"].as_array().expect("a list").iter();
    let mut states: Vec<String> =
        nodes.filter_map(|node| Some(format!("{} {}", node["name"].as_str()?, node["state"].as_str()?))).collect();
    states.sort();
    states.join(", ")
}

fn command(node: &Program, words: &[&str]) -> (i32, String) {
    let admin = format!("http://{}", node.admin());
    run(&[&["fleet", "--admin", &admin], words].concat())
}

#[test]
fn nodes_see_each_other_and_one_that_was_killed_is_forgotten() {
    let redis = RedisServer::start();
    let (front, back) = (node(&redis, "front"), node(&redis, "back"));
    assert!(soon(|| states(&fleet(&front)) == "back joined, front joined"), "{:#}", fleet(&front));
    let (code, page) = command(&front, &[]);
    assert!(code == 0 && page.contains("from Redis") && page.contains("front") && page.contains("back"), "{page}");
    assert_eq!(front.metric("curtsy_fleet_alone"), 0);
    assert!(soon(|| front.metric("curtsy_fleet_nodes") == 2));
    assert_eq!(ask(&front, "GET /readyz").text(), "ready\nfleet: joined, 2 nodes\n");

    back.kill();
    assert!(soon(|| states(&fleet(&front)) == "back missing, front joined"), "{:#}", fleet(&front));
    assert!(soon(|| front.metric("curtsy_fleet_missing_nodes") == 1));
    let (code, page) = command(&front, &["forget", "nobody"]);
    assert!(code == 1 && page.contains("the fleet has no node \"nobody\""), "{code}: {page}");
    let (code, page) = command(&front, &["forget", "back"]);
    assert!(code == 0 && !page.contains("back"), "{code}: {page}");
    assert!(soon(|| front.metric("curtsy_fleet_nodes") == 1 && front.metric("curtsy_fleet_missing_nodes") == 0));
}

#[test]
fn a_host_is_shown_as_the_whole_fleet_sees_it() {
    let redis = RedisServer::start();
    let (front, back) = (node(&redis, "front"), node(&redis, "back"));
    assert!(soon(|| front.metric("curtsy_fleet_joined") == 1 && back.metric("curtsy_fleet_joined") == 1));
    let origin = Origin::hello();
    assert_eq!(back.get(&origin.url("/")).status(), 200);
    let explained = || {
        let path = format!("GET /api/v1/explain?url=http://{}/", origin.authority());
        serde_json::from_slice::<Value>(&ask(&front, &path).body).expect("JSON")
    };
    assert_eq!(front.get(&origin.url("/")).status(), 200);
    let told = explained();
    let fleet = &told["known"]["fleet"];
    assert_eq!(fleet["from"], "redis", "{told:#}");
    assert!(fleet["last_start_s"].as_f64().is_some_and(|seconds| seconds < 60.0), "{told:#}");
    let admin = format!("http://{}", front.admin());
    let (_, page) = run(&["host", "127.0.0.1", "--admin", &admin]);
    assert!(page.contains("from Redis: last start of any node"), "{page}");
    let (_, page) = run(&["hosts", "--admin", &admin]);
    assert!(page.contains("turns are shared with a fleet: from Redis"), "{page}");
    drop(redis);
    assert!(soon(|| explained()["known"]["fleet"]["from"] == "this node alone"));
    let (_, page) = run(&["host", "127.0.0.1", "--admin", &admin]);
    assert!(page.contains("this node alone: Redis does not answer"), "{page}");
}

#[test]
fn a_clean_stop_leaves_the_fleet() {
    let redis = RedisServer::start();
    let (front, back) = (node(&redis, "front"), node(&redis, "back"));
    assert!(soon(|| front.metric("curtsy_fleet_nodes") == 2));
    back.stop();
    assert!(soon(|| front.metric("curtsy_fleet_nodes") == 1));
    assert_eq!(front.metric("curtsy_fleet_missing_nodes"), 0);
}

#[test]
fn a_node_without_redis_says_so_everywhere() {
    let mut redis = RedisServer::start();
    let front = node(&redis, "front");
    assert!(soon(|| states(&fleet(&front)) == "front joined"));
    redis.kill();
    assert!(soon(|| ask(&front, "GET /readyz").text().contains("Redis cannot be reached")));
    assert_eq!(ask(&front, "GET /readyz").status(), 200, "it accepts requests");
    let (code, page) = command(&front, &[]);
    assert!(code == 1 && page.contains("this node alone for ") && page.contains("Redis cannot be reached"), "{page}");
    assert_eq!(front.metric("curtsy_fleet_alone"), 1);
    assert!(front.metric("curtsy_fleet_errors_total{error=\"away\"}") > 0);
    assert!(front.event("fleet.alone").is_some());
    assert_eq!(ask(&front, "DELETE /api/v1/fleet/back").status(), 503);
    redis.restart();
    assert!(soon(|| ask(&front, "GET /readyz").text() == "ready\nfleet: joined, 1 node\n"));
    assert!(soon(|| front.metric("curtsy_fleet_alone") == 0));
}

#[test]
fn without_a_fleet_it_says_so() {
    let single = Program::start("admin = \"127.0.0.1:0\"\n", "");
    assert_eq!(fleet(&single)["from"], "no fleet");
    let (code, page) = command(&single, &[]);
    assert!(code == 1 && page.contains("belongs to no fleet"), "{page}");
    assert_eq!(ask(&single, "DELETE /api/v1/fleet/x").status(), 404);
    assert_eq!(single.metric("curtsy_fleet_nodes"), 0);
}
