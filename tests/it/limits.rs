//! Limits on what one client may occupy, and for how long.

use std::sync::mpsc;

use crate::support::client::head;
use crate::support::deadline::Stopwatch;
use crate::support::{Curtsy, End, Origin, PATIENCE, ms, pause, soon};

/// X33
#[test]
fn a_head_that_does_not_end_is_cut_off() {
    let curtsy = Curtsy::with(|config| config.limits.head_timeout = ms(200));
    for start in ["G", "GET http://a.test/ HTTP/1.1\r\n", "GET http://a.test/ HTTP/1.1\r\nHost: x\r\nX-"] {
        let mut client = curtsy.client();
        client.send(start);
        let answer = String::from_utf8_lossy(&client.rest()).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
}

/// X33: the timeout is for the whole head, not for each byte.
#[test]
fn a_head_that_trickles_is_cut_off() {
    let curtsy = Curtsy::with(|config| config.limits.head_timeout = ms(300));
    let (mut client, watch) = (curtsy.client(), Stopwatch::start());
    client.send("GET http://a.test/ HTTP/1.1\r\n");
    assert!(soon(|| {
        pause(ms(20));
        true
    } && !client.send("X-A: b\r\n")));
    assert!(watch.elapsed() < ms(15_000), "{:?}", watch.elapsed());
}

/// X33
#[test]
fn a_second_head_is_timed_like_the_first() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.limits.head_timeout = ms(2_000)));
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    client.send("GET ");
    client.rest();
}

/// X33
#[test]
fn a_connection_that_never_asks_is_closed() {
    Curtsy::with(|config| config.limits.client_idle = ms(250)).client().expect_end();
}

/// X33: a connection that waits for its answer is not idle.
#[test]
fn a_client_that_waits_for_its_answer_is_not_idle() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        pause(ms(3_000));
        visitor.send(crate::support::origin::HELLO);
    });
    let curtsy = Curtsy::with(|config| {
        config.limits.client_idle = ms(1_500);
        config.limits.head_timeout = ms(1_500);
        config.limits.client_stall = ms(1_500);
    });
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
}

/// X33
#[test]
fn a_body_that_stops_is_given_up_on_both_sides() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request_head();
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::with(|config| config.limits.client_stall = ms(250));
    let mut client = curtsy.client();
    client.send(head(&[&format!("POST {} HTTP/1.1", origin.url("/")), "Host: x", "Content-Length: 100"]) + "part");
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    client.rest();
}

/// X34
#[test]
fn a_client_that_stops_reading_loses_the_origins_connection() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n");
        let piece = vec![b'x'; 100_000];
        while visitor.send(&piece) {}
        ended.send(()).unwrap();
    });
    let curtsy = Curtsy::with(|config| config.limits.client_stall = ms(300));
    let mut client = curtsy.client();
    client.small_window();
    let watch = Stopwatch::start();
    client.send_head(&[&origin.get("/"), "Host: x"]);
    end.recv_timeout(PATIENCE).expect("curtsy gives it up");
    assert!(watch.elapsed() < ms(15_000), "{:?}", watch.elapsed());
}

/// X35
#[test]
fn a_head_has_a_greatest_size() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.limits.head_size = 8 * 1024));
    let field = format!("X-Long: {}", "x".repeat(6_000));
    assert_eq!(curtsy.ask(&[&origin.get("/"), &field]).status(), 200);
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), &field, &field]);
    assert_eq!(client.response_head().status(), 431);
    client.rest();
    assert_eq!(origin.count(), 1);
}

/// X35
#[test]
fn a_head_has_a_greatest_number_of_fields() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::start());
    assert_eq!(curtsy.ask(&[&origin.get("/"), &["X: 1"; 80].join("\r\n")]).status(), 200);
    assert_eq!(curtsy.ask(&[&origin.get("/"), &["X: 1"; 8_000].join("\r\n")]).status(), 431);
    assert_eq!(origin.count(), 1);
}

/// X35
#[test]
fn a_head_without_an_end_is_not_collected_for_ever() {
    let curtsy = Curtsy::with(|config| config.limits.head_size = 16 * 1024);
    let mut client = curtsy.client();
    let sent = (0..1_000).take_while(|_| client.send([b'x'; 10_000])).count();
    assert!(sent < 1_000, "ten megabytes of a head were taken");
}

/// X35
#[test]
fn connections_are_counted_and_given_back() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.access.max_client_connections = 3));
    let mut held: Vec<_> = (0..3).map(|_| curtsy.client()).collect();
    held.iter_mut().for_each(|client| assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello"));
    let mut fourth = curtsy.client();
    fourth.patience(ms(300));
    fourth.send_head(&[&origin.get("/fourth"), "Host: x"]);
    assert!(fourth.read_head().map_or(true, |response| response.status() == 503));
    assert_eq!(origin.count(), 3);
    drop((held, fourth));
    let served = |mut client: crate::support::Client| {
        client.send_head(&[&origin.get("/"), "Host: x"]);
        client.read_head().is_ok_and(|response| response.status() == 200)
    };
    assert!(soon(|| served(curtsy.client())));
}

/// X33
#[test]
fn a_connection_without_requests_is_closed() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.limits.client_idle = ms(250)));
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    client.expect_end();
}

/// X35, S9: a request line that is too long gets 414, fields that are too long get 431.
#[test]
fn a_url_over_the_limit_is_told_as_one() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.limits.head_size = 16 * 1024));
    for length in [16 * 1024, 17 * 1024, 70_000, 200_000] {
        let mut client = curtsy.client();
        client.send_head(&[&origin.get(&format!("/{}", "x".repeat(length))), "Host: x"]);
        let response = client.response_head();
        assert_eq!(response.status(), 414, "{length}: {}", response.head());
        client.rest();
    }
    let mut client = curtsy.client();
    client.send_head(&[&origin.get("/"), "Host: x", &format!("X-Long: {}", "x".repeat(17 * 1024))]);
    assert_eq!(client.response_head().status(), 431);
    let default = Curtsy::start();
    for length in [65_000, 65_536, 100_000] {
        let mut client = default.client();
        client.send_head(&[&origin.get(&format!("/{}", "x".repeat(length))), "Host: x"]);
        assert_eq!(client.response_head().status(), if length == 65_000 { 200 } else { 414 }, "{length}");
    }
    assert_eq!(origin.count(), 1);
}

/// X35: if one address holds every connection, curtsy closes one of them for another address, idle ones first.
#[test]
fn one_address_does_not_shut_out_another() {
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.access.max_client_connections = 8));
    let mut first: Vec<_> = (0..8).map(|_| curtsy.client()).collect();
    first.iter_mut().for_each(|client| assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello"));
    let mut second = Vec::new();
    for _ in 0..4 {
        let mut client = curtsy.client_from([127, 0, 0, 2]);
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).status(), 200);
        second.push(client);
    }
    // Both addresses have four now, so neither may displace the other.
    for address in [[127, 0, 0, 1], [127, 0, 0, 2]] {
        let mut client = curtsy.client_from(address);
        client.send_head(&[&origin.get("/"), "Host: x"]);
        assert!(client.read_head().map_or(true, |response| response.status() == 503), "{address:?}");
    }
    second.iter_mut().for_each(|client| assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).status(), 200));
    let alive = first.iter_mut().filter_map(|client| {
        client.send_head(&[&origin.get("/"), "Host: x"]);
        client.read_head().ok()
    });
    assert_eq!(alive.count(), 4);
}

/// X35: a request in flight is not cut off for another address. Its connection is closed after the answer.
#[test]
fn a_busy_connection_is_given_back_after_its_answer() {
    let (answer, answers) = mpsc::channel::<()>();
    let answers = std::sync::Mutex::new(answers);
    let slow = Origin::scripted(move |visitor| {
        while visitor.request().is_some() {
            let _ = answers.lock().unwrap().recv_timeout(PATIENCE);
            visitor.send(crate::support::HELLO);
        }
    });
    let (origin, curtsy) = (Origin::hello(), Curtsy::with(|config| config.access.max_client_connections = 4));
    let mut busy: Vec<_> = (0..4).map(|_| curtsy.client()).collect();
    busy.iter_mut().for_each(|client| client.send_head(&[&slow.get("/"), "Host: x"]));
    (0..4).for_each(|_| drop(slow.request()));
    let served = |address| {
        let mut client = curtsy.client_from(address);
        client.send_head(&[&origin.get("/"), "Host: x"]);
        client.read_head().is_ok_and(|response| response.status() == 200)
    };
    assert!(!served([127, 0, 0, 2]), "there is no place yet");
    (0..4).for_each(|_| answer.send(()).unwrap());
    let whole = busy.iter_mut().map(|client| client.response().text()).filter(|text| text == "hello").count();
    assert_eq!(whole, 4, "whatever was under way is answered");
    assert!(soon(|| served([127, 0, 0, 2])));
}
