//! Origins that break off an answer, and answers whose client has disconnected.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use curtsy::config::{Config, Mode};
use serde_json::Value;

use crate::support::http2_origin::Call;
use crate::support::{Authority, Client, Curtsy, Http2Origin, Origin, PATIENCE, Program, ms, soon};

const CUT: &str = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfive!";

fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = Duration::ZERO;
        config.retry.max = 0;
        change(config);
    })
}

fn host(curtsy: &Curtsy) -> Value {
    let lines = ["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"];
    serde_json::from_str(&curtsy.ask_admin(&lines).text()).expect("JSON")
}

/// An answer that the origin breaks off counts as a failure of the origin, in the metrics and for the breaker.
#[test]
fn an_origin_that_breaks_off_has_failed() {
    let origin = Origin::closing(CUT);
    let curtsy = pacing(|config| config.breaker.failures = 3);
    for _ in 0..3 {
        let mut client = curtsy.client();
        client.send_head(&[&origin.get("/"), "Host: x"]);
        assert!(client.rest().ends_with(b"five!"));
    }
    assert!(soon(|| curtsy.metric("curtsy_requests_total{kind=\"http\",outcome=\"truncated\"}") == 3));
    assert_eq!(curtsy.metric("curtsy_origin_errors_total{kind=\"truncated\"}"), 3);
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"response\"}"), 0);
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"http\",outcome=\"forwarded\"}"), 0);
    assert_eq!(curtsy.get(&origin.url("/")).refusal(), "breaker-open");
}

/// Complete answers between the failures keep the breaker closed.
#[test]
fn a_whole_answer_ends_a_row_of_failures() {
    let origin = Origin::scripted(|visitor| {
        while let Some(request) = visitor.request() {
            if request.line().contains("/cut") {
                visitor.send(CUT);
                return;
            }
            visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole");
        }
    });
    let curtsy = pacing(|config| config.breaker.failures = 2);
    for _ in 0..3 {
        let mut client = curtsy.client();
        client.send_head(&[&origin.get("/cut"), "Host: x"]);
        client.rest();
        assert_eq!(curtsy.get(&origin.url("/")).text(), "whole");
    }
}

/// The access log says which side broke off.
#[test]
fn the_access_log_tells_origins_from_clients() {
    let log = "[log]\naccess = \"-\"\nformat = \"json\"\n";
    let (origin, program) = (Origin::closing(CUT), Program::start("", log));
    let mut client = program.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    client.rest();
    assert!(soon(|| !program.stdout().is_empty()));
    let line: Value = serde_json::from_str(&program.stdout()[0]).expect("JSON");
    assert_eq!((&line["complete"], &line["cut_by"]), (&Value::Bool(false), &Value::from("origin")), "{line}");
}

/// An origin that notes each request and answers when the test says so.
fn slow(answer: &'static str) -> (Origin, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let _ = wait.lock().expect("one waits at a time").recv_timeout(PATIENCE);
            visitor.send(answer);
        }
    });
    (origin, go)
}

fn leave_unanswered(curtsy: &Curtsy, origin: &Origin) {
    let mut client: Client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    drop(client);
    let abandoned = "curtsy_requests_total{kind=\"http\",outcome=\"abandoned\"}";
    assert!(soon(|| curtsy.metric(abandoned) == 1));
}

/// The request keeps its place while the origin works on it, and curtsy learns from the answer.
#[test]
fn a_refusal_is_heard_although_its_client_has_left() {
    let (origin, go) = slow("HTTP/1.1 503 Busy\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n");
    let curtsy = pacing(|_| ());
    leave_unanswered(&curtsy, &origin);
    assert_eq!(host(&curtsy)["in_flight"], 1, "the origin is still working on it");
    go.send(()).unwrap();
    assert!(soon(|| host(&curtsy)["in_flight"] == 0));
    let refused = curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Max-Wait: 1"]);
    assert_eq!(refused.refusal(), "host-cooling");
    assert!((25..=31).contains(&refused.value("Retry-After").parse().unwrap_or(0)), "{}", refused.head());
    assert_eq!(origin.count(), 1);
}

/// The same over HTTP/2: the stream stays open until its answer has come.
#[test]
fn a_refusal_over_http2_is_heard_although_its_client_has_left() {
    let (go, wait) = tokio::sync::oneshot::channel::<()>();
    let (authority, wait) = (Authority::new(), Mutex::new(Some(wait)));
    let origin = Http2Origin::new(&authority, move |mut call: Call| {
        let wait = wait.lock().expect("it is whole").take();
        async move {
            if let Some(wait) = wait {
                let _ = wait.await;
            }
            call.begin(503, &[("retry-after", "30")], true);
        }
    });
    let curtsy = pacing(|config| config.tls.extra_roots = vec![authority.file()]);
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    origin.request();
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_requests_total{kind=\"absolute\",outcome=\"abandoned\"}") == 1));
    assert_eq!(host(&curtsy)["in_flight"], 1, "the origin is still working on it");
    go.send(()).expect("the origin waits");
    assert!(soon(|| host(&curtsy)["in_flight"] == 0));
    let refused = curtsy.ask(&[&origin.get("/"), "Host: x", "Curtsy-Max-Wait: 1"]);
    assert_eq!(refused.refusal(), "host-cooling");
    assert_eq!(origin.arrivals().len(), 1);
}

/// An origin that never answers an abandoned request has failed.
#[test]
fn silence_after_the_client_has_left_is_a_failure() {
    let (origin, _go) = slow("");
    let curtsy = pacing(|config| {
        config.upstream.response_timeout = ms(300);
        config.breaker.failures = 1;
    });
    leave_unanswered(&curtsy, &origin);
    assert!(soon(|| curtsy.get(&origin.url("/")).status() == 503), "{}", host(&curtsy));
}

/// A client that disconnects before its request was sent costs no turn.
#[test]
fn a_client_that_leaves_the_line_costs_nothing() {
    let origin = Origin::hello();
    let curtsy = pacing(|config| config.politeness.delay = PATIENCE);
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    drop(client);
    assert!(soon(|| host(&curtsy)["queued"] == 0));
    assert_eq!((host(&curtsy)["in_flight"].as_u64(), origin.count()), (Some(0), 1));
}
