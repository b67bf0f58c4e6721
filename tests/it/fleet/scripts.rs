//! The scripts against the pure ledger: the same calls must get the same answers.

use curtsy::config::{self, RedisUrl};
use curtsy::ledger::link::{Arg, LedgerError, Link};
use curtsy::ledger::words;
use curtsy::politeness::fleet::calls::{Claim, Go, NotUntil, Obstacle, Ruling, Settlement, Steered, Told, UnusedTurn};
use curtsy::politeness::fleet::shared::Shared;
use curtsy::politeness::fleet::slots::Slots;
use curtsy::upstream::Trust;

use crate::support::PATIENCE;
use crate::support::redis::RedisServer;

const FLEET: &str = "test";
const NOW: u64 = 1_700_000_000_000_000;

/// Both ledgers, which are asked alike.
struct Both {
    pure: Shared,
    link: Link,
    /// What the last claim was told about the successes of all nodes.
    successes: u64,
}

impl Both {
    async fn new(redis: &RedisServer) -> Self {
        let url = RedisUrl::read(&redis.url()).expect("a sound URL");
        let trust = Trust::load(&config::Config::default().tls).expect("roots");
        let link = Link::new(&[url], trust.without_alpn(), PATIENCE).expect("there is a URL");
        link.connect(&link.map().shards()[0]).await.expect("it answers");
        Both { pure: Shared::named(1), link, successes: 0 }
    }

    #[track_caller]
    fn agree<T: PartialEq + std::fmt::Debug>(pure: &T, redis: T, call: &impl std::fmt::Debug) -> T {
        assert_eq!(*pure, redis, "pure and Redis after {call:?}");
        redis
    }

    async fn claim(&mut self, host: &str, claim: &Claim, now: u64) -> Ruling {
        let keys = [words::host_key(FLEET, host), words::era_key(FLEET, "all")];
        // All hosts share one era, as the pure ledger has one bucket.
        let keys = [format!("{{all}}{}", keys[0]), format!("{{all}}{}", keys[1])];
        let args = words::claim_args(claim, Some(now));
        let answer = self.link.call(&words::CLAIM, &[&keys[0], &keys[1]], &args).await.expect("an answer");
        let redis = words::read_answer(answer).expect("a sound answer");
        let pure = self.pure.claim(host, claim, now);
        assert_eq!((redis.now, claim.name, redis.successes), (now, redis.name > 0, pure.successes));
        self.successes = redis.successes;
        Self::agree(&pure.ruling, redis.ruling, claim)
    }

    fn key(host: &str) -> String {
        format!("{{all}}{}", words::host_key(FLEET, host))
    }

    async fn settle(&mut self, host: &str, settled: &Settlement) {
        self.link.call(&words::SETTLE, &[&Self::key(host)], &words::settle_args(settled)).await.expect("an answer");
        self.pure.settle(host, settled);
    }

    async fn stay(&mut self, host: &str, place: u64, now: u64) {
        let args = [words::number(now), words::number(place), words::number(60_000)];
        self.link.call(&words::STAY, &[&Self::key(host)], &args).await.expect("an answer");
        self.pure.stay(host, place, now);
    }

    async fn tell(&mut self, host: &str, told: &Told) {
        let answer = self.link.call(&words::TELL, &[&Self::key(host)], &words::tell_args(told)).await;
        let redis = words::read_told(answer.expect("an answer")).expect("a sound answer");
        Self::agree(&self.pure.tell(host, told), redis, told);
    }

    async fn steer(&mut self, host: &str, steered: &Steered, now: u64) {
        let answer = self.link.call(&words::STEER, &[&Self::key(host)], &words::steer_args(steered, Some(now))).await;
        assert!(
            matches!(answer, Ok(redis::Value::Int(version)) if version as u64 == self.pure.steer(host, steered, now))
        );
    }

    async fn beat(&mut self, node: &str, now: u64) {
        let keys = words::node_keys(FLEET, 0);
        let layout = words::number(words::LAYOUT);
        let args = [words::number(now), words::number(now), Arg::Text(node), words::number(0), layout];
        let answer = self.link.call(&words::BEAT, &[&keys[0], &keys[1], &keys[2]], &args).await.expect("an answer");
        let mut redis = words::read_beat(answer).expect("a sound answer").expect("in time");
        redis.name = 1;
        Self::agree(&self.pure.beat(node, false, now), redis, &node);
    }
}

fn claim() -> Claim {
    Claim { until: u64::MAX / 4, delay: 1_000_000, window: 5_000, early: 12_000, keep_ms: 120_000, ..Claim::default() }
}

fn go(ruling: Ruling) -> Go {
    match ruling {
        Ruling::Go(go) => go,
        other => panic!("{other:?}"),
    }
}

fn wait(ruling: Ruling) -> NotUntil {
    match ruling {
        Ruling::NotUntil(told) => told,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_table_of_cases() {
    let redis = RedisServer::start();
    let mut both = Both::new(&redis).await;
    // A bucket without a memory counts every host as visited 100 ms from now.
    let told = wait(both.claim("a", &claim(), NOW).await);
    assert_eq!((told.at, told.number, told.line, told.why), (NOW + 1_100_000, 1, 0, Obstacle::Delay));
    let later = NOW + 10_000_000;
    // A free host starts at once, and is counted as sent at the end of its window.
    let first = go(both.claim("a", &Claim { number: 1, ..claim() }, later).await);
    assert_eq!((first.start, first.number, first.line), (later, 0, 0));
    // Two nodes that come too early get numbers, a delay and a window apart.
    let second = wait(both.claim("a", &claim(), later + 1).await);
    let third = wait(both.claim("a", &claim(), later + 2).await);
    assert_eq!((second.at, second.number), (later + 1_005_000, 2));
    assert_eq!((third.at, third.number, third.line), (later + 2_010_000, 3, 1));
    // The number that is up gets its turn, a little ahead, and the next one with it.
    let start = later + 1_005_000;
    let granted = go(both.claim("a", &Claim { number: 2, more: true, ..claim() }, start - 8_000).await);
    assert_eq!((granted.start, granted.number, granted.at, granted.line), (start, 4, start + 2_010_000, 1));
    // A missed window is handed back in the next claim, and keeps its place.
    let unused = Some(UnusedTurn { end: start + 5_000, before: granted.before });
    let again = go(both.claim("a", &Claim { number: 4, unused, ..claim() }, start + 9_000).await);
    assert_eq!((again.start, again.number), (start + 9_000, 4));
    // A hold and a pause are looked at in every claim.
    both.tell("a", &Told { held: start + 9_000_000, ..Told::default() }).await;
    let held = wait(both.claim("a", &Claim { number: 3, ..claim() }, start + 3_000_000).await);
    assert_eq!((held.at, held.why), (start + 9_000_000, Obstacle::Hold));
    let paused =
        Steered { closed: Some(start + 20_000_000), overrides: Some("5 - -".to_owned()), ..Steered::default() };
    both.steer("a", &paused, start + 3_000_000).await;
    let Ruling::News(news) = both.claim("a", &claim(), start + 3_000_000).await else { panic!("a new version") };
    assert_eq!((news.version, news.overrides.as_str()), (1, "5 - -"));
    let told = wait(both.claim("a", &Claim { version: 1, number: 3, ..claim() }, start + 3_000_000).await);
    assert_eq!((told.at, told.why), (start + 20_000_000, Obstacle::Pause));
    // A claim that lay in a socket changes nothing.
    let stale = Claim { until: start, ..claim() };
    assert_eq!(both.claim("a", &stale, start + 1).await, Ruling::TooLate);
    // Doubt counts as a visit; slots of missing nodes are left to them; a returning node keeps to its own.
    let now = NOW + 60_000_000;
    assert_eq!(wait(both.claim("b", &Claim { doubt: now, ..claim() }, now).await).at, now + 1_000_000);
    both.claim("c", &Claim { missing: vec![1, 2], nodes: 4, ..claim() }, now).await;
    both.claim("d", &Claim { mine: Some(Slots { rank: 2, nodes: 3 }), ..claim() }, now).await;
    // Nodes join in order, and are missing after a silence.
    for (node, at) in [("x", 0), ("y", 100), ("z", 200), ("y", 2_000_000), ("z", 70_000_000)] {
        both.beat(node, NOW + at).await;
    }
    // A record is taken only with the version it was learned from.
    both.tell("e", &Told { record: Some("2000 0 0 0".to_owned()), ..Told::default() }).await;
    both.tell("e", &Told { record: Some("9000 0 0 0".to_owned()), ..Told::default() }).await;
    // Successes of all nodes are counted under one version. A row that breaks at one node is broken for all.
    let mut at = now + 10_000_000;
    for (praise, successes) in [(3, 3), (2, 5), (-1, 0), (0, 0), (1, 1)] {
        let ruling = both.claim("e", &Claim { version: 1, praise, ..claim() }, at).await;
        assert_eq!((both.successes, matches!(ruling, Ruling::Go(_))), (successes, true), "{praise}");
        at += 2_000_000;
    }
    both.tell("e", &Told { version: 1, record: Some("3000 0 0 0".to_owned()), ..Told::default() }).await;
    both.claim("e", &Claim { version: 2, praise: 4, ..claim() }, at).await;
    assert_eq!(both.successes, 4, "under the new version they count from nothing");
}

#[tokio::test]
async fn nodes_with_another_layout_are_refused() {
    let redis = RedisServer::start();
    let both = Both::new(&redis).await;
    let keys = words::node_keys(FLEET, 0);
    let beat = async |layout: u64| {
        let args = [words::number(NOW), words::number(NOW), Arg::Text("x"), words::number(0), words::number(layout)];
        let answer = both.link.call(&words::BEAT, &[&keys[0], &keys[1], &keys[2]], &args).await.expect("an answer");
        words::read_beat(answer)
    };
    assert!(beat(words::LAYOUT + 1).await.is_ok(), "it is the first node");
    assert_eq!(beat(words::LAYOUT).await, Err(LedgerError::Layout(words::LAYOUT + 1)));
    assert_eq!(redis.run::<usize>(&["ZCARD", &keys[0]]), 1);
}

#[tokio::test]
async fn random_calls_get_equal_answers() {
    let redis = RedisServer::start();
    let mut both = Both::new(&redis).await;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut dice = fastrand::Rng::with_seed(seed);
    let mut now = NOW;
    let (mut numbers, mut ends, mut version) = ([0_u64; 3], [(0_u64, 0_u64); 3], [0_u64; 3]);
    for _ in 0..3_000 {
        let most = [1_000, 100_000, 1_500_000][dice.usize(..3)];
        now += dice.u64(..most);
        let host = dice.usize(..3);
        let name = ["a", "b", "c"][host];
        let burst = [1, 1, 3][host];
        match dice.u32(..20) {
            0 if dice.bool() => {
                let record = Some("2000 0 0 0 0 1 1 0".to_owned());
                both.tell(name, &Told { version: version[host], record, ..Told::default() }).await;
            }
            0 => {
                both.tell(name, &Told { version: version[host], held: now + dice.u64(..3_000_000), ..Told::default() })
                    .await;
            }
            1 => {
                let settled = Settlement {
                    number: numbers[host],
                    sent: if dice.bool() { now } else { 0 },
                    ..Settlement::default()
                };
                both.settle(name, &settled).await;
            }
            2 if burst == 1 => {
                let unused = Some(UnusedTurn { end: ends[host].0, before: ends[host].1 });
                both.settle(name, &Settlement { unused, ..Settlement::default() }).await;
            }
            3 if ends[host].0 > 0 => both.stay(name, ends[host].0, now).await,
            4 if ends[host].0 > 0 => {
                both.settle(name, &Settlement { place: ends[host].0, ..Settlement::default() }).await;
            }
            _ => {
                let unused = dice.bool().then_some(UnusedTurn { end: ends[host].0, before: ends[host].1 });
                let asked = Claim {
                    delay: 400_000,
                    window: 4_000,
                    number: if dice.bool() { numbers[host] } else { 0 },
                    more: dice.bool(),
                    version: version[host],
                    praise: dice.i32(-1..3),
                    doubt: if dice.u32(..20) == 0 { now } else { 0 },
                    unused: unused.filter(|_| dice.u32(..4) == 0),
                    burst,
                    limit: [0, 3][dice.usize(..2)],
                    track: host == 1 && dice.bool(),
                    mine: (dice.u32(..10) == 0).then_some(Slots { rank: 1, nodes: 3 }),
                    missing: if dice.u32(..5) == 0 { vec![0, 2] } else { Vec::new() },
                    nodes: 4,
                    ..claim()
                };
                match both.claim(name, &asked, now).await {
                    Ruling::Go(go) => (numbers[host], ends[host]) = (go.number, (go.start + asked.window, go.before)),
                    Ruling::NotUntil(told) => numbers[host] = told.number,
                    Ruling::News(news) => version[host] = news.version,
                    Ruling::TooLate => {}
                }
            }
        }
    }
}

/// A host waits one delay after a clock was set back, and not anew from each claim on.
#[tokio::test]
async fn a_clock_that_is_set_back_costs_one_delay() {
    let redis = RedisServer::start();
    let mut both = Both::new(&redis).await;
    for (host, burst) in [("a", 1), ("b", 3)] {
        let asked = Claim { burst, ..claim() };
        let first = wait(both.claim(host, &asked, NOW).await);
        go(both.claim(host, &Claim { number: first.number, ..asked.clone() }, NOW + 10_000_000).await);
        let back = NOW - 3_600_000_000;
        let told = wait(both.claim(host, &asked, back).await);
        assert_eq!(told.at, back + 1_000_000, "{host}");
        go(both.claim(host, &Claim { number: told.number, ..asked.clone() }, told.at).await);
    }
}
