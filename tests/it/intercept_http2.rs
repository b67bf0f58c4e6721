//! Intercepted tunnels with a client that speaks HTTP/2 inside.

use std::future::Future;

use bytes::Bytes;
use curtsy::config::{Mode, RobotsMode};
use h2::client::SendRequest;
use http::{HeaderMap, Method, Request, StatusCode, Version};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::tls_client::{believing, inside, intercepting, punctual, tunnel};
use crate::support::{Authority, Curtsy, HELLO, Message, Origin, PATIENCE, Visitor, ms, soon};

fn hello(visitor: &mut Visitor) {
    while visitor.request().is_some() {
        visitor.send(HELLO);
    }
}

/// Runs a client to completion, or fails after `PATIENCE`.
fn run<T>(client: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(PATIENCE, client).await.expect("in time") })
}

/// An HTTP/2 connection through curtsy to the origin.
async fn connect(curtsy: &Curtsy, origin: &Origin) -> SendRequest<Bytes> {
    let config = believing(curtsy, &["h2", "http/1.1"]);
    let mut tcp = TcpStream::connect(curtsy.address()).await.expect("curtsy listens");
    let target = local(origin);
    tcp.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.expect("open");
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(tcp.read_u8().await.expect("an answer"));
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    let name = ServerName::try_from("localhost").expect("a name");
    let tls = TlsConnector::from(config).connect(name, tcp).await.expect("curtsy is believed");
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (send, connection) = h2::client::handshake(tls).await.expect("HTTP/2");
    tokio::spawn(connection);
    send
}

fn local(origin: &Origin) -> String {
    format!("localhost:{}", origin.port())
}

fn request(method: Method, authority: &str, path: &str) -> Request<()> {
    let uri = format!("https://{authority}{path}");
    Request::builder().method(method).uri(uri).version(Version::HTTP_2).body(()).expect("a request")
}

async fn exchange(
    send: &mut SendRequest<Bytes>,
    request: Request<()>,
    body: Option<Bytes>,
) -> (StatusCode, HeaderMap, Vec<u8>) {
    let mut ready = send.clone().ready().await.expect("open");
    let (response, mut stream) = ready.send_request(request, body.is_none()).expect("a sound request");
    if let Some(mut body) = body {
        while !body.is_empty() {
            stream.reserve_capacity(body.len().min(16 * 1024));
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.expect("open").expect("room");
            let piece = body.split_to(room.min(body.len()));
            stream.send_data(piece, body.is_empty()).expect("open");
        }
    }
    let (parts, mut incoming) = response.await.expect("a response").into_parts();
    let mut bytes = Vec::new();
    while let Some(piece) = incoming.data().await {
        let piece = piece.expect("a whole body");
        incoming.flow_control().release_capacity(piece.len()).expect("what was received");
        bytes.extend_from_slice(&piece);
    }
    (parts.status, parts.headers, bytes)
}

async fn get(send: &mut SendRequest<Bytes>, origin: &Origin, path: &str) -> (StatusCode, HeaderMap, Vec<u8>) {
    exchange(send, request(Method::GET, &local(origin), path), None).await
}

/// S16, S55
#[test]
fn requests_over_http2_are_read_and_forwarded() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        for path in ["/a?b", "/c"] {
            let (status, headers, body) = get(&mut send, &origin, path).await;
            assert_eq!((status, &body[..]), (StatusCode::OK, &b"hello"[..]));
            assert!(headers["via"].to_str().unwrap().contains("front-desk"));
        }
    });
    let requests = origin.requests(2);
    assert_eq!(requests[0].line(), "GET /a?b HTTP/1.1");
    assert_eq!(requests[0].value("Host"), local(&origin));
    assert_eq!(requests[0].value("Via"), "2 front-desk");
    assert_eq!(curtsy.metric("curtsy_requests_total{kind=\"https\",outcome=\"forwarded\"}"), 2);
    assert!(soon(|| curtsy.metric("curtsy_client_connections") == 0));
}

/// S22
#[test]
fn cookies_come_in_one_field() {
    let authority = Authority::new();
    let (origin, curtsy) = (authority.origin(hello), intercepting(&authority, |_| ()));
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        let mut asked = request(Method::GET, &local(&origin), "/");
        asked.headers_mut().append("cookie", "a=1".parse().unwrap());
        asked.headers_mut().append("cookie", "b=2".parse().unwrap());
        exchange(&mut send, asked, None).await;
    });
    assert_eq!(origin.request().values("Cookie"), ["a=1; b=2"]);
}

/// S56, S59
#[test]
fn refusals_come_inside_with_their_words() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while let Some(request) = visitor.request() {
            let rules = "User-agent: *\nDisallow: /private\n";
            let robots = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{rules}", rules.len());
            visitor.send(if request.line().contains("/robots.txt") { robots } else { HELLO.to_owned() });
        }
    });
    let curtsy = intercepting(&authority, |config| config.politeness.robots = RobotsMode::Enforce);
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        let (status, headers, body) = get(&mut send, &origin, "/private/x").await;
        assert_eq!((status, &headers["curtsy-error"]), (StatusCode::FORBIDDEN, &"robots-denied".parse().unwrap()));
        assert!(String::from_utf8_lossy(&body).contains("/private"));
        for authority in ["other.test", "localhost", "localhost:1"] {
            let (status, headers, _) = exchange(&mut send, request(Method::GET, authority, "/"), None).await;
            assert_eq!((status.as_u16(), &headers["curtsy-error"]), (421, &"misdirected".parse().unwrap()));
        }
        let mut two_hosts = request(Method::GET, &local(&origin), "/");
        two_hosts.headers_mut().insert("host", "other.test".parse().unwrap());
        assert_eq!(exchange(&mut send, two_hosts, None).await.0.as_u16(), 421);
        let tunnel = Request::builder().method(Method::CONNECT).uri("other.test:443").body(()).unwrap();
        assert_eq!(exchange(&mut send, tunnel, None).await.0, StatusCode::NOT_IMPLEMENTED);
        assert_eq!(get(&mut send, &origin, "/public").await.0, StatusCode::OK, "the connection lives on");
    });
}

/// Promise 1: requests on one connection wait for their turns like any others.
#[test]
fn gaps_hold_on_one_connection() {
    let authority = Authority::new();
    let (origin, arrivals) = punctual(&authority);
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(400);
    });
    run(async {
        let send = connect(&curtsy, &origin).await;
        let asking = (0..4).map(|n| {
            let (mut send, request) = (send.clone(), request(Method::GET, &local(&origin), &format!("/{n}")));
            tokio::spawn(async move { exchange(&mut send, request, None).await.0 })
        });
        for asked in asking.collect::<Vec<_>>() {
            assert_eq!(asked.await.unwrap(), StatusCode::OK);
        }
    });
    let times: Vec<_> = arrivals.iter().take(4).collect();
    curtsy.expect_gaps(&times, ms(400));
}

/// X37
#[test]
fn a_request_that_is_taken_back_costs_no_turn() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(500);
    });
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        assert_eq!(get(&mut send, &origin, "/first").await.0, StatusCode::OK);
        let mut ready = send.clone().ready().await.unwrap();
        let (response, mut stream) = ready.send_request(request(Method::GET, &local(&origin), "/back"), true).unwrap();
        while curtsy.metric("curtsy_queued_requests") == 0 {
            tokio::task::yield_now().await;
        }
        stream.send_reset(h2::Reason::CANCEL);
        drop(response);
        assert_eq!(get(&mut send, &origin, "/second").await.0, StatusCode::OK);
    });
    let lines: Vec<String> = origin.requests(2).iter().map(Message::line).collect();
    assert_eq!(lines, ["GET /first HTTP/1.1", "GET /second HTTP/1.1"]);
}

#[test]
fn large_bodies_pass_both_ways() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while let Some(request) = visitor.request() {
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", request.body.len()));
            visitor.send(&request.body);
        }
    });
    let curtsy = intercepting(&authority, |_| ());
    let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let (status, _, echoed) = run(async {
        let mut send = connect(&curtsy, &origin).await;
        exchange(&mut send, request(Method::POST, &local(&origin), "/x"), Some(body.clone().into())).await
    });
    assert!(status == StatusCode::OK && echoed == body, "{status}, {} bytes", echoed.len());
}

/// X33
#[test]
fn an_upload_that_stalls_ends_alone() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| config.limits.client_stall = ms(300));
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        let mut ready = send.clone().ready().await.unwrap();
        let (response, mut stream) =
            ready.send_request(request(Method::POST, &local(&origin), "/stall"), false).unwrap();
        stream.send_data(Bytes::from_static(b"some"), false).unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(get(&mut send, &origin, "/next").await.0, StatusCode::OK, "others on the connection go on");
    });
}

/// X34
#[test]
fn a_client_that_takes_nothing_holds_no_place() {
    let authority = Authority::new();
    let origin = authority.origin(|visitor| {
        while visitor.request().is_some() {
            visitor.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 8 << 20));
            visitor.send(vec![7; 8 << 20]);
        }
    });
    let curtsy = intercepting(&authority, |config| config.limits.client_stall = ms(300));
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        let (response, _stream) = send.send_request(request(Method::GET, &local(&origin), "/"), true).unwrap();
        let mut body = response.await.unwrap().into_body();
        // The client never opens the window again, while the connection still answers pings.
        while let Some(Ok(_)) = body.data().await {}
    });
    assert!(soon(|| curtsy.metric("curtsy_inflight_requests") == 0));
}

/// X38
#[test]
fn a_flood_of_resets_ends_the_connection() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| {
        config.politeness.mode = Mode::Enforce;
        config.politeness.delay = ms(10_000);
    });
    run(async {
        let send = connect(&curtsy, &origin).await;
        let mut ended = false;
        for n in 0..20_000 {
            let Ok(mut ready) = send.clone().ready().await else {
                ended = true;
                break;
            };
            let asked = request(Method::GET, &local(&origin), &format!("/{n}"));
            let Ok((_, mut stream)) = ready.send_request(asked, true) else {
                ended = true;
                break;
            };
            stream.send_reset(h2::Reason::CANCEL);
        }
        assert!(ended || curtsy.metric("curtsy_queued_requests") <= 100, "what was taken back is not kept");
    });
    assert!(origin.requests(0).len() <= 1);
}

/// S58
#[test]
fn http2_is_not_offered_where_it_is_not_wanted() {
    let authority = Authority::new();
    let origin = authority.origin(hello);
    let curtsy = intercepting(&authority, |config| config.tls.http2_clients = false);
    let mut client = tunnel(&curtsy, &local(&origin));
    client.seek_tls(&believing(&curtsy, &["h2", "http/1.1"]), "localhost").unwrap();
    let response = client.ask(&["GET / HTTP/1.1", &format!("Host: {}", local(&origin))]);
    assert_eq!(response.status(), 200);
    assert_eq!(inside(&curtsy, "localhost", origin.port()).ask(&["GET / HTTP/1.0"]).status(), 200, "no Host, no doubt");
}

/// C64: hits, 304 and refusals by the cache, inside a tunnel and over HTTP/2.
#[test]
fn the_cache_answers_over_http2() {
    let authority = Authority::new();
    let page = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nETag: \"1\"\r\nContent-Length: 4\r\n\r\nbody";
    let origin = authority.origin(move |visitor| {
        while visitor.request().is_some() {
            visitor.send(page);
        }
    });
    let curtsy = intercepting(&authority, |_| ());
    let told = |headers: &HeaderMap| headers["cache-status"].to_str().unwrap().to_owned();
    run(async {
        let mut send = connect(&curtsy, &origin).await;
        let (_, headers, body) = get(&mut send, &origin, "/").await;
        assert!(told(&headers).ends_with("fwd=uri-miss; stored") && body == b"body");
        let (_, headers, body) = get(&mut send, &origin, "/").await;
        assert!(told(&headers).contains("; hit; ttl=") && headers.contains_key("age") && body == b"body");
        let mut conditional = request(Method::GET, &local(&origin), "/");
        conditional.headers_mut().insert("if-none-match", "\"1\"".parse().unwrap());
        assert_eq!(exchange(&mut send, conditional, None).await.0, StatusCode::NOT_MODIFIED);
        let mut only = request(Method::GET, &local(&origin), "/other");
        only.headers_mut().insert("cache-control", "only-if-cached".parse().unwrap());
        assert_eq!(exchange(&mut send, only, None).await.0, StatusCode::GATEWAY_TIMEOUT);
    });
    assert_eq!(origin.count(), 1);
}
