//! Places at a host: long-lived connections of one client do not shut out another client.

use std::sync::mpsc;
use std::time::Duration;

use curtsy::config::{Config, Mode};

use crate::support::client::head;
use crate::support::deadline::within;
use crate::support::{Client, Curtsy, HELLO, Origin, Visitor, ms, soon};

const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

/// Completes a WebSocket handshake and sends nothing after it; answers all other requests with a page.
fn sockets(visitor: &mut Visitor) {
    while let Some(request) = visitor.request() {
        if request.line().contains("/socket") {
            visitor.send(SWITCHING);
            while visitor.read_some().is_ok() {}
            return;
        }
        visitor.send(HELLO);
    }
}

fn paced(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = Duration::ZERO;
        config.politeness.concurrency = 2;
        config.politeness.max_wait = ms(1_500);
        change(config);
    })
}

fn websocket(curtsy: &Curtsy, origin: &Origin) -> Client {
    let mut client = curtsy.client();
    client.send(head(&[
        &origin.get("/socket"),
        "Host: x",
        "Curtsy-Client: mallory",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Key: k",
        "Sec-WebSocket-Version: 13",
    ]));
    client
}

/// X65, X70: WebSockets have their own places, and one client cannot take all places of both kinds.
#[test]
fn websockets_of_one_client_do_not_shut_out_another() {
    let (origin, curtsy) = (Origin::scripted(sockets), paced(|_| ()));
    let mut open: Vec<Client> = (0..3).map(|_| websocket(&curtsy, &origin)).collect();
    for client in &mut open {
        assert_eq!(client.response_head().status(), 101);
    }
    // The fourth would take the last place.
    let _fourth = websocket(&curtsy, &origin);
    assert!(soon(|| curtsy.metric("curtsy_queued_requests") == 1));
    for _ in 0..3 {
        let answer = curtsy.ask(&[&origin.get("/page"), "Host: x", "Curtsy-Client: alice"]);
        assert_eq!((answer.status(), answer.text().as_str()), (200, "hello"));
    }
}

/// Retry-After grows while the places stay taken.
#[test]
fn retry_after_grows_while_places_are_taken() {
    let (release, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            if request.line().contains("/slow") {
                // Waits until the test is over.
                let _ = hold.lock().expect("no test thread has panicked").recv();
            }
            visitor.send(HELLO);
        }
    });
    let curtsy = paced(|config| config.politeness.concurrency = 1);
    assert_eq!(curtsy.get(&origin.url("/quick")).status(), 200);
    let mut slow = curtsy.client();
    slow.send_head(&[&origin.get("/slow"), "Host: x", "Curtsy-Client: mallory"]);
    let told = || {
        let refusal = curtsy.ask(&[&origin.get("/page"), "Host: x", "Curtsy-Client: alice"]);
        assert_eq!((refusal.status(), refusal.refusal().as_str()), (429, "wait-too-long"));
        refusal.value("Retry-After").parse::<u64>().expect("a number of seconds")
    };
    let first = told();
    within(Duration::from_secs(first), || false);
    let second = told();
    assert!(second > first, "first {first} s, then {second} s");
    drop(release);
}

/// X34: an upload of single bytes is cut off, even if no pause is as long as `limits.client_stall`.
#[test]
fn an_upload_by_the_byte_is_cut_off() {
    let origin = Origin::scripted(|visitor| while visitor.read_some().is_ok() {});
    let curtsy = paced(|config| config.limits.client_stall = ms(100));
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send_head(&[&line, "Host: x", "Content-Length: 100000"]);
    let mut sent = 0;
    // Ten pauses are allowed, which is a second here.
    let is_over = soon(|| {
        sent += 1;
        !within(ms(30), || false) && !client.send("x")
    });
    let answer = String::from_utf8_lossy(&client.rest()).into_owned();
    assert!(is_over && (answer.is_empty() || answer.starts_with("HTTP/1.1 408")), "{sent} bytes: {answer}");
}
