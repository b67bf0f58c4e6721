//! Several curtsys that share one budget per host through a real Redis, judged by an origin with kernel timestamps.
//!
//! Never early is strict: no fault may make two starts come closer than the delay. Late is loose.

mod faults;
mod scripts;
mod servers;
mod sharing;
mod spacing;
mod traffic;
mod wires;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::support::deadline::within;
use crate::support::redis::RedisServer;
use crate::support::{Client, HELLO, Origin, Program, ROOM, Visitor, gaps, soon};

/// The nodes of a fleet and an origin that all of them visit.
struct TestFleet {
    nodes: Vec<Program>,
    origin: Origin,
    delay: Duration,
}

/// Starts a node. `redis` is a URL, or a list of them as TOML.
fn start_node(redis: &str, delay: Duration, tables: &str) -> Program {
    start_node_with(redis, delay, "", tables)
}

fn start_node_with(redis: &str, delay: Duration, more: &str, tables: &str) -> Program {
    let redis = if redis.starts_with('[') { redis.to_owned() } else { format!("\"{redis}\"") };
    let top = format!(
        "admin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\npoliteness.delay = \"{}ms\"\nfleet.redis = {redis}\n\
         responses.headers = \"full\"\ncache.mode = \"off\"\n{more}",
        delay.as_millis()
    );
    Program::start(&top, tables)
}

impl TestFleet {
    fn start(redis: &str, nodes: usize, delay: Duration) -> Self {
        Self::of(&vec![redis.to_owned(); nodes], delay, Origin::scripted(hello))
    }

    /// One node for each URL.
    fn of(urls: &[String], delay: Duration, origin: Origin) -> Self {
        let nodes: Vec<Program> = urls.iter().map(|url| start_node(url, delay, "")).collect();
        let fleet = TestFleet { nodes, origin, delay };
        fleet.expect_states("joined");
        fleet
    }

    fn expect_states(&self, state: &str) {
        for node in &self.nodes {
            assert!(within(PATIENT, || has_state(node, state)), "not {state}: {:#?}", node.stderr());
        }
    }

    /// Keeps clients busy at every node until the work is stopped.
    fn work(&self, clients: usize) -> Work {
        let mut work = Work::default();
        work.ask(&self.nodes, clients, &self.origin.url("/"));
        work
    }

    fn times(&self) -> Vec<Duration> {
        times(&self.origin)
    }

    #[track_caller]
    fn expect_distance(&self) {
        expect_distance(&self.origin, self.delay);
    }
}

/// When requests arrived at an origin, from the first on.
fn times(origin: &Origin) -> Vec<Duration> {
    let requests = origin.requests(origin.count());
    let first = requests.first().map(|request| request.at);
    requests.iter().map(|request| request.at - first.expect("there is one")).collect()
}

/// Returns the gaps that are too short.
fn short_gaps(origin: &Origin, delay: Duration) -> Vec<Duration> {
    gaps(&times(origin)).into_iter().filter(|gap| *gap + ROOM < delay).collect()
}

#[track_caller]
fn expect_distance(origin: &Origin, delay: Duration) {
    let short = short_gaps(origin, delay);
    assert!(short.is_empty(), "{delay:?} are due, but there were {short:?} in {} starts", origin.count());
}

/// A busy machine misses windows, and each costs a delay.
const PATIENT: Duration = Duration::from_secs(120);

fn hello(visitor: &mut Visitor) {
    while visitor.request().is_some() {
        visitor.send(HELLO.as_bytes());
    }
}

/// Whether the last state that the node has logged is this one.
fn has_state(node: &Program, state: &str) -> bool {
    let lines = node.stderr();
    let is_state = |line: &&String| line.contains("fleet.state") || line.contains("fleet.alone");
    let Some(line) = lines.iter().rev().find(is_state) else { return false };
    if state == "alone" { line.contains("fleet.alone") } else { line.contains(&format!("\"state\":\"{state}\"")) }
}

/// Clients that ask again and again.
#[derive(Default)]
struct Work {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicU64>,
    refused: Arc<AtomicU64>,
    alone: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Work {
    /// Adds so many clients at each node.
    fn ask(&mut self, nodes: &[Program], clients: usize, url: &str) {
        for node in nodes {
            for _ in 0..clients {
                let client = self.client(node, url.to_owned());
                self.threads.push(client);
            }
        }
    }

    fn client(&self, node: &Program, url: String) -> JoinHandle<()> {
        let address = node.address();
        let (stop, served, refused) = (self.stop.clone(), self.served.clone(), self.refused.clone());
        let alone = self.alone.clone();
        thread::spawn(move || {
            while !stop.load(Relaxed) {
                let mut client = Client::connect(address);
                client.patience(PATIENT);
                let answer = client.ask(&[&format!("GET {url} HTTP/1.1"), "Host: ignored.test"]);
                let is_alone = answer.values("curtsy").iter().any(|field| field.contains("fleet=alone"));
                alone.fetch_add(u64::from(is_alone), Relaxed);
                let count = if answer.line().contains(" 200 ") { &served } else { &refused };
                count.fetch_add(1, Relaxed);
            }
        })
    }

    /// Waits for so many more answers.
    fn expect_served(&self, more: u64) {
        let before = self.served.load(Relaxed);
        assert!(within(PATIENT, || self.served.load(Relaxed) >= before + more), "nothing is served any more");
    }

    fn end(self) {
        self.stop.store(true, Relaxed);
        self.threads.into_iter().for_each(|thread| thread.join().expect("every request is answered"));
    }
}

/// How often a node has claimed, by the reads of a claim that Redis counts.
fn claims(redis: &RedisServer) -> u64 {
    redis.calls("hmget")
}

fn restarted(redis: &mut RedisServer) {
    redis.restart_empty();
    assert!(soon(|| redis.try_run::<String>(&["PING"]).is_ok()));
}

/// A script that reads a field of the only host.
fn reading(field: &str) -> String {
    format!("return redis.call('HGET', redis.call('KEYS', '*:h:*')[1], '{field}')")
}
