//! How curtsy keeps, reuses and replaces its connections to origins, and how it uses a parent proxy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};

use curtsy::config::ParentProxy;

use crate::support::client::head;
use crate::support::origin::HELLO;
use crate::support::{Client, Curtsy, End, Message, Origin, PATIENCE, Visitor, ms, pause, soon};

/// An origin whose first connection serves one request and then does `then` to the second.
fn fragile(then: fn(&mut Visitor)) -> Origin {
    Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send(HELLO);
        while visitor.request().is_some() {
            if visitor.number == 0 {
                return then(visitor);
            }
            visitor.send(HELLO);
        }
    })
}

/// Sends a first request, which is answered, and then `request`; returns the second answer.
fn second(origin: &Origin, request: &str) -> Message {
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    assert_eq!(client.ask(&[&origin.get("/first"), "Host: x"]).text(), "hello");
    client.send(request);
    client.response()
}

/// A safe request is sent again once.
#[test]
fn a_kept_connection_that_died_is_replaced_once() {
    for then in [|_: &mut Visitor| (), |visitor: &mut Visitor| visitor.end_with_reset()] {
        let origin = fragile(then);
        let response = second(&origin, &head(&[&origin.get("/second"), "Host: x"]));
        assert_eq!(response.text(), "hello");
        let seconds = origin.requests(3);
        assert_eq!([seconds[1].connection, seconds[2].connection], [0, 1]);
    }
}

#[test]
fn a_request_with_a_body_is_not_repeated() {
    for method in ["POST", "PUT"] {
        let origin = fragile(|_| ());
        let line = format!("{method} {} HTTP/1.1", origin.url("/"));
        let response = second(&origin, &(head(&[&line, "Host: x", "Content-Length: 2"]) + "ok"));
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{method}");
        assert_eq!(origin.count(), 2, "{method}");
    }
}

/// curtsy sends a request again only if it was sent on a reused connection.
#[test]
fn a_fresh_connection_that_dies_is_not_tried_again() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
    });
    let response = Curtsy::start().get(&origin.url("/"));
    assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"));
    assert!(response.value("Proxy-Status").contains("error=connection_terminated"), "{}", response.head());
    assert_eq!((origin.count(), origin.connections()), (1, 1));
}

/// There is no second retry.
#[test]
fn a_second_death_is_final() {
    let deaths = Arc::new(AtomicUsize::new(0));
    let counter = deaths.clone();
    let origin = Origin::scripted(move |visitor| {
        if visitor.number == 0 {
            visitor.request();
            visitor.send(HELLO);
        }
        visitor.request();
        counter.fetch_add(1, Ordering::Relaxed);
    });
    let response = second(&origin, &head(&[&origin.get("/second"), "Host: x"]));
    assert_eq!((response.status(), deaths.load(Ordering::Relaxed), origin.connections()), (502, 2, 2));
}

#[test]
fn a_connection_the_origin_closed_meanwhile_costs_nothing() {
    let (closed, closes) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send(HELLO);
        visitor.half_close();
        closed.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::start();
    let mut client = curtsy.client();
    for _ in 0..3 {
        assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
        assert_ne!(closes.recv_timeout(PATIENCE).unwrap(), End::Silence, "curtsy lets go of it");
    }
    assert_eq!((origin.count(), origin.connections()), (3, 3));
}

#[test]
fn a_connection_without_work_is_closed_after_a_while() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        visitor.send(HELLO);
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::with(|config| config.upstream.keep_alive = ms(100));
    let mut client = curtsy.client();
    client.ask(&[&origin.get("/"), "Host: x"]);
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    assert_eq!(client.ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    assert_eq!(origin.connections(), 2);
}

/// curtsy keeps as many connections as the requests to a host used at once.
#[test]
fn as_many_connections_are_kept_as_are_in_use_at_once() {
    const AT_ONCE: usize = 20;
    let (origin, curtsy) = (
        Origin::hello(),
        Curtsy::with(|config| {
            config.politeness.mode = curtsy::config::Mode::Enforce;
            config.politeness.delay = ms(0);
            config.politeness.concurrency = 20;
        }),
    );
    let mut clients: Vec<Client> = (0..AT_ONCE).map(|_| curtsy.client()).collect();
    for _ in 0..20 {
        clients.iter_mut().for_each(|client| client.send_head(&[&origin.get("/"), "Host: x"]));
        clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "hello"));
    }
    assert_eq!(origin.count(), 400);
    assert!(origin.connections() <= AT_ONCE, "{} connections for 400 requests", origin.connections());
}

/// X35: the idle pool is bounded.
#[test]
fn no_more_connections_are_kept_than_allowed() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        // None is answered before all three have arrived, so that they need three connections.
        soon(|| visitor.request_count() == 3);
        visitor.send(HELLO);
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::with(|config| config.upstream.pool_per_host = 1);
    let mut clients: Vec<Client> = (0..3).map(|_| curtsy.client()).collect();
    clients.iter_mut().for_each(|client| client.send_head(&[&origin.get("/"), "Host: x"]));
    clients.iter_mut().for_each(|client| assert_eq!(client.response().text(), "hello"));
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
    assert!(end.try_recv().is_err(), "one is kept");
}

#[test]
fn a_response_that_does_not_come_in_time_is_given_up() {
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.request();
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = Curtsy::with(|config| config.upstream.response_timeout = ms(200));
    let response = curtsy.get(&origin.url("/"));
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
    assert!(response.value("Proxy-Status").contains("error=http_response_timeout"), "{}", response.head());
    assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence);
}

#[test]
fn a_head_that_trickles_is_given_up_too() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\n");
        soon(|| { pause(ms(40)); true } && !visitor.send("X-Slow: 1\r\n"));
    });
    let response = Curtsy::with(|config| config.upstream.response_timeout = ms(250)).get(&origin.url("/"));
    assert_eq!((response.status(), response.refusal().as_str()), (504, "origin-timeout"));
}

/// S73: if a response stalls, the only way to show it is to cut the response off.
#[test]
fn a_response_that_stalls_is_cut() {
    let origin = Origin::scripted(|visitor| {
        visitor.request();
        visitor.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart");
        visitor.linger();
    });
    let response = Curtsy::with(|config| config.upstream.idle_timeout = ms(200)).get(&origin.url("/"));
    assert_eq!((response.status(), response.whole, response.text().as_str()), (200, false, "part"));
}

#[test]
fn an_ipv6_origin_is_visited() {
    let origin = Origin::on("::1", |visitor| {
        visitor.request();
        visitor.send(HELLO);
    });
    let response = Curtsy::start().get(&format!("http://[::1]:{}/", origin.port()));
    assert_eq!(response.text(), "hello");
    assert_eq!(origin.request().value("Host"), format!("[::1]:{}", origin.port()));
}

#[test]
fn the_source_address_can_be_chosen() {
    let (sent, received) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        sent.send(visitor.peer().ip().to_string()).unwrap();
        visitor.request();
        visitor.send(HELLO);
    });
    let curtsy = Curtsy::with(|config| config.upstream.bind = Some([127, 0, 0, 5].into()));
    assert_eq!(curtsy.get(&origin.url("/")).text(), "hello");
    assert_eq!(received.recv_timeout(PATIENCE).unwrap(), "127.0.0.5");
}

fn parent_at(parent: &Origin, credentials: Option<(&str, &str)>) -> ParentProxy {
    let credentials = credentials.map(|(user, password)| (user.to_owned(), password.to_owned()));
    ParentProxy { host: "127.0.0.1".to_owned(), port: parent.port(), credentials }
}

fn behind(parent: &Origin, credentials: Option<(&str, &str)>) -> Curtsy {
    Curtsy::with(|config| config.upstream.proxy = Some(parent_at(parent, credentials)))
}

#[test]
fn a_parent_proxy_is_asked_in_absolute_form() {
    let parent = Origin::hello();
    let curtsy = behind(&parent, Some(("u", "p")));
    let response =
        curtsy.ask(&["GET http://example.org/a?b HTTP/1.1", "Host: x", "Proxy-Authorization: Basic c2VjcmV0"]);
    assert_eq!(response.text(), "hello");
    let request = parent.request();
    assert_eq!(request.line(), "GET http://example.org/a?b HTTP/1.1");
    assert_eq!(
        (request.value("Host").as_str(), request.value("Proxy-Authorization").as_str()),
        ("example.org", "Basic dTpw")
    );
}

#[test]
fn a_tunnel_goes_through_the_parent_proxy() {
    let parent = Origin::scripted(|visitor| {
        visitor.request_head();
        visitor.send("HTTP/1.1 200 Connection established\r\n\r\ngreeting");
        visitor.linger();
    });
    let curtsy = behind(&parent, Some(("u", "p")));
    let mut client = curtsy.client();
    assert_eq!(client.ask(&["CONNECT example.org:443 HTTP/1.1", "Host: x"]).status(), 200);
    assert_eq!(client.read_exactly(8), Ok(b"greeting".to_vec()));
    let request = parent.request();
    assert_eq!(
        (request.line().as_str(), request.value("Proxy-Authorization").as_str()),
        ("CONNECT example.org:443 HTTP/1.1", "Basic dTpw")
    );
}

#[test]
fn a_tunnel_the_parent_refuses_is_refused() {
    for answer in [
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n",
        "garbage\r\n\r\n",
    ] {
        let parent = Origin::closing(answer);
        let response = behind(&parent, None).ask(&["CONNECT example.org:443 HTTP/1.1", "Host: x"]);
        assert_eq!((response.status(), response.refusal().as_str()), (502, "origin-unreachable"), "{answer}");
    }
}

/// X1: the address guard does not apply to the configured parent proxy.
#[test]
fn a_parent_may_live_at_a_private_address() {
    let parent = Origin::hello();
    let curtsy = Curtsy::with(|config| {
        config.access.allow_destinations.clear();
        config.upstream.proxy = Some(parent_at(&parent, None));
    });
    assert_eq!(curtsy.get("http://example.org/").text(), "hello");
}

/// A fast request does not wait for the connection of a slow one.
#[test]
fn slow_and_fast_requests_do_not_share_a_connection() {
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            if request.line().contains("/slow") {
                waits.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            }
            visitor.send(HELLO);
        }
    });
    let curtsy = Curtsy::start();
    let mut slow = curtsy.client();
    slow.send(head(&[&origin.get("/slow"), "Host: x"]));
    assert!(soon(|| origin.count() == 1));
    assert_eq!(curtsy.get(&origin.url("/fast")).text(), "hello");
    go_on.send(()).unwrap();
    assert_eq!(slow.response().text(), "hello");
}

/// X10: the parent proxy gets the normalised host that curtsy judged.
#[test]
fn a_parent_proxy_is_given_the_one_spelling_of_a_host() {
    let parent = Origin::hello();
    assert_eq!(behind(&parent, None).get("http://Example.ORG./a?b").text(), "hello");
    assert_eq!(parent.request().line(), "GET http://example.org/a?b HTTP/1.1");
}

/// X1: a parent proxy does not make a denied address reachable.
#[test]
fn a_private_address_is_denied_behind_a_parent_too() {
    let parent = Origin::hello();
    let curtsy = Curtsy::with(|config| {
        config.access.allow_destinations.clear();
        config.upstream.proxy = Some(parent_at(&parent, None));
    });
    assert_eq!(curtsy.get("http://127.0.0.1:81/").refusal(), "destination-denied");
    parent.expect_untouched();
}

/// A request is not sent again once its answer has begun.
#[test]
fn an_answer_that_began_is_not_asked_for_again() {
    let origin = fragile(|visitor| {
        visitor.send("HTTP/1.1 2");
    });
    let response = second(&origin, &head(&[&origin.get("/second"), "Host: x"]));
    assert_eq!(response.status(), 502);
    assert_eq!(origin.count(), 2);
}
