//! Requests inside tunnels: curtsy separates them by the sizes of TLS records and paces them; tunnels where it cannot
//! do so pass unpaced.
//!
//! Both ends send outlines of TLS 1.3: records with the right types and lengths and dummy contents. Recordings of real
//! clients are in `tests/data/tunnels`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use curtsy::config::{Config, Http2Tunnels, Mode};
use serde_json::Value;

use crate::support::program;
use crate::support::{Client, Curtsy, End, Origin, PATIENCE, Stopwatch, Visitor, expect_gaps, ms, pause, soon};

pub(crate) const DELAY: Duration = ms(250);

pub(crate) const FINISHED: usize = 53;
pub(crate) const REQUEST: usize = 150;
pub(crate) const RESPONSE: usize = 900;

pub(crate) fn record(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a record is short").to_be_bytes();
    [&[kind, 3, 3][..], &length, body].concat()
}

pub(crate) fn outline(kind: u8, length: usize) -> Vec<u8> {
    record(kind, &vec![0xee; length])
}

fn list(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).expect("a list is short").to_be_bytes()[..], bytes].concat()
}

fn hello(kind: u8, fixed: &[u8], extensions: &[u8]) -> Vec<u8> {
    let body = [&[3, 3][..], &[7; 32], &[0], fixed, &list(extensions)].concat();
    [&[kind, 0][..], &list(&body)].concat()
}

/// A ClientHello with this server name that offers these protocols.
pub(crate) fn client_hello(name: &str, protocols: &[&str]) -> Vec<u8> {
    let protocols: Vec<u8> =
        protocols.iter().flat_map(|name| [&[name.len() as u8][..], name.as_bytes()].concat()).collect();
    let alpn = [&[0, 16][..], &list(&list(&protocols))].concat();
    let name = [&[0, 0][..], &list(&list(&[&[0][..], &list(name.as_bytes())].concat()))].concat();
    hello(1, &[0, 2, 0x13, 1, 1, 0], &[name, alpn].concat())
}

pub(crate) fn server_hello() -> Vec<u8> {
    hello(2, &[0x13, 1, 0], &[0, 43, 0, 2, 3, 4])
}

/// An origin that answers every application record with one record, and notes when each came.
pub(crate) struct Guestbook {
    pub(crate) origin: Origin,
    arrivals: Arc<Mutex<Vec<Duration>>>,
}

impl Guestbook {
    pub(crate) fn open() -> Self {
        let arrivals = Arc::<Mutex<Vec<Duration>>>::default();
        let (book, watch) = (arrivals.clone(), Stopwatch::start());
        let origin = Origin::scripted(move |visitor| {
            shake_hands(visitor);
            while read_record(visitor).is_ok_and(|kind| kind == 23) {
                book.lock().expect("no test thread has panicked").push(watch.at(visitor.arrived()));
                visitor.send(outline(23, RESPONSE));
            }
        });
        Guestbook { origin, arrivals }
    }

    pub(crate) fn times(&self) -> Vec<Duration> {
        self.arrivals.lock().expect("no test thread has panicked").clone()
    }

    pub(crate) fn expect_gaps(&self, count: usize) {
        assert!(soon(|| self.times().len() >= count), "{:?}", self.times());
        expect_gaps(&self.times(), DELAY);
    }
}

pub(crate) fn shake_hands(visitor: &mut Visitor) {
    let _ = read_record(visitor);
    visitor.send([record(22, &server_hello()), outline(20, 1), outline(23, 900), outline(23, FINISHED)].concat());
    let _ = (read_record(visitor), read_record(visitor));
    visitor.send([outline(23, 250), outline(23, 250)].concat());
}

pub(crate) fn read_record(visitor: &mut Visitor) -> Result<u8, End> {
    let header = visitor.read_exactly(5)?;
    visitor.read_exactly(usize::from(u16::from_be_bytes([header[3], header[4]])))?;
    Ok(header[0])
}

pub(crate) fn pacing(change: impl FnOnce(&mut Config)) -> Curtsy {
    Curtsy::with(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
        change(config);
    })
}

/// Lets the next requests wait for longer. A tunnel whose answer comes after this is closed behind it.
pub(crate) fn slow_down(curtsy: &Curtsy, delay: Duration) {
    curtsy.reload(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
    });
}

pub(crate) fn connect(curtsy: &Curtsy, authority: &str) -> Client {
    let mut client = curtsy.client();
    let response = client.ask(&[&format!("CONNECT {authority} HTTP/1.1"), "Host: x"]);
    assert_eq!(response.status(), 200, "{}", response.head());
    client
}

/// Opens a tunnel and completes the handshake of a client that offers these protocols.
pub(crate) fn tunnel(curtsy: &Curtsy, origin: &Origin, protocols: &[&str]) -> Client {
    handshake(connect(curtsy, &origin.authority()), protocols)
}

/// Completes the handshake in a tunnel that is open.
pub(crate) fn handshake(mut client: Client, protocols: &[&str]) -> Client {
    client.send(record(22, &client_hello("a.test", protocols)));
    let heard = server_hello().len() + 5 + 6 + 905 + 5 + FINISHED;
    client.read_exactly(heard).expect("the origin's hello");
    client.send([outline(20, 1), outline(23, FINISHED)].concat());
    client.read_exactly(2 * 255).expect("tickets");
    client
}

pub(crate) fn request(client: &mut Client) -> Result<Vec<u8>, End> {
    client.send(outline(23, REQUEST));
    client.read_exactly(RESPONSE + 5)
}

pub(crate) fn host(curtsy: &Curtsy) -> Value {
    let lines = ["GET /api/v1/hosts/127.0.0.1 HTTP/1.1", "Host: localhost", "Connection: close"];
    serde_json::from_str(&curtsy.ask_admin(&lines).text()).expect("JSON")
}

fn expect_no_breach(curtsy: &Curtsy) {
    assert_eq!(curtsy.metric("curtsy_spacing_violations_total"), 0);
}

/// Promise 1: requests inside one tunnel are spaced.
#[test]
fn requests_in_a_tunnel_keep_their_distance() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = tunnel(&curtsy, &book.origin, &["h2", "http/1.1"]);
    for _ in 0..4 {
        request(&mut client).expect("an answer");
    }
    book.expect_gaps(4);
    assert_eq!(curtsy.metric("curtsy_tunnel_requests_total"), 4);
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_tunnel_pacing_total{mode=\"paced\"}") == 1));
    expect_no_breach(&curtsy);
}

#[test]
fn requests_in_several_tunnels_keep_their_distance_too() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.concurrency = 2));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut client = tunnel(&curtsy, &book.origin, &[]);
                for _ in 0..3 {
                    request(&mut client).expect("an answer");
                }
            });
        }
    });
    book.expect_gaps(9);
    expect_no_breach(&curtsy);
}

/// The first request uses the turn of its CONNECT but is sent later, and the next gap counts from its send.
#[test]
fn the_first_request_counts_from_when_it_passes() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut slow = tunnel(&curtsy, &book.origin, &[]);
    std::thread::scope(|scope| {
        scope.spawn(|| request(&mut tunnel(&curtsy, &book.origin, &[])).expect("an answer"));
        pause(DELAY * 9 / 10);
        request(&mut slow).expect("an answer");
    });
    book.expect_gaps(2);
    expect_no_breach(&curtsy);
}

/// A client that opens a tunnel and then stalls does not delay others for long.
#[test]
fn a_client_that_stalls_in_the_handshake_keeps_neither_turn_nor_place() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.concurrency = 1));
    let mut silent = connect(&curtsy, &book.origin.authority());
    silent.send(&record(22, &client_hello("a.test", &[]))[..20]);
    request(&mut tunnel(&curtsy, &book.origin, &[])).expect("an answer");
    assert_eq!(curtsy.metric("curtsy_tunnel_requests_total"), 1);
    expect_no_breach(&curtsy);
}

/// With a single place, the second request of a tunnel must not wait for the place of its first.
#[test]
fn one_place_is_enough_for_a_tunnel() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.concurrency = 1));
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    for _ in 0..3 {
        request(&mut client).expect("an answer");
    }
    book.expect_gaps(3);
}

/// X25
#[test]
fn a_quiet_tunnel_gives_its_place_back() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.concurrency = 1));
    let mut quiet = tunnel(&curtsy, &book.origin, &[]);
    request(&mut quiet).expect("an answer");
    assert_eq!(host(&curtsy)["in_flight"], 1);
    let mut other = tunnel(&curtsy, &book.origin, &[]);
    request(&mut other).expect("an answer");
    request(&mut quiet).expect("an answer");
    book.expect_gaps(3);
    drop((quiet, other));
    assert!(soon(|| host(&curtsy)["in_flight"] == 0));
}

#[test]
fn a_client_that_leaves_while_its_request_waits_spends_no_turn() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let watch = Stopwatch::start();
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    request(&mut client).expect("an answer");
    slow_down(&curtsy, PATIENCE / 2);
    client.send(outline(23, REQUEST));
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    drop(client);
    assert!(soon(|| host(&curtsy)["queued"] == 0 && host(&curtsy)["in_flight"] == 0));
    assert!(watch.elapsed() < PATIENCE / 2, "it was noticed only when the turn came");
    assert_eq!(book.times().len(), 1);
}

/// curtsy stops reading from a client with a long request, so it must notice a disconnect without reading.
#[test]
fn a_client_that_leaves_behind_a_long_request_is_noticed() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    request(&mut client).expect("an answer");
    slow_down(&curtsy, PATIENCE * 4);
    client.send((0..4).flat_map(|_| outline(23, 16_000)).collect::<Vec<u8>>());
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    drop(client);
    assert!(soon(|| host(&curtsy)["queued"] == 0));
}

#[test]
fn a_request_that_is_refused_closes_its_tunnel_before_any_of_it_has_gone() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.max_wait = PATIENCE));
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    request(&mut client).expect("an answer");
    curtsy.reload(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = PATIENCE * 10;
        config.politeness.max_wait = PATIENCE;
    });
    client.send(outline(23, REQUEST));
    client.expect_end();
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"wait_too_long\"}"), 1);
    assert_eq!(book.times().len(), 1);
    let answer = curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", book.origin.authority())]);
    assert_eq!((answer.status(), answer.refusal().as_str()), (429, "wait-too-long"), "the next CONNECT hears why");
}

/// While a request waits, curtsy reads only a little more from its client.
#[test]
fn a_client_cannot_fill_memory_behind_a_request_that_waits() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    request(&mut client).expect("an answer");
    slow_down(&curtsy, PATIENCE);
    client.patience(ms(300));
    let upload: Vec<u8> = (0..2_000).flat_map(|_| outline(23, 16_000)).collect();
    assert!(!client.send(&upload), "32 MB were taken");
    assert_eq!(book.times().len(), 1);
}

#[test]
fn an_upload_is_one_request() {
    let origin = Origin::scripted(|visitor| {
        shake_hands(visitor);
        for _ in 0..2 {
            let upload = (0..41).map(|_| read_record(visitor));
            assert!(upload.into_iter().all(|kind| kind == Ok(23)));
            visitor.send(outline(23, RESPONSE));
        }
    });
    let curtsy = pacing(|_| ());
    let mut client = tunnel(&curtsy, &origin, &[]);
    for _ in 0..2 {
        client.send(outline(23, REQUEST));
        client.send((0..40).flat_map(|_| outline(23, 16_000)).collect::<Vec<u8>>());
        client.read_exactly(RESPONSE + 5).expect("an answer");
    }
    assert_eq!(curtsy.metric("curtsy_tunnel_requests_total"), 2);
}

/// An HTTP/2 tunnel takes one turn and one place; the API and `curtsy host` report it as unpaced.
#[test]
fn http2_takes_one_turn_and_is_told_about() {
    let (book, curtsy) = (Guestbook::open(), pacing(|config| config.politeness.delay = PATIENCE));
    let mut client = tunnel(&curtsy, &book.origin, &["h2", "http/1.1"]);
    request(&mut client).expect("settings");
    client.send(outline(23, 26));
    client.read_exactly(RESPONSE + 5).expect("an answer to what cannot be a request");
    for _ in 0..5 {
        request(&mut client).expect("an answer");
    }
    assert_eq!(curtsy.metric("curtsy_tunnel_pacing_total{mode=\"http2\"}"), 1);
    let shown = host(&curtsy);
    assert_eq!((&shown["in_flight"], &shown["unpaced_tunnels"]["reason"]), (&1.into(), &"http2".into()), "{shown:#}");
    let (code, page) = program::run(&["host", "127.0.0.1", "--admin", &curtsy.admin().to_string()]);
    assert!(code == 0 && page.contains("1 tunnel was not paced inside in the last hour: HTTP/2"), "{page}");
    expect_no_breach(&curtsy);
}

/// The next CONNECT says why, and the one after it may use HTTP/1.1.
#[test]
fn http2_inside_a_tunnel_can_be_refused() {
    let refuse = |config: &mut Config| {
        config.politeness.delay = ms(1);
        config.tls.tunnel.http2 = Http2Tunnels::Refuse;
    };
    let (book, curtsy) = (Guestbook::open(), pacing(refuse));
    let mut recognised = tunnel(&curtsy, &book.origin, &["h2", "http/1.1"]);
    request(&mut recognised).expect("settings");
    recognised.send(outline(23, 26));
    recognised.expect_end();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    for opening in [record(22, &client_hello("a.test", &["h2"])), preface] {
        expect_refusal_of_http2(&curtsy, &book.origin);
        let mut client = connect(&curtsy, &book.origin.authority());
        client.send(opening);
        assert_eq!(client.rest(), b"", "nothing of the origin is passed on");
    }
    expect_refusal_of_http2(&curtsy, &book.origin);
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    for _ in 0..3 {
        request(&mut client).expect("an answer");
    }
    assert_eq!(book.times().len(), 4, "nothing of the refused ones has gone");
    assert_eq!(curtsy.metric("curtsy_rejections_total{reason=\"http2_tunnel\"}"), 6);
    assert_eq!(host(&curtsy)["unpaced_tunnels"], Value::Null, "nothing passed unpaced");
}

fn expect_refusal_of_http2(curtsy: &Curtsy, origin: &Origin) {
    let refused = curtsy.ask(&[&format!("CONNECT {} HTTP/1.1", origin.authority()), "Host: x"]);
    assert_eq!((refused.status(), refused.refusal().as_str()), (403, "http2-tunnel"), "{}", refused.head());
    assert!(refused.text().contains("--http1.1"), "{}", refused.text());
}

/// Bytes that are not valid TLS pass unchanged, after one turn for the tunnel.
#[test]
fn what_is_not_tls_passes_and_is_told_about() {
    let garbage: [&[u8]; 6] = [
        b"SSH-2.0-curtsy\r\n",
        &[22, 3, 1, 0x50, 0, 1, 2, 3],
        &[22, 3, 1, 0, 0, 22, 3, 1, 0, 0],
        &[23, 3, 3, 0, 20, 1, 2, 3],
        &[0x80, 0x2e, 1, 0, 2, 0],
        &[22, 3, 1, 0, 1, 9, b'G', b'E', b'T', b' ', b'/'],
    ];
    let origin = Origin::scripted(|visitor| {
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let curtsy = pacing(|config| config.politeness.delay = ms(1));
    for (index, bytes) in garbage.iter().enumerate() {
        let mut client = connect(&curtsy, &origin.authority());
        for _ in 0..5 {
            client.send(bytes);
            assert_eq!(client.read_exactly(bytes.len()).as_deref(), Ok(*bytes));
        }
        assert_eq!(curtsy.metric("curtsy_tunnel_pacing_total{mode=\"other\"}"), index as u64 + 1, "{bytes:?}");
    }
}

/// Half of a record header waits for the rest, and is delivered if the connection ends instead.
#[test]
fn what_is_left_over_at_the_end_is_delivered() {
    let (sent, received) = std::sync::mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        shake_hands(visitor);
        sent.send(visitor.read_to_end()).expect("the test waits");
    });
    let curtsy = pacing(|_| ());
    let mut client = tunnel(&curtsy, &origin, &[]);
    client.send([outline(23, REQUEST), vec![23, 3, 3]].concat());
    client.half_close();
    let expected = [outline(23, REQUEST), vec![23, 3, 3]].concat();
    assert_eq!(received.recv_timeout(PATIENCE).expect("an end"), (expected, End::Fin));
}

/// X24: the names may differ for good reasons (an address as the target, an encrypted ClientHello), so curtsy only logs
/// the difference.
#[test]
fn a_hello_for_another_name_goes_where_the_tunnel_leads() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = connect(&curtsy, &format!("localhost:{}", book.origin.port()));
    client.send(record(22, &client_hello("other.test", &[])));
    assert_eq!(client.read_exactly(5).expect("the origin's hello")[0], 22);
}

#[test]
fn without_request_pacing_each_tunnel_takes_one_turn() {
    let book = Guestbook::open();
    let curtsy = pacing(|config| {
        config.politeness.delay = PATIENCE;
        config.tls.tunnel.pace_requests = false;
    });
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    for _ in 0..5 {
        request(&mut client).expect("an answer");
    }
    assert_eq!(curtsy.metric("curtsy_tunnel_pacing_total{mode=\"off\"}"), 1);
}

fn short_lived(config: &mut Config) {
    config.tls.tunnel.max_lifetime = ms(300);
}

#[test]
fn an_old_tunnel_ends_when_it_is_quiet() {
    let (book, curtsy) = (Guestbook::open(), pacing(short_lived));
    let mut client = tunnel(&curtsy, &book.origin, &[]);
    for _ in 0..4 {
        request(&mut client).expect("a busy tunnel does not end");
    }
    client.expect_end();
}

#[test]
fn an_old_tunnel_is_not_cut_off_in_the_middle_of_an_answer() {
    let origin = Origin::scripted(|visitor| {
        shake_hands(visitor);
        let _ = read_record(visitor);
        for _ in 0..10 {
            visitor.send(outline(23, RESPONSE));
            pause(ms(200));
        }
        visitor.linger();
    });
    let curtsy = pacing(short_lived);
    let mut client = tunnel(&curtsy, &origin, &[]);
    client.send(outline(23, REQUEST));
    client.read_exactly(10 * (RESPONSE + 5)).expect("all of the answer");
    client.expect_end();
}

#[test]
fn what_is_not_paced_ends_at_twice_its_age_at_the_latest() {
    let origin = Origin::scripted(|visitor| {
        while visitor.send("tick") {
            pause(ms(20));
        }
    });
    let curtsy = pacing(short_lived);
    let mut client = connect(&curtsy, &origin.authority());
    client.send("not TLS");
    assert!(client.rest().len() > 4 * 10, "it ended early");
}
