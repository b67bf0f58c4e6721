//! Tunnels that end: the client disconnects or the origin closes, while a request inside waits or not.

use std::sync::Mutex;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use curtsy::config::Mode;
use h2::Reason;
use tokio::sync::oneshot;

use crate::proxy_tls_http2 as http2;
use crate::support::http2_origin::pour;
use crate::support::proxy_tls::Own;
use crate::support::{Client, Curtsy, Origin, PATIENCE, Visitor, soon};
use crate::tunnels::{
    DELAY, FINISHED, Guestbook, REQUEST, RESPONSE, client_hello, host, outline, pacing, read_record, record, request,
    server_hello, shake_hands, slow_down, tunnel,
};

/// More than curtsy reads from a client whose request waits, and less than the first window of an HTTP/2 stream.
fn long_request() -> Vec<u8> {
    [outline(23, 16_400), outline(23, 16_400), outline(23, 7_200)].concat()
}

/// So long that a request that waits from now on gets no turn during the test.
const LONG: Duration = Duration::from_secs(4 * PATIENCE.as_secs());

/// X37
#[test]
fn a_client_that_leaves_with_a_long_request_gives_its_place_back() {
    let (book, curtsy) = (Guestbook::open(), pacing(|_| ()));
    let mut client = tunnel(&curtsy, &book.origin, &["http/1.1"]);
    request(&mut client).expect("an answer");
    slow_down(&curtsy, LONG);
    client.send(long_request());
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    drop(client);
    assert!(soon(|| host(&curtsy)["queued"] == 0));
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 1);
    assert_eq!(book.times().len(), 1, "nothing of it was sent");
}

/// X37: the same for an HTTP/2 stream, whose connection stays open.
#[test]
fn a_stream_that_is_reset_with_a_long_request_gives_its_place_back() {
    let (own, book) = (Own::new(), Guestbook::open());
    let curtsy = own.curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = DELAY;
    });
    let ((answered, slowed), (go, wait), (reset, leave)) = (mpsc::channel(), oneshot::channel(), oneshot::channel());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            http2::run(async {
                let send = http2::connect(&own, &curtsy).await;
                let (mut stream, mut body) = http2::tunnel(&send, &book.origin.authority()).await;
                assert!(pour(&mut stream, record(22, &client_hello("a.test", &["http/1.1"])).into(), false).await);
                http2::read_exactly(&mut body, server_hello().len() + 5 + 6 + 905 + 5 + FINISHED).await;
                let rest = [outline(20, 1), outline(23, FINISHED), outline(23, REQUEST)].concat();
                assert!(pour(&mut stream, rest.into(), false).await);
                http2::read_exactly(&mut body, 2 * 255 + RESPONSE + 5).await;
                answered.send(()).expect("the test waits for it");
                wait.await.expect("the test says when");
                assert!(pour(&mut stream, Bytes::from(long_request()), false).await);
                leave.await.expect("the test says when");
                stream.send_reset(Reason::CANCEL);
                // The connection stays open.
                let (status, ..) = http2::get(&send, "http://curtsy.invalid/").await;
                assert_eq!(status, 200);
            });
        });
        slowed.recv_timeout(PATIENCE).expect("an answer");
        curtsy.reload(|config| {
            own.set(config);
            config.politeness.mode = Mode::Enforce;
            config.politeness.delay = LONG;
        });
        go.send(()).expect("the client waits for it");
        assert!(soon(|| host(&curtsy)["queued"] == 1));
        reset.send(()).expect("the client waits for it");
        assert!(soon(|| host(&curtsy)["queued"] == 0), "{}", host(&curtsy));
    });
    assert_eq!(book.times().len(), 1, "nothing of it was sent");
}

/// A tunnel with one answered request, whose origin closes it when the test says so.
struct ClosedTunnel {
    curtsy: Curtsy,
    client: Client,
    close: mpsc::Sender<()>,
    _origin: Origin,
}

impl ClosedTunnel {
    /// `end` is what the origin does before it closes.
    fn with(end: impl Fn(&mut Visitor) + Send + Sync + 'static) -> Self {
        let (close, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let origin = Origin::scripted(move |visitor| {
            shake_hands(visitor);
            let _ = read_record(visitor);
            visitor.send(outline(23, RESPONSE));
            let _ = wait.lock().expect("one waits at a time").recv_timeout(PATIENCE);
            end(visitor);
        });
        let curtsy = pacing(|_| ());
        let mut client = tunnel(&curtsy, &origin, &["http/1.1"]);
        request(&mut client).expect("an answer");
        ClosedTunnel { curtsy, client, close, _origin: origin }
    }
}

/// The metrics count a close by the origin, not a disconnect of the client.
#[test]
fn an_origin_that_closes_while_a_request_waits_is_not_a_client_that_left() {
    let ClosedTunnel { curtsy, mut client, close, _origin } = ClosedTunnel::with(|_| ());
    slow_down(&curtsy, LONG);
    client.send(outline(23, REQUEST));
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    close.send(()).unwrap();
    client.rest();
    assert!(soon(|| curtsy.metric("curtsy_tunnels_closed_by_origin_total") == 1));
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 0);
    assert_eq!(host(&curtsy)["queued"], 0);
}

/// A client that hears the origin's closing alert may close first.
#[test]
fn a_client_that_closes_after_the_alert_of_its_origin_has_not_given_up() {
    let ClosedTunnel { curtsy, mut client, close, _origin } = ClosedTunnel::with(|visitor| {
        visitor.send(outline(23, 19));
        visitor.linger();
    });
    slow_down(&curtsy, LONG);
    client.send(outline(23, REQUEST));
    assert!(soon(|| host(&curtsy)["queued"] == 1));
    close.send(()).unwrap();
    client.read_exactly(5 + 19).expect("an alert");
    drop(client);
    assert!(soon(|| curtsy.metric("curtsy_tunnels_closed_by_origin_total") == 1));
    assert_eq!(curtsy.metric("curtsy_client_disconnects_total{stage=\"queued\"}"), 0);
}

/// A client must see the end before it sends its next request.
#[test]
fn an_origin_that_closes_an_idle_tunnel_closes_it_for_the_client() {
    let ClosedTunnel { curtsy, mut client, close, _origin } = ClosedTunnel::with(|_| ());
    close.send(()).unwrap();
    client.expect_end();
    assert_eq!(curtsy.metric("curtsy_tunnels_closed_by_origin_total"), 0, "no request waited");
}
