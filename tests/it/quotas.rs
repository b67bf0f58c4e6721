//! Quotas: how fast one client, and all clients together, may send requests to curtsy.

use std::num::NonZeroU32;
use std::time::Duration;

use curtsy::config::{Mode, QuotaRate};

use crate::support::{Curtsy, End, Message, Origin, pause};

const HOUR: Duration = Duration::from_secs(3600);

fn quota(requests: u32, per: Duration) -> Option<QuotaRate> {
    Some(QuotaRate { requests: NonZeroU32::new(requests).expect("not zero"), per })
}

fn ask_as(curtsy: &Curtsy, name: &str, origin: &Origin) -> Message {
    curtsy.ask(&[&origin.get("/"), "Host: x", &format!("Curtsy-Client: {name}")])
}

fn expect_over(response: &Message) {
    assert_eq!((response.status(), response.refusal().as_str()), (429, "quota-exceeded"), "{}", response.head());
    assert!(response.reason().ends_with("(curtsy)"), "{}", response.head());
}

#[test]
fn a_client_that_asks_too_fast_is_told_when_to_come_back() {
    let (curtsy, origin) = (Curtsy::with(|config| config.access.client_rate = quota(3, HOUR)), Origin::hello());
    for _ in 0..3 {
        assert_eq!(ask_as(&curtsy, "ada", &origin).status(), 200);
    }
    let refusal = ask_as(&curtsy, "ada", &origin);
    expect_over(&refusal);
    assert!(refusal.text().contains("access.client_rate"), "{}", refusal.text());
    let seconds: u64 = refusal.value("Retry-After").parse().unwrap();
    assert!((1_150..=1_200).contains(&seconds), "{seconds}");
    assert_eq!(ask_as(&curtsy, "bob", &origin).status(), 200, "another client");
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200, "one without a name");
    assert_eq!(origin.count(), 5);
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"quota_exceeded\"}"), 1);
}

#[test]
fn a_client_that_comes_back_when_told_gets_in() {
    let curtsy = Curtsy::with(|config| config.access.client_rate = quota(1, Duration::from_secs(1)));
    let origin = Origin::hello();
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let refusal = curtsy.get(&origin.url("/"));
    expect_over(&refusal);
    pause(Duration::from_secs(refusal.value("Retry-After").parse().unwrap()));
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
}

#[test]
fn all_clients_together_have_a_quota_too() {
    let (curtsy, origin) = (Curtsy::with(|config| config.access.total_rate = quota(2, HOUR)), Origin::hello());
    assert_eq!(ask_as(&curtsy, "ada", &origin).status(), 200);
    assert_eq!(ask_as(&curtsy, "bob", &origin).status(), 200);
    let refusal = ask_as(&curtsy, "eve", &origin);
    expect_over(&refusal);
    assert!(refusal.text().contains("access.total_rate"), "{}", refusal.text());
    let tunnel = curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority()), "Host: x"]);
    expect_over(&tunnel);
    assert_eq!(origin.count(), 2);
}

/// A refused request spends no turn, so the next client of the host does not wait.
#[test]
fn a_refusal_costs_the_host_nothing() {
    let curtsy = Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = Duration::from_secs(60);
        config.access.client_rate = quota(1, HOUR);
    });
    let [first, second] = ["127.0.7.61", "127.0.7.62"].map(|ip| {
        Origin::on(ip, |visitor| {
            while visitor.request().is_some() {
                visitor.send(crate::support::HELLO.as_bytes());
            }
        })
    });
    assert_eq!(ask_as(&curtsy, "ada", &first).status(), 200);
    expect_over(&ask_as(&curtsy, "ada", &second));
    assert_eq!(curtsy.metric("curtsy_hosts"), 1, "the refused request has a lane");
    let answer = ask_as(&curtsy, "bob", &second);
    assert!(answer.value("Curtsy").starts_with("wait=0.0"), "{}", answer.head());
}

#[test]
fn the_body_of_a_refused_request_is_not_read() {
    let (curtsy, origin) = (Curtsy::with(|config| config.access.client_rate = quota(1, HOUR)), Origin::hello());
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
    let mut client = curtsy.client();
    let line = format!("POST {} HTTP/1.1", origin.url("/"));
    client.send_head(&[&line, "Host: x", "Content-Length: 1000000", "Expect: 100-continue"]);
    expect_over(&client.response());
    assert_ne!(client.read_to_end().1, End::Silence, "the connection waits for a body that was refused");
}

/// X68: a reload does not refill a used quota, neither with the same numbers nor with others.
#[test]
fn a_reload_grants_no_fresh_burst() {
    let (curtsy, origin) = (Curtsy::with(|config| config.access.client_rate = quota(2, HOUR)), Origin::hello());
    assert_eq!([curtsy.get(&origin.url("/")).status(), curtsy.get(&origin.url("/")).status()], [200, 200]);
    curtsy.reload(|config| config.access.client_rate = quota(2, HOUR));
    expect_over(&curtsy.get(&origin.url("/")));
    curtsy.reload(|config| config.access.client_rate = quota(20, HOUR));
    expect_over(&curtsy.get(&origin.url("/")));
    curtsy.reload(|_| ());
    assert_eq!(curtsy.get(&origin.url("/")).status(), 200);
}
