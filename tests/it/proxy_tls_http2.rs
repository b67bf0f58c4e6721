//! Clients that speak HTTP/2 to the proxy itself: requests with absolute URIs, tunnels as streams, and floods.

use std::future::Future;
use std::sync::mpsc;

use bytes::Bytes;
use curtsy::config::Mode;
use h2::client::{ResponseFuture, SendRequest};
use h2::{Reason, RecvStream, SendStream};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::http2_origin::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, SETTINGS, frame, pour, reset,
};
use crate::support::proxy_tls::Own;
use crate::support::{
    Authority, Client, Curtsy, End, Http2Origin, Message, Origin, PATIENCE, Program, Stopwatch, ms, soon,
};

const HTTP2: &[&str] = &["h2"];

/// Runs a client to completion, or fails after `PATIENCE`.
pub(crate) fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, client).await.expect("in time") })
}

pub(crate) async fn connect(own: &Own, curtsy: &Curtsy) -> SendRequest<Bytes> {
    let tcp = TcpStream::connect(curtsy.tls_address()).await.expect("curtsy listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = TlsConnector::from(own.believing(HTTP2)).connect(name, tcp).await.expect("curtsy is believed");
    let (send, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    tokio::spawn(connection);
    send
}

async fn begin(send: &SendRequest<Bytes>, request: Request<()>, whole: bool) -> (ResponseFuture, SendStream<Bytes>) {
    send.clone().ready().await.expect("open").send_request(request, whole).expect("a sound request")
}

pub(crate) async fn get(send: &SendRequest<Bytes>, url: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
    let (response, _) = begin(send, Request::get(url).body(()).expect("a request"), true).await;
    let (head, body) = response.await.expect("a response").into_parts();
    (head.status, head.headers, read(body).await.expect("a whole body"))
}

async fn read(mut body: RecvStream) -> Result<Vec<u8>, h2::Error> {
    let mut all = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece?;
        let _ = body.flow_control().release_capacity(piece.len());
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

/// Reads exactly `count` bytes of a stream.
pub(crate) async fn read_exactly(body: &mut RecvStream, count: usize) {
    let mut left = count;
    while left > 0 {
        let piece = body.data().await.expect("more to come").expect("a sound stream");
        let _ = body.flow_control().release_capacity(piece.len());
        left = left.checked_sub(piece.len()).expect("no more than that");
    }
}

fn to(authority: &str) -> Request<()> {
    let uri: Uri = authority.parse().expect("an authority");
    Request::builder().method(Method::CONNECT).uri(uri).body(()).expect("a request")
}

pub(crate) async fn tunnel(send: &SendRequest<Bytes>, authority: &str) -> (SendStream<Bytes>, RecvStream) {
    let (response, stream) = begin(send, to(authority), false).await;
    let response = response.await.expect("a response");
    assert_eq!(response.status(), 200);
    (stream, response.into_body())
}

#[test]
fn requests_take_the_path_of_all_others() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    run(async {
        let send = connect(&own, &curtsy).await;
        let (status, headers, body) = get(&send, &origin.url("/a?b")).await;
        assert_eq!((status.as_u16(), &body[..]), (200, &b"hello"[..]));
        assert!(!headers.contains_key("connection"), "{headers:?}");
        let (status, headers, _) = get(&send, "http://10.1.2.3/").await;
        assert_eq!(status, 403);
        assert_eq!(headers["curtsy-error"], "destination-denied");
        assert_eq!(get(&send, &origin.url("/again")).await.0, 200);
    });
    let request = origin.request();
    assert_eq!((request.line().as_str(), request.value("Via").as_str()), ("GET /a?b HTTP/1.1", "2 front-desk"));
    assert_eq!(request.value("Host"), origin.authority());
}

#[test]
fn both_sides_may_speak_http2() {
    let (own, authority) = (Own::new(), Authority::new());
    let origin = Http2Origin::hello(&authority);
    let roots = vec![authority.file()];
    let curtsy = own.curtsy(|config| config.tls.extra_roots = roots);
    run(async {
        let send = connect(&own, &curtsy).await;
        for _ in 0..3 {
            assert_eq!(get(&send, &origin.url("/")).await.2, b"hello");
        }
    });
    assert_eq!((origin.arrivals().len(), origin.connections()), (3, 1));
}

/// Promise 1: streams of one connection are spaced like separate connections.
#[test]
fn streams_wait_their_turn() {
    let (own, delay, watch) = (Own::new(), ms(200), Stopwatch::start());
    let (came, comes) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        while let Some(request) = visitor.request() {
            came.send(watch.at(request.at)).unwrap();
            visitor.send(crate::support::HELLO);
        }
    });
    let curtsy = own.curtsy(|config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = delay;
    });
    run(async {
        let send = connect(&own, &curtsy).await;
        let mut answers = Vec::new();
        for _ in 0..10 {
            answers.push(begin(&send, Request::get(origin.url("/")).body(()).unwrap(), true).await.0);
        }
        for answer in answers {
            assert_eq!(answer.await.expect("a response").status(), 200);
        }
    });
    let times: Vec<_> = comes.try_iter().collect();
    assert_eq!(times.len(), 10);
    curtsy.expect_gaps(&times, delay);
}

#[test]
fn a_tunnel_is_a_stream_that_is_half_closed_both_ways() {
    let own = Own::new();
    let origin = Origin::scripted(|visitor| {
        let (asked, end) = visitor.read_to_end();
        assert_eq!((&asked[..], end), (&b"question"[..], End::Fin));
        visitor.send("answer");
    });
    let curtsy = own.curtsy(|_| ());
    run(async {
        let send = connect(&own, &curtsy).await;
        let (mut stream, body) = tunnel(&send, &origin.authority()).await;
        stream.send_data("ques".into(), false).unwrap();
        stream.send_data("tion".into(), true).unwrap();
        assert_eq!(read(body).await.unwrap(), b"answer");
    });
}

#[test]
fn tunnels_carry_bytes_both_ways_at_once() {
    const SIZE: usize = 1_000_000;
    let own = Own::new();
    let origin = Origin::scripted(|visitor| {
        while let Ok(bytes) = visitor.read_some() {
            visitor.send(bytes);
        }
    });
    let curtsy = own.curtsy(|_| ());
    run(async {
        let send = connect(&own, &curtsy).await;
        let mut echoes = Vec::new();
        for number in 0..4_u8 {
            let (mut stream, body) = tunnel(&send, &origin.authority()).await;
            tokio::spawn(async move { pour(&mut stream, Bytes::from(vec![number; SIZE]), true).await });
            echoes.push(tokio::spawn(read(body)));
        }
        for (number, echo) in echoes.into_iter().enumerate() {
            let echo = echo.await.unwrap().unwrap();
            assert!(echo.len() == SIZE && echo.iter().all(|byte| usize::from(*byte) == number));
        }
    });
}

/// S50: on HTTP/2 a refused CONNECT ends its stream only; the connection stays open.
#[test]
fn a_refused_tunnel_closes_nothing_else() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|config| config.access.connect_ports = Some(vec![443]));
    run(async {
        let send = connect(&own, &curtsy).await;
        let (response, _stream) = begin(&send, to("localhost:25"), false).await;
        let response = response.await.expect("an answer");
        assert_eq!(response.status(), 403);
        assert_eq!(response.headers()["curtsy-error"], "destination-denied");
        assert_eq!(get(&send, &origin.url("/")).await.2, b"hello");
    });
}

#[test]
fn a_tunnel_that_is_cancelled_ends_at_the_origin() {
    let own = Own::new();
    let (ended, end) = mpsc::channel();
    let origin = Origin::scripted(move |visitor| {
        visitor.send("hi");
        ended.send(visitor.linger()).unwrap();
    });
    let curtsy = own.curtsy(|_| ());
    run(async {
        let send = connect(&own, &curtsy).await;
        let (mut stream, mut body) = tunnel(&send, &origin.authority()).await;
        assert_eq!(body.data().await.unwrap().unwrap(), "hi");
        stream.send_reset(Reason::CANCEL);
        tokio::task::spawn_blocking(move || assert_ne!(end.recv_timeout(PATIENCE).unwrap(), End::Silence)).await
    })
    .unwrap();
    assert!(soon(|| curtsy.metric("curtsy_tunnels") == 0));
}

/// An idle tunnel ends its stream, not the connection.
#[test]
fn an_idle_tunnel_ends_alone() {
    let (own, page) = (Own::new(), Origin::hello());
    let silent = Origin::scripted(|visitor| _ = visitor.linger());
    let curtsy = own.curtsy(|config| {
        config.upstream.idle_timeout = ms(2_000);
        config.limits.client_idle = ms(15_000);
    });
    run(async {
        let send = connect(&own, &curtsy).await;
        let (_stream, body) = tunnel(&send, &silent.authority()).await;
        let _ = read(body).await;
        assert_eq!(get(&send, &page.url("/")).await.2, b"hello");
    });
}

/// Backpressure: an origin that does not read slows its client down.
#[test]
fn a_tunnel_waits_for_its_slow_end() {
    let own = Own::new();
    let (finish, finished) = mpsc::channel::<()>();
    let finished = std::sync::Mutex::new(finished);
    let origin = Origin::scripted(move |visitor| {
        visitor.small_window();
        let _ = finished.lock().unwrap().recv_timeout(PATIENCE);
    });
    let curtsy = own.curtsy(|_| ());
    let sent = run(async {
        let send = connect(&own, &curtsy).await;
        let (mut stream, _body) = tunnel(&send, &origin.authority()).await;
        let mut sent = 0;
        let piece = Bytes::from_static(&[0; 16 * 1024]);
        while tokio::time::timeout(ms(500), pour(&mut stream, piece.clone(), false)).await == Ok(true) {
            sent += piece.len();
            assert!(sent < 16_000_000, "curtsy takes everything for an origin that takes nothing");
        }
        sent
    });
    assert!(sent > 0);
    finish.send(()).unwrap();
}

#[test]
fn users_are_asked_for_their_names() {
    let (own, origin) = (Own::new(), Origin::hello());
    let users = tempfile::NamedTempFile::new().unwrap();
    let hash = bcrypt::hash("secret", 4).unwrap();
    std::fs::write(users.path(), format!("me:{hash}\n")).unwrap();
    let curtsy = own.curtsy(|config| config.access.users_file = Some(users.path().to_owned()));
    run(async {
        let send = connect(&own, &curtsy).await;
        let (status, headers, _) = get(&send, &origin.url("/")).await;
        assert_eq!(status, 407);
        assert!(headers.contains_key("proxy-authenticate"));
        let request = Request::get(origin.url("/")).header("proxy-authorization", "Basic bWU6c2VjcmV0").body(());
        let (response, _) = begin(&send, request.unwrap(), true).await;
        assert_eq!(response.await.unwrap().status(), 200);
    });
}

/// A client that writes its frames by hand, after both sides have sent their settings.
fn by_hand(own: &Own, curtsy: &Curtsy) -> Client {
    let mut client = own.client(curtsy, HTTP2);
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    client.send(frame(SETTINGS, 0, 0, b""));
    client
}

/// `GET http://authority/`, compressed.
fn fields(authority: &str) -> Vec<u8> {
    [&[0x82, 0x86, 0x84, 0x01, authority.len() as u8][..], authority.as_bytes()].concat()
}

/// Makes the bytes of each round.
type Flood = Box<dyn Fn(u32) -> Vec<u8>>;

/// X32, X38
#[test]
fn floods_are_cut_off_and_harm_no_other_client() {
    let (own, origin) = (Own::new(), Origin::hello());
    let slow = Origin::scripted(|visitor| _ = visitor.linger());
    let curtsy = own.curtsy(|_| ());
    let head = fields(&slow.authority());
    let rapid = move |number: u32| {
        let stream = number * 2 + 1;
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &head), reset(stream, 8)].concat()
    };
    let head = fields(&slow.authority());
    let floods: [(&str, Flood); 6] = [
        ("rapid reset", Box::new(rapid)),
        ("ping", Box::new(|_| frame(PING, 0, 0, b"12345678"))),
        ("settings", Box::new(|_| frame(SETTINGS, 0, 0, b""))),
        ("priority", Box::new(|_| frame(2, 0, 1, &[0, 0, 0, 0, 9]))),
        ("window", Box::new(|_| frame(8, 0, 0, &[0, 0, 0, 1]))),
        (
            "continuation",
            Box::new(
                move |number| if number == 0 { frame(HEADERS, 0, 1, &head) } else { frame(CONTINUATION, 0, 1, b"") },
            ),
        ),
    ];
    for (name, flood) in floods {
        let mut client = by_hand(&own, &curtsy);
        client.patience(ms(1000));
        let cut = (0..2000).any(|round| {
            let many: Vec<u8> = (0..64).flat_map(|number| flood(round * 64 + number)).collect();
            !client.send(many)
        });
        assert!(cut, "{name} is taken for ever");
        assert_eq!(own.client(&curtsy, &["http/1.1"]).ask(&[&origin.get("/"), "Host: x"]).text(), "hello");
    }
    assert!(soon(|| curtsy.metric("curtsy_client_connections") == 0));
}

/// S54, S57: malformed requests are not forwarded.
#[test]
fn malformed_requests_are_refused() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let field = |name: &[u8], value: &[u8]| [&[0x00, name.len() as u8][..], name, &[value.len() as u8], value].concat();
    let bad = [
        field(b"connection", b"close"),
        field(b"transfer-encoding", b"chunked"),
        field(b"X-Upper", b"1"),
        field(b"x", b"a\r\nb: c"),
        field(b"te", b"gzip"),
    ];
    for extra in bad {
        let mut client = by_hand(&own, &curtsy);
        let head = [fields(&origin.authority()), extra].concat();
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &head));
        client.patience(ms(300));
        while client.read_some().is_ok() {}
    }
    assert_eq!(origin.count(), 0, "{}", String::from_utf8_lossy(&origin.bytes()));
}

/// Sends a hand-written request on a new connection and returns what the origin got, if anything.
fn forwarded(own: &Own, curtsy: &Curtsy, origin: &Origin, head: &[u8], body: &[u8]) -> Option<Message> {
    let (mut client, before) = (by_hand(own, curtsy), origin.count());
    client.send(frame(HEADERS, END_HEADERS, 1, head));
    client.send(frame(DATA, END_STREAM, 1, body));
    // Reads until the origin has the request, or until nothing comes for a second.
    client.patience(ms(1000));
    let mut seen = Vec::new();
    while let Ok(bytes) = client.read_some() {
        seen.extend(bytes);
        if origin.count() > before {
            break;
        }
    }
    (origin.count() > before).then(|| origin.request())
}

/// A compressed head: `POST`, `http`, `/`, this authority if any, and these fields.
fn posted(authority: Option<&str>, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut head = vec![0x83, 0x86, 0x84];
    if let Some(authority) = authority {
        head.extend([0x01, authority.len() as u8]);
        head.extend(authority.as_bytes());
    }
    for (name, value) in fields {
        head.extend([0x00, name.len() as u8]);
        head.extend(name.as_bytes());
        head.push(value.len() as u8);
        head.extend(value.as_bytes());
    }
    head
}

/// X27, S28: equal Content-Lengths arrive as one; a request with an invalid one is not forwarded (RFC 9112, section
/// 6.3).
#[test]
fn lengths_of_http2_requests_are_written_as_one_number() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let authority = origin.authority();
    let length = "content-length";
    let twice = forwarded(&own, &curtsy, &origin, &posted(Some(&authority), &[(length, "4"), (length, "4")]), b"abcd");
    let twice = twice.expect("equal lengths are one");
    assert_eq!((twice.values("Content-Length"), twice.text().as_str()), (vec!["4".to_owned()], "abcd"));
    for bad in [&[(length, "")][..], &[(length, "4, 4")], &[(length, "+4")], &[(length, "4"), (length, "")]] {
        let came = forwarded(&own, &curtsy, &origin, &posted(Some(&authority), bad), b"abcd");
        assert!(came.is_none(), "{bad:?}: {:?}", came.map(|request| request.head()));
    }
}

/// S55: without `:authority` the h2 crate drops the scheme, so curtsy refuses the request instead of guessing.
#[test]
fn a_request_without_an_authority_is_refused() {
    let (own, origin) = (Own::new(), Origin::hello());
    let curtsy = own.curtsy(|_| ());
    let authority = origin.authority();
    for host in [authority.as_str(), "a@b", ""] {
        let mut client = by_hand(&own, &curtsy);
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, &posted(None, &[("host", host)])));
        // The first field of the answer's head is its status; 400 is the twelfth entry of the static table.
        let head = frame(HEADERS, END_HEADERS, 1, b"");
        let mut came = Vec::new();
        let is_refused = |came: &[u8]| came.windows(10).any(|bytes| bytes[3..9] == head[3..9] && bytes[9] == 0x8c);
        while !is_refused(&came) {
            came.extend(client.read_some().unwrap_or_else(|end| panic!("{host:?}: {end:?} after {came:x?}")));
        }
    }
    origin.expect_untouched();
    let named = forwarded(&own, &curtsy, &origin, &posted(Some(&authority), &[("host", "other.test")]), b"abcd");
    assert_eq!(named.expect("the authority counts").value("Host"), authority);
}

/// X35: 2000 waiting requests, each with a field of 4 KiB seven times; HPACK encodes each field in a single byte.
#[test]
fn requests_of_a_few_bytes_hold_little_memory() {
    let (own, origin) = (Own::new(), Origin::hello());
    let tables = format!(
        "[tls]\nlisten = '127.0.0.1:0'\nlisten_cert = {:?}\nlisten_key = {:?}\n",
        own.cert().display().to_string(),
        own.key().display().to_string()
    );
    let top = "admin = \"127.0.0.1:0\"\npoliteness.mode = \"enforce\"\npoliteness.delay = \"10s\"\n\
               politeness.max_wait = \"24h\"\npoliteness.max_queue = 5000\ncache.collapse = false";
    let program = Program::start(top, &tables);
    let ready = program.event("ready").expect("it is ready");
    let address = ready["tls"].as_str().and_then(|url| url.strip_prefix("https://")).expect("an address").to_owned();
    let admin = ready["admin"].as_str().expect("an address").parse().expect("an address");
    let count = |series: &str| {
        let page =
            Client::connect(admin).ask(&["GET /metrics HTTP/1.1", "Host: localhost", "Connection: close"]).text();
        let value = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(0, |value| value.parse::<u64>().expect("a number"))
    };
    let before = program.peak_memory();
    let long = [&[0x40, 3][..], b"x-a", &[0x7f, 0xa1, 0x1e], &[b'a'; 4000]].concat();
    let connections: Vec<_> = (0..20)
        .map(|_| {
            let mut client = Client::connect(address.parse().expect("an address"));
            client.seek_tls(&own.believing(HTTP2), "localhost").expect("curtsy is believed");
            client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            client.send(frame(SETTINGS, 0, 0, b""));
            for number in 0..100 {
                let more = if number == 0 { long.clone() } else { vec![0xbe; 7] };
                let head = [fields(&origin.authority()), more].concat();
                client.send(frame(HEADERS, END_HEADERS | END_STREAM, number * 2 + 1, &head));
            }
            client
        })
        .collect();
    let refused = "curtsy_rejections_total{reason=\"queue_full\"}";
    assert!(soon(|| count("curtsy_inflight_requests") + count(refused) + origin.count() as u64 >= 2000));
    let each = (program.peak_memory() - before) / 2000;
    assert!(each < 20, "{each} KiB for each");
    assert!(
        count(refused) > 0 && count("curtsy_inflight_requests") > 200,
        "small heads wait, large ones up to a bound"
    );
    drop(connections);
}
