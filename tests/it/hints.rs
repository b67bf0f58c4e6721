//! If a client disconnects while its request is queued, the log names the client and the setting that would make it
//! wait. Also: how clients get their names.

use std::process::Command;
use std::thread;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::support::{Client, Curtsy, Origin, Program, Stopwatch, ms, soon};

/// A curtsy that intercepts HTTPS except to `localhost`. Its delay is longer than any of these tests takes, so that no
/// queued request starts on a slow machine; `max_wait` lets five requests queue.
fn slow() -> Program {
    let top = "politeness.mode = \"enforce\"\npoliteness.delay = \"300s\"\npoliteness.max_wait = \"1770s\"\nadmin = \"127.0.0.1:0\"\nshutdown_grace = \"50ms\"\n";
    Program::start(top, "[tls]\nintercept = true\nbypass = [\"localhost\"]\n")
}

/// All `client.left` warnings so far.
fn departures(program: &Program) -> Vec<Value> {
    let lines = program.stderr().into_iter().filter_map(|line| serde_json::from_str::<Value>(&line).ok());
    lines.filter(|line| line["event"] == "client.left").collect()
}

fn departure(program: &Program, agent: &str) -> Option<Value> {
    departures(program).into_iter().find(|line| line["agent"].as_str().is_some_and(|text| text.starts_with(agent)))
}

/// Sends a request with this User-Agent, which then waits in the queue.
fn waiting(program: &Program, line: &str, agent: &str) -> Client {
    let mut client = program.client();
    client.send_head(&[line, "Host: x", &format!("User-Agent: {agent}")]);
    client
}

fn queue(program: &Program) -> Value {
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let mut client = Client::connect(admin.parse().expect("an address"));
    let queue = client.ask(&["GET /api/v1/queue HTTP/1.1", "Host: localhost", "Connection: close"]).text();
    serde_json::from_str(&queue).expect("JSON")
}

fn queued(program: &Program) -> usize {
    queue(program)["total"].as_u64().expect("a number") as usize
}

/// Whether all queued requests have waited for 3 s, the shortest wait that can be a client's timeout.
fn have_waited(program: &Program) -> bool {
    let queue = queue(program);
    let waiting = queue["waiting"].as_array().expect("a list");
    waiting.iter().all(|visit| visit["waited_ms"].as_u64().is_some_and(|waited| waited >= 3_000))
}

#[test]
fn a_client_that_leaves_the_queue_is_named_with_the_remedy() {
    let (program, origin) = (slow(), Origin::hello());
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    let by_name = format!("http://localhost:{}/", origin.port());
    assert_eq!(program.get(&by_name).status(), 200);

    let first = waiting(&program, &origin.get("/1"), "FirstBot/1.0");
    assert!(soon(|| queued(&program) == 1), "it is first in line");
    let httpx: Vec<Client> = (0..3).map(|_| waiting(&program, &origin.get("/2"), "python-httpx/0.28.1")).collect();
    assert!(soon(|| queued(&program) == 4), "no client has left yet");
    let began = Stopwatch::start();
    let spare = waiting(&program, &origin.get("/3"), "Mozilla/5.0 HeadlessChrome/131.0");
    assert!(soon(|| queued(&program) == 5));
    drop(spare);
    assert!(soon(|| queued(&program) == 4));
    let left_at_once = began.elapsed() < ms(3_000);
    assert!(soon(|| have_waited(&program)), "{}", queue(&program));
    if left_at_once {
        assert_eq!(departures(&program), Vec::<Value>::new(), "a client that leaves at once has no timeout");
    }
    drop(httpx);
    assert!(soon(|| queued(&program) == 1));
    assert!(soon(|| departure(&program, "python-httpx").is_some()), "{:#?}", program.stderr());
    let left = departure(&program, "python-httpx").expect("seen above");
    let told = left["msg"].as_str().expect("a text");
    assert!(told.contains("in the queue of 127.0.0.1 (position "), "{told}");
    assert!(told.contains("httpx.Client(timeout=1800)"), "{told}");
    assert!(left["position"].as_u64().is_some_and(|position| (2..=4).contains(&position)), "{left}");
    assert!(left["level"] == "warn" && left["client"] == "127.0.0.1" && left["host"] == "127.0.0.1", "{left}");
    let httpx = departures(&program).into_iter().filter(|line| line["agent"] == "python-httpx/0.28.1").count();
    assert_eq!(httpx, 1, "three clients of a kind are one line");
    drop(first);
    assert!(soon(|| departure(&program, "FirstBot").is_some()));
    let told = departure(&program, "FirstBot").expect("seen above").to_string();
    assert!(told.contains("position 1") && told.contains("politeness.max_wait"), "{told}");
}

/// Real clients: a plain request, a request inside an intercepted tunnel, and a CONNECT that is held.
#[test]
fn a_held_tunnel_and_a_request_inside_are_told_of_too() {
    let (program, origin) = (slow(), Origin::hello());
    for host in ["127.0.0.1", "localhost"] {
        assert_eq!(program.get(&format!("http://{host}:{}/", origin.port())).status(), 200);
    }
    let proxy = format!("http://{}", program.address());
    let curl = |agent: &str, url: String| {
        let mut command = Command::new("curl");
        command.args(["-sSkq", "--noproxy", "", "-m", "10", "-A", agent, "-x", &proxy, &url]);
        thread::spawn(move || command.output().expect("curl is installed").status.code())
    };
    let port = origin.port();
    let running = [
        curl("curl/7.88.1", format!("http://127.0.0.1:{port}/plain")),
        curl("python-requests/2.34.2", format!("https://127.0.0.1:{port}/inside")),
        curl("Go-http-client/1.1", format!("https://localhost:{port}/held")),
    ];
    for client in running {
        assert_eq!(client.join().expect("it ends"), Some(28), "curl says that its time is over");
    }
    for (agent, remedy) in [
        ("curl/7.88.1", "curl --max-time 1800"),
        ("python-requests", "requests.get(url, timeout=1800)"),
        ("Go-http-client", "http.Client{Timeout: 1800 * time.Second}"),
    ] {
        assert!(soon(|| departure(&program, agent).is_some()), "{agent}: {:#?}", program.stderr());
        let left = departure(&program, agent).expect("seen above");
        assert!(left["msg"].as_str().is_some_and(|text| text.contains(remedy)), "{left}");
        assert!(left["after_s"].as_f64().is_some_and(|after| after >= 3.0), "{left}");
    }
}

/// No warning is logged for clients that disconnect because curtsy stops.
#[test]
fn a_client_that_waits_while_curtsy_stops_has_not_left() {
    let (program, origin) = (slow(), Origin::hello());
    assert_eq!(program.get(&origin.url("/")).status(), 200);
    let client = waiting(&program, &origin.get("/1"), "python-httpx/0.28.1");
    assert!(soon(|| queued(&program) == 1));
    program.signal("TERM");
    assert!(soon(|| program.event("stopped").is_some()));
    drop(client);
    assert_eq!(departures(&program), Vec::<Value>::new());
}

fn basic(user: &str) -> String {
    format!("Proxy-Authorization: Basic {}", STANDARD.encode(format!("{user}:tulip")))
}

/// Without configured users, the name in the proxy's URL is only a label.
#[test]
fn a_name_in_the_proxy_url_is_the_clients_name() {
    let (origin, program) = (Origin::hello(), Program::start("", "[log]\naccess = \"-\"\nformat = \"json\"\n"));
    program.ask(&[&origin.get("/1"), "Host: x", &basic("news"), "Curtsy-Client: other"]);
    program.ask(&[&origin.get("/2"), "Host: x", "Curtsy-Client: spider"]);
    program.ask(&[&origin.get("/3"), "Host: x", &basic(&"n".repeat(101))]);
    assert!(soon(|| program.stdout().len() == 3));
    let lines: Vec<Value> = program.stdout().iter().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let names: Vec<&Value> = lines.iter().map(|line| &line["name"]).collect();
    assert_eq!(names, [&Value::from("news"), &"spider".into(), &Value::Null]);
    assert!(lines.iter().all(|line| line["user"].is_null() && line["client"] == "127.0.0.1"), "no name is proven");
    assert!(!program.stdout().concat().contains("tulip") && !program.stderr().concat().contains("tulip"));
    assert!(origin.requests(3).iter().all(|request| !request.has("Proxy-Authorization")));
}

/// The probe reports the client's name from either field, or else its address.
#[test]
fn a_probe_says_by_which_name_a_client_is_known() {
    let curtsy = Curtsy::start();
    let known = |field: &str| {
        let answer = curtsy.ask(&["GET http://probe.curtsy.invalid/ HTTP/1.1", "Host: x", field]).text();
        serde_json::from_str::<Value>(&answer).expect("JSON")["client"].clone()
    };
    assert_eq!(known(&basic("news")), "news");
    assert_eq!(known("Curtsy-Client: spider"), "spider");
    assert_eq!(known("Accept: */*"), "127.0.0.1");
}
