//! What survives a restart, after a clean stop or a kill: learned delays, holds, and the time of the last send.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use curtsy::config::{Key, Mode, RobotsMode, StateDir};
use tempfile::TempDir;

use crate::support::program::{fake_clock, run};
use crate::support::{Client, Curtsy, HELLO, Message, Origin, Program, ROOM, Stopwatch, gaps, ms, pause, soon};

/// An origin that notes when each page was requested, and answers the first `cross` requests with `answer`.
struct Host {
    origin: Origin,
    arrivals: Arc<Mutex<Vec<Duration>>>,
    robots: Arc<AtomicUsize>,
}

impl Host {
    fn open(cross: usize, answer: &'static str) -> Self {
        let (watch, arrivals, robots) = (Stopwatch::start(), Arc::<Mutex<Vec<Duration>>>::default(), Arc::default());
        let (noted, fetches): (_, Arc<AtomicUsize>) = (arrivals.clone(), Arc::clone(&robots));
        let origin = Origin::scripted(move |visitor| {
            while let Some(request) = visitor.request() {
                if request.line().starts_with("GET /robots.txt ") {
                    fetches.fetch_add(1, Ordering::Relaxed);
                    visitor.send(ROBOTS);
                    continue;
                }
                let mut arrivals = noted.lock().expect("no test thread has panicked");
                arrivals.push(watch.at(request.at));
                visitor.send(if arrivals.len() <= cross { answer } else { HELLO });
            }
        });
        Host { origin, arrivals, robots }
    }

    fn friendly() -> Self {
        Host::open(0, HELLO)
    }

    fn arrivals(&self) -> Vec<Duration> {
        let mut arrivals = self.arrivals.lock().expect("no test thread has panicked").clone();
        arrivals.sort();
        arrivals
    }

    fn gaps(&self) -> Vec<Duration> {
        gaps(&self.arrivals())
    }

    fn get(&self, program: &Program) -> Message {
        program.get(&self.origin.url("/"))
    }
}

const ROBOTS: &str = "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\nUser-agent: *\nDisallow: /secret";
const TOO_FAST: &str = "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n";
const COME_BACK: &str = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 600\r\nContent-Length: 0\r\n\r\n";

/// A delay of 100 ms. Each refusal adds a second, and is passed on to the client.
const LEARNING: &str =
    "politeness.mode = \"enforce\"\npoliteness.delay = \"100ms\"\nadaptive.policy = \"steps\"\nretry.max = 0\n";
/// The delay after one refusal.
const LEARNED: Duration = ms(1_100);

fn directory() -> TempDir {
    tempfile::tempdir().expect("a writable temporary directory")
}

fn start(state: &Path, settings: &str) -> Program {
    start_by(crate::support::program::curtsy(), state, settings)
}

fn start_by(command: Command, state: &Path, settings: &str) -> Program {
    let state = state.to_str().expect("a plain path");
    Program::start_by(command, &format!("state_dir = {state:?}\nadmin = \"127.0.0.1:0\"\n{settings}"), "")
}

fn end(program: Program, killed: bool) {
    if killed { program.kill() } else { program.stop() }
}

/// The learned delay applies from the first request on.
#[test]
fn a_learned_delay_survives() {
    for killed in [false, true] {
        let (host, state) = (Host::open(1, TOO_FAST), directory());
        let program = start(state.path(), LEARNING);
        assert_eq!(host.get(&program).status(), 429);
        if killed {
            program.wait_for_disk();
        }
        end(program, killed);
        let program = start(state.path(), LEARNING);
        host.get(&program);
        host.get(&program);
        let gaps = host.gaps();
        assert!(gaps.iter().all(|gap| *gap + ROOM >= LEARNED), "killed: {killed}, {gaps:?}");
    }
}

/// After a stop or a kill at any moment, the first request keeps its distance from the last one.
#[test]
fn no_restart_grants_an_earlier_start() {
    const DELAY: Duration = ms(600);
    let (host, state) = (Host::friendly(), directory());
    let settings = "politeness.mode = \"enforce\"\npoliteness.delay = \"600ms\"";
    for round in 0..10 {
        let program = start(state.path(), settings);
        assert_eq!(host.get(&program).status(), 200);
        end(program, round % 2 == 1);
    }
    let gaps = host.gaps();
    assert!(gaps.len() == 9 && gaps.iter().all(|gap| *gap + ROOM >= DELAY), "{gaps:?}");
}

/// Promise 7, X68: a restart does not refill a burst.
#[test]
fn no_restart_grants_a_burst() {
    for killed in [false, true] {
        let (host, state) = (Host::friendly(), directory());
        let settings = "politeness.mode = \"enforce\"\npoliteness.delay = \"400ms\"\npoliteness.burst = 3";
        let program = start(state.path(), settings);
        (0..3).for_each(|_| drop(host.get(&program)));
        end(program, killed);
        let program = start(state.path(), settings);
        (0..3).for_each(|_| drop(host.get(&program)));
        // A host regains its burst while curtsy is stopped, too: three at once, and from then on one for each delay.
        let arrivals = host.arrivals();
        for (first, start) in arrivals.iter().enumerate() {
            for (beyond, end) in (1..).zip(arrivals.iter().skip(first + 3)) {
                assert!(*end - *start + ROOM >= beyond * ms(400), "killed: {killed}, {arrivals:?}");
            }
        }
    }
}

/// After a clean stop, a host that was never visited does not wait.
#[test]
fn a_clean_restart_delays_no_new_host() {
    let state = directory();
    let settings = "politeness.mode = \"enforce\"\npoliteness.delay = \"20s\"";
    start(state.path(), settings).stop();
    let (program, host) = (start(state.path(), settings), Host::friendly());
    assert_eq!(program.event("state.opened").unwrap()["unsettled"], false);
    let watch = Stopwatch::start();
    assert_eq!(host.get(&program).status(), 200);
    assert!(watch.elapsed() < ms(10_000), "{:?}", watch.elapsed());
}

/// Promise 7: a hold survives a stop and a kill.
#[test]
fn what_a_host_asked_for_is_kept() {
    for killed in [false, true] {
        let (host, state) = (Host::open(1, COME_BACK), directory());
        let program = start(state.path(), LEARNING);
        assert_eq!(host.get(&program).status(), 429);
        if killed {
            program.wait_for_disk();
        }
        end(program, killed);
        let program = start(state.path(), LEARNING);
        let refusal = host.get(&program);
        assert_eq!((refusal.status(), refusal.value("Curtsy-Error").as_str()), (503, "host-cooling"));
        let retry_after: u64 = refusal.value("Retry-After").parse().expect("seconds");
        assert!((500..=600).contains(&retry_after), "{retry_after}");
        assert_eq!(host.arrivals().len(), 1);
    }
}

#[test]
fn robots_txt_is_not_fetched_again() {
    let (host, state) = (Host::friendly(), directory());
    for _ in 0..3 {
        let program = start(state.path(), "robots.mode = \"enforce\"");
        assert_eq!(host.get(&program).status(), 200);
        assert_eq!(program.get(&host.origin.url("/secret")).value("Curtsy-Error"), "robots-denied");
        program.stop();
    }
    assert_eq!((host.robots.load(Ordering::Relaxed), host.arrivals().len()), (1, 3));
}

#[test]
fn two_do_not_share_a_directory() {
    let state = directory();
    let first = start(state.path(), "");
    let path = state.path().to_str().expect("a plain path");
    let (code, text) = run(&["--state-dir", path, "--listen", "127.0.0.1:0", "--admin", "off"]);
    assert_eq!(code, 1);
    assert!(text.contains(&format!("is in use by process {}. Stop it", first.id())), "{text}");
    first.stop();
    start(state.path(), "").stop();
}

#[test]
fn a_damaged_file_is_set_aside_and_said_so() {
    let (host, state) = (Host::friendly(), directory());
    std::fs::write(state.path().join("state.db"), "no database at all").unwrap();
    let program = start(state.path(), "");
    assert_eq!(host.get(&program).status(), 200);
    let aside = program.event("state.damaged").expect("it says so")["path"].as_str().expect("a path").to_owned();
    assert_eq!(std::fs::read_to_string(aside).unwrap(), "no database at all");
    program.stop();
    assert_eq!(start(state.path(), "").event("state.damaged"), None, "the new one is sound");
}

/// Promise 10: curtsy starts without a usable state directory and says so.
#[test]
fn a_directory_that_cannot_be_used_is_no_reason_not_to_start() {
    let (host, state) = (Host::friendly(), directory());
    let file = state.path().join("file");
    std::fs::write(&file, "").unwrap();
    let program = start(&file.join("state"), "");
    assert_eq!(host.get(&program).status(), 200);
    let message = program.event("state.unusable").expect("it says so")["msg"].to_string();
    assert!(message.contains("cannot keep state in") && message.contains("state_dir"), "{message}");
    program.stop();
}

#[test]
fn memory_keeps_nothing() {
    let host = Host::open(1, TOO_FAST);
    let settings = format!("state_dir = \"memory\"\n{LEARNING}");
    let program = Program::start(&settings, "");
    assert_eq!(host.get(&program).status(), 429);
    program.stop();
    let program = Program::start(&settings, "");
    host.get(&program);
    host.get(&program);
    assert!(host.gaps()[1] < LEARNED, "{:?}", host.gaps());
}

/// X36: eviction removes a lane from memory, but not its learned delay.
#[test]
fn a_host_that_was_forgotten_is_as_slow_as_before() {
    let (host, state) = (Host::open(1, TOO_FAST), directory());
    let curtsy = Curtsy::with(|config| {
        config.state_dir = StateDir::Path(state.path().to_owned());
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(100);
        config.retry.max = 0;
        (config.hosts.idle, config.hosts.sweep) = (ms(10), ms(20));
    });
    assert_eq!(curtsy.get(&host.origin.url("/")).status(), 429);
    assert!(soon(|| curtsy.metric("curtsy_hosts") == 0), "the lane is still there");
    curtsy.get(&host.origin.url("/"));
    curtsy.get(&host.origin.url("/"));
    let gaps = host.gaps();
    assert!(gaps.iter().all(|gap| *gap + ROOM >= LEARNED), "{gaps:?}");
    assert!(soon(|| curtsy.metric("curtsy_store_pending_changes") == 0));
    assert_eq!(curtsy.metric("curtsy_store_write_failures_total"), 0);
}

/// Chains of starts and kills in parallel, each with its own directory and host.
const CHAINS: u64 = 5;
/// Kills in each chain; `CURTSY_KILL_ROUNDS` sets another number.
const ROUNDS: u64 = 10;

/// curtsy is killed again and again under load. Each time the state file opens, the learned delay is there, and the
/// first request keeps its distance from the last one before the kill.
#[test]
fn fifty_kills_under_load() {
    let rounds = std::env::var("CURTSY_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    thread::scope(|scope| {
        for seed in 0..CHAINS {
            scope.spawn(move || kill_again_and_again(seed, rounds));
        }
    });
}

fn kill_again_and_again(seed: u64, rounds: u64) {
    const TAUGHT: Duration = ms(250);
    let settings = "politeness.mode = \"enforce\"\npoliteness.delay = \"50ms\"\nadaptive.policy = \"steps\"\nadaptive.step_up = \"200ms\"\nretry.max = 0";
    let (host, state, mut dice) = (Host::open(1, TOO_FAST), directory(), fastrand::Rng::with_seed(seed));
    let program = start(state.path(), settings);
    assert_eq!(host.get(&program).status(), 429);
    program.wait_for_disk();
    program.kill();
    // The index of the first arrival of each process.
    let mut first = Vec::new();
    for round in 0..rounds {
        let before = host.arrivals().len();
        first.push(before);
        let program = start(state.path(), settings);
        let opened = program.event("state.opened").expect("the file opens");
        assert_eq!((&opened["hosts"], program.event("state.damaged")), (&serde_json::json!(1), None), "round {round}");
        let address = program.address();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| hammer(address, &host.origin.url("/")));
            }
            // At least two: one that follows the last one of the previous process, and one that the next process must
            // follow.
            assert!(soon(|| host.arrivals().len() >= before + 2), "round {round}: nothing arrives");
            pause(ms(dice.u64(..200)));
            let early = program.event("spacing.violation");
            program.kill();
            assert_eq!(early, None, "round {round}");
        });
    }
    let gaps = host.gaps();
    let kept = gaps.iter().all(|gap| *gap + ROOM >= TAUGHT);
    assert!(gaps.len() as u64 >= 2 * rounds && kept, "{gaps:?}, processes begin at {first:?}");
}

/// Sends requests until the connection fails.
fn hammer(address: SocketAddr, url: &str) {
    let mut answer = Vec::new();
    loop {
        let Ok(mut stream) = TcpStream::connect(address) else { return };
        let asked = format!("GET {url} HTTP/1.1\r\nHost: ignored.test\r\nConnection: close\r\n\r\n");
        if stream.write_all(asked.as_bytes()).is_err() || !stream.read_to_end(&mut answer).is_ok_and(|count| count > 0)
        {
            return;
        }
    }
}

/// X69: setting the wall clock a day forward or back, while curtsy runs or while it is stopped, changes no decision.
#[test]
fn the_wall_clock_decides_nothing() {
    for jump in ["+1d", "-1d"] {
        let (host, held, state, clock) = (Host::open(1, TOO_FAST), Host::open(1, COME_BACK), directory(), directory());
        // Another name is another host with its own queue.
        let held_url = held.origin.url("/").replace("127.0.0.1", "localhost");
        let shown = clock.path().join("clock");
        let set = |text: &str| std::fs::write(&shown, text).expect("a writable temporary directory");
        let start = || start_by(by_the_clock(&shown), state.path(), LEARNING);
        set("+0");
        let program = start();
        assert_eq!((host.get(&program).status(), program.get(&held_url).status()), (429, 429));
        set(jump);
        for _ in 0..2 {
            assert_eq!(host.get(&program).status(), 200);
        }
        let refusal = program.get(&held_url);
        assert_eq!(refusal.value("Curtsy-Error"), "host-cooling", "{jump}: {}", refusal.head());
        let left: u64 = refusal.value("Retry-After").parse().expect("seconds");
        assert!((500..=600).contains(&left), "{jump}: {left}");
        program.stop();

        // The next process starts with the changed clock, and the one after it with the first clock. If a day seems to
        // have passed, the learned delay fades by that day and no more.
        let program = start();
        assert_eq!(host.get(&program).status(), 200);
        set("+0");
        program.stop();
        let program = start();
        assert_eq!(host.get(&program).status(), 200);
        let gaps = host.gaps();
        assert!(gaps.iter().all(|gap| *gap + ROOM >= ms(1_000) && *gap < ms(15_000)), "{jump}: {gaps:?}");
    }
}

/// Promise 7, X69: setting the wall clock while curtsy is stopped neither ends a hold nor makes it longer.
#[test]
fn a_hold_is_as_long_as_it_was_by_whatever_clock_the_next_starts() {
    for (jump, killed) in [("+1d", false), ("-1d", false), ("+1d", true), ("-1d", true)] {
        let (host, state, clock) = (Host::open(1, COME_BACK), directory(), directory());
        let shown = clock.path().join("clock");
        let set = |text: &str| std::fs::write(&shown, text).expect("a writable temporary directory");
        let start = || start_by(by_the_clock(&shown), state.path(), LEARNING);
        set("+0");
        let mut program = start();
        assert_eq!(host.get(&program).status(), 429);
        // There and back: each process starts with another clock than the one before.
        for clock in [jump, "+0"] {
            program.wait_for_disk();
            end(program, killed);
            set(clock);
            program = start();
            let refusal = host.get(&program);
            assert_eq!(refusal.value("Curtsy-Error"), "host-cooling", "{jump}, killed: {killed}: {}", refusal.head());
            let left: u64 = refusal.value("Retry-After").parse().expect("seconds");
            assert!((500..=600).contains(&left), "{jump}, killed: {killed}: {left} s are left of 600 s");
        }
    }
}

/// Runs curtsy with `faketime`, which reads the offset of the wall clock from this file.
fn by_the_clock(shown: &Path) -> Command {
    let mut command = crate::support::program::curtsy();
    fake_clock(&mut command, shown);
    command
}

const SLOWLY: &str = "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nUser-agent: *\nCrawl-delay: 1.5\n";
const PACED: &str = "politeness.mode = \"enforce\"\npoliteness.delay = \"50ms\"\nrobots.mode = \"enforce\"";

/// Promises 2 and 7: the Crawl-delay of a stored robots.txt applies from the first request on, whatever the method.
#[test]
fn a_crawl_delay_counts_after_a_restart_for_every_method() {
    let (origin, state) = (Origin::with_robots(SLOWLY), directory());
    let program = start(state.path(), PACED);
    assert_eq!(program.get(&origin.url("/1")).status(), 200);
    program.stop();
    let program = start(state.path(), PACED);
    for _ in 0..2 {
        let line = origin.get("/form").replace("GET", "POST");
        assert_eq!(program.client().ask(&[&line, "Host: x", "Content-Length: 0"]).status(), 200);
    }
    let seen = origin.requests(4);
    let pages = seen.iter().filter(|request| !request.line().contains("/robots.txt"));
    let gaps = gaps(&pages.map(|request| request.at - seen[0].at).collect::<Vec<_>>());
    assert!(gaps.iter().all(|gap| *gap + ROOM >= ms(1_500)), "{gaps:?}");
    program.stop();
}

fn api(program: &Program, path: &str) -> serde_json::Value {
    let answer = Client::connect(program.admin()).ask(&[&format!("GET {path} HTTP/1.1"), "Host: localhost"]);
    serde_json::from_str(&answer.text()).unwrap_or_else(|error| panic!("{path}: {error}: {}", answer.text()))
}

/// With `key = "ip"` the host is shown by the robots.txt of the name that is asked for.
#[test]
fn a_host_behind_an_address_is_shown_by_the_robots_txt_of_its_name() {
    let (origin, state) = (Origin::with_robots(SLOWLY.replace("1.5", "9.5")), directory());
    let by_address = format!("{PACED}\npoliteness.key = \"ip\"");
    let program = start(state.path(), &by_address);
    assert_eq!(program.get(&format!("http://localhost:{}/1", origin.port())).status(), 200);
    program.stop();
    let program = start(state.path(), &by_address);
    let host = api(&program, "/api/v1/hosts/localhost");
    assert_eq!((&host["host"], &host["delay_ms"]), (&"127.0.0.1".into(), &9_500.into()), "{host:#}");
    program.stop();
}

/// With `key = "domain"` too: the lane is that of the domain, the robots.txt that of the name.
#[test]
fn a_host_below_a_domain_is_shown_by_the_robots_txt_of_its_name() {
    let (origin, state) = (Origin::with_robots(SLOWLY.replace("1.5", "9.5")), directory());
    let start = || {
        Curtsy::resolving(
            |_| Ok(vec![IpAddr::from([127, 0, 0, 1])]),
            |config| {
                config.politeness.mode = Mode::Enforce;
                config.politeness.robots = RobotsMode::Enforce;
                config.politeness.delay = ms(50);
                config.pacing.key = Key::Domain;
                config.state_dir = StateDir::Path(state.path().to_owned());
            },
        )
    };
    let url = |path: &str| format!("http://www.example.test:{}{path}", origin.port());
    let curtsy = start();
    assert_eq!(curtsy.get(&url("/1")).status(), 200);
    curtsy.stop();
    let curtsy = start();
    let api = |path: &str| {
        let answer = curtsy.ask_admin(&[&format!("GET /api/v1/{path} HTTP/1.1"), "Host: localhost"]);
        serde_json::from_str::<serde_json::Value>(&answer.text()).expect("JSON")
    };
    let host = api("hosts/www.example.test");
    assert_eq!((&host["host"], &host["delay_ms"]), (&"example.test".into(), &9_500.into()), "{host:#}");
    let explained = api(&format!("explain?url={}", url("/2")));
    assert_eq!(explained["delay_ms"], 9_500, "{explained:#}");
    assert!(explained["wait_ms"].as_u64() > Some(1_000), "{explained:#}");
}

/// Before the first visit after a restart, the API shows the delay and the wait that the visit will have.
#[test]
fn a_host_is_shown_as_it_will_be_treated_before_its_first_visit() {
    for killed in [false, true] {
        let (origin, state) = (Origin::with_robots(SLOWLY.replace("1.5", "9.5")), directory());
        let program = start(state.path(), PACED);
        assert_eq!(program.get(&origin.url("/1")).status(), 200);
        if killed {
            program.wait_for_disk();
        }
        end(program, killed);
        let program = start(state.path(), PACED);
        let explained = api(&program, &format!("/api/v1/explain?url={}", origin.url("/2")));
        assert_eq!(explained["delay_ms"], 9_500, "killed: {killed}: {explained:#}");
        assert!(explained["wait_ms"].as_u64() > Some(1_000), "killed: {killed}: {explained:#}");
        if killed {
            // curtsy learned nothing about the host, so only its robots.txt was stored.
            continue;
        }
        let host = api(&program, "/api/v1/hosts/127.0.0.1");
        assert_eq!(host["delay_ms"], 9_500, "killed: {killed}: {host:#}");
        assert_eq!(host["delay"]["robots_ms"], 9_500, "killed: {killed}: {host:#}");
        program.stop();
    }
}
