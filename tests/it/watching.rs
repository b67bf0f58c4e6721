//! The commands that watch a running curtsy: `curtsy status`, `curtsy top` and `curtsy tail`.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use curtsy::config::{Config, Mode};
use serde_json::Value;

use crate::support::program::{self, run};
use crate::support::{Curtsy, Hole, Origin, ms, soon};

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(0);
        change(config);
    })
}

fn url(admin: SocketAddr) -> String {
    format!("http://{admin}")
}

/// A command that runs until it is stopped; killed when dropped.
struct Watcher {
    child: Child,
    printed: Arc<Mutex<String>>,
}

const PIPE: &str = "a pipe was asked for";
const NOBODY_PANICS: &str = "no thread has panicked";

impl Watcher {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("it can be started");
        let printed = Arc::new(Mutex::new(String::new()));
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect(PIPE)), Box::new(child.stderr.take().expect(PIPE))];
        for mut stream in streams {
            let printed = printed.clone();
            thread::spawn(move || {
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut piece) {
                    printed.lock().expect(NOBODY_PANICS).push_str(&String::from_utf8_lossy(&piece[..count]));
                }
            });
        }
        Watcher { child, printed }
    }

    fn curtsy(arguments: &[&str]) -> Self {
        Self::start(program::curtsy().args(arguments))
    }

    fn printed(&self) -> String {
        self.printed.lock().expect(NOBODY_PANICS).clone()
    }

    fn says(&self, text: &str) -> bool {
        soon(|| self.printed().contains(text))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn status_says_what_it_is_doing() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    curtsy.get(&origin.url("/"));
    curtsy.get("http://10.0.0.1/");
    let admin = url(curtsy.admin());
    let (code, printed) = run(&["status", "--admin", &admin]);
    assert_eq!(code, 0, "{printed}");
    for text in ["front-desk  ready for ", "2: 1 forwarded, 1 denied", "nothing is kept across restarts"] {
        assert!(printed.contains(text), "no {text:?} in\n{printed}");
    }
    let (code, printed) = run(&["status", "--json", "--admin", &admin]);
    let status: Value = serde_json::from_str(&printed).expect("what the API says");
    assert_eq!((code, &status["requests"]["total"]), (0, &Value::from(2)), "{printed}");
}

/// `--admin` works before and after every command, with and without a scheme.
#[test]
fn a_curtsy_is_named_the_same_way_for_every_command() {
    let curtsy = pacing(|_| ());
    let (address, url) = (curtsy.admin().to_string(), url(curtsy.admin()));
    for command in [&["status"][..], &["hosts"], &["clients"], &["top"], &["health"], &["explain", "http://127.0.0.1/"]]
    {
        for admin in [&address, &url] {
            let named = ["--admin", admin.as_str()];
            for line in [[&named, command].concat(), [command, &named].concat()] {
                let (code, printed) = run(&line);
                assert_ne!(code, 2, "{line:?}: {printed}");
                assert!(code == 0 || command[0] == "explain" && printed.contains("127.0.0.1/"), "{line:?}: {printed}");
            }
        }
    }
    let (code, printed) = run(&["hosts", "--admin", "https://127.0.0.1:1"]);
    assert!(code == 1 && printed.contains("plain HTTP"), "{printed}");
    for line in [["explain", "not a url"], ["check", "ftp://a.test/"]] {
        let (code, printed) = run(&[line[0], line[1], "--admin", &url]);
        assert!(code == 2 && printed.contains(line[1]), "{code}: {printed}");
    }
}

#[test]
fn status_top_and_tail_say_that_no_curtsy_runs() {
    let nobody = Hole::refusing().url();
    for command in ["status", "top", "tail"] {
        let (code, printed) = run(&[command, "--admin", nobody.trim_end_matches('/')]);
        assert_eq!(code, 4, "{command}: {printed}");
        assert!(
            printed.starts_with("error: no curtsy runs on ") && printed.lines().count() == 1,
            "{command}: {printed}"
        );
    }
}

#[test]
fn top_is_a_table_where_there_is_no_terminal() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    curtsy.get(&origin.url("/"));
    let admin = url(curtsy.admin());
    let (code, printed) = run(&["top", "--admin", &admin]);
    assert_eq!(code, 0, "{printed}");
    assert!(printed.starts_with("front-desk  ready") && printed.contains("\n127.0.0.1  idle"), "{printed}");
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
    let (code, printed) = run(&["top", "--json", "--sort", "wait", "--filter", "nobody", "--admin", &admin]);
    let told: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!((code, &told["hosts"]["total"], &told["status"]["state"]), (0, &0.into(), &"ready".into()));
}

/// `top` draws on a terminal and restores it at the end.
#[test]
fn top_draws_on_a_terminal_and_pauses_a_host() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    curtsy.get(&origin.url("/"));
    let line = format!("stty cols 80 rows 24; {} top --admin {}", env!("CARGO_BIN_EXE_curtsy"), url(curtsy.admin()));
    let mut top = Watcher::start(Command::new("script").args(["-qefc", &line, "/dev/null"]).env("TERM", "xterm"));
    assert!(top.says("127.0.0.1") && top.says("q end"), "{:?}", top.printed());
    let mut keys = top.child.stdin.take().unwrap();
    keys.write_all(b"p").unwrap();
    assert!(soon(|| curtsy.metric("curtsy_hosts_by_state{state=\"paused\"}") == 1));
    assert!(top.says("paused"), "{:?}", top.printed());
    keys.write_all(b"q").unwrap();
    assert!(soon(|| top.child.try_wait().unwrap().is_some_and(|ended| ended.success())), "{:?}", top.printed());
    assert!(top.says("\u{1b}[?1049l"), "the screen is not given back: {:?}", top.printed());
}

#[test]
fn tail_tells_of_requests_and_only_of_those_asked_for() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    let admin = url(curtsy.admin());
    let all = Watcher::curtsy(&["tail", "--admin", &admin]);
    let denied = Watcher::curtsy(&["tail", "--denied", "--json", "--admin", &admin]);
    let elsewhere = Watcher::curtsy(&["tail", "--host", "elsewhere.test", "--admin", &admin]);
    assert!(soon(|| listeners(&admin) == 3));
    assert_eq!(curtsy.get(&origin.url("/a?key=secret")).status(), 200);
    assert_eq!(curtsy.get("http://10.0.0.1/").status(), 403);
    assert!(all.says(&format!("GET {} 200 ", origin.url("/a?…"))), "{}", all.printed());
    assert!(all.says("GET http://10.0.0.1/ 403 ") && !all.printed().contains("secret"), "{}", all.printed());
    assert!(denied.says("destination-denied"), "{}", denied.printed());
    let told: Value = serde_json::from_str(denied.printed().trim()).expect("one line of JSON");
    assert_eq!((&told["url"], &told["status"]), (&"http://10.0.0.1/".into(), &403.into()));
    assert_eq!(elsewhere.printed(), "");
}

fn listeners(admin: &str) -> u64 {
    let (_, printed) = run(&["status", "--json", "--admin", admin]);
    serde_json::from_str::<Value>(&printed).ok().and_then(|status| status["listeners"].as_u64()).unwrap_or(0)
}

#[test]
fn tail_knows_clients_by_name() {
    let (origin, curtsy) = (Origin::hello(), pacing(|_| ()));
    let admin = url(curtsy.admin());
    let spider = Watcher::curtsy(&["tail", "--client", "spider", "--admin", &admin]);
    assert!(soon(|| listeners(&admin) == 1));
    curtsy.ask(&[&origin.get("/other"), "Host: x"]);
    curtsy.ask(&[&origin.get("/own"), "Host: x", "Curtsy-Client: spider"]);
    assert!(spider.says(&format!("spider GET {} 200 ", origin.url("/own"))), "{}", spider.printed());
    assert!(!spider.printed().contains("/other"), "{}", spider.printed());
}

/// `tail` reconnects when curtsy is back.
#[test]
fn tail_waits_for_a_curtsy_that_went_away() {
    // Connections of other tests come from 127.0.0.1, so none of them takes this port before it is used again.
    let curtsy = pacing(|config| config.admin = Some(SocketAddr::from(([127, 0, 9, 77], 0))));
    let (address, admin) = (curtsy.admin(), url(curtsy.admin()));
    let tail = Watcher::curtsy(&["tail", "--admin", &admin]);
    assert!(soon(|| listeners(&admin) == 1));
    curtsy.stop();
    assert!(tail.says("curtsy has disconnected; waiting for it"), "{}", tail.printed());
    let again = pacing(|config| config.admin = Some(address));
    assert!(tail.says("curtsy is back"), "{}", tail.printed());
    again.get("http://10.0.0.1/");
    assert!(tail.says("GET http://10.0.0.1/ 403 "), "{}", tail.printed());
}
