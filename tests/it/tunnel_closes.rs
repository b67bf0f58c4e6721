//! Tunnels that curtsy closes behind an answer, because the next request would wait inside for longer than origins keep
//! idle connections.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use crate::support::{Client, Curtsy, Origin, PATIENCE, Visitor, ms, pause, soon};
use crate::tunnels::{
    DELAY, FINISHED, Guestbook, REQUEST, RESPONSE, client_hello, connect, host, outline, pacing, read_record, record,
    request, server_hello, shake_hands, slow_down, tunnel,
};

/// So long that no second request gets a turn during a test.
const LONG: Duration = Duration::from_secs(4 * PATIENCE.as_secs());
/// Longer than the silence after which curtsy closes a tunnel.
const SILENCE: Duration = ms(2_500);

fn closed(curtsy: &Curtsy, result: &str) -> u64 {
    curtsy.metric(&format!("curtsy_tunnels_closed_early_total{{result=\"{result}\"}}"))
}

/// An origin that does this after the handshake and the first request.
fn answering(answer: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Origin {
    Origin::scripted(move |visitor| {
        shake_hands(visitor);
        let _ = read_record(visitor);
        answer(visitor);
        visitor.linger();
    })
}

/// Reads an answer of this many bytes in all, and the end of the tunnel right behind it.
fn expect_answer_and_end(client: &mut Client, bytes: usize) {
    client.send(outline(23, REQUEST));
    client.read_exactly(bytes).expect("the whole answer");
    client.expect_end();
}

#[test]
fn a_tunnel_is_closed_behind_an_answer_if_the_next_request_would_wait_long() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.delay = LONG));
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    expect_answer_and_end(&mut client, RESPONSE + 5);
    assert_eq!(host(&curtsy)["in_flight"], 0, "it keeps no place");
    drop(client);
    assert!(soon(|| closed(&curtsy, "clean") == 1));
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 0);
}

/// The delay is short, but others wait: each gets its turn in a tunnel of its own.
#[test]
fn a_tunnel_is_closed_while_enough_others_wait() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut first = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    std::thread::scope(|scope| {
        let waiting: Vec<_> =
            (0..20).map(|_| scope.spawn(|| request(&mut tunnel(&curtsy, &book.origin, &["http/1.1"])))).collect();
        assert!(soon(|| host(&curtsy)["queued"].as_u64() >= Some(16)));
        expect_answer_and_end(&mut first, RESPONSE + 5);
        for answer in waiting {
            answer.join().expect("no panic").expect("an answer");
        }
    });
    book.expect_gaps(21);
    assert_eq!(curtsy.metric("curtsy_tunnels_closed_by_origin_total"), 0);
}

/// An answer has not ended in the middle of a record, nor after a full record.
#[test]
fn an_answer_that_pauses_where_it_cannot_end_is_not_cut() {
    let origin = answering(|visitor| {
        let answer = [outline(23, 16_401), outline(23, RESPONSE)].concat();
        visitor.send(&answer[..16_406]);
        pause(SILENCE);
        visitor.send(&answer[16_406..16_500]);
        pause(SILENCE);
        visitor.send(&answer[16_500..]);
    });
    let curtsy = pacing(|config| config.politeness.delay = LONG);
    let mut client = tunnel(&curtsy, &origin, &["http/1.1"]);
    expect_answer_and_end(&mut client, 16_406 + RESPONSE + 5);
    drop(client);
    assert!(soon(|| closed(&curtsy, "clean") == 1));
}

/// Session tickets come after the request if the client sends both at once, long before a slow answer.
#[test]
fn tickets_are_not_taken_for_an_answer() {
    let origin = Origin::scripted(|visitor| {
        let _ = read_record(visitor);
        let hello = record(22, &server_hello());
        visitor.send([hello, outline(20, 1), outline(23, FINISHED)].concat());
        let _ = (read_record(visitor), read_record(visitor), read_record(visitor));
        visitor.send([outline(23, 250), outline(23, 250)].concat());
        pause(SILENCE);
        visitor.send(outline(23, RESPONSE));
        visitor.linger();
    });
    let curtsy = pacing(|config| config.politeness.delay = LONG);
    let mut client = connect(&curtsy, &origin.authority());
    client.send(record(22, &client_hello("a.test", &["http/1.1"])));
    let hello = server_hello().len() + 5 + 6 + 5 + FINISHED;
    client.read_exactly(hello).expect("the origin's hello");
    client.send([outline(20, 1), outline(23, FINISHED)].concat());
    expect_answer_and_end(&mut client, 2 * 255 + RESPONSE + 5);
}

/// The origin goes on after a pause at which an answer could have ended. curtsy does it once and no more.
#[test]
fn a_host_whose_answer_was_cut_keeps_its_tunnels() {
    let (go_on, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let origin = answering(move |visitor| {
        visitor.send(outline(23, RESPONSE));
        let _ = wait.lock().expect("one waits at a time").recv_timeout(PATIENCE);
        visitor.send(outline(23, RESPONSE));
    });
    let curtsy = pacing(|config| config.politeness.delay = ms(5_000));
    let mut client = tunnel(&curtsy, &origin, &["http/1.1"]);
    expect_answer_and_end(&mut client, RESPONSE + 5);
    go_on.send(()).expect("the origin waits");
    assert!(soon(|| closed(&curtsy, "cut") == 1));
    let mut client = tunnel(&curtsy, &origin, &["http/1.1"]);
    go_on.send(()).expect("the origin waits");
    client.send(outline(23, REQUEST));
    client.read_exactly(2 * (RESPONSE + 5)).expect("all of the answer");
}

/// A client that does not look before it sends keeps its tunnels from then on.
#[test]
fn a_client_that_sends_into_a_closed_tunnel_keeps_the_next_one() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.delay = ms(4_000)));
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    expect_answer_and_end(&mut client, RESPONSE + 5);
    client.send(outline(23, REQUEST));
    assert!(soon(|| closed(&curtsy, "reused") == 1));
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    for _ in 0..2 {
        request(&mut client).expect("an answer");
    }
    assert_eq!(closed(&curtsy, "clean"), 0);
    assert_eq!(book.times().len(), 3, "the request that was lost has not reached the origin");
}

#[test]
fn a_tunnel_that_has_been_idle_for_a_while_is_closed_if_a_request_would_have_to_wait() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    request(&mut client).expect("an answer");
    slow_down(&curtsy, LONG);
    client.expect_end();
    drop(client);
    assert!(soon(|| closed(&curtsy, "clean") == 1));
}

#[test]
fn a_request_inside_a_tunnel_goes_before_the_others_of_its_client() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut inside = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    request(&mut inside).expect("an answer");
    slow_down(&curtsy, ms(2_000));
    let waiting: Vec<Client> = (0..8)
        .map(|_| {
            let mut client = curtsy.client();
            client.send(format!("CONNECT {} HTTP/1.1\r\nHost: x\r\n\r\n", book.origin.authority()));
            client
        })
        .collect();
    assert!(soon(|| host(&curtsy)["queued"].as_u64() >= Some(7)));
    inside.send(outline(23, REQUEST));
    assert!(soon(|| book.times().len() == 2));
    assert!(host(&curtsy)["queued"].as_u64() >= Some(2), "it waited for its turn behind the others");
    assert!(book.times()[1] - book.times()[0] >= DELAY);
    drop(waiting);
}
