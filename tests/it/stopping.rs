//! SIGTERM while requests wait: a request whose turn comes within the grace is served; every other one is refused at
//! once with a Retry-After.

use std::sync::mpsc;

use crate::support::{Client, Message, Origin, PATIENCE, Program, soon};

const TELLING: &str = "[log]\nlevel = \"debug\"";

fn start(delay: &str, grace: &str) -> Program {
    let top = format!("politeness.mode = \"enforce\"\npoliteness.delay = \"{delay}\"\nshutdown_grace = \"{grace}\"\n");
    Program::start(&top, &format!("[retry]\nmax = 0\n{TELLING}"))
}

/// Sends a request that waits in the queue of its host, as the `number`th.
fn waiting(program: &Program, line: &str, number: usize) -> Client {
    let mut client = program.client();
    client.send_head(&[line, "Host: x"]);
    assert!(soon(|| count_waiting(program) >= number), "{:#?}", program.stderr());
    client
}

fn count_waiting(program: &Program) -> usize {
    program.stderr().iter().filter(|line| line.contains("\"waiting\"")).count()
}

#[track_caller]
fn retry_after(refused: &Message) -> u64 {
    assert_eq!((refused.status(), refused.refusal().as_str()), (503, "shutting-down"), "{}", refused.head());
    assert_eq!(refused.value("Connection"), "close");
    refused.value("Retry-After").parse().expect("a number of seconds")
}

/// Promise 6
#[test]
fn requests_that_fit_into_the_grace_are_served_and_the_others_are_told_when_to_come_back() {
    let (origin, mut program) = (Origin::hello(), start("2s", "5s"));
    assert_eq!(program.get(&origin.url("/")).text(), "hello");
    // Turns come after 2, 4, … 20 s. On a machine that keeps up, the first two fit.
    let mut clients: Vec<Client> =
        (1..11).map(|number| waiting(&program, &origin.get(&format!("/{number}")), number)).collect();
    program.signal("TERM");
    let last = retry_after(&clients.pop().expect("ten of them").response());
    assert!(origin.count() < 4, "it heard it at once, not at the end");
    assert!((5..=20).contains(&last), "{last}");
    let answers: Vec<Message> = clients.iter_mut().map(Client::response).collect();
    let (served, refused) = answers.split_at(answers.partition_point(|answer| answer.status() == 200));
    assert!((1..9).contains(&served.len()), "{}", served.len());
    let told: Vec<u64> = refused.iter().map(retry_after).chain([last]).collect();
    assert!(told.is_sorted_by(|a, b| a + 2 <= *b) && told[0] >= 4, "{told:?}");
    assert_eq!((program.wait().code(), origin.count()), (Some(0), 1 + served.len()));
}

/// A hold that begins during the grace moves the other turns past its end.
#[test]
fn a_hold_in_the_grace_refuses_requests_that_were_promised_a_turn() {
    let (answer, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let _ = wait.lock().expect("one waits at a time").recv_timeout(PATIENCE);
            visitor.send("HTTP/1.1 429 Slow down\r\nRetry-After: 100\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut program = start("20s", "60s");
    let mut first = program.client();
    first.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    let mut second = waiting(&program, &origin.get("/"), 1);
    program.signal("TERM");
    let address = program.address();
    assert!(soon(|| std::net::TcpStream::connect(address).is_err()), "no new client is let in");
    answer.send(()).unwrap();
    assert_eq!(first.response().status(), 429);
    let told = retry_after(&second.response());
    assert!((90..=121).contains(&told), "{told}");
    assert_eq!((origin.count(), program.wait().code()), (1, Some(0)));
}

/// The admin listener answers until the last request is over, so that commands can say what curtsy is doing.
#[test]
fn while_requests_finish_it_says_that_it_is_stopping() {
    let (answer, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let _ = wait.lock().expect("one waits at a time").recv_timeout(PATIENCE);
            visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let mut program = Program::start("admin = \"127.0.0.1:0\"\nshutdown_grace = \"60s\"\n", "");
    let admin = program.event("ready").expect("it is ready")["admin"].as_str().expect("an address").to_owned();
    let ask = |path: &str| {
        let mut client = Client::connect(admin.parse().expect("an address"));
        client.ask(&[&format!("GET {path} HTTP/1.1"), "Host: localhost", "Connection: close"])
    };
    assert_eq!(ask("/readyz").status(), 200);
    let mut client = program.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    program.signal("TERM");
    assert!(soon(|| ask("/readyz").status() == 503));
    assert!(ask("/api/v1/status").text().contains(r#""state":"stopping""#));
    answer.send(()).unwrap();
    assert_eq!(client.response().status(), 200);
    assert_eq!(program.wait().code(), Some(0));
    assert!(std::net::TcpStream::connect(&admin).is_err());
}

/// A waiting CONNECT has no answer yet, so it gets a refusal.
#[test]
fn a_tunnel_that_waits_to_be_opened_hears_it_too() {
    let origin = Origin::hello();
    let mut program = start("20s", "2s");
    assert_eq!(program.get(&origin.url("/")).text(), "hello");
    let line = format!("CONNECT {} HTTP/1.1", origin.authority());
    let mut waiting = waiting(&program, &line, 1);
    program.signal("TERM");
    let told = retry_after(&waiting.response_head());
    assert!((1..=20).contains(&told), "{told}");
    assert_eq!(program.wait().code(), Some(0));
}
