//! What one node learns or is told binds all.

use super::*;
use crate::support::ms;

#[test]
fn a_retry_after_heard_by_one_node_holds_the_others() {
    let redis = RedisServer::start();
    let answer = "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n";
    let is_free = AtomicBool::new(false);
    let refusing = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            let is_refused = request.line().contains("/busy") && !is_free.swap(true, Relaxed);
            visitor.send(if is_refused { answer.as_bytes() } else { HELLO.as_bytes() });
        }
    });
    let fleet = TestFleet::of(&[redis.url(), redis.url()], ms(100), refusing);
    fleet.nodes[1].get(&fleet.origin.url("/before"));
    // curtsy asks again by itself when the hold is over.
    let mut client = fleet.nodes[0].client();
    client.send_head(&[&format!("GET {} HTTP/1.1", fleet.origin.url("/busy")), "Host: ignored.test"]);
    let hash = |field: &str| redis.try_run::<Option<String>>(&["EVAL", &reading(field), "0"]).ok().flatten();
    assert!(soon(|| hash("h").is_some()), "the hold is not in Redis");
    fleet.nodes[1].get(&fleet.origin.url("/after"));
    assert!(client.response().line().contains(" 200 "));
    let requests = fleet.origin.requests(fleet.origin.count());
    let at = |path: &str| requests.iter().find(|request| request.line().contains(path)).expect(path).at;
    assert!(at("/after") - at("/busy") + ROOM >= Duration::from_secs(3), "{:?}", at("/after") - at("/busy"));
}

/// A script that reads a field of the only host.
fn reading(field: &str) -> String {
    format!("return redis.call('HGET', redis.call('KEYS', '*:h:*')[1], '{field}')")
}

#[test]
fn a_pause_and_an_override_on_one_node_bind_all() {
    let redis = RedisServer::start();
    let fleet = TestFleet::start(&redis.url(), 2, ms(50));
    let url = fleet.origin.url("/");
    fleet.nodes.iter().for_each(|node| assert!(node.get(&url).line().contains(" 200 ")));
    let steer = |body: &str| {
        let lines = ["PATCH /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Content-Type: application/json"];
        let length = format!("Content-Length: {}", body.len());
        let mut client = Client::connect(fleet.nodes[0].admin());
        client.send_head(&[&lines[..], &[&length]].concat());
        client.send(body.as_bytes());
        client.response()
    };
    let answer = steer(r#"{"delay": "700ms"}"#);
    assert!(answer.line().contains(" 200 "), "{}", answer.text());
    assert!(soon(|| redis.try_run::<Option<String>>(&["EVAL", &reading("o"), "0"]).ok().flatten().is_some()));
    let before = fleet.origin.count();
    (0..3).for_each(|_| drop(fleet.nodes[1].get(&url)));
    let times = fleet.times();
    for pair in times[before..].windows(2) {
        assert!(pair[1] - pair[0] + ROOM >= ms(700), "{times:?}");
    }
}
